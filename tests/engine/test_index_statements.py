"""CREATE, DROP and SHOW INDEX in this process, and queries that indexes of expressions narrow."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement


@pytest.fixture
def run(tmp_path: Path) -> Any:
    lake = bitlake.connect(str(tmp_path / "lake"))
    return lambda text: lake.sql(text, engine="duckdb")


@pytest.mark.parametrize(
    ("text", "index_type", "expression", "options"),
    [
        ("CREATE INDEX i ON t USING bitmap (lower(email))", "bitmap", "lower(email)", {}),
        ("create index i on table t using bloom-filter(a + b) with (fpp = 1)", "bloom-filter", "a + b", {"fpp": "1"}),
        ("CREATE INDEX i ON t USING `bsi` (a) OPTIONS ('timezone' = 'UTC')", "bsi", "a", {"timezone": "UTC"}),
        ("CREATE INDEX i ON t USING 'bsi' ((a))", "bsi", "(a)", {}),
    ],
)
def test_the_statement(text: str, index_type: str, expression: str, options: dict[str, str]) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, st.CreateIndex)
    assert (statement.name, str(statement.table), statement.index_type, str(statement.expression)) == (
        "i",
        "t",
        index_type,
        expression,
    )
    assert statement.options == options


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CREATE INDEX i ON t (lower(a))", "expected USING"),
        ("CREATE INDEX i ON t USING bitmap (lower(a), b)", "expected one expression"),
        ("CREATE INDEX i ON t USING bitmap ()", "expected an expression"),
        ("CREATE INDEX ON t USING bitmap (a)", "expected"),
        ("DROP INDEX i", "expected ON"),
        ("SHOW INDEXES", "expected ON"),
    ],
)
def test_what_is_written_wrong_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_statement(text)


def test_indexes_are_created_shown_used_and_dropped(run: Any) -> None:
    run("CREATE TABLE t (id BIGINT, email STRING, seen TIMESTAMP) TBLPROPERTIES ('file-index.bitmap.columns' = 'id')")
    run("INSERT INTO t VALUES (1, 'Ada@X', TIMESTAMP '2026-01-01 00:00:00Z')")
    run("CREATE INDEX by_email ON t USING bitmap (lower(email))")
    run("CREATE INDEX IF NOT EXISTS by_email ON t USING bitmap (upper(email))")
    run("CREATE INDEX by_hour ON t USING range_bitmap (hour(seen)) OPTIONS (timezone = 'UTC')")
    with pytest.raises(AlreadyExists, match="has an index 'by_email'"):
        run("CREATE INDEX by_email ON t USING bitmap (upper(email))")
    for i, name in enumerate(("Bob@x", "Eve@X"), 2):
        run(f"INSERT INTO t VALUES ({i}, '{name}', TIMESTAMP '2026-01-01 03:00:00Z')")
    shown = run("SHOW INDEXES FROM t").to_pylist()
    counts = [
        (r["index_name"], r["index_type"], r["expression"], r["options"], r["files"], r["files_indexed"]) for r in shown
    ]
    assert counts == [
        (None, "bitmap", "id", "", 3, 3),
        ("by_email", "bitmap", "lower(email)", "", 3, 2),
        ("by_hour", "range-bitmap", "hour(seen)", "timezone=UTC", 3, 2),
    ]
    assert [(r["rows"], r["rows_indexed"]) for r in shown] == [(3, 3), (3, 2), (3, 2)]
    run("CALL sys.rewrite_file_index(table => 't')")
    assert [r["files_indexed"] for r in run("SHOW INDEXES ON t").to_pylist()] == [3, 3, 3]
    assert run("SELECT id FROM t WHERE lower(email) = 'bob@x'").fetchall() == [(2,)]
    plan = run("EXPLAIN SELECT id FROM t WHERE lower(email) = 'bob@x'").to_pylist()[0]["plan"]
    assert "1 of 3 read; skipped by file index: 2" in plan
    assert "bitmap(lower(email))" in plan
    run("DELETE FROM t WHERE lower(email) = 'bob@x'")
    assert run("SELECT id FROM t WHERE hour(seen) = 3").fetchall() == [(3,)]
    run("DROP INDEX BY_EMAIL ON t")
    run("DROP INDEX IF EXISTS by_email ON t")
    with pytest.raises(NotFound, match="has no index 'by_hours'.*by_hour"):
        run("DROP INDEX by_hours ON t")
    assert [r["index_name"] for r in run("SHOW INDEX IN t").to_pylist()] == [None, "by_hour"]


COLUMNS = "id BIGINT, email STRING, n INT, tags ARRAY<STRING>, born DATE, code CHAR(5), seen TIMESTAMP"
REFUSED = [
    ("bitmap", "max(email)", "is not computed from one row"),
    ("bitmap", "lag(n) OVER (ORDER BY id)", "is not computed from one row"),
    ("bitmap", "(SELECT max(n) FROM t)", "is not computed from one row"),
    ("bitmap", "rand() + n", "has another value each time it is computed"),
    ("bitmap", "datediff(born, current_date())", "has another value each time it is computed"),
    ("bitmap", "md5(email)", "none of the functions that an index computes"),
    ("bitmap", "nope(email)", "it has no function 'nope'"),
    ("bitmap", "lower(mail)", "no column 'mail'; did you mean 'email'"),
    ("bitmap", "lower('x')", "it names no column"),
    ("bitmap", "tags", "is of type ARRAY<STRING>; bitmap takes"),
    ("bsi", "lower(email)", "is of type STRING; bsi takes"),
    ("ngram", "n + 1", "is of type INT; ngram takes"),
    ("range-bitmap", "element(tags)", "has one value for each row"),
    ("bitmap", "lower(code)", r"code is CHAR\(5\)"),
    ("bitmap", "hour(seen)", "depends on the time zone; set 'bitlake.index.i.timezone'"),
    ("nope", "lower(email)", "unknown index type 'nope'; known are bitmap"),
]


def create_with_useless_declarations(folder: Path) -> None:
    """A table with one usable declaration and three that fit neither its columns nor this version."""
    declared = {"a": "bitmap(lower(v))", "b": "bitmap(upper(v))", "c": "bitmap(year(d))", "e": "bsi(month(d))"}
    lake = bitlake.connect(str(folder))
    schema = pa.schema([("v", pa.string()), ("d", pa.date32())])
    options = {f"bitlake.index.{name}": text for name, text in declared.items()}
    lake.create_table("t", schema, options=options).append(pa.table({"v": ["X"], "d": [dt.date(2026, 1, 1)]}))
    (stored,) = folder.glob("*/t/schema/schema-*")
    text = stored.read_text()
    for old, new in (("upper(v)", "upper(gone)"), ("year(d)", "new_function(d)"), ("bsi(month(d))", "nonsense")):
        assert old in text
        text = text.replace(old, new)
    stored.write_text(text)


def check_useless_declarations(rows: list[dict[str, Any]]) -> None:
    """SHOW INDEXES' rows of the table that ``create_with_useless_declarations`` makes."""
    assert [(r["index_name"], r["index_type"], r["expression"], r["files_indexed"], r["files"]) for r in rows] == [
        ("a", "bitmap", "lower(v)", 1, 1),
        ("b", "bitmap", "upper(gone)", 0, 1),
        ("c", "bitmap", "new_function(d)", 0, 1),
        ("e", None, "nonsense", 0, 1),
    ]
    assert rows[0]["problem"] is None
    for row, says in zip(rows[1:], ("no column 'gone'", "no function 'new_function'", "is not an index"), strict=True):
        assert row["problem"].startswith(f"option 'bitlake.index.{row['index_name']}' = ")
        assert says in row["problem"]


