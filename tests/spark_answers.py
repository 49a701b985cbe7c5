"""Terms and conditions whose answers by Spark are recorded, so that tests without Spark know them.

``tests/expressions/spark_answers.jsonl`` holds a line for each group: its rows are made again from ``seed`` and
``kind`` by :func:`computed_conditions.rows_of`, ``terms`` is a list of ``[sql, type, values]``, the values as Python
shows them and None for a term that fails for some row, and ``conditions`` a list of ``[sql, ids]``, the ids of the TRUE
rows as the bits of a hexadecimal number.  ``tests/spark/test_recorded_answers.py`` asks Spark again and, with
``BITLAKE_RECORD=1``, writes the file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
from computed_conditions import EXTREME, FIELDS, MILD, TYPES, Conditions, rows_of

from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.term_binder import KERNELS, TermBinder
from bitlake.expressions.terms import Typed, evaluate_term

FILE = Path(__file__).parent / "expressions" / "spark_answers.jsonl"
ROWS = 24


@dataclass
class Group:
    """Questions over the same rows in one time zone, and Spark's answers."""

    seed: int
    kind: str
    zone: str
    terms: list[tuple[str, str, list[str] | None]] = field(default_factory=list)
    conditions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def rows(self) -> pa.Table:
        """The rows."""
        return rows_of(MILD if self.kind == "mild" else EXTREME, ROWS, self.seed)


GROUPS = [
    Group(1, "mild", "UTC"),
    Group(2, "mild", "Europe/Berlin"),
    Group(3, "extreme", "UTC"),
    Group(4, "mild", "America/New_York"),
    Group(5, "mild", "+05:30"),
]


def recorded() -> list[Group]:
    """The groups of the file."""
    return [Group(**json.loads(line)) for line in FILE.read_text().splitlines()]


def write(groups: Iterable[Group]) -> None:
    """Write the file."""
    lines = [json.dumps(asdict(g), ensure_ascii=False) for g in groups]
    FILE.write_text("".join(line + "\n" for line in lines))


# Not 100L: sqlglot reads it as such a cast, which beside a decimal has more digits than the literal.
_TYPED = ("CAST(3 AS TINYINT)", "CAST(-7 AS SMALLINT)", "CAST(100 AS BIGINT)", "CAST(-128 AS TINYINT)")


class Constants(Conditions):
    """Terms over constants, which are folded."""

    def column(self, kind: str) -> str:
        """Mostly a constant."""
        if self.random.random() < 0.15:
            return super().column(kind)
        if kind in ("number", "integer"):
            whole = ("3", "12", "0", "1", "-1", "100", "2147483647", "9223372036854775807", *_TYPED)
            parts = (
                "0.1",
                "-3.25",
                "1e3",
                "1.5D",
                "2F",
                "0.000001BD",
                "123456789012345678901234567890",
                "99.995",
                "-0.5",
            )
            return self.one(*(whole if kind == "integer" else whole + parts))
        if kind == "boolean":
            return self.one("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)")
        return self.literal(kind)


def questions(group: Group) -> tuple[list[str], list[str]]:
    """Terms and conditions of a group."""
    made, constants, chance = Conditions(group.seed), Constants(group.seed), random.Random(group.seed)
    kinds = ("number", "number", "number", "text", "date", "instant", "clock")
    terms = [made.term(chance.choice(kinds), chance.choice((1, 1, 2))) for _ in range(110)]
    terms += [constants.term(chance.choice(kinds), chance.choice((1, 2))) for _ in range(50)]
    conditions = [made.condition() for _ in range(90)] + [constants.condition(1) for _ in range(20)]
    return list(dict.fromkeys(terms)), list(dict.fromkeys(conditions + list(comparisons(group.seed, 160))))


