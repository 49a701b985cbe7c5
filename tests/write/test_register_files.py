"""Staged files that become data files of a table, where storage fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_wrappers import FaultyStore

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.write.register_files import RegisterContext, StagedFile, register_file


def test_a_data_file_whose_index_cannot_be_written_is_deleted(tmp_path: Path) -> None:
    rows = pa.table({"v": ["a", "b"]})
    options = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=options)
    staged = tmp_path / "staged.parquet"
    pq.write_table(rows, staged)
    store = FaultyStore(LocalStore(), 0, only=frozenset({"write"}))
    context = RegisterContext.of(table._core.state(), store)
    with pytest.raises(StorageUnavailable, match=r"write .*\.index"):
        register_file(store, context, (context.file_name(0), StagedFile(str(staged), staged.stat().st_size)))
    assert not list(tmp_path.rglob("*.parquet"))
