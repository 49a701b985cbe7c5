"""Paimon types ↔ Arrow types.

The Arrow type is the one data files and in-memory batches use.  Timestamps take the unit that Paimon's Parquet files
need: milliseconds up to precision 3, microseconds up to 6, nanoseconds above.  The field metadata key
``PARQUET:field_id`` carries Paimon's field id; list elements and map entries get Paimon's derived ids
(table-format spec, section 8).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import pyarrow as pa
from bitlake.types.datatypes import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    NextId,
    Root,
    RowType,
)

_SIMPLE = {
    Root.BOOLEAN: "bool_",
    Root.TINYINT: "int8",
    Root.SMALLINT: "int16",
    Root.INT: "int32",
    Root.BIGINT: "int64",
    Root.FLOAT: "float32",
    Root.DOUBLE: "float64",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.DATE: "date32",
}
"""Types whose Arrow type has no parameters: the name of pyarrow's function, since pyarrow is imported lazily."""
_ELEMENT_BASE = 536870911
_DEPTH_STEP = 1024
UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""By Arrow's name of the unit of a timestamp."""


def timestamp_unit(precision: int | None) -> str:
    """The Arrow unit (``ms``, ``us`` or ``ns``) that holds a timestamp of this precision."""
    precision = 6 if precision is None else precision
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(made: DataType, *, field_id: int | None = None, depth: int = 0) -> pa.DataType:
    """The Arrow type of a Paimon type; with ``field_id``, children carry Paimon's Parquet field ids."""
    if isinstance(made, AtomicType):
        return _atomic(made)
    if isinstance(made, RowType):
        return pa.struct([arrow_field(f, ids=field_id is not None) for f in made.fields])
    below = depth + 1

    def child(name: str, kind: DataType, sign: int, nullable: bool) -> pa.Field:
        number = None if field_id is None else sign_id(field_id, below, sign)
        inner = arrow_type(kind, field_id=field_id, depth=below)
        return pa.field(name, inner, nullable, metadata=_metadata(number))

    if isinstance(made, ArrayType):
        return pa.list_(child("element", made.element, 1, made.element.nullable))
    if isinstance(made, MapType):
        return pa.map_(child("key", made.key, -1, False), child("value", made.value, 1, made.value.nullable))
    count = AtomicType(Root.INT, nullable=False)
    return pa.map_(child("key", made.element, -1, False), child("value", count, 1, False))


def sign_id(field_id: int, depth: int, sign: int) -> int:
    """The derived Parquet id of an element or map value (``sign`` 1) or map key (``sign`` -1)."""
    return _ELEMENT_BASE + sign * (_DEPTH_STEP * field_id + depth)


@lru_cache(4096)
def _atomic(made: AtomicType) -> pa.DataType:
    if made.root is Root.DECIMAL:
        return pa.decimal128(made.precision or 10, made.scale or 0)
    if made.root is Root.TIMESTAMP:
        return pa.timestamp(timestamp_unit(made.precision))
    if made.root is Root.TIMESTAMP_LTZ:
        return pa.timestamp(timestamp_unit(made.precision), "UTC")
    if made.root is Root.VARIANT:
        return pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
    if made.root is Root.TIME:
        return pa.time32("ms")
    simple: pa.DataType = getattr(pa, _SIMPLE[made.root])()
    return simple


def _metadata(number: int | None) -> dict[str, str] | None:
    return None if number is None else {"PARQUET:field_id": str(number)}


def arrow_field(field: DataField, *, ids: bool = False) -> pa.Field:
    """The Arrow field of a column; with ``ids``, it and its children carry ``PARQUET:field_id``."""
    return _field(field, ids)


@lru_cache(4096)
def _field(field: DataField, ids: bool) -> pa.Field:
    kind = arrow_type(field.type, field_id=field.id if ids else None)
    return pa.field(field.name, kind, field.type.nullable, metadata=_metadata(field.id if ids else None))


