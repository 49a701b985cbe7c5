"""Reading ``ORDER BY … LIMIT n``: the order columns of the files that can matter, best file first, then the n rows.

Where the plan leaves few rows, all columns are read at once.  Else the order columns come first; the n-th best row so
far prunes files whose bounds are no better; and the other columns are read of the winners alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bitlake.codec.roaring import bitmap_of
from bitlake.fileindex.selection import Selection
from bitlake.metadata.schema import TableSchema
from bitlake.storage import Store
from bitlake.table.data_file import arrow_to_physical
from bitlake.table.order import Order, Place, best_rows
from bitlake.table.plan import PlannedFile
from bitlake.table.read import ROW_INDEX, ReadCounts, ReadRequest, output_schema, read_file, tasks_of
from bitlake.table.topn import FileRanges

_FEW_ROWS = 1000
"""Up to so many chosen rows (or ten times n) are read with all columns at once."""
_FILE = "__bitlake_file"


def read_top_n(
    store: Store,
    files: Sequence[PlannedFile],
    schemas: Mapping[int, TableSchema],
    request: ReadRequest,
    orders: Sequence[Order],
    n: int,
    ranges: FileRanges,
    counts: Sequence[ReadCounts],
) -> pa.Table:
    """The first ``n`` rows, in order, with the request's columns (nullable, as :func:`read_file` gives them).

    ``counts``: of each file, to be added to.
    """
    sorting = tuple(o.column for o in orders)
    once = sum(f.chosen_rows for f in files) <= max(_FEW_ROWS, 10 * n)
    extra = tuple(c for c in request.columns if c not in sorting) if once else (ROW_INDEX,)
    first = replace(request, columns=(*sorting, *(c for c in extra if c not in sorting)))
    best = _empty(first)
    tasks = tasks_of(files, schemas)
    for number, (file, task) in enumerate(zip(files, tasks, strict=True)):
        if n == 0 or (best.num_rows == n and _needless(ranges.best(file), best, orders, request.schema)):
            continue
        for table in read_file(store, task, first, counts[number]):
            numbers = pa.array(np.full(table.num_rows, number, np.int32))
            both = pa.concat_tables([best, table.append_column(_FILE, numbers).cast(best.schema)])
            best = both.take(pa.array(best_rows(both, orders, n)))
    if once:
        return best.select(list(request.columns))
    return _others(store, files, schemas, request, best, counts)


def _empty(request: ReadRequest) -> pa.Table:
    schema = output_schema(request.schema, request.columns)
    fields = [f.with_nullable(True) for f in schema]
    return pa.schema([*fields, pa.field(_FILE, pa.int32())]).empty_table()


def _needless(file_best: Place, best: pa.Table, orders: Sequence[Order], schema: TableSchema) -> bool:
    """Whether no row of a file can come before the last of the best rows."""
    order = orders[0]
    last = best.column(order.column).slice(best.num_rows - 1, 1)
    worst = order.place(arrow_to_physical(last, schema.field(order.column))[0])
    return file_best > worst or (len(orders) == 1 and file_best == worst)


def _others(
    store: Store,
    files: Sequence[PlannedFile],
    schemas: Mapping[int, TableSchema],
    request: ReadRequest,
    best: pa.Table,
    counts: Sequence[ReadCounts],
) -> pa.Table:
    """The winners' rows, read by their places."""
    numbers = best.column(_FILE).to_numpy().astype(np.int64)
    places = best.column(ROW_INDEX).to_numpy().astype(np.int64)
    wanted = replace(request, predicate=None)
    tables = []
    for number in np.unique(numbers).tolist():  # ascending, as lexsort takes them below
        rows = np.sort(places[numbers == number])
        chosen = replace(files[number], selection=Selection.of(bitmap_of(rows), True))
        for task in tasks_of([chosen], schemas):
            tables += list(read_file(store, task, wanted, counts[number]))
    if not tables:
        return _empty(request).select(list(request.columns))
    order = np.empty(len(places), np.int64)
    order[np.lexsort((places, numbers))] = np.arange(len(places))
    return pa.concat_tables(tables).take(pa.array(order))
