"""What `make test` leaves to `make long`, which continuous integration runs: more cases of the same test."""

from __future__ import annotations

import os
from typing import Any

import pytest


def long(*values: Any, id: str | None = None) -> Any:
    """A case of a parametrised test that only `make long` runs."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)


def full(sample: int, count: int) -> int:
    """The number of random cases: a sample, or ``count`` for `make full-counts`, which takes hours."""
    return count if os.environ.get("BITLAKE_FULL_COUNTS") == "1" else sample
