"""The dictionary of a range-bitmap of texts, made field by field: contradictions are refused where they are.

Source: index-format spec, section 4.2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bitlake.errors import CorruptError
from bitlake.expressions.tree import Comparison, Op
from bitlake.fileindex.range_bitmap import RangeBitmapReader
from bitlake.types import parse_type
from tests.fileindex.payloads import check_every_comparison
from tests.fileindex.test_bit_slice_payloads import CODES, slices

KEYS = [b"", b"b", b"bb", b"c", b"ddd", b"e"]
CHUNKS = [KEYS[:1], KEYS[1:4], KEYS[4:]]
ROWS = [KEYS[CODES[i]].decode() if i in CODES else None for i in range(9)]


def stored(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def header(first: bytes, *numbers: int, version: int = 1) -> bytes:
    """Version, first key, code, place of the keys, number of the others, bytes of their offsets and of themselves."""
    return bytes((version,)) + first + struct.pack(">5i", *numbers)


def area(others: Sequence[bytes], offsets: Sequence[int] | None = None) -> bytes:
    starts = np.cumsum([0, *(4 + len(o) for o in others)])[:-1].tolist() if offsets is None else offsets
    return struct.pack(f">{len(starts)}i", *starts) + b"".join(map(stored, others))


def dictionary(chunks: Sequence[Sequence[bytes]], headers: dict[int, bytes], areas: dict[int, bytes]) -> bytes:
    code = at = 0
    heads, bodies = [], []
    for i, keys in enumerate(chunks):
        body = area(keys[1:])
        size = len(keys) - 1
        heads.append(headers.get(i, header(stored(keys[0]), code, at, size, 4 * size, len(body) - 4 * size)))
        bodies.append(areas.get(i, body))
        code, at = code + len(keys), at + len(body)
    places = np.cumsum([0, *map(len, heads)]).tolist()
    front = struct.pack(">iBiii", 13, 1, len(heads), 4 * len(heads), places[-1])
    return front + struct.pack(f">{len(heads)}i", *places[:-1]) + b"".join(heads + bodies)


def payload(
    chunks: Sequence[Sequence[bytes]] = CHUNKS,
    headers: dict[int, bytes] | None = None,
    areas: dict[int, bytes] | None = None,
) -> bytes:
    middle = dictionary(chunks, headers or {}, areas or {})
    head = struct.pack(">Bii", 1, 9, 6) + stored(KEYS[0]) + stored(KEYS[-1]) + struct.pack(">i", len(middle))
    return struct.pack(">i", len(head)) + head + middle + slices(CODES, 3)


def reader(data: bytes) -> RangeBitmapReader:
    return RangeBitmapReader(parse_type("STRING"), lambda o, n: data[o : o + n], len(data), 9)


AT = 4 + 9 + 4 + 5 + 4
HEADERS = AT + 17 + 12
SECOND = HEADERS + 25
AREAS = HEADERS + 3 * 25 + 1 + 3
"""Where the dictionary, its chunks' headers, the second one of them, and the keys begin."""


@pytest.mark.parametrize("chunks", [[KEYS], [[k] for k in KEYS], CHUNKS, [KEYS[:5], KEYS[5:]], [KEYS[:1], KEYS[1:]]])
def test_chunks_of_any_number(chunks: list[list[bytes]]) -> None:
    made = reader(payload(chunks))
    check_every_comparison(made, ROWS, [*(k.decode() for k in KEYS), "a", "ba", "bc", "d", "dddd", "f"])
    assert made.distinct().to_pylist() == [k.decode() for k in KEYS]  # type: ignore[union-attr]


def look_up(made: RangeBitmapReader) -> Any:
    return made.test(Comparison("c", Op.EQ, "bb"))


def list_all(made: RangeBitmapReader) -> Any:
    return made.distinct()


@pytest.mark.parametrize(("second", "offset"), [
    (header(stored(b"b"), 1, 0, 2, 8, 11, version=2), SECOND), (header(stored(b"b"), 1, 0, 2, 4, 11), SECOND),
    (header(stored(b"b"), 1, 0, 2, 12, 11), SECOND), (header(stored(b"b"), 1, -1, 2, 8, 11), SECOND),
    (header(stored(b"b"), -1, 0, 2, 8, 11), SECOND), (header(stored(b"b"), 1, 0, 2, 8, -1), SECOND),
    (header(stored(b"b"), 1, 0, -1, -4, 11), SECOND), (header(stored(b"b"), 4, 0, 2, 8, 11), SECOND),
    (header(stored(b"b"), 1, 0, 2, 8, 21), SECOND), (header(stored(b"b"), 1, 10, 2, 8, 11), SECOND),
    (header(b"\xff\xff\xff\xff", 1, 0, 2, 8, 11), SECOND + 5), (header(b"\0\1\0\0b", 1, 0, 2, 8, 11), SECOND + 5),
])  # fmt: skip
@pytest.mark.parametrize("ask", [look_up, list_all])
def test_contradictions_of_a_chunk(second: bytes, offset: int, ask: Any) -> None:
    with pytest.raises(CorruptError) as e:
        ask(reader(payload(headers={1: second})))
    assert e.value.offset == offset


def test_the_last_byte_of_the_dictionary() -> None:
    """The keys of all chunks take 28 bytes, of which those of the last one end there."""
    last = header(stored(b"ddd"), 4, 19, 1, 4, 5)
    assert list_all(reader(payload(headers={2: last}))).to_pylist()[4:] == ["ddd", "e"]
    for third in (header(stored(b"ddd"), 4, 19, 1, 4, 6), header(stored(b"ddd"), 4, 20, 1, 4, 5)):
        with pytest.raises(CorruptError, match="does not fit"):
            list_all(reader(payload(headers={2: third})))


@pytest.mark.parametrize(("second", "offset"), [
    (area([b"bb", b"c"], [0, 12]), 8), (area([b"bb", b"c"], [0, -1]), 8),
    (area([b"bb", b"c"], [0, 11]), 8 + 11), (area([b"bb", b"c"], [0, 8]), 8 + 8),
    (area([b"bb", b"c"])[:14] + b"\xff\xff\xff\xff" + b"c", 8 + 10),
    (area([b"bb", b"c"])[:14] + b"\0\0\0\2" + b"c", 8 + 10),
])  # fmt: skip
def test_a_key_that_lies_elsewhere(second: bytes, offset: int) -> None:
    """A look-up compares with the middle of the other keys first, here the last; the list checks all of them."""
    with pytest.raises(CorruptError) as e:
        look_up(reader(payload(areas={1: second})))
    assert e.value.offset == AREAS + offset
    with pytest.raises(CorruptError, match="a chunk of a range-bitmap's dictionary contradicts itself") as e:
        list_all(reader(payload(areas={1: second})))
    assert e.value.offset == AREAS


@pytest.mark.parametrize("second", [
    area([b"bb", b"c"], [1, 6]), area([b"bb", b"c"], [0, 7]), area([b"bb", b"c"], [0, 5]), area([b"bb", b"c"], [0, 3]),
    area([b"bb", b"c"], [6, 0]), area([b"bbb", b""]), area([b"b", b"cc"], [0, 6]),
])  # fmt: skip
def test_keys_that_do_not_follow_each_other(second: bytes) -> None:
    if second == area([b"bbb", b""]):
        assert list_all(reader(payload(areas={1: second}))).to_pylist()[2:4] == ["bbb", ""]
        return
    with pytest.raises(CorruptError, match="a chunk of a range-bitmap's dictionary contradicts itself") as e:
        list_all(reader(payload(areas={1: second})))
    assert e.value.offset == AREAS
