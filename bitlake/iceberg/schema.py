"""Paimon's columns as an Iceberg schema and partition spec, and their values in Iceberg metadata.

::

    schema          {"type": "struct", "schema-id": id, "fields": [field …]}
    field           {"id", "name", "required", "type", "doc" if the column has a comment}
    list            {"type": "list", "element-id", "element-required", "element"}
    map             {"type": "map", "key-id", "key", "value-id", "value-required", "value"}
    struct          {"type": "struct", "fields": [field …]}
    partition spec  {"spec-id": 0, "fields": [{"name", "transform": "identity", "source-id", "field-id": 1000 …}]}

Schema ids and field ids are Paimon's.  Elements, keys and values have the ids of Paimon's Parquet files.

Iceberg has neither the smaller integers nor lengths: TINYINT and SMALLINT are ``int``, CHAR is ``string``, BINARY is
``binary``.  Its times are microseconds, so timestamps of fewer than 3 or more than 6 digits, and VARIANT, are refused.

Sources: the Iceberg specification, "Schemas" and "Partition Specs"; Paimon's ``IcebergDataField``.

Values are bounds of columns, and partition values in manifests and manifest lists.

::

    column type          bound (single-value serialisation)                partition value in Avro
    BOOLEAN              u1, 0 or 1                                        boolean
    TINYINT … INT        i4 LE                                             int
    DATE                 i4 LE, days since 1970-01-01                      int (date)
    BIGINT               i8 LE                                             long
    FLOAT, DOUBLE        f4 LE, f8 LE                                      float, double
    strings              UTF-8                                             string
    binaries             the bytes                                         bytes
    DECIMAL              unscaled, big-endian, as few bytes as possible    fixed, unscaled, big-endian
    TIME                 i8 LE, microseconds                               long (time-micros)
    timestamps           i8 LE, microseconds since 1970-01-01              long (timestamp-micros)

Paimon writes partitions of DECIMAL, TIME and timestamps in Avro types that the Iceberg specification does not allow;
here they are as specified.

Sources: the Iceberg specification, "Binary single-value serialization" and "Avro"; Paimon's ``IcebergConversions`` and
``IcebergDataFileMeta``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.options import (
    DATA_EVOLUTION,
    DISABLED,
    DV_BITMAP64,
    DV_ENABLED,
    FILE_FORMAT,
    ICEBERG_STORAGE,
    ICEBERG_VERSION,
    Options,
)
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType
from bitlake.types.arrow import sign_id
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS

FIRST_PARTITION_FIELD_ID = 1000
SPEC_ID = 0
"""The id of the only partition spec: Paimon's partition columns never change."""
_SIMPLE = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: "date",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
}


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """A schema version; raises :class:`InvalidRequest` for a column that Iceberg cannot hold."""
    return {"type": "struct", "schema-id": schema.id, "fields": [iceberg_field(f) for f in schema.fields]}


def highest_field_id(schema: dict[str, Any]) -> int:
    """The highest id of the columns of an Iceberg schema, 0 without columns."""
    return max((f["id"] for f in schema["fields"]), default=0)


def partition_spec(schema: TableSchema) -> dict[str, Any]:
    """The partition spec: the values of the partition columns themselves."""
    fields = [
        {"name": f.name, "transform": "identity", "source-id": f.id, "field-id": FIRST_PARTITION_FIELD_ID + i}
        for i, f in enumerate(schema.partition_fields)
    ]
    return {"spec-id": SPEC_ID, "fields": fields}


def check_columns(fields: Iterable[DataField]) -> None:
    """Raise :class:`InvalidRequest`, naming the column, for a type that Iceberg cannot hold."""
    for field in fields:
        iceberg_field(field)


def iceberg_field(field: DataField) -> dict[str, Any]:
    """A column or a member of a struct; raises :class:`InvalidRequest` for a type that Iceberg cannot hold."""
    try:
        kind = _type(field.type, field.id, 0)
    except InvalidRequest as e:
        raise InvalidRequest(f"column '{field.name}': {e}") from e
    out = {"id": field.id, "name": field.name, "required": not field.type.nullable, "type": kind}
    if field.description is not None:
        out["doc"] = field.description
    return out


def _type(made: DataType, field_id: int, depth: int) -> Any:
    below = depth + 1
    match made:
        case AtomicType():
            return _atomic(made)
        case RowType():
            return {"type": "struct", "fields": [iceberg_field(f) for f in made.fields]}
        case ArrayType():
            return {
                "type": "list",
                "element-id": sign_id(field_id, below, 1),
                "element-required": not made.element.nullable,
                "element": _type(made.element, field_id, below),
            }
        case MapType():
            return _map(made.key, made.value, field_id, below)
        case MultisetType():
            return _map(made.element, AtomicType(Root.INT, nullable=False), field_id, below)


