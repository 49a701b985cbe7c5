"""Rows on their way to level 0: put in key order, numbered, and the rows of one key in a batch made one.

Inside a batch, rows of a key merge by ``sequence.field``, then in the order they came.  The row that is left gets its
number after that: numbers then ascend with the keys in a file, which compresses well, and no row of a bucket that was
written earlier has a higher one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.merge.engine import merge_rows
from bitlake.merge.keys import group_rows, in_order, key_columns, order_codes
from bitlake.schema.merge_spec import SEQUENCE_NUMBER, VALUE_KIND, MergeSpec

_HELD_ROWS = 1 << 16


def sorted_rows(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """All rows in key order, those of a key in the order in which they merge, numbered from ``first_sequence``.

    ``rows`` are in the order they came, with ``_VALUE_KIND``; the result has ``_SEQUENCE_NUMBER`` before all columns.
    """
    rows = one_chunk(rows)
    ordering = [order_codes(rows.column(c), spec.descending) for c in spec.sequence]
    arrival = np.arange(rows.num_rows, dtype=np.int64)
    groups = group_rows([rows.column(k) for k in spec.keys], [*ordering, arrival], key_order=True)
    if not np.array_equal(groups.order, arrival):
        rows = rows.take(pa.array(groups.order))
    return numbered(rows, first_sequence)


def sorted_merged(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """One row for each key, in key order, numbered from ``first_sequence``; deletes are rows too.

    ``rows`` are in the order they came, with ``_VALUE_KIND``.  Raises :class:`InvalidRequest` for rows that the merge
    engine cannot take.
    """
    return merged(spec, numbered(one_chunk(rows), first_sequence), first_sequence)


def merged(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """Numbered rows, merged by key and numbered anew."""
    columns = [f.name for f in spec.fields]
    out = merge_rows(spec, rows, columns, keep_deletes=True)
    return out if out.num_rows == rows.num_rows == 1 else numbered(out, first_sequence)


def one_chunk(rows: pa.Table) -> pa.Table:
    """The rows with one chunk in each column; Arrow copies a column of one chunk when asked to combine it."""
    return rows if all(c.num_chunks <= 1 for c in rows.columns) else rows.combine_chunks()


def numbered(rows: pa.Table, first: int) -> pa.Table:
    """The rows with ``_SEQUENCE_NUMBER`` from ``first`` on as their first column."""
    column = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    if SEQUENCE_NUMBER in rows.column_names:
        return rows.set_column(rows.column_names.index(SEQUENCE_NUMBER), SEQUENCE_NUMBER, column)
    return rows.add_column(0, SEQUENCE_NUMBER, column)


@dataclass(slots=True)
class SortedMerge:
    """Merges a stream of rows that comes in key order, in batches whose borders may part the rows of a key.

    Mutable: it holds back the rows of the last key seen.  ``next_sequence`` numbers what comes.
    """

    spec: MergeSpec
    next_sequence: int
    _held: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """(the rows numbered, what is merged for good); ``rows`` have ``_VALUE_KIND``.

        Raises :class:`InvalidRequest` if the rows do not ascend.
        """
        # In the order of columns that merged rows have.
        names = [SEQUENCE_NUMBER, VALUE_KIND, *(f.name for f in self.spec.fields)]
        rows = numbered(rows, self.next_sequence).select(names)
        self.next_sequence += rows.num_rows
        if not rows.num_rows:
            return rows, None
        merged = []
        fresh = one_chunk(rows)
        if self._held and self._parted(fresh):
            # Nearly always a batch begins with another key; then nothing of it need be copied.
            merged.append(self._merge(pa.concat_tables(self._held)))
        elif self._held:
            fresh = one_chunk(pa.concat_tables([*self._held, fresh]))
        keys = key_columns([fresh.column(k) for k in self.spec.keys])
        if not in_order(keys):
            raise _unsorted()
        tail = self._last_key(keys, fresh.num_rows)
        self._held = [fresh.slice(tail)]
        if fresh.num_rows - tail > _HELD_ROWS:
            self._held = [self._merge(fresh.slice(tail))]
        if tail:
            merged.append(self._merge(fresh.slice(0, tail)))
        return rows, pa.concat_tables(merged) if merged else None

    def _parted(self, rows: pa.Table) -> bool:
        """Whether the rows begin with another key than the one held, which must be smaller."""
        held = self._held[-1]
        ends = pa.concat_tables([held.slice(held.num_rows - 1), rows.slice(0, 1)]).select(list(self.spec.keys))
        keys = key_columns([ends.column(k) for k in self.spec.keys])
        if not in_order(keys):
            raise _unsorted()
        return not all(_same(k, 0, 1) for k in keys)

    def finish(self) -> pa.Table | None:
        """What is left: the last key's row."""
        held, self._held = self._held, []
        return self._merge(pa.concat_tables(held)) if held else None

    def _merge(self, rows: pa.Table) -> pa.Table:
        return merge_rows(self.spec, rows, [f.name for f in self.spec.fields], keep_deletes=True)

    def _last_key(self, keys: list[object], rows: int) -> int:
        """The first row of the last key."""
        low, high = 0, rows - 1
        # Rows ascend, so the last key's are together: a search by halves looks at few rows.
        while low < high:
            middle = (low + high) // 2
            if all(_same(k, middle, rows - 1) for k in keys):
                high = middle
            else:
                low = middle + 1
        return low


def _unsorted() -> InvalidRequest:
    return InvalidRequest("rows that should come in key order do not; this is an error in how they were sorted")


def _same(column: object, a: int, b: int) -> bool:
    if isinstance(column, np.ndarray):
        return bool(column[a] == column[b])
    assert isinstance(column, pa.Array)
    return bool(column[a] == column[b])
