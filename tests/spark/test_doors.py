"""Doors × sizes × ways of reading: the same questions through each way to name a warehouse, and by each way to read.

``make test`` runs a few combinations, ``make doors`` a pairwise covering array with three questions each, or one of
thousands of files (``BITLAKE_DOORS=pairs``; the seed is printed, and ``BITLAKE_DOORS_SEED`` chooses it), ``make
doors-all`` every combination with every question.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from answers import arrow_rows, check_sql, expected_value, rows_of
from fixtures import expected
from long import long

from bitlake.spark.read import driver_query
from bitlake.spark.read.local_relation import HeldFrame
from bitlake.spark.source.data_source import register

MODE = os.environ.get("BITLAKE_DOORS", "few")
# The processes of a run have its id in common.
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
SEED = int(os.environ.get("BITLAKE_DOORS_SEED") or int(_RUN[:7], 16)) if MODE == "pairs" else 1
FEW: list[doors.Case] = [
    ("file://", "driver", "mb"),
    ("file://", "spark", "mb"),
    ("file://", "workers", "mb"),
    ("file://", "merge", "mb"),
    ("file://", "duckdb", "mb"),
    ("cached s3", "workers", "mb"),
    ("special", "spark", "mb"),
    ("special", "process", "fixtures"),
]
"""Of these, ``make long`` asks the one that reads special names on Spark."""
CASES = {
    "few": lambda: FEW,
    "pairs": lambda: doors.pairwise(SEED),
    "all": lambda: list(itertools.product(doors.DOORS, doors.WAYS, doors.SIZES)),
}[MODE]()
PATHS = {"driver": "driver", "spark": "spark", "workers": "workers", "merge": "workers"}
ON_SPARK = tuple(PATHS)
_SIMPLE = re.compile(r"SELECT (\*|count\(\*\)) FROM (\w+)(?: WHERE (.*?))?(?: ORDER BY (\w+))?$")
FORCED = "spark.paimon.read.spark-path"
SHOWN = {"driver": "into a local relation", "spark": "by Spark's own Parquet reader", "workers": "in Python workers"}
MANY_FILES = ("partitions", "files")
Judge = Callable[[str, str], list[list[Any]]]
"""The right answer, by size and query."""

pytestmark = pytest.mark.spark


def conditions(rows: int) -> list[str | None]:
    """Conditions: none, on a column without an index, with an index, by page bounds, on NULL, and without a match."""
    low = rows // 3
    return [
        None,
        "v < 300000000000",
        "k = 123",
        "s = 's7' AND k < 500",
        f"id BETWEEN {low} AND {low + rows // 10}",
        "v IS NULL",
        "d = DATE '1970-02-03' OR k IN (1, 2, 3)",
        "id < 0",
    ]


def questions(size: str) -> list[str]:
    """Queries about the table ``t``."""
    out = ["SELECT count(*) FROM t", "SELECT id, k FROM t WHERE s = 's7' ORDER BY k DESC, id LIMIT 20"]
    for condition in conditions(doors.GENERATED[size].rows):
        where = "" if condition is None else f" WHERE {condition}"
        out.append(f"SELECT count(*), count(v), sum(v), min(d), max(s), sum(p) FROM t{where}")
    out.append("SELECT s, count(*), sum(v) FROM t WHERE k < 300 GROUP BY s ORDER BY s")
    out.append("SELECT id, k, v, s, d, p FROM t WHERE k = 77 ORDER BY id LIMIT 50")
    return out


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> doors.Sources:
    """The tables of each size, one folder for all processes of a run."""
    base = tmp_path_factory.getbasetemp()
    return doors.Sources(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


_judged: dict[tuple[str, str], list[list[Any]]] = {}


@pytest.fixture(scope="module")
def judged(spark: Any, sources: doors.Sources) -> Judge:
    """Plain Spark's answer over the same rows as one Parquet file."""

    def answer(size: str, text: str) -> list[list[Any]]:
        if (size, text) not in _judged:
            spark.read.parquet(str(sources.folder(size) / "plain.parquet")).createOrReplaceTempView("plain_rows")
            _judged[size, text] = rows_of(spark.sql(re.sub(r"\bFROM t\b", "FROM plain_rows", text)))
        return _judged[size, text]

    return answer


@contextmanager
def forced(behind: doors.Opened, way: str) -> Iterator[None]:
    """Queries in the block read files this way."""
    with pytest.MonkeyPatch.context() as patch:
        if way in PATHS:
            behind.lake.sql(f"SET {FORCED} = {PATHS[way]}")
        else:
            patch.setattr(driver_query, "_has_duckdb", lambda: True)
        try:
            yield
        finally:
            behind.lake.sql(f"RESET {FORCED}")


