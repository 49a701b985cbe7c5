"""Commit plans: what a commit changes, and the checks that decide whether it may be applied to a snapshot.

A :class:`CommitPlan` is a value.  :class:`PlanResolver` resolves it against the latest snapshot, again for every
attempt, into a :class:`Delta`: the entries and index files of the next snapshot.  Cost: a plain append to a table
without buckets reads no manifest; other plans read those of the partitions that they touch.  Of a table without
partitions they read all manifests, and make objects only of the entries of the buckets that they touch.

Checks (table-format spec, section 9): every DELETE names a live file; no file is added twice; all files of a partition
agree on their number of buckets (Paimon skips this check for plain appends, and then mixes them); files of one level
above 0 of a bucket do not overlap by key; deletion vectors and HASH indexes match the data files
(:mod:`bitlake.snapshot.index_files`).

A partition spec maps partition columns to values.  :func:`physical_partition` converts Python values to physical ones
(:mod:`bitlake.expressions.tree`); :func:`overwrite_scope` turns a spec into the scope of an overwrite.

:class:`WritableTable` is the table that DML, maintenance and commits work on, as a protocol that
:class:`bitlake.file_store_table.FileStoreTable` implements.  Packages below that module name the protocol instead, so
that imports point downwards only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from bitlake import arguments
from bitlake.codec.binary_row import EMPTY_ROW, decode_row
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.formats.conform import fit_length
from bitlake.io import Store
from bitlake.merge.interval_partition import check_level_overlap, check_no_common_keys, files_with_common_keys
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import EntryKind, ManifestEntry, Slot
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths, partition_path
from bitlake.metadata.schema import Names, TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.file_columns import ColumnarFiles, in_buckets, in_partitions, totals_of_others
from bitlake.snapshot.index_files import IndexChange, IndexFiles, IndexUpdate
from bitlake.snapshot.manifests import (
    PartitionFilter,
    PartitionSet,
    index_entries,
    live_files,
    read_manifest_list,
    read_manifests,
)
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import find_snapshot, load_snapshot
from bitlake.types import arrow_type
from bitlake.types.arrow import physical_values


class SequenceTaken(CommitConflict):
    """Another writer used sequence numbers of this commit's rows in the same bucket, in a file of their key range."""


class BatchCommitted(CommitConflict):
    """The same batch of the same stream is committed already, by a process that was taken for dead."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A stream's batch that must be committed exactly once: its commit user and identifier.

    ``since`` is the id of the snapshot (0: none yet) up to which it has been searched for.
    """

    user: str
    identifier: int
    since: int


