"""Random Spark SQL queries over a few tables, whose answers do not depend on the order of rows or of evaluation.

Every choice comes from the seed.  A statement is a text with the settings and parameters that it runs under.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

INT, TEXT, DECIMAL, DATE, BOOL, TIME = "int", "text", "decimal", "date", "bool", "timestamp"
STRUCT, ARRAY, MAP = "struct", "array", "map"
TABLES: dict[str, list[tuple[str, str]]] = {
    "t1": [("id", INT), ("k", INT), ("s", TEXT), ("n", DECIMAL), ("d", DATE), ("ts", TIME), ("b", BOOL), ("p", TEXT)],
    "t2": [("id", INT), ("k", INT), ("s", TEXT), ("Mixed Name", INT)],
    "t3": [("id", INT), ("st", STRUCT), ("arr", ARRAY), ("m", MAP), ("k", INT)],
    "db2.t1": [("id", INT), ("k", INT), ("extra", TEXT)],
}
JOINS = ("JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
PLAIN = (INT, TEXT, DECIMAL, DATE, BOOL, TIME)
PATTERNS = ("'a%'", "'%b'", "'_'", "'a_'", "'%'", r"'x\\%'")
WORDS = ("a", "b", "c", "B", "", "aa", "x%", "o''k")


@dataclass(frozen=True)
class Column:
    """A column in scope: how it is named with and without its source, and its type."""

    name: str
    kind: str
    source: str = ""

    @property
    def quoted(self) -> str:
        return self.name if self.name.replace("_", "a").isalnum() else f"`{self.name}`"

    @property
    def full(self) -> str:
        return f"{self.source}.{self.quoted}" if self.source else self.quoted


@dataclass
class Statement:
    """A query, the values of its parameters, and the session's settings."""

    text: str
    args: Any = None
    settings: dict[str, str] = field(default_factory=dict)
    ordered: bool = False
    """Whether the query sorts its rows by all columns, so that their order is part of the answer."""


