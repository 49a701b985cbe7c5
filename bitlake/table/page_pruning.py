"""Which rows of a Parquet file a predicate's own columns can hold, by the bounds of their pages.

What statistics are to a file, a column index is to its pages: where a column's values lie in order, as keys do in files
of primary-key tables, a range or a value is in few of them.  Only pages that surely hold no wanted row are left out,
and the predicate is still applied to whatever is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.formats.parquet_bounds import PageBounds, page_bounds
from bitlake.formats.parquet_footer import Footer
from bitlake.predicate.stats import Verdict
from bitlake.predicate.stats_vector import Bools, ColumnBounds, Form, NotVectorised, Verdicts, judge, judge_leaf
from bitlake.predicate.tree import Leaf, Predicate, columns_of, conjuncts
from bitlake.storage import Store
from bitlake.table.fetch import FileTask, ReadCounts
from bitlake.types import AtomicType, DataField
from bitlake.types.datatypes import Root

_WORTH_ROWS = 32 * 1024
"""Files of fewer rows are read without asking for the bounds of their pages."""
_FORMS = {
    Root.TINYINT: Form.INTEGER,
    Root.SMALLINT: Form.INTEGER,
    Root.INT: Form.INTEGER,
    Root.BIGINT: Form.INTEGER,
    Root.DATE: Form.INTEGER,
    Root.VARCHAR: Form.TEXT,
}
"""Types whose bounds are in the file just what the predicate's literals are compared with."""


def rows_by_pages(
    store: Store,
    task: FileTask,
    footer: Footer,
    predicate: Predicate,
    fields: Mapping[str, tuple[DataField, DataField]],
    counts: ReadCounts,
) -> BitMap | None:
    """The rows that pages do not rule out, by the predicate's terms over one column each; None: all of them.

    ``fields``: the predicate's columns, each as the table has it and as the file does.  A column index that cannot be
    read rules nothing out.
    """
    if task.row_count < _WORTH_ROWS:
        return None
    left: BitMap | None = None
    for term in conjuncts(predicate):
        columns = tuple(columns_of(term))
        name = columns[0] if len(columns) == 1 else ""
        if name not in fields:
            continue
        kept = _kept(store, task, footer, term, *fields[name], counts)
        if kept is not None:
            left = kept if left is None else left & kept
    return left


def _kept(
    store: Store,
    task: FileTask,
    footer: Footer,
    term: Predicate,
    field: DataField,
    stored: DataField,
    counts: ReadCounts,
) -> BitMap | None:
    form = _FORMS.get(field.type.root) if isinstance(field.type, AtomicType) else None
    alike = isinstance(stored.type, AtomicType) and stored.type.root is getattr(field.type, "root", None)
    if form is None or not alike or not footer.type_ordered[footer.column(stored.name).leaf]:
        return None

    def fetch(ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        counts.add(bytes=sum(length for _, length in ranges), requests=len(ranges))
        return store.read_ranges(task.path, ranges)

    try:
        found = page_bounds(footer, fetch, stored.name)
        if found is None or isinstance(found.low, list) != (form is Form.TEXT):
            return None
        bounds = _bounds(found, form)
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


def _bounds(found: PageBounds, form: Form) -> ColumnBounds:
    """Bounds of pages as those of files are held.  Of NULLs only pages that hold nothing else tell."""
    low: Any = found.low
    high: Any = found.high
    if form is Form.TEXT:
        low, high = (pa.array(v, pa.large_binary()) for v in (low, high))
    known = ~found.empty
    nulls = np.where(found.empty, np.diff(found.starts), -1)
    return ColumnBounds(form, low, high, known, known, nulls, truncated=True)
