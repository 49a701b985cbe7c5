"""Queries in this process: what metadata and indexes answer, moments of tables, and columns of one name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.cli.result import Result
from bitlake.errors import BitlakeError, UnsupportedFeature


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    """A table of two files, of which the second has the smaller numbers."""
    lake = bitlake.connect(tmp_path / "lake")
    rows = pa.table({"id": range(100), "kind": [f"k{i % 3}" for i in range(100)]})
    options = {"file-index.bitmap.columns": "kind", "file-index.range-bitmap.columns": "id"}
    table = lake.create_table("t", rows.slice(50), options=options)
    table.append(rows.slice(0, 50))
    return lake


def fetched(lake: bitlake.Lake, text: str) -> list[tuple[object, ...]]:
    """The rows of a query, which are the same for the command line and as a relation."""
    table = Result.of(lake, text, 0, "duckdb").rows
    rows = [tuple(row.values()) for row in table.rename_columns(list(map(str, range(table.num_columns)))).to_pylist()]
    assert lake.sql(text, engine="duckdb").fetchall() == rows
    return rows


def without_data(lake: bitlake.Lake, rows: str) -> None:
    """Delete the data files of the table that hold these rows."""
    for path in lake.table("t").scan(where=rows).dataset().files:
        Path(path).unlink()


def test_first_rows_open_the_files_that_have_them(lake: bitlake.Lake) -> None:
    without_data(lake, "id < 50")
    assert fetched(lake, "SELECT id, kind FROM t ORDER BY id DESC LIMIT 2 OFFSET 1") == [(98, "k2"), (97, "k1")]
    assert fetched(lake, "SELECT id + 1 AS n FROM t WHERE kind = 'k0' ORDER BY id DESC LIMIT 1") == [(100,)]
    (plan,) = lake.sql("EXPLAIN SELECT id FROM t ORDER BY id DESC LIMIT 2", engine="duckdb")["plan"].to_pylist()
    assert "order by   id DESC" in plan and "files      1 of 2 read" in plan and "rows       2 of 100" in plan
    with pytest.raises(BitlakeError, match="is missing"):
        fetched(lake, "SELECT id FROM t ORDER BY id LIMIT 1")


def test_what_an_answer_does_not_suffice_for_reads_data(lake: bitlake.Lake) -> None:
    assert fetched(lake, "SELECT kind, sum(id) FROM t GROUP BY kind ORDER BY 1") == [
        ("k0", 1683),
        ("k1", 1617),
        ("k2", 1650),
    ]
    assert fetched(lake, "SELECT count(*) FROM t WHERE id % 2 = 0") == [(50,)]
    without_data(lake, "true")
    assert fetched(lake, "SELECT kind, count(*) FROM t WHERE id >= 98 GROUP BY kind ORDER BY kind") == [
        ("k0", 1),
        ("k2", 1),
    ]


def test_indexes_of_expressions_answer_counts(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    options = {
        "bitlake.index.a": "bitmap(lower(s))",
        "bitlake.index.b": "bitmap(get_json_object(p, '$.a'))",
        "file-index.bitmap.columns": "kind",
    }
    rows = {
        "s": ["Ada", "BOB", None],
        "p": ['{"a": 1}', "x", '{"a": "1"}'],
        "kind": ["k", "k", "l"],
    }
    table = lake.create_table("t", pa.table(rows), options=options)
    table.append(pa.table({**rows, "s": ["bob", "Eve", "eve"]}))
    asked = {
        "SELECT count(*) FROM t WHERE lower(s) = 'bob'": [(2,)],
        "SELECT count(*) AS n FROM t WHERE lower(s) <> 'eve' AND kind = 'k'": [(3,)],
        "SELECT count(*) FROM t WHERE NOT lower(s) IN ('bob', 'ada')": [(2,)],
        "SELECT count(*) FROM t WHERE get_json_object(p, '$.a') = '1'": [(4,)],
        "SELECT kind, count(*) FROM t WHERE lower(s) >= 'bob' GROUP BY kind ORDER BY kind": [("k", 3), ("l", 1)],
        "SELECT EXISTS(SELECT 1 FROM t WHERE lower(s) = 'zoe')": [(False,)],
    }
    for text, answer in asked.items():
        (plan,) = lake.sql(f"EXPLAIN {text}", engine="duckdb")["plan"].to_pylist()
        assert "no data file is opened" in plan and fetched(lake, text) == answer, text
    # Without an exact index, an engine computes.
    for text in (
        "SELECT count(*) FROM t WHERE upper(s) = 'BOB'",
        "SELECT count(*) FROM t WHERE lower(s) = 'bob' OR upper(s) = 'EVE'",
        "SELECT s FROM t WHERE lower(s) = 'bob' LIMIT 1",
    ):
        (plan,) = lake.sql(f"EXPLAIN {text}", engine="duckdb")["plan"].to_pylist()
        assert "no data file is opened" not in plan, text
    without_data(lake, "true")
    for text, answer in asked.items():
        assert fetched(lake, text) == answer, text


def test_answers_have_the_types_of_queries(tmp_path: Path) -> None:
    """Of Arrow's, those that DuckDB has for Spark's, by either way."""
    lake = bitlake.connect(tmp_path)
    at = dt.datetime(2026, 1, 1, 12)
    rows = pa.table(
        {
            "z": pa.array([at, None], pa.timestamp("us", "UTC")),
            "n": pa.array([at, None], pa.timestamp("ms")),
            "d": pa.array([at.date(), None]),
        }
    )
    lake.create_table("t", rows)
    lake.sql("SET spark.sql.session.timeZone = Europe/Berlin", engine="duckdb")
    answered = Result.of(lake, "SELECT max(z) z, max(n) n, max(d) d FROM t", 0, "duckdb").rows
    read = Result.of(lake, "SELECT z, n, d FROM t WHERE length(cast(d AS STRING)) > 0", 0, "duckdb").rows
    assert answered == read and answered.schema.field("z").type == pa.timestamp("us", "Europe/Berlin")
    assert lake.sql("SELECT max(z) FROM t", engine="duckdb").fetchall()[0][0].hour == 13


def test_moments_of_tables(lake: bitlake.Lake) -> None:
    lake.table("t").history.create_tag("first", 1)
    for moment in ("VERSION AS OF 1", "FOR VERSION AS OF 'first'", "FOR SYSTEM_VERSION AS OF 1"):
        assert fetched(lake, f"SELECT count(*), min(t.id) FROM t {moment}") == [(50, 50)]
        assert fetched(lake, f"SELECT sum(id) FROM t {moment} WHERE id < 52") == [(101,)]
    later = "TIMESTAMP AS OF TIMESTAMP '2999-01-01' - INTERVAL 1 DAY"
    assert fetched(lake, f"SELECT count(*) FROM t {later} AS x") == [(100,)]
    since = "SELECT count(*) FROM t now LEFT ANTI JOIN t VERSION AS OF 1 old ON now.id = old.id"
    assert fetched(lake, since) == [(50,)]
    joined = "SELECT count(now.kind) FROM t now JOIN t VERSION AS OF 1 AS old ON now.id = old.id AND old.kind > 'k0'"
    assert fetched(lake, joined) == [(33,)]
    assert fetched(lake, "SELECT count(id) FROM paimon_incremental_query('t', 1, 2)") == [(50,)]
    with pytest.raises(BitlakeError, match="snapshot 9"):
        lake.sql("SELECT * FROM t VERSION AS OF 9", engine="duckdb")
    with pytest.raises(UnsupportedFeature, match="rand"):
        lake.sql("SELECT * FROM t TIMESTAMP AS OF rand()", engine="duckdb")


def test_columns_of_one_name(lake: bitlake.Lake) -> None:
    """Results have Spark's names; relations of DuckDB's need names of their own; rows are stored by position."""
    text = "SELECT * FROM t a JOIN t b ON a.id = b.id WHERE a.id = 3"
    assert Result.of(lake, text, 0, "duckdb").rows.schema.names == ["id", "kind", "id", "kind"]
    assert lake.sql(text, engine="duckdb").columns == ["id", "kind", "id_1", "kind_1"]
    assert fetched(lake, text) == [(3, "k0", 3, "k0")]
    assert fetched(lake, "SELECT count(*) n, count(*) N FROM t") == [(100, 100)]
    lake.sql("INSERT INTO t SELECT id + 1000 AS kind, kind FROM t WHERE id = 3", engine="duckdb")
    assert fetched(lake, "SELECT * FROM t WHERE id > 1000") == [(1003, "k0")]
    for insert in ("INSERT INTO t BY NAME", "CREATE TABLE u AS"):
        with pytest.raises(UnsupportedFeature, match="columns of one name"):
            lake.sql(f"{insert} SELECT id AS kind, kind FROM t", engine="duckdb")


@pytest.mark.parametrize(
    ("zone", "hour", "minute"),
    [("GMT+8", 8, 0), ("+05:30", 5, 30), ("UTC-3", 21, 0), ("-03:30", 20, 30), ("+0", 0, 0), ("UTC+0530", 5, 30)]
    + [("UT", 0, 0), ("PST", 16, 0), ("IST", 5, 30)],
)
def test_offsets_are_time_zones_of_queries(zone: str, hour: int, minute: int, tmp_path: Path) -> None:
    """Hours as Spark computes them: by the offset."""
    lake = bitlake.connect(tmp_path)
    lake.create_table("t", pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}))
    lake.sql(f"SET spark.sql.session.timeZone = {zone}", engine="duckdb")
    day = 31 if hour > 12 else 1
    where = f"at = TIMESTAMP '{'1969-12' if day == 31 else '1970-01'}-{day:02} {hour:02}:{minute:02}:00'"
    answer = lake.sql(f"SELECT hour(at), minute(at) FROM t WHERE {where}", engine="duckdb").fetchall()
    assert answer == [(hour, minute)]
    values = lake.sql("SELECT at FROM t", engine="duckdb")
    if minute:  # Python knows no zone by DuckDB's name of such an offset
        assert values.to_arrow_table()["at"].cast(pa.int64()).to_pylist() == [0]
    else:
        assert [at.timestamp() for (at,) in values.fetchall()] == [0]


@pytest.mark.parametrize(
    ("zone", "text"), [("+05:30", "05:30:00"), ("-03:30", "20:30:00"), ("Asia/Kolkata", "05:30:00")]
)
def test_timestamps_in_offsets_are_shown(zone: str, text: str, tmp_path: Path) -> None:
    """Bug: the command ended with an error about an unknown zone GMT+05:30."""
    lake = bitlake.connect(tmp_path, timezone=zone)
    kind = pa.timestamp("us", "UTC")
    types = [("id", pa.int32()), ("at", kind), ("l", pa.list_(kind)), ("s", pa.struct([("at", kind)]))]
    row = {"id": 1, "at": 0, "l": [0, None], "s": {"at": 0}}
    lake.create_table("t", pa.Table.from_pylist([row], schema=pa.schema(types)))
    result = Result.of(lake, "SELECT at, l, s FROM t WHERE id < 2", 0, "duckdb")
    (shown,) = result.rows.to_pylist()
    assert [str(v.time()) for v in (shown["at"], shown["l"][0], shown["s"]["at"])] == [text] * 3
    assert shown["at"].timestamp() == 0 and shown["l"][1] is None


@pytest.mark.parametrize(("zone", "hour"), [("GMT+8", 8), ("PST", 17), ("America/New_York", 20)])
def test_clocks_of_a_zone_in_partitions_and_changed_columns(zone: str, hour: int, tmp_path: Path) -> None:
    """By Java's names of zones, and by summer time after 2037, which Arrow does not know."""
    lake = bitlake.connect(tmp_path, timezone=zone)
    july = dt.datetime(2050, 7, 2, tzinfo=dt.UTC)
    lake.create_table("t", pa.table({"at": pa.array([july], pa.timestamp("us", "UTC")), "k": [1]}), partition_by=["at"])
    day = 2 if hour == 8 else 1
    shown = lake.sql("SHOW PARTITIONS t", engine="duckdb")["partition"].to_pylist()
    assert shown == [f"at=2050-07-0{day} {hour:02}%3A00%3A00"]
    changed = lake.create_table("u", pa.table({"at": pa.array([july, None], pa.timestamp("us", "UTC"))}))
    changed.alter_column("at", type=pa.timestamp("us"))
    assert changed.scan().to_arrow()["at"].to_pylist() == [dt.datetime(2050, 7, day, hour), None]


