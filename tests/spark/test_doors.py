"""Doors × sizes × ways of reading: the same questions through each way to name a warehouse, and by each way to read.

``make test`` runs a few combinations, ``make doors`` a pairwise covering array with three questions each
(``BITLAKE_DOORS=pairs``; the seed is printed, and ``BITLAKE_DOORS_SEED`` chooses it), ``make doors-all`` every
combination with every question.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from answers import arrow_rows, check_sql, expected_value, rows_of
from fixtures import expected

from bitlake.spark.source.data_source import register

MODE = os.environ.get("BITLAKE_DOORS", "few")
SEED = int(os.environ.get("BITLAKE_DOORS_SEED") or random.SystemRandom().randrange(1 << 31)) if MODE == "pairs" else 1
FEW: list[doors.Case] = [
    ("file://", "driver", "mb"),
    ("file://", "spark", "mb"),
    ("file://", "workers", "mb"),
    ("file://", "merge", "mb"),
    ("special", "spark", "mb"),
    ("special", "process", "fixtures"),
]
CASES = {
    "few": lambda: FEW,
    "pairs": lambda: doors.pairwise(SEED),
    "all": lambda: list(itertools.product(doors.DOORS, doors.WAYS, doors.SIZES)),
}[MODE]()
PATHS = {"driver": "driver", "spark": "spark", "workers": "workers", "merge": "workers"}
ON_SPARK = tuple(PATHS)
FORCED = "spark.paimon.read.spark-path"
SHOWN = {"driver": "into a local relation", "spark": "by Spark's own Parquet reader", "workers": "in Python workers"}
asked = 0
"""Questions that were asked."""

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


@pytest.fixture(scope="module", autouse=True)
def made() -> Iterator[None]:
    """Remove what the module generated, and report what was asked."""
    yield
    doors.clean()
    combined = f"{len(doors.DOORS)} doors, {len(doors.WAYS)} ways, {len(doors.SIZES)} sizes"
    print(f"\ndoors: {len(CASES)} combinations ({MODE}, seed {SEED}) of {combined}; {asked} questions")


_judged: dict[tuple[str, str], list[list[Any]]] = {}


def judged(spark: Any, size: str, text: str) -> list[list[Any]]:
    """Plain Spark's answer over the same rows as one Parquet file."""
    if (size, text) not in _judged:
        spark.read.parquet(str(doors.source(size) / "plain.parquet")).createOrReplaceTempView("plain_rows")
        _judged[size, text] = rows_of(spark.sql(re.sub(r"\bFROM t\b", "FROM plain_rows", text)))
    return _judged[size, text]


@contextmanager
def forced(behind: doors.Opened, way: str) -> Iterator[None]:
    """Queries in the block read files this way."""
    behind.lake.sql(f"SET {FORCED} = {PATHS[way]}")
    try:
        yield
    finally:
        behind.lake.sql(f"RESET {FORCED}")