def arrow_schema(fields: Iterable[DataField], *, ids: bool = False) -> pa.Schema:
    """The Arrow schema of a list of columns."""
    return pa.schema([arrow_field(f, ids=ids) for f in fields])


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether an Arrow type, or one inside it, passes a test."""
    return test(kind) or any(holds(kind.field(i).type, test) for i in range(kind.num_fields))


def is_nanoseconds(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a timestamp of nanoseconds."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def from_arrow(kind: pa.DataType, nullable: bool = True, *, next_id: NextId | None = None) -> DataType:
    """The Paimon type that holds an Arrow type's values.

    Struct members are numbered by ``next_id`` (children before their parent, as Paimon does).  Raises
    :class:`InvalidRequest` for Arrow types Paimon has no counterpart for (durations, unions, unsigned 64-bit …).
    """
    number = next_id or NextId(-1)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return from_arrow(kind.value_type, nullable, next_id=number)
    if pa.types.is_decimal(kind):
        if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
            raise InvalidRequest(f"Arrow type {kind} has no counterpart in a Paimon table; cast it to DECIMAL(38, s)")
        return AtomicType(Root.DECIMAL, nullable, precision=kind.precision, scale=kind.scale)
    if pa.types.is_timestamp(kind):
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        root = Root.TIMESTAMP if kind.tz is None else Root.TIMESTAMP_LTZ
        return AtomicType(root, nullable, precision=precision)
    if pa.types.is_time(kind):
        return AtomicType(Root.TIME, nullable, precision=3)
    if pa.types.is_map(kind):
        key = from_arrow(kind.key_type, False, next_id=number)
        value = from_arrow(kind.item_type, kind.item_field.nullable, next_id=number)
        return MapType(key, value, nullable)
    if any(getattr(pa.types, test)(kind) for test in _LISTS):
        return ArrayType(from_arrow(kind.value_type, kind.value_field.nullable, next_id=number), nullable)
    if pa.types.is_struct(kind):
        fields = []
        for i in range(kind.num_fields):
            f = kind.field(i)
            inner = from_arrow(f.type, f.nullable, next_id=number)
            fields.append(DataField(number(), f.name, inner))
        return RowType(tuple(fields), nullable)
    for test, root, length in _FROM_ARROW:
        if getattr(pa.types, test)(kind):
            return AtomicType(root, nullable, length=length)
    raise InvalidRequest(f"Arrow type {kind} has no counterpart in a Paimon table; {_advice(kind)}")


def _advice(kind: pa.DataType) -> str:
    """What to do with a column of an Arrow type that no table holds."""
    if pa.types.is_null(kind):
        return "cast the column, which has no value, to the type of values to come, such as string"
    if pa.types.is_uint64(kind):
        return "cast the column to int64, or to decimal128(20, 0) for values of 2^63 and more"
    if pa.types.is_duration(kind):
        return "cast the column to int64"
    if isinstance(kind, pa.BaseExtensionType):
        return f"cast the column first, such as to its storage type {kind.storage_type}"
    return "cast the column first"


_LISTS = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
_FROM_ARROW = [
    (f"is_{name}", root, length)
    for names, root, length in (
        ("boolean", Root.BOOLEAN, None),
        ("int8", Root.TINYINT, None),
        ("int16 uint8", Root.SMALLINT, None),
        ("int32 uint16", Root.INT, None),
        ("int64 uint32", Root.BIGINT, None),
        ("float16 float32", Root.FLOAT, None),
        ("float64", Root.DOUBLE, None),
        ("string large_string string_view", Root.VARCHAR, MAX_LENGTH),
        ("binary large_binary binary_view fixed_size_binary", Root.VARBINARY, MAX_LENGTH),
        ("date", Root.DATE, None),
    )
    for name in names.split()
]


# Python's default context rounds to 28 digits; decimals here have up to 38.
_EXACT = decimal.Context(prec=100)


def physical_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values of a column as the physical values of :mod:`bitlake.expressions.tree`; for few values only."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return array.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if v is None else int(v.scaleb(kind.scale, _EXACT)) for v in array.to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]
