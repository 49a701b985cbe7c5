"""What advice learns from an index type: which columns it suits, and how a sample's index grows to that of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from bitlake.errors import CorruptError
from bitlake.expressions.tree import Comparison, In, IsNull, Like, Op
from bitlake.fileindex.bitmap import BITMAP, BitmapReader
from bitlake.fileindex.bloom_filter import BLOOM_FILTER
from bitlake.fileindex.bsi import BSI
from bitlake.fileindex.capabilities import ColumnFacts, IndexType, SampledColumn, SampledRead
from bitlake.fileindex.range_bitmap import RANGE_BITMAP
from bitlake.types import parse_type

INT, DOUBLE, STRING, BYTES = map(parse_type, ("INT", "DOUBLE", "STRING", "BYTES"))
LEAVES = {
    "=": Comparison("c", Op.EQ, 1), "<>": Comparison("c", Op.NE, 1), "<": Comparison("c", Op.LT, 1),
    "<=": Comparison("c", Op.LE, 1), ">": Comparison("c", Op.GT, 1), ">=": Comparison("c", Op.GE, 1),
    "IN": In("c", (1,)), "NOT IN": In("c", (1,), True), "LIKE": Like("c", "a%"), "IS NULL": IsNull("c"),
}  # fmt: skip


def test_the_index_that_comes_first_for_each_predicate() -> None:
    """Lookups use a bitmap of numbers and texts and a bloom filter of floats; ranges a range-bitmap."""
    ranges = dict.fromkeys(("<", "<=", ">", ">="), 0)
    others = {"<>": 2, **dict.fromkeys(ranges, 3), "NOT IN": 2, "LIKE": 0, "IS NULL": 2}
    expected = {
        (BITMAP, "INT"): {"=": 3, "<>": 3, **ranges, "IN": 3, "NOT IN": 3, "LIKE": 0, "IS NULL": 3},
        (BITMAP, "STRING"): {"=": 3, "<>": 3, **ranges, "IN": 3, "NOT IN": 3, "LIKE": 3, "IS NULL": 3},
        (BITMAP, "DOUBLE"): {"=": 2, "<>": 3, **ranges, "IN": 2, "NOT IN": 3, "LIKE": 0, "IS NULL": 3},
        (RANGE_BITMAP, "INT"): {**others, "=": 1, "IN": 1},
        (RANGE_BITMAP, "DOUBLE"): {**others, "=": 0, "IN": 0},
        (BLOOM_FILTER, "INT"): {"=": 2, "<>": 0, **ranges, "IN": 2, "NOT IN": 0, "LIKE": 0, "IS NULL": 0},
        (BLOOM_FILTER, "DOUBLE"): {"=": 3, "<>": 0, **ranges, "IN": 3, "NOT IN": 0, "LIKE": 0, "IS NULL": 0},
        (BSI, "INT"): dict.fromkeys(LEAVES, 0),
    }  # fmt: skip
    for (index, kind), rates in expected.items():
        assert {name: index.suitability(leaf, parse_type(kind)) for name, leaf in LEAVES.items()} == rates, index.name


@pytest.mark.parametrize(("index", "tried", "not_tried"), [
    (BITMAP, ColumnFacts(INT, 10**6, 50_000), ColumnFacts(INT, 10, 50_001)),
    (RANGE_BITMAP, ColumnFacts(INT, 9, 1), ColumnFacts(INT, 8, 10**6)),
    (BLOOM_FILTER, ColumnFacts(INT, 10**6, 1), ColumnFacts(INT, 1, 10**6)),
])  # fmt: skip
def test_columns_on_which_an_index_is_tried(index: IndexType, tried: ColumnFacts, not_tried: ColumnFacts) -> None:
    assert index.trial_options(tried) is not None and index.trial_options(not_tried) is None
    assert BSI.trial_options(tried) is None


def test_types_that_a_range_bitmap_takes() -> None:
    kinds = {
        "DECIMAL(18, 2)": True, "DECIMAL(19, 2)": False, "TIMESTAMP(6)": True, "TIMESTAMP(7)": False, "BYTES": False,
        "BINARY(4)": False, "STRING": True, "TIMESTAMP(0)": True, "TIMESTAMP(9) WITH LOCAL TIME ZONE": False,
    }  # fmt: skip
    assert {kind: RANGE_BITMAP.supports(parse_type(kind)) for kind in kinds} == kinds


def test_what_kind_of_index_each_is() -> None:
    """A bloom filter selects no rows, and building it sorts no values; the others do both."""
    for index in (BITMAP, RANGE_BITMAP, BSI):
        assert index.selects_rows and index.sorts_values
    assert not BLOOM_FILTER.selects_rows and not BLOOM_FILTER.sorts_values


def test_bytes_that_grow_with_values_and_with_rows() -> None:
    """Of 1,000 bytes the 20 values take 24 each; there are three times the values and ten times the rows."""
    column = SampledColumn(rows=100, file_rows=1000, distinct=20, file_distinct=60.0, value_bytes=12.0)
    assert BSI.file_bytes(1000, 0, column) == 480 * 3 + 520 * 10 == BITMAP.file_bytes(1000, 0, column)
    assert BSI.file_bytes(400, 0, column) == 400 * 3, "no more than there are"
    assert BLOOM_FILTER.file_bytes(1000, 0, column) == 3000
    assert (BSI.row_scale(100, 1000), BSI.row_scale(1, 7), BSI.row_scale(0, 7)) == (10, 7, 7)
    nothing = SampledColumn(rows=0, file_rows=5, distinct=0, file_distinct=0.0, value_bytes=0.0)
    assert BSI.file_bytes(10, 0, nothing) == 50 and BLOOM_FILTER.file_bytes(10, 0, nothing) == 0
    one = SampledColumn(rows=10, file_rows=10, distinct=1, file_distinct=4.0, value_bytes=8.0)
    assert BSI.file_bytes(100, 0, one) == 20 * 4 + 80 and BLOOM_FILTER.file_bytes(10, 0, one) == 40


def test_slices_grow_by_containers() -> None:
    """65,536 rows of a slice take 8 KB, fewer rows a byte each, up to 8 KB."""
    for rows, file_rows, scale in (
        (8192, 65_536, 1), (8192, 65_535, 1), (4096, 8192, 2), (4096, 65_536, 2), (65_536, 131_072, 2),
        (65_536, 65_537, 8193 / 8192), (1, 3, 3), (0, 3, 3), (131_072, 65_536 * 9 + 100_000, 11 * 8192 / 16_384),
    ):  # fmt: skip
        assert RANGE_BITMAP.row_scale(rows, file_rows) == scale, (rows, file_rows)
    column = SampledColumn(rows=65_536, file_rows=131_072, distinct=15, file_distinct=250.0, value_bytes=8.0)
    # Twice the rows, eight slices for four, and 250 values for 15.
    assert RANGE_BITMAP.file_bytes(1000, 150, column) == pytest.approx(150 * 250 / 15 + 850 * 2 * 8 / 4)
    few = SampledColumn(rows=65_536, file_rows=65_536, distinct=0, file_distinct=0.0, value_bytes=8.0)
    assert RANGE_BITMAP.file_bytes(100, 40, few) == pytest.approx(60)


def payload(index: IndexType, values: Any, **options: str) -> bytes:
    writer = index.writer(INT, options)
    writer.add(pa.array(values, pa.int32()))
    return writer.finish()


def read(leaves: list[Any], matches: list[BitMap], bytes_read: int, beyond: int, decided: bool = True) -> SampledRead:
    return SampledRead(leaves, matches, bytes_read, beyond, decided)


def test_bytes_read_that_grow_with_the_rows() -> None:
    data = payload(BITMAP, np.arange(3000) % 30)
    rows = BitMap(range(0, 3000, 30))
    size = len(rows.serialize())
    assert BITMAP.fixed_bytes(data) == 600
    assert BITMAP.growing_read(data, read([LEAVES["="]], [rows], 10**6, 0)) == (size, None)
    assert BITMAP.growing_read(data, read([LEAVES["="], LEAVES["<>"]], [rows, rows], 10**6, 0)) == (2 * size, None)
    assert BITMAP.growing_read(data, read([LEAVES["="]], [rows], 50, 0)) == (50, None), "no more than was read"
    assert BITMAP.growing_read(data, read([LEAVES["="]], [rows], 10**6, 0, decided=False)) == (0, None)
    assert BITMAP.growing_read(data, read([LEAVES["<"], LEAVES["="]], [rows], 10**6, 900)) == (300, 1 << 20)
    assert BITMAP.growing_read(data, read([LEAVES["<"], LEAVES[">="]], [rows], 10**6, 500)) == (0, 2 << 20)
    ranged = payload(RANGE_BITMAP, np.arange(3000) % 30)
    slices = len(ranged) - RANGE_BITMAP.fixed_bytes(ranged)
    head = int.from_bytes(ranged[:4], "big") + 4
    assert RANGE_BITMAP.fixed_bytes(ranged) == head + int.from_bytes(ranged[head - 4 : head], "big") > head
    for bytes_read, growing in ((slices - 1, 0), (slices, slices), (10**6, slices)):
        assert RANGE_BITMAP.growing_read(ranged, read([LEAVES["<"]], [rows], bytes_read, 0)) == (growing, None)
    assert BSI.fixed_bytes(data) == 0 and BSI.growing_read(data, read([], [], 9, 9)) == (0, None)


# --- counts and differences of bitmaps --------------------------------------------------------------------------------


def reader(data: bytes, rows: int) -> BitmapReader:
    return BitmapReader(INT, lambda o, n: data[o : o + n], len(data), rows)


@pytest.mark.parametrize("distinct", [1, 255, 256, 257, 300])
@pytest.mark.parametrize("version", ["1", "2"])
def test_counts_of_few_and_of_many_bitmaps(distinct: int, version: str) -> None:
    """Few headers are read one by one, those of more than 256 bitmaps in one request; some values have one row."""
    values = [i % distinct for i in range(2 * distinct)] + [None] * 3 + [10**6 + i for i in range(5)] + [0] * 400
    made = reader(payload(BITMAP, values, version=version), len(values))
    counts = made.value_counts(None)
    assert counts is not None and counts.nulls == 3
    found = dict(zip(counts.values.to_pylist(), counts.counts.tolist(), strict=True))
    assert found == {v: values.count(v) for v in set(values) if v is not None}
    keys = [*range(distinct), 10**6, 10**6 + 4, 10**7]
    assert made.count_having(keys) == sum(v in set(keys) for v in values if v is not None)
    assert made.count_having([]) == 0 == made.count_having([10**7])
    assert made.selectivity(Comparison("c", Op.EQ, 0)) == pytest.approx(values.count(0) / len(values))
    assert made.selectivity(Comparison("c", Op.NE, 10**6)) == pytest.approx(1 - 1 / len(values))


def test_counts_that_cannot_be() -> None:
    """The bitmaps of two values share a row, so that counts add up to more than there are rows."""
    good = payload(BITMAP, [1, 1, 2, 2, None, None], version="2")
    bad = good.replace(BitMap([2, 3]).serialize(), BitMap([1, 3]).serialize())
    assert bad != good
    assert reader(bad, 6).value_counts(None) is not None, "six in all"
    for rows in (BitMap([1]), BitMap([2]), BitMap(range(2))):
        with pytest.raises(CorruptError, match="counts .* rows"):
            reader(bad, 6).value_counts(rows)
    longer = payload(BITMAP, [1, 1, 2, 2, 2, None], version="2")
    with pytest.raises(CorruptError, match=r"counts 5 \+ 1 of 7 rows"):
        reader(longer[:1] + (7).to_bytes(4, "big") + longer[5:], 7).value_counts(None)


@pytest.mark.parametrize(("stored", "message"), [
    ([1, 2, 2, None, None], None),
    ([1, 2, 3, None, None], "it has 3 values, and the column 2"),
    ([2, 1, 2, None, None], "it has other rows for a value of row 0"),
    ([1, 2, 2, None, 2], "it has other rows for a value of row 4"),
])  # fmt: skip
def test_how_a_bitmap_differs_from_the_rebuilt_one(stored: list[int | None], message: str | None) -> None:
    right = reader(payload(BITMAP, [1, 2, 2, None, None]), 5)
    assert reader(payload(BITMAP, stored), 5).difference(right) == message


def test_nulls_that_differ() -> None:
    """Of a column without values, what is wrong is which rows are NULL."""
    data = payload(BITMAP, [1, None, None, 1])
    wrong = data.replace(BitMap([1, 2]).serialize(), BitMap([0, 2]).serialize())
    assert wrong != data
    assert reader(wrong, 4).difference(reader(data, 4)) == "it is wrong about whether row 0 is NULL, and 1 more rows"
