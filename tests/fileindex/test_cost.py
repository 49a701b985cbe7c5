from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import bitlake
from bitlake.expressions.tree import Comparison, In, Op
from bitlake.fileindex.bitmap import BitmapReader, BitmapWriter
from bitlake.fileindex.cost import CostPolicy, IndexQuery, expected_bytes, pages_spared, selectivity
from bitlake.fileindex.range_bitmap import RangeBitmapReader, RangeBitmapWriter
from bitlake.scan.plan import PlannedFile
from bitlake.types import parse_type

ROWS = 200_000


def test_rows_far_apart_have_pages_to_spare() -> None:
    assert pages_spared(BitMap(range(0, 4096 * 50, 4096)), 0.6) == pytest.approx(20)
    assert pages_spared(BitMap(range(10)), 0.5) == pytest.approx(2**-10)
    assert pages_spared(BitMap(), 0.5) == 0
    assert pages_spared(BitMap([0, 10 * 4096]), 0.5) == 1, "pages between hold no row that could be spared"
    assert pages_spared(BitMap([4095, 4096, 8191]), 0.5) == 0.5 + 0.25


def test_an_index_of_half_of_the_rows_is_asked_where_others_leave_few(tmp_path: Path) -> None:
    at = np.arange(ROWS)
    rows = pa.table(
        {
            "mode": pa.array(np.where(at % 9_001 == 0, "rare", "often")),
            "run": pa.array(np.where(at < 40, "first", "later")),
            "flag": pa.array(np.where((at * 2_654_435_761) % 1_000 < 500, "N", "R")),
        }
    )
    kinds = {"file-index.bitmap.columns": "mode,run,flag"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=kinds)
    table.append(rows)

    def planned(where: str) -> PlannedFile:
        return table.scan(where=where).plan().files[0]

    half = planned("flag = 'N'")
    assert half.whole and "it would leave about 50 % of the rows" in half.unused_indexes[0]
    rare = planned("flag = 'N' AND mode = 'rare'")
    kept = rows.filter(pa.array((at % 9_001 == 0) & ((at * 2_654_435_761) % 1_000 < 500)))
    assert rare.selection.exact and not rare.unused_indexes and rare.chosen_rows == kept.num_rows > 0
    assert table.scan(where="flag = 'N' AND mode = 'rare'").to_arrow().cast(kept.schema).equals(kept)
    # These rows are in one page, with or without half of them.
    near = planned("flag = 'N' AND run = 'first'")
    assert near.chosen_rows == 40 and near.pruned_by == ("bitmap(run)",) and near.unused_indexes


