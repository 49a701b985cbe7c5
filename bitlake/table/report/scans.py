"""What recorded scans say together: how much of the table they did not need to read, and what they asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bitlake.table.scan_log import ScanRecord

_NAMED = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """Scans that ask the same columns the same way (``status =``); sums over them, sizes in bytes."""

    what: str
    scans: int
    bytes_total: int
    bytes_touched: int
    ms: float

    @property
    def skipped(self) -> float:
        """Which part of the table's bytes they did not read, 0 to 1."""
        return max(0.0, 1 - self.bytes_touched / self.bytes_total) if self.bytes_total else 0.0


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """All recorded scans: in sum, by what they asked (those that read most first), and files by what skipped them."""

    all: Asked
    first_ms: int
    last_ms: int
    asked: tuple[Asked, ...]
    more: int
    files_read: int
    files_skipped: tuple[tuple[str, int], ...]


def scan_facts(scans: Sequence[ScanRecord]) -> ScanFacts | None:
    """The scans summed up; None if none was recorded."""
    if not scans:
        return None
    groups: dict[str, list[ScanRecord]] = {}
    skipped: dict[str, int] = {}
    for s in scans:
        terms = sorted({f"{t.column} {t.op}" for t in s.terms})
        groups.setdefault(" and ".join(terms) or "no condition", []).append(s)
        for why, files in s.files_skipped.items():
            skipped[why] = skipped.get(why, 0) + files
    asked = sorted((_asked(what, some) for what, some in groups.items()), key=lambda a: -a.bytes_touched)
    times = [s.time_ms for s in scans]
    return ScanFacts(
        _asked("all", scans),
        min(times),
        max(times),
        tuple(asked[:_NAMED]),
        len(asked[_NAMED:]),
        sum(s.files_read for s in scans),
        tuple(sorted(skipped.items(), key=lambda item: -item[1])),
    )


def _asked(what: str, scans: Iterable[ScanRecord]) -> Asked:
    told = list(scans)
    return Asked(
        what,
        len(told),
        sum(s.bytes_total for s in told),
        sum(min(s.bytes_touched, s.bytes_total) for s in told),
        sum(s.plan_ms + s.read_ms for s in told),
    )