def _map(key: DataType, value: DataType, field_id: int, depth: int) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": sign_id(field_id, depth, -1),
        "key": _type(key, field_id, depth),
        "value-id": sign_id(field_id, depth, 1),
        "value-required": not value.nullable,
        "value": _type(value, field_id, depth),
    }


def _atomic(made: AtomicType) -> str:
    if made.root in _SIMPLE:
        return _SIMPLE[made.root]
    if made.root is Root.DECIMAL:
        return f"decimal({made.precision or 10}, {made.scale or 0})"
    precision = 6 if made.precision is None else made.precision
    if made.root in TIMESTAMPS and 3 <= precision <= 6:
        return "timestamp" if made.root is Root.TIMESTAMP else "timestamptz"
    if made.root is Root.TIME and (made.precision or 0) <= 3:
        return "time"
    digits = {Root.TIME: "; use one of 0 to 3 digits"} | dict.fromkeys(TIMESTAMPS, "; use one of 3 to 6 digits")
    raise InvalidRequest(f"Iceberg metadata cannot describe {made}{digits.get(made.root, '')}")


def exports_vectors(options: Options) -> bool:
    """Whether Iceberg readers see a table's deletion vectors: 64-bit ones, in format version 3."""
    return options.of(DV_ENABLED) and options.of(DV_BITMAP64) and options.of(ICEBERG_VERSION) >= 3


def check_publishable(fields: Iterable[DataField], options: Options, keyed: bool) -> None:
    """Check that Iceberg metadata can show a table, if its options ask for it.

    Raises :class:`InvalidRequest` for a column or an option that Iceberg readers would read wrongly.
    """
    if options.of(ICEBERG_STORAGE) == DISABLED:
        return
    check_columns(fields)
    if not keyed and options.of(DV_ENABLED) and not exports_vectors(options):
        raise InvalidRequest(
            f"with '{DV_ENABLED.name}', Iceberg readers of format version {options.of(ICEBERG_VERSION)} would see "
            f"deleted rows; set '{ICEBERG_VERSION.name}' = '3' and '{DV_BITMAP64.name}' = 'true', or no "
            f"'{ICEBERG_STORAGE.name}'"
        )
    if options.of(DATA_EVOLUTION):
        raise InvalidRequest(
            f"'{DATA_EVOLUTION.name}' stores columns of a row in several files, which Iceberg metadata cannot "
            f"describe; unset '{ICEBERG_STORAGE.name}'"
        )
    if options.of(FILE_FORMAT) not in ("parquet", "orc", "avro"):
        raise InvalidRequest(
            f"Iceberg readers read no {options.of(FILE_FORMAT)} files; use '{FILE_FORMAT.name}' = 'parquet', or unset "
            f"'{ICEBERG_STORAGE.name}'"
        )


_PACKED = {
    Root.BOOLEAN: struct.Struct("<?"),
    Root.TINYINT: struct.Struct("<i"),
    Root.SMALLINT: struct.Struct("<i"),
    Root.INT: struct.Struct("<i"),
    Root.DATE: struct.Struct("<i"),
    Root.BIGINT: struct.Struct("<q"),
    Root.FLOAT: struct.Struct("<f"),
    Root.DOUBLE: struct.Struct("<d"),
    Root.TIME: struct.Struct("<q"),
    Root.TIMESTAMP: struct.Struct("<q"),
    Root.TIMESTAMP_LTZ: struct.Struct("<q"),
}
_AVRO: dict[Root, Any] = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "bytes",
    Root.VARBINARY: "bytes",
    Root.DATE: {"type": "int", "logicalType": "date"},
    Root.TIME: {"type": "long", "logicalType": "time-micros"},
    Root.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    Root.TIMESTAMP_LTZ: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}


def iceberg_value(made: AtomicType, value: Any) -> Any:
    """A physical value in Iceberg's unit: times are microseconds."""
    if value is None or (made.root is not Root.TIME and made.root not in TIMESTAMPS):
        return value
    return value * 1000 if made.root is Root.TIME or (made.precision or 6) <= 3 else value


def to_bound(made: AtomicType, value: Any) -> bytes:
    """The bytes of a value in Iceberg's unit."""
    if made.root in STRINGS:
        return str(value).encode()
    if made.root in BINARIES:
        return bytes(value)
    if made.root is Root.DECIMAL:
        return _unscaled(value)
    return _PACKED[made.root].pack(value)


def from_bound(made: AtomicType, data: bytes) -> Any:
    """The inverse of :func:`to_bound`; raises :class:`CorruptError`."""
    try:
        if made.root in STRINGS:
            return data.decode()
        if made.root in BINARIES:
            return data
        if made.root is Root.DECIMAL:
            return int.from_bytes(data, "big", signed=True)
        return _PACKED[made.root].unpack(data)[0]
    except (struct.error, UnicodeDecodeError) as e:
        raise CorruptError(f"a bound of {len(data)} bytes is not of type {made}: {e}") from e


