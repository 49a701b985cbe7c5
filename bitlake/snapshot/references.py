"""References of snapshots to files: which files must stay because a kept snapshot, tag or branch needs them.

Data files may lie outside the table's folder (``data-file.external-paths``); references to them hold the full path.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bitlake.errors import BitlakeError, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot.manifests import (
    MANY_ENTRIES,
    PartitionFilter,
    index_entries,
    live_files,
    read_index_manifest,
    read_manifest,
    read_manifest_list,
)
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.table_files import TableFiles, delete_files
from bitlake.snapshot.versions import (
    branch_names,
    changelog_ids,
    changelog_path,
    latest_schema,
    latest_snapshot,
    load_schema,
    schema_ids,
    tag_names,
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A metadata file whose references must stay: a snapshot, hold, tag or changelog of main or of a branch."""

    line: TableFiles
    path: str
    snapshot_id: int | None = None
    """The snapshot's id; None for a hold, tag or changelog."""

    @property
    def partial(self) -> bool:
        """Whether some of its references may be missing: a changelog outlives the data of its snapshot."""
        return "/changelog/changelog-" in self.path

    def load(self) -> Snapshot:
        """Its snapshot; raises :class:`NotFound`, and :class:`CorruptError` if it cannot be read."""
        return Snapshot.from_json(self.line.store.read(self.path), self.path)

    def holds(self) -> bool:
        """Whether it still exists, and is not expiring."""
        if self.snapshot_id is not None and self.snapshot_id not in load_line(self.line).kept:
            return False
        return self.line.store.exists(self.path)


def holders(line: TableFiles) -> list[Holder]:
    """The holders of a line: its kept snapshots in their order, then holds of rollbacks, tags and changelogs."""
    snapshots = load_line(line)
    out = [Holder(line, line.paths.snapshot(i), i) for i in snapshots.kept]
    out += [Holder(line, f"{line.paths.snapshot_dir}/{name}") for name in snapshots.holds]
    out += [Holder(line, line.paths.tag(name)) for name in tag_names(line)]
    return out + [Holder(line, changelog_path(line, number)) for number in changelog_ids(line)]


def lines(table: TableFiles) -> list[TableFiles]:
    """The files of main and of each branch of a table."""
    return [table.on_branch(b) for b in (None, *branch_names(table))]


