"""Every query that Paimon answered on primary-key tables and tables with deletion vectors, asked through ``scan``."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from answers import arrow_rows, expected_value, plain
from fixtures import answered, expected, warehouse
from long import every

import bitlake

DV = [n for n in sorted(expected()) if "_dv" in n]
TABLES = sorted({n for n in expected() if n.startswith("pk_")} | set(DV))
TRAVEL = "time_travel"
_QUERY = re.compile(
    r"^SELECT (?P<columns>.*?) FROM `?(?P<table>[\w$]+)`?(?: VERSION AS OF (?P<version>\S+))?"
    r"(?: WHERE (?P<where>.*?))?(?: ORDER BY (?P<order>.*?))?$"
)


@pytest.fixture(scope="module")
def lake() -> bitlake.Lake:
    return bitlake.connect(str(warehouse()))


@pytest.mark.parametrize(("name", "sql", "rows"), every(2, answered([*TABLES, TRAVEL])))
def test_scan_gives_paimons_rows(lake: bitlake.Lake, name: str, sql: str, rows: list[list[Any]]) -> None:
    match = _QUERY.match(sql)
    assert match is not None, sql
    table = lake.table(match["table"])
    where = match["where"]
    version = match["version"]
    moment = {} if version is None else {"tag": version[1:-1]} if "'" in version else {"snapshot": int(version)}
    wanted = [expected_value(r) for r in rows]
    if match["columns"] == "count(*)":
        assert [[table.scan(where=where).count()]] == wanted
        return
    if match["columns"] == "count(*),sum(amount)":
        scan = table.scan(columns=["amount"], where=where)
        total = plain(pc.sum(scan.to_arrow().column(0)).as_py())
        count, amount = wanted[0]
        assert scan.count() == count
        assert total == (amount if not isinstance(amount, float) else pytest.approx(amount))
        return
    columns = None if match["columns"] == "*" else [c.strip() for c in match["columns"].split(",")]
    scan = table.scan(columns=columns, where=where, **moment)
    found = arrow_rows(scan.to_arrow())
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert scan.count() == len(wanted)
    unpruned = arrow_rows(scan.without_index().to_arrow())
    assert sorted(unpruned, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("name", every(2, TABLES))
def test_limits_orders_and_answers_agree_with_the_rows(lake: bitlake.Lake, name: str) -> None:
    table = lake.table(name)
    every = table.scan().to_arrow().sort_by("order_id")
    ids = every.column("order_id").combine_chunks()
    assert table.scan(limit=7).to_arrow().num_rows == min(7, len(ids))
    top = table.scan(columns=["order_id", "status"]).top_n([("order_id", "desc")], 5).to_arrow()
    assert top.column(0).to_pylist() == ids.to_pylist()[::-1][:5]
    assert table.scan().min_max("order_id") == (ids[0].as_py(), ids[-1].as_py())
    assert table.scan().count_distinct("status") == len(every.column("status").drop_null().unique())
    assert table.scan().count("status") == len(ids) - every.column("status").null_count
    counted = table.scan().group_count("status")
    assert pc.sum(counted.column("count")).as_py() == len(ids)
    for value in (ids[0].as_py(), ids[len(ids) // 2].as_py(), -1):
        found = table.scan(where=f"order_id = {value}").to_arrow()
        assert found.equals(every.filter(pc.equal(every.column("order_id"), value)).cast(found.schema)) or value == -1


@pytest.mark.parametrize("name", DV)
def test_explain_names_the_vectors(lake: bitlake.Lake, name: str) -> None:
    scan = lake.table(name).scan()
    plan = scan.plan()
    deleted = [f for f in plan.files if f.deleted]
    assert all(f.chosen_rows == f.row_count - f.deleted for f in deleted)
    text = scan.explain()
    assert ("deletion vector" in text) == bool(deleted or "deletion vector" in plan.metrics.files_skipped)


def test_indexes_prune_tables_with_vectors(lake: bitlake.Lake) -> None:
    plan = lake.table("append_dv").scan(where="status = 'S1'").plan()
    assert any(f.deleted and "bitmap(status)" in f.pruned_by and f.selection.exact for f in plan.files)
    assert plan.chosen_rows == lake.table("append_dv").scan(where="status = 'S1'").count()


def test_metadata_columns_of_merged_rows(lake: bitlake.Lake) -> None:
    rows = lake.table("pk_mor").scan(columns=["order_id", "__paimon_bucket", "__paimon_row_index"]).to_arrow()
    assert set(rows.column(1).to_pylist()) == {0, 1}
    assert pa.types.is_int64(rows.column(2).type)
