from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.expressions.tree import Comparison, In, IsNull, Op
from bitlake.fileindex import bloom_filter
from bitlake.fileindex.bloom_filter import BLOOM_FILTER, BloomReader, BloomWriter, absent, shape, supports
from bitlake.fileindex.payload import LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import parse_type
from tests.fileindex.payloads import column, leaf_of, parsed, truth
from tests.fixtures import payloads

LINES = [p for p in payloads() if p["index"] == "bloom-filter"]


def reader(kind: str, data: bytes) -> Any:
    return BloomReader(parse_type(kind), lambda o, n: data[o : o + n], len(data), 0)


def test_sizes() -> None:
    assert shape(1_000_000, 0.1)[0] // 8 + 4 == 599_071
    assert shape(1_000_000, 0.1)[1] == 3
    assert shape(500, 0.1)[0] // 8 + 4 == 304
    assert [shape(1000, fpp)[1] for fpp in (0.9, 0.5, 0.3, 0.1, 0.01, 1e-9)] == [1, 1, 2, 3, 7, 30]


@pytest.mark.parametrize("line", LINES, ids=lambda p: p["type"])
def test_bytes_and_answers_are_paimons(line: dict[str, Any]) -> None:
    kind, values = parsed(line)
    if "error" in line:
        assert not supports(kind)
        with pytest.raises(InvalidRequest):
            BloomWriter(kind, line["options"])
        return
    array = column(kind, values)
    writer = BloomWriter(kind, line["options"])
    writer.add(array)
    assert writer.finish().hex() == line["bytes"]
    writer = BloomWriter(kind, line["options"])
    writer.add(array[:7])
    writer.add(array[7:].dictionary_encode())
    data = writer.finish()
    assert data.hex() == line["bytes"]
    made = BloomReader(kind, lambda o, n: data[o : o + n], len(data), len(values))
    for predicate, answer in line["answers"]:
        leaf = leaf_of(kind, predicate)
        if leaf is None:
            continue
        got = made.test(leaf)
        if answer == "SKIP":
            assert got is not None and (got.is_empty or truth(leaf, values))  # -0.0: Paimon skips, SQL must not
        if got is not None and got.is_empty:
            assert truth(leaf, values) == []
        if isinstance(leaf, IsNull) or (isinstance(leaf, In) and leaf.negated):
            assert got is None


def test_sized_to_the_file() -> None:
    kind = parse_type("BIGINT")
    for distinct in (0, 1, 5000):
        writer = BloomWriter(kind, {})
        for _ in range(3):
            writer.add(pa.array(list(range(distinct)) + [None], pa.int64()))
        assert len(writer.finish()) == 4 + shape(max(distinct, 16), 0.1)[0] // 8
    rng = np.random.default_rng(0)
    writer = BloomWriter(kind, {"fpp": "0.01"})
    there = rng.integers(0, 2**62, 20_000)
    writer.add(pa.array(there))
    made = reader("BIGINT", writer.finish())
    assert all(not made.test(Comparison("c", Op.EQ, int(v))).is_empty for v in there[:300])
    passed = sum(not made.test(Comparison("c", Op.EQ, -int(v))).is_empty for v in there[:3000])
    assert passed < 80
    assert made.test(In("c", (-5, int(there[0])))) == Selection.all()


def test_zeros_nans_and_truncated_timestamps() -> None:
    writer = BloomWriter(parse_type("DOUBLE"), {"fpp": "0.0001"})
    writer.add(pa.array([-0.0, float("nan")]))
    made = reader("DOUBLE", writer.finish())
    assert not made.test(Comparison("c", Op.EQ, 0.0)).is_empty
    assert not made.test(Comparison("c", Op.EQ, -float("nan"))).is_empty
    assert made.test(Comparison("c", Op.EQ, 3.5)).is_empty
    writer = BloomWriter(parse_type("TIMESTAMP(9)"), {})
    writer.add(pa.array([1999], pa.timestamp("ns")))
    assert not reader("TIMESTAMP(9)", writer.finish()).test(Comparison("c", Op.EQ, 1999)).is_empty


