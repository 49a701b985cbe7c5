"""BinaryRow: the encoding of partitions, keys and statistics in manifests, and of rows for bucket hashes.

Layout of a row of n fields (little-endian; table-format spec, section 6)::

    offset          size        name         meaning
    0               1           kind         0 in metadata
    0               N           null bits    N = ((n + 8 + 63) div 64) * 8; field i is null when bit i + 8 is set
    N               8 * n       slots        the value, or (offset << 32) | length of its piece
    N + 8 * n       …           pieces       in field order, each padded with zeros to 8 bytes

    BOOLEAN, TINYINT … BIGINT, DATE, TIME, FLOAT, DOUBLE   value in the slot, the rest of it zero
    strings, binaries of ≤ 7 bytes                         bytes 0-6 data, byte 7 = 0x80 | length
    strings, binaries of ≥ 8 bytes                         piece = data
    DECIMAL p ≤ 18                                         unscaled int64
    DECIMAL p > 18                                         piece of always 16 bytes: minimal big-endian, left-aligned
    TIMESTAMP p ≤ 3                                        epoch millis
    TIMESTAMP p > 3                                        (offset << 32) | nanos within the milli; piece = millis

A null slot is zero, except that DECIMAL p > 18 and TIMESTAMP p > 3 still reserve their piece and keep its offset
in the slot.  Offsets count from the start of the row.  In files a row is prefixed with its arity, big-endian int32.

Whole columns (:func:`encode_rows`) give the same bytes.  Rows are multiples of 8 bytes, so the fixed part of all rows
is one matrix of 64-bit words, scattered to where each row starts; variable pieces are copied with one flat gather a
column.  No Python loop runs over rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.types import AtomicType, DataType, Root, arrow_type
from bitlake.types.datatypes import BINARIES, COMPACT_DIGITS, STRINGS, TIMESTAMPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U8 = NDArray[np.uint8]
    I64 = NDArray[np.int64]
    U64 = NDArray[np.uint64]

EMPTY_ROW = bytes(12)
"""The row of no fields, with its arity."""
MAX_ARITY = 1 << 16
"""More fields than any table has: an arity above it is damage."""

_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_ARITY = struct.Struct(">i")
_FIXED = {
    Root.BOOLEAN: struct.Struct("<?7x"),
    Root.TINYINT: struct.Struct("<b7x"),
    Root.SMALLINT: struct.Struct("<h6x"),
    Root.INT: struct.Struct("<i4x"),
    Root.DATE: struct.Struct("<i4x"),
    Root.TIME: struct.Struct("<i4x"),
    Root.BIGINT: _I64,
    Root.FLOAT: struct.Struct("<f4x"),
    Root.DOUBLE: struct.Struct("<d"),
}


def null_bytes(arity: int) -> int:
    """The size in bytes of the null area of a row with ``arity`` fields."""
    return (arity + 8 + 63) // 64 * 8


def is_wide_decimal(made: DataType) -> bool:
    """Whether the type is a DECIMAL of more than 18 digits, which lives outside its slot."""
    return isinstance(made, AtomicType) and made.root is Root.DECIMAL and (made.precision or 10) > COMPACT_DIGITS


def is_fine_timestamp(made: DataType) -> bool:
    """Whether the type is a timestamp finer than milliseconds, which needs more than its slot."""
    return isinstance(made, AtomicType) and made.root in TIMESTAMPS and _precision(made) > 3


def units_per_milli(made: AtomicType) -> int:
    """Return the units of a timestamp's physical value in a millisecond: 1, 1000 or 1,000,000."""
    precision = _precision(made)
    return 1 if precision <= 3 else 1000 if precision <= 6 else 1_000_000


def _precision(made: AtomicType) -> int:
    return 6 if made.precision is None else made.precision


def encode_row(types: Sequence[DataType], values: Sequence[Any]) -> bytes:
    """The row of physical ``values`` (None is null), without arity.

    Raises :class:`InvalidRequest` for a value out of its type's range and :class:`UnsupportedFeature` for a non-null
    value of a nested type.
    """
    arity = len(types)
    if len(values) != arity:
        raise InvalidRequest(f"a row of {arity} fields got {len(values)} values")
    nulls = bytearray(null_bytes(arity))
    slots = bytearray()
    start = len(nulls) + 8 * arity
    pieces = bytearray()
    for i, (kind, value) in enumerate(zip(types, values)):
        if value is None:
            bit = i + 8
            nulls[bit >> 3] |= 1 << (bit & 7)
            reserved = 16 if is_wide_decimal(kind) else 8 if is_fine_timestamp(kind) else 0
            slots += _U64.pack((start + len(pieces)) << 32 if reserved else 0)
            pieces += bytes(reserved)
            continue
        try:
            slot, piece = _encode(kind, value, start + len(pieces))
        except (struct.error, OverflowError, TypeError, ValueError, AttributeError) as e:
            raise InvalidRequest(f"{value!r} is not a value of type {kind}") from e
        slots += slot
        pieces += piece
    return bytes(nulls + slots + pieces)


