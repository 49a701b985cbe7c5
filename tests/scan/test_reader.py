"""Reading one planned file."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import bitlake
from bitlake.errors import CorruptError
from bitlake.fileindex.selection import Selection
from bitlake.formats.parquet.footer import read_footer
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


def scattered(folder: Path, **options: str) -> tuple[Any, pa.Table]:
    """A table of small pages, and its rows."""
    ids = np.arange(IN_ORDER_ROWS + 10)
    rows = pa.table({"id": ids, "half": ids // 2, "text": [f"text {i}" for i in ids]})
    small = {"parquet.page.row.count.limit": "256", "file.block-size": "1 mb", "parquet.enable.dictionary": "false"}
    table = bitlake.connect(str(folder)).create_table("t", rows.schema, options=small | options)
    table.append(rows)
    return table, rows


def test_rows_in_few_of_many_small_pages_are_fetched_by_pages(tmp_path: Path) -> None:
    """How many pages hold a row depends on the sizes of the file's own pages."""
    table, rows = scattered(tmp_path)
    ids = rows.column("id").to_numpy()
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


def test_pages_of_other_codecs_are_decoded_in_order(tmp_path: Path) -> None:
    """To hand pyarrow single pages took twice the time of all of them."""
    table, rows = scattered(tmp_path, **{"file.compression": "snappy"})
    scan = table.scan(where="id + 0 * half % 1000 = 7 OR id % 1000 = 7")
    assert scan.to_arrow().equals(rows.take(pa.array(np.arange(7, rows.num_rows, 1000))))
    assert scan.plan().metrics.pages_read == 0


def test_a_damaged_offset_index_is_read_only_where_it_is_needed(tmp_path: Path) -> None:
    """A damaged offset index does not fail a read in order, which needs none."""
    table, rows = scattered(tmp_path)
    (file,) = table.scan().plan().files
    path = Path(file.path)
    data = bytearray(path.read_bytes())
    footer = read_footer(lambda offset, length: bytes(data[offset : offset + length]), len(data))
    data[footer.row_groups[0].chunks[2].index_offset + 2] ^= 0xFF
    path.write_bytes(data)
    table = bitlake.connect(str(tmp_path)).table("t")
    found = table.scan(where="id % 500 + half * 0 = 7").to_arrow()
    assert found.equals(rows.take(pa.array(np.arange(7, rows.num_rows, 500))))
    with pytest.raises(CorruptError, match=path.name):
        table.scan(where="id IN (5, 9)").to_arrow()
