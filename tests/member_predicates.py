"""Random rows with arrays and maps, and predicates about their members."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa

from bitlake.expressions.sql_text import quote

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("n", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("days", pa.list_(pa.date32())),
        ("line", pa.string()),
    ]
)
INDEXES = {
    "bitlake.index.by_tag": "bitmap(element(tags))",
    "bitlake.index.by_n": "bloom-filter(element(n))",
    "bitlake.index.by_key": "bitmap(keys(m))",
    "bitlake.index.by_key.version": "1",
    "bitlake.index.by_day": "bitmap(element(days))",
    "bitlake.index.by_word": "bitmap(element(split(line, ' ')))",
}
WORDS = ["", "a", "b", "é", "e\u0301", "日本", "😀", "O'x", "a\\b\n"]
DAY = dt.date(2026, 1, 1)


def rows(draw: random.Random, first: int, count: int) -> pa.Table:
    def some(make: Any) -> list[Any] | None:
        return None if draw.random() < 0.1 else [make() for _ in range(draw.choice((0, 1, 1, 2, 5)))]

    def word() -> str | None:
        return None if draw.random() < 0.1 else draw.choice(WORDS)

    def row(i: int) -> dict[str, Any]:
        keys = some(lambda: draw.choice(WORDS))
        return {
            "id": i,
            "tags": some(word),
            "n": some(lambda: None if draw.random() < 0.1 else draw.randrange(40)),
            "m": None if keys is None else [(k, draw.choice((None, 1))) for k in dict.fromkeys(keys)],
            "days": some(lambda: None if draw.random() < 0.1 else DAY + dt.timedelta(days=draw.randrange(9))),
            "line": None if draw.random() < 0.1 else " ".join(draw.choices(WORDS, k=draw.randrange(4))),
        }

    return pa.Table.from_pylist([row(i) for i in range(first, first + count)], SCHEMA)


def leaf(draw: random.Random) -> str:
    word, other = (quote(draw.choice(WORDS))[1:-1] for _ in range(2))
    number = draw.randrange(50)
    return draw.choice(
        (
            f"array_contains(tags, '{word}')",
            f"array_contains(n, {number})",
            f"array_contains(days, DATE '{DAY + dt.timedelta(days=number % 11)}')",
            f"arrays_overlap(n, array({number}, {number % 7}))",
            f"array_contains(split(line, ' '), '{word}')",
            f"arrays_overlap(split(line, ' '), array('{word}', '{other}'))",
            f"exists(split(line, ' '), w -> w = '{word}')",
            f"arrays_overlap(tags, array('{word}', '{other}'))",
            f"exists(tags, x -> x = '{word}')",
            f"exists(n, x -> x IN ({number}, {number + 1}))",
            f"map_contains_key(m, '{word}')",
            f"array_contains(tags, '{word}') {draw.choice(('=', '<>'))} {draw.choice(('true', 'false'))}",
            f"array_contains(n, {number}) IS {draw.choice(('NULL', 'NOT NULL'))}",
            f"map_contains_key(m, '{word}') IN (false, {draw.choice(('true', 'false'))})",
            "size(tags) > 0",
            "size(m) >= 1",
            "size(n) = 2",
            f"id % 3 = {number % 3}",
        )
    )


def predicate(draw: random.Random, depth: int = 2) -> str:
    if depth == 0 or draw.random() < 0.4:
        return leaf(draw) if draw.random() < 0.7 else f"NOT ({leaf(draw)})"
    joined = draw.choice((" AND ", " OR ")).join(predicate(draw, depth - 1) for _ in range(2))
    return f"({joined})" if draw.random() < 0.8 else f"NOT ({joined})"
