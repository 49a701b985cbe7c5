"""``table.maintenance``: compact, expire, remove and repair files of a table, and report on it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bitlake import _clock, arguments
from bitlake.errors import InvalidRequest
from bitlake.expressions.evaluate import physical_array
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.mergetree.deletion_vector_mode import switch_deletion_vectors
from bitlake.mergetree.rescale import rescale
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry, Slot
from bitlake.metadata.options import PartitionAge
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import tracked
from bitlake.runtime import REQUESTS, LocalRunner, Runner
from bitlake.snapshot import branches, tags
from bitlake.snapshot.expiry import (
    Expiry,
    Retention,
    drop_expired,
    expire,
    expired_partitions,
    max_expired_partitions,
    plan_expiry,
)
from bitlake.snapshot.iceberg_metadata import create_iceberg_metadata
from bitlake.snapshot.index_files import IndexChange
from bitlake.snapshot.manifests import index_entries, snapshot_manifests
from bitlake.snapshot.orphan_files import STAGING, Orphan, find_orphans, orphan_roots
from bitlake.snapshot.partitions import PartitionReader, mark_partition_done
from bitlake.snapshot.removal_markers import delete_strays, load_line
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, check_history, delete_files, first_link
from bitlake.snapshot.tags import create_automatic_tags
from bitlake.snapshot.time_travel import Time, epoch_millis
from bitlake.snapshot.versions import branch_names, earliest_snapshot_id, snapshot_ids, tag_names
from bitlake.tools.scan_log import scan_log_of
from bitlake.write.append_dml import discard_index_files, read_vectors_of, replaced_index_files, vector_change
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, physical_partition

if TYPE_CHECKING:
    from bitlake.tools.inspect.inspection import Inspection
    from bitlake.tools.report import TableReport
    from bitlake.tools.verify import VerifyReport
    from bitlake.tools.verify.repair import Repair

core_of = attrgetter("_core")
"""The core's table of a facade, whose name and progress its jobs show."""


