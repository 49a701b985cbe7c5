"""ORC and Avro tables through Spark: written on the executors, read back by SQL, formats mixed in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.orc_files import strings_file
from long import exhaustive

import bitlake
from bitlake.errors import InvalidRequest
from tests.answers import rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Any:
    made = bitlake.connect(str(tmp_path), spark=spark)
    made.sql("CREATE DATABASE db")
    return made


def data_files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("data-*") if not p.name.endswith(".index") and ".staging" not in str(p)]


@pytest.mark.parametrize("layout", ["", exhaustive("PARTITIONED BY (p)"), exhaustive("BUCKETS")])
@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_a_query_written_and_read(lake: Any, tmp_path: Path, file_format: str, layout: str) -> None:
    buckets = ", 'bucket' = '2', 'bucket-key' = 'id'" if layout == "BUCKETS" else ""
    layout = "" if layout == "BUCKETS" else layout
    lake.sql(
        f"CREATE TABLE db.t (id BIGINT, p STRING, c STRING, at TIMESTAMP, m MAP<INT, STRING>) {layout} TBLPROPERTIES "
        f"('file.format' = '{file_format}', 'file-index.bitmap.columns' = 'c'{buckets})"
    )
    source = (
        "SELECT id, IF(id % 3 = 0, NULL, concat('p', id % 3)) AS p, concat('c', id % 7) AS c, "
        "timestamp_micros(id * 1000001) AS at, map(cast(id as int), 'x') AS m FROM range(2000)"
    )
    lake.sql(f"INSERT INTO db.t {source}")
    files = data_files(tmp_path)
    assert files and {f.suffix for f in files} == {f".{file_format}"}
    assert not list(tmp_path.rglob(".staging/*"))
    assert rows_of(lake.sql("SELECT count(*), sum(id), count(p), count(DISTINCT at) FROM db.t")) == [
        [2000, 1999000, 1333, 2000]
    ]
    assert rows_of(lake.sql("SELECT count(*) FROM db.t WHERE c = 'c3'")) == [[286]]
    assert rows_of(lake.sql("SELECT id, p, c, m[77] FROM db.t WHERE id = 77")) == [[77, "p2", "c0", "x"]]
    plan = lake.table("db.t").scan(where="c = 'c3'").plan()
    assert plan.chosen_rows == 286


@pytest.mark.exhaustive
def test_formats_mixed_after_an_alter(lake: Any, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.t (id BIGINT, v STRING)")
    for number, file_format in enumerate(["parquet", "orc", "avro"]):
        lake.sql(f"ALTER TABLE db.t SET TBLPROPERTIES ('file.format' = '{file_format}')")
        lake.sql(f"INSERT INTO db.t SELECT id + {number * 1000}, concat('v', id) FROM range(1000)")
    assert {f.suffix for f in data_files(tmp_path)} == {".parquet", ".orc", ".avro"}
    assert rows_of(lake.sql("SELECT count(*), sum(id) FROM db.t")) == [[3000, sum(range(3000))]]
    lake.sql("ALTER TABLE db.t SET TBLPROPERTIES ('file-index.bitmap.columns' = 'v')")
    lake.sql("CALL sys.rewrite_file_index('db.t')").collect()
    assert lake.table("db.t").scan(where="v = 'v7'").plan().chosen_rows == 3
    assert rows_of(lake.sql("SELECT id FROM db.t WHERE v = 'v7' ORDER BY id")) == [[7], [1007], [2007]]


def test_a_value_that_does_not_fit_leaves_nothing(lake: Any, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.t (at TIMESTAMP_NTZ) TBLPROPERTIES ('file.format' = 'orc')")
    with pytest.raises(InvalidRequest, match="2262"):
        lake.sql("INSERT INTO db.t SELECT TIMESTAMP_NTZ'3000-01-01 00:00:00' FROM range(10)")
    assert not data_files(tmp_path)
    assert rows_of(lake.sql("SELECT count(*) FROM db.t")) == [[0]]


def test_map_keys_in_sql_are_pruned(lake: Any) -> None:
    lake.sql(
        "CREATE TABLE db.m (id INT, m MAP<STRING, STRING>) "
        "TBLPROPERTIES ('file-index.bloom-filter.columns' = 'm[a]', 'file-index.bitmap.columns' = 'm[b]')"
    )
    for start in (0, 100):
        lake.sql(
            f"INSERT INTO db.m SELECT id, IF(id % 9 = 0, NULL, map('a', concat('a', id), 'b', concat('b', id % 4))) "
            f"FROM range({start}, {start + 100})"
        )
    assert rows_of(lake.sql("SELECT id FROM db.m WHERE m['a'] = 'a105'")) == [[105]]
    assert rows_of(lake.sql("SELECT count(*) FROM db.m t WHERE element_at(t.m, 'b') IN ('b1', 'b2') AND id < 50")) == [
        [sum(1 for i in range(50) if i % 9 and i % 4 in (1, 2))]
    ]
    assert rows_of(lake.sql("SELECT count(*) FROM db.m WHERE m['b'] <> 'b1' OR m['c'] = 'x'")) == [
        [sum(1 for i in range(200) if i % 9 and i % 4 != 1)]
    ]
    text = "\n".join(str(r) for r in rows_of(lake.sql("EXPLAIN SELECT id FROM db.m WHERE m['a'] = 'a105'")))
    assert "bloom-filter(m[a])" in text or "m['a']" in text
    assert rows_of(lake.sql("SELECT id FROM (SELECT id, m AS k FROM db.m) WHERE k['a'] = 'a7'")) == [[7]]


def test_a_damaged_orc_file_leaves_the_worker_alive(spark: Any, tmp_path: Path) -> None:
    """A worker is forked from Spark's daemon and reads ORC through a process of its own."""
    good, damaged = strings_file([3, 1], b"abcd"), strings_file([1 << 46, 1], b"abcd")

    def read(batches: Any) -> Any:
        import pyarrow as pa

        from bitlake.errors import CorruptError
        from bitlake.formats.orc import read_columns

        for batch in batches:
            told: list[str] = []
            for data in (good, damaged, good):
                try:
                    told.append(str(pa.Table.from_batches(read_columns(pa.BufferReader(data))).to_pylist()))
                except CorruptError as e:
                    told.append(str(e).split(" on it")[0])
            yield pa.RecordBatch.from_pydict({"text": told * batch.num_rows})

    rows = spark.range(4, numPartitions=2).mapInArrow(read, "text STRING").collect()
    texts = [row["text"] for row in rows]
    wanted = "[{'s': 'abc'}, {'s': 'd'}]"
    assert len(texts) == 12 and texts.count(wanted) == 8
    assert {t.rpartition(" ")[0] for t in texts if t != wanted} == {"Arrow's ORC reader ended with"}
