"""The data source in a user's session: what it creates and refuses, its messages, why filters are not pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.spark.source.options import IN_SPARKS_CATALOG

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    """The session with pushdown to Python data sources on."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def test_register_twice(spark: Any, lake: bitlake.Lake) -> None:
    lake.create_table("t", pa.table({"id": [1, 2, 3]}))
    for _ in range(2):
        bitlake.register(spark)
    for name in ("bitlake", "paimon"):
        assert spark.read.format(name).load(f"{lake.path}/default.db/t").count() == 3


# --- filters --------------------------------------------------------------------------------------------------------


def _pushing_source() -> type[DataSource]:
    """A source of the numbers 0 to 3 that plans with ``id = n``, and leaves the filters to Spark, too."""

    class Reader(DataSourceReader):
        numbers: Iterable[int] = range(4)

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            self.numbers = [f.value for f in filters if isinstance(f, EqualTo)] or range(4)
            return filters

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(n) for n in self.numbers]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers_for_bitlake"

        def schema(self) -> str:
            return "id int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    return Numbers


def _answers(frame: Any) -> list[list[int]]:
    """What queries over one DataFrame return: each filter, both in a union and in a join, then all rows."""
    one, two = frame.where("id = 1"), frame.where("id = 2")
    queries = [one, two, one.union(two), one.union(frame), one.join(frame.where("id IN (1, 2)"), "id"), frame]
    return [sorted(r.id for r in q.select("id").collect()) for q in queries]


RIGHT = [[1], [2], [1, 2], [0, 1, 1, 2, 3], [1], [0, 1, 2, 3]]


def test_spark_reuses_the_partitions_of_a_pushed_filter(pushing: Any) -> None:
    """Spark's bug for which bitlake pushes no filters.

    PySpark 4.1 to 4.3 keep the partitions that were planned with a filter in the relation, which every query over the
    DataFrame shares.  If this fails, the PySpark at hand plans each scan by itself, and filters can be pushed.
    """
    pushing.dataSource.register(_pushing_source())
    answers = _answers(pushing.read.format("numbers_for_bitlake").load())
    assert answers[0] == [1], "the first query is right"
    assert answers != RIGHT
    assert answers[-1] != [0, 1, 2, 3], "a query without a filter reads the partitions of another's"


def test_queries_over_one_frame_of_bitlakes_are_right(pushing: Any, lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int32())]), options={"file-index.bitmap.columns": "id"})
    for n in range(4):
        table.append(pa.table({"id": pa.array([n], pa.int32())}))
    frame = pushing.read.format("bitlake").load(table.path)
    assert _answers(frame) == RIGHT
    frame.createOrReplaceTempView("numbers")
    assert pushing.sql("SELECT a.id FROM numbers a JOIN numbers b ON a.id = b.id + 1 WHERE a.id = 2").collect() == [
        (2,)
    ]
    assert pushing.sql("SELECT count(*) FROM numbers").collect() == [(4,)]


# --- tables of Spark's own catalog ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE made (id INT) USING bitlake",
        "/* a */ create or replace table made (id INT COMMENT 'USING parquet') -- b\n using `bitlake` LOCATION '/x'",
        "CREATE TABLE made USING bitlake OPTIONS (path '/x')",
        "CREATE TABLE made USING BITLAKE AS SELECT 1 AS id",
    ],
)
def test_create_table_using_bitlake_is_refused_at_once(spark: Any, lake: bitlake.Lake, text: str) -> None:
    """Spark made a table that no query could read, since it gives the source neither its name nor its folder."""
    bitlake.register(spark)
    with pytest.raises(InvalidRequest) as raised:
        spark.sql(text)
    assert str(raised.value) == IN_SPARKS_CATALOG
    assert not spark.catalog.tableExists("made")


def test_other_statements_are_sparks(spark: Any, lake: bitlake.Lake) -> None:
    bitlake.register(spark)
    path = lake.create_table("t", pa.table({"id": [1, 2, 3]})).path
    spark.sql(f"CREATE TEMPORARY VIEW seen USING bitlake OPTIONS (path '{path}', where 'id > :n')".replace(":n", "1"))
    assert spark.sql("SELECT count(*) FROM seen WHERE id < :n", {"n": 3}).collect() == [(1,)]
    spark.sql("DROP VIEW seen")
    spark.sql("CREATE TABLE plain (id INT) USING parquet COMMENT 'TABLE t USING bitlake'")
    spark.sql("DROP TABLE plain")
    with pytest.raises(Exception, match="UNCLOSED|PARSE|cannot be found"):
        spark.sql("CREATE TABLE made (a STRING DEFAULT 'x) USING bitlake")


@pytest.mark.parametrize(
    "use",
    [
        lambda spark: spark.range(3).write.format("bitlake").saveAsTable("made"),
        lambda spark: spark.catalog.createTable("made", source="bitlake", path="/x"),
    ],
)
def test_tables_of_sparks_catalog_are_refused_by_the_source(spark: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception, match="Spark's own catalog cannot hold tables of bitlake") as raised:
        use(spark)
    assert "Traceback" not in str(raised.value)
    assert not spark.catalog.tableExists("made")


