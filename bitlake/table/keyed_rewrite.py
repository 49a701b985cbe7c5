"""DELETE of tables with a primary key that take no -D rows and have no deletion vectors: files written again.

Rows are found as in append tables, by position; files whose rows are merged count as one, and a row's position is its
place among the merged rows.  What was hit is written again without those rows, in one OVERWRITE snapshot: a file of its
level, merged files as one of their highest level, which holds all that any of them knew of their keys (files are
merged when, and only when, their key ranges overlap).  Rows keep their sequence numbers.

Paimon writes the rows that stay to level 0, and compacts in a second snapshot (index-format spec, section 9.8): with
``first-row``, where level 0 is not read, all rows of a file are gone in between, and here never.  As there, no
changelog tells of the deletion; what other changes a changelog has yet to tell of is compacted before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.roaring import deserialize, positions_of, serialize
from bitlake.errors import reading_table
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.progress import of_items
from bitlake.runtime import Runner
from bitlake.schema.merge_spec import SEQUENCE_NUMBER, VALUE_KIND, max_level
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.table import keyed
from bitlake.table.append_delete import Hits, RowsGone, find_hits, take_out
from bitlake.table.append_update import CommitRows
from bitlake.table.fetch import FileTask, ReadCounts
from bitlake.table.lsm.kv_file import KeyValueWriter
from bitlake.table.lsm.model import LsmContext
from bitlake.table.lsm.states import lsm_context
from bitlake.table.merge_read import alive
from bitlake.table.plan import PlannedFile
from bitlake.table.read import ROW_INDEX, ReadRequest, read_file, tasks_of
from bitlake.table.scan import Scan


def rewrites(state: TableState) -> bool:
    """Whether DELETE writes files again: a primary key, no -D rows, no deletion vectors."""
    schema = state.schema
    return bool(schema.primary_keys) and not keyed.deletes_by_rows(state) and not schema.opts.of(opt.DV_ENABLED)


def delete(
    table: keyed.Target,
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


def settled(table: keyed.Target, state: TableState) -> TableState:
    """The table once its changelog has told of all changes: files that were not compacted yet would be merged here."""
    producer = state.schema.opts.of(opt.CHANGELOG_PRODUCER)
    entries = [e for e in state.entries() if e.bucket >= 0]
    top = max_level(state.schema.opts)
    waiting = {"lookup": lambda level: level == 0, "full-compaction": lambda level: level < top}.get(producer)
    if waiting is None or not any(waiting(e.file.level) for e in entries):
        return state
    keyed.compact(table, state, entries, full=producer == "full-compaction")
    return table.state()


def positioned(scan: Scan) -> Scan:
    """A scan whose plan finds rows by their positions: merged files are there with all their rows."""
    return scan.select([ROW_INDEX])


def take_out_rows(state: TableState, hits: Hits, runner: Runner) -> RowsGone:
    """:func:`bitlake.table.append_delete.take_out`, of any table."""
    if not rewrites(state):
        return take_out(state, hits, runner)
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
        discard_entries(state.store, state.paths, state.schema, adds)
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
