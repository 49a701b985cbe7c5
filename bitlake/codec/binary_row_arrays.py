"""BinaryRow over whole columns: the same bytes as :mod:`bitlake.codec.binary_row`, for many rows at once.

Rows are multiples of 8 bytes, so the fixed part of all rows is one matrix of 64-bit words, scattered to where each row
starts; variable pieces are copied with one flat gather a column.  No Python loop runs over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bitlake.codec.binary_row import is_fine_timestamp, is_wide_decimal, null_bytes, units_per_milli
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.lazy_arrow import compute as pc
from bitlake.types import AtomicType, DataType, Root, arrow_type
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_NUMPY = {
    Root.TINYINT: np.int8,
    Root.SMALLINT: np.int16,
    Root.INT: np.int32,
    Root.DATE: np.int32,
    Root.TIME: np.int32,
    Root.BIGINT: np.int64,
    Root.FLOAT: np.float32,
    Root.DOUBLE: np.float64,
}


class Texts(NamedTuple):
    """A string or binary column: its bytes, where each value starts and how long it is (0 for nulls)."""

    data: U8
    starts: I64
    lengths: I64


def encode_rows(types: Sequence[DataType], arrays: Sequence[Any]) -> tuple[U8, I64]:
    """The rows of equally long Arrow arrays, one array a field, without arity.

    Returns the bytes of all rows and ``rows + 1`` offsets into them.  Arrays are cast to their field's Arrow type.
    Raises :class:`InvalidRequest` when a cast would lose something, :class:`UnsupportedFeature` for nested types.
    """
    columns = [to_column(made, array) for made, array in zip(types, arrays, strict=True)]
    rows = len(columns[0]) if columns else 0
    head = null_bytes(len(types)) // 8
    fixed = np.zeros((rows, head + len(types)), np.uint64)
    null_area = fixed[:, :head].view(np.uint8)  # a view: setting bits here sets them in the row
    used = np.full(rows, fixed.shape[1] * 8, np.int64)
    pieces: list[tuple[I64, U8 | Texts]] = []
    for i, (made, column) in enumerate(zip(types, columns)):
        assert isinstance(made, AtomicType)
        nulls = null_mask(column)
        if nulls.any():
            bit = i + 8
            null_area[:, bit >> 3] |= nulls.astype(np.uint8) << np.uint8(bit & 7)
        slot = fixed[:, head + i]
        if made.root in STRINGS or made.root in BINARIES:
            texts = to_texts(column)
            long = texts.lengths > 7
            slot[:] = np.where(long, used.astype(np.uint64) << np.uint64(32) | texts.lengths.astype(np.uint64),
                               _inline(texts, nulls))  # fmt: skip
            kept = Texts(texts.data, texts.starts, np.where(long, texts.lengths, 0))
            pieces.append((used.copy(), kept))
            used += (kept.lengths + 7) // 8 * 8
        elif is_wide_decimal(made):
            body, lengths = _wide_decimals(column, nulls)
            slot[:] = used.astype(np.uint64) << np.uint64(32) | lengths.astype(np.uint64)
            pieces.append((used.copy(), body))
            used += 16
        elif is_fine_timestamp(made):
            millis, nanos = _split_timestamps(made, column, nulls)
            slot[:] = used.astype(np.uint64) << np.uint64(32) | nanos.astype(np.uint64)
            pieces.append((used.copy(), millis.view(np.uint8).reshape(rows, 8)))
            used += 8
        else:
            slot[:] = _slots(made, column, nulls)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(used, out=offsets[1:])
    return _assemble(fixed, offsets, pieces), offsets


def _assemble(fixed: U64, offsets: I64, pieces: list[tuple[I64, U8 | Texts]]) -> U8:
    if not pieces:
        return fixed.reshape(-1).view(np.uint8)
    rows, width = fixed.shape
    words = np.zeros(int(offsets[-1]) // 8, np.uint64)
    starts = offsets[:-1]
    words[(starts // 8)[:, None] + np.arange(width)] = fixed
    data = words.view(np.uint8)
    for at, piece in pieces:
        where = starts + at
        if isinstance(piece, Texts):
            _copy_texts(data, where, piece)
        else:
            size = piece.shape[1] // 8
            words[(where // 8)[:, None] + np.arange(size)] = piece.view(np.uint64).reshape(rows, size)
    return data


def _copy_texts(into: U8, where: I64, texts: Texts) -> None:
    total = int(texts.lengths.sum())
    if total == 0:
        return
    before = np.cumsum(texts.lengths) - texts.lengths
    steps = np.arange(total)
    source = np.repeat(texts.starts - before, texts.lengths) + steps
    into[np.repeat(where - before, texts.lengths) + steps] = texts.data[source]


def to_column(made: DataType, array: Any) -> Any:
    """One Arrow array of exactly the type's Arrow type (strings and binaries as large binary)."""
    if not isinstance(made, AtomicType) or made.root is Root.VARIANT:
        raise UnsupportedFeature(f"type {made} cannot be used in a key, partition or bucket")
    wanted = arrow_type(made)
    if made.root in STRINGS or made.root in BINARIES:
        wanted = pa.large_binary()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # too large for one array of its type
            array = array.cast(wanted).combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type == wanted:
        return array
    try:
        return pc.cast(array, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise InvalidRequest(f"a column of Arrow type {array.type} does not fit type {made}: {e}") from e


def null_mask(column: Any) -> NDArray[np.bool_]:
    """True where the column is null."""
    if column.null_count == 0:
        return np.zeros(len(column), np.bool_)
    mask: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def to_numbers(column: Any, dtype: Any, nulls: NDArray[np.bool_]) -> NDArray[Any]:
    """The values of a fixed-width column as ``dtype``; nulls become 0."""
    size = np.dtype(dtype).itemsize
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), dtype)
    values = np.frombuffer(buffer, dtype, len(column), column.offset * size)
    return np.where(nulls, np.zeros((), dtype), values) if nulls.any() else values


