"""Reading one planned file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import bitlake
from bitlake.scan.column_reader import ReadCounts
from bitlake.scan.reader import ReadRequest, read_file, tasks_of


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