@pytest.fixture(scope="module")
def open_door(
    spark: Any, sources: doors.Sources, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Opens a size's tables, those that are asked, through a door; the last one stays open for the next test."""
    with ExitStack() as last:
        held: dict[tuple[str, str], doors.Opened] = {}

        def opened(door: str, size: str) -> doors.Opened:
            if (door, size) not in held:
                last.close()
                held.clear()
                endpoint = request.getfixturevalue("s3_endpoint") if "s3" in door else None
                ways = [w for d, w, s in CASES if (d, s) == (door, size)]
                names = frozenset(t for w in ways for t in tables_asked(door, w, size))
                what = doors.Copying(sources.folder(size), tmp_path_factory.mktemp("door"), names)
                held[door, size] = last.enter_context(doors.opened(door, what, spark, endpoint))
            return held[door, size]

        yield opened


def tables_asked(door: str, way: str, size: str) -> tuple[str, ...]:
    """The tables that a combination asks; none: all of Paimon's."""
    if size == "fixtures":
        return ()
    if way.startswith("merge"):
        return (doors.MERGED,)
    if way != "source":
        return (doors.TABLE,)
    both = (doors.TABLE, doors.MERGED)
    many = MODE == "pairs" and size in MANY_FILES
    return (_chance(door, way, size).choice(both),) if many else both


def _chance(*key: str) -> random.Random:
    return random.Random(f"{SEED} {' '.join(key)}")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("door", "way", "size"), [long(*c) if MODE == "few" and c == ("special", "spark", "mb") else c for c in CASES]
)
def test_answers(
    open_door: Any, judged: Judge, spark: Any, record_property: Any, door: str, way: str, size: str
) -> None:
    behind = open_door(door, size)
    asking = Asking(behind, judged, spark, door, way, size)
    if size == "fixtures":
        asking.fixtures()
    elif way in ON_SPARK:
        asking.sql()
    elif way == "source":
        asking.source()
    elif way == "duckdb":
        asking.driver_queries()
    else:
        asking.process()
    record_property("doors", f"{MODE}, seed {SEED}")
    record_property("questions", asking.asked)


@dataclass
class Asking:
    """The questions of one combination; ``asked`` counts them."""

    behind: doors.Opened
    judged: Judge
    spark: Any
    door: str
    way: str
    size: str
    asked: int = 0

    def _some(self, items: list[Any]) -> list[Any]:
        """All of them, or for ``make doors`` three that the seed chooses; one of thousands of files."""
        if MODE != "pairs":
            return items
        return self._chance("items").sample(items, min(1 if self.size in MANY_FILES else 3, len(items)))

    def _chance(self, what: str) -> random.Random:
        return _chance(self.door, self.way, self.size, what)

    def _table(self) -> str:
        return doors.MERGED if self.way.startswith("merge") else doors.TABLE

    def _is(self, found: Any, text: str) -> None:
        assert found == self.judged(self.size, text), text
        self.asked += 1

    def sql(self) -> None:
        """Queries, each read the way that is forced."""
        lake, table = self.behind.lake, self._table()
        with forced(self.behind, self.way):
            plan = lake.sql(f"EXPLAIN SELECT sum(v) FROM {table}").collect()[0][0]
            # Spark's wheel has no client of an object store: there, Python workers read.
            foreign = self.way == "spark" and self.door in doors.REMOTE
            assert SHOWN["workers" if foreign else PATHS[self.way]] in plan, plan
            for text in self._some(questions(self.size)):
                self._is(rows_of(lake.sql(re.sub(r"\bFROM t\b", f"FROM {table}", text))), text)
            shown = MODE != "pairs" or self.door in _chance(self.way, self.size).sample(doors.DOORS, 3)
            if table == doors.TABLE and shown:
                self._places()

    def driver_queries(self) -> None:
        """Queries that DuckDB computes in Spark's driver, where they read few rows."""
        lake, rows = self.behind.lake, doors.GENERATED[self.size].rows
        joined = (
            "WITH a AS (SELECT * FROM t), b AS (SELECT * FROM t) SELECT a.s, count(*), sum(b.v) FROM a JOIN b "
            f"ON a.id = b.id WHERE b.k < 300 AND a.id < {rows // 2} GROUP BY a.s ORDER BY a.s"
        )
        with forced(self.behind, self.way):
            for text in [*self._some(questions(self.size)), joined]:
                frame = lake.sql(text)
                self._is(rows_of(frame), text)
            assert isinstance(frame, HeldFrame) is (self.size == "mb")

    def _places(self) -> None:
        """Where rows are: each row of each file once, under the paths that the table itself has."""
        text = "SELECT __paimon_file_path f, count(*) n, sum(__paimon_row_index) i, min(id) FROM t GROUP BY f"
        table = self.behind.lake.table(doors.TABLE)
        files = {e.file.file_name: e.file.row_count for e in table._core.state().entries()}
        paths = {f.path for f in table.scan().plan().files}
        found = self.behind.lake.sql(text).toArrow()
        assert set(found["f"].to_pylist()) == paths
        for path, count, places in zip(*(found[c].to_pylist() for c in ("f", "n", "i")), strict=True):
            assert count == files[path.rsplit("/", 1)[-1]] and places == count * (count - 1) // 2
        self.asked += 1

    def process(self) -> None:
        """Scans, counts, batches and the first rows in an order."""
        table = self.behind.lake.table(self._table())
        for condition in self._some(conditions(doors.GENERATED[self.size].rows)):
            text = _totals_text(condition)
            scan = table.scan(["id", "v", "s", "d"], condition)
            self._is([_totals(scan.to_arrow())], text)
            assert scan.count() == self.judged(self.size, text)[0][0], condition
        for ask in self._some([self._batches, self._first]):
            ask(table)

    def _batches(self, table: Any) -> None:
        batches = list(table.scan(["id", "v", "s", "d"], "k < 300").to_batches())
        self._is([_totals(pa.Table.from_batches(batches))], _totals_text("k < 300"))

    def _first(self, table: Any) -> None:
        top = table.scan(["id", "k"], "s = 's7'").top_n([("k", "desc"), ("id", "asc")], 20).to_arrow()
        self._is(arrow_rows(top), questions(self.size)[1])

    def source(self) -> None:
        """Spark's data source of a path or a catalog."""
        register(self.spark)
        for name in tables_asked(self.door, self.way, self.size):
            self._open_source(name)
            for condition in self._some(conditions(doors.GENERATED[self.size].rows)[::2]):
                text = _totals_text(condition)
                self._is(rows_of(self.spark.sql(text.replace("FROM t", "FROM through_source"))), text)

    def _open_source(self, table: str) -> None:
        frame = self.spark.read.format("bitlake").options(**self.behind.source_options(table)).load()
        frame.createOrReplaceTempView("through_source")

    def fixtures(self) -> None:
        """Paimon's own tables: all that it answered on each (``make doors-all``), or one question of some tables."""
        chance = self._chance("fixtures")
        names = [n for n in expected() if not self.way.startswith("merge") or n.startswith("pk_")]
        if MODE != "all":
            names = sorted(chance.sample(names, min(8, len(names))))
        for name in names:
            queries = expected()[name] if MODE == "all" else [chance.choice(expected()[name])]
            if self.way in ON_SPARK or self.way == "duckdb":
                with forced(self.behind, self.way):
                    check_sql(self.behind.lake, queries)
                self.asked += len(queries)
            elif self.way == "source":
                self._fixture_source(name, queries)
            else:
                self._fixture_process(name)

    def _fixture_source(self, name: str, queries: list[dict[str, Any]]) -> None:
        register(self.spark)
        self._open_source(name)
        # Spark refuses time travel on a view.
        plain = [q for q in queries if re.search(rf"\bFROM {name}(?! (VERSION|TIMESTAMP) AS OF)( |$)", q["sql"])]
        plain = [q for q in plain if "__paimon" not in q["sql"]]
        check_sql(self.spark, [{**q, "sql": re.sub(rf"\b{name}\b", "through_source", q["sql"])} for q in plain])
        self.asked += len(plain)

    def _fixture_process(self, name: str) -> None:
        """Those that a scan answers by itself."""
        for query in expected()[name]:
            match = _SIMPLE.match(query["sql"])
            if match is None or match[2] != name or re.search(r"st\.x|m\[|GROUP|LIMIT", query["sql"]):
                continue
            scan = self.behind.lake.table(name).scan(where=match[3])
            if match[1] != "*":
                assert scan.count() == query["rows"][0][0], query["sql"]
            else:
                found, wanted = arrow_rows(scan.to_arrow()), [expected_value(r) for r in query["rows"]]
                assert sorted(found, key=repr) == sorted(wanted, key=repr), query["sql"]
            self.asked += 1


