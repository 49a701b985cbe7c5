"""ORC files made by hand, so that their numbers can be anything.

::

    "ORC" | streams | stripe footer | footer | postscript | u1 bytes of the postscript

The last four are protobuf messages of the public ORC specification; nothing is compressed.
"""

from __future__ import annotations

from collections.abc import Sequence

_DATA, _LENGTH, _SECONDARY = 1, 2, 5
_DIRECT, _DIRECT_V2 = 0, 2
_STRUCT, _STRING, _DECIMAL = 12, 7, 14


def strings_file(
    lengths: Sequence[int], text: bytes, *, rows: int | None = None, stripe_rows: int | None = None
) -> bytes:
    """A file of one column ``s`` of strings, in one stripe; ``lengths`` are stored as unsigned 64-bit numbers."""
    stripe_rows = len(lengths) if stripe_rows is None else stripe_rows
    streams = [(_LENGTH, _direct(lengths)), (_DATA, text)]
    return _file(b"s", _message((1, _STRING)), streams, stripe_rows if rows is None else rows, stripe_rows)


def decimals_file(scales: Sequence[int]) -> bytes:
    """A file of one column ``d`` of decimal(30, 2), each value 1 of such a scale."""
    streams = [(_DATA, b"\x02" * len(scales)), (_SECONDARY, _direct([s << 1 if s >= 0 else ~(s << 1) for s in scales]))]
    return _file(b"d", _message((1, _DECIMAL), (5, 30), (6, 2)), streams, len(scales), len(scales))


def _file(name: bytes, kind: bytes, parts: Sequence[tuple[int, bytes]], rows: int, stripe_rows: int) -> bytes:
    streams = [_message((1, number), (2, 1), (3, len(part))) for number, part in parts]
    encodings = [_message((1, _DIRECT)), _message((1, _DIRECT_V2))]
    stripe_footer = _message(*((1, s) for s in streams), *((2, e) for e in encodings), (3, b"GMT"))
    data = b"".join(part for _, part in parts)
    stripe = _message((1, 3), (2, 0), (3, len(data)), (4, len(stripe_footer)), (5, stripe_rows))
    types = [_message((1, _STRUCT), (2, b"\x01"), (3, name)), kind]
    footer = _message((1, 3), (2, 3 + len(data) + len(stripe_footer)), (3, stripe), *((4, t) for t in types), (6, rows))
    postscript = _message((1, len(footer)), (2, 0), (4, b"\x00\x0c"), (6, 6), (8000, b"ORC"))
    return b"ORC" + data + stripe_footer + footer + postscript + bytes([len(postscript)])


def _direct(values: Sequence[int]) -> bytes:
    """RLE version 2, DIRECT, 64 bits a value."""
    head = 0x40 | 31 << 1 | (len(values) - 1) >> 8, (len(values) - 1) & 0xFF
    return bytes(head) + b"".join(v.to_bytes(8, "big") for v in values)


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """A protobuf message: numbers as varints, bytes with their length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
