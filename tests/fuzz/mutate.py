"""Damage to bytes, of the kinds that disks, networks and attackers do; the same seed gives the same damage."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

_BYTES = (0, 1, 0x02, 0x7F, 0x80, 0xFF)
_NUMBERS = (0, 1, -1, 2, 255, 65535, 2**31 - 1, -(2**31), 2**24, 2**40, 2**62, -(2**63))
_DIGITS = re.compile(rb"-?\d+")


def mutate(seed: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to four random injuries of ``seed``; ``others`` may lend a piece."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        rng.choice(_INJURIES)(data, rng, others)
    return bytes(data)


def _at(data: bytearray, rng: random.Random) -> int:
    """A position; the beginning and the end, where headers and footers are, twice as often as their share."""
    if not data:
        return 0
    part = rng.random()
    if part < 0.25:
        return rng.randrange(min(len(data), 64))
    return len(data) - 1 - rng.randrange(min(len(data), 64)) if part < 0.4 else rng.randrange(len(data))


def _flip(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    if data:
        data[_at(data, rng)] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    if data:
        data[_at(data, rng)] = rng.choice(_BYTES) if rng.random() < 0.5 else rng.randrange(256)


def _number(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    value = rng.choice((*_NUMBERS, len(data), len(data) - 1, len(data) + 1, rng.randrange(len(data) + 1)))
    code, mask = rng.choice(((">I", 2**32 - 1), ("<I", 2**32 - 1), (">Q", 2**64 - 1), ("<Q", 2**64 - 1)))
    raw = struct.pack(code, value & mask)
    at = _at(data, rng)
    data[at : at + len(raw)] = raw[: max(0, len(data) - at)]


def _varint(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    value = (rng.choice(_NUMBERS) << 1) & (2**64 - 1)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    at = _at(data, rng)
    data[at : at + rng.choice((1, 1, 2, len(out)))] = out


def _cut(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    del data[_at(data, rng) :]


def _drop(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = _at(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _insert(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = _at(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 64)))


def _repeat(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = _at(data, rng)
    piece = bytes(data[at : at + rng.choice((1, 4, 16, 200))])
    data[at:at] = piece * rng.choice((1, 2, 10))


def _zero(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = _at(data, rng)
    size = min(len(data) - at, rng.choice((1, 4, 16, 512)))
    data[at : at + size] = bytes(size)


def _swap(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    a, b, size = _at(data, rng), _at(data, rng), rng.choice((1, 4, 16))
    if abs(a - b) >= size and max(a, b) + size <= len(data):
        data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def _splice(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    other = rng.choice(others)
    at, size = _at(data, rng), rng.choice((4, 16, 100, 1000))
    start = rng.randrange(len(other) + 1)
    data[at : at + size] = other[start : start + size]


def _decimal(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """A number written in digits, as JSON has them, becomes another, or something else."""
    found = list(_DIGITS.finditer(data[:20_000]))
    if found:
        m = rng.choice(found)
        data[m.start() : m.end()] = rng.choice(
            (b"-1", b"0", b"1e999", b"99999999999999999999", b"1.5", b"null", b"[]", b"{}", b'"x"', b"true", b"-0")
        )


def _nest(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = _at(data, rng)
    data[at:at] = rng.choice((b"[", b"{", b'{"a":', b"<", b"ROW<", b"\x1c")) * rng.choice((3, 500, 20_000))


_Injury = Callable[[bytearray, random.Random, list[bytes]], None]
_INJURIES: tuple[_Injury, ...] = (
    _flip, _flip, _byte, _byte, _number, _number, _varint, _cut, _drop, _insert, _repeat, _zero, _swap, _splice,
    _decimal, _nest,
)  # fmt: skip
