"""Schema files: columns, keys and options of a table, one file for each version.

UTF-8 JSON, Jackson's pretty print, members in the order version, id, fields, highestFieldId, partitionKeys,
primaryKeys, options, comment (left out when absent), timeMillis.

:class:`Names` decides which names mean the same column, table or alias: the one rule that
``spark.sql.caseSensitive`` switches.

Changes of a table's columns are values (:data:`SchemaChange`), which :func:`bitlake.metadata.evolve.evolve` applies.
Their ``path`` names a column, or a part of one: members of a struct by name, ``element`` inside an array, ``value``
inside a map (``("orders", "element", "price")``).  Names ignore case where that is unambiguous.

Source: table-format spec, section 2.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias, dataclass_transform

from bitlake import _clock, arguments
from bitlake.errors import CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.formatting import one_line
from bitlake.metadata.java_json import check_members, dumps, load_object
from bitlake.metadata.options import BUCKET, BUCKET_KEY, Options, option_texts
from bitlake.types import ArrayType, DataField, DataType, MapType, MultisetType, NextId, RowType
from bitlake.types.datatypes import field_from_json, field_to_json, inner_types


class Names(Enum):
    """Rules to compare names."""

    FOLDED = "folded"
    """Upper and lower case are the same, as in Spark by default."""
    EXACT = "exact"
    """As written, with ``spark.sql.caseSensitive=true``."""

    def key(self, name: str) -> str:
        """Return a key that two names share exactly if they are the same."""
        return name if self is Names.EXACT else name.lower()

    def same(self, one: str, other: str) -> bool:
        """Whether two names are the same."""
        return self.key(one) == self.key(other)

    def clear(self, names: Iterable[str]) -> dict[str, str]:
        """The names by :meth:`key`, without those that share theirs with another."""
        known = list(names)
        times = Counter(map(self.key, known))
        return {self.key(n): n for n in known if times[self.key(n)] == 1}

    def check(self, table: str, names: Iterable[str]) -> None:
        """Raise :class:`InvalidRequest` if two columns of a table are the same."""
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(self.key(name), name)
            if other is not name:
                raise InvalidRequest(
                    f"table '{table}' has columns '{other}' and '{name}', which this session cannot tell apart; "
                    "SET spark.sql.caseSensitive = true first"
                )


# --- schema files -----------------------------------------------------------------------------------------------------

VERSION = 3
"""The format version written; older ones get the defaults of their time when read."""
MOST_DEPTH = 64
"""Levels of nesting that are read, as in Avro schemas (:mod:`bitlake.codec.avro`)."""

_MEMBERS = frozenset(
    ("version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options", "comment", "timeMillis")
)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's columns, keys and options.

    >>> schema = customers.schema
    >>> schema.field_names, schema.primary_keys, schema.bucket_keys, schema.num_buckets
    (('customer_id', 'name', 'city'), ('customer_id',), ('customer_id',), 1)
    >>> schema.field("city")
    DataField(2: city STRING)
    >>> print(schema.to_json())
    {
      "version" : 3,
      "id" : 0,
      "fields" : [ {
        "id" : 0,
    ...
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    comment: str | None = None
    time_millis: int = 0
    version: int = VERSION

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self.fields)
        key = f", primary key {', '.join(self.primary_keys)}" if self.primary_keys else ""
        partition = f", partitioned by {', '.join(self.partition_keys)}" if self.partition_keys else ""
        return one_line(f"TableSchema({self.id}: {columns}{key}{partition})", 200)

    @property
    def opts(self) -> Options:
        """The options, read typed."""
        return Options(self.options)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(f.name for f in self.fields)

    @property
    def partition_fields(self) -> tuple[DataField, ...]:
        """The partition columns in partition order."""
        return tuple(self.field(n) for n in self.partition_keys)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The primary key without partition columns, in key order: what rows of a bucket are keyed by."""
        return tuple(n for n in self.primary_keys if n not in self.partition_keys)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """The columns whose hash picks the bucket: ``bucket-key``, else the trimmed primary key."""
        return self.opts.of(BUCKET_KEY) or self.trimmed_primary_keys

    @property
    def bucket_fields(self) -> tuple[DataField, ...]:
        """The columns of :attr:`bucket_keys`."""
        return tuple(self.field(n) for n in self.bucket_keys)

    @property
    def num_buckets(self) -> int:
        """The option ``bucket``: a count above 0, -1 (unaware or dynamic) or -2 (postpone)."""
        return self.opts.of(BUCKET)

    def field(self, name: str, names: Names = Names.FOLDED) -> DataField:
        """The column of that name: as written, else the same by ``names``; raises :class:`NotFound`."""
        for f in self.fields:
            if f.name == name:
                return f
        if not isinstance(name, str):
            raise InvalidRequest(f"invalid column name {name!r}; expected a string")
        folded = [f for f in self.fields if names.same(f.name, name)]
        if len(folded) == 1:
            return folded[0]
        if folded:
            raise InvalidRequest(f"column '{name}' could be any of {', '.join(f.name for f in folded)}")
        raise NotFound(f"no column '{name}'{near(name, self.field_names)}")

    def is_version(self, other: TableSchema) -> bool:
        """Whether both are the same schema file, options aside: same id, columns, keys and time of creation."""
        if self.id != other.id or self.time_millis != other.time_millis:
            return False
        columns = [[(f.id, f.name, str(f.type)) for f in s.fields] for s in (self, other)]
        keys = [(s.partition_keys, s.primary_keys) for s in (self, other)]
        return columns[0] == columns[1] and keys[0] == keys[1]

    def with_options(self, set: Mapping[str, str] | None = None, unset: Iterable[str] = ()) -> TableSchema:
        """The same schema version with options set, then others removed."""
        removed = frozenset(arguments.names("unset", unset))
        merged = {**self.options, **option_texts(set)}
        return dataclasses.replace(self, options={k: v for k, v in merged.items() if k not in removed})

    def next(self, **changes: Any) -> TableSchema:
        """The following schema version: the next id, the time now, and ``changes`` to other members.

        ``highest_field_id`` never decreases, whatever is asked for.
        """
        highest = max(self.highest_field_id, changes.pop("highest_field_id", self.highest_field_id))
        fixed: dict[str, Any] = {"id": self.id + 1, "time_millis": _clock.now_ms(), "version": VERSION}
        return dataclasses.replace(self, **{**fixed, **changes, "highest_field_id": highest})

    def to_json(self) -> str:
        """The file's text, as Jackson writes it."""
        out: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(f) for f in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": self.partition_keys,
            "primaryKeys": self.primary_keys,
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        out["timeMillis"] = self.time_millis
        return dumps(out)

    @staticmethod
    def from_json(data: bytes, path: str = "schema") -> TableSchema:
        """Parse a schema file of any version.

        Raises :class:`CorruptError` when it is not a schema, :class:`UnsupportedFeature` for an unknown column type.
        """
        o = load_object(data, path)
        check_members(o, _MEMBERS)
        version = o.maybe_int("version") or 1
        if version > VERSION:
            raise UnsupportedFeature(f"{path}: schema version {version} is newer than {VERSION}, the last one known")
        try:
            fields = tuple(field_from_json(f) for f in o.list("fields"))
        except InvalidRequest as e:
            raise UnsupportedFeature(f"{path}: {e}") from e
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise CorruptError(f"a field of the schema is malformed: {e}", None, path) from e
        _check_fields(fields, 1, path)
        options = o.mapping("options")
        if version <= 1:  # Paimon ≤ 0.7 had one bucket by default
            options = {**options, "bucket": options.get("bucket", "1")}
        if version <= 2:  # Paimon 0.8 wrote ORC by default
            options = {**options, "file.format": options.get("file.format", "orc")}
        schema = TableSchema(
            o.int("id"),
            fields,
            o.int("highestFieldId"),
            o.texts("partitionKeys"),
            o.texts("primaryKeys"),
            options,
            o.maybe_text("comment"),
            o.maybe_int("timeMillis") or 0,
            version,
        )
        names = set(schema.field_names)
        for key in (*schema.partition_keys, *schema.primary_keys):
            if key not in names:
                raise CorruptError(f"key column '{key}' is not among the columns", None, path)
        return schema


