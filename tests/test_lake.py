"""Connecting: what names a lake's folder, and what does not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable

SCHEMA = pa.schema([("i", pa.int32())])


def test_windows_is_refused_at_once() -> None:
    program = "import sys; sys.platform = 'win32'; import bitlake"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.endswith("ImportError: bitlake runs on Linux and macOS; on Windows, install and run it in WSL\n")


@pytest.mark.parametrize("path", ["", " ", None, 5])
def test_what_is_no_folder_is_refused(path: Any) -> None:
    with pytest.raises(InvalidRequest, match="folder"):
        bitlake.connect(path)


@pytest.mark.parametrize("form", ["{0}", "file:{0}", "file://{0}", "file://localhost{0}"])
@pytest.mark.parametrize("name", ["sp ace", "per%cent%20", "ha#sh", "q?", "br{a,c}[e]s*", "ünï日", "a=b"])
def test_any_name_of_a_folder(tmp_path: Path, form: str, name: str) -> None:
    lake = bitlake.connect(form.format(tmp_path / name))
    lake.create_table("t", SCHEMA).append(pa.table({"i": [1, 2]}, schema=SCHEMA))
    assert lake.table("t").scan(where="i = 2").to_arrow().to_pylist() == [{"i": 2}]
    assert (tmp_path / name / "default.db" / "t").is_dir()


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert bitlake.connect("~/lake").path == bitlake.connect(Path("~/lake")).path == str(tmp_path / "lake")
    assert bitlake.connect("./~/lake").path == str(tmp_path / "~" / "lake")


def test_an_object_that_names_a_folder(tmp_path: Path) -> None:
    class Named:
        def __init__(self, path: Any) -> None:
            self.path = path

        def __fspath__(self) -> Any:
            return self.path

    assert bitlake.connect(Named(str(tmp_path))).path == str(tmp_path)
    with pytest.raises(InvalidRequest, match="path or URI"):
        bitlake.connect(Named(bytes(tmp_path)))


def test_schemes_of_uris_ignore_case(tmp_path: Path) -> None:
    lake = bitlake.connect(f"FILE://{tmp_path}")
    lake.create_table("t", SCHEMA)
    assert bitlake.connect(tmp_path).tables() == ["t"]
    assert bitlake.connect("Memory://Bucket/Folder").path == "memory://Bucket/Folder"


@pytest.mark.parametrize("path", [Path("s3://bucket/lake"), "s3:/bucket/lake", "S3:/bucket/lake", "dbfs:/lake"])
def test_a_uri_with_one_slash_is_no_local_folder(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="one slash.* write (s3://bucket|dbfs:/)/lake"):
        bitlake.connect(path)
    assert bitlake.connect(f"./{path}").path.startswith(str(tmp_path))


def test_lakes_and_tables_can_be_pickled(tmp_path: Path) -> None:
    # For multiprocessing, Dask and Ray; a table held a function of its lake's, which cannot be sent.
    lake = bitlake.connect(tmp_path, cache_bytes=5 << 20)
    lake.create_database("d")
    lake.sql("USE d", engine="duckdb")
    table = lake.create_table("t", pa.table({"i": pa.array([1, 2], pa.int32())}))
    sent = (lake, table, table.scan(where="i = 2"), table.maintenance, table.history, table.dataset())
    content = pickle.dumps(sent)
    assert b"itertools" not in content  # Python 3.14 cannot pickle its iterators
    other, received, scan, maintenance, history, dataset = pickle.loads(content)
    assert other.database == "d" and other.tables() == ["t"] and repr(other) == repr(lake)
    assert received.append(pa.table({"i": pa.array([3], pa.int32())})).id == 2
    assert table.count() == received.count() == other.table("t").count() == dataset.count_rows() + 1 == 3
    assert scan.to_arrow().to_pylist() == [{"i": 2}]
    assert maintenance.compact(full=True).id == 3
    assert [s.id for s in history.snapshots()] == [1, 2, 3]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageUnavailable, match="not a folder"):
        bitlake.connect(tmp_path / "file").create_table("t", SCHEMA)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert bitlake.connect(tmp_path / "none").tables() == []
    assert not (tmp_path / "none").exists()


def test_tables_are_found_as_in_sql(tmp_path: Path) -> None:
    """Backticks are no part of a name, and case tells only tables apart that both are there."""
    lake = bitlake.connect(tmp_path)
    lake.create_database("Db")
    lake.create_table("Db.T", SCHEMA).append(pa.table({"i": [7]}, schema=SCHEMA))
    for name in ("`Db`.`T`", "db.t", "`DB`.t", "Db.T"):
        assert lake.table(name).name == "Db.T"
        assert lake.table(name).scan().to_arrow().to_pylist() == [{"i": 7}]
    lake.create_table("`od.d`", SCHEMA)
    assert lake.table("`OD.d`").name == "default.od.d"
    lake.create_table("Db.t", SCHEMA)
    assert lake.table("Db.T").name == "Db.T" and lake.table("db.t").name == "Db.t"
    lake.create_table("Db.tT", SCHEMA)
    lake.create_table("Db.Tt", SCHEMA)
    with pytest.raises(NotFound, match="tt"):
        lake.table("Db.tt")
    lake.rename_table("DB.Tt", "Db.other")
    lake.drop_table("`db`.`OTHER`")
    assert lake.tables("Db") == ["T", "t", "tT"]
    for wrong in ("`Db.T", "a.b.c", "`elsewhere`.`a`.`b`", "`a`b"):
        with pytest.raises(InvalidRequest):
            lake.table(wrong)


def test_hidden_names_are_listed_as_others_are(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    for name in ("_t", "`.t`", "t"):
        lake.create_table(name, SCHEMA)
    assert lake.tables() == [".t", "_t", "t"]


ROWS = pa.table({"i": [1]}, schema=SCHEMA)
WRONG: list[tuple[Any, str]] = [
    (lambda lake, t: t.append([{"i": 1}]), r"not dict; pa.Table.from_pylist"),
    (lambda lake, t: t.append({"i": [1]}), r"not dict; pa.Table.from_pydict"),
    (lambda lake, t: t.append(None), "not NoneType$"),
    (lambda lake, t: t.head("3"), "limit must be a whole number, and is '3'"),
    (lambda lake, t: next(t.to_batches(batch_size=2.5)), "batch_size must be a whole number, and is 2.5"),
    (lambda lake, t: t.count("i = :v"), "':v' .a parameter without a value; name it in args"),
    (lambda lake, t: t.count("i = ?"), "a parameter without a value; name it in args"),
    (lambda lake, t: t.count("i IN (:v)", args={"v": [1, 2]}), r"a list is not one value; .* use col\(…\).isin"),
    (lambda lake, t: t.to_duckdb("x.db"), r"connection must be a DuckDB connection, .*, not 'x.db'"),
    (
        lambda lake, t: bitlake.connect(lake.path, spark="local[2]"),
        r"spark must be a SparkSession, .* not 'local\[2\]'",
    ),
    (
        lambda lake, t: lake.create_table("x", pa.table({"u": pa.array([1], pa.uint64())})),
        "column 'u': Arrow type uint64",
    ),
    (lambda lake, t: t.overwrite("i"), "not str"),
    (lambda lake, t: t.scan(columns="i"), r"columns must be a list of names, such as \['i'\]"),
    (lambda lake, t: t.scan(where=5), "a condition is SQL text, .* and not 5"),
    (lambda lake, t: lake.create_table("x", {"i": "INT"}), "an Arrow schema, .* and not dict"),
    (
        lambda lake, t: lake.create_table("x", SCHEMA, partition_by="i"),
        r"partition_by must be a list of names.*\['i'\]",
    ),
    (lambda lake, t: lake.create_table("a/b", SCHEMA), "invalid table name 'a/b': .* nor contain '/'"),
    (lambda lake, t: lake.create_table("x" * 300, SCHEMA), "is too long"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_arguments_of_another_kind_say_what_is_wanted(tmp_path: Path, call: Any, message: str) -> None:
    lake = bitlake.connect(tmp_path)
    table = lake.create_table("t", SCHEMA)
    table.append(iter([ROWS, *ROWS.to_batches()]))
    with pytest.raises(InvalidRequest, match=message):
        call(lake, table)
    assert lake.tables() == ["t"] and table.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("name", ["rowkind", "_LEVEL", "_ROW_ID", "_SEQUENCE_NUMBER", "_VALUE_KIND", "_KEY_a"])
def test_names_that_paimon_keeps_for_itself_are_refused(name: str, tmp_path: Path) -> None:
    """Paimon could not open a table with such a column."""
    lake = bitlake.connect(tmp_path)
    with pytest.raises(InvalidRequest, match=f"table 'default.t': column name '{name}' is reserved by Paimon"):
        lake.create_table("t", pa.schema({"a": pa.int32(), name: pa.int32()}))
    table = lake.create_table("t", pa.schema({"a": pa.int32(), "s": pa.struct({name: pa.int32()})}))
    with pytest.raises(InvalidRequest, match=f"'{name}' is reserved by Paimon"):
        table.rename_column("a", name)
    assert table.schema.id == 0


def test_sql_without_spark_reads_literals_in_the_lakes_zone(tmp_path: Path) -> None:
    bitlake.connect(tmp_path).create_table("t", pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}))
    for zone, wall in (
        ("UTC", "1970-01-01 00:00:00"),
        ("Asia/Tokyo", "1970-01-01 09:00:00"),
        ("-03:00", "1969-12-31 21:00:00"),
    ):
        lake = bitlake.connect(tmp_path, timezone=zone)
        query = f"SELECT hour(at) FROM t WHERE at = TIMESTAMP '{wall}'"
        assert lake.sql(query, engine="duckdb").fetchall() == [(int(wall[11:13]),)]
        copied = pickle.loads(pickle.dumps(lake))
        assert copied.sql(query, engine="duckdb").fetchall() == [(int(wall[11:13]),)]
        lake.sql("SET TIME ZONE 'UTC'", engine="duckdb")
        assert lake.sql("SELECT hour(at) FROM t", engine="duckdb").fetchall() == [(0,)]
        lake.sql("RESET spark.sql.session.timeZone", engine="duckdb")
        assert lake.sql(query, engine="duckdb").fetchall() == [(int(wall[11:13]),)]


def test_times_are_read_in_the_lakes_zone_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    first = bitlake.connect(tmp_path).create_table("t", ROWS).snapshot
    assert first is not None
    for zone, hours in (("+02:00", 2), ("GMT+8", 8), ("-05:30", -5.5), ("Etc/GMT-2", 2), ("UTC", 0)):
        table = bitlake.connect(tmp_path, timezone=zone).table("t")
        later = datetime.fromtimestamp(first.time_millis / 1000 + 1 + hours * 3600, UTC).replace(tzinfo=None)
        for time in (later, later.isoformat(" "), np.datetime64(later), pd.Timestamp(later)):
            assert table.scan(timestamp=time).count() == 1
        with pytest.raises(NotFound, match="no snapshot as old as"):
            table.scan(timestamp=later - timedelta(seconds=2))
    assert table.scan(timestamp=np.int64(first.time_millis)).count() == 1
    with pytest.raises(InvalidRequest, match="invalid timestamp NaT: the value is missing"):
        table.scan(timestamp=pd.NaT)
    for zone in ("nope", "+19:00", "", 3):
        with pytest.raises(InvalidRequest, match="time zone"):
            bitlake.connect(tmp_path, timezone=zone)  # type: ignore[arg-type]


def test_each_returned_value_shows_itself_in_one_line(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("id", pa.int64()), *((f"column_{i}", pa.string()) for i in range(40))]))
    for i in range(30):
        table.append(pa.table({"id": [i]}))
    scan = table.scan(where="id IN (" + ", ".join(map(str, range(200))) + ")")
    table.history.create_tag("a\nb".replace("\n", "_"))
    values = [
        lake, table, table.schema, table.snapshot, scan, scan.plan(), scan.explanation(), table.history.tags()["a_b"],
        table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0), dry_run=True),
        table.maintenance.verify(), table.maintenance.repair(), table.maintenance.report(),
        table.maintenance.inspect("snapshot-1"), table.indexes.advise(),
        *table.indexes.rebuild(), *table.indexes.list(),
    ]  # fmt: skip
    for value in values:
        shown = repr(value)
        assert len(shown) <= 300 and "\n" not in shown and type(value).__name__ in shown, shown
    assert repr(table.snapshot).startswith("Snapshot(30: APPEND at ") and repr(scan.plan()).endswith("30 of 30 rows)")
