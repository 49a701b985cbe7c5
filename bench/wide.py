"""The headline's input: orders wide enough that a million rows are about 100 MB of Parquet, as in the article."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bitlake.demo import SCHEMA, SEED, _hex, orders

TEXTS = {"customer": 16, "address": 32, "remark": 20}
"""Columns of hex digits that nothing compresses, and the random bytes in each value."""


def wide_orders(rows: int, scattered: bool = False) -> pa.Table:
    """``rows`` orders with three more text columns.

    Each million has exactly 1,000 PENDING rows: side by side, or ``scattered`` evenly at random.
    """
    table = orders(rows)
    random = np.random.default_rng(SEED + 1)
    for name, width in TEXTS.items():
        raw = random.integers(0, 256, (rows, width), dtype=np.uint8)
        table = table.append_column(name, _hex(raw))
    if scattered:
        status = SCHEMA.get_field_index("status")
        column = table.column("status").combine_chunks()
        order = random.permutation(rows)
        table = table.set_column(status, "status", column.take(pa.array(order)))
    return table
