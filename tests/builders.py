"""Small builders that tests share."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pyarrow as pa

from bitlake.metadata.options import PartitionAge
from bitlake.snapshot.expiry import Retention

UTC = dt.UTC

EVERY_TYPE = pa.schema(
    [
        pa.field("c_bool", pa.bool_()),
        pa.field("c_tiny", pa.int8()),
        pa.field("c_small", pa.int16()),
        pa.field("c_int", pa.int32()),
        pa.field("c_big", pa.int64()),
        pa.field("c_float", pa.float32()),
        pa.field("c_double", pa.float64()),
        pa.field("c_dec9", pa.decimal128(9, 2)),
        pa.field("c_dec18", pa.decimal128(18, 4)),
        pa.field("c_dec38", pa.decimal128(38, 10)),
        pa.field("c_str", pa.string()),
        pa.field("c_bin", pa.binary()),
        pa.field("c_date", pa.date32()),
        pa.field("c_ts", pa.timestamp("us", "UTC")),
        pa.field("c_ntz", pa.timestamp("us")),
        pa.field("c_ts3", pa.timestamp("ms", "UTC")),
        pa.field("c_array", pa.list_(pa.int32())),
        pa.field("c_map", pa.map_(pa.string(), pa.int64())),
        pa.field("c_row", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.string()))])),
    ]
)
"""A column of every type that Spark has."""


def every_type() -> pa.Table:
    """Four rows of :data:`EVERY_TYPE`: extremes, oddities, and NULLs."""
    d = decimal.Decimal
    columns = {
        "c_bool": [True, False, True, None],
        "c_tiny": [127, -128, 0, None],
        "c_small": [32767, -32768, 0, None],
        "c_int": [2**31 - 1, -(2**31), 0, None],
        "c_big": [2**63 - 1, -(2**63), 0, None],
        "c_float": [1.5, -0.0, math.inf, None],
        "c_double": [math.nan, 0.0, -math.inf, None],
        "c_dec9": [d("1234567.89"), d("-0.01"), d("0.00"), None],
        "c_dec18": [d("12345678901234.5678"), d("-0.0001"), d("0.0000"), None],
        "c_dec38": [d("1234567890123456789012345678.0123456789"), d("-1E-10"), d("0"), None],
        "c_str": ["plain", "ünï 🙂 \x00 '%_\\", "", None],
        "c_bin": [b"\x00\xff", b"", b"abc", None],
        "c_date": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
        "c_ts": [dt.datetime(2024, 1, 1, 10, tzinfo=UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)]
        + [dt.datetime(9999, 12, 31, tzinfo=UTC), None],
        "c_ntz": [dt.datetime(2024, 1, 1, 10, 0, 0, 1), dt.datetime(1900, 1, 1), dt.datetime(1970, 1, 1), None],
        "c_ts3": [dt.datetime(2024, 1, 1, 10, 0, 0, 5000, UTC), dt.datetime(1950, 5, 5, tzinfo=UTC)]
        + [dt.datetime(1970, 1, 1, tzinfo=UTC), None],
        "c_array": [[1, None, 3], [], [-1], None],
        "c_map": [[("a", 1), ("b", None)], [], [("ü", -1)], None],
        "c_row": [{"x": 1, "y": ["p", None]}, {"x": None, "y": []}, {"x": -1, "y": None}, None],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in EVERY_TYPE], schema=EVERY_TYPE)


def events(rows: int = 1000, statuses: int = 4) -> pa.Table:
    """``rows`` rows of (id, status, region, amount), the same every time; every 7th region is NULL."""
    number = range(rows)
    return pa.table(
        {
            "id": pa.array(number, pa.int64()),
            "status": pa.array([f"S{i * 7919 % statuses}" for i in number], pa.string()),
            "region": pa.array([None if i % 7 == 0 else ("US", "EU", "ASIA")[i * 31 % 3] for i in number], pa.string()),
            "amount": pa.array([(i * 1_000_003 % 9973) / 4 for i in number], pa.float64()),
        }
    )


def terms(retention: Retention) -> dict[str, Any]:
    """The arguments of ``table.maintenance.expire_snapshots`` that a retention stands for."""
    return {
        "retain_max": retention.retain_max,
        "retain_min": retention.retain_min,
        "older_than": retention.older_than_ms,
        "max_deletes": retention.max_deletes,
    }


def age_terms(age: PartitionAge) -> dict[str, Any]:
    """The arguments of ``table.maintenance.expire_partitions`` that an age stands for."""
    return {
        "older_than": dt.timedelta(milliseconds=age.limit_ms),
        "formatter": age.formatter,
        "pattern": age.pattern,
        "strategy": age.strategy,
    }
