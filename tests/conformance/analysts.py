"""Random queries as analysts write them, over columns of every atomic type: what DuckDB is to answer as Spark does.

Joins, filters, groups, windows, common table expressions, subqueries, CASE, casts, arithmetic of all numbers, functions
of texts and dates, and set operations.  Every choice comes from the seed.  Rows are few, with NULL, negative numbers,
zeros, texts of other scripts, and many equal values; results depend on no order that the query does not give.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

INT, BIG, DEC, DBL, FLT, STR, DAY, BOOL, TIME, LOCAL, BIN = (
    *("int", "bigint", "decimal", "double", "float", "string", "date", "boolean", "timestamp", "timestamp_ntz"),
    "binary",
)
TABLES: dict[str, dict[str, str]] = {
    "sales": {
        "id": BIG,
        "item": INT,
        "shop": INT,
        "grade": INT,
        "qty": INT,
        "price": DEC,
        "rate": DEC,
        "weight": DBL,
        "factor": FLT,
        "day": DAY,
        "at": TIME,
        "local": LOCAL,
        "status": STR,
        "note": STR,
        "code": BIN,
        "paid": BOOL,
    },
    "items": {"item": INT, "name": STR, "cost": DEC, "stock": BIG, "since": DAY, "active": BOOL},
    "shops": {"shop": INT, "city": STR, "country": STR, "opened": DAY, "area": DBL, "budget": DEC},
}
_STATUSES = ("NEW", "PAID", "SENT", "BACK")
_NOTES = ("", " padded ", "50% off", "a_b", "größe", "naïve café", "Ωmega", "x", "Quick brown fox", "ÀÉÎ", "10", "-3")
_TEXTS = (*_STATUSES, *_NOTES, "Oslo", "Bern", "NO", "CH", "lamp", "desk")
NUMBERS = (INT, BIG, DEC, DBL)


def rows(seed: int = 7) -> dict[str, pa.Table]:
    """The rows of each table."""
    r = random.Random(seed)

    def column(count: int, kind: pa.DataType, make: Callable[[], Any], nulls: float = 0.12) -> pa.Array:
        return pa.array([None if r.random() < nulls else make() for _ in range(count)], kind)

    def money(digits: int, scale: int) -> Decimal:
        return Decimal(r.randint(-(10**digits) // 3, 10**digits)).scaleb(-scale)

    def date() -> dt.date:
        return dt.date(2023, 11, 1) + dt.timedelta(days=r.randint(0, 500))

    def moment() -> dt.datetime:
        return dt.datetime(2023, 11, 1, 5) + dt.timedelta(seconds=r.randint(0, 40_000_000))

    n = 80
    sales = pa.table(
        {
            "id": pa.array(range(1, n + 1), pa.int64()),
            "item": column(n, pa.int32(), lambda: r.randint(1, 14)),
            "shop": column(n, pa.int16(), lambda: r.randint(1, 6)),
            "grade": column(n, pa.int8(), lambda: r.randint(-3, 3)),
            "qty": column(n, pa.int32(), lambda: r.randint(-2, 9)),
            "price": column(n, pa.decimal128(15, 2), lambda: money(r.choice((2, 4, 7)), 2)),
            "rate": column(n, pa.decimal128(5, 4), lambda: money(4, 4)),
            "weight": column(n, pa.float64(), lambda: r.choice((0.0, 0.5, -1.25, 3.75, 12.125, 100.1, 2.675))),
            "factor": column(n, pa.float32(), lambda: r.choice((0.5, 1.5, -2.25, 8.0))),
            "day": column(n, pa.date32(), date),
            "at": column(n, pa.timestamp("us", "UTC"), moment),
            "local": column(n, pa.timestamp("us"), moment),
            "status": column(n, pa.string(), lambda: r.choice(_STATUSES)),
            "note": column(n, pa.string(), lambda: r.choice(_NOTES)),
            "code": column(n, pa.binary(), lambda: r.choice((b"", b"\x00", b"a", b"\xff\x01"))),
            "paid": column(n, pa.bool_(), lambda: r.random() < 0.5),
        }
    )
    items = pa.table(
        {
            "item": pa.array(range(1, 13), pa.int32()),
            "name": column(12, pa.string(), lambda: r.choice(("lamp", "desk", "Chair", "größe", "sofa"))),
            "cost": column(12, pa.decimal128(12, 3), lambda: money(6, 3)),
            "stock": column(12, pa.int64(), lambda: r.choice((0, 5, 5_000_000_000, -1))),
            "since": column(12, pa.date32(), date),
            "active": column(12, pa.bool_(), lambda: r.random() < 0.6),
        }
    )
    shops = pa.table(
        {
            "shop": pa.array(range(1, 6), pa.int32()),
            "city": column(5, pa.string(), lambda: r.choice(("Oslo", "Bern", "Bergen"))),
            "country": column(5, pa.string(), lambda: r.choice(("NO", "CH"))),
            "opened": column(5, pa.date32(), date),
            "area": column(5, pa.float64(), lambda: r.choice((10.5, 250.0, 80.25))),
            "budget": column(5, pa.decimal128(18, 4), lambda: money(9, 4)),
        }
    )
    return {"sales": sales, "items": items, "shops": shops}


@dataclass(frozen=True)
class Query:
    """A query's text; ``ordered``: its rows come in an order that is part of the answer."""

    text: str
    ordered: bool = False


