"""Which rows of a key count where levels are looked up, against a plain loop over every small table."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa

from bitlake.merge.engine import LEVEL, LevelGroups


def test_of_rows_above_level_0_only_the_lowest_level_of_a_key_counts() -> None:
    for size in range(1, 5):
        for rows in product(product("ab", (0, 1, 5)), repeat=size):
            upper = [row for row in rows if row[1]]
            if len(set(upper)) < len(upper):
                continue  # a level above 0 holds a key once
            chunk = pa.table({"k": [k for k, _ in rows], LEVEL: pa.array([n for _, n in rows], pa.int32())})
            made = LevelGroups.of(["k"], chunk)
            kept = list(zip(made.chunk["k"].to_pylist(), made.chunk[LEVEL].to_pylist(), strict=True))
            lowest = {k: min((n for key, n in upper if key == k), default=None) for k, _ in rows}
            assert kept == [(k, n) for k, n in rows if n in (0, lowest[k])]
            keys = sorted(lowest)
            fresh = [(k, 0) in rows for k in keys]
            assert made.fresh.tolist() == fresh
            assert made.high.tolist() == [-1 if lowest[k] is None else kept.index((k, lowest[k])) for k in keys]
            for wanted in (np.ones(len(keys), bool), made.fresh):
                assert made.keys(["k"], wanted)[0].to_pylist() == [k for k, w in zip(keys, wanted, strict=True) if w]
            groups = [
                made.groups.order[s : s + n].tolist()
                for s, n in zip(made.groups.starts, made.groups.sizes, strict=True)
            ]
            for key, group in zip(keys, groups, strict=True):
                zero = [i for i, row in enumerate(kept) if row == (key, 0)]
                assert group == zero + [i for i, (k, n) in enumerate(kept) if k == key and n]
