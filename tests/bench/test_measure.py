"""The benchmark's own arithmetic: a report that is wrong would be believed."""

from __future__ import annotations

from bench.measure import Result, interleaved, markdown


def result(ours: float, base: float | None, target: float) -> Result:
    return Result("append", "s", ours, base, "Spark", target, 3)


def test_a_missed_target_says_by_how_much() -> None:
    assert result(1.05, 1.0, 1.05).verdict == "met"
    assert result(2.1, 1.0, 1.05).verdict == "MISSED by 100 %"
    assert result(0.12, None, 0.09).verdict == "MISSED by 33 %"


def test_runs_take_turns_and_warm_up() -> None:
    order: list[str] = []

    def run(name: str, values: list[float]) -> float:
        order.append(name)
        return values.pop(0)

    a, b = [99.0, 3.0, 1.0, 2.0], [99.0, 5.0, 9.0, 7.0]
    medians = interleaved({"a": lambda: run("a", a), "b": lambda: run("b", b)}, rounds=3)
    assert medians == {"a": 2.0, "b": 7.0}, "the warm-up does not count"
    assert "".join(order[2:]) == "abbaab", "nobody always goes first"


def test_the_readme_table_says_what_the_screen_says() -> None:
    text = markdown([result(2.0, 1.0, 1.05), result(0.5, None, 0.6)], {"machine": "two cores"}, 4_000_000)
    assert "| append | 2.00 s | Spark: 1.00 s | 2.000 | ≤ 1.05 | MISSED by 90 % |" in text
    assert "| append | 500.0 ms | Spark |  | ≤ 600.0 ms | met |" in text
    assert "two cores" in text


def test_requests_are_numbers_and_not_seconds() -> None:
    line = Result("S3", "requests", 12, 1234, "pyarrow", None, 3)
    assert "| S3 | 12 | pyarrow: 1,234 | 1/103 |  | measured |" in markdown([line], {}, 1)
