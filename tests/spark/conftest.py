"""What tests of Spark SQL share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bitlake


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[bitlake.Lake]:
    """An empty lake of a test's own; modules whose tests share one, or want tables in it, have another of this name."""
    yield bitlake.connect(str(tmp_path / "lake"), spark=spark)
    shutil.rmtree(tmp_path / "lake", ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many questions ``make doors`` asked; the tests may have run in several processes."""
    told = [dict(r.user_properties) for r in terminalreporter.stats.get("passed", []) if r.when == "call"]
    asked = [t for t in told if "doors" in t]
    if asked and asked[0]["doors"].partition(",")[0] != "few":
        questions = sum(t["questions"] for t in asked)
        terminalreporter.write_line(f"doors: {len(asked)} combinations ({asked[0]['doors']}), {questions} questions")
