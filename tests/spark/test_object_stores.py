"""SQL on tables in a bucket: a real S3 server process, and Spark with nothing but the PySpark wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flaky_proxy
import pyarrow as pa
import pytest
import s3_server

import bitlake
from bitlake.errors import AccessDenied, InvalidRequest
from bitlake.spark.read import scan as spark_scan
from bitlake.spark.source.options import storage_spelling


@pytest.fixture(scope="module")
def lake(spark: Any, s3_endpoint: str) -> bitlake.Lake:
    made = bitlake.connect("s3://lake/sql", spark=spark, storage_options=s3_server.options(s3_endpoint))
    made.sql("CREATE DATABASE db")
    return made


def rows(lake: bitlake.Lake, text: str) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in lake.sql(text).collect()]


@pytest.mark.exhaustive
def test_append_tables(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql(
        "CREATE TABLE db.t (id BIGINT, s STRING, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('file-index.bitmap.columns' = 's', 'deletion-vectors.enabled' = 'true')"
    )
    lake.sql("INSERT INTO db.t VALUES (-1, 'local', 'x:y')")
    lake.sql("INSERT INTO db.t SELECT id, concat('v', id % 10), concat('p', id % 3) FROM range(30000)")
    table = lake.table("db.t")
    assert not table._core.store.dir_exists(f"{table.path}/.staging")
    assert rows(lake, "SELECT count(*), sum(id) FROM db.t") == [(30001, 449985000 - 1)]
    # Little data is read on the driver; here executors are to do it.
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    choice = spark_scan.choose(table.scan().plan())
    assert choice.selective and not choice.native and not choice.driver
    assert rows(lake, "SELECT p, count(*) FROM db.t GROUP BY p ORDER BY p") == [
        ("p0", 10000),
        ("p1", 10000),
        ("p2", 10000),
        ("x:y", 1),
    ]
    assert rows(lake, "SELECT id FROM db.t WHERE s = 'v3' AND id < 30 ORDER BY id") == [(3,), (13,), (23,)]
    assert rows(lake, "DELETE FROM db.t WHERE id % 2 = 1") == [(15000,)]
    assert rows(lake, "UPDATE db.t SET s = 'new' WHERE id = 4") == [(1,)]
    lake.sql("CALL sys.compact(`table` => 'db.t', compact_strategy => 'full')")
    assert rows(lake, "SELECT count(*), sum(id), count_if(s = 'new') FROM db.t") == [
        (15001, sum(range(0, 30000, 2)) - 1, 1)
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("door", ["sql", "source"])
def test_small_files_are_read_in_parallel(lake: bitlake.Lake, spark: Any, s3_endpoint: str, door: str) -> None:
    table = lake.create_table(f"db.small_{door}", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    for first in range(0, 1000, 100):
        table.append(pa.table({"id": range(first, first + 100), "s": [f"v{i % 7}" for i in range(first, first + 100)]}))
    if door == "sql":
        lake.sql("SET spark.paimon.read.spark-path = workers")
        frame = lake.sql(f"SELECT id FROM {table.name} WHERE s = 'v3'")
    else:
        options = storage_spelling(table.path, s3_server.options(s3_endpoint), {})
        frame = spark.read.format("bitlake").options(**options).load(table.path).where("s = 'v3'").select("id")
    try:
        assert sorted(row.id for row in frame.collect()) == list(range(3, 1000, 7))
    finally:
        lake.sql("RESET spark.paimon.read.spark-path")


def test_primary_key_tables(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE db.k (id BIGINT, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')")
    lake.sql("INSERT INTO db.k SELECT id, 'old' FROM range(2000)")
    lake.sql("INSERT INTO db.k SELECT id, 'new' FROM range(1000, 3000)")
    lake.sql("DELETE FROM db.k WHERE id < 10")
    lake.sql("CALL sys.compact(`table` => 'db.k')")
    assert rows(lake, "SELECT v, count(*) FROM db.k GROUP BY v ORDER BY v") == [("new", 2000), ("old", 990)]


def test_a_write_that_fails_leaves_no_file(lake: bitlake.Lake, s3_endpoint: str, spark: Any) -> None:
    lake.sql("CREATE TABLE db.r (id BIGINT)")
    with flaky_proxy.running(s3_endpoint) as proxy:
        options = s3_server.options(proxy.endpoint)
        other = bitlake.connect("s3://lake/sql", spark=spark, storage_options=options)
        proxy.plan = lambda method, path, number: (
            flaky_proxy.REFUSE if method == "PUT" and "/snapshot/" in path else flaky_proxy.PASS
        )
        with pytest.raises(AccessDenied):
            other.sql("INSERT INTO db.r SELECT id FROM range(1000)")
    table = lake.table("db.r")
    assert not table._core.store.list(f"{table.path}/bucket-0")
    assert rows(lake, "SELECT count(*) FROM db.r") == [(0,)]


def test_credentials_come_from_the_session(spark: Any, s3_endpoint: str, tmp_path: Path) -> None:
    keys = {
        "spark.hadoop.fs.s3a.endpoint": s3_endpoint,
        "spark.hadoop.fs.s3a.access.key": s3_server.KEY,
        "spark.hadoop.fs.s3a.secret.key": s3_server.SECRET,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.bitlake.local-cache.enabled": "true",
        "spark.bitlake.local-cache.dir": str(tmp_path / "cache"),
    }
    for name, value in keys.items():
        spark.conf.set(name, value)
    try:
        lake = bitlake.connect("s3a://lake/from-session", spark=spark)
        lake.sql("CREATE TABLE t (id INT)")
        lake.sql("INSERT INTO t VALUES (1)")
        assert rows(lake, "SELECT * FROM t") == [(1,)]
        assert s3_server.SECRET not in repr(lake.table("t")._core.store)
        assert list((tmp_path / "cache").rglob("*")), "the session's settings turn the local cache on"
        stream = lake.write_stream(lake.read_stream("t"), "u", tmp_path / "checkpoint", trigger={"availableNow": True})
        stream.awaitTermination()
        assert rows(lake, "SELECT * FROM u") == [(1,)], "the source's own processes have no session"
    finally:
        for name in keys:
            spark.conf.unset(name)


def test_memory_is_for_this_process(spark: Any) -> None:
    lake = bitlake.connect("memory://sql/wh", spark=spark)
    lake.sql("CREATE TABLE t (id INT)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    assert sorted(rows(lake, "SELECT * FROM t")) == [(1,), (2,)]
    with pytest.raises(InvalidRequest, match="in this process only"):
        lake.sql("INSERT INTO t SELECT id FROM range(10)")


def test_a_jdbc_catalog_in_sql(spark: Any, s3_endpoint: str, tmp_path: Path) -> None:
    options = s3_server.options(s3_endpoint)
    uri = f"sqlite:///{tmp_path}/c.db"
    lake = bitlake.connect("s3://lake/jdbc-sql", spark=spark, storage_options=options, catalog="jdbc", uri=uri)
    lake.sql("CREATE DATABASE db")
    lake.sql("CREATE TABLE db.t (id INT)")
    lake.sql("INSERT INTO db.t VALUES (1)")
    lake.sql("ALTER TABLE db.t RENAME TO db.u")
    assert rows(lake, "SELECT * FROM db.u") == [(1,)]
    assert [r[1] for r in rows(lake, "SHOW TABLES IN db")] == ["u"]
    lake.sql("DROP DATABASE db CASCADE")
    assert rows(lake, "SHOW DATABASES") == [("default",)]


def test_a_session_completes_the_options_of_the_source() -> None:
    session = {
        "spark.hadoop.fs.s3a.endpoint": "http://session:1",
        "spark.hadoop.fs.s3a.access.key": "of-session",
        "spark.hadoop.fs.s3a.session.token": "of-session",
        "spark.hadoop.fs.s3a.fast.upload": "true",
        "spark.hadoop.dfs.namenode.http-address": "host:9870",
        "spark.bitlake.local-cache.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
    }
    cache = {"local-cache.enabled": "true"}
    keys = {k: v for k, v in session.items() if "endpoint" in k or "of-session" in v}
    assert storage_spelling("s3://b/x", {}, session) == {**cache, **keys}
    own = {"access_key_id": "mine", "secret_access_key": "mine"}
    given = {"s3.access_key_id": "mine", "s3.secret_access_key": "mine"}
    endpoint = {"spark.hadoop.fs.s3a.endpoint": "http://session:1"}
    assert storage_spelling("s3://b/x", own, session) == {**cache, **endpoint, **given}
    address = {"spark.hadoop.dfs.namenode.http-address": "host:9870"}
    assert storage_spelling("webhdfs://h/x", {}, session) == {**cache, **address}
    assert storage_spelling("/x", {}, session) == {}
