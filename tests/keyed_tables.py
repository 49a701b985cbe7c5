"""A small primary-key table for tests: made, read as a dictionary, and searched for files that nothing names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import bitlake
from bitlake.storage.local import LocalStore
from bitlake.table import live
from bitlake.table.index_files import clear_index_manifests, index_entries, index_path
from bitlake.table.partitions import PartitionReader
from bitlake.table.read import forget_footers
from bitlake.table.table import Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
DV = {"deletion-vectors.enabled": "true"}
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "0"}


def made(root: Path, **options: str) -> Table:
    given = {"bucket": "1", "primary-key": "id", **QUICK, **options}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, options=given)


def rows_of(ids: range | list[int], value: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": [value] * len(ids)}, schema=COLUMNS)


def forget() -> None:
    live.clear_caches()
    clear_index_manifests()
    forget_footers()


def read(table: Table, *, level_0: bool = False) -> dict[int, str]:
    forget()
    scan = table.scan().with_level_0() if level_0 else table.scan()
    found = scan.to_arrow()
    out = dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))
    assert len(out) == found.num_rows, "a key is there twice"
    return out


def strays(table: Table) -> set[str]:
    """Files that no snapshot names, temporary ones included."""
    forget()
    state, store = table.state(), LocalStore()
    paths, partitions = state.paths, PartitionReader(state.schema, state.paths)
    named = {paths.latest_hint, paths.earliest_hint, *(paths.schema(i) for i in range(9))}
    for number in live.snapshot_ids(store, paths):
        s = live.load_snapshot(store, paths, number)
        named.add(paths.snapshot(number))
        entries = live.read_snapshot_files(store, paths, s)
        for name in (s.base_manifest_list, s.delta_manifest_list, s.changelog_manifest_list):
            if name is None:
                continue
            named.add(paths.manifest(name))
            metas = live.read_manifest_list(store, paths, name)
            named |= {paths.manifest(m.file_name) for m in metas}
            if name == s.changelog_manifest_list:
                entries += [e for m in metas for e in live.read_manifest(store, paths, m.file_name)]
        if s.index_manifest is not None:
            named.add(paths.manifest(s.index_manifest))
        named |= {index_path(paths, state.schema, i) for i in index_entries(store, paths, s)}
        for e in entries:
            path = partitions.data_path(e)
            named |= {path, *(f"{path.rsplit('/', 1)[0]}/{x}" for x in e.file.extra_files)}
    return {str(p) for p in Path(table.path).rglob("*") if p.is_file()} - named
