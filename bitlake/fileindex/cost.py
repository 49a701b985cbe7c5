"""Index cost: whether an index is worth reading, from its bytes against the column's, and the rows it would leave.

Measured on 4M orders in one file (136 MB, 7 columns), local disk, 2 busy cores, cold index caches:

* Reading an index takes 2.5 ns a byte (11.1 MB of a range-bitmap in 28 ms, 0.53 MB of a bitmap in 1.5 ms).  Filtering
  by a column takes about 2.5 ns a byte and 20 ns a row (14.1 MB in 115 ms, 4.1 MB in 71 ms, 1.0 MB of texts in
  141 ms).  Fetching is assumed to take 5 ns a byte (200 MB/s) for both.  So an index pays up to the column's bytes and
  2.7 more for each row.
* Rows chosen by an index against reading everything, all columns: 20 % 915 : 916 ms, 40 % 1,169 : 1,209 ms,
  50 % 2,068 : 1,705 ms, 60 % 2,202 : 1,858 ms.  Above 40 % of the rows an index costs more than it saves.
* Each row that is left costs a page of every column.  Where other indexes leave rows far apart, an index that half of
  them pass saves half of the pages; where they leave neighbours, it saves none.
* Below 256 KB, or in files of fewer than 100,000 rows, both ways take a few milliseconds: the index is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from pyroaring import BitMap

from bitlake.expressions.tree import Leaf
from bitlake.fileindex.capabilities import CostEstimator

SMALL_BYTES = 256 * 1024
SMALL_ROWS = 100_000
MOST_SHARE = 0.4
_BYTES_A_ROW = 2.7
_PAGE = 64 * 1024
PAGE_ROWS = 4096
"""Rows of a page in files with indexes, so that chosen rows take few pages."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A leaf to evaluate with an index of ``length`` bytes.

    ``left``: how many rows previous indexes leave; ``rows``: which ones, None if unknown.  ``also``: other conditions
    that must hold for the column, such as the other end of a range.
    """

    leaf: Leaf
    length: int
    left: int
    also: Sequence[Leaf] = ()
    rows: BitMap | None = None


class ReadPolicy(Protocol):
    """Decides, before each index is read, whether it is."""

    def reason_to_skip(self, reader: object, query: IndexQuery) -> str | None:
        """Return why an index is not read.  None: read it."""


class CostPolicy:
    """Compares the cost of one file's indexes with that of its columns.

    ``column_bytes``: the stored size of a column, None if unknown; only called where it matters.  ``exact``: the rows
    themselves are needed (to count them, or the first of them), so an index is not skipped for leaving many of them.
    """

    def __init__(self, row_count: int, column_bytes: Callable[[str], int | None], *, exact: bool) -> None:
        self._rows = row_count
        self._column_bytes = column_bytes
        self._exact = exact

    def reason_to_skip(self, reader: object, query: IndexQuery) -> str | None:
        """See :class:`ReadPolicy`."""
        if self._rows < SMALL_ROWS:
            return None
        size = expected_bytes(reader, query.leaf, query.length, self._rows)
        if size > SMALL_BYTES:
            if not self._exact and query.left * _PAGE < size:
                return f"{_mega(size)} of index to narrow {query.left:,} rows further"
            column = self._column_bytes(query.leaf.column)
            if column is not None and size > column + _BYTES_A_ROW * self._rows:
                return f"{_mega(size)} of index for a column of {_mega(column)}"
        if self._exact:
            return None
        share = selectivity(reader, query.leaf)
        if share is not None and share > MOST_SHARE:
            # Every row satisfies at least one end of a range, so the shares add up to 1 more than that of both.
            others = [s for s in (selectivity(reader, other) for other in query.also) if s is not None]
            share = max(0.0, share + min(others, default=1.0) - 1)
        if share is None or share <= MOST_SHARE:
            return None
        if query.rows is not None and pages_spared(query.rows, share) * _PAGE >= size:
            return None
        return f"it would leave about {100 * share:.0f} % of the rows"


def pages_spared(rows: BitMap, share: float) -> float:
    """Estimate how many of the pages that hold ``rows`` lose all of them; each row stays with probability ``share``."""
    held = np.bincount(np.frombuffer(rows.to_array(), np.uint32) // PAGE_ROWS)
    return float(np.power(1 - share, held[held > 0]).sum())


def expected_bytes(reader: object, leaf: Leaf, length: int, rows: int) -> int:
    """Estimate the bytes that evaluating a leaf reads of an index: all of it, unless the reader knows better."""
    estimator = _estimator(reader)
    return length if estimator is None else estimator.bytes_to_read(leaf, length, rows)


def selectivity(reader: object, leaf: Leaf) -> float | None:
    """Estimate the share of rows (0 to 1) that a leaf matches, from the index dictionary.  None if unknown."""
    estimator = _estimator(reader)
    return None if estimator is None else estimator.selectivity(leaf)


def _estimator(reader: object) -> CostEstimator | None:
    return cast(CostEstimator, reader) if _estimates(type(reader)) else None  # type: ignore[arg-type]  # hashable


@functools.lru_cache(256)
def _estimates(reader: type) -> bool:
    # Once for each class: isinstance() of a protocol takes 10 us, and this runs for each leaf of each large file.
    return issubclass(reader, CostEstimator)


def _mega(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
