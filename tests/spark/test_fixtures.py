"""Every query that Paimon's Spark connector answered on its append tables, asked through ``lake.sql``.

The tables with an index have the same queries: here each is asked some of them, by ``make versions`` all.  That every
table answers every query without Spark is shown by ``tests/scan/test_fixtures.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from answers import check_sql
from fixtures import asks_everything, expected, warehouse
from long import some

import bitlake

INDEXED = [
    "bloom_filter",
    "bitmap_v1",
    "bitmap_v2",
    "bitmap_v2_small_blocks",
    "range_bitmap",
    "range_bitmap_small_chunks",
    "bsi",
    "every_index_embedded",
]
TABLES = [
    "append_plain",
    *INDEXED,
    "nested_types",
    "partitioned",
    "append_bucketed",
    "map_key_index",
    "schema_evolution",
    *[f"bucket_key_{t}" for t in "int bigint string date dec ts double bool tiny bin".split()],
]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: Any) -> bitlake.Lake:
    return bitlake.connect(str(warehouse()), spark=spark)


@pytest.mark.parametrize("name", some(TABLES, *TABLES[1::3]))
def test_sql_gives_paimons_rows(lake: bitlake.Lake, name: str) -> None:
    queries = expected()[name]
    if name in INDEXED and not asks_everything():
        queries = queries[INDEXED.index(name) % 4 :: 4]
    check_sql(lake, queries)
