"""What changed between two moments of a table: which files say so, for each of Paimon's ways to read it.

* ``delta``: the files that APPEND snapshots added after the first moment up to the second; rows of one key in them are
  merged.  COMPACT and OVERWRITE snapshots add nothing.
* ``changelog``: the changelog files of these snapshots (OVERWRITE ones left out), row by row as they are.
* ``diff``: both moments compared, key by key; of append tables the rows of files that only the second one has.
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
    """A table of just these files, whatever its snapshot has."""

    files: tuple[ManifestEntry, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Always False."""
        return False

    def entries(self, partitions: PartitionFilter | None = None) -> LiveFiles:
        """These files, whatever their partitions."""
        return LiveFiles(self.files)

    def schemas(self, ids: Iterable[int]) -> Mapping[int, TableSchema]:
        """The schemas that files were written with, as they are stored: :attr:`schema` may be another reading."""
        with reading_table(self.name, ": data files were written with it; put it back from a copy of the table"):
            return {i: load_schema(TableFiles(self.store, self.paths), i) for i in ids}


def of_files(state: TableState, files: Sequence[ManifestEntry], *, merged: bool) -> FilesState:
    """A state of these files alone, level 0 too; not ``merged``: row by row, even where there is a primary key."""
    schema = state.schema
    options = {**schema.options, opt.DV_ENABLED.name: "false"}
    keys = schema.primary_keys if merged else ()
    schema = replace(schema, options=options, primary_keys=keys)
    return FilesState(state.name, state.paths, state.store, schema, state.snapshot, tuple(files))


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """Two moments: what was committed after ``start`` up to ``end``.  ``start`` 0: from the first snapshot on.

    ``tags``: both were given as tags.
    """

    start: int
    end: int
    tags: tuple[Snapshot, Snapshot] | None = None


def mode_of(state: TableState, between: SnapshotRange, mode: str) -> str:
    """``delta``, ``changelog`` or ``diff`` for what was asked; raises :class:`InvalidRequest` for other words."""
    if mode not in MODES:
        raise InvalidRequest(f"table '{state.name}': '{mode}' is no incremental mode; there are {', '.join(MODES)}")
    if mode != "auto":
        return mode
    if between.tags is not None:
        return "diff"
    return "delta" if state.schema.opts.of(opt.CHANGELOG_PRODUCER) == "none" else "changelog"


def changed_files(state: TableState, between: SnapshotRange, mode: str) -> list[ManifestEntry]:
    """The files of the snapshots between two moments, by ``delta`` or ``changelog``.

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
    """All snapshots; raises :class:`NotFound` unless those between are kept, :class:`InvalidRequest` for a range
    backwards.
    """
    if between.end < between.start:
        raise InvalidRequest(
            f"table '{state.name}': changes run from an earlier moment to a later one, and snapshot {between.end} "
            f"comes before {between.start}"
        )
    ids = snapshot_ids(state.table_files)
    if not ids or between.start < ids[0] - 1 or between.end > ids[-1]:
        raise NotFound(
            f"table '{state.name}' cannot tell what changed between snapshots {between.start} and {between.end}: "
            f"{kept_words(ids)}"
        )
    return ids


Buckets = dict[tuple[bytes, int], list[ManifestEntry]]


def differing_files(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> tuple[list[ManifestEntry], ...]:
    """The files of buckets that are not the same in both: those before, and those after.

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
