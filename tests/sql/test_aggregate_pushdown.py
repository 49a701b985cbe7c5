"""Which whole queries have a shape, and which do not."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from bitlake.expressions.terms import names_in
from bitlake.expressions.tree import Comparison, Op, has_computed
from bitlake.sql.aggregate_pushdown import Aggregates, Item, Key, TopRows
from bitlake.sql.analyzer import analyse_query
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "a", parse_type("INT")), DataField(1, "Bb", parse_type("STRING"))]


def resolve(name: TableName) -> Sequence[DataField] | None:
    return FIELDS if name.table == "t" else None


def shape(text: str) -> Aggregates | TopRows | None:
    return analyse_query(SqlText(text), resolve).shape


def test_aggregates() -> None:
    assert shape("SELECT COUNT(*) FROM t") == Aggregates(None, (Item("count(*)", None),))
    assert shape(
        "SELECT count(1) n, min(BB), max(t.a), count(a), count(DISTINCT bb) FROM db.t WHERE a > 3"
    ) == Aggregates(
        Comparison("a", Op.GT, 3),
        (
            Item("count(*)", None),
            Item("min", "Bb"),
            Item("max", "a"),
            Item("count", "a"),
            Item("count distinct", "Bb"),
        ),
    )
    keyed = Aggregates(None, (Item("key", "Bb"), Item("count(*)", None), Item("count", "Bb")), (Key("Bb"),))
    assert shape("SELECT x.bb, COUNT(*), COUNT(bb) FROM t AS x GROUP BY bb") == keyed
    assert shape("SELECT sum(a), avg(a) FROM t") == Aggregates(None, (Item("sum", "a"), Item("avg", "a")))
    assert shape("SELECT bb, MAX(a), count(DISTINCT a), count(a) FROM t GROUP BY bb") == Aggregates(
        None,
        (Item("key", "Bb"), Item("max", "a"), Item("count distinct", "a"), Item("count", "a")),
        (Key("Bb"),),
    )
    both = Aggregates(None, (Item("key", "Bb"), Item("key", "a")), (Key("Bb"), Key("a")))
    assert shape("SELECT DISTINCT bb, a FROM t") == shape("SELECT bb, a FROM t GROUP BY bb, a") == both
    assert shape("SELECT DISTINCT bb FROM t") == Aggregates(None, (Item("key", "Bb"),), (Key("Bb"),))


def test_exists() -> None:
    assert shape("SELECT EXISTS(SELECT * FROM t)") == Aggregates(None, (Item("exists", None),))
    assert shape("SELECT NOT EXISTS (SELECT 1 FROM t WHERE a > 3 LIMIT 1) AS none") == Aggregates(
        Comparison("a", Op.GT, 3), (Item("not exists", None),)
    )


@pytest.mark.parametrize(
    ("text", "items", "rest"),
    [
        (
            "SELECT bb, count(*) AS n FROM t WHERE a > 3 GROUP BY bb HAVING n > 10 ORDER BY n DESC LIMIT 3",
            ["key", "count(*)"],
            "SELECT bb, coalesce(max(__bitlake_item_1), 0L) AS n FROM t GROUP BY bb "
            "HAVING n > 10 ORDER BY n DESC LIMIT 3",
        ),
        (
            "SELECT max(a) - min(a), 2 * COUNT( DISTINCT bb ) FROM t;",
            ["max", "min", "count distinct"],
            "SELECT max(__bitlake_item_0) - max(__bitlake_item_1), 2 * coalesce(max(__bitlake_item_2), 0L) FROM t;",
        ),
        (
            "SELECT upper(x.bb) u, count(1) FROM t x GROUP BY x.bb ORDER BY count(*), u",
            ["key", "count(*)"],
            "SELECT upper(x.bb) u, coalesce(max(__bitlake_item_1), 0L) FROM t x GROUP BY x.bb "
            "ORDER BY coalesce(max(__bitlake_item_1), 0L), u",
        ),
        (
            "SELECT DISTINCT bb FROM t WHERE bb IN ('a', 'count(x)') ORDER BY bb LIMIT 2",
            ["key"],
            "SELECT DISTINCT bb FROM t ORDER BY bb LIMIT 2",
        ),
        (
            "SELECT bb, COUNT(*) + SUM(a) FROM t WHERE a > 1 GROUP BY bb HAVING avg(a) > 1",
            ["key", "count(*)", "sum", "avg"],
            "SELECT bb, coalesce(max(__bitlake_item_1), 0L) + max(__bitlake_item_2) FROM t GROUP BY bb "
            "HAVING max(__bitlake_item_3) > 1",
        ),
        (
            "SELECT a % 10 AS k, bb, sum(a) FROM t GROUP BY k, bb ORDER BY a % 10",
            ["key", "key", "sum"],
            "SELECT a % 10 AS k, bb, max(__bitlake_item_2) FROM t GROUP BY k, bb ORDER BY a % 10",
        ),
        ("SELECT count(*) FROM t LIMIT 0", ["count(*)"], "SELECT coalesce(max(__bitlake_item_0), 0L) FROM t LIMIT 0"),
        (
            "SELECT count(bb), bb AS k FROM t WHERE a = 1 GROUP BY k HAVING k LIKE 'x%'",
            ["key", "count"],
            "SELECT coalesce(max(__bitlake_item_1), 0L), bb AS k FROM t GROUP BY k HAVING k LIKE 'x%'",
        ),
    ],
)
def test_the_rest_is_left_to_spark(text: str, items: list[str], rest: str) -> None:
    found = shape(text)
    assert isinstance(found, Aggregates) and found.edits is not None
    assert [i.kind for i in found.items] == items
    made = analyse_query(SqlText(text), resolve)
    assert made.text.edit(found.edits) == rest
    replaced = "FROM `v` x" if " t x" in text else "FROM `v` AS `t`"
    assert replace_tables(made.text, made.tables, ["v"], edits=found.edits) == re.sub("FROM t( x)?", replaced, rest)


def test_top_rows() -> None:
    all_ = (("a", "a"), ("Bb", "Bb"))
    assert shape("SELECT * FROM t LIMIT 3") == TopRows(None, (), 3, 0, all_)
    assert shape("SELECT a + 1 AS x, upper(bb) FROM t WHERE bb = 'x' LIMIT 3 OFFSET 2") == TopRows(
        Comparison("Bb", Op.EQ, "x"), (), 5, 2
    )
    ordered = TopRows(None, (("a", True, True), ("Bb", False, True)), 10, 0, all_, ((16, 58, ""),))
    assert shape("SELECT * FROM t ORDER BY a DESC NULLS FIRST, t.bb LIMIT 10") == ordered
    by_b = (("Bb", False, True),)
    assert shape("SELECT a FROM t ORDER BY bb LIMIT 1") == TopRows(None, by_b, 1, 0, (("a", "a"),), ((16, 35, ""),))
    swapped = (("a", "bb"), ("Bb", "a"))
    assert shape("SELECT a AS bb, bb AS a FROM t ORDER BY bb DESC LIMIT 1") == TopRows(
        None, (("a", True, False),), 1, 0, swapped, ((31, 55, ""),)
    )


def test_rows_ordered_by_expressions() -> None:
    for text, column in (
        ("SELECT a FROM t ORDER BY a + 1 DESC LIMIT 3", "a"),
        ("SELECT a + 1 AS a FROM t ORDER BY a DESC LIMIT 3", "a"),
        ("SELECT length(x.bb) FROM t x ORDER BY length(x.bb) DESC LIMIT 3", "Bb"),
        ("SELECT a AS bb, bb AS a FROM t ORDER BY upper(bb) DESC LIMIT 3", "a"),
    ):
        found = shape(text)
        assert isinstance(found, TopRows)
        ((term, descending, nulls_first),) = found.order
        assert not isinstance(term, str) and names_in(term) == {column} and descending and not nulls_first


@pytest.mark.parametrize(
    "text",
    [
        "SELECT bb FROM t LIMIT 1",
        "SELECT a, a FROM t LIMIT 1",
        "SELECT t.* FROM t LIMIT 1",
        "SELECT *, 1 FROM t LIMIT 1",
    ],
)
def test_outputs_are_left_to_spark(text: str) -> None:
    """Names in another case, names twice, what is not a column: Spark says what they are."""
    found = shape(text)
    assert isinstance(found, TopRows) and found.outputs is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FILTER (WHERE a > 1) FROM t",
        "SELECT COUNT(*) OVER () FROM t",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb HAVING a > 1",
        "SELECT bb, COUNT(*) AS n FROM t GROUP BY bb ORDER BY a",
        "SELECT bb, a + COUNT(*) FROM t GROUP BY bb",
        "SELECT bb, COUNT(*) AS n FROM t GROUP BY bb ORDER BY first(bb)",
        "SELECT bb, COUNT(*), rank() OVER (ORDER BY COUNT(*)) FROM t GROUP BY bb",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb SORT BY bb",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb ORDER BY bb LIMIT 1 + 1",
        "SELECT my_sum(a) + COUNT(*) FROM t",
        "SELECT EXISTS(SELECT COUNT(*) FROM t)",
        "SELECT EXISTS(SELECT explode(array(a)) FROM t)",
        "SELECT EXISTS(SELECT a FROM t LIMIT 0)",
        "SELECT EXISTS(SELECT a FROM t OFFSET 3)",
        "SELECT EXISTS(SELECT a FROM t GROUP BY a HAVING count(*) > 1)",
        "SELECT EXISTS(SELECT a FROM t), 1",
        "SELECT EXISTS(SELECT a FROM t) FROM other",
        "SELECT EXISTS(SELECT a FROM t WHERE rand() < 0.5)",
        "SELECT COUNT(*) FROM t WHERE rand() < 0.5",
        "SELECT COUNT(*) FROM t WHERE a = (SELECT max(a) FROM t)",
        "SELECT COUNT(*) FROM t, t AS u",
        "SELECT COUNT(*) FROM t TABLESAMPLE (10 PERCENT)",
        "SELECT COUNT(*) FROM (SELECT * FROM t)",
        "SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t",
        "SELECT COUNT(a, bb) FROM t",
        "SELECT COUNT(NULL) FROM t",
        "SELECT COUNT() FROM t",
        "SELECT COUNT(DISTINCT *) FROM t",
        "SELECT a, COUNT(*) FROM t",
        "SELECT bb, COUNT(*) FROM t GROUP BY a",
        "SELECT SUM(DISTINCT a) FROM t",
        "SELECT SUM(a) FILTER (WHERE a > 1) FROM t",
        "SELECT SUM(a + 1) FROM t",
        "SELECT a, COUNT(*) FROM t GROUP BY a % 10",
        "SELECT COUNT(*) FROM t GROUP BY a % length(bb)",
        "SELECT a % 5, COUNT(*) FROM t GROUP BY a % 10",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb WITH ROLLUP",
        "SELECT bb, COUNT(*) FROM t GROUP BY ALL",
        "SELECT explode(array(a)) FROM t LIMIT 3",
        "SELECT my_function(a) FROM t LIMIT 3",
        "SELECT explode(array(a)) FROM t ORDER BY a + 1 LIMIT 3",
        "SELECT count(*) OVER () FROM t ORDER BY a + 1 LIMIT 3",
        "SELECT a FROM t ORDER BY a + missing LIMIT 3",
        "SELECT a FROM t ORDER BY 1 LIMIT 3",
        "SELECT a FROM t ORDER BY ALL LIMIT 3",
        "SELECT a FROM t SORT BY a LIMIT 3",
        "SELECT a FROM t LIMIT 1 + 1",
        "SELECT a FROM t LIMIT ALL",
        "SELECT a FROM t",
        "SELECT a FROM t WHERE length(bb) > 3 LIMIT 2",
        "SELECT count(*) FROM other",
        "WITH x AS (SELECT 1) SELECT count(*) FROM t",
        "SELECT a FROM t WHERE nope = 1 LIMIT 2",
    ],
)
def test_no_shape(text: str) -> None:
    assert shape(text) is None


def test_conditions_of_aggregates_may_compute() -> None:
    """Indexes of expressions may evaluate these."""
    for text in ("SELECT COUNT(*) FROM t WHERE length(bb) > 3", "SELECT EXISTS(SELECT a FROM t WHERE length(bb) > 3)"):
        found = shape(text)
        assert isinstance(found, Aggregates) and found.predicate is not None and has_computed(found.predicate)
