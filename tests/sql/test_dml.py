"""DELETE, UPDATE, MERGE and COPY INTO as values: every clause and form, and what is refused with the place named."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.statements import (
    Assignment,
    CopyIntoFolder,
    CopyIntoTable,
    FileFormat,
    MergeAction,
    MergeClause,
    Statement,
    When,
)
from bitlake.sql.text import TableName

T, DB_T = TableName(None, "t"), TableName("db", "t")
UPDATE, DELETE, INSERT = MergeAction.UPDATE, MergeAction.DELETE, MergeAction.INSERT

CASES: list[tuple[str, Statement]] = [
    ("DELETE FROM t", st.DeleteFrom(T)),
    ("delete from db.t where a > 1;", st.DeleteFrom(DB_T, None, "a > 1")),
    (
        "DELETE FROM paimon.db.`t` AS x WHERE x.a IN (SELECT b FROM u WHERE c)",
        st.DeleteFrom(DB_T, "x", "x.a IN (SELECT b FROM u WHERE c)"),
    ),
    ("DELETE FROM t x", st.DeleteFrom(T, "x")),
    ("UPDATE t SET a = 1", st.Update(T, (Assignment(("a",), "1"),))),
    (
        "UPDATE db.t AS x SET x.a = b + 1, s.`y z` = coalesce(a, ','), c = DEFAULT WHERE b = CASE WHEN a THEN 1 END",
        st.Update(
            DB_T,
            (
                Assignment(("x", "a"), "b + 1"),
                Assignment(("s", "y z"), "coalesce(a, ',')"),
                Assignment(("c",), None),
            ),
            "x",
            "b = CASE WHEN a THEN 1 END",
        ),
    ),
    (
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        st.MergeInto(
            T,
            "u",
            "t.a = u.a",
            (MergeClause(When.MATCHED, None, UPDATE), MergeClause(When.NOT_MATCHED, None, INSERT)),
        ),
    ),
    (
        "MERGE INTO db.t AS x USING (SELECT 1 AS a, (2) AS b) AS y (a, b)\n"
        "ON CASE WHEN x.a = y.a THEN TRUE ELSE FALSE END\n"
        "WHEN MATCHED AND y.b = CASE WHEN 1 THEN 2 END THEN DELETE\n"
        "WHEN MATCHED THEN UPDATE SET x.b = y.b, c = CASE WHEN x.c THEN 1 ELSE 2 END\n"
        "WHEN NOT MATCHED BY TARGET AND y.b > 1 THEN INSERT (a, b) VALUES (y.a, DEFAULT)\n"
        "WHEN NOT MATCHED BY SOURCE AND x.c THEN UPDATE SET c = 0\n"
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        st.MergeInto(
            DB_T,
            "(SELECT 1 AS a, (2) AS b)",
            "CASE WHEN x.a = y.a THEN TRUE ELSE FALSE END",
            (
                MergeClause(When.MATCHED, "y.b = CASE WHEN 1 THEN 2 END", DELETE),
                MergeClause(
                    When.MATCHED,
                    None,
                    UPDATE,
                    (
                        Assignment(("x", "b"), "y.b"),
                        Assignment(("c",), "CASE WHEN x.c THEN 1 ELSE 2 END"),
                    ),
                ),
                MergeClause(When.NOT_MATCHED, "y.b > 1", INSERT, (Assignment(("a",), "y.a"), Assignment(("b",), None))),
                MergeClause(When.NOT_MATCHED_BY_SOURCE, "x.c", UPDATE, (Assignment(("c",), "0"),)),
                MergeClause(When.NOT_MATCHED_BY_SOURCE, None, DELETE),
            ),
            "x",
            "y (a, b)",
        ),
    ),
    (
        "WITH u AS (SELECT 1 AS a) MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE",
        st.MergeInto(
            T,
            "u",
            "t.a = u.a",
            (MergeClause(When.MATCHED, None, DELETE),),
            with_="WITH u AS (SELECT 1 AS a)",
        ),
    ),
    (
        "WITH u AS (SELECT 1 AS a) DELETE FROM t WHERE a IN (SELECT a FROM u)",
        st.DeleteFrom(T, None, "a IN (SELECT a FROM u)", "WITH u AS (SELECT 1 AS a)"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[:40] for text, _ in CASES])
def test_statements(text: str, expected: Statement) -> None:
    assert parse_statement(text) == expected


REFUSED = [
    ("DELETE t", "expected FROM but found 't'"),
    ("DELETE FROM t WHERE", "expected an expression"),
    ("DELETE FROM t WHERE a) = 1", "expected the end of the statement but found ')'"),
    ("UPDATE t a = 1", "expected SET"),
    ("UPDATE t SET a", "expected ="),
    ("UPDATE t SET a = 1,", "expected a column name"),
    ("UPDATE t SET a = , b = 1", "expected an expression"),
    ("MERGE INTO t USING u ON a = b", "expected WHEN MATCHED or WHEN NOT MATCHED"),
    ("MERGE INTO t USING (SELECT 1 ON a = b WHEN MATCHED THEN DELETE", "expected )"),
    ("MERGE INTO t USING u ON a = b WHEN MATCHED THEN INSERT *", "expected UPDATE SET or DELETE"),
    ("MERGE INTO t USING u ON a = b WHEN NOT MATCHED THEN DELETE", "expected INSERT"),
    ("MERGE INTO t USING u ON a = b WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "names 1 columns and gives 2"),
    ("MERGE INTO t USING u ON a = b WHEN NOT MATCHED THEN INSERT VALUES (1)", "expected * or a list of columns"),
    ("MERGE INTO t USING u ON a = b WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "this clause has no source row"),
    ("MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "only the last WHEN MATCHED"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[-40:] for text, _ in REFUSED])
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as found:
        parse_statement(text)
    assert message in str(found.value)


def test_schema_evolution() -> None:
    made = parse_statement("MERGE WITH SCHEMA EVOLUTION INTO t USING u ON a = b WHEN MATCHED THEN DELETE")
    assert isinstance(made, st.MergeInto) and made.evolve


def test_tables_of_other_catalogs_are_sparks() -> None:
    assert parse_statement("DELETE FROM spark_catalog.a.b") == st.Other("DELETE FROM spark_catalog.a.b")


def test_copy_into() -> None:
    text = "COPY INTO db.t (a, b) FROM '/x' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1, NULL_IF = ('', 'n'))"
    form = FileFormat("CSV", {"SKIP_HEADER": "1"}, ("", "n"))
    assert parse_statement(f"{text} PATTERN = 'p' FORCE = TRUE ON_ERROR = SKIP_FILE") == CopyIntoTable(
        TableName("db", "t"), "/x", form, ("a", "b"), "p", True, "SKIP_FILE"
    )
    text = "COPY INTO '/x' FROM (SELECT a, f(b) FROM t) FILE_FORMAT = (TYPE = PARQUET, COMPRESSION = GZIP)"
    form = FileFormat("PARQUET", {"COMPRESSION": "GZIP"})
    assert parse_statement(text) == CopyIntoFolder("/x", "SELECT a, f(b) FROM t", form)
    assert parse_statement("COPY INTO '/x' FROM t FILE_FORMAT = (TYPE = JSON) OVERWRITE = TRUE;") == CopyIntoFolder(
        "/x", "SELECT * FROM t", FileFormat("JSON"), True
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = ORC)", "CSV, JSON or PARQUET"),
        ("COPY INTO t FROM '/x'", "FILE_FORMAT"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = CSV) ON_ERROR = SKIP_FILE_3", "ABORT_STATEMENT"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 2)", "0 or 1"),
        ("COPY INTO '/x' FROM t FILE_FORMAT = (TYPE = CSV) SINGLE = TRUE", "end of the statement"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = 3)", "TRUE or FALSE"),
    ],
)
def test_copy_into_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_statement(text)