def _totals(rows: pa.Table) -> list[Any]:
    total = pc.sum(rows["v"]).as_py()
    return [rows.num_rows, pc.sum(rows["id"]).as_py(), total, pc.min(rows["s"]).as_py(), pc.max(rows["d"]).as_py()]


def _totals_text(condition: str | None) -> str:
    return f"SELECT count(*), sum(id), sum(v), min(s), max(d) FROM t{f' WHERE {condition}' if condition else ''}"


def test_the_pairs_are_all_covered() -> None:
    cases = doors.pairwise(7)
    assert cases == doors.pairwise(7) and len(cases) == len(doors.DOORS) * len(doors.WAYS)
    for at, values in ((0, doors.DOORS), (1, doors.WAYS), (2, doors.SIZES)):
        for other, more in ((0, doors.DOORS), (1, doors.WAYS), (2, doors.SIZES)):
            if at < other:
                assert {(c[at], c[other]) for c in cases} == set(itertools.product(values, more))


def test_the_generated_rows_are_what_they_are_said_to_be(sources: doors.Sources) -> None:
    large = doors.GENERATED["large"]
    assert large.rows >= 3_000_000 and doors.GENERATED["partitions"].partitions == 2000
    assert doors.GENERATED["files"].buckets == 5000
    rows = doors.rows_of(doors.GENERATED["mb"])
    assert rows.equals(doors.rows_of(doors.GENERATED["mb"])) and 0 < rows["v"].null_count < len(rows) // 10
    files = list((sources.folder("mb") / "default.db/t").rglob("*.parquet"))
    assert sum(p.stat().st_size for p in files) > 1_000_000
    assert sum(pq.read_metadata(p).num_rows for p in files) == len(rows)
    assert np.all(np.diff(rows["id"].to_numpy()) == 1)
