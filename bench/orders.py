"""Write the benchmark's input: python -m bench.orders OUT.parquet [ROWS] (4,000,000 unless told)."""

from __future__ import annotations

import sys

import pyarrow.parquet as pq

from bitlake.demo import orders


def write_orders(path: str, rows: int) -> None:
    """One Parquet file with a row group per half million rows, so that Spark splits it."""
    pq.write_table(orders(rows), path, row_group_size=500_000)


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4_000_000
    write_orders(sys.argv[1], count)
    print(f"{sys.argv[1]}: {count:,} rows")
