"""Paths between bitlake's stores and Spark's JVM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive, long

import bitlake
from bitlake.spark.hadoop_path import hadoop_path, hadoop_pattern, is_hidden

ROWS = 210_000  # beyond what the driver reads itself


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/a/b", "file:/a/b"),
        ("file:/a/b", "file:/a/b"),
        ("file:///a//b/", "file:/a/b"),
        ("file://localhost/a", "file:/a"),
        ("/a b%41+#?é", "file:/a b%41+#?é"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("hdfs://host:1/a", "hdfs://host:1/a"),
    ],
)
def test_a_path_for_hadoop_is_absolute_and_has_its_scheme(given: str, expected: str) -> None:
    assert hadoop_path(given) == expected


def test_relative_paths_and_parents_are_resolved_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "x" / "y")
    monkeypatch.chdir(tmp_path)
    assert hadoop_path("a") == hadoop_path("file:a") == f"file:{tmp_path}/a"
    # As the file system resolves it: as text, it would be tmp_path/a.
    assert hadoop_path(f"{tmp_path}/link/../a") == f"file:{os.path.realpath(tmp_path)}/x/a"


def test_patterns_and_hidden_names() -> None:
    assert hadoop_pattern("/a[1]{b}*?\\") == "file:/a\\[1\\]\\{b\\}\\*\\?\\\\"
    assert is_hidden("/a/_data-1.parquet") and is_hidden("/a/.data") and not is_hidden("/_a/k=_b/data")


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.parametrize(
    ("form", "folder"), [long("file://{}", "plain"), ("file:{}", "a b%41+#é"), ("{}", "a?[1]{b,c}*\\d")]
)
def test_spark_reads_writes_and_changes_a_table_of_megabytes(
    spark: Any, tmp_path: Path, form: str, folder: str
) -> None:
    # connect("file:///…"): each Spark read of a table over 1 MB failed, since the URI was taken for a relative path;
    # below a folder with a "?", it gave no rows.
    root = form.format(tmp_path / folder)
    lake = bitlake.connect(root, spark=spark)
    rows = pa.table({"id": np.arange(ROWS), "v": np.random.default_rng(1).integers(0, 1 << 40, ROWS)})
    lake.create_table("t", rows.schema, options={"deletion-vectors.enabled": "true"}).append(rows)
    assert lake.sql("SELECT sum(v), count(*) FROM t WHERE v >= 0").collect()[0] == (
        int(rows["v"].to_numpy().sum()),
        ROWS,
    )
    paths = lake.sql("SELECT DISTINCT __paimon_file_path FROM t WHERE id >= 0").toArrow().column(0).to_pylist()
    assert paths == lake.table("t").scan(["__paimon_file_path"], limit=1).to_arrow().column(0).to_pylist()
    lake.sql("DELETE FROM t WHERE id % 2 = 1")
    lake.sql("INSERT INTO t SELECT id + 1, v FROM t")
    assert lake.sql("SELECT count(DISTINCT id), sum(id) FROM t").collect()[0] == (ROWS, ROWS * (ROWS - 1) // 2)


@pytest.mark.spark
def test_files_that_spark_takes_for_hidden_are_read(spark: Any, tmp_path: Path) -> None:
    # Spark's reader skips files whose names begin with "_" or "." without a word.
    lake = bitlake.connect(str(tmp_path), spark=spark)
    rows = pa.table({"v": np.random.default_rng(1).integers(0, 1 << 60, ROWS)})
    lake.create_table("t", rows.schema, options={"data-file.prefix": "_part-"}).append(rows)
    assert lake.sql("SELECT count(v) FROM t WHERE v >= 0").collect()[0][0] == ROWS


@pytest.mark.spark
def test_a_missing_file_in_a_folder_named_like_a_pattern_is_an_error(spark: Any, tmp_path: Path) -> None:
    # Spark takes the path for a pattern that matches nothing, and gives no rows.
    lake = bitlake.connect(str(tmp_path / "a[1]"), spark=spark)
    rows = pa.table({"v": np.random.default_rng(1).integers(0, 1 << 60, ROWS)})
    lake.create_table("t", rows.schema).append(rows)
    (file,) = (tmp_path / "a[1]").rglob("data-*.parquet")
    file.unlink()
    with pytest.raises(bitlake.errors.NotFound, match="data-"):
        lake.sql("SELECT sum(v) FROM t WHERE v > 10").collect()


@pytest.mark.spark
@pytest.mark.parametrize("form", [exhaustive("file://{}"), "{}"])
def test_copy_and_migrate_take_names_as_they_are(spark: Any, tmp_path: Path, form: str) -> None:
    root, folder = form.format(tmp_path), form.format(tmp_path / "out %41[1]+é")
    lake = bitlake.connect(f"{root}/lake", spark=spark)
    rows = pa.table({"v": pa.array([1, 2, 3])})
    lake.create_table("t", rows.schema).append(rows)
    lake.create_table("u", rows.schema)
    copied = lake.sql(f"COPY INTO '{folder}' FROM t FILE_FORMAT = (TYPE = PARQUET)").collect()[0]
    assert copied.rows_written == 3
    loaded = lake.sql(f"COPY INTO u FROM '{folder}' FILE_FORMAT = (TYPE = PARQUET)").collect()
    assert {r.status for r in loaded} == {"LOADED"} and sum(r.rows_loaded for r in loaded) == 3
    other = hadoop_path(folder)  # the same folder under another name: its files were loaded
    again = lake.sql(f"COPY INTO u FROM '{other}' FILE_FORMAT = (TYPE = PARQUET)").collect()
    assert {r.status for r in again} == {"SKIPPED"} and len(again) == copied.file_count
    lake.sql(f"CALL sys.migrate_table(source_type => 'parquet', table => '{folder}', target_table => 'm')")
    assert lake.sql("SELECT sum(v) FROM m").collect()[0][0] == lake.sql("SELECT sum(v) FROM u").collect()[0][0] == 6
    if form == "{}":
        # The folder of a table of Spark's catalog was percent-decoded, which it is not encoded for.
        place = f"LOCATION '{tmp_path}/spark %41'"
        spark.sql(f"CREATE TABLE spark_catalog.default.old_v USING parquet {place} AS SELECT 7 AS v")
        lake.sql("CALL sys.migrate_table(source_type => 'hive', table => 'default.old_v', target_table => 'n')")
        assert lake.sql("SELECT sum(v) FROM n").collect()[0][0] == 7


@pytest.mark.spark
def test_spark_lists_each_file_once_below_a_folder_that_looks_like_a_pattern(spark: Any, tmp_path: Path) -> None:
    # With globbing off, Spark listed all files again for each of them: 2,000 took minutes and all of the heap.
    lake = bitlake.connect(str(tmp_path / "a[1]{b,c}*?\\d"), spark=spark)
    lake.sql("CREATE TABLE t (v BIGINT, p STRING) PARTITIONED BY (p) TBLPROPERTIES ('read.spark-path' = 'spark')")
    lake.table("t").append(pa.table({"v": range(40), "p": [f"*{i}" for i in range(40)]}))
    frame = lake.sql("SELECT sum(v) FROM t WHERE v >= 0")
    assert frame.collect()[0][0] == sum(range(40))
    if hasattr(frame, "_jdf"):  # not on Spark Connect
        relation = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().relation()
        assert relation.location().rootPaths().size() == 40
