"""UPDATE on append tables: against a plain model; nested columns, defaults, subqueries, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from dml_model import NAMES, OPTIONS, Model
from long import long

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, NotFound
from bitlake.spark.read import scan

pytestmark = pytest.mark.spark

SETS: list[tuple[dict[str, str], str]] = [
    ({"a": "a + 1"}, "a = a + 1"),
    ({"b": "'new'", "a": "NULL"}, "t.b = 'new', a = NULL"),
    ({"s": "named_struct('x', 5, 'y', t.s.y)"}, "s.x = 5"),
    ({"p": "'moved'"}, "p = 'moved'"),
    ({"b": "(SELECT max(w) FROM other WHERE k = t.a)"}, "b = (SELECT max(w) FROM other WHERE k = t.a)"),
    ({"a": "cast(id % 7 AS INT)", "b": "coalesce(b, 'none')"}, "a = CAST(id % 7 AS INT), b = coalesce(b, 'none')"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("updates", [2, long(3)])
def test_random_updates(lake: bitlake.Lake, name: str, updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if "bucketed" not in name:
        monkeypatch.setattr(scan, "DRIVER_ROWS", -1)  # rows are read on executors
    model = Model(lake, OPTIONS[name], seed=len(name) + 1, partitioned=name in ("vectors", "copy-on-write"))
    for values, written in model.random.sample(SETS, 3)[:updates]:
        model.update(values, written, model.condition())
        model.check()
    model.delete(model.condition())
    model.check()


def test_one_snapshot_of_its_own_operation(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT, b INT DEFAULT 7) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    assert lake.sql("UPDATE t AS x SET x.b = DEFAULT WHERE x.a + 0 = 1").collect()[0].asDict() == {
        "num_affected_rows": 1
    }
    assert sorted(lake.sql("SELECT * FROM t").collect()) == [(1, 7), (2, 2)]
    snapshot = lake.table("t").snapshot
    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind, snapshot.operation) == (2, "OVERWRITE", "UPDATE")
    assert lake.sql("UPDATE t SET a = 0 WHERE a > 100").collect()[0][0] == 0
    assert lake.table("t")._core.state().snapshot_id == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("UPDATE t SET nope = 1", NotFound, "has no column 'nope'"),
        ("UPDATE t SET a = 1, A = 2", InvalidRequest, "set twice"),
        ("UPDATE t SET s = NULL, s.x = 1", InvalidRequest, "set twice"),
        ("UPDATE t SET s.z = 1", NotFound, "has no member 'z'"),
        ("UPDATE t SET a.x = 1", InvalidRequest, "has no member 'x'"),
        ("UPDATE t SET a = 'many'", InvalidRequest, "column 'a': many does not fit INT"),
        ("UPDATE t SET a = DATE '2024-01-01'", InvalidRequest, "cannot store date into int"),
        ("UPDATE t SET k = NULL", InvalidRequest, "NOT NULL"),
    ],
)
def test_mistakes_change_nothing(lake: bitlake.Lake, text: str, error: type[BitlakeError], message: str) -> None:
    lake.sql(
        "CREATE TABLE t (a INT, s STRUCT<x: INT>, k INT NOT NULL) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')"
    )
    lake.sql("INSERT INTO t VALUES (1, named_struct('x', 1), 1)")
    with pytest.raises(error, match=message):
        lake.sql(text)
    assert lake.table("t")._core.state().snapshot_id == 1
    assert not list(Path(lake.path).rglob("index-*"))


@pytest.mark.parametrize("where", ["", " WHERE a > 100"])
@pytest.mark.parametrize("value", ["typo", "a + typo", "(SELECT max(typo) FROM t)"])
def test_an_unknown_column_is_refused_where_no_row_is_found(lake: bitlake.Lake, value: str, where: str) -> None:
    lake.sql("CREATE TABLE t (a INT, b INT)")
    if where:
        lake.sql("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(NotFound, match="no column 'typo'"):
        lake.sql(f"UPDATE t SET b = {value}{where}")
    assert lake.sql(f"UPDATE t SET b = a + 1{where}").collect()[0][0] == 0