@pytest.fixture(scope="module")
def open_door(spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Opens a size's tables through a door; the last one stays open for the next test."""
    with ExitStack() as last:
        held: dict[tuple[str, str], doors.Opened] = {}

        def opened(door: str, size: str) -> doors.Opened:
            if (door, size) not in held:
                last.close()
                held.clear()
                endpoint = request.getfixturevalue("s3_endpoint") if door == "s3" else None
                folder = tmp_path_factory.mktemp("door")
                held[door, size] = last.enter_context(doors.opened(door, size, spark, folder, endpoint))
            return held[door, size]

        yield opened


@pytest.mark.parametrize(("door", "way", "size"), CASES)
def test_answers(open_door: Any, spark: Any, door: str, way: str, size: str) -> None:
    behind = open_door(door, size)
    if size == "fixtures":
        _ask_fixtures(behind, spark, way, random.Random(f"{SEED} {door} {way}"))
    elif way in ON_SPARK:
        _ask_spark(behind, spark, door, way, size)
    elif way == "source":
        _ask_source(behind, spark, door, size)
    else:
        _ask_process(behind, spark, door, way, size)


def _some(items: list[Any], key: str) -> list[Any]:
    """All of them, or for ``make doors`` three that the seed chooses."""
    return items if MODE != "pairs" else random.Random(f"{SEED} {key}").sample(items, min(3, len(items)))


def _count(number: int = 1) -> None:
    global asked
    asked += number


def _ask_spark(behind: doors.Opened, spark: Any, door: str, way: str, size: str) -> None:
    table = doors.MERGED if way == "merge" else doors.TABLE
    with forced(behind, way):
        plan = behind.lake.sql(f"EXPLAIN SELECT sum(v) FROM {table}").collect()[0][0]
        # Spark's wheel has no client of an object store: there, Python workers read.
        foreign = way == "spark" and door in ("s3", "hdfs")
        assert SHOWN["workers" if foreign else PATHS[way]] in plan, plan
        for text in _some(questions(size), f"{door} {way} {size}"):
            found = rows_of(behind.lake.sql(re.sub(r"\bFROM t\b", f"FROM {table}", text)))
            assert found == judged(spark, size, text), text
            _count()
        if table == doors.TABLE and (MODE != "pairs" or door in _some(list(doors.DOORS), f"{way} {size}")):
            _ask_places(behind, size)


def _ask_places(behind: doors.Opened, size: str) -> None:
    """Where rows are: each row of each file once, under the paths that the table itself has."""
    text = "SELECT __paimon_file_path f, count(*) n, sum(__paimon_row_index) i, min(id) FROM t GROUP BY f"
    files = {e.file.file_name: e.file.row_count for e in behind.lake.table(doors.TABLE).state().entries()}
    paths = {f.path for f in behind.lake.table(doors.TABLE).scan().plan().files}
    found = behind.lake.sql(text).toArrow()
    assert set(found["f"].to_pylist()) == paths
    for path, count, places in zip(*(found[c].to_pylist() for c in ("f", "n", "i")), strict=True):
        assert count == files[path.rsplit("/", 1)[-1]] and places == count * (count - 1) // 2
    _count()


def _totals(rows: pa.Table) -> list[Any]:
    total = pc.sum(rows["v"]).as_py()
    return [rows.num_rows, pc.sum(rows["id"]).as_py(), total, pc.min(rows["s"]).as_py(), pc.max(rows["d"]).as_py()]


def _totals_text(condition: str | None) -> str:
    return f"SELECT count(*), sum(id), sum(v), min(s), max(d) FROM t{f' WHERE {condition}' if condition else ''}"


def _ask_process(behind: doors.Opened, spark: Any, door: str, way: str, size: str) -> None:
    table = behind.lake.table(doors.MERGED if way.startswith("merge") else doors.TABLE)
    for condition in _some(conditions(doors.GENERATED[size].rows), f"{door} {way} {size}"):
        (wanted,) = judged(spark, size, _totals_text(condition))
        scan = table.scan(["id", "v", "s", "d"], condition)
        assert _totals(scan.to_arrow()) == wanted, condition
        assert scan.count() == wanted[0]
        _count()
    batches = list(table.scan(["id", "v", "s", "d"], "k < 300").to_batches())
    assert _totals(pa.Table.from_batches(batches)) == judged(spark, size, _totals_text("k < 300"))[0]
    top = table.scan(["id", "k"], "s = 's7'").top_n([("k", "desc"), ("id", "asc")], 20).to_arrow()
    assert arrow_rows(top) == judged(spark, size, questions(size)[1])
    _count(2)


def _ask_source(behind: doors.Opened, spark: Any, door: str, size: str) -> None:
    register(spark)
    for name in (doors.TABLE, doors.MERGED):
        frame = spark.read.format("bitlake").options(**behind.source_options(name)).load()
        frame.createOrReplaceTempView("through_source")
        for condition in _some(conditions(doors.GENERATED[size].rows)[::2], f"{door} {name} {size}"):
            text = _totals_text(condition)
            found = rows_of(spark.sql(text.replace("FROM t", "FROM through_source")))
            assert found == judged(spark, size, text), text
            _count()


def _ask_fixtures(behind: doors.Opened, spark: Any, way: str, chance: random.Random) -> None:
    """Paimon's own tables: all that it answered on each (``make doors-all``), or one question of some tables."""
    merged = way.startswith("merge")
    names = [n for n in expected() if not merged or n.startswith("pk_")]
    if MODE != "all":
        names = sorted(chance.sample(names, min(8, len(names))))
    for name in names:
        queries = expected()[name] if MODE == "all" else [chance.choice(expected()[name])]
        if way in ON_SPARK:
            with forced(behind, way):
                check_sql(behind.lake, queries)
        elif way == "source":
            _check_source(behind, spark, name, queries)
        else:
            queries = expected()[name]
            _check_process(behind, name, queries)
        _count(len(queries))


def _check_source(behind: doors.Opened, spark: Any, name: str, queries: list[dict[str, Any]]) -> None:
    register(spark)
    spark.read.format("bitlake").options(**behind.source_options(name)).load().createOrReplaceTempView("through_source")
    plain = [q for q in queries if re.search(rf"\bFROM {name}( |$)", q["sql"]) and "__paimon" not in q["sql"]]
    texts = [{**q, "sql": re.sub(rf"\b{name}\b", "through_source", q["sql"])} for q in plain]

    class Session:
        def sql(self, text: str) -> Any:
            return spark.sql(text)

    check_sql(Session(), texts)


_SIMPLE = re.compile(r"SELECT (\*|count\(\*\)) FROM (\w+)(?: WHERE (.*?))?(?: ORDER BY (\w+))?$")


def _check_process(behind: doors.Opened, name: str, queries: list[dict[str, Any]]) -> None:
    """Those that a scan answers by itself."""
    for query in queries:
        match = _SIMPLE.match(query["sql"])
        if match is None or match[2] != name or re.search(r"st\.x|m\[|GROUP|LIMIT", query["sql"]):
            continue
        scan = behind.lake.table(name).scan(where=match[3])
        if match[1] != "*":
            assert scan.count() == query["rows"][0][0], query["sql"]
            continue
        found, wanted = arrow_rows(scan.to_arrow()), [expected_value(r) for r in query["rows"]]
        assert sorted(found, key=repr) == sorted(wanted, key=repr), query["sql"]


def test_the_pairs_are_all_covered() -> None:
    cases = doors.pairwise(7)
    assert cases == doors.pairwise(7) and len(cases) < 120
    for at, values in ((0, doors.DOORS), (1, doors.WAYS), (2, doors.SIZES)):
        for other, more in ((0, doors.DOORS), (1, doors.WAYS), (2, doors.SIZES)):
            if at < other:
                assert {(c[at], c[other]) for c in cases} == set(itertools.product(values, more))


def test_the_generated_rows_are_what_they_are_said_to_be() -> None:
    large = doors.GENERATED["large"]
    assert large.rows >= 3_000_000 and doors.GENERATED["partitions"].partitions == 2000
    assert doors.GENERATED["files"].buckets == 5000
    rows = doors.rows_of(doors.GENERATED["mb"])
    assert rows.equals(doors.rows_of(doors.GENERATED["mb"])) and 0 < rows["v"].null_count < len(rows) // 10
    files = list((doors.source("mb") / "default.db/t").rglob("*.parquet"))
    assert sum(p.stat().st_size for p in files) > 1_000_000
    assert sum(pq.read_metadata(p).num_rows for p in files) == len(rows)
    assert np.all(np.diff(rows["id"].to_numpy()) == 1)
