"""Column statistics out of a Parquet footer, as the physical values of :mod:`bitlake.expressions.tree`.

What is believed, and why not more:

* ``min_value``/``max_value`` only under the type-defined column order; the deprecated ``min``/``max`` only for signed
  numbers, because old writers compared strings and decimals as signed bytes.
* A bound flagged as not exact (truncated) is unknown, as is one of a row group that has values but no bounds.
* FLOAT and DOUBLE: parquet-mr drops the bounds of a chunk that holds NaN, but Arrow skips NaN in silence, and NaN is
  greater than any number here.  So their bounds count only from parquet-mr, with a NaN count of 0, or if the caller
  knows which columns held NaN.  A zero bound is widened to -0.0 or 0.0, as the format asks of readers.
* INT96 has no order; nested columns have no statistics (as in Paimon).

Source: ``parquet.thrift``, Statistics and ColumnOrder; table-format spec, sections 6 and 8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.formats.parquet.footer import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    REQUIRED,
    ColumnChunk,
    Footer,
    SchemaNode,
    parse_footer,
)
from bitlake.lazy_arrow import parquet as pq
from bitlake.types.arrow import timestamp_unit
from bitlake.types.datatypes import BINARIES, INTEGERS, STRINGS, TIMESTAMPS, AtomicType, DataField, Root

MAX, MIN, NULL_COUNT, _DISTINCT, MAX_VALUE, MIN_VALUE, MAX_EXACT, MIN_EXACT, NAN_COUNT = range(1, 10)
"""Field ids of Parquet's Statistics struct, on disk."""

_CONVERTED_UNITS = {9: "ms", 10: "us", 7: "ms", 8: "us"}
_LOGICAL_UNITS = {1: "ms", 2: "us", 3: "ns"}
_LOGICAL_DECIMAL, _LOGICAL_TIME, _LOGICAL_TIMESTAMP, _LOGICAL_INTEGER = 5, 7, 8, 10
_CONVERTED_DECIMAL = 5
_CONVERTED_UNSIGNED = range(11, 15)
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

Stats = tuple[list[Any], list[Any], list[int | None]]
_Decode = Callable[[bytes], Any]


