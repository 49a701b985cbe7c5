"""Literals of PARTITION clauses, with and without Spark: they mean what the same literal means in a query."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import bitlake
from bitlake.engine.session import NeedsSpark
from bitlake.errors import InvalidRequest

pytest.importorskip("duckdb")
ENGINES = [pytest.param("spark", marks=pytest.mark.spark), "duckdb"]
ZONE = "America/New_York"


@pytest.fixture(params=ENGINES)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that runs a statement by one engine and returns its rows, in a zone that is not the process's."""
    engine = request.param
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    if spark is not None:
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", ZONE)
    lake = bitlake.connect(tmp_path, spark=spark, timezone=ZONE)

    def run(text: str) -> list[tuple[Any, ...]]:
        answer = lake.sql(text, engine=engine)
        if engine == "spark":
            return [tuple(row) for row in answer.collect()]
        rows = answer if isinstance(answer, pa.Table) else answer.to_arrow_table()
        return [tuple(row.values()) for row in rows.to_pylist()]

    run.lake, run.spark = lake, spark is not None  # type: ignore[attr-defined]
    yield run
    if spark is not None:
        spark.conf.set("spark.sql.session.timeZone", before)
    monkeypatch.undo()
    time.tzset()


def rows_of(run: Any) -> list[tuple[int, str]]:
    """The rows, with the partition's value as people of the zone write it."""
    rows = run.lake.table("t").scan().to_arrow().sort_by("id").to_pylist()
    return [(r["id"], shown(r["p"])) for r in rows]


def shown(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None)
    return str(value)


@pytest.mark.parametrize(
    ("kind", "literal", "text", "other"),
    [
        ("TIMESTAMP", "TIMESTAMP '2024-06-01 12:00:00'", "2024-06-01 12:00:00", "TIMESTAMP '2024-06-01 08:00:00'"),
        ("TIMESTAMP", "'2024-06-01 12:00:00'", "2024-06-01 12:00:00", "'2024-06-01 16:00:00'"),
        ("TIMESTAMP", "TIMESTAMP '2024-06-01 16:00:00Z'", "2024-06-01 12:00:00", "TIMESTAMP '2024-06-01 16:00:00'"),
        ("TIMESTAMP", "DATE '2024-06-01'", "2024-06-01 00:00:00", "TIMESTAMP '2024-05-31 20:00:00'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2024-06-01 12:00:00'", "2024-06-01 12:00:00", "'2024-06-01 08:00:00'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP '2024-06-01 12:00:00'", "2024-06-01 12:00:00", "'2024-06-01 16:00:00'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '0001-01-01 00:00:00'", "0001-01-01 00:00:00", "'0001-01-02 19:03:58'"),
        ("DATE", "DATE '0999-01-01'", "0999-01-01", "DATE '0998-12-31'"),
        ("STRING", "TIMESTAMP '2024-06-01 12:00:00'", "2024-06-01 12:00:00", "'2024-06-01 08:00:00'"),
    ],
)
def test_times_are_those_of_the_session(lake: Any, kind: str, literal: str, text: str, other: str) -> None:
    """Bug: another partition was overwritten, dropped or emptied, hours away."""

    if not lake.spark and (kind, literal[:10]) in (("STRING", "TIMESTAMP "), ("TIMESTAMP_NTZ", "TIMESTAMP ")):
        lake(f"CREATE TABLE t (id INT, p {kind}) PARTITIONED BY (p)")
        with pytest.raises(NeedsSpark, match="the cast of"):
            lake(f"INSERT INTO t PARTITION (p = {literal}) VALUES (1)")
        return

    def fill() -> None:
        lake("DROP TABLE IF EXISTS t")
        lake(f"CREATE TABLE t (id INT, p {kind}) PARTITIONED BY (p)")
        lake(f"INSERT INTO t PARTITION (p = {literal}) VALUES (1)")
        lake(f"INSERT INTO t PARTITION (p = {other}) VALUES (2)")

    fill()
    kept = [row for row in rows_of(lake) if row[0] == 2]
    assert rows_of(lake) == [(1, text), *kept] and kept[0][1] != text
    if lake.spark:
        assert lake(f"SELECT id FROM t WHERE p = {literal}") == [(1,)]
    assert len(lake(f"SHOW PARTITIONS t PARTITION (p = {literal})")) == 1
    lake(f"INSERT OVERWRITE t PARTITION (p = {literal}) SELECT 3 AS id")
    assert rows_of(lake) == [*kept, (3, text)]
    lake(f"ALTER TABLE t DROP PARTITION (p = {literal})")
    assert rows_of(lake) == kept
    fill()
    lake(f"TRUNCATE TABLE t PARTITION (p = {literal})")
    assert rows_of(lake) == kept


@pytest.mark.parametrize(
    ("kind", "literal", "stored"),
    [("CHAR(5)", "'a'", "a    "), ("VARCHAR(3)", "'ab    '", "ab "), ("CHAR(2)", "'a     '", "a ")],
)
def test_texts_are_padded_and_cut_as_they_are_stored(lake: Any, kind: str, literal: str, stored: str) -> None:
    """Bug: the partition was not found, silently by TRUNCATE and SHOW PARTITIONS."""
    lake(f"CREATE TABLE t (id INT, p {kind}) PARTITIONED BY (p)")

    def fill() -> None:
        lake("TRUNCATE TABLE t")
        lake(f"INSERT INTO t VALUES (1, {literal}), (2, 'b')")

    fill()
    assert rows_of(lake)[0] == (1, stored)
    assert len(lake(f"SHOW PARTITIONS t PARTITION (p = {literal})")) == 1
    lake(f"INSERT OVERWRITE t PARTITION (p = {literal}) SELECT 3 AS id")
    assert [row[0] for row in rows_of(lake)] == [2, 3]
    lake(f"TRUNCATE TABLE t PARTITION (p = {literal})")
    assert [row[0] for row in rows_of(lake)] == [2]
    fill()
    lake(f"ALTER TABLE t DROP PARTITION (p = {literal})")
    assert [row[0] for row in rows_of(lake)] == [2]


def test_a_partition_of_nan_is_found(lake: Any) -> None:
    lake("CREATE TABLE t (id INT, p DOUBLE) PARTITIONED BY (p)")
    lake("INSERT INTO t VALUES (1, CAST('NaN' AS DOUBLE)), (2, 1.5D)")
    assert lake("SHOW PARTITIONS t PARTITION (p = CAST('NaN' AS DOUBLE))") == [("p=NaN",)]
    lake("ALTER TABLE t DROP PARTITION (p = CAST('NaN' AS DOUBLE))")
    assert rows_of(lake) == [(2, "1.5")]


def test_python_partitions_are_padded(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    lake.sql("CREATE TABLE t (id INT, p CHAR(5)) PARTITIONED BY (p)", engine="duckdb")
    table, rows = lake.table("t"), pa.table({"id": pa.array([1, 2], pa.int32()), "p": ["a", "b"]})
    table.append(rows)
    table.overwrite(rows.slice(0, 1), {"p": "a"})
    assert table.count() == 2
    table.truncate({"p": "a"})
    assert table.scan().to_arrow()["p"].to_pylist() == ["b    "]
    with pytest.raises(InvalidRequest, match=r"longer than column 'p' CHAR\(5\) allows"):
        table.truncate({"p": "too long"})