@dataclass(frozen=True)
class Column:
    """A column in scope, as it is named."""

    name: str
    kind: str


class Analyst:
    """Writes one query for a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.count = 0

    def chance(self, p: float) -> bool:
        """Whether something happens."""
        return self.r.random() < p

    def new(self, prefix: str) -> str:
        """A name that is not in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def query(self) -> Query:
        """A query of one of the usual shapes."""
        shapes = (self.rows_of, self.groups, self.groups, self.windows, self.derived, self.cte, self.subqueries)
        shape = self.r.choice((*shapes, self.union, self.distinct))
        return shape()

    # --- sources ---

    def source(self) -> tuple[str, list[Column]]:
        """FROM, and the columns it gives."""
        if self.chance(0.45):
            table = self.r.choice(("sales", "sales", "items", "shops"))
            return table, [Column(c, k) for c, k in TABLES[table].items()]
        join = self.r.choice(("JOIN", "JOIN", "LEFT JOIN", "INNER JOIN", "RIGHT JOIN", "FULL JOIN"))
        columns = [Column(f"s.{c}", k) for c, k in TABLES["sales"].items()]
        if self.chance(0.25):
            key = self.r.choice(("item", "shop"))
            other = {"item": "items", "shop": "shops"}[key]
            mine = [Column(c.name if c.name != f"s.{key}" else key, c.kind) for c in columns]
            return f"sales s {join} {other} o USING ({key})", [
                *mine,
                *(Column(f"o.{c}", k) for c, k in TABLES[other].items() if c != key),
            ]
        more = f" AND {self.condition([Column('i.stock', BIG), Column('s.status', STR)])}" if self.chance(0.2) else ""
        text = f"sales s {join} items i ON s.item = i.item{more}"
        columns += [Column(f"i.{c}", k) for c, k in TABLES["items"].items()]
        if self.chance(0.3):
            text += f" {self.r.choice(('JOIN', 'LEFT JOIN'))} shops h ON s.shop = h.shop"
            columns += [Column(f"h.{c}", k) for c, k in TABLES["shops"].items()]
        return text, columns

    # --- expressions ---

    def pick(self, columns: Sequence[Column], *kinds: str) -> str | None:
        """A column of one of these kinds."""
        known = [c.name for c in columns if c.kind in kinds]
        return self.r.choice(known) if known else None

    def literal(self, kind: str) -> str:
        """A literal of a kind."""
        r = self.r
        match kind:
            case "int" | "bigint":
                return str(r.choice((0, 1, 2, 3, 5, 10, 100, -1)))
            case "decimal":
                return r.choice(("0.5", "1.00", "0.05", "10.25", "100.0", "0.1"))
            case "double":
                return r.choice(("1.5D", "0.25D", "1e1", "2.0D"))
            case "string":
                return "'" + r.choice(_TEXTS).replace("'", "''") + "'"
            case "date":
                return f"DATE '2024-{r.randint(1, 12):02}-{r.randint(1, 28):02}'"
            case "boolean":
                return r.choice(("true", "false"))
            case "timestamp":
                return f"TIMESTAMP '2024-{r.randint(1, 12):02}-10 0{r.randint(0, 9)}:30:00'"
        return f"TIMESTAMP_NTZ '2024-{r.randint(1, 12):02}-10 0{r.randint(0, 9)}:30:00'"

    def value(self, columns: Sequence[Column], kind: str, depth: int = 2) -> str:
        """An expression of a kind (roughly: numbers may be of another kind of number)."""
        column = self.pick(columns, kind)
        if depth <= 0 or self.chance(0.35):
            return column or self.literal(kind)
        again = lambda k: self.value(columns, k, depth - 1)  # noqa: E731
        makers: dict[str, Callable[[], str]] = {
            INT: lambda: self.whole(again),
            BIG: lambda: self.whole(again),
            DEC: lambda: self.money(again),
            DBL: lambda: self.double(again),
            STR: lambda: self.string(again, columns),
            DAY: lambda: self.date(again),
            BOOL: lambda: f"({self.condition(columns, depth - 1)})",
        }
        if self.chance(0.15):
            return self.branch(columns, kind, depth - 1)
        return makers[kind]() if kind in makers else (column or self.literal(kind))

    def whole(self, again: Callable[[str], str]) -> str:
        """A whole number."""
        r = self.r
        return r.choice(
            (
                lambda: f"{again(INT)} {r.choice('+-*')} {again(INT)}",
                lambda: f"({again(INT)} + {again(BIG)})",
                lambda: f"{again(INT)} % {r.choice((2, 3, 7))}",
                lambda: f"{r.choice(('year', 'month', 'day', 'quarter', 'dayofweek', 'weekofyear'))}({again(DAY)})",
                lambda: f"length({again(STR)})",
                lambda: f"datediff({again(DAY)}, {again(DAY)})",
                lambda: f"abs({again(INT)})",
                lambda: f"CAST({again(DEC)} AS INT)",
                lambda: f"instr({again(STR)}, 'a')",
                lambda: f"EXTRACT({r.choice(('YEAR', 'MONTH'))} FROM {again(DAY)})",
                lambda: f"({again(INT)} div {r.choice((2, 3))})",
            )
        )()

    def money(self, again: Callable[[str], str]) -> str:
        """A decimal."""
        r = self.r
        return r.choice(
            (
                lambda: f"{again(DEC)} {r.choice('+-*')} {again(DEC)}",
                lambda: f"{again(DEC)} * (1 - {again(DEC)})",
                lambda: f"{again(DEC)} / {r.choice((2, 4, '1.5', '100'))}",
                lambda: f"{again(DEC)} * {again(INT)}",
                lambda: f"round({again(DEC)}, {r.choice((0, 1, 2))})",
                lambda: f"CAST({again(INT)} AS DECIMAL(12, 2))",
                lambda: f"-{again(DEC)}" if r.random() < 0.5 else f"abs({again(DEC)})",
            )
        )()

    def double(self, again: Callable[[str], str]) -> str:
        """A double."""
        r = self.r
        return r.choice(
            (
                lambda: f"{again(DBL)} {r.choice('+-*')} {again(r.choice(NUMBERS))}",
                lambda: f"({again(INT)} / {r.choice((2, 3, 10))})",
                lambda: f"CAST({again(r.choice((INT, DEC, BIG)))} AS DOUBLE)",
                lambda: f"round({again(DBL)}, {r.choice((0, 1, 2))})",
                lambda: f"{again(DBL)} / nullif({again(DBL)}, 0)",
            )
        )()

    def string(self, again: Callable[[str], str], columns: Sequence[Column]) -> str:
        """A text."""
        r = self.r
        return r.choice(
            (
                lambda: f"upper({again(STR)})",
                lambda: f"lower({again(STR)})",
                lambda: f"trim({again(STR)})",
                lambda: f"substring({again(STR)}, {r.choice((1, 2, -3))}, {r.choice((1, 2, 4))})",
                lambda: f"concat({again(STR)}, '-', {again(STR)})",
                lambda: f"{again(STR)} || {again(STR)}",
                lambda: f"replace({again(STR)}, 'a', 'bc')",
                lambda: f"coalesce({again(STR)}, 'none')",
                lambda: f"CAST({again(r.choice((INT, DEC, DAY)))} AS STRING)",
                lambda: f"lpad({again(STR)}, 6, '*')",
                lambda: f"left({again(STR)}, 2)",
                lambda: f"date_format({again(DAY)}, 'yyyy-MM')",
            )
        )()

    def date(self, again: Callable[[str], str]) -> str:
        """A date."""
        r = self.r
        return r.choice(
            (
                lambda: f"date_add({again(DAY)}, {r.choice((1, 7, 30))})",
                lambda: f"date_sub({again(DAY)}, 3)",
                lambda: f"add_months({again(DAY)}, {r.choice((1, -1, 12))})",
                lambda: f"({again(DAY)} + INTERVAL {r.choice(('1 MONTH', '10 DAYS', '1 YEAR'))})",
                lambda: f"trunc({again(DAY)}, '{r.choice(('MONTH', 'YEAR', 'QUARTER'))}')",
                lambda: f"last_day({again(DAY)})",
            )
        )()

    def branch(self, columns: Sequence[Column], kind: str, depth: int) -> str:
        """CASE and the like."""
        a, b = self.value(columns, kind, depth), self.value(columns, kind, depth)
        return self.r.choice(
            (
                f"CASE WHEN {self.condition(columns, depth)} THEN {a} ELSE {b} END",
                f"CASE WHEN {self.condition(columns, depth)} THEN {a} END",
                f"coalesce({a}, {b})",
                f"if({self.condition(columns, depth)}, {a}, {b})",
                f"nullif({a}, {self.literal(kind)})",
                f"{self.r.choice(('greatest', 'least'))}({a}, {b})",
            )
        )

    def condition(self, columns: Sequence[Column], depth: int = 2) -> str:
        """A condition."""
        r = self.r
        if depth > 0 and self.chance(0.35):
            a, b = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return r.choice((f"{a} AND {b}", f"({a} OR {b})", f"NOT ({a})"))
        kind = r.choice([c.kind for c in columns])
        column = self.pick(columns, kind)
        assert column is not None
        if kind in (BIN, FLT):
            return f"{column} IS {r.choice(('', 'NOT '))}NULL"
        left = self.value(columns, kind, depth - 1) if self.chance(0.4) else column
        return r.choice(
            (
                lambda: f"{left} {r.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {self.literal(kind)}",
                lambda: f"{column} {r.choice(('=', '<', '>='))} {self.value(columns, kind, 1)}",
                lambda: f"{left} BETWEEN {self.literal(kind)} AND {self.literal(kind)}",
                lambda: f"{column} IN ({self.literal(kind)}, {self.literal(kind)}, {self.literal(kind)})",
                lambda: f"{column} IS {r.choice(('', 'NOT '))}NULL",
                lambda: (
                    f"{column} {r.choice(('', 'NOT '))}LIKE '{r.choice(('%a%', 'P%', '%_d', 'a!_b', '__'))}'"
                    if kind == STR
                    else f"{column} > {self.literal(kind)}"
                ),
            )
        )()

    def aggregate(self, columns: Sequence[Column]) -> str:
        """An aggregate."""
        r = self.r
        kind = r.choice(NUMBERS)
        inner = self.value(columns, kind, 1)
        some = self.pick(columns, STR, DAY, INT, DEC, BOOL) or "1"
        made = r.choice(
            (
                "count(*)",
                f"count({some})",
                f"count(DISTINCT {some})",
                f"sum({inner})",
                f"sum({inner})",
                f"avg({inner})",
                f"min({some})",
                f"max({some})",
                f"sum(CASE WHEN {self.condition(columns, 0)} THEN {inner} ELSE 0 END)",
            )
        )
        return f"{made} FILTER (WHERE {self.condition(columns, 0)})" if self.chance(0.08) else made

    # --- shapes ---

    def where(self, columns: Sequence[Column], p: float = 0.7) -> str:
        """WHERE, or nothing."""
        return f" WHERE {self.condition(columns)}" if self.chance(p) else ""

    def items(self, columns: Sequence[Column], count: int) -> list[str]:
        """Items of a SELECT list, most under a name."""
        kinds = (*NUMBERS, STR, DAY, BOOL, STR, DEC, *(c.kind for c in columns))
        made = [self.value(columns, self.r.choice(kinds)) for _ in range(count)]
        return [f"{m} AS {self.new('c')}" for m in made]

    def ends(self, count: int, limit: float = 0.4) -> tuple[str, bool]:
        """ORDER BY all columns with a LIMIT, or nothing."""
        if not self.chance(0.6):
            return "", False
        places = list(range(1, count + 1))
        self.r.shuffle(places)
        words = ("", " DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST")
        text = " ORDER BY " + ", ".join(f"{p}{self.r.choice(words)}" for p in places)
        if self.chance(limit):
            text += f" LIMIT {self.r.choice((1, 5, 20))}" + (" OFFSET 2" if self.chance(0.2) else "")
        return text, True

    def rows_of(self) -> Query:
        """Rows of a filter."""
        source, columns = self.source()
        if self.chance(0.2):
            items = [c.name for c in columns if c.kind not in (BIN, FLT)][:5]
        else:
            items = self.items(columns, self.r.randint(1, 4))
        if self.chance(0.35):  # Spark makes a name
            items = [i if self.chance(0.5) else i.split(" AS c")[0] for i in items]
            if len({*items}) < len(items):
                items = self.items(columns, 2)
        end, ordered = self.ends(len(items))
        return Query(f"SELECT {', '.join(items)} FROM {source}{self.where(columns)}{end}", ordered)

    def groups(self) -> Query:
        """GROUP BY with aggregates, HAVING and ORDER BY."""
        source, columns = self.source()
        keys = [self.value(columns, self.r.choice((STR, INT, DAY, BOOL, STR)), 1) for _ in range(self.r.randint(0, 2))]
        aggregates = [self.aggregate(columns) for _ in range(self.r.randint(1, 3))]
        named = self.chance(0.75)
        items = [f"{k} AS {self.new('k')}" for k in keys] + [
            f"{a} AS {self.new('a')}" if named else a for a in aggregates
        ]
        text = f"SELECT {', '.join(items)} FROM {source}{self.where(columns)}"
        if keys:
            places = [
                str(n + 1) if self.chance(0.5) else i.rsplit(" AS ")[-1] for n, i in enumerate(items[: len(keys)])
            ]
            listed = ", ".join(str(p) for p in places)
            plain = all(not p.isdigit() for p in places)
            text += f" GROUP BY ROLLUP ({listed})" if plain and self.chance(0.1) else f" GROUP BY {listed}"
            if self.chance(0.3):
                text += f" HAVING {self.r.choice((f'{aggregates[0]} IS NOT NULL', 'count(*) > 1', 'sum(1) < 40'))}"
        end, ordered = self.ends(len(items))
        return Query(text + end, ordered)

    def windows(self) -> Query:
        """Window functions."""
        r = self.r
        part = r.choice(("", "PARTITION BY status ", "PARTITION BY shop ", "PARTITION BY item, paid "))
        order = r.choice(
            ("ORDER BY id", "ORDER BY day, id", "ORDER BY price DESC, id", "ORDER BY weight NULLS LAST, id")
        )
        frame = r.choice(
            ("", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING")
        )
        functions = [
            f"{r.choice(('row_number', 'rank', 'dense_rank'))}() OVER ({part}{order})",
            f"{r.choice(('lag', 'lead'))}({r.choice(('price', 'qty', 'status', 'day'))}) OVER ({part}{order})",
            f"{r.choice(('sum', 'avg', 'min', 'max', 'count'))}({r.choice(('price', 'qty', 'weight'))}) "
            f"OVER ({part}{order}{frame})",
            f"{r.choice(('sum', 'avg', 'count'))}({r.choice(('price', 'qty', 'id'))}) OVER ({part.strip()})",
            f"first_value({r.choice(('note', 'price'))}) OVER ({part}{order})",
            f"ntile(3) OVER ({part}{order})",
        ]
        chosen = r.sample(functions, r.randint(1, 2))
        columns = [Column(c, k) for c, k in TABLES["sales"].items()]
        items = ["id", *(f"{f} AS {self.new('w')}" if self.chance(0.7) else f for f in chosen)]
        text = f"SELECT {', '.join(items)} FROM sales{self.where(columns, 0.5)}"
        if self.chance(0.3):
            inner = f"SELECT id, status, row_number() OVER ({part}{order}) AS n FROM sales{self.where(columns, 0.5)}"
            text, items = f"SELECT id, status FROM ({inner}) t WHERE n <= {r.randint(1, 3)}", ["id", "status"]
        end, ordered = self.ends(len(items))
        return Query(text + end, ordered)

    def inner(self) -> tuple[str, list[Column]]:
        """A grouped query as a source, with the columns it gives."""
        text = (
            "SELECT item, status, count(*) AS n, sum(price) AS total, avg(weight) AS w, max(day) AS latest FROM sales"
            f"{self.where([Column(c, k) for c, k in TABLES['sales'].items()], 0.5)} GROUP BY item, status"
        )
        kinds = {"item": INT, "status": STR, "n": BIG, "total": DEC, "w": DBL, "latest": DAY}
        return text, [Column(c, k) for c, k in kinds.items()]

    def derived(self) -> Query:
        """A query over a query."""
        text, columns = self.inner()
        columns = [Column(f"t.{c.name}", c.kind) for c in columns]
        source = f"({text}) t"
        if self.chance(0.5):
            source += " JOIN items i ON i.item = t.item"
            columns += [Column(f"i.{c}", k) for c, k in TABLES["items"].items()]
        items = self.items(columns, self.r.randint(1, 3))
        end, ordered = self.ends(len(items))
        return Query(f"SELECT {', '.join(items)} FROM {source}{self.where(columns)}{end}", ordered)

    def cte(self) -> Query:
        """Common table expressions, one used twice."""
        text, columns = self.inner()
        renamed = [Column(f"a.{c.name}", c.kind) for c in columns]
        items = self.items(renamed, 2)
        query = (
            f"WITH g AS ({text}), top AS (SELECT item, max(total) AS best FROM g GROUP BY item) "
            f"SELECT {', '.join(items)}, b.best AS best FROM g a JOIN top b ON a.item = b.item"
            f"{self.where(renamed, 0.4)}"
        )
        end, ordered = self.ends(len(items) + 1)
        return Query(query + end, ordered)

    def subqueries(self) -> Query:
        """IN, EXISTS and scalar subqueries."""
        columns = [Column(f"s.{c}", k) for c, k in TABLES["sales"].items()]
        shops = [Column(f"h.{c}", k) for c, k in TABLES["shops"].items()]
        tests = (
            f"s.item {self.r.choice(('', 'NOT '))}IN (SELECT item FROM items WHERE active)",
            f"{self.r.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM shops h WHERE h.shop = s.shop"
            f"{f' AND {self.condition(shops, 1)}' if self.chance(0.5) else ''})",
            f"s.price > (SELECT avg(price) FROM sales{' WHERE paid' if self.chance(0.5) else ''})",
            "s.qty = (SELECT max(x.qty) FROM sales x WHERE x.item = s.item)",
            "s.day >= (SELECT min(since) FROM items)",
        )
        items = ["s.id AS id", *self.items(columns, 1)]
        end, ordered = self.ends(len(items))
        more = f" AND {self.condition(columns, 1)}" if self.chance(0.4) else ""
        return Query(f"SELECT {', '.join(items)} FROM sales s WHERE {self.r.choice(tests)}{more}{end}", ordered)

    def union(self) -> Query:
        """Set operations, of columns whose types may have to be widened."""
        kinds = [self.r.choice((STR, INT, DEC, DAY, DBL)) for _ in range(self.r.randint(1, 2))]
        sides = []
        for table in self.r.sample(["sales", "items", "shops"], 2):
            columns = [Column(c, k) for c, k in TABLES[table].items()]
            given = [self.value(columns, self.r.choice((INT, DEC, BIG)) if k in (INT, DEC) else k, 1) for k in kinds]
            listed = ", ".join(f"{v} AS v{i}" for i, v in enumerate(given))
            sides.append(f"SELECT {listed} FROM {table}{self.where(columns, 0.4)}")
        word = self.r.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT"))
        end, ordered = self.ends(len(kinds))
        return Query(f"{sides[0]} {word} {sides[1]}{end}", ordered)

    def distinct(self) -> Query:
        """SELECT DISTINCT."""
        source, columns = self.source()
        items = self.items([c for c in columns if c.kind not in (BIN, FLT)], self.r.randint(1, 2))
        end, ordered = self.ends(len(items))
        return Query(f"SELECT DISTINCT {', '.join(items)} FROM {source}{self.where(columns)}{end}", ordered)
