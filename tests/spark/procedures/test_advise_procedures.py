"""CALL sys.advise: a sample looked at by executors, and statements that run as they are printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.spark.read import scan as spark_scan
from bitlake.tools.advise import estimate

pytestmark = pytest.mark.spark


def test_advice_by_executors_is_that_of_this_process_and_its_statements_run(lake: Any) -> None:
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "id": random.integers(0, 50_000, 250_000),
            "note": [random.bytes(16).hex() for _ in range(250_000)],
        }
    )
    name = "notes"
    table = lake.create_table(name, rows.schema)
    table.append(rows.slice(0, 125_000))
    table.append(rows.slice(125_000))
    asked = f"SELECT * FROM {name} WHERE id = 17; SELECT id FROM {name} WHERE id IN (1, 2, 3)"
    found = lake.sql(f"CALL sys.advise(table => '{name}', queries => '{asked}')").collect()
    here = lake.advise(name, [asked])
    by_subject = {r.subject: r for r in found}
    advised = next(c for c in here.columns if c.column == "id")
    assert advised.chosen is not None
    row = by_subject["id"]
    assert (row.advice, row.index_bytes) == (advised.index, advised.chosen.index_bytes)
    assert row.bytes_after < row.bytes_before
    assert by_subject["note"].reason == "no query asks about it"
    statements = [r.statement for r in found if r.subject == "statement"]
    assert statements == here.statements()
    measured = here.apply(lake.sql).measured
    assert measured is not None and measured.indexes[0].bytes == pytest.approx(row.index_bytes, rel=0.05)
    assert measured.saved > 0


@pytest.mark.exhaustive
def test_a_call_applies_what_it_advises_and_measures_it(lake: Any) -> None:
    """As a person would: the statements that are printed are run, and what they brought stands beside the estimates."""
    random = np.random.default_rng(4)
    rows = pa.table({"id": random.permutation(150_000), "note": [random.bytes(24).hex() for _ in range(150_000)]})
    lake.create_table("applied", rows.schema).append(rows)
    call = "CALL sys.advise(table => 'applied', queries => 'SELECT * FROM applied WHERE id = 17'"
    before = {r.subject: r for r in lake.sql(f"{call})").collect()}
    assert "measured" not in before and before["id"].real_index_bytes is None
    assert not any("file-index" in k for k in lake.table("applied").schema.options), "nothing was changed"
    after = {r.subject: r for r in lake.sql(f"{call}, apply => true)").collect()}
    assert after["id"].index_bytes == before["id"].index_bytes
    assert after["id"].real_index_bytes == pytest.approx(after["id"].index_bytes, rel=0.1)
    for row in (after["id"], after["measured"]):
        assert (
            row.bytes_before - row.bytes_after
            < 2 * (row.real_bytes_before - row.real_bytes_after)
            < 4 * row.bytes_before
        )
    assert after["measured"].real_build_seconds > 0
    assert lake.table("applied").schema.options[f"file-index.{after['id'].advice}.columns"] == "id"
    assert lake.sql("SELECT note FROM applied WHERE id = 17").count() == 1
    again = {r.subject: r for r in lake.sql(f"{call})").collect()}
    assert again["id"].advice == "keep" and "statement" not in again


def test_where_spark_reads_is_decided_as_the_engine_decides_it() -> None:
    """The advisor weighs with the thresholds of the reader on Spark."""
    assert estimate.SELECTIVE_SHARE == spark_scan.SELECTIVE_SHARE
    assert estimate.DRIVER_ROWS == spark_scan.DRIVER_ROWS
    assert estimate.WHOLE_DRIVER_BYTES == spark_scan.WHOLE_DRIVER_BYTES == spark_scan.DRIVER_BYTES // 8
