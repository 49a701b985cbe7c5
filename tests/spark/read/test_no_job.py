"""Queries that metadata answers, or that find nothing to read, run no Spark job however their rows are asked for."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long import every
from spark_jobs import jobs_of

import bitlake
from bitlake.errors import BitlakeError

pytestmark = pytest.mark.spark
COLUMNS = "id INT NOT NULL, status STRING, amount DECIMAL(10, 2), at TIMESTAMP"
INDEXES = "'file-index.bitmap.columns' = 'status', 'file-index.range-bitmap.columns' = 'amount'"
ROWS = "SELECT CAST(id AS INT), concat('s', id % 4), CAST(id AS DECIMAL(10, 2)), timestamp_seconds(id) FROM range(99)"
BEYOND = "id > 900000"
QUERIES = [
    f"SELECT * FROM {{}} WHERE {BEYOND}",
    f"SELECT id + 1 AS x, upper(status) AS s FROM {{}} AS o WHERE o.{BEYOND} ORDER BY x",
    f"SELECT status, sum(amount) AS total FROM {{}} WHERE {BEYOND} GROUP BY status",
    f"SELECT a.id, b.at FROM {{}} AS a JOIN {{}} AS b ON a.id = b.id WHERE a.{BEYOND}",
    "SELECT count(*) FROM {}",
    "SELECT count(*) AS n FROM {} WHERE status = 's1'",
    "SELECT status, count(*) AS n FROM {} GROUP BY status",
    "SELECT min(id), max(id), min(at) AS first FROM {}",
    "SELECT * FROM {} ORDER BY amount DESC LIMIT 5",
]


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bitlake.Lake]:
    """A lake with one indexed table, and its rows as a view of Spark's."""
    path: Path = tmp_path_factory.mktemp("no-job")
    made = bitlake.connect(str(path / "lake"), spark=spark)
    made.sql(f"CREATE TABLE orders ({COLUMNS}) TBLPROPERTIES ({INDEXES})")
    made.sql(f"INSERT INTO orders {ROWS}")
    spark.sql(f"SELECT * FROM ({ROWS}) AS r (id, status, amount, at)").write.parquet(str(path / "plain"))
    spark.read.parquet(str(path / "plain")).createOrReplaceTempView("plain_orders")
    yield made
    spark.catalog.dropTempView("plain_orders")


def shown(frame: Any) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.show(truncate=False)
    return text.getvalue()


@pytest.mark.parametrize("text", every(3, QUERIES))
def test_no_job_runs_and_the_answer_is_sparks(lake: bitlake.Lake, text: str) -> None:
    plain = lake.spark.sql(text.replace("{}", "plain_orders"))
    ask = text.replace("{}", "orders")
    ways: list[Any] = [
        lambda frame: sorted(map(repr, frame.collect())),
        lambda frame: sorted(map(repr, frame.toArrow().to_pylist())),
        lambda frame: frame.toArrow().schema.remove_metadata(),
        lambda frame: frame.count(),
        lambda frame: sorted(shown(frame).splitlines()),
        lambda frame: frame.columns,
    ]
    for way in ways:
        answer, jobs = jobs_of(lake.spark, lambda way=way: way(lake.sql(ask)))  # type: ignore[misc]
        if not hasattr(answer, "names"):
            assert answer == way(plain)
        else:
            assert answer.names == way(plain).names and answer.types == way(plain).types
        assert jobs == 0


def test_a_frame_without_rows_is_still_sparks(lake: bitlake.Lake) -> None:
    frame = lake.sql(f"SELECT o.id, o.status FROM orders AS o WHERE {BEYOND}")
    assert frame.select("o.status").collect() == []
    assert frame.selectExpr("count(*) AS n").collect() == [(0,)]
    assert frame.union(lake.sql("SELECT id, status FROM orders WHERE id = 7")).collect() == [(7, "s3")]


def test_scans_that_select_nothing_share_a_frame_and_its_view(lake: bitlake.Lake) -> None:
    """A frame for each cost its way to the JVM, and a view that was created and dropped."""
    table = lake.table("orders")
    first, second = (table.scan(where=f"id > {900_000 + i}").to_spark() for i in range(2))
    assert first is second and first.collect() == []
    assert table.scan(["id"], where=BEYOND).to_spark().columns == ["id"]
    pairs = "SELECT count(*) FROM orders AS a FULL JOIN orders AS b ON a.id = b.id"
    assert lake.sql(f"{pairs} WHERE a.id > 900000 AND b.id > 900001").collect() == [(0,)]
    lake.sql("INSERT INTO orders SELECT 900002, 'later', 1, timestamp_seconds(1)")
    assert [r.id for r in table.scan(where=BEYOND).to_spark().collect()] == [900002]
    lake.sql(f"DELETE FROM orders WHERE {BEYOND}")


def test_an_error_of_the_query_comes_when_its_rows_are_asked_for(lake: bitlake.Lake) -> None:
    frame = lake.sql(f"SELECT CAST('x' AS INT) AS n FROM orders WHERE {BEYOND} UNION ALL SELECT CAST('y' AS INT)")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        frame.collect()
    with pytest.raises(BitlakeError):
        lake.sql(f"SELECT typo FROM orders WHERE {BEYOND}")
