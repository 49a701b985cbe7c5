"""What snapshots refer to: the files that must stay because something that is kept needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from bitlake.errors import NotFound
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.storage import Store
from bitlake.table.index_files import index_path, read_index_manifest
from bitlake.table.live import live_files, load_snapshot, read_manifest, read_manifest_list, snapshot_ids


def existing_snapshots(store: Store, paths: TablePaths, ids: Iterable[int]) -> Iterator[Snapshot]:
    """The snapshots of these ids that are still there."""
    for number in ids:
        with contextlib.suppress(NotFound):
            yield load_snapshot(store, paths, number)


def tag_names(store: Store, paths: TablePaths) -> list[str]:
    """The names of a table's (or branch's) tags."""
    return sorted(f.name.removeprefix("tag-") for f in store.list(paths.tag_dir) if f.name.startswith("tag-"))


def tag_snapshot(store: Store, paths: TablePaths, name: str) -> Snapshot:
    """The snapshot a tag holds; raises :class:`NotFound`, and :class:`CorruptError` if it cannot be read."""
    return Snapshot.from_json(store.read(paths.tag(name)), paths.tag(name))


def branch_names(store: Store, paths: TablePaths) -> list[str]:
    """The names of a table's branches, without main."""
    found = (f.name for f in store.list(f"{paths.root}/branch"))
    return sorted(n.removeprefix("branch-") for n in found if n.startswith("branch-"))


class Needed:
    """The files that protected snapshots need; data files by partition, bucket and name, others by name."""

    def __init__(self, store: Store, paths: TablePaths) -> None:
        self._store = store
        self._paths = paths
        self.names: set[str] = set()
        self._data: set[tuple[bytes, int, str]] = set()
        self._changelogs: set[str] = set()

    @staticmethod
    def beside(store: Store, paths: TablePaths, kept: Snapshot | None, without_tag: str | None = None) -> Needed:
        """What a table (or branch) needs besides its snapshots before ``kept``.

        That is ``kept`` (and with it what comes after), its tags, all but ``without_tag``, and whatever other branches
        have, main included.  A tag that cannot be read is an error: its files would go.
        """
        out = Needed(store, paths)
        if kept is not None:
            out.add(kept)
        for name in tag_names(store, paths):
            if name != without_tag:
                out.add(tag_snapshot(store, paths, name))
        for branch in [None, *branch_names(store, paths)]:
            if branch == paths.branch:
                continue
            other = TablePaths(paths.root, branch, paths.data_directory)
            for i, snapshot in enumerate(existing_snapshots(store, other, snapshot_ids(store, other))):
                out.add(snapshot, whole=i == 0)
            for name in tag_names(store, other):
                out.add(tag_snapshot(store, other, name))
        return out

    def add(self, snapshot: Snapshot, *, whole: bool = True) -> None:
        """Protect a snapshot; without ``whole``, one whose predecessor is protected: only what it added is new."""
        store, paths = self._store, self._paths
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        if snapshot.changelog_manifest_list is not None:
            self._changelogs.add(snapshot.changelog_manifest_list)
            lists.append(snapshot.changelog_manifest_list)
        for name in lists:
            self.names.add(name)
            self.names.update(m.file_name for m in read_manifest_list(store, paths, name))
        if snapshot.index_manifest is not None:
            self.names.add(snapshot.index_manifest)
            self.names.update(e.file_name for e in read_index_manifest(store, paths, snapshot.index_manifest))
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        files: Iterable[ManifestEntry]
        if whole:
            files = live_files(store, paths, snapshot)
        else:
            listed = listed_entries(store, paths, snapshot.delta_manifest_list)
            files = (e for e in listed if e.kind is EntryKind.ADD)
        self._data.update((e.partition, e.bucket, e.file.file_name) for e in files)

    def data_file(self, entry: ManifestEntry) -> bool:
        """Whether a data file is needed."""
        return (entry.partition, entry.bucket, entry.file.file_name) in self._data

    def changelog(self, manifest_list: str) -> bool:
        """Whether the files of a changelog manifest list are needed."""
        return manifest_list in self._changelogs


def removed_files(store: Store, paths: TablePaths, delta: str) -> list[ManifestEntry]:
    """The files that a snapshot's delta removed: not those it only moved to another level."""
    removed: dict[tuple[bytes, int, str], ManifestEntry] = {}
    added: set[tuple[bytes, int, str]] = set()
    for entry in listed_entries(store, paths, delta):
        key = (entry.partition, entry.bucket, entry.file.file_name)
        if entry.kind is EntryKind.DELETE:
            removed[key] = entry
        else:
            added.add(key)
    return [e for key, e in removed.items() if key not in added]


def listed_entries(store: Store, paths: TablePaths, manifest_list: str) -> Iterator[ManifestEntry]:
    """The entries of a list's manifests; what an earlier expiry that was killed deleted already is passed over."""
    with contextlib.suppress(NotFound):
        for meta in read_manifest_list(store, paths, manifest_list):
            with contextlib.suppress(NotFound):
                yield from read_manifest(store, paths, meta.file_name)


def metadata_files(
    store: Store, paths: TablePaths, schema: TableSchema, snapshot: Snapshot, needed: Needed
) -> Iterator[str]:
    """The manifests, lists, index files and statistics of a snapshot that nothing kept needs, as full paths."""
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
    for name in lists:
        if name is None:
            continue
        with contextlib.suppress(NotFound):
            for meta in read_manifest_list(store, paths, name):
                if meta.file_name not in needed.names:
                    yield paths.manifest(meta.file_name)
        if name not in needed.names:
            yield paths.manifest(name)
    if snapshot.index_manifest is not None:
        with contextlib.suppress(NotFound):
            for entry in read_index_manifest(store, paths, snapshot.index_manifest):
                if entry.file_name not in needed.names:
                    yield index_path(paths, schema, entry)
        if snapshot.index_manifest not in needed.names:
            yield paths.manifest(snapshot.index_manifest)
    if snapshot.statistics is not None and snapshot.statistics not in needed.names:
        yield paths.statistics(snapshot.statistics)
