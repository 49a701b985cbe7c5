"""ORDER BY … LIMIT n through bounds, range-bitmaps and late columns, against sorting everything."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import EVERY_TYPE, every_type
from hypothesis import given, settings
from hypothesis import strategies as hs
from long import exhaustive, long
from topn_model import SCHEMA, keyed, orders, row_values, sorted_rows

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.scan import sort_order
from bitlake.scan.plan import SkipReason
from bitlake.scan.sort_order import Order

INDEXED = {"file-index.range-bitmap.columns": "i,f,s,flag", "file-index.bitmap.columns": "grp"}
CONDITIONS = {
    None: lambda r: True,
    "grp = 'x'": lambda r: r["grp"] == "x",
    "grp <> 'x'": lambda r: r["grp"] not in ("x", None),
    "i >= 0": lambda r: r["i"] is not None and r["i"] >= 0,
    "d > 0 AND grp IS NOT NULL": lambda r: r["d"] is not None and r["d"] > 0 and r["grp"] is not None,
}


@pytest.mark.parametrize("examples", [6, exhaustive(15), long(40)])
def test_top_n_is_sorting_everything(tmp_path_factory: Any, examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=hs.data())
    def run(data: Any) -> None:
        sort_everything(tmp_path_factory, data)

    run()


def sort_everything(tmp_path_factory: Any, data: Any) -> None:
    files = data.draw(hs.lists(hs.lists(row_values(), min_size=1, max_size=12), min_size=1, max_size=4))
    order = data.draw(orders())
    n = data.draw(hs.integers(0, 8))
    condition = data.draw(hs.sampled_from(list(CONDITIONS)))
    options = data.draw(hs.sampled_from([{}, INDEXED]))
    by = data.draw(hs.sampled_from([[], ["grp"], ["i"]]))
    if by:
        options = {}
    folder = tmp_path_factory.mktemp("lake")
    try:
        table = bitlake.connect(str(folder)).create_table("t", SCHEMA, options=options, partition_by=by)
        rows = []
        for file in files:
            new = [{"id": len(rows) + i, **r} for i, r in enumerate(file)]
            table.append(pa.Table.from_pylist(new, SCHEMA))
            rows += new
        scan = table.scan() if condition is None else table.scan(where=condition)
        columns = data.draw(hs.sampled_from([["id"], [*SCHEMA.names], ["s", "id", "__paimon_row_index"]]))
        found = scan.select(columns).top_n(order, n)
        got = found.to_arrow()
        by_id = {r["id"]: r for r in rows}
        wanted = sorted_rows([r for r in rows if CONDITIONS[condition](r)], order)[:n]
        told = [by_id[i] for i in got.column("id").to_pylist()]
        assert got.column_names == columns
        assert keyed(told, order) == keyed(wanted, order)
        assert len({r["id"] for r in told}) == len(told)
        assert all(CONDITIONS[condition](r) for r in told)
        assert found.count() == len(wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def numbers(lake: bitlake.Lake, files: int, options: dict[str, str] | None = None) -> bitlake.Table:
    rows = pa.table({"k": pa.array(range(1000)), "grp": pa.array([f"g{i % 10}" for i in range(1000)])})
    table = lake.create_table("t", rows.schema, options=options)
    for i in range(files):
        table.append(pa.table({"k": pa.array(range(i, 1000 * files, files)), "grp": rows.column("grp")}))
    return table


def test_statistics_prune_files_that_are_worse(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("k", pa.int64())]))
    for i in (3, 1, 4, 0, 2):
        table.append(pa.table({"k": pa.array(range(100 * i, 100 * i + 100))}))
    scan = table.scan().top_n([("k", "desc")], 5)
    assert scan.to_arrow().column("k").to_pylist() == [499, 498, 497, 496, 495]
    plan = scan.plan()
    assert len(plan.files) == 1 and {s.reason for s in plan.skipped} == {SkipReason.TOP_N}
    assert "top n" in scan.explain() and "order by   k DESC" in scan.explain()
    assert len(table.scan().top_n(["k"], 150).plan().files) == 2


def test_range_bitmaps_leave_exactly_the_rows(lake: bitlake.Lake) -> None:
    table = numbers(lake, 4, {"file-index.range-bitmap.columns": "k", "file-index.bitmap.columns": "grp"})
    scan = table.scan().top_n([("k", "desc")], 6)
    assert scan.plan().chosen_rows == 6
    assert scan.to_arrow().column("k").to_pylist() == [3999, 3998, 3997, 3996, 3995, 3994]
    assert scan.plan().metrics.rows_read == 6
    filtered = table.scan(where="grp = 'g3'").top_n(["k"], 3)
    assert filtered.plan().chosen_rows == 3
    assert filtered.to_arrow().column("k").to_pylist() == [12, 13, 14]
    # An inexact filter promises nothing: the index leaves the rows to the filter.
    late = table.scan(where="k >= 17 AND grp LIKE '%_3'").top_n(["k"], 2)
    assert late.to_arrow().column("k").to_pylist() == [52, 53]


def test_the_nth_best_row_prunes_later_files(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("k", pa.float64())]))  # NaN: float bounds promise no smallest value
    for i in range(4):
        table.append(pa.table({"k": pa.array([float(100 * i + j) for j in range(100)])}))
    scan = table.scan().top_n(["k"], 3)
    assert scan.to_arrow().column("k").to_pylist() == [0.0, 1.0, 2.0]
    assert len(scan.plan().files) == 4 and scan.plan().metrics.rows_read == 100


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(38, 2)], ids=str)
@pytest.mark.parametrize("direction", ["asc", "asc nulls last", "desc", "desc nulls first"])
def test_few_first_texts_are_found_without_ranking_all(
    kind: pa.DataType, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All texts of a file were sorted for its first ten, and for its smallest and largest: 70 ms for 100,000."""
    ranked: list[int] = []
    numbers = sort_order._numbers

    def count(array: pa.Array) -> Any:
        ranked.append(len(array))
        return numbers(array)

    texts = [f"{n * 7919 % 1009:04}" if n % 11 else None for n in range(1000)]
    values = pa.array([None if t is None else Decimal(t) for t in texts] if pa.types.is_decimal(kind) else texts, kind)
    column = pa.chunked_array([values.slice(0, 3), values.slice(3, 500), values.slice(503)])
    table = pa.table({"value": column, "row": range(1000)})
    descending, nulls_first = direction.startswith("desc"), direction in ("asc", "desc nulls first")
    order = [Order("value", descending, nulls_first), Order("row", True, False)]
    first = table.to_pylist()[::-1]
    known = [r for r in first if r["value"] is not None]
    known.sort(key=lambda r: r["value"], reverse=descending)
    nulls = [r for r in first if r["value"] is None]
    monkeypatch.setattr(sort_order, "_numbers", count)
    for n in (1, 10, 200):
        ranked.clear()
        expected = (nulls + known if nulls_first else known + nulls)[:n]
        assert table.take(pa.array(sort_order.best_rows(table, order, n))).to_pylist() == expected
        assert max(ranked) <= n + len(nulls) + 2


