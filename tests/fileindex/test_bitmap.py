from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, IsNull, Like, Op
from bitlake.fileindex.bitmap import BitmapReader, BitmapWriter, supports
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

LINES = [p for p in payloads() if p["index"] == "bitmap"]
SMALL = {"index-block-size": "64b"}


def written(kind: str, array: pa.Array, options: dict[str, str] | None = None) -> bytes:
    writer = BitmapWriter(parse_type(kind), options or {})
    writer.add(array)
    return writer.finish()


def reader(kind: str, data: bytes, rows: int) -> BitmapReader:
    return BitmapReader(parse_type(kind), lambda o, n: data[o : o + n], len(data), rows)


@pytest.mark.parametrize("line", LINES, ids=lambda p: f"{p['type']}-v{p['options'].get('version', 2)}")
def test_bytes_and_answers_are_paimons(line: dict[str, Any]) -> None:
    kind, values = parsed(line)
    if "error" in line:
        assert not supports(kind)
        with pytest.raises(InvalidRequest):
            BitmapWriter(kind, line["options"])
        return
    array = column(kind, values)
    for data in written_in_parts(array, lambda: BitmapWriter(kind, line["options"])):
        assert data.hex() == line["bytes"]
    made = BitmapReader(kind, lambda o, n: data[o : o + n], len(data), len(values))
    nulls = {i for i, v in enumerate(values) if v is None}
    for predicate, answer in line["answers"]:
        leaf = leaf_of(kind, predicate)
        if leaf is None:
            continue
        got, want = made.test(leaf), truth(leaf, values)
        if got is None:
            assert answer == "REMAIN"
            continue
        rows = got.positions(len(values)).tolist()
        assert set(want) <= set(rows)
        if got.exact:
            assert rows == want
        if isinstance(answer, list) and 0 not in (getattr(leaf, "value", 1), *getattr(leaf, "values", ())):
            # Paimon keeps NULLs under <> and NOT IN; it tells 0.0 from -0.0.
            negative = (isinstance(leaf, In) and leaf.negated) or (isinstance(leaf, Comparison) and leaf.op is Op.NE)
            assert rows == [r for r in answer if not negative or r not in nulls]


VERSIONS = [{"version": "1"}, {}, SMALL]


