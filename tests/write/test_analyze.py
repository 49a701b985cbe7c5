"""Statistics of columns, computed in this process: against brute force, over several batches."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import UnsupportedFeature
from bitlake.write.analyze import ColumnStatistics, scan_statistics

NAN = float("nan")
COLUMNS: dict[str, tuple[pa.DataType, list[Any], ColumnStatistics]] = {
    "i": (pa.int32(), [3, None, -7, 3], ColumnStatistics(2, "-7", "3", 1, 4, 4)),
    "b": (pa.bool_(), [True, False, None, None], ColumnStatistics(2, "false", "true", 2, 1, 1)),
    "d": (pa.float64(), [1e10, -0.5, NAN, math.inf], ColumnStatistics(4, "-0.5", "NaN", 0, 8, 8)),
    "f": (pa.float32(), [0.1, None, 1e-5, 0.1], ColumnStatistics(2, "1.0E-5", "0.1", 1, 4, 4)),
    "nan": (pa.float64(), [NAN, NAN, None, NAN], ColumnStatistics(1, "NaN", "NaN", 1, 8, 8)),
    "m": (
        pa.decimal128(9, 2),
        [Decimal("1.50"), None, None, Decimal(-2)],
        ColumnStatistics(2, "-2.00", "1.50", 2, 8, 8),
    ),
    "w": (
        pa.decimal128(30, 0),
        [Decimal(10**29), None, None, None],
        ColumnStatistics(1, f"1{'0' * 29}", f"1{'0' * 29}", 3, 16, 16),
    ),
    "x": (pa.string(), ["", "äb", None, "abcd"], ColumnStatistics(3, None, None, 1, 3, 4)),
    "y": (pa.binary(), [b"\xff", b"", b"", b""], ColumnStatistics(2, None, None, 0, 1, 1)),
    "day": (
        pa.date32(),
        [dt.date(1969, 12, 31), dt.date(1970, 1, 2), None, None],
        ColumnStatistics(2, "-1", "1", 2, 4, 4),
    ),
    "n": (
        pa.timestamp("ms"),
        [dt.datetime(2026, 1, 1), dt.datetime(1960, 1, 1, 1, 2, 3, 4000), None, None],
        ColumnStatistics(2, "1960-01-01 01:02:03.004", "2026-01-01 00:00:00.000", 2, 8, 8),
    ),
    "z": (
        pa.timestamp("us", "Asia/Tokyo"),
        [dt.datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC), None, None, None],
        ColumnStatistics(1, "2026-01-01 00:00:00.000005", "2026-01-01 00:00:00.000005", 3, 8, 8),
    ),
    "none": (pa.int64(), [None] * 4, ColumnStatistics(0, None, None, 4, 8, 8)),
    "nothing": (pa.string(), [None] * 4, ColumnStatistics(0, None, None, 4, 0, 0)),
}


@pytest.fixture
def table(tmp_path: Path) -> bitlake.Table:
    rows = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in COLUMNS.items()})
    rows = rows.append_column("a", pa.array([[1]] * 4, pa.list_(pa.int32())))
    table = bitlake.connect(tmp_path).create_table("t", rows.schema)
    for i in range(4):  # four files, so four batches
        table.append(rows.slice(i, 1))
    return table


def test_statistics_of_each_type(table: bitlake.Table) -> None:
    rows, found = scan_statistics(table._core.scan(), list(COLUMNS))
    assert rows == 4
    assert found == {name: statistics for name, (_, _, statistics) in COLUMNS.items()}


def test_the_file_and_the_snapshot(table: bitlake.Table, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    lake.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS", engine="duckdb")
    snapshot = table.snapshot
    assert snapshot is not None and (snapshot.id, snapshot.commit_kind) == (5, "ANALYZE")
    found = json.loads((tmp_path / "default.db" / "t" / "statistics" / str(snapshot.statistics)).read_text())
    assert (found["snapshotId"], found["mergedRecordCount"]) == (4, 4)
    assert list(found["colStats"]) == list(COLUMNS)
    assert found["colStats"]["i"] == {
        "colId": 0, "distinctCount": 2, "min": "-7", "max": "3", "nullCount": 1, "avgLen": 4, "maxLen": 4,
    }  # fmt: skip
    with pytest.raises(UnsupportedFeature, match="column 'a' is ARRAY<INT>, which cannot be analyzed"):
        lake.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a", engine="duckdb")
    lake.sql("CREATE TABLE empty (a INT)", engine="duckdb")
    lake.sql("ANALYZE TABLE empty COMPUTE STATISTICS FOR ALL COLUMNS", engine="duckdb")
    assert lake.table("empty").snapshot is None
