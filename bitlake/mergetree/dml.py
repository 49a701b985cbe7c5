"""Statements on tables with a primary key, in this process: upsert, overwrite, delete, update, compact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.roaring import deserialize, positions_of, serialize
from bitlake.errors import CommitConflict, InvalidRequest, reading_table
from bitlake.io import Store
from bitlake.mergetree.bucket_states import lsm_context
from bitlake.mergetree.commit import Publisher, bucket_states, compact_buckets, discard_changes
from bitlake.mergetree.commit_message import BucketChange, LsmContext
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import postponed, read_postponed, with_buckets
from bitlake.mergetree.writer import Rows, batches_of, can_repeat, prepared, write_changes
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import of_items
from bitlake.runtime import Runner
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import ROW_INDEX, ReadRequest, alive, read_file, tasks_of
from bitlake.scan.scan import Scan
from bitlake.schema.create import check_options
from bitlake.schema.merge_spec import (
    AGGREGATION,
    DEDUPLICATE,
    DELETE,
    PARTIAL_UPDATE,
    SEQUENCE_NUMBER,
    UPDATE_AFTER,
    VALUE_KIND,
    MergeSpec,
    max_level,
)
from bitlake.snapshot.partitions import discard_entries, entries_of
from bitlake.snapshot.state import TableState
from bitlake.write.append_dml import (
    CommitRows,
    Hits,
    RowsGone,
    find_hits,
    resolve_assignments,
    updated_batches,
    write_deletion,
)
from bitlake.write.commit import is_committed
from bitlake.write.commit_plan import BatchCommitted, Overwrite

Place: TypeAlias = Callable[[Publisher, TableState, Mapping[bytes, Sequence[ManifestEntry]]], Snapshot | None]
"""Gives the postponed rows of files, by partition, their buckets, and publishes that."""

_TRIES = 20
"""How often rows are written in all while other writers keep extending the same dynamic buckets."""


class Target(Protocol):
    """What statements ask of a table."""

    name: str

    def state(self) -> TableState:
        """The table now."""

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Who commits to it."""


def upsert(
    table: Target,
    rows: Rows,
    kinds: Any = None,
    *,
    operation: str = "WRITE",
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Write rows and make them visible; see :meth:`bitlake.table.table.Table.upsert`.

    If another writer changed what the rows' places depend on (a dynamic bucket's index), they are written again, where
    they can be gone through a second time.  ``identifier`` is a stream's batch: raises :class:`BatchCommitted` if it is
    in the table already.
    """
    tries = _TRIES if can_repeat(rows) else 1
    for left in range(tries - 1, -1, -1):
        state = table.state()
        check_keyed(table.name, state.schema)
        user = table.publisher(state).user
        if identifier != BATCH_IDENTIFIER and is_committed(state, user, identifier):
            # The commit asks only of snapshots after this state, and a try before this one looked at an older.
            raise BatchCommitted(f"batch {identifier} of {user} is in table '{table.name}' already")
        batches = prepared(table.name, state.schema, batches_of(rows), kinds)
        try:
            return _write(table, state, batches, operation, overwrite, identifier=identifier)
        except BatchCommitted:
            raise
        except CommitConflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _write(
    table: Target,
    state: TableState,
    batches: Iterable[pa.Table],
    operation: str,
    overwrite: Overwrite | None = None,
    *,
    renumber: bool = True,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    publisher = table.publisher(state, identifier)
    changes = write_changes(state, batches, publisher.user, fresh=overwrite is not None)
    return publisher.publish(state, changes, operation=operation, overwrite=overwrite, renumber=renumber)


def check_keyed(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` unless the table has a primary key and can be written."""
    if not schema.primary_keys:
        raise InvalidRequest(f"table '{table}' has no primary key: rows can be appended to it, not upserted")
    check_options(table, dict(schema.options), schema.fields, schema.partition_keys, schema.primary_keys)


# --- DELETE and UPDATE ------------------------------------------------------------------------------------------------


def deletes_by_rows(state: TableState) -> bool:
    """Whether DELETE writes -D rows: where the merge engine lets them remove a row, and they are not ignored."""
    schema, options = state.schema, state.schema.opts
    if not schema.primary_keys or options.of(lsm.IGNORE_DELETE):
        return False
    engine = options.of(opt.MERGE_ENGINE)
    if engine == PARTIAL_UPDATE:
        spec = MergeSpec.of(schema)
        return spec.remove_on_delete or bool(spec.remove_on_group)
    return engine == DEDUPLICATE or (engine == AGGREGATION and MergeSpec.of(schema).remove_on_delete)


