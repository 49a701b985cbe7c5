"""Reads of schema files in a remote store, where a listing shows which of them changed."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pyarrow as pa
from store_wrappers import CountingStore

import bitlake

VERSIONS = 4


def altered(place: str) -> None:
    """Create a table with files of several schemas."""
    lake = bitlake.connect(place)
    table = lake.create_table("t", pa.schema([("i", pa.int64())]))
    for version in range(VERSIONS):
        table.append(pa.table({"i": [version], **{f"c{n}": [n] for n in range(version)}}))
        lake.sql(f"ALTER TABLE t ADD COLUMN c{version} BIGINT", engine="duckdb")


def schema_reads(store: CountingStore) -> dict[str, int]:
    """How often each schema file was read since the last time."""
    reads = Counter(path.rpartition("/")[2] for call, path in store.paths if call == "read" and "/schema-" in path)
    store.reset()
    return dict(reads)


def test_each_schema_is_read_once_and_only_if_it_changed() -> None:
    place = f"memory://{uuid4()}/lake"
    altered(place)
    lake = bitlake.connect(place)
    store = lake._catalog.store = CountingStore(lake._catalog.store)
    table = lake.table("t")
    rows = table.scan().to_arrow()
    assert rows.column("c0").to_pylist() == [None, 0, 0, 0]
    assert schema_reads(store) == {f"schema-{n}": 1 for n in range(VERSIONS + 1)}
    assert table.scan().to_arrow().equals(rows) and table.count() == VERSIONS
    assert schema_reads(store) == {}
    bitlake.connect(place).sql("ALTER TABLE t RENAME COLUMN c0 TO d", engine="duckdb")
    assert table.scan().to_arrow().column("d").equals(rows.column("c0"))
    assert schema_reads(store) == {f"schema-{VERSIONS + 1}": 1}


def test_a_table_that_was_replaced_has_its_own_schemas() -> None:
    place = f"memory://{uuid4()}/lake"
    altered(place)
    table = bitlake.connect(place).table("t")
    assert table.scan().to_arrow().num_rows == VERSIONS
    other = bitlake.connect(place)
    other.drop_table("t")
    text = other.create_table("t", pa.schema([("i", pa.string())]))
    text.append(pa.table({"i": ["a"]}))
    other.sql("ALTER TABLE t ADD COLUMN c BIGINT", engine="duckdb")
    assert table.scan().to_arrow().to_pylist() == [{"i": "a", "c": None}]
