"""The orders of the demo and the benchmark: any number of rows, the same ones every time.

``order_id`` and ``order_date`` ascend (new orders come last), ``user_id`` is uniform over 500,000, ``status`` is skewed
with exactly 1,000 PENDING orders in each million, side by side; ``payload`` is 48 hex digits that nothing compresses.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SEED = 7
USERS = 500_000
ORDERS_PER_DAY = 20_000
FIRST_DAY = 19_000  # days since the epoch: 2022-01-08
PENDING_EVERY, PENDING_FROM, PENDING_RUN = 1_000_000, 600_000, 1_000
STATUSES = ("COMPLETED", "CANCELLED", "SHIPPED", "RETURNED", "PENDING")
STATUS_WEIGHTS = (0.6, 0.1, 0.25, 0.05)
REGIONS = ("US", "EU", "ASIA", "LATAM", "MEA")

SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64()),
        pa.field("user_id", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("region", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("order_date", pa.date32()),
        pa.field("payload", pa.string()),
    ]
)


def orders(rows: int) -> pa.Table:
    """``rows`` orders with :data:`SCHEMA`.

    The draws come in a fixed order: moving one changes every value after it.
    """
    random = np.random.default_rng(SEED)
    number = np.arange(rows, dtype=np.int64)
    status = random.choice(len(STATUS_WEIGHTS), rows, p=STATUS_WEIGHTS).astype(np.int8)
    into = number % PENDING_EVERY - PENDING_FROM
    status[(into >= 0) & (into < PENDING_RUN)] = STATUSES.index("PENDING")
    region = random.choice(len(REGIONS), rows).astype(np.int8)
    cents = random.integers(100, 10_000_000, rows)
    user = random.integers(0, USERS, rows)
    payload = random.integers(0, 256, (rows, 24), dtype=np.uint8)
    columns = [
        pa.array(number),
        pa.array(user),
        _names(status, STATUSES),
        _names(region, REGIONS),
        _decimals(cents),
        pa.array((number // ORDERS_PER_DAY + FIRST_DAY).astype(np.int32)).cast(pa.date32()),
        _hex(payload),
    ]
    return pa.table(columns, schema=SCHEMA)


def _names(codes: NDArray[np.int8], names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes))


def _decimals(cents: NDArray[np.int64]) -> pa.Array:
    """int64 hundredths → decimal128(10, 2): sixteen little-endian bytes each, of which eight are the sign."""
    words = np.stack([cents, cents >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(10, 2), len(cents), [None, pa.py_buffer(words)])


def _hex(raw: NDArray[np.uint8]) -> pa.Array:
    """uint8[rows, n] → strings of 2n lower-case hex digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = digits[np.stack([raw >> 4, raw & 15], axis=2)]
    width = 2 * raw.shape[1]
    offsets = np.arange(len(raw) + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
