"""Spark declares, builds and uses indexes of expressions, and finds the same rows as without them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from tests import member_predicates
from tests.engine.test_index_statements import (
    COLUMNS,
    REFUSED,
    check_useless_declarations,
    create_with_useless_declarations,
)
from tests.expression_predicates import INDEXES, SCHEMA, predicate, rows

ZONE = "Europe/Berlin"


@pytest.mark.exhaustive
def test_spark_finds_the_same_rows(spark: Any, tmp_path: Any) -> None:
    """One SELECT evaluates all predicates as columns; scans and queries with indexes find the rows that are TRUE."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, timezone=ZONE)
        table = lake.create_table("indexed", SCHEMA, options=INDEXES)
        lake.create_table("plain", SCHEMA).append(rows(random.Random(3), 0, 200))
        for start in (0, 100):  # Spark's own writer, whose files are indexed when they are registered
            lake.sql(f"INSERT INTO indexed SELECT * FROM plain WHERE id >= {start} AND id < {start + 100}")
        assert {c.files_indexed for c in table.indexes.coverage()} == {2}
        draw = random.Random(29)
        asked = [predicate(draw) for _ in range(90)]
        columns = ", ".join(f"({where}) AS p{i}" for i, where in enumerate(asked))
        answers = lake.sql(f"SELECT id, {columns} FROM plain").toPandas().sort_values("id")
        used: set[str] = set()
        for i, where in enumerate(asked):
            expected = answers["id"][answers[f"p{i}"] == True].tolist()  # noqa: E712  # NULL is neither
            scan = table.scan(["id"], where)
            assert sorted(scan.to_arrow()["id"].to_pylist()) == expected, where
            used.update(name for f in scan.plan().files for name in f.pruned_by)
            query = f"SELECT id FROM indexed WHERE {where}"
            if i % 10 == 0:
                assert sorted(r["id"] for r in lake.sql(query).collect()) == expected, where
            # Letters that are not ASCII and hashes of decimals are left to Spark.
            if not any(word in where for word in ("lower", "upper", "hash(n, price)")):
                assert sorted(r[0] for r in lake.sql(query, engine="duckdb").fetchall()) == expected, where
        assert len(used) >= 8
        values = "SELECT get_json_object(payload, '$.user.id'), hash(email, id, true, CAST(ts AS DATE), n, NULL), "
        values += "pmod(hash(id), 8), hash(n > 3) FROM plain ORDER BY id"
        spark_s, duckdb_s = lake.sql(values), lake.sql(values, engine="duckdb")
        assert duckdb_s.columns == spark_s.columns
        assert duckdb_s.fetchall() == [tuple(row) for row in spark_s.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.exhaustive
def test_spark_finds_the_same_rows_by_members(lake: bitlake.Lake) -> None:
    table = lake.create_table("indexed", member_predicates.SCHEMA, options=member_predicates.INDEXES)
    lake.create_table("plain", member_predicates.SCHEMA).append(member_predicates.rows(random.Random(5), 0, 120))
    for start in (0, 60):
        lake.sql(f"INSERT INTO indexed SELECT * FROM plain WHERE id >= {start} AND id < {start + 60}")
    draw = random.Random(31)
    asked = [member_predicates.predicate(draw) for _ in range(60)]
    columns = ", ".join(f"({where}) AS p{i}" for i, where in enumerate(asked))
    answers = lake.sql(f"SELECT id, {columns} FROM plain").toPandas().sort_values("id")
    for i, where in enumerate(asked):
        expected = answers["id"][answers[f"p{i}"] == True].tolist()  # noqa: E712  # NULL is neither
        assert sorted(table.scan(["id"], where).to_arrow()["id"].to_pylist()) == expected, where
        if i % 15 == 0:
            query = f"SELECT id FROM indexed WHERE {where}"
            assert sorted(r["id"] for r in lake.sql(query).collect()) == expected, where
    for where in ("array_contains(tags, 'a')", "map_contains_key(m, 'a')"):
        (count,) = lake.sql(f"SELECT count(*) AS n FROM plain WHERE {where}").collect()
        assert lake.sql(f"SELECT count(*) AS n FROM indexed WHERE {where}").collect() == [count]
        assert "LocalTableScan [n#" in str(lake.explain(f"SELECT count(*) AS n FROM indexed WHERE {where}"))
    plan = lake.explain("SELECT id FROM indexed WHERE array_contains(tags, 'nowhere')")
    assert "0 of 2 read; skipped by file index: 2" in str(plan)


@pytest.mark.parametrize(("kind", "expression", "says"), REFUSED[::3])
def test_statements_on_spark_refuse_what_cannot_be_indexed(
    lake: bitlake.Lake, kind: str, expression: str, says: str
) -> None:
    option = f"'bitlake.index.i' = '{kind}({expression})'"
    lake.create_table("t", pa.schema([("id", pa.int64()), ("email", pa.string()), ("n", pa.int32())]))
    lake.sql(f"ALTER TABLE t ADD COLUMNS ({COLUMNS.partition('n INT, ')[2]})")
    for text in (
        f"CREATE TABLE refused ({COLUMNS}) TBLPROPERTIES ({option})",
        f"CREATE TABLE refused TBLPROPERTIES ({option}) AS SELECT * FROM t",
        f"ALTER TABLE t SET TBLPROPERTIES ({option})",
        f"CREATE INDEX i ON t USING {kind} ({expression})",
    ):
        with pytest.raises(InvalidRequest, match=f"'bitlake.index.i'.*{says}"):
            lake.sql(text)
    assert lake.tables() == ["t"]


def test_statements_on_spark(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, email STRING)")
    lake.sql("CREATE INDEX by_email ON t USING bitmap (lower(email))")
    for i, name in enumerate(("Ada", "BOB", "Eve")):
        lake.sql(f"INSERT INTO t VALUES ({i}, '{name}')")
    (shown,) = lake.sql("SHOW INDEXES FROM t").collect()
    assert (shown["index_name"], shown["expression"], shown["files"], shown["files_indexed"]) == (
        "by_email",
        "lower(email)",
        3,
        3,
    )
    for where, count in (("lower(email) = 'bob'", 1), ("lower(email) <> 'bob'", 2), ("length(email) = 3", 3)):
        text = f"SELECT count(*) AS n FROM t WHERE {where}"
        assert [r["n"] for r in lake.sql(text).collect()] == [count]
        assert ("LocalTableScan [n#" in str(lake.explain(text))) == ("lower" in where)
    counts = "SELECT count(*) AS n FROM t WHERE lower(email) = 'bob'"
    try:  # values are computed as in ANSI mode
        lake.sql("SET spark.sql.ansi.enabled = false")
        assert "LocalTableScan [n#" not in str(lake.explain(counts))
    finally:
        lake.sql("RESET spark.sql.ansi.enabled")
    plan = lake.explain("SELECT id FROM t WHERE lower(email) = 'bob'")
    assert "1 of 3 read; skipped by file index: 2" in str(plan)
    assert [r["id"] for r in lake.sql("SELECT id FROM t WHERE lower(email) = 'bob'").collect()] == [1]
    lake.sql("UPDATE t SET email = 'Cy' WHERE lower(email) = 'bob'")
    lake.sql("DELETE FROM t WHERE lower(email) = 'eve'")
    assert sorted(r["email"] for r in lake.sql("SELECT email FROM t").collect()) == ["Ada", "Cy"]
    lake.sql("DROP INDEX by_email ON t")
    assert lake.sql("SHOW INDEXES FROM t").collect() == []


def test_declarations_that_do_not_fit_are_shown_and_dropped_on_spark(spark: Any, tmp_path: Path) -> None:
    create_with_useless_declarations(tmp_path)
    lake = bitlake.connect(str(tmp_path), spark=spark)
    shown = [row.asDict() for row in lake.sql("SHOW INDEXES FROM t").collect()]
    check_useless_declarations(shown)
    assert lake.sql("SHOW INDEXES FROM t", engine="duckdb").to_pylist() == shown
    lake.sql("INSERT INTO t VALUES ('Y', DATE '2026-01-02')")
    assert [r["v"] for r in lake.sql("SELECT v FROM t WHERE upper(v) = 'Y'").collect()] == ["Y"]
    for name in "bce":
        lake.sql(f"DROP INDEX {name} ON t")
    assert [r["index_name"] for r in lake.sql("SHOW INDEXES FROM t").collect()] == ["a"]


def test_the_first_rows_by_an_expression_are_those_of_plain_spark(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
    draw = random.Random(11)
    texts = ["Alpha", "BETA", "g\u00e4mma", "\u03a9mega", "", "zz", None]
    data = pa.table(
        {
            "id": range(3000),
            "s": [None if (t := draw.choice(texts)) is None else t * draw.randint(0, 9) for _ in range(3000)],
            "n": pa.array([draw.choice((None, draw.randint(-99, 99))) for _ in range(3000)], pa.int32()),
        },
        schema,
    )
    indexes = {"length": "range-bitmap(length(s))", "low": "range-bitmap(lower(s))", "product": "range-bitmap(n * -3)"}
    table = lake.create_table("t", schema, options={f"bitlake.index.{k}": v for k, v in indexes.items()})
    for start in (0, 1000, 2000):
        table.append(data.slice(start, 1000))
    frame = spark.createDataFrame(data)
    frame.createOrReplaceTempView("plain_rows")
    for query in (
        "SELECT id, s FROM t ORDER BY length(s) DESC, id LIMIT 5",
        "SELECT id FROM t WHERE n > 0 ORDER BY lower(s) DESC NULLS LAST, id LIMIT 5",
        "SELECT id, length(s) AS long FROM t ORDER BY long, id DESC LIMIT 5 OFFSET 3",
        "SELECT id, n AS s FROM t ORDER BY length(s) DESC, id LIMIT 5",
        "SELECT id, s AS n FROM t ORDER BY lower(n), id LIMIT 300",
        "SELECT n * -3 AS p, id FROM t ORDER BY p NULLS LAST, id LIMIT 2500",
    ):
        expected = spark.sql(query.replace("FROM t ", "FROM plain_rows ")).collect()
        assert lake.sql(query).collect() == expected, query
    assert "range-bitmap(length(s)) top 5" in str(lake.explain("SELECT id FROM t ORDER BY length(s) LIMIT 5"))
    for path in ("driver", "spark", "workers"):
        lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ('read.spark-path' = '{path}')")
        first = lake.table("t").scan().top_n([("length(s)", "desc", "first"), "id"], 500)
        assert [r["id"] for r in first.to_spark().collect()] == first.to_arrow()["id"].to_pylist()
    with pytest.raises(InvalidRequest, match="select 's' too"):
        lake.table("t").scan(["id"]).top_n(["length(s)"], 500).to_spark()
