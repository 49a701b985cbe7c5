"""Every query that Paimon's Spark connector answered on its append tables, asked through ``lake.sql``."""

from __future__ import annotations

from typing import Any

import pytest
from answers import check_sql
from fixtures import expected, warehouse

import bitlake

TABLES = [
    "append_plain",
    "bloom_filter",
    "bitmap_v1",
    "bitmap_v2",
    "bitmap_v2_small_blocks",
    "nested_types",
    "partitioned",
    "append_bucketed",
    "range_bitmap",
    "range_bitmap_small_chunks",
    "bsi",
    "every_index_embedded",
    "map_key_index",
    "schema_evolution",
    *[f"bucket_key_{t}" for t in "int bigint string date dec ts double bool tiny bin".split()],
]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: Any) -> bitlake.Lake:
    return bitlake.connect(str(warehouse()), spark=spark)


@pytest.mark.parametrize("name", TABLES)
def test_sql_gives_paimons_rows(lake: bitlake.Lake, name: str) -> None:
    check_sql(lake, expected()[name])
