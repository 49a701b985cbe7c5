"""Reading one planned file."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

import bitlake
from bitlake.fileindex.selection import Selection
from bitlake.scan.column_reader import ReadCounts
from bitlake.scan.reader import IN_ORDER_ROWS, ReadRequest, read_file, tasks_of


def test_a_file_is_read_as_often_as_it_is_asked_for(tmp_path: Path) -> None:
    """The very same objects may be given again: a file's rows are no answer to be remembered."""
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))
    scan = table.scan()._core
    plan = scan.plan()
    (task,) = tasks_of(plan.files, plan.schemas)
    request, counts = ReadRequest(scan.state.schema, scan.columns, None), ReadCounts()
    for _ in range(2):
        read = list(read_file(scan.store, task, request, counts))
        assert pa.concat_tables(read).column("id").to_pylist() == [1, 2, 3]


def test_rows_in_most_pages_are_decoded_in_order(tmp_path: Path) -> None:
    """By pages, 1 % of the rows of a wide table took twice the time of all rows."""
    ids = np.arange(IN_ORDER_ROWS + 10)
    prices = [None if i % 7 == 3 else Decimal(int(i) - 500).scaleb(-2) for i in ids]
    rows = pa.table(
        {
            "id": ids,
            "word": pa.array([f"w{i % 5}" if i % 11 else None for i in ids]),
            "text": [f"text {i}" for i in ids],
            "price": pa.array(prices, pa.decimal128(12, 2)),
            "wide": pa.array(prices, pa.decimal128(30, 2)),
        }
    )
    options = {"parquet.page.row.count.limit": "4096", "file.block-size": "1 mb"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=options)
    table.append(rows)
    scan = table.scan()._core
    plan = scan.plan()
    (whole,) = tasks_of(plan.files, plan.schemas)

    def read(chosen: range) -> ReadCounts:
        counts = ReadCounts()
        task = replace(whole, selection=Selection.of(BitMap(chosen), True))
        parts = list(read_file(scan.store, task, ReadRequest(scan.state.schema, scan.columns, None), counts))
        assert pa.concat_tables(parts).combine_chunks().equals(rows.take(pa.array(chosen)).combine_chunks())
        return counts

    groups = read(range(7, len(ids), 1000))
    assert (groups.pages, groups.rows_read) == (0, 66) and groups.row_groups > 1
    later = read(range(len(ids) // 3, len(ids), 1000))
    assert later.pages == 0 and later.row_groups < groups.row_groups, "row groups without a chosen row are not read"
    assert read(range(0, len(ids), 9000)).pages == 5 * len(range(0, len(ids), 9000))


def test_rows_in_few_of_many_small_pages_are_fetched_by_pages(tmp_path: Path) -> None:
    """How many pages hold a row depends on the sizes of the file's own pages."""
    ids = np.arange(IN_ORDER_ROWS + 10)
    rows = pa.table({"id": ids, "half": ids // 2, "text": [f"text {i}" for i in ids]})
    options = {"parquet.page.row.count.limit": "256", "file.block-size": "1 mb", "parquet.enable.dictionary": "false"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=options)
    table.append(rows)
    scan = table.scan()._core
    plan = scan.plan()
    (whole,) = tasks_of(plan.files, plan.schemas)
    for step, few in ((1000, True), (400, False)):
        chosen = np.arange(7, len(ids), step)
        counts = ReadCounts()
        task = replace(whole, selection=Selection.of(BitMap(chosen), True))
        parts = list(read_file(scan.store, task, ReadRequest(scan.state.schema, scan.columns, None), counts))
        assert pa.concat_tables(parts).combine_chunks().equals(rows.take(pa.array(chosen)).combine_chunks())
        assert counts.pages == (3 * len(chosen) if few else 0)

        # Computed: bounds of pages do not tell which of them hold a match.
        judged = table.scan(where=f"half + half % 1 * id IN ({', '.join(map(str, chosen // 2))})")
        pairs = np.unique(chosen // 2 * 2)
        assert judged.to_arrow().column("id").to_pylist() == np.sort(np.concatenate([pairs, pairs + 1])).tolist()
        assert (judged.plan().metrics.pages_read > 0) is few
