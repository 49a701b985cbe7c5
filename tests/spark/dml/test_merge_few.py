"""MERGE of few rows: against MERGE on executors, over random statements; and how many jobs it takes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from dml_model import OPTIONS
from long import exhaustive, few, halves
from spark_jobs import jobs_of

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.spark.dml import key_pairs, merge, merge_few

pytestmark = pytest.mark.spark

TABLES = {
    "vectors": OPTIONS["vectors"],
    "copy-on-write": {},
    "keyed": {"primary-key": "id", "bucket": "1"},
    "keyed with vectors": {"primary-key": "id", "bucket": "2", "deletion-vectors.enabled": "true"},
}
COLUMNS = "id INT, a SMALLINT, b VARCHAR(4), s STRUCT<x: INT, y: STRING>, d DECIMAL(5, 2), at TIMESTAMP, l ARRAY<INT>"
VALUES = (
    "CAST(id AS INT), CAST(id % 7 AS SMALLINT), CAST(id % 5 AS STRING), named_struct('x', CAST(id AS INT), 'y', 'y'), "
    "CAST(id AS DECIMAL(5, 2)), timestamp_seconds(id), array(CAST(id AS INT))"
)
ON = [
    "t.id = s.id",
    "s.id = t.id AND t.a > 3",
    "t.id <=> s.id",
    "t.id = s.id + 1",
    "t.id = s.id AND s.n IN (SELECT id FROM some_ids)",
    "t.id BETWEEN s.id AND s.id + 1",
]
CONDITIONS = ["s.n > t.a", "t.b = '1'", "s.n % 3 = 0", "t.s.x > 10", "s.n / (s.n - 1) > 1", "s.txt IS NULL"]
MATCHED = [
    "DELETE",
    "UPDATE SET a = s.n",
    "UPDATE SET a = s.n * 9000",
    "UPDATE SET b = s.txt, s.x = s.n, l = array(s.n, t.a)",
    "UPDATE SET b = concat(t.b, s.txt)",
    "UPDATE SET a = CAST(s.txt AS INT)",
    "UPDATE SET d = t.d * s.n, at = current_date()",
    "UPDATE SET s = NULL, a = DEFAULT",
    "UPDATE SET typo = 1",
]
MISSING = [
    "INSERT (id, a, b) VALUES (s.id, s.n, s.txt)",
    "INSERT (id, d, l) VALUES (id, n / 2, array(n, NULL))",
    "INSERT (id, s) VALUES (s.id, named_struct('y', s.txt, 'x', n))",
    "INSERT (id, a) VALUES (s.id, 40000)",
    "INSERT (id, a) VALUES (s.id, (SELECT max(id) FROM some_ids))",
]


def statement(pick: random.Random) -> str:
    """The clauses of a random MERGE into ``{}``."""
    clauses = []
    for when, actions, tests in (("MATCHED", MATCHED, CONDITIONS), ("NOT MATCHED", MISSING, ["s.n > 3", "txt = 'b'"])):
        count = pick.choice([0, 1, 1, 2])
        for i in range(count):
            bare = i == count - 1 and pick.random() < 0.5
            test = "" if bare else f" AND {pick.choice(tests)}"
            clauses.append(f"WHEN {when}{test} THEN {pick.choice(actions)}")
    on = pick.choice(ON)
    return f"MERGE INTO {{}} AS t USING changes AS s ON {on} {' '.join(clauses)}" if clauses else statement(pick)


def outcome(lake: bitlake.Lake, table: str, text: str) -> tuple[Any, ...]:
    """What a MERGE returns or raises, and the table's rows after it."""
    try:
        done: Any = tuple(lake.sql(text.format(table)).collect()[0])
    except BitlakeError as e:
        done = type(e)
    return done, sorted(map(repr, lake.table(table).to_arrow().to_pylist()))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("turns", "name"), few(itertools.product([3, 40], TABLES), (3, "vectors"), (3, "keyed")))
