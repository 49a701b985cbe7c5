"""Tables whose right advice is known: rows as lineitem of TPC-H has them, and of other tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import bitlake

FLAGS, MODES = ("A", "N", "R"), ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
FIRST_DAY = 8036  # 1992-01-01


def lineitem(rows: int, seed: int = 3) -> pa.Table:
    """Rows with TPC-H's columns, widths and distributions: orders of 1 to 7 lines, dates scattered over seven years."""
    random = np.random.default_rng(seed)
    lines = random.integers(1, 8, rows)
    order = np.repeat(np.arange(rows, dtype=np.int64), lines)[:rows] * 4 + 1
    ship = random.integers(0, 2526, rows).astype(np.int32) + FIRST_DAY
    quantity = random.integers(1, 51, rows)
    cents = quantity * random.integers(90_000, 200_000, rows)

    def picked(names: tuple[str, ...]) -> pa.Array:
        return pa.array(names).take(pa.array(random.integers(0, len(names), rows)))

    letters = random.integers(97, 123, (2000, 5), dtype=np.uint8)
    words = np.array([bytes(w).decode() + " " for w in letters])
    comment = [pa.array(words[random.integers(0, len(words), rows)].tolist()) for _ in range(4)]
    return pa.table(
        {
            "l_orderkey": order,
            "l_partkey": random.integers(1, 20_000, rows),
            "l_suppkey": random.integers(1, 1000, rows),
            "l_quantity": _decimals(quantity * 100),
            "l_extendedprice": _decimals(cents),
            "l_returnflag": picked(FLAGS),
            "l_shipdate": pa.array(ship).cast(pa.date32()),
            "l_shipinstruct": picked(INSTRUCTIONS),
            "l_shipmode": picked(MODES),
            "l_comment": pc.binary_join_element_wise(*comment, ""),
        }
    )


def _decimals(cents: np.ndarray) -> pa.Array:
    words = np.stack([cents, cents >> 63], axis=1).astype(np.int64)
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(words)])


def stored(
    folder: Path, rows: pa.Table, files: int = 1, *, name: str = "t", options: dict[str, str] | None = None,
    primary_key: tuple[str, ...] = (), partition_by: tuple[str, ...] = (),
) -> bitlake.Table:  # fmt: skip
    """A new table of these rows, in so many files of neighbouring rows."""
    lake = bitlake.connect(folder)
    table = lake.create_table(name, rows.schema, options=options, primary_key=primary_key, partition_by=partition_by)
    size = max(1, -(-rows.num_rows // files))
    for start in range(0, rows.num_rows, size):
        part = rows.slice(start, size)
        if primary_key:
            table.upsert(part)
        else:
            table.append(part)
    return table
