"""Commits of entries to a plain table, without files behind them."""

from __future__ import annotations

from pathlib import Path

from caches import forget

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import parse_type
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan

STORE = LocalStore()
FAST = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}


def make_table(root: Path, partitioned: bool = False, **options: str) -> tuple[TablePaths, TableSchema]:
    fields, highest = assign_ids([("k", parse_type("INT"), None), ("v", parse_type("STRING"), None)])
    keys = ("k",) if partitioned else ()
    schema = TableSchema(0, fields, highest, keys, (), {**FAST, **{k.replace("_", "-"): v for k, v in options.items()}})
    paths = TablePaths(str(root))
    assert STORE.create(paths.schema(0), schema.to_json().encode())
    return paths, schema


def entry(name: str, k: int | None = None, rows: int = 10, total: int = -1, bucket: int = 0) -> ManifestEntry:
    file = DataFileMeta(
        name, 100, rows, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, rows - 1, 0, 0, value_stats_cols=()
    )
    partition = EMPTY_ROW if k is None else encode_row_with_arity([parse_type("INT")], [k])
    return ManifestEntry(EntryKind.ADD, partition, bucket, total, file)


def append(paths: TablePaths, schema: TableSchema, *entries: ManifestEntry, store: Store = STORE) -> Snapshot:
    made = commit(store, paths, CommitPlan("APPEND", entries), schema, "me", operation="WRITE")
    assert made is not None
    return made


def names(paths: TablePaths) -> set[str]:
    forget()
    snapshot = versions.latest_snapshot(TableFiles(STORE, paths))
    return (
        set()
        if snapshot is None
        else {e.file.file_name for e in manifests.live_files(TableFiles(STORE, paths), snapshot)}
    )


def check_table(paths: TablePaths) -> None:
    """Every snapshot is whole: its manifests are there, its totals add up, and nothing else is lying around."""
    forget()
    referenced = set()
    total = 0
    ids = versions.snapshot_ids(TableFiles(STORE, paths))
    assert ids == list(range(1, len(ids) + 1))
    for number in ids:
        s = versions.load_snapshot(TableFiles(STORE, paths), number)
        files = manifests.live_files(TableFiles(STORE, paths), s)
        total += s.delta_record_count
        assert s.total_record_count == total == sum(e.file.row_count for e in files)
        for name, size in (
            (s.base_manifest_list, s.base_manifest_list_size),
            (s.delta_manifest_list, s.delta_manifest_list_size),
        ):
            assert STORE.size(paths.manifest(name)) == size
            metas = manifests.read_manifest_list(TableFiles(STORE, paths), name)
            referenced |= {name, *(m.file_name for m in metas)}
            for m in metas:
                assert STORE.size(paths.manifest(m.file_name)) == m.file_size
    assert {f.name for f in STORE.list(paths.manifest_dir)} == referenced
    assert {f.name for f in STORE.list(paths.snapshot_dir)} <= {f"snapshot-{i}" for i in ids} | {"LATEST", "EARLIEST"}
