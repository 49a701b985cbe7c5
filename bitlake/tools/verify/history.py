"""Verify the history: the live files of each snapshot, and whether snapshots are consistent with each other.

Snapshot by snapshot the live files are carried on by the delta, as writers did, and compared with what the snapshot's
own base list says where that is not just the lists before.  So a table of many snapshots costs their deltas, not their
files times their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError
from bitlake.merge.interval_partition import comparable_key
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import EntryKind, Identity, ManifestEntry, ManifestFileMeta, Slot
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.fast_forward import is_switch
from bitlake.snapshot.manifests import rolled_back_to
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.removal_markers import BASE, name_of
from bitlake.tools.verify.findings import Book, Finding
from bitlake.tools.verify.metadata import Line, Moment

_PROBLEMS = {
    "file-added-twice": "added twice",
    "file-added-again": "added after it was deleted",
    "file-deleted-unknown": "deleted, and not there,",
}
"""A bucket: (partition, bucket)."""


@dataclass(slots=True)
class Known:
    """The manifests of a table that could be read, by name."""

    lists: Mapping[str, tuple[ManifestFileMeta, ...]]
    manifests: Mapping[str, tuple[ManifestEntry, ...]]
    indexes: Mapping[str, tuple[IndexFileEntry, ...]]

    def readable(self, name: str) -> bool:
        """Whether a manifest list and all its manifests can be read."""
        metas = self.lists.get(name)
        return metas is not None and all(m.file_name in self.manifests for m in metas)

    def entries(self, name: str) -> list[ManifestEntry]:
        """All entries of a readable manifest list."""
        return [e for m in self.lists[name] for e in self.manifests[m.file_name]]


@dataclass(slots=True)
class Files:
    """The files that snapshots need, each with its distinct entries and the moments that it was seen at."""

    data: dict[Slot, dict[str, dict[ManifestEntry, list[str]]]] = field(default_factory=dict)
    changelogs: dict[Slot, dict[str, dict[ManifestEntry, list[str]]]] = field(default_factory=dict)
    indexes: dict[IndexFileEntry, list[str]] = field(default_factory=dict)
    hashed: dict[Slot, dict[str, set[str]]] = field(default_factory=dict)
    """By bucket and HASH file the data files that it must have all keys of."""

    last: tuple[Moment, LiveSet] | None = None
    """The latest snapshot and its live files, if they are known."""

    def need(self, kind: str, entries: Iterable[ManifestEntry], moment: str) -> None:
        """Note that a moment needs these data files."""
        into = self.data if kind == "data" else self.changelogs
        for e in entries:
            slot = into.setdefault((e.partition, e.bucket), {})
            slot.setdefault(e.file.file_name, {}).setdefault(e, []).append(moment)


class LiveSet:
    """The live files of one moment, by bucket."""

    def __init__(self) -> None:
        self.buckets: dict[Slot, dict[Identity, ManifestEntry]] = {}
        self.deleted: set[Identity] = set()
        self.rows = 0
        self.problems: list[tuple[str, ManifestEntry]] = []
        """Violations of the last change: a code, and the entry."""

    def apply(self, entries: Sequence[ManifestEntry]) -> set[Slot]:
        """Carry on by the entries of manifests, whose order does not count; returns the buckets that changed."""
        self.problems = []
        deletes = [e for e in entries if e.kind is EntryKind.DELETE]
        new = [e for e in entries if e.kind is EntryKind.ADD]
        for e in new:
            key, bucket = e.identity, self.buckets.setdefault((e.partition, e.bucket), {})
            if key in bucket:
                self.problems.append(("file-added-twice", e))
            elif key in self.deleted:
                self.problems.append(("file-added-again", e))
            else:
                bucket[key] = e
                self.rows += e.file.row_count
        for e in deletes:
            key, bucket = e.identity, self.buckets.get((e.partition, e.bucket), {})
            if key not in bucket:
                self.problems.append(("file-deleted-unknown", e))
                continue
            self.rows -= bucket.pop(key).file.row_count
        self.deleted.update(e.identity for e in deletes)
        return {(e.partition, e.bucket) for e in entries}

    def entries(self) -> Iterator[ManifestEntry]:
        """All live files."""
        for bucket in self.buckets.values():
            yield from bucket.values()

    def identities(self) -> set[Identity]:
        """Return the identities of the live files."""
        return {key for bucket in self.buckets.values() for key in bucket}


class HistoryCheck:
    """Goes through the moments of a line in order."""

    def __init__(self, line: Line, known: Known, files: Files, book: Book) -> None:
        self._line = line
        self._known = known
        self._files = files
        self._book = book
        self._live: LiveSet | None = None
        self._last: Moment | None = None
        self._index: str | None = None
        self._marked: dict[str, int | None] = {}
        """The cardinalities of the last snapshot's deletion vectors, by data file."""
        self._hashes: dict[Slot, str] = {}
        self._partitions = None if line.latest is None else PartitionReader(line.latest, line.paths)

    def run(self) -> None:
        """Check snapshots in their order, then tags."""
        for moment in self._line.moments:
            if not moment.is_snapshot:
                self._end()
            self._moment(moment)
        self._end()
        for moment in self._line.changelogs:
            self._changelog(moment)

    def _end(self) -> None:
        """Note that the last snapshot needs all of its live files, not only those that it added."""
        if self._live is not None and self._last is not None:
            self._files.need("data", self._live.entries(), self._last.name)
            if self._last.is_snapshot:
                self._files.last = self._last, self._live
        self._live = self._last = None

    def _note(self, finding: Finding, moment: Moment) -> None:
        self._book.add(finding, moment.name)

    def _moment(self, moment: Moment) -> None:
        snapshot = moment.snapshot
        schema = self._line.schemas.get(snapshot.schema_id)
        if schema is None and snapshot.schema_id not in self._line.unreadable:
            what = "the file is not there, and a snapshot was made with it"
            self._note(Finding("schema-missing", self._line.paths.schema(snapshot.schema_id), what), moment)
        if moment.own_changelog and moment.is_snapshot:
            self._changelog(moment)
        if not self._known.readable(snapshot.delta_manifest_list):
            self._live = self._last = None
            return
        delta = self._known.entries(snapshot.delta_manifest_list)
        self._delta_count(moment, delta)
        if not self._known.readable(snapshot.base_manifest_list):
            self._live = self._last = None
            return
        known = self._continued(moment)
        live, fresh = (known, False) if known is not None else (self._from_base(moment), True)
        touched = live.apply(delta)
        self._problems(moment, live)
        if fresh:
            touched = set(live.buckets)
        self._judge(moment, live, touched, schema)
        added = live.entries() if fresh else (e for e in delta if e.kind is EntryKind.ADD)
        self._files.need("data", added, moment.name)
        self._live, self._last = live, moment

    def _continued(self, moment: Moment) -> LiveSet | None:
        """The live files before this snapshot's delta, if the snapshot before is known."""
        live, last = self._live, self._last
        if live is None or last is None or not self._follows(last, moment):
            return None
        lists = self._known.lists
        names = [m.file_name for m in lists[moment.snapshot.base_manifest_list]]
        before = [
            m.file_name for n in (last.snapshot.base_manifest_list, last.snapshot.delta_manifest_list) for m in lists[n]
        ]
        if names == before:
            return live
        # Manifests were merged: the files must be the same ones, and what was deleted long ago is forgotten.
        merged = self._from_base(moment)
        ours, theirs = live.identities(), merged.identities()
        if ours != theirs:
            path = self._line.paths.manifest(moment.snapshot.base_manifest_list)
            lost, extra = len(ours - theirs), len(theirs - ours)
            what = f"of the files of snapshot {last.snapshot.id} it lacks {lost:,}, and it has {extra:,} others"
            self._note(Finding("base-differs", path, what), moment)
        return merged

    def _follows(self, last: Moment, moment: Moment) -> bool:
        """Whether a snapshot begins with what the one before ended with.

        A rollback's or fast-forward's has the files of another one, and so has the snapshot before one that a killed
        rollback left.  While a fast-forward is unfinished main has snapshots of two histories.
        """
        snapshot = moment.snapshot
        if last.snapshot.id + 1 != snapshot.id or self._line.forwarding:
            return False
        if rolled_back_to(last.snapshot) is not None and snapshot.properties.get(BASE) != name_of(last.snapshot):
            return False
        return rolled_back_to(snapshot) is None and not is_switch(snapshot)

    def _from_base(self, moment: Moment) -> LiveSet:
        live = LiveSet()
        live.apply(self._known.entries(moment.snapshot.base_manifest_list))
        self._problems(moment, live)
        return live

    def _problems(self, moment: Moment, live: LiveSet) -> None:
        for code, entry in live.problems:
            what = f"{_PROBLEMS[code]} at level {entry.file.level} of bucket {entry.bucket}"
            self._note(Finding(code, self.path(entry), what), moment)

    def path(self, entry: ManifestEntry) -> str:
        """The path of a data file, as far as it can be formed."""
        try:
            return entry.file.file_name if self._partitions is None else self._partitions.data_path(entry)
        except BitlakeError:
            return entry.file.file_name

    # --- counts -------------------------------------------------------------------------------------------------------

    def _delta_count(self, moment: Moment, delta: Sequence[ManifestEntry]) -> None:
        rows = sum(e.file.row_count if e.kind is EntryKind.ADD else -e.file.row_count for e in delta)
        recorded = moment.snapshot.delta_record_count
        if rows != recorded:
            what = f"deltaRecordCount is {recorded:,}, and its files add {rows:,} rows"
            self._note(Finding("snapshot-count-wrong", moment.path, what), moment)

    def _changelog(self, moment: Moment) -> None:
        name = moment.snapshot.changelog_manifest_list
        if name is None or not self._known.readable(name):
            return
        entries = self._known.entries(name)
        rows, recorded = sum(e.file.row_count for e in entries), moment.snapshot.changelog_record_count
        if recorded is not None and rows != recorded:
            what = f"changelogRecordCount is {recorded:,}, and its changelog files have {rows:,} rows"
            self._note(Finding("snapshot-count-wrong", moment.path, what), moment)
        self._files.need("changelog", entries, moment.name)

    # --- one moment ---------------------------------------------------------------------------------------------------

    def _judge(self, moment: Moment, live: LiveSet, touched: set[Slot], schema: TableSchema | None) -> None:
        recorded = moment.snapshot.total_record_count
        if live.rows != recorded:
            what = f"totalRecordCount is {recorded:,}, and its files have {live.rows:,} rows"
            self._note(Finding("snapshot-count-wrong", moment.path, what), moment)
        if schema is None:
            return
        for slot in touched:
            self._bucket(moment, list(live.buckets.get(slot, {}).values()), schema)
        self._bucket_counts(moment, live, {partition for partition, _ in touched})
        self._indexes(moment, live, touched, schema)

    def _bucket(self, moment: Moment, files: Sequence[ManifestEntry], schema: TableSchema) -> None:
        levels: dict[int, list[ManifestEntry]] = {}
        for e in files:
            levels.setdefault(e.file.level, []).append(e)
            if e.file.level < 0 or (e.file.level > 0 and not schema.primary_keys):
                what = f"it is said to be at level {e.file.level}"
                self._note(Finding("level-wrong", self.path(e), what), moment)
            total = e.total_buckets
            if (total > 0 and not 0 <= e.bucket < total) or (total == -1 and not schema.primary_keys and e.bucket != 0):
                what = (
                    f"it is said to be in bucket {e.bucket} of {total}"
                    if total > 0
                    else f"it is in bucket {e.bucket}, and there is only 0"
                )
                self._note(Finding("bucket-wrong", self.path(e), what), moment)
        for level, run in levels.items():
            if level > 0 and len(run) > 1 and schema.primary_keys:
                self._overlaps(moment, level, run, schema)

    def _overlaps(self, moment: Moment, level: int, run: Sequence[ManifestEntry], schema: TableSchema) -> None:
        types = [schema.field(k).type for k in schema.trimmed_primary_keys]
        ranged = []
        for e in run:
            try:
                low, high = (comparable_key(decode_row(types, k)) for k in (e.file.min_key, e.file.max_key))
            except BitlakeError:
                continue  # told by the data file itself
            ranged.append((low, high, e.file.file_name, e))
        for (_, last, _, one), (first, _, _, other) in pairwise(sorted(ranged, key=lambda r: r[:3])):
            if first <= last:
                what = f"at level {level} it has keys in common with {other.file.file_name}"
                self._note(Finding("levels-overlap", self.path(one), what), moment)

    def _bucket_counts(self, moment: Moment, live: LiveSet, partitions: set[bytes]) -> None:
        seen: dict[bytes, ManifestEntry] = {}
        for (partition, _), files in live.buckets.items():
            if partition not in partitions:
                continue
            for e in files.values():
                first = seen.setdefault(partition, e) if e.total_buckets > 0 else e
                if first.total_buckets != e.total_buckets:
                    what = f"it is of {e.total_buckets} buckets, and {first.file.file_name} of {first.total_buckets}"
                    self._note(Finding("bucket-count-mixed", self.path(e), what), moment)
                    break

    # --- table indexes ------------------------------------------------------------------------------------------------

    def _indexes(self, moment: Moment, live: LiveSet, touched: set[Slot], schema: TableSchema) -> None:
        name = moment.snapshot.index_manifest
        entries = () if name is None else self._known.indexes.get(name)
        before, self._marked = self._marked, {}
        if entries is None:
            return
        self._marked = {r.data_file: r.cardinality for e in entries for r in e.ranges or ()}
        if self._last is not None and self._follows(self._last, moment):
            self._lost_vectors(moment, live, before)
        for entry in entries:
            self._files.indexes.setdefault(entry, []).append(moment.name)
        if schema.opts.of(opt.DV_ENABLED):
            self._vectors(moment, live, entries)
        else:
            self._ignored_vectors(moment, live, entries)
        if schema.primary_keys and schema.num_buckets == -1 and set(schema.partition_keys) <= set(schema.primary_keys):
            self._hash_files(moment, live, touched, entries)

    def _vectors(self, moment: Moment, live: LiveSet, entries: Sequence[IndexFileEntry]) -> None:
        vectors = [e for e in entries if e.index_type == DELETION_VECTORS and e.ranges]
        if not vectors:
            return
        places = {e.file.file_name: slot for slot, files in live.buckets.items() for e in files.values()}
        seen: dict[str, str] = {}
        for entry in vectors:
            path = self._line.paths.index(entry.file_name)
            for place in entry.ranges or ():
                slot = places.get(place.data_file)
                if slot is None:
                    what = f"it has a vector of {place.data_file}, which is not among the files of {moment.name}"
                    self._note(Finding("vector-of-absent-file", path, what, offset=place.offset), moment)
                elif slot != (entry.partition, entry.bucket):
                    told = f"listed under bucket {entry.bucket}, the file is in bucket {slot[1]}"
                    what = f"the vector of {place.data_file} is {told}"
                    self._note(Finding("vector-misplaced", path, what, offset=place.offset), moment)
                other = seen.setdefault(place.data_file, entry.file_name)
                if other != entry.file_name:
                    what = f"{place.data_file} has a vector here and in {other}"
                    self._note(Finding("vector-twice", path, what, offset=place.offset), moment)

    def _lost_vectors(self, moment: Moment, live: LiveSet, before: Mapping[str, int | None]) -> None:
        """Vectors that the snapshot before had, of files that are still live: a vector only grows."""
        if not before:
            return
        for entry in live.entries():
            name = entry.file.file_name
            if name not in before:
                continue
            old, new = before[name], self._marked.get(name)
            if name not in self._marked or (old is not None and new is not None and new < old):
                deleted = "some" if old is None else f"{old:,}"
                left = "none" if name not in self._marked else f"{new:,}"
                what = f"{name} had a vector of {deleted} deleted rows in the snapshot before, and now of {left}"
                self._note(Finding("vector-lost", moment.path, what), moment)

    def _ignored_vectors(self, moment: Moment, live: LiveSet, entries: Sequence[IndexFileEntry]) -> None:
        """Vectors of live files that no reader applies, for the schema does not switch them on."""
        marked = {r.data_file for e in entries if e.index_type == DELETION_VECTORS for r in e.ranges or ()}
        if not marked:
            return
        hit = sorted(e.file.file_name for e in live.entries() if e.file.file_name in marked)
        if hit:
            what = f"{len(hit):,} of its data files have deletion vectors (the first: {hit[0]}), and its schema "
            what += f"{moment.snapshot.schema_id} does not have '{opt.DV_ENABLED.name}'"
            self._note(Finding("vectors-not-applied", moment.path, what), moment)

    def _hash_files(self, moment: Moment, live: LiveSet, touched: set[Slot], entries: Sequence[IndexFileEntry]) -> None:
        now = {(e.partition, e.bucket): e.file_name for e in entries if e.index_type == HASH}
        changed = {slot for slot, name in now.items() if self._hashes.get(slot) != name} | touched
        self._hashes = now
        for slot in changed:
            files = [e for e in live.buckets.get(slot, {}).values() if e.bucket >= 0]
            if not files:
                continue
            name = now.get(slot)
            if name is None:
                what = f"bucket {slot[1]} has {len(files):,} data files and no HASH index"
                folder = self.path(files[0]).rsplit("/", 1)[0]
                self._note(Finding("hash-missing", folder, what), moment)
                continue
            self._files.hashed.setdefault(slot, {}).setdefault(name, set()).update(e.file.file_name for e in files)
