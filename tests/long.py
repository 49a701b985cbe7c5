"""What `make test` leaves to `make long`, which continuous integration runs: more cases of the same test."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any, id: str | None = None) -> Any:
    """A case of a parametrised test that only `make long` runs."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)
