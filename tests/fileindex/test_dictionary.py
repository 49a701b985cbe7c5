from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import CorruptError
from bitlake.fileindex.dictionary import Coder, first_rows, read_fixed, read_variable, rows_by_group
from bitlake.fileindex.keyed import keys_of
from bitlake.fileindex.payload import LazyBytes
from bitlake.types import parse_type


def code(kind: str, *parts: pa.Array) -> tuple[list, list[int], bool]:
    keys = keys_of(parse_type(kind))
    assert keys is not None
    coder = Coder(keys)
    for part in parts:
        coder.add(part)
    coded = coder.finish()
    distinct = coded.dictionary.to_pylist()
    assert len(set(distinct)) == len(distinct) and set(coded.codes.tolist()) - {-1} == set(range(len(distinct)))
    return [None if c < 0 else distinct[c] for c in coded.codes], distinct, coded.ordered


@pytest.mark.parametrize("high", [10, 5000, 10**15])
@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DOUBLE"])
def test_codes_give_the_values_back(kind: str, high: int) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.integers(-high, high, 9000) % (2**31 if kind == "INT" else 2**60)
    values = numbers.astype({"INT": np.int32, "BIGINT": np.int64, "DOUBLE": np.float64}[kind])
    array = pa.array(values, mask=rng.random(9000) < 0.1)
    keys = keys_of(parse_type(kind))
    assert keys is not None
    want = keys.of_array(array).to_pylist()
    got, distinct, ordered = code(kind, array[:5000], array[5000:7000].dictionary_encode(), array[7000:])
    assert got == want
    assert ordered == (high > 1000) or high == 5000
    if ordered:
        order = keys.order(np.array(distinct, keys.dtype))
        assert (np.diff(order) > 0).all()


def test_values_far_apart_are_sorted_and_not_counted() -> None:
    """Counting them would take an array of their range."""
    values = np.tile(np.array([2**50, -(2**50)]), 3000)
    got, distinct, _ = code("BIGINT", pa.array(values))
    assert got == values.tolist() and sorted(distinct) == [-(2**50), 2**50]


def test_batches_that_repeat_and_batches_that_do_not() -> None:
    """The first batch of at least 4,096 rows decides how the column is kept."""
    same, other = np.zeros(5000, np.int64), np.arange(5000) * 10**9
    for parts in ([same, other], [other, same], [same[:9], other, same], [other[:9], other, other[::-1]]):
        got, _, ordered = code("BIGINT", *map(pa.array, parts))
        assert got == np.concatenate(parts).tolist() and ordered == (parts[0] is other)


def test_unused_and_repeated_dictionary_entries() -> None:
    odd = pa.DictionaryArray.from_arrays(pa.array([3, 1, None, 3], pa.int8()), pa.array(["x", "a", "a", "b"]))
    assert code("STRING", odd)[:2] == ([b"b", b"a", None, b"b"], [b"a", b"b"])
    plain = pa.array(["b", "z", None])
    assert code("STRING", odd, plain, odd)[0] == [b"b", b"a", None, b"b", b"b", b"z", None, b"b", b"a", None, b"b"]
    assert code("STRING", pa.nulls(3, pa.string()))[0] == [None] * 3
    assert code("STRING") == ([], [], False)


def test_many_batches_are_unified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitlake.fileindex.dictionary._COLLAPSE", 10)
    parts = [pa.array([f"v{i % 7}" for i in range(n, n + 9)]) for n in range(20)]
    assert code("STRING", *parts)[0] == [v.encode() for p in parts for v in p.to_pylist()]


