"""The registry of file index types, and the table options that ask for indexes.

``file-index.<type>.columns = a, b, m[k]`` names the columns; ``file-index.<type>.<column>.<option>`` sets an option of
one of them (of one map key, or of all keys of a map column).  Source: index-format spec, section 1.4.
``bitlake.index.<name>`` declares an index of an expression (:mod:`bitlake.fileindex.named_index`).

A built-in type is one line in :data:`INDEX_TYPES`.  A type of another package is registered by :func:`register` in
this process, or by an entry point of the group ``bitlake.file_indexes`` in every process, Spark executors included::

    [project.entry-points."bitlake.file_indexes"]
    min-max = "my_package.min_max:MIN_MAX"

:class:`IndexBuilder` builds all indexes of one data file while it is written.
"""

from __future__ import annotations

import difflib
import functools
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from bitlake.errors import BitlakeError, EvaluationFailed, InvalidRequest, UnsupportedFeature
from bitlake.expressions.tree import IndexedExpression
from bitlake.fileindex import INDEX_COLUMNS, INDEX_PREFIX
from bitlake.fileindex.bitmap import BITMAP
from bitlake.fileindex.bloom_filter import BLOOM_FILTER
from bitlake.fileindex.bsi import BSI
from bitlake.fileindex.capabilities import IndexType, IndexWriter, MemberWriter
from bitlake.fileindex.container import encode_container, split_map_key
from bitlake.fileindex.named_index import NAMED, declared_parts, index_name, index_names, named_indexes, named_keys
from bitlake.fileindex.ngram import NGRAM
from bitlake.fileindex.range_bitmap import RANGE_BITMAP
from bitlake.fileindex.source import IndexSource, index_source, indexed_type
from bitlake.fileindex.tokens import TOKENS
from bitlake.types import AtomicType, DataField, MapType
from bitlake.types.datatypes import STRINGS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("bitlake")

T = TypeVar("T")
ENTRY_POINTS = "bitlake.file_indexes"

# In the order of evaluation: cheapest and most precise first.
INDEX_TYPES: dict[str, IndexType] = {
    index.name: index for index in (BITMAP, BLOOM_FILTER, RANGE_BITMAP, BSI, TOKENS, NGRAM)
}
"""The index types that this process knows, by name."""
_ORDER = {name: number for number, name in enumerate(INDEX_TYPES)}


def register(index_type: IndexType) -> None:
    """Make an index type known to this process, evaluated after those registered before.

    Raises :class:`InvalidRequest` if another type has its name.
    """
    if INDEX_TYPES.setdefault(index_type.name, index_type) is not index_type:
        raise InvalidRequest(f"index type '{index_type.name}' is registered already; choose another name")
    _ORDER.setdefault(index_type.name, len(_ORDER))


def find_index_type(name: str) -> IndexType | None:
    """Return a type that is registered, or that an installed package provides.  None if there is none."""
    index = INDEX_TYPES.get(name)
    if index is None and (point := _entry_points(tuple(sys.path)).get(name)) is not None:
        index = _load(point)
        register(index)
    return index


def known_index_type(name: str) -> IndexType:
    """Return a type as :func:`find_index_type` does; raises :class:`InvalidRequest` if there is none."""
    index = find_index_type(name)
    if index is None:
        raise InvalidRequest(f"unknown index type '{name}'; known are {', '.join(sorted(INDEX_TYPES))}")
    return index


def index_type_named(written: str) -> str:
    """The name of an index type as SQL may write it, in any case and with ``_`` for ``-``."""
    name = written.lower()
    hyphenated = name.replace("_", "-")
    return hyphenated if find_index_type(name) is None and find_index_type(hyphenated) is not None else name


def index_types() -> list[IndexType]:
    """Return all types that are registered or that installed packages provide, in the order of evaluation.

    A package whose type cannot be loaded is logged and left out: tables that do not use the type need not fail.
    """
    for name in _entry_points(tuple(sys.path)):
        try:
            find_index_type(name)
        except UnsupportedFeature as e:
            log.warning("%s", e)
    return list(INDEX_TYPES.values())


def evaluation_order(name: str) -> int:
    """Sort key: the indexes of a column are evaluated in this order until one is exact."""
    return _ORDER.get(name, len(_ORDER))


