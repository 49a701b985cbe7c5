"""Make a table's first schema for CREATE TABLE: field ids, keys, bucket key and options."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bitlake import _clock
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.fileindex.registry import parse_index_options, usable_indexes
from bitlake.formats.file_format import CODECS, check_format
from bitlake.iceberg.schema import check_publishable
from bitlake.metadata import options as opt
from bitlake.metadata.schema import Names, TableSchema, assign_ids, check_column_name, check_struct_names
from bitlake.schema.validation import check_combinations, check_honoured, check_partition_expiry, check_reading
from bitlake.types import (
    AtomicType,
    DataField,
    DataType,
    NextId,
    Root,
    from_arrow,
)
from bitlake.types.datatypes import TIMESTAMPS, all_types, is_scalar

log = logging.getLogger("bitlake")

_ORC_LEGACY = "orc.timestamp-ltz.legacy.type"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column as CREATE TABLE gives it; ids are assigned by :func:`new_schema`."""

    name: str
    type: DataType
    comment: str | None = None
    default_value: str | None = None


def columns_of(table: str, schema: pa.Schema) -> list[ColumnSpec]:
    """The columns of an Arrow schema, with their comments; ``table`` is only for messages."""
    if not isinstance(schema, pa.Schema):
        raise InvalidRequest(
            f"table '{table}': its columns are an Arrow schema, such as pa.schema([('id', pa.int64())]), and not "
            f"{type(schema).__name__}"
        )
    number = NextId(-1)
    return [ColumnSpec(f.name, _type(table, f, number), _comment(f)) for f in schema]


def _type(table: str, field: pa.Field, number: NextId) -> DataType:
    try:
        return from_arrow(field.type, field.nullable, next_id=number)
    except InvalidRequest as e:
        raise InvalidRequest(f"table '{table}': column '{field.name}': {e}") from e


def _comment(field: pa.Field) -> str | None:
    comment = (field.metadata or {}).get(b"comment")
    return None if comment is None else comment.decode()


def new_schema(
    table: str,
    columns: Sequence[ColumnSpec],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
    primary_keys: Sequence[str] = (),
    names: Names = Names.FOLDED,
) -> TableSchema:
    """The first schema of a table, checked as Paimon checks it; ``table`` is only for messages.

    ``partition`` and ``primary-key`` in the options become the partition keys and the primary key, whose columns become
    NOT NULL.  A fixed bucket count without a bucket key takes, without a primary key, every column whose type can be
    one: today's Paimon refuses such a table, and reads it once the key is written down.
    """
    chosen = opt.option_texts(options)
    partition_keys = _taken(table, chosen, opt.PARTITION.name, partition_keys, "PARTITIONED BY")
    primary_keys = _taken(table, chosen, opt.PRIMARY_KEY.name, primary_keys, "PRIMARY KEY")
    _check_columns(table, columns, partition_keys, names)
    _check_primary_key(table, columns, partition_keys, primary_keys, names)
    keys = frozenset(map(names.key, primary_keys))
    columns = [replace(c, type=replace(c.type, nullable=False)) if names.key(c.name) in keys else c for c in columns]
    fields, highest = assign_ids([(c.name, c.type, c.comment) for c in columns])
    fields = tuple(replace(f, default_value=c.default_value) for f, c in zip(fields, columns, strict=True))
    known = names.clear(f.name for f in fields)
    partition_keys = tuple(known[names.key(k)] for k in partition_keys)
    primary_keys = tuple(known[names.key(k)] for k in primary_keys)
    check_options(table, chosen, fields, partition_keys, primary_keys)
    check_reading(chosen)
    check_partition_expiry(chosen, partition_keys)
    named = opt.branch_option(chosen)
    if named is not None:
        raise InvalidRequest(
            f"table '{table}': option '{named[0]}' names branch '{named[1]}', which a new table does not have; "
            "create the branch first, then set the option with ALTER TABLE"
        )
    warn_of_misspelt(table, chosen)
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=highest,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        options=chosen,
        comment=comment,
        time_millis=_clock.now_ms(),
    )


def warn_of_misspelt(table: str, names: Iterable[str]) -> None:
    """Warn of options that look misspelt; they are kept, as another engine may know them."""
    for warning in opt.misspelt(names):
        log.warning("table '%s': %s", table, warning)


