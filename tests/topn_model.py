"""ORDER BY as a plain model, and the rows and orders that it is tried with."""

from __future__ import annotations

import functools
import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as hs

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(25, 2)),
        ("flag", pa.bool_()),
        ("grp", pa.string()),
    ]
)


def compare(a: Any, b: Any) -> int:
    """Spark's order of two values that are not NULL."""
    if isinstance(a, float):
        a, b = ((math.isnan(v), 0.0 if math.isnan(v) else v) for v in (a, b))
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    return (a > b) - (a < b)


def sorted_rows(rows: list[dict[str, Any]], order: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    def before(a: dict[str, Any], b: dict[str, Any]) -> int:
        for column, direction, nulls in order:
            x, y = a[column], b[column]
            if x is None or y is None:
                if x is not y:
                    return -1 if (x is None) == (nulls == "first") else 1
                continue
            if found := compare(x, y):
                return -found if direction == "desc" else found
        return 0

    return sorted(rows, key=functools.cmp_to_key(before))


def keyed(rows: list[dict[str, Any]], order: list[tuple[str, str, str]]) -> list[tuple[Any, ...]]:
    """Only what decides: rows that tie are interchangeable."""

    def plain(v: Any) -> Any:
        return ("NaN" if math.isnan(v) else v + 0.0) if isinstance(v, float) else v

    return [tuple(plain(r[c]) for c, _, _ in order) for r in rows]


def row_values() -> Any:
    return hs.fixed_dictionaries(
        {
            "i": hs.none() | hs.integers(-3, 3) | hs.sampled_from([-(2**31), 2**31 - 1]),
            "f": hs.none() | hs.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.5]),
            "s": hs.none() | hs.sampled_from(["", "a", "b" * 20, "b" * 20 + "c", "ü", "\ud7ff" * 17, "😀"]),
            "d": hs.none() | hs.decimals(-5, 5, places=2),
            "flag": hs.none() | hs.booleans(),
            "grp": hs.sampled_from(["x", "y", None]),
        }
    )


def orders() -> Any:
    one = hs.tuples(
        hs.sampled_from(["i", "f", "s", "d", "flag", "grp"]),
        hs.sampled_from(["asc", "desc"]),
        hs.sampled_from(["first", "last"]),
    )
    return hs.lists(one, min_size=1, max_size=3, unique_by=lambda o: o[0])
