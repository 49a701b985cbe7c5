"""Writing by independent tasks: each task writes files of its own rows, and one commit publishes all of them.

Spark's Python data sources write this way: rows of a bucket are not shuffled to one task.  Several tasks may write to
one bucket; a task's rows then come after those of the tasks before it, since each task has its own range of sequence
numbers (``docs/decisions/0015-streams.md``).  Compaction depends on all rows of a bucket, and runs after the commit.

Where a row's bucket depends on all other rows (dynamic buckets, keys that are unique across partitions), tasks only
stage their rows, and the commit writes them in one process.  A staged file is one Arrow IPC stream with LZ4 buffers in
the table's staging folder.  No snapshot names it, so orphan cleaning removes the files of a killed job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import overload

import pyarrow as pa

from bitlake import _clock
from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.mergetree import dml
from bitlake.mergetree.bucket import BucketChange
from bitlake.mergetree.commit import MergeTreeTable, discard_changes
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.runtime import at_least
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.orphan_files import STAGING
from bitlake.snapshot.partitions import discard_entries, entries_of_buckets
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files
from bitlake.write.commit_plan import Overwrite
from bitlake.write.register_files import RegisterContext
from bitlake.write.writer import with_defaults, write_rows

log = logging.getLogger("bitlake")

SEQUENCE_RANGE = 1 << 28
"""Sequence numbers of a task in each bucket, and so its most rows.  64 bits last for 10^7 batches of 3,000 tasks."""


@dataclass(frozen=True, slots=True)
class TaskJob:
    """The context that all tasks of a write share; picklable.

    ``fresh``: the rows overwrite the table.  ``kinds`` names the column of row kinds, if the rows have one.
    """

    state: TableState
    user: str
    fresh: bool = False
    kinds: str | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The files of the ``number``-th task: of an append table, of buckets, or staged rows."""

    files: tuple[ManifestEntry, ...] = ()
    changes: tuple[BucketChange, ...] = ()
    staged: tuple[str, ...] = ()
    number: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.changes or self.staged)


def check_tasks(job: TaskJob) -> None:
    """Raise :class:`InvalidRequest` if rows come with kinds and the table has no primary key."""
    if job.kinds is not None and not job.state.schema.primary_keys:
        raise InvalidRequest(
            f"table '{job.state.name}' has no primary key: its rows have no kinds, so column '{job.kinds}' cannot "
            "hold them"
        )


def stages_rows(schema: TableSchema) -> bool:
    """Return whether tasks only stage rows, because a row's bucket depends on all other rows."""
    return bool(schema.primary_keys) and (is_cross_partition(schema) or schema.num_buckets == -1)