def check_options(
    table: str,
    options: dict[str, str],
    fields: Sequence[DataField],
    partition_keys: Sequence[str],
    primary_keys: Sequence[str] = (),
    declares: bool = True,
) -> None:
    """Validate a table's options against its columns and keys, and fill in the bucket key (``options`` is changed).

    ``declares``: indexes by name are being declared; otherwise those that do not fit the columns are left out, with a
    warning.  Raises :class:`InvalidRequest` naming option, value and what is allowed.
    """
    opt.validate(options)
    for name in (opt.PARTITION.name, opt.PRIMARY_KEY.name):
        if name in options:
            raise InvalidRequest(f"table '{table}': '{name}' cannot be set once the table exists")
    (parse_index_options if declares else usable_indexes)(options, fields)
    parsed = opt.Options(options)
    try:
        check_honoured(options)
        check_combinations(fields, partition_keys, primary_keys, options)
        check_publishable(fields, parsed, bool(primary_keys))
    except (InvalidRequest, UnsupportedFeature) as e:
        raise type(e)(f"table '{table}': {e}") from e
    _check_format(table, options, parsed, fields)
    for field in fields:
        kind = field.type
        if "VARIANT" in str(kind):
            raise UnsupportedFeature(
                f"table '{table}', column '{field.name}': {kind} cannot be written by this version; "
                "use STRING or BINARY"
            )
        for inner in all_types(kind):
            if isinstance(inner, AtomicType) and inner.root in TIMESTAMPS and (inner.precision or 0) > 6:
                raise UnsupportedFeature(
                    f"table '{table}', column '{field.name}': {inner} is stored as INT96 by Paimon, which bitlake does "
                    "not write; use precision 6"
                )
    _check_bucket(table, options, parsed, fields, partition_keys, primary_keys)


def check_schema_options(
    table: str, schema: TableSchema, options: dict[str, str] | None = None, *, declares: bool = True
) -> None:
    """:func:`check_options` for the columns and keys of a schema, with its options or others."""
    if options is None:
        opt.check_stored(table, schema.options)
    own = dict(schema.options) if options is None else options
    check_options(table, own, schema.fields, schema.partition_keys, schema.primary_keys, declares)


def _check_format(table: str, options: dict[str, str], parsed: opt.Options, fields: Sequence[DataField]) -> None:
    """The file format must be able to hold the columns; ORC tables with LTZ say that they hold true instants."""
    file_format = parsed.get(opt.FILE_FORMAT).lower()
    try:
        check_format(file_format, fields)
    except UnsupportedFeature as e:
        raise UnsupportedFeature(f"table '{table}': {e}") from e
    codec, codecs = parsed.get(opt.FILE_COMPRESSION), CODECS[file_format]
    if codec not in codecs:
        raise InvalidRequest(
            f"table '{table}': option '{opt.FILE_COMPRESSION.name}' = '{codec}' is not allowed; {file_format} files "
            f"take one of {', '.join(codecs)}"
        )
    if file_format != "orc" or not any(_is_ltz(t) for f in fields for t in all_types(f.type)):
        return
    if options.setdefault(_ORC_LEGACY, "false").lower() != "false":
        raise UnsupportedFeature(
            f"table '{table}': '{_ORC_LEGACY}' = '{options[_ORC_LEGACY]}' stores a wall clock of each writer's own "
            "time zone; bitlake stores instants, so use 'false'"
        )


def _is_ltz(made: DataType) -> bool:
    return isinstance(made, AtomicType) and made.root is Root.TIMESTAMP_LTZ


