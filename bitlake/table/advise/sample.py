"""Which rows of a table are looked at: runs of rows of its data files, spread evenly over all of them.

A table of up to the sample's rows is looked at whole, file by file.  Of a larger one, 4 to 16 runs of neighbouring
rows are: neighbours, since where values lie beside each other is what is to be found out, and a run of 131,072 rows has
32 pages.  Memory holds one column of a run for each thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.schema.evolution import align, map_fields
from bitlake.table.fetch import FileTask, ReadCounts, fetch_rows, has_pages, stream_whole
from bitlake.table.plan import Plan, PlannedFile
from bitlake.table.read import tasks_of
from bitlake.types import DataField, arrow_type

RUN_ROWS = 131_072
_RUNS = 16
_LEAST_RUNS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """Rows ``[start, stop)`` of a data file that stand for it; small, and picklable for executors."""

    task: FileTask
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows are looked at."""
        return self.stop - self.start

    @property
    def scale(self) -> float:
        """How many times the run goes into its file."""
        return self.task.row_count / max(self.rows, 1)


def data_files(plan: Plan) -> list[PlannedFile]:
    """The data files of a plan, also those that are merged by key when they are read."""
    return [d for f in plan.files for d in ((f,) if f.merge is None else f.merge.files)]


def choose_runs(files: Sequence[PlannedFile], schemas: Mapping[int, TableSchema], rows: int) -> list[Run]:
    """Runs of about ``rows`` rows in all; of every file all rows, if they are not more than that."""
    tasks = [t for t in tasks_of(files, schemas) if t.row_count]
    counts = np.array([t.row_count for t in tasks], np.int64)
    total = int(counts.sum())
    if total <= rows:
        return [Run(t, 0, t.row_count) for t in tasks]
    length = max(RUN_ROWS, rows // _RUNS)
    number = max(_LEAST_RUNS, rows // length)
    ends = np.cumsum(counts)
    middles = ((np.arange(number) + 0.5) * total / number).astype(np.int64)
    found: dict[tuple[str, int], Run] = {}
    for middle, at in zip(middles.tolist(), np.searchsorted(ends, middles, "right").tolist(), strict=True):
        task = tasks[at]
        inside = middle - int(ends[at] - counts[at])
        start = max(0, min(inside - length // 2, task.row_count - length))
        if task.row_count <= length + length // 4:
            found[task.path, 0] = Run(task, 0, task.row_count)
        else:
            found[task.path, start] = Run(task, start, start + length)
    return list(found.values())


def read_column(store: Store, run: Run, field: DataField, schema: TableSchema) -> pa.Array | None:
    """A column's values of a run in the table's type; None where its file has no such column.

    Raises :class:`CorruptError` or :class:`NotFound` for a file that cannot be read.
    """
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None:
        return None
    counts = ReadCounts()
    positions = np.arange(run.start, run.stop, dtype=np.int64)
    if has_pages(run.task):
        column = fetch_rows(store, run.task, positions, [source.name], counts).column(0)
    else:
        picked = None if run.rows == run.task.row_count else positions
        parts = [t.column(0) for t, _ in stream_whole(store, run.task, [source.name], counts, picked)]
        column = pa.chunked_array([c for p in parts for c in (p.chunks if isinstance(p, pa.ChunkedArray) else [p])])
    if len(column) != run.rows:
        raise CorruptError(f"{len(column)} rows came where {run.rows} were asked for", None, run.task.path)
    made = align(column, field, source, run.task.path)
    if isinstance(made, pa.ChunkedArray):
        return made.combine_chunks() if made.num_chunks != 1 else made.chunk(0)
    return made if made.type == arrow_type(field.type) else made.cast(arrow_type(field.type))
