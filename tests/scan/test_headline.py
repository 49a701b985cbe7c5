"""What default options make of the headline: rows of a rare value side by side, read through a bitmap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive
from store_wrappers import CountingStore

import bitlake
from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.io import open_store

ROWS, START, STOP = 120_000, 60_000, 60_700


@pytest.mark.parametrize("options", [{}, exhaustive({"bucket": "2", "bucket-key": "id"})])
def test_rows_side_by_side_cost_about_their_share_of_the_file(tmp_path: Path, options: dict[str, str]) -> None:
    random = np.random.default_rng(1)
    status = random.choice(["DONE", "SHIPPED"], ROWS).astype(object)
    status[START:STOP] = "PENDING"
    texts = [random.bytes(30).hex() for _ in range(ROWS)]
    rows = pa.table({"id": np.arange(ROWS), "status": pa.array(status.tolist()), "text": texts})
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("d")
    lake.create_table("d.t", rows.schema, options={"file-index.bitmap.columns": "status"} | options).append(rows)
    store = CountingStore(open_store(str(tmp_path)))
    lake._catalog = FileSystemCatalog(store, str(tmp_path))
    scan = lake.table("d.t").scan(where="status = 'PENDING'")
    assert scan.to_arrow().sort_by("id").equals(rows.slice(START, STOP - START))
    metrics = scan.plan().metrics
    pages = 4 if not options else 8
    assert metrics.pages_read <= pages
    assert metrics.data_bytes_read < 1.5 * metrics.data_bytes * (STOP - START) / ROWS
