"""Queries of Spark SQL on DuckDB, without Java: rows, columns, pruning, and what is refused."""

from __future__ import annotations

import datetime as dt
import random
import re
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive, long

import bitlake
from bitlake.cli.result import Result
from bitlake.engine.engine import is_left_to_spark
from bitlake.errors import BitlakeError, CorruptError, EvaluationFailed, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.lazy_modules import install_command
from bitlake.runtime import Caches
from bitlake.scan.scan import TableScan
from bitlake.sql.duckdb_engine import fetch, rows_within
from bitlake.sql.duckdb_translation import Translation
from bitlake.sql.spark_types import BIGINT, STRING
from tests import member_predicates

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, None], pa.int64()),
        "status": ["NEW", "PAID", "NEW", "SENT", "PAID", None],
        "amount": [10.0, 25.5, 7.25, None, 60.0, 33.0],
        "price": pa.array([Decimal(i) / 4 for i in range(6)], pa.decimal128(12, 2)),
        "day": [dt.date(2026, 1, 1 + i // 2) for i in range(6)],
        "at": pa.array([dt.datetime(2026, 1, 1, i) for i in range(6)], pa.timestamp("us")),
        "Customer Id": pa.array([1, 1, 2, 2, 3, None], pa.int32()),
        "tags": [["a"], [], None, ["b", None], ["c"], ["d"]],
    }
)
CUSTOMERS = pa.table({"id": pa.array([1, 2, 4], pa.int32()), "name": ["Ada", "Grace", "Alan"]})

NESTED = pa.table(
    {
        "id": pa.array(range(5), pa.int32()),
        "tags": pa.array([["a", "b"], ["b"], ["b", None], None, []]),
        "n": pa.array([[1], [2], [None], [], None], pa.list_(pa.int32())),
        "m": pa.array([{"k": 1}, {}, {"j": 2}, None, {"k": None}], pa.map_(pa.string(), pa.int64())),
        "addr": [
            {"city": "x", "geo": {"lat": 1.0}},
            {"city": None, "geo": None},
            None,
            {"city": "y", "geo": {"lat": 2.0}},
            {"city": "x", "geo": {"lat": None}},
        ],
    }
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path_factory.mktemp("lake"))
    lake.create_table("orders", ORDERS, options={"file-index.bitmap.columns": "status"})
    lake.create_table("customers", CUSTOMERS, primary_key=["id"], options={"bucket": "1"})
    lake.create_table("e", NESTED)
    indexes = {"bitlake.index.t": "bitmap(element(tags))", "bitlake.index.c": "bitmap(addr.city)"}
    lake.create_table("i", NESTED, options=indexes)
    lake.create_database("other")
    lake.create_table("other.orders", pa.table({"id": [7]}))
    return lake