def _unscaled(value: int) -> bytes:
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def file_bounds(file: DataFileMeta, fields: Sequence[DataField]) -> dict[str, Any]:
    """The null counts and bounds of a data file as members of its Avro record; ``fields``: those of its schema."""
    stats = column_stats(file, fields)
    nulls, lows, highs = [], [], []
    for f in fields:
        if f.name not in stats:
            continue
        bounds = stats[f.name]
        if bounds.null_count is not None:
            nulls.append({"key": f.id, "value": bounds.null_count})
        if isinstance(f.type, AtomicType) and bounds.min is not None and bounds.max is not None:
            low, high = (to_bound(f.type, iceberg_value(f.type, v)) for v in (bounds.min, bounds.max))
            lows.append({"key": f.id, "value": low})
            highs.append({"key": f.id, "value": high})
    return {"null_value_counts": nulls, "lower_bounds": lows, "upper_bounds": highs}


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column: its Avro name, its id in the partition spec, and its type."""

    name: str
    id: int
    type: AtomicType

    @property
    def avro(self) -> Any:
        """The Avro type of its values."""
        if self.type.root is Root.DECIMAL:
            precision = self.type.precision or 10
            name = f"decimal_{precision}_{self.type.scale or 0}_{self.id}"
            logical = {"logicalType": "decimal", "precision": precision, "scale": self.type.scale or 0}
            return {"type": "fixed", "name": name, "size": _decimal_bytes(precision), **logical}
        return _AVRO[self.type.root]

    def to_avro(self, value: Any) -> Any:
        """A physical value as the Avro record holds it."""
        if value is None or self.type.root is not Root.DECIMAL:
            return iceberg_value(self.type, value)
        return value.to_bytes(_decimal_bytes(self.type.precision or 10), "big", signed=True)

    def from_avro(self, value: Any) -> Any:
        """The value in Iceberg's unit."""
        if value is None or self.type.root is not Root.DECIMAL:
            return value
        return int.from_bytes(value, "big", signed=True)


def _decimal_bytes(precision: int) -> int:
    most: int = 10**precision - 1
    return (most.bit_length() + 8) // 8


def partition_fields(fields: Iterable[DataField], first_id: int) -> tuple[PartitionField, ...]:
    """The partition columns in the order of the partition spec."""
    return tuple(PartitionField(avro_name(f.name), first_id + i, _atomic_value(f.type)) for i, f in enumerate(fields))


def _atomic_value(made: DataType) -> AtomicType:
    assert isinstance(made, AtomicType)  # partition columns always are
    return made


def avro_name(name: str) -> str:
    """A column's name as a name of Avro: other characters are escaped as Iceberg does it."""
    out = [c if _is_letter(c) or (i and c.isdigit() and c.isascii()) else _escaped(c) for i, c in enumerate(name)]
    return "".join(out)


def _is_letter(character: str) -> bool:
    return character == "_" or (character.isalpha() and character.isascii())


def _escaped(character: str) -> str:
    return f"_{character}" if character.isdigit() and character.isascii() else f"_x{ord(character):X}"


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A manifest list's summary of one partition column of a manifest's files; bounds are None without values."""

    contains_null: bool
    contains_nan: bool
    low: bytes | None
    high: bytes | None

    @staticmethod
    def of(field: PartitionField, values: Iterable[Any]) -> PartitionSummary:
        """The summary of the Avro values of a partition column."""
        known = {field.from_avro(v) for v in values}
        contains_null = None in known
        known.discard(None)
        numbers = [v for v in known if v == v]
        low, high = ((to_bound(field.type, f(numbers)) if numbers else None) for f in (min, max))
        return PartitionSummary(contains_null, len(numbers) < len(known), low, high)

    @staticmethod
    def union(field: PartitionField, parts: Sequence[PartitionSummary]) -> PartitionSummary:
        """A summary that holds what any of the parts holds."""
        known = [p for p in parts if p.low is not None and p.high is not None]
        low = min((p.low for p in known if p.low is not None), key=lambda b: from_bound(field.type, b), default=None)
        high = max((p.high for p in known if p.high is not None), key=lambda b: from_bound(field.type, b), default=None)
        return PartitionSummary(any(p.contains_null for p in parts), any(p.contains_nan for p in parts), low, high)

    def may_hold(self, field: PartitionField, value: Any) -> bool:
        """Whether a file of the manifest may have this value, in Iceberg's unit."""
        if value is None:
            return self.contains_null
        if value != value:
            return True
        if self.low is None or self.high is None:
            return True  # other writers leave bounds out
        return bool(from_bound(field.type, self.low) <= value <= from_bound(field.type, self.high))