_NUMBERS = [
    "0",
    "1",
    "-1",
    "7.0",
    "1.5",
    "-3.25",
    "2.0D",
    "1e2",
    "127",
    "128",
    "-128.5",
    "32767.9",
    "2147483648",
    "0.1",
]
_NUMBERS += ["9223372036854775807", "9223372036854775808", "-9223372036854775808.5", "99999999.99", "99999999.995"]
_NUMBERS += [
    "1.5F",
    "0.1F",
    "1e300",
    "123456789012345678901234567890",
    "0.00001",
    "-0.0D",
    "100L",
    "3Y",
    "CAST(NULL AS INT)",
]
_DATES = [
    "'2026-01-05'",
    "'2026-1-5'",
    "' 2026-01-05 '",
    "'2026-01'",
    "'2026'",
    "DATE '2026-01-05'",
    "'2024-12-30 10:00:00'",
]
_DATES += ["TIMESTAMP '2026-01-05 00:00:00'", "TIMESTAMP '2026-01-05 01:30:00'", "TIMESTAMP_NTZ '2026-03-29 02:30:00'"]
_DATES += [
    "'2026-10-25 01:30:00'",
    "TIMESTAMP '2026-10-25 01:30:00'",
    "TIMESTAMP '2026-01-05 00:00:00+02:00'",
    "'1969-12-31T23:59:59.999999'",
]
_DATES += [
    "DATE '1582-10-04'",
    "TIMESTAMP '1900-03-01 23:59:59.999999'",
    "TIMESTAMP_NTZ '2026-01-05 00:00:00'",
    "DATE '2026-03-29'",
]
_TEXTS = [
    "'a'",
    "''",
    "'ab'",
    "'Paris'",
    "'12'",
    "12",
    "'2026-01-05'",
    "DATE '2026-01-05'",
    "'\ue000'",
    "'ΑΣ'",
    "'naïve'",
    "' ab '",
]
_OTHERS = {"BYTES": ["X'61'", "X''", "X'00FF'", "'a'"], "BOOLEAN": ["TRUE", "FALSE", "'true'", "'f'", "1", "0", "'no'"]}


def comparisons(seed: int, count: int) -> Iterator[str]:
    """Comparisons of a column with constants of its own and of other types."""
    chance = random.Random(f"comparisons {seed}")
    for _ in range(count):
        name = chance.choice([n for n in TYPES if n != "id"])
        kind = TYPES[name].partition("(")[0]
        pool = _DATES if kind in ("DATE", "TIMESTAMP") else _TEXTS if kind == "STRING" else _OTHERS.get(kind, _NUMBERS)
        if kind not in _OTHERS and pool is _NUMBERS and chance.random() < 0.1:
            pool = ["'7'", "' 1 '", "'1.5'", "'1e2'", "'-1'", "TRUE"]
        a, b = chance.choice(pool), chance.choice(pool)
        match chance.random():
            case p if p < 0.7:
                yield f"{name} {chance.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {a}"
            case p if p < 0.85:
                yield f"{name} {chance.choice(['', 'NOT '])}IN ({a}, {b})"
            case _:
                yield f"{name} {chance.choice(['', 'NOT '])}BETWEEN {a} AND {b}"


def bound_term(sql: str, zone: str) -> Typed:
    """A term with its type; raises InvalidRequest where it is not evaluated."""
    return TermBinder(FIELDS, zone).bind(parse_term(sql, zone))


def values(term: Typed, rows: pa.Table) -> list[str]:
    """The values of a term as the file has them."""
    batch = rows.combine_chunks().to_batches()[0]
    return shown(evaluate_term(term, {n: batch.column(n) for n in rows.column_names}, rows.num_rows, KERNELS))


def shown(found: pa.Array | pa.ChunkedArray) -> list[str]:
    """Values as the file has them; days and microseconds where Python's calendar ends."""
    try:
        return [repr(v).replace("datetime.", "") for v in found.to_pylist()]
    except OverflowError:
        return [str(v) for v in found.cast(pa.int32() if pa.types.is_date32(found.type) else pa.int64()).to_pylist()]


def true_rows(condition: str, rows: pa.Table, zone: str) -> str:
    """The rows for which bitlake finds a condition TRUE, as the file has them."""
    found = evaluate(bind(parse_predicate(condition, zone), FIELDS, zone), rows, FIELDS)
    return bits(found.to_pylist())


def bits(found: list[bool | None]) -> str:
    """The positions of TRUE as the bits of a hexadecimal number."""
    return f"{sum(1 << i for i, true in enumerate(found) if true):x}"