def test_decimals_keep_all_38_digits(tmp_path: Path) -> None:
    """Python rounds the minus and the absolute value of a Decimal to 28 digits."""
    lake = bitlake.connect(tmp_path)
    value = Decimal("-1234567890123456789012345678.1234567891")
    lake.create_table("t", pa.table({"d": pa.array([value], pa.decimal128(38, 10))}))
    for wanted, args in ((str(value), None), ("-:d", {"d": value.copy_abs()}), (":d", {"d": value})):
        assert lake.sql(f"SELECT {wanted} AS d", args, engine="duckdb").fetchall() == [(value,)]
        assert lake.sql(f"SELECT d FROM t WHERE d = {wanted}", args, engine="duckdb").fetchall() == [(value,)]
    for whole in (Decimal("-9"), Decimal("10"), Decimal("-" + "9" * 38)):
        assert lake.sql("SELECT :d AS d", {"d": whole}, engine="duckdb").fetchall() == [(whole,)]


def test_duckdb_has_no_offsets_with_seconds(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    lake.sql("SET spark.sql.session.timeZone = +02:00:30", engine="duckdb")
    with pytest.raises(UnsupportedFeature, match="DuckDB has no time zones with seconds; use engine='spark'"):
        lake.sql("SELECT 1 AS one", engine="duckdb")


@pytest.mark.parametrize(
    ("literal", "rows"),
    [
        ("TIMESTAMP '9999-12-31 23:59:59'", [1, 2]),
        ("TIMESTAMP '9999-12-31 23:59:59-18:00'", [1, 2, 3]),
        ("TIMESTAMP '0001-01-01 00:00:00+01:02:03'", []),
    ],
)
def test_instants_outside_of_the_years_of_utc(tmp_path: Path, literal: str, rows: list[int]) -> None:
    """As on Spark.  They were refused in zones west of Greenwich, or raised an OverflowError."""
    lake = bitlake.connect(tmp_path, timezone="America/Los_Angeles")
    lake.create_table("t", pa.table({"id": pa.array([], pa.int64()), "at": pa.array([], pa.timestamp("us", "UTC"))}))
    values = "(1L, TIMESTAMP '2024-01-01 00:00:00'), (2L, TIMESTAMP '0001-01-01 00:00:00')"
    lake.sql(f"INSERT INTO t VALUES {values}, (3L, TIMESTAMP '9999-12-31 23:59:59')", engine="duckdb")
    written = lake.table("t").to_arrow(where="id > 1").sort_by("id").column("at").cast(pa.int64()).to_pylist()
    assert written == [-62135568422_000_000, 253402329599_000_000]
    lake.sql("UPDATE t SET at = at WHERE at < TIMESTAMP '0001-01-01 00:00:00+18:00'", engine="duckdb")
    condition = f"at < {literal}"
    assert sorted(lake.table("t").to_arrow(where=condition).column("id").to_pylist()) == rows
    assert fetched(lake, f"SELECT id FROM t WHERE {condition} ORDER BY id") == [(n,) for n in rows]
    ends = [dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.timezone(dt.timedelta(hours=hours))) for hours in (-8, -18)]
    counted = [lake.sql("SELECT count(*) FROM t WHERE at < :end", engine="duckdb", args={"end": e}) for e in ends]
    assert [c.fetchall() for c in counted] == [[(2,)], [(3,)]]


