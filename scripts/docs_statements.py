"""An example of each SQL statement for the reference; each is parsed when the page is made: none is out of date."""

from __future__ import annotations

import dataclasses
import inspect

from bitlake.sql import statements
from bitlake.sql.parser import parse_statement

GROUPS: dict[str, tuple[str, ...]] = {
    "Databases": (
        "CREATE DATABASE IF NOT EXISTS sales",
        "USE sales",
        "ALTER DATABASE sales SET DBPROPERTIES ('owner' = 'ann')",
        "DESCRIBE DATABASE EXTENDED sales",
        "SHOW DATABASES LIKE 's*'",
        "SHOW CURRENT NAMESPACE",
        "DROP DATABASE IF EXISTS sales CASCADE",
    ),
    "Tables": (
        "CREATE TABLE orders (id BIGINT, status STRING, day DATE) PARTITIONED BY (day)\n"
        "TBLPROPERTIES ('file-index.bitmap.columns' = 'status')",
        "CREATE TABLE users (id BIGINT NOT NULL, name STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '4')",
        "CREATE TABLE paid AS SELECT * FROM orders WHERE status = 'PAID'",
        "CREATE TABLE more LIKE orders",
        "ALTER TABLE orders SET TBLPROPERTIES ('target-file-size' = '64 mb')",
        "ALTER TABLE orders UNSET TBLPROPERTIES ('target-file-size')",
        "ALTER TABLE orders ADD COLUMN note STRING AFTER status",
        "ALTER TABLE orders RENAME COLUMN note TO remark",
        "ALTER TABLE orders RENAME TO all_orders",
        "ALTER TABLE orders ADD IF NOT EXISTS PARTITION (day = '2026-02-01')",
        "ALTER TABLE orders DROP PARTITION (day = '2026-01-31')",
        "DROP TABLE IF EXISTS orders",
        "TRUNCATE TABLE orders PARTITION (day = '2026-01-31')",
        "ANALYZE TABLE orders COMPUTE STATISTICS FOR ALL COLUMNS",
        "REFRESH TABLE orders",
    ),
    "Rows": (
        "INSERT INTO orders VALUES (1, 'NEW', DATE '2026-01-31')",
        "INSERT OVERWRITE orders PARTITION (day = '2026-01-31') SELECT id, status FROM corrections",
        "FROM corrections INSERT INTO orders SELECT id, status, DATE '2026-01-31'\n"
        "INSERT INTO paid SELECT id, status, DATE '2026-01-31' WHERE status = 'PAID'",
        "UPDATE orders SET status = 'PAID' WHERE id = 1",
        "DELETE FROM orders WHERE status = 'LOST'",
        "MERGE INTO orders t USING corrections s ON t.id = s.id\n"
        "WHEN MATCHED THEN UPDATE SET *\nWHEN NOT MATCHED THEN INSERT *",
        "COPY INTO orders FROM '/data/incoming' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1)",
        "COPY INTO '/data/paid' FROM (SELECT * FROM orders WHERE status = 'PAID') FILE_FORMAT = (TYPE = PARQUET)",
    ),
    "Queries": (
        "SELECT status, count(*) FROM orders WHERE day > '2026-01-01' GROUP BY status",
        "SELECT * FROM orders VERSION AS OF 3",
        "SELECT * FROM orders TIMESTAMP AS OF '2026-01-31 12:00:00'",
        "DESCRIBE QUERY SELECT id, status FROM orders",
        "EXECUTE IMMEDIATE 'SELECT * FROM orders WHERE id = ?' USING 1",
        "CACHE TABLE orders",
        "UNCACHE TABLE IF EXISTS orders",
        "CLEAR CACHE",
        "EXPLAIN SELECT * FROM orders WHERE status = 'NEW'",
    ),
    "Views": (
        "CREATE TEMPORARY VIEW corrections AS SELECT 1 AS id, 'PAID' AS status",
        "CREATE OR REPLACE VIEW new_orders AS SELECT * FROM orders WHERE status = 'NEW'",
        "ALTER VIEW new_orders AS SELECT * FROM orders WHERE status IN ('NEW', 'OPEN')",
        "ALTER VIEW new_orders RENAME TO open_orders",
        "SHOW VIEWS",
        "DROP VIEW IF EXISTS new_orders",
    ),
    "Tags": (
        "ALTER TABLE orders CREATE TAG monday AS OF VERSION 3 RETAIN 7 DAYS",
        "ALTER TABLE orders RENAME TAG monday TO start_of_week",
        "ALTER TABLE orders DELETE TAG start_of_week",
        "SHOW TAGS orders",
    ),
    "Indexes": (
        "CREATE INDEX by_status ON orders USING bitmap (lower(status))",
        "SHOW INDEXES FROM orders",
        "DROP INDEX IF EXISTS by_status ON orders",
    ),
    "What is there": (
        "SHOW TABLES IN sales LIKE 'o*'",
        "SHOW TABLE EXTENDED IN sales LIKE 'o*'",
        "SHOW COLUMNS IN orders",
        "SHOW PARTITIONS orders",
        "SHOW CREATE TABLE orders",
        "SHOW TBLPROPERTIES orders",
        "DESCRIBE TABLE EXTENDED orders",
        "SHOW PROCEDURES LIKE '*tag*'",
    ),
    "Procedures": (
        "CALL sys.compact(table => 'orders')",
        "CALL sys.rewrite_file_index(table => 'orders')",
    ),
    "Statements of Delta Lake and Iceberg": (
        "DESCRIBE HISTORY orders LIMIT 10",
        "OPTIMIZE orders WHERE day = '2026-01-31' ZORDER BY (id, status)",
        "VACUUM orders RETAIN 168 HOURS DRY RUN",
        "CALL system.expire_snapshots('orders', TIMESTAMP '2026-01-31 00:00:00', 10)",
    ),
}
_PARTS = {"Assignment", "ColumnDef", "FileFormat", "MergeClause", "TableName", "Other"}


def checked() -> dict[str, tuple[str, ...]]:
    """The examples, each parsed; raises :class:`ValueError` for a statement without one, or one that is none."""
    kinds = {
        name
        for name, kind in inspect.getmembers(statements, inspect.isclass)
        if kind.__module__ == statements.__name__ and dataclasses.is_dataclass(kind)
    } - _PARTS
    shown = set()
    for examples in GROUPS.values():
        for text in examples:
            made = type(parse_statement(text)).__name__
            if made == "Other":
                raise ValueError(f"bitlake does not know the statement of this example: {text}")
            shown.add(made)
    if kinds - shown:
        raise ValueError(f"the SQL reference has no example of {', '.join(sorted(kinds - shown))}")
    return GROUPS
