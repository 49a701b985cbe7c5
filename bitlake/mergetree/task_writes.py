"""Writing by tasks that know nothing of each other: each makes files of the rows that it has, one commit names them.

Spark's Python data sources write so: nobody brings the rows of a bucket together first.  Several tasks may write to one
bucket; a task's rows then come after those of the tasks before it, by ranges of sequence numbers that are its own
(``docs/decisions/0015-streams.md``).  What depends on all rows of a bucket is done after the commit: its compaction.

Where a row's bucket depends on all other rows (dynamic buckets, keys that are unique over partitions), tasks leave rows
as they are (:mod:`bitlake.mergetree.task_writes`), and the commit writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import pyarrow as pa

from bitlake import _clock
from bitlake.deletion import discard_files
from bitlake.errors import CorruptError, InvalidRequest, StorageUnavailable
from bitlake.io import Store
from bitlake.mergetree import dml
from bitlake.mergetree.commit import discard_changes
from bitlake.mergetree.commit_message import BucketChange
from bitlake.mergetree.writer import prepared, write_changes
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.orphan_files import STAGING
from bitlake.snapshot.partitions import discard_entries, entries_of
from bitlake.snapshot.state import TableState
from bitlake.write.commit_plan import Overwrite
from bitlake.write.register_files import RegisterContext
from bitlake.write.writer import write_rows

RANGE = 1 << 28
"""Sequence numbers of a task in each bucket: for so many rows.  64 bits last for 10^7 batches of 3,000 tasks."""


@dataclass(frozen=True, slots=True)
class TaskJob:
    """What every task must know; picklable.

    ``fresh``: the rows replace others, see :class:`Overwrite`.  ``kinds`` is the column of row kinds, if there is one.
    """

    state: TableState
    user: str
    fresh: bool = False
    kinds: str | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What the ``number``-th task made: files of an append table, changes of buckets, or staged files of rows."""

    files: tuple[ManifestEntry, ...] = ()
    changes: tuple[BucketChange, ...] = ()
    staged: tuple[str, ...] = ()
    number: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.changes or self.staged)


def check_tasks(job: TaskJob) -> None:
    """Raise :class:`InvalidRequest` for row kinds that a table does not have."""
    if job.kinds is not None and not job.state.schema.primary_keys:
        raise InvalidRequest(
            f"table '{job.state.name}' has no primary key: its rows have no kinds, and '{job.kinds}' none"
        )


def stages(schema: TableSchema) -> bool:
    """Whether tasks only stage rows, since none of them can tell where a row belongs."""
    return bool(schema.primary_keys) and (is_cross_partition(schema) or schema.num_buckets == -1)


