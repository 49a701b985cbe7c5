"""The comparison's own logic: engines that disagree end it, and every round asks something new of all of them alike."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from bench.lineitem import DELETES, LOOKUPS, against, agree, in_turns
from bench.spark_peer import summary


def line(key: int, number: int, price: str) -> dict[str, Any]:
    return {
        "l_orderkey": key,
        "l_partkey": 7,
        "l_linenumber": number,
        "l_quantity": Decimal("2.00"),
        "l_extendedprice": Decimal(price),
    }


def test_a_summary_counts_and_adds_up_in_any_order() -> None:
    lines = [line(3, 1, "10.50"), line(1, 2, "0.25")]
    assert summary(lines) == ["2", "4", "14", "3", "4.00", "10.75"]
    assert summary(lines[::-1]) == summary(lines)
    assert summary([]) == ["0"] * 6


def test_engines_that_disagree_end_the_case() -> None:
    agree("after loading", {"bitlake": ["3"], "Iceberg": ["3"]})
    with pytest.raises(AssertionError, match=r"after loading: bitlake found \['3'\], others \{'Iceberg': \['4'\]\}"):
        agree("after loading", {"bitlake": ["3"], "Iceberg": ["4"], "Delta Lake": ["3"]})


@pytest.mark.parametrize("name", [*LOOKUPS, *DELETES])
def test_no_round_repeats_another(name: str) -> None:
    where = {**LOOKUPS, **DELETES}[name]
    assert len({where(turn) for turn in range(7)}) == 7


def test_months_go_on_over_the_end_of_a_year() -> None:
    month = DELETES["delete a month"]
    assert month(11) == "l_shipdate >= DATE '1993-12-01' AND l_shipdate < DATE '1994-01-01'"


def test_every_engine_is_given_the_same_turns() -> None:
    asked: list[tuple[str, int]] = []

    def run(who: str, turns: Any) -> float:
        asked.append((who, turns()))
        return 0.0

    runs = [in_turns(run, "a"), in_turns(run, "b")]
    for one in (runs[0], runs[1], runs[1], runs[0]):
        one()
    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


def test_one_line_for_each_peer_and_one_note() -> None:
    bench: Any = SimpleNamespace(say=lambda text: None)
    values = {"bitlake": [1.0, 2.0, 9.0], "Delta Lake": [4.0, 4.0, 5.0], "Iceberg": [1.0, 1.0, 1.0]}
    lines = against(bench, "part key", "bitlake", values, 3, "about it")
    assert [(r.base_name, r.value, r.met) for r in lines] == [("Delta Lake", 0.5, True), ("Iceberg", 2.0, False)]
    assert [r.note for r in lines] == ["about it", ""]
    alone = against(bench, "part key", "bitlake", {"bitlake": [1.0, 2.0, 9.0]}, 3, "alone")
    assert [(r.base, r.target, r.verdict) for r in alone] == [(None, None, "measured")]
