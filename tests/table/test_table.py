"""Tables in process: what is appended is read back, pruned by indexes, replaced, and never half there."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from answers import arrow_rows
from builders import EVERY_TYPE, UTC, events, every_type

import bitlake
from bitlake.catalog.catalog import Identifier
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.scan.plan import SkipReason
from bitlake.schema.create import ColumnSpec
from bitlake.types import parse_type

BITMAP = {"file-index.bitmap.columns": "status,region"}


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def made(lake: bitlake.Lake, rows: pa.Table, name: str = "t", **more: Any) -> bitlake.Table:
    table = lake.create_table(name, rows.schema, **more)
    table.append(rows)
    return table


def data_files(table: bitlake.Table) -> list[Path]:
    return sorted(p for p in Path(table.path).rglob("bucket-*/*") if p.is_file())


def test_every_type_comes_back_as_it_was(lake: bitlake.Lake) -> None:
    rows = every_type()
    table = made(lake, rows)
    found = table.scan().to_arrow()
    assert found.schema.equals(EVERY_TYPE)
    assert arrow_rows(found) == arrow_rows(rows)


def test_appends_add_up_and_empty_ones_make_no_snapshot(lake: bitlake.Lake) -> None:
    table = made(lake, events(10))
    assert table.append(events(10).slice(0, 0)) is None
    snapshot = table.append(events(5))
    assert snapshot is not None and snapshot.id == 2
    assert snapshot.total_record_count == 15
    assert table.scan().count() == 15


def test_partitions_with_odd_values(lake: bitlake.Lake) -> None:
    values = ["a/b=c", "", "  ", None, "ünï🙂", "100%", "a:b*c?", "{x}[y]", "__DEFAULT_PARTITION__"]
    rows = pa.table({"p": pa.array(values * 3), "id": pa.array(range(len(values) * 3))})
    table = made(lake, rows, partition_by=["p"])
    assert sorted(arrow_rows(table.scan().to_arrow()), key=repr) == sorted(arrow_rows(rows), key=repr)
    for value in values:
        where = "p IS NULL" if value is None else f"p = '{value}'"
        scan = table.scan(columns=["id"], where=where)
        wanted = [i for i, v in enumerate(values * 3) if v == value]
        assert sorted(scan.to_arrow().column("id").to_pylist()) == wanted
        assert len(scan.plan().files) == 1


def test_zeros_and_nan_are_partitions_of_their_own(lake: bitlake.Lake) -> None:
    """Also within a commit; the bounds of its manifest hold both zeros, and a NaN of two batches is one file."""
    values = [0.0, -0.0, float("nan"), 0.0]
    rows = pa.table({"p": values, "id": range(4)})
    table = lake.create_table("t", rows.schema, partition_by=["p"])
    table.append([rows, rows])
    found = table.scan().to_arrow().sort_by("id")
    assert repr(found.column("p").to_pylist()) == repr([v for v in values for _ in range(2)])
    assert len(table.scan().plan().files) == 3
    for zero in ("0.0D", "-0.0D"):
        assert sorted(table.scan(["id"], where=f"p = {zero}").to_arrow().column("id").to_pylist()) == [0, 0, 1, 1, 3, 3]
    assert table.maintenance.verify().ok
    table.delete("id = 0")
    assert table.maintenance.verify().ok


def test_partition_columns_of_every_atomic_type(lake: bitlake.Lake) -> None:
    rows = every_type()
    for field in EVERY_TYPE:
        if pa.types.is_nested(field.type) or field.name == "c_bin":
            continue
        part = rows.select([field.name]).append_column("id", pa.array(range(4)))
        table = made(lake, part, name=f"by_{field.name}", partition_by=[field.name])
        assert sorted(arrow_rows(table.scan().to_arrow()), key=repr) == sorted(arrow_rows(part), key=repr)


def test_buckets_without_a_key_take_all_columns_and_say_so(lake: bitlake.Lake, caplog: Any) -> None:
    rows = events(100)
    with caplog.at_level(logging.WARNING, "bitlake"):
        table = made(lake, rows, options={"bucket": "4"})
    assert table.schema.options["bucket-key"] == "id,status,region,amount"
    assert "bucket-key" in caplog.text
    assert {f.entry.bucket for f in table.scan().plan().files} == {0, 1, 2, 3}
    assert sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == list(range(100))


def test_sequence_numbers_of_a_bucket_go_on(lake: bitlake.Lake) -> None:
    table = made(lake, events(50), options={"bucket": "1", "bucket-key": "id"})
    table.append(events(30))
    ranges = sorted(
        (f.entry.file.min_sequence_number, f.entry.file.max_sequence_number) for f in table.scan().plan().files
    )
    assert ranges == [(0, 49), (50, 79)]


@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
def test_an_index_chooses_rows_wherever_it_is_kept(lake: bitlake.Lake, threshold: str) -> None:
    rows = events(1000)
    table = made(lake, rows, options={**BITMAP, "file-index.in-manifest-threshold": threshold})
    names = [p.name for p in data_files(table)]
    assert any(n.endswith(".index") for n in names) == (threshold == "1 b")
    scan = table.scan(where="status = 'S2' AND region = 'US'")
    plan = scan.plan()
    wanted = [r for r in rows.to_pylist() if r["status"] == "S2" and r["region"] == "US"]
    assert plan.chosen_rows == len(wanted)
    assert all(f.selection.exact for f in plan.files)
    assert scan.to_arrow().to_pylist() == wanted


def test_a_value_that_is_nowhere_opens_no_file(lake: bitlake.Lake) -> None:
    table = made(lake, events(1000), options=BITMAP)
    table.append(events(1000, statuses=9))
    scan = table.scan(where="status = 'S7'")
    assert [s.reason for s in scan.plan().skipped].count(SkipReason.STATS) == 1
    scan = table.scan(where="status = 'S15'")
    assert not scan.plan().files
    assert {s.reason for s in scan.plan().skipped} <= {SkipReason.INDEX, SkipReason.STATS}


def test_files_roll_at_the_target_size(lake: bitlake.Lake) -> None:
    rows = pa.table(
        {"id": pa.array(range(200_000)), "x": pa.array([f"{i * 2654435761 % 2**32:x}" for i in range(200_000)])}
    )
    table = made(lake, rows, options={"target-file-size": "200 kb"})
    sizes = [f.entry.file.file_size for f in table.scan().plan().files]
    assert len(sizes) > 2
    assert max(sizes) < 2 * 200 * 1024
    assert table.scan(columns=["id"]).to_arrow().column("id").to_pylist() == list(range(200_000))
    by_rows = made(lake, events(1000), name="by_rows", options={"target-file-row-num": "300"})
    assert [f.row_count for f in by_rows.scan().plan().files] == [300, 300, 300, 100]


def test_limited_rows_of_several_files_are_counted(lake: bitlake.Lake) -> None:
    """5 of 6 rows were counted as 9: Arrow's slice of a table without columns has as many rows as were asked for."""
    table = lake.create_table("t", pa.schema({"id": pa.int64()}))
    for i in range(3):
        table.append(pa.table({"id": [i, i + 10]}))
    for most in range(8):
        assert table.scan(limit=most).count() == table.scan(where="id >= 0", limit=most).count() == min(most, 6)