def metadata_footer(metadata: pq.FileMetaData) -> Footer:
    """pyarrow's metadata of a file as a :class:`Footer`; its file size is unknown, so only for statistics."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    file = sink.getvalue().to_pybytes()
    length = int.from_bytes(file[-8:-4], "little")
    return parse_footer(file[-8 - length : -8], 1 << 62)


def footer_stats(
    footer: Footer | pq.FileMetaData, fields: Sequence[DataField], *, nan_columns: Collection[str] | None = None
) -> Stats:
    """(mins, maxs, null counts) of the columns ``fields``, by name; None where unknown.

    ``nan_columns`` names the columns that hold NaN, if the caller knows.  A column the file lacks counts as NULL in
    every row.  A column of NULLs only has no bounds and a null count equal to the row count.
    """
    known = footer if isinstance(footer, Footer) else metadata_footer(footer)
    stats = [_column(known, f, nan_columns) for f in fields]
    return [s[0] for s in stats], [s[1] for s in stats], [s[2] for s in stats]


def _column(footer: Footer, field: DataField, nan_columns: Collection[str] | None) -> tuple[Any, Any, int | None]:
    column = footer.columns.get(field.name)
    if column is None:
        return None, None, footer.rows
    if not column.flat or not isinstance(field.type, AtomicType):
        return None, None, None
    leaf = footer.leaves[column.leaf]
    chunks = [g.chunks[column.leaf] for g in footer.row_groups if g.rows]
    try:
        nulls = _null_count(leaf, chunks)
        low, high = _bounds(footer, column.leaf, chunks, field, nan_columns)
    except (TypeError, AttributeError) as e:  # a statistics field of another Thrift type
        raise CorruptError(f"Parquet statistics of column '{field.name}': {e}") from e
    return low, high, nulls


def _null_count(leaf: SchemaNode, chunks: Sequence[ColumnChunk]) -> int | None:
    if leaf.repetition == REQUIRED:
        return 0
    total = 0
    for chunk in chunks:
        count = (chunk.statistics or {}).get(NULL_COUNT)
        if count is None or not 0 <= count <= chunk.values:
            return None
        total += count
    return total


def _bounds(
    footer: Footer, index: int, chunks: Sequence[ColumnChunk], field: DataField, nan_columns: Collection[str] | None
) -> tuple[Any, Any]:
    leaf = footer.leaves[index]
    assert isinstance(field.type, AtomicType)
    decode = _decoder(leaf, field.type)
    if decode is None:
        return None, None
    is_float = leaf.physical in (FLOAT, DOUBLE)
    if is_float and nan_columns is not None and field.name in nan_columns:
        return None, None
    trusted = not is_float or nan_columns is not None or footer.created_by.startswith("parquet-mr")
    low = high = None
    for chunk in chunks:
        stats = chunk.statistics or {}
        if stats.get(NULL_COUNT) == chunk.values:
            continue
        if not trusted and stats.get(NAN_COUNT) != 0:
            return None, None
        raw = _raw_bounds(stats, footer.type_ordered[index], leaf.physical)
        if raw is None:
            return None, None
        try:
            chunk_low, chunk_high = decode(raw[0]), decode(raw[1])
        except (struct.error, UnicodeDecodeError):
            return None, None
        if chunk_low is None or chunk_high is None:
            return None, None
        if chunk_low > chunk_high:  # such bounds were made with another order
            return None, None
        low = chunk_low if low is None or chunk_low < low else low
        high = chunk_high if high is None or chunk_high > high else high
    if is_float and low is not None and high is not None:
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, high


def _raw_bounds(stats: dict[int, Any], type_ordered: bool, physical: int | None) -> tuple[bytes, bytes] | None:
    if MIN_VALUE in stats and MAX_VALUE in stats:
        if not type_ordered or not stats.get(MIN_EXACT, True) or not stats.get(MAX_EXACT, True):
            return None
        return stats[MIN_VALUE], stats[MAX_VALUE]
    if MIN in stats and MAX in stats and physical in (BOOLEAN, INT32, INT64, FLOAT, DOUBLE):
        return stats[MIN], stats[MAX]
    return None


def _decoder(leaf: SchemaNode, made: AtomicType) -> _Decode | None:
    """The function from a bound's bytes to the column's physical value, or None if the types do not go together."""
    physical, root = leaf.physical, made.root
    if physical == BOOLEAN:
        return (lambda b: struct.unpack("<?", b)[0]) if root is Root.BOOLEAN else None
    if physical in (FLOAT, DOUBLE):
        # A FLOAT file read as DOUBLE widens exactly; the reverse would round.
        fits = root is Root.DOUBLE or (root is Root.FLOAT and physical == FLOAT)
        return _float_decoder("<f" if physical == FLOAT else "<d") if fits else None
    if root in STRINGS:
        return (lambda b: b.decode("utf-8")) if physical == BYTE_ARRAY else None
    if root in BINARIES:
        return bytes if physical in (BYTE_ARRAY, FIXED) else None
    if root is Root.DECIMAL:
        return _decimal_decoder(leaf, made)
    if physical not in (INT32, INT64) or _is_unsigned(leaf):
        return None
    number = _number_decoder("<i" if physical == INT32 else "<q")
    unit = _unit(leaf)
    if root in TIMESTAMPS and physical == INT64 and unit is not None:
        return _rescaled(number, _PER_SECOND[unit], _PER_SECOND[timestamp_unit(made.precision)])
    if root is Root.TIME and unit is not None:
        return _rescaled(number, _PER_SECOND[unit], 1_000)
    plain = unit is None and _scale(leaf) is None
    return number if plain and (root in INTEGERS or (root is Root.DATE and physical == INT32)) else None


def _number_decoder(layout: str) -> _Decode:
    return lambda b: struct.unpack(layout, b)[0]


def _float_decoder(layout: str) -> _Decode:
    def decode(b: bytes) -> float | None:
        value: float = struct.unpack(layout, b)[0]
        return None if math.isnan(value) else value

    return decode


def _rescaled(decode: _Decode, source: int, target: int) -> _Decode:
    """``decode``, then from units of 1/source to 1/target second; a value that does not divide is unknown."""

    def rescale(b: bytes) -> int | None:
        whole, rest = divmod(decode(b) * target, source)
        return whole if rest == 0 else None

    return rescale


def number_units(leaf: SchemaNode, made: AtomicType) -> tuple[int, int] | None:
    """How numbers of an INT32 or INT64 leaf become a column's physical values: times the second, by the first.

    None if they do not: leaves of other kinds, unsigned ones, decimals of another scale.
    """
    if leaf.physical not in (INT32, INT64) or _is_unsigned(leaf):
        return None
    unit = _unit(leaf)
    if made.root in TIMESTAMPS:
        return None if unit is None else (_PER_SECOND[unit], _PER_SECOND[timestamp_unit(made.precision)])
    if made.root is Root.DECIMAL:
        return (1, 1) if _scale(leaf) == (made.scale or 0) else None
    plain = unit is None and _scale(leaf) is None
    return (1, 1) if plain and (made.root in INTEGERS or made.root is Root.DATE) else None


def _decimal_decoder(leaf: SchemaNode, made: AtomicType) -> _Decode | None:
    scale = _scale(leaf)
    if scale is None or scale != (made.scale or 0):
        return None
    if leaf.physical == INT32:
        return _number_decoder("<i")
    if leaf.physical == INT64:
        return _number_decoder("<q")
    if leaf.physical in (BYTE_ARRAY, FIXED):
        return lambda b: int.from_bytes(b, "big", signed=True)
    return None


def _scale(leaf: SchemaNode) -> int | None:
    """The scale of a DECIMAL leaf, None for any other."""
    if leaf.logical is not None and _LOGICAL_DECIMAL in leaf.logical:
        scale = leaf.logical[_LOGICAL_DECIMAL].get(1)
        return scale if isinstance(scale, int) else None
    return leaf.scale if leaf.converted == _CONVERTED_DECIMAL else None


def _unit(leaf: SchemaNode) -> str | None:
    """The unit of a TIME or TIMESTAMP leaf, None for any other."""
    logical = leaf.logical or {}
    found = logical.get(_LOGICAL_TIMESTAMP) or logical.get(_LOGICAL_TIME)
    if found:
        return next((_LOGICAL_UNITS[u] for u in found.get(2, ()) if u in _LOGICAL_UNITS), None)
    return _CONVERTED_UNITS.get(leaf.converted) if leaf.converted is not None else None


def _is_unsigned(leaf: SchemaNode) -> bool:
    logical = leaf.logical or {}
    if _LOGICAL_INTEGER in logical:
        return logical[_LOGICAL_INTEGER].get(2) is False
    return leaf.converted in _CONVERTED_UNSIGNED
