"""Files of a bucket read by Spark's own reader, where the session has a Hadoop connector for it.

A connector needs no jar here: Hadoop's ``ViewFileSystemOverloadScheme`` shows a local folder as ``s3a://lake``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import every

import bitlake
from bench import folder_server
from bitlake.errors import BitlakeError
from bitlake.spark import hadoop_path
from bitlake.spark.read import scan as spark_scan

ROWS = 30_000
BY_SPARK, BY_WORKERS = "by Spark's own Parquet reader", "page by page in Python workers"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connectors")
    lake = bitlake.connect(str(folder / "wh"))
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "p": pa.array([f"x:{i % 3}" for i in range(ROWS)])})
    deleted = {"deletion-vectors.enabled": "true"}
    lake.create_table("t", rows.schema, partition_by=["p"]).append(rows)
    lake.create_table("vectors", rows.schema, options=deleted).append(rows)
    lake.table("vectors").delete("id % 10 = 3")
    keyed = lake.create_table("keyed", rows.schema, primary_key=["id"], options={"bucket": "1"})
    keyed.upsert(rows)
    keyed.upsert(rows.slice(0, 10))
    return folder


@pytest.fixture
def lake(root: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[bitlake.Lake]:
    # Little data is read on the driver; here executors are to do it.
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    monkeypatch.setattr(spark_scan, "SMALL_BYTES", 0)
    with folder_server.running(root, 0, 10_000) as server:
        yield bitlake.connect("s3://lake/wh", spark=spark, storage_options=server.options)


@pytest.fixture
def connect(spark: Any) -> Iterator[Callable[[Path], None]]:
    """Give the session a connector for s3a:// that shows a folder as the bucket ``lake``."""
    if not hasattr(spark, "_jsparkSession"):
        pytest.skip("Spark Connect has no Hadoop to look at")
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.s3a.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    }

    def set_up(folder: Path) -> None:
        settings["fs.viewfs.mounttable.lake.link./wh"] = f"file://{folder}/wh"
        for key, value in settings.items():
            spark.conf.set(key, value)

    yield set_up
    for key in settings:
        spark.conf.unset(key)


def how(lake: bitlake.Lake, query: str) -> str:
    text = lake.sql(f"EXPLAIN {query}").collect()[0][0]
    return next(line for line in text.splitlines() if line.strip().startswith("read "))


def rows(lake: bitlake.Lake, query: str) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in lake.sql(query).collect()]


QUERIES = {
    "SELECT p, count(*), sum(id) FROM t WHERE id % 7 < 5 GROUP BY p ORDER BY p": BY_SPARK,
    "SELECT count(*), sum(id) FROM vectors": BY_SPARK,
    "SELECT count(*), sum(id) FROM keyed": BY_WORKERS,
}


@pytest.mark.parametrize("query", every(3, QUERIES))
def test_whole_files_go_to_sparks_reader(
    lake: bitlake.Lake, root: Path, connect: Callable[[Path], None], query: str
) -> None:
    expected = rows(lake, query)
    assert BY_WORKERS in how(lake, query) and BY_SPARK not in how(lake, query)
    local = bitlake.connect(str(root / "wh"), spark=lake._spark)
    assert rows(local, query) == expected
    lake._catalog.store.caches[hadoop_path._CONNECTORS].clear()
    connect(root)
    assert QUERIES[query] in how(lake, query)
    assert rows(lake, query) == expected


def test_metadata_and_changes_are_the_same(lake: bitlake.Lake, connect: Callable[[Path], None], root: Path) -> None:
    query = "SELECT _metadata.file_path, count(*), sum(_metadata.row_index) FROM t GROUP BY 1 ORDER BY 1"
    expected = rows(lake, query)
    assert all(path.startswith("s3://lake/wh/") for path, _, _ in expected)
    lake._catalog.store.caches[hadoop_path._CONNECTORS].clear()
    connect(root)
    assert rows(lake, query) == expected


def test_a_connector_that_finds_other_files_is_not_used(
    lake: bitlake.Lake, connect: Callable[[Path], None], tmp_path: Path
) -> None:
    query = "SELECT count(*), sum(id) FROM t"
    expected = rows(lake, query)
    lake._catalog.store.caches[hadoop_path._CONNECTORS].clear()
    connect(tmp_path)
    assert BY_WORKERS in how(lake, query)
    assert rows(lake, query) == expected


def test_a_bucket_is_probed_again(
    lake: bitlake.Lake, connect: Callable[[Path], None], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT count(*), sum(id) FROM t"
    assert BY_WORKERS in how(lake, query)
    connect(root)
    assert BY_WORKERS in how(lake, query), "for a minute"
    now = hadoop_path.time.monotonic() + hadoop_path._BELIEVED_SECONDS
    monkeypatch.setattr(hadoop_path.time, "monotonic", lambda: now)
    assert BY_SPARK in how(lake, query)


def test_a_connector_without_an_answer_is_not_waited_for(
    lake: bitlake.Lake, connect: Callable[[Path], None], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(root)
    monkeypatch.setattr(hadoop_path, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(hadoop_path.Connectors, "_ask", lambda *_: None)
    lake._catalog.store.caches[hadoop_path._CONNECTORS].clear()
    assert BY_WORKERS in how(lake, "SELECT count(*), sum(id) FROM t")


def test_a_lost_file_is_an_error(lake: bitlake.Lake, connect: Callable[[Path], None], root: Path) -> None:
    made = bitlake.connect(str(root / "wh")).create_table("lost", pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": range(1000)}))
    made.append(pa.table({"id": range(1000)}))
    connect(root)
    lake._catalog.store.caches[hadoop_path._CONNECTORS].clear()
    assert rows(lake, "SELECT sum(id) FROM lost WHERE id >= 0") == [(999_000,)]
    path = Path(made.scan().plan().files[1].path)
    path.write_bytes(path.read_bytes()[:-5])
    lake._catalog.runtime.caches.clear()
    with pytest.raises(BitlakeError, match="the manifest says"):
        rows(lake, "SELECT sum(id) FROM lost WHERE id > 0")
    path.unlink()
    lake._catalog.runtime.caches.clear()
    with pytest.raises(BitlakeError, match=path.name):
        rows(lake, "SELECT sum(id) FROM lost WHERE id > 1")