class Needed:
    """The files that protected snapshots need: data files by partition, bucket and name, others by name."""

    def __init__(self, table: TableFiles, only: PartitionFilter | None = None) -> None:
        """``only``: the partitions of which data files are asked for; None: all."""
        self._table = table
        self._only = only
        self.names: set[str] = set()
        self._data: set[tuple[bytes, int, str]] = set()
        self._changelogs: set[str] = set()

    @staticmethod
    def beside(table: TableFiles, kept: Snapshot | None, only: PartitionFilter | None = None) -> Needed:
        """The files that a table or branch needs besides those of its snapshots before ``kept``.

        They belong to ``kept`` and the snapshots after it, the tags, and all other branches, main included.  A tag that
        cannot be read is an error: its files would be deleted.  Tags and branches created meanwhile are included.
        ``only``: the partitions of which data files are asked for; entries of others are not read from large manifests.
        """
        out = Needed(table, only)
        if kept is not None:
            out.add(kept)
        # A rollback restores files that snapshots between these two had deleted.
        latest = latest_snapshot(table)
        if latest is not None and latest != kept:
            out.add(latest)
        seen: set[str] = set()
        while True:
            unseen = [out._unseen(line, seen) for line in lines(table)]
            if not any(unseen):
                return out
            for holders_of_line in unseen:
                out._protect(holders_of_line, seen)

    def _unseen(self, line: TableFiles, seen: set[str]) -> list[Holder]:
        """The holders of a line that were not ``seen`` yet; of a line seen before, later snapshots are not needed."""
        known = line.paths.branch == self._table.paths.branch or line.paths.snapshot_dir in seen
        new = [h for h in holders(line) if h.path not in seen and not (known and h.snapshot_id is not None)]
        seen.update(h.path for h in new)
        if any(h.snapshot_id is not None for h in new):
            seen.add(line.paths.snapshot_dir)
        return new

    def _protect(self, unseen: list[Holder], seen: set[str]) -> None:
        runner = LocalRunner(REQUESTS)
        snapshots = [h for h in unseen if h.snapshot_id is not None]
        # Each snapshot adds files to its predecessor; after one that was deleted meanwhile, the next is read whole.
        pending = [(h, i == 0) for i, h in enumerate(snapshots)]
        while pending:
            protected = runner.run(pending, lambda item: self._add_held(*item))
            deleted = [i for i, exists in enumerate(protected) if not exists]
            if deleted and deleted[-1] == len(pending) - 1:
                seen.discard(pending[-1][0].line.paths.snapshot_dir)  # by now a later snapshot exists
            pending = [(pending[i + 1][0], True) for i in deleted[-1:] if i + 1 < len(pending)]
        runner.run([h for h in unseen if h.snapshot_id is None], lambda holder: self._add_held(holder, True))

    def _add_held(self, holder: Holder, whole: bool) -> bool:
        """Protect the files of a holder; False if it was deleted meanwhile."""
        try:
            snapshot = holder.load()
            if holder.partial:
                self.add_changelog(snapshot)
            else:
                self.add(snapshot, whole=whole)
        except NotFound:
            if holder.holds():
                raise
            return False
        return True

    def add_changelog(self, snapshot: Snapshot) -> None:
        """Protect the existing files of a changelog that is kept longer than its snapshot."""
        own = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
        for name in filter(None, own):
            self.names.add(name)
            with contextlib.suppress(NotFound):
                self.names.update(m.file_name for m in read_manifest_list(self._table, name))
            if name != snapshot.base_manifest_list:
                self._add_data(listed_entries(self._table, name, self._partitions))
        if snapshot.changelog_manifest_list is not None:
            self._changelogs.add(snapshot.changelog_manifest_list)

    def add(self, snapshot: Snapshot, *, whole: bool = True) -> None:
        """Protect a snapshot; not ``whole``: its predecessor is protected, so that only its own additions are read."""
        table = self._table
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        if snapshot.changelog_manifest_list is not None:
            self._changelogs.add(snapshot.changelog_manifest_list)
            lists.append(snapshot.changelog_manifest_list)
        for name in lists:
            self.names.add(name)
            self.names.update(m.file_name for m in read_manifest_list(table, name))
        if snapshot.index_manifest is not None:
            self.names.add(snapshot.index_manifest)
            self.names.update(e.file_name for e in read_index_manifest(table, snapshot.index_manifest))
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        if self._partitions == frozenset():
            return
        if whole:
            self._add_data(live_files(table, snapshot, self._only))
        else:
            listed = listed_entries(table, snapshot.delta_manifest_list, self._partitions)
            self._add_data(e for e in listed if e.kind is EntryKind.ADD)

    @property
    def _partitions(self) -> frozenset[bytes] | None:
        return None if self._only is None else self._only.rows

    def _add_data(self, files: Iterable[ManifestEntry]) -> None:
        rows = self._partitions
        self._data.update(
            (e.partition, e.bucket, e.file.file_name) for e in files if rows is None or e.partition in rows
        )

    def data_file(self, entry: ManifestEntry) -> bool:
        """Whether a data file is needed."""
        return (entry.partition, entry.bucket, entry.file.file_name) in self._data

    def changelog(self, manifest_list: str) -> bool:
        """Whether the files of a changelog manifest list are needed."""
        return manifest_list in self._changelogs


def removed_files(table: TableFiles, delta: str) -> list[ManifestEntry]:
    """The files that a snapshot's delta removes, without those that it moves to another level.

    Manifests are read only if their list records that they remove files.
    """
    try:
        if not any(meta.num_deleted_files for meta in read_manifest_list(table, delta)):
            return []
    except NotFound:
        return []  # a killed expiry deleted it
    removed: dict[tuple[bytes, int, str], ManifestEntry] = {}
    added: set[tuple[bytes, int, str]] = set()
    for entry in listed_entries(table, delta):
        key = (entry.partition, entry.bucket, entry.file.file_name)
        if entry.kind is EntryKind.DELETE:
            removed[key] = entry
        else:
            added.add(key)
    return [e for key, e in removed.items() if key not in added]


