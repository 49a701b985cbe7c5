"""Bounds-checked big-endian reading, variable-length integers, and Java's *modified UTF-8*.

Modified UTF-8 as ``DataOutputStream.writeUTF`` writes it::

    u2 BE byte length | per UTF-16 code unit:
        0001-007F              1 byte
        0000 and 0080-07FF     2 bytes   (NUL is C0 80)
        0800-FFFF              3 bytes   (a supplementary character is two surrogates: 6 bytes)

Varints, of Thrift's compact protocol and of Avro: seven bits a byte, the lowest first, the high bit where more follow.

Source: index-format spec, section 1.1.
"""

from __future__ import annotations

import struct

from bitlake.errors import CorruptError, InvalidRequest

_U2 = struct.Struct(">H")
_I4 = struct.Struct(">i")
_I8 = struct.Struct(">q")
_MAX_UTF = 0xFFFF
INT_MAX = 2**31 - 1
"""The largest INT of Java: no length, count or offset in a file is larger."""


class Reader:
    """Reads big-endian fields from a view, never past its end.

    ``base`` is where the view starts in its file; it only makes the offsets of errors right.  Every method raises
    :class:`CorruptError` instead of reading outside.
    """

    __slots__ = ("_at", "_base", "_end", "_view")

    def __init__(self, view: memoryview | bytes, base: int = 0) -> None:
        self._view = memoryview(view).cast("B") if isinstance(view, memoryview) else memoryview(view)
        self._at = 0
        self._end = len(self._view)
        self._base = base

    @property
    def remaining(self) -> int:
        """Bytes left."""
        return self._end - self._at

    @property
    def offset(self) -> int:
        """Position of the next byte, counted from the start of the view."""
        return self._at

    def seek(self, offset: int) -> None:
        """Move to ``offset`` bytes from the start of the view; the end itself is allowed."""
        if not 0 <= offset <= self._end:
            raise CorruptError(f"offset {offset} is outside of {self._end} bytes", self._base + self._at)
        self._at = offset

    def take(self, n: int) -> memoryview:
        """The next ``n`` bytes."""
        start = self._advance(n)
        return self._view[start : start + n]

    def _advance(self, n: int) -> int:
        start = self._at
        if not 0 <= n <= self._end - start:
            raise CorruptError(f"{n} bytes wanted, {self.remaining} left", self._base + start)
        self._at = start + n
        return start

    def u1(self) -> int:
        """Unsigned byte."""
        return self._view[self._advance(1)]

    def u2(self) -> int:
        """Unsigned 16-bit integer, big-endian."""
        return int(_U2.unpack_from(self._view, self._advance(2))[0])

    def i4(self) -> int:
        """Signed 32-bit integer, big-endian."""
        return int(_I4.unpack_from(self._view, self._advance(4))[0])

    def i8(self) -> int:
        """Signed 64-bit integer, big-endian."""
        return int(_I8.unpack_from(self._view, self._advance(8))[0])

    def count(self, what: str, least_size: int) -> int:
        """A non-negative i4 counting things of at least ``least_size`` bytes each that must still fit."""
        at = self._at
        n = self.i4()
        if n < 0 or n * least_size > self.remaining:
            raise CorruptError(f"{what} is {n}, with {self.remaining} bytes left", self._base + at)
        return n

    def utf(self) -> str:
        """A string in modified UTF-8 with its two-byte length."""
        at = self._at
        try:
            return mutf8_decode(bytes(self.take(self.u2())))
        except CorruptError as e:
            raise CorruptError(e.what, self._base + at) from e


def utf(text: str) -> bytes:
    """Modified UTF-8 with its two-byte length; raises :class:`InvalidRequest` above 65535 bytes."""
    body = mutf8_encode(text)
    if len(body) > _MAX_UTF:
        raise InvalidRequest(f"'{text[:40]}…' takes {len(body)} bytes; names are limited to {_MAX_UTF} bytes")
    return _U2.pack(len(body)) + body


def mutf8_encode(text: str) -> bytes:
    """Modified UTF-8 of a string, without length."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    out = bytearray()
    for high, low in zip(units[::2], units[1::2], strict=True):
        unit = high << 8 | low
        if 0 < unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


def mutf8_decode(data: bytes) -> str:
    """The string of modified UTF-8 bytes; raises :class:`CorruptError` on a malformed or cut sequence."""
    if data.isascii() and b"\0" not in data:
        return data.decode("ascii")
    units = bytearray()
    at, end = 0, len(data)
    while at < end:
        first = data[at]
        size = 1 if first < 0x80 else 2 if first >> 5 == 0b110 else 3 if first >> 4 == 0b1110 else 0
        rest = data[at + 1 : at + size]
        if size == 0 or len(rest) != size - 1 or any(b >> 6 != 0b10 for b in rest):
            raise CorruptError("malformed modified UTF-8", at)
        unit = first & (0x7F, 0x1F, 0x0F)[size - 1]
        for b in rest:
            unit = unit << 6 | b & 0x3F
        units += _U2.pack(unit)
        at += size
    return units.decode("utf-16-be", "surrogatepass")


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed integer of up to 64 bits as its zigzag varint."""
    return varint((value << 1) ^ (value >> 63))