def test_every_type_can_be_ordered_by_or_is_refused(lake: bitlake.Lake) -> None:
    rows = every_type()
    table = lake.create_table("t", rows.schema)
    table.append(rows)
    for field in EVERY_TYPE:
        if pa.types.is_nested(field.type):
            with pytest.raises(InvalidRequest, match="no order"):
                table.scan().top_n([field.name], 1)
            continue
        got = table.scan([field.name]).top_n([(field.name, "asc", "last")], 2).to_arrow().column(0)
        whole = table.scan([field.name]).top_n([(field.name, "asc", "last")], 9).to_arrow().column(0)
        assert got.to_pylist() == whole.slice(0, 2).to_pylist() and whole[3].as_py() is None


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_null_structs_with_not_null_members(lake: bitlake.Lake, file_format: str) -> None:
    """A raw ArrowInvalid came for a NULL struct whose type has NOT NULL members: Arrow refuses to cast it to itself."""
    struct = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    values = [None if i % 3 == 0 else {"a": i, "b": str(i)} for i in range(60)]
    lists = [None if i % 4 == 0 else [None, {"a": i, "b": None}] for i in range(60)]
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", struct), ("l", pa.list_(struct))])
    rows = pa.table({"k": range(60), "s": values, "l": lists}, schema)
    for keys, options in (((), {}), (("k",), {"bucket": "1"})):
        made = {"file.format": file_format, **options}
        table = lake.create_table(f"t{len(keys)}", schema, primary_key=keys, options=made)
        table.upsert(rows) if keys else table.append(rows)
        for n in (5, 60):
            top = table.scan().top_n([("k", "desc")], n).to_arrow()
            assert top.to_pylist() == rows.to_pylist()[::-1][:n]
    table.upsert(rows.slice(0, 9).set_column(1, "s", pa.array(values[1:10], struct)))
    changed = table.changes(1, 2, mode="diff", kinds=True).to_arrow()
    assert sorted(changed.column("s").to_pylist(), key=str) == sorted(values[1:10], key=str)


