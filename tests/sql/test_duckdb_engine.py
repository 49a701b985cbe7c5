"""Queries of Spark SQL on DuckDB, without Java: rows, columns, pruning, and what is refused."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, UnsupportedFeature
from bitlake.scan.scan import TableScan

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


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path_factory.mktemp("lake"))
    lake.create_table("orders", ORDERS, options={"file-index.bitmap.columns": "status"})
    lake.create_table("customers", CUSTOMERS, primary_key=["id"], options={"bucket": "1"})
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
    ],
)
def test_rows(lake: bitlake.Lake, text: str, expected: list[Any]) -> None:
    assert _rows(lake, text) == expected


def test_columns_have_sparks_names(lake: bitlake.Lake) -> None:
    for text, names in (
        ("SELECT * FROM orders", ORDERS.column_names),
        ("SELECT ID, `customer id`, id + 1, amount AS Paid FROM orders", ["ID", "customer id", "(id + 1)", "Paid"]),
        ("SELECT count(*), sum(id), max(status) FROM orders", ["count(1)", "sum(id)", "max(status)"]),
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
    plans = []
    tables = TableScan._tables

    def watched(self: TableScan, *arguments: Any, **options: Any) -> Any:
        plans.append(repr(self))
        return tables(self, *arguments, **options)

    monkeypatch.setattr(TableScan, "_tables", watched)
    _rows(
        lake,
        "SELECT o.amount FROM orders o JOIN customers c ON o.id = c.id AND c.name LIKE 'A%' WHERE o.status LIKE 'P%'",
    )
    assert sorted(plans) == [
        "Scan(default.customers: id, name, where name LIKE 'A%')",
        "Scan(default.orders: id, status, amount, where status LIKE 'P%')",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT id / 0 FROM orders", "division by zero is an error in Spark alone"),
        ("SELECT id / id FROM orders", "division by zero is an error in Spark alone"),
        ("SELECT avg(price) FROM orders", "it differs for values of type decimal"),
        ("SELECT price * price FROM orders", "it differs for values of type decimal"),
        ("SELECT avg(id) FROM orders", "rounded differently"),
        ("SELECT upper(status) FROM orders", "mean the same in both"),
        ("SELECT -id AS amount FROM orders WHERE amount > 4", "it may be the alias or a column"),
        ("SELECT -id AS id FROM orders ORDER BY id + 0 LIMIT 1", "it may be the alias or a column"),
        (
            "SELECT status AS id, count(*) FROM orders GROUP BY status HAVING id = 'a'",
            "it may be the alias or a column",
        ),
        ("SELECT 1 FROM orders o WHERE EXISTS (SELECT -id AS x FROM customers WHERE x > 4)", "the alias or a column"),
        ("SELECT * FROM orders WHERE NOT id", "it differs for values of type integer"),
        ("SELECT CASE WHEN id THEN 1 END FROM orders", "conditions of type BOOLEAN"),
        ("SELECT * FROM orders WHERE id IS TRUE", "it differs for values of type integer"),
        ("SELECT amount FROM orders GROUP BY amount", "values of this type are grouped differently"),
        ("SELECT DISTINCT id FROM orders ORDER BY amount", "Spark sorts distinct rows by their own columns"),
        ("SELECT count(DISTINCT id) OVER () FROM orders", "Spark has no DISTINCT in windows"),
        ("SELECT * FROM orders WHERE price < 1.0000000000000000000000000000000000001", "more than 38 digits"),
        ("SELECT * FROM orders WHERE status = 1", "integer and string are compared in different types"),
        ("SELECT * FROM orders WHERE status LIKE 'a\\\\_'", "escapes in LIKE differ"),
        ("SELECT cast(status AS INT) FROM orders", "casts fail and round differently"),
        ("SELECT concat(status, 'x') FROM orders", "mean the same in both"),
        ("SELECT explode(tags) FROM orders", "mean the same in both"),
        ("SELECT * FROM orders WHERE NULL", "conditions of type BOOLEAN"),
        ("SELECT * FROM orders VERSION AS OF 1", "time travel in SQL is read by Spark"),
        ("SELECT * FROM parquet.`/tmp/x`", "is not a table of the lake"),
        ("SELECT * FROM range(5)", "is not a table of the lake"),
        ("SELECT id FROM orders GROUP BY tags, id", "values of this type are grouped differently"),
        ("SELECT id FROM orders WHERE day > 'yesterday'", "only a literal is compared with values of type date"),
    ],
)
def test_what_may_differ_is_refused(lake: bitlake.Lake, text: str, why: str) -> None:
    with pytest.raises(UnsupportedFeature, match=why):
        lake.sql(text, engine="duckdb")


def test_mistakes(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="unknown engine 'sqlite'; expected spark or duckdb"):
        lake.sql("SELECT 1", engine="sqlite")
    for text in ("SELECT statuss FROM orders", "SELECT * FROM orderss"):
        with pytest.raises(BitlakeError, match="orderss|statuss"):
            lake.sql(text, engine="duckdb")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'bitlake\[duckdb\]'"):
        lake.sql("SELECT 1", engine="duckdb")


def test_the_command_starts_no_java(lake: bitlake.Lake) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from bitlake.cli.app import main; sys.exit(main())"
    for engine in ("auto", "duckdb"):
        done = subprocess.run(
            [sys.executable, "-c", code, "sql", "SELECT status, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2, 1"]
            + ["--engine", engine, "--format", "csv", "--lake", lake.path],
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