@functools.lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Find what installed packages provide; again if ``sys.path`` changes, since Spark adds shipped packages to it."""
    from importlib.metadata import entry_points  # imported lazily: only tables with other packages' types need it

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> IndexType:
    try:
        index = point.load()
    except (ImportError, AttributeError) as e:
        raise UnsupportedFeature(f"index type '{point.name}' cannot be loaded from '{point.value}': {e}") from e
    if not isinstance(index, IndexType) or index.name != point.name:
        raise UnsupportedFeature(f"entry point '{point.value}' is not an index type named '{point.name}'")
    return index


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index to build: ``column`` is a column's name, ``m[k]`` for one key of a map column, or an expression.

    ``name`` is that of an index that is declared by name, else empty.

    >>> index = table.indexes.list()[0]
    >>> index.column, index.index_type
    ('status', 'bitmap')
    """

    column: str
    index_type: str
    options: Mapping[str, str]
    name: str = field(default="", repr=False)

    @property
    def entry(self) -> str:
        """The name of its entry in a container."""
        return entry_name(self.column, self.index_type)


def entry_name(column: str, index_type: str) -> str:
    """The name of an index's entry in a container: what it is of; in brackets for a type that Paimon does not know."""
    index = find_index_type(index_type)
    return column if index is None or index.in_paimon else f"{index_type}[{column}]"


