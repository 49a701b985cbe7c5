"""Law: a query over pruned tables answers as over whole ones, on Spark itself, for queries put together at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from long import long

from bitlake.expressions.sql_text import to_sql
from bitlake.sql.analyzer import analyse_query
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField, parse_type

TABLES = {"t": ["a", "b", "c"], "u": ["a", "x", "b"]}
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN", ","]


def resolve(name: TableName) -> Sequence[DataField] | None:
    if name.database is not None or name.table not in TABLES:
        return None
    return [DataField(i, c, parse_type("INT")) for i, c in enumerate(TABLES[name.table])]


class Maker:
    """Makes queries of joins, filters, derived tables and subqueries; names are always qualified or unique."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.aliases = 0

    def source(self, depth: int) -> tuple[str, str, list[str]]:
        """Text, alias and columns of something to select from."""
        self.aliases += 1
        alias = f"s{self.aliases}"
        if depth and self.random.random() < 0.4:
            text, columns = self.select(depth - 1)
            return f"({text}) {alias}", alias, columns
        table = self.random.choice(list(TABLES))
        return f"{table} {'AS ' if self.random.random() < 0.5 else ''}{alias}", alias, TABLES[table]

    def condition(self, sources: list[tuple[str, list[str]]], depth: int = 2) -> str:
        pick = self.random.random()
        if depth and pick < 0.45:
            word = self.random.choice([" AND ", " AND ", " OR "])
            return "(" + word.join(self.condition(sources, depth - 1) for _ in range(2)) + ")"
        if depth and pick < 0.55:
            return f"NOT {self.condition(sources, depth - 1)}"
        alias, columns = self.random.choice(sources)
        column = f"{alias}.{self.random.choice(columns)}"
        value = self.random.randint(0, 3)
        if pick < 0.65:
            return f"{column} IS {self.random.choice(['', 'NOT '])}NULL"
        if pick < 0.7:
            return f"{column} <=> {self.random.choice(['NULL', str(value)])}"
        if pick < 0.75:
            return f"{column} IN ({value}, {self.random.choice(['NULL', '2'])})"
        if pick < 0.8:
            return f"coalesce({column}, 1) = {value}"
        if pick < 0.85:
            other, names = self.random.choice(sources)
            return f"{column} = {other}.{self.random.choice(names)}"
        if pick < 0.9:
            word = self.random.choice(["EXISTS", "NOT EXISTS"])
            return f"{word} (SELECT 1 FROM u q WHERE q.a = {column} AND q.x = {value})"
        return f"{column} {self.random.choice(['=', '<>', '<', '>='])} {value}"

    def select(self, depth: int) -> tuple[str, list[str]]:
        text, alias, columns = self.source(depth)
        sources, parts = [(alias, columns)], [text]
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            kind = self.random.choice(JOINS)
            text, alias, columns = self.source(depth)
            parts.append(f", {text}" if kind == "," else f" {kind} {text}")
            seen = [*sources, (alias, columns)]
            if kind not in (",", "CROSS JOIN"):
                parts.append(f" ON {self.simple(seen)}")
            if "SEMI" not in kind and "ANTI" not in kind:
                sources = seen
        chosen = [(f"{alias}.{c}", f"k{i}") for i, (alias, c) in enumerate(self.columns(sources))]
        listed = ", ".join(f"{what} AS {name}" for what, name in chosen)
        word = self.random.choice(["", "", "", "DISTINCT "])
        where = f" WHERE {self.condition(sources)}" if self.random.random() < 0.8 else ""
        return f"SELECT {word}{listed} FROM {''.join(parts)}{where}", [name for _, name in chosen]

    def simple(self, sources: list[tuple[str, list[str]]]) -> str:
        """An ON condition: an equality and a few terms without subqueries."""
        (left, names), (right, others) = sources[0], sources[-1]
        terms = [f"{left}.{self.random.choice(names)} = {right}.{self.random.choice(others)}"]
        for _ in range(self.random.randint(0, 2)):
            alias, columns = self.random.choice(sources)
            value = self.random.choice(["= 1", "> 0", "IS NULL", "<> 2", "IS NOT NULL"])
            terms.append(f"{alias}.{self.random.choice(columns)} {value}")
        return " AND ".join(terms)

    def columns(self, sources: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
        every = [(alias, c) for alias, names in sources for c in names]
        return self.random.sample(every, self.random.randint(1, min(4, len(every))))

    def query(self) -> str:
        text, _ = self.select(2)
        if self.random.random() < 0.3:
            inner, columns = self.select(1)
            text = (
                f"WITH w AS ({inner}) SELECT w.k0 FROM w JOIN t ON w.k0 = t.a WHERE {self.condition([('w', columns)])}"
            )
        return text


@pytest.fixture(scope="module")
def tables(spark: Any) -> Any:
    rng = random.Random(1)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # 200 empty tasks per join are all it would otherwise do
    for name, columns in TABLES.items():
        rows = [tuple(rng.choice([None, 0, 1, 2, 3]) for _ in columns) for _ in range(25)]
        spark.createDataFrame(rows, ", ".join(f"{c} INT" for c in columns)).createOrReplaceTempView(name)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)
    for name in TABLES:
        spark.catalog.dropTempView(name)


def pruned(spark: Any, text: str) -> tuple[str, int]:
    """The query over tables cut down as the analysis allows, and how many uses have a predicate."""
    uses = analyse_query(SqlText(text), resolve).tables
    names = []
    for use in uses:
        columns = "*" if use.columns is None else ", ".join(use.columns) or "1 AS nothing"
        where = "" if use.predicate is None else f" WHERE {to_sql(use.predicate)}"
        names.append(f"law_{len(names)}")
        spark.sql(f"SELECT {columns} FROM {use.name}{where}").createOrReplaceTempView(names[-1])
    return replace_tables(SqlText(text), uses, names), sum(u.predicate is not None for u in uses)


def rows(spark: Any, text: str) -> list[str]:
    return sorted(map(str, spark.sql(text).collect()))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(3), long(range(8))], ids=str)
def test_pruning_changes_no_result(tables: Any, seeds: range) -> None:
    check(tables, seeds)


def check(tables: Any, seeds: range) -> None:
    cut = 0
    for seed in seeds:
        text = Maker(seed).query()
        rewritten, predicates = pruned(tables, text)
        assert rows(tables, rewritten) == rows(tables, text), f"seed {seed}: {text}\n{rewritten}"
        cut += predicates
    assert cut > len(seeds) // 2
