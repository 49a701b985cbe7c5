"""Paimon's Spark documentation, page "SQL Functions"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bitlake.errors import InvalidRequest, NotFound

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def test_max_pt(run: Run) -> None:
    run("CREATE TABLE t (v STRING, pt STRING) PARTITIONED BY (pt)")
    with pytest.raises(InvalidRequest, match="no partitions"):
        run("SELECT sys.max_pt('t')")
    run("INSERT INTO t VALUES ('b', '20240101'), ('a', '20250101'), ('c', NULL)")
    assert run("SELECT sys.max_pt('t');") == [["20250101"]]
    assert run("SELECT * FROM t where pt = sys.max_pt('t');") == [["a", "20250101"]]
    run("INSERT INTO t SELECT 'd', sys.max_pt('default.t')")
    assert run("SELECT v FROM t WHERE pt = sys.max_pt('t') ORDER BY v") == [["a"], ["d"]]
    assert run("SELECT 'sys.max_pt(''t'')' AS text") == [["sys.max_pt('t')"]]
    run("CREATE TABLE n (v STRING, y INT, m INT) PARTITIONED BY (y, m)")
    run("INSERT INTO n VALUES ('a', 9, 1), ('b', 10, 1), ('c', 10, 2)")
    assert run("SELECT * FROM n WHERE y = sys.max_pt('n') ORDER BY m") == [["b", 10, 1], ["c", 10, 2]]


def test_max_pt_of_what_has_none(run: Run) -> None:
    run("CREATE TABLE t (v STRING)")
    with pytest.raises(InvalidRequest, match="not partitioned"):
        run("SELECT sys.max_pt('t')")
    with pytest.raises(InvalidRequest, match="in quotes"):
        run("SELECT sys.max_pt(t)")
    with pytest.raises(NotFound):
        run("SELECT sys.max_pt('nothing')")


def test_sql_functions_of_the_session(run: Run) -> None:
    """Spark's own catalog keeps them, as long as it lives; in Paimon only a REST catalog keeps functions."""
    run(
        """
        CREATE OR REPLACE TEMPORARY FUNCTION area(width DOUBLE, height DOUBLE)
        RETURNS DOUBLE
        RETURN width * height;
        CREATE OR REPLACE TEMPORARY FUNCTION addd(x INT, y INT DEFAULT 10) RETURNS INT RETURN x + y;
        CREATE TABLE t (a DOUBLE);
        INSERT INTO t VALUES (2), (3);
        """
    )
    assert run("SELECT area(a, 2), addd(1) FROM t ORDER BY a") == [[4.0, 11], [6.0, 11]]
    run("DROP TEMPORARY FUNCTION area; DROP TEMPORARY FUNCTION IF EXISTS addd;")