def _rows(lake: bitlake.Lake, text: str, args: Any = None) -> list[Any]:
    return lake.sql(text, args, engine="duckdb").fetchall()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM orders", [(6,)]),
        (
            "SELECT status, count(*) n FROM orders GROUP BY status ORDER BY status",
            [(None, 1), ("NEW", 2), ("PAID", 2), ("SENT", 1)],
        ),
        ("SELECT id FROM orders WHERE status LIKE 'P%' AND length(status) = 4 ORDER BY id DESC", [(5,), (2,)]),
        (
            "SELECT id FROM orders WHERE day >= '2026-01-02' AND day < DATE '2026-01-04' - INTERVAL 1 DAY ORDER BY 1",
            [(3,), (4,)],
        ),
        ("SELECT id FROM orders WHERE at > TIMESTAMP_NTZ '2026-01-01 03:00:00' AND id IS NOT NULL", [(5,)]),
        ("SELECT id FROM orders WHERE at = '2026-01-01 04:00:00'", [(5,)]),
        (
            "SELECT sum(id), sum(price), avg(amount), max(day) FROM orders",
            [(15, Decimal("3.75"), 27.15, dt.date(2026, 1, 3))],
        ),
        ("SELECT id / 2, id % 2 FROM orders WHERE id = 5", [(2.5, 1)]),
        (
            "SELECT name, count(*) FROM orders o JOIN customers c ON o.`Customer Id` = c.id GROUP BY name ORDER BY 1",
            [("Ada", 2), ("Grace", 2)],
        ),
        ("SELECT name FROM customers c LEFT ANTI JOIN orders o ON o.`Customer Id` = c.id", [("Alan",)]),
        ("SELECT id FROM orders WHERE status IN (SELECT status FROM orders WHERE id = 1) ORDER BY id", [(1,), (3,)]),
        ("WITH paid AS (SELECT * FROM orders WHERE status = 'PAID') SELECT sum(amount) FROM paid", [(85.5,)]),
        ("SELECT id FROM other.orders UNION ALL SELECT id FROM orders WHERE id = 1 ORDER BY id", [(1,), (7,)]),
        (
            "SELECT id, row_number() OVER (PARTITION BY status ORDER BY id DESC) r FROM orders WHERE "
            "id < 4 ORDER BY id",
            [(1, 2), (2, 1), (3, 1)],
        ),
        (
            "SELECT CASE WHEN id > 3 THEN 'late' ELSE 'early' END c, count(*) FROM orders WHERE id IS "
            "NOT NULL GROUP BY 1 ORDER BY 1",
            [("early", 3), ("late", 2)],
        ),
        ("SELECT year(day), substring(status, 1, 2) FROM orders WHERE id <=> 1", [(2026, "NE")]),
        ("SELECT tags FROM orders WHERE id = 4", [(["b", None],)]),
        ("SELECT count(DISTINCT status) FROM orders", [(3,)]),
        (
            "SELECT status, count(*) FROM orders WHERE id < 3 GROUP BY ROLLUP (status) ORDER BY 1",
            [(None, 2), ("NEW", 1), ("PAID", 1)],
        ),
        ("WITH lake_table_0 AS (SELECT 99 AS x) SELECT id FROM orders WHERE id = 1", [(1,)]),
        ("SELECT id FROM orders WHERE price = 0.25", [(2,)]),
        ("SELECT -id AS id FROM orders WHERE orders.id < 3 ORDER BY id", [(-2,), (-1,)]),
        ("SELECT id FROM orders WHERE id = 99", []),
        ("SELECT snapshot_id, commit_kind FROM orders$snapshots LIMIT 1", [(1, "APPEND")]),
        ("SELECT count(*), max(other.orders$files.level) FROM other.orders$files", [(1, 0)]),
        ("SELECT avg(price), avg(id) FROM orders", [(Decimal("0.625000"), 3.0)]),
        ("SELECT price * price, price / 3 FROM orders WHERE id = 4", [(Decimal("0.5625"), Decimal("0.250000"))]),
        ("SELECT round(price / 3, 2) FROM orders WHERE id = 5", [(Decimal("0.33"),)]),
        ("SELECT upper(status), concat(lower(status), '!') FROM orders WHERE id = 4", [("SENT", "sent!")]),
        ("SELECT upper('straßen'), 1 FROM orders WHERE id = 99", []),
        (
            "SELECT round(2.675D, 2) a, round(-2.5D, 0) b, round(1.005, 2) FROM customers WHERE id = 1",
            [(2.68, -3.0, Decimal("1.01"))],
        ),
        ("SELECT id / `Customer Id` FROM orders WHERE id = 5", [(5 / 3,)]),
        ("SELECT -id AS amount FROM orders WHERE amount > 40", [(-5,)]),
        ("SELECT -id AS id FROM orders ORDER BY id + 0 LIMIT 2", [(None,), (-5,)]),
        (
            "SELECT amount + 0 AS a, count(*) FROM orders WHERE id < 3 GROUP BY amount + 0 ORDER BY a",
            [(10.0, 1), (25.5, 1)],
        ),
        ("SELECT id FROM orders WHERE status LIKE 'N\\\\_W' OR status LIKE 'SE!_T' ESCAPE '!'", []),
        ("SELECT cast(substring(cast(day AS STRING), 9, 2) AS INT) d FROM orders WHERE id = 3", [(2,)]),
        ("SELECT id FROM orders WHERE price < 1.0000000000000000000000000000000000001 AND id > 3 ORDER BY 1", [(4,)]),
        ("SELECT name FROM orders o JOIN customers USING (id) WHERE o.id < 4 ORDER BY name", [("Ada",), ("Grace",)]),
        ("SELECT id FROM orders NATURAL JOIN customers ORDER BY id", [(1,), (2,), (4,)]),
        ("SELECT count(*) FROM orders WHERE id > 90 GROUP BY ROLLUP (status)", []),
        ("SELECT substring(status, -3, 2) FROM orders WHERE id = 2", [("AI",)]),
        (
            "SELECT date_add(day, 30), add_months(day, -1), trunc(day, 'YEAR') FROM orders WHERE id = 5",
            [(dt.date(2026, 2, 2), dt.date(2025, 12, 3), dt.date(2026, 1, 1))],
        ),
        (
            "SELECT day + INTERVAL 1 MONTH AS d, datediff(day, '2025-12-31'), date_format(day, 'yyyy/MM') FROM orders "
            "WHERE id = 1",
            [(dt.date(2026, 2, 1), 1, "2026/01")],
        ),
        ("SELECT id + 1 AS a, a * 2 AS b FROM orders WHERE id = 2", [(3, 6)]),
        (
            "SELECT id, sum(price) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders "
            "WHERE id < 4 ORDER BY id",
            [(1, Decimal("0.00")), (2, Decimal("0.25")), (3, Decimal("0.75"))],
        ),
        ("SELECT count(DISTINCT status, `Customer Id`) FROM orders", [(5,)]),
        (
            "SELECT 2 UNION ALL SELECT price FROM orders WHERE id = 2 ORDER BY 1",
            [(Decimal("0.25"),), (Decimal("2.00"),)],
        ),
        ("SELECT * FROM VALUES (1, 2.5, 'a'), (3, 10, NULL)", [(1, Decimal("2.5"), "a"), (3, Decimal("10.0"), None)]),
        ("SELECT X'00fF27' AS a, X'' < X'00' AS b", [(b"\0\xff'", True)]),
        (
            "SELECT id FROM orders WHERE amount <> DOUBLE('NaN') AND amount < CAST('Infinity' AS FLOAT) AND id < 2",
            [(1,)],
        ),
        ("SELECT v.b, col1 FROM (VALUES (1), (2)) JOIN (VALUES (2, 'x')) v (a, b) ON a = col1", [("x", 2)]),
    ],
)
def test_rows(lake: bitlake.Lake, text: str, expected: list[Any]) -> None:
    assert _rows(lake, text) == expected