def test_declarations_that_do_not_fit_are_shown_with_the_reason_and_dropped(run: Any, tmp_path: Path) -> None:
    create_with_useless_declarations(tmp_path / "lake")
    check_useless_declarations(run("SHOW INDEXES FROM t").to_pylist())
    for name in "bce":
        run(f"DROP INDEX {name} ON t")
    assert [r["index_name"] for r in run("SHOW INDEXES FROM t").to_pylist()] == ["a"]


@pytest.mark.parametrize(("kind", "expression", "says"), REFUSED)
def test_each_door_refuses_what_cannot_be_indexed(run: Any, kind: str, expression: str, says: str) -> None:
    option = f"'bitlake.index.i' = '{kind}({expression})'".replace("('x')", "(\\'x\\')")
    run(f"CREATE TABLE t ({COLUMNS})")
    for text in (
        f"CREATE TABLE refused ({COLUMNS}) TBLPROPERTIES ({option})",
        f"ALTER TABLE t SET TBLPROPERTIES ({option})",
        f"CREATE INDEX i ON t USING {kind} ({expression})",
    ):
        with pytest.raises(InvalidRequest, match=f"'bitlake.index.i'.*{says}"):
            run(text)
    assert run("SHOW TABLES").num_rows == 1
    assert run("SHOW INDEXES FROM t").num_rows == 0


