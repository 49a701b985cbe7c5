"""ORDER BY of an expression over one row, by an index that ranks its values, against sorting everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import few

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.scan.plan import SkipReason

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("grp", pa.string()),
        ("addr", pa.struct([("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
INDEXES = {
    "bitlake.index.by_length": "range-bitmap(length(s))",
    "bitlake.index.by_lower": "range-bitmap(lower(s))",
    "bitlake.index.by_product": "range-bitmap(n * -3)",
    "bitlake.index.by_city": "range-bitmap(addr.city)",
    "file-index.bitmap.columns": "grp",
}
Row = dict[str, Any]
VALUES: dict[str, Callable[[Row], Any]] = {
    "length(s)": lambda r: None if r["s"] is None else len(r["s"]),
    "lower(s)": lambda r: None if r["s"] is None else r["s"].lower().encode(),
    "n * -3": lambda r: None if r["n"] is None else r["n"] * -3,
    "addr.city": lambda r: None if r["addr"] is None or r["addr"]["city"] is None else r["addr"]["city"].encode(),
    "n": lambda r: r["n"],
}
CONDITIONS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda r: True,
    "grp = 'x'": lambda r: r["grp"] == "x",
    "n % 5 = 0": lambda r: r["n"] is not None and r["n"] % 5 == 0,
}


def rows(rng: random.Random, first: int, count: int, low: int = 0) -> list[Row]:
    words = ["Alpha", "BETA", "gämma", "Ωmega", "", "zz"]
    return [
        {
            "id": first + i,
            "s": None if rng.random() < 0.1 else "".join(rng.choices(words, k=low + rng.randint(0, 6))),
            "n": None if rng.random() < 0.1 else rng.randint(-50, 50),
            "grp": rng.choice(["x", "y", None]),
            "addr": rng.choice([None, {"city": None}, {"city": rng.choice(words)}]),
            "tags": [],
        }
        for i in range(count)
    ]


def first_rows(held: list[Row], order: list[tuple[str, str, str]], n: int) -> list[tuple[Any, ...]]:
    """The values of the order in the first rows, by sorting all of them."""
    for key, direction, nulls in reversed(order):
        value = VALUES[key]
        known = [r for r in held if value(r) is not None]
        missing = [r for r in held if value(r) is None]
        known.sort(key=value, reverse=direction == "desc")
        held = missing + known if nulls == "first" else known + missing
    return [tuple(VALUES[key](r) for key, _, _ in order) for r in held[:n]]


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path))


# With and without indexes, and with and without a primary key.
@pytest.mark.parametrize("seed", few(range(12), 0, 1, 2, 8))
def test_the_first_rows_are_those_of_sorting_everything(lake: bitlake.Lake, seed: int) -> None:
    rng = random.Random(seed)
    keyed = seed % 3 == 2
    options = INDEXES if seed % 4 else {}
    table = lake.create_table("t", SCHEMA, options=options, primary_key=["id"] if keyed else [])
    held: dict[int, Row] = {}
    for file in range(4):
        new = rows(rng, 100 * file, rng.randint(1, 90))
        (table.upsert if keyed else table.append)(pa.Table.from_pylist(new, SCHEMA))
        held |= {r["id"]: r for r in new}
    table.delete("id % 7 = 3")
    held = {i: r for i, r in held.items() if i % 7 != 3}
    for _ in range(12):
        keys = rng.sample(list(VALUES), k=rng.randint(1, 2))
        order = [(key, rng.choice(("asc", "desc")), rng.choice(("first", "last"))) for key in keys]
        n, condition = rng.choice((0, 1, 3, 20, 500)), rng.choice(list(CONDITIONS))
        scan = table.scan(where=condition).top_n(order, n)
        found = [held[i] for i in scan.select(["id"]).to_arrow()["id"].to_pylist()]
        wanted = first_rows([r for r in held.values() if CONDITIONS[condition](r)], order, n)
        assert [tuple(VALUES[key](r) for key in keys) for r in found] == wanted, (order, n, condition)
        assert len({r["id"] for r in found}) == len(found) and all(map(CONDITIONS[condition], found))
        assert scan.without_index().to_arrow().num_rows == len(wanted)


def test_an_index_leaves_the_first_rows_and_skips_other_files(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA, options=INDEXES)
    rng = random.Random(1)
    for file in range(4):
        table.append(pa.Table.from_pylist(rows(rng, 1000 * file, 1000, low=10 * (file + 1)), SCHEMA))
    plan = table.scan().top_n([("LENGTH(S)", "desc")], 5).plan()
    assert plan.metrics.files_read == 1 and plan.metrics.rows_chosen == 5
    assert plan.files[0].pruned_by == ("range-bitmap(length(s)) top 5",)
    assert [f.reason for f in plan.skipped] == [SkipReason.TOP_N] * 3
    filtered = table.scan(where="grp = 'x'").top_n([("length(s)", "desc")], 5).plan()
    assert filtered.metrics.rows_chosen < 30
    assert table.scan().without_index().top_n([("length(s)", "desc")], 5).plan().metrics.rows_chosen == 4000
    assert str(table.scan().top_n([("length(s)", "desc")], 5)._core.order[0]) == "length(s) DESC"


def test_files_without_the_index_are_read(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    table.append(pa.table({"id": [1, 2], "s": ["a", "abcdefgh"]}))
    lake.sql("CREATE INDEX by_length ON t USING range-bitmap (length(s))")
    table = lake.table("t")
    table.append(pa.Table.from_pylist(rows(random.Random(3), 10, 500), SCHEMA))
    table.append(pa.table({"id": [3], "s": ["b" * 99]}))
    scan = table.scan(["id"]).top_n([("length(s)", "desc")], 1)
    assert scan.to_arrow().to_pylist() == [{"id": 3}]
    assert scan.plan().metrics.files_read == 3


def test_a_renamed_column_keeps_its_order(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA, options={"bitlake.index.by_length": "range-bitmap(length(s))"})
    table.append(pa.Table.from_pylist(rows(random.Random(4), 0, 300), SCHEMA))
    lake.sql("ALTER TABLE t RENAME COLUMN s TO text")
    table = lake.table("t")
    table.append(pa.table({"id": [1000], "text": ["c" * 200]}))
    scan = table.scan(["id"]).top_n([("length(text)", "desc")], 2)
    assert scan.to_arrow()["id"].to_pylist()[0] == 1000
    assert scan.plan().metrics.rows_chosen <= 3
    lake.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT")
    assert lake.table("t").scan(["n"]).top_n([("n * -3", "desc", "last")], 1).to_arrow()["n"].to_pylist() == [-50]


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        ("missing", NotFound, "no column 'missing'"),
        ("no-such", NotFound, "no column 'no-such'"),
        ("length(s) desc", InvalidRequest, "name the direction apart"),
        ("s = 'a'", InvalidRequest, "of which no index can be"),
        ("length(missing)", NotFound, "missing"),
        ("length(s", InvalidRequest, "cannot order by 'length"),
        ("length(s) + rand()", InvalidRequest, "cannot order by"),
        ("element(tags)", InvalidRequest, "an expression of one value"),
        ("tags", InvalidRequest, "values have no order"),
        ("sum(n)", InvalidRequest, "cannot order by 'sum"),
    ],
)
def test_what_no_rows_are_ordered_by(lake: bitlake.Lake, order: str, error: type[Exception], message: str) -> None:
    table = lake.create_table("t", SCHEMA)
    with pytest.raises(error, match=message.replace("(", r"\(")):
        table.scan().top_n([(order, "asc")], 3)


def test_a_quoted_name_is_a_column(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    assert table.scan().top_n(["`id`"], 3)._core.order == table.scan().top_n(["id"], 3)._core.order


def test_an_expression_that_fails_for_a_row_is_an_error(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    table.append(pa.table({"id": [1, 2], "n": pa.array([0, 5], pa.int32())}))
    with pytest.raises(bitlake.errors.EvaluationFailed):
        table.scan().top_n([("100 / n", "asc")], 1).to_arrow()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t ORDER BY length(s) DESC, id LIMIT 4",
        "SELECT id, length(t.s) AS long FROM t ORDER BY long DESC NULLS LAST, id LIMIT 4 OFFSET 2",
        "SELECT * FROM t AS x WHERE grp = 'x' ORDER BY lower(x.s) DESC, id LIMIT 3",
        "SELECT id, grp AS s FROM t ORDER BY lower(s) DESC NULLS LAST, id LIMIT 3",
        "SELECT id, s AS grp FROM t ORDER BY lower(grp), id LIMIT 300",
        "SELECT id FROM t ORDER BY id, length(s) LIMIT 3",
        "SELECT id FROM t ORDER BY n * -3 NULLS LAST, id LIMIT 3",
    ],
)
def test_queries_on_duckdb_find_the_rows_of_a_plain_table(lake: bitlake.Lake, query: str) -> None:
    data = pa.Table.from_pylist(rows(random.Random(5), 0, 2000), SCHEMA)
    for name, options in (("t", INDEXES), ("plain", {})):
        lake.create_table(name, SCHEMA, options=options).append(data)
    found = lake.sql(query, engine="duckdb").fetchall()
    assert (
        found == lake.sql(query.replace("t ", "plain AS t ", 1).replace(" AS t AS", " AS"), engine="duckdb").fetchall()
    )
    assert len(found) >= 3


def test_a_query_on_duckdb_reads_the_first_rows_alone(lake: bitlake.Lake) -> None:
    lake.create_table("t", SCHEMA, options=INDEXES).append(
        pa.Table.from_pylist(rows(random.Random(6), 0, 2000), SCHEMA)
    )
    for query in ("SELECT id FROM t ORDER BY length(s) LIMIT 4", "SELECT length(s) l FROM t ORDER BY l LIMIT 4"):
        explained = str(lake.sql(f"EXPLAIN {query}", engine="duckdb").to_pylist())
        assert "range-bitmap(length(s)) top 4" in explained