@pytest.mark.parametrize(
    ("value", "expected", "name"),
    [
        ("array_contains(tags, 'a')", [True, False, None, None, False], "array_contains(tags, a)"),
        ("array_contains(n, 2)", [False, True, None, False, None], "array_contains(n, 2)"),
        ("arrays_overlap(tags, array('a', 'z'))", [True, False, None, None, False], None),
        ("exists(tags, x -> 'b' = x)", [True, True, True, None, False], None),
        ("exists(n, x -> x IN (1, 2))", [True, True, None, False, None], None),
        ("size(tags)", [2, 1, 2, None, 0], "size(tags)"),
        ("size(m)", [1, 0, 1, None, 1], "size(m)"),
        ("map_contains_key(m, 'k')", [True, False, False, None, True], "map_contains_key(m, k)"),
        ("m['k'] + 1", [2, None, None, None, None], "(m[k] + 1)"),
        ("addr.city", ["x", None, None, "y", "x"], "city"),
        ("upper(e.ADDR.City)", ["X", None, None, "Y", "X"], "upper(ADDR.City)"),
        ("e.addr.geo.lat", [1.0, None, None, 2.0, None], "lat"),
        ("addr.geo.lat + 1", [2.0, None, None, 3.0, None], "(addr.geo.lat + 1)"),
    ],
)
def test_nested_columns(lake: bitlake.Lake, value: str, expected: list[Any], name: str | None) -> None:
    assert _rows(lake, f"SELECT {value} AS v FROM e ORDER BY id") == [(v,) for v in expected]
    if name is not None:
        assert lake.sql(f"SELECT {value} FROM e", engine="duckdb").columns == [name]


@pytest.mark.parametrize(
    ("condition", "where", "ids"),
    [
        ("array_contains(tags, 'a')", "element(tags) = 'a'", [0]),
        ("exists(tags, x -> x = 'a')", "element(tags) = 'a'", [0]),
        ("i.addr.city = 'x'", "addr.city = 'x'", [0, 4]),
        ("addr.city IS NULL", "addr.city IS NULL", [1, 2]),
    ],
)
def test_indexes_of_elements_and_fields_choose_rows(
    lake: bitlake.Lake, condition: str, where: str, ids: list[int]
) -> None:
    query = f"SELECT id FROM i WHERE {condition} ORDER BY id"
    assert _rows(lake, query) == [(i,) for i in ids]
    (plan,) = lake.sql(f"EXPLAIN {query}", engine="duckdb")["plan"].to_pylist()
    assert f"  where      {where}\n" in plan
    assert f"  rows       {len(ids)} of 5 chosen" in plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [60, long(150)])
def test_random_tests_of_members_find_the_rows_of_a_scan(tmp_path: Path, count: int) -> None:
    lake = bitlake.connect(tmp_path)
    table = lake.create_table("t", member_predicates.SCHEMA, options=member_predicates.INDEXES)
    for number in range(3):
        table.append(member_predicates.rows(random.Random(number), number * 60, 60))
    draw, answered = random.Random(20261126), 0
    for _ in range(count):
        where = member_predicates.predicate(draw)
        expected = sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())
        try:
            found = _rows(lake, f"SELECT id FROM t WHERE {where} ORDER BY id")
        except UnsupportedFeature as e:
            if "brackets are needed" in str(e):
                continue
            raise
        assert [row[0] for row in found] == expected, where
        answered += 1
    assert answered > count / 2


