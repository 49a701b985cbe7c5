"""Join filters in this process: which files the keys of a small table leave, and when no filter is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bitlake
from bitlake.engine import join_filters
from bitlake.scan.scan import TableScan

FILES = 12
ROWS = 20_000
OFF = "SET spark.paimon.read.join-filters = false"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    """A fact table of one file a day, whose keys ascend, are NULL or one skewed value in every hundredth row."""
    lake = bitlake.connect(tmp_path_factory.mktemp("joins") / "lake")
    columns = {"k": pa.int64(), "day": pa.int32(), "text": pa.string(), "apart": pa.int64(), "v": pa.int64()}
    fact = lake.create_table("fact", pa.schema(list(columns.items())))
    for day in range(FILES):
        keys = np.arange(day * ROWS, (day + 1) * ROWS)
        nulls = keys % 100 == 50
        rows = {
            "k": pa.array(keys, mask=nulls),
            "day": pa.array(np.full(ROWS, day), pa.int32()),
            "text": [f"d{day:02}"] * ROWS,
            "apart": keys % 1000,
            "v": keys,
        }
        fact.append(pa.table(rows, pa.schema(list(columns.items()))))
    numbers = np.arange(0, FILES * ROWS, 1000)
    dim = {"id": pa.array([*numbers[:-1], None]), "region": numbers // 1000 % 80, "day": numbers // ROWS}
    lake.create_table("dim", pa.table(dim))
    days = {
        "day": list(range(FILES)),
        "text": [f"d{i:02}" for i in range(FILES)],
        "month": [i // 4 for i in range(FILES)],
    }
    lake.create_table("days", pa.table(days))
    lake.create_table("months", pa.table({"month": [0, 1, 2], "name": ["jan", "feb", "mar"]}))
    return lake


def explained(lake: bitlake.Lake, text: str) -> list[str]:
    (plan,) = lake.sql(f"EXPLAIN {text}", engine="duckdb")["plan"].to_pylist()
    return [line.split(maxsplit=1)[1] for line in plan.splitlines() if line.startswith("  join  ")]


def answers(lake: bitlake.Lake, text: str) -> list[tuple[Any, ...]]:
    """The rows of a query, which are the same without join filters."""
    found = sorted(lake.sql(text, engine="duckdb").fetchall())
    lake.sql(OFF, engine="duckdb")
    try:
        assert explained(lake, text) == []
        assert sorted(lake.sql(text, engine="duckdb").fetchall()) == found
    finally:
        lake.sql("RESET spark.paimon.read.join-filters", engine="duckdb")
    return found


MONTH = "4 keys of days left 4 of 12 files"
NARROWED = [
    ("3 keys of dim left 3 of 12 files", "SELECT count(*) FROM fact JOIN dim ON k = id WHERE region = 3"),
    (MONTH, "SELECT count(*) FROM fact, days WHERE fact.day = days.day AND month = 1"),
    (MONTH, "SELECT count(*) FROM fact JOIN days USING (day) WHERE month = 1"),
    (MONTH, "SELECT count(*) FROM fact JOIN days USING (text) WHERE month = 1"),
    (MONTH, "SELECT count(*) FROM fact LEFT SEMI JOIN days d ON d.day = fact.day AND month = 1"),
    (MONTH, "SELECT count(*) FROM days LEFT JOIN fact ON days.day = fact.day WHERE month = 1"),
    (MONTH, "SELECT count(*) FROM days LEFT ANTI JOIN fact ON days.day = fact.day WHERE month = 1"),
    (MONTH, "SELECT count(*) FROM fact WHERE day IN (SELECT day FROM days WHERE month = 1)"),
    (
        "2 keys of dim left 2 of 12 files",
        "SELECT count(*) FROM fact WHERE k IN (SELECT id FROM dim WHERE region >= 79)",
    ),  # the third key is NULL
    (
        "0 keys of days left 0 of 12 files",
        "SELECT count(*) FROM fact WHERE day IN (SELECT day FROM days WHERE month = 9)",
    ),
    (
        MONTH,
        "WITH w AS (SELECT day, max(month) AS m FROM days WHERE month = 1 GROUP BY day) SELECT count(*) "
        "FROM (SELECT day AS d, v FROM fact) f JOIN w ON d = w.day",
    ),
    (
        MONTH,
        "SELECT count(*) FROM fact JOIN days ON fact.day = days.day JOIN months ON days.month = "
        "months.month WHERE name = 'feb'",
    ),
    (
        "4 keys of days and 3 keys of dim left 1 of 12 files",
        "SELECT count(*) FROM fact JOIN days ON fact.day = days.day JOIN dim ON k = id WHERE month = 1 AND region = 3",
    ),
    (
        "4 keys of days and 1 key of days left 1 of 12 files",
        "SELECT count(*) FROM fact JOIN days a ON fact.day = a.day JOIN days b ON fact.text = b.text "
        "WHERE a.month = 1 AND b.day = 5",
    ),
]


@pytest.mark.parametrize(("left", "text"), NARROWED)
def test_keys_of_a_small_table_leave_files_of_a_large_one(lake: bitlake.Lake, left: str, text: str) -> None:
    assert explained(lake, text) == [left]
    answers(lake, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*), sum(month) FROM fact LEFT JOIN days ON fact.day = days.day AND month = 1",
        "SELECT count(*) FROM fact FULL JOIN days ON fact.day = days.day AND month = 1",
        "SELECT count(*) FROM fact LEFT ANTI JOIN days ON fact.day = days.day AND month = 1",
        "SELECT count(*) FROM fact WHERE day NOT IN (SELECT day FROM days WHERE month = 1)",
        "SELECT count(*) FROM fact WHERE day IN (SELECT day FROM days WHERE month = 1) OR v = 0",
        "SELECT count(*) FROM fact JOIN dim ON k <=> id WHERE region = 79",
        "SELECT count(*) FROM fact JOIN days ON fact.day = days.day + 1 WHERE month = 1",
        "SELECT count(*) FROM fact JOIN days ON CAST(fact.day AS STRING) = days.text WHERE month = 1",
        "SELECT count(*) FROM fact JOIN dim ON apart = id WHERE region = 3",  # in every file
        "SELECT count(*) FROM fact JOIN dim ON k = id",  # keys without a condition
        "SELECT count(*) FROM fact a JOIN fact b ON a.k = b.k WHERE b.day = 3",  # too large to be read first
    ],
)
def test_other_joins_read_all_files(lake: bitlake.Lake, text: str) -> None:
    assert explained(lake, text) == []
    answers(lake, text)


def test_more_keys_than_the_bound_are_a_range(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_filters, "MOST_KEYS", 10)
    text = "SELECT count(*) FROM fact JOIN dim ON k = id WHERE dim.day BETWEEN 3 AND 5"
    assert explained(lake, text) == ["60 keys of dim left 3 of 12 files"]
    (plan,) = lake.sql(f"EXPLAIN {text}", engine="duckdb")["plan"].to_pylist()
    assert "where      k >= 60000 AND k <= 119000" in plan
    assert answers(lake, text) == [(60,)]


def test_a_table_is_read_at_the_moment_that_the_query_names(lake: bitlake.Lake) -> None:
    changing = lake.create_table("changing", pa.table({"day": [1, 2]}))
    changing.append(pa.table({"day": [7]}))
    of_then = "SELECT count(*) FROM fact JOIN changing VERSION AS OF 1 c ON fact.day = c.day"
    assert explained(lake, of_then) == ["2 keys of changing left 2 of 12 files"]
    assert answers(lake, of_then) == [(2 * ROWS,)]
    lazy = lake.sql("SELECT count(*) FROM fact JOIN changing c ON fact.day = c.day", engine="duckdb")
    changing.append(pa.table({"day": [9]}))
    assert lazy.fetchall() == [(3 * ROWS,)]


@pytest.mark.parametrize("when", ["at once", "half-way", "too late"])
def test_a_build_that_fails_leaves_the_query_as_it_is(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    text = "SELECT count(*) FROM fact JOIN dim ON k = id WHERE region = 3"
    whole = answers(lake, text)
    read = TableScan.to_batches
    failed = []

    def broken(self: TableScan, *args: Any) -> Any:
        failed.append(self.state.name)
        if when == "half-way":
            yield from read(self, *args)
        raise OSError("gone")

    if when == "too late":
        monkeypatch.setattr(join_filters, "BUILD_SECONDS", -1.0)
    else:
        monkeypatch.setattr(TableScan, "to_batches", broken)
    assert explained(lake, text) == []
    monkeypatch.undo()
    assert failed == ([] if when == "too late" else ["default.dim"])
    assert answers(lake, text) == whole


def test_the_table_option_turns_filters_off(lake: bitlake.Lake) -> None:
    text = "SELECT count(*) FROM fact JOIN days ON fact.day = days.day WHERE month = 1"
    lake.sql("ALTER TABLE fact SET TBLPROPERTIES ('read.join-filters' = 'false')", engine="duckdb")
    try:
        assert explained(lake, text) == []
    finally:
        lake.sql("ALTER TABLE fact UNSET TBLPROPERTIES ('read.join-filters')", engine="duckdb")
    assert explained(lake, text) == ["4 keys of days left 4 of 12 files"]