def listed_entries(
    table: TableFiles, manifest_list: str, partitions: frozenset[bytes] | None = None
) -> Iterator[ManifestEntry]:
    """The entries of a list's manifests, with ``partitions`` at least theirs.

    Files that a killed expiry deleted are skipped.
    """
    with contextlib.suppress(NotFound):
        for meta in read_manifest_list(table, manifest_list):
            some = partitions if meta.entry_count >= MANY_ENTRIES else None
            with contextlib.suppress(NotFound):
                yield from read_manifest(table, meta.file_name, some, meta.entry_count)


def metadata_files(table: TableFiles, schema: TableSchema, snapshot: Snapshot, needed: Needed) -> Iterator[str]:
    """The full paths of a snapshot's manifests, lists, index files and statistics that are not ``needed``."""
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
    for name in lists:
        if name is None:
            continue
        with contextlib.suppress(NotFound):
            for meta in read_manifest_list(table, name):
                if meta.file_name not in needed.names:
                    yield table.paths.manifest(meta.file_name)
        if name not in needed.names:
            yield table.paths.manifest(name)
    if snapshot.index_manifest is not None:
        with contextlib.suppress(NotFound):
            for entry in read_index_manifest(table, snapshot.index_manifest):
                if entry.file_name not in needed.names:
                    yield index_path(table.paths, schema, entry)
        if snapshot.index_manifest not in needed.names:
            yield table.paths.manifest(snapshot.index_manifest)
    if snapshot.statistics is not None and snapshot.statistics not in needed.names:
        yield table.paths.statistics(snapshot.statistics)


log = logging.getLogger("bitlake")


def external_files(table: TableFiles) -> list[str]:
    """The data files in external paths that snapshots, tags and branches of a table refer to.

    Paimon deletes the whole external paths, with the files of others; here only the table's files are deleted.  Nothing
    is read of tables whose schemas have no external path.  Paths that are not allowed, and references of damaged
    metadata, are skipped with a warning: they do not prevent dropping the table.
    """
    files: dict[str, None] = {}
    seen: set[str] = set()
    for line in lines(table):
        try:
            try:
                if not _has_external_paths(line):
                    continue
            except NotFound:
                continue  # a branch whose schemas another process has deleted
            schema = latest_schema(line)
            assert schema is not None
            reader = PartitionReader(schema, line.paths)
            for snapshot in _snapshots(line):
                for entry in _entries(line, snapshot, seen):
                    files |= dict.fromkeys(reader.file_paths(entry))
                for index in index_entries(line, snapshot):
                    if index.external_path is not None:
                        files[index_path(line.paths, schema, index)] = None
        except BitlakeError as e:
            log.warning("table %s: files in external paths are not deleted: %s", table.paths.root, e)
    return list(files)


def delete_external(table: TableFiles, files: list[str]) -> None:
    """Delete the files that :func:`external_files` found before the table was dropped."""
    if files:
        delete_files(table.store, files, LocalRunner(REQUESTS), table.paths.roots)


def _has_external_paths(line: TableFiles) -> bool:
    return any(opt.EXTERNAL_PATHS.name in load_schema(line, i).options for i in schema_ids(line))


def _snapshots(line: TableFiles) -> Iterator[Snapshot]:
    folders = {
        line.paths.snapshot_dir: "snapshot-",
        line.paths.tag_dir: "tag-",
        f"{line.paths.branch_root}/changelog": "changelog-",
    }
    for folder, prefix in folders.items():
        files = (f.name for f in line.store.list(folder) if not f.is_dir)
        for path in (f"{folder}/{name}" for name in files if name.startswith(prefix)):
            yield Snapshot.from_json(line.store.read(path), path)


def _entries(line: TableFiles, snapshot: Snapshot, seen: set[str]) -> Iterator[ManifestEntry]:
    """The entries with an external path in manifest lists that were not ``seen`` yet."""
    for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list):
        if name is not None and name not in seen:
            seen.add(name)
            yield from (e for e in listed_entries(line, name) if e.file.external_path is not None)
