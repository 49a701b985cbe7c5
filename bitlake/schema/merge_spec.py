"""How a table merges rows of one key: its options, row kinds, and the system columns of key-value files.

The options are those of index-format spec, section 10.  A row kind says whether a row of a change adds or takes back a
row; it is given beside the rows or in a column of theirs.

Columns of a data file of a primary-key table, in order (table-format spec, section 8); manifests keep keys in the same
order::

    _KEY_<column> …     the trimmed primary key in key order, id = column's + 1073741823; not in thin mode
    _SEQUENCE_NUMBER    BIGINT NOT NULL, id 2147483646
    _VALUE_KIND         TINYINT NOT NULL, id 2147483645: 0 +I, 1 -U, 2 +U, 3 -D
    <column> …          all columns of the table, the key's among them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.types import DataField
from bitlake.types.arrow import physical_values
from bitlake.types.datatypes import parse_type

SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
ADD, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""``_VALUE_KIND`` on disk: +I, -U, +U, -D.  -U and -D take back ("retract")."""

DEDUPLICATE, PARTIAL_UPDATE, AGGREGATION, FIRST_ROW = "deduplicate", "partial-update", "aggregation", "first-row"
_LAST_NON_NULL = "last_non_null_value"


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate function of a column with the options that begin ``fields.<column>.``."""

    name: str
    options: Mapping[str, str]

    @property
    def ignore_retract(self) -> bool:
        """Whether taking back changes nothing."""
        return self.flag("ignore-retract")

    def flag(self, name: str) -> bool:
        """An option that is true or false (default)."""
        return self.options.get(name, "false").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns that change together, only by rows whose ``sequence`` columns are not older."""

    sequence: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The settings that decide how rows of one key become one.

    ``keys``: the trimmed primary key; ``sequence``: columns that order rows before the sequence number does;
    ``functions``: by column, only those that have one.
    """

    engine: str
    keys: tuple[str, ...]
    fields: tuple[DataField, ...]
    sequence: tuple[str, ...]
    descending: bool
    ignore_delete: bool
    remove_on_delete: bool
    groups: tuple[SequenceGroup, ...]
    remove_on_group: frozenset[str]
    functions: Mapping[str, Function]

    @staticmethod
    def of(schema: TableSchema) -> MergeSpec:
        """The table's; raises :class:`InvalidRequest` for options that name columns which are not there."""
        options = opt.Options(schema.options)
        text = dict(schema.options)
        engine = options.of(opt.MERGE_ENGINE)
        names = [f.name for f in schema.fields]
        sequence = _names(options.get(opt.SEQUENCE_FIELD), names, "sequence.field")
        order = text.get("sequence.field.sort-order", "ascending").strip().lower()
        groups = _groups(text, names) if engine == PARTIAL_UPDATE else ()
        return MergeSpec(
            engine,
            schema.trimmed_primary_keys,
            tuple(schema.fields),
            sequence,
            order == "descending",
            options.of(opt.IGNORE_DELETE),
            _flag(text, f"{engine}.remove-record-on-delete"),
            groups,
            frozenset(_names(text.get("partial-update.remove-record-on-sequence-group"), names, "sequence group")),
            _functions(schema, text, engine, sequence, groups),
        )

    def needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that must be read so that ``columns`` come out right, system columns first."""
        out = [SEQUENCE_NUMBER, VALUE_KIND, *self.keys, *self.sequence, *columns]
        for group in self.groups:
            if self.remove_on_group or not set(columns).isdisjoint((*group.sequence, *group.columns)):
                out += group.sequence
        return tuple(dict.fromkeys(out))


def _flag(text: Mapping[str, str], name: str) -> bool:
    return text.get(name, "false").strip().lower() == "true"


def _names(text: str | None, known: list[str], option: str) -> tuple[str, ...]:
    out = tuple(n.strip() for n in (text or "").split(",") if n.strip())
    for name in out:
        if name not in known:
            raise InvalidRequest(f"option '{option}' names column '{name}', and the table has {', '.join(known)}")
    return out


def _groups(text: Mapping[str, str], known: list[str]) -> tuple[SequenceGroup, ...]:
    return tuple(
        SequenceGroup(_names(name[len(opt.FIELDS) : -len(opt.SEQUENCE_GROUP)], known, name), _names(value, known, name))
        for name, value in text.items()
        if name.startswith(opt.FIELDS) and name.endswith(opt.SEQUENCE_GROUP)
    )


def _functions(
    schema: TableSchema,
    text: Mapping[str, str],
    engine: str,
    sequence: tuple[str, ...],
    groups: tuple[SequenceGroup, ...],
) -> Mapping[str, Function]:
    out: dict[str, Function] = {}
    if engine not in (AGGREGATION, PARTIAL_UPDATE):
        return out
    default = text.get(f"{opt.FIELDS}default-aggregate-function")
    ordering = {c for g in groups for c in g.sequence}
    for field in schema.fields:
        start = f"{opt.FIELDS}{field.name}."
        given = {k[len(start) :]: v for k, v in text.items() if k.startswith(start)}
        name = given.get("aggregate-function") or default
        if field.name in schema.primary_keys:
            name = "primary-key"
        elif engine == AGGREGATION:
            name = "last_value" if field.name in sequence else name or _LAST_NON_NULL
        elif field.name in ordering:
            name = None
        if name is not None:
            out[field.name] = Function(name.strip().lower(), given)
    return out


def needs_lookup(schema: TableSchema) -> bool:
    """Whether compactions look keys up in the levels above, so that level 0 is forced up at every one."""
    return opt.needs_lookup(schema.opts)


def max_level(options: opt.Options, used: Iterable[int] = ()) -> int:
    """The highest level of a bucket; never below one of the levels ``used`` by its files."""
    levels = options.of(opt.NUM_LEVELS) or options.of(opt.COMPACTION_TRIGGER) + 1
    return max(levels - 1, 1, *used)


def is_cross_partition(schema: TableSchema) -> bool:
    """Whether the table's keys are unique over partitions: its primary key lacks a partition column."""
    keys = schema.primary_keys
    return bool(keys) and schema.num_buckets == -1 and any(p not in keys for p in schema.partition_keys)