_RANGES = [f"id BETWEEN {5 * i} AND {5 * i + i % 3}" for i in range(2000)]
_IN_RANGES = [i for i in range(100) if i % 5 <= i // 5 % 3]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (" OR ".join(_RANGES), _IN_RANGES),
        (" AND ".join(f"NOT {r}" for r in _RANGES[:350]), sorted({*range(100)} - {*_IN_RANGES})),
        (" OR ".join(f"(id = {3 * i} AND kind = 'k{i % 2}')" for i in range(400)), range(0, 100, 6)),
    ],
    ids=["ranges", "no ranges", "pairs"],
)
def test_conditions_of_many_terms(lake: bitlake.Lake, condition: str, ids: Sequence[int]) -> None:
    """The terms of a chain do not nest: as recursion they would exceed Python's limit."""
    assert fetched(lake, f"SELECT id FROM t WHERE {condition} ORDER BY id") == [(i,) for i in ids]


def test_names_of_chains(lake: bitlake.Lake) -> None:
    chain = lake.sql("SELECT id = 1 OR id = 2 OR id = 3, id > 1 AND (id < 9 AND id < 8) FROM t", engine="duckdb")
    assert chain.columns == ["(((id = 1) OR (id = 2)) OR (id = 3))", "((id > 1) AND ((id < 9) AND (id < 8)))"]


