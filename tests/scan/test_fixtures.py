"""Every query that Paimon answered on its append tables, asked through ``scan``: same rows, and only what is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from answers import arrow_rows, expected_value
from fixtures import answered, warehouse
from long import every

import bitlake
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import Comparison, Op
from bitlake.scan.plan import SkipReason
from bitlake.types.arrow import physical_values

INDEXED = ["bloom_filter", "bitmap_v1", "bitmap_v2", "bitmap_v2_small_blocks"]
LATER_INDEXES = ["range_bitmap", "range_bitmap_small_chunks", "bsi", "every_index_embedded", "map_key_index"]
BUCKET_KEYS = [f"bucket_key_{t}" for t in "int bigint string date dec ts double bool tiny bin".split()]
TABLES = [
    *INDEXED,
    "append_plain",
    "nested_types",
    "partitioned",
    "append_bucketed",
    *BUCKET_KEYS,
    *LATER_INDEXES,
    "schema_evolution",
]

_QUERY = re.compile(
    r"^SELECT (?P<columns>.*?) FROM (?P<table>\w+)(?: WHERE (?P<where>.*?))?(?: GROUP BY .*?)?"
    r"(?: ORDER BY (?P<order>.*?))?(?: LIMIT (?P<limit>\d+))?$"
)
# What a scan does not do by itself: aggregates, and access into structs and maps.
_NOT_A_SCAN = re.compile(r"count\(|sum\(|GROUP BY|st\.x|m\[")


@pytest.fixture(scope="module")
def lake() -> bitlake.Lake:
    return bitlake.connect(str(warehouse()))


@pytest.mark.parametrize(("name", "sql", "rows"), every(2, answered(TABLES)))
def test_scan_gives_paimonsarrow_rows(lake: bitlake.Lake, name: str, sql: str, rows: list[list[Any]]) -> None:
    match = _QUERY.match(sql)
    assert match is not None, sql
    table = lake.table(name)
    where = match["where"]
    if "count(*)" in match["columns"] and "GROUP BY" not in sql:
        assert table.scan(where=where).count() == rows[0][0]
        return
    if _NOT_A_SCAN.search(sql):
        pytest.skip("not a plain scan; asked through SQL in tests/spark")
    columns = None if match["columns"] == "*" else [c.strip() for c in match["columns"].split(",")]
    found = arrow_rows(table.scan(columns=columns, where=where).to_arrow())
    wanted = [expected_value(r) for r in rows]
    if match["limit"]:
        assert all(row in found for row in wanted)
    else:
        assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("where", ["c_str = 'login'", "c_str IN ('login', 'PENDING')", "c_int = -7 AND c_bool = true"])
def test_bitmap_plans_choose_exactly_the_matchingarrow_rows(lake: bitlake.Lake, name: str, where: str) -> None:
    table = lake.table(name)
    plan = table.scan(where=where).plan()
    fields = table.schema.fields
    bound = bind(parse_predicate(where), fields)
    rows = 0
    for file in plan.files:
        data = pa.parquet.read_table(file.path, partitioning=None)
        brute = evaluate(bound, data, fields).fill_null(False).to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        assert brute, f"{file.path} holds no match and should not be opened"
        if name != "bloom_filter":
            assert file.selection.exact
            assert file.selection.positions(file.row_count).tolist() == brute
        rows += len(brute)
    for gone in plan.skipped:
        data = pa.parquet.read_table(gone.path, partitioning=None)
        assert not pa.compute.any(evaluate(bound, data, fields)).as_py()
    assert rows == table.scan(where=where).count() > 0


@pytest.mark.parametrize("name", INDEXED)
def test_a_value_nowhere_opens_no_file(lake: bitlake.Lake, name: str) -> None:
    scan = lake.table(name).scan(where="c_str = 'logim'")
    plan = scan.plan()
    assert plan.files == ()
    assert {s.reason for s in plan.skipped} <= {SkipReason.INDEX, SkipReason.STATS}
    assert any(s.reason is SkipReason.INDEX for s in plan.skipped)
    assert scan.to_arrow().num_rows == 0
    assert plan.metrics.data_bytes_read == 0


@pytest.mark.parametrize("name", LATER_INDEXES)
def test_tables_with_every_index_read_the_same_without_indexes(lake: bitlake.Lake, name: str) -> None:
    where = "id < 20" if name == "map_key_index" else "c_big < 0"
    scan = lake.table(name).scan(where=where)
    assert arrow_rows(scan.to_arrow()) == arrow_rows(scan.without_index().to_arrow())


@pytest.mark.parametrize("name", BUCKET_KEYS)
def test_equality_on_the_bucket_key_reads_one_bucket(lake: bitlake.Lake, name: str) -> None:
    table = lake.table(name)
    value = table.scan(columns=["k"], where="k IS NOT NULL", limit=1).to_arrow().column("k")[0]
    physical = physical_values(pa.array([value]))[0]
    where = to_sql(Comparison("k", Op.EQ, physical), table.schema.fields)
    plan = table.scan(where=where).plan()
    assert len({f.entry.bucket for f in plan.files}) == 1
    assert len(plan.files) < plan.metrics.files
    assert table.scan(where=where).count() > 0


def test_partitions_are_pruned_by_value(lake: bitlake.Lake) -> None:
    plan = lake.table("partitioned").scan(where="region = 'a/b=c' AND hr = 1").plan()
    assert plan.metrics.files_skipped == {"partition": plan.metrics.files - len(plan.files)}
    assert all(f.partition[1:] == (1, "a/b=c") for f in plan.files)


def test_copying_is_not_needed_to_read(tmp_path: Path) -> None:
    before = sorted(p.name for p in (warehouse() / "default.db" / "append_plain").rglob("*"))
    bitlake.connect(str(warehouse())).table("append_plain").scan().count()
    assert sorted(p.name for p in (warehouse() / "default.db" / "append_plain").rglob("*")) == before