class Generator:
    """Makes statements from a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.number = 0
        self.args: dict[str, Any] | None = None
        self.ansi = True
        self.ctes: list[dict[str, list[Column]]] = []
        self.plain: set[str] = set()
        self.sorted = ""

    def statement(self) -> Statement:
        self.number, self.ctes, self.sorted = 0, [], ""
        settings: dict[str, str] = {}
        self.ansi = self.r.random() > 0.15
        if not self.ansi:
            settings["spark.sql.ansi.enabled"] = "false"
        self.args = {} if self.r.random() < 0.15 else None
        if self.chance(0.04):
            return self.by_pattern(settings)
        text, _ = self.query(self.r.choice((1, 2, 2, 3)))
        ordered = bool(self.sorted) and text.endswith(self.sorted)
        args: Any = self.args or None
        if args is not None and self.chance(0.4):
            text, args = positional(text, args)
        if self.ansi and args is None and "'" not in text and '"' not in text and self.r.random() < 0.3:
            settings["spark.sql.ansi.doubleQuotedIdentifiers"] = "true"
            text = text.replace("`", '"')
        if args is None and self.r.random() < 0.04:
            quoted = text.replace("\\", "\\\\").replace("'", "\\'")
            text = f"EXECUTE IMMEDIATE '{quoted}'"
        self.add_settings(settings)
        return Statement(text, args, settings, ordered)

    def add_settings(self, settings: dict[str, str]) -> None:
        """Settings that must not change the lake's answer, or change it as they change Spark's."""
        if self.chance(0.12):
            settings["spark.sql.session.timeZone"] = self.r.choice(("America/New_York", "Asia/Kolkata", "+05:00"))
        if self.chance(0.15):
            settings["spark.sql.caseSensitive"] = "true"
        if self.chance(0.3):
            settings["spark.paimon.read.spark-path"] = self.r.choice(("spark", "spark", "driver", "workers"))

    def by_pattern(self, settings: dict[str, str]) -> Statement:
        """Columns chosen by a regular expression in backquotes."""
        settings["spark.sql.parser.quotedRegexColumnNames"] = "true"
        pattern = self.r.choice(("(id|k)", "(id)?+.+", ".*", "[a-k]", "s.*", "(?i)ID"))
        name = self.r.choice(("t1", "t2", "t3"))
        source = self.r.choice(("", f"{name}."))
        where = self.r.choice(("", " WHERE id > 5", " WHERE k = 2"))
        return Statement(f"SELECT {source}`{pattern}` FROM {name}{where}", None, settings)

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    # --- values ------------------------------------------------------------------------------------------------------

    def literal(self, kind: str) -> str:
        r = self.r
        if self.chance(0.06):
            return "NULL"
        if kind == INT:
            value: Any = r.choice((0, 1, 2, 3, 5, 7, 11, -1, 40, 1000))
            return self.parameter(value) if self.args is not None and self.chance(0.5) else str(value)
        if kind == TEXT:
            word = r.choice(WORDS)
            plain = word.replace("''", "'")
            return self.parameter(plain) if self.args is not None and self.chance(0.5) else f"'{word}'"
        if kind == DECIMAL:
            return r.choice(("0.5", "1.25", "10", "-3.00", "99999.99"))
        if kind == DATE:
            return f"DATE '2024-{r.randint(1, 12):02}-{r.randint(1, 28):02}'"
        if kind == TIME:
            return f"TIMESTAMP '2024-{r.randint(1, 12):02}-{r.randint(1, 28):02} {r.randint(0, 23):02}:30:00'"
        return r.choice(("TRUE", "FALSE"))

    def parameter(self, value: Any) -> str:
        assert self.args is not None
        name = f"p{len(self.args)}"
        self.args[name] = value
        return f":{name}"

    def ref(self, column: Column, scope: list[Column]) -> str:
        alone = sum(c.name.lower() == column.name.lower() for c in scope) == 1
        if alone and (not column.source or self.chance(0.5)):
            return column.quoted.upper() if self.chance(0.05) else column.quoted
        return column.full

    def pick(self, scope: list[Column], kind: str) -> str | None:
        same = [c for c in scope if c.kind == kind]
        if same and self.chance(0.9):
            return self.ref(self.r.choice(same), scope)
        if kind == INT:
            for nested, form in ((STRUCT, "{}.a"), (ARRAY, "size({})"), (MAP, "{}['a']"), (ARRAY, "get({}, 0)")):
                found = [c for c in scope if c.kind == nested]
                if found and self.chance(0.6):
                    return form.format(self.r.choice(found).full)
            times = [c for c in scope if c.kind == TIME]
            if times and self.chance(0.5):
                return f"hour({self.r.choice(times).full})"
        if kind == TEXT:
            found = [c for c in scope if c.kind == STRUCT]
            if found:
                return f"{self.r.choice(found).full}.b"
        return self.ref(self.r.choice(same), scope) if same else None

    def value(self, scope: list[Column], kind: str, depth: int = 1) -> str:
        picked = self.pick(scope, kind)
        if picked is None or self.chance(0.12):
            return self.literal(kind)
        if depth <= 0 or self.chance(0.55):
            return picked
        inner = self.value(scope, kind, depth - 1)
        forms = {
            INT: ("{a} + {b}", "{a} - {b}", "abs({a})", "coalesce({a}, {b})", "{a} % 7", "if({a} > 3, {a}, {b})"),
            TEXT: ("concat({a}, {b})", "upper({a})", "coalesce({a}, {b})", "substr({a}, 1, 1)", "{a} || 'z'"),
            DECIMAL: ("{a} + {b}", "coalesce({a}, {b})", "-{a}"),
            DATE: ("date_add({a}, 3)", "coalesce({a}, {b})", "greatest({a}, {b})"),
            BOOL: ("NOT {a}", "coalesce({a}, {b})", "({a} OR {b})"),
            TIME: ("coalesce({a}, {b})", "date_trunc('DAY', {a})", "{a} + INTERVAL 90 MINUTES", "greatest({a}, {b})"),
        }[kind]
        return "(" + self.r.choice(forms).format(a=picked, b=inner) + ")"

    def condition(self, scope: list[Column], depth: int = 2, outer: bool = True) -> str:
        r = self.r
        if depth > 0 and self.chance(0.4):
            parts = [self.condition(scope, depth - 1, outer) for _ in range(r.choice((2, 2, 3)))]
            joined = r.choice((" AND ", " OR ")).join(parts)
            return f"NOT ({joined})" if self.chance(0.15) else f"({joined})"
        kind = r.choice(PLAIN)
        column = self.pick(scope, kind)
        if column is None:
            column, kind = self.pick(scope, INT) or "1", INT
        choice = r.random()
        if choice < 0.4:
            left, right = (column, self.value([], kind)) if self.chance(0.75) else (column, self.value(scope, kind))
            if not self.ansi and kind in (INT, DATE) and self.chance(0.3):
                right = r.choice(("'NaN'", "'3'", "'2024-05-05'", "''"))
            operator = r.choice(("=", "=", "<", "<=", ">", ">=", "<>", "<=>", "!="))
            return f"{left} {operator} {right}" if self.chance(0.8) else f"{right} {operator} {left}"
        if choice < 0.5:
            return f"{column} IS {r.choice(('', 'NOT '))}NULL"
        if choice < 0.62:
            values = ", ".join(self.literal(kind) for _ in range(r.randint(1, 4)))
            return f"{column} {r.choice(('', '', 'NOT '))}IN ({values})"
        if choice < 0.7:
            return f"{column} BETWEEN {self.literal(kind)} AND {self.literal(kind)}"
        if choice < 0.78 and kind == TEXT:
            return f"{column} {r.choice(('', 'NOT '))}LIKE {r.choice(PATTERNS)}"
        if choice < 0.9 and outer:
            return self.subquery_condition(scope)
        return self.value(scope, BOOL)

    def subquery_condition(self, scope: list[Column]) -> str:
        name, alias = self.r.choice(list(TABLES)), self.fresh("q")
        inner = [Column(n, k, alias) for n, k in TABLES[name]]
        ints = [c for c in inner if c.kind == INT]
        near = self.condition(inner, 0, False)
        outer = [c for c in scope if c.kind == INT and c.source]
        correlated = (
            f" AND {self.r.choice(ints).full} = {self.r.choice(outer).full}" if outer and self.chance(0.6) else ""
        )
        source = f"FROM {name} {alias} WHERE {near}{correlated}"
        column = self.pick(scope, INT) or "1"
        form = self.r.random()
        if form < 0.35:
            return f"{self.r.choice(('', 'NOT '))}EXISTS (SELECT {self.r.choice(('1', '*', f'{alias}.id'))} {source})"
        if form < 0.75:
            return f"{column} {self.r.choice(('', '', 'NOT '))}IN (SELECT {self.r.choice(ints).full} {source})"
        total = self.r.choice(("count(*)", "max({})", "min({})")).format(self.r.choice(ints).full)
        return f"{column} {self.r.choice(('<', '>=', '='))} (SELECT {total} {source})"

    # --- sources -----------------------------------------------------------------------------------------------------

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """A relation of a FROM clause, and its columns."""
        r = self.r
        ctes = [(name, columns) for frame in self.ctes for name, columns in frame.items()]
        if ctes and self.chance(0.6):
            name, _ = r.choice(ctes)
            shadowed = [c for n, c in ctes if n == name]
            alias = self.fresh("c")
            return f"{name} AS {alias}", [Column(c.name, c.kind, alias) for c in shadowed[-1]]
        if depth > 0 and self.chance(0.3):
            return self.derived(depth)
        shadowing = {n for n, _ in ctes}
        name = r.choice([t for t in TABLES if t not in shadowing])
        return self.table(name)

    def table(self, name: str) -> tuple[str, list[Column]]:
        r = self.r
        columns = TABLES[name]
        short = name.split(".")[-1]
        written = name
        if "." not in name and self.chance(0.15):
            written = f"default.{name}"
        if self.chance(0.08):
            written = f"IDENTIFIER('{written}')" if self.chance(0.5) else ".".join(f"`{p}`" for p in written.split("."))
        if self.chance(0.25) and not self.used_plain(short):
            return written, [
                Column(n, k, written if "IDENTIFIER" not in written and self.chance(0.3) else short) for n, k in columns
            ]
        alias = self.fresh("x")
        if self.chance(0.12):
            names = [self.fresh("c") for _ in columns]
            form = r.choice(("{} AS {}({})", "({}) AS {}({})", "(({})) {}({})"))
            return form.format(written, alias, ", ".join(names)), [
                Column(n, k, alias) for n, (_, k) in zip(names, columns, strict=True)
            ]
        form = r.choice(("{} {}", "{} AS {}", "{} {}", "({}) {}", "((({}))) AS {}"))
        return form.format(written, alias), [Column(n, k, alias) for n, k in columns]

    def used_plain(self, short: str) -> bool:
        found = short in self.plain
        self.plain.add(short)
        return found

    def derived(self, depth: int) -> tuple[str, list[Column]]:
        plain, self.plain = self.plain, set()
        text, columns = self.query(depth - 1)
        self.plain = plain
        alias = self.fresh("s")
        if self.chance(0.2):
            names = [self.fresh("c") for _ in columns]
            return f"({text}) AS {alias}({', '.join(names)})", [
                Column(n, c.kind, alias) for n, c in zip(names, columns, strict=True)
            ]
        return f"({text}) AS {alias}", [Column(c.name, c.kind, alias) for c in columns]

    def from_clause(self, depth: int) -> tuple[str, list[Column], list[Column]]:
        """The text after FROM, the columns that may be named, and those that a star gives."""
        r = self.r
        self.plain = set()
        text, scope = self.source(depth)
        star = list(scope)
        for _ in range(r.choice((0, 0, 0, 1, 1, 2))):
            other, columns = self.source(depth - 1)
            kind = r.choice(
                (
                    "JOIN",
                    "JOIN",
                    "INNER JOIN",
                    "LEFT JOIN",
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                )
            )
            lefts = [c for c in scope if c.kind == INT]
            rights = [c for c in columns if c.kind == INT]
            if not lefts or not rights:
                text = f"{text} CROSS JOIN {other}"
                scope, star = scope + columns, star + columns
                continue
            left, right = r.choice(lefts), r.choice(rights)
            extra = f" AND {self.condition(scope + columns, 0, False)}" if self.chance(0.35) else ""
            text = f"{text} {kind} {other} ON {left.full} = {right.full}{extra}"
            if "SEMI" not in kind and "ANTI" not in kind:
                scope, star = scope + columns, star + columns
        arrays = [c for c in scope if c.kind == ARRAY]
        if arrays and self.chance(0.3):
            alias, item = self.fresh("v"), self.fresh("e")
            view = r.choice(("LATERAL VIEW explode({}) {} AS {}", "LATERAL VIEW OUTER explode({}) {} AS {}"))
            text = f"{text} {view.format(r.choice(arrays).full, alias, item)}"
            added = [Column(item, INT, alias)]
            scope, star = scope + added, star + added
        elif self.chance(0.06) and scope:
            alias = self.fresh("l")
            ints = [c for c in scope if c.kind == INT]
            if ints:
                inner = f"SELECT count(*) AS n FROM t2 WHERE t2.k = {r.choice(ints).full}"
                text = f"{text} JOIN LATERAL ({inner}) {alias}"
                added = [Column("n", INT, alias)]
                scope, star = scope + added, star + added
        return text, scope, star

    # --- queries -----------------------------------------------------------------------------------------------------

    def query(self, depth: int) -> tuple[str, list[Column]]:
        kind = self.r.random()
        if depth > 0 and kind < 0.16:
            return self.with_query(depth)
        if depth > 0 and kind < 0.3:
            return self.set_operation(depth)
        if kind < 0.38:
            return self.pipes(depth)
        if kind < 0.41:
            name = self.r.choice(list(TABLES))
            return f"TABLE {name}", [Column(n, k) for n, k in TABLES[name]]
        if kind < 0.45:
            return self.pivot()
        if kind < 0.62:
            return self.grouped(depth)
        return self.select(depth)

    def select(self, depth: int) -> tuple[str, list[Column]]:
        r = self.r
        source, scope, star = self.from_clause(depth)
        hint = r.choice(("/*+ BROADCAST(t2) */ ", "/*+ COALESCE(1) */ ")) if self.chance(0.05) else ""
        where = f" WHERE {self.condition(scope)}" if self.chance(0.75) else ""
        names = [c.name.lower() for c in star]
        clean = len(set(names)) == len(names)
        if self.chance(0.3) and clean:
            items, columns = self.stars(star)
        else:
            items, columns = self.items(scope)
        distinct = "DISTINCT " if self.chance(0.12) and all(c.kind in PLAIN for c in columns) else ""
        text = f"SELECT {hint}{distinct}{items} FROM {source}{where}"
        return self.ordered(text, columns), columns

    def stars(self, star: list[Column]) -> tuple[str, list[Column]]:
        r = self.r
        bare = [Column(c.name, c.kind) for c in star]
        if self.chance(0.5):
            return "*", bare
        if self.chance(0.4) and len(star) > 1:
            gone = r.choice(star)
            return f"* EXCEPT ({gone.quoted})", [c for c in bare if c.name != gone.name]
        source = r.choice(star).source
        return f"{source}.*", [Column(c.name, c.kind) for c in star if c.source == source]

    def items(self, scope: list[Column]) -> tuple[str, list[Column]]:
        items, columns = [], []
        for _ in range(self.r.randint(1, 4)):
            kind = self.r.choice(PLAIN)
            name = self.fresh("o")
            form = self.r.random()
            nested = [c for c in scope if c.kind in (STRUCT, ARRAY, MAP)]
            if form < 0.1 and nested:
                column = self.r.choice(nested)
                text, kind = column.full, column.kind
            elif form < 0.2:
                text, kind = self.window(scope), INT
            elif form < 0.25:
                low = self.value(scope, INT)
                text, kind = f"(SELECT max(z.k) FROM t2 z WHERE z.id < {low if 'NULL' not in low else 5})", INT
            else:
                text = self.value(scope, kind, 2)
                text = f"CAST({text} AS DECIMAL(20, 2))" if kind == DECIMAL else text
                text = f"CAST(NULL AS {_SQL[kind]})" if text == "NULL" else text
            items.append(f"{text} AS {name}")
            columns.append(Column(name, kind))
        return ", ".join(items), columns

    def window(self, scope: list[Column]) -> str:
        part, order = self.value(scope, INT), self.value(scope, INT)
        function = self.r.choice(("rank()", "dense_rank()", f"count({order})", f"max({order})", "count(*)"))
        return f"{function} OVER (PARTITION BY {part} ORDER BY {order})"

    def ordered(self, text: str, columns: list[Column]) -> str:
        if not all(c.kind in PLAIN for c in columns) or not self.chance(0.3):
            return text
        order = [str(i) for i in range(1, len(columns) + 1)]
        self.r.shuffle(order)
        words = [o + self.r.choice(("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")) for o in order]
        limit = f" LIMIT {self.r.choice((0, 1, 3, 10))}" if self.chance(0.7) else ""
        offset = f" OFFSET {self.r.choice((0, 2))}" if limit and self.chance(0.2) else ""
        self.sorted = f"{text} ORDER BY {', '.join(words)}{limit}{offset}"
        return self.sorted

    def grouped(self, depth: int) -> tuple[str, list[Column]]:
        r = self.r
        source, scope, _ = self.from_clause(depth)
        where = f" WHERE {self.condition(scope)}" if self.chance(0.6) else ""
        plain = [c for c in scope if c.kind in PLAIN]
        keys = r.sample(plain, k=min(len(plain), r.choice((0, 0, 1, 1, 2))))
        items, columns = [], []
        for key in keys:
            name = self.fresh("g")
            items.append(f"{self.ref(key, scope)} AS {name}")
            columns.append(Column(name, key.kind))
        for _ in range(r.randint(1, 3)):
            name, value = self.fresh("n"), self.value(scope, INT)
            text_value = self.pick(scope, TEXT) or "'t'"
            function = r.choice(
                ("count(*)", f"count({value})", f"sum({value})", f"count(DISTINCT {value})", f"max({value})")
                + (f"min({value})", f"size(collect_set({text_value}))", f"count(*) FILTER (WHERE {value} > 2)")
            )
            items.append(f"{function} AS {name}")
            columns.append(Column(name, INT))
        group = ""
        if keys:
            refs = [k.full for k in keys]
            form = r.random()
            if form < 0.6 or len(keys) < 2:
                group = " GROUP BY " + (
                    ", ".join(refs) if self.chance(0.7) else ", ".join(map(str, range(1, len(keys) + 1)))
                )
            elif form < 0.75:
                group = f" GROUP BY ROLLUP ({', '.join(refs)})"
            elif form < 0.85:
                group = f" GROUP BY CUBE ({', '.join(refs)})"
            else:
                group = f" GROUP BY GROUPING SETS (({', '.join(refs)}), ({refs[0]}), ())"
        having = f" HAVING count(*) {r.choice(('>', '>=', '<'))} {r.randint(1, 9)}" if self.chance(0.25) else ""
        text = f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}"
        return self.ordered(text, columns), columns

    def set_operation(self, depth: int) -> tuple[str, list[Column]]:
        kinds = [self.r.choice((INT, TEXT, DATE)) for _ in range(self.r.randint(1, 3))]
        names = [self.fresh("u") for _ in kinds]
        parts = []
        for _ in range(self.r.choice((2, 2, 3))):
            source, scope, _ = self.from_clause(depth - 1)
            items = []
            for name, kind in zip(names, kinds, strict=True):
                text = self.value(scope, kind)
                items.append(f"{'CAST(NULL AS ' + _SQL[kind] + ')' if text == 'NULL' else text} AS {name}")
            where = f" WHERE {self.condition(scope, 1)}" if self.chance(0.6) else ""
            part = f"SELECT {', '.join(items)} FROM {source}{where}"
            parts.append(f"({part})" if self.chance(0.3) else part)
        text = parts[0]
        for part in parts[1:]:
            text += f" {self.r.choice(('UNION ALL', 'UNION', 'INTERSECT', 'EXCEPT', 'EXCEPT ALL', 'MINUS'))} {part}"
        return text, [Column(n, k) for n, k in zip(names, kinds, strict=True)]

    def with_query(self, depth: int) -> tuple[str, list[Column]]:
        frame: dict[str, list[Column]] = {}
        parts = []
        for _ in range(self.r.choice((1, 1, 2))):
            # A name of a table hides the table, also in the expressions that follow.
            name = self.r.choice(("t1", "t2", self.fresh("w"))) if self.chance(0.5) else self.fresh("w")
            if name in frame:
                continue
            self.ctes.append(frame)
            text, columns = self.query(depth - 1)
            self.ctes.pop()
            if self.chance(0.2):
                names = [self.fresh("c") for _ in columns]
                parts.append(f"{name}({', '.join(names)}) AS ({text})")
                columns = [Column(n, c.kind) for n, c in zip(names, columns, strict=True)]
            else:
                parts.append(f"{name} AS ({text})")
            frame = {**frame, name: columns}
        self.ctes.append(frame)
        body, out = self.select(depth - 1) if self.chance(0.6) else self.grouped(depth - 1)
        self.ctes.pop()
        return f"WITH {', '.join(parts)} {body}", out

    def pipes(self, depth: int) -> tuple[str, list[Column]]:
        name = self.r.choice(list(TABLES))
        short = name.split(".")[-1]
        scope = [Column(n, k, short) for n, k in TABLES[name]]
        text = f"{self.r.choice(('TABLE', 'FROM'))} {name}"
        for _ in range(self.r.randint(1, 3)):
            step = self.r.random()
            if step < 0.4:
                text += f" |> WHERE {self.condition(scope, 1, False)}"
            elif step < 0.55:
                added = self.fresh("x")
                text += f" |> EXTEND {self.value(scope, INT)} + 1 AS {added}"
                scope = [*scope, Column(added, INT)]
            elif step < 0.7:
                alias = self.fresh("a")
                text += f" |> AS {alias}"
                scope = [Column(c.name, c.kind, alias) for c in scope]
            elif step < 0.85 and "id" in [c.name for c in scope]:
                alias = self.fresh("j")
                key = next(c for c in scope if c.name == "id")
                text += f" |> LEFT SEMI JOIN t2 AS {alias} ON {alias}.id = {key.full}"
            else:
                items, columns = self.items(scope)
                return f"{text} |> SELECT {items}", columns
        return text, [Column(c.name, c.kind) for c in scope]

    def pivot(self) -> tuple[str, list[Column]]:
        if self.chance(0.5):
            columns = [Column("k", INT), Column("a", INT), Column("b", INT)]
            return "SELECT * FROM (SELECT k, s, id FROM t1) PIVOT (max(id) FOR s IN ('a' AS a, 'b' AS b))", columns
        text = "SELECT * FROM t2 UNPIVOT (val FOR col IN (k, `Mixed Name`))"
        return text, [Column("id", INT), Column("s", TEXT), Column("col", TEXT), Column("val", INT)]


def positional(text: str, args: dict[str, Any]) -> tuple[str, list[Any]]:
    """The query with a question mark for each named parameter, and the values in the order of the text."""
    order = re.findall(r":(p\d+)\b", text)
    return re.sub(r":p\d+\b", "?", text), [args[name] for name in order]


_SQL = {INT: "INT", TEXT: "STRING", DECIMAL: "DECIMAL(20, 2)", DATE: "DATE", BOOL: "BOOLEAN", TIME: "TIMESTAMP"}
