"""MERGE INTO append tables: against a plain model of rows, and what is refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dml_model import NAMES, OPTIONS, append_halves
from long import exhaustive, few, long
from pyspark.sql import functions as F

import bitlake
from bitlake.engine import dml
from bitlake.errors import BitlakeError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.spark.dml import key_pairs, merge_few, merge_source, target
from bitlake.spark.read import scan

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
Test = Callable[[Row | None, Row | None], bool]


def more(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a > b


def same(a: Any, b: Any) -> bool:
    return a is not None and a == b


# Rows are (id, a, b); each condition as SQL over t and s, and as a function of their rows.
ON: list[tuple[str, Test]] = [
    ("t.id = s.id", lambda t, s: same(t[0], s[0])),
    ("s.id = t.id AND t.a > 3", lambda t, s: same(t[0], s[0]) and more(t[1], 3)),
    ("t.id <=> s.id AND coalesce(s.a, 9) > 2", lambda t, s: t[0] == s[0] and more(9 if s[1] is None else s[1], 2)),
]
BOTH: list[tuple[str, Test]] = [
    ("s.a > t.a", lambda t, s: more(s[1], t[1])),
    ("t.b IS NULL", lambda t, s: t[2] is None),
    ("s.b = 'x' OR t.id % 2 = 0", lambda t, s: same(s[2], "x") or (t[0] is not None and t[0] % 2 == 0)),
]
SOURCE: list[tuple[str, Test]] = [("a > 4", lambda t, s: more(s[1], 4)), ("s.b = 'y'", lambda t, s: same(s[2], "y"))]
TARGET: list[tuple[str, Test]] = [("a > 6", lambda t, s: more(t[1], 6)), ("t.b = 'z'", lambda t, s: same(t[2], "z"))]
MATCHED_THEN: list[tuple[str, Callable[[Row, Row], Row | None]]] = [
    ("DELETE", lambda t, s: None),
    ("UPDATE SET *", lambda t, s: s),
    ("UPDATE SET t.a = s.a + 1, b = concat(t.b, '!')", lambda t, s: (t[0], plus(s[1]), t[2] and t[2] + "!")),
]
MISSING_THEN: list[tuple[str, Callable[[Row], Row]]] = [
    ("INSERT *", lambda s: s),
    ("INSERT (b, id) VALUES (upper(b), id)", lambda s: (s[0], None, s[2] and s[2].upper())),
]
LEFT_THEN: list[tuple[str, Callable[[Row], Row | None]]] = [
    ("DELETE", lambda t: None),
    ("UPDATE SET b = 'left'", lambda t: (t[0], t[1], "left")),
]


def plus(a: int | None) -> int | None:
    return None if a is None else a + 1


class Twice(Exception):
    """Several source rows would change one row."""


def modelled(
    target: Sequence[Row], source: Sequence[Row], on: Test, clauses: Sequence[tuple[str, Test, Any, str]]
) -> tuple[list[Row], tuple[int, int, int]]:
    """The rows after a MERGE and how many were updated, deleted and inserted; clauses are (kind, test, then, text)."""
    out, matched, counts = [], set(), [0, 0, 0]
    of = {k: [c for c in clauses if c[0] == k] for k in ("MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE")}
    lenient = [c[3] for c in of["MATCHED"]] == ["WHEN MATCHED THEN DELETE"]
    for t in target:
        partners = [i for i, s in enumerate(source) if on(t, s)]
        matched.update(partners)
        if partners:
            hits = [(c, source[i]) for i in partners for c in [first(of["MATCHED"], t, source[i])] if c]
            if len(hits) > 1 and not lenient:
                raise Twice
            new = hits[0][0][2](t, hits[0][1]) if hits else t
        else:
            clause = first(of["NOT MATCHED BY SOURCE"], t, None)
            hits = [clause] if clause else []
            new = clause[2](t) if clause else t
        if hits:
            counts[1 if new is None else 0] += 1
        if new is not None:
            out.append(new)
    for i, s in enumerate(source):
        clause = first(of["NOT MATCHED"], None, s) if i not in matched else None
        if clause:
            counts[2] += 1
            out.append(clause[2](s))
    return out, (counts[0], counts[1], counts[2])


def first(clauses: Sequence[Any], t: Row | None, s: Row | None) -> Any:
    return next((c for c in clauses if c[1](t, s)), None)


def random_clauses(pick: random.Random) -> list[tuple[str, Test, Any, str]]:
    out: list[tuple[str, Test, Any, str]] = []
    kinds: list[tuple[str, Any, Any]] = [
        ("MATCHED", BOTH, MATCHED_THEN),
        ("NOT MATCHED", SOURCE, MISSING_THEN),
        ("NOT MATCHED BY SOURCE", TARGET, LEFT_THEN),
    ]
    for kind, conditions, thens in kinds:
        count = pick.choice([0, 1, 1, 2])
        for i in range(count):
            text, test = pick.choice(conditions)
            then, made = pick.choice(thens)
            bare = i == count - 1 and pick.random() < 0.5
            words = f"WHEN {kind}{'' if bare else f' AND {text}'} THEN {then}"
            out.append((kind, (lambda t, s: True) if bare else test, made, words))
    return out or random_clauses(pick)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("turns", [2, long(6)])
def test_random_merges(lake: bitlake.Lake, name: str, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_source, "LEAST_BYTES", 0)
    monkeypatch.setattr(merge_source, "MOST_KEYS", 10)
    if "bucketed" not in name:
        monkeypatch.setattr(scan, "DRIVER_ROWS", -1)  # rows are read on executors
        monkeypatch.setattr(merge_few, "MOST_ROWS", -1)
        monkeypatch.setattr(key_pairs, "MOST_SOURCE_ROWS", -1)
        monkeypatch.setattr(merge_source, "MOST_SENT", 10)
    pick = random.Random(name)
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in OPTIONS[name].items())
    lake.sql("CREATE TABLE t (id INT, a INT, b STRING)" + (f" TBLPROPERTIES ({listed})" if listed else ""))
    rows: list[Row] = []
    for start in (0, 30):
        new = [
            (pick.choice([None, start + i]), pick.choice([None, *range(10)]), pick.choice([None, "x", "y", "z"]))
            for i in range(30)
        ]
        if start:
            append_halves(lake, "t", new)
        else:
            lake.write(lake.spark.createDataFrame(new, "id INT, a INT, b STRING"), "t")
        rows += new
    for turn in range(turns):
        source = [
            (pick.choice([None, i]), pick.choice([None, *range(10)]), pick.choice([None, "x", "y"]))
            for i in pick.sample(range(80), 8 if turn % 2 else 25)
        ]
        lake.spark.createDataFrame(source, "id INT, a INT, b STRING").createOrReplaceTempView("changes")
        on, test = pick.choice(ON)
        clauses = random_clauses(pick)
        text = f"MERGE INTO t USING changes AS s ON {on} {' '.join(c[3] for c in clauses)}"
        monkeypatch.setattr(target, "DRIVER_ROWS", -1 if turn % 2 else 1000)  # gathered on executors, or here
        try:
            expected, counted = modelled(rows, source, test, clauses)
        except Twice:
            with pytest.raises(InvalidRequest, match="matched by several source rows"):
                lake.sql(text)
            continue
        done = lake.sql(text).collect()[0]
        assert tuple(done) == (sum(counted), *counted), text
        rows = expected
        assert sorted(map(tuple, lake.sql("SELECT id, a, b FROM t").collect()), key=repr) == sorted(rows, key=repr), (
            text
        )


def test_keys_of_the_source_prune_the_target(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_source, "LEAST_BYTES", 0)
    lake.sql("CREATE TABLE t (id BIGINT, a STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    for start in (0, 100, 200):
        lake.sql(f"INSERT INTO t SELECT id, 'old' FROM range({start}, {start + 100})")
    broken = {e.file.file_name for e in lake.table("t")._core.state().entries() if e.file.min_sequence_number >= 0}
    touched = {f.entry.file.file_name for f in lake.table("t").scan(where="id >= 100 AND id < 200").plan().files}
    for name in broken - touched:
        (path,) = Path(lake.path).rglob(name)
        path.write_bytes(b"not to be opened")
    done = lake.sql(
        "MERGE INTO t USING (SELECT CAST(id AS INT) AS k, 'new' AS a FROM range(150, 153)) AS s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (id, a) VALUES (k, a)"
    ).collect()
    assert tuple(done[0]) == (3, 3, 0, 0)
    assert lake.sql("SELECT id FROM t WHERE a = 'new' AND id BETWEEN 100 AND 199 ORDER BY id").collect() == [
        (150,),
        (151,),
        (152,),
    ]


@pytest.mark.parametrize(
    ("then", "read"),
    [
        ("UPDATE SET *", [{"id"}]),
        exhaustive(
            "AND t.a > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET id = s.id, a = s.a + 1, b = upper(b2)", [{"id", "a"}]
        ),
        exhaustive("UPDATE SET id = s.id, a = s.id, b = concat(t.b, b2)", [{"id"}, {"id", "b"}]),
        ("UPDATE SET a = s.id", [{"id"}, {"id", "b"}]),
    ],
)
def test_no_other_column_of_the_target_is_read(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, then: str, read: list[set[str]]
) -> None:
    monkeypatch.setattr(key_pairs, "MOST_SOURCE_ROWS", -1)
    monkeypatch.setattr(merge_few, "MOST_ROWS", -1)
    lake.sql("CREATE TABLE t (id INT, a INT, b STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1, 1, 'p'), (2, 2, 'q'), (3, 3, 'r')")
    found: list[set[str]] = []
    frame = scan.SparkReader.frame

    def seen(reader: Any, asked: Any, *more: Any, **named: Any) -> Any:
        if asked.state.name.endswith("t"):
            found.append({c for c in asked.columns if not c.startswith("__")})
        return frame(reader, asked, *more, **named)

    monkeypatch.setattr(scan.SparkReader, "frame", seen)
    start = "WHEN MATCHED" if then.startswith("AND") else "WHEN MATCHED THEN"
    lake.sql(
        "MERGE INTO t USING (SELECT id, 10 AS a, 'x' AS b, 'y' AS b2 FROM VALUES (1), (2), (4) AS v (id)) AS s "
        f"ON t.id = s.id {start} {then} WHEN NOT MATCHED THEN INSERT *"
    )
    assert found == read
    monkeypatch.undo()
    rows = {
        "UPDATE SET *": [(1, 10, "x"), (2, 10, "x")],
        "UPDATE SET id = s.id, a = s.id, b = concat(t.b, b2)": [(1, 1, "py"), (2, 2, "qy")],
        "UPDATE SET a = s.id": [(1, 1, "p"), (2, 2, "q")],
    }.get(then, [(1, 11, "Y")])
    assert sorted(lake.sql("SELECT * FROM t").collect()) == [*rows, (3, 3, "r"), (4, 10, "x")]


def test_one_snapshot_and_nothing_for_nothing(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, n INT DEFAULT 7) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    lake.sql("CREATE TABLE u AS SELECT 2 AS id UNION ALL SELECT 3")
    text = "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (id)"
    assert tuple(lake.sql(text).collect()[0]) == (2, 0, 1, 1)
    snapshot = lake.table("t").snapshot
    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind, snapshot.operation) == (2, "OVERWRITE", "MERGE")
    assert sorted(lake.sql("SELECT * FROM t").collect()) == [(1, 1), (3, 7)]
    lake.sql("DELETE FROM u")
    assert tuple(lake.sql(text).collect()[0]) == (0, 0, 0, 0)
    assert lake.table("t")._core.state().snapshot_id == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        exhaustive("USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1", NotFound, "has no column 'nope'"),
        ("USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *", NotFound, "has no 'n'"),
        ("USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, ID) VALUES (1, 2)", InvalidRequest, "twice"),
        ("USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.n)", NotFound, "t"),
        exhaustive("USING s ON t.id = s.nope WHEN MATCHED THEN DELETE", NotFound, "nope"),
        exhaustive("USING missing ON t.id = missing.id WHEN MATCHED THEN DELETE", NotFound, "missing"),
        ("USING s ON t.id = s.id AND rand() < 1 WHEN MATCHED THEN DELETE", InvalidRequest, "rand"),
        ("USING (SELECT 1 AS id UNION ALL SELECT 1) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 1",)
        + (InvalidRequest, "several source rows"),
    ],
)
def test_mistakes_change_nothing(lake: bitlake.Lake, text: str, error: type[BitlakeError], message: str) -> None:
    lake.sql("CREATE TABLE t (id INT, n INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1, 1)")
    lake.sql("CREATE TABLE s AS SELECT 1 AS id")
    with pytest.raises(error, match=message):
        lake.sql(f"MERGE INTO t {text}")
    assert lake.table("t")._core.state().snapshot_id == 1


@pytest.mark.parametrize("name", [exhaustive("my-table"), "t$branch_dev"])
def test_the_builder_takes_names_as_the_lake_does(lake: bitlake.Lake, name: str) -> None:
    table = lake.create_table(name.partition("$")[0], pa.table({"id": [1], "n": [1]}))
    table.history.create_tag("one")
    table.history.create_branch("dev", "one")
    frame = lake.spark.createDataFrame([(1, 7), (2, 8)], ["id", "n"])
    for source in (frame, name):
        merge = lake.merge(f"default.{name}", source, "target.id = source.id -- the key")
        merge = merge.when_matched_update({"n": "source.n + 0 -- of the source"}, "source.n > 0 -- always")
        merge.when_not_matched_insert().execute()
    assert sorted(lake.table(name).to_arrow().to_pylist(), key=str) == [{"id": 1, "n": 7}, {"id": 2, "n": 8}]


def test_the_builder_refuses_what_is_not_sql(lake: bitlake.Lake) -> None:
    lake.create_table("t", pa.table({"id": [1], "n": [1]}))
    frame, condition = lake.spark.range(1), F.col("id") == 1
    with pytest.raises(InvalidRequest, match=r"ON must be Spark SQL text, .* not Column<"):
        lake.merge("t", frame, condition)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="a Spark DataFrame or a table's name, not Table; lake.spark.createDataF"):
        lake.merge("t", pa.table({"id": [1]}), "true")  # type: ignore[arg-type]
    merge = lake.merge("t", frame, "target.id = source.id")
    for work, message in (
        (lambda: merge.when_matched_delete(condition), "a condition must be Spark SQL text"),
        (lambda: merge.when_matched_delete(""), "a condition must be Spark SQL text"),
        (lambda: merge.when_matched_update({"n": None}), "the value of column 'n' must be Spark SQL text"),
        (lambda: merge.when_matched_update("n = 1"), "set must be a dict"),
        (lambda: merge.when_not_matched_insert({}), "'values' needs a column"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            work()


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [exhaustive(""), "'primary-key' = 'id', 'bucket' = '1', "])
def test_explicit_clauses_bring_the_columns_that_they_name(lake: bitlake.Lake, options: str) -> None:
    lake.sql(
        f"CREATE TABLE evolved (id INT, name STRING, info STRUCT<x: INT, y: INT, z: INT>) "
        f"TBLPROPERTIES ({options}'write.merge-schema' = 'true')"
    )
    try:
        lake.sql("INSERT INTO evolved VALUES (1, 'a', struct(1, 2, 3)), (2, 'b', struct(4, 5, 6))")
        source = (
            "SELECT 1 AS id, 'A' AS name, named_struct('y', 20, 'x', 10) AS info, 99 AS score, 7 AS unnamed "
            "UNION ALL SELECT 3, 'C', named_struct('y', 80, 'x', 70), 98, 7"
        )
        lake.sql(
            f"MERGE INTO evolved t USING ({source}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t.name = s.name, info = s.info, score = s.score "
            "WHEN NOT MATCHED THEN INSERT (id, name, info) VALUES (s.id, s.name, s.info) "
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'left'"
        )
        found = lake.sql("SELECT * FROM evolved ORDER BY id")
        assert found.columns == ["id", "name", "info", "score"], "and not the source's others"
        assert [tuple(r) for r in found.collect()] == [
            (1, "A", (10, 20, None), 99),
            (2, "left", (4, 5, 6), None),
            (3, "C", (70, 80, None), None),
        ]
        lake.sql(
            f"MERGE INTO evolved t USING ({source}) s ON t.id = s.id + 10 "
            "WHEN NOT MATCHED AND s.id = 3 THEN INSERT (id, UNNAMED) VALUES (s.id + 10, s.unnamed + 1)"
        )
        assert lake.sql("SELECT id, unnamed FROM evolved WHERE unnamed IS NOT NULL").collect() == [(13, 8)]
        with pytest.raises(NotFound, match="no column 'other'"):
            lake.sql(f"MERGE INTO evolved t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET other = 1")
        with pytest.raises(NotFound, match="no column 't.other'"):
            lake.sql(
                "MERGE INTO evolved t USING (SELECT 1 AS id, 2 AS other) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET t.other = 1"
            )
        lake.sql("ALTER TABLE evolved UNSET TBLPROPERTIES ('write.merge-schema')")
        with pytest.raises(NotFound, match="no column 'other'"):
            lake.sql(
                "MERGE INTO evolved t USING (SELECT 1 AS id, 2 AS other) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET other = s.other"
            )
    finally:
        lake.sql("DROP TABLE evolved")


@pytest.mark.parametrize(
    "clause",
    [
        "WHEN MATCHED THEN UPDATE SET v = s.typo",
        exhaustive("WHEN MATCHED THEN UPDATE SET v = t.typo + s.id"),
        exhaustive(
            "WHEN MATCHED AND s.v = 0 THEN UPDATE SET id = s.typo, v = s.v "
            "WHEN MATCHED THEN UPDATE SET id = s.id, v = s.v"
        ),
        exhaustive("WHEN MATCHED AND s.v = 0 THEN UPDATE SET id = s.typo, v = s.v WHEN NOT MATCHED THEN INSERT *"),
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = t.typo",
    ],
)
@pytest.mark.parametrize("rows", [0, 1])
def test_an_unknown_column_is_refused_where_no_row_is_changed(lake: bitlake.Lake, clause: str, rows: int) -> None:
    lake.sql("CREATE TABLE t (id INT, v INT)")
    lake.sql("CREATE TABLE s (id INT, v INT)")
    for name in ("t", "s") if rows else ():
        lake.sql(f"INSERT INTO {name} VALUES (1, 1)")
    before = lake.table("t").snapshot
    with pytest.raises(NotFound, match=r"no column '[st]\.typo'"):
        lake.sql(f"MERGE INTO t USING s ON t.id = s.id {clause}")
    assert lake.table("t").snapshot == before
    if not rows:
        fine = clause.replace("s.typo", "s.v").replace("t.typo", "t.v")
        assert lake.sql(f"MERGE INTO t USING s ON t.id = s.id {fine}").collect()[0][0] == 0


# --- the same without Spark -------------------------------------------------------------------------------------------

KEYED = {
    "keyed": {"primary-key": "id", "bucket": "1"},
    "keyed with vectors": {"primary-key": "id", "bucket": "2", "deletion-vectors.enabled": "true"},
}


def outcome(lake: bitlake.Lake, text: str, engine: str) -> tuple[Any, ...]:
    """The counts of a MERGE into ``<engine>_t``, or its error; and the rows after it."""
    name, done = f"{engine}_t", None
    try:
        made = lake.sql(text.format(name), engine=engine)
        done = tuple(made.collect()[0]) if engine == "spark" else tuple(made.to_pylist()[0].values())
    except BitlakeError as e:
        done = (type(e), str(e).replace(name, "t"))
    rows = lake.table(name).to_arrow().to_pylist()
    return done, sorted(map(str, rows)), str(lake.table(name).schema)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("turns", "name"),
    few(itertools.product([2, 12], [*OPTIONS, *KEYED]), (2, "vectors"), (2, "keyed with vectors")),
)
def test_both_engines_merge_alike(lake: bitlake.Lake, name: str, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dml, "LEAST_BYTES", 0)
    monkeypatch.setattr(dml, "MOST_KEYS", 10)
    pick = random.Random(f"both {name}")
    options, key = {**OPTIONS, **KEYED}[name], name in KEYED
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    for engine in ("spark", "duckdb"):
        lake.sql(
            f"CREATE TABLE {engine}_t (id INT, a INT, b STRING)" + (f" TBLPROPERTIES ({listed})" if listed else "")
        )
    for start in (0, 30):
        new = [
            (start + i if key else pick.choice([None, start + i]), pick.choice([None, 1, 5, 9]), pick.choice("xyz"))
            for i in range(30)
        ]
        for engine in ("spark", "duckdb"):
            if start or key:
                append_halves(lake, f"{engine}_t", new)
            else:
                lake.write(lake.spark.createDataFrame(new, "id INT, a INT, b STRING"), f"{engine}_t")
    for turn in range(turns):
        source = [
            (i if key else pick.choice([None, i]), pick.choice([None, *range(10)]), pick.choice([None, "x", "y"]))
            for i in pick.sample(range(80), 8 if turn % 2 else 25)
        ]
        text = ", ".join(
            str(tuple("NULL" if v is None else v for v in row)).replace("'NULL'", "NULL") for row in source
        )
        on = pick.choice(ON)[0]
        clauses = " ".join(c[3] for c in random_clauses(pick))
        statement = f"MERGE INTO {{}} AS t USING (VALUES {text}) AS s (id, a, b) ON {on} {clauses}"
        assert outcome(lake, statement, "duckdb") == outcome(lake, statement, "spark"), statement


FAILS = "WHEN MATCHED THEN UPDATE SET n = 1 / s.zero"
ALIKE = [
    "WHEN MATCHED THEN UPDATE SET n = s.n",
    "WHEN MATCHED THEN UPDATE SET n = s.n * 1000000000",
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "WHEN MATCHED THEN UPDATE SET v = concat(s.v, s.v), info = s.info",
    "WHEN MATCHED THEN UPDATE SET id = NULL",
    "WHEN MATCHED THEN UPDATE SET n = NULL, d = s.d WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    "WHEN NOT MATCHED THEN INSERT (id, n, d) VALUES (s.id, DEFAULT, s.d)",
    "WHEN NOT MATCHED THEN INSERT (n) VALUES (s.n)",
    "WHEN NOT MATCHED THEN INSERT (id, info, c) VALUES (s.id, s.info, s.v)",
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN MATCHED AND t.c = 'q' THEN UPDATE SET n = 1 WHEN NOT MATCHED BY SOURCE THEN UPDATE SET at = NULL",
    "WHEN MATCHED AND t.typo = 1 THEN DELETE",
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.n)",
    "WHEN MATCHED THEN UPDATE SET n = 1, n = 2",
    "WHEN MATCHED THEN UPDATE SET typo = 1",
    FAILS,
    "WHEN MATCHED AND s.zero <> 0 THEN UPDATE SET n = 7 % s.zero WHEN MATCHED THEN UPDATE SET n = s.zero",
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "step"),
    [
        ("", 2),
        ("'primary-key' = 'id', 'bucket' = '1'", 3),
        long("", 1),
        long("'deletion-vectors.enabled' = 'true'", 1),
        long("'primary-key' = 'id', 'bucket' = '1'", 1),
    ],
)
def test_values_are_stored_alike(lake: bitlake.Lake, options: str, step: int) -> None:
    """``step``: of the clauses, every how many-th is executed."""
    lake.sql(
        "CREATE TABLE s (id BIGINT, n BIGINT, v STRING, info STRUCT<x: INT, y: STRING>, d DECIMAL(5, 1), zero INT)"
    )
    lake.sql("INSERT INTO s SELECT id, id * 2, 'ab', struct(1, 'b'), 1.5, 0 FROM VALUES (1), (2), (4) AS v (id)")
    for engine in ("spark", "duckdb"):
        lake.sql(
            f"CREATE TABLE {engine}_t (id INT NOT NULL, n INT DEFAULT 7, v VARCHAR(3), c CHAR(4), "
            "info STRUCT<x: INT, y: STRING>, d DECIMAL(9, 2), at TIMESTAMP)"
            + (f" TBLPROPERTIES ({options})" if options else "")
        )
        lake.sql(
            f"INSERT INTO {engine}_t SELECT id, id, 'v', 'q', struct(id, 'old'), 2.25, TIMESTAMP '2020-01-01 00:00:00' "
            "FROM VALUES (1), (2), (3) AS v (id)"
        )
    left = []
    for clauses in ALIKE[15 % step :: step]:  # with the one that fails
        statement = f"MERGE INTO {{}} AS t USING s ON t.id = s.id {clauses}"
        snapshot = lake.table("duckdb_t").snapshot
        here = outcome(lake, statement, "duckdb")
        if isinstance(here[0][0], type) and issubclass(here[0][0], UnsupportedFeature):
            left.append(clauses)
            assert lake.table("duckdb_t").snapshot == snapshot
            continue
        there = outcome(lake, statement, "spark")
        if isinstance(here[0][0], type) and isinstance(there[0][0], type):
            here, there = (here[0][0], *here[1:]), (there[0][0], *there[1:])
        assert here == there, clauses
    assert left == [FAILS], "an error of a value is Spark's to raise"
