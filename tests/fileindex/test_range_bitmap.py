from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long
from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, IsNull, Like, Op
from bitlake.fileindex.payload import LazyBytes, Section
from bitlake.fileindex.range_bitmap import RANGE_BITMAP, RangeBitmapReader, RangeBitmapWriter, supports
from bitlake.types import parse_type
from tests.fileindex.payloads import (
    FLOATS,
    TEXTS,
    check_every_comparison,
    column,
    leaf_of,
    parsed,
    truth,
    written_in_parts,
)
from tests.fixtures import payloads

LINES = [p for p in payloads() if p["index"] == "range-bitmap"]


def written(kind: str, array: pa.Array, options: dict[str, str] | None = None) -> bytes:
    writer = RangeBitmapWriter(parse_type(kind), options or {})
    writer.add(array)
    return writer.finish()


def reader(kind: str, data: bytes, rows: int) -> RangeBitmapReader:
    return RangeBitmapReader(parse_type(kind), lambda o, n: data[o : o + n], len(data), rows)


@pytest.mark.parametrize("line", LINES, ids=lambda p: p["type"])
def test_bytes_and_answers_are_paimons(line: dict[str, Any]) -> None:
    kind, values = parsed(line)
    if "error" in line:
        assert not supports(kind)
        with pytest.raises(InvalidRequest):
            RangeBitmapWriter(kind, line["options"])
        return
    array = column(kind, values)
    for data in written_in_parts(array, lambda: RangeBitmapWriter(kind, line["options"])):
        assert data.hex() == line["bytes"]
    made = RangeBitmapReader(kind, lambda o, n: data[o : o + n], len(data), len(values))
    for predicate, answer in line["answers"]:
        leaf = leaf_of(kind, predicate)
        if leaf is None:
            _, direction, nulls, k = predicate
            top = made.top_n(int(k), "desc" in direction.lower(), "first" in nulls.lower())
            if any(v is not None for v in values):  # Paimon answers every row for a column of NULLs
                assert top == BitMap(range(len(values)) if answer == "REMAIN" else answer), predicate
            continue
        got, want = made.test(leaf), truth(leaf, values)
        if got is None:
            continue
        rows = got.positions(len(values)).tolist()
        assert set(want) <= set(rows)
        if got.exact:
            assert rows == want
        zeros = 0 in (getattr(leaf, "value", 1), *getattr(leaf, "values", ()))
        # Paimon tells 0.0 from -0.0, and calls only the first and last row of a column of NULLs NULL.
        if isinstance(answer, list) and got.exact and not zeros and any(v is not None for v in values):
            assert rows == answer


SIZES = [{"chunk-size": "0b"}, {"chunk-size": "20b"}, {}]


@pytest.mark.parametrize("examples", [50, exhaustive(80)])
def test_floats_against_brute_force(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(FLOATS, st.sampled_from(SIZES))
    def run(asked: tuple[list[Any], list[Any]], options: dict[str, str]) -> None:
        rows, literals = asked
        made = reader("DOUBLE", written("DOUBLE", column(parse_type("DOUBLE"), rows), options), len(rows))
        check_every_comparison(made, rows, literals)

    run()


@pytest.mark.parametrize("examples", [30, long(80)])
def test_texts_against_brute_force(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(TEXTS, st.sampled_from(SIZES))
    def run(asked: tuple[list[Any], list[Any]], options: dict[str, str]) -> None:
        rows, literals = asked
        made = reader("STRING", written("STRING", pa.array(rows, pa.string()), options), len(rows))
        check_every_comparison(made, rows, literals)
        assert made.test(Like("c", "a%")) is None

    run()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-4, 9)), max_size=40),
    st.integers(0, 12),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.sets(st.integers(0, 39))),
)
def test_top_n_against_sorting(
    rows: list[int | None], k: int, descending: bool, nulls_first: bool, strict: bool, found: set[int] | None
) -> None:
    made = reader("INT", written("INT", pa.array(rows, pa.int32())), len(rows))
    got = made.top_n(k, descending, nulls_first, None if found is None else BitMap(found), strict)
    chosen = [i for i in range(len(rows)) if found is None or i in found]

    def rank(i: int) -> tuple[int, int]:
        value = rows[i]
        if value is None:
            return (0 if nulls_first else 2, 0)
        return (1, -value if descending else value)

    ranks = sorted(rank(i) for i in chosen)[:k]
    if strict:
        assert sorted(rank(i) for i in got) == ranks and set(got) <= set(chosen)
    elif k:
        assert {i for i in chosen if rank(i) in ranks} <= set(got) <= set(chosen)


