"""EXPLAIN of statements that are not queries: what finds their rows, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import BitlakeError, NotFound, UnsupportedFeature

STATEMENTS = [
    (
        "DELETE FROM t WHERE s = 'b' AND id > 1",
        "DELETE FROM default.t: deletes the rows that are found so",
        "where      s = 'b' AND id > 1",
    ),
    ("DELETE FROM t", "DELETE FROM default.t", "files      2 of 2 read"),
    (
        "UPDATE default.t AS x SET s = 'z' WHERE x.p = 'two'",
        "UPDATE default.t: changes the rows",
        "where      p = 'two'",
    ),
    ("INSERT INTO u SELECT id, s, p FROM t WHERE p = 'one'", "INSERT INTO default.u: writes", "files      1 of 2 read"),
    ("INSERT OVERWRITE u VALUES (9, DEFAULT, 'x')", "INSERT OVERWRITE default.u: writes", "reads no lake table"),
    ("CREATE TABLE v AS SELECT id FROM t WHERE id = 3", "CREATE TABLE v: writes", "where      id = 3"),
    (
        "MERGE INTO t USING (SELECT * FROM u WHERE p = 'new') AS n ON t.id = n.id WHEN MATCHED THEN DELETE",
        "MERGE INTO default.t: reads this source first",
        "Scan of default.u",
    ),
    ("MERGE INTO t USING u AS n ON t.id = n.id WHEN MATCHED THEN UPDATE SET *", "MERGE INTO", "Scan of default.u"),
]


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path / "lake")
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "b"], "p": ["one", "one", "two"]})
    lake.create_table("t", rows, partition_by=["p"], options={"file-index.bitmap.columns": "s"})
    lake.create_table("u", rows.schema)
    return lake


def explain(lake: bitlake.Lake, statement: str) -> str:
    (row,) = lake.sql(f"EXPLAIN {statement}", engine="duckdb").to_pylist()
    return str(row["plan"])


@pytest.mark.parametrize(("statement", "purpose", "plan"), STATEMENTS, ids=[s for s, _, _ in STATEMENTS])
def test_a_statement_is_explained_and_not_run(lake: bitlake.Lake, statement: str, purpose: str, plan: str) -> None:
    text = explain(lake, statement)
    assert text.startswith(purpose) and plan in text
    assert [len(lake.table(name).history.snapshots()) for name in ("t", "u")] == [1, 0]
    assert [t.rpartition(".")[2] for t in lake.tables()] == ["t", "u"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(id) FROM t WHERE s = 'b'",
        "SELECT s, max(id), min(p) FROM t GROUP BY s",
        "SELECT s, sum(id) FROM t GROUP BY s",
        "SELECT s, count(DISTINCT id) FROM t GROUP BY s",
    ],
)
def test_a_sum_without_index_is_read_as_ever(lake: bitlake.Lake, text: str) -> None:
    plan = explain(lake, text)
    assert "answered" not in plan and "files      0 of" not in plan
    lake.table("t").alter_options({"file-index.bsi.columns": "id", "file-index.range-bitmap.columns": "id"})
    lake.table("t").indexes.rebuild()
    assert "answered   from metadata and indexes; no data file is opened" in explain(lake, text)


def test_the_rows_that_are_found_are_those_that_go(lake: bitlake.Lake) -> None:
    assert "1 of 3 chosen" in explain(lake, "DELETE FROM t WHERE s = 'b' AND p = 'one'")
    assert lake.table("t").delete("s = 'b' AND p = 'one'") == 1


def test_level_0_is_shown_where_the_statement_reads_it(lake: bitlake.Lake) -> None:
    """A query of a table with deletion vectors skips it; a statement that writes the table does not."""
    rows = pa.table({"id": [1, 2], "s": ["a", "b"]})
    options = {"deletion-vectors.enabled": "true", "bucket": "1"}
    lake.create_table("k", rows.schema, primary_key=["id"], options=options).upsert(rows)
    lake.sql("ALTER TABLE k SET TBLPROPERTIES ('write-only' = 'true')", engine="duckdb")
    lake.table("k").upsert(rows)
    for text in (
        "DELETE FROM k WHERE s = 'a'",
        "UPDATE k SET s = 'x' WHERE s = 'a'",
        "INSERT OVERWRITE k SELECT id, s FROM k WHERE s = 'a'",
        "CREATE OR REPLACE TABLE k AS SELECT id, s FROM k WHERE s = 'a'",
        "MERGE INTO k USING (SELECT id, s FROM k WHERE s = 'a') AS n ON k.id = n.id WHEN MATCHED THEN DELETE",
    ):
        plan = explain(lake, text)
        assert "files      2 of 2 read" in plan and "not compacted yet" not in plan, text
    assert "pages that can hold the source's keys, those of level 0 too" in explain(lake, text)
    for text in ("SELECT * FROM k WHERE s = 'a'", "INSERT INTO u SELECT id, s, s FROM k WHERE s = 'a'"):
        plan = explain(lake, text)
        assert "files      1 of 2 read" in plan and "not compacted yet" in plan, text


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("DELETE FROM missing WHERE id = 1", NotFound, "table 'default.missing' does not exist"),
        ("DELETE FROM t WHERE idd = 1", NotFound, "no column 'idd'; did you mean id"),
        (
            "CREATE TABLE v (id INT)",
            UnsupportedFeature,
            "EXPLAIN takes a query, DELETE, UPDATE, MERGE, INSERT or CREATE",
        ),
        ("CREATE DATABASE d", UnsupportedFeature, "this is another statement: CREATE DATABASE d"),
        ("DELETE t", BitlakeError, "DELETE"),
    ],
)
def test_what_cannot_be_explained_says_so(
    lake: bitlake.Lake, statement: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        explain(lake, statement)
