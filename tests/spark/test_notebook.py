"""Results of statements in a notebook: rows that are here are shown; queries are Spark's, which a setting decides."""

from __future__ import annotations

from typing import Any

import pytest

import bitlake

pytestmark = pytest.mark.spark


def test_results_of_statements_are_shown_escaped(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, v STRING) COMMENT '<b>'")
    lake.sql("INSERT INTO t VALUES (1, '<i>x</i>')")
    frame: Any = lake.sql("CALL sys.rewrite_file_index('t')")
    assert "<th" in frame._repr_html_() and "index_bytes" in frame._repr_html_()
    held: Any = lake.sql("SHOW CREATE TABLE t")
    assert "&lt;b&gt;" in held._repr_html_() and "<b>" not in held._repr_html_()


def test_queries_follow_sparks_setting(lake: bitlake.Lake, spark: Any) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, v STRING)")
    lake.sql("INSERT INTO t SELECT id, '<i>x</i>' FROM range(3)")
    frame: Any = lake.sql("SELECT length(v) AS n, v FROM t GROUP BY v")
    assert frame._repr_html_() is None
    spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")
    try:
        assert "&lt;i&gt;x&lt;/i&gt;" in frame._repr_html_()
    finally:
        spark.conf.unset("spark.sql.repl.eagerEval.enabled")
