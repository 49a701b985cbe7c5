"""Rows of deletion vectors that Spark's own Parquet reader leaves out, beside the rows that must be left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from long import long
from pyroaring import BitMap

import bitlake
from bitlake.fileindex.selection import Selection
from bitlake.spark.read import deleted_rows

pytestmark = pytest.mark.spark

ROWS, FILES = 1_500, 3
FILTERED = "with a filter that leaves out deleted rows"
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("v", pa.string())])


@pytest.fixture
def ways(spark: Any) -> Iterator[Any]:
    """Sets how files are read."""
    yield lambda way: spark.conf.set("spark.paimon.read.spark-path", way)
    spark.conf.unset("spark.paimon.read.spark-path")


def _rows(first: int = 0, count: int = ROWS * FILES) -> pa.Table:
    ids = np.arange(first, first + count)
    # Some words of 64 rows are all of one k, so that whole words and pages are deleted as well as single rows.
    return pa.table({"id": ids, "k": (ids * 7919 % 97).astype(np.int32), "v": [f"v{i % 211}" for i in ids]}, SCHEMA)


def _table(lake: bitlake.Lake, name: str = "t", **options: str) -> bitlake.Table:
    table = lake.create_table(
        name, SCHEMA, options={"deletion-vectors.enabled": "true", "parquet.page.row.count.limit": "100"} | options
    )
    for file in range(FILES):
        table.append(_rows(file * ROWS, ROWS))
    return table


def _check(lake: bitlake.Lake, ways: Any, expected: dict[int, tuple[int, str]], filtered: bool = True) -> None:
    """Every way gives these rows; Spark's own reader gives them for several queries."""
    for way in ("spark", "workers", "driver"):
        ways(way)
        assert {r.id: (r.k, r.v) for r in lake.sql("SELECT * FROM t").collect()} == expected, way
    ways("spark")
    assert lake.sql("SELECT id FROM t").count() == len(expected)
    chosen = [k for i, (k, _) in expected.items() if 333 <= i <= 3210]
    between = lake.sql("SELECT count(*), sum(k) FROM t WHERE id BETWEEN 333 AND 3210").collect()[0]
    assert tuple(between) == (len(chosen), sum(chosen))
    assert (FILTERED in lake.sql("EXPLAIN SELECT * FROM t").collect()[0][0]) == filtered


def _plain(rows: pa.Table) -> dict[int, tuple[int, str]]:
    return {r["id"]: (r["k"], r["v"]) for r in rows.to_pylist()}


