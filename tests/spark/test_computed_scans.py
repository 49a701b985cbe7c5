"""Scans whose conditions compute, as Spark DataFrames and beside Spark's statements."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature

DAYS = [dt.date(2025, 12, 1) + dt.timedelta(days=i % 60) for i in range(300)]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.date32())])
ROWS = pa.table({"id": range(300), "v": [f"v{i % 7}" for i in range(300)], "day": DAYS}, schema=SCHEMA)
CONDITIONS = [
    "length(v) = 2 AND id % 10 = 3",
    "year(day) = 2026",
    "NOT (id * 2 > 100) AND upper(v) = 'V3'",
    "id > length(v) AND v = 'v1'",
]


def table_of(lake: bitlake.Lake, path: str) -> bitlake.Table:
    table = lake.create_table("t", SCHEMA, options={"read.spark-path": path, "file-index.bitmap.columns": "v"})
    for start in (0, 100, 200):
        table.append(ROWS.slice(start, 100))
    return table


@pytest.mark.parametrize("path", ["auto", exhaustive("spark"), "workers", exhaustive("driver")])
def test_a_scan_that_computes_is_a_data_frame(lake: bitlake.Lake, path: str) -> None:
    table = table_of(lake, path)
    for where in CONDITIONS:
        scan = table.scan(["id"], where)
        expected = sorted(r["id"] for r in lake.sql(f"SELECT id FROM t WHERE {where}").collect())
        assert sorted(r["id"] for r in scan.to_spark().collect()) == expected
        assert sorted(scan.to_arrow().column("id").to_pylist()) == expected
        assert scan.to_spark().count() == scan.count() == len(expected)


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["rewrite", "vectors"])
def test_statements_leave_computing_to_spark(lake: bitlake.Lake, options: dict[str, str]) -> None:
    table = lake.create_table("t", SCHEMA, options=options)
    table.append(ROWS)
    lake.sql("DELETE FROM t WHERE id % 2 = 0 AND length(v) = 2")
    assert table.count() == 150
    lake.sql("UPDATE t SET v = upper(v) WHERE year(day) = 2026 AND id + 1 < 100")
    changed = [i for i in range(1, 99, 2) if DAYS[i].year == 2026]
    assert sorted(table.to_arrow(["id"], "v LIKE 'V%'").column("id").to_pylist()) == changed
    assert table.delete("substring(v, 2) = '3' AND id < length(v) * 50") == len(
        [i for i in range(1, 100, 2) if i % 7 == 3]
    )


def test_what_only_plain_conditions_can_do_is_refused(lake: bitlake.Lake) -> None:
    lake.create_table("t", SCHEMA, partition_by=["day"]).append(ROWS)
    with pytest.raises((UnsupportedFeature, InvalidRequest), match="only equalities of partition columns"):
        lake.sql("INSERT INTO t REPLACE WHERE year(day) = 2026 SELECT * FROM t WHERE id < 0")
    assert lake.table("t").count() == 300
