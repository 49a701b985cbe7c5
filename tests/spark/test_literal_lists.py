"""Statements with long lists of literals change the same rows on Spark as in this process, and are not parsed whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine.test_literal_lists import STATEMENTS, rows

import bitlake
from bitlake.spark import engine

CHANGES = [s for s, short in STATEMENTS if short and s.startswith(("INSERT", "MERGE")) and "missing" not in s]


@pytest.mark.parametrize("statement", CHANGES, ids=range(len(CHANGES)))
def test_statements_change_the_same_rows(
    spark: Any, tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = engine.parse_statement
    monkeypatch.setattr(engine, "parse_statement", lambda text, **a: parsed.append(text) or parse(text, **a))
    changed = []
    for name in ("spark", "duckdb"):
        lake = bitlake.connect(str(tmp_path / name), spark=spark)
        lake.create_table("t", rows())
        lake.sql(statement, engine=name)
        changed.append(lake.table("t").to_arrow().sort_by("id"))
    assert changed[0] == changed[1]
    assert [len(text) < 400 for text in parsed] == [True]
