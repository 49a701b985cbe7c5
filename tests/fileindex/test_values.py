"""What indexes tell about the values themselves, against counting the column."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hs
from pyroaring import BitMap

from bitlake.errors import CorruptError
from bitlake.fileindex.bitmap import BitmapReader, BitmapWriter
from bitlake.fileindex.keyed import cardinalities, cardinality, codes_of, counted_rows, keys_of, physical_value
from bitlake.fileindex.payload import LazyBytes
from bitlake.fileindex.reader import FileIndexReader, open_index
from bitlake.fileindex.registry import IndexBuilder, parse_index_options
from bitlake.types import DataField, arrow_type, parse_type

VALUES: dict[str, Any] = {
    "BOOLEAN": hs.booleans(),
    "TINYINT": hs.integers(-128, 127),
    "INT": hs.integers(-5, 5) | hs.integers(-(2**31), 2**31 - 1),
    "BIGINT": hs.integers(-(2**63) + 1, 2**63 - 1),
    "FLOAT": hs.floats(width=32),
    "DOUBLE": hs.floats() | hs.sampled_from([0.0, -0.0, float("nan")]),
    "DECIMAL(10, 2)": hs.decimals(-1000, 1000, places=2),
    "STRING": hs.text(max_size=5) | hs.sampled_from("abc"),
    "DATE": hs.dates(),
    "TIMESTAMP(3)": hs.datetimes(dt.datetime(1900, 1, 1)).map(lambda d: d.replace(microsecond=0)),
    "TIMESTAMP(6)": hs.datetimes(dt.datetime(1900, 1, 1)),
}


def opened(kind: str, values: list[Any], index: str, **options: str) -> tuple[FileIndexReader, pa.Array]:
    field = DataField(0, "c", parse_type(kind))
    array = pa.array(values, arrow_type(field.type))
    told = {f"file-index.{index}.columns": "c", **{f"file-index.{index}.c.{k}": v for k, v in options.items()}}
    builder = IndexBuilder(parse_index_options(told, [field]), [field])
    builder.add(pa.table([array], names=["c"]))
    data = builder.finish()
    return open_index(lambda o, n: data[o : o + n], len(data), [field], len(values), strict=True), array


def key(value: Any) -> Any:
    """Bits of floats, so that every zero and NaN counts as what is stored."""
    if isinstance(value, float):
        return "NaN" if value != value else (value, np.signbit(value))
    return value


@pytest.mark.parametrize("index", ["bitmap", "range-bitmap"])
@given(data=hs.data())
def test_values_and_counts(index: str, data: Any) -> None:
    kind = data.draw(hs.sampled_from([k for k in VALUES if index != "bitmap" or not k.startswith("DECIMAL")]))
    values = data.draw(hs.lists(hs.none() | VALUES[kind], min_size=1, max_size=60))
    chosen = data.draw(hs.none() | hs.sets(hs.integers(0, len(values) - 1)))
    options = {"chunk-size": "16b"} if index == "range-bitmap" else {"version": data.draw(hs.sampled_from("12"))}
    opened_, array = opened(kind, values, index, **options)
    stored = array.to_pylist()
    rows = [stored[i] for i in (range(len(stored)) if chosen is None else chosen)]
    wanted = Counter(key(v) for v in rows if v is not None)
    found = opened_.value_counts("c", None if chosen is None else BitMap(chosen))
    assert found is not None
    told = [key(v) for v in found.values.to_pylist()]
    assert found.values.type == array.type
    assert dict(zip(told, found.counts.tolist(), strict=True)) == dict(wanted)
    assert found.nulls == len(rows) - sum(wanted.values())
    assert opened_.null_count("c", None if chosen is None else BitMap(chosen)) == found.nulls
    distinct = opened_.distinct("c")
    assert distinct is not None
    assert {repr(key(v)) for v in distinct.to_pylist()} == {repr(key(v)) for v in stored if v is not None}
    assert len(distinct) == len(set(map(repr, map(key, distinct.to_pylist()))))
    if index == "range-bitmap":
        ends = opened_.extremes("c", None if chosen is None else BitMap(chosen))
        assert ends is not None
        plain = [v for v in rows if v is not None and v == v]
        if plain and len(plain) == sum(wanted.values()):
            assert (ends[0].as_py(), ends[-1].as_py()) == (min(plain), max(plain))
        assert len(ends) == min(2, len(wanted))


@pytest.mark.parametrize("kind", ["CHAR(3)", "TIMESTAMP(9)"])
def test_types_whose_keys_are_not_the_values(kind: str) -> None:
    values = ["a  ", "b  "] if kind == "CHAR(3)" else [dt.datetime(2024, 1, 1), dt.datetime(2025, 1, 1)]
    opened_, _ = opened(kind, values, "bitmap")
    assert opened_.value_counts("c") is None and opened_.distinct("c") is None


def test_many_values_with_two_rows_each() -> None:
    values = list(range(5000)) * 2
    for version in "12":
        opened_, _ = opened("INT", values, "bitmap", version=version)
        found = opened_.value_counts("c")
        assert found is not None and set(found.counts.tolist()) == {2} and len(found.values) == 5000
        assert opened_.value_counts("c", BitMap([0, 1])) is None, "too many bitmaps to intersect"


BITMAPS = {
    "one container": BitMap([0, 5, 65535]),
    "three containers": BitMap([1, 65536, 65537, 200_000]),
    "one run": BitMap(range(10, 500)),
    "runs in four containers": BitMap([*range(5, 70_000), *range(140_000, 210_000)]),
    "runs in eight containers": BitMap(range(8 * 65536)),
    "runs in nine containers": BitMap(range(9 * 65536)),
    "a full container": BitMap(range(65536)),
    "one row": BitMap([123_456]),
}


def serialized(bitmap: BitMap) -> bytes:
    copy = bitmap.copy()
    copy.run_optimize()
    return copy.serialize()


def test_cardinalities_of_headers() -> None:
    """Each header counts its rows, alone and among others, with and without runs."""
    stored = [serialized(b) for b in BITMAPS.values()]
    offsets = np.cumsum([0, *map(len, stored)])[:-1]
    counts = cardinalities(memoryview(b"".join(stored)), offsets.astype(np.int64))
    assert counts.tolist() == [len(b) for b in BITMAPS.values()]
    for data, bitmap in zip(stored, BITMAPS.values(), strict=True):
        assert cardinality(memoryview(data), 0) == len(bitmap)
        header = next(n for n in range(len(data) + 1) if cardinality(memoryview(data[:n]), 0) is not None)
        count, runs = (len({r >> 16 for r in bitmap}), data[:2] == b"\x3b\x30")
        assert header == (4 + (count + 7) // 8 if runs else 8) + 4 * count
        assert cardinality(memoryview(data[:header]), 0) == len(bitmap)
    assert cardinalities(memoryview(b""), np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("damage", ["cookie", "count", "cut"])
def test_damaged_headers_are_refused(damage: str) -> None:
    good = serialized(BITMAPS["three containers"])
    bad = {"cookie": b"\0\0" + good[2:], "count": good[:4] + b"\1\0\1\0" + good[8:], "cut": good[:7]}[damage]
    with pytest.raises(CorruptError) as e:
        cardinalities(memoryview(good + bad), np.array([0, len(good)]))
    assert e.value.offset == len(good)
    if damage != "cut":
        with pytest.raises(CorruptError):
            cardinality(memoryview(bad), 7)


@pytest.mark.parametrize("version", ["1", "2"])
def test_rows_of_some_keys(version: str) -> None:
    """The first stored bitmap counts its rows, and a value of one row, which is stored nowhere, counts one."""
    values = ["a"] * 7 + ["b"] + ["c"] * 70_000 + [None] * 3 + ["d"]
    writer = BitmapWriter(parse_type("STRING"), {"version": version})
    writer.add(pa.array(values))
    data = writer.finish()
    for keys, rows in ((["a"], 7), (["b"], 1), (["c"], 70_000), (["d"], 1), (["a", "b", "c", "x"], 70_008), ([], 0)):
        reader = BitmapReader(parse_type("STRING"), lambda o, n: data[o : o + n], len(data), len(values))
        assert reader.count_having([k.encode() for k in keys]) == rows


def test_the_shortest_and_the_longest_header() -> None:
    """No container takes 8 bytes; 65,536 containers are as many as 32-bit rows have, and one more is damage."""
    empty = BitMap().serialize()
    assert len(empty) == 8 and cardinality(memoryview(empty), 0) == 0
    assert cardinalities(memoryview(empty), np.zeros(1, np.int64)).tolist() == [0]
    for length in range(4, 8):
        assert cardinality(memoryview(empty[:length]), 0) is None
        with pytest.raises(CorruptError):
            cardinality(memoryview(b"PAR1" + empty)[:length], 0)
    for containers in (1 << 16, (1 << 16) + 1):
        rows = np.arange(containers) % 1000  # less one
        described = np.stack([np.arange(containers), rows], axis=1).astype("<u2").tobytes()
        header = empty[:4] + containers.to_bytes(4, "little") + described
        if containers == 1 << 16:
            assert cardinality(memoryview(header), 0) == int(rows.sum()) + containers
            assert cardinalities(memoryview(header), np.zeros(1, np.int64)).tolist() == [int(rows.sum()) + containers]
            continue
        with pytest.raises(CorruptError, match="65537 containers"):
            cardinality(memoryview(header), 0)
        with pytest.raises(CorruptError):
            cardinalities(memoryview(header), np.zeros(1, np.int64))


@pytest.mark.parametrize(("kind", "key", "value"), [
    ("BOOLEAN", 0, False), ("BOOLEAN", 1, True), ("TINYINT", -1, -1), ("DATE", 0, 0), ("STRING", b"\xc3\xa9", "é"),
    ("BYTES", b"\xc3", b"\xc3"), ("FLOAT", -0x40800000, -1.0), ("FLOAT", 0x3FC00000, 1.5),
    ("DOUBLE", -0x4010000000000000, -1.0), ("DOUBLE", 0x3FF8000000000000, 1.5), ("DECIMAL(9, 2)", -150, -150),
])  # fmt: skip
def test_the_value_of_a_key(kind: str, key: Any, value: Any) -> None:
    keys = keys_of(parse_type(kind))
    assert keys is not None and physical_value(keys, key) == value
    assert type(physical_value(keys, key)) is type(value) and keys.of_literal(value) == key


def test_the_header_of_one_bitmap_among_others() -> None:
    """Its rows are counted at any place, whatever the index says of its own."""
    stored = [serialized(b) for b in BITMAPS.values()]
    for data, rows in zip(stored, BITMAPS.values(), strict=True):
        for before, after in ((0, 0), (7, 0), (7, 100)):
            whole = b"\xff" * before + data + b"\xff" * after
            for most in (0, len(rows), 1 << 20):
                payload = LazyBytes(lambda o, n, whole=whole: whole[o : o + n], len(whole))  # type: ignore[misc]
                assert counted_rows(payload, before, len(data), most) == len(rows)
        short = LazyBytes(lambda o, n, data=data: data[o : o + n], len(data))  # type: ignore[misc]
        with pytest.raises(CorruptError, match=f"^a bitmap of {len(data):,} bytes does not fit") as e:
            counted_rows(short, 1, len(data), 9)
        assert e.value.offset == 1
        with pytest.raises(CorruptError, match="^a bitmap ends inside its header") as e:
            counted_rows(short, 0, 5, 9)
        assert e.value.offset == 0


@pytest.mark.parametrize("row_count", [100, 1600, 1601, 100_000])
def test_numbers_of_bit_slices(row_count: int) -> None:
    """Few rows among many are looked up among themselves; both ways give each row the number of its bits."""
    rng = np.random.default_rng(row_count)
    rows = np.sort(rng.choice(row_count, 100, replace=False))
    numbers = rng.integers(0, 1 << 20, row_count)
    slices = [BitMap(np.flatnonzero(numbers >> i & 1)) for i in range(20)]
    positions, codes = codes_of(slices, BitMap(rows), row_count)
    assert positions.tolist() == rows.tolist() and codes.tolist() == numbers[rows].tolist()
