"""The demo's data: the SQL of the article on Paimon's file indexes, and any number of generated orders.

The statements are the article's own (sections 4.2, 5.2 and 6.1).  The orders, which the benchmark uses too, are the
same at every run: ``order_id`` and ``order_date`` ascend (new orders come last), ``user_id`` is uniform over 500,000,
``status`` is skewed with exactly 1,000 PENDING orders in each million, side by side; ``payload`` is 48 hex digits that
nothing compresses.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

USER_EVENTS = (
    """
CREATE TABLE user_events (
    user_id INT,
    event_type STRING,
    event_time TIMESTAMP,
    region STRING
) TBLPROPERTIES (
    'file-index.bitmap.columns' = 'event_type,region',
    'file-index.bitmap.event_type.index-block-size' = '32kb',
    'file-index.in-manifest-threshold' = '10kb'
)
""",
    """
INSERT INTO user_events VALUES
    (1, 'login', TIMESTAMP '2024-01-01 10:00:00', 'US'),
    (2, 'click', TIMESTAMP '2024-01-01 10:01:00', 'EU'),
    (3, 'login', TIMESTAMP '2024-01-01 10:02:00', 'US'),
    (4, 'purchase', TIMESTAMP '2024-01-01 10:03:00', 'ASIA'),
    (5, 'click', TIMESTAMP '2024-01-01 10:04:00', 'US'),
    (6, 'login', TIMESTAMP '2024-01-01 10:05:00', 'EU')
""",
)

QUERIES = (
    "SELECT * FROM user_events WHERE event_type = 'login'",
    "SELECT * FROM user_events WHERE event_type IN ('login', 'purchase')",
    "SELECT * FROM user_events WHERE event_type NOT IN ('login')",
    "SELECT * FROM user_events WHERE region IS NULL",
    "SELECT * FROM user_events WHERE region IS NOT NULL",
    "SELECT * FROM user_events\nWHERE event_type = 'login' AND region = 'US'",
    "SELECT * FROM user_events\nWHERE event_type = 'login' OR region = 'US'",
)

ORDERS = (
    """
CREATE TABLE orders (
    order_id BIGINT,
    user_id BIGINT,
    status STRING,
    region STRING,
    amount DECIMAL(10, 2),
    order_date DATE
) TBLPROPERTIES (
    'bucket' = '4',
    'file-index.bitmap.columns' = 'status,region',
    'file-index.bitmap.status.version' = '2',
    'file-index.bitmap.status.index-block-size' = '16kb',
    'file-index.in-manifest-threshold' = '5kb'
)
""",
    """
INSERT INTO orders VALUES
    (1001, 1, 'PENDING', 'US', 100.00, DATE '2024-01-01'),
    (1002, 2, 'COMPLETED', 'EU', 200.00, DATE '2024-01-01'),
    (1003, 3, 'PENDING', 'ASIA', 150.00, DATE '2024-01-01'),
    (1004, 4, 'CANCELLED', 'US', 50.00, DATE '2024-01-02'),
    (1005, 5, 'COMPLETED', 'EU', 300.00, DATE '2024-01-02'),
    (1006, 6, 'PENDING', 'US', 120.00, DATE '2024-01-02'),
    (1007, 7, 'COMPLETED', 'ASIA', 250.00, DATE '2024-01-03'),
    (1008, 8, 'CANCELLED', 'EU', 80.00, DATE '2024-01-03'),
    (1009, 9, 'PENDING', 'ASIA', 180.00, DATE '2024-01-03'),
    (1010, 10, 'COMPLETED', 'US', 400.00, DATE '2024-01-04')
""",
    "SELECT order_id, user_id, region, amount\nFROM orders\nWHERE status = 'PENDING'",
)

ALTER_ORDERS = (
    """
ALTER TABLE user_events SET TBLPROPERTIES (
    'file-index.bitmap.columns' = 'event_type,region'
)
""",
    "CALL sys.rewrite_file_index('default.user_events')",
    """
ALTER TABLE user_events SET TBLPROPERTIES (
    'file-index.bloom-filter.columns' = 'user_id'
)
""",
    "CALL sys.rewrite_file_index(table => 'default.user_events')",
    "SELECT * FROM user_events WHERE user_id = 3",
    "SELECT * FROM user_events WHERE user_id = 4 AND event_type = 'login'",
)
"""Indexes for a table that has data already: what it has is kept, what is missing is built, for all files at once."""


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