def encode_row_with_arity(types: Sequence[DataType], values: Sequence[Any]) -> bytes:
    """As :func:`encode_row`, prefixed with the big-endian arity as metadata files have it."""
    return _ARITY.pack(len(types)) + encode_row(types, values)


def _encode(made: DataType, value: Any, at: int) -> tuple[bytes, bytes]:
    if not isinstance(made, AtomicType):
        raise UnsupportedFeature(f"values of type {made} cannot be kept in metadata rows")
    root = made.root
    if root in _FIXED:
        return _FIXED[root].pack(value), b""
    if root in STRINGS or root in BINARIES:
        data = value.encode() if isinstance(value, str) else bytes(value)
        if len(data) <= 7:
            return data.ljust(7, b"\0") + bytes((0x80 | len(data),)), b""
        return _U64.pack(at << 32 | len(data)), data + bytes(-len(data) % 8)
    if root is Root.DECIMAL:
        if not is_wide_decimal(made):
            return _I64.pack(value), b""
        data = value.to_bytes(max(value, ~value).bit_length() // 8 + 1, "big", signed=True)
        if len(data) > 16:
            raise OverflowError(value)
        return _U64.pack(at << 32 | len(data)), data.ljust(16, b"\0")
    if root in TIMESTAMPS:
        units = units_per_milli(made)
        if not is_fine_timestamp(made):
            return _I64.pack(value), b""
        millis, rest = divmod(value, units)
        return _U64.pack(at << 32 | rest * (1_000_000 // units)), _I64.pack(millis)
    raise UnsupportedFeature(f"values of type {made} cannot be kept in metadata rows")


def decode_arity(data: bytes) -> int:
    """The number of fields of a row with arity; checks that its fixed part is there.  Raises :class:`CorruptError`."""
    if len(data) < 12:
        raise CorruptError(f"a row of {len(data)} bytes is shorter than the empty row", 0)
    arity: int = _ARITY.unpack_from(data)[0]
    if not 0 <= arity <= MAX_ARITY or 4 + null_bytes(arity) + 8 * arity > len(data):
        raise CorruptError(f"a row of {len(data)} bytes cannot have {arity} fields", 0)
    return arity


def decode_row(types: Sequence[DataType], data: bytes) -> tuple[Any, ...]:
    """The values of a row with arity; raises :class:`CorruptError` unless it has ``len(types)`` sound fields."""
    arity = decode_arity(data)
    if arity != len(types):
        raise CorruptError(f"a row of {arity} fields stands where {len(types)} are expected", 0)
    return tuple(decode_field(kind, data, arity, i) for i, kind in enumerate(types))


def decode_field(made: DataType, data: bytes, arity: int, index: int) -> Any:
    """Field ``index`` of a row with arity , ``arity`` from :func:`decode_arity`."""
    bit = index + 8
    if data[4 + (bit >> 3)] >> (bit & 7) & 1:
        return None
    if not isinstance(made, AtomicType):
        raise UnsupportedFeature(f"values of type {made} cannot be read from metadata rows")
    slot = 4 + null_bytes(arity) + 8 * index
    return _DECODERS[made.root](made, data, slot)


def field_decoder(made: DataType, arity: int, index: int) -> Callable[[bytes], Any]:
    """:func:`decode_field` for many rows of one shape: everything that does not depend on the row is worked out once.

    The result takes a row with arity whose arity was checked to be ``arity``.
    """
    bit = index + 8
    null_at, null_bit = 4 + (bit >> 3), 1 << (bit & 7)
    slot = 4 + null_bytes(arity) + 8 * index
    if not isinstance(made, AtomicType) or made.root is Root.VARIANT:
        raise UnsupportedFeature(f"values of type {made} cannot be read from metadata rows")
    if made.root in _FIXED or (made.root is Root.DECIMAL and not is_wide_decimal(made)):
        unpack = _FIXED.get(made.root, _I64).unpack_from
        return lambda data: None if data[null_at] & null_bit else unpack(data, slot)[0]
    decode = _DECODERS[made.root]
    return lambda data: None if data[null_at] & null_bit else decode(made, data, slot)


def _decode_fixed(made: AtomicType, data: bytes, slot: int) -> Any:
    return _FIXED[made.root].unpack_from(data, slot)[0]


def _decode_bytes(made: AtomicType, data: bytes, slot: int) -> bytes:
    mark = data[slot + 7]
    if mark & 0x80:
        length = mark & 0x7F
        if length > 7:
            raise CorruptError(f"an inline value of {length} bytes", slot + 7)
        return data[slot : slot + length]
    word = _U64.unpack_from(data, slot)[0]
    return _piece(data, slot, word >> 32, word & 0xFFFFFFFF)


def _decode_text(made: AtomicType, data: bytes, slot: int) -> str:
    try:
        return _decode_bytes(made, data, slot).decode()
    except UnicodeDecodeError as e:
        raise CorruptError("a string is not UTF-8", slot) from e


def _decode_decimal(made: AtomicType, data: bytes, slot: int) -> int:
    if not is_wide_decimal(made):
        return int(_I64.unpack_from(data, slot)[0])
    word = _U64.unpack_from(data, slot)[0]
    length = word & 0xFFFFFFFF
    if not 1 <= length <= 16:
        raise CorruptError(f"a decimal of {length} bytes", slot)
    return int.from_bytes(_piece(data, slot, word >> 32, length), "big", signed=True)


def _decode_timestamp(made: AtomicType, data: bytes, slot: int) -> int:
    if not is_fine_timestamp(made):
        return int(_I64.unpack_from(data, slot)[0])
    word = _U64.unpack_from(data, slot)[0]
    nanos = word & 0xFFFFFFFF
    if nanos > 999_999:
        raise CorruptError(f"{nanos} nanoseconds in a millisecond", slot)
    millis = _I64.unpack(_piece(data, slot, word >> 32, 8))[0]
    units = units_per_milli(made)
    return int(millis * units + nanos * units // 1_000_000)


def _piece(data: bytes, slot: int, offset: int, length: int) -> bytes:
    begin = 4 + offset
    if begin < slot + 8 or begin + length > len(data):
        raise CorruptError(f"a value of {length} bytes at {offset} lies outside its row", slot)
    return data[begin : begin + length]


def _refuse(made: AtomicType, data: bytes, slot: int) -> Any:
    raise UnsupportedFeature(f"values of type {made} cannot be read from metadata rows")


_DECODERS: dict[Root, Callable[[AtomicType, bytes, int], Any]] = {
    **dict.fromkeys(_FIXED, _decode_fixed),
    **dict.fromkeys(STRINGS, _decode_text),
    **dict.fromkeys(BINARIES, _decode_bytes),
    **dict.fromkeys(TIMESTAMPS, _decode_timestamp),
    Root.DECIMAL: _decode_decimal,
    Root.VARIANT: _refuse,
}


# --- whole columns ----------------------------------------------------------------------------------------------------

_NUMPY = {
    Root.TINYINT: "int8",
    Root.SMALLINT: "int16",
    Root.INT: "int32",
    Root.DATE: "int32",
    Root.TIME: "int32",
    Root.BIGINT: "int64",
    Root.FLOAT: "float32",
    Root.DOUBLE: "float64",
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
    columns = [to_column(kind, array) for kind, array in zip(types, arrays, strict=True)]
    rows = len(columns[0]) if columns else 0
    head = null_bytes(len(types)) // 8
    fixed = np.zeros((rows, head + len(types)), np.uint64)
    null_area = fixed[:, :head].view(np.uint8)  # a view: setting bits here sets them in the row
    used = np.full(rows, fixed.shape[1] * 8, np.int64)
    pieces: list[tuple[I64, U8 | Texts]] = []
    for i, (kind, column) in enumerate(zip(types, columns)):
        assert isinstance(kind, AtomicType)
        nulls = null_mask(column)
        if nulls.any():
            bit = i + 8
            null_area[:, bit >> 3] |= nulls.astype(np.uint8) << np.uint8(bit & 7)
        slot = fixed[:, head + i]
        if kind.root in STRINGS or kind.root in BINARIES:
            texts = to_texts(column)
            long = texts.lengths > 7
            slot[:] = np.where(long, used.astype(np.uint64) << np.uint64(32) | texts.lengths.astype(np.uint64),
                               _inline(texts, nulls))  # fmt: skip
            kept = Texts(texts.data, texts.starts, np.where(long, texts.lengths, 0))
            pieces.append((used.copy(), kept))
            used += (kept.lengths + 7) // 8 * 8
        elif is_wide_decimal(kind):
            body, lengths = _wide_decimals(column, nulls)
            slot[:] = used.astype(np.uint64) << np.uint64(32) | lengths.astype(np.uint64)
            pieces.append((used.copy(), body))
            used += 16
        elif is_fine_timestamp(kind):
            millis, nanos = _split_timestamps(kind, column, nulls)
            slot[:] = used.astype(np.uint64) << np.uint64(32) | nanos.astype(np.uint64)
            pieces.append((used.copy(), millis.view(np.uint8).reshape(rows, 8)))
            used += 8
        else:
            slot[:] = _slots(kind, column, nulls)
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
        nothing = np.zeros(0, np.int64)
        return Texts(nothing.view(np.uint8), nothing, nothing)
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