def test_top_n_keeps_ties_of_signed_zeros() -> None:
    rows = [0.0, -0.0, 1.0, -1.0]
    made = reader("DOUBLE", written("DOUBLE", pa.array(rows)), 4)
    assert made.top_n(2, True, False, strict=False) == BitMap([0, 1, 2])
    assert made.top_n(2, False, False, strict=False) == BitMap([0, 1, 3])
    assert len(made.top_n(2, True, False)) == 2


def test_the_top_of_no_rows() -> None:
    made = reader("INT", written("INT", pa.array([3, None, 3, None], pa.int32())), 4)
    for k in (0, -1):
        for nulls_first in (True, False):
            for strict in (True, False):
                assert made.top_n(k, True, nulls_first, strict=strict) == BitMap()
    assert made.top_n(1, True, True, strict=False) == BitMap([1, 3])
    assert made.top_n(1, True, False, strict=False) == BitMap([0, 2])


def test_many_values_read_little() -> None:
    rng = np.random.default_rng(3)
    numbers = rng.permutation(100_000)
    data = written("STRING", pa.array(np.char.add("k", numbers.astype(str))))
    made = reader("STRING", data, len(numbers))
    got = made.test(Comparison("c", Op.EQ, f"k{numbers[7]}"))
    assert got is not None and got.positions(len(numbers)).tolist() == [7]
    made = reader("BIGINT", written("BIGINT", pa.array(numbers)), len(numbers))
    got = made.test(Comparison("c", Op.LT, 1000))
    assert got is not None and got.positions(len(numbers)).tolist() == np.flatnonzero(numbers < 1000).tolist()


def test_another_files_index_and_future_versions() -> None:
    data = written("INT", pa.array([1, 2, None]))
    with pytest.raises(CorruptError, match="3 rows") as raised:
        reader("INT", data, 4).test(IsNull("c"))
    assert raised.value.offset == 5
    with pytest.raises(UnsupportedFeature, match="version 3"):
        reader("INT", data[:4] + b"\3" + data[5:], 3).test(IsNull("c"))
    with pytest.raises(InvalidRequest):
        RangeBitmapWriter(parse_type("INT"), {"chunk-size": "-"})


@pytest.mark.parametrize("options", SIZES)
@pytest.mark.parametrize("kind", ["STRING", "INT", "DOUBLE"])
@pytest.mark.parametrize("count", [100, long(200), long(600)])
def test_mutated_payloads_never_crash(kind: str, options: dict[str, str], count: int) -> None:
    rng = random.Random(9)
    rows = [rng.choice([None, *range(9)]) for _ in range(60)]
    cast = {"STRING": str, "INT": int, "DOUBLE": float}[kind]
    good = written(kind, column(parse_type(kind), [None if r is None else cast(r) for r in rows]), options)
    for _ in range(count):
        data = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        for leaf in (
            IsNull("c"),
            In("c", (cast(3), cast(12))),
            Comparison("c", Op.NE, cast(1)),
            Comparison("c", Op.LT, cast(7)),
        ):
            try:
                made = reader(kind, cut, len(rows))
                got = made.test(leaf)
                made.top_n(3, True, False)
            except BitlakeError:
                continue
            assert got is None or got.is_empty or got.positions(len(rows))[-1] < len(rows)