@dataclass(frozen=True, slots=True)
class Overwrite:
    """The live files that an overwrite deletes.

    ``dynamic``: the files of the partitions that the added files are in.  Otherwise ``partition`` (physical values by
    partition column) selects the partitions with these values, and ``others`` those that match one of its specs; None
    or empty selects the whole table.

    ``computed_on`` is the id of the snapshot that the new rows were computed from: a later snapshot is a conflict,
    since its rows would be lost.  ``computed_uuid`` is its uuid: after a rollback another snapshot has its id.
    """

    partition: Mapping[str, Any] | None = None
    dynamic: bool = False
    computed_on: int | None = None
    computed_uuid: str | None = None
    others: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The changes of one commit.

    ``kind`` is APPEND, COMPACT, OVERWRITE or ANALYZE.  ``deletes`` are entries of live files exactly as they were read
    (whatever their kind); an ``overwrite`` adds the files that it selects at commit time.  ``requires_schema``: refuse
    the commit unless the table's latest schema still has this id.

    ``changelog`` holds changelog files; an overwrite has none, as in Paimon.  ``index`` holds at most one change for
    each (partition, bucket, type).  ``hash_indexes`` are the HASH indexes that assigned rows to buckets and that no
    change replaces, since they hold all keys already: a newer one that lacks any of their hashes is a conflict.
    ``sequences`` are the lowest sequence numbers of new rows by bucket: a live file that reaches them, and whose key
    range overlaps a new file's, is a conflict (:class:`SequenceTaken`).

    ``computed_on`` is the id of the snapshot (0: none yet) in which a compaction looked up old rows: a newer file above
    level 0 that overlaps one added here, or one taken from level 0, is a conflict, since its rows were not looked up.
    ``alone_since`` is the id of the snapshot (0: none yet) in which the keys of new rows were looked up in all
    partitions: newer rows are a conflict, since a key could end up in two partitions.  ``computed_from`` is the id of
    the snapshot (0: none yet) from whose rows the new ones were computed: newer changes in their key range are a
    conflict, since those rows may be gone.  ``read_uuid`` is the uuid of that snapshot: after a rollback another
    snapshot has its id.

    ``shared``: another branch uses the new files too, and they may have been added here meanwhile.
    """

    kind: str
    adds: tuple[ManifestEntry, ...] = ()
    deletes: tuple[ManifestEntry, ...] = ()
    overwrite: Overwrite | None = None
    requires_schema: int | None = None
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()
    hash_indexes: tuple[IndexFileEntry, ...] = ()
    computed_on: int | None = None
    sequences: Mapping[Slot, int] = field(default_factory=dict)
    alone_since: int | None = None
    computed_from: int | None = None
    read_uuid: str | None = None
    statistics: str | None = None
    """The name of the statistics file that a snapshot of kind ANALYZE publishes."""
    batch: StreamBatch | None = None
    shared: bool = False

    @property
    def checked(self) -> bool:
        """Whether the commit depends on the live files."""
        vectors = any(c.index_type == DELETION_VECTORS for c in self.index)
        return bool(self.deletes) or self.overwrite is not None or self.kind != "APPEND" or vectors

    @property
    def buckets(self) -> set[Slot]:
        """The buckets whose files the plan changes, apart from the deletions of an overwrite."""
        entries = (*self.adds, *self.deletes)
        return {(e.partition, e.bucket) for e in entries} | {c.slot for c in self.index}


@dataclass(frozen=True, slots=True)
class Delta:
    """A plan resolved against one snapshot: entries, DELETE before ADD, and the change of the index files.

    ``index`` is None if the index manifest stays as it is.
    """

    entries: tuple[ManifestEntry, ...]
    index: IndexUpdate | None = None

    def __bool__(self) -> bool:
        return bool(self.entries) or self.index is not None


# --- checks against a snapshot ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanResolver:
    """Resolves a plan of one table against any of its snapshots."""

    store: Store
    paths: TablePaths
    plan: CommitPlan
    schema: TableSchema

    @property
    def table_files(self) -> TableFiles:
        """The store and the paths of the table."""
        return TableFiles(self.store, self.paths)

    def check_plan(self) -> None:
        """Raise :class:`InvalidRequest` or :class:`UnsupportedFeature` for a plan that fits no state of the table."""
        plan = self.plan
        if plan.kind not in ("APPEND", "COMPACT", "OVERWRITE") and (plan.kind != "ANALYZE" or plan.statistics is None):
            raise InvalidRequest(f"invalid commit kind '{plan.kind}'")
        if any(e.file.level > 0 for e in plan.adds) and not self.schema.primary_keys:
            raise InvalidRequest(f"table {self.paths.root} has no primary key: all its files must be of level 0")
        if plan.overwrite is not None and plan.changelog:
            raise InvalidRequest(f"an overwrite of {self.paths.root} cannot publish a changelog, as in Paimon")
        if self.schema.opts.of(opt.ROW_TRACKING) or self.schema.opts.of(opt.DATA_EVOLUTION):
            raise UnsupportedFeature("tables with row tracking cannot be written by this version")
        names = [(e.partition, e.bucket, e.file.file_name) for e in (*plan.adds, *plan.changelog)]
        if len(set(names)) != len(names):
            raise InvalidRequest("the commit adds the same file twice")
        slots = [(*c.slot, c.index_type) for c in plan.index]
        if len(set(slots)) != len(slots):
            raise InvalidRequest("the commit changes the index files of one type in one bucket twice")
        identities = {e.identity for e in plan.adds}
        both = next((e for e in plan.deletes if e.identity in identities), None)
        if both is not None:
            raise InvalidRequest(f"the commit both adds and deletes {both.file.file_name} unchanged")

    def check_options(self, latest: TableSchema, snapshot: Snapshot | None) -> None:
        """Raise :class:`CommitConflict` if options by which files are read have changed since the plan was computed.

        Readers of tables follow the latest schema.  Without deletion vectors, a compaction leaves older versions of
        rows in other files; with them, it marks these versions as deleted.  A compaction that looks up keys writes
        rows that replace those of higher levels; without lookup, readers merge both.  Readers in the other mode would
        return wrong rows.  ``snapshot`` is the latest one.
        """
        self._check_changelog(latest)
        self._check_number_of_buckets(latest, snapshot)
        if not (self.plan.deletes or self.plan.index):
            return
        modes = [s.opts.of(opt.DV_ENABLED) for s in (self.schema, latest)]
        if modes[0] != modes[1]:
            raise CommitConflict(
                f"deletion vectors of table {self.paths.root} were switched {'on' if modes[1] else 'off'} meanwhile; "
                "read it again and retry"
            )
        changed = opt.changed_lookup(self.schema.options, latest.options) if self.schema.primary_keys else None
        if changed is not None:
            raise self._option_changed(changed)

    def _check_changelog(self, latest: TableSchema) -> None:
        """Raise :class:`CommitConflict` if streams would read the rows from a changelog that the plan does not have.

        A snapshot has the latest schema, and streams read it by the changelog producer of its schema.
        """
        old, new = (s.opts.of(opt.CHANGELOG_PRODUCER) for s in (self.schema, latest))
        expected = {"APPEND": ("input",), "COMPACT": ("lookup", "full-compaction")}.get(self.plan.kind, ())
        if old != new and new in expected and self.plan.adds and self.schema.primary_keys:
            raise self._option_changed(opt.CHANGELOG_PRODUCER)

    def _check_number_of_buckets(self, latest: TableSchema, snapshot: Snapshot | None) -> None:
        """Raise if all files of a partition would have the former number: later writes to it would be refused.

        In a partition where other files have the former number, a rescale has yet to rewrite all files.
        """
        total, plan = latest.num_buckets, self.plan
        if plan.kind == "COMPACT" or not 0 < total != self.schema.num_buckets:
            return
        live, other_totals = ((), ()) if plan.overwrite is not None else self._live(snapshot)
        rescaled_later = {e.partition for e in live} | ({EMPTY_ROW} if other_totals else set())
        if any(0 < e.total_buckets != total and e.partition not in rescaled_later for e in plan.adds):
            raise self._option_changed(opt.BUCKET)

    def _option_changed(self, option: opt.Option[Any]) -> CommitConflict:
        return CommitConflict(
            f"option '{option.name}' of table {self.paths.root} was changed meanwhile; read it again and retry"
        )

    def delta(self, latest: Snapshot | None) -> Delta:
        """Resolve the plan against ``latest`` (None: no snapshot) after all checks; may write index files.

        Raises :class:`CommitConflict` where a check fails.
        """
        plan = self.plan
        self._check_scope()
        self._check_history(latest)
        read = None if plan.overwrite is None else plan.overwrite.computed_on
        if read is not None and latest is not None and latest.id != read:
            raise CommitConflict(
                f"snapshot {latest.id} of {self.paths.root} was committed after {read}, whose rows were to be "
                "rewritten; read the table again and retry"
            )
        self._check_batch(latest)
        self._check_alone(latest)
        self._check_read_rows(latest)
        if plan.hash_indexes and (latest is None or plan.read_uuid is None or latest.uuid != plan.read_uuid):
            files = IndexFiles(self.store, self.paths, self.schema)
            files.check_hashes_kept(index_entries(self.table_files, latest), plan.hash_indexes)
        bucketed = any(e.total_buckets > 0 for e in plan.adds)
        if not (plan.checked or bucketed or plan.sequences or plan.shared):
            return Delta(plan.adds, self._index(latest, (), plan.adds))
        live, other_totals = self._live(latest)
        # Expiry walks a delta in order by path: a DELETE after the ADD of one path would remove a live file.
        deletes = self._deletes(live)
        deleted = {e.identity for e in deletes}
        rest = [e for e in live if e.identity not in deleted]
        self._check_new(rest)
        self._check_buckets(rest, other_totals)
        self._check_sequences(rest)
        check_level_overlap(self.schema, self.paths.root, rest, plan.adds)
        self._check_looked_up(rest)
        return Delta((*deletes, *plan.adds), self._index(latest, deletes, (*rest, *plan.adds)))

    def _live(self, latest: Snapshot | None) -> tuple[Sequence[ManifestEntry], Sequence[int]]:
        """The live files that the checks need: all of them, or those of the partitions added to and deleted from.

        Of an unpartitioned table with many files, those of the buckets added to and deleted from, and the distinct
        numbers of buckets that the other files were written with.
        """
        if latest is None:
            return (), ()
        overwrite = self.plan.overwrite
        types = [f.type for f in self.schema.partition_fields]
        if overwrite is not None and not overwrite.dynamic:
            return live_files(self.table_files, latest), ()
        if types:
            touched = frozenset(partition for partition, _ in self.plan.buckets)
            touched_only = PartitionFilter(PartitionSet(touched, types).meets, touched)
            return in_partitions(live_files(self.table_files, latest, touched_only), touched), ()
        live = live_files(self.table_files, latest)
        if overwrite is not None or not isinstance(live, ColumnarFiles):
            return live, ()
        buckets = frozenset(bucket for _, bucket in self.plan.buckets)
        return in_buckets(live, buckets), totals_of_others(live, buckets)

    def _deletes(self, live: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """The DELETE entries of the plan and of its overwrite; raises if a file to delete is no longer live."""
        by_identity = {e.identity: e for e in live}
        missing = [e for e in self.plan.deletes if e.identity not in by_identity]
        if missing:
            names = ", ".join(sorted(e.file.file_name for e in missing)[:3])
            raise CommitConflict(
                f"{len(missing)} files to be replaced are no longer live in {self.paths.root} ({names}): "
                "another commit replaced or deleted them; read the table again and retry"
            )
        deleted = {e.identity: by_identity[e.identity] for e in self.plan.deletes}
        if self.plan.overwrite is not None:
            scope = self._scope()
            deleted |= {e.identity: e for e in live if scope is None or scope(e.partition)}
        return [replace(e, kind=EntryKind.DELETE) for e in deleted.values()]

    def _scope(self) -> Callable[[bytes], bool] | None:
        """The overwrite's test of a partition row; None selects all."""
        overwrite = self.plan.overwrite
        assert overwrite is not None
        if overwrite.dynamic:
            return {e.partition for e in self.plan.adds}.__contains__
        if not overwrite.partition:
            return None
        fields = self.schema.partition_fields
        names = [f.name for f in fields]
        specs = (overwrite.partition, *overwrite.others)
        unknown = [n for spec in specs for n in spec if n not in names]
        if unknown:
            raise InvalidRequest(f"'{unknown[0]}' is not a partition column; they are {', '.join(names) or 'none'}")
        wanted: dict[tuple[int, ...], set[tuple[Any, ...]]] = {}
        for spec in specs:
            places = tuple(sorted(map(names.index, spec)))
            wanted.setdefault(places, set()).add(tuple(_one_nan(spec[names[i]]) for i in places))
        types = [f.type for f in fields]

        @cache
        def matches(row: bytes) -> bool:
            values = [*map(_one_nan, decode_row(types, row))]
            return any(tuple(values[i] for i in places) in found for places, found in wanted.items())

        return matches

    def _check_scope(self) -> None:
        overwrite = self.plan.overwrite
        if overwrite is None or overwrite.dynamic or not overwrite.partition:
            return
        scope = self._scope()
        outside = next((e for e in self.plan.adds if scope is not None and not scope(e.partition)), None)
        if outside is not None:
            raise InvalidRequest(
                f"partition {self._name(outside.partition)} of the new rows is outside the partitions being overwritten"
            )

    def _check_new(self, rest: Sequence[ManifestEntry]) -> None:
        names = {(e.partition, e.bucket, e.file.file_name) for e in self.plan.adds}
        twice = next((e for e in rest if (e.partition, e.bucket, e.file.file_name) in names), None)
        if twice is not None:
            raise CommitConflict(
                f"file {twice.file.file_name} is live in {self.paths.root} already; it cannot be added again"
            )

    def _check_buckets(self, rest: Sequence[ManifestEntry], other_totals: Sequence[int]) -> None:
        """Raise unless the files of each partition agree; ``other_totals`` are those of files beside ``rest``."""
        totals: dict[bytes, int] = {}
        buckets = self.schema.num_buckets
        other = next((e for e in self.plan.adds if 0 < e.total_buckets != buckets > 0), None)
        if other is not None and self.plan.kind == "APPEND" and self.schema.primary_keys:
            # The rows were assigned to buckets by a number other than the files' total.
            raise CommitConflict(
                f"table {self.paths.root} has {buckets} buckets, and new files have {other.total_buckets}: "
                "INSERT OVERWRITE the table to change the number"
            )
        others = ((EMPTY_ROW, total) for total in other_totals)
        for partition, total in (*others, *((e.partition, e.total_buckets) for e in (*rest, *self.plan.adds))):
            if total > 0 and totals.setdefault(partition, total) != total:
                where = self._name(partition)
                raise CommitConflict(
                    f"table {self.paths.root}{f', partition {where}' if where else ''}: its files have "
                    f"{totals[partition]} buckets and new files {total}; "
                    "INSERT OVERWRITE the table to change the number"
                )

    def _check_sequences(self, rest: Sequence[ManifestEntry]) -> None:
        lowest = self.plan.sequences
        taken = [e for e in rest if e.file.max_sequence_number >= lowest.get((e.partition, e.bucket), 2**63)]
        # The numbers order rows of one key only.
        common = files_with_common_keys(self.schema, self.plan.adds, taken) if taken else None
        if common is not None:
            raise SequenceTaken(
                f"another writer added rows to bucket {common[1].bucket} of {self.paths.root} meanwhile, in the range "
                "of these keys; read the table again and retry"
            )

    def _check_history(self, latest: Snapshot | None) -> None:
        """Raise if the snapshot that was read was rolled back: comparing ids with it would miss other writers."""
        plan = self.plan
        reads = [(i, plan.read_uuid) for i in (plan.alone_since, plan.computed_on, plan.computed_from)]
        if plan.overwrite is not None:
            reads.append((plan.overwrite.computed_on, plan.overwrite.computed_uuid))
        for number, uuid in dict.fromkeys(reads):
            if not number or uuid is None:
                continue
            snapshot = latest if latest is None or latest.id <= number else find_snapshot(self.table_files, number)
            expired = snapshot is None and latest is not None
            if not expired and (snapshot is None or (snapshot.id, snapshot.uuid) != (number, uuid)):
                raise CommitConflict(
                    f"snapshot {number} of {self.paths.root}, which was read for this commit, was rolled back; "
                    "read the table again and retry"
                )

    def _check_batch(self, latest: Snapshot | None) -> None:
        batch = self.plan.batch
        if batch is None or latest is None:
            return
        for number, snapshot in self._snapshots(batch.since, latest):
            if snapshot and (snapshot.commit_user, snapshot.commit_identifier) == (batch.user, batch.identifier):
                raise BatchCommitted(
                    f"batch {batch.identifier} of {batch.user} is in {self.paths.root} already, as snapshot {number}"
                )

    def _check_alone(self, latest: Snapshot | None) -> None:
        """Raise if a newer snapshot may have added keys that were looked up in all partitions."""
        since = self.plan.alone_since
        if since is None or latest is None:
            return
        for number, snapshot in self._snapshots(since, latest):
            if snapshot is None or snapshot.commit_kind != "COMPACT":
                raise CommitConflict(
                    f"snapshot {number} of {self.paths.root} may hold the same keys in other partitions: they were "
                    f"looked up in snapshot {since}; read the table again and retry"
                )

    def _check_read_rows(self, latest: Snapshot | None) -> None:
        """Raise if a newer snapshot may have replaced or deleted rows from which the new rows were computed."""
        since = self.plan.computed_from
        if since is None or latest is None:
            return
        before = find_snapshot(self.table_files, since) if since else None
        for number, snapshot in self._snapshots(since, latest):
            if snapshot is None or self._replaces_rows(before, snapshot):
                raise CommitConflict(
                    f"snapshot {number} of {self.paths.root} may have replaced rows that were read in snapshot "
                    f"{since}; read the table again and retry"
                )
            before = snapshot

    def _snapshots(self, since: int, latest: Snapshot) -> Iterator[tuple[int, Snapshot | None]]:
        """The ids after ``since`` up to the latest one's, each with its snapshot; None if it has expired."""
        for number in range(since + 1, latest.id + 1):
            yield number, find_snapshot(self.table_files, number)

    def _replaces_rows(self, before: Snapshot | None, snapshot: Snapshot) -> bool:
        """Whether a snapshot changes visible rows in the key range of the new files, or marks them as deleted.

        Sequence numbers do not show it after a compaction that left deleted rows out.  A compaction that assigns
        buckets to postponed rows makes these visible; others change no row.  ``before`` is the previous snapshot.
        """
        compaction = snapshot.commit_kind == "COMPACT"
        if compaction and self.schema.num_buckets != POSTPONE_BUCKET:
            return False
        metas = read_manifest_list(self.table_files, snapshot.delta_manifest_list)
        entries = [e for part in read_manifests(self.table_files, metas) for e in part]
        visible = [e for e in entries if e.bucket >= 0]
        if compaction and len(visible) == len(entries):
            return False
        if any(e.bucket < 0 for e in self.plan.adds):  # files of postponed rows have no key range
            partitions = {e.partition for e in self.plan.adds}
            return snapshot.commit_kind == "OVERWRITE" or any(e.partition in partitions for e in visible)
        if files_with_common_keys(self.schema, self.plan.adds, visible) is not None:
            return True
        return not compaction and self._vectors(before) != self._vectors(snapshot)

    def _vectors(self, snapshot: Snapshot | None) -> set[tuple[Slot, str]]:
        """The names of a snapshot's deletion vector files, by bucket, in the buckets that the plan changes."""
        buckets = self.plan.buckets
        entries = [e for e in index_entries(self.table_files, snapshot) if e.index_type == DELETION_VECTORS]
        return {((e.partition, e.bucket), e.file_name) for e in entries if (e.partition, e.bucket) in buckets}

    def _check_looked_up(self, rest: Sequence[ManifestEntry]) -> None:
        """Raise if a newer file above level 0, in which no keys were looked up, may hold keys taken from level 0."""
        since, plan = self.plan.computed_on, self.plan
        taken = [e for e in plan.deletes if e.file.level == 0]
        taken += (e for e in plan.adds if e.file.level > 0)
        buckets = {(e.partition, e.bucket) for e in taken}
        others = [e for e in rest if e.file.level > 0 and (e.partition, e.bucket) in buckets]
        if since is None or not others:
            return
        try:
            # 0: computed before the first snapshot.
            snapshot = load_snapshot(self.table_files, since) if since else None
            looked_up = {e.identity for e in self._live(snapshot)[0]}
        except NotFound as e:
            raise CommitConflict(
                f"snapshot {since} of {self.paths.root}, which a compaction started from, has expired; compact again"
            ) from e
        check_no_common_keys(self.schema, self.paths.root, [e for e in others if e.identity not in looked_up], taken)

    # --- index files -------------------------------------------------------------------------------------------------

    def _index(
        self, latest: Snapshot | None, deletes: Sequence[ManifestEntry], after: Sequence[ManifestEntry]
    ) -> IndexUpdate | None:
        """The change of the index files; ``after`` are the live files after the commit, in the buckets it changes."""
        if not self.plan.index and (latest is None or latest.index_manifest is None or not self.plan.checked):
            return None
        overwrite = self.plan.overwrite
        scope = None if overwrite is None else self._scope()
        overwritten = (lambda _: False) if overwrite is None else scope or (lambda _: True)
        buckets = self.plan.buckets
        live: dict[Slot, dict[str, int]] = {b: {} for b in buckets}
        for e in after:
            if (e.partition, e.bucket) in live:
                live[e.partition, e.bucket][e.file.file_name] = e.file.row_count
        removed: dict[Slot, set[str]] = {}
        for e in deletes:
            bucket = (e.partition, e.bucket)
            if not overwritten(e.partition) and e.file.file_name not in live.get(bucket, {}):
                removed.setdefault(bucket, set()).add(e.file.file_name)
        entries = index_entries(self.table_files, latest)
        files = IndexFiles(self.store, self.paths, self.schema)
        removed_names = {b: frozenset(names) for b, names in removed.items()}
        update = files.apply(entries, self.plan.index, live, removed_names, overwritten)
        return update if update.changed else None

    def _name(self, partition: bytes) -> str:
        fields = self.schema.partition_fields
        return partition_path(fields, decode_row([f.type for f in fields], partition))


