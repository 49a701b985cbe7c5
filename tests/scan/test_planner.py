"""The steps of planning account for every file, and the plan's totals are sums over their results."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixtures import warehouse

import bitlake
from bitlake.codec.bucket import bucket_of
from bitlake.errors import UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, Op, Predicate
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.scan.plan import Plan, PlanStep, ScanMetrics, StepName
from bitlake.scan.planner import BucketFilter
from bitlake.snapshot.partitions import FilesToPlan
from bitlake.types import parse_type


def scan_of(name: str, where: str | None = None) -> bitlake.Scan:
    table = bitlake.connect(str(warehouse())).table(name)
    return table.scan() if where is None else table.scan(where=where)


def read_files(plan: Plan) -> list[str]:
    """The names of the data files that a plan reads, merged ones too."""
    members = [m for f in plan.files for m in ((f,) if f.merge is None else f.merge.files)]
    return [f.entry.file.file_name for f in members]


SCANS = [
    ("append_bucketed", "order_id = 7"),
    ("append_bucketed", "status = 'no such'"),
    ("append_dv", "order_id > 3"),
    ("pk_mor", "order_id = 1"),
    ("pk_mor", "status = 'A1'"),
    ("pk_dv", "order_id < 10"),
    ("pk_dv", None),
]


@pytest.mark.parametrize(("name", "where"), SCANS)
@pytest.mark.parametrize("limit", [None, 2])
def test_every_file_is_kept_or_skipped_by_one_step(name: str, where: str | None, limit: int | None) -> None:
    scan = scan_of(name, where)
    plan = (scan if limit is None else scan.limit(limit)).plan()
    live = [e.file.file_name for e in scan._core.state.entries()]
    skipped = [f.entry.file.file_name for s in plan.steps for f in s.skipped]
    merged = Counter(live) - Counter(skipped) - Counter(read_files(plan))
    assert not merged or limit is not None  # files of a merged section that the limit skips are listed as one
    assert Counter(skipped) + Counter(read_files(plan)) <= Counter(live)
    assert list(plan.skipped) == [f for s in plan.steps for f in s.skipped]


@pytest.mark.parametrize(("name", "where"), SCANS)
def test_metrics_are_sums_over_the_steps(name: str, where: str | None) -> None:
    plan = scan_of(name, where).plan()
    files: Counter[str] = Counter()
    sizes = 0
    for step in plan.steps:
        files.update({reason.value: n for reason, n in step.skipped_files().items()})
        sizes += sum(step.skipped_bytes().values())
        assert step.skipped_files() == Counter(f.reason for f in step.skipped)
        assert sum(step.skipped_bytes().values()) == sum(f.size for f in step.skipped)
    assert plan.metrics.files_skipped == files
    assert plan.metrics.data_bytes == sizes + sum(f.entry.file.file_size for f in plan.files)
    assert plan.metrics.index_bytes_read == sum(s.index_bytes for s in plan.steps)


def test_a_step_keeps_what_the_next_one_is_given() -> None:
    """Steps return new values: what a step kept still holds after the later ones have narrowed it."""
    plan = scan_of("append_dv").plan()
    first, vectors = plan.steps
    assert (first.name, vectors.name) == (StepName.METADATA, StepName.VECTORS)
    assert all(f.whole and not f.deleted for f in first.kept)
    assert sum(f.deleted for f in vectors.kept) > 0
    assert tuple(vectors.kept) == plan.files


def test_sections_that_are_read_whole_are_not_listed_as_skipped() -> None:
    """Positions of merged rows need whole sections; such a plan once listed 11 of 8 files, three of them twice."""
    scan = scan_of("pk_mor", "order_id = 1").select(["order_id", "__paimon_row_index"])
    plan = scan.plan()
    assert plan.metrics.files == len(scan._core.state.entries())
    assert not {f.entry.file.file_name for f in plan.skipped} & set(read_files(plan))


def test_metrics_count_from_zero() -> None:
    assert not any(ScanMetrics().as_dict().values())
    step = PlanStep(StepName.PAGES, ())
    assert not any((step.skipped, step.problems, step.unreadable, step.index_bytes, step.index_files, step.ms))
    every = FilesToPlan(())
    assert (every.unseen, every.manifests, every.manifests_read) == (0, 0, 0)


def test_each_counter_of_the_steps_is_summed() -> None:
    steps = [
        PlanStep(name, (), unreadable=unit, index_bytes=10 * unit, index_files=100 * unit, ms=1000.0 * unit)
        for unit, name in enumerate((StepName.METADATA, StepName.INDEXES, StepName.PAGES, StepName.TOP_N), 1)
    ]
    metrics = ScanMetrics.of_steps([*steps, steps[0]])
    assert (metrics.unreadable_indexes, metrics.index_bytes_read, metrics.index_files_opened) == (11, 110, 1100)
    times = (metrics.prune_ms, metrics.index_ms, metrics.pages_ms, metrics.top_n_ms)
    assert times == (2000.0, 2000.0, 3000.0, 4000.0)


def test_a_limit_keeps_whole_files_as_they_are(tmp_path: Path) -> None:
    """Only the rows of the file that passes the limit are cut, and files after it are skipped."""
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.schema([("v", pa.int32())]))
    sizes = (3, 1, 4)
    for size in sizes:
        table.append(pa.table({"v": pa.array(range(size), pa.int32())}))
    every = table.scan().plan().files
    assert [f.row_count for f in every] == list(sizes)
    for limit in range(sum(sizes) + 2):
        plan = table.scan().limit(limit).plan()
        assert plan.chosen_rows == min(limit, sum(sizes))
        assert all(f in every for f in plan.files if f.whole)
        assert len(plan.files) == sum(1 for i in range(len(sizes)) if sum(sizes[:i]) < limit)
        assert table.scan().limit(limit).to_arrow().column("v").to_pylist() == [0, 1, 2, 0, 0, 1, 2, 3][:limit]
        first = 0
        for size, file in zip(sizes, plan.files, strict=False):
            assert file.chosen_rows == min(size, limit - first)
            first += size
        matching = sum(sizes[: len(plan.files)])
        assert all(f"the {len(plan.files)} files before it hold " in f.detail for f in plan.skipped)
        assert all(f" {min(limit, matching)} matching rows" in f.detail for f in plan.skipped)


# --- buckets ----------------------------------------------------------------------------------------------------------


def bucketed(*columns: tuple[str, str], **options: str) -> TableSchema:
    fields, highest = assign_ids([(n, parse_type(t), None) for n, t in columns])
    return TableSchema(0, fields, highest, (), (), {"bucket-key": ",".join(n for n, _ in columns), **options})


def equal(column: str, *values: Any) -> Predicate:
    return Comparison(column, Op.EQ, values[0]) if len(values) == 1 else In(column, values)


@pytest.mark.parametrize("function", ["default", "mod"])
@pytest.mark.parametrize("total", [1, 2, 7])
def test_the_buckets_of_named_keys_are_those_that_the_rows_hash_to(function: str, total: int) -> None:
    columns = [("k", "BIGINT"), ("s", "STRING")][: 1 if function == "mod" else 2]
    schema = bucketed(*columns, **{"bucket-function.type": function})
    values = {"k": (5, -3, 12), "s": (b"a", b"", b"long enough")}
    terms = [equal(n, *values[n]) for n, _ in columns]
    expected = set()
    for row in product(*(values[n] for n, _ in columns)):
        kinds = (pa.int64(), pa.large_binary())
        arrays = [pa.array([v], kind) for v, kind in zip(row, kinds, strict=False)]
        types = [parse_type(t) for _, t in columns]
        expected |= set(bucket_of(types, arrays, total, BucketFilter(schema, terms)._function).tolist())
    found = BucketFilter(schema, terms)
    assert found.names_key and found.possible(total, schema) == expected == found.possible(total, schema)
    for unknown in (-2, -1, 0):
        assert found.possible(unknown, schema) is None, "files without a fixed number of buckets"
    assert found.possible(total, bucketed(("k", "INT"), *columns[1:])) is None, "hashed as another type"
    part = BucketFilter(schema, terms[1:])
    assert not part.names_key and part.possible(total, schema) is None


@pytest.mark.parametrize(
    ("value", "named"), [(0.0, False), (-0.0, False), (math.nan, False), (1.0, True), (-2.5, True)]
)
def test_floats_with_equal_values_of_other_bytes_name_no_bucket(value: float, named: bool) -> None:
    schema = bucketed(("d", "DOUBLE"))
    assert BucketFilter(schema, [equal("d", value)]).names_key == named
    assert BucketFilter(schema, [equal("d", 3.0, value)]).names_key == named


@pytest.mark.parametrize(
    ("first", "second", "named"), [(25, 40, True), (1000, 1, True), (1001, 1, False), (7, 143, False)]
)
def test_at_most_a_thousand_keys_are_hashed(first: int, second: int, named: bool) -> None:
    schema = bucketed(("a", "INT"), ("b", "INT"))
    terms = [equal("a", *range(first)), equal("b", *range(second))]
    found = BucketFilter(schema, terms)
    assert found.names_key == named and (found.possible(4, schema) is None) == (not named)


def test_rows_that_the_server_filters_are_not_read(tmp_path: Path) -> None:
    """Row filters and column masks of a catalog's server were passed over in silence."""
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema({"a": pa.int64()}), options={"query-auth.enabled": "true"})
    table.append(pa.table({"a": [1, 2]}))
    for read in (table.to_arrow, table.count, lambda: lake.table("t$audit_log").to_arrow()):
        with pytest.raises(UnsupportedFeature, match="table 'default.t.*query-auth.enabled"):
            read()


def test_files_with_a_part_of_the_columns_are_not_read(tmp_path: Path) -> None:
    """Each file of a row's columns was read as rows of its own, so that rows came twice."""
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.schema({"a": pa.int64(), "b": pa.int64()}))
    table.append(pa.table({"a": [1, 2], "b": [3, 4]}))
    state = table._core.state()
    state = replace(state, schema=state.schema.with_options({"data-evolution.enabled": "true"}))
    whole = tuple(state.entries())
    parts = tuple(replace(e, file=replace(e.file, write_cols=("b",))) for e in whole)
    scan = replace(table.scan()._core, state=state)
    assert len(scan._plan_files(state, FilesToPlan(whole), False).files) == 1
    with pytest.raises(UnsupportedFeature, match="table 'default.t'.*data-evolution.enabled"):
        scan._plan_files(state, FilesToPlan(whole + parts), False)
