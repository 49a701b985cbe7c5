"""Lists of records of keys: what is packed comes back, from any place, and every cut of a list is refused."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import CorruptError
from bitlake.fileindex.dictionary import pack, read_fixed, read_variable
from bitlake.fileindex.keyed import Keys, keys_of
from bitlake.fileindex.payload import LazyBytes
from bitlake.fileindex.range_bitmap import Dictionary, encode_dictionary
from bitlake.types import parse_type

TEXTS = [b"", b"a", b"bc" * 40, b"\xff", b"x" * 5000]
COUNTS = [0, 1, 2, 15, 16, 17, 40]


def keys(kind: str) -> Keys:
    made = keys_of(parse_type(kind))
    assert made is not None
    return made


def window(data: bytes) -> LazyBytes:
    return LazyBytes(lambda o, n: data[o : o + n], len(data), 0)


def numbers(n: int, tail: int) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.int64) * 1000003 * (i + 1) - 5 for i in range(tail)]


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("tail", [0, 1, 2, 3])
def test_records_of_texts(n: int, tail: int) -> None:
    values = [TEXTS[i % len(TEXTS)] for i in range(n)]
    tails = numbers(n, tail)
    data, offsets = pack(keys("STRING"), pa.array(values, pa.large_binary()), *tails)
    rows = [
        struct.pack(">i", len(v)) + v + b"".join(struct.pack(">i", t[i]) for t in tails) for i, v in enumerate(values)
    ]
    assert data == b"".join(rows)
    assert offsets.tolist() == [sum(map(len, rows[:i])) for i in range(n + 1)]
    want = (values, [[int(t[i]) for t in tails] for i in range(n)])
    for before, after, end in (
        (0, 0, None),
        (7, 0, None),
        (7, 9000, None),
        (7, 3, 7 + len(data)),
        (0, 5, len(data) + 5),
    ):
        got, found, stop = read_variable(window(b"." * before + data + b"\0" * after), before, n, tail, end)
        assert (got, found.tolist()) == want and found.shape == (n, tail)
        assert stop == before + len(data)
    # At the end of the index, and before an end that the caller knows while the index goes on.
    for cut in {*range(min(len(data), 300)), *(o - 1 for o in offsets.tolist()[1:]), *offsets.tolist()[:-1]}:
        for whole, end in ((data[:cut], None), (data, cut), (data[:cut], cut)):
            with pytest.raises(CorruptError) as e:
                read_variable(window(whole), 0, n, tail, end)
            assert e.value.offset == 0


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("tail", [0, 1, 2])
def test_records_of_numbers(n: int, tail: int) -> None:
    values = np.arange(n, dtype=np.int64) * -77
    tails = numbers(n, tail)
    data, offsets = pack(keys("BIGINT"), pa.array(values), *tails)
    size = 8 + 4 * tail
    rows = [struct.pack(">q", v) + b"".join(struct.pack(">i", t[i]) for t in tails) for i, v in enumerate(values)]
    assert data == b"".join(rows) and offsets.tolist() == [size * i for i in range(n + 1)]
    for before, after in ((0, 0), (3, 0), (3, 50)):
        got, found, stop = read_fixed(keys("BIGINT"), window(b"." * before + data + b"." * after), before, n, tail)
        assert got.tolist() == values.tolist() and found.tolist() == [[int(t[i]) for t in tails] for i in range(n)]
        assert stop == before + len(data)
        if n:
            with pytest.raises(CorruptError) as e:
                read_fixed(keys("BIGINT"), window(b"." * before + data[:-1]), before, n, tail)
            assert e.value.offset == before


def test_counts_and_lengths_that_cannot_be() -> None:
    for read in (
        lambda n: read_variable(window(b"\0" * 40), 4, n, 1),
        lambda n: read_fixed(keys("INT"), window(b"\0" * 40), 4, n, 1),
    ):
        with pytest.raises(CorruptError, match="cannot have -1 values here"):
            read(-1)
        with pytest.raises(CorruptError, match="cannot have 5 values here"):
            read(5)
    with pytest.raises(CorruptError, match="cannot have 0 values here"):
        read_variable(window(b"\0" * 40), 9, 0, 0, 8)
    data = struct.pack(">ii", 0, -1) + bytes(40)
    with pytest.raises(CorruptError, match="cannot have -1 bytes") as e:
        read_variable(window(b"." * 3 + data), 3, 2, 0)
    assert e.value.offset == 7


@pytest.mark.parametrize("kind", ["STRING", "INT"])
@pytest.mark.parametrize("chunk", [0, 8, 40, 1 << 14])
def test_a_dictionary_finds_every_key_and_the_gaps_between(kind: str, chunk: int) -> None:
    """In chunks of every size, after other bytes and before others."""
    made = keys(kind)
    known = [i * 3 for i in range(30)] if kind == "INT" else [b"k%03d" % (i * 3) for i in range(30)]
    for count in (1, 2, 3, 10, 30):
        array = pa.array(known[:count], made.arrow)
        data = encode_dictionary(made, array, chunk)
        view = window(b"!" * 11 + data + b"?" * 500)
        found = Dictionary(made, view, 11, len(data), count)
        for i in range(-1, 3 * count + 1):
            asked = i if kind == "INT" else b"k%03d" % i if i >= 0 else b""
            assert found.find(asked) == (sum(k < asked for k in known[:count]), asked in known[:count])
        for codes in ([], [0], [count - 1], list(range(count)), list(range(0, count, 2))):
            assert found.keys_at(np.array(codes, np.int64)).to_pylist() == [known[c] for c in codes]


def test_a_key_beyond_its_chunk_is_refused() -> None:
    """The chunk's length is a byte short: its last key ends outside, although more bytes follow."""
    made = keys("STRING")
    values = [b"k%02d" % i for i in range(20)]
    data = bytearray(encode_dictionary(made, pa.array(values, made.arrow), 1 << 14))
    at = data.index(b"k00") + 3 + 16
    assert struct.unpack_from(">i", data, at)[0] == 19 * 7
    struct.pack_into(">i", data, at, 19 * 7 - 1)
    found = Dictionary(made, window(bytes(data) + b"?" * 500), 0, len(data), 20)
    assert found.find(b"k05") == (5, True)
    with pytest.raises(CorruptError):
        found.find(b"k19")
    with pytest.raises(CorruptError):
        found.keys_at(np.arange(20))