def _check_fields(fields: Sequence[DataField], depth: int, path: str) -> None:
    """Refuse what no Paimon type has: two fields of one name in a row, and nesting without end."""
    if depth > MOST_DEPTH:
        raise CorruptError(f"a column is nested more than {MOST_DEPTH} levels deep", None, path)
    names = [f.name for f in fields]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise CorruptError(f"two fields of one row are named '{twice}'", None, path)
    for one in fields:
        _check_type(one.type, depth, path)


def _check_type(made: DataType, depth: int, path: str) -> None:
    if depth > MOST_DEPTH:
        raise CorruptError(f"a column is nested more than {MOST_DEPTH} levels deep", None, path)
    if isinstance(made, RowType):
        _check_fields(made.fields, depth + 1, path)
    else:
        for inner in inner_types(made):
            _check_type(inner, depth + 1, path)


def close_names(name: str, names: Iterable[str]) -> list[str]:
    """At most three of the names that are spelt like a name, whatever their case, the nearest first."""
    folded = {n.lower(): n for n in names}
    return [folded[n] for n in difflib.get_close_matches(name.lower(), folded, 3, 0.6)]


def near(name: str, names: Iterable[str]) -> str:
    """A hint to put after "no such …": the names like it, or all of them when they are few."""
    known = list(names)
    close = close_names(name, known)
    if close:
        return f"; did you mean {', '.join(close)}?"
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 20 else ""


class MissingTable(NotFound):
    """A query names a table that neither the lake nor the session has."""

    def __init__(self, name: str, hint: str = "") -> None:
        self.name = name
        super().__init__(f"table or view '{name}' does not exist{hint}")


