"""CREATE OR REPLACE TABLE where the response of a request gets lost: the table has its old rows or all new ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget
from store_wrappers import ResponseLost

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.write.commit import OutcomeUnknown

OLD = pa.table({"id": [1, 2]})
ASK = "CREATE OR REPLACE TABLE t TBLPROPERTIES ('commit.max-retries' = '0') AS SELECT id + 10 AS n, 'x' AS z FROM s"


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path))
    for name in ("s", "t"):
        lake.create_table(name, OLD.schema).append(OLD)
    return lake


def replace(lake: bitlake.Lake, store: LocalStore) -> None:
    forget()
    lake._catalog.store = store
    try:
        lake.sql(ASK, engine="duckdb")
    finally:
        forget()
        lake._catalog.store = LocalStore()


def test_the_old_schema_is_restored_if_the_response_to_the_new_one_gets_lost(lake: bitlake.Lake) -> None:
    with pytest.raises(StorageUnavailable, match="connection reset"):
        replace(lake, ResponseLost("/schema-1"))
    assert lake.table("t").to_arrow() == OLD and lake.table("t").schema.id == 2


def test_the_new_schema_stays_if_the_response_to_the_commit_gets_lost(lake: bitlake.Lake) -> None:
    """The old schema's columns would be NULL in the new rows."""
    with pytest.raises(OutcomeUnknown):
        replace(lake, ResponseLost("/snapshot-2"))
    assert lake.table("t").to_arrow().to_pylist() == [{"n": 11, "z": "x"}, {"n": 12, "z": "x"}]
