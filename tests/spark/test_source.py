"""The data source 'bitlake': batch reads and writes, found by its name, and what it refuses."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive
from pyspark.sql import types as T

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, NotFound
from bitlake.spark.source.data_source import BitlakeDataSource
from bitlake.spark.source.options import SourceOptions
from bitlake.spark.source.read import BatchReader, Parts, batch_scan

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.int32())])
ROWS = [[1, 2, 3, 4], ["a", "b", "c", "d"], [0, 1, 0, 1]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    """Tables that the tests of options and of reading share; nobody writes to them."""
    lake = bitlake.connect(str(tmp_path_factory.mktemp("source")))
    table = lake.create_table("t", SCHEMA, options={"file-index.bitmap.columns": "v"})
    for i in range(3):
        table.append(pa.table([[i * 10 + n for n in range(10)], [f"v{i}"] * 10, [i] * 10], schema=SCHEMA))
    table.history.create_tag("two", 2)
    table.history.create_branch("dev", "two")
    keyed = lake.create_table("k", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    keyed.upsert(pa.table(ROWS, schema=SCHEMA))
    keyed.upsert(pa.table([[1, 2], ["A", "B"], [0, 1]], schema=SCHEMA), ["+U", "-D"])
    return lake


# --- without a session ------------------------------------------------------------------------------------------------


def asked(lake: bitlake.Lake, **options: str) -> list[tuple[Any, ...]]:
    """The rows of a read with these options, as its tasks read them."""
    given = {"path": f"{lake.path}/default.db/t", **{k.replace("_", "-"): v for k, v in options.items()}}
    source = BitlakeDataSource(given)
    types = source.schema()
    reader = source.reader(types)
    batches = [b for p in reader.partitions() for b in reader.read(p)]
    return sorted((tuple(row.values()) for b in batches for row in b.to_pylist()), key=repr)


def first(rows: list[tuple[Any, ...]]) -> list[Any]:
    return sorted(r[0] for r in rows)


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"where": "v = 'v1' AND id > 15"}, [16, 17, 18, 19]),
        ({"snapshot": "1"}, list(range(10))),
        ({"scan.snapshot-id": "1"}, list(range(10))),
        ({"tag": "two", "where": "id >= 15"}, [15, 16, 17, 18, 19]),
        ({"branch": "dev", "where": "id >= 18"}, [18, 19]),
        ({"version": "two", "where": "id = 1"}, [1]),
        ({"timestamp": "9999-12-31 00:00:00", "where": "id = 1"}, [1]),
        ({"scan.timestamp-millis": "253402300799000", "where": "id = 1"}, [1]),
        ({"incremental-between": "1,2"}, list(range(10, 20))),
        ({"incremental-between": "1,two", "incremental-mode": "diff"}, list(range(10, 20))),
        ({"columns": "ID", "limit": "0"}, []),
        ({"topn": "id desc: 3"}, [27, 28, 29]),
        ({"topn": "p desc nulls last, `id`: 2", "columns": "id, p"}, [20, 21]),
        ({"columns": "id", "where": "p = 2 AND id < 22"}, [20, 21]),
    ],
)
def test_options_of_reading(lake: bitlake.Lake, options: dict[str, str], ids: list[int]) -> None:
    given = SourceOptions.of({"path": f"{lake.path}/default.db/t", **options}, "batch read")
    assert sorted(batch_scan(given).to_arrow().column("id").to_pylist()) == ids
    assert first(asked(lake, **options)) == ids


def test_a_limit_takes_so_many(lake: bitlake.Lake) -> None:
    assert len(asked(lake, limit="7")) == 7


@pytest.mark.parametrize(
    "place",
    [
        {"warehouse": "{}", "table": "t"},
        {"warehouse": "{}", "table": "default.t"},
        {"warehouse": "{}", "path": "default.T"},
        {"warehouse": "{}", "database": "default", "table": "`t`"},
        {"path": "{}/default.db/t/"},
        {"path": "{}/default.db/t", "catalog": "paimon", "database": "default", "table": "T"},
        {"PATH": "file://{}/default.db/t"},
    ],
)
def test_tables_are_named_by_folder_or_in_a_warehouse(lake: bitlake.Lake, place: dict[str, str]) -> None:
    given = {k: v.format(lake.path) for k, v in place.items()}
    table = SourceOptions.of(given, "batch read").table()
    assert table.name == "default.t"
    assert table.scan().count() == 30


def test_system_tables_and_branches_by_folder(lake: bitlake.Lake) -> None:
    path = f"{lake.path}/default.db/t"
    assert len(asked(lake, path=f"{path}$snapshots")) == 3
    assert first(asked(lake, path=f"{path}$branch_dev")) == list(range(20))


def test_kinds_of_rows(lake: bitlake.Lake) -> None:
    rows = asked(lake, path=f"{lake.path}/default.db/k", row_kind="true", incremental_between="1,2")
    assert rows == [("+U", 1, "A", 0), ("-D", 2, "B", 1)]
    rows = asked(lake, path=f"{lake.path}/default.db/k", incremental_between="1,2", columns="v")
    assert rows == [("A",)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshots": "1"}, "'snapshots' is not known; did you mean 'snapshot'"),
        ({"consumer-id": "me"}, "'consumer-id' is of a stream read; a batch read has no use"),
        ({"snapshot": "1", "tag": "two"}, "one of the options 'snapshot' and 'tag', not both"),
        ({"snapshot": "1", "scan.snapshot-id": "2"}, "another spelling of it"),
        ({"snapshot": "1", "incremental-between": "1,2"}, "not both"),
        ({"snapshot": "one"}, "takes a whole number from 1 on, and not 'one'"),
        ({"limit": "-1"}, "takes a whole number"),
        ({"limit": "1", "topn": "id: 1"}, "not both"),
        ({"topn": "id desc"}, "an order and a number of rows"),
        ({"topn": "id down: 3"}, "not a column with asc or desc"),
        ({"incremental-between": "1"}, "is 'start,end'"),
        ({"incremental-mode": "diff"}, "goes with 'incremental-between'"),
        ({"row-kind": "yes"}, "is 'true' or 'false'"),
        ({"table": "u"}, "option 'table' = 'u', and the path is of 't'"),
        ({"database": "other", "table": "t"}, "option 'database' = 'other', and the path is of 'default'"),
        ({"catalog": "jdbc", "table": "t"}, "'catalog' goes with 'warehouse'"),
        ({"columns": "`id"}, "a backtick is open"),
        ({"timezone": "Nope/X"}, "unknown time zone 'Nope/X'"),
        ({"where": "id ="}, "a part is missing: line 1, column 4"),
    ],
)
def test_options_that_are_wrong(lake: bitlake.Lake, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"(?i){message}"):
        batch_scan(SourceOptions.of({"path": f"{lake.path}/default.db/t", **options}, "batch read"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": "9"}, "no snapshot 9: snapshots 1 to 3 are kept"),
        ({"tag": "three"}, "three"),
        ({"branch": "nope"}, "no branch 'nope'"),
        ({"columns": "id, nope"}, "no column 'nope'"),
        ({"path": "/nowhere/t"}, "no table at /nowhere/t"),
    ],
)
def test_what_is_not_there(lake: bitlake.Lake, options: dict[str, str], message: str) -> None:
    with pytest.raises(NotFound, match=message):
        batch_scan(SourceOptions.of({"path": f"{lake.path}/default.db/t", **options}, "batch read"))


def test_where_spares_files(lake: bitlake.Lake) -> None:
    source = BitlakeDataSource({"path": f"{lake.path}/default.db/t", "where": "v = 'v1' AND id > 15"})
    assert files_of(source.reader(source.schema())) == 1
    limited = BitlakeDataSource({"path": f"{lake.path}/default.db/t", "limit": "5"})
    reader = limited.reader(limited.schema())
    assert sum(b.num_rows for p in reader.partitions() for b in reader.read(p)) == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("pushes", ["true", "false"])
def test_a_frame_answers_each_query_by_itself(spark: Any, lake: bitlake.Lake, pushes: str) -> None:
    # Spark keeps the partitions that a pushed filter left for all later uses of the frame: df.filter("id = 1") made
    # df.count() 1, and one branch of a union gave the rows of the other.
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushes)
    try:
        frame = spark.read.format("bitlake").load(f"{lake.path}/default.db/t")
        assert frame.count() == 30 and frame.filter("id = 1").count() == 1 and frame.count() == 30
        assert frame.filter("id = 25 OR v = 'v0'").count() == 11
        both = frame.filter("id = 1").union(frame.filter("id = 25"))
        assert sorted(r.id for r in both.collect()) == [1, 25]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def files_of(reader: BatchReader) -> int:
    from bitlake.spark.runner import loads

    return sum(len(loads(p.value)) for p in reader.partitions() if isinstance(p, Parts))


def test_tables_in_a_bucket(s3_endpoint: str) -> None:
    bare = {
        "endpoint": s3_endpoint, "access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1",
        "max_retries": "2",
    }  # fmt: skip
    lake = bitlake.connect("s3://lake/source", storage_options=bare)
    lake.create_table("t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    given = {**lake._source, "table": "t"}
    types = T.StructType().add("id", "long").add("v", "string")
    writer = BitlakeDataSource(given).writer(types, False)
    writer.commit([writer.write(iter(pa.table({"id": [1, 2], "v": ["a", "b"]}).to_batches()))])
    source = BitlakeDataSource({**given, "columns": "id,v", "where": "id = 2"})
    reader = source.reader(source.schema())
    assert [b.to_pylist() for p in reader.partitions() for b in reader.read(p)] == [[{"id": 2, "v": "b"}]]
    with pytest.raises(InvalidRequest, match="unknown storage option 's3.nonsense'"):
        BitlakeDataSource({**given, "s3.nonsense": "1"}).schema()


def test_tables_of_a_jdbc_catalog(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = bitlake.connect(str(tmp_path / "lake"), catalog="jdbc", uri=uri, catalog_options={"catalog-key": "mine"})
    lake.create_table("t", SCHEMA).append(pa.table(ROWS, schema=SCHEMA))
    source = BitlakeDataSource({**lake._source, "table": "t", "topn": "id desc: 1"})
    reader = source.reader(source.schema())
    assert [b.column(0).to_pylist() for p in reader.partitions() for b in reader.read(p)] == [[4]]


# --- in a session -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    """Another lake, for the tests that write."""
    return bitlake.connect(str(tmp_path_factory.mktemp("written")), spark=spark)


def save(lake: bitlake.Lake, frame: Any, table: str, mode: str = "append", **options: str) -> None:
    given = {k.replace("_", "-"): v for k, v in options.items()}
    frame.write.format("bitlake").mode(mode).options(warehouse=lake.path, table=table, **given).save()


def content(lake: bitlake.Lake, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in lake.table(table).scan().to_arrow().to_pylist())


def test_found_by_name_and_in_sql(spark: Any, lake: bitlake.Lake) -> None:
    path = f"{lake.path}/default.db/t"
    frame = spark.read.format("bitlake").load(path)
    assert frame.columns == ["id", "v", "p"]
    assert frame.where("v = 'v2' AND id % 2 = 1").count() == 5
    name = f"source_{Path(lake.path).name.replace('-', '_')}"
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING bitlake OPTIONS (path '{path}', columns 'id', topn 'id desc: 2')")
    try:
        assert [r.id for r in spark.sql(f"SELECT id FROM {name} WHERE id > 0 ORDER BY id").collect()] == [28, 29]
    finally:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("key", ["", ", 'primary-key' = 'id'", ", 'primary-key' = 'id', 'bucket' = '1'"])
def test_null_becomes_the_default_as_by_lake_write(spark: Any, written: bitlake.Lake, key: str) -> None:
    frame = spark.sql("SELECT 1L AS ID, CAST(NULL AS STRING) AS v, 7 AS n UNION ALL SELECT 2L, 'x', NULL")
    for table in ("by_source", "by_lake"):
        written.drop_table(table, if_exists=True)
        written.sql(
            f"CREATE TABLE {table} (id BIGINT, v STRING DEFAULT 'none', n INT NOT NULL DEFAULT 5, d DATE DEFAULT "
            f"'2024-02-29') TBLPROPERTIES ('write-only' = 'true'{key})"
        )
    save(written, frame, "by_source")
    written.write(frame, "by_lake")
    day = datetime.date(2024, 2, 29)
    assert content(written, "by_source") == content(written, "by_lake") == [(1, "none", 7, day), (2, "x", 5, day)]


def test_every_type_and_filters(spark: Any, written: bitlake.Lake) -> None:
    written.sql(
        "CREATE TABLE types (id BIGINT, ts TIMESTAMP, n TIMESTAMP_NTZ, day DATE, c CHAR(4), d DECIMAL(10, 2), "
        "b BINARY, a ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<x: INT, y: STRING>)"
    )
    values = (
        "TIMESTAMP '2024-05-01 10:00:00.123456', TIMESTAMP_NTZ '2024-05-01 10:00:00', DATE '2024-05-01', 'ab', 1.50, "
        "X'01FF', array(1, NULL), map('k', 1), named_struct('x', 1, 'y', 'z')"
    )
    written.sql(f"INSERT INTO types SELECT 1, {values}")
    written.sql("INSERT INTO types (id) VALUES (2)")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("bitlake").load(f"{written.path}/default.db/types")
        expected = written.sql("SELECT * FROM types ORDER BY id").collect()
        assert frame.orderBy("id").collect() == expected
        chosen = frame.where(
            "ts >= TIMESTAMP '2024-05-01 10:00:00' AND n < TIMESTAMP_NTZ '2025-01-01 00:00:00' AND c = 'ab' AND "
            "day = DATE '2024-05-01' AND d = 1.5 AND b = X'01FF' AND s.x = 1 AND a[0] = 1"
        )
        assert chosen.collect() == expected[:1]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_append_and_overwrite(spark: Any, written: bitlake.Lake) -> None:
    table = written.create_table("parts", SCHEMA, partition_by=["p"])
    rows = spark.createDataFrame([(1, "a", 0), (2, "b", 1), (3, "c", 0)], "id long, v string, p int")
    save(written, rows, "parts")
    save(written, rows.where("p = 0").selectExpr("id + 10 AS ID", "CAST(0 AS SMALLINT) AS p"), "parts")
    assert content(written, "parts") == [(1, "a", 0), (2, "b", 1), (3, "c", 0), (11, None, 0), (13, None, 0)]
    new = spark.createDataFrame([(20, "n", 1)], "id long, v string, p int")
    save(written, new, "parts", "overwrite", partition_overwrite_mode="dynamic")
    assert [r[0] for r in content(written, "parts")] == [1, 3, 11, 13, 20]
    save(written, new.selectExpr("id + 1 AS id", "v", "0 AS p"), "parts", "overwrite", partition="p=0")
    assert [r[0] for r in content(written, "parts")] == [20, 21]
    save(written, new, "parts", "overwrite")
    assert content(written, "parts") == [(20, "n", 1)]
    assert [s.commit_kind for s in table.history.snapshots()] == [
        "APPEND",
        "APPEND",
        "OVERWRITE",
        "OVERWRITE",
        "OVERWRITE",
    ]


@pytest.mark.parametrize("vectors", ["false", exhaustive("true")])
def test_upserts(spark: Any, written: bitlake.Lake, vectors: str) -> None:
    name = f"keys_{vectors}"
    written.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "3", "deletion-vectors.enabled": vectors})
    rows = spark.range(60).selectExpr("id", "concat('v', id) AS v", "0 AS p")
    save(written, rows.repartition(3), name)
    again = rows.where("id < 30").selectExpr("id", "'later' AS v", "1 AS p")
    save(written, rows.where("id < 40").union(again).coalesce(2), name)
    assert content(written, name) == [(i, "later" if i < 30 else f"v{i}", int(i < 30)) for i in range(60)]
    gone = rows.where("id >= 5").selectExpr("id", "v", "p", "'-D' AS kind")
    save(written, gone, name, row_kind_column="kind")
    assert [r[0] for r in content(written, name)] == [0, 1, 2, 3, 4]
    save(written, rows.where("id = 7"), name, "overwrite")
    assert content(written, name) == [(7, "v7", 0)]


@pytest.mark.exhaustive
def test_rows_whose_buckets_only_the_commit_can_tell(spark: Any, written: bitlake.Lake) -> None:
    """Dynamic buckets, and keys over partitions: each task has rows of keys that others have too."""
    rows = spark.range(60).selectExpr("id", "concat('v', id) AS v", "CAST(id % 2 AS INT) AS p")
    again = rows.where("id < 30").selectExpr("id", "'later' AS v", "1 AS p")
    for name, parts in (("dynamic", []), ("across", ["p"])):
        options = {"dynamic-bucket.target-row-num": "20"}
        table = written.create_table(name, SCHEMA, primary_key=["id"], partition_by=parts, options=options)
        save(written, rows.repartition(3), name)
        save(written, rows.where("id < 40").union(again).coalesce(2), name)
        expected = [(i, "later" if i < 30 else f"v{i}", 1 if i < 30 else i % 2) for i in range(60)]
        assert content(written, name) == expected
        gone = rows.where("id >= 5").selectExpr("id", "v", "p", "'-D' AS kind")
        save(written, gone, name, row_kind_column="kind")
        assert [r[0] for r in content(written, name)] == [0, 1, 2, 3, 4]
        save(written, rows.where("id = 7"), name, "overwrite")
        assert content(written, name) == [(7, "v7", 1)]
        assert not list(Path(table.path, ".staging").iterdir())


@pytest.mark.parametrize(("name", "key"), [exhaustive("merged", []), ("merged_keys", ["id"])])
def test_rows_may_bring_columns(spark: Any, written: bitlake.Lake, name: str, key: list[str]) -> None:
    written.create_table(name, SCHEMA, primary_key=key)
    rows = spark.createDataFrame([(1, "a", 0)], "id long, v string, p int")
    save(written, rows, name)
    more = rows.selectExpr("id + 1 AS ID", "p", "named_struct('x', 1) AS s")
    with pytest.raises(Exception, match="no column 's'"):
        save(written, more, name)
    save(written, more, name, **{"write.merge-schema": "true"})
    both = more.selectExpr("ID + 1 AS id", "CAST(5000000000 AS BIGINT) AS p", "named_struct('x', 2, 'y', 'z') AS s")
    widening = {"write.merge-schema": "true", "write.merge-schema.type-widening": "true"}
    save(written, both, name, **widening)
    assert content(written, name) == [
        (1, "a", 0, None),
        (2, None, 0, {"x": 1, "y": None}),
        (3, None, 5_000_000_000, {"x": 2, "y": "z"}),
    ]
    written.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge-schema' = 'true')")
    save(written, spark.createDataFrame([(4, 1.5)], "id long, w double"), name)
    assert content(written, name)[-1] == (4, None, None, None, 1.5)


def test_columns_of_rows_may_be_null_inside(spark: Any, written: bitlake.Lake) -> None:
    """Bug: ``array(1)`` made an ARRAY<INT NOT NULL>, into which no later row could write NULL; Spark makes no such."""
    struct = "named_struct('x', 1)"
    query = f"SELECT {struct} AS s, array({struct}) AS l, map('a', {struct}) AS m"
    rows = spark.sql(query)
    save(written, rows, "inside_source")
    written.write(rows, "inside_frame")
    written.sql(f"CREATE TABLE inside_query AS {query}")
    written.create_table("inside_merged", pa.schema([("k", pa.int32())]))
    save(written, rows, "inside_merged", **{"write.merge-schema": "true"})
    for name in ("inside_source", "inside_frame", "inside_query", "inside_merged"):
        types = [str(f.type) for f in written.table(name).schema.fields if f.name != "k"]
        assert types == ["ROW<`x` INT>", "ARRAY<ROW<`x` INT>>", "MAP<STRING NOT NULL, ROW<`x` INT>>"], name
    written.sql(f"INSERT INTO inside_source {query.replace('1', 'CAST(NULL AS INT)')}")
    assert written.table("inside_source").count("s.x IS NULL") == 1


REFUSED: list[tuple[str, str, dict[str, str], Callable[[Any], Any], str]] = [
    ("parts2", "append", {}, lambda f: f.withColumn("x", f.id), "no column 'x'; its columns are id, v, p"),
    ("parts2", "append", {"partition": "p=1"}, lambda f: f, "'partition' goes with mode 'overwrite'"),
    ("parts2", "overwrite", {"partition": "p=1"}, lambda f: f, "is outside the partitions being overwritten"),
    ("parts2", "overwrite", {"partition": "q=1"}, lambda f: f, "no column 'q'"),
    ("parts2", "append", {"where": "id = 1"}, lambda f: f, "'where' is of a batch read and a stream read"),
    ("parts2", "append", {"write.merge-schema": "yes"}, lambda f: f, "it is true or false"),
    ("parts2", "append", {"row-kind-column": "v"}, lambda f: f, "no primary key: its rows have no kinds"),
    ("nowhere.t", "append", {}, lambda f: f, "database 'nowhere' does not exist"),
]


def test_writes_that_are_refused_leave_nothing(spark: Any, written: bitlake.Lake) -> None:
    table = written.create_table("parts2", SCHEMA, partition_by=["p"])
    frame = spark.createDataFrame([(1, "a", 0)], "id long, v string, p int")
    for name, mode, options, change, message in REFUSED:
        with pytest.raises(Exception, match=f"(?s)bitlake.errors.*{message}") as raised:
            save(written, change(frame), name, mode, **options)
        assert not isinstance(raised.value, BitlakeError)
    assert table.snapshot is None
    assert not list(Path(table.path).rglob("*.parquet"))


def test_what_other_tasks_wrote_goes_with_a_failed_job(lake: bitlake.Lake, tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    source = BitlakeDataSource({"path": table.path})
    types = T.StructType().add("id", "long")
    writer = source.writer(types, False)
    done = [writer.write(iter(pa.table({"id": [n]}).to_batches())) for n in range(2)]
    writer.abort([done[0], None])
    assert len(list(Path(table.path).rglob("*.parquet"))) == 1
    writer.commit([None, done[1]])
    writer.abort([None, done[1]])  # as Spark does when the response to the commit got lost
    assert table.scan().to_arrow().column("id").to_pylist() == [1]


def test_rows_that_were_committed_after_a_rollback_or_expired_stay(tmp_path: Path) -> None:
    """Their snapshot has a lower id than the one that the job began with, or is gone while its files are live."""
    for name in ("rollback", "expiry"):
        table = bitlake.connect(str(tmp_path)).create_table(name, SCHEMA)
        for n in range(3):
            table.append(pa.table({"id": [n]}))
        writer = BitlakeDataSource({"path": table.path}).writer(T.StructType().add("id", "long"), False)
        done = [writer.write(iter(pa.table({"id": [9]}).to_batches()))]
        if name == "rollback":
            table.history.rollback(1)
        writer.commit(done)
        if name == "expiry":
            table.append(pa.table({"id": [10]}))
            table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=datetime.timedelta(0))
        writer.abort(done)  # as Spark does when the response to the commit got lost
        ids = sorted(table.scan().to_arrow().column("id").to_pylist())
        assert ids == ([0, 9] if name == "rollback" else [0, 1, 2, 9, 10])


def test_a_task_that_fails_leaves_nothing(spark: Any, written: bitlake.Lake) -> None:
    table = written.create_table("fails", SCHEMA)
    half = "CASE WHEN id = 90 THEN raise_error('bad row') ELSE 'x' END AS v"
    frame = spark.range(0, 100, 1, 1).selectExpr("id", half, "0 AS p")
    with pytest.raises(Exception, match="bad row"):
        save(written, frame, "fails")
    assert table.snapshot is None
    assert not list(Path(table.path).rglob("*.parquet"))