@pytest.mark.exhaustive
def test_rows_after_deletes_updates_and_merges(lake: bitlake.Lake, ways: Any) -> None:
    _table(lake)
    expected = _plain(_rows())
    lake.sql("DELETE FROM t WHERE k % 13 = 5 OR id BETWEEN 700 AND 899 OR id IN (0, 63, 64, 1499, 4499)")
    expected = {
        i: (k, v)
        for i, (k, v) in expected.items()
        if not (k % 13 == 5 or 700 <= i <= 899 or i in (0, 63, 64, 1499, 4499))
    }
    _check(lake, ways, expected)
    before = dict(expected)
    ways("spark")
    lake.sql("UPDATE t SET v = concat('u', id) WHERE k % 11 = 3")
    expected = {i: (k, f"u{i}" if k % 11 == 3 else v) for i, (k, v) in expected.items()}
    lake.sql(
        "MERGE INTO t USING (SELECT id * 3 AS id, CAST(id % 5 AS INT) AS k FROM range(1600)) s ON t.id = s.id "
        "WHEN MATCHED AND t.k = 96 THEN DELETE WHEN MATCHED THEN UPDATE SET k = s.k "
        "WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, s.k, 'new')"
    )
    for i in range(0, 4800, 3):
        known = expected.get(i)
        if known is None:
            expected[i] = (i // 3 % 5, "new")
        elif known[0] == 96:
            del expected[i]
        else:
            expected[i] = (i // 3 % 5, known[1])
    _check(lake, ways, expected)
    ways("spark")
    found = {r.id: (r.k, r.v) for r in lake.sql("SELECT * FROM t VERSION AS OF 4").collect()}
    assert found == before
    # Files with and without a vector, beside each other.
    lake.table("t").append(_rows(9_000, 100))
    _check(lake, ways, expected | _plain(_rows(9_000, 100)))


def test_rows_of_a_frame_stay_while_others_delete(lake: bitlake.Lake, ways: Any) -> None:
    table = _table(lake)
    ways("spark")
    lake.sql("DELETE FROM t WHERE k = 1")
    frame, lazy = lake.sql("SELECT id, k FROM t"), lake.read("t")
    count = frame.count()
    lake.sql("DELETE FROM t WHERE k < 10")
    assert frame.count() == lazy.count() == count > lake.sql("SELECT id, k FROM t").count()
    assert lake.sql("SELECT min(k) FROM t").collect()[0][0] == 10
    # The same selection gives the same relation, another one does not.
    plan = table._core.scan().plan()
    again = table._core.scan().plan()
    assert deleted_rows.mask_key(plan.files) == deleted_rows.mask_key(again.files)
    lake.sql("DELETE FROM t WHERE id = 4000")
    assert deleted_rows.mask_key(table._core.scan().plan().files) != deleted_rows.mask_key(plan.files)


def test_positions_paths_and_file_metadata_of_rows_that_are_left(lake: bitlake.Lake, ways: Any) -> None:
    _table(lake)
    lake.sql("DELETE FROM t WHERE k % 3 = 0")
    answers = []
    for way in ("spark", "workers"):
        ways(way)
        query = "SELECT id, __paimon_row_index i, __paimon_file_path p FROM t WHERE id > 1000 AND k > 20"
        places = {r.id: (r.i, r.p) for r in lake.sql(query).collect()}
        assert all(i == id_ % ROWS for id_, (i, _) in places.items())
        query = "SELECT id, _metadata.file_name n, _metadata.row_index i FROM t WHERE k > 20"
        meta = {r.id: (r.n, r.i) for r in lake.sql(query).collect()}
        answers.append((places, meta))
    assert answers[0] == answers[1] and len({p for _, p in answers[0][0].values()}) == FILES
    ways("spark")
    plan = lake.sql("EXPLAIN SELECT v FROM t WHERE id > 3000 AND k = 4").collect()[0][0]
    assert "GreaterThan(id,3000)" in plan and "EqualTo(k,4)" in plan, "filters reach the files"
    narrow = lake.sql("EXPLAIN SELECT max(k) FROM t WHERE k < 90").collect()[0][0]
    assert "ReadSchema: struct<k:int" in narrow and "string" not in narrow, "other columns are not read"


def test_scans_beyond_the_bounds_are_read_by_workers(
    lake: bitlake.Lake, ways: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(lake)
    lake.sql("DELETE FROM t WHERE k = 1")
    expected = _plain(_rows().filter(pc.not_equal(_rows()["k"], 1)))
    files = table._core.scan().plan().files
    assert all(f.deleted for f in files)
    ways("spark")
    for bound, least in (("MASK_BYTES", ROWS * FILES // 8), ("MASK_FILES", FILES - 1)):
        with monkeypatch.context() as m:
            m.setattr(deleted_rows, bound, least)
            _check(lake, ways, expected, filtered=False)
    with monkeypatch.context() as m:
        m.setattr(deleted_rows, "_crc", lambda f: 7)  # names that the bits cannot tell apart
        ways("spark")
        assert FILTERED not in lake.sql("EXPLAIN SELECT k FROM t").collect()[0][0]
    lake.sql("ALTER TABLE t RENAME COLUMN v TO w")  # Spark's reader goes by name
    assert FILTERED not in lake.sql("EXPLAIN SELECT w FROM t").collect()[0][0]
    assert {r.id: r.w for r in lake.sql("SELECT id, w FROM t").collect()} == {i: v for i, (_, v) in expected.items()}


@pytest.mark.parametrize("prefix", [long("a b%-"), "ä+%20-"])
def test_statements_find_files_whose_names_a_uri_escapes(lake: bitlake.Lake, ways: Any, prefix: str) -> None:
    _table(lake, **{"data-file.prefix": prefix})
    expected = _plain(_rows())
    for way, k in (("spark", 5), ("workers", 6), ("spark", 7)):
        ways(way)
        lake.sql(f"DELETE FROM t WHERE k = {k}")
        lake.sql(f"UPDATE t SET v = 'u' WHERE k = {k} + 10")
        expected = {i: (n, "u" if n == k + 10 else v) for i, (n, v) in expected.items() if n != k}
    _check(lake, ways, expected)


def test_a_column_called_metadata_is_not_taken_for_sparks(lake: bitlake.Lake, ways: Any) -> None:
    lake.sql("CREATE TABLE t (id INT, _metadata STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t SELECT CAST(id AS INT), 'x' FROM range(100)")
    lake.sql("DELETE FROM t WHERE id % 10 = 3")
    ways("spark")
    assert FILTERED not in lake.sql("EXPLAIN SELECT id FROM t").collect()[0][0]
    assert lake.sql("SELECT count(*), count(_metadata) FROM t WHERE id >= 0").collect()[0][:] == (90, 90)


def test_key_tables_with_vectors(lake: bitlake.Lake, ways: Any) -> None:
    lake.sql(
        "CREATE TABLE t (id BIGINT NOT NULL, k INT, v STRING) TBLPROPERTIES "
        "('primary-key' = 'id', 'bucket' = '2', 'deletion-vectors.enabled' = 'true')"
    )
    lake.write(lake.spark.createDataFrame(_rows()), "t")
    lake.sql("INSERT INTO t SELECT id * 5, CAST(7 AS INT), 'new' FROM range(300)")
    lake.sql("DELETE FROM t WHERE id % 17 = 4")
    expected = {i: ((7, "new") if i % 5 == 0 and i < 1500 else kv) for i, kv in _plain(_rows()).items() if i % 17 != 4}
    _check(lake, ways, expected, any(f.deleted for f in lake.table("t").scan().plan().files))


def test_many_files_have_slots_of_their_own() -> None:
    names = np.random.default_rng(5).integers(0, 1 << 32, 1000).astype(np.int64)
    slots, places = deleted_rows._slots(names)
    assert len(np.unique(places)) == 1000 and places.max() < slots <= 1_000_000
    one, _ = deleted_rows._slots(names[:1])
    assert one == 1


def test_rows_behind_the_last_one_of_a_file_are_an_error(lake: bitlake.Lake) -> None:
    """A file that has more rows than its vector knows must not bring deleted rows back."""
    file = _table(lake)._core.scan().plan().files[0]
    short = replace(file.entry, file=replace(file.entry.file, row_count=64))
    known = replace(file, entry=short, selection=Selection.of(BitMap([0, 1, 63]), True))
    rows = lake.spark.read.parquet(file.path).where(deleted_rows.is_read(lake.spark, [known])[0])
    assert [r.id for r in rows.limit(3).collect()] == [0, 1, 63]
    with pytest.raises(Exception, match="has more rows"):
        rows.collect()
