"""DML on primary-key tables in this process: upsert, overwrite, delete, update, and the compaction of a table.

UPSERT, UPDATE and most DELETEs write rows (+I, +U, -D) to level 0; compactions merge them later.  Where the merge
engine ignores -D rows, DELETE writes deletion vectors, as for append tables, or rewrites files:

* Rows are found by position, as in append tables.  Files whose rows are merged count as one, and a row's position is
  its place among the merged rows.
* The files hit are written again without the deleted rows, in one OVERWRITE snapshot: a single file at its level,
  merged files as one at their highest level, which then holds all rows of their keys (files are merged if and only if
  their key ranges overlap).  Rows keep their sequence numbers.
* Paimon writes the remaining rows to level 0, and compacts in a second snapshot (index-format spec, section 9.8): with
  ``first-row``, where level 0 is not read, all rows of a file are invisible in between; here they never are.  As in
  Paimon, the changelog does not show the deletion; other changes that it has yet to show are compacted first.

Memory: a batch of rows, and the write buffer or an open row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.roaring import deserialize, positions_of, serialize
from bitlake.errors import CommitConflict, InvalidRequest, reading_table
from bitlake.expressions.tree import TRUE, columns_of
from bitlake.io import Store
from bitlake.mergetree.bucket import BucketChange, MergeTreeContext, bucket_states, merge_tree_context
from bitlake.mergetree.commit import MergeTreeTable, Publisher, compact_buckets, discard_changes
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import postponed_files, read_postponed, schema_with_buckets
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner, Runner, at_least
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import ROW_INDEX, ReadRequest, alive, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.schema import merge_spec
from bitlake.schema.create import check_schema_options
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.partitions import discard_entries, entries_of
from bitlake.snapshot.state import TableState
from bitlake.write import append_dml
from bitlake.write.commit import COMPACT_TRIES, is_committed
from bitlake.write.commit_plan import BatchCommitted, Overwrite
from bitlake.write.frames import Rows, arrow_tables, is_repeatable

PlacePostponed: TypeAlias = Callable[[Publisher, TableState, Mapping[bytes, Sequence[ManifestEntry]]], Snapshot | None]
"""Assigns buckets to the postponed rows of files, by partition, and commits them."""

_BATCH_ROWS = 1 << 14
"""Rows that are prepared together: a batch takes some 2 ms, however few its rows are."""
_TRIES = 20
"""Attempts of a write while other writers keep extending the same dynamic buckets."""


def upsert(
    table: MergeTreeTable,
    rows: Rows,
    kinds: Any = None,
    *,
    operation: str = "WRITE",
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Write rows and commit them; see :meth:`bitlake.table.table.Table.upsert`.

    If another writer changed the index of a dynamic bucket, on which the rows' buckets depend, repeatable rows are
    written again.  ``identifier`` is a stream's batch: raises :class:`BatchCommitted` if it is committed already.
    """
    tries = _TRIES if is_repeatable(rows) else 1
    for tries_left in range(tries - 1, -1, -1):
        state = table.state()
        check_primary_key(table.name, state.schema)
        user = table.publisher(state).user
        if identifier != BATCH_IDENTIFIER and is_committed(state, user, identifier):
            # The commit checks only snapshots after this state, and an earlier try looked at an older state.
            raise BatchCommitted(f"batch {identifier} of {user} is in table '{table.name}' already")
        batches = prepare_rows(table.name, state.schema, arrow_tables(rows), kinds)
        try:
            return _write(table, state, batches, operation, overwrite, identifier=identifier)
        except BatchCommitted:
            raise
        except CommitConflict:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _write(
    table: MergeTreeTable,
    state: TableState,
    batches: Iterable[pa.Table],
    operation: str,
    overwrite: Overwrite | None = None,
    *,
    renumber: bool = True,
    identifier: int = BATCH_IDENTIFIER,
    hits: append_dml.Hits | None = None,
) -> Snapshot | None:
    publisher = table.publisher(state, identifier)
    changes = write_changes(state, batches, publisher.user, fresh=overwrite is not None, hits=hits)
    return publisher.publish(state, changes, operation=operation, overwrite=overwrite, renumber=renumber)