def test_scans_without_columns_keep_their_rows(lake: bitlake.Lake) -> None:
    """No rows came: Arrow's concatenation of tables without columns has none."""
    table = lake.create_table("t", pa.table({"id": [1, 2, 3]}))
    table.append(pa.table({"id": [4, 5]}))
    assert table.scan([]).to_arrow().num_rows == len(table.scan([]).to_pandas()) == 5
    assert table.to_arrow([], "id > 2").num_rows == 3
    assert table.scan([]).top_n(["id"], 4).to_arrow().num_rows == 4
    assert table.to_arrow([], "id > 5").num_rows == 0


def test_limit_reads_no_more_files_than_needed(lake: bitlake.Lake) -> None:
    table = made(lake, events(1000), options={"target-file-row-num": "100"})
    scan = table.scan(limit=150)
    assert len(scan.plan().files) == 2
    assert scan.to_arrow().num_rows == 150
    assert table.scan(limit=0).to_arrow().num_rows == 0


def test_overwrite_replaces_all_or_a_partition(lake: bitlake.Lake) -> None:
    rows = pa.table({"p": ["a", "a", "b"], "v": [1, 2, 3]})
    table = made(lake, rows, partition_by=["p"])
    table.overwrite(pa.table({"p": ["a"], "v": [9]}), partition={"p": "a"})
    assert sorted(arrow_rows(table.scan().to_arrow())) == [["a", 9], ["b", 3]]
    table.overwrite(pa.table({"p": ["b", "c"], "v": [4, 5]}), partition={})
    assert sorted(arrow_rows(table.scan().to_arrow())) == [["a", 9], ["b", 4], ["c", 5]]
    with pytest.raises(InvalidRequest, match="partition"):
        table.overwrite(pa.table({"p": ["z"], "v": [0]}), partition={"p": "a"})
    assert sorted(arrow_rows(table.scan().to_arrow())) == [["a", 9], ["b", 4], ["c", 5]]
    table.overwrite(pa.table({"p": ["d"], "v": [6]}))
    assert arrow_rows(table.scan().to_arrow()) == [["d", 6]]
    table.truncate()
    assert table.scan().count() == 0


