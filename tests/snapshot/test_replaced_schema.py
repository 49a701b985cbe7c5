"""CREATE OR REPLACE TABLE where a request is carried out and its response gets lost: old rows or new, each whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.write.commit import OutcomeUnknown

OLD = pa.table({"id": [1, 2]})
ASK = "CREATE OR REPLACE TABLE t TBLPROPERTIES ('commit.max-retries' = '0') AS SELECT id + 10 AS n, 'x' AS z FROM s"


class AnswerLost(LocalStore):
    """Creates the file of a name, and fails."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self, path: str, data: bytes) -> bool:
        done = super().create(path, data)
        if path.endswith(f"/{self.name}"):
            raise StorageUnavailable("connection reset")
        return done


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


def test_a_schema_that_was_created_all_the_same_is_replaced_by_the_old_one(lake: bitlake.Lake) -> None:
    with pytest.raises(StorageUnavailable, match="connection reset"):
        replace(lake, AnswerLost("schema-1"))
    assert lake.table("t").to_arrow() == OLD and lake.table("t").schema.id == 2


def test_a_schema_whose_rows_were_committed_all_the_same_stays(lake: bitlake.Lake) -> None:
    """The old schema's columns would be NULL in the new rows."""
    with pytest.raises(OutcomeUnknown):
        replace(lake, AnswerLost("snapshot-2"))
    assert lake.table("t").to_arrow().to_pylist() == [{"n": 11, "z": "x"}, {"n": 12, "z": "x"}]