def write_task(job: TaskJob, number: int, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Write, or stage, the rows of the ``number``-th task; on an error nothing of it is left behind."""
    state = job.state
    tables = (pa.Table.from_batches([b]) for b in batches if b.num_rows)
    if not state.schema.primary_keys:
        return TaskResult(files=tuple(write_rows(state, tables, state.store)), number=number)
    if stages(state.schema):
        return TaskResult(staged=stage_rows(state.store, state.paths, _checked(job, tables)), number=number)
    rows = prepared(state.name, state.schema, tables, job.kinds)
    changes = write_changes(state, rows, job.user, fresh=job.fresh, compact=False, reserved=number * RANGE)
    if any(c.rows > RANGE for c in changes):
        discard_changes(state, changes)
        raise InvalidRequest(f"table '{state.name}': one task has more than {RANGE} rows of a bucket; use more tasks")
    return TaskResult(changes=tuple(changes), number=number)


def _checked(job: TaskJob, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows as they are, once it is known that they fit: a task can say so, and at the commit it would be late."""
    for table in tables:
        for _ in prepared(job.state.name, job.state.schema, [table], job.kinds):
            yield table


class CommitTarget(dml.Target, Protocol):
    """The table whose tasks' files are committed."""

    def commit_files(
        self,
        state: TableState,
        files: Sequence[ManifestEntry],
        operation: str,
        overwrite: Overwrite | None = None,
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        """Make new data files of an append table visible in one snapshot."""


def commit_tasks(
    table: CommitTarget,
    job: TaskJob,
    results: Sequence[TaskResult],
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Make all files visible in one snapshot, then compact what is due; None if there was nothing to do."""
    state, operation = job.state, "WRITE" if overwrite is None else "OVERWRITE"
    if not state.schema.primary_keys:
        files = RegisterContext.of(state, state.store).in_sequence([e for r in results for e in r.files])
        return table.commit_files(state, files, operation, overwrite, identifier)
    if stages(state.schema):
        rows = staged_rows(state, results)
        try:
            return dml.upsert(table, rows, job.kinds, operation=operation, overwrite=overwrite, identifier=identifier)
        finally:
            rows.discard()  # no snapshot names them, whatever became of the commit
    changes = [c for r in results for c in r.changes]
    publisher = table.publisher(state, identifier)
    made = publisher.publish(state, changes, operation=operation, overwrite=overwrite)
    return compact_touched(table, results, identifier) or made


def staged_rows(state: TableState, results: Iterable[TaskResult]) -> StagedRows:
    """The rows that tasks left, those of later tasks after those of earlier ones."""
    ordered = sorted(results, key=lambda r: r.number)
    return StagedRows(state.store, tuple(f for r in ordered for f in r.staged))


def compact_touched(table: dml.Target, results: Sequence[TaskResult], identifier: int) -> Snapshot | None:
    """Compact what is due in the buckets that tasks wrote to; a failure is left to the next writer."""
    state = table.state()
    if state.schema.opts.of(opt.WRITE_ONLY) or not state.schema.primary_keys:
        return None
    touched = {(c.partition, c.bucket) for r in results for c in r.changes if c.bucket != POSTPONE_BUCKET}
    found = entries_of(state, {partition for partition, _ in touched})
    entries = [e for e in found if (e.partition, e.bucket) in touched]
    try:
        return dml.compact(table, state, entries, full=False, identifier=identifier) if entries else None
    except StorageUnavailable:
        return None


def discard_tasks(state: TableState, results: Iterable[TaskResult]) -> None:
    """Delete the files of tasks that no commit will name."""
    results = list(results)
    discard_entries(state.table_files, state.schema, [e for r in results for e in r.files])
    discard_changes(state, [c for r in results for c in r.changes])
    staged_rows(state, results).discard()


# --- staged_rows ---
# Rows that tasks leave as files, for one process to write: where all rows of a key must meet, and tasks meet nobody.
#
# A file is one Arrow IPC stream, its buffers compressed with LZ4, in the table's staging folder.  Nothing names it but
# what its task tells the commit, so orphan cleaning removes what a killed job left.

FILE_BYTES = 32 << 20
"""Rows of a file, in memory: what the one that writes reads at a time."""


def stage_rows(store: Store, paths: TablePaths, rows: Iterable[pa.Table]) -> tuple[str, ...]:
    """Write rows into files of some size, in their order; on an error nothing is left behind.  Returns their paths."""
    made: list[str] = []
    try:
        for part in _shares(rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_table(part)
            path = f"{paths.root}/{STAGING}/rows-{_clock.new_uuid()}.arrow"
            made.append(path)
            store.write(path, sink.getvalue().to_pybytes())
    except BaseException:
        discard_files(store, made)
        raise
    return tuple(made)


def _shares(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    for part in rows:
        held.append(part)
        size += part.nbytes
        if size >= FILE_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


@dataclass(frozen=True, slots=True)
class StagedRows(Sequence[pa.Table]):
    """The rows of staged files in their order: each is read when it is asked for, and may be asked for again."""

    store: Store
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> pa.Table: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[pa.Table]: ...

    def __getitem__(self, index: int | slice) -> pa.Table | Sequence[pa.Table]:
        """One file's rows; raises :class:`NotFound` if it is gone, :class:`CorruptError` if it is no longer whole."""
        if isinstance(index, slice):
            return StagedRows(self.store, self.files[index])
        path = self.files[index]
        try:
            with pa.ipc.open_stream(self.store.read(path)) as stream:
                return stream.read_all()
        except (pa.ArrowInvalid, OSError) as e:
            raise CorruptError(f"staged rows cannot be read: {e}", None, path=path) from e

    def discard(self) -> None:
        """Delete the files, as well as can be."""
        discard_files(self.store, self.files)