def test_indexes_are_added_to_data_that_is_there(lake: bitlake.Lake) -> None:
    rows = events(1000)
    table = made(lake, rows)
    assert table.scan(where="status = 'S2'").plan().files[0].whole
    table.alter_options(BITMAP)
    done = table.indexes.rebuild()
    assert [d.built for d in done] == [("bitmap(status)", "bitmap(region)")]
    plan = table.scan(where="status = 'S2'").plan()
    assert plan.files[0].chosen_rows == 250 and plan.files[0].selection.exact
    assert [d.new for d in table.indexes.rebuild()] == [None], "a second run has nothing to do"
    table.alter_options({"file-index.bitmap.columns": "status", "file-index.bloom-filter.columns": "id"})
    assert [d.built for d in table.indexes.rebuild()] == [("bloom-filter(id)",)]
    assert not table.scan(where="id = 123456").plan().files or table.scan(where="id = 123456").plan().skipped
    assert table.snapshot is not None and table.snapshot.commit_kind == "COMPACT"
    assert table.scan().count() == 1000


def test_column_names_ignore_case(lake: bitlake.Lake) -> None:
    table = made(lake, events(20))
    found = table.scan(columns=["STATUS", "Id"], where="ID < 3").to_arrow()
    assert found.column_names == ["status", "id"]
    assert found.num_rows == 3
    table.append(pa.table({"STATUS": ["S9"], "Id": [99]}))
    assert table.scan(where="id = 99").to_arrow().to_pylist() == [
        {"id": 99, "status": "S9", "region": None, "amount": None}
    ]


def test_metadata_columns(lake: bitlake.Lake) -> None:
    table = made(lake, events(20), partition_by=["status"], options=BITMAP)
    found = table.scan(
        columns=["id", "__paimon_row_index", "__paimon_bucket", "__paimon_partition", "__paimon_file_path"],
        where="region = 'US'",
    ).to_arrow()
    for row in found.to_pylist():
        data = pa.parquet.read_table(row["__paimon_file_path"], partitioning=None)
        assert data.column("id")[row["__paimon_row_index"]].as_py() == row["id"]
        assert row["__paimon_bucket"] == 0
        assert row["__paimon_partition"]["status"].startswith("S")


def test_a_scan_is_an_arrow_stream(lake: bitlake.Lake) -> None:
    table = made(lake, events(100))
    scan = table.scan(columns=["id"], where="id >= 90")
    assert pa.RecordBatchReader.from_stream(table).read_all().equals(table.to_arrow())
    assert pa.RecordBatchReader.from_stream(scan).read_all().column("id").to_pylist() == list(range(90, 100))
    assert list(scan.to_pandas()["id"]) == list(range(90, 100))


def test_explain_tells_what_and_why(lake: bitlake.Lake) -> None:
    table = made(lake, events(100), options=BITMAP)
    table.append(events(10, statuses=1))
    text = table.scan(where="status = 'S2'").explain()
    assert "status = 'S2'" in text
    assert "bitmap(status)" in text
    assert "skipped by statistics" in text


