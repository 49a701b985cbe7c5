"""``_metadata`` and ``input_file_name()`` in lake.sql: as Spark gives them over the same Parquet files.

``input_file_name()`` was empty, and ``_metadata`` an unresolved column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.spark.hadoop_path import hadoop_pattern

pytestmark = pytest.mark.spark

FORCED = "spark.paimon.read.spark-path"


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: Any) -> bitlake.Lake:
    """Tables t, of files in folders whose names a URI quotes, and u, one file that has a column ``file_name``."""
    root = tmp_path_factory.mktemp("file_metadata") / "a b+%é\u2003"
    lake = bitlake.connect(str(root), spark=spark)
    lake.sql("CREATE TABLE t (id BIGINT, v STRING, p STRING) PARTITIONED BY (p)")
    rows = "SELECT id, concat('v', id) v, IF(id % 2 = 0, 'x y', 'ü:%') p"
    lake.sql(f"INSERT INTO t {rows} FROM range(0, 300, 1, 1)")
    lake.sql(f"INSERT INTO t {rows} FROM range(300, 310, 1, 1)")
    lake.sql("CREATE TABLE u (id BIGINT, file_name STRING)")
    lake.sql("INSERT INTO u SELECT id, concat('n', id) FROM range(0, 10, 1, 1)")
    return lake


@pytest.fixture(params=["driver", "spark", "workers"])
def way(request: Any, spark: Any) -> Iterator[str]:
    """Each way to read files."""
    spark.conf.set(FORCED, request.param)
    yield request.param
    spark.conf.unset(FORCED)


VALUES = [
    "SELECT id, _metadata FROM {t} WHERE id IN (5, 6, 305)",
    "SELECT input_file_name(), count(*), min(t._metadata.row_index) FROM {t} GROUP BY 1",
    "SELECT input_file_block_start(), upper( INPUT_FILE_NAME ( ) ), input_file_block_length() FROM {u}",
]
"""Asked of each way to read files; the others are about names."""
QUERIES = [
    *VALUES,
    "SELECT id AS i FROM {t} WHERE t._metadata.row_index = 3 AND _metadata.file_size > 100",
    "SELECT t.id, u._metadata.file_name, t._METADATA.`row_index` FROM {t} JOIN {u} ON t.id = u.id",
    "SELECT x.n, t.id FROM {t} JOIN (SELECT id, _metadata.file_name n FROM {u}) x ON x.id = t.id",
    "WITH c AS (SELECT id, _metadata FROM {u}) SELECT _metadata.row_index, id FROM c JOIN {t} USING (id)",
    "SELECT id FROM {u} WHERE EXISTS (SELECT 1 FROM {t} WHERE t.id = u.id AND t._metadata.row_index <= u.id)",
    "SELECT u.*, t._metadata.row_index, * EXCEPT (v, p) FROM {u} JOIN {t} ON u.id = t.id",
    "SELECT * FROM {u} LEFT SEMI JOIN {t} ON t._metadata.row_index = u.id",
    "SELECT *, upper( INPUT_FILE_NAME ( ) ), input_file_block_start(), input_file_block_length() FROM {u}",
    "SELECT input_file_name() LIKE '%bucket-0%', count(*) FROM {t} WHERE input_file_name() > '' GROUP BY 1",
    "SELECT f, t.id FROM (SELECT id, input_file_name() f FROM {u}) x JOIN {t} ON t.id = x.id",
]


@pytest.fixture(scope="module")
def expected(lake: bitlake.Lake, spark: Any) -> list[tuple[list[str], list[Any]]]:
    """What Spark answers over its own relations of the files, which have the hidden column."""
    names = {}
    for table in ("t", "u"):
        folder = hadoop_pattern(lake.table(table).path)
        files = f"{folder}/p=*/bucket-*/*.parquet" if table == "t" else f"{folder}/bucket-*/*.parquet"
        names[table] = f"parquet.`{files}` AS {table}"
    found = [spark.sql(_ordered(text).format(**names)) for text in QUERIES]
    return [(frame.columns, frame.collect()) for frame in found]


def _ordered(text: str) -> str:
    return text if "ORDER BY" in text or "_metadata FROM {t}" in text else f"{text} ORDER BY ALL"


@pytest.mark.exhaustive
def test_spark_gives_the_same(lake: bitlake.Lake, way: str, expected: Any) -> None:
    asked = QUERIES if way == "driver" else VALUES
    for text, (columns, rows) in zip(asked, expected, strict=False):
        ours = lake.sql(_ordered(text).format(t="t", u="u"))
        assert (text, ours.columns) == (text, columns)
        assert sorted(map(str, ours.collect())) == sorted(map(str, rows)), text
        assert rows, text


def test_files_that_only_spark_s_reader_names(lake: bitlake.Lake, spark: Any) -> None:
    """The function over a query of the table: by Spark's reader it is known, else it is refused and not left empty."""
    text = "SELECT DISTINCT input_file_name() FROM (SELECT id FROM u) x"
    names = lake.sql("SELECT DISTINCT input_file_name() FROM u").collect()
    assert lake.sql(text).collect() == names
    assert names != [("",)]
    with pytest.raises(InvalidRequest, match="more than one source"):
        lake.sql("SELECT input_file_name() FROM t JOIN u ON t.id = u.id")
    spark.conf.set(FORCED, "workers")
    try:
        with pytest.raises(UnsupportedFeature, match="not read by Spark's reader"):
            lake.sql(text)
    finally:
        spark.conf.unset(FORCED)


def test_a_column_of_the_table_comes_first(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE own (id INT, _metadata STRING)")
    lake.sql("INSERT INTO own VALUES (1, 'mine')")
    assert lake.sql("SELECT _metadata, * FROM own").collect() == [("mine", 1, "mine")]
    assert lake.sql("SELECT id AS _metadata FROM u WHERE id = 1").collect() == [(1,)]
    with pytest.raises(NotFound, match="_metadata"):
        lake.sql("SELECT _metadata FROM (SELECT id FROM u) x")


def test_rows_of_several_files_have_none(lake: bitlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE k (id INT, v INT) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1', 'write-only' = 'true')"
    )
    lake.sql("INSERT INTO k VALUES (1, 1)")
    assert lake.sql("SELECT _metadata.row_index FROM k").collect() == [(0,)]
    lake.sql("INSERT INTO k VALUES (1, 2)")
    with pytest.raises(UnsupportedFeature, match="merged from several files"):
        lake.sql("SELECT input_file_name() FROM k")
    with pytest.raises(UnsupportedFeature, match="no data files"):
        lake.sql("SELECT input_file_name() FROM `k$snapshots`")
    with pytest.raises(UnsupportedFeature, match="do not take _metadata"):
        lake.sql("DELETE FROM u WHERE _metadata.row_index = 1")
