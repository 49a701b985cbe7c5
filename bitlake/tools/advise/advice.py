"""Advice: indexes and a layout with reasons, the statements that apply them, and the measured result.

It prints as aligned tables.  After the advice was applied, real bytes and seconds stand beside the estimates.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitlake.formatting import counted, human_bytes, printable, shortened
from bitlake.tools.advise import policy
from bitlake.tools.advise.layout import LayoutAdvice
from bitlake.tools.advise.policy import NOT_ASKED, ColumnAdvice, IndexEstimate
from bitlake.tools.advise.questions import Question

# --- what was measured ------------------------------------------------------------------------------------------------

QUESTIONS_SHOWN = 10
LAYOUTS = {"sort": "sort by", "zorder": "z-order by", "bucket": "buckets", "page": "rows a page"}
"""Verbs for each kind of layout advice."""


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
    """Measured effects of applied advice beside the expected ones; building includes reading and committing."""

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
        """Bytes of all indexes that were built."""
        return sum(i.bytes for i in self.indexes)

    @property
    def estimated_index_bytes(self) -> int:
        """The estimated bytes of these indexes."""
        return sum(i.estimated_bytes for i in self.indexes)

    def bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """Mean bytes that a query reads before and after; with a column, of queries on it alone (None: none)."""
        return self._means(column, "before", "after")

    def expected_bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """The estimates for :meth:`bytes_of`."""
        return self._means(column, "estimated_before", "estimated_after")

    def _means(self, column: str | None, *members: str) -> tuple[float, float] | None:
        questions = [q for q in self.questions if column is None or q.columns == (column,)]
        weight = sum(q.weight for q in questions)
        if not weight:
            return None
        before, after = (sum(q.weight * getattr(q, m) for q in questions) / weight for m in members)
        return before, after

    def text(self) -> str:
        """Return a text with estimates beside what happened."""
        return printable(measured_text(self))

    __str__ = text

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
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
    """Return a text with what happened beside what was expected."""
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


# --- the advice -------------------------------------------------------------------------------------------------------

_WIDTH = 120


def advice_text(advice: Advice, width: int = 0) -> str:
    """All of it: what was looked at, columns, layout, statements, and what was measured if it was."""
    width = max(60, width or _WIDTH)
    moment = "" if advice.snapshot is None else f" at snapshot {advice.snapshot}"
    lines = [f"Advice for {advice.table}{moment}"]
    lines.append(
        f"  table      {advice.rows:,} rows in {counted(advice.files, 'file')}, {human_bytes(advice.data_bytes)}"
    )
    looked = "all rows" if advice.sampled_rows == advice.rows else f"{advice.sampled_rows:,} rows"
    lines.append(f"  looked at  {looked} of {counted(advice.sampled_files, 'file')} in {advice.seconds:.1f} s")
    lines.append(f"  asked      {counted(len(advice.questions), _singular(advice.asked))}")
    reader = {"spark": "SQL on Spark", "python": "scans in Python"}[advice.engine]
    lines[-1] += f", of {reader}"
    for note in advice.notes:
        lines += _wrapped("  note       ", note, width)
    silent = [c.column for c in advice.columns if c.reason == NOT_ASKED and not c.now]
    shown = [c for c in advice.columns if c.column not in silent]
    lines += ["", *_columns(shown, width)] if shown else []
    if silent:
        lines += ["", *_wrapped("no query asks about ", ", ".join(silent), width, "  ")]
    for item in advice.layout:
        lines += ["", *_wrapped(f"{LAYOUTS[item.kind]} {item.value.replace(',', ', ')}: ", item.reason, width, "  ")]
    statements = advice.statements()
    if statements:
        lines += [
            "",
            f"To do this ({human_bytes(advice.index_bytes)} of indexes, about {advice.build_seconds:.1f} s of work):",
        ]
        lines += [f"  {s};" for s in statements]
    elif not advice.layout:
        lines += ["", "Nothing to change."]
    if advice.layout:
        lines += ["", "To change how rows are laid out (sorting and rescaling read and write the whole table):"]
        lines += [f"  {s};" for s in advice.layout_statements()]
    if advice.measured is not None:
        lines += ["", advice.measured.text()]
    return "\n".join(lines)


def _singular(asked: str) -> str:
    return {"queries": "query", "recorded scans": "recorded scan", "typical questions": "typical question"}[asked]


def _columns(columns: Sequence[ColumnAdvice], width: int) -> list[str]:
    head = ("column", "now", "advice", "index", "build", "saved a query")
    rows = [head, *(_row(c) for c in columns)]
    wide = [max(len(r[i]) for r in rows) for i in range(len(head))]
    lines = []
    for n, row in enumerate(rows):
        shown = [v.ljust(w) if i < 3 else v.rjust(w) for i, (v, w) in enumerate(zip(row, wide, strict=True))]
        lines.append("  ".join(shown).rstrip())
        if n == 0:
            lines.append("  ".join("-" * w for w in wide))
        else:
            lines += _wrapped("    ", columns[n - 1].reason, width)
    return lines


def _row(c: ColumnAdvice) -> tuple[str, ...]:
    words = {"add": c.index, "replace": c.index, "keep": "keep", "drop": "drop", "none": "none"}
    now = ", ".join(c.now) or "-"
    if c.chosen is None:
        return c.column, now, words[c.action], "", "", ""
    saved = f"{human_bytes(c.chosen.bytes_saved)} ({100 * (1 - c.chosen.share):.0f} %)"
    seconds = f"{c.chosen.build_seconds:.1f} s" if c.action in ("add", "replace") else ""
    return c.column, now, words[c.action], human_bytes(c.chosen.index_bytes), seconds, saved


def _wrapped(first: str, text: str, width: int, rest: str | None = None) -> list[str]:
    more = " " * len(first) if rest is None else rest
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more, break_long_words=False) or [first]


@dataclass(frozen=True, slots=True)
class QuestionEstimate:
    """A question, and the bytes it reads of data and indexes as the table is, and as it should be."""

    question: Question
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice of ``table.indexes.advise()``.

    Nothing is changed before :meth:`apply`.  Sizes are bytes.  ``asked``: where the questions come from (``queries``,
    ``recorded scans`` or ``typical questions``); ``engine``: their reader, ``spark`` or ``python``.

    >>> advice = lake.table("payments").indexes.advise(["payment_id = 500000000"])
    >>> [(column.column, column.action, column.index) for column in advice.columns]
    [('payment_id', 'add', 'bloom-filter'), ('amount', 'none', 'none')]
    >>> advice.statements()[0]
    "ALTER TABLE default.payments SET TBLPROPERTIES ('file-index.bloom-filter.columns' = 'payment_id'...
    >>> advice.index_bytes > 0, advice.build_seconds > 0, advice.layout_statements()
    (True, True, [])
    >>> advice.text().splitlines()[0], advice.to_dict()["asked"]
    ('Advice for default.payments at snapshot 2', 'queries')
    """

    table: str
    snapshot: int | None
    rows: int
    data_bytes: int
    files: int
    sampled_rows: int
    sampled_files: int
    seconds: float
    asked: str
    engine: str
    columns: tuple[ColumnAdvice, ...]
    layout: tuple[LayoutAdvice, ...]
    questions: tuple[QuestionEstimate, ...]
    set_options: Mapping[str, str]
    unset_options: tuple[str, ...]
    notes: tuple[str, ...] = ()
    measured: Measured | None = None
    _apply: Callable[[Advice, Callable[[str], Any] | None, bool], Measured] | None = field(
        default=None, repr=False, compare=False
    )

    def __repr__(self) -> str:
        changes = len(self.set_options) + len(self.unset_options)
        layout = counted(len(self.layout), "layout change")
        return f"Advice({self.table}: {counted(changes, 'option')} to change, {layout})"

    @property
    def index_bytes(self) -> int:
        """Bytes of all indexes that should be added."""
        return sum(c.index_bytes for c in self._new())

    @property
    def build_seconds(self) -> float:
        """About how long building them takes on this machine."""
        return float(sum(c.build_seconds for c in self._new()))

    def _new(self) -> list[IndexEstimate]:
        return [new for c in self.columns if (new := c.to_build) is not None]

    def statements(self) -> list[str]:
        """The SQL statements that do what is advised about indexes; empty if nothing is."""
        return policy.statements(self.table, self.columns, self.set_options, self.unset_options)

    def layout_statements(self) -> list[str]:
        """The statements that would lay the rows out as advised; each reads and writes the whole table."""
        return [s for advice in self.layout for s in advice.statements]

    def apply(self, sql: Callable[[str], Any] | None = None, *, layout: bool = False) -> Advice:
        """Add the indexes that are advised, and measure what that brought; returns the advice with ``measured`` set.

        In this process, or by ``sql`` (such as ``lake.sql``), which builds on Spark.  With ``layout``, it
        also runs :meth:`layout_statements`, which rewrite the rows in another layout, and measures what they brought;
        sorting needs ``sql``.

        >>> advice = lake.table("payments").indexes.advise(["payment_id = 500000000"])
        >>> measured = advice.apply().measured
        >>> [(question.where, question.after < question.before) for question in measured.questions]
        [('payment_id = 500000000', True)]
        """
        assert self._apply is not None
        return replace(self, measured=self._apply(self, sql, layout))

    def text(self, width: int = 0) -> str:
        """The advice for people; ``width``: columns of the terminal, 0 for any."""

        return printable(advice_text(self, width))

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain values."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "rows": self.rows,
            "data_bytes": self.data_bytes,
            "files": self.files,
            "sampled_rows": self.sampled_rows,
            "sampled_files": self.sampled_files,
            "seconds": round(self.seconds, 3),
            "asked": self.asked,
            "engine": self.engine,
            "columns": [_column(c) for c in self.columns],
            "layout": [item.to_dict() for item in self.layout],
            "questions": [
                {
                    "where": q.question.text,
                    "weight": q.question.weight,
                    "before": round(q.before),
                    "after": round(q.after),
                }
                for q in self.questions
            ],
            "index_bytes": self.index_bytes,
            "build_seconds": round(self.build_seconds, 3),
            "statements": self.statements(),
            "layout_statements": self.layout_statements(),
            "notes": list(self.notes),
            "measured": None if self.measured is None else self.measured.to_dict(),
        }


def _index(found: IndexEstimate) -> dict[str, Any]:
    return {
        "index": found.index_type,
        "options": dict(found.options),
        "index_bytes": found.index_bytes,
        "build_seconds": round(found.build_seconds, 3),
        "bytes_before": round(found.bytes_before),
        "bytes_after": round(found.bytes_after),
        "bytes_saved": round(found.bytes_saved),
    }


def _column(c: ColumnAdvice) -> dict[str, Any]:
    p = c.profile
    return {
        "column": c.column,
        "type": c.type,
        "action": c.action,
        "now": list(c.now),
        "index": c.index,
        "reason": c.reason,
        "estimate": None if c.chosen is None else _index(c.chosen),
        "tried": [_index(t) for t in c.tried],
        "values": None
        if p is None
        else {
            "distinct": round(p.distinct),
            "null_ratio": round(p.null_ratio, 4),
            "spread": round(p.spread, 4),
            "ascending": round(p.ascending, 4),
            "most_frequent_share": round(p.top_share, 4),
        },
    }
