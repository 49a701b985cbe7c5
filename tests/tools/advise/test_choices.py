"""What is advised for columns whose right answer is evident."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.tools.advise import questions
from bitlake.tools.advise.advice import Advice, ColumnAdvice
from bitlake.tools.advise.questions import Query, choose_runs
from tests.tools.advise.tables import stored

ROWS = 220_000


def payload(rows: int, seed: int = 1) -> pa.Array:
    """What makes reading a row cost something: 32 bytes that nothing compresses."""
    raw = np.random.default_rng(seed).integers(0, 256, rows * 32, dtype=np.uint8)
    return pa.Array.from_buffers(pa.binary(32), rows, [None, pa.py_buffer(raw)]).cast(pa.binary())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Table:
    random = np.random.default_rng(5)
    number = np.arange(ROWS)
    among = random.integers(0, 2, ROWS) * 2
    clustered = np.where((number > 90_000) & (number < 91_000), 1, among)
    rows = pa.table(
        {
            "constant": pa.array(np.full(ROWS, 7)),
            "in_order": pa.array(number),
            "few_scattered": pa.array(np.array(["a", "b", "c", "d"])[random.integers(0, 4, ROWS)].tolist()),
            "few_clustered": pa.array(np.array(["no", "rare", "yes"])[clustered].tolist()),
            "many_scattered": pa.array(random.integers(0, 150_000, ROWS)),
            "only_null": pa.nulls(ROWS, pa.int32()),
            "payload": payload(ROWS),
        }
    )
    return stored(tmp_path_factory.mktemp("lake"), rows, 4)


@pytest.fixture(scope="module")
def advice(table: bitlake.Table) -> Advice:
    return table.indexes.advise()


def of(advice: Advice, column: str) -> ColumnAdvice:
    return next(c for c in advice.columns if c.column == column)


def test_clustered_values_get_a_bitmap(advice: Advice) -> None:
    found = of(advice, "few_clustered")
    assert (found.action, found.index) == ("add", "bitmap")
    assert found.profile is not None and found.profile.distinct == 3
    assert found.chosen is not None and found.chosen.bytes_saved > 0.15 * found.chosen.bytes_before
    assert "3 distinct values" in found.reason and "would read" in found.reason


def test_scattered_values_of_which_every_page_has_some_get_nothing(advice: Advice) -> None:
    found = of(advice, "few_scattered")
    assert found.action == "none"
    assert "nearly every page holds a row that matches" in found.reason
    assert all(t.bytes_saved < 0.05 * t.bytes_before for t in found.tried)


def test_columns_in_order_are_served_by_statistics(table: bitlake.Table) -> None:
    found = of(table.indexes.advise(["in_order = 3", "in_order BETWEEN 7 AND 900"], engine="python"), "in_order")
    assert found.action == "none"
    assert "statistics" in found.reason and "in order" in found.reason


def test_many_scattered_numbers_get_a_range_bitmap(advice: Advice) -> None:
    found = of(advice, "many_scattered")
    assert (found.action, found.index) == ("add", "range-bitmap")


def test_one_value_or_none_at_all_need_no_index(advice: Advice) -> None:
    assert of(advice, "constant").action == of(advice, "only_null").action == "none"
    assert "one value" in of(advice, "constant").reason
    assert "all NULL" in of(advice, "only_null").reason


def test_statements_say_what_is_advised(advice: Advice) -> None:
    alter, call = advice.statements()
    assert alter.startswith("ALTER TABLE default.t SET TBLPROPERTIES (")
    assert "'file-index.bitmap.columns' = 'few_clustered'" in alter
    assert call == "CALL sys.rewrite_file_index(table => 'default.t')"
    text = str(advice)
    assert alter + ";" in text and all(c.column in text for c in advice.columns)
    assert max(len(line) for line in text.splitlines() if "TBLPROPERTIES" not in line) <= 120
    assert json.loads(json.dumps(advice.to_dict()))["columns"][0]["column"] == "constant"


def test_given_queries_alone_decide(table: bitlake.Table) -> None:
    advice = table.indexes.advise(["few_clustered = 'rare'", Query("in_order = 3", ("in_order",), 5.0)])
    assert of(advice, "few_clustered").index == "bitmap"
    assert of(advice, "many_scattered").reason == "no query asks about it"
    assert [q.question.weight for q in advice.questions] == [5.0, 1.0]
    assert "no query asks about constant, few_scattered, many_scattered" in str(advice)


def test_equality_alone_on_many_files_gets_a_bloom_filter(tmp_path: Path) -> None:
    names = pa.array([f"user-{(n * 7919) % 100_003:06}-{n}" for n in range(80_000)])
    rows = pa.table({"name": names, "payload": payload(80_000)})
    advice = stored(tmp_path, rows, 8).indexes.advise(["name = 'user-000000-0'", "name = 'user-031676-4'"])
    assert of(advice, "name").index == "bloom-filter"


def test_files_of_few_rows_are_sampled_not_all_read(tmp_path: Path) -> None:
    """Every file of a table of few rows was looked at: 300 files of 50 rows took 46 s of processor time."""
    rows = pa.table({"p": [n // 2 for n in range(80)], "word": [f"w{n * 7919 % 101}" for n in range(80)]})
    table = stored(tmp_path, rows, partition_by=("p",))
    core = table._core
    plan = core.scan_of(core.state()).plan()
    assert len(plan.files) == 40
    of_columns = {n: choose_runs(plan.files, plan.schemas, 500_000, n) for n in (0, 1, 64, 1000)}
    assert {n: len({r.task.path for r in runs}) for n, runs in of_columns.items()} == {0: 32, 1: 32, 64: 8, 1000: 4}
    assert all(r.rows == 2 for r in of_columns[64])
    assert len(choose_runs(plan.files, plan.schemas, 20, 1)) == 10, "as many as have the rows, where the table has more"


def test_an_index_that_is_there_is_kept_replaced_or_dropped(table: bitlake.Table, tmp_path: Path) -> None:
    part = table.scan(["few_clustered", "few_scattered", "payload"]).to_arrow()
    options = {"file-index.bitmap.columns": "few_clustered,few_scattered"}
    indexed = stored(tmp_path, part, 2, options=options)
    advice = indexed.indexes.advise(["few_clustered = 'rare'", "few_scattered = 'a'"])
    assert of(advice, "few_clustered").action == "keep"
    assert of(advice, "few_scattered").action == "drop"
    assert dict(advice.set_options) == {"file-index.bitmap.columns": "few_clustered"}
    assert of(indexed.indexes.advise(), "few_scattered").action == "keep", "guessed queries drop nothing"
    applied = advice.apply()
    assert indexed.schema.options["file-index.bitmap.columns"] == "few_clustered"
    assert applied.measured is not None


def test_recorded_scans_are_queries(tmp_path: Path, table: bitlake.Table) -> None:
    part = table.scan(["few_clustered", "in_order", "payload"]).to_arrow()
    for word in ("values", "masked"):
        lake = bitlake.connect(tmp_path / word, record_scans=word)
        made = lake.create_table("t", part.schema)
        made.append(part)
        for _ in range(3):
            made.scan(where="few_clustered = 'rare'").to_arrow()
        advice = made.indexes.advise("recorded")
        assert advice.asked == "recorded scans"
        assert of(advice, "few_clustered").index == "bitmap"
        assert of(advice, "in_order").reason == "no query asks about it"
        assert any("masked" in note for note in advice.notes) is (word == "masked")
        if word == "values":
            assert [(q.question.text, q.question.weight) for q in advice.questions] == [("few_clustered = 'rare'", 3.0)]


def test_small_and_empty_tables(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    empty = stored(tmp_path, rows.slice(0, 0), name="empty")
    advice = empty.indexes.advise()
    assert [c.reason for c in advice.columns] == ["the table has no rows yet"] * 2
    assert advice.statements() == [] and advice.rows == 0
    assert advice.apply().measured is not None
    small = stored(tmp_path, rows, name="small").indexes.advise()
    assert {c.action for c in small.columns} == {"none"}
    assert "nothing to save" in of(small, "a").reason


def test_partitions_and_dropped_columns(tmp_path: Path) -> None:
    rows = pa.table({"day": ["1", "2"] * 500, "n": range(1000), "late": ["x"] * 1000})
    table = stored(tmp_path, rows, partition_by=("day",))
    table.drop_column("late")
    table.add_column("late", "STRING")
    advice = table.indexes.advise(["late = 'x'", "day = '1'", "n > 3"])
    assert of(advice, "day").reason.startswith("partition column")
    assert of(advice, "late").action == "none"


@pytest.mark.exhaustive
def test_tables_of_every_type(tmp_path: Path) -> None:
    n = 3000
    day = dt.date(2024, 1, 1)
    rows = pa.table(
        {
            "i8": pa.array([i % 5 for i in range(n)], pa.int8()),
            "i16": pa.array([i % 300 for i in range(n)], pa.int16()),
            "i32": pa.array(range(n), pa.int32()),
            "f32": pa.array([i / 7 if i % 9 else float("nan") for i in range(n)], pa.float32()),
            "f64": pa.array([float("-inf") if i % 11 == 0 else i / 3 for i in range(n)], pa.float64()),
            "flag": pa.array([None if i % 3 == 0 else i % 2 == 0 for i in range(n)]),
            "small": pa.array([Decimal(i) / 100 for i in range(n)], pa.decimal128(9, 2)),
            "large": pa.array([Decimal(i * 10**20) for i in range(n)], pa.decimal128(38, 0)),
            "date": pa.array([day + dt.timedelta(i % 99) for i in range(n)]),
            "time": pa.array([dt.time(i % 24, i % 60) for i in range(n)], pa.time32("ms")),
            "stamp": pa.array(
                [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i) for i in range(n)], pa.timestamp("us")
            ),
            "zoned": pa.array(range(n), pa.timestamp("us", "UTC")),
            "text": pa.array([None if i % 4 == 0 else f"wört-{i % 50}" for i in range(n)]),
            "bytes": pa.array([bytes([i % 256]) for i in range(n)], pa.binary()),
            "list": pa.array([[i] for i in range(n)]),
            "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": i} for i in range(n)]),
        }
    )
    table = stored(tmp_path, rows, 2)
    for engine in ("spark", "python"):
        advice = table.indexes.advise(engine=engine, sample=2000)
        assert [c.column for c in advice.columns] == rows.column_names
        assert of(advice, "list").reason == "values of type ARRAY take no index as a whole"
        assert advice.apply().measured is not None
    odd = table.indexes.advise(["map['k'] = 5", "struct.x = 3", "text LIKE 'w%' OR i32 IS NULL", "f32 = double('NaN')"])
    assert str(odd)


def test_what_is_asked_wrongly_is_told(table: bitlake.Table) -> None:
    with pytest.raises(InvalidRequest, match="at least one row"):
        table.indexes.advise(sample=0)
    with pytest.raises(InvalidRequest, match="spark or python"):
        table.indexes.advise(engine="duckdb")
    with pytest.raises(InvalidRequest, match=r"lake\.advise"):
        table.indexes.advise(["SELECT * FROM t"])
    with pytest.raises(InvalidRequest, match="recorded"):
        table.indexes.advise("in_order = 3")
    advice = table.indexes.advise(["nope = 1", "in_order ==== 3", "in_order = 5"])
    assert len([n for n in advice.notes if n.startswith("not understood")]) == 2


def test_rows_in_no_order_of_their_dates_should_be_sorted(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    rows = pa.table(
        {
            "day": pa.array(random.integers(0, 2000, 250_000).astype(np.int32)).cast(pa.date32()),
            "number": pa.array(random.integers(0, 50, 250_000)),
            "payload": payload(250_000),
        }
    )
    table = stored(tmp_path, rows, 2)
    (advised,) = table.indexes.advise(["day BETWEEN DATE '1971-01-01' AND DATE '1971-03-01'"]).layout
    assert (advised.kind, advised.columns) == ("sort", ("day",))
    assert advised.statements == (
        "CALL sys.compact(table => 'default.t', order_strategy => 'order', order_by => 'day')",
    )
    ordered = stored(tmp_path, rows.sort_by("day"), 2, name="ordered")
    assert ordered.indexes.advise(["day BETWEEN DATE '1971-01-01' AND DATE '1971-03-01'"]).layout == ()


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()], ids=str)
def test_values_at_both_ends_of_a_type_are_asked_about(tmp_path: Path, kind: pa.DataType) -> None:
    """A bound between the largest values of a type is one that the type has."""
    ends = [-(2**63), 2**63 - 1] if pa.types.is_integer(kind) else [-1.7976931348623157e308, 1.7976931348623157e308]
    values = pa.array([*ends[:1] * 500, *range(100), *ends[1:] * 500], kind)
    advice = stored(tmp_path, pa.table({"v": values})).indexes.advise()
    assert [c.column for c in advice.columns] == ["v"]
    assert "102 distinct values" in str(advice)


def test_no_more_distinct_values_than_rows(tmp_path: Path) -> None:
    """The sketch of a column of 5,000 different numbers is some percent off, and may say more than there are rows."""
    advice = stored(tmp_path, pa.table({"v": np.arange(5000)})).indexes.advise()
    assert advice.to_dict()["columns"][0]["values"]["distinct"] <= 5000


@pytest.mark.parametrize("seed", range(3))
def test_runs_do_not_overlap(seed: int) -> None:
    """Runs of a file shorter than all of them sampled the same rows twice."""
    made = random.Random(seed)
    for _ in range(60):
        sizes = [made.randrange(1, 700_000) for _ in range(made.choice((1, 1, 2, 5, 40)))]
        tasks = [SimpleNamespace(path=f"f{i}", row_count=size) for i, size in enumerate(sizes)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(questions, "tasks_of", lambda files, schemas, tasks=tasks: tasks)
            runs = choose_runs([], {}, made.choice((1, 10_000, 131_072, 500_000, 2_000_000)), 4)
        assert runs
        for task in tasks:
            own = sorted((r.start, r.stop) for r in runs if r.task is task)
            assert all(0 <= start < stop <= task.row_count for start, stop in own)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)), (sizes, own)
