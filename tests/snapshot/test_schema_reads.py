"""Reads of schema and snapshot files in a remote store, where a listing shows which of them changed."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pyarrow as pa
import pytest
from store_wrappers import CountingStore

import bitlake
from bitlake.io import object_store
from bitlake.io.object_store import ObjectStore

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


def counted(place: str) -> tuple[bitlake.Table, CountingStore]:
    """A table of a new lake, and its store."""
    lake = bitlake.connect(place)
    store = lake._catalog.store = CountingStore(lake._catalog.store)
    return lake.table("t"), store


def appended(place: str, ids: range) -> bitlake.Table:
    """A table with one snapshot for each id."""
    lake = bitlake.connect(place)
    table = lake.table("t") if "t" in lake.tables() else lake.create_table("t", pa.schema([("i", pa.int64())]))
    for i in ids:
        table.append(pa.table({"i": [i]}))
    return table


def rows(table: bitlake.Table) -> list[int]:
    return sorted(table.scan().to_arrow().column("i").to_pylist())


def test_two_listings_show_that_nothing_changed() -> None:
    place = f"memory://{uuid4()}/lake"
    appended(place, range(12))
    table, store = counted(place)
    assert rows(table) == list(range(12))
    store.reset()
    assert rows(table) == list(range(12)) and store.calls == {"list": 2}
    appended(place, range(12, 14))
    store.reset()
    assert rows(table) == list(range(14))
    assert next(path.rpartition("/")[2] for call, path in store.paths if call == "read") == "snapshot-14"


def test_a_first_snapshot_has_no_base_list_to_read() -> None:
    place = f"memory://{uuid4()}/lake"
    made = appended(place, range(1))
    table, store = counted(place)
    snapshot = made._core.state().snapshot
    assert snapshot is not None and rows(table) == [0]
    read = {path.rpartition("/")[2] for call, path in store.paths if call == "read"}
    assert snapshot.delta_manifest_list in read and snapshot.base_manifest_list not in read
    assert store.calls == {"read": 4, "list": 2, "read_range": 1}, "schema, snapshot, list and manifest; the file"


def test_a_snapshot_that_takes_the_id_of_another_is_read() -> None:
    """After a rollback, where a record of it tells which snapshots are left over, too."""
    place = f"memory://{uuid4()}/lake"
    other = appended(place, range(3))
    table, _ = counted(place)
    assert rows(table) == [0, 1, 2]
    other.history.rollback(2)
    assert rows(table) == [0, 1]
    appended(place, range(7, 8))
    assert other._core.state().snapshot_id == 3 and rows(table) == [0, 1, 7]


def test_snapshots_that_one_request_does_not_list_are_found_by_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_PAGE", 4)
    place = f"memory://{uuid4()}/lake"
    appended(place, range(11))
    table, store = counted(place)
    assert rows(table) == list(range(11))
    asked: list[str] = []
    plain = ObjectStore.list_page
    monkeypatch.setattr(ObjectStore, "list_page", lambda self, folder: asked.append(folder) or plain(self, folder))
    store.reset()
    assert rows(table) == list(range(11)) and asked == [], "it was tried once"
    appended(place, range(11, 12))
    assert rows(table) == list(range(12))


def test_a_snapshot_that_goes_between_its_listing_and_its_reading_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"memory://{uuid4()}/lake"
    other = appended(place, range(3))
    table, _ = counted(place)
    plain = ObjectStore.list_page
    listed: list[str] = []

    def overtaken(self: ObjectStore, folder: str) -> object:
        found = plain(self, folder)
        listed.append(folder)
        if len(listed) == 1:
            other.history.rollback(2)
        return found

    monkeypatch.setattr(ObjectStore, "list_page", overtaken)
    assert rows(table) == [0, 1]