def test_damage_of_a_slice_is_told_with_its_place_in_the_payload() -> None:
    """The offset of an error of a bitmap within its slice is moved by where the slice begins."""
    rows = [0, 3] * 2000
    good = written("INT", pa.array(rows, pa.int32()))
    start = good.rindex(bytes.fromhex("3b30"))  # the last slice is one run container or more
    offsets = set()
    for at in range(start, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        try:
            reader("INT", bytes(bad), len(rows)).test(Comparison("c", Op.LT, 3))
        except CorruptError as e:
            offsets.add(e.offset)
    assert {start} < offsets and offsets <= set(range(start, len(good) + 1))


def test_every_cut_of_a_payload_is_refused() -> None:
    rows = [None, *range(9)] * 6
    for kind in ("INT", "STRING"):
        made = [None if r is None else r if kind == "INT" else str(r) for r in rows]
        data = written(kind, column(parse_type(kind), made))
        leaf = Comparison("c", Op.LT, made[7])
        assert reader(kind, data, len(rows)).test(leaf) is not None
        for cut in range(len(data)):
            with pytest.raises(CorruptError):
                reader(kind, data[:cut], len(rows)).test(leaf)


def test_the_share_of_rows_that_compare_so() -> None:
    """Of 4 values, each counted once, as many are above a value as its place says."""
    data = written("INT", pa.array([10, 20, 20, 20, 30, 40, None], pa.int32()))
    made = reader("INT", data, 7)
    for value, below in ((5, 0), (10, 0), (15, 0.25), (20, 0.25), (30, 0.5), (40, 0.75), (99, 1)):
        assert made.share(Op.GE, value) == made.share(Op.GT, value) == 1 - below
        assert made.share(Op.LT, value) == made.share(Op.LE, value) == below
        assert made.share(Op.EQ, value) is None and made.share(Op.NE, value) is None
    assert reader("INT", written("INT", pa.array([None], pa.int32())), 1).share(Op.GT, 5) is None


def test_extremes_of_signed_zeros() -> None:
    """0.0 and -0.0 are equal and have two codes: there are two ends all the same."""
    made = reader("DOUBLE", written("DOUBLE", pa.array([0.0, -0.0, -1.0, None, 0.0, -0.0])), 6)
    for rows, ends in (([0, 1, 2], [-1.0, 0.0]), ([0, 1], [0.0]), ([1, 5], [0.0]), ([2, 3], [-1.0]), ([3], [])):
        found = made.extremes(BitMap(rows))
        assert found is not None and sorted(set(found.to_pylist())) == ends and len(found) <= 2


@pytest.mark.parametrize(("kind", "default"), [
    ("BIGINT", "16kb"), ("STRING", "16kb"), ("SMALLINT", "0b"), ("TINYINT", "0b"), ("INT", "16kb"), ("DOUBLE", "16kb"),
])  # fmt: skip
def test_the_size_of_a_chunk_if_none_is_named(kind: str, default: str) -> None:
    made = parse_type(kind)
    values: list[Any] = [*range(128 if kind == "TINYINT" else 9000)]
    array = column(made, [*map({"STRING": str, "DOUBLE": float}.get(kind, int), values)])
    assert written(kind, array) == written(kind, array, {"chunk-size": default})
    other = "1023b" if default == "0b" else "17kb"
    assert written(kind, array) != written(kind, array, {"chunk-size": other})


@pytest.mark.parametrize("size", [0, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 100, 1000])
@pytest.mark.parametrize("kind", ["INT", "STRING"])
def test_chunks_hold_as_many_keys_as_fit(size: int, kind: str) -> None:
    """Without its first key, of which a chunk has one at least; a text takes four bytes more than its own."""
    rows = [*range(30)] if kind == "INT" else sorted("abc"[i % 3] * (i % 5) + chr(i + 97) for i in range(26))
    lengths = [4 if kind == "INT" else 4 + len(str(r)) for r in rows]
    chunks, left = 0, -1
    for length in lengths:
        if length > left:
            chunks, left = chunks + 1, size
        else:
            left -= length
    data = written(kind, pa.array(rows, pa.int32() if kind == "INT" else pa.string()), {"chunk-size": f"{size}b"})
    section = Section("it", 0, len(data))
    RANGE_BITMAP.describe(section, LazyBytes(lambda o, n: data[o : o + n], len(data)), parse_type(kind), None)
    assert section.children[1].facts["chunks"] == chunks
    made = reader(kind, data, len(rows))
    check_every_comparison(made, rows, rows[:3] + rows[-3:])
    assert made.distinct().to_pylist() == rows  # type: ignore[union-attr]


@pytest.mark.parametrize("length", [4070, 4071, 4072, 9000])
def test_first_keys_about_as_long_as_what_is_read_of_a_chunk(length: int) -> None:
    """4,096 bytes of a chunk's header are read at first, of which a key of 4,071 bytes needs all."""
    rows = [letter * length for letter in "abc"]
    made = reader("STRING", written("STRING", pa.array(rows), {"chunk-size": "0b"}), 3)
    check_every_comparison(made, rows, [*rows, "b", "bb" * length, "d"])
    assert made.distinct().to_pylist() == rows  # type: ignore[union-attr]