def to_texts(column: Any) -> Texts:
    """The pieces of a large binary column."""
    rows = len(column)
    if rows == 0:
        return Texts(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, rows + 1, column.offset * 8)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(null_mask(column), 0, lengths)
    return Texts(data, offsets[:-1], lengths)


def decimal_words(column: Any, nulls: NDArray[np.bool_]) -> U64:
    """The unscaled 128-bit two's complement values of a decimal column as (rows, 2): low word, high word."""
    rows = len(column)
    if rows == 0:
        return np.zeros((0, 2), np.uint64)
    words = np.frombuffer(column.buffers()[1], np.uint64, rows * 2, column.offset * 16).reshape(rows, 2)
    return np.where(nulls[:, None], np.uint64(0), words)


def _slots(made: AtomicType, column: Any, nulls: NDArray[np.bool_]) -> U64:
    rows = len(column)
    if made.root is Root.BOOLEAN:
        bits = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
        return np.asarray(bits, np.uint64)
    if made.root is Root.DECIMAL:
        return decimal_words(column, nulls)[:, 0]
    if made.root in TIMESTAMPS:
        return to_numbers(column, np.int64, nulls).view(np.uint64)
    values = to_numbers(column, _NUMPY[made.root], nulls)
    out = np.zeros((rows, 8), np.uint8)
    out[:, : values.itemsize] = np.ascontiguousarray(values).view(np.uint8).reshape(rows, values.itemsize)
    return out.view(np.uint64).reshape(rows)


def _inline(texts: Texts, nulls: NDArray[np.bool_]) -> U64:
    rows = len(texts.starts)
    out = np.zeros((rows, 8), np.uint8)
    if len(texts.data):
        at = np.minimum(texts.starts[:, None] + np.arange(7), len(texts.data) - 1)
        out[:, :7] = np.where(np.arange(7) < texts.lengths[:, None], texts.data[at], 0)
    out[:, 7] = np.where(nulls, 0, 0x80 | (texts.lengths & 7))
    return out.view(np.uint64).reshape(rows)


def _wide_decimals(column: Any, nulls: NDArray[np.bool_]) -> tuple[U8, I64]:
    words = decimal_words(column, nulls)
    rows = len(words)
    big = np.ascontiguousarray(words.view(np.uint8).reshape(rows, 16)[:, ::-1])
    flipped = np.where((big[:, :1] & 0x80) != 0, ~big, big)
    first = np.argmax(flipped != 0, axis=1)  # 0 also for an all-zero row, where the byte itself is 0
    top = flipped[np.arange(rows), first]
    lengths = np.where(top == 0, 1, 16 - first + (top >= 128)).astype(np.int64)
    at = np.minimum(16 - lengths[:, None] + np.arange(16), 15)
    body = np.where(np.arange(16) < lengths[:, None], np.take_along_axis(big, at, axis=1), 0).astype(np.uint8)
    return body, np.where(nulls, 0, lengths)


def _split_timestamps(made: AtomicType, column: Any, nulls: NDArray[np.bool_]) -> tuple[I64, I64]:
    values = to_numbers(column, np.int64, nulls)
    units = units_per_milli(made)
    millis = values // units
    return millis, (values - millis * units) * (1_000_000 // units)
