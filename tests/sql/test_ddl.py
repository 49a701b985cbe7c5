"""ALTER TABLE of columns: what is read, and what is refused where."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.metadata.schema import (
    FIRST,
    AddColumn,
    DropColumn,
    MoveColumn,
    Position,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
    SetTableComment,
)
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.text import TableName
from bitlake.types import parse_type

P = parse_type
T = TableName(None, "t")
COLUMNS: list[tuple[str, tuple[SchemaChange, ...]]] = [
    ("ADD COLUMN a INT", (AddColumn(("a",), P("INT")),)),
    (
        "ADD COLUMNS (a INT COMMENT 'x' FIRST, `b.c` DECIMAL(5, 2) AFTER a, s.x STRING)",
        (
            AddColumn(("a",), P("INT"), "x", FIRST),
            AddColumn(("b.c",), P("DECIMAL(5, 2)"), None, Position("a")),
            AddColumn(("s", "x"), P("STRING")),
        ),
    ),
    ("ADD COLUMN a INT NOT NULL", (AddColumn(("a",), P("INT NOT NULL")),)),
    ("add columns a int, b date", (AddColumn(("a",), P("INT")), AddColumn(("b",), P("DATE")))),
    ("DROP COLUMN a", (DropColumn(("a",)),)),
    ("DROP COLUMNS IF EXISTS (a, s.x)", (DropColumn(("a",), True), DropColumn(("s", "x"), True))),
    ("DROP COLUMN l.element.x, m.value.y", (DropColumn(("l", "element", "x")), DropColumn(("m", "value", "y")))),
    ("RENAME COLUMN s.x TO y", (RenameColumn(("s", "x"), "y"),)),
    ("RENAME COLUMN `a b` TO `c.d`", (RenameColumn(("a b",), "c.d"),)),
    ("ALTER COLUMN a TYPE BIGINT", (RetypeColumn(("a",), P("BIGINT")),)),
    ("ALTER a TYPE BIGINT", (RetypeColumn(("a",), P("BIGINT")),)),
    ("ALTER COLUMN a COMMENT 'it''s'", (SetComment(("a",), "it's"),)),
    ("ALTER COLUMN a SET NOT NULL", (SetNullable(("a",), False),)),
    ("ALTER COLUMN a DROP NOT NULL", (SetNullable(("a",), True),)),
    ("ALTER COLUMN a FIRST", (MoveColumn(("a",), FIRST),)),
    ("ALTER COLUMN s.a AFTER b", (MoveColumn(("s", "a"), Position("b")),)),
    ("ALTER COLUMN a SET DEFAULT 'x, y'", (SetDefault(("a",), "'x, y'"),)),
    ("ALTER COLUMN a DROP DEFAULT", (SetDefault(("a",), None),)),
    (
        "ALTER COLUMN a TYPE INT COMMENT 'x', b SET DEFAULT 5, c FIRST",
        (RetypeColumn(("a",), P("INT")), SetComment(("a",), "x"), SetDefault(("b",), "5"), MoveColumn(("c",), FIRST)),
    ),
    ("CHANGE COLUMN a TYPE INT", (RetypeColumn(("a",), P("INT")),)),
    (
        "CHANGE a a INT COMMENT 'x' AFTER b",
        (RetypeColumn(("a",), P("INT")), SetComment(("a",), "x"), MoveColumn(("a",), Position("b"))),
    ),
    (
        "CHANGE COLUMN s.a b INT NOT NULL",
        (RenameColumn(("s", "a"), "b"), RetypeColumn(("s", "b"), P("INT")), SetNullable(("s", "b"), False)),
    ),
]


@pytest.mark.parametrize(("text", "changes"), COLUMNS, ids=[c[0] for c in COLUMNS])
def test_columns(text: str, changes: tuple[SchemaChange, ...]) -> None:
    assert parse_statement(f"ALTER TABLE t {text};") == st.AlterColumns(T, changes)


def test_tables() -> None:
    assert parse_statement("ALTER TABLE t RENAME TO db.`new t`") == st.RenameTable(T, TableName("db", "new t"))
    assert parse_statement("COMMENT ON TABLE t IS 'x'") == st.AlterColumns(T, (SetTableComment("x"),))
    assert parse_statement("COMMENT ON TABLE t IS NULL") == st.AlterColumns(T, (SetTableComment(None),))
    # Another catalog's table is Spark's business.
    text = "ALTER TABLE spark_catalog.d.t ADD COLUMN a INT"
    assert parse_statement(text) == st.Other(text)


WRONG = [
    ("ADD COLUMN a", "a data type"),
    ("ADD COLUMN a INT DEFAULT 5", "SET DEFAULT"),
    ("ADD COLUMNS (a INT", r"',' or '\)'"),
    ("DROP COLUMN", "a column name"),
    ("RENAME COLUMN a b", "expected TO"),
    ("ALTER COLUMN a", "TYPE, COMMENT"),
    ("ALTER COLUMN a b INT", "TYPE, COMMENT"),
    ("ALTER COLUMN a TYPE INT x", "the end"),
    ("FROB", "ADD COLUMN"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_ones_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_statement(f"ALTER TABLE t {text}")


@pytest.mark.parametrize("text", ["REPLACE COLUMNS (a INT)", "SET LOCATION 'x'"])
def test_what_is_not_implemented_says_what_is(text: str) -> None:
    with pytest.raises(UnsupportedFeature, match="RENAME COLUMN"):
        parse_statement(f"ALTER TABLE t {text}")