def _check_bucket(
    table: str,
    options: dict[str, str],
    parsed: opt.Options,
    fields: Sequence[DataField],
    partition_keys: Sequence[str],
    primary_keys: Sequence[str],
) -> None:
    buckets = parsed.get(opt.BUCKET)
    if buckets < -1 and not primary_keys:
        raise InvalidRequest(
            f"table '{table}': 'bucket' = '{buckets}' is not allowed for an append table: "
            "use -1 (no buckets) or a positive number"
        )
    by_name = {f.name: f for f in fields}
    key = options.get("bucket-key")
    if buckets == -1:
        if key is not None:
            raise InvalidRequest(f"table '{table}': 'bucket-key' needs 'bucket' to be a positive number, and it is -1")
        return
    if key is None and primary_keys:
        key = ",".join(k for k in primary_keys if k not in partition_keys)
    if key is None:
        usable = [f.name for f in fields if is_scalar(f.type)]
        usable = [name for name in usable if name not in partition_keys]
        if not usable:
            raise InvalidRequest(f"table '{table}': no column can be the bucket key; use 'bucket' = '-1'")
        options["bucket-key"] = ",".join(usable)
        log.warning(
            "table '%s': 'bucket' = '%s' without 'bucket-key'; taking all columns: 'bucket-key' = '%s'",
            table,
            buckets,
            options["bucket-key"],
        )
        return
    function = parsed.get(opt.BUCKET_FUNCTION)
    for name in key.split(","):
        field = by_name.get(name)
        if field is None:
            raise InvalidRequest(
                f"table '{table}': 'bucket-key' = '{key}' names '{name}', which is not a column; "
                f"the columns are {', '.join(by_name)} (blanks and case count)"
            )
        if not isinstance(field.type, AtomicType):
            raise InvalidRequest(
                f"table '{table}': 'bucket-key' column '{name}' is {field.type}; nested types cannot be"
            )
        if name in partition_keys:
            raise InvalidRequest(f"table '{table}': 'bucket-key' column '{name}' is a partition column already")
        if primary_keys and name not in primary_keys:
            raise InvalidRequest(
                f"table '{table}': 'bucket-key' column '{name}' is not in the primary key ({', '.join(primary_keys)}): "
                "rows of one key would lie in several buckets"
            )
    if function == "mod":
        only = by_name[key] if "," not in key else None
        if only is None or not isinstance(only.type, AtomicType) or only.type.root not in (Root.INT, Root.BIGINT):
            raise InvalidRequest(f"table '{table}': the bucket function 'mod' needs one INT or BIGINT key, not '{key}'")


def _taken(table: str, options: dict[str, str], name: str, given: Sequence[str], clause: str) -> tuple[str, ...]:
    """Key columns from the option ``name``, which is taken out, or from where else they were given."""
    text = options.pop(name, None)
    if text is None:
        return tuple(given)
    if given:
        raise InvalidRequest(f"table '{table}': the same key is given twice, by {clause} and by '{name}'")
    return tuple(filter(None, (key.strip() for key in text.split(","))))


def _check_primary_key(
    table: str,
    columns: Sequence[ColumnSpec],
    partition_keys: Sequence[str],
    primary_keys: Sequence[str],
    names: Names,
) -> None:
    by_name = {names.key(c.name): c for c in columns}
    seen: set[str] = set()
    for key in primary_keys:
        column = by_name.get(names.key(key))
        if column is None:
            raise InvalidRequest(
                f"table '{table}': primary key column '{key}' is not among the columns "
                f"{', '.join(c.name for c in columns)}"
            )
        if names.key(key) in seen:
            raise InvalidRequest(f"table '{table}': primary key column '{key}' is named twice")
        seen.add(names.key(key))
        if not is_scalar(column.type):
            raise InvalidRequest(
                f"table '{table}': primary key column '{key}' is {column.type}; nested types cannot be"
            )
    if seen and seen <= set(map(names.key, partition_keys)):
        raise InvalidRequest(
            f"table '{table}': the primary key ({', '.join(primary_keys)}) has no column besides partition columns, so "
            "that a partition could hold one row only"
        )


def _check_columns(table: str, columns: Sequence[ColumnSpec], partition_keys: Sequence[str], names: Names) -> None:
    if not columns:
        raise InvalidRequest(f"table '{table}' needs at least one column")
    seen: dict[str, ColumnSpec] = {}
    for column in columns:
        if names.key(column.name) in seen:
            ignored = " (names ignore case)" if names is Names.FOLDED else ""
            raise InvalidRequest(f"table '{table}': column '{column.name}' appears twice{ignored}")
        try:
            check_column_name(column.name)
            check_struct_names(column.name, column.type, names)
        except InvalidRequest as e:
            raise InvalidRequest(f"table '{table}': {e}") from e
        seen[names.key(column.name)] = column
    for i, key in enumerate(partition_keys):
        field = seen.get(names.key(key))
        if field is None:
            raise InvalidRequest(
                f"table '{table}': partition column '{key}' is not among the columns "
                f"{', '.join(c.name for c in columns)}"
            )
        if any(names.same(key, k) for k in partition_keys[:i]):
            raise InvalidRequest(f"table '{table}': partition column '{key}' is named twice")
        if not is_scalar(field.type):
            raise InvalidRequest(f"table '{table}': partition column '{key}' is {field.type}; nested types cannot be")
    if partition_keys and len(partition_keys) == len(columns):
        raise InvalidRequest(f"table '{table}' needs a column that is not a partition column")