def test_unified_batches_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch kept the whole dictionary, and the next call looked it up again for each: 10M texts took 3 times."""
    monkeypatch.setattr("bitlake.fileindex.dictionary._COLLAPSE", 10)
    keys = keys_of(parse_type("STRING"))
    assert keys is not None
    coder, looked_up, unify = Coder(keys), [], Coder._unify

    def counted(self: Coder) -> None:
        looked_up.append(sum(len(p.dictionary) for p in self._parts))
        unify(self)

    monkeypatch.setattr(Coder, "_unify", counted)
    for start in range(0, 5000, 10):
        coder.add(pa.array([f"v{i}" for i in range(start, start + 10)] + [None]))
    coded = coder.finish()
    assert coded.cardinality == 5000 and (coded.codes < 0).sum() == 500
    assert len(looked_up) > 5 and sum(looked_up) < 4 * 5000


@pytest.mark.parametrize("count", [1, 3, 255, 256, 257, 300, 65_535, 65_536, 65_537, 70_000])
def test_grouping(count: int) -> None:
    codes = np.random.default_rng(2).integers(0, count, 200_000).astype(np.int32)
    codes[-2:] = 0, count - 1
    rows, bounds = rows_by_group(codes, count)
    assert (np.diff(bounds) == np.bincount(codes, minlength=count)).all()
    assert (rows == np.argsort(codes, kind="stable")).all()
    first = first_rows(codes, count)
    expected = np.full(count, -1)
    held, rows = np.unique(codes, return_index=True)
    expected[held] = rows
    assert first.tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [1, 65_536, 65_537])
def test_a_code_that_comes_late(rows: int) -> None:
    for late in range(3):
        codes = np.full(rows, (late + 1) % 3, np.int32)
        codes = np.concatenate([[(late + 2) % 3, -1], codes, [-1, late, -1, late]]).astype(np.int32)
        expected = [codes.tolist().index(c) if c in codes else -1 for c in range(3)]
        assert first_rows(codes, 3).tolist() == expected


def records(texts: list[bytes], *tail: list[int]) -> bytes:
    return b"".join(struct.pack(f">i{len(t)}s{len(tail)}i", len(t), t, *n) for t, *n in zip(texts, *tail, strict=True))


def lazy(data: bytes) -> LazyBytes:
    return LazyBytes(lambda offset, n: data[offset : offset + n], len(data))


@pytest.mark.parametrize("texts", [
    [], [b""], [b"", b"a"], [b"", b"", b""], [b"x" * 1000] * 20, [b"y" * 5000, b"", b"z" * 9000, b"q"],
    [b"%d" % i for i in range(17)], [b"k" * i for i in range(400)],
])  # fmt: skip
@pytest.mark.parametrize("tails", [0, 1, 2])
def test_records_of_any_length(texts: list[bytes], tails: int) -> None:
    """They may end with the payload, or with the end that is given; nothing beyond it is read."""
    numbers = [[7 * i - t for i in range(len(texts))] for t in range(tails)]
    data = records(texts, *numbers)
    expected = [list(row) for row in zip(*numbers, strict=True)] or [[]] * len(texts)
    for before, after, end in (
        (0, 0, None),
        (3, 0, None),
        (3, 9000, None),
        (3, 0, 3 + len(data)),
        (1, 50, 1 + len(data)),
    ):
        payload = lazy(b"\xff" * before + data + b"\xff" * after)
        found, places, stop = read_variable(payload, before, len(texts), tails, end)
        assert (found, places.tolist(), stop) == (texts, expected, before + len(data))
        assert payload.bytes_read <= (payload.length if end is None else max(4096, len(data)))
    for cut in {1, 3, 4, 5, len(data) // 2} & set(range(len(data))):
        for end, length in ((None, len(data) - cut), (2 + len(data) - cut, len(data))):
            with pytest.raises(CorruptError) as e:
                read_variable(lazy((b"\xff" * 2 + data)[: 2 + length]), 2, len(texts), tails, end)
            assert e.value.offset == 2, "where the list begins"


@pytest.mark.parametrize(("n", "at", "end", "message"), [
    (-1, 2, None, "an index cannot have -1 values here"), (3, 2, None, "an index cannot have 3 values here"),
    (2, 2, 17, "an index cannot have 2 values here"), (0, 19, None, "an index cannot have 0 values here"),
    (0, 5, 4, "an index cannot have 0 values here"), (2, 2, None, None), (0, 18, None, None), (0, 4, 4, None),
])  # fmt: skip
def test_numbers_of_records_that_cannot_be(n: int, at: int, end: int | None, message: str | None) -> None:
    """Two records of an empty text and a number take 16 bytes: from 2 to 18."""
    payload = lazy(bytes(18))
    if message is None:
        assert len(read_variable(payload, at, n, 1, end)[0]) == n
        return
    with pytest.raises(CorruptError, match=f"^{message}") as e:
        read_variable(payload, at, n, 1, end)
    assert e.value.offset == at


def test_a_text_of_fewer_than_no_bytes() -> None:
    data = b"..." + records([b"ab", b"c"], [1, 2]) + struct.pack(">i", -1) + bytes(20)
    with pytest.raises(CorruptError, match="^a value cannot have -1 bytes") as e:
        read_variable(lazy(data), 3, 3, 1)
    assert e.value.offset == 3 + 10 + 9


@pytest.mark.parametrize(("kind", "width"), [("TINYINT", 1), ("SMALLINT", 2), ("INT", 4), ("BIGINT", 8)])
def test_records_of_one_width(kind: str, width: int) -> None:
    keys = keys_of(parse_type(kind))
    assert keys is not None
    data = b".." + b"".join(
        (3 * i - 1).to_bytes(width, "big", signed=True) + struct.pack(">ii", i, -i) for i in range(3)
    )
    found, places, stop = read_fixed(keys, lazy(data), 2, 3, 2)
    assert (found.tolist(), places.tolist(), stop) == ([-1, 2, 5], [[0, 0], [1, -1], [2, -2]], len(data))
    for n, at in ((-1, 2), (4, 2), (3, 3)):
        with pytest.raises(CorruptError, match=f"^an index cannot have {n} values here") as e:
            read_fixed(keys, lazy(data), at, n, 2)
        assert e.value.offset == at
    assert read_fixed(keys, lazy(data), len(data), 0, 2)[2] == len(data)