def test_a_struct_is_found_where_a_table_of_its_name_has_no_such_column(lake: bitlake.Lake) -> None:
    joined = "SELECT i.id FROM i JOIN customers addr ON addr.id = i.id WHERE addr.{} = '{}'"
    assert _rows(lake, joined.format("city", "x")) == [(4,)]
    assert _rows(lake, joined.format("name", "Ada")) == [(1,)]


def test_columns_have_sparks_names(lake: bitlake.Lake) -> None:
    for text, names in (
        ("SELECT * FROM orders", ORDERS.column_names),
        ("SELECT ID, `customer id`, id + 1, amount AS Paid FROM orders", ["ID", "customer id", "(id + 1)", "Paid"]),
        ("SELECT count(*), sum(id), max(status) FROM orders", ["count(1)", "sum(id)", "max(status)"]),
        ("SELECT upper(SUBSTR(status, 2)) FROM orders", ["upper(substr(status, 2, 2147483647))"]),
        ("SELECT substring(status, 1, 2) FROM orders", ["substring(status, 1, 2)"]),
        ("SELECT EXISTS(SELECT * FROM orders)", ["exists()"]),
        ("SELECT NOT EXISTS(SELECT id FROM orders WHERE id > 9)", ["(NOT exists())"]),
        ("SELECT max(EXISTS(SELECT 1 FROM customers)) FROM orders", ["max(exists())"]),
    ):
        assert lake.sql(text, engine="duckdb").columns == names


def test_types_are_sparks(lake: bitlake.Lake) -> None:
    made = lake.sql(
        "SELECT count(*), sum(id), avg(amount), length(max(status)) FROM orders GROUP BY id", engine="duckdb"
    )
    assert [str(t) for t in made.types] == ["BIGINT", "BIGINT", "DOUBLE", "INTEGER"]


def test_parameters(lake: bitlake.Lake) -> None:
    assert _rows(lake, "SELECT id FROM orders WHERE status = :s AND amount > :least", {"s": "PAID", "least": 50}) == [
        (5,)
    ]
    assert _rows(lake, "SELECT id FROM orders WHERE status = ? AND id < ?", ["PAID", 5]) == [(2,)]