def test_big_filters_are_probed_not_fetched() -> None:
    writer = BloomWriter(parse_type("STRING"), {"items": "1000000"})
    writer.add(pa.array(["a", "b"]))
    data, read = writer.finish(), []

    def fetch(offset: int, n: int) -> bytes:
        read.append(n)
        return data[offset : offset + n]

    made = BloomReader(parse_type("STRING"), fetch, len(data), 2)
    assert not made.test(Comparison("c", Op.EQ, "a")).is_empty
    assert made.test(Comparison("c", Op.EQ, "zz")).is_empty
    assert sum(read) < 20
    assert made.test(In("c", tuple(f"x{i}" for i in range(100)))).is_empty
    assert len(data) <= sum(read) <= len(data) + 20


@pytest.mark.parametrize(
    "option",
    [
        {"items": "0"},
        {"items": "x"},
        {"fpp": "1"},
        {"fpp": "-"},
        {"items": "2000000000", "fpp": "1e-9"},
        {"items": "2147483648", "fpp": "0.9"},
    ],
)
def test_bad_options(option: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        BloomWriter(parse_type("INT"), option)


@pytest.mark.parametrize("option", [{"items": "1"}, {"items": "2147483647", "fpp": "0.9"}, {"fpp": "1e-9"}])
def test_options_at_their_limits(option: dict[str, str]) -> None:
    BloomWriter(parse_type("INT"), option)


def test_bytes_that_a_look_up_reads() -> None:
    """At most 256 KB; a filter is larger only if a list of values is long."""
    made = reader("INT", b"\0\0\0\1\xff")
    for length in (5, 256 * 1024, 256 * 1024 + 1, 10**9):
        assert made.bytes_to_read(Comparison("c", Op.EQ, 1), length, 10**6) == min(length, 262_144)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_bits_are_counted_of_filters_up_to_a_megabyte(size: int) -> None:
    section = Section("it", 0, size)
    payload = LazyBytes(lambda offset, n: (b"\0\0\0\1" + bytes(size))[offset : offset + n], size)
    BLOOM_FILTER.describe(section, payload, parse_type("INT"), Page())
    assert ("set" in section.children[1].facts) == (size == 1 << 20)


def test_broken_payloads() -> None:
    for data in (b"", b"\0\0", b"\0\0\0\3", b"\0\0\0\0\1", b"\xff\0\0\0\1", b"\x7f\0\0\0\1"):
        with pytest.raises(CorruptError):
            reader("INT", data).test(Comparison("c", Op.EQ, 1))
    rng = random.Random(1)
    for _ in range(500):
        data = rng.randbytes(rng.randint(0, 12))
        with contextlib.suppress(BitlakeError):
            reader("INT", data).test(Comparison("c", Op.EQ, 1))


def test_a_filter_has_at_most_2_to_the_31_bits() -> None:
    def fetch(offset: int, length: int) -> bytes:
        return (b"\0\0\0\1" + bytes(length))[offset : offset + length] if offset < 4 else bytes(length)

    largest = 2**31 // 8 + 4
    assert BloomReader(parse_type("INT"), fetch, largest, 1).test(Comparison("c", Op.EQ, 1)) == Selection.none()
    with pytest.raises(CorruptError, match="2147483656 bits"):
        BloomReader(parse_type("INT"), fetch, largest + 1, 1).test(Comparison("c", Op.EQ, 1))


def test_values_that_a_filter_misses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever value is missing, in batches of any size; a value given twice counts once."""
    options = {"items": "100", "fpp": "0.000001"}
    for batch in (1, 4, 1 << 19):
        monkeypatch.setattr("bitlake.fileindex.bloom_filter._BATCH", batch)
        for missing in range(10):
            held, asked = BloomWriter(parse_type("INT"), options), BloomWriter(parse_type("INT"), options)
            held.add(pa.array([n for n in range(10) if n != missing], pa.int32()))
            asked.add(pa.array([*range(10), None, 3], pa.int32()))
            assert absent(held.finish(), asked) == (1, 10)
            assert absent(asked.finish(), asked) == (0, 10)
    for damaged in (b"", b"\0\0\0\1", b"\0\0\0\0\xff", b"\xff\xff\xff\xff\xff", b"\0\0\x27\x11\xff"):
        with pytest.raises(CorruptError):
            absent(damaged, asked)
    assert absent(b"\0\0\x27\x10\xff", asked) == (0, 10)


def test_a_filter_set_in_segments_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = BloomWriter(parse_type("BIGINT"), {"items": "500"})
    writer.add(pa.array(np.random.default_rng(5).integers(0, 2**62, 700)))
    whole = writer.finish()
    for segment in (8, 64, 1000, 8 * (len(whole) - 4), 8 * (len(whole) - 4) - 8, 1 << 27):
        monkeypatch.setattr(bloom_filter, "_SEGMENT", segment)
        assert writer.finish() == whole, segment


def test_a_filter_too_large_to_store_gets_the_most_bits_and_still_holds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bloom_filter._MAX_BITS == (2**31 - 1) // 8 * 8, "whole bytes whose bits a Java int can count"
    values = pa.array(np.random.default_rng(6).integers(0, 2**62, 3000))
    monkeypatch.setattr(bloom_filter, "_MAX_BITS", 8000)
    writer = BloomWriter(parse_type("BIGINT"), {})
    writer.add(values)
    data = writer.finish()
    # The best number of hash functions for bits m and values n is m / n * ln 2.
    assert len(data) == 4 + 1000 and data[:4] == b"\0\0\0\2"
    assert absent(data, writer) == (0, 3000)
    monkeypatch.setattr(bloom_filter, "_MAX_BITS", 800)
    assert writer.finish()[:4] == b"\0\0\0\1", "one at least"
    monkeypatch.setattr(bloom_filter, "_MAX_BITS", 8000)
    with pytest.raises(InvalidRequest, match="2\\^31 bits"):
        BloomWriter(parse_type("BIGINT"), {"items": "3000"})


def test_of_a_large_filter_the_head_and_the_probed_bytes_are_fetched() -> None:
    writer = BloomWriter(parse_type("STRING"), {"items": "1000000"})
    writer.add(pa.array(["a"]))
    data, read = writer.finish(), []

    def fetch(offset: int, n: int) -> bytes:
        read.append((offset, n))
        return data[offset : offset + n]

    assert not BloomReader(parse_type("STRING"), fetch, len(data), 1).test(Comparison("c", Op.EQ, "a")).is_empty
    assert read[0] == (0, 4) and {n for _, n in read[1:]} == {1} and len(read) <= 1 + shape(1_000_000, 0.1)[1]
    # A filter of 64 KB is fetched whole; of a larger one the probed bytes.
    for size, lengths in ((64 * 1024, [64 * 1024]), (64 * 1024 + 1, [4, 1])):
        data, read = b"\0\0\0\1" + b"\xff" * (size - 4), []
        assert not BloomReader(parse_type("STRING"), fetch, size, 1).test(Comparison("c", Op.EQ, "a")).is_empty
        assert [n for _, n in read] == lengths


@pytest.mark.parametrize(("size", "functions", "sound"), [
    (9, 1, True), (5, 1, True), (4, 1, False), (9, 0, False), (9, -1, False), (5, 7, True), (4, 0, False),
])  # fmt: skip
def test_what_inspect_says_of_a_filter(size: int, functions: int, sound: bool) -> None:
    data = functions.to_bytes(4, "big", signed=True) + b"\x0f" * (size - 4)
    section, payload = Section("it", 0, size), LazyBytes(lambda offset, length: data[offset : offset + length], size)
    if not sound:
        with pytest.raises(CorruptError, match=f"a bloom filter of {8 * (size - 4)} bits cannot have {functions}") as e:
            BLOOM_FILTER.describe(section, payload, parse_type("INT"), Page())
        assert e.value.offset == 0
        return
    BLOOM_FILTER.describe(section, payload, parse_type("INT"), Page())
    assert [(s.name, s.offset, s.size) for s in section.children] == [("hash functions", 0, 4), ("bits", 4, size - 4)]
    assert section.children[0].facts == {"": functions}
    assert section.children[1].facts == {
        "": 8 * (size - 4), "set": "50.0 %", "absent values let pass": f"{100 * 0.5**functions:.2g} %",
    }  # fmt: skip
    without = Section("it", 0, size)
    BLOOM_FILTER.describe(without, payload, parse_type("INT"), None)
    assert without.children[1].facts == {"": 8 * (size - 4)}