def test_casts_of_typed_literals(lake: bitlake.Lake) -> None:
    """The literal is cast: sqlglot alone reads DATE ('2024-3-1'::STRING)."""
    text = "SELECT DATE '2024-3-1'::STRING AS d, TIMESTAMP_NTZ '2024-03-01 09:00:00'::DATE AS t FROM t LIMIT 1"
    assert fetched(lake, text) == [("2024-03-01", dt.date(2024, 3, 1))]


FOREIGN = [
    ("SELECT id, FROM t", 10, "nothing follows this comma"),
    ("SELECT INT '1' FROM t", 8, "a literal has no such type"),
    ("SELECT id FROM t, ORDER BY id", 17, "nothing follows this comma"),
    ("SELECT id FROM t WHERE id IN (1, 2,)", 35, "nothing follows this comma"),
    ("SELECT count(id,) FROM t", 16, "nothing follows this comma"),
    ("SELECT coalesce(, id) FROM t", 17, "nothing precedes this comma"),
    ("FROM t WHERE id = 1", 8, "has WHERE after its SELECT"),
    ("SELECT id FROM t LIMIT 10%", 18, "not a percentage"),
    ("SELECT id FROM t LIMIT 50 PERCENT", 18, "not a percentage"),
    ("SELECT id FROM t LIMIT 1, 2", 18, "LIMIT … OFFSET"),
    ("SELECT id FROM t OFFSET 1 LIMIT 1", 27, "write LIMIT before OFFSET"),
    ("SELECT id FROM t OFFSET 1 ROWS", 18, "OFFSET takes a number"),
    ("SELECT id FROM t ORDER BY id UNION ALL SELECT id FROM t", 30, "needs brackets before UNION"),
    ("SELECT id FROM t LIMIT 1 UNION ALL SELECT id FROM t", 26, "needs brackets before UNION"),
    ("SELECT kind ~~ 'a' FROM t", 13, "write LIKE"),
    ("SELECT id AS 'k' FROM t", 11, "an alias is a name"),
    ("SELECT id FROM t WHERE id ISNULL", 27, "write IS NULL"),
    ("SELECT id FROM t WHERE id NOTNULL", 27, "write IS NOT NULL"),
    ("SELECT id FROM t WHERE id IN ()", 27, "at least one value"),
    ("SELECT id FROM t WHERE id IN [1, 2]", 27, "at least one value"),
    ("SELECT sum(id) FILTER (id > 1) FROM t", 16, "FILTER takes"),
    ("SELECT t.id FROM t OUTER JOIN t u ON t.id = u.id", 20, "LEFT, RIGHT or FULL"),
    ("SELECT id FROM t INNER JOIN t u USING id", 33, "names in brackets"),
    ("SELECT kind FROM t GROUP BY DISTINCT kind", 20, "does not take DISTINCT"),
    ("WITH a AS NOT MATERIALIZED (SELECT 1 AS n) SELECT * FROM a", 15, "MATERIALIZED"),
    ("SELECT iif(id = 1, 2, 3) FROM t", 11, "no function 'iif'"),
    ("SELECT convert(id, INT) FROM t", 15, "no function 'convert'"),
    ("SELECT starts_with(kind, 'k') FROM t", 19, "no function 'starts_with'"),
    ("SELECT IF id = 1 THEN 2 ELSE 3 END FROM t", 8, "IF is a function"),
    ("SELECT date_trunc(MONTH, DATE '2024-01-05') AS k FROM t", 18, "takes its unit as a string"),
    *(
        (f"SELECT CAST(id AS {kind}) FROM t", 16, reason)
        for kind, reason in (
            *(("TEXT", "no type 'TEXT'"), ("INT64", "no type 'INT64'"), ("INT4", "no type"), ("FLOAT8", "no type")),
            *(("DOUBLE PRECISION", "no type 'DOUBLE PRECISION'"), ("BOOL", "no type"), ("VARCHAR", "needs a length")),
        )
    ),
    ("SELECT id::text FROM t", 10, "no type 'text'"),
]
"""Queries that sqlglot reads and Spark 4 refuses, with the column at which each is refused here."""


