"""Compactions that Paimon made in the fixture tables, made again: the same files, rows, changelogs and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures
import pytest
from long import every

from bitlake.io.local import LocalStore
from bitlake.mergetree.bucket import BucketReader, MergeTreeContext, bucket_states, merge_tree_context
from bitlake.mergetree.compaction import compact_unit
from bitlake.mergetree.universal_compaction import pick_compaction, pick_full_compaction, sorted_runs
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.snapshot.index_files import read_vectors
from bitlake.snapshot.manifests import index_entries, read_manifest, read_manifest_list
from bitlake.snapshot.state import load_state, state_at
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import load_snapshot, snapshot_ids

STORE = LocalStore()
TABLES = sorted(p.name for p in (fixtures.warehouse() / "default.db").iterdir() if p.name.startswith("pk_"))


def told(context: MergeTreeContext, entries: list[ManifestEntry], made: list[ManifestEntry]) -> list[Any]:
    """What manifests say of files and what is in them; names only of files that were there before."""
    out = []
    for e in entries:
        f = e.file
        new = any(f.file_name == m.file.file_name for m in made)
        reader = BucketReader(context, STORE, e.partition, {})
        rows = [r for t in reader.read(e, reader.columns) for r in t.to_pylist()] if new else []
        fixed = (f.level, f.row_count, f.min_key, f.max_key, f.min_sequence_number, f.max_sequence_number)
        kinds = (f.schema_id, f.delete_row_count, f.file_source, f.key_stats, f.value_stats, f.value_stats_cols)
        out.append((None if new else f.file_name, fixed, kinds, rows))
    return sorted(out, key=repr)


def vectors_of(context: MergeTreeContext, entry: IndexFileEntry | None) -> dict[str, list[int]]:
    if entry is None:
        return {}
    found = read_vectors(TableFiles(STORE, context.paths), context.schema, entry)
    return {n: v.positions().tolist() for n, v in found.items()}


@pytest.mark.parametrize("table", every(2, TABLES))
def test_what_paimon_made_is_made(table: str, tmp_path: Path) -> None:
    root = fixtures.copy_warehouse(tmp_path, table)
    paths = TablePaths(str(root / "default.db" / table))
    state = load_state(table, TableFiles(STORE, paths))
    assert state is not None
    ids = snapshot_ids(TableFiles(STORE, paths))
    for snapshot_id in ids[1:]:
        snapshot = load_snapshot(TableFiles(STORE, paths), snapshot_id)
        if snapshot.commit_kind != "COMPACT":
            continue
        delta = [
            e
            for m in read_manifest_list(TableFiles(STORE, paths), snapshot.delta_manifest_list)
            for e in read_manifest(TableFiles(STORE, paths), m.file_name)
        ]
        changelog: list[ManifestEntry] = []
        if snapshot.changelog_manifest_list is not None:
            for m in read_manifest_list(TableFiles(STORE, paths), snapshot.changelog_manifest_list):
                changelog += read_manifest(TableFiles(STORE, paths), m.file_name)
        before = state_at(state, snapshot_id - 1)
        context = merge_tree_context(before)
        asked = table == "pk_dv_full_compacted" and snapshot_id == max(ids)
        index = {
            (i.partition, i.bucket): i
            for i in index_entries(TableFiles(STORE, paths), snapshot)
            if i.index_type == DELETION_VECTORS
        }
        for slot, bucket in bucket_states(before).items():
            here = [e for e in delta if (e.partition, e.bucket) == slot]
            if not here:
                continue
            runs = sorted_runs(bucket.files, state.schema)
            unit = (
                pick_full_compaction(runs, state.schema, has_vector=lambda n: True)
                if asked
                else pick_compaction(runs, state.schema)
            )
            assert unit is not None
            done = compact_unit(context, STORE, bucket, unit)
            where = (table, snapshot_id, slot)
            gone = {e.file.file_name for e in here if e.kind is EntryKind.DELETE}
            assert {e.file.file_name for e in done.before} == gone, where
            added = [e for e in here if e.kind is EntryKind.ADD]
            theirs = [e for e in added if e.file.file_name not in gone]
            assert told(context, list(done.after), list(done.new_files)) == told(context, added, theirs), where
            logs = [e for e in changelog if (e.partition, e.bucket) == slot]
            assert told(context, list(done.changelog), list(done.changelog)) == told(context, logs, logs), where
            ours = vectors_of(context, done.index[0].new[0] if done.index else bucket.vectors)
            assert bool(done.index) == (index.get(slot) != bucket.vectors), where
            assert len(ours) == len(vectors_of(context, index.get(slot))), where
            kept = {e.file.file_name for e in bucket.files} - gone | {e.file.file_name for e in added}
            assert ours == {n: p for n, p in vectors_of(context, index.get(slot)).items() if n in kept}, where