def test_a_reader_keeps_its_snapshot(lake: bitlake.Lake) -> None:
    table = made(lake, events(10))
    scan = table.scan()
    table.append(events(10))
    assert scan.to_arrow().num_rows == 10
    assert table.scan().to_arrow().num_rows == 20


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": [1], "nope": [1]}), "no column 'nope'"),
        (pa.table({"status": ["x"]}), "NOT NULL"),
        (pa.table({"id": pa.array([None], pa.int64())}), "NOT NULL"),
        (pa.table({"id": [2**40]}), "id"),
        (pa.table({"id": ["text"]}), "id"),
        (pa.table({"id": [1], "status": ["toolong"]}), "longer than column 'status'"),
        (pa.table({"id": [1], "status": pa.array(["toolong"], pa.string_view())}), "longer than column 'status'"),
    ],
)
def test_rows_that_do_not_fit_leave_nothing_behind(lake: bitlake.Lake, rows: pa.Table, message: str) -> None:
    columns = [ColumnSpec("id", parse_type("INT NOT NULL")), ColumnSpec("status", parse_type("VARCHAR(3)"))]
    lake._catalog.create_table(Identifier("default", "t"), columns)
    table = lake.table("t")
    with pytest.raises(InvalidRequest, match=message) as caught:
        table.append(rows)
    assert "default.t" in str(caught.value)
    assert table.snapshot is None
    assert data_files(table) == []


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"bucket": "zero"}, InvalidRequest, ["bucket", "zero"]),
        ({"bucket": "0"}, InvalidRequest, ["bucket", "0"]),
        ({"bucket": "2", "bucket-key": "nope"}, InvalidRequest, ["bucket-key", "nope"]),
        ({"file-index.bitmap.columns": "amount2"}, InvalidRequest, ["file-index.bitmap.columns", "amount2"]),
        ({"file-index.bitmap.columns": "dec"}, InvalidRequest, ["dec", "DECIMAL"]),
        ({"file-index.bloom-filter.columns": "dec"}, InvalidRequest, ["dec", "DECIMAL"]),
        ({"file-index.bitmap.columns": "bin"}, InvalidRequest, ["bin"]),
        ({"file-index.btree.columns": "id"}, InvalidRequest, ["btree"]),
        (
            {"file-index.bloom-filter.columns": "id", "file-index.bloom-filter.id.fpp": "2"},
            InvalidRequest,
            ["fpp", "2"],
        ),
        ({"file-index.in-manifest-threshold": "many"}, InvalidRequest, ["file-index.in-manifest-threshold", "many"]),
        ({"file.format": "csv"}, UnsupportedFeature, ["file.format", "csv"]),
        ({"primary-key": "no"}, InvalidRequest, ["primary"]),
        ({"row-tracking.enabled": "true"}, UnsupportedFeature, ["row-tracking.enabled"]),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_at_creation(
    lake: bitlake.Lake, options: dict[str, str], error: type[Exception], parts: list[str]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("dec", pa.decimal128(9, 2)), ("bin", pa.binary())])
    with pytest.raises(error) as caught:
        lake.create_table("t", schema, options=options)
    assert all(p in str(caught.value) for p in parts), caught.value
    assert lake.tables() == [] if lake.databases() else True
    table = lake.create_table("fine", schema)
    before = sorted(p.name for p in Path(table.path, "schema").iterdir())
    with pytest.raises((error, UnsupportedFeature, InvalidRequest)):
        table.alter_options(options)
    assert sorted(p.name for p in Path(table.path, "schema").iterdir()) == before


def test_unknown_options_are_kept(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", events(1).schema, options={"someone.elses": "value"})
    assert table.schema.options["someone.elses"] == "value"


def test_names_that_are_not_there(lake: bitlake.Lake) -> None:
    made(lake, events(5), name="orders")
    with pytest.raises(NotFound, match="orders"):
        lake.table("ordrs")
    with pytest.raises(NotFound, match="database 'nope'"):
        lake.table("nope.orders")
    with pytest.raises(NotFound, match="status"):
        lake.table("orders").scan(columns=["stats"])
    with pytest.raises(NotFound, match="amount"):
        lake.table("orders").scan(where="amout > 1")
    with pytest.raises(InvalidRequest):
        lake.table("orders").scan(where="amount >")
    with pytest.raises(AlreadyExists):
        lake.create_table("orders", events(1).schema)


def test_timestamps_in_a_condition(lake: bitlake.Lake) -> None:
    rows = pa.table(
        {"at": pa.array([dt.datetime(2024, 1, 1, h, tzinfo=UTC) for h in range(24)], pa.timestamp("us", "UTC"))}
    )
    table = made(lake, rows)
    assert table.scan(where="at >= TIMESTAMP '2024-01-01 20:00:00'").count() == 4


def test_commits_bear_the_users_prefix(lake: bitlake.Lake) -> None:
    table = made(lake, events(5), options={"commit.user-prefix": "nightly"})
    assert table.snapshot is not None and table.snapshot.commit_user.startswith("nightly_")


def test_scans_read_zoneless_timestamps_in_the_lakes_zone(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([dt.datetime(2024, 1, 1, 5, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    made(bitlake.connect(str(tmp_path)), rows)
    for zone, count in (("UTC", 0), ("America/New_York", 1)):
        table = bitlake.connect(str(tmp_path), timezone=zone).table("t")
        assert table.scan(where="at = TIMESTAMP '2024-01-01 00:00:00'").count() == count


def test_a_column_is_given_by_a_string(tmp_path: Path) -> None:
    table = bitlake.connect(tmp_path).create_table("t", pa.table({"id": [1, 2]}))
    for call in (
        lambda: table.scan().min_max(["id"]),  # type: ignore[arg-type]
        lambda: table.scan().group_count(["id"]),  # type: ignore[arg-type]
        lambda: table.scan([1]).to_arrow(),  # type: ignore[list-item]
        lambda: table.scan().aggregate({1: "sum"}),  # type: ignore[dict-item]
        lambda: table.update({1: 2}),  # type: ignore[dict-item]
    ):
        with pytest.raises(InvalidRequest, match=r"invalid column name (\['id'\]|1); expected a string"):
            call()