def test_random_merges_as_on_executors(
    lake: bitlake.Lake, name: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(f"few {name}")
    options = ", ".join(f"'{k}' = '{v}'" for k, v in TABLES[name].items())
    columns = COLUMNS if "primary-key" not in options else COLUMNS.replace("id INT", "id INT NOT NULL")
    parts = [lake.spark.sql(f"SELECT {VALUES} FROM range({first}, {first + 20})").toArrow() for first in (0, 20)]
    for table in ("here", "there"):
        lake.sql(f"CREATE TABLE {table} ({columns})" + (f" TBLPROPERTIES ({options})" if options else ""))
        schema = lake.table(table).arrow_schema
        for part in parts:
            lake.write(part.rename_columns(schema.names).cast(schema), table)
    lake.sql("CREATE TABLE some_ids AS SELECT CAST(id AS INT) AS id FROM range(3, 9)")
    few = merge_few.merge_few
    taken: list[bool] = []
    monkeypatch.setattr(key_pairs, "MOST_SOURCE_ROWS", -1)

    def recorded(*arguments: Any) -> Any:
        done = few(*arguments)
        taken.append(done is not None)
        return done

    kinds = set()
    for _ in range(turns):
        rows = [(pick.choice([None, i]), pick.randrange(6), pick.choice([None, "a", "b", "12345"])) for i in range(50)]
        rows = pick.sample(rows, 12) + (rows[:1] if pick.random() < 0.2 else [])
        changes = lake.spark.createDataFrame(rows, "id INT, n INT, txt STRING")
        changes.where("id IS NOT NULL" if "keyed" in name else "true").createOrReplaceTempView("changes")
        text = statement(pick)
        monkeypatch.setattr(merge, "merge_few", recorded)
        here = outcome(lake, "here", text)
        monkeypatch.setattr(merge, "merge_few", lambda *_: None)
        assert here == outcome(lake, "there", text), text
        kinds.add(isinstance(here[0], tuple))
    assert taken and all(taken), "each statement that does not raise takes the path of few rows"


def test_a_small_merge_takes_three_jobs(lake: bitlake.Lake) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql(f"INSERT INTO t SELECT {VALUES} FROM range(100)")
    lake.sql("CREATE TABLE news AS SELECT CAST(id AS INT) AS id, 5 AS n FROM range(90, 110)")
    clauses = (
        "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET a = t.a + s.n "
        "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (id, n)"
    )
    text = f"MERGE INTO t USING news AS s ON t.id = s.id {clauses}"
    done, jobs = jobs_of(lake.spark, lambda: lake.sql(text).collect())
    assert tuple(done[0]) == (20, 5, 5, 10)
    assert jobs <= 3
    values = lake.spark.createDataFrame([(1, 2), (3, 4), (500, 6)], "id INT, n INT")
    merged = lake.merge("t", values, "target.id = source.id").when_matched_update({"a": "source.n"})
    done, jobs = jobs_of(lake.spark, lambda: merged.when_not_matched_insert({"id": "source.id"}).execute().collect())
    assert tuple(done[0]) == (3, 2, 0, 1)
    assert jobs <= 3
    assert sorted(lake.sql("SELECT id, a FROM t WHERE id IN (1, 3, 91, 105, 500)").collect(), key=str) == [
        (1, 2),
        (105, 5),
        (3, 4),
        (500, None),
        (91, 0 + 5),
    ]


@pytest.mark.exhaustive
def test_keys_of_several_columns_find_the_rows_that_can_match(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of scattered keys were known by their range only: eight jobs read and joined the whole table."""
    lake.sql(
        "CREATE TABLE t (id BIGINT, n INT, a STRING, b STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')"
    )
    rows = "SELECT id DIV 4, CAST(id % 4 AS INT), concat('a', id), concat('b', id) FROM range(100000)"
    lake.sql(f"INSERT INTO t {rows}")
    values = "SELECT id * 20 AS id, id % 5 AS n, 'new' AS a, concat('new ', id) AS b FROM range(1200)"
    lake.spark.sql(values).createOrReplaceTempView("changes")
    near: list[merge_few._Near] = []
    columns: list[tuple[str, ...]] = []
    read = merge_few._Near.read

    def noted(self: merge_few._Near, scan: Any) -> Any:
        near.append(self)
        columns.append(tuple(c for c in scan.columns if not c.startswith("__")))
        return read(self, scan)

    monkeypatch.setattr(merge_few._Near, "read", noted)
    text = "MERGE INTO t USING changes s ON t.id = s.id AND t.n = s.n WHEN MATCHED THEN UPDATE SET {} {}"
    done, jobs = jobs_of(lake.spark, lambda: lake.sql(text.format("*", "WHEN NOT MATCHED THEN INSERT *")).collect())
    assert tuple(done[0]) == (1200, 960, 0, 240) and jobs <= 4
    assert (columns.pop(), near.pop().rows) == (("id", "n"), 960)
    counted = "SELECT count(*), count_if(a = 'new'), count_if(a = 'new' AND b = concat('new ', id DIV 20)) FROM t"
    assert tuple(lake.sql(counted).collect()[0]) == (100_240, 1200, 1200)
    assert lake.sql(text.format("b = concat(t.b, '!')", "")).collect()[0][1] == 1200
    assert set(columns.pop()) == {"id", "n", "a", "b"}
    counted = "SELECT count(*), count_if(a = 'new' AND b LIKE 'new %!') FROM t"
    assert tuple(lake.sql(counted).collect()[0]) == (100_240, 1200)
    lake.sql(text.format("b = to_json(struct(t.*))", "")).collect()
    assert set(columns.pop()) == {"id", "n", "a", "b"}
    (found,) = lake.sql("SELECT b FROM t WHERE id = 20 AND n = 1").collect()[0]
    assert found.startswith('{"id":20,"n":1,"a":"new","b":"new 1!"')


@pytest.mark.exhaustive
def test_every_row_of_a_source_with_structs_may_match(lake: bitlake.Lake) -> None:
    """A source without unmatched rows left an Arrow table without chunks, which PySpark could not read."""
    lake.sql(f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql(f"INSERT INTO t SELECT {VALUES} FROM range(5)")
    rows = "SELECT id, named_struct('x', 9, 'y', 'z') AS new FROM VALUES (1), (2) AS v (id)"
    clauses = "WHEN MATCHED THEN UPDATE SET s = src.new WHEN NOT MATCHED THEN INSERT (id, s) VALUES (id, new)"
    assert lake.sql(f"MERGE INTO t USING ({rows}) AS src ON t.id = src.id {clauses}").collect() == [(2, 2, 0, 0)]


@pytest.mark.parametrize("limit", [exhaustive("MOST_ROWS"), "MOST_BYTES"])
def test_what_is_not_few_is_left_to_executors(lake: bitlake.Lake, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql("CREATE TABLE t (id INT, a INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t SELECT id, 1 FROM range(10)")
    monkeypatch.setattr(merge_few, limit, 8)
    done = lake.sql(
        "MERGE INTO t USING (SELECT 1 AS one FROM range(2)) AS s ON t.id + s.one > 5 "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (one)"
    ).collect()
    assert tuple(done[0]) == (5, 0, 5, 0)
    assert lake.table("t").snapshot.id == 2  # type: ignore[union-attr]
    with pytest.raises(InvalidRequest, match="matched by several source rows"):
        lake.sql("MERGE INTO t USING (SELECT 1 AS one FROM range(2)) AS s ON true WHEN MATCHED THEN UPDATE SET a = 2")


@pytest.mark.parametrize("kind", ["copy-on-write", "keyed"])
def test_a_row_that_several_rows_delete_counts_once(lake: bitlake.Lake, kind: str) -> None:
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in TABLES[kind].items())
    properties = f" TBLPROPERTIES ({listed})" if listed else ""
    lake.sql(f"CREATE TABLE t (id INT NOT NULL, a INT){properties}")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    done = lake.sql(
        "MERGE INTO t USING (VALUES (1), (1), (2), (9)) AS s (k) ON t.id = s.k "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, a) VALUES (k, 0)"
    ).collect()
    assert tuple(done[0]) == (3, 0, 2, 1)
    assert sorted(map(tuple, lake.sql("SELECT id, a FROM t").collect())) == [(3, 3), (9, 0)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "few"), halves(TABLES, [False, True]))
def test_conditions_are_not_evaluated_for_rows_without_a_match(
    lake: bitlake.Lake, name: str, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        monkeypatch.setattr(merge, "merge_few", lambda *_: None)
    options = ", ".join(f"'{k}' = '{v}'" for k, v in TABLES[name].items())
    lake.sql("CREATE TABLE t (id INT NOT NULL, a INT, b STRING)" + (f" TBLPROPERTIES ({options})" if options else ""))
    lake.sql("INSERT INTO t (id, a) VALUES (1, 0), (2, 0)")
    lake.spark.sql("SELECT * FROM VALUES (1, 2), (3, 1), (2, 0) AS c(id, n)").createOrReplaceTempView("changes")
    on = "MERGE INTO t USING changes AS s ON s.id = t.id AND s.id < 3"
    lake.sql(f"{on} WHEN MATCHED AND s.n / (s.n - 1) > 1 THEN UPDATE SET a = s.n").collect()
    lake.sql(
        f"{on} AND s.n > 1 WHEN NOT MATCHED AND s.id / (s.id - 1) < 1.9 THEN INSERT (id, a) VALUES (4, n)"
    ).collect()
    assert sorted(map(tuple, lake.sql("SELECT id, a FROM t").collect())) == [(1, 2), (2, 0), (4, 1)]
