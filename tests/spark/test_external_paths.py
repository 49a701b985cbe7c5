"""Files in external paths and in a data directory through SQL, the data source and streams."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest

SETTING = "spark.bitlake.external-paths"
ROW = pa.table({"id": pa.array([1], pa.int64())})


def rows(lake: bitlake.Lake, text: str) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in lake.sql(text).collect()]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("file_format", "key", "count"), [("parquet", False, 110_000), ("orc", False, 3_000), ("parquet", True, 30_000)]
)
def test_sql_on_external_paths(spark: Any, tmp_path: Path, file_format: str, key: bool, count: int) -> None:
    roots = [tmp_path / "ext 1%2F", tmp_path / "ext2"]
    named = [f"file:{root}" for root in roots]
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, external_paths=named)
    lake.sql(
        f"CREATE TABLE t (id BIGINT, v STRING, p INT) PARTITIONED BY (p) TBLPROPERTIES ("
        f"'data-file.external-paths' = '{','.join(named)}', 'data-file.external-paths.strategy' = 'round-robin', "
        f"'data-file.path-directory' = 'data', 'file.format' = '{file_format}'"
        + (", 'primary-key' = 'p,id', 'bucket' = '1'" if key else "")
        + ", 'deletion-vectors.enabled' = 'true', 'file-index.bitmap.columns' = 'v')"
    )
    for _ in range(2):
        lake.sql(f"INSERT INTO t SELECT id, concat('v', id % 7), id % 3 FROM range({count})")
    table = lake.table("t")
    suffix = f"*.{file_format}"
    assert list(Path(table.path).rglob(suffix)) == []
    found = [p for root in roots for p in root.rglob(suffix)]
    assert found and {p.parts[-4] for p in found} == {"data"}
    times = 1 if key else 2
    assert rows(lake, "SELECT count(*), sum(id) FROM t") == [(count * times, sum(range(count)) * times)]
    assert rows(lake, "SELECT count(*) FROM t WHERE v = 'v3' AND p = 1") == [
        (len([i for i in range(count) if i % 7 == 3 and i % 3 == 1]) * times,)
    ]
    lake.sql("DELETE FROM t WHERE id < 10")
    lake.sql("UPDATE t SET v = 'new' WHERE id = 11")
    assert rows(lake, "SELECT count(*), count_if(v = 'new') FROM t") == [((count - 10) * times, times)]
    lake.sql("CALL sys.compact(table => 't')")
    assert rows(lake, "SELECT count(*), count_if(v = 'new') FROM t") == [((count - 10) * times, times)]
    options = {"external-paths": ",".join(named)}
    assert spark.read.format("bitlake").options(**options).load(table.path).count() == (count - 10) * times
    with pytest.raises(Exception, match="external-paths"):
        spark.read.format("bitlake").load(table.path).count()
    lake.sql("CALL sys.expire_snapshots(table => 't', retain_max => 1)")
    assert rows(lake, "SELECT count(*) FROM t") == [((count - 10) * times,)]
    assert table.maintenance.verify().ok
    lake.sql("DROP TABLE t")
    assert [p for root in roots for p in root.rglob("*") if p.is_file()] == []


def test_the_session_allows_external_paths(spark: Any, tmp_path: Path) -> None:
    root = f"file:{tmp_path / 'ext'}"
    create = (
        f"CREATE TABLE t (id INT) TBLPROPERTIES ('data-file.external-paths' = '{root}', "
        "'data-file.external-paths.strategy' = 'round-robin')"
    )
    refused = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    refused.sql(create)
    with pytest.raises(InvalidRequest, match="spark.bitlake.external-paths"):
        refused.sql("INSERT INTO t VALUES (1)")
    assert not (tmp_path / "ext").exists()
    spark.conf.set("spark.bitlake.external-paths", f"{tmp_path / 'other'}, {root}")
    try:
        lake = bitlake.connect(str(tmp_path / "lake"), spark=spark)
        lake.sql("INSERT INTO t VALUES (1)")
        assert rows(lake, "SELECT * FROM t") == [(1,)]
    finally:
        spark.conf.unset("spark.bitlake.external-paths")
    with pytest.raises(InvalidRequest, match="--external-path"):
        refused.sql("SELECT * FROM t").collect()


@contextmanager
def allowed(spark: Any, paths: str) -> Iterator[None]:
    spark.conf.set(SETTING, paths)
    try:
        yield
    finally:
        spark.conf.unset(SETTING)


def external_table(tmp_path: Path, root: str) -> None:
    """A table ``t`` of one row, whose data file is below the root."""
    lake = bitlake.connect(str(tmp_path / "lake"), external_paths=[root])
    options = {"data-file.external-paths": root, "data-file.external-paths.strategy": "round-robin"}
    lake.create_table("t", ROW.schema, options=options).append(ROW)


def test_tables_without_external_files_ask_the_session_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask for the setting took as long as to plan a small table."""
    path = str(tmp_path / "lake")
    bitlake.connect(path).create_table("t", ROW.schema).append(ROW)
    client, asked = type(spark.sparkContext._gateway._gateway_client), []
    send = client.send_command

    def counted(self: Any, command: str, *args: Any, **named: Any) -> Any:
        if not command.startswith("m\n"):  # Python's garbage collector lets objects of the JVM go at any time
            asked.append(command)
        return send(self, command, *args, **named)

    monkeypatch.setattr(client, "send_command", counted)
    for session in (None, spark):
        lake = bitlake.connect(path, spark=session)
        table = lake.table("t")
        assert table.scan(where="id = 1").to_arrow() == ROW
        table.append(ROW.slice(0, 0))
        assert asked == []
    assert spark.conf.get("spark.master") and asked  # the count counts


