"""Random predicates over tables with random indexes: the core, Spark and DuckDB find the rows of Spark's full scan."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bitlake
from bitlake import Lake, Table
from bitlake.errors import UnsupportedFeature
from tests import expression_predicates, member_predicates, random_texts
from tests.long import full, long

PREDICATES = 500
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")
SLOW_LIKE = re.compile(r"(?<=['%])_+(?=['%])")
"""A needle of any character, which takes quadratic time in texts of a megabyte."""
SLOW_IN_LONG_TEXTS = re.compile(f"{SLOW_LIKE.pattern}|%%")
"""Two ``%`` in a row are two greedy repetitions in Java's regular expression: a megabyte takes 10^12 steps."""
SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # a few rows: compiling takes longer than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ansi.enabled": "true",
}


@dataclass(frozen=True)
class Case:
    """Rows of some files, declarations of indexes, and predicates."""

    parts: list[pa.Table]
    options: dict[str, str]
    zone: str
    predicate: Callable[[], str]
    expected: set[str]
    """Index types of which some skips rows."""


def of_expressions(draw: random.Random) -> Case:
    zone = draw.choice(ZONES)
    options, expressions = expression_predicates.some_indexes(draw, zone, 10)
    words = draw.choice((expression_predicates.WORDS, expression_predicates.ASCII))
    parts = [expression_predicates.rows(draw, 40 * i, 40, draw.sample(words, 6)) for i in range(4)]
    others = draw.sample(sorted(expression_predicates.EVERY), 8)
    others = [e for e in others if zone == "UTC" or not e.startswith("date_trunc")]
    asked = expressions * 3 + others
    types = {v.partition("(")[0] for k, v in options.items() if not k.endswith(".timezone")}
    return Case(parts, options, zone, lambda: expression_predicates.predicate_of(draw, asked), types - {"tokens"})


def of_members(draw: random.Random) -> Case:
    parts = [member_predicates.rows(draw, 40 * i, 40) for i in range(4)]
    options = member_predicates.INDEXES | draw.choice(({}, {"bitlake.index.by_n": "bitmap(element(n))"}))
    return Case(parts, options, "UTC", lambda: member_predicates.predicate(draw), {"bitmap"})


def of_texts(draw: random.Random) -> Case:
    """Half of these cases have texts of a megabyte.  Needles are of other texts."""
    short = [text and text[:2_000] for text in (random_texts.random_text(draw) for _ in range(160))]
    texts = list(short)
    long_texts = draw.choice((0, 0, 1, 2))
    slow = SLOW_IN_LONG_TEXTS if long_texts else SLOW_LIKE
    for _ in range(long_texts):
        texts[draw.randrange(160)] = random_texts.of_a_megabyte(draw)
    table = pa.table({"id": pa.array(range(160), pa.int64()), "message": texts}, random_texts.SCHEMA)
    options = random_texts.INDEXES | {"bitlake.index.grams.n": str(draw.randint(3, 8))}
    parts = [table.slice(40 * i, 40) for i in range(4)]

    def predicate() -> str:
        while slow.search(condition := random_texts.random_condition(draw, short)):
            pass
        return condition

    return Case(parts, options, "UTC", predicate, {"ngram", "tokens"})


THEMES = (of_expressions, of_members, of_expressions, of_texts)


class Spark:
    """What Spark's full scan of plain Parquet finds: all predicates are columns of one SELECT."""

    def __init__(self, spark: Any, folder: Path, rows: pa.Table) -> None:
        path = str(folder / "rows.parquet")
        pq.write_table(rows, path)
        self.frame = spark.read.parquet(path).coalesce(1)

    def true_rows(self, predicates: list[str]) -> list[list[int]]:
        columns = [f"({p}) AS p{i}" for i, p in enumerate(predicates)]
        found = self.frame.selectExpr("id", *columns).toArrow().sort_by("id")
        ids = found["id"]
        return [ids.filter(found[f"p{i}"].combine_chunks().fill_null(False)).to_pylist() for i in range(len(columns))]


def ids(rows: Any) -> list[int]:
    return sorted(r[0] for r in rows)


def check(lake: Lake, table: Table, where: str, expected: list[int], used: Counter[str]) -> None:
    """Scans, counts and DuckDB find these rows."""
    scan = table.scan(["id"], where)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == expected, where
    assert table.count(where) == len(expected), where
    for file in scan.plan().files:
        used.update({name.partition("(")[0] for name in file.pruned_by})
    try:
        found = ids(lake.sql(f"SELECT id FROM {table.name} WHERE {where}", engine="duckdb").fetchall())
    except (UnsupportedFeature, duckdb.InvalidInputException) as e:  # before the query runs, and while it runs
        if "use engine='spark'" not in str(e):
            raise
        used["refused by DuckDB"] += 1
        return
    assert found == expected, where
    used["answered by DuckDB"] += 1


@pytest.mark.parametrize("seed", [long(seed) for seed in range(full(3, 200))])
def test_every_door_finds_what_spark_s_full_scan_finds(spark: Any, tmp_path: Path, seed: int) -> None:
    """200 seeds of 500 predicates are the full count; a sample has fewer predicates of each seed."""
    draw = random.Random(seed)
    case = THEMES[seed % len(THEMES)](draw)
    before = {key: spark.conf.get(key) for key in (*SETTINGS, "spark.sql.session.timeZone")}
    try:
        for key, value in (SETTINGS | {"spark.sql.session.timeZone": case.zone}).items():
            spark.conf.set(key, value)
        lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, timezone=case.zone)
        options = case.options | {"file-index.on-unreadable": "fail"}
        bitlake.register(spark)  # has_token and the others
        table = lake.create_table(f"t{seed}", case.parts[0].schema, options=options)
        for part in case.parts:
            table.append(part)
        assert all(c.files_indexed == len(case.parts) for c in table.indexes.coverage())
        predicates = [case.predicate() for _ in range(full(100, PREDICATES))]
        answers = Spark(spark, tmp_path, pa.concat_tables(case.parts)).true_rows(predicates)
        used: Counter[str] = Counter()
        for i, (where, expected) in enumerate(zip(predicates, answers, strict=True)):
            check(lake, table, where, expected, used)
            if i % 50 == 0:
                found = lake.sql(f"SELECT id FROM {table.name} WHERE {where}").collect()
                assert ids(found) == expected, where
        if log := os.environ.get("BITLAKE_COUNTS_LOG"):
            with open(log, "a", encoding="utf-8") as lines:
                print(seed, THEMES[seed % len(THEMES)].__name__, case.zone, len(predicates), dict(used), file=lines)
        assert case.expected <= set(used)
        assert used["answered by DuckDB"] > len(predicates) / 4
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
