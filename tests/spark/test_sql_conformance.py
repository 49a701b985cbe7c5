"""A slice of ``make sql-conformance``: random queries answer as plain Spark answers over the same rows as Parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from generated import Both, compare

pytestmark = pytest.mark.spark
STATEMENTS = 20


def test_random_queries_answer_as_spark_does(spark: Any, tmp_path: Path) -> None:
    if getattr(spark, "_jsparkSession", None) is None:
        pytest.skip("the two sessions that are compared share a JVM")
    both = Both(spark, str(tmp_path))
    try:
        ran, refused, differ = compare(both, range(1, STATEMENTS + 1), 600)
    finally:
        both.close()
    assert ran == STATEMENTS
    assert refused <= STATEMENTS // 5
    assert [statement.text for _, statement, _, _ in differ] == []
