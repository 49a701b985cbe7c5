"""A lake for the pages of Paimon's Spark documentation: what they say is run as it is written there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of

import bitlake
from bitlake.sql.parser import split_statements

Run = Callable[[str], list[list[Any]]]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[bitlake.Lake]:
    """An empty lake; what a page SETs is forgotten after it."""
    before = {k: v for k, v in spark.conf.getAll.items() if k.startswith("spark.paimon.")}
    mode = spark.conf.get("spark.sql.sources.partitionOverwriteMode")
    yield bitlake.connect(str(tmp_path / "lake"), spark=spark)
    for name in spark.conf.getAll:
        if name.startswith("spark.paimon.") and name not in before:
            spark.conf.unset(name)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)


@pytest.fixture
def run(lake: bitlake.Lake) -> Run:
    """Run the statements of a text one by one; the rows of the last."""

    def every(text: str) -> list[list[Any]]:
        frame = None
        for statement in split_statements(text):
            frame = lake.sql(statement)
        return [] if frame is None or not frame.columns else rows_of(frame)

    return every