@pytest.mark.parametrize("given", [True, False])
def test_the_session_is_asked_once_when_a_path_is_met(spark: Any, tmp_path: Path, given: bool) -> None:
    root, path = f"file:{tmp_path / 'ext'}", str(tmp_path / "lake")
    external_table(tmp_path, root)
    session = spark if given else None
    lakes = [bitlake.connect(path, spark=session) for _ in range(2)]
    with allowed(spark, root):
        assert lakes[0].table("t").scan().to_arrow() == ROW
    assert lakes[0].table("t").scan().to_arrow() == ROW
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=SETTING):
            lakes[1].table("t").scan().to_arrow()
        spark.conf.set(SETTING, root)  # too late: the lake has asked
    spark.conf.unset(SETTING)


def test_a_revoked_path_is_not_written_to_or_deleted(spark: Any, tmp_path: Path) -> None:
    root, path = f"file:{tmp_path / 'ext'}", str(tmp_path / "lake")
    external_table(tmp_path, root)
    before = sorted((tmp_path / "ext").rglob("*"))
    for call in (
        lambda table: table.append(ROW),
        lambda table: table.overwrite(ROW),
        lambda table: table.maintenance.remove_orphan_files(2**60),
    ):
        with allowed(spark, root):
            lake = bitlake.connect(path, spark=spark)
        with pytest.raises(InvalidRequest, match=SETTING):
            call(lake.table("t"))
    with allowed(spark, root):
        lake = bitlake.connect(path, spark=spark)
    lake.drop_table("t")
    assert sorted((tmp_path / "ext").rglob("*")) == before


def test_a_thread_without_a_session_asks_the_one_of_connect(spark: Any, tmp_path: Path) -> None:
    """The JVM knows the active session by thread; files are read in threads, too."""
    root, path = f"file:{tmp_path / 'ext'}", str(tmp_path / "lake")
    external_table(tmp_path, root)
    with allowed(spark, root), ThreadPoolExecutor(1) as pool:
        lake = bitlake.connect(path)
        assert pool.submit(lambda: lake.table("t").scan().to_arrow()).result() == ROW


def test_the_session_allows_a_folder_of_another_store(spark: Any, tmp_path: Path) -> None:
    root, path = "memory://session-external/ext", str(tmp_path / "lake")
    external_table(tmp_path, root)
    with allowed(spark, root):
        assert bitlake.connect(path).table("t").scan().to_arrow() == ROW
    with pytest.raises(InvalidRequest, match=SETTING):
        bitlake.connect(path).table("t").scan().to_arrow()


def test_a_setting_that_names_no_place_is_refused(spark: Any, tmp_path: Path) -> None:
    external_table(tmp_path, f"file:{tmp_path / 'ext'}")
    with allowed(spark, "relative/folder"), pytest.raises(InvalidRequest, match="relative/folder"):
        bitlake.connect(str(tmp_path / "lake")).table("t").scan().to_arrow()


@pytest.mark.exhaustive
def test_streams_write_external_files(spark: Any, tmp_path: Path) -> None:
    root = f"file:{tmp_path / 'ext'}"
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, external_paths=[root])
    lake.sql(
        f"CREATE TABLE t (id BIGINT) TBLPROPERTIES ('data-file.external-paths' = '{root}', "
        "'data-file.external-paths.strategy' = 'round-robin')"
    )
    spark.range(1000).write.mode("overwrite").parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "source"))
    query = (
        stream.writeStream.format("bitlake")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("external-paths", root)
        .trigger(availableNow=True)
        .start(lake.table("t").path)
    )
    query.awaitTermination()
    assert lake.table("t").scan().count() == 1000
    assert list((tmp_path / "ext").rglob("*.parquet")) and not list((tmp_path / "lake").rglob("*.parquet"))
