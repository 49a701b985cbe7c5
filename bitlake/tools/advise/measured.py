"""What advice brought after it was applied: real bytes and seconds beside the estimates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bitlake.formatting import human_bytes, printable, shortened

QUESTIONS_SHOWN = 10
LAYOUTS = {"sort": "sort by", "zorder": "z-order by", "bucket": "buckets", "page": "rows a page"}
"""What each kind of layout advice does, in words."""


@dataclass(frozen=True, slots=True)
class MeasuredIndex:
    """An index that was built: its bytes over all files, estimated and real."""

    column: str
    index_type: str
    estimated_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredQuestion:
    """Bytes that a question read of data and indexes, before and after; estimated and real."""

    where: str
    weight: float
    columns: tuple[str, ...]
    """The condition's."""
    estimated_before: float
    before: int
    estimated_after: float
    after: int

    @property
    def saved(self) -> int:
        """Bytes that it really reads less."""
        return self.before - self.after

    @property
    def estimated_saved(self) -> float:
        """Bytes that it should read less."""
        return self.estimated_before - self.estimated_after


@dataclass(frozen=True, slots=True)
class MeasuredLayout:
    """A change of layout: the bytes that a query it was made for reads on average, estimated and measured.

    None for changes that do not save bytes (buckets), and for page sizes, which apply only to files written later.
    """

    kind: str
    value: str
    estimated_before: float | None
    before: float | None
    estimated_after: float | None
    after: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """How advice turned out, beside what was expected; seconds of building hold reading and committing, too."""

    indexes: tuple[MeasuredIndex, ...]
    questions: tuple[MeasuredQuestion, ...]
    estimated_seconds: float
    seconds: float
    layout: tuple[MeasuredLayout, ...] = ()

    @property
    def estimated_saved(self) -> float:
        """Bytes that a query should read less, on average over the questions by their weights."""
        before, after = self.expected_bytes_of() or (0.0, 0.0)
        return before - after

    @property
    def saved(self) -> float:
        """Bytes that a query really reads less, on average."""
        before, after = self.bytes_of() or (0.0, 0.0)
        return before - after

    @property
    def index_bytes(self) -> int:
        """Of all indexes that were built."""
        return sum(i.bytes for i in self.indexes)

    @property
    def estimated_index_bytes(self) -> int:
        """What they should have."""
        return sum(i.estimated_bytes for i in self.indexes)

    def bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """What a query really reads before and after, on average; with a column, those about it alone (None: none)."""
        return self._means(column, "before", "after")

    def expected_bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """What it should have read before and after."""
        return self._means(column, "estimated_before", "estimated_after")

    def _means(self, column: str | None, *members: str) -> tuple[float, float] | None:
        asked = [q for q in self.questions if column is None or q.columns == (column,)]
        weight = sum(q.weight for q in asked)
        if not weight:
            return None
        before, after = (sum(q.weight * getattr(q, m) for q in asked) / weight for m in members)
        return before, after

    def saved_by_column(self) -> dict[str, tuple[float, float]]:
        """Of each column that questions are about alone: (estimated, real) bytes saved for each query on it."""
        found = {}
        for name in dict.fromkeys(q.columns[0] for q in self.questions if len(q.columns) == 1):
            expected, real = self.expected_bytes_of(name), self.bytes_of(name)
            if expected is not None and real is not None:
                found[name] = (expected[0] - expected[1], real[0] - real[1])
        return found

    def text(self) -> str:
        """For people: estimates beside what happened."""
        return printable(measured_text(self))

    __str__ = text

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "indexes": [asdict(i) for i in self.indexes],
            "questions": [asdict(q) for q in self.questions],
            "layout": [asdict(item) for item in self.layout],
            "estimated_seconds": round(self.estimated_seconds, 3),
            "seconds": round(self.seconds, 3),
            "index_bytes": self.index_bytes,
            "estimated_index_bytes": self.estimated_index_bytes,
            "bytes_saved": round(self.saved),
            "estimated_bytes_saved": round(self.estimated_saved),
        }


def measured_text(m: Measured) -> str:
    """What happened beside what was expected."""
    wide = max(16, *(len(i.column) + 1 for i in m.indexes)) if m.indexes else 16
    lines = [f"{'Measured':<{wide + 2}}  estimated        real"]

    def line(name: str, estimated: str, real: str) -> None:
        lines.append(f"  {name:<{wide}}{estimated:>11} {real:>11}")

    for i in m.indexes:
        line(f"{i.column}", human_bytes(i.estimated_bytes), human_bytes(i.bytes))
    line("building", f"{m.estimated_seconds:.2f} s", f"{m.seconds:.2f} s")
    line("saved a query", human_bytes(m.estimated_saved), human_bytes(m.saved))
    for laid in m.layout:
        lines.append(f"  {LAYOUTS[laid.kind]} {laid.value.replace(',', ', ')} took {laid.seconds:.1f} s")
        for label, estimated, real in (
            ("bytes before", laid.estimated_before, laid.before),
            ("bytes after", laid.estimated_after, laid.after),
        ):
            if estimated is not None and real is not None:
                line(f"  {label}", human_bytes(estimated), human_bytes(real))
    asked = [q for q in m.questions if q.estimated_before != q.estimated_after or q.before != q.after]
    if asked:
        lines += ["", "Bytes of a query, before and after (estimated)"]
        shown = sorted(asked, key=lambda q: -q.saved)[:QUESTIONS_SHOWN]
        most = min(60, max(len(q.where) for q in shown))
        for q in shown:
            text = shortened(q.where, most)
            lines.append(
                f"  {text:<{most}}  {human_bytes(q.before):>9} → {human_bytes(q.after):>9}"
                f"  ({human_bytes(q.estimated_before)} → {human_bytes(q.estimated_after)})"
            )
        if len(asked) > len(shown):
            lines.append(f"  … and {len(asked) - len(shown):,} more")
    return "\n".join(lines)


NOT_ASKED = "no query asks about it"
