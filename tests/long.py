"""What `make test` leaves to `make long` and `make exhaustive`, which continuous integration runs: more cases.

Files that Spark's Python workers or other processes import cannot import this one: they use ``pytest.param``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def long(*values: Any, id: str | None = None) -> Any:
    """A case of a parametrised test that only `make long` runs."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)


def exhaustive(*values: Any, id: str | None = None) -> Any:
    """A case of a parametrised test that only `make exhaustive` runs."""
    return pytest.param(*values, marks=pytest.mark.exhaustive, id=id)


def few(values: Iterable[Any], *kept: Any) -> list[Any]:
    """The values of a parameter, or tuples of several: `make test` runs those kept, `make long` the others."""
    return [v if v in kept else long(*v) if isinstance(v, tuple) else long(v) for v in values]


def some(values: Iterable[Any], *kept: Any) -> list[Any]:
    """The values of a parameter, or tuples of several: `make test` runs those kept, `make exhaustive` the others."""
    return [v if v in kept else _exhaustive(v) for v in values]


def every(step: int, values: Iterable[Any]) -> list[Any]:
    """The values of a parameter, or tuples of several.

    `make test` runs every ``step``-th value, `make exhaustive` the others.
    """
    return [_exhaustive(v) if i % step else v for i, v in enumerate(values)]


def _exhaustive(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        return value if value.marks else value._replace(marks=[pytest.mark.exhaustive])
    return exhaustive(*value) if isinstance(value, tuple) else exhaustive(value)


def halves(*parameters: Iterable[Any]) -> list[Any]:
    """Every combination of the parameters' values: `make test` runs one half of them, `make long` the other.

    The positions of the values add up to an even number in the first half, so that it has every value of two
    parameters, and every pair of values of three or more.
    """
    numbered = [list(enumerate(values)) for values in parameters]
    cases = [tuple(zip(*combination, strict=True)) for combination in product(*numbered)]
    return [long(*values) if sum(positions) % 2 else values for positions, values in cases]


def full(sample: int, count: int) -> int:
    """The number of random cases: a sample, or ``count`` for `make full-counts`, which takes hours."""
    return count if os.environ.get("BITLAKE_FULL_COUNTS") == "1" else sample
