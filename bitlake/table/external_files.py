"""The files of a table in external paths, which go with the table when it is dropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from bitlake.deletion import delete_files
from bitlake.errors import BitlakeError, NotFound
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.table.index_entries import index_entries, index_path
from bitlake.table.partitions import PartitionReader
from bitlake.table.references import lines, listed_entries
from bitlake.table.versions import latest_schema, load_schema, schema_ids

log = logging.getLogger("bitlake")


def external_files(store: Store, paths: TablePaths) -> list[str]:
    """The data files in external paths that snapshots, tags and branches of a table name.

    Paimon deletes the whole external paths, and with them what others have there; here files are deleted by name.
    Nothing is read of tables whose schemas name no external path.  What is not allowed, and what damaged metadata
    names, is left with a warning: it does not keep a table from being dropped.
    """
    found: dict[str, None] = {}
    seen: set[str] = set()
    for line in lines(store, paths):
        try:
            try:
                if not _has_external_paths(store, line):
                    continue
            except NotFound:
                continue  # a branch whose schemas another process has deleted
            schema = latest_schema(store, line)
            assert schema is not None
            reader = PartitionReader(schema, line)
            for snapshot in _snapshots(store, line):
                for entry in _entries(store, line, snapshot, seen):
                    found |= dict.fromkeys(reader.file_paths(entry))
                for index in index_entries(store, line, snapshot):
                    if index.external_path is not None:
                        found[index_path(line, schema, index)] = None
        except BitlakeError as e:
            log.warning("table %s: files in external paths are not deleted: %s", paths.root, e)
    return list(found)


def delete_external(store: Store, paths: TablePaths, files: list[str]) -> None:
    """Delete what :func:`external_files` found before the table went."""
    if files:
        delete_files(store, files, LocalRunner(REQUESTS), paths.roots)


def _has_external_paths(store: Store, line: TablePaths) -> bool:
    return any(opt.EXTERNAL_PATHS.name in load_schema(store, line, i).options for i in schema_ids(store, line))


def _snapshots(store: Store, line: TablePaths) -> Iterator[Snapshot]:
    folders = {line.snapshot_dir: "snapshot-", line.tag_dir: "tag-", f"{line.branch_root}/changelog": "changelog-"}
    for folder, prefix in folders.items():
        for path in (f"{folder}/{name}" for name in store.names(folder) if name.startswith(prefix)):
            yield Snapshot.from_json(store.read(path), path)


def _entries(store: Store, line: TablePaths, snapshot: Snapshot, seen: set[str]) -> Iterator[ManifestEntry]:
    """The entries with an external path, of lists that were not ``seen`` yet."""
    for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list):
        if name is not None and name not in seen:
            seen.add(name)
            yield from (e for e in listed_entries(store, line, name) if e.file.external_path is not None)
