"""Which rows of a key count where levels are merged by looking up: those of level 0, and of the lowest level above.

A compaction of such a table merges what the levels above its output hold into what it writes, and leaves it there: so
the lowest level that has a key has all of it (index-format spec, section 9.4; Paimon's readers do the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.table.merge.order import Groups, Int64s, group_rows

Bools = npt.NDArray[np.bool_]

LEVEL = "_LEVEL"
"""A column of rows on their way to being merged, stored nowhere: the level of the file that a row comes from."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A chunk and its keys in order: of rows above level 0 only those of the lowest level that has the key.

    ``groups``: rows by key, level 0 first; ``fresh``: keys with a row of level 0; ``high``: the row of a level above,
    -1 for none.
    """

    chunk: pa.Table
    groups: Groups
    fresh: Bools
    high: Int64s

    @staticmethod
    def of(keys: Sequence[str], chunk: pa.Table) -> Levels:
        """Sort out rows with these key columns and :data:`LEVEL`."""
        level = chunk.column(LEVEL).to_numpy()
        groups = group_rows([chunk.column(k) for k in keys], [level.astype(np.int64)], key_order=True)
        upper = level[groups.order] > 0
        starts = np.zeros(len(upper), bool)
        starts[groups.starts] = True
        first = upper.copy()
        first[1:] &= starts[1:] | ~upper[:-1]
        fresh = ~upper[groups.starts]
        kept = ~upper | first
        if not kept.all():
            # Again on what is left: its rows have other numbers.
            return Levels.of(keys, chunk.take(pa.array(np.sort(groups.order[kept]))))
        high = np.full(len(groups), -1, np.int64)
        last = groups.starts + groups.sizes - 1
        high[upper[last]] = groups.order[last[upper[last]]]
        return Levels(chunk, groups, fresh, high)

    def keys(self, names: Sequence[str], wanted: Bools) -> list[pa.Array]:
        """The key columns of some keys, ascending."""
        rows = pa.array(self.groups.order[self.groups.starts[wanted]])
        return [self.chunk.column(k).take(rows).combine_chunks() for k in names]