def by_entry(indexes: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """Payloads, or the like, of indexes by the names of their entries in a container."""
    out: dict[str, dict[str, T]] = {}
    for column, kinds in indexes.items():
        for kind, value in kinds.items():
            out.setdefault(entry_name(column, kind), {})[kind] = value
    return out


def by_column(entries: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """A container's entries by what they are of; the inverse of :func:`entry_name`."""
    out: dict[str, dict[str, T]] = {}
    for name, kinds in entries.items():
        for kind, value in kinds.items():
            column = name
            if name.startswith(f"{kind}[") and name.endswith("]"):
                index = find_index_type(kind)
                if index is not None and not index.in_paimon:
                    column = name[len(kind) + 1 : -1]
            out.setdefault(column, {})[kind] = value
    return out


def changed_index_options(
    options: Mapping[str, str], added: Sequence[IndexSpec], dropped: Sequence[IndexSpec]
) -> tuple[dict[str, str], list[str]]:
    """Return the table options to set, and those to unset, to declare indexes and to stop declaring others.

    The lists of columns come first: the options of a column are checked against them.
    """
    lists: dict[str, str] = {}
    settings: dict[str, str] = {}
    unset: list[str] = [name for spec in dropped if spec.name for name in named_keys(options, spec.name)]
    added, dropped = ([spec for spec in specs if not spec.name] for specs in (added, dropped))
    for kind in dict.fromkeys(spec.index_type for spec in (*added, *dropped)):
        key = f"{INDEX_PREFIX}{kind}{INDEX_COLUMNS}"
        listed = [name for name in map(str.strip, options.get(key, "").split(",")) if name]
        removed = [spec.column for spec in dropped if spec.index_type == kind and spec.column in listed]
        new = [spec for spec in added if spec.index_type == kind]
        columns = list(
            dict.fromkeys([*(name for name in listed if name not in removed), *(spec.column for spec in new)])
        )
        if columns and columns != listed:
            lists[key] = ",".join(columns)
        elif listed and not columns:
            unset.append(key)
        unset += [name for name in options for column in removed if name.startswith(f"{INDEX_PREFIX}{kind}.{column}.")]
        settings |= {
            f"{INDEX_PREFIX}{kind}.{spec.column}.{name}": v for spec in new for name, v in spec.options.items()
        }
    return {**lists, **settings}, unset


def parse_index_options(options: Mapping[str, str], fields: Sequence[DataField]) -> list[IndexSpec]:
    """Return the indexes that table options declare, in their order.

    Those that Paimon's options declare come first, then those that are declared by name.
    Raises :class:`InvalidRequest` naming option, value and what is allowed, for an unknown index type, column or
    option, a column type that the index does not take, a bad value, or an option of a column that no list declares.
    """
    return [*_listed_indexes(options, fields), *_named_indexes(options, fields)]


def usable_indexes(options: Mapping[str, str], fields: Sequence[DataField]) -> list[IndexSpec]:
    """Return the declared indexes, without declarations by name that do not fit these columns.

    Another engine may have dropped their column, and another version may know more functions.  Each is logged once:
    reading and writing go on without that index.  Raises :class:`InvalidRequest` for Paimon's own options only.
    """
    usable, unusable = _declared(options, fields)
    for name, problem in unusable.items():
        _warn_of_useless(name, problem)
    return usable


def unusable_indexes(options: Mapping[str, str], fields: Sequence[DataField]) -> list[tuple[IndexSpec, str]]:
    """Return the declarations by name that do not fit these columns, each as far as it can be read, with the reason.

    Raises :class:`InvalidRequest` for Paimon's own options only.
    """
    out = []
    for name, problem in _declared(options, fields)[1].items():
        kind, text, own = declared_parts(options, name)
        out.append((IndexSpec(text, kind, own, name), problem))
    return out


def _declared(options: Mapping[str, str], fields: Sequence[DataField]) -> tuple[list[IndexSpec], dict[str, str]]:
    """The declared indexes that fit the columns, and why others do not, by their names."""
    try:
        return parse_index_options(options, fields), {}
    except InvalidRequest:
        usable = {key: value for key, value in options.items() if index_name(key) is None}
    problems: dict[str, str] = {}
    for name in index_names(options):
        declaration = {key: options[key] for key in named_keys(options, name)}
        try:
            _named_indexes(usable | declaration, fields)
        except InvalidRequest as e:
            problems[name] = str(e)
        else:
            usable |= declaration
    return parse_index_options(usable, fields), problems


@functools.lru_cache(maxsize=1000)
def _warn_of_useless(name: str, why: str) -> None:
    index = f"index '{name}'" if name else "the index"
    log.warning("%s; %s is neither built nor used: drop it, or change its declaration", why, index)


def indexed_expressions(options: Mapping[str, str], fields: Sequence[DataField]) -> frozenset[str]:
    """The expressions that table options declare indexes of, and the columns with an index of text.

    Declarations by name that cannot be used are left out; none is left if Paimon's own options are invalid.
    """
    if not index_names(options):
        return frozenset()
    try:
        specs = usable_indexes(options, fields)
    except InvalidRequest:
        return frozenset()
    return frozenset(
        spec.column
        for spec in specs
        if isinstance(spec.column, IndexedExpression) or known_index_type(spec.index_type).tests_text
    )


def _named_indexes(options: Mapping[str, str], fields: Sequence[DataField]) -> list[IndexSpec]:
    """The indexes that ``bitlake.index.<name>`` declares."""
    specs: list[IndexSpec] = []
    for index in named_indexes(options, fields):
        kind = find_index_type(index.index_type)
        if kind is None:
            raise InvalidRequest(
                f"{index.where}: unknown index type '{index.index_type}'; known are {', '.join(sorted(INDEX_TYPES))}"
            )
        if not kind.supports(index.type):
            raise InvalidRequest(f"{index.where}: '{index.text}' is of type {index.type}; {kind.accepts}")
        if index.has_members and not isinstance(kind.writer(index.type, {}), MemberWriter):
            raise InvalidRequest(f"{index.where}: {index.index_type} has one value for each row, and not its members")
        for option, value in index.options.items():
            _check_option(f"{NAMED}{index.name}.{option}", value, index.index_type, option)
        spec = IndexSpec(index.column, index.index_type, index.options, index.name)
        same = [s.name for s in specs if (s.column, s.index_type) == (spec.column, spec.index_type)]
        if same:
            raise InvalidRequest(f"{index.where}: index '{same[0]}' is the same; drop one of them")
        if spec.index_type in _plain_kinds(options, spec.column):
            raise InvalidRequest(
                f"{index.where}: '{INDEX_PREFIX}{spec.index_type}{INDEX_COLUMNS}' declares the same index; "
                "drop one of them"
            )
        specs.append(spec)
    return specs


def _plain_kinds(options: Mapping[str, str], column: str) -> list[str]:
    """The index types that Paimon's options declare for a column."""
    return [
        key[len(INDEX_PREFIX) : -len(INDEX_COLUMNS)]
        for key, value in options.items()
        if key.startswith(INDEX_PREFIX) and key.endswith(INDEX_COLUMNS) and column in map(str.strip, value.split(","))
    ]


def _listed_indexes(options: Mapping[str, str], fields: Sequence[DataField]) -> list[IndexSpec]:
    """The indexes that Paimon's options declare."""
    declared: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in options.items():
        if key.startswith(INDEX_PREFIX) and key.endswith(INDEX_COLUMNS):
            kind = key[len(INDEX_PREFIX) : -len(INDEX_COLUMNS)]
            for name in value.split(","):
                column = name.strip()
                _check_column(key, value, kind, column, fields)
                declared.setdefault((column, kind), {})
    of_maps: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in options.items():
        parts = key[len(INDEX_PREFIX) :].split(".")
        # Paimon ignores keys of another number of parts, such as file-index.in-manifest-threshold.
        if not key.startswith(INDEX_PREFIX) or key.endswith(INDEX_COLUMNS) or len(parts) != 3:
            continue
        kind, column, option = parts
        if (column, kind) in declared:
            _check_option(key, value, kind, option)
            declared[column, kind][option] = value
        elif any(k == kind and c.startswith(column + "[") for c, k in declared):
            _check_option(key, value, kind, option)
            of_maps.setdefault((column, kind), {})[option] = value
        else:
            raise InvalidRequest(
                f"option '{key}' = '{value}': list '{column}' in '{INDEX_PREFIX}{kind}{INDEX_COLUMNS}' too"
            )
    return [
        IndexSpec(column, kind, {**of_maps.get((split_map_key(column)[0], kind), {}), **own})
        for (column, kind), own in declared.items()
    ]


def _check_column(option: str, value: str, kind: str, column: str, fields: Sequence[DataField]) -> None:
    where = f"option '{option}' = '{value}'"
    index = find_index_type(kind)
    if index is None:
        raise InvalidRequest(f"{where}: unknown index type '{kind}'; known are {', '.join(sorted(INDEX_TYPES))}")
    if not index.in_paimon:
        raise InvalidRequest(
            f"{where}: Paimon does not know the index type '{kind}' and fails on this option; "
            f"declare it by name: '{NAMED}<name>' = '{kind}({column or 'column'})'"
        )
    if not column:
        raise InvalidRequest(f"{where}: a column name is empty")
    known = indexed_type(column, fields)
    if known is None:
        _unknown_column(where, column, fields)
        return
    top, key, values = known
    if key is not None:
        key_type = top.type.key if isinstance(top.type, MapType) else None
        if not isinstance(key_type, AtomicType) or key_type.root not in STRINGS:
            raise InvalidRequest(
                f"{where}: keys of map column '{top.name}' are {key_type}; only string keys can be indexed"
            )
    elif isinstance(top.type, MapType):
        raise InvalidRequest(f"{where}: '{column}' is a map; index one of its keys, as in '{column}[key]'")
    if not index.supports(values):
        raise InvalidRequest(f"{where}: '{column}' is of type {values}; {index.accepts}")


def _unknown_column(where: str, column: str, fields: Sequence[DataField]) -> None:
    names = [field.name for field in fields]
    top = split_map_key(column)[0]
    if top in names:
        raise InvalidRequest(f"{where}: '{column}' names a map key, but '{top}' is not a map column")
    near = difflib.get_close_matches(top, names, 3) or names
    raise InvalidRequest(f"{where}: the table has no column '{column}'; columns are {', '.join(near)}")


def _check_option(key: str, value: str, kind: str, option: str) -> None:
    index = INDEX_TYPES[kind]  # found when its list of columns was checked
    declared = next((o for o in index.options if o.name == option), None)
    if declared is None:
        known = ", ".join(o.name for o in index.options) or "none"
        raise InvalidRequest(f"option '{key}' = '{value}': {kind} has no option '{option}'; its options are {known}")
    try:
        declared.parse(value)
    except ValueError as e:
        raise InvalidRequest(f"option '{key}' = '{value}': {e}") from e


@dataclass(frozen=True, slots=True)
class UnwrittenIndex:
    """An index that a file is written without, and why.  Two are equal if they are of one index: it is logged once.

    >>> str(UnwrittenIndex("index 'bitmap' of column 'n % 0'", "n % 0 divides by zero", "data-1.parquet"))
    "data-1.parquet: index 'bitmap' of column 'n % 0' is not written: n % 0 divides by zero"
    """

    index: str
    reason: str = field(compare=False)
    file: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.file}{': ' if self.file else ''}{self.index} is not written: {self.reason}"


def warn_of_unwritten(table: str, problems: Iterable[UnwrittenIndex]) -> None:
    """Log indexes that files of a table, at this path, are written without: each index once in this process."""
    for problem in problems:
        _warn_of_unwritten(table, problem)


@functools.lru_cache(maxsize=1000)
def _warn_of_unwritten(table: str, problem: UnwrittenIndex) -> None:
    log.warning("%s; more such files of table '%s' are not logged: SHOW INDEXES counts them", problem, table)


class IndexBuilder:
    """Builds all indexes of one data file: ``add`` its batches in order, then ``finish`` once.

    ``specs`` come from :func:`parse_index_options`; ``fields`` are those of the file's
    schema.  Memory: 4 bytes a row for each bitmap, 8 for each distinct value of a bloom filter, and distinct values.
    """

    def __init__(self, specs: Sequence[IndexSpec], fields: Sequence[DataField]) -> None:
        self._specs = tuple(specs)
        self._writers: list[IndexWriter | None] = []
        self._sources: list[IndexSource] = []
        for spec in specs:
            source = index_source(spec.column, fields)
            if source is None:
                raise InvalidRequest(f"index '{spec.index_type}' is of column '{spec.column}', which does not exist")
            self._writers.append(known_index_type(spec.index_type).writer(source.type, spec.options))
            self._sources.append(source)
        names = [s.name for s in self._sources]
        self._shared = {name for name in names if names.count(name) > 1}
        self.problems: list[UnwrittenIndex] = []
        """Indexes that the file is written without, and why: their format cannot hold a value, or it has none."""

    @property
    def index_count(self) -> int:
        """The number of indexes that are built."""
        return len(self._specs)

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append a batch's rows; the batch has at least the indexed columns."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        for i, (source, writer) in enumerate(zip(self._sources, self._writers, strict=True)):
            if writer is None:
                continue
            try:
                if source.name not in columns:
                    columns[source.name] = self._column(batch, source)
                source.add_to(writer, columns[source.name])
            except (UnsupportedFeature, EvaluationFailed) as e:
                self._give_up(i, e)

    def _give_up(self, i: int, reason: BitlakeError) -> None:
        # Data is not refused because an index cannot hold it, or an expression has no value for it.
        self._writers[i] = None
        spec = self._specs[i]
        self.problems.append(UnwrittenIndex(f"index '{spec.index_type}' of column '{spec.column}'", str(reason)))

    def problems_of(self, file: str) -> list[UnwrittenIndex]:
        """:attr:`problems`, with the name of the file."""
        return [replace(problem, file=file) for problem in self.problems]

    def _column(self, batch: pa.RecordBatch | pa.Table, source: IndexSource) -> pa.Array | pa.ChunkedArray:
        column = source.values(batch)
        kind = column.type
        if source.name in self._shared and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            column = column.dictionary_encode()  # once, for all its indexes
        return column

    def finish(self, *, checksums: bool = False) -> bytes:
        """Return the container of all indexes, empty if there is none.  Without ``checksums``, it equals Paimon's."""
        indexes = self.payloads()
        if not indexes:
            return b""
        declared = [(s.entry, s.index_type) for s in self._specs if s.index_type in indexes.get(s.column, {})]
        return encode_container(by_entry(indexes), declared, checksums=checksums)

    def payloads(self) -> dict[str, dict[str, bytes]]:
        """Return the payloads by column and index type, instead of the container that :meth:`finish` encodes."""
        indexes: dict[str, dict[str, bytes]] = {}
        for i, (spec, writer) in enumerate(zip(self._specs, self._writers, strict=True)):
            if writer is None:
                continue
            try:
                payload = writer.finish()
            except UnsupportedFeature as e:
                self._give_up(i, e)
                continue
            indexes.setdefault(spec.column, {})[spec.index_type] = payload
        return indexes