KEY_PREFIX = "_KEY_"
KEY_ID_START = 2**31 // 2 - 1
SYSTEM_FIELDS = (
    DataField(2147483646, SEQUENCE_NUMBER, parse_type("BIGINT NOT NULL")),
    DataField(2147483645, VALUE_KIND, parse_type("TINYINT NOT NULL")),
)


def key_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns that rows of a bucket are keyed by, in key order."""
    return tuple(schema.field(n) for n in schema.trimmed_primary_keys)


def stored_keys(schema: TableSchema) -> tuple[DataField, ...]:
    """The key's own columns in data files; none in thin mode."""
    if schema.opts.of(opt.THIN_MODE):
        return ()
    return tuple(replace(f, id=f.id + KEY_ID_START, name=KEY_PREFIX + f.name) for f in key_fields(schema))


def file_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns of the table's new data files."""
    return (*stored_keys(schema), *SYSTEM_FIELDS, *schema.fields)


def encode_key(schema: TableSchema, rows: pa.Table) -> bytes:
    """The key of the first row as manifests keep it: a BinaryRow with arity."""
    fields = key_fields(schema)
    values = [physical_values(rows.column(f.name).slice(0, 1))[0] for f in fields]
    return encode_row_with_arity([f.type for f in fields], values)


KIND_NAMES = ("+I", "-U", "+U", "-D")
"""The names of row kinds, by their number on disk."""


def with_kinds(table: str, schema: TableSchema, rows: pa.Table, kinds: Any = None) -> pa.Table:
    """The rows with a last column ``_VALUE_KIND`` (int8), without those that the table ignores.

    ``kinds``: an Arrow array of as many words (``+I``, ``-U``, ``+U``, ``-D``) or numbers 0 to 3; None: all are +I.
    ``rowkind.field`` names a column that decides instead.  Raises :class:`InvalidRequest` for anything else, NULL too.
    """
    options = schema.opts
    column = options.of(opt.ROWKIND_FIELD)
    if column is not None:
        if kinds is not None:
            raise InvalidRequest(
                f"table '{table}': its column '{column}' holds the row kinds; none can be given beside"
            )
        kinds = rows.column(schema.field(column).name)
    if kinds is None:
        return rows.append_column(VALUE_KIND, pa.array(np.zeros(rows.num_rows, np.int8)))
    codes = kind_codes(table, kinds)
    if len(codes) != rows.num_rows:
        raise InvalidRequest(f"table '{table}': {len(codes)} row kinds are given for {rows.num_rows} rows")
    made = rows.append_column(VALUE_KIND, pa.array(codes))
    drop = np.zeros(len(codes), bool)
    if options.of(opt.IGNORE_DELETE):
        drop |= (codes == UPDATE_BEFORE) | (codes == DELETE)
    if options.of(opt.IGNORE_UPDATE_BEFORE):
        drop |= codes == UPDATE_BEFORE
    return made.filter(pa.array(~drop)) if drop.any() else made


def kind_codes(table: str, kinds: Any) -> np.ndarray:
    """Row kinds as int8; raises :class:`InvalidRequest` for one that is none."""
    array = kinds if isinstance(kinds, pa.Array | pa.ChunkedArray) else pa.array(kinds)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if array.null_count:
        raise InvalidRequest(f"table '{table}': {array.null_count} rows have no row kind; it is one of {_KIND_LIST}")
    if pa.types.is_integer(array.type):
        codes = array.to_numpy(zero_copy_only=False)
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        places = pc.index_in(array, value_set=pa.array(KIND_NAMES, array.type))
        codes = places.fill_null(-1).to_numpy(zero_copy_only=False)
    elif not len(array):
        return np.zeros(0, np.int8)
    else:
        raise InvalidRequest(f"table '{table}': row kinds are words ({_KIND_LIST}) or numbers 0 to 3, not {array.type}")
    strange = np.flatnonzero((codes < 0) | (codes >= len(KIND_NAMES)))
    if len(strange):
        raise InvalidRequest(
            f"table '{table}': invalid row kind {array[int(strange[0])]}; expected one of {_KIND_LIST}"
        )
    out: np.ndarray = codes.astype(np.int8, copy=False)
    return out


_KIND_LIST = ", ".join(KIND_NAMES)
