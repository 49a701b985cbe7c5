"""Measurements, and what is said about them: medians of interleaved warm runs, ratios, targets met or missed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

Run = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report.

    ``ours`` and ``base`` are medians (seconds, kilobytes, megabytes, or million rows a second).  With a base the ratio
    is held against ``target``; without, the value itself is.  A target of None: only measured.
    """

    name: str
    unit: str
    ours: float
    base: float | None
    base_name: str
    target: float | None
    runs: int
    note: str = ""

    @property
    def value(self) -> float:
        """What the target is about."""
        return self.ours if self.base is None else self.ours / self.base

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.target is None or self.value <= self.target

    @property
    def verdict(self) -> str:
        """``met``, or ``MISSED by 12 %`` of the target; ``measured`` where there is none."""
        if self.target is None:
            return "measured"
        return "met" if self.met else f"MISSED by {(self.value / self.target - 1) * 100:.0f} %"

    def as_dict(self) -> dict[str, object]:
        """For the JSON report."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"value": self.value, "met": self.met}


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call took."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def interleaved(runs: Mapping[str, Run], rounds: int, warmups: int = 1) -> dict[str, float]:
    """The median of ``rounds`` values of each run, taken in turns: A B C, B C A, … so that nobody always goes first.

    Each run returns its own measurement, so that what surrounds it (making a fresh table) is not measured.
    """
    return {name: statistics.median(v) for name, v in samples(runs, rounds, warmups).items()}


def samples(runs: Mapping[str, Run], rounds: int, warmups: int = 1) -> dict[str, list[float]]:
    """All measured values of :func:`interleaved`."""
    names = list(runs)
    values: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-warmups, rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            value = runs[name]()
            if turn >= 0:
                values[name].append(value)
    return values


def noise(values: Mapping[str, list[float]]) -> str:
    """How far the runs lie apart: for each name the quartiles around the median, in percent of it."""
    parts = []
    for name, found in values.items():
        middle = statistics.median(found)
        low, _, high = statistics.quantiles(found, n=4)
        parts.append(f"{name} -{(1 - low / middle) * 100:.0f}/+{(high / middle - 1) * 100:.0f} %")
    return "quartiles: " + ", ".join(parts)


def print_report(results: list[Result], about: Mapping[str, str], rows: int) -> None:
    """The table a person reads."""
    console = Console()
    console.width = max(console.width, 140)  # a log file has no width; wrapped cells are hard to read
    table = Table(title=f"bitlake bench: {rows:,} orders", title_style="bold")
    for column in ("question", "ours", "against", "", "ratio", "target", "verdict"):
        table.add_column(column, justify="right" if column in ("ours", "", "ratio", "target") else "left")
    for r in results:
        style = "dim" if r.target is None else "green" if r.met else "bold red"
        ratio = "" if r.base is None else _ratio(r.value)
        target = f"≤ {_target(r)}" if r.target is not None else ""
        base = "" if r.base is None else _amount(r.base, r.unit)
        table.add_row(r.name, _amount(r.ours, r.unit), r.base_name, base, ratio, target, f"[{style}]{r.verdict}[/]")
    console.print(table)
    for r in results:
        if r.note:
            console.print(f"  {r.name}: {r.note}", style="dim")
    for key, value in about.items():
        console.print(f"  {key}: {value}", style="dim")


def markdown(results: list[Result], about: Mapping[str, str], rows: int) -> str:
    """The same for the README."""
    lines = [
        f"| {rows:,} orders | bitlake | against | ratio | target | |",
        "| --- | ---: | --- | ---: | ---: | --- |",
    ]
    for r in results:
        against = r.base_name if r.base is None else f"{r.base_name}: {_amount(r.base, r.unit)}"
        ratio = "" if r.base is None else _ratio(r.value)
        target = f"≤ {_target(r)}" if r.target is not None else ""
        lines.append(f"| {r.name} | {_amount(r.ours, r.unit)} | {against} | {ratio} | {target} | {r.verdict} |")
    lines += [
        "",
        *(f"- {r.name}: {r.note}" for r in results if r.note),
        "",
        "Medians of warm runs that take turns, in one session. " + "; ".join(f"{k} {v}" for k, v in about.items()),
    ]
    return "\n".join(lines) + "\n"


def _ratio(value: float) -> str:
    return f"1/{1 / value:,.0f}" if 0 < value < 0.02 else f"{value:.3f}"


def _target(result: Result) -> str:
    assert result.target is not None
    if result.base is None:
        return _amount(result.target, result.unit)
    return f"1/{1 / result.target:,.0f}" if result.target < 0.02 else f"{result.target:.3g}"


def _amount(value: float, unit: str) -> str:
    if unit in ("KB", "MB"):
        return f"{value:,.0f} {unit}"
    if not unit:
        return f"{value:.3g}"
    if unit == "×":
        return f"{value:.2f} ×"
    if unit == "requests":
        return f"{value:,.0f}"
    if unit == "Mrow/s":
        return f"{value:,.1f} {unit}"
    if unit == "µs":
        return f"{value:,.1f} µs"
    if unit == "ms":
        value /= 1000
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
