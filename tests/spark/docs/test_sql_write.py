"""Paimon's Spark documentation, page "SQL Write": INSERT, TRUNCATE, UPDATE, DELETE, MERGE, merging schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from answers import rows_of
from long import exhaustive

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


@pytest.mark.exhaustive
def test_insert_into_and_overwrite(run: Run) -> None:
    run("CREATE TABLE my_table (a INT, key1 INT, key2 STRING) PARTITIONED BY (key1, key2)")
    run("INSERT INTO my_table SELECT 1, 1, 'x'; INSERT INTO my_table SELECT 2, 1, 'y'")
    run("INSERT OVERWRITE my_table PARTITION (key1 = 1, key2 = 'x') SELECT 3")
    assert sorted(run("SELECT * FROM my_table")) == [[2, 1, "y"], [3, 1, "x"]]
    run("INSERT OVERWRITE my_table SELECT 4, 2, 'z'")
    assert run("SELECT * FROM my_table") == [[4, 2, "z"]]
    run("INSERT INTO my_table (key2, a, key1) VALUES ('c', 5, 3)")  # a column list
    run("INSERT INTO my_table (key1, key2) VALUES (3, NULL)")
    assert run("SELECT * FROM my_table WHERE key1 = 3 ORDER BY a NULLS LAST") == [[5, 3, "c"], [None, 3, None]]


def test_dynamic_overwrite(run: Run) -> None:
    run("CREATE TABLE my_table (id INT, pt STRING) PARTITIONED BY (pt);")
    start = "INSERT OVERWRITE my_table VALUES (1, 'p1'), (2, 'p2')"
    run("INSERT INTO my_table VALUES (1, 'p1'), (2, 'p2');")
    run("INSERT OVERWRITE my_table VALUES (3, 'p1');")
    assert run("SELECT * FROM my_table;") == [[3, "p1"]]
    run(start)
    run("INSERT OVERWRITE my_table PARTITION (pt) VALUES (3, 'p1');")
    assert run("SELECT * FROM my_table;") == [[3, "p1"]]
    run(start)
    run("INSERT OVERWRITE my_table PARTITION (pt='p1') VALUES (3);")
    assert run("SELECT * FROM my_table ORDER BY id;") == [[2, "p2"], [3, "p1"]]
    run(start)
    run("SET spark.sql.sources.partitionOverwriteMode=dynamic;")
    run("INSERT OVERWRITE my_table VALUES (3, 'p1');")
    assert run("SELECT * FROM my_table ORDER BY id;") == [[2, "p2"], [3, "p1"]]


@pytest.mark.exhaustive
def test_truncate_update_delete(run: Run) -> None:
    run("CREATE TABLE my_table (id INT, dt STRING) PARTITIONED BY (dt)")
    run("INSERT INTO my_table VALUES (1, '2025-01-01'), (1, '2025-01-02'), (2, '2025-01-02')")
    run("TRUNCATE TABLE my_table PARTITION (dt = '2025-01-01');")
    assert run("SELECT id FROM my_table ORDER BY id") == [[1], [2]]
    run("DELETE FROM my_table WHERE id = 1;")
    assert run("SELECT id FROM my_table") == [[2]]
    run("TRUNCATE TABLE my_table;")
    assert run("SELECT * FROM my_table") == []
    run(
        """
        CREATE TABLE t (
          id INT,
          s STRUCT<c1: INT, c2: STRING>,
          name STRING)
        TBLPROPERTIES (
          'primary-key' = 'id',
          'merge-engine' = 'deduplicate'
        );
        INSERT INTO t VALUES (1, struct(1, 'a'), 'a'), (2, struct(2, 'b'), 'b');
        UPDATE t SET name = 'a_new' WHERE id = 1;
        UPDATE t SET s.c2 = 'a_new' WHERE s.c1 = 1;
        """
    )
    assert run("SELECT * FROM t ORDER BY id") == [[1, [1, "a_new"], "a_new"], [2, [2, "b"], "b"]]
    with pytest.raises(InvalidRequest, match="key"):
        run("UPDATE t SET id = 7 WHERE id = 1")


@pytest.mark.exhaustive
def test_merge_into(run: Run) -> None:
    run("CREATE TABLE target (a INT, b INT, c STRING) TBLPROPERTIES ('primary-key' = 'a')")
    run("CREATE TABLE source (a INT, b INT, c STRING) TBLPROPERTIES ('primary-key' = 'a')")
    run("INSERT INTO target VALUES (1, 10, 'c1'), (2, 20, 'c2')")
    run("INSERT INTO source VALUES (1, 100, 'c11'), (3, 300, 'c33')")
    run(
        """
        MERGE INTO target
        USING source
        ON target.a = source.a
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *
        """
    )
    assert run("SELECT * FROM target ORDER BY a") == [[1, 100, "c11"], [2, 20, "c2"], [3, 300, "c33"]]
    run("INSERT OVERWRITE target VALUES (1, 10, 'c1'), (2, 20, 'c2'), (3, 30, 'c3'), (4, 40, 'c4'), (5, 50, 'c5')")
    run("INSERT INTO source VALUES (5, 500, 'c55'), (7, 700, 'c77'), (9, 900, 'c99')")
    run(
        """
        MERGE INTO target
        USING source
        ON target.a = source.a
        WHEN MATCHED AND target.a = 5 THEN UPDATE SET b = source.b + target.b
        WHEN MATCHED AND source.c > 'c2' THEN UPDATE SET *
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED AND c > 'c9' THEN INSERT (a, b, c) VALUES (a, b * 1.1, c)
        WHEN NOT MATCHED THEN INSERT *
        """
    )
    assert run("SELECT * FROM target ORDER BY a") == [
        [2, 20, "c2"],
        [3, 300, "c33"],
        [4, 40, "c4"],
        [5, 550, "c5"],
        [7, 700, "c77"],
        [9, 990, "c99"],
    ]


def test_merge_schema(run: Run, lake: bitlake.Lake) -> None:
    run("SET `spark.paimon.write.merge-schema` = true;")
    run("CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, '1'), (2, '2');")
    run("INSERT INTO t BY NAME SELECT 3 AS a, '3' AS b, 3 AS c;")
    assert run("SELECT * FROM t ORDER BY a") == [[1, "1", None], [2, "2", None], [3, "3", 3]]
    run("INSERT INTO t BY NAME SELECT 4L AS a")  # the type stays, and what is missing is NULL
    assert str(lake.table("t").schema.field("a").type) == "INT"
    assert run("SELECT * FROM t WHERE a = 4") == [[4, None, None]]
    with pytest.raises(InvalidRequest, match="3 columns"):
        run("INSERT INTO t VALUES (5, '5', 5, 5)")  # by position nothing is merged
    run("SET `spark.paimon.write.merge-schema.type-widening` = true")
    run("INSERT INTO t BY NAME SELECT 5000000000L AS a")
    assert str(lake.table("t").schema.field("a").type) == "BIGINT"
    with pytest.raises(InvalidRequest, match="without loss"):
        run("INSERT INTO t BY NAME SELECT DATE '2024-01-01' AS b")
    run("RESET `spark.paimon.write.merge-schema`")
    with pytest.raises(InvalidRequest, match="no column 'd'"):
        run("INSERT INTO t BY NAME SELECT 1 AS a, 2 AS d")


def test_merge_schema_of_a_frame(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE t (a INT, s STRUCT<x: INT, y: STRING>)")
    run("INSERT INTO t VALUES (1, struct(1, 'y'))")
    frame = lake.spark.sql("SELECT 2 AS a, named_struct('z', 3L, 'x', 4) AS s, 'new' AS n")
    with pytest.raises(InvalidRequest, match="no column 'n'"):
        lake.write(frame, "t")
    with pytest.raises(InvalidRequest, match=r"no member 's\.z'"):
        lake.write(frame.drop("n"), "t")
    with pytest.raises(InvalidRequest, match=r"no member 's\.y'"):
        lake.write(lake.spark.sql("SELECT 2 AS a, named_struct('x', 4) AS s"), "t")
    lake.write(frame, "t", "append", options={"write.merge-schema": "true"})
    assert rows_of(lake.sql("SELECT * FROM t ORDER BY a")) == [
        [1, [1, "y", None], None],
        [2, [4, None, 3], "new"],
    ]


@pytest.mark.parametrize("key", ["", exhaustive(" TBLPROPERTIES ('primary-key' = 'a')")], ids=["append", "keyed"])
def test_merge_into_and_schemas(run: Run, key: str) -> None:
    """The page's table of what MERGE INTO does with columns that source and target do not both have."""
    run(f"CREATE TABLE target (a INT, b INT DEFAULT 7, s STRUCT<x: INT, y: STRING>){key}")
    run("INSERT INTO target VALUES (1, 10, struct(1, 'y1')), (2, 20, struct(2, 'y2'))")
    merge = (
        "MERGE INTO target USING (SELECT * FROM VALUES {}) AS source ON target.a = source.a "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    full = "(1, 11, named_struct('y', 'new', 'x', 5), 'extra') AS v(a, b, s, more)"
    run(merge.format(full))  # what the target lacks is dropped; members go by name
    assert run("SELECT * FROM target ORDER BY a") == [[1, 11, [5, "new"]], [2, 20, [2, "y2"]]]
    part = "(2, named_struct('z', 1L, 'x', 6), 'extra'), (3, named_struct('z', 2L, 'x', 7), 'm') AS v(a, s, more)"
    with pytest.raises(BitlakeError, match="no 'b'"):
        run(merge.format(part))
    run("SET `spark.paimon.write.merge-schema` = true")
    run(merge.format(part))
    assert run("SELECT a, b, s.x, s.y, s.z, more FROM target ORDER BY a") == [
        [1, 11, 5, "new", None, None],
        [2, 20, 6, "y2", 1, "extra"],
        [3, 7, 7, None, 2, "m"],
    ]
