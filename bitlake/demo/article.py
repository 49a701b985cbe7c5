"""The SQL of the article on Paimon's file indexes, as it stands there (sections 4.2, 5.2 and 6.1)."""

from __future__ import annotations

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
