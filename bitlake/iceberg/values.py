"""Values in Iceberg metadata: bounds of columns, and partition values in manifests and manifest lists.

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

from bitlake.errors import CorruptError
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.stats import column_stats
from bitlake.types import AtomicType, DataField, DataType, Root
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS

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
        found = stats[f.name]
        if found.null_count is not None:
            nulls.append({"key": f.id, "value": found.null_count})
        if isinstance(f.type, AtomicType) and found.min is not None and found.max is not None:
            low, high = (to_bound(f.type, iceberg_value(f.type, v)) for v in (found.min, found.max))
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
    return tuple(PartitionField(avro_name(f.name), first_id + i, _atomic(f.type)) for i, f in enumerate(fields))


def _atomic(made: DataType) -> AtomicType:
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
    """What a manifest list says of one partition column of a manifest's files; bounds are None without values."""

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
