"""Estimates against what really happens: index bytes and bytes saved a query, within a factor of 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitlake.demo.orders import orders
from bitlake.table.advise import sample
from bitlake.table.advise.advice import Advice
from bitlake.table.advise.measure import Measured
from tests.table.advise.tables import lineitem, stored

FACTOR = 2.0
LITTLE = 64 * 1024
"""Bytes of a query below which a factor says nothing: some requests."""


def near(estimated: float, real: float) -> bool:
    return real / FACTOR <= estimated <= real * FACTOR


def hold(advice: Advice) -> Measured:
    """Carry the advice out and compare."""
    measured = advice.apply().measured
    assert measured is not None
    for index in measured.indexes:
        assert near(index.estimated_bytes, index.bytes), index
    for column, (estimated, real) in measured.saved_by_column().items():
        assert near(estimated, real) or abs(estimated - real) <= LITTLE, (column, estimated, real)
    assert near(measured.estimated_saved, measured.saved) or abs(measured.saved) <= LITTLE
    return measured


@pytest.mark.parametrize("engine", ["spark", "python"])
def test_orders_looked_at_whole(tmp_path: Path, engine: str) -> None:
    """The benchmark's table: what is looked at whole is foretold nearly to the byte."""
    advice = stored(tmp_path, orders(250_000), 2).advise(engine=engine)
    measured = hold(advice)
    assert {i.column for i in measured.indexes} >= ({"user_id", "amount"} if engine == "spark" else set())
    for index in measured.indexes:
        assert abs(index.estimated_bytes - index.bytes) <= 0.02 * index.bytes + 1024
    for q in measured.questions:
        assert abs(q.estimated_before - q.before) <= 0.02 * q.before + LITTLE, q


def test_orders_by_a_sample_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "RUN_ROWS", 16_384)
    advice = stored(tmp_path, orders(400_000), 4).advise(sample=100_000)
    assert advice.sampled_rows < advice.rows / 2.5
    measured = hold(advice)
    assert {i.column for i in measured.indexes} >= {"user_id", "amount"}


def test_lineitem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "RUN_ROWS", 16_384)
    table = stored(tmp_path, lineitem(250_000), 2)
    asked = [
        "l_partkey = 4711",
        "l_partkey IN (17, 1700, 17000)",
        "l_extendedprice > 90000.00",
        "l_suppkey = 7 AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-01-05'",
        "l_shipmode = 'MAIL' AND l_quantity > 49",
    ]
    advice = table.advise(asked, sample=120_000)
    assert advice.sampled_rows < 200_000
    measured = hold(advice)
    assert measured.indexes


def test_a_table_with_a_primary_key(tmp_path: Path) -> None:
    """Its indexes come with the next compaction that writes its files."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = stored(tmp_path, orders(120_000), primary_key=("order_id",), options=options)
    table.compact(full=True)
    asked = ["user_id = 77", "amount < 1000.00"]
    advice = table.advise(asked)
    assert {c.column for c in advice.columns if c.action == "add"} <= {"user_id", "amount"}
    assert advice.statements()[-1].startswith("CALL sys.compact")
    assert advice.data_bytes > 0 and advice.questions[0].before > advice.questions[0].after
    assert "primary key" in str(advice)


def test_files_that_are_merged_by_key_gain_nothing(tmp_path: Path) -> None:
    table = stored(tmp_path, orders(3000), primary_key=("order_id",), options={"bucket": "1", "write-only": "true"})
    table.upsert(orders(3000))
    (found,) = (c for c in table.advise(["user_id = 5"]).columns if c.column == "user_id")
    assert found.action == "none" and "compact the table first" in found.reason


def test_tables_of_the_article_have_nothing_to_save(tmp_path: Path) -> None:
    """Six events and ten orders: any index would be larger than what it spares."""
    advice = stored(tmp_path, orders(10)).advise()
    assert [c.action for c in advice.columns] == ["none"] * 7
    assert advice.statements() == []
    assert "Nothing to change." in str(advice)
    measured = advice.apply().measured
    assert measured is not None and measured.indexes == () and measured.saved == 0