@pytest.mark.parametrize(("text", "column", "reason"), FOREIGN)
def test_forms_of_other_dialects_are_refused_with_their_place(
    lake: bitlake.Lake, text: str, column: int, reason: str
) -> None:
    with pytest.raises(UnsupportedFeature, match=f"cannot parse the query.*{reason}.*: line 1, column {column}\n"):
        lake.sql(text, engine="duckdb")


@pytest.mark.parametrize("text", ["SELECT kind:a FROM t", "WITH a AS (SELECT 1 AS n), A AS (SELECT 2 AS n) FROM a"])
def test_what_spark_alone_refuses_is_left_to_it(lake: bitlake.Lake, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match="use engine='spark'"):
        lake.sql(text, engine="duckdb")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id::string FROM t WHERE isnull(kind) OR id = 7", [("7",)]),
        ("FROM t |> WHERE id = 7 |> SELECT id", [(7,)]),
        ("(SELECT id FROM t ORDER BY id LIMIT 1) UNION ALL SELECT id FROM t WHERE id = 7 ORDER BY id", [(0,), (7,)]),
        ("SELECT id FROM (SELECT id FROM t ORDER BY id LIMIT 3) ORDER BY id LIMIT 2 OFFSET 1", [(1,), (2,)]),
        ("SELECT CAST(CAST(id AS LONG) AS DEC(5)) FROM t WHERE id = 7", [(Decimal(7),)]),
        ("SELECT count(*) FILTER (WHERE id < 5) FROM t", [(5,)]),
        ("SELECT t.id FROM t FULL OUTER JOIN t u USING (id) WHERE t.id IN (7)", [(7,)]),
        ("WITH a AS (SELECT id FROM t), b AS (SELECT id FROM a) SELECT max(id) FROM b", [(99,)]),
        (
            "SELECT limit FROM (SELECT id AS limit, 1 AS offset FROM t) WHERE 0 < offset ORDER BY limit LIMIT 1",
            [(0,)],
        ),
        ("SELECT offset FROM (SELECT id AS offset FROM t) ORDER BY offset LIMIT 2", [(0,), (1,)]),
        ("SELECT offset FROM (SELECT id AS offset FROM t WHERE id = 7) UNION ALL SELECT 8", [(7,), (8,)]),
        ("SELECT x.if FROM (SELECT id AS if FROM t WHERE id = 7) x", [(7,)]),
    ],
)
def test_forms_that_spark_has_run(lake: bitlake.Lake, text: str, rows: list[tuple[object, ...]]) -> None:
    assert fetched(lake, text) == rows