def check_changes(table: str, schema: TableSchema, statement: str) -> None:
    """Raise :class:`InvalidRequest` unless UPDATE and MERGE can change rows by writing them again, as in Paimon."""
    engine = schema.opts.of(opt.MERGE_ENGINE)
    if engine not in (DEDUPLICATE, PARTIAL_UPDATE):
        raise InvalidRequest(
            f"table '{table}': {statement} needs a merge engine that takes a new row as it is ({DEDUPLICATE} or "
            f"{PARTIAL_UPDATE}), and it has '{engine}'"
        )
    check_kinds(table, schema)


def check_kinds(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` if row kinds come from a column, and so cannot be chosen by a statement."""
    if schema.opts.of(lsm.ROWKIND_FIELD) is not None:
        raise InvalidRequest(f"table '{table}' takes row kinds from a column: upsert rows instead")


def check_set(table: str, schema: TableSchema, columns: Iterable[str]) -> None:
    """Raise :class:`InvalidRequest` for columns that tell where a row is."""
    fixed = next((n for n in columns if n in schema.primary_keys or n in schema.partition_keys), None)
    if fixed is not None:
        raise InvalidRequest(
            f"table '{table}': column '{fixed}' is of the primary key or a partition, which UPDATE cannot change; "
            "delete the rows and insert new ones"
        )


def delete(table: Target, scan: Scan) -> int:
    """Write a -D row for every row that a scan finds; returns how many."""
    check_keyed(table.name, scan.state.schema)
    return delete_found(table, scan.select(scan.state.schema.field_names))


def delete_found(table: Target, scan: Scan) -> int:
    """As :func:`delete`, of a scan of all columns whose plan is read as it is.

    Whole rows are written, as Paimon writes them: the audit log and streams of changes show what was deleted.
    """
    return _rewrite(table, scan, DELETE, "DELETE", None)


def update(table: Target, scan: Scan, values: Mapping[str, Any]) -> int:
    """Write a +U row for every row that a scan finds, with other values in some columns; returns how many."""
    state = scan.state
    schema = state.schema
    check_keyed(table.name, schema)
    check_changes(table.name, schema, "UPDATE")
    named = resolve_assignments(schema, values)
    check_set(table.name, schema, named)
    return _rewrite(table, scan.select(schema.field_names), UPDATE_AFTER, "UPDATE", named)


def _rewrite(table: Target, scan: Scan, kind: int, operation: str, values: Mapping[str, Any] | None) -> int:
    state, count = scan.state, 0
    check_kinds(table.name, state.schema)

    def rows() -> Iterator[pa.Table]:
        nonlocal count
        batches = (
            (pa.Table.from_batches([b]) for b in scan.to_batches()) if values is None else updated_batches(scan, values)
        )
        for batch in batches:
            count += batch.num_rows
            kinds = pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows)
            yield from prepared(table.name, state.schema, [batch], kinds)

    # An UPDATE that another writer's rows came before must look at them.
    _write(table, state, rows(), operation, renumber=kind == DELETE)
    return count


# --- compaction -------------------------------------------------------------------------------------------------------


def compact(
    table: Target,
    state: TableState,
    entries: Sequence[ManifestEntry],
    full: bool,
    place: Place | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Compact the buckets of some files; None if there was nothing to do.  Postponed rows get their buckets first.

    ``place`` does that; by default they are read and written here.
    """
    check_keyed(table.name, state.schema)
    publisher = table.publisher(state, identifier)
    waiting = postponed(entries)
    placed = (place or place_postponed)(publisher, state, waiting) if waiting else None
    if placed is not None:
        partitions = set(waiting)
        state = table.state()
        entries = [*entries, *(e for e in entries_of(state, partitions) if e.partition in partitions)]
    states = bucket_states(state, {(e.partition, e.bucket) for e in entries if e.bucket >= 0})
    made = compact_buckets(state, list(states.values()), publisher.runner, full)
    return (publisher.compact(state, made, operation=None, full=full) if made else None) or placed


def place_postponed(
    publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
) -> Snapshot | None:
    """Write postponed rows into level 0 of their buckets, in place of their files."""
    changes: list[BucketChange] = []
    live = entries_of(state, waiting)
    context = lsm_context(state, live)
    try:
        for partition, files in waiting.items():
            real = replace(state, schema=with_buckets(state.schema, partition, files, live))
            rows = read_postponed(context, state.store, partition, files)
            changes += write_changes(real, rows, publisher.user, compact=False)
        return publisher.replace_files(state, [e for files in waiting.values() for e in files], changes)
    except BaseException:
        discard_changes(state, changes)
        raise


# --- keyed_rewrite ---
# DELETE of tables with a primary key that take no -D rows and have no deletion vectors: files written again.
#
# Rows are found as in append tables, by position; files whose rows are merged count as one, and a row's position is its
# place among the merged rows.  What was hit is written again without those rows, in one OVERWRITE snapshot: a file of
# its level, merged files as one of their highest level, which holds all that any of them knew of their keys (files are
# merged when, and only when, their key ranges overlap).  Rows keep their sequence numbers.
#
# Paimon writes the rows that stay to level 0, and compacts in a second snapshot (index-format spec, section 9.8): with
# ``first-row``, where level 0 is not read, all rows of a file are gone in between, and here never.  As there, no
# changelog tells of the deletion; what other changes a changelog has yet to tell of is compacted before.


def rewrites(state: TableState) -> bool:
    """Whether DELETE writes files again: a primary key, no -D rows, no deletion vectors."""
    schema = state.schema
    return bool(schema.primary_keys) and not deletes_by_rows(state) and not schema.opts.of(opt.DV_ENABLED)


def delete_by_rewrite(
    table: Target,
    state: TableState,
    scan_of: Callable[[TableState], Scan],
    runner: Runner,
    commit: CommitRows,
) -> int:
    """Delete the rows that a scan finds; returns how many."""
    state = settled(table, state)
    gone = take_out_rows(state, find_hits(positioned(scan_of(state)), runner), runner)
    if gone.rows:
        commit(state, gone, "DELETE", ())
    return gone.rows


def settled(table: Target, state: TableState) -> TableState:
    """The table once its changelog has told of all changes: files that were not compacted yet would be merged here."""
    producer = state.schema.opts.of(opt.CHANGELOG_PRODUCER)
    entries = [e for e in state.entries() if e.bucket >= 0]
    top = max_level(state.schema.opts)
    waiting = {"lookup": lambda level: level == 0, "full-compaction": lambda level: level < top}.get(producer)
    if waiting is None or not any(waiting(e.file.level) for e in entries):
        return state
    compact(table, state, entries, full=producer == "full-compaction")
    return table.state()


def positioned(scan: Scan) -> Scan:
    """A scan whose plan finds rows by their positions: merged files are there with all their rows."""
    return scan.select([ROW_INDEX])


def take_out_rows(state: TableState, hits: Hits, runner: Runner) -> RowsGone:
    """:func:`bitlake.write.append_dml.write_deletion`, of any table."""
    if not rewrites(state):
        return write_deletion(state, hits, runner)
    plan = positioned(Scan(state, state.store, state.schema.field_names)).exact_plan()
    units = [f for f in plan.files if hits.get(f.entry.file.file_name)]
    found = {f.entry.file.file_name: hits[f.entry.file.file_name] for f in units}
    tasks = tasks_of(units, plan.schemas)
    jobs = [
        _Job(task, unit.entry, max(e.file.level for e in _files(unit)), serialize(BitMap(rows)))
        for task, unit, rows in zip(tasks, units, found.values(), strict=True)
    ]
    of_items("files")
    with reading_table(state.name):
        made = runner.run(jobs, partial(_written, lsm_context(state), state.store))
    error = next((m for m in made if isinstance(m, Exception)), None)
    adds = [e for m in made if not isinstance(m, Exception) for e in m]
    if error is not None:
        discard_entries(state.table_files, state.schema, adds)
        raise error
    return RowsGone(found, tuple(e for f in units for e in _files(f)), tuple(adds))


def _files(unit: PlannedFile) -> Sequence[ManifestEntry]:
    return [unit.entry] if unit.merge is None else [f.entry for f in unit.merge.files]


@dataclass(frozen=True, slots=True)
class _Job:
    """Rows to be written again, where they belong, and which of them are not (a serialized bitmap)."""

    task: FileTask
    entry: ManifestEntry
    level: int
    gone: bytes


def _written(context: LsmContext, store: Store, job: _Job) -> tuple[ManifestEntry, ...] | Exception:
    """The new files; an error as a value, so that what was made beside it is told, to be deleted."""
    try:
        return _rewritten(context, store, job)
    except Exception as e:  # noqa: BLE001 - raised by the caller
        return e


def _rewritten(context: LsmContext, store: Store, job: _Job) -> tuple[ManifestEntry, ...]:
    schema, entry = context.schema, job.entry
    request = ReadRequest(schema, (SEQUENCE_NUMBER, VALUE_KIND, *schema.field_names), None)
    gone = positions_of(deserialize(memoryview(job.gone), 1 << 32)[0])
    source = FileSource.COMPACT if job.level else FileSource.APPEND
    arguments: Any = (context, store, entry.partition, entry.bucket, job.level)
    with KeyValueWriter(*arguments, source=source, total_buckets=entry.total_buckets) as writer:
        at = 0
        for stored in read_file(store, job.task, request, ReadCounts()):
            rows = stored.filter(pa.array(alive(stored.column(VALUE_KIND).to_numpy())))
            kept = np.ones(rows.num_rows, bool)
            first, end = np.searchsorted(gone, [at, at + rows.num_rows])
            kept[gone[first:end] - at] = False
            at += rows.num_rows
            left = rows.filter(pa.array(kept))
            if left.num_rows:
                writer.write(left)
        return tuple(writer.finish())
