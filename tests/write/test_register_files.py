"""Staged files that become data files of a table, where storage fails or a task runs twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import strays
from store_wrappers import FaultyStore

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.write.register_files import RegisterContext, StagedFile, move_file, register_file


def test_a_data_file_whose_index_cannot_be_written_stays_where_it_is(tmp_path: Path) -> None:
    rows = pa.table({"v": ["a", "b"]})
    options = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=options)
    staged = tmp_path / "staged.parquet"
    pq.write_table(rows, staged)
    store = FaultyStore(LocalStore(), 0, only=frozenset({"write"}))
    context = RegisterContext.of(table._core.state(), store)
    with pytest.raises(StorageUnavailable, match=r"write .*\.index"):
        register_file(store, context, (context.file_name(0), StagedFile(str(staged), staged.stat().st_size)))
    assert list(tmp_path.rglob("*.parquet")) == [staged]


def test_a_task_that_runs_again_finds_its_staged_file(tmp_path: Path) -> None:
    """Spark repeats the task of a worker that died, and runs a second copy of a slow task (speculation)."""
    rows = pa.table({"v": ["a", "b"], "p": ["x", "x"]})
    options = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, partition_by=["p"], options=options)
    staged = tmp_path / "staged.parquet"
    pq.write_table(rows, staged)
    state, store = table._core.state(), LocalStore()
    context = RegisterContext.of(state, store)
    item = context.file_name(0), StagedFile(str(staged), staged.stat().st_size)
    first, second = (register_file(store, context, item) for _ in range(2))
    assert first.move == second.move is not None
    for _ in range(2):
        move_file(store, first.move)
    table._core.commit_files(state, context.in_sequence(second.entries), "WRITE")
    assert table.scan(where="v = 'b'").to_arrow().num_rows == 1 and not strays(table)


def test_a_file_that_is_split_twice_gets_other_names(tmp_path: Path) -> None:
    """With the same names, a run that Spark kills could leave half of a file that the other run has written."""
    rows = pa.table({"v": list(range(50_000))})
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options={"target-file-size": "40 kb"})
    staged = tmp_path / "staged.parquet"
    pq.write_table(rows, staged)
    context = RegisterContext.of(table._core.state(), LocalStore())
    item = context.file_name(0), StagedFile(str(staged), staged.stat().st_size)
    first, second = (register_file(LocalStore(), context, item) for _ in range(2))
    names = [e.file.file_name for run in (first, second) for e in run.entries]
    assert first.move is None and len(first.entries) > 1 and len(set(names)) == len(names)