def test_the_whole_where_prunes(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = set()
    plan = TableScan._plan

    def watched(self: TableScan, exact: bool) -> Any:
        plans.add(repr(self))
        return plan(self, exact)

    monkeypatch.setattr(TableScan, "_plan", watched)
    _rows(
        lake,
        "SELECT o.amount FROM orders o JOIN customers c ON o.id = c.id AND c.name LIKE 'A%' WHERE o.status LIKE 'P%'",
    )
    assert plans == {
        "Scan(default.customers: id, name, where name LIKE 'A%')",
        "Scan(default.orders: id, status, amount, where status LIKE 'P%')",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT id / 0 FROM orders", "division by zero is an error in Spark alone"),
        (
            "SELECT status AS id, count(*) FROM orders GROUP BY status HAVING id = 'a'",
            "it may be the alias or a column",
        ),
        ("SELECT 1 FROM orders o WHERE EXISTS (SELECT -id AS x FROM customers WHERE x > 4)", "no column has this name"),
        ("SELECT -id AS id, count(*) FROM orders GROUP BY id HAVING id < 0", "it may be the alias or a column"),
        ("SELECT -id AS id, count(*) FROM orders GROUP BY id ORDER BY max(id)", "it may be the alias or a column"),
        ("SELECT amount, count(*) FROM orders GROUP BY status", "neither grouped nor in an aggregate"),
        ("SELECT id FROM orders o JOIN customers c ON o.id = c.id", "there are several columns of this name"),
        ("SELECT price * 5L FROM orders", "written with its type"),
        ("SELECT paid = id IN (1) FROM (SELECT id, id = 1 AS paid FROM orders)", "brackets are needed"),
        ("SELECT status || id + 1 FROM orders", "brackets are needed"),
        ("SELECT first_value(id) FROM orders", "mean the same in both"),
        ("SELECT round(id, -1) FROM orders", "it differs for such places"),
        ("SELECT cast(amount AS STRING) FROM orders", "casts from DOUBLE to STRING give other values"),
        ("SELECT 1 FROM orders o, customers d RIGHT JOIN customers c ON c.id = d.id", "joins of this kind differ"),
        (
            "SELECT (SELECT max(c.id) FROM customers c WHERE c.id IN (SELECT o.id)) x FROM orders o",
            "no column has this name",
        ),
        ("SELECT NULL FROM orders", "give it an alias, or cast it"),
        ("SELECT substr(status, 1), substring(status, 1) FROM orders", "give it an alias, or cast it"),
        ("SELECT EXTRACT(YEAR FROM day) FROM orders", "give it an alias"),
        ("SELECT EXISTS(SELECT 1 FROM customers c WHERE c.id = o.id) FROM orders o", "give it an alias"),
        ("SELECT x.* FROM (SELECT EXISTS(SELECT 1 WHERE o.id = 1) FROM orders o) x", "give it an alias"),
        ("SELECT date_trunc('HOUR', at) FROM orders", "the session's zone"),
        ("SELECT * FROM orders WHERE NOT id", "it differs for values of type BIGINT"),
        ("SELECT CASE WHEN id THEN 1 END FROM orders", "conditions of type BOOLEAN"),
        ("SELECT * FROM orders WHERE id IS TRUE", "it differs for values of type BIGINT"),
        ("SELECT DISTINCT id FROM orders ORDER BY amount", "Spark sorts distinct rows by their own columns"),
        ("SELECT count(DISTINCT id) OVER () FROM orders", "Spark has no DISTINCT in windows"),
        ("SELECT count(DISTINCT *) FROM orders", "its star stands for columns"),
        ("SELECT count(*, id) FROM orders", "its star stands for columns"),
        ("SELECT count(* EXCEPT (id)) FILTER (WHERE id > 1) FROM orders", "its star stands for columns"),
        ("SELECT count() FROM orders", "it has no argument"),
        ("SELECT status, count(DISTINCT) FROM orders GROUP BY status", "it has no argument"),
        ("SELECT * FROM orders WHERE status = 1", "INT and STRING are compared in different types"),
        ("SELECT * FROM orders WHERE status LIKE 'a\\\\b'", "escapes in LIKE differ"),
        ("SELECT try_cast(status AS INT) FROM orders", "safe may mean something else"),
        ("SELECT explode(tags) FROM orders", "mean the same in both"),
        ("SELECT * FROM orders WHERE NULL", "conditions of type BOOLEAN"),
        ("SELECT * FROM parquet.`/tmp/x`", "only Spark reads a table this way"),
        ("SELECT X'123' AS v", "an odd number of digits"),
        ("SELECT * FROM range(5)", "is not a table of the lake"),
        ("SELECT * FROM VALUES (1), ('a')", "values of different types"),
        ("SELECT * FROM VALUES (1, NULL)", "values of different types"),
        ("SELECT * FROM VALUES (1), (2, 3)", "different numbers of columns"),
        ("SELECT id FROM orders GROUP BY tags, id", "values of this type are grouped differently"),
        ("SELECT id FROM orders WHERE day > 'yesterday'", "only a literal is compared with values of type DATE"),
        ("SELECT array_contains(tags, NULL) AS v FROM e", "only constants"),
        ("SELECT array_contains(tags, addr.city) AS v FROM e", "only constants"),
        ("SELECT array_contains(n, 'a') AS v FROM e", "it differs for STRING among values of type INT"),
        ("SELECT array_contains(n, 1.0) AS v FROM e", "it differs for DECIMAL"),
        ("SELECT exists(n, x -> x > 1) AS v FROM e", "only = and IN|are known to mean the same"),
        ("SELECT n[0] AS v FROM e", "it is not a column of maps"),
        ("SELECT addr.street FROM e", "no column has this name"),
        ("SELECT id.city FROM e", "no column has this name"),
        ("SELECT addr.city, count(*) FROM e GROUP BY id", "neither grouped"),
        ("SELECT id IN (SELECT id FROM e) AS x FROM orders", "as a value it is never NULL in Spark"),
        ("SELECT id FROM orders WHERE (id IN (SELECT id FROM e)) IS NULL", "as a value it is never NULL in Spark"),
        (
            "SELECT o.id FROM orders o LEFT JOIN e ON o.id NOT IN (SELECT id FROM customers)",
            "in ON, Spark takes NULL for FALSE",
        ),
        ("SELECT id FROM orders WHERE status = '${env:HOME}'", "a variable's value is substituted, needs Spark"),
        ("SELECT * FROM orders, e NATURAL JOIN customers", "the columns of the last table alone"),
        (
            "SELECT count(*) AS n FROM orders GROUP BY GROUPING SETS (())",
            "Spark may return one group for an empty input",
        ),
    ],
)
def test_what_may_differ_is_refused(lake: bitlake.Lake, text: str, why: str) -> None:
    with pytest.raises(UnsupportedFeature, match=why):
        lake.sql(text, engine="duckdb")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT id / (id - 1) FROM orders", "division by zero"),
        ("SELECT price / (price - price) FROM orders", "division by zero"),
        ("SELECT upper(concat(status, 'ß')) FROM orders", "the case of a letter differs; use engine='spark'"),
        ("SELECT cast(status AS INT) FROM orders", "a text may mean another INT to Spark; use engine='spark'"),
        ("SELECT cast(id + 2147483647 AS INT) FROM orders", "out of range"),
    ],
)
def test_values_that_differ_are_errors(lake: bitlake.Lake, text: str, why: str) -> None:
    with pytest.raises(EvaluationFailed, match=why):
        fetch(lake.sql(text, engine="duckdb"))


