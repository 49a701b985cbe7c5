"""Conditions that only evaluation decides: what is pruned beside them, counted, explained and changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bitlake
from bitlake.expressions.tree import And, Comparison, Computed, Op, Or, Predicate
from bitlake.snapshot.partitions import files_of_partitions
from bitlake.types import DataField
from bitlake.write.append_dml import delete_rows, update_rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])


@dataclass(frozen=True, slots=True)
class Even:
    """``id % 2 = 0``."""

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(("id",))

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        return Computed(self, negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        return pc.equal(pc.bit_wise_and(table.column("id"), 1), 0)

    def sql(self) -> str | None:
        return "id % 2 = 0"


EVEN = Computed(Even())
OPTIONS = {"file-index.bitmap.columns": "v", "file-index.range-bitmap.columns": "id"}


def filled(tmp_path: Path, options: dict[str, str] | None = None, partition_by: Sequence[str] = ()) -> bitlake.Table:
    """Three files of 100 rows; ids 0 to 299, seven values of ``v`` and two of ``p``."""
    lake = bitlake.connect(str(tmp_path / "lake"), record_scans=True)
    table = lake.create_table("t", SCHEMA, partition_by=partition_by, options=options or OPTIONS)
    for start in (0, 100, 200):
        ids = range(start, start + 100)
        new = {"id": list(ids), "v": [f"v{i % 7}" for i in ids], "p": [f"p{i % 2}" for i in ids]}
        table.append(pa.table(new, schema=SCHEMA))
    return table


def scan_of(table: bitlake.Table, predicate: Predicate) -> bitlake.Scan:
    return bitlake.Scan(table.scan()._core.where(predicate))


def ids_of(scan: bitlake.Scan) -> list[int]:
    return sorted(scan.to_arrow().column("id").to_pylist())


def test_a_scan_evaluates_it_and_prunes_by_what_stands_beside_it(tmp_path: Path) -> None:
    table = filled(tmp_path)
    alone = scan_of(table, EVEN)
    assert ids_of(alone) == list(range(0, 300, 2))
    assert alone.count() == 150 and alone.exists()
    assert alone.plan().metrics.files_read == 3
    beside = And((EVEN, Comparison("id", Op.LT, 20), Comparison("v", Op.EQ, "v3")))
    both = scan_of(table, beside)
    assert ids_of(both) == [10]
    assert ids_of(both.without_index()) == [10]
    assert both.count() == 1
    plan, plain = both.plan(), table.scan(where="id < 20 AND v = 'v3'").plan()
    assert plan.metrics.files_read == plain.metrics.files_read == 1
    assert plan.metrics.rows_chosen == plain.metrics.rows_chosen == 3  # 3, 10 and 17: the index chose them
    assert not plan.files[0].selection.exact
    either = Or((EVEN, Comparison("id", Op.LT, 20)))
    assert ids_of(scan_of(table, either)) == sorted({*range(20), *range(0, 300, 2)})
    assert ids_of(scan_of(table, Computed(Even(), True))) == list(range(1, 300, 2))


def test_it_is_limited_ordered_and_aggregated_exactly(tmp_path: Path) -> None:
    table = filled(tmp_path)
    scan = scan_of(table, EVEN)
    assert scan.limit(60).to_arrow().num_rows == 60
    assert scan.top_n([("id", "desc")], 2).to_arrow().column("id").to_pylist() == [298, 296]
    assert scan.min_max("id") == (0, 298)
    counts = scan.where("id < 20").group_count("p").to_pylist()
    assert counts == [{"p": "p0", "count": 10}]
    assert scan.select(["v"]).where("id > 290").to_arrow().column("v").to_pylist() == ["v5", "v0", "v2", "v4"]


def test_it_is_explained_recorded_and_advised_on(tmp_path: Path) -> None:
    table = filled(tmp_path)
    scan = scan_of(table, And((EVEN, Comparison("p", Op.EQ, "p0"))))
    scan.to_arrow()
    (record,) = table.indexes.scans()
    assert record.where == "id % 2 = 0 AND p = 'p0'"
    told = str(scan.explain(analyze=True))
    assert "id % 2 = 0" in told
    alone = scan_of(table, EVEN)
    assert "id % 2 = 0" in str(alone.explain(analyze=True)) and "id % 2 = 0" in str(alone.explain())
    assert alone.explanation(analyze=True).advice == ()
    steps = table.scan(where="v = 'v3' AND length(v) > 1").explanation().leaves
    assert [step.condition for step in steps] == ["v = 'v3'"]
    assert "id % 2 = 0" in repr(alone._core)


def test_advice_on_conditions_beside_it_is_given(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA)
    ids = range(60_000)
    rows = {"id": list(ids), "v": [f"v{i * 7919 % 20_011}" for i in ids], "p": ["p"] * len(ids)}
    table.append(pa.table(rows, schema=SCHEMA))
    asked = And((Comparison("v", Op.EQ, "v3"), EVEN))
    advice = table.indexes.advise([asked, EVEN], engine="python")  # type: ignore[list-item]
    assert {c.column for c in advice.columns} >= {"v"}


def test_rows_that_it_matches_are_deleted_and_updated(tmp_path: Path) -> None:
    for name, options in (("a", {}), ("d", {"deletion-vectors.enabled": "true"})):
        table = filled(tmp_path / name, options)
        core = table._core
        gone = core.scan_of(core.state(), None).where(And((EVEN, Comparison("id", Op.LT, 150))))
        assert delete_rows(gone, core.runner(), core.commit_rows) == 75
        assert ids_of(table.scan()) == [i for i in range(300) if i % 2 or i >= 150]
        changed = core.scan_of(core.state(), None).where(EVEN)
        assert update_rows(changed, {"v": "even"}, core.runner(), core.commit_rows) == 75
        assert table.scan(where="v = 'even'").count() == 75


def test_merged_rows_are_filtered_by_it(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("k", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for text in ("old", "new"):
        table.upsert(pa.table({"id": list(range(50)), "v": [text] * 50, "p": ["p"] * 50}, schema=SCHEMA))
    assert ids_of(scan_of(table, EVEN)) == list(range(0, 50, 2))
    assert scan_of(table, And((EVEN, Comparison("v", Op.EQ, "old")))).count() == 0
    assert scan_of(table, And((EVEN, Comparison("v", Op.EQ, "new")))).count() == 25


def test_partitions_are_chosen_by_evaluation(tmp_path: Path) -> None:
    """A LIKE with a wildcard first, of which statistics prove nothing, chose every partition."""
    table = filled(tmp_path, {}, ["p"])
    state = table._core.state()
    chosen = files_of_partitions(state, "p LIKE '%1'", "UTC")
    assert len(chosen) == 3 and len(state.entries()) == 6
    assert files_of_partitions(state, "p LIKE '%7'", "UTC") == []
    assert len(files_of_partitions(state, "p IS NOT NULL", "UTC")) == 6
    with pytest.raises(bitlake.errors.InvalidRequest, match="only partition columns"):
        files_of_partitions(state, "v LIKE '%1'", "UTC")


# --- as text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "files", "count"),
    [
        ("id + 1 > 290", 1, 10),
        ("id % 10 = 3", 3, 30),
        ("length(v) = 2 AND id < 20", 1, 20),
        ("upper(v) = 'V3' AND id >= 200", 1, 14),
        ("v = p", 0, 0),  # bounds do not tell
        ("substring(v, 2) = substring(p, 2)", 3, None),
        ("id / 2 = 100", 3, 1),
        ("CASE WHEN id < 150 THEN p ELSE v END = 'p1'", 3, 75),
    ],
)
def test_text_that_computes_is_evaluated_beside_pruning(
    tmp_path: Path, where: str, files: int, count: int | None
) -> None:
    table = filled(tmp_path)
    scan = table.scan(where=where)
    rows = scan.to_arrow()
    assert (
        rows.num_rows == scan.count() == scan.without_index().count() == table.scan(where=where).select(["p"]).count()
    )
    if count is not None:
        assert rows.num_rows == count
    if files:
        assert scan.plan().metrics.files_read == files
    assert rows.num_rows + table.scan(where=f"NOT ({where})").count() == 300


def test_a_function_of_a_partition_column_prunes_partitions(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    table = lake.create_table("d", schema, partition_by=["day"])
    days = [dt.date(2025, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 2, 1)]
    table.append(pa.table({"id": [1, 2, 3], "day": days}, schema=schema))
    scan = table.scan(where="year(day) = 2026")
    assert sorted(scan.to_arrow().column("id").to_pylist()) == [2, 3]
    assert scan.plan().metrics.files_read == 2
    assert len(files_of_partitions(table._core.state(), "month(day) = 1", "UTC")) == 1


def test_what_fails_names_table_and_expression(tmp_path: Path) -> None:
    table = filled(tmp_path)
    with pytest.raises(bitlake.EvaluationFailed, match=r"table 'default.t': \(10 / \(id - 7\)\): division by zero"):
        table.to_arrow(where="10 / (id - 7) > 1")
    with pytest.raises(bitlake.EvaluationFailed, match="table 'default.t'"):
        table.scan(where="10 / (id - 7) > 1").count()
    assert table.scan(where="id <> 7 AND 10 / (id - 7) > 1").count() == 9  # 8 to 16
    with pytest.raises(bitlake.EvaluationFailed):
        table.delete("10 / (id - 7) > 1")
    assert table.scan().count() == 300


def test_conditions_that_compute_delete_and_update(tmp_path: Path) -> None:
    table = filled(tmp_path)
    assert table.delete("id % 2 = 0 AND length(v) = 2") == 150
    assert table.update({"v": "x"}, "substring(p, 2) = '1' AND id + 1 < 100") == 49
    assert table.scan(where="v = 'x'").count() == 49


def test_the_log_keeps_text_that_advice_reads_again(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.scan(where="year(current_date()) > 2000 AND length(v) = 2 AND v = 'v3'").to_arrow()
    (record,) = table.indexes.scans()
    assert record.where == "length(v) = 2 AND v = 'v3'"
    assert {(t.column, t.op) for t in record.terms} == {("v", "computed"), ("v", "=")}
    advice = table.indexes.advise([record.where])
    assert "v" in {c.column for c in advice.columns}


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("hash(CAST(b AS TINYINT)) IS NOT NULL", 3),
        ("NOT (hash(b, CAST(b AS TINYINT)) IS NOT NULL)", 0),
        ("isnotnull(isnull(CAST(b AS TINYINT)))", 3),
        ("if(isnull(CAST(b AS TINYINT) <=> 1), 1, 2) = 2", 3),
    ],
)
def test_what_is_never_null_is_not_computed_to_tell_it(tmp_path: Path, condition: str, count: int) -> None:
    # As in Spark, whose optimizer leaves no cast that could fail.
    table = bitlake.connect(tmp_path).create_table("t", pa.table({"b": pa.array([1, 1000, None], pa.int32())}))
    assert table.count(condition) == count