def write_task(job: TaskJob, number: int, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Write, or stage, the rows of the ``number``-th task, with the columns' defaults in place of NULLs.

    On an error its files are deleted.  Raises :class:`InvalidRequest` for rows that the table cannot store, and for
    more than :data:`SEQUENCE_RANGE` rows of a bucket.
    """
    state = job.state
    given = (pa.Table.from_batches([b]) for b in batches if b.num_rows)
    tables = (with_defaults(state.name, rows, state.schema) for rows in given)
    if not state.schema.primary_keys:
        return TaskResult(files=tuple(write_rows(state, tables, state.store)), number=number)
    if stages_rows(state.schema):
        return TaskResult(staged=stage_rows(state.store, state.paths, _checked(job, tables)), number=number)
    rows = prepare_rows(state.name, state.schema, tables, job.kinds)
    changes = write_changes(state, rows, job.user, fresh=job.fresh, compact=False, reserved=number * SEQUENCE_RANGE)
    if any(c.rows > SEQUENCE_RANGE for c in changes):
        discard_changes(state, changes)
        raise InvalidRequest(
            f"table '{state.name}': one task has more than {SEQUENCE_RANGE} rows of a bucket; use more tasks"
        )
    return TaskResult(changes=tuple(changes), number=number)


def _checked(job: TaskJob, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows unchanged after checking that the table can store them: at the commit it would be too late."""
    for table in tables:
        for _ in prepare_rows(job.state.name, job.state.schema, [table], job.kinds):
            yield table


def commit_tasks(
    table: MergeTreeTable,
    job: TaskJob,
    results: Sequence[TaskResult],
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Commit the files of all tasks in one snapshot, then run pending compactions; None if there was nothing to do.

    ``identifier`` is a stream's batch: raises :class:`bitlake.write.commit_plan.BatchCommitted` if it is committed
    already, and what :func:`bitlake.write.commit.commit` raises.
    """
    state, operation = job.state, "WRITE" if overwrite is None else "OVERWRITE"
    if not state.schema.primary_keys:
        files = RegisterContext.of(state, state.store).in_sequence([e for r in results for e in r.files])
        return table.commit_files(state, files, operation, overwrite, identifier)
    if stages_rows(state.schema):
        rows = staged_rows(state, results)
        try:
            return dml.upsert(table, rows, job.kinds, operation=operation, overwrite=overwrite, identifier=identifier)
        finally:
            rows.discard()  # no snapshot names them, whatever the outcome of the commit
    changes = [c for r in results for c in r.changes]
    publisher = table.publisher(state, identifier)
    snapshot = publisher.publish(state, changes, operation=operation, overwrite=overwrite)
    return compact_touched(table, results, identifier) or snapshot


def staged_rows(state: TableState, results: Iterable[TaskResult]) -> StagedRows:
    """Return the rows that tasks staged, in the order of the tasks' numbers."""
    ordered = sorted(results, key=lambda r: r.number)
    return StagedRows(state.store, tuple(f for r in ordered for f in r.staged))


def compact_touched(table: MergeTreeTable, results: Sequence[TaskResult], identifier: int) -> Snapshot | None:
    """Run pending compactions of the buckets that tasks wrote to; a failure is left to the next writer."""
    touched = {(c.partition, c.bucket) for r in results for c in r.changes if c.bucket != POSTPONE_BUCKET}
    try:
        state = table.state()
        if state.schema.opts.of(opt.WRITE_ONLY) or not state.schema.primary_keys:
            return None
        entries = [e for e in entries_of_buckets(state, touched) if (e.partition, e.bucket) in touched]
        return dml.compact(table, state, entries, full=False, identifier=identifier) if entries else None
    except (StorageUnavailable, NotFound) as e:  # NotFound: the state's snapshot has expired meanwhile
        log.warning("%s: the rows are written, but not yet compacted: %s", table.name, e)
        return None


def discard_tasks(state: TableState, results: Iterable[TaskResult]) -> None:
    """Delete the files of tasks that no commit will name."""
    results = list(results)
    discard_entries(state.table_files, state.schema, [e for r in results for e in r.files])
    discard_changes(state, [c for r in results for c in r.changes])
    staged_rows(state, results).discard()


# --- staged rows ------------------------------------------------------------------------------------------------------

FILE_BYTES = 32 << 20
"""Arrow bytes of the rows of a staged file, which the commit reads at a time."""


def stage_rows(store: Store, paths: TablePaths, rows: Iterable[pa.Table]) -> tuple[str, ...]:
    """Write rows into staged files, in their order; returns the paths.  On an error the files are deleted."""
    written: list[str] = []
    try:
        for part in map(pa.concat_tables, at_least(FILE_BYTES, rows, attrgetter("nbytes"))):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_table(part)
            path = f"{paths.root}/{STAGING}/rows-{_clock.new_uuid()}.arrow"
            written.append(path)
            store.write(path, sink.getvalue().to_pybytes())
    except BaseException:
        discard_files(store, written)
        raise
    return tuple(written)


@dataclass(frozen=True, slots=True)
class StagedRows(Sequence[pa.Table]):
    """The rows of staged files, in order; a file is read each time that it is accessed."""

    store: Store
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> pa.Table: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[pa.Table]: ...

    def __getitem__(self, index: int | slice) -> pa.Table | Sequence[pa.Table]:
        """Return one file's rows; raises :class:`NotFound` if it is missing, :class:`CorruptError` if it is damaged."""
        if isinstance(index, slice):
            return StagedRows(self.store, self.files[index])
        path = self.files[index]
        try:
            with pa.ipc.open_stream(self.store.read(path)) as stream:
                return stream.read_all()
        except (pa.ArrowInvalid, OSError) as e:
            raise CorruptError(f"staged rows cannot be read: {e}", None, path=path) from e

    def discard(self) -> None:
        """Delete the files; failures to delete are ignored."""
        discard_files(self.store, self.files)
