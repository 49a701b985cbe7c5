"""Every query that Paimon answered on primary-key tables and on tables with deletion vectors, through ``lake.sql``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from answers import arrow_rows, check_sql, rows_of
from fixtures import asks_everything, expected, warehouse
from long import every, long

import bitlake
from bitlake.spark.read import scan as spark_scan

TABLES = sorted(n for n in expected() if n.startswith("pk_") or "_dv" in n) + ["time_travel"]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: Any) -> bitlake.Lake:
    return bitlake.connect(str(warehouse()), spark=spark)


@pytest.mark.parametrize("name", every(3, TABLES))
@pytest.mark.parametrize("step", [1] if asks_everything() else [2, long(1)])
def test_sql_gives_paimons_rows(lake: bitlake.Lake, name: str, step: int) -> None:
    """Each query of a table, or each second one; ``tests/mergetree/test_fixtures.py`` asks all without Spark."""
    check_sql(lake, expected()[name][TABLES.index(name) % step :: step] or expected()[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["pk_mor", "pk_dv", "append_dv_bitmap64", "pk_orc_dv", "pk_aggregation"])
def test_executors_read_the_same_as_the_driver(lake: bitlake.Lake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", -1)
    scan = lake.table(name).scan()
    choice = spark_scan.choose(scan.plan())
    assert not choice.driver
    assert all(f.whole for f in choice.native)
    by_filter = {f.path for f in choice.masked}
    assert by_filter <= {f.path for f in scan.plan().files if f.deleted}
    others = {f.path for f in choice.selective}
    assert by_filter | others >= {f.path for f in scan.plan().files if f.deleted or f.merge}
    found = rows_of(replace(scan._core, _planned=[]).to_spark())
    assert sorted(found, key=repr) == sorted(arrow_rows(scan.to_arrow()), key=repr)
    check_sql(lake, expected()[name])
