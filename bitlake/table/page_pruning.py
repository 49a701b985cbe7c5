"""Which rows of a Parquet file a predicate's own columns can hold, by the bounds of their pages.

What statistics are to a file, a column index is to its pages: where a column's values lie in order, as keys do in files
of primary-key tables, a range or a value is in few of them.  Only pages that surely hold no wanted row are left out,
and the predicate is still applied to whatever is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.expressions.statistics import Verdict
from bitlake.expressions.statistics_arrays import Bools, ColumnBounds, Form, NotVectorised, Verdicts, judge, judge_leaf
from bitlake.expressions.tree import Leaf, Predicate, columns_of, conjuncts
from bitlake.formats.parquet.footer import Footer
from bitlake.formats.parquet.page_index import PageBounds, page_bounds
from bitlake.formats.parquet.statistics import number_units
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.schema.evolution import map_fields, stored_alike
from bitlake.table.fetch import FileTask, ReadCounts
from bitlake.types import AtomicType, DataField
from bitlake.types.datatypes import Root

WORTH_ROWS = 32 * 1024
"""Files of fewer rows are read without asking for the bounds of their pages."""
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class PagesLeft:
    """The rows of a file that bounds of pages do not rule out, and the table's columns whose bounds did."""

    rows: BitMap
    columns: tuple[str, ...]


Fields = Mapping[str, tuple[DataField, DataField]]
"""Columns that a predicate speaks of, each as the table has it and as the file does."""


def stored_fields(predicate: Predicate, schema: TableSchema, file_schema: TableSchema) -> Fields:
    """The predicate's columns that a file of a schema has; those of partitions are not asked for in files."""
    mapping = map_fields(schema.fields, file_schema.fields).fields
    wanted = columns_of(predicate).difference(schema.partition_keys)
    found = ((name, mapping.get(name)) for name in wanted)
    return {name: (schema.field(name), source) for name, source in found if source is not None}


def rows_by_pages(
    store: Store, task: FileTask, footer: Footer, predicate: Predicate, fields: Fields, counts: ReadCounts
) -> BitMap | None:
    """The rows of :func:`pages_left`; None: all of them."""
    found = pages_left(store, task, footer, predicate, fields, counts)
    return None if found is None else found.rows


def pages_left(
    store: Store, task: FileTask, footer: Footer, predicate: Predicate, fields: Fields, counts: ReadCounts
) -> PagesLeft | None:
    """The rows that pages do not rule out, by the predicate's terms over one column each; None: all of them.

    A column index that cannot be read rules nothing out.
    """
    if task.row_count < WORTH_ROWS:
        return None
    left: BitMap | None = None
    columns: list[str] = []
    for term in conjuncts(predicate):
        names = tuple(columns_of(term))
        name = names[0] if len(names) == 1 else ""
        if name not in fields:
            continue
        kept = _kept(store, task, footer, term, *fields[name], counts)
        if kept is not None:
            left = kept if left is None else left & kept
            columns += [name] if name not in columns else []
    return None if left is None else PagesLeft(left, tuple(columns))


def _kept(
    store: Store,
    task: FileTask,
    footer: Footer,
    term: Predicate,
    field: DataField,
    stored: DataField,
    counts: ReadCounts,
) -> BitMap | None:
    leaf_number = footer.column(stored.name).leaf
    made = field.type
    if not isinstance(made, AtomicType) or not stored_alike(made, stored.type) or not footer.type_ordered[leaf_number]:
        return None
    units = number_units(footer.leaves[leaf_number], made)
    if units is None and made.root is not Root.VARCHAR:
        return None

    def fetch(ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        counts.add(bytes=sum(length for _, length in ranges), requests=len(ranges))
        return store.read_ranges(task.path, ranges)

    try:
        found = page_bounds(footer, fetch, stored.name)
        bounds = None if found is None else _bounds(found, units)
        if found is None or bounds is None:
            return None
        rows = np.diff(found.starts)

        def leaf(leaf: Leaf) -> Verdicts:
            return judge_leaf(leaf, bounds, rows)

        keep: Bools = judge(term, rows, leaf) != Verdict.NONE.value
    except (BitlakeError, NotVectorised):
        return None
    if keep.all():
        return None
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False)).reshape(-1, 2)
    left = BitMap()
    for first, last in found.starts[edges].tolist():
        left.add_range(first, last)
    return left


def _bounds(found: PageBounds, units: tuple[int, int] | None) -> ColumnBounds | None:
    """Bounds of pages as those of files are held; ``units`` of numbers (:func:`number_units`), None of texts.

    Of NULLs only pages that hold nothing else tell.
    """
    low: Any = found.low
    high: Any = found.high
    if isinstance(low, list) == (units is not None):
        return None
    if units is None:
        low, high = (pa.array(v, pa.large_binary()) for v in (low, high))
    elif units[0] != units[1]:
        by, times = units[0] // math.gcd(*units), units[1] // math.gcd(*units)
        if len(low) and max(max(-int(v.min()), int(v.max())) for v in (low, high)) >= _MOST // times:
            return None
        # What is finer in the file than in the table lies between the numbers next to it, however it is rounded.
        low, high = low * times // by, -(-high * times // by)
    known = ~found.empty
    nulls = np.where(found.empty, np.diff(found.starts), -1)
    form = Form.TEXT if units is None else Form.INTEGER
    return ColumnBounds(form, low, high, known, known, nulls, truncated=True)