# --- partition specs --------------------------------------------------------------------------------------------------


def _one_nan(value: Any) -> Any:
    """The value; for NaN always the same object, so that a set finds it."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def same_value(one: Any, other: Any) -> bool:
    """Return whether two physical values of a partition column are the same; NaN is."""
    return (_one_nan(one),) == (_one_nan(other),)


def overwrite_scope(schema: TableSchema, partition: Mapping[str, Any] | None, *, filled: bool = True) -> Overwrite:
    """Return what an overwrite replaces: the table (None), the partitions written ({}), or those matching a spec.

    The spec's values are physical; ``filled``: new rows replace the old ones.  Raises :class:`InvalidRequest` for
    columns that do not partition the table, and for new rows in some partitions of a table whose keys are unique
    across all partitions: other partitions might hold the same keys.
    """
    if partition is None:
        return Overwrite(partition=None, dynamic=False)
    if filled and is_cross_partition(schema):
        raise InvalidRequest(
            f"partitions of tables whose key ({', '.join(schema.primary_keys)}) lacks a partition column cannot "
            "be overwritten one by one: their new rows may have keys of other partitions; TRUNCATE the partition and "
            "INSERT, or overwrite the whole table"
        )
    if not partition:
        return Overwrite(partition=None, dynamic=bool(schema.partition_keys))
    folded = Names.FOLDED.clear(schema.partition_keys)
    spec: dict[str, Any] = {}
    for name, value in partition.items():
        key = name if name in schema.partition_keys else folded.get(name.lower())
        if key is None:
            raise InvalidRequest(
                f"'{name}' is not a partition column; they are {', '.join(schema.partition_keys) or 'none'}"
            )
        spec[key] = value
    return Overwrite(partition=spec, dynamic=False)


def physical_partition(table: str, schema: TableSchema, partition: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert a spec of Python values, or their texts, to physical values.

    Raises :class:`InvalidRequest` for an invalid value.
    """
    if partition is None:
        return None
    out = {}
    for name, value in arguments.mapping(f"table '{table}': a partition", partition).items():
        field = schema.field(name)
        try:
            kind = arrow_type(field.type)
            array = pa.array([value]).cast(kind) if isinstance(value, str) else pa.array([value], kind)
            array = fit_length(table, array, field)
        except (ValueError, TypeError, OverflowError, NotImplementedError) as e:  # Arrow's own errors are among them
            message = f"table '{table}': invalid {field.type} value {value!r} for partition column '{name}': {e}"
            raise InvalidRequest(message) from e
        out[field.name] = physical_values(array)[0]
    return out


# --- the table that commits are made to -------------------------------------------------------------------------------


class WritableTable(Protocol):
    """A table or branch; every call works on its latest state, except where it takes one."""

    name: str
    store: Store

    def state(self) -> TableState:
        """Return the latest state; raises :class:`bitlake.errors.NotFound` if the table was dropped."""

    def stored_state(self) -> TableState:
        """Return the latest state under the table's stored options, without those of a session."""

    def commit_user(self) -> str:
        """Return the user that commits name."""

    def scan_of(self, state: TableState) -> TableScan:
        """Return a scan of all rows of a state."""

    def partition_files(self, state: TableState, where: str | None) -> Sequence[ManifestEntry]:
        """Return the live files of the partitions that satisfy a condition (None: all)."""

    def alter_options(self, set: Mapping[str, str]) -> TableSchema:
        """Set options by writing a new schema; returns the schema."""

    def commit_files(
        self,
        state: TableState,
        files: Sequence[ManifestEntry],
        operation: str,
        overwrite: Overwrite | None = None,
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        """Commit new data files of an append table in one snapshot."""

    def compact(self, full: bool = False) -> Snapshot | None:
        """Compact the table; ``full``: all files, not only the pending ones."""