def test_only_rows_that_cannot_matter_are_left_out(run: Any) -> None:
    """A term of WHERE that is TRUE for rows that an outer join pads says nothing of the rows that are read."""
    run("CREATE TABLE a (id BIGINT)")
    run("CREATE TABLE b (id BIGINT, v STRING) TBLPROPERTIES ('bitlake.index.i' = 'bitmap(lower(v))')")
    run("INSERT INTO a VALUES (1), (2)")
    run("INSERT INTO b VALUES (1, 'X')")
    run("INSERT INTO b VALUES (2, 'Y')")
    joined = "SELECT a.id FROM a LEFT JOIN b ON a.id = b.id"
    assert sorted(run(f"{joined} AND lower(b.v) = 'x'").fetchall()) == [(1,), (2,)]
    assert run(f"{joined} WHERE lower(b.v) = 'x'").fetchall() == [(1,)]
    assert run(f"{joined} WHERE coalesce(lower(b.v), 'z') = 'z'").fetchall() == []
    assert run(f"{joined} AND b.v = 'X' WHERE lower(b.v) IS NULL").fetchall() == [(2,)]
    assert run("SELECT id FROM b WHERE NOT (lower(v) = 'x') OR id = 1 AND upper(v) = 'X'").fetchall() in (
        [(1,), (2,)],
        [(2,), (1,)],
    )
    assert run("SELECT count(*) FROM b WHERE lower(v) IN ('x', 'z')").fetchall() == [(1,)]


@pytest.mark.parametrize("key", ["bitlake.index", "bitlake.index."])
def test_each_door_refuses_a_declaration_without_a_name(run: Any, key: str) -> None:
    run(f"CREATE TABLE t ({COLUMNS})")
    for text in (
        f"CREATE TABLE refused ({COLUMNS}) TBLPROPERTIES ('{key}' = 'bitmap(email)')",
        f"ALTER TABLE t SET TBLPROPERTIES ('{key}' = 'bitmap(email)')",
    ):
        with pytest.raises(InvalidRequest, match=f"option '{key}' = .*the index has no name; expected"):
            run(text)
    with pytest.raises(InvalidRequest, match="the index has no name"):
        run("CREATE INDEX `` ON t USING bitmap (email)")


@pytest.mark.parametrize(("where", "message"), [("5", "INT, and not a condition"), ("true", "must be text")])
def test_a_condition_of_another_type_is_refused(run: Any, where: str, message: str) -> None:
    """Bug: it ended in an AttributeError."""
    run("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('file-index.bitmap.columns' = 'id')")
    with pytest.raises(InvalidRequest, match=message):
        run(f"CALL sys.rewrite_file_index('t', {where})")