class TableMaintenance:
    """The namespace ``table.maintenance``.

    >>> snapshots = [table.append(rows), table.append(rows)]
    >>> table.maintenance.compact(full=True)
    Snapshot(5: COMPACT at 2026-01-04 12:00:00 UTC, 8 rows)
    >>> table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=timedelta(days=1))
    Expiry(3 snapshots before 4, 6 files)
    """

    def __init__(self, core: FileStoreTable, runner: Runner | None = None) -> None:
        """``runner`` lists, reads and deletes files; None: threads, or what the table's own runner uses."""
        self._core = core
        self._runner = runner

    # --- rows and files ----------------------------------------------------------------------------------------------

    def compact(self, full: bool = False, where: str | None = None) -> Snapshot | None:
        """Compact sorted runs, small files and deleted rows: what the options ask for, or with ``full`` all of them.

        ``where`` chooses partitions.  Returns the last COMPACT snapshot; None if there was nothing to do.

        >>> snapshots = [table.append(rows), table.append(rows)]
        >>> table.maintenance.compact(full=True, where="day = '2026-01-04'")
        Snapshot(5: COMPACT at 2026-01-04 12:00:00 UTC, 8 rows)
        """
        return self._core.compact(full, where)

    @tracked("rescaling", core_of)
    def rescale(self, buckets: int) -> None:
        """Spread the rows over another number of fixed buckets, by an overwrite with the table's own rows.

        Raises :class:`InvalidRequest` for a table without fixed buckets.

        >>> customers.maintenance.rescale(4)
        >>> customers.schema.num_buckets
        4
        """
        rescale(self._core, buckets)

    @tracked("switching deletion vectors on for", core_of)
    def enable_deletion_vectors(self) -> TableSchema:
        """Switch deletion vectors on for a table with data; a full compaction keeps the same rows visible throughout.

        Raises :class:`InvalidRequest` if other options exclude them, :class:`CommitConflict` if other writers keep
        committing meanwhile.

        >>> customers.maintenance.enable_deletion_vectors().options
        {'bucket': '1', 'deletion-vectors.enabled': 'true'}
        """
        return switch_deletion_vectors(self._core, True)

    @tracked("switching deletion vectors off for", core_of)
    def disable_deletion_vectors(self) -> TableSchema:
        """Switch deletion vectors off after a full compaction, since without them deleted rows would come back.

        >>> schema = customers.maintenance.enable_deletion_vectors()
        >>> customers.maintenance.disable_deletion_vectors().options
        {'bucket': '1', 'deletion-vectors.enabled': 'false'}
        """
        return switch_deletion_vectors(self._core, False)

    # --- expiry ------------------------------------------------------------------------------------------------------

    @tracked("expiring snapshots of", core_of)
    def expire_snapshots(
        self,
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: timedelta | Time | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> Expiry:
        """Delete old snapshots and the files that only they need; returns what was, or with ``dry_run`` would be.

        ``retain_max`` and ``retain_min`` are numbers of snapshots, ``older_than`` is an age or a time, ``max_deletes``
        the most snapshots of this call.  The defaults are the options ``snapshot.*``; ``options`` override the table's.

        >>> table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(days=1))
        Expiry(1 snapshot before 2, 2 files)
        >>> table.history.snapshots()
        [Snapshot(2: APPEND at 2026-01-03 08:00:00 UTC, 6 rows)]
        """
        state = self._core.state()
        schema = state.schema.with_options(options) if options else state.schema
        work = plan_expiry if dry_run else expire
        for name, number in (("retain_max", retain_max), ("retain_min", retain_min), ("max_deletes", max_deletes)):
            if number is not None:
                arguments.whole(name, number)
        retention = Retention(retain_max, retain_min, self._time(older_than), max_deletes)
        return work(state.table_files, schema, retention)

    @tracked("expiring partitions of", core_of)
    def expire_partitions(
        self,
        older_than: timedelta | None = None,
        *,
        formatter: str | None = None,
        pattern: str | None = None,
        strategy: str | None = None,
        max_expires: int | None = None,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Delete the rows of partitions that are too old; returns the partitions as values by column.

        A partition's age is that of its values (``strategy`` ``values-time``: ``pattern`` joins the columns and
        ``formatter`` parses the result) or of its last write (``update-time``).  At most ``max_expires`` partitions
        expire; ``dry_run`` changes nothing.  The defaults are the options ``partition.expiration-*``; all partitions
        that are too old expire if the table does not set ``partition.expiration-max-num``.
        One commit drops ``partition.expiration-batch-size`` partitions, by default all of them.
        Raises :class:`InvalidRequest` if neither ``older_than`` nor the options give an age.

        >>> table.maintenance.expire_partitions(timedelta(days=2), formatter="yyyy-MM-dd", dry_run=True)
        [{'day': datetime.date(2026, 1, 1)}, {'day': datetime.date(2026, 1, 2)}]
        """
        state = self._core.state()
        stored = PartitionAge.of(state.schema.options)
        if older_than is None and stored is None:
            raise InvalidRequest(
                f"table '{self._core.name}' has no partition age: give older_than, or set the option "
                "'partition.expiration-time'"
            )
        if older_than is not None and not isinstance(older_than, timedelta):
            raise InvalidRequest(f"invalid older_than {older_than!r}; expected a timedelta, such as timedelta(days=7)")
        age = stored or PartitionAge(0)
        age = PartitionAge(
            age.limit_ms if older_than is None else older_than // timedelta(milliseconds=1),
            formatter or age.formatter,
            pattern or age.pattern,
            strategy or age.strategy,
        )
        max_expires = max_expired_partitions(state.schema) if max_expires is None else max_expires
        if dry_run:
            expired = expired_partitions(state, age, max_expires)
        else:
            expired = drop_expired(self._core.state, self._core.truncate, age, max_expires)
        return [
            {name: physical_array(state.schema.field(name), [value])[0].as_py() for name, value in partition.items()}
            for partition in expired
        ]

    def expire_tags(self, older_than: timedelta | Time | None = None, *, dry_run: bool = False) -> list[str]:
        """Delete the tags whose retention is over, and those created before a time; returns their names.

        As in Paimon, ``older_than`` also deletes tags without a retention.  ``dry_run`` changes nothing.

        >>> table.history.create_tag("january", retain=timedelta(days=365))
        True
        >>> table.maintenance.expire_tags(older_than="2026-01-10")
        ['january']
        """
        millis = self._time(older_than)
        if millis is not None:
            # Tags store the local wall clock of their creation.
            millis += _clock.local_ms() - _clock.now_ms()
        with self._core.changing_history() as state:
            return tags.expire_tags(state, millis, dry_run=dry_run)

    def create_automatic_tags(self) -> list[str]:
        """Create the tags that the options ``tag.*`` ask for by now; returns their names.

        >>> options = {"tag.automatic-creation": "process-time", "tag.creation-period": "daily"}
        >>> schema = table.alter_options(options)
        >>> table.maintenance.create_automatic_tags()
        ['2026-01-01', '2026-01-02']
        """
        return create_automatic_tags(self._core.state())

    def mark_partition_done(self, values: Mapping[str, Any]) -> str:
        """Write a file ``_SUCCESS`` into a partition's folder, which marks it as complete; returns its path.

        ``values`` are those of all partition columns.  Raises :class:`NotFound` for a partition without rows.

        >>> table.maintenance.mark_partition_done({"day": date(2026, 1, 2)})
        '.../shop/default.db/orders/day=2026-01-02/_SUCCESS'
        """
        state = self._core.state()
        return mark_partition_done(state, physical_partition(state.name, state.schema, values) or {})

    # --- orphans, lost files, manifests, hints -----------------------------------------------------------------------

    @tracked("removing orphan files of", core_of)
    def remove_orphan_files(self, older_than: timedelta | Time | None = None, *, dry_run: bool = False) -> list[Orphan]:
        """Delete files older than an age or time (default: a day) that no snapshot, tag or branch names.

        Returns them; ``dry_run`` changes nothing.  A limit younger than the oldest running write deletes that writer's
        files: keep a day, or be sure that no write is running.

        >>> [orphan.path for orphan in table.maintenance.remove_orphan_files(timedelta(hours=12), dry_run=True)]
        ['.../shop/default.db/orders/day=2026-01-03/bucket-0/data-of-a-killed-writer-0.parquet']
        """
        state = self._core.state()
        runner = self._runner or LocalRunner(REQUESTS)
        limit = self._time(timedelta(days=1) if older_than is None else older_than)
        assert limit is not None
        orphans = find_orphans(state, limit, runner)
        if not dry_run:
            delete_files(state.store, [o.path for o in orphans], runner, orphan_roots(state))
            self._remove_empty(state.store, f"{state.paths.root}/{STAGING}")
            for branch in (None, *branch_names(state.table_files)):
                self._remove_records(state.store, state.paths.on_branch(branch), limit)
        return orphans

    def _remove_records(self, store: Store, paths: TablePaths, older_than_ms: int) -> None:
        line = load_line(TableFiles(store, paths))
        if line.records:
            check_history(store, paths)
            delete_strays(TableFiles(store, paths), line.announced, older_than_ms)

    def _remove_empty(self, store: Store, folder: str) -> None:
        """Delete staging folders that nothing is in."""
        if first_link(store, folder.rpartition("/")[0], folder) is not None:
            return
        for f in store.list(folder):
            if f.is_dir and not f.is_link and not _holds_files(store, f"{folder}/{f.name}"):
                store.delete_dir(f"{folder}/{f.name}")

    @tracked("looking for the files of", core_of)
    def remove_unexisting_files(self, *, dry_run: bool = False) -> list[str]:
        """Remove data files that no longer exist from the latest snapshot, with their rows; returns their paths.

        Use it after a file was deleted by hand, so that the table can be read again.

        >>> table.maintenance.remove_unexisting_files(dry_run=True)
        []
        """
        state = self._core.state()
        self._core.check_writable(state, keyed=True)
        entries = state.entries()
        reader = PartitionReader(state.schema, state.paths)
        paths = [reader.data_path(e) for e in entries]
        exist = (self._runner or LocalRunner(REQUESTS)).run(paths, state.store.exists)
        missing: list[ManifestEntry] = [e for e, exists in zip(entries, exist, strict=True) if not exists]
        if missing and not dry_run:
            # OVERWRITE, so that streams and incremental reads do not take it for compaction.
            changes = _without_vectors(state, missing)
            plan = CommitPlan("OVERWRITE", deletes=tuple(missing), index=changes)
            commit(
                state.store,
                state.paths,
                plan,
                state.schema,
                self._core.commit_user(state),
                operation="DELETE",
                on_failure=lambda: discard_index_files(state, [e for c in changes for e in c.new]),
            )
        return [p for p, exists in zip(paths, exist, strict=True) if not exists]

    @tracked("purging", core_of)
    def purge_files(self) -> int:
        """Delete all rows, snapshots, tags, branches and consumers; returns the number of files deleted.

        Nobody may write meanwhile: their files would be deleted too.

        >>> table.maintenance.purge_files()
        8
        >>> table.count()
        0
        """
        state = self._core.state()
        if state.paths.branch is not None:
            raise InvalidRequest(
                f"table '{self._core.name}': purge_files is for the whole table; open it without a branch"
            )
        self._core.check_writable(state, keyed=True)
        check_history(state.store, state.paths)
        for name in branch_names(state.table_files):
            branches.delete_branch(state, name)
        for name in tag_names(state.table_files):
            tags.delete_tag(state, name, if_exists=True)
        state.store.delete_dir(f"{state.paths.root}/consumer")
        deleted = 0
        if state.snapshot is not None:
            self._core.truncate()
            tomorrow = -timedelta(days=1)
            expiry = self.expire_snapshots(retain_max=1, retain_min=1, older_than=tomorrow, max_deletes=2**31 - 1)
            deleted = len(expiry.data_files) + len(expiry.metadata_files)
        return deleted + len(self.remove_orphan_files(-timedelta(days=1)))

    @tracked("writing the Iceberg metadata of", core_of)
    def create_iceberg_metadata(self) -> str:
        """Publish the latest snapshot as Iceberg metadata, unless it is published; returns the path of the metadata.

        Every commit does this where the option ``metadata.iceberg.storage`` asks for it: call it once after setting the
        option for a table with rows.  Raises :class:`InvalidRequest` for a table without the option or without rows.

        >>> schema = table.alter_options({"metadata.iceberg.storage": "table-location"})
        >>> table.maintenance.create_iceberg_metadata()
        '.../shop/default.db/orders/metadata/v2.metadata.json'
        """
        return create_iceberg_metadata(self._core.state())

    @tracked("compacting the manifests of", core_of)
    def compact_manifests(self, options: Mapping[str, str] | None = None) -> Snapshot | None:
        """Rewrite manifests that are small or hold deletions, so that planning opens fewer.

        ``options`` override the table's, such as ``manifest.target-file-size``.  Returns the COMPACT snapshot; None if
        there is nothing to do.

        >>> table.maintenance.compact_manifests()
        Snapshot(3: COMPACT at 2026-01-04 12:00:00 UTC, 6 rows)
        """
        state = self._core.state()
        self._core.check_writable(state, keyed=True)
        if state.snapshot is None:
            return None
        schema = state.schema.with_options(options) if options else state.schema
        target = schema.opts.of(opt.MANIFEST_TARGET_SIZE)
        metas = snapshot_manifests(state.table_files, state.snapshot)
        if sum(m.num_deleted_files > 0 or m.file_size < target for m in metas) < 2:
            return None
        made = {**schema.options, opt.FORCE_SNAPSHOT.name: "true", opt.MANIFEST_FULL_SIZE.name: "1 b"}
        return commit(
            state.store, state.paths, CommitPlan("COMPACT"), state.schema, self._core.commit_user(state), options=made
        )

    @tracked("repairing", core_of)
    def repair_hints(self) -> tuple[int, int] | None:
        """Rewrite the hints of the first and last snapshot from the existing snapshots; returns both ids.

        >>> table.maintenance.repair_hints()
        (1, 2)
        """
        state = self._core.state()
        ids = snapshot_ids(state.table_files)
        if not ids:
            return None
        state.store.write(state.paths.latest_hint, str(ids[-1]).encode())
        state.store.write(state.paths.earliest_hint, str(ids[0]).encode())
        return ids[0], ids[-1]

    def repair_earliest_snapshot(self, snapshot_id: int) -> tuple[int, int]:
        """Set the table's first snapshot, where those before it are damaged or missing.

        Returns the first snapshot before and after.  Raises :class:`InvalidRequest` unless that snapshot and all after
        it exist, and it is not before the present first one.

        >>> table.maintenance.repair_earliest_snapshot(2)
        (1, 2)
        """
        state = self._core.state()
        previous = earliest_snapshot_id(state.table_files)
        ids = snapshot_ids(state.table_files)
        if previous is None or not ids:
            raise InvalidRequest(f"table '{self._core.name}' has no snapshots")
        snapshot_id = arguments.whole("snapshot_id", snapshot_id)
        why = f"it has snapshots {previous} to {ids[-1]}"
        if previous <= snapshot_id <= ids[-1]:
            kept = [i for i in ids if i >= snapshot_id]
            missing = next((n for n, i in enumerate(kept, snapshot_id) if n != i), None)
            why = "" if missing is None else f"snapshot {missing} is missing"
        if why:
            raise InvalidRequest(f"table '{self._core.name}' cannot begin with snapshot {snapshot_id}: {why}")
        state.store.write(state.paths.earliest_hint, str(snapshot_id).encode())
        return previous, snapshot_id

    # --- verify, repair, report --------------------------------------------------------------------------------------

    @tracked("verifying", core_of)
    def verify(
        self, deep: bool = True, *, snapshots: Collection[int] | None = None, orphans: bool = True
    ) -> VerifyReport:
        """Check that everything that snapshots, tags and branches need is there, sound, and as metadata says it is.

        ``deep``: read every data file and index, and compare them with their metadata; else only metadata, sizes and
        footers.  ``snapshots``: only these, without tags, branches and hints.  ``orphans``: count files that
        nothing names, which is not a fault.  Never raises for what is in the files: that is what the report is for.

        >>> report = table.maintenance.verify()
        >>> report.ok
        True
        >>> print(report)
        Table 'default.orders': no fault found.
        ...
        """
        # Imported lazily: only `verify()` needs it.
        from bitlake.tools.verify import verify_table

        return verify_table(
            self._core.name,
            self._core.paths,
            self._core.store,
            self._runner or self._core.runner(),
            deep=deep,
            snapshots=snapshots,
            orphans=orphans,
        )

    @tracked("repairing", core_of)
    def repair(
        self,
        report: VerifyReport | None = None,
        *,
        dry_run: bool = True,
        indexes: Literal["rebuild", "drop"] = "rebuild",
    ) -> Repair:
        """Repair, in a new snapshot, what can be rebuilt from sound data: hints, file indexes, HASH indexes.

        ``report`` is a result of :meth:`verify`; None runs it now.  ``dry_run`` (the default) changes nothing and
        returns the plan.  ``indexes``: ``rebuild`` damaged file indexes, or ``drop`` them.  No row changes.
        Raises :class:`CommitConflict` if another writer changed the same files meanwhile, and what reading the table
        raises if its latest snapshot cannot be read.

        >>> table.maintenance.repair()
        Repair(default.orders: 0 actions planned, 0 findings left)
        """
        from bitlake.tools.verify.repair import carry_out, plan_repair

        findings = self.verify(orphans=False) if report is None else report
        state = self._core.state()
        if dry_run:
            return plan_repair(state, findings, indexes)
        self._core.check_writable(state, keyed=True)
        return carry_out(state, findings, indexes, self._runner or self._core.runner(), self._core.commit_user(state))

    def report(self, path: str | os.PathLike[str] | None = None, *, top: int = 15) -> TableReport:
        """Report where the table's bytes are and what to do about it, from metadata alone.

        ``path``: a local file to save the report in, as an HTML page.  ``top``: how many partitions it lists.

        >>> report = table.maintenance.report("orders.html")
        >>> report.total.rows, report.snapshots
        (6, 2)
        """
        from bitlake.tools.report import gather

        facts = gather(self._core.state(), scan_log_of(self._core).read(1000), top=top)
        if path is not None:
            Path(path).write_text(facts.to_html(), encoding="utf-8")
        return facts

    def inspect(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int = 20,
        column: str | None = None,
        value: Any = ...,
        hex: tuple[int, int] | None = None,
    ) -> Inspection:
        """Show the parts of a file of the table, with their offsets and sizes in bytes.

        ``path``: full, relative to the table's folder, or a name; ``….parquet.index`` of an index embedded in a
        manifest is one, too.  Lists show ``limit`` entries from ``offset`` on.  ``column`` shows a Parquet file's pages
        of it, a file index's values, a manifest's statistics; with ``value`` (None is NULL) the rows that each index
        has for it.  ``hex``: (offset, length) of a region to show as bytes.  Damaged files show the parts up to the
        fault, and the fault.

        >>> table.maintenance.inspect("snapshot-2").kind
        'snapshot'
        """
        from bitlake.tools.inspect.inspection import ANY, inspect_file

        return inspect_file(
            path,
            store=self._core.store,
            table=self._core.paths,
            offset=offset,
            limit=limit,
            column=column,
            value=ANY if value is ... else value,
            hex=hex,
            timezone=self._core.timezone,
        )

    def _time(self, given: timedelta | Time | None) -> int | None:
        """An age or a time as milliseconds since the epoch."""
        if given is None:
            return None
        if isinstance(given, timedelta):
            return _clock.now_ms() - given // timedelta(milliseconds=1)
        return epoch_millis(given, self._core.timezone)


def _without_vectors(state: TableState, gone: Sequence[ManifestEntry]) -> tuple[IndexChange, ...]:
    """The deletion vectors of files that are gone, taken out of their buckets' index files."""
    if not state.schema.opts.of(opt.DV_ENABLED):
        return ()
    indexes: dict[Slot, list[IndexFileEntry]] = {}
    for entry in index_entries(state.table_files, state.snapshot):
        if entry.index_type == DELETION_VECTORS:
            indexes.setdefault((entry.partition, entry.bucket), []).append(entry)
    lost: dict[Slot, set[str]] = {}
    for e in gone:
        lost.setdefault((e.partition, e.bucket), set()).add(e.file.file_name)
    rows = {e.file.file_name: e.file.row_count for e in state.entries()}
    changes = []
    for slot, names in lost.items():
        base = replaced_index_files(state, indexes.get(slot, []), names)
        if base:
            held = {n: v for n, v in read_vectors_of(state, base, rows).items() if n not in names}
            changes.append(vector_change(state, slot, base, held))
    return tuple(changes)


def _holds_files(store: Store, folder: str) -> bool:
    return any(not f.is_dir or f.is_link or _holds_files(store, f"{folder}/{f.name}") for f in store.list(folder))
