from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from caches import forget
from fixtures import copy_warehouse, warehouse
from store_wrappers import CountingStore

from bitlake.errors import CorruptError, NotFound
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import decode_manifest, decode_manifest_list
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot import manifests as live
from bitlake.snapshot import versions
from bitlake.snapshot.manifests import PartitionSet, manifest_meta, merged_entries
from bitlake.snapshot.table_files import TableFiles

STORE = LocalStore()


def tables() -> list[Path]:
    return sorted(p for p in (warehouse() / "default.db").iterdir() if p.is_dir())


def test_totals_and_deltas_of_every_fixture_snapshot_add_up() -> None:
    seen = 0
    for table in tables():
        paths = TablePaths(str(table))
        for number in versions.snapshot_ids(TableFiles(STORE, paths)):
            snapshot = versions.load_snapshot(TableFiles(STORE, paths), number)
            files = live.live_files(TableFiles(STORE, paths), snapshot)
            assert sum(e.file.row_count for e in files) == snapshot.total_record_count
            seen += 1
    assert seen >= 150


def test_every_fixture_list_record_is_what_we_would_write() -> None:
    seen = 0
    for table in tables():
        for f in sorted(table.glob("manifest/manifest-list-*")):
            for meta in decode_manifest_list(f.read_bytes()):
                path = table / "manifest" / meta.file_name
                if not path.exists():
                    continue
                schema = TableSchema.from_json((table / "schema/schema-0").read_bytes())
                types = [p.type for p in schema.partition_fields]
                entries = decode_manifest(path.read_bytes())
                assert manifest_meta(meta.file_name, path.stat().st_size, entries, types) == meta
                held = PartitionSet({e.partition for e in entries}, types)
                assert held.meets(meta)
                seen += 1
    assert seen > 500


def test_a_second_plan_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    paths = TablePaths(str(copy_warehouse(tmp_path, "partitioned") / "default.db/partitioned"))
    store = CountingStore(STORE)
    snapshot = versions.latest_snapshot(TableFiles(store, paths))
    assert snapshot is not None
    first = live.live_files(TableFiles(store, paths), snapshot)
    store.reset()
    assert live.live_files(TableFiles(store, paths), snapshot) == first
    partition = first[0].partition
    schema = versions.latest_schema(TableFiles(store, paths))
    assert schema is not None
    held = PartitionSet([partition], [f.type for f in schema.partition_fields])
    wanted = live.PartitionFilter(held.meets, frozenset([partition]))
    store.reset()
    assert live.live_files(TableFiles(store, paths), snapshot, wanted) is first
    assert not store.calls
    some = tuple(e for e in first if e.partition == partition)
    monkeypatch.setattr(live, "MANY_ENTRIES", 1)
    for rows in (wanted.rows, None):
        forget()
        found = live.live_files(TableFiles(store, paths), snapshot, live.PartitionFilter(held.meets, rows))
        assert tuple(e for e in found if e.partition == partition) == some
        assert not live.is_cached(TableFiles(store, paths), snapshot)
        if rows is not None:
            store.reset()
            assert found == some and live.live_files(TableFiles(store, paths), snapshot, wanted) is found
            assert not store.calls


def test_hints(tmp_path: Path) -> None:
    root = copy_warehouse(tmp_path, "time_travel") / "default.db/time_travel"
    paths = TablePaths(str(root))
    true_latest = max(versions.snapshot_ids(TableFiles(STORE, paths)))
    first = min(versions.snapshot_ids(TableFiles(STORE, paths)))
    for text in (b"1", b"garbage", b"", b"999", b"-3", str(true_latest).encode()):
        STORE.write(paths.latest_hint, text)
        STORE.write(paths.earliest_hint, text)
        assert versions.latest_snapshot_id(TableFiles(STORE, paths)) == true_latest
        assert versions.earliest_snapshot_id(TableFiles(STORE, paths)) in (first, true_latest)
    STORE.delete(paths.latest_hint)
    STORE.delete(paths.earliest_hint)
    STORE.write(paths.snapshot_dir + "/snapshot-x", b"")
    assert versions.latest_snapshot_id(TableFiles(STORE, paths)) == true_latest
    assert versions.earliest_snapshot_id(TableFiles(STORE, paths)) == first


def test_missing_table_and_new_schema_under_an_old_name(tmp_path: Path) -> None:
    paths = TablePaths(f"{tmp_path}/t")
    assert versions.latest_snapshot(TableFiles(STORE, paths)) is None
    assert versions.latest_schema(TableFiles(STORE, paths)) is None
    for name in ("append_plain", "partitioned"):
        shutil.copytree(warehouse() / "default.db" / name, tmp_path / "t")
        schema = versions.latest_schema(TableFiles(STORE, paths))
        assert schema is not None
        assert schema.to_json().encode() == STORE.read(paths.schema(schema.id))
        shutil.rmtree(tmp_path / "t")
    with pytest.raises(NotFound):
        versions.load_schema(TableFiles(STORE, paths), 0)


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    root = copy_warehouse(tmp_path, "append_plain") / "default.db/append_plain"
    paths = TablePaths(str(root))
    snapshot = versions.latest_snapshot(TableFiles(STORE, paths))
    assert snapshot is not None
    name = live.snapshot_manifests(TableFiles(STORE, paths), snapshot)[0].file_name
    STORE.write(paths.manifest(name), b"garbage")
    with pytest.raises(CorruptError, match=name):
        live.live_files(TableFiles(STORE, paths), snapshot)


def test_merging_keeps_what_is_live() -> None:
    for table in tables():
        paths = TablePaths(str(table))
        latest = versions.latest_snapshot(TableFiles(STORE, paths))
        if latest is None:
            continue
        metas = live.snapshot_manifests(TableFiles(STORE, paths), latest)
        manifests = live.read_manifests(TableFiles(STORE, paths), metas)
        whole = live.live_entries(manifests)
        merged = merged_entries(manifests)
        assert set(merged) == set(whole)
        for cut in range(len(manifests) + 1):
            tail = merged_entries(manifests[cut:])
            assert set(live.live_entries([*manifests[:cut], tail])) == set(whole)
