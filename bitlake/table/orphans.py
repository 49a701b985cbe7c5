"""Files of a table that nothing refers to: what killed writers, branches and rollbacks left behind.

What is looked at, of every line of snapshots (main and all branches): data files and what is beside them in bucket
folders, manifests and lists, table index and statistics files, Spark's staging folder, temporary files of metadata.
Anything else in the table's folder is somebody's who is not a writer, and stays.

A file is an orphan if it is older than a given time and no snapshot, tag or changelog names it, be it as added or as
deleted.  Files are listed *before* snapshots are read, so one that was committed meanwhile is not taken for an orphan;
a writer under way has files that nothing names yet, which only their age protects.  If a snapshot that is there cannot
be read whole, nothing is deleted: what it names would be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bitlake.errors import NotFound
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.snapshot import Snapshot
from bitlake.storage import Store
from bitlake.table.index_files import read_index_manifest
from bitlake.table.live import load_snapshot, read_manifest, read_manifest_list, snapshot_ids
from bitlake.table.references import branch_names, tag_names, tag_snapshot
from bitlake.table.state import TableState

STAGING = ".staging"
"""The folder of a table in which writers gather files that are moved into place."""
_OWN = frozenset({"schema", "snapshot", "tag", "branch", "consumer", "changelog", "manifest", "index", "statistics"})
_METADATA = re.compile(r"^(manifest|manifest-list|index-manifest|index|stat)-|^\..*\.tmp$")
_TEMPORARY = re.compile(r"^\..*\.tmp$")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing names: its full path and size in bytes."""

    path: str
    size: int


def find_orphans(state: TableState, older_than_ms: int) -> list[Orphan]:
    """The table's orphans last changed before a time (ms since the epoch).

    Raises :class:`NotFound` or :class:`CorruptError` if something that a snapshot names cannot be read.
    """
    store, root = state.store, state.paths.root
    candidates = [c for c in _candidates(store, root) if c[2] < older_than_ms]
    if not candidates:
        return []
    named = _named(state)
    return [Orphan(path, size) for path, size, _ in candidates if _name(path) not in named]


def _name(path: str) -> str:
    return path.rsplit("/", 1)[1]


def _candidates(store: Store, root: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of every file that may be one."""
    for kind in ("manifest", "index", "statistics"):
        yield from _files(store, f"{root}/{kind}", _METADATA)
    main = TablePaths(root)
    for branch in (None, *branch_names(store, main)):
        paths = TablePaths(root, branch)
        for folder in (paths.schema_dir, paths.snapshot_dir, paths.tag_dir, f"{paths.branch_root}/consumer"):
            yield from _files(store, folder, _TEMPORARY)
    yield from _below(store, f"{root}/{STAGING}")
    folders = [f"{root}/{f.name}" for f in store.list(root) if f.is_dir and f.name not in _OWN and f.name != STAGING]
    while folders:
        folder = folders.pop()
        if _name(folder).startswith("bucket-"):
            yield from _files(store, folder, None)
        else:
            folders += [f"{folder}/{f.name}" for f in store.list(folder) if f.is_dir]


def _files(store: Store, folder: str, wanted: re.Pattern[str] | None) -> Iterator[tuple[str, int, int]]:
    for f in store.list(folder):
        if not f.is_dir and (wanted is None or wanted.match(f.name)):
            yield f"{folder}/{f.name}", f.size, f.mtime_ms


def _below(store: Store, folder: str) -> Iterator[tuple[str, int, int]]:
    for f in store.list(folder):
        if f.is_dir:
            yield from _below(store, f"{folder}/{f.name}")
        else:
            yield f"{folder}/{f.name}", f.size, f.mtime_ms


# --- what is named ----------------------------------------------------------------------------------------------------


def _named(state: TableState) -> set[str]:
    """The bare names of all files that any snapshot or tag of any branch names (they hold a UUID each)."""
    store = state.store
    names: set[str] = set()
    read: set[str] = set()
    for branch in (None, *branch_names(store, state.paths)):
        paths = TablePaths(state.paths.root, branch)
        for number in snapshot_ids(store, paths):
            try:
                _add(store, paths, load_snapshot(store, paths, number), names, read)
            except NotFound:
                if store.exists(paths.snapshot(number)):
                    raise  # else it expired meanwhile, as it may
        for tag in tag_names(store, paths):
            try:
                _add(store, paths, tag_snapshot(store, paths, tag), names, read)
            except NotFound:
                if store.exists(paths.tag(tag)):
                    raise
    return names


def _add(store: Store, paths: TablePaths, snapshot: Snapshot, names: set[str], read: set[str]) -> None:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
    for name in lists:
        if name is None or name in read:
            continue
        names.add(name)
        for meta in read_manifest_list(store, paths, name):
            names.add(meta.file_name)
            if meta.file_name in read:
                continue
            for entry in read_manifest(store, paths, meta.file_name):
                names.add(entry.file.file_name)
                names.update(entry.file.extra_files)
            read.add(meta.file_name)
        read.add(name)
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
        names.update(e.file_name for e in read_index_manifest(store, paths, snapshot.index_manifest))
    if snapshot.statistics is not None:
        names.add(snapshot.statistics)
