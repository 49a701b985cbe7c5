"""What is done to a statement's text before it is read: DEFAULT, sys.max_pt and views."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.sql.rewrite import default_as_null, expand_views, normalize, take_max_pt, whole_names
from bitlake.sql.text import SqlText, TableName


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("VALUES (1, DEFAULT), (DEFAULT, f(DEFAULT, 2))", "VALUES (1, NULL), (NULL, f(DEFAULT, 2))"),
        ("values default, 2", "values NULL, 2"),
        ("VALUES ((DEFAULT), f(DEFAULT)), (1, ( DEFAULT ))", "VALUES ((NULL), f(DEFAULT)), (1, ( NULL ))"),
        ("VALUES ('DEFAULT', `default`)", "VALUES ('DEFAULT', `default`)"),
        ("SELECT DEFAULT FROM t", "SELECT NULL FROM t"),
        ("SELECT a, default, *, DEFAULT", "SELECT a, NULL, *, NULL"),
        ("FROM t SELECT DISTINCT DEFAULT, a WHERE b", "FROM t SELECT DISTINCT NULL, a WHERE b"),
        ("WITH c AS (SELECT DEFAULT) SELECT DEFAULT, 1 FROM c", "WITH c AS (SELECT DEFAULT) SELECT NULL, 1 FROM c"),
        (
            "SELECT `default`, DEFAULT + 1, f(DEFAULT), t.default",
            "SELECT `default`, DEFAULT + 1, f(DEFAULT), t.default",
        ),
        ("SELECT DEFAULT UNION SELECT 1", "SELECT DEFAULT UNION SELECT 1"),
        # A quoted item before DEFAULT, and ORDER BY or SORT BY after it, hid it.
        ("SELECT 'x', `a`, DEFAULT FROM t", "SELECT 'x', `a`, NULL FROM t"),
        ("SELECT 'x', 1, DEFAULT ORDER BY 1", "SELECT 'x', 1, NULL ORDER BY 1"),
        ("SELECT (SELECT DEFAULT), DEFAULT SORT BY 1", "SELECT (SELECT DEFAULT), NULL SORT BY 1"),
        ("SELECT 1, DEFAULT GROUP BY 1", "SELECT 1, DEFAULT GROUP BY 1"),
    ],
)
def test_default_values(text: str, made: str) -> None:
    assert default_as_null(SqlText(text)) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("SELECT t$files.a, t.b FROM t$files, t", "SELECT `t$files`.a, t.b FROM `t$files`, t"),
        ("FROM db.t$branch_dev$files f", "FROM db.`t$branch_dev$files` f"),
        ("FROM 1t$files", "FROM `1t$files`"),
        (
            "SELECT '$a', ${x}, t $ y, `t`$x, 't'$files -- t$files",
            "SELECT '$a', ${x}, t $ y, `t`$x, 't'$files -- t$files",
        ),
    ],
)
def test_names_with_a_dollar_need_no_backticks(text: str, made: str) -> None:
    assert normalize(SqlText(text), "default") == made


def test_max_pt() -> None:
    text = "SELECT sys.max_pt('a.b'), `sys`.MAX_PT( 'x' ), 'sys.max_pt(1)', max_pt('y')"
    assert take_max_pt(SqlText(text), lambda t: f"{t}'s") == "SELECT 'a.b\\'s', 'x\\'s', 'sys.max_pt(1)', max_pt('y')"
    with pytest.raises(InvalidRequest, match="in quotes"):
        take_max_pt(SqlText("SELECT sys.max_pt(t)"), str)


_VIEWS = {"v": "SELECT a FROM db.t", "w": "SELECT * FROM db.v", "loop": "SELECT * FROM loop"}


def _find(name: TableName) -> str | None:
    return _VIEWS.get(name.table)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("SELECT v.a FROM v", "SELECT v.a FROM (SELECT a FROM db.t) AS v"),
        ("SELECT * FROM db.v x JOIN t", "SELECT * FROM (SELECT a FROM db.t) x JOIN t"),
        ("INSERT INTO v SELECT * FROM w", "INSERT INTO v SELECT * FROM (SELECT * FROM (SELECT a FROM db.t) AS v) AS w"),
        ("WITH v AS (SELECT 1) SELECT * FROM v", "WITH v AS (SELECT 1) SELECT * FROM v"),
        ("DELETE FROM v", "DELETE FROM v"),
        ("EXPLAIN DELETE FROM v WHERE a > (TABLE v)", "EXPLAIN DELETE FROM v WHERE a > (TABLE v)"),
        ("DELETE FROM t WHERE a IN (FROM v)", "DELETE FROM t WHERE a IN (FROM (SELECT a FROM db.t) AS v)"),
        ("UPDATE v SET a = (SELECT a FROM v)", "UPDATE v SET a = (SELECT a FROM (SELECT a FROM db.t) AS v)"),
        ("MERGE INTO v USING v x ON v.a = x.a", "MERGE INTO v USING (SELECT a FROM db.t) x ON v.a = x.a"),
        ("EXPLAIN MERGE INTO t USING db.v ON TRUE", "EXPLAIN MERGE INTO t USING (SELECT a FROM db.t) AS v ON TRUE"),
        ("SELECT * FROM t JOIN u USING (v)", "SELECT * FROM t JOIN u USING (v)"),
        ("CREATE OR REPLACE VIEW x AS SELECT * FROM v", "CREATE OR REPLACE VIEW x AS SELECT * FROM v"),
        ("CREATE TEMP VIEW x AS SELECT * FROM v", "CREATE TEMP VIEW x AS SELECT * FROM (SELECT a FROM db.t) AS v"),
    ],
)
def test_views(text: str, made: str) -> None:
    assert expand_views(SqlText(text), _find) == made


def test_views_in_a_circle() -> None:
    with pytest.raises(InvalidRequest, match="circle"):
        expand_views(SqlText("SELECT * FROM loop"), _find)


def test_names_of_a_view_are_whole() -> None:
    text = "WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN x.u JOIN other, t VERSION AS OF 1"
    made = whole_names(SqlText(text), "d b", lambda name: name.table in ("t", "u"))
    assert made == text.replace("FROM t)", "FROM `d b`.t)").replace(", t V", ", `d b`.t V")
