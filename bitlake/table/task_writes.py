"""Writing by tasks that know nothing of each other: each makes files of the rows that it has, one commit names them.

Spark's Python data sources write so: nobody brings the rows of a bucket together first.  Several tasks may write to one
bucket; a task's rows then come after those of the tasks before it, by ranges of sequence numbers that are its own
(``docs/decisions/0015-streams.md``).  What depends on all rows of a bucket is done after the commit: its compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bitlake.errors import InvalidRequest, StorageUnavailable, UnsupportedFeature
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.table import keyed
from bitlake.table.adopt import AdoptContext
from bitlake.table.commit import Overwrite
from bitlake.table.lsm.cross_partition import is_cross_partition
from bitlake.table.lsm.model import BucketChange
from bitlake.table.lsm.publish import discard_changes
from bitlake.table.partitions import discard_entries
from bitlake.table.state import TableState
from bitlake.table.table import Table
from bitlake.table.upsert import prepared, write_changes
from bitlake.table.write import write_rows

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
    """The files of one task; those of an append table, or changes of buckets."""

    files: tuple[ManifestEntry, ...] = ()
    changes: tuple[BucketChange, ...] = ()


def check_tasks(job: TaskJob, instead: str) -> None:
    """Raise for tables whose rows tasks cannot place by themselves; ``instead`` says what can."""
    schema, name = job.state.schema, job.state.name
    if not schema.primary_keys:
        if job.kinds is not None:
            raise InvalidRequest(f"table '{name}' has no primary key: its rows have no kinds, and '{job.kinds}' none")
        return
    if is_cross_partition(schema) or schema.num_buckets == -1:
        what = "its keys are unique over partitions" if is_cross_partition(schema) else "its buckets are dynamic"
        raise UnsupportedFeature(
            f"table '{name}' cannot be written through the data source: {what}, so all rows of a key must be in one "
            f"task, and Spark lets no Python source ask for that; {instead}, or give the table a fixed 'bucket'"
        )


def write_task(job: TaskJob, number: int, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Write the rows of the ``number``-th task; on an error nothing of it is left behind."""
    state = job.state
    tables = (pa.Table.from_batches([b]) for b in batches if b.num_rows)
    if not state.schema.primary_keys:
        return TaskResult(files=tuple(write_rows(state, tables, state.store)))
    rows = prepared(state.name, state.schema, tables, job.kinds)
    changes = write_changes(state, rows, job.user, fresh=job.fresh, compact=False, reserved=number * RANGE)
    if any(c.rows > RANGE for c in changes):
        discard_changes(state, changes)
        raise InvalidRequest(f"table '{state.name}': one task has more than {RANGE} rows of a bucket; use more tasks")
    return TaskResult(changes=tuple(changes))


def commit_tasks(
    table: Table,
    job: TaskJob,
    results: Sequence[TaskResult],
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Make all files visible in one snapshot, then compact what is due; None if there was nothing to do."""
    state, operation = job.state, "WRITE" if overwrite is None else "OVERWRITE"
    if not state.schema.primary_keys:
        files = AdoptContext.of(state, state.store).in_sequence([e for r in results for e in r.files])
        return table.commit_files(state, files, operation, overwrite, identifier)
    changes = [c for r in results for c in r.changes]
    publisher = table.publisher(state, identifier)
    made = publisher.publish(state, changes, operation=operation, overwrite=overwrite)
    return compact_touched(table, results, identifier) or made


def compact_touched(table: Table, results: Sequence[TaskResult], identifier: int) -> Snapshot | None:
    """Compact what is due in the buckets that tasks wrote to; a failure is left to the next writer."""
    state = table.state()
    if state.schema.opts.of(opt.WRITE_ONLY) or not state.schema.primary_keys:
        return None
    touched = {(c.partition, c.bucket) for r in results for c in r.changes if c.bucket != POSTPONE_BUCKET}
    entries = [e for e in state.entries() if (e.partition, e.bucket) in touched]
    try:
        return keyed.compact(table, state, entries, full=False, identifier=identifier) if entries else None
    except StorageUnavailable:
        return None


def discard_tasks(state: TableState, results: Iterable[TaskResult]) -> None:
    """Delete the files of tasks that no commit will name."""
    results = list(results)
    discard_entries(state.store, state.paths, state.schema, [e for r in results for e in r.files])
    discard_changes(state, [c for r in results for c in r.changes])
