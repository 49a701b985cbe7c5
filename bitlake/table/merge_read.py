"""Reading files that must be merged by key: each one's rows as they are stored, merged, then filtered.

Memory holds the wanted columns of one section, that is, of files of one bucket whose key ranges overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.tree import sources_of
from bitlake.io import Store
from bitlake.merge.engine import LEVEL, Levels, merge_rows
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import by_identity
from bitlake.schema.merge_spec import (
    AGGREGATION,
    DELETE,
    PARTIAL_UPDATE,
    SYSTEM_FIELDS,
    UPDATE_BEFORE,
    VALUE_KIND,
    MergeSpec,
    needs_lookup,
)
from bitlake.table.fetch import COUNTERS, FileTask, ReadCounts
from bitlake.table.read import ROW_INDEX, STORED_SYSTEM, ReadRequest, generated, read_file


def read_merged(store: Store, task: FileTask, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
    """Yield the wanted rows of the merged files, as :func:`bitlake.table.read.read_file` does."""
    assert task.merge is not None
    schema = task.merge.schema or request.schema
    spec = MergeSpec.of(schema)
    names = {f.name for f in schema.fields}
    asked = [*request.columns, *(sorted(sources_of(request.predicate)) if request.predicate is not None else ())]
    # The keys are always among them, so that the number of rows is never lost.
    columns = tuple(dict.fromkeys([*spec.keys, *(c for c in asked if c in names)]))
    inner = replace(request, schema=_extended(schema), columns=spec.needed(columns), predicate=task.merge.predicate)
    costs = [ReadCounts() for _ in task.merge.files]
    tables: list[pa.Table] = []
    by_level = needs_lookup(schema) and spec.engine in (PARTIAL_UPDATE, AGGREGATION)
    for file, cost in zip(task.merge.files, costs, strict=True):
        for rows in read_file(store, replace(file, file_schema=_extended(file.file_schema)), inner, cost):
            tables.append(_with_level(rows, file.level) if by_level else rows)
    read = {name: sum(getattr(cost, name) for cost in costs) for name in COUNTERS}
    counts.add(**{**read, "rows_returned": 0})
    if not tables:
        return
    try:
        together = pa.concat_tables(tables)
        if by_level:
            together = Levels.of(spec.keys, together).chunk
        stored = not STORED_SYSTEM.keys().isdisjoint(asked)
        # Places among merged rows are told, and chosen by, in key order only, as rows are stored, and of live rows.
        placed = ROW_INDEX in asked or task.selection.rows is not None
        merged = merge_rows(spec, together, columns, keep_deletes=stored or placed)
        if placed and not stored:
            merged = merged.filter(pa.array(alive(merged.column(VALUE_KIND).to_numpy())))
    except InvalidRequest as e:
        raise InvalidRequest(f"{e} (merging {_folder(task.path)})") from e
    positions = np.arange(merged.num_rows, dtype=np.int64)
    if task.selection.rows is not None:
        positions = task.selection.positions(task.row_count)
        merged = merged.take(pa.array(positions))
    if request.predicate is not None:
        true = evaluate(request.predicate, merged, schema.fields).fill_null(False)
        positions = positions[true.to_numpy(zero_copy_only=False)]
        merged = merged.filter(true)
    counts.add(rows_returned=merged.num_rows)
    if merged.num_rows:
        yield _output(task, request, merged, positions)


def _output(task: FileTask, request: ReadRequest, merged: pa.Table, positions: np.ndarray) -> pa.Table:
    made: dict[str, pa.Array] = generated(task, request, request.columns, positions)
    if not made:
        return merged.select(list(request.columns))
    arrays: Sequence[pa.Array] = [made[c] if c in made else merged.column(c) for c in request.columns]
    return pa.table(arrays, names=list(request.columns))


def alive(kinds: np.ndarray) -> np.ndarray:
    """Whether rows of these kinds are there for readers."""
    live: np.ndarray = (kinds != UPDATE_BEFORE) & (kinds != DELETE)
    return live


def _with_level(rows: pa.Table, level: int) -> pa.Table:
    return rows.append_column(LEVEL, pa.array(np.full(rows.num_rows, level, np.int32)))


@by_identity
def _extended(schema: TableSchema) -> TableSchema:
    """The schema with the system columns that merging needs; they are found by id like any other."""
    return replace(schema, fields=(*schema.fields, *SYSTEM_FIELDS))


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]