@pytest.mark.parametrize("examples", [25, exhaustive(80)])
def test_floats_against_brute_force(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(FLOATS, st.sampled_from(VERSIONS))
    def run(asked: tuple[list[Any], list[Any]], options: dict[str, str]) -> None:
        rows, literals = asked
        array = column(parse_type("DOUBLE"), rows)
        made = reader("DOUBLE", written("DOUBLE", array, options), len(rows))
        check_every_comparison(made, rows, literals)

    run()


@pytest.mark.parametrize("examples", [25, exhaustive(80)])
def test_texts_against_brute_force(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(TEXTS, st.sampled_from(VERSIONS))
    def run(asked: tuple[list[Any], list[Any]], options: dict[str, str]) -> None:
        rows, literals = asked
        made = reader("STRING", written("STRING", pa.array(rows, pa.string()), options), len(rows))
        check_every_comparison(made, rows, literals)

    run()


def test_like() -> None:
    rows = ["apple", "apply", None, "pineapple", "é", "a%b"]
    made = reader("STRING", written("STRING", pa.array(rows)), len(rows))

    def ask(pattern: str) -> list[int] | None:
        got = made.test(Like("c", pattern))
        assert got is None or got.exact
        return None if got is None else got.positions(len(rows)).tolist()

    assert ask("app%") == [0, 1] and ask("%ple") == [0, 3] and ask("%pl%") == [0, 1, 3] and ask("é%") == [4]
    assert ask("apple") == [0]
    for other in ("a_ple", "a\\%b", "%", "a%e", ""):
        assert ask(other) is None
    assert made.test(Like("c", "a%", negated=True)) is None
    assert made.test(Like("c", "%a%", escape="%")) is None


def test_char_padding_and_truncated_timestamps_are_not_exact() -> None:
    rows = ["ab  ", "ab", "abcd", None]
    made = reader("CHAR(4)", written("CHAR(4)", pa.array(rows)), 4)
    got = made.test(Comparison("c", Op.EQ, "ab"))
    assert got.positions(4).tolist() == [0, 1] and not got.exact
    assert made.test(Comparison("c", Op.EQ, "abcd")).exact
    got = made.test(Comparison("c", Op.NE, "ab"))
    assert got.positions(4).tolist() == [0, 2] and not got.exact
    array = pa.array([1000, 1999, 2000, None], pa.timestamp("ns"))
    made = reader("TIMESTAMP(9)", written("TIMESTAMP(9)", array), 4)
    got = made.test(Comparison("c", Op.EQ, 1999))
    assert got.positions(4).tolist() == [0, 1] and not got.exact
    assert made.test(Comparison("c", Op.NE, 1999)) is None
    assert made.test(In("c", (1999,), True)) is None
    got = made.test(Comparison("c", Op.LT, 1999))
    assert got.positions(4).tolist() == [0, 1] and not got.exact


def test_many_values_and_big_bitmaps() -> None:
    rng = np.random.default_rng(5)
    for high in (3, 300, 70_000, 10**12):
        numbers = rng.integers(0, high, 100_000)
        made = reader("BIGINT", written("BIGINT", pa.array(numbers)), len(numbers))
        for v in (*numbers[:20].tolist(), -1, high):
            got = made.test(Comparison("c", Op.EQ, v))
            assert got.positions(len(numbers)).tolist() == np.flatnonzero(numbers == v).tolist()


def test_masks_and_sorting_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    codes = rng.choice(6, 150_000, p=[0.5, 0.3, 0.15, 0.04, 0.00999, 0.00001])
    codes[5] = 6
    names = pa.array(["a", None, "b", "c", "d", "e", "only"]).take(pa.array(codes))
    masks = written("STRING", names)
    monkeypatch.setattr("bitlake.fileindex.bitmap._FEW_GROUPS", 0)
    assert written("STRING", names) == masks


def test_a_lookup_reads_little() -> None:
    data = written("STRING", pa.array([f"value {i % 50_000}" for i in range(100_000)]))
    read = []

    def fetch(offset: int, n: int) -> bytes:
        read.append(n)
        return data[offset : offset + n]

    made = BitmapReader(parse_type("STRING"), fetch, len(data), 100_000)
    assert made.test(Comparison("c", Op.EQ, "value 777")).positions(100_000).tolist() == [777, 50_777]
    assert sum(read) < 40_000 < len(data) / 20
    before = len(read)
    made.test(Comparison("c", Op.EQ, "value 777"))
    assert len(read) == before


def test_a_value_bigger_than_a_block_gets_its_own() -> None:
    rows = ["a", "b" * 100, "c", None, "c"]
    made = reader("STRING", written("STRING", pa.array(rows), SMALL), 5)
    assert made.test(Comparison("c", Op.EQ, "b" * 100)).positions(5).tolist() == [1]
    assert made.test(Comparison("c", Op.EQ, "c")).positions(5).tolist() == [2, 4]


def test_another_files_index_and_future_versions() -> None:
    data = written("INT", pa.array([1, 2, None]))
    with pytest.raises(CorruptError, match="3 rows"):
        reader("INT", data, 4).test(IsNull("c"))
    with pytest.raises(UnsupportedFeature, match="version 3"):
        reader("INT", b"\3" + data[1:], 3).test(IsNull("c"))


@pytest.mark.parametrize("options", [{"version": "3"}, {"version": "0"}, {"index-block-size": "x"}])
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        BitmapWriter(parse_type("INT"), options)


@pytest.mark.parametrize("options", VERSIONS)
@pytest.mark.parametrize("kind", ["STRING", "INT", "DOUBLE"])
@pytest.mark.parametrize("count", [100, long(250), long(700)])
def test_mutated_payloads_never_crash(kind: str, options: dict[str, str], count: int) -> None:
    rng = random.Random(9)
    rows = [rng.choice([None, None, *range(6)]) for _ in range(60)] + [7]
    made: dict[str, list[Any]] = {"STRING": [None if r is None else str(r) for r in rows], "INT": rows}
    made["DOUBLE"] = [None if r is None else float(r) for r in rows]
    literals = {"STRING": ["3", "7", "x"], "INT": [3, 7, 9], "DOUBLE": [3.0, 7.0, 0.5]}[kind]
    good = written(kind, column(parse_type(kind), made[kind]), options)
    for _ in range(count):
        data = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        for leaf in (
            IsNull("c"),
            In("c", tuple(literals)),
            Comparison("c", Op.NE, literals[0]),
            Comparison("c", Op.LT, literals[1]),
        ):
            try:
                got = reader(kind, cut, len(rows)).test(leaf)
            except BitlakeError:
                continue
            assert got is None or got.is_empty or got.positions(len(rows))[-1] < len(rows)


@pytest.mark.parametrize("distinct", [1, 2, 254, 255, 256, 257, 65_535, 65_536])
def test_any_number_of_distinct_values(distinct: int) -> None:
    """The NULLs are one group more; groups are numbered in one, two or four bytes."""
    values = np.arange(distinct, dtype=np.int32)
    rows = pa.array([None, None, *values.tolist(), 0, distinct - 1], pa.int32())
    made = reader("INT", written("INT", rows), len(rows))
    assert made.test(IsNull("c")).positions(len(rows)).tolist() == [0, 1]
    for value in {0, distinct // 2, distinct - 2, distinct - 1} & set(range(distinct)):
        want = [i for i, row in enumerate(rows.to_pylist()) if row == value]
        assert made.test(Comparison("c", Op.EQ, value)).positions(len(rows)).tolist() == want


def _v2_places(data: bytes) -> tuple[int, int]:
    """Where the number of blocks stands, and where that of their bytes, in an index of INT with NULLs."""
    count = int.from_bytes(data[18:22], "big")
    return 18, 22 + 8 * count


def test_blocks_that_contradict_each_other_are_refused() -> None:
    """Each rule of the list of blocks is broken alone; the error has its place."""
    rows = [None, *range(40), 3, None]
    good = written("INT", pa.array(rows, pa.int32()), {"index-block-size": "100"})
    count_at, size_at = _v2_places(good)
    blocks = int.from_bytes(good[count_at : count_at + 4], "big")
    bounds = [int.from_bytes(good[26 + 8 * i : 30 + 8 * i], "big") for i in range(blocks)]
    assert blocks > 2 and bounds[0] == 0 and reader("INT", good, 43).test(Comparison("c", Op.EQ, 3)) is not None
    head, order = size_at + 4, "do not follow each other"
    for at, number, why, place in (
        (count_at, -1, "cannot have -1 blocks", count_at),
        (count_at, 41, "41 values|40 values", count_at),
        (size_at, -1, order, head),
        (size_at, len(good) - head + 1, order, head),
        (size_at, bounds[-1] + 3, order, head),
        (26, 1, order, head),
        (34, 3, order, head),
        (34, bounds[2] - 3, order, head),
        (30, int.from_bytes(good[22:26], "big"), "are not in order", head),
    ):
        bad = good[:at] + number.to_bytes(4, "big", signed=True) + good[at + 4 :]
        with pytest.raises(CorruptError, match=why) as e:
            reader("INT", bad, 43).test(Comparison("c", Op.EQ, 3))
        assert e.value.offset == place, (at, number)


def test_bitmaps_of_the_first_version_stand_in_the_order_of_its_header() -> None:
    rows = [None, None, 1, 1, 2, 2]
    good = written("INT", pa.array(rows, pa.int32()), {"version": "1"})
    assert reader("INT", good, 6).test(Comparison("c", Op.EQ, 2)).positions(6).tolist() == [4, 5]
    first, second = (int.from_bytes(good[at : at + 4], "big") for at in (18, 26))
    assert 0 < first < second
    for at, number in ((18, 0), (18, second), (26, first), (26, len(good))):
        bad = good[:at] + number.to_bytes(4, "big") + good[at + 4 :]
        with pytest.raises(CorruptError, match="not in the order of its header"):
            reader("INT", bad, 6).test(Comparison("c", Op.EQ, 2))


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_byte_that_says_what_a_payload_is(version: str) -> None:
    """Versions 1 and 2, and 0 or 1 for "has NULLs", are all there are."""
    good = written("INT", pa.array([1, 2, 2], pa.int32()), {"version": version})
    for value in range(256):
        if str(value) != version:
            with pytest.raises(UnsupportedFeature if value > 2 else BitlakeError):
                reader("INT", bytes((value,)) + good[1:], 3).test(Comparison("c", Op.EQ, 1))
        if value > 1:
            with pytest.raises(CorruptError, match="not a bitmap index"):
                reader("INT", good[:9] + bytes((value,)) + good[10:], 3).test(Comparison("c", Op.EQ, 1))


@pytest.mark.parametrize(("rows", "buckets"), [
    ([16, *range(12)], 16), ([16, *range(12), None], 16), ([16, *range(12), 3], 32), ([16, *range(12), None, 3], 32),
    ([16, *range(12), None, None, 16, None], 32), ([*range(12), 16, 16], 32),
])  # fmt: skip
def test_values_in_the_order_of_a_java_map(rows: list[int | None], buckets: int) -> None:
    """A map of 16 buckets, where 0 and 16 share one, grows at the first call after its 13th key.

    Only a value that comes again makes such a call; a NULL does not.
    """
    data = written("INT", pa.array(rows, pa.int32()), {"version": "1"})
    at = 10 + 4 * (None in rows)
    keys = [int.from_bytes(data[i : i + 4], "big") for i in range(at, at + 13 * 8, 8)]
    assert keys == ([*range(12), 16] if buckets == 32 else [0, 16, *range(1, 12)])


@pytest.mark.parametrize("kind", ["INT", "STRING"])
def test_the_size_of_a_block_if_none_is_named(kind: str) -> None:
    array = pa.array([*range(5000)], pa.int32()).cast(pa.int32() if kind == "INT" else pa.string())
    assert written(kind, array) == written(kind, array, {"index-block-size": "16kb"})
    assert len({written(kind, array, {"index-block-size": f"{size}b"}) for size in (16_368, 16_384, 16_400)}) == 3


@pytest.mark.parametrize("size", [4, 15, 16, 27, 28, 29, 40, 100, 1000])
@pytest.mark.parametrize("kind", ["INT", "STRING"])
def test_blocks_hold_as_many_values_as_fit(size: int, kind: str) -> None:
    """A block is its number of values, and 8 bytes and the key for each; one value at least."""
    rows = [f"{i:04}" for i in range(30)] if kind == "STRING" else list(range(30))
    entry = 8 + (4 + 4 if kind == "STRING" else 4)
    data = written(kind, pa.array(rows, pa.int32() if kind == "INT" else pa.string()), {"index-block-size": f"{size}b"})
    fit = max(1, (size - 4) // entry)
    counts = [min(fit, 30 - start) for start in range(0, 30, fit)]
    assert int.from_bytes(data[10:14], "big") == len(counts)
    at = 14 + len(counts) * (entry - 4)
    assert int.from_bytes(data[at : at + 4], "big") == 30 * entry + 4 * len(counts) == len(data) - at - 4
    for count in counts:
        assert int.from_bytes(data[at + 4 : at + 8], "big") == count
        at += 4 + count * entry
    check_every_comparison(reader(kind, data, 30), rows, [rows[0], rows[29], rows[min(fit, 29)]])
