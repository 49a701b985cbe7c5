"""Queries taken apart; the cases stand in ``queries.txt`` and ``replaced.txt``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bitlake.expressions.sql_text import to_sql
from bitlake.sql.analyzer import analyse_query
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField, parse_type

COLUMNS = {
    ("db", "t"): "a b c d st dt",
    ("db", "u"): "a x y",
    ("db", "orders"): "order_id status region amount ts",
    ("other", "t"): "a z",
    ("my db", "t`x"): "a",
    ("db", "date"): "a date",
}


def resolve(name: TableName) -> Sequence[DataField] | None:
    columns = COLUMNS.get((name.database or "db", name.table.lower()))
    if columns is None:
        return None
    return [DataField(i, c, parse_type("INT")) for i, c in enumerate(columns.split())]


def cases(name: str) -> list[tuple[str, list[str]]]:
    """The cases of a text file: a query per paragraph, what is expected indented below."""
    out = []
    for paragraph in (Path(__file__).parent / name).read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line and not line.startswith("-- ")]
        if lines:
            out.append((lines[0], [line.strip() for line in lines[1:] if line.strip() != "nothing"]))
    return out


CASES = cases("queries.txt")
REPLACED = [(text, expected[0]) for text, expected in cases("replaced.txt")]


def shown(text: str, timezone: str = "UTC") -> list[str]:
    made = analyse_query(SqlText(text), resolve, timezone)
    assert made.text == text
    out = []
    for use in made.tables:
        assert text[use.start : use.end].replace("``", "`").strip("`").endswith(use.name.table.strip("`"))
        columns = "*" if use.columns is None else " ".join(use.columns)
        predicate = "-" if use.predicate is None else to_sql(use.predicate)
        out.append(f"{use.name.table}: {columns} | {predicate}")
    return out


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[c[0] for c in CASES])
def test_query(text: str, expected: list[str]) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(("text", "expected"), REPLACED, ids=[c[0] for c in REPLACED])
def test_replace(text: str, expected: str) -> None:
    uses = analyse_query(SqlText(text), resolve).tables
    assert replace_tables(SqlText(text), uses, [f"v{i}" for i in range(len(uses))]) == expected


def test_tables_of_one_name_are_told_apart_by_their_databases() -> None:
    text = "SELECT db.t.a, other.t.z FROM db.t JOIN other.t ON db.t.a = other.t.a"
    uses = analyse_query(SqlText(text), resolve).tables
    assert replace_tables(SqlText(text), uses, ["x", "y"]) == (
        "SELECT `db.t`.a, `other.t`.z FROM `x` AS `db.t` JOIN `y` AS `other.t` ON `db.t`.a = `other.t`.a"
    )
    text = (
        "SELECT t.a FROM db.t WHERE db.t.a IN (SELECT other.t.a FROM (other.t) WHERE t.z = db.t.a) UNION TABLE other.t"
    )
    uses = analyse_query(SqlText(text), resolve).tables
    assert replace_tables(SqlText(text), uses, ["x", "y", "z"]) == (
        "SELECT `db.t`.a FROM `x` AS `db.t` WHERE `db.t`.a IN "
        "(SELECT `other.t`.a FROM (`y` AS `other.t`) WHERE `other.t`.z = `db.t`.a) UNION SELECT * FROM `z` AS `other.t`"
    )
    text = "SELECT t.z FROM other.t WHERE other.t.z = 1 EXCEPT SELECT x.a FROM (((t))) x"
    uses = analyse_query(SqlText(text), resolve).tables
    assert replace_tables(SqlText(text), uses, ["x", "y"], "db") == (
        "SELECT `other.t`.z FROM `x` AS `other.t` WHERE `other.t`.z = 1 EXCEPT SELECT x.a FROM (((`y` AS `db.t`))) x"
    )
    # The names in a bracket with an alias are not seen outside: this one may have any columns.
    for bracket in ("((t)) x (p, q, r, s, u, v)", "(t) AS x (p, q, r, s, u, v)"):
        text = f"SELECT t.z, t.a FROM other.t LEFT SEMI JOIN {bracket} ON other.t.z = x.p"
        found = replace_tables(SqlText(text), analyse_query(SqlText(text), resolve).tables, ["y", "x"], "db")
        assert found == (
            "SELECT `other.t`.z, `other.t`.a FROM `y` AS `other.t` "
            f"LEFT SEMI JOIN {bracket.replace('t)', '`x` AS `db.t`)', 1)} ON `other.t`.z = x.p"
        )


def test_timestamps_are_of_the_sessions_zone() -> None:
    text = "SELECT a FROM orders WHERE ts > TIMESTAMP '2020-01-01 00:00:00'"
    assert shown(text, "Asia/Tokyo") == ["orders: ts | ts > TIMESTAMP '2019-12-31 15:00:00Z'"]
    assert shown(text, "GMT+09") == ["orders: ts | ts > TIMESTAMP '2019-12-31 15:00:00Z'"]
    assert shown(text, "JST") == ["orders: ts | ts > TIMESTAMP '2019-12-31 15:00:00Z'"]
    assert shown(text, "XST") == ["orders: ts | -"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("SELECT *, __paimon_bucket FROM t", "SELECT * EXCEPT (__paimon_bucket), __paimon_bucket FROM t"),
        (
            "SELECT x.*, count(*) FROM t x WHERE __paimon_bucket = a * 2",
            "SELECT x.* EXCEPT (__paimon_bucket), count(*) FROM t x WHERE __paimon_bucket = a * 2",
        ),
        (
            "SELECT * FROM (SELECT *, __paimon_bucket FROM t)",
            "SELECT * FROM (SELECT * EXCEPT (__paimon_bucket), __paimon_bucket FROM t)",
        ),
        ("SELECT * FROM t", "SELECT * FROM t"),
        ("SELECT a, __paimon_bucket FROM t", "SELECT a, __paimon_bucket FROM t"),
    ],
)
def test_a_star_never_means_metadata_columns(text: str, left: str) -> None:
    made = analyse_query(SqlText(text), resolve)
    assert made.text == left
    assert ("__paimon_bucket" in (made.tables[0].columns or ())) == ("__paimon" in text)


@pytest.mark.parametrize(
    ("text", "projected"),
    [
        ("SELECT a FROM t", False),
        ("SELECT a FROM (SELECT a FROM t) x JOIN (SELECT a FROM u) y USING (a)", False),
        ("WITH c AS (SELECT a FROM t) SELECT a FROM c UNION ALL (SELECT a FROM u)", False),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AND a IN (SELECT a FROM u)", False),
        ("SELECT a FROM t, LATERAL (SELECT a AS b FROM u WHERE u.a = t.a)", False),
        ("SELECT a IN (1, 2) FROM t", False),
        ("SELECT EXISTS (SELECT 1 FROM u WHERE u.a = t.a) FROM t", True),
        ("SELECT a IN (SELECT a FROM u) FROM t", True),
        ("SELECT 1 + (SELECT max(a) FROM u WHERE u.x < t.a) FROM t", True),
        ("SELECT a FROM t ORDER BY (SELECT max(a) FROM u WHERE u.x < t.a)", True),
        ("SELECT a FROM t WHERE a = (SELECT count(EXISTS (SELECT 1 FROM u WHERE u.a = x.a)) FROM t x)", True),
        ("FROM t |> WHERE a = 1", False),
        ("FROM t |> SELECT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", True),
    ],
)
def test_subqueries_in_expressions_outside_of_where_are_found(text: str, projected: bool) -> None:
    assert analyse_query(SqlText(text), resolve).projects_subqueries is projected


@pytest.mark.parametrize(
    ("text", "only_scans", "unreduced"),
    [
        ("SELECT a, b + 1 FROM t WHERE c > 3", True, ["t"]),
        ("SELECT x.a FROM (SELECT a FROM t WHERE b = 1) x", True, ["t"]),
        ("SELECT a FROM t ORDER BY a", False, ["t"]),
        ("SELECT a FROM t LIMIT 3", True, []),
        ("SELECT count(*) FROM t", False, []),
        ("SELECT a, count(*) FROM t GROUP BY a", False, []),
        ("SELECT DISTINCT a FROM t", False, []),
        ("SELECT a, sum(b) OVER (PARTITION BY a) FROM t", False, ["t"]),
        ("SELECT t.a, y FROM t JOIN u ON t.a = u.a", False, ["t", "u"]),
        ("SELECT a FROM t, (SELECT a, max(x) AS x FROM u GROUP BY a) v WHERE t.a = v.a", False, ["t"]),
        ("WITH v AS (SELECT max(x) AS x FROM u), w AS (SELECT a FROM t) SELECT a FROM w JOIN v ON a = x", False, ["t"]),
        ("SELECT a FROM u WHERE a IN (SELECT a FROM t)", False, ["u"]),
        ("SELECT a, (SELECT max(y) FROM u) FROM t", False, ["t"]),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", False, ["t", "u"]),
        ("(SELECT a FROM t LIMIT 2) UNION ALL (SELECT max(a) FROM u)", False, []),
        ("(SELECT a FROM t)", True, ["t"]),
        ("(SELECT a FROM t UNION ALL SELECT a FROM u) LIMIT 5", False, []),
        ("WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT a FROM r) SELECT a FROM r", False, ["t"]),
        ("FROM t |> AGGREGATE count(*)", True, ["t"]),  # without a tree
    ],
)
def test_tables_whose_rows_may_all_be_in_a_result(text: str, only_scans: bool, unreduced: list[str]) -> None:
    made = analyse_query(SqlText(text), resolve)
    assert [made.tables[place].name.table for place in sorted(made.unreduced)] == unreduced
    assert made.only_scans is only_scans
