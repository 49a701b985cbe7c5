"""BinaryRow: the row form of partitions, keys and statistics in manifests, and of what bucket hashes run over.

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
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.types import AtomicType, DataType, Root
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS

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
    return isinstance(made, AtomicType) and made.root is Root.DECIMAL and (made.precision or 10) > 18


def is_fine_timestamp(made: DataType) -> bool:
    """Whether the type is a timestamp finer than milliseconds, which needs more than its slot."""
    return isinstance(made, AtomicType) and made.root in TIMESTAMPS and _precision(made) > 3


def units_per_milli(made: AtomicType) -> int:
    """How many units of a timestamp's physical value make a millisecond: 1, 1000 or 1,000,000."""
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
    for i, (made, value) in enumerate(zip(types, values)):
        if value is None:
            bit = i + 8
            nulls[bit >> 3] |= 1 << (bit & 7)
            reserved = 16 if is_wide_decimal(made) else 8 if is_fine_timestamp(made) else 0
            slots += _U64.pack((start + len(pieces)) << 32 if reserved else 0)
            pieces += bytes(reserved)
            continue
        try:
            slot, piece = _encode(made, value, start + len(pieces))
        except (struct.error, OverflowError, TypeError, ValueError, AttributeError) as e:
            raise InvalidRequest(f"{value!r} is not a value of type {made}") from e
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
        data = value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
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
    return tuple(decode_field(made, data, arity, i) for i, made in enumerate(types))


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