def test_wrong_orders(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    with pytest.raises(NotFound):
        table.scan().top_n(["nope"], 1)
    with pytest.raises(InvalidRequest, match="asc"):
        table.scan().top_n([("i", "up")], 1)
    with pytest.raises(InvalidRequest, match="at least one"):
        table.scan().top_n([], 1)
    with pytest.raises(InvalidRequest, match="negative"):
        table.scan().top_n(["i"], -1)
    assert table.scan().top_n(["i"], 3).to_arrow().num_rows == 0


def test_columns_that_changed(lake: bitlake.Lake) -> None:
    """A widened column's bounds and indexes are left alone; one that a file lacks is NULL."""
    table = lake.create_table("t", pa.schema([("k", pa.int32())]), options={"file-index.range-bitmap.columns": "k"})
    table.append(pa.table({"k": pa.array([5, 1, 9], pa.int32())}))
    table.alter_column("k", type="BIGINT")
    table.add_column("new", "INT")
    table.append(pa.table({"k": pa.array([2**40, 2], pa.int64()), "new": pa.array([7, None], pa.int32())}))
    top = table.scan().top_n([("k", "desc")], 3)
    assert top.to_arrow().column("k").to_pylist() == [2**40, 9, 5]
    assert table.scan(["k"]).top_n([("new", "desc"), "k"], 3).to_arrow().column("k").to_pylist() == [2**40, 1, 2]
    assert table.scan(["k"]).top_n(["new", "k"], 2).to_arrow().column("k").to_pylist() == [1, 2]
    assert table.scan().count("new") == 1 and table.scan().min_max("k") == (1, 2**40)


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_column_that_only_newer_merged_files_have(lake: bitlake.Lake, direction: str) -> None:
    """The oldest of the merged files lacks the column, which said that all merged rows were NULL."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = lake.create_table("t", schema, primary_key=["id"], options={"bucket": "2"})
    table.upsert(pa.table({"id": [1, 2, 3, 4, 5, 6]}))
    table.add_column("v", "INT")
    table.upsert(pa.table({"id": [1, 2], "v": pa.array([7, 3], pa.int32())}))
    table.upsert(pa.table({"id": [3, 4, 5, 6], "v": pa.array([1, 9, 4, 5], pa.int32())}))
    values = table.scan(["v"]).top_n([("v", direction, "last")], 2).to_arrow().column("v").to_pylist()
    assert values == ([1, 3] if direction == "asc" else [9, 7])
