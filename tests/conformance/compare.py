"""The same statement in the lake and in plain Spark: what each answers, and whether they agree."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import BitlakeError


class Answer:
    """Columns and rows of a statement, or how it failed."""

    def __init__(self, run: Callable[[], DataFrame], ordered: bool = False) -> None:
        self.error: str | None = None
        self.condition: str | None = None
        self.columns: list[tuple[str, str]] = []
        self.rows: list[Any] = []
        try:
            frame = run()
            self.columns = [(f.name, _type(f.dataType)) for f in frame.schema.fields]
            rows = [tuple(map(plain, row)) for row in frame.collect()]
            self.rows = rows if ordered else sorted(rows, key=repr)
        except (
            BitlakeError,
            PySparkException,
            Py4JJavaError,
            ValueError,
            OverflowError,
            TypeError,
        ) as e:  # Python has fewer years, and no lists as keys of maps
            self.error = f"{type(e).__name__}: {e}"
            self.condition = _condition(e)

    def agrees(self, other: Answer) -> bool:
        """Whether two answers are the same; where both refuse, whether Spark's error condition is the same.

        The lake's own errors have no condition of Spark's.
        """
        if self.error is not None or other.error is not None:
            if self.error is None or other.error is None:
                return False
            return self.condition in (None, other.condition) or other.condition is None
        return self.columns == other.columns and same(self.rows, other.rows)

    def __str__(self) -> str:
        if self.error is not None:
            return re.sub(r"\s+", " ", self.error)[:400]
        return f"{self.columns} {len(self.rows)} rows: {self.rows[:8]}"


def _condition(error: BaseException | None) -> str | None:
    """Spark's error condition, of the error or what it was raised from; a subquery's error is Spark's just as well."""
    while error is not None:
        if isinstance(error, PySparkException):
            condition = error.getCondition()
            return None if condition is None else str(condition).split(".")[0]
        if isinstance(error, Py4JJavaError):
            named = re.search(r"Exception: \[(\w+)", str(error))
            return None if named is None else named.group(1)
        error = error.__cause__
    return None


def _type(kind: T.DataType) -> str:
    return kind.simpleString()


def plain(value: Any) -> Any:
    """A value that can be compared and sorted."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return ("map", *sorted(((plain(k), plain(v)) for k, v in value.items()), key=repr))
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, T.VariantVal):
        return value.toJson()
    return value


def same(a: Any, b: Any) -> bool:
    """Whether values are equal; floats may differ by the order of addition."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Decimal) != isinstance(b, Decimal):
        return False
    return bool(a == b)
