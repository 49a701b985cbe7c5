"""Making changes visible: one commit is one new snapshot, or nothing at all.

Order of writes, and what a crash *after* each step leaves behind:

1. data and index files (by the writer, before it calls :func:`commit`): orphans, which no reader sees;
2. delta manifests, then the delta list; merged manifests, then the base list: orphans too;
3. ``snapshot-<id>``, created only if absent: **the commit**.  Before it readers see the old table, after it the new one;
4. the EARLIEST hint (first commit only), then LATEST: without them readers list the folder; a LATEST that is too low is
   noticed because the next snapshot exists, and none is ever written before its snapshot.

A failed attempt deletes what it wrote in step 2.  If step 3 *fails* instead of answering, its outcome is unknown: nothing
is deleted, and the snapshot's ``uuid``, which no other commit has, tells whether it took place.

Another writer may win step 3.  The attempt is then repeated on the snapshot that won: conflicts are checked again, and
what an overwrite deletes is computed anew.  Losing a race is no failure: it may happen far more often than
``commit.max-retries``, which counts failures of the storage.

Checks of each attempt (table-format spec, section 9): every DELETE hits a live file; no file is added twice; all files of a
partition agree on their number of buckets (Paimon skips that for plain appends, and then mixes them).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bitlake import _clock
from bitlake.codec.binary_row import decode_row
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.options import Options
from bitlake.metadata.partition import partition_path
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.storage import Store
from bitlake.table.live import latest_schema_id, latest_snapshot, load_snapshot, read_snapshot_files, snapshot_manifests
from bitlake.table.manifests import ManifestWriter, PartitionSet

WRITER = "bitlake"
"""What ``writerVersion`` of our snapshots says."""
_MOST_RACES = 10_000
"""Lost races after which a commit gives up: only a broken store can cause so many."""
_RACE_WAIT_MS = 320
"""Longest wait after a lost race; the winner is done by then, so waiting longer only idles."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Which live files an overwrite deletes.

    ``dynamic``: those of the partitions that the added files are in.  Else ``partition`` (physical values by partition
    column) selects the partitions that have these values; None or empty selects the whole table.
    """

    partition: Mapping[str, Any] | None = None
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The changes of one commit.

    ``kind`` is APPEND, COMPACT or OVERWRITE.  ``deletes`` name live files exactly as they were read (their kind does not
    matter); an ``overwrite`` adds what it selects when committing.  ``requires_schema``: refuse unless the table's
    latest schema still has this id.
    """

    kind: str
    adds: tuple[ManifestEntry, ...] = ()
    deletes: tuple[ManifestEntry, ...] = ()
    overwrite: Overwrite | None = None
    requires_schema: int | None = None

    @property
    def checked(self) -> bool:
        """Whether the commit depends on what is live now."""
        return bool(self.deletes) or self.overwrite is not None or self.kind != "APPEND"