def test_bytes_that_an_answer_reads() -> None:
    """A lookup in a bitmap reads a block and a bitmap of its rows, a range at most a MB, a bloom filter a few bytes."""
    rows, length = 80_000, 50 << 20
    bitmap = rows // 8 + 8192
    column = pa.array(np.arange(rows) % 7)

    def reader(writer: type, opened: type) -> Any:
        made = writer(parse_type("BIGINT"), {})
        made.add(column)
        data = made.finish()
        return opened(parse_type("BIGINT"), lambda o, n: data[o : o + n], len(data), rows)

    listed = reader(BitmapWriter, BitmapReader)
    assert expected_bytes(listed, Comparison("c", Op.EQ, 3), length, rows) == 16_384 + bitmap
    assert expected_bytes(listed, In("c", (1, 2, 3)), length, rows) == 3 * (16_384 + bitmap)
    assert expected_bytes(listed, Comparison("c", Op.LT, 3), length, rows) == 1 << 20
    assert expected_bytes(listed, Comparison("c", Op.NE, 3), length, rows) == 16_384 + bitmap
    assert expected_bytes(listed, Comparison("c", Op.EQ, 3), 100, rows) == 100
    ranged = reader(RangeBitmapWriter, RangeBitmapReader)
    assert expected_bytes(ranged, Comparison("c", Op.EQ, 3), length, rows) == 18 * bitmap + 32_768
    assert expected_bytes(object(), Comparison("c", Op.EQ, 3), length, rows) == length
    # A row number of n rows has as many bits as n - 1, one at least; one bitmap more is that of the rows not NULL.
    for few, bits in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (65_536, 16), (65_537, 17)):
        expected = (1 + bits) * (few // 8 + 8192) + 32_768
        assert expected_bytes(ranged, Comparison("c", Op.LT, 3), length, few) == expected


LEAF = Comparison("c", Op.EQ, 1)


def refused(
    length: int, left: int = 10**6, column: int | None = None, rows: int = 100_000, exact: bool = False
) -> bool:
    """Whether an index of which nothing is known but its size is left alone."""
    return (
        CostPolicy(rows, lambda _: column, exact=exact).reason_to_skip(object(), IndexQuery(LEAF, length, left))
        is not None
    )


def test_an_index_may_take_the_columns_bytes_and_some_for_each_row() -> None:
    """2.5 ns a byte of index, and 2.5 ns a byte and 20 ns a row of column, both fetched at 5 ns a byte."""
    for rows in (100_000, 1_000_000):
        for column in (0, 1_000_000):
            most = column + rows * 27 // 10
            assert not refused(most, column=column, rows=rows) and refused(most + 1, column=column, rows=rows)
    assert not refused(10**9, left=10**9), "a column of unknown size is no reason"
    assert refused(10**9, column=10, exact=True)


def test_small_files_and_small_indexes_are_asked() -> None:
    assert not refused(10**9, column=1, rows=99_999) and refused(10**9, column=1, rows=100_000)
    assert not refused(256 * 1024, left=1, column=1) and refused(256 * 1024 + 1, left=1, column=1)


def test_few_rows_that_are_left_cost_a_page_each() -> None:
    assert not refused(64 * 1024 * 50, left=50) and refused(64 * 1024 * 50 + 1, left=50)
    assert not refused(64 * 1024 * 50 + 1, left=50, exact=True)


def test_the_share_of_a_list_is_known_up_to_64_values() -> None:
    writer = BitmapWriter(parse_type("INT"), {})
    writer.add(pa.array(np.arange(1000, dtype=np.int32)))
    data = writer.finish()
    made = BitmapReader(parse_type("INT"), lambda o, n: data[o : o + n], len(data), 1000)
    assert selectivity(made, In("c", tuple(range(64)))) == pytest.approx(0.064)
    assert selectivity(made, In("c", tuple(range(64)), True)) == pytest.approx(0.936)
    assert selectivity(made, In("c", tuple(range(65)))) is None
    assert selectivity(made, Comparison("c", Op.NE, 3)) == pytest.approx(0.999)
    assert selectivity(made, Comparison("c", Op.LT, 3)) is None


class Known:
    """A reader of which size and share are known by column."""

    def __init__(self, size: int, **shares: float | None) -> None:
        self.size, self.shares = size, shares

    def bytes_to_read(self, leaf: Any, length: int, rows: int) -> int:
        return self.size

    def selectivity(self, leaf: Any) -> float | None:
        return self.shares[leaf.column]


def reason(reader: Known, *also: str, rows: BitMap | None = None, exact: bool = False) -> str | None:
    query = IndexQuery(LEAF, 10**9, 10**6, [Comparison(name, Op.GE, 1) for name in also], rows)
    return CostPolicy(ROWS, lambda _: None, exact=exact).reason_to_skip(reader, query)


def test_an_index_that_leaves_more_than_two_fifths_is_not_asked() -> None:
    assert reason(Known(1, c=0.4)) is None and reason(Known(1, c=None)) is None
    assert reason(Known(1, c=0.41)) == "it would leave about 41 % of the rows"
    assert reason(Known(1, c=0.41), exact=True) is None


def test_the_other_end_of_a_range_counts() -> None:
    """Two ends that leave 7 and 6 tenths leave 3 tenths together; the better of several counts, and one at least."""
    assert reason(Known(1, c=0.7, d=0.6), "d") is None
    assert reason(Known(1, c=0.7, d=0.8), "d") == "it would leave about 50 % of the rows"
    assert reason(Known(1, c=0.7, d=0.9, e=0.75), "d", "e") == "it would leave about 45 % of the rows"
    assert reason(Known(1, c=0.7, d=None), "d") == "it would leave about 70 % of the rows"
    assert reason(Known(1, c=0.7, d=0.1), "d") is None
    assert reason(Known(1, c=0.4, d=1.0), "d") is None


def test_pages_that_are_spared_pay_for_an_index() -> None:
    """Of ten pages with one row each, half are spared, at 64 KB each."""
    rows = BitMap(range(0, 10 * 4096, 4096))
    assert reason(Known(5 * 65536, c=0.5), rows=rows) is None
    assert reason(Known(5 * 65536 + 1, c=0.5), rows=rows) == "it would leave about 50 % of the rows"
