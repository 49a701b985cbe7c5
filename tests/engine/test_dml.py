"""INSERT, DELETE, UPDATE and CREATE TABLE AS in this process: rows, errors, and what is left to Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive, long

import bitlake
from bitlake.engine import dml
from bitlake.engine.engine import is_left_to_spark
from bitlake.errors import BitlakeError, CommitConflict, EvaluationFailed, InvalidRequest, NotFound, UnsupportedFeature


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": pa.array([1, 2, 3], pa.int32()), "s": ["a", "b", None]}))
    lake.create_table("k", pa.table({"id": [1, 2], "n": [10, 20]}), primary_key=["id"], options={"bucket": "-1"})
    return lake


def run(lake: bitlake.Lake, text: str, args: Any = None) -> Any:
    return lake.sql(text, args, engine="duckdb")


def rows(lake: bitlake.Lake, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in lake.table(name).to_arrow().to_pylist()), key=str)


def test_one_commit_for_each_statement(lake: bitlake.Lake) -> None:
    done = run(lake, "INSERT INTO t VALUES (4, 'd'), (?, ?)", [5, "e"])
    assert done.to_pylist() == [{"num_affected_rows": 2, "num_inserted_rows": 2}]
    assert run(lake, "DELETE FROM t WHERE id > 3 AND s = 'e'").to_pylist() == [{"num_affected_rows": 1}]
    assert run(lake, "UPDATE t SET s = 'new' WHERE s IS NULL").to_pylist() == [{"num_affected_rows": 1}]
    run(lake, "INSERT INTO k SELECT id, id * 100 FROM t WHERE id <> 2")
    assert rows(lake, "t") == [(1, "a"), (2, "b"), (3, "new"), (4, "d")]
    assert rows(lake, "k") == [(1, 100), (2, 20), (3, 300), (4, 400)]
    assert [s.id for s in lake.table("t").history.snapshots()] == [1, 2, 3, 4]


def test_a_query_is_read_before_its_own_table_is_replaced(lake: bitlake.Lake) -> None:
    run(lake, "INSERT OVERWRITE t SELECT id + 1, s FROM t")
    run(lake, "INSERT INTO t SELECT id * 2, s FROM t VERSION AS OF 1 WHERE id = 3")
    assert rows(lake, "t") == [(2, "a"), (3, "b"), (4, None), (6, None)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("INSERT INTO t VALUES ('x', 'y')", "column 'id': the cast of 'x' to INT"),
        ("INSERT INTO t VALUES (1.5, 'y')", "the cast of Decimal('1.5') to INT"),
        ("INSERT INTO t VALUES (1, 'a'), (2, 3)", "column 's': VALUES of several types"),
        ("INSERT INTO t SELECT n, n / 3 FROM k", "column 's': the cast of 3.3333333333333335 to STRING"),
        ("INSERT INTO t SELECT s, 'a' FROM t", "column 'id': the cast of string to INT"),
        ("INSERT INTO t SELECT id, explode(array(s)) FROM t", "mean the same in both"),
        ("FROM t INSERT INTO t SELECT id, s INSERT INTO k SELECT id, id", "FROM … needs Spark"),
        ("CREATE TABLE m AS SELECT count(*) FROM t", "a table with the columns of SELECT count(*) FROM t"),
        ("INSERT INTO t BY NAME SELECT id, s, s FROM t", "storing columns of one name by name"),
        (
            "CREATE TABLE m AS SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id",
            "storing columns of one name",
        ),
        ("DELETE FROM t WHERE id IN (SELECT id FROM k)", "table 'default.t': WHERE id IN (SELECT id FROM k)"),
        ("DELETE FROM t WHERE id = '1x'", "WHERE id = '1x'"),
        ("UPDATE t SET s = (SELECT max(n) FROM k)", "SET … = (SELECT max(n) FROM k)"),
        ("UPDATE t SET id = s", "SET id"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "WITH before a statement"),
        (
            "MERGE INTO t USING k ON t.id = k.id WHEN MATCHED THEN UPDATE SET s = k.n / 3",
            "the cast of 3.3333333333333335 to STRING",
        ),
        (
            "MERGE INTO k USING t ON k.id = t.id WHEN MATCHED AND t.id IN (SELECT id FROM t) THEN DELETE",
            "t.id IN (SELECT id FROM t) needs Spark",
        ),
        ("MERGE INTO k USING t ON t.s < current_date() WHEN MATCHED THEN DELETE", "the condition t.s < current_date()"),
        ("MERGE INTO k USING t ON k.id = t.id WHEN MATCHED THEN UPDATE SET n = soundex(t.s)", "SOUNDEX(t.s)"),
        ("MERGE WITH SCHEMA EVOLUTION INTO k USING t ON k.id = t.id WHEN NOT MATCHED THEN INSERT *", "change columns"),
    ],
)
def test_what_is_left_to_spark_changes_nothing(lake: bitlake.Lake, text: str, what: str) -> None:
    before = lake.table("t").snapshot, lake.table("k").snapshot, lake.tables()
    with pytest.raises(UnsupportedFeature) as caught:
        run(lake, text)
    assert what in str(caught.value) and "engine='spark'" in str(caught.value)
    assert (lake.table("t").snapshot, lake.table("k").snapshot, lake.tables()) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("INSERT INTO t SELECT n * 1000000000, 'a' FROM k", InvalidRequest),
        ("INSERT INTO t SELECT CAST(n AS DOUBLE) * 1000000000, 'a' FROM k", InvalidRequest),
        ("INSERT INTO t SELECT id FROM t", InvalidRequest),
        ("INSERT INTO missing VALUES (1)", NotFound),
        ("DELETE FROM t WHERE idd = 1", NotFound),
        ("UPDATE t SET idd = 1", NotFound),
        ("UPDATE t SET s = nope", NotFound),
        ("UPDATE t SET id = id + 2147483647", EvaluationFailed),
        ("UPDATE k SET id = 1", InvalidRequest),
    ],
)
def test_errors_are_the_statements_own(lake: bitlake.Lake, text: str, error: type[BitlakeError]) -> None:
    before = lake.table("t").snapshot, lake.table("k").snapshot
    with pytest.raises(error):
        run(lake, text)
    assert (lake.table("t").snapshot, lake.table("k").snapshot) == before


def test_create_table_as(lake: bitlake.Lake) -> None:
    assert run(lake, "CREATE TABLE m AS SELECT id AS a, s FROM t WHERE id < 3").to_pylist()[0]["num_inserted_rows"] == 2
    assert str(lake.table("m").schema) == "TableSchema(0: a INT, s STRING)" and rows(lake, "m") == [(1, "a"), (2, "b")]
    with pytest.raises(InvalidRequest):
        run(lake, "CREATE TABLE bad PARTITIONED BY (nope) AS SELECT id FROM t")
    assert "bad" not in lake.tables()


MERGES = (
    "MERGE INTO {} AS t USING (VALUES (2, 'B'), (3, 'C'), (9, NULL)) AS s (id, s) ON t.id = s.id "
    "WHEN MATCHED AND s.s = 'C' THEN DELETE WHEN MATCHED THEN UPDATE SET s = concat(s.s, t.s) "
    "WHEN NOT MATCHED BY TARGET THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s = 'left'",
    "MERGE INTO {} USING t ON {}.id = t.id - 1 WHEN MATCHED THEN UPDATE SET s = t.s "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id * 10)",
    "MERGE INTO {} x USING (SELECT 10 AS n UNION ALL SELECT 10) y ON x.id = y.n WHEN MATCHED THEN DELETE",
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        exhaustive({"deletion-vectors.enabled": "true"}),
        {"primary-key": "id", "bucket": "1"},
        {"primary-key": "id", "bucket": "-1"},
        exhaustive({"primary-key": "id", "bucket": "1", "deletion-vectors.enabled": "true"}),
    ],
)
@pytest.mark.parametrize("pruned", [False, True])
def test_merge(lake: bitlake.Lake, options: dict[str, str], pruned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if pruned:
        monkeypatch.setattr(dml, "LEAST_BYTES", 0)
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in {"file.format": "parquet", **options}.items())
    run(lake, f"CREATE TABLE m (id INT, s STRING) TBLPROPERTIES ({listed})")
    run(lake, "INSERT INTO m VALUES (1, 'a'), (2, 'b')")
    run(lake, "INSERT INTO m VALUES (3, 'c')")
    found = []
    for text in MERGES:
        before = lake.table("m").snapshot
        done = run(lake, text.replace("{}", "m")).to_pylist()[0]
        made = [s for s in lake.table("m").history.snapshots() if before is not None and s.id > before.id]
        assert [s.operation for s in made if s.commit_kind != "COMPACT"] == ["MERGE"]
        found.append((tuple(done.values()), rows(lake, "m")))
    assert found == [
        ((4, 2, 1, 1), [(1, "left"), (2, "Bb"), (9, None)]),
        ((3, 2, 0, 1), [(1, "b"), (10, None), (2, None), (9, None)]),
        ((1, 0, 1, 0), [(1, "b"), (2, None), (9, None)]),
    ]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("USING t ON k.id = t.id WHEN MATCHED THEN UPDATE SET n = t.typo", NotFound, "no column 't.typo'"),
        ("USING t ON k.id = t.id WHEN MATCHED THEN UPDATE SET *", NotFound, "has no 'n'"),
        ("USING t ON k.id = t.id WHEN MATCHED THEN UPDATE SET id = 7", InvalidRequest, "cannot change"),
        ("USING t ON rand() < 0.5 WHEN MATCHED THEN DELETE", InvalidRequest, "rand"),
        ("USING (VALUES (1), (1)) AS s (id) ON k.id = s.id WHEN MATCHED THEN UPDATE SET n = 1", InvalidRequest)
        + ("1 row of the target is matched by several source rows",),
        ("USING t ON k.id = t.id WHEN NOT MATCHED THEN INSERT (n) VALUES (1)", InvalidRequest, "id"),
    ],
)
def test_mistakes_in_a_merge_change_nothing(
    lake: bitlake.Lake, text: str, error: type[BitlakeError], message: str
) -> None:
    before = lake.table("k").snapshot
    with pytest.raises(error, match=message):
        run(lake, f"MERGE INTO k {text}")
    assert lake.table("k").snapshot == before


@pytest.mark.parametrize(
    "text", ["MERGE INTO k USING t ON k.id = t.id WHEN MATCHED THEN DELETE", "INSERT INTO k SELECT id, id FROM t"]
)
def test_statements_that_need_duckdb_are_left_to_spark_without_it(
    lake: bitlake.Lake, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InvalidRequest, match="duckdb is not installed") as caught:
        run(lake, text)
    assert is_left_to_spark(text, caught.value)
    assert lake.table("k").snapshot.id == 1


@pytest.mark.parametrize("many", [False, True])
def test_a_merge_reads_only_files_that_its_source_can_match(
    lake: bitlake.Lake, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dml, "LEAST_BYTES", 0)
    if many:
        monkeypatch.setattr(dml, "MOST_KEYS", 1)
    for start in (0, 100, 200):
        lake.write(pa.table({"id": pa.array(range(start, start + 100), pa.int64()), "s": ["old"] * 100}), "p")
    kept = {f.path for f in lake.table("p").scan(where="id >= 100 AND id < 200").plan().files}
    others = {f.path: Path(f.path).read_bytes() for f in lake.table("p").scan().plan().files if f.path not in kept}
    assert len(others) == 2
    for path in others:
        Path(path).write_bytes(b"not to be opened")
    done = run(
        lake, "MERGE INTO p USING (VALUES (150), (151)) AS s (k) ON id = k WHEN MATCHED THEN UPDATE SET s = 'new'"
    )
    assert done.to_pylist()[0]["num_updated_rows"] == 2
    for path, data in others.items():
        Path(path).write_bytes(data)
    assert [r for r in rows(lake, "p") if r[1] == "new"] == [(150, "new"), (151, "new")]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "-1"},
        {"bucket": "-1", "deletion-vectors.enabled": "true"},
        {"primary-key": "id", "bucket": "2"},
        {"primary-key": "id", "bucket": "-1"},
        {"primary-key": "id", "bucket": "1", "deletion-vectors.enabled": "true"},
    ],
    ids=["append", "vectors", "keyed", "dynamic", "keyed vectors"],
)
@pytest.mark.parametrize("each", [2, long(3), long(6)])
def test_merges_beside_writers_lose_nothing(tmp_path: Path, options: dict[str, str], each: int) -> None:
    """Each MERGE adds to the sum that it read: one that wrote over another's would lose its addition."""
    key = options.get("primary-key")
    lake = bitlake.connect(tmp_path / "lake")
    rest = {k: v for k, v in options.items() if k != "primary-key"}
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.float64()), ("who", pa.string())])
    table = lake.create_table("sums", schema, primary_key=[key] if key else [], options=rest)
    (table.append if key is None else table.upsert)(pa.table([[1, 2], [0.0, 0.0], ["start"] * 2], schema=schema))
    failures = []

    def merging(who: int) -> None:
        mine = bitlake.connect(tmp_path / "lake")
        for i in range(each):
            text = (
                f"MERGE INTO sums t USING (VALUES (1, {i}), (2, {i}), ({100 + who * each + i}, {i})) AS s (id, i) "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + s.i, who = s.i "
                f"WHEN NOT MATCHED THEN INSERT (id, n, who) VALUES (s.id, s.i, 'merge {who}')"
            )
            try:
                again(lambda text=text: run(mine, text))
            except BaseException as e:
                failures.append(e)
                raise

    def again(action: Callable[[], Any]) -> None:
        while True:
            try:
                action()
                return
            except CommitConflict:
                continue

    def appending() -> None:
        mine = bitlake.connect(tmp_path / "lake").table("sums")
        for i in range(each):
            (mine.append if key is None else mine.upsert)(pa.table([[1000 + i], [1.0], ["append"]], schema=schema))

    threads = [threading.Thread(target=merging, args=(who,)) for who in range(3)]
    threads.append(threading.Thread(target=appending))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = {r["id"]: (r["n"], r["who"]) for r in lake.table("sums").to_arrow().to_pylist()}
    total = 3.0 * sum(range(each))
    assert [found.pop(1)[0], found.pop(2)[0]] == [total, total]
    expected = {100 + who * each + i: (float(i), f"merge {who}") for who in range(3) for i in range(each)}
    assert found == expected | {1000 + i: (1.0, "append") for i in range(each)}


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("addr", pa.struct([("city", pa.string())])),
    ]
)


