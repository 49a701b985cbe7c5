"""Moments and table functions are taken out of a statement's text; a plain name stands in their place."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.sql.text import SqlText, TableName
from bitlake.sql.time_travel import Changes, Moment, take_relations

T = TableName(None, "t")


def known(name: TableName) -> bool:
    return name.table in ("t", "u", "t$branch_b")


@pytest.mark.parametrize(
    ("text", "left", "relation"),
    [
        ("SELECT * FROM t VERSION AS OF 1", "SELECT * FROM @ AS t", Moment(T, version=1)),
        ("SELECT * FROM t VERSION AS OF 1L x", "SELECT * FROM @ x", Moment(T, version=1)),
        ("SELECT * FROM t FOR VERSION AS OF 'a b' AS x", "SELECT * FROM @ AS x", Moment(T, version="a b")),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 1 WHERE a", "SELECT * FROM @ AS t WHERE a", Moment(T, version=1)),
        (
            "SELECT * FROM t TIMESTAMP AS OF '2020-01-01' JOIN v ON 1",
            "SELECT * FROM @ AS t JOIN v ON 1",
            Moment(T, timestamp="'2020-01-01'"),
        ),
        (
            "SELECT (SELECT 1 FROM t TIMESTAMP AS OF now() - INTERVAL 1 DAY x)",
            "SELECT (SELECT 1 FROM @ x)",
            Moment(T, timestamp="now() - INTERVAL 1 DAY"),
        ),
        (
            "SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01' AS x",
            "SELECT * FROM @ AS x",
            Moment(T, timestamp="TIMESTAMP '2020-01-01'"),
        ),
        (
            "SELECT * FROM t TIMESTAMP AS OF date_sub(current_date(), 3), v",
            "SELECT * FROM @ AS t, v",
            Moment(T, timestamp="date_sub(current_date(), 3)"),
        ),
        (
            "SELECT * FROM paimon_incremental_query('db.t', 1, 'x') AS c",
            "SELECT * FROM @ AS c",
            Changes("paimon_incremental_query", TableName("db", "t"), (1, "x")),
        ),
    ],
)
def test_a_relation_is_taken_out(text: str, left: str, relation: object) -> None:
    out, found = take_relations(SqlText(text), known)
    ((name, made),) = found.items()
    assert out == left.replace("@", name) and made == relation


def test_several_of_one_text() -> None:
    text = "SELECT * FROM t VERSION AS OF 1 a JOIN db.u VERSION AS OF 2 b ON a.x = b.x WHERE 'VERSION AS OF 3' = a.y"
    out, found = take_relations(SqlText(text), known)
    first, second = found
    assert out == f"SELECT * FROM {first} a JOIN {second} b ON a.x = b.x WHERE 'VERSION AS OF 3' = a.y"
    assert found[second] == Moment(TableName("db", "u"), version=2)


def test_what_is_not_the_lakes_stays_as_it_is() -> None:
    for text in ("SELECT * FROM v VERSION AS OF 1", "SELECT * FROM t", "SELECT 'unclosed", "SELECT a AS of FROM t"):
        assert take_relations(SqlText(text), known) == (text, {})


def test_a_branch_may_follow_an_at_sign() -> None:
    assert take_relations(SqlText("SELECT * FROM db.t@branch_b"), known)[0] == "SELECT * FROM db.`t$branch_b`"
    out, found = take_relations(SqlText("SELECT * FROM t@branch_b VERSION AS OF 2"), known)
    ((name, moment),) = found.items()
    assert out == f"SELECT * FROM {name} AS `t$branch_b`"
    assert moment == Moment(TableName(None, "t$branch_b"), version=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM t VERSION AS OF", "must be followed by a version"),
        ("SELECT * FROM t TIMESTAMP AS OF", "must be followed by a time"),
        ("SELECT * FROM t VERSION AS OF x", "takes a snapshot's id or a tag in quotes"),
        (
            "SELECT * FROM paimon_incremental_query('t', 1)",
            r"call it as paimon_incremental_query\('table', start, end\)",
        ),
        ("SELECT * FROM paimon_incremental_query(t, 1, 2)", "not a constant"),
        ("SELECT * FROM paimon_incremental_to_auto_tag(1, 2)", "call it as"),
    ],
)
def test_what_is_not_well_formed_says_how_to_write_it(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        take_relations(SqlText(text), known)