class MissingColumn(NotFound):
    """A query names a column that does not exist.  ``tables`` are the query's lake tables with their columns.

    ``offered`` are the columns that the engine offers instead, dotted; some views and columns are bitlake's own.
    """

    def __init__(self, name: str, offered: Sequence[str], tables: Mapping[str, Sequence[str]] | None = None) -> None:
        self.name, self.offered = name, [o for o in offered if "__bitlake_" not in o and "__paimon_" not in o]
        tables = tables or {}
        last = name.rpartition(".")[2]
        ends = {o: o.rpartition(".")[2] for o in self.offered}
        close = [] if last == name else [o for o in ends if ends[o] == last] or close_names(name, ends)
        if not close:
            close = close_names(last, [*(c for columns in tables.values() for c in columns), *ends.values()])
        hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
        lines = [f"table '{table}' has columns {', '.join(names)}" for table, names in tables.items()]
        if not tables and not close and self.offered:
            hint = f"; there are {', '.join(self.offered)}"
        super().__init__("\n".join([f"no column '{name}'{hint}", *lines]))

    def among(self, tables: Mapping[str, Sequence[str]]) -> NotFound:
        """The error with the columns of the query's lake tables."""
        return NotFound(str(MissingColumn(self.name, self.offered, tables)))


def assign_ids(
    columns: Sequence[tuple[str, DataType, str | None]], highest: int = -1
) -> tuple[tuple[DataField, ...], int]:
    """Number columns and their nested fields after ``highest``; returns the fields and the highest id used.

    A column takes the next id, then its nested fields follow depth-first, each *after* its own children
    (table-format spec, section 2).
    """
    number = NextId(highest)
    fields = []
    for name, kind, comment in columns:
        own = number()
        fields.append(DataField(own, name, _numbered(kind, number), comment))
    return tuple(fields), number.last


def _numbered(made: DataType, number: NextId) -> DataType:
    if isinstance(made, RowType):
        inner = []
        for f in made.fields:
            kind = _numbered(f.type, number)
            inner.append(dataclasses.replace(f, id=number(), type=kind))
        return dataclasses.replace(made, fields=tuple(inner))
    if isinstance(made, (ArrayType, MultisetType)):
        return dataclasses.replace(made, element=_numbered(made.element, number))
    if isinstance(made, MapType):
        key = _numbered(made.key, number)
        return dataclasses.replace(made, key=key, value=_numbered(made.value, number))
    return made


_RESERVED = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind")


def check_column_name(name: str, *, top: bool = True) -> None:
    """Raise :class:`InvalidRequest` for a blank name, and for a name of a column that Paimon reserves.

    ``top``: the name is of a column, not of a member of a struct, which may have any name but a blank one.
    Source: Paimon's ``SpecialFields.SYSTEM_FIELD_NAMES`` and ``KEY_FIELD_PREFIX``.
    """
    if not name.strip():
        raise InvalidRequest("a column's name is blank")
    if top and (name.startswith(("_KEY_", "__paimon_")) or name in _RESERVED):
        raise InvalidRequest(f"column name '{name}' is reserved by Paimon")


def check_struct_names(column: str, data_type: DataType, names: Names) -> None:
    """Raise :class:`InvalidRequest` for a struct, at any depth, whose members lack a name or share one."""
    if isinstance(data_type, RowType):
        seen: set[str] = set()
        for member in data_type.fields:
            if not member.name.strip():
                raise InvalidRequest(f"column '{column}': a member of its struct has no name")
            if names.key(member.name) in seen:
                ignored = " (names ignore case)" if names is Names.FOLDED else ""
                raise InvalidRequest(f"column '{column}': its struct has two members named '{member.name}'{ignored}")
            seen.add(names.key(member.name))
            check_struct_names(f"{column}.{member.name}", member.type, names)
    else:
        for inner in inner_types(data_type):
            check_struct_names(column, inner, names)


# --- changes of columns -----------------------------------------------------------------------------------------------

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A column's place among its siblings: behind ``after``, or first when that is None."""

    after: str | None = None


FIRST = Position()


@dataclass_transform(frozen_default=True)
class SchemaChange:
    """One change of a table's columns or comment; each kind is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class AddColumn(SchemaChange):
    """A new column, last unless ``position`` says otherwise; rows written before read NULL."""

    path: Path
    type: DataType
    comment: str | None = None
    position: Position | None = None


class DropColumn(SchemaChange):
    """Take a column away; its values stay in the files, unread."""

    path: Path
    if_exists: bool = False


class RenameColumn(SchemaChange):
    """Give a column another name; options that name it follow."""

    path: Path
    new_name: str


class RetypeColumn(SchemaChange):
    """Give a column another type, keeping whether it may be NULL; stored values are cast when they are read."""

    path: Path
    type: DataType


class SetNullable(SchemaChange):
    """Let a column hold NULL, or not any more."""

    path: Path
    nullable: bool


class SetComment(SchemaChange):
    """Describe a column; None takes the description away."""

    path: Path
    comment: str | None


class MoveColumn(SchemaChange):
    """Put a column elsewhere among its siblings."""

    path: Path
    position: Position


class SetDefault(SchemaChange):
    """The SQL literal that rows written without the column get from now on; None takes it away."""

    path: Path
    sql: str | None


class SetTableComment(SchemaChange):
    """Describe the table; None takes the description away."""

    comment: str | None
