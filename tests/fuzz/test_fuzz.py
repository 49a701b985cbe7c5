"""Some thousand mutations of each format end in a result or in bitlake's own error; run.py tries far more."""

from __future__ import annotations

import pytest
from fuzz.run import fuzz
from fuzz.targets import TARGETS

COUNTS = {"parquet": 1000, "orc": 1000, "bsi": 1000, "parquet-footer": 1000}


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_are_survived(name: str) -> None:
    bugs = [bug for found in fuzz(name, COUNTS.get(name, 2000), 60.0) for bug in found.bugs]
    # A busy machine may stop a process for a second: a slow mutation must be slow again.
    slow = [b for b in bugs if ": took" in b]
    assert not [b for b in bugs if b not in slow] and len(slow) < 3, "\n".join(bugs[:5])