def check_primary_key(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` unless the table has a primary key and can be written."""
    if not schema.primary_keys:
        raise InvalidRequest(f"table '{table}' has no primary key: rows can be appended to it, not upserted")
    check_schema_options(table, schema, declares=False)


# --- DELETE and UPDATE by rows ----------------------------------------------------------------------------------------


def deletes_by_rows(state: TableState) -> bool:
    """Return whether DELETE writes -D rows: if the merge engine removes rows by them, and they are not ignored."""
    schema, options = state.schema, state.schema.opts
    if not schema.primary_keys or options.of(opt.IGNORE_DELETE):
        return False
    engine = options.of(opt.MERGE_ENGINE)
    if engine == merge_spec.PARTIAL_UPDATE:
        spec = merge_spec.MergeSpec.of(schema)
        return spec.remove_on_delete or bool(spec.remove_on_group)
    return engine == merge_spec.DEDUPLICATE or (
        engine == merge_spec.AGGREGATION and merge_spec.MergeSpec.of(schema).remove_on_delete
    )


def deletes_partitions(scan: TableScan) -> bool:
    """Return whether DELETE drops the files of a primary-key table's partitions without reading or writing rows.

    As in Paimon, it does so without a condition, or with one of partition columns only, whatever the merge engine.  The
    changelog then lacks the deletion; with ``delete.force-produce-changelog`` a DELETE with a condition writes -D rows.
    """
    schema, predicate = scan.state.schema, scan.predicate
    if not schema.primary_keys or predicate is None or predicate == TRUE:
        return bool(schema.primary_keys)
    keys = schema.partition_keys
    return bool(keys) and columns_of(predicate) <= set(keys) and not schema.opts.of(opt.DELETE_FORCE_CHANGELOG)


def check_row_changes(table: str, schema: TableSchema, statement: str) -> None:
    """Raise :class:`InvalidRequest` unless a new row replaces the old one, as UPDATE and MERGE need (as in Paimon)."""
    engine = schema.opts.of(opt.MERGE_ENGINE)
    if engine not in (merge_spec.DEDUPLICATE, merge_spec.PARTIAL_UPDATE):
        raise InvalidRequest(
            f"table '{table}': {statement} needs merge engine '{merge_spec.DEDUPLICATE}' or "
            f"'{merge_spec.PARTIAL_UPDATE}', and the table has '{engine}'"
        )
    check_row_kinds(table, schema)


def check_row_kinds(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` if row kinds come from a column, so that a statement cannot choose them."""
    if schema.opts.of(opt.ROWKIND_FIELD) is not None:
        raise InvalidRequest(f"table '{table}' takes row kinds from a column: upsert rows instead")


def check_assignable(table: str, schema: TableSchema, columns: Iterable[str]) -> None:
    """Raise :class:`InvalidRequest` for columns of the primary key or the partition: UPDATE cannot set them."""
    fixed = next((n for n in columns if n in schema.primary_keys or n in schema.partition_keys), None)
    if fixed is not None:
        raise InvalidRequest(
            f"table '{table}': column '{fixed}' belongs to the primary key or the partition, which UPDATE cannot "
            "change; delete the rows and insert new ones"
        )


def latest_rows(scan: TableScan) -> TableScan:
    """The scan with level 0, for a statement that computes rows from the rows it reads.

    Readers of a table with deletion vectors do not see level 0.  Between another writer's commit and its compaction,
    the newest rows are there alone: a row that is computed from an older one would undo theirs.
    """
    schema = scan.state.schema
    if not schema.primary_keys or not schema.opts.of(opt.DV_ENABLED):
        return scan
    return scan.with_level_0()


def delete(table: MergeTreeTable, scan: TableScan) -> int:
    """Write a -D row for every row that a scan selects; returns their number."""
    state = scan.state
    check_primary_key(table.name, state.schema)
    scan = latest_rows(scan)
    if state.schema.opts.of(opt.DV_ENABLED) and reads_files_as_they_are(scan):
        return delete_hits(table, scan, append_dml.find_hits(scan, LocalRunner()))
    return _write_kind(table, state, scan.select(state.schema.field_names), merge_spec.DELETE, "DELETE", None)


def reads_files_as_they_are(scan: TableScan) -> bool:
    """Return whether a scan merges no rows, so that its rows are known by their files and positions there."""
    return not is_cross_partition(scan.state.schema) and all(f.merge is None for f in scan.exact_plan().files)


def delete_hits(table: MergeTreeTable, scan: TableScan, hits: append_dml.Hits) -> int:
    """Write a -D row for each of these rows, which the scan's state holds live and unmerged; returns how many.

    Whole rows are written, as in Paimon: the audit log and change streams show the deleted rows.
    """
    if not hits:
        return 0
    state = scan.state
    rows = append_dml.scan_of_hits(scan.select(state.schema.field_names), hits)
    return _write_kind(table, state, rows, merge_spec.DELETE, "DELETE", None, hits)


def update(table: MergeTreeTable, scan: TableScan, values: Mapping[str, Any]) -> int:
    """Write a +U row with new values for every row that a scan selects; returns their number.

    Raises :class:`InvalidRequest` for columns that UPDATE cannot set, and for merge engines that do not replace rows.
    """
    schema = scan.state.schema
    check_primary_key(table.name, schema)
    check_row_changes(table.name, schema, "UPDATE")
    assignments = append_dml.resolve_assignments(schema, values)
    check_assignable(table.name, schema, assignments)
    rows = latest_rows(scan).select(schema.field_names)
    return _write_kind(table, scan.state, rows, merge_spec.UPDATE_AFTER, "UPDATE", assignments)


def _write_kind(
    table: MergeTreeTable,
    state: TableState,
    scan: TableScan,
    kind: int,
    operation: str,
    values: Mapping[str, Any] | None,
    hits: append_dml.Hits | None = None,
) -> int:
    count = 0
    check_row_kinds(table.name, state.schema)

    def rows() -> Iterator[pa.Table]:
        nonlocal count
        batches = (
            map(pa.Table.from_batches, at_least(_BATCH_ROWS, scan.to_batches(), len))
            if values is None
            else append_dml.updated_batches(scan, values)
        )
        for batch in batches:
            count += batch.num_rows
            kinds = pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows)
            yield from prepare_rows(table.name, state.schema, [batch], kinds)

    # It must not be renumbered: the statement has to read the rows that another writer committed first.
    _write(table, state, rows(), operation, renumber=False, hits=hits)
    return count


# --- compaction -------------------------------------------------------------------------------------------------------


def compact(
    table: MergeTreeTable,
    state: TableState,
    entries: Sequence[ManifestEntry],
    full: bool,
    place: PlacePostponed | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Compact the buckets of files ``entries``; returns the last snapshot, None if there was nothing to do.

    Postponed rows are assigned to buckets first, by ``place`` (default: :func:`place_postponed`).  ``full``: compact
    all files, not only the pending ones.
    """
    check_primary_key(table.name, state.schema)
    publisher = table.publisher(state, identifier)
    waiting = postponed_files(entries)
    placed = (place or place_postponed)(publisher, state, waiting) if waiting else None
    if placed is not None:
        partitions = set(waiting)
        state = table.state()
        entries = [*entries, *(e for e in entries_of(state, partitions) if e.partition in partitions)]
    states = bucket_states(state, {(e.partition, e.bucket) for e in entries if e.bucket >= 0})
    compactions = compact_buckets(state, list(states.values()), publisher.runner, full)
    return (publisher.compact(state, compactions, operation=None, full=full) if compactions else None) or placed


def place_postponed(
    publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
) -> Snapshot | None:
    """Write postponed rows into level 0 of their buckets and commit that in place of their files."""
    changes: list[BucketChange] = []
    live = entries_of(state, waiting)
    context = merge_tree_context(state, live)
    try:
        for partition, files in waiting.items():
            bucketed = replace(state, schema=schema_with_buckets(state.schema, partition, files, live))
            rows = read_postponed(context, state.store, partition, files)
            changes += write_changes(bucketed, rows, publisher.user, compact=False)
    except BaseException:
        discard_changes(state, changes)
        raise
    return publisher.replace_files(state, [e for files in waiting.values() for e in files], changes)


# --- DELETE by rewriting files ----------------------------------------------------------------------------------------


def deletes_by_rewrite(state: TableState) -> bool:
    """Return whether DELETE rewrites files: the table has a primary key, no -D rows and no deletion vectors."""
    schema = state.schema
    return bool(schema.primary_keys) and not deletes_by_rows(state) and not schema.opts.of(opt.DV_ENABLED)


def delete_by_rewrite(scan: TableScan, runner: Runner, commit: append_dml.CommitRows) -> int:
    """Delete the rows that a scan selects by rewriting files; returns their number."""
    deletion = write_table_deletion(scan.state, append_dml.find_hits(position_scan(scan), runner), runner)
    if deletion.rows:
        commit(scan.state, deletion, "DELETE", ())
    return deletion.rows


def compact_pending(table: MergeTreeTable, state: TableState, *, overwrites: bool = False) -> TableState:
    """Compact the files that a deletion of rows by position would pass over; returns the state after that.

    These are files of level 0 where readers skip it, whose rows would appear later although the condition is TRUE for
    them; and files whose changes the changelog does not show yet, before a rewrite merges them.

    Other writers may add such files meanwhile.  Deletion vectors leave them as they are.  A rewrite would merge them
    without showing their changes, and an overwrite (``overwrites``) replace them: then they are compacted, too.
    Raises :class:`CommitConflict` if other writers keep adding them.
    """
    if not state.schema.primary_keys:
        return state
    options = state.schema.opts
    producer, skipped = options.of(opt.CHANGELOG_PRODUCER), options.of(opt.DV_ENABLED)
    skipped = skipped or producer == "lookup" or options.of(opt.MERGE_ENGINE) == merge_spec.FIRST_ROW
    every = producer == "full-compaction"
    below = merge_spec.max_level(options) if every else int(skipped)
    needs_all = overwrites or (deletes_by_rewrite(state) and (every or producer == "lookup"))
    for _ in range(COMPACT_TRIES):
        entries = [e for e in state.entries() if e.bucket >= 0]
        if not any(e.file.level < below for e in entries):
            return state
        # A gentle compaction may leave level 0 as it is.
        compact(table, state, entries, full=every or options.of(opt.LOOKUP_COMPACT) == "gentle")
        state = table.state()
        if not needs_all:
            return state
    raise CommitConflict(
        f"table '{table.name}': other writers kept adding rows that a compaction has to merge first; try again"
    )


def position_scan(scan: TableScan) -> TableScan:
    """Return a scan of row positions, whose plan holds merged files with all their rows."""
    return scan.select([ROW_INDEX])


def write_table_deletion(state: TableState, hits: append_dml.Hits, runner: Runner) -> append_dml.RowDeletion:
    """Write a deletion of hits in any table, like :func:`bitlake.write.append_dml.write_deletion` or by rewriting."""
    if not deletes_by_rewrite(state):
        return append_dml.write_deletion(state, hits, runner)
    plan = position_scan(TableScan(state, state.store, state.schema.field_names)).exact_plan()
    units = [f for f in plan.files if hits.get(f.entry.file.file_name)]
    unit_hits = {f.entry.file.file_name: hits[f.entry.file.file_name] for f in units}
    tasks = tasks_of(units, plan.schemas)
    jobs = [
        _RewriteJob(task, unit.entry, max(e.file.level for e in _files(unit)), serialize(BitMap(rows)))
        for task, unit, rows in zip(tasks, units, unit_hits.values(), strict=True)
    ]
    of_items("files")
    with reading_table(state.name):
        results = runner.run(jobs, partial(_rewrite_or_error, merge_tree_context(state), state.store))
    error = next((r for r in results if isinstance(r, Exception)), None)
    adds = [e for r in results if not isinstance(r, Exception) for e in r]
    if error is not None:
        discard_entries(state.table_files, state.schema, adds)
        raise error
    return append_dml.RowDeletion(unit_hits, tuple(e for f in units for e in _files(f)), tuple(adds))


def _files(unit: PlannedFile) -> Sequence[ManifestEntry]:
    return [unit.entry] if unit.merge is None else [f.entry for f in unit.merge.files]


@dataclass(frozen=True, slots=True)
class _RewriteJob:
    """A file, or merged files, to rewrite into ``level`` without the rows of ``deleted`` (a serialized bitmap)."""

    task: FileTask
    entry: ManifestEntry
    level: int
    deleted: bytes


def _rewrite_or_error(
    context: MergeTreeContext, store: Store, job: _RewriteJob
) -> tuple[ManifestEntry, ...] | Exception:
    """Return an error as a value: the caller needs the other results, to delete their files."""
    try:
        return _rewrite_unit(context, store, job)
    except Exception as e:  # noqa: BLE001 - raised by the caller
        return e


def _rewrite_unit(context: MergeTreeContext, store: Store, job: _RewriteJob) -> tuple[ManifestEntry, ...]:
    schema, entry = context.schema, job.entry
    request = ReadRequest(schema, (merge_spec.SEQUENCE_NUMBER, merge_spec.VALUE_KIND, *schema.field_names), None)
    deleted = positions_of(deserialize(memoryview(job.deleted), 1 << 32)[0])
    source = FileSource.COMPACT if job.level else FileSource.APPEND
    arguments: Any = (context, store, entry.partition, entry.bucket, job.level)
    with KeyValueWriter(*arguments, source=source, total_buckets=entry.total_buckets) as writer:
        at = 0
        for stored in read_file(store, job.task, request, ReadCounts()):
            rows = stored.filter(pa.array(alive(stored.column(merge_spec.VALUE_KIND).to_numpy())))
            kept = np.ones(rows.num_rows, bool)
            first, end = np.searchsorted(deleted, [at, at + rows.num_rows])
            kept[deleted[first:end] - at] = False
            at += rows.num_rows
            remaining = rows.filter(pa.array(kept))
            if remaining.num_rows:
                writer.write(remaining)
        return tuple(writer.finish())
