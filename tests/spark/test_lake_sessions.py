"""A lake whose Spark session was stopped, whose Java process died, or that is sent to a process without them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive
from py4j.protocol import Py4JError
from pyspark.errors import PythonException

import bitlake
from bitlake.errors import REPORTED, BitlakeError, InvalidRequest, StorageUnavailable
from bitlake.spark import session
from bitlake.spark.errors import spark_errors

pytestmark = pytest.mark.spark

ROWS = pa.table({"a": [1, 2], "b": ["x", "y"]})


class Stopped:
    """Says which sessions are stopped: to stop one here would stop the context of all tests.  Mutable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[Any] = []
        really = session.is_stopped
        monkeypatch.setattr(session, "is_stopped", lambda s: any(s is other for other in self.sessions) or really(s))


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    return Stopped(monkeypatch)


def test_a_lake_without_a_session_of_its_own_takes_the_next_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: Stopped
) -> None:
    # Every statement ended in an AttributeError of PySpark's, and caches held frames of the first session.
    sessions = [spark.newSession(), spark.newSession()]
    asked: list[str] = []

    def started(timezone: str) -> Any:
        asked.append(timezone)
        return sessions[len(stopped.sessions)]

    monkeypatch.setattr(session, "get_or_create", started)
    lake = bitlake.connect(tmp_path, timezone="Asia/Tokyo")
    table = lake.create_table("t", ROWS)
    scan = table.scan(where="a = 2")
    for number, current in enumerate(sessions):
        assert lake.sql("SELECT a, b FROM t WHERE a + 1 > 0 ORDER BY a").toArrow().to_pydict() == ROWS.to_pydict()
        assert scan.to_spark().sparkSession is current
        assert lake.sql("SELECT b FROM t WHERE a = 2").sparkSession is lake.spark is current
        assert lake.sql("SELECT sum(a) FROM t", engine="duckdb").fetchall() == [(3,)]
        if not number:
            stopped.sessions.append(current)
    assert asked == ["Asia/Tokyo", "Asia/Tokyo"]


@pytest.mark.parametrize("used", [True, False])
def test_a_lake_says_that_the_session_it_was_given_is_stopped(
    spark: Any, tmp_path: Path, stopped: Stopped, used: bool
) -> None:
    given = spark.newSession()
    lake = bitlake.connect(tmp_path, spark=given)
    table = lake.create_table("t", ROWS)
    if used:
        assert lake.sql("SELECT count(*) FROM t").collect()[0][0] == 2
    stopped.sessions.append(given)
    for ask in (
        lambda: lake.sql("SHOW TABLES"),
        lambda: lake.sql("SELECT 1", engine="duckdb"),
        lambda: lake.write(spark.range(1), "t"),
        lambda: table.scan().to_spark(),
    ):
        with pytest.raises(InvalidRequest, match=r"session of Lake\('.*'\) was stopped; connect again.*spark=…\)"):
            ask()
    assert table.to_arrow().equals(ROWS)


@pytest.mark.parametrize("given", [True, exhaustive(False)])
def test_a_lake_and_its_tables_are_sent_to_workers_without_the_session(spark: Any, tmp_path: Path, given: bool) -> None:
    lake = bitlake.connect(tmp_path, spark=spark if given else None)
    table = lake.create_table("t", ROWS)
    assert lake.sql("SELECT sum(a) FROM t WHERE a + 0 > 0").collect()[0][0] == 3  # there is a session now
    for sent in (lake.table("t"), table, pickle.loads(pickle.dumps(lake)).table("t")):

        def count(batches: Any, sent: bitlake.Table = sent) -> Any:
            for batch in batches:
                found = [sent.scan(where=f"a = {a}").to_arrow().num_rows for a in batch.column("id").to_pylist()]
                yield pa.RecordBatch.from_pydict({"n": pa.array(found, pa.int64())})

        assert [r.n for r in spark.range(1, 4, 1, 1).mapInArrow(count, "n BIGINT").collect()] == [1, 1, 0]
    received = pickle.loads(pickle.dumps(table))
    received.append(spark.createDataFrame([(3, "z")], "a BIGINT, b STRING"))
    assert received.scan(where="a > 1").to_spark().count() == 2


def test_what_pyspark_says_of_a_session(spark: Any) -> None:
    assert not session.is_stopped(spark)

    class Context:
        _jsc = None

    class Classic:
        _sc = Context()

    class Connect:
        is_stopped = True

    assert session.is_stopped(Classic())  # type: ignore[arg-type]
    assert session.is_stopped(Connect())  # type: ignore[arg-type]


# py4j raises the last one where the connection breaks, and refuses the next ones.
LOST = [
    ConnectionRefusedError(111, "Connection refused"),
    ConnectionResetError(),
    Py4JError("An error occurred while calling o254.sessionState"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda e: type(e).__name__)
def test_a_lost_java_process_is_an_error_of_bitlake(error: Exception) -> None:
    says = r"INSERT: Spark's Java process does not answer.*restart Python"
    with pytest.raises(StorageUnavailable, match=says), spark_errors("INSERT"):
        raise error


@pytest.mark.parametrize("kind", sorted(REPORTED))
def test_an_error_of_a_worker_keeps_its_type(kind: str) -> None:
    with pytest.raises(BitlakeError, match=r"^cannot read /t/a: no permission$") as raised, spark_errors("INSERT"):
        raise PythonException(
            f"An exception was thrown from the Python worker:\nbitlake.errors.{kind}: cannot read /t/a: no permission"
        )
    assert type(raised.value) is REPORTED[kind]


_SCRIPT = """
import os, subprocess, sys
import bitlake, pyarrow as pa
from pyspark import SparkContext
lake = bitlake.connect(sys.argv[1])
lake.create_table("t", pa.table({"a": [1, 2]}))
for _ in range(2):
    assert lake.sql("SELECT sum(a + 1) FROM t WHERE a + 0 > 0").collect()[0][0] == 5
    lake.sql("INSERT INTO t VALUES (3)")
    lake.sql("DELETE FROM t WHERE a = 3")
    lake.spark.stop()
lake.spark
launcher = SparkContext._gateway.proc.pid
subprocess.run(["pkill", "-KILL", "-P", str(launcher)])
os.kill(launcher, 9)
for text in ("SELECT a + 1 FROM t", "INSERT INTO t VALUES (4)", "SHOW TABLES"):
    try:
        lake.sql(text)
    except bitlake.errors.StorageUnavailable as e:
        assert "Java process does not answer" in str(e), e
    else:
        raise AssertionError(text)
print(lake.table("t").to_arrow().num_rows)
os._exit(0)  # PySpark's own end asks the process that is gone
"""


@pytest.mark.long
def test_a_session_is_stopped_and_its_process_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


def test_a_session_of_another_thread_keeps_its_settings(spark: Any, tmp_path: Path) -> None:
    """PySpark's builder gave it the time zone of the lake, and the number of shuffle partitions of a new session."""
    names = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    before = [spark.conf.get(name) for name in names]
    lake = bitlake.connect(tmp_path, timezone="Asia/Tokyo")
    with ThreadPoolExecutor(1) as threads:  # in which no session is active
        [[zone]] = threads.submit(lambda: lake.sql("SELECT current_timezone()").collect()).result()
    assert [zone, *before[1:]] == before == [spark.conf.get(name) for name in names]
