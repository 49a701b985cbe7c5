"""Whether an index is worth reading: its bytes against those of the column, and how few rows it would leave.

Measured on 4M orders in one file (136 MB, 7 columns), local disk, 2 busy cores, caches of indexes cold:

* indexes take 2.5 ns a byte (11.1 MB of a range-bitmap in 28 ms, 0.53 MB of a bitmap in 1.5 ms); judging a column
  takes about 2.5 ns a byte and 20 ns a row (14.1 MB in 115 ms, 4.1 MB in 71 ms, 1.0 MB of texts in 141 ms).  Fetching
  is taken as 5 ns a byte (200 MB/s) for both.  So an index pays up to the column's bytes and 2.7 more for each row.
* rows chosen by an index against reading everything, all columns: 20 % 915 : 916 ms, 40 % 1,169 : 1,209 ms,
  50 % 2,068 : 1,705 ms, 60 % 2,202 : 1,858 ms.  Above 40 % of the rows an index costs more than it saves.
* a row that is left costs its page of every column.  Of rows that others left far apart, an index that half of them
  pass saves half of the pages; of rows side by side it saves none.  What it saves is its worth.
* below 256 KB, or in files of fewer than 100,000 rows, either way takes a few milliseconds: the index is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from bitlake.expressions.tree import Comparison, In, Leaf, Like, Op
from bitlake.fileindex.bitmap import BitmapReader
from bitlake.fileindex.bloom_filter import BloomReader
from bitlake.fileindex.range_bitmap import RangeBitmapReader

SMALL_BYTES = 256 * 1024
SMALL_ROWS = 100_000
MOST_SHARE = 0.4
_BYTES_A_ROW = 2.7
_BLOCK = 16 * 1024
_PAGE = 64 * 1024
_PAGE_ROWS = 4096
"""Of bitlake's own files with indexes (:data:`bitlake.formats.parquet.write.PAGE_ROWS`, of a room above)."""
_MOST_VALUES = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What an index of ``length`` bytes is to be asked.

    ``left``: the rows that what was asked before leaves possible; ``rows``: which these are, where they are known.
    ``also``: what must hold of the same column, too, as the other end of a range.
    """

    leaf: Leaf
    length: int
    left: int
    also: Sequence[Leaf] = ()
    rows: BitMap | None = None


class Guide(Protocol):
    """Asked before each index is read."""

    def why_not(self, reader: object, asked: Asked) -> str | None:
        """Why an index is not to be asked, or None: ask it."""


class CostGuide:
    """Weighs one file's indexes against its columns.

    ``column_bytes``: the stored size of a column, or None if unknown; only asked where it matters.  With ``exact``
    the rows themselves are wanted (to count them, or the first of them), so that many of them are no reason.
    """

    def __init__(self, row_count: int, column_bytes: Callable[[str], int | None], *, exact: bool) -> None:
        self._rows = row_count
        self._column_bytes = column_bytes
        self._exact = exact

    def why_not(self, reader: object, asked: Asked) -> str | None:
        """See :class:`Guide`."""
        if self._rows < SMALL_ROWS:
            return None
        size = expected_bytes(reader, asked.leaf, asked.length, self._rows)
        if size > SMALL_BYTES:
            if not self._exact and asked.left * _PAGE < size:
                return f"{_mega(size)} of index to narrow {asked.left:,} rows further"
            column = self._column_bytes(asked.leaf.column)
            if column is not None and size > column + _BYTES_A_ROW * self._rows:
                return f"{_mega(size)} of index for a column of {_mega(column)}"
        if self._exact:
            return None
        share = expected_share(reader, asked.leaf)
        if share is not None and share > MOST_SHARE:
            # Every row satisfies one end of a range at least, so what each leaves beyond the other's rest is both.
            others = [s for s in (expected_share(reader, other) for other in asked.also) if s is not None]
            share = max(0.0, share + min(others, default=1.0) - 1)
        if share is None or share <= MOST_SHARE:
            return None
        if asked.rows is not None and pages_spared(asked.rows, share) * _PAGE >= size:
            return None
        return f"it would leave about {100 * share:.0f} % of the rows"


def pages_spared(rows: BitMap, share: float) -> float:
    """Of how many pages that hold these rows none is left, about, where each stays with a probability of ``share``."""
    held = np.bincount(np.frombuffer(rows.to_array(), np.uint32) // _PAGE_ROWS)
    return float(np.power(1 - share, held[held > 0]).sum())


def expected_bytes(reader: object, leaf: Leaf, length: int, rows: int) -> int:
    """About how many bytes of an index an answer reads: not more than this, mostly."""
    bitmap = rows // 8 + 8192
    if isinstance(reader, BitmapReader) and not isinstance(leaf, Like):
        values = len(leaf.values) if isinstance(leaf, In) else 1
        ranged = isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE)
        return min(length, 1 << 20 if ranged else values * (_BLOCK + bitmap))
    if isinstance(reader, RangeBitmapReader):
        slices = 1 + max(rows - 1, 1).bit_length()
        return min(length, slices * bitmap + 2 * _BLOCK)
    if isinstance(reader, BloomReader):
        return min(length, SMALL_BYTES)  # single bytes, or for long lists of values all of it
    return length


def expected_share(reader: object, leaf: Leaf) -> float | None:
    """About which part of the rows a leaf leaves, told by an index's directory; None: unknown."""
    if isinstance(reader, BitmapReader):
        match leaf:
            case Comparison(_, (Op.EQ | Op.NE) as op, value):
                values, negated = (value,), op is Op.NE
            case In(_, values, negated) if len(values) <= _MOST_VALUES:
                pass
            case _:
                return None
        keys = {key for value in values for key in reader.keys.equal_keys(value)[0]}
        share = reader.count_having(list(keys)) / max(reader.row_count, 1)
        return 1 - share if negated else share
    if isinstance(reader, RangeBitmapReader) and isinstance(leaf, Comparison):
        return reader.share(leaf.op, leaf.value)
    return None


def _mega(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
