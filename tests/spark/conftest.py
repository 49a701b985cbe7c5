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
