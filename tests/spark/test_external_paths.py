"""Files in external paths and in a data directory through SQL, the data source and streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bitlake
from bitlake.errors import InvalidRequest


def rows(lake: bitlake.Lake, text: str) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in lake.sql(text).collect()]


@pytest.mark.parametrize(
    ("file_format", "key", "count"), [("parquet", False, 300_000), ("orc", False, 3_000), ("parquet", True, 30_000)]
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
    assert table.verify().ok
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