def test_mistakes(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="unknown engine 'sqlite'; expected spark or duckdb"):
        lake.sql("SELECT 1", engine="sqlite")
    for text in ("SELECT statuss FROM orders", "SELECT * FROM orderss"):
        with pytest.raises(BitlakeError, match="orderss|statuss"):
            lake.sql(text, engine="duckdb")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InvalidRequest, match=re.escape(f"`{install_command('duckdb')}`")):
        lake.sql("SELECT 1", engine="duckdb")


@pytest.mark.parametrize("engine", [[], exhaustive(["--engine", "duckdb"])], ids=["any", "duckdb"])
def test_the_command_starts_no_java(lake: bitlake.Lake, engine: list[str]) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from bitlake.cli.app import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "sql", "SELECT status, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2, 1"]
        + [*engine, "--format", "csv", "--lake", lake.path],
        capture_output=True, text=True, check=False, env={"PATH": "/nowhere", "HOME": str(Path(lake.path))},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.split() == ['"status","n"', ",1", '"SENT",1', '"NEW",2', '"PAID",2']


def test_an_error_of_duckdbs_is_one_of_ours(lake: bitlake.Lake) -> None:
    statement = "SELECT sum(id * 9223372036854775807) FROM orders"
    done = subprocess.run(
        [sys.executable, "-m", "bitlake", "sql", statement, "--engine", "duckdb", "--lake", lake.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "DuckDB cannot run the query: Out of Range" in done.stderr, done.stderr
    assert "bug" not in done.stderr


def test_rows_are_given_up_that_are_many_or_slow() -> None:
    caches = Caches()

    def within(text: str, rows: int = 100, seconds: float = 60.0) -> pa.Table | None:
        return rows_within(Translation(text, ("n",), (BIGINT,)), {}, "UTC", caches, rows, 1 << 20, seconds)

    made = within("SELECT * FROM range(100)")
    assert made is not None and made.num_rows == 100
    assert within("SELECT * FROM range(101)") is None
    started = time.monotonic()
    assert (
        within("SELECT count(*) FROM range(200000) a, range(200000) b, range(200000) c WHERE a.range = 7", 1, 0.1)
        is None
    )
    assert time.monotonic() - started < 30
    with pytest.raises(EvaluationFailed, match="no"):
        within("SELECT error('no')::BIGINT")
    wide = Translation("SELECT repeat('x', 100000) || range FROM range(90)", ("n",), (STRING,))
    assert rows_within(wide, {}, "UTC", caches, 100, 10 << 20, 60.0) is not None
    assert rows_within(wide, {}, "UTC", caches, 100, 1 << 20, 60.0) is None
    assert within("SELECT * FROM range(3)") is not None


def test_an_error_of_a_scan_is_raised_as_it_is(tmp_path: Path) -> None:
    """Bug: ``bitlake sql`` printed the scan's error with Python's traceback, all in one line."""
    lake = bitlake.connect(tmp_path)
    table = lake.create_table("t", pa.table({"id": [1, 2]}), options={"deletion-vectors.enabled": "true"})
    table.delete("id = 1")
    (file,) = Path(table.path).glob("bucket-0/*.parquet")
    data = file.read_bytes()
    for change, kind, message in (
        (lambda: file.write_bytes(data[:-4] + b"XXXX"), CorruptError, "table 'default.t': no Parquet magic"),
        (file.unlink, NotFound, "table 'default.t': data file .* is missing"),
    ):
        change()
        lake.clear_cache()
        with pytest.raises(kind, match=message) as raised:
            fetch(lake.sql("SELECT * FROM t", engine="duckdb"))
        assert "Python exception" not in str(raised.value) and "Traceback" not in str(raised.value)


def test_functions_in_this_process_leave_nothing_open_at_the_end(lake: bitlake.Lake) -> None:
    """DuckDB reported leaks on stderr for a script that kept its lake and a result."""
    code = f"import bitlake; lake = bitlake.connect({lake.path!r})\n"
    code += "q = \"SELECT get_json_object(status, '$.a'), hash(status, id, day) FROM orders WHERE id = 1\"\n"
    code += "result = lake.sql(q, engine='duckdb'); print(len(result.fetchall()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_wall_clocks_of_every_precision(tmp_path: Path, unit: str) -> None:
    """DuckDB has a type for each; Spark has microseconds."""
    lake = bitlake.connect(tmp_path)
    at = pa.array([dt.datetime(2026, 1, 1, 2, 3, 4), None], pa.timestamp(unit))
    lake.create_table("t", pa.table({"at": at, "n": [1, 2]}))
    found = lake.sql("SELECT at, n FROM t WHERE at > TIMESTAMP_NTZ '2025-12-31 00:00:00'", engine="duckdb")
    assert [str(t) for t in found.types] == ["TIMESTAMP", "BIGINT"]
    assert found.fetchall() == [(dt.datetime(2026, 1, 1, 2, 3, 4), 1)]
    assert _rows(lake, "SELECT commit_kind FROM t$snapshots") == [("APPEND",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT statsu FROM orders", "'statsu'; did you mean 'status'"),
        ("SELECT o.statsu FROM orders o JOIN customers c USING (id)", "'o.statsu'; did you mean 'o.status'"),
        ("SELECT id FROM orders WHERE upper(statsu) = 'NEW'", "'statsu'; did you mean 'status'"),
        ("SELECT count(*) FROM orders GROUP BY statsu", "'statsu'; did you mean 'status'"),
        ("SELECT count(*) FROM orders GROUP BY id HAVING max(statsu) > 'A'", "'statsu'; did you mean 'status'"),
        ("SELECT id FROM orders ORDER BY statsu", "'statsu'; did you mean 'status'"),
        ("SELECT 1 FROM orders o JOIN customers c ON c.nmae = o.status", "'c.nmae'; did you mean 'c.name'"),
        ("SELECT 1 FROM orders JOIN customers USING (idd)", "'idd'; did you mean 'id'?"),
        ("SELECT id FROM orders WHERE id IN (SELECT idd FROM customers)", "'idd'; did you mean 'id'?"),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.idd)",
            "'o.idd'; did you mean 'o.id'",
        ),
        ("SELECT x.statsu FROM (SELECT status FROM orders) x", "'x.statsu'; did you mean 'x.status'?"),
        ("WITH c AS (SELECT id AS total FROM orders) SELECT totl FROM c", "'totl'; did you mean 'total'?"),
        ("SELECT id FROM orders UNION ALL SELECT idd FROM customers", "'idd'; did you mean 'id'?"),
        ("SELECT explode(tgas) FROM orders", "'tgas'; did you mean 'tags'?"),
        ("EXPLAIN SELECT statsu FROM orders", "'statsu'; did you mean 'status'"),
        ("SELECT try_cast(statsu AS INT) FROM orders o JOIN customers c USING (id)", "'statsu'; did you mean 'status'"),
    ],
)
def test_a_misspelt_column_is_answered_with_the_nearest(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """In the words that Spark's error gets, and at once where ``auto`` would start Spark."""
    with pytest.raises(NotFound, match=rf"^no column {re.escape(message)}") as raised:
        lake.sql(text, engine="duckdb")
    assert "\ntable 'default.orders' has columns id, status, amount, " in str(raised.value)
    monkeypatch.setattr(bitlake.Lake, "sql", lambda *_: pytest.fail("Spark is started"))
    with pytest.raises(NotFound, match=rf"^no column {re.escape(message)}"):
        Result.of(lake, text, 0, "auto")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM ordrs", "'ordrs' does not exist; did you mean orders?"),
        ("SELECT explode(tags) FROM ordrs", "'ordrs' does not exist; did you mean orders?"),
        (
            "SELECT 1 FROM orders WHERE id IN (SELECT id FROM custmers)",
            "'custmers' does not exist; did you mean c",
        ),
        ("WITH c AS (SELECT 1 AS id) SELECT * FROM c JOIN d USING (id)", "'d' does not exist; there are"),
        ("SELECT * FROM ordrs VERSION AS OF 1", "'ordrs' does not exist; did you mean orders?"),
        (
            "SELECT * FROM defalt.orders",
            "'defalt.orders' does not exist: database 'defalt' does not exist; did you",
        ),
        (
            "SELECT * FROM orders.snapshots",
            "'orders.snapshots' does not exist; 'orders' is a table, and its",
        ),
        ("EXPLAIN SELECT * FROM ordrs", "'ordrs' does not exist; did you mean orders?"),
        ("CREATE TABLE new AS SELECT * FROM ordrs", "'ordrs' does not exist; did you mean orders?"),
        (
            "MERGE INTO orders t USING ordrs o ON t.id = o.id WHEN MATCHED THEN DELETE",
            "'ordrs' does not exist; did you",
        ),
    ],
)
def test_a_misspelt_table_is_answered_with_the_nearest(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """In the words that Spark's error gets, and at once where ``auto`` would start Spark."""
    with pytest.raises(NotFound, match=rf"^table or view {re.escape(message)}"):
        lake.sql(text, engine="duckdb")
    monkeypatch.setattr(bitlake.Lake, "sql", lambda *_: pytest.fail("Spark is started"))
    for name in ("SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NotFound, match=rf"^table or view {re.escape(message)}"):
        Result.of(lake, text, 0, "auto")


def test_a_session_that_may_have_other_tables_is_asked_for_them(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server, or settings of a session, may name a catalog that has the table."""

    class Started(Exception):
        """Spark was asked."""

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr(bitlake.Lake, "sql", start)
    monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    with pytest.raises(Started):
        Result.of(lake, "SELECT * FROM ordrs", 0, "auto")
    monkeypatch.delenv("SPARK_REMOTE")
    with pytest.raises(Started):
        Result.of(lake, "SELECT * FROM csv.`names.csv`", 0, "auto")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FROM orders\nWHER id = 1", "unexpected token: line 2, column 6\n  WHER id = 1\n       ^"),
        ("SELECT id FROM orders GROUP status", "line 1, column 29\n  SELECT id FROM orders GROUP status\n"),
        ("CREATE TABLE new AS SELECT 1 2", "line 1, column 30\n  CREATE TABLE new AS SELECT 1 2\n" + " " * 31 + "^"),
        ("SELECT * FROM orders JOIN WHERE id = 1", "expected table name: line 1, column 27\n"),
        ("SELECT count( FROM orders", "'(' is never closed: line 1, column 13\n  SELECT count( FROM orders\n"),
        ("SELECT id FROM orders WHERE id IN (1))", "')' closes no '(': line 1, column 38\n"),
    ],
)
def test_an_error_of_syntax_shows_its_place(lake: bitlake.Lake, text: str, message: str) -> None:
    with pytest.raises(BitlakeError, match=re.escape(message)) as raised:
        lake.sql(text, engine="duckdb")
    certain = "close" in message
    assert isinstance(raised.value, InvalidRequest if certain else UnsupportedFeature)
    assert is_left_to_spark(text, raised.value) is not certain


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id AS x FROM orders WHERE x > 1",
        "SELECT id AS x, sum(x) FROM orders GROUP BY id",
        "SELECT tags.x FROM orders",
        "SELECT transform(tags, x -> concat(x, status)) AS y FROM orders",
        "SELECT current_catalog FROM orders",
        "SELECT _metadata.file_name FROM orders",
        "SELECT orders.id FROM orders o",
        "SELECT id FROM orders ORDER BY ALL",
        "SELECT explode(tags) FROM orders ORDER BY col",
        "SELECT dateadd(month, 1, at) FROM orders",
        "SELECT * FROM f(TABLE(orders))",
        "SELECT status COLLATE utf8_lcase FROM orders",
        "SELECT /*+ REPARTITION(x) */ explode(tags) FROM orders",
        "SELECT 1 FROM orders JOIN customers USING (status)",
        "SELECT 1 FROM (SELECT id AS k FROM orders) WHERE EXISTS (SELECT 1 FROM (SELECT 1 FROM customers WHERE id=k))",
        "SELECT 1 FROM (SELECT id AS k FROM orders) WHERE k IN (WITH c AS (SELECT k FROM customers) SELECT * FROM c)",
    ],
)
def test_what_spark_may_know_is_left_to_it(lake: bitlake.Lake, text: str) -> None:
    """Aliases, members of structs, parameters of lambda functions, and Spark's own names."""
    with pytest.raises(UnsupportedFeature):
        lake.sql(text, engine="duckdb")


def test_a_relation_outlives_the_lake_whose_functions_it_calls(tmp_path: Path) -> None:
    """DuckDB would call a function that is freed, which ends the process."""
    bitlake.connect(tmp_path).create_table("t", pa.table({"k": [1], "s": ["a"]}))
    code = (
        "import bitlake, gc\n"
        f"relation = bitlake.connect({str(tmp_path)!r}).sql('SELECT hash(k), hash(s) FROM t', engine='duckdb')\n"
        "gc.collect()\n"
        "print(relation.fetchall())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[(-1712319331, 1485273170)]\n"


@pytest.mark.parametrize("reader", ["DuckDB", "bitlake"])
def test_text_that_is_not_utf8_is_an_error_that_names_file_and_engine(tmp_path: Path, reader: str) -> None:
    lake = bitlake.connect(str(tmp_path))
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lake.create_table("t", schema, options={"bitlake.index.i": "bitmap(id % 2)"})
    table.append(pa.table({"id": [1, 2], "v": pa.array([b"\xff a", b"ok"], pa.binary()).view(pa.string())}, schema))
    where = "id > 0" if reader == "DuckDB" else "id % 2 = 1"
    (path,) = [f.entry.file.file_name for f in table.scan().plan().files]
    with pytest.raises(EvaluationFailed, match=rf"{path}.*(column 'v'|value)|engine='spark'.*{path}") as error:
        fetch(lake.sql(f"SELECT lower(v) FROM t WHERE {where}", engine="duckdb"))
    assert ("Parquet file" in str(error.value)) == (reader == "DuckDB")
    assert "engine='spark'" in str(error.value)
    assert lake.sql(f"SELECT id FROM t WHERE {where} AND id < 2", engine="duckdb").fetchall() == [(1,)]
