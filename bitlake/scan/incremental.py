"""Incremental reads: the files that hold the changes between two snapshots, for each of Paimon's modes.

* ``delta``: the files that APPEND snapshots after the first up to the second added; rows of one key in them
  are merged.  COMPACT and OVERWRITE snapshots add nothing.
* ``changelog``: the changelog files of these snapshots except OVERWRITE, row by row.
* ``diff``: both snapshots compared, key by key; for append tables the rows of files that only the second one has.
* ``auto``: ``changelog`` for tables that write one, else ``delta``; ``diff`` between tags.

Source: the observed behaviour of Paimon's readers (``incremental-between``, ``incremental-between-scan-mode``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import InvalidRequest, NotFound, reading_table
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.manifests import LiveFiles, PartitionFilter, read_manifest_list, read_manifests
from bitlake.snapshot.rollback import are_unused
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import existing_snapshots, kept_words, load_schema, load_snapshot, snapshot_ids

MODES = ("auto", "delta", "changelog", "diff")


@dataclass(frozen=True, slots=True)
class FilesState(TableState):
    """The state of a table that consists of given files, whatever its snapshot holds."""

    files: tuple[ManifestEntry, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Always False."""
        return False

    def entries(self, partitions: PartitionFilter | None = None) -> LiveFiles:
        """These files, whatever their partitions."""
        return LiveFiles(self.files)

    def schemas(self, ids: Iterable[int]) -> Mapping[int, TableSchema]:
        """The schemas that files were written with, as stored; :attr:`schema` may have other keys and options."""
        with reading_table(self.name, ": data files were written with it; put it back from a copy of the table"):
            return {i: load_schema(TableFiles(self.store, self.paths), i) for i in ids}


def of_files(state: TableState, files: Sequence[ManifestEntry], *, merged: bool) -> FilesState:
    """The state of these files alone, with level 0; not ``merged``: row by row, even with a primary key."""
    schema = state.schema
    options = {**schema.options, opt.DV_ENABLED.name: "false"}
    keys = schema.primary_keys if merged else ()
    schema = replace(schema, options=options, primary_keys=keys)
    return FilesState(state.name, state.paths, state.store, schema, state.snapshot, tuple(files))


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots after ``start`` up to ``end``; ``start`` 0: from the first snapshot on.

    ``tags`` are the two snapshots, if both were given as tags.
    """

    start: int
    end: int
    tags: tuple[Snapshot, Snapshot] | None = None


def mode_of(state: TableState, between: SnapshotRange, mode: str) -> str:
    """Resolve ``auto`` to ``delta``, ``changelog`` or ``diff``; raises :class:`InvalidRequest` for unknown modes."""
    if mode not in MODES:
        raise InvalidRequest(f"table '{state.name}': unknown incremental mode '{mode}'; expected {', '.join(MODES)}")
    if mode != "auto":
        return mode
    if between.tags is not None:
        return "diff"
    return "delta" if state.schema.opts.of(opt.CHANGELOG_PRODUCER) == "none" else "changelog"


def changed_files(state: TableState, between: SnapshotRange, mode: str) -> list[ManifestEntry]:
    """The files of a range of snapshots, by ``delta`` or ``changelog``.

    Raises :class:`NotFound` for snapshots that have expired, naming those that are kept.
    """
    ids = check_range(state, between)
    metas: list[ManifestFileMeta] = []
    for number in _ids_between(state, between, ids):
        try:
            snapshot = load_snapshot(state.table_files, number)
        except NotFound as e:
            raise NotFound(f"table '{state.name}': snapshot {number} expired meanwhile; read again") from e
        name: str | None = None
        if mode == "delta" and snapshot.commit_kind == "APPEND":
            name = snapshot.delta_manifest_list
        elif mode == "changelog" and snapshot.commit_kind != "OVERWRITE":
            name = snapshot.changelog_manifest_list
        if name is not None:
            with reading_table(state.name):
                metas += read_manifest_list(state.table_files, name)
    with reading_table(state.name):
        manifests = read_manifests(state.table_files, metas)
    return [e for entries in manifests for e in entries if e.kind is EntryKind.ADD]


def _ids_between(state: TableState, between: SnapshotRange, ids: Sequence[int]) -> list[int]:
    """The snapshots of ``ids`` after one up to another; raises :class:`NotFound` if one is missing."""
    expected = between.start + 1
    if expected > between.end:
        return []
    for number in (i for i in ids if i > between.start):
        if number != expected and not any(
            are_unused(s, expected) for s in existing_snapshots(state.table_files, [number])
        ):
            break
        expected = number + 1
        if expected > between.end:
            return [i for i in ids if between.start < i <= between.end]
    raise NotFound(f"table '{state.name}': snapshot {expected} is missing, or expired meanwhile; read again")


def check_range(state: TableState, between: SnapshotRange) -> list[int]:
    """The ids of all snapshots.

    Raises :class:`NotFound` if snapshots of the range have expired, :class:`InvalidRequest` if it ends before it
    starts.
    """
    if between.end < between.start:
        raise InvalidRequest(
            f"table '{state.name}': changes run from an earlier moment to a later one, and snapshot {between.end} "
            f"comes before {between.start}"
        )
    ids = snapshot_ids(state.table_files)
    if not ids or between.start < ids[0] - 1 or between.end > ids[-1]:
        raise NotFound(
            f"table '{state.name}': cannot compute changes between snapshots {between.start} and {between.end}: "
            f"{kept_words(ids)}"
        )
    return ids


Buckets = dict[tuple[bytes, int], list[ManifestEntry]]


def differing_files(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> tuple[list[ManifestEntry], ...]:
    """The files of buckets that differ: those before, and those after.

    Files that only changed their level count as changed, for merging goes by level.
    """
    old, new = _by_bucket(before), _by_bucket(after)
    changed = [k for k in {**old, **new} if _names(old.get(k, ())) != _names(new.get(k, ()))]
    return [e for k in changed for e in old.get(k, ())], [e for k in changed for e in new.get(k, ())]


def new_files(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The files that only the second one has."""
    old = {(e.partition, e.bucket, e.file.file_name) for e in before}
    return [e for e in after if (e.partition, e.bucket, e.file.file_name) not in old]


def _by_bucket(files: Iterable[ManifestEntry]) -> Buckets:
    out: Buckets = {}
    for entry in files:
        out.setdefault((entry.partition, entry.bucket), []).append(entry)
    return out


def _names(files: Iterable[ManifestEntry]) -> set[tuple[str, int]]:
    return {(e.file.file_name, e.file.level) for e in files}
