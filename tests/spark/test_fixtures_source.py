"""Tables that Paimon wrote through the data source: the view that USING makes of them answers as Paimon answered.

Here one of each kind; ``make versions`` takes every table.
"""

from __future__ import annotations

from typing import Any

import pytest
from answers import check_sql
from fixtures import asks_everything, expected, warehouse
from long import some

pytestmark = pytest.mark.spark
KINDS = (
    "append_plain nested_types partitioned append_bucketed bucket_key_date map_key_index every_index_embedded "
    "schema_evolution append_dv pk_mor pk_dv pk_avro pk_orc_dv pk_partial_update"
)


class _Views:
    """``sql`` is the session's own, over a temporary view of the asked table."""

    def __init__(self, spark: Any, name: str) -> None:
        self.sql = spark.sql
        options = f"path '{warehouse() / 'default.db' / name}'"
        if name.startswith("bucket_key_"):
            options += ", columns 'id, k, __paimon_bucket'"  # Paimon was asked for the rows' buckets
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING bitlake OPTIONS ({options})")


@pytest.mark.parametrize("name", sorted(expected()) if asks_everything() else some(KINDS.split(), *KINDS.split()[1::3]))
def test_the_source_gives_paimons_rows(spark: Any, name: str) -> None:
    """One query of each table, of all rows where Paimon was asked for them, of chosen ones elsewhere."""
    queries = expected()[name]
    asked = next((q for q in queries if "*" in q["sql"] and "count" not in q["sql"]), queries[-1])
    check_sql(_Views(spark, name), [asked])
    spark.catalog.dropTempView(name)
