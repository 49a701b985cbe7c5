"""Files that Spark writes into a staging folder, where storage fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from faults import strays
from store_wrappers import FaultyStore

import bitlake
from bitlake.io.local import LocalStore
from bitlake.spark.write.append import SparkWriter

pytestmark = pytest.mark.spark


def test_a_staging_folder_that_cannot_be_deleted_fails_no_write(lake: bitlake.Lake, spark: Any) -> None:
    table = lake.create_table("t", pa.schema([("id", "int64")]))
    state, store = table._core.state(), FaultyStore(LocalStore(), 0, only=frozenset({"delete_dir"}))
    files = SparkWriter(spark, store).write(state, spark.range(10))
    assert store.failed and strays(table)
    table._core.commit_files(state, files, "WRITE")
    table.maintenance.remove_orphan_files(timedelta(0))
    assert not strays(table) and table.count() == 10