@pytest.mark.parametrize(
    "where",
    [
        "array_contains(tags, 'b')",
        "exists(tags, x -> x = 'b') AND id >= 0",
        "map_contains_key(m, 'b')",
        "addr.city = 'B'",
        "lower(d.addr.city) = 'b'",
        "m['b'] > 0",
    ],
)
def test_conditions_on_arrays_maps_and_structs_use_their_indexes(tmp_path: Path, where: str) -> None:
    """They were left to Spark."""
    lake = bitlake.connect(tmp_path)
    kinds = ("element(tags)", "keys(m)", "m['b']", "addr.city", "lower(addr.city)")
    options = {f"bitlake.index.i{n}": f"bitmap({kind})" for n, kind in enumerate(kinds)}
    table = lake.create_table("d", NESTED, options=options)
    for i, word in enumerate("abc"):
        full = {"id": i, "tags": [word, None], "m": [(word, i)], "addr": {"city": word.upper()}}
        table.append(pa.Table.from_pylist([full, {"id": i + 10, "tags": None, "m": None, "addr": None}], NESTED))
    explained = run(lake, f"EXPLAIN DELETE FROM d WHERE {where}").to_pylist()
    assert "1 of 3 read; skipped by file index: 2" in str(explained)
    assert run(lake, f"UPDATE d SET id = id + 100 WHERE {where}").to_pylist() == [{"num_affected_rows": 1}]
    assert sorted(lake.table("d").to_arrow()["id"].to_pylist()) == [0, 2, 10, 11, 12, 101]
    assert run(lake, f"DELETE FROM d WHERE {where}").to_pylist() == [{"num_affected_rows": 1}]
    assert sorted(lake.table("d").to_arrow()["id"].to_pylist()) == [0, 2, 10, 11, 12]


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("false", "a.b = 3"),  # also the name of a column
        ("false", "a.`c.d` = 7"),  # not c.d of a
        ("false", "twice.x = 1"),
        ("false", "twice.X = 1"),
        ("true", "plain.Y = 1"),
        ("false", "m.k = 1"),
        ("false", "array_contains(items.name, 'x')"),
        ("false", "plain.y.z IS NULL"),
    ],
)
def test_members_whose_name_is_not_certain_are_left_to_spark(tmp_path: Path, setting: str, where: str) -> None:
    lake = bitlake.connect(tmp_path)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("a.b", pa.int32()),
            ("a", pa.struct([("b", pa.int32()), ("c.d", pa.int32()), ("c", pa.struct([("d", pa.int32())]))])),
            ("twice", pa.struct([("x", pa.int32()), ("X", pa.int32())])),
            ("plain", pa.struct([("y", pa.int32())])),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("items", pa.list_(pa.struct([("name", pa.string())]))),
        ]
    )
    # Members that differ by case are made by a session where case matters.
    run(lake, "SET spark.sql.caseSensitive = true")
    run(
        lake,
        "CREATE TABLE t (id BIGINT, `a.b` INT, a STRUCT<b: INT, `c.d`: INT, c: STRUCT<d: INT>>, twice STRUCT<x: INT, "
        "X: INT>, plain STRUCT<y: INT>, m MAP<STRING, INT>, items ARRAY<STRUCT<name: STRING>>)",
    )
    lake.table("t").append(pa.Table.from_pylist([{"id": 1, "a.b": 3}], schema))
    run(lake, f"SET spark.sql.caseSensitive = {setting}")
    for statement in (f"DELETE FROM t WHERE {where}", f"UPDATE t SET id = 2 WHERE {where}"):
        with pytest.raises(UnsupportedFeature) as refused:
            run(lake, statement)
        assert is_left_to_spark(statement, refused.value)
    assert lake.table("t").to_arrow()["id"].to_pylist() == [1]
