"""The JSON both peers answer in, and literals in the texts they take."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

EPOCH = datetime.datetime(1970, 1, 1)


def decode(value: Any) -> Any:
    """A Python value from a peer's JSON: structs, arrays: tuples; maps: frozensets of pairs; timestamps: naive UTC."""
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "$decimal":
            return decimal.Decimal(content)
        case "$date":
            return datetime.date.fromisoformat(content)
        case "$timestamp" if isinstance(content, list):
            return EPOCH + datetime.timedelta(milliseconds=content[0], microseconds=content[1] // 1000)
        case "$timestamp":
            return datetime.datetime.fromisoformat(content).replace(tzinfo=None)
        case "$binary":
            return bytes.fromhex(content)
        case "$float":
            return float(content.replace("Infinity", "inf"))
        case "$map":
            return frozenset((decode(k), decode(v)) for k, v in content)
    raise ValueError(kind)


def plain(value: Any, type_: pa.DataType) -> Any:
    """The same form for a value of an Arrow table."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return tuple(plain(value[f.name], f.type) for f in type_)
    if pa.types.is_map(type_):
        return frozenset((plain(k, type_.key_type), plain(v, type_.item_type)) for k, v in value)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return tuple(plain(v, type_.value_type) for v in value)
    if pa.types.is_timestamp(type_):
        at: datetime.datetime = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
        return at.astimezone(datetime.UTC).replace(tzinfo=None) if at.tzinfo else at
    return value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table in the form the peers' rows decode to."""
    columns = [[plain(v, f.type) for v in table.column(i).to_pylist()] for i, f in enumerate(table.schema)]
    return list(zip(*columns, strict=True))


def comparable(value: Any) -> Any:
    """A key that sorts any row and compares like the bytes: NaN equals NaN, -0.0 differs from 0.0, NULL comes first."""
    if value is None:
        return (0,)
    if isinstance(value, tuple):
        return (2, tuple(comparable(v) for v in value))
    if isinstance(value, frozenset):
        return (3, tuple(sorted(comparable(v) for v in value)))
    if isinstance(value, float):
        if math.isnan(value):
            return (1, "float", math.inf, 1.0)
        return (1, "float", value, math.copysign(1.0, value) if value == 0 else 0.0)
    return (1, type(value).__name__, value)


def same_rows(left: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]) -> None:
    """Assert that two bags of rows are equal, naming the first differences."""
    a, b = sorted(map(comparable, left)), sorted(map(comparable, right))
    if a != b:
        only_left = [r for r in a if r not in b][:3]
        only_right = [r for r in b if r not in a][:3]
        raise AssertionError(f"{len(a)} rows against {len(b)}; only left: {only_left}; only right: {only_right}")


def literal(value: Any) -> str:
    """A literal as PaimonPeer.java parses it, by the column's type."""
    match value:
        case bool():
            return str(value).lower()
        case datetime.datetime():
            at = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return str((at - EPOCH) // datetime.timedelta(microseconds=1))
        case datetime.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case float():
            if math.isinf(value):
                return "Infinity" if value > 0 else "-Infinity"
            return "NaN" if math.isnan(value) else repr(value)
    return str(value)
