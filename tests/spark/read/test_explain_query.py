"""Queries explained: each lake table's scan in detail, and Spark's plan."""

from __future__ import annotations

import json

import pytest
from builders import events

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature

pytestmark = pytest.mark.spark


def test_a_query_is_explained_table_by_table(lake: bitlake.Lake) -> None:
    for name in ("a", "b"):
        options = {"file-index.bitmap.columns": "status"}
        lake.create_table(name, events().schema, options=options).append(events(500))
    query = "SELECT a.id FROM a JOIN b ON a.id = b.id WHERE a.status = 'S1' AND b.id >= 9000"
    told = lake.explanation(query, analyze=True)
    first, second = told.scans
    assert first.plan.table.endswith("a") and first.leaves[0].rows_after == 125
    assert second.plan.files == () and second.steps[-1].bytes == 0
    assert "Physical Plan" in told.spark and "Physical Plan" in lake.explain(query)
    made = json.loads(lake.explain(query, "json"))
    assert [s["files"]["total"] for s in made["scans"]] == [1, 1] and made["query"] == query
    html = lake.explain(f"EXPLAIN {query}", "html", analyze=True)
    assert html.count("<h1>Scan of ") == 2 and "Physical Plan" in html
    # The rows are the query's own: nothing was changed by explaining.
    assert lake.sql(query).count() == 0
    with pytest.raises(UnsupportedFeature, match="EXPLAIN takes a query, DELETE"):
        lake.explain("DROP TABLE a")
    with pytest.raises(InvalidRequest, match="yaml"):
        lake.explain(query, "yaml")