def commit(
    store: Store,
    paths: TablePaths,
    plan: CommitPlan,
    schema: TableSchema,
    commit_user: str,
    *,
    identifier: int = BATCH_IDENTIFIER,
    operation: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Snapshot | None:
    """Publish ``plan`` as the next snapshot and return it.

    A plan that changes nothing makes no snapshot (unless ``commit.force-create-snapshot``): the latest one is returned,
    None if there is none.  ``options`` default to the schema's.

    Raises :class:`CommitConflict` when a file to delete is gone or another writer's change cannot be combined with this
    one, :class:`InvalidRequest` for a plan that can never be committed, and :class:`StorageUnavailable` when the storage
    keeps failing — then the message says whether the outcome is unknown.  In the first two cases nothing is visible.
    """
    return _Committer(
        store, paths, plan, schema, commit_user, identifier, operation, Options(options or schema.options)
    ).run()


class _Lost(Exception):
    """Another writer made the snapshot with this id first."""


class _Unknown(Exception):
    """Publishing failed, and looking for the result did too."""


@dataclass(slots=True)
class _Committer:
    """One call of :func:`commit`; mutable."""

    store: Store
    paths: TablePaths
    plan: CommitPlan
    schema: TableSchema
    user: str
    identifier: int
    operation: str | None
    options: Options
    uuid: str = field(default_factory=_clock.new_uuid)
    tried: list[int] = field(default_factory=list)
    """Ids whose publication has an unknown outcome."""
    delta: tuple[tuple[ManifestEntry, ...], list[ManifestFileMeta]] | None = None
    """The entries last written as delta manifests, and these: a lost race seldom changes them."""

    def run(self) -> Snapshot | None:
        self._check_plan()
        types = [f.type for f in self.schema.partition_fields]
        writer = ManifestWriter(self.store, self.paths, types, self.options)
        started, failures, races = _clock.now_ms(), 0, 0
        # Seeded by the commit's own id: writers must not wait in step with each other.
        chance = random.Random(self.uuid)
        while True:
            try:
                return self._attempt(writer, merge=races == 0)
            except _Lost:
                races += 1
                failed: Exception | None = None
                wait = chance.uniform(0, min(self.options.of(opt.COMMIT_MIN_WAIT) << min(races, 16), _RACE_WAIT_MS))
            except (StorageUnavailable, _Unknown) as e:
                failures += 1
                failed = e
                longest = min(
                    self.options.of(opt.COMMIT_MIN_WAIT) << min(failures - 1, 20), self.options.of(opt.COMMIT_MAX_WAIT)
                )
                wait = longest * chance.uniform(1, 1.2)
                if not self.tried:
                    self._discard_all(writer)
            except BaseException:
                if not self.tried:
                    self._discard_all(writer)
                raise
            self._give_up_late(writer, started, failures, races, failed)
            time.sleep(wait / 1000)

    def _give_up_late(
        self, writer: ManifestWriter, started: int, failures: int, races: int, failed: Exception | None
    ) -> None:
        timeout = self.options.of(opt.COMMIT_TIMEOUT)
        late = timeout is not None and _clock.now_ms() - started > timeout
        if failed is not None and (late or failures > self.options.of(opt.COMMIT_MAX_RETRIES)):
            outcome = (
                f"whether it took place is unknown: look for a snapshot with uuid {self.uuid}"
                if self.tried
                else "nothing of it is visible"
            )
            raise StorageUnavailable(
                f"commit to {self.paths.root} failed {failures} times ({failed.__cause__ or failed}); {outcome}"
            ) from failed
        if late or races > _MOST_RACES:
            self._discard_all(writer)
            raise CommitConflict(
                f"commit to {self.paths.root}: other writers were first {races} times"
                + (f" and 'commit.timeout' = {timeout} ms passed" if late else "")
                + "; nothing is visible, try again"
            )

    def _discard_all(self, writer: ManifestWriter) -> None:
        writer.discard()
        self.delta = None

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _attempt(self, writer: ManifestWriter, *, merge: bool) -> Snapshot | None:
        if self.tried:
            found = self._find_ours()
            if found is not None:
                return self._committed(found)
        latest = latest_snapshot(self.store, self.paths)
        schema_id = self._schema_id()
        entries = self._changes(latest)
        if not entries and not self.options.of(opt.FORCE_SNAPSHOT):
            return latest
        if self.delta is None or self.delta[0] != entries:
            writer.discard()
            self.delta = (entries, writer.write(entries))
        mark = writer.mark()
        snapshot = self._write_lists(writer, latest, schema_id, entries, merge)
        try:
            self._publish(snapshot)
        except _Lost:
            writer.discard(mark)
            raise
        except _Unknown:
            # Perhaps the snapshot is there and names these files.
            writer.keep_all()
            self.delta = None
            raise
        return self._committed(snapshot)

    def _write_lists(
        self,
        writer: ManifestWriter,
        latest: Snapshot | None,
        schema_id: int,
        entries: Sequence[ManifestEntry],
        merge: bool,
    ) -> Snapshot:
        assert self.delta is not None
        before = [] if latest is None else snapshot_manifests(self.store, self.paths, latest)
        base, base_size = writer.write_list(writer.merge(before) if merge else before)
        delta, delta_size = writer.write_list(self.delta[1])
        rows = sum(e.file.row_count * (1 if e.kind is EntryKind.ADD else -1) for e in entries)
        kind = "OVERWRITE" if self.plan.kind == "APPEND" and self.plan.checked else self.plan.kind
        return Snapshot(
            uuid=self.uuid,
            id=1 if latest is None else latest.id + 1,
            schema_id=schema_id,
            base_manifest_list=base,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta,
            delta_manifest_list_size=delta_size,
            index_manifest=self._index_manifest(latest),
            commit_user=self.user,
            writer_version=WRITER,
            commit_identifier=self.identifier,
            commit_kind=kind,
            time_millis=_clock.now_ms(),
            total_record_count=rows + (0 if latest is None else latest.total_record_count),
            delta_record_count=rows,
            watermark=None if latest is None else latest.watermark,
            statistics=latest.statistics if latest is not None and latest.schema_id == schema_id else None,
            next_row_id=(None if latest is None else latest.next_row_id) or 0,
            operation=self.operation,
        )

    def _publish(self, snapshot: Snapshot) -> None:
        """Create the snapshot file; raises :class:`_Lost` or :class:`_Unknown` unless it is there now and is ours."""
        try:
            if self.store.create(self.paths.snapshot(snapshot.id), snapshot.to_json().encode()):
                return
        except StorageUnavailable as e:
            self.tried.append(snapshot.id)
            raise _Unknown from e
        # An earlier try of ours with an unknown outcome may be what is there.
        if snapshot.id not in self.tried or not self._is_ours(snapshot.id):
            raise _Lost

    def _find_ours(self) -> Snapshot | None:
        for snapshot_id in self.tried:
            if self._is_ours(snapshot_id):
                return load_snapshot(self.store, self.paths, snapshot_id)
        return None

    def _is_ours(self, snapshot_id: int) -> bool:
        try:
            found = load_snapshot(self.store, self.paths, snapshot_id)
        except NotFound:
            return False
        return found.uuid == self.uuid and found.commit_user == self.user

    def _committed(self, snapshot: Snapshot) -> Snapshot:
        """Write the hints; whether that works changes nothing."""
        hints = [self.paths.latest_hint] if snapshot.id > 1 else [self.paths.earliest_hint, self.paths.latest_hint]
        for hint in hints:
            try:
                self.store.write(hint, str(snapshot.id).encode())
            except StorageUnavailable:
                continue
        return snapshot

    # --- what changes, and what must hold ----------------------------------------------------------------------------

    def _check_plan(self) -> None:
        plan = self.plan
        if plan.kind not in ("APPEND", "COMPACT", "OVERWRITE"):
            raise InvalidRequest(f"a commit cannot be of kind '{plan.kind}'")
        if any(e.file.level > 0 for e in plan.adds):
            raise UnsupportedFeature("files above level 0 cannot be committed by this version")
        if self.options.of(opt.ROW_TRACKING) or self.options.of(opt.DATA_EVOLUTION):
            raise UnsupportedFeature("tables with row tracking cannot be written by this version")
        names = [(e.partition, e.bucket, e.file.file_name) for e in plan.adds]
        if len(set(names)) != len(names):
            raise InvalidRequest("the commit adds the same file twice")
        identities = {e.identity for e in plan.adds}
        both = next((e for e in plan.deletes if e.identity in identities), None)
        if both is not None:
            raise InvalidRequest(f"the commit both adds and deletes {both.file.file_name} unchanged")

    def _schema_id(self) -> int:
        latest = latest_schema_id(self.store, self.paths)
        required = self.plan.requires_schema
        if required is not None and latest is not None and latest != required:
            raise CommitConflict(
                f"table {self.paths.root} changed from schema {required} to {latest} meanwhile; read it again and retry"
            )
        return self.schema.id if latest is None else max(latest, self.schema.id)

    def _changes(self, latest: Snapshot | None) -> tuple[ManifestEntry, ...]:
        """The entries of the delta on top of ``latest``, DELETE before ADD, after all checks."""
        plan = self.plan
        self._check_scope()
        bucketed = any(e.total_buckets > 0 for e in plan.adds)
        if not plan.checked and not bucketed:
            return plan.adds
        live = self._live(latest)
        # Expiry walks a delta in order by path: a DELETE after the ADD of one path would remove a live file.
        deletes = self._deletes(live)
        gone = {e.identity for e in deletes}
        rest = [e for e in live if e.identity not in gone]
        self._check_new(rest)
        self._check_buckets(rest)
        self._check_index(latest, deletes)
        return (*deletes, *plan.adds)

    def _live(self, latest: Snapshot | None) -> list[ManifestEntry]:
        """The live files that the checks need: all of them, or those of the partitions added to and deleted from."""
        if latest is None:
            return []
        overwrite = self.plan.overwrite
        types = [f.type for f in self.schema.partition_fields]
        if (overwrite is not None and not overwrite.dynamic) or not types:
            return read_snapshot_files(self.store, self.paths, latest)
        touched = {e.partition for e in (*self.plan.adds, *self.plan.deletes)}
        meets = PartitionSet(touched, types).meets
        return read_snapshot_files(self.store, self.paths, latest, touched.__contains__, meets)

    def _deletes(self, live: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        alive = {e.identity: e for e in live}
        missing = [e for e in self.plan.deletes if e.identity not in alive]
        if missing:
            names = ", ".join(sorted(e.file.file_name for e in missing)[:3])
            raise CommitConflict(
                f"{len(missing)} files to be replaced are no longer live in {self.paths.root} ({names}): another commit "
                "replaced or deleted them; read the table again and retry"
            )
        chosen = {e.identity: alive[e.identity] for e in self.plan.deletes}
        if self.plan.overwrite is not None:
            scope = self._scope()
            chosen |= {e.identity: e for e in live if scope is None or scope(e.partition)}
        return [replace(e, kind=EntryKind.DELETE) for e in chosen.values()]

    def _scope(self) -> Any:
        """The overwrite's test of a partition row; None selects all."""
        overwrite = self.plan.overwrite
        assert overwrite is not None
        if overwrite.dynamic:
            return {e.partition for e in self.plan.adds}.__contains__
        if not overwrite.partition:
            return None
        fields = self.schema.partition_fields
        names = [f.name for f in fields]
        unknown = [n for n in overwrite.partition if n not in names]
        if unknown:
            raise InvalidRequest(f"'{unknown[0]}' is not a partition column; they are {', '.join(names) or 'none'}")
        wanted = [(names.index(n), v) for n, v in overwrite.partition.items()]
        types = [f.type for f in fields]

        def matches(row: bytes) -> bool:
            values = decode_row(types, row)
            return all(values[i] == v for i, v in wanted)

        return matches

    def _check_scope(self) -> None:
        overwrite = self.plan.overwrite
        if overwrite is None or overwrite.dynamic or not overwrite.partition:
            return
        scope = self._scope()
        outside = next((e for e in self.plan.adds if not scope(e.partition)), None)
        if outside is not None:
            raise InvalidRequest(
                f"a row for partition {self._name(outside.partition)} does not belong into the partition being overwritten"
            )

    def _check_new(self, rest: Sequence[ManifestEntry]) -> None:
        names = {(e.partition, e.bucket, e.file.file_name) for e in self.plan.adds}
        twice = next((e for e in rest if (e.partition, e.bucket, e.file.file_name) in names), None)
        if twice is not None:
            raise CommitConflict(
                f"file {twice.file.file_name} is live in {self.paths.root} already; it cannot be added again"
            )

    def _check_buckets(self, rest: Sequence[ManifestEntry]) -> None:
        seen: dict[bytes, int] = {}
        for e in (*rest, *self.plan.adds):
            if e.total_buckets > 0 and seen.setdefault(e.partition, e.total_buckets) != e.total_buckets:
                where = self._name(e.partition)
                raise CommitConflict(
                    f"table {self.paths.root}{f', partition {where}' if where else ''}: its files have "
                    f"{seen[e.partition]} buckets and new ones {e.total_buckets}; INSERT OVERWRITE it to change the number"
                )

    def _check_index(self, latest: Snapshot | None, deletes: Sequence[ManifestEntry]) -> None:
        if latest is None or latest.index_manifest is None or self._replaces_all():
            return
        kept = {e.file.file_name for e in self.plan.adds}
        if any(e.file.file_name not in kept for e in deletes):
            raise UnsupportedFeature(
                f"table {self.paths.root} has deletion vectors: this version can only overwrite it as a whole"
            )

    def _index_manifest(self, latest: Snapshot | None) -> str | None:
        return None if latest is None or self._replaces_all() else latest.index_manifest

    def _replaces_all(self) -> bool:
        overwrite = self.plan.overwrite
        return overwrite is not None and not overwrite.dynamic and not overwrite.partition

    def _name(self, partition: bytes) -> str:
        fields = self.schema.partition_fields
        return partition_path(fields, decode_row([f.type for f in fields], partition))
