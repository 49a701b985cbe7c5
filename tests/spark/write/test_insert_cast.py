"""Rows made to fit a table on Spark: what does not fit is refused by name, whatever the session's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long import exhaustive
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.errors import AnalysisException

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, NotFound

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[bitlake.Lake]:
    yield bitlake.connect(tmp_path / "lake", spark=spark)
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("ansi", ["true", exhaustive("false")])
def test_a_number_out_of_range_is_refused_with_its_column(lake: bitlake.Lake, ansi: str) -> None:
    lake.sql("CREATE TABLE t (a TINYINT, d DECIMAL(5, 2))")
    lake.spark.conf.set("spark.sql.ansi.enabled", ansi)
    for query, column in (
        ("VALUES (300, 1)", "a"),
        ("SELECT id + 120, 1 FROM range(10)", "a"),
        ("VALUES (double('NaN'), 1)", "a"),
        ("VALUES (1, 1234.5)", "d"),
    ):
        with pytest.raises(InvalidRequest, match=rf"default\.t', column '{column}': .* does not fit"):
            lake.sql(f"INSERT INTO t {query}")
    assert lake.table("t").snapshot is None
    lake.sql("INSERT INTO t VALUES (1.6D, 1.555), (NULL, 99Y)")
    assert [list(map(str, r)) for r in lake.sql("SELECT * FROM t").collect()] == [["1", "1.56"], ["None", "99.00"]]


def test_not_null_inside_of_values(lake: bitlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE n (i INT, s STRUCT<a: INT, b: STRING NOT NULL>, r ARRAY<STRUCT<x: INT NOT NULL>>, "
        "m MAP<STRING, STRUCT<k: INT NOT NULL>>)"
    )
    lake.sql(
        "INSERT INTO n VALUES (1, NULL, NULL, NULL), (2, named_struct('a', NULL, 'b', 'x'), "
        "array(named_struct('x', 1), NULL), map('k', named_struct('k', 1), 'n', NULL))"
    )
    for bad in (
        "named_struct('a', 1, 'b', NULL), NULL, NULL",
        "NULL, array(struct(NULL)), NULL",
        "NULL, NULL, map('k', struct(NULL))",
    ):
        with pytest.raises(InvalidRequest, match="NULL inside column"):
            lake.sql(f"INSERT INTO n VALUES (3, {bad})")
    lake.sql("INSERT INTO n SELECT i + 10, s, r, m FROM n")
    rows = {r.i: r for r in lake.sql("SELECT * FROM n").collect()}
    assert sorted(rows) == [1, 2, 11, 12]
    assert rows[12][1:] == rows[2][1:] and rows[11].s is None and rows[12].r[1] is None
    assert lake.table("n").scan(where="i = 11").to_arrow().to_pylist() == [{"i": 11, "s": None, "r": None, "m": None}]


def test_an_unknown_column_is_answered_with_the_tables_own(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT, b INT)")
    with pytest.raises(NotFound, match=r"table 'default\.t' has columns a, b"):
        lake.sql("SELECT x FROM t")
    with pytest.raises(NotFound, match=r"table 'default\.t': no column 'x'; there are a, b"):
        lake.sql("INSERT INTO t (x) VALUES (1)")


def test_errors_are_told_once(lake: bitlake.Lake, capfd: Any) -> None:
    lake.sql("CREATE TABLE t (a TINYINT)")
    for text in (
        "SELECT x FROM t",
        "SELECT x FROM nope",
        "INSERT INTO t VALUES (300)",
        "INSERT INTO t SELECT map(1, 2)",
    ):
        with pytest.raises(BitlakeError):
            lake.sql(text)
    assert "at org.apache.spark" not in capfd.readouterr().err, "the JVM's stack is no message"
    with pytest.raises(AnalysisException):  # Spark's own queries keep Spark's own errors
        lake.spark.sql("SELECT nothing")


def test_a_relative_path_outlives_a_change_of_folder(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    lake = bitlake.connect("rel", spark=spark)
    monkeypatch.chdir(tmp_path / "elsewhere")
    lake.sql("CREATE TABLE t (a BIGINT)")
    lake.sql("INSERT INTO t SELECT id FROM range(5)")
    assert lake.sql("SELECT sum(a) FROM t").collect()[0][0] == 10
    assert (tmp_path / "rel/default.db/t").is_dir() and not (tmp_path / "elsewhere/rel").exists()


def test_columns_that_fit_cost_no_calls_to_the_jvm(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 300 columns took seconds to insert: some forty round trips to the JVM for each column."""
    client = lake.spark.sparkContext._gateway._gateway_client
    sent = 0
    send = type(client).send_command

    def counting(self: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        # Python's collector frees JVM objects of earlier tests whenever it runs: those calls are not this insert's.
        sent += not command.startswith(MEMORY_COMMAND_NAME)
        return send(self, command, *args, **kwargs)

    monkeypatch.setattr(type(client), "send_command", counting)
    calls = []
    for width in (10, 110):
        names = [f"c{i}" for i in range(width)]
        lake.sql(f"CREATE TABLE w{width} ({', '.join(n + (' STRING' if n.endswith('7') else ' INT') for n in names)})")
        sent = 0
        values = ", ".join("'x'" if n.endswith("7") else n[1:] for n in names)
        lake.sql(f"INSERT INTO w{width} VALUES ({values})")
        calls.append(sent)
    assert calls[1] - calls[0] < 100 * 5
    (row,) = lake.sql("SELECT * FROM w110").collect()
    assert list(row) == ["x" if i % 10 == 7 else i for i in range(110)]


def test_a_partition_value_that_does_not_fit_names_the_table(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE p (v INT, x INT) PARTITIONED BY (x)")
    for text in (
        "INSERT INTO p PARTITION (x = 'abc') VALUES (1)",
        "INSERT OVERWRITE p PARTITION (x = 99999999999) VALUES (1)",
        "TRUNCATE TABLE p PARTITION (x = 'abc')",
        "SHOW PARTITIONS p PARTITION (x = 'abc')",
    ):
        with pytest.raises(InvalidRequest, match=r"table 'default\.p'.*cannot be cast"):
            lake.sql(text)