# --- missing tables -------------------------------------------------------------------------------------------------


def test_a_write_creates_a_missing_table(spark: Any, lake: bitlake.Lake, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long NOT NULL, name string")
    rows.write.format("bitlake").mode("append").save(f"{lake.path}/default.db/made")
    named = {"warehouse": lake.path, "primary-key": "id", "file-index.bitmap.columns": "name"}
    rows.write.format("bitlake").mode("overwrite").options(table="keyed", **named).save()
    rows.write.format("bitlake").mode("append").options(table="keyed", warehouse=lake.path).save()
    rows.write.format("bitlake").mode("append").save(str(tmp_path / "alone"))
    assert lake.table("made").to_arrow().to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert lake.table("keyed").schema.primary_keys == ("id",)
    assert lake.table("keyed").schema.options["file-index.bitmap.columns"] == "name"
    assert lake.table("keyed").count() == 2
    assert spark.read.format("bitlake").load(str(tmp_path / "alone")).count() == 2


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, "CAST(raise_error('bad row') AS STRING)", "bad row"),
        ({"partition": "p=1"}, "1", "'partition' goes with mode 'overwrite'"),
        exhaustive({"row-kind-column": "name"}, "'+I'", "no primary key"),
        exhaustive({"bucket": "many"}, "1", "bucket"),
        ({"branch": "dev"}, "1", "no table"),
    ],
)
def test_a_write_that_fails_leaves_no_table(
    spark: Any, lake: bitlake.Lake, options: dict[str, str], change: str, message: str
) -> None:
    rows = spark.range(3).selectExpr("id", f"{change} AS name")
    folder = Path(lake.path, "default.db", "made")
    with pytest.raises(Exception, match=message):
        rows.write.format("bitlake").mode("append").options(**options).save(str(folder))
    assert lake.tables() == []
    assert not folder.exists()


def test_a_folder_of_other_files_becomes_no_table(spark: Any, tmp_path: Path) -> None:
    Path(tmp_path, "other").mkdir()
    Path(tmp_path, "other", "data.csv").write_text("1")
    with pytest.raises(Exception, match="move or delete it first"):
        spark.range(3).write.format("bitlake").mode("append").save(str(tmp_path / "other"))
    assert [p.name for p in Path(tmp_path, "other").iterdir()] == ["data.csv"]


def test_options_of_a_table_that_exists_are_its_own(spark: Any, lake: bitlake.Lake) -> None:
    path = lake.create_table("t", pa.table({"id": [1]})).path
    with pytest.raises(Exception, match="already exists: option 'bucket' is for a new table"):
        spark.range(3).write.format("bitlake").mode("append").option("bucket", "2").save(path)


def test_write_stream_creates_a_missing_table(spark: Any, lake: bitlake.Lake, tmp_path: Path) -> None:
    lake.create_table("t", pa.table({"id": [1, 2], "p": [0, 1]}))
    options = {"primary-key": "p,id", "bucket": "1", "write.merge-schema": "true"}
    checkpoint, now = str(tmp_path / "checkpoint"), {"availableNow": True}
    for made in ({"partition_by": ["p"], "options": options}, {}):
        query = lake.write_stream(lake.read_stream("t"), "copy", checkpoint, trigger=now, **made)
        query.awaitTermination()
    schema = lake.table("copy").schema
    assert (schema.partition_keys, schema.primary_keys) == (("p",), ("p", "id"))
    assert lake.table("copy").count() == 2
    with pytest.raises(InvalidRequest, match="its partitioning and options are its own"):
        lake.write_stream(lake.read_stream("t"), "copy", checkpoint, partition_by=["id"])
    with pytest.raises(InvalidRequest, match="no primary key"):
        lake.write_stream(lake.read_stream("t"), "other", checkpoint, kinds="p")
    assert lake.tables() == ["copy", "t"]


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "message"),
    [
        exhaustive(lambda f, path: f.load(path + "x"), "NotFound: no table at"),
        (lambda f, path: f.option("where", "nme = 1").load(path), "NotFound: no column 'nme'; did you mean 'name'"),
        exhaustive(lambda f, path: f.option("whre", "x").load(path), "InvalidRequest: option 'whre' is not known"),
        (lambda f, path: f.option("where", "1 / id > 2").load(path).collect(), "EvaluationFailed: .* division by zero"),
    ],
)
def test_errors_are_one_message(spark: Any, lake: bitlake.Lake, use: Callable[[Any, str], Any], message: str) -> None:
    path = lake.create_table("t", pa.table({"id": [0, 1], "name": ["a", "b"]})).path
    with pytest.raises(Exception, match=message) as raised:
        use(spark.read.format("bitlake"), path)
    assert "Traceback (most recent call last)" not in str(raised.value)
    assert "File " not in str(raised.value)


def test_what_is_no_error_of_bitlakes_keeps_its_traceback(spark: Any) -> None:
    from pyspark.sql.functions import udf

    with pytest.raises(Exception, match="Traceback"):
        spark.range(1).select(udf(lambda i: 1 // i)("id")).collect()
