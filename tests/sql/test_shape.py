"""Which whole queries have a shape, and which do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bitlake.predicate.tree import Comparison, Op
from bitlake.sql.analyse import analyse_query
from bitlake.sql.shape import Aggregates, Item, TopRows, shape_of
from bitlake.sql.statements import TableName
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "a", parse_type("INT")), DataField(1, "Bb", parse_type("STRING"))]


def resolve(name: TableName) -> Sequence[DataField] | None:
    return FIELDS if name.table == "t" else None


def shape(text: str) -> Aggregates | TopRows | None:
    return shape_of(analyse_query(text, resolve), {"a": "a", "bb": "Bb"}, "UTC")


def test_aggregates() -> None:
    assert shape("SELECT COUNT(*) FROM t") == Aggregates(None, (Item("count(*)", None),), None)
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
        None,
    )
    keyed = Aggregates(None, (Item("key", "Bb"), Item("count(*)", None), Item("count", "Bb")), "Bb")
    assert shape("SELECT x.bb, COUNT(*), COUNT(bb) FROM t AS x GROUP BY bb") == keyed
    assert shape("SELECT DISTINCT bb FROM t") == Aggregates(None, (Item("key", "Bb"),), "Bb")


def test_top_rows() -> None:
    all_ = (("a", "a"), ("Bb", "Bb"))
    assert shape("SELECT * FROM t LIMIT 3") == TopRows(None, (), 3, 0, all_)
    assert shape("SELECT a + 1 AS x, upper(bb) FROM t WHERE bb = 'x' LIMIT 3 OFFSET 2") == TopRows(
        Comparison("Bb", Op.EQ, "x"), (), 5, 2
    )
    ordered = TopRows(None, (("a", True, True), ("Bb", False, True)), 10, 0, all_, 16)
    assert shape("SELECT * FROM t ORDER BY a DESC NULLS FIRST, t.bb LIMIT 10") == ordered
    by_b = (("Bb", False, True),)
    assert shape("SELECT a FROM t ORDER BY bb LIMIT 1") == TopRows(None, by_b, 1, 0, (("a", "a"),), 16)
    swapped = (("a", "bb"), ("Bb", "a"))
    assert shape("SELECT a AS bb, bb AS a FROM t ORDER BY bb DESC LIMIT 1") == TopRows(
        None, (("a", True, False),), 1, 0, swapped, 31
    )


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
        "SELECT COUNT(*) FROM t HAVING COUNT(*) > 1",
        "SELECT COUNT(*) FILTER (WHERE a > 1) FROM t",
        "SELECT COUNT(*) OVER () FROM t",
        "SELECT COUNT(*) FROM t WHERE rand() < 0.5",
        "SELECT COUNT(*) FROM t WHERE a = (SELECT max(a) FROM t)",
        "SELECT COUNT(*) FROM t, t AS u",
        "SELECT COUNT(*) FROM t TABLESAMPLE (10 PERCENT)",
        "SELECT COUNT(*) FROM (SELECT * FROM t)",
        "SELECT COUNT(*) FROM t LIMIT 0",
        "SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t",
        "SELECT COUNT(a, bb) FROM t",
        "SELECT COUNT(NULL) FROM t",
        "SELECT SUM(a) FROM t",
        "SELECT a, COUNT(*) FROM t",
        "SELECT bb, COUNT(*) FROM t GROUP BY a",
        "SELECT bb, MAX(a) FROM t GROUP BY bb",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb WITH ROLLUP",
        "SELECT bb, COUNT(*) FROM t GROUP BY ALL",
        "SELECT bb, COUNT(*) FROM t GROUP BY bb ORDER BY bb",
        "SELECT DISTINCT a, bb FROM t",
        "SELECT DISTINCT a FROM t LIMIT 2",
        "SELECT explode(array(a)) FROM t LIMIT 3",
        "SELECT my_function(a) FROM t LIMIT 3",
        "SELECT max(a) FROM t LIMIT 3",
        "SELECT a FROM t ORDER BY a + 1 LIMIT 3",
        "SELECT a + 1 AS a FROM t ORDER BY a LIMIT 3",
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
