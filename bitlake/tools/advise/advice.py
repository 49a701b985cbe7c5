"""Advice as a value: indexes and layout with reasons, the statements that apply them, and the measured result.

It prints as aligned tables.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bitlake.expressions.sql_text import name, quote
from bitlake.fileindex.registry import IndexSpec, changed_index_options
from bitlake.formatting import counted, human_bytes, printable
from bitlake.tools.advise.choose import IndexEstimate, LayoutAdvice
from bitlake.tools.advise.measured import LAYOUTS, Measured
from bitlake.tools.advise.profile import ColumnProfile
from bitlake.tools.advise.questions import Question

_WIDTH = 120
NOT_ASKED = "no query asks about it"


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
class ColumnAdvice:
    """What a column should have.  ``action``: ``add``, ``keep``, ``replace`` (another index), ``drop`` or ``none``.

    ``now``: the indexes that it has; ``chosen``: the one it should have, with estimates; ``tried``: all that were.
    """

    column: str
    type: str
    action: str
    now: tuple[str, ...]
    chosen: IndexEstimate | None
    reason: str
    tried: tuple[IndexEstimate, ...] = ()
    profile: ColumnProfile | None = None

    @property
    def index(self) -> str:
        """The index the column should have, or ``none``."""
        return "none" if self.chosen is None else self.chosen.index_type


@dataclass(frozen=True, slots=True)
class QuestionEstimate:
    """A question, and the bytes it reads of data and indexes as the table is, and as it should be."""

    question: Question
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What ``table.indexes.advise()`` says.

    Nothing is changed before :meth:`apply`.  Sizes are bytes.  ``asked``: where the questions come from (``queries``,
    ``recorded scans`` or ``typical questions``); ``engine``: who reads for them, ``spark`` or ``python``.
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
        """Of all indexes that should be added."""
        return sum(c.index_bytes for c in self._new())

    @property
    def build_seconds(self) -> float:
        """About how long building them takes on this machine."""
        return float(sum(c.build_seconds for c in self._new()))

    def _new(self) -> list[IndexEstimate]:
        return [c.chosen for c in self.columns if c.action in ("add", "replace") and c.chosen is not None]

    def statements(self) -> list[str]:
        """The SQL statements that do what is advised about indexes; empty if nothing is."""
        if not self.set_options and not self.unset_options:
            return []
        found = []
        alter = f"ALTER TABLE {'.'.join(map(name, self.table.split('.')))}"
        if self.unset_options:
            found.append(f"{alter} UNSET TBLPROPERTIES ({', '.join(map(quote, self.unset_options))})")
        if self.set_options:
            pairs = ", ".join(f"{quote(k)} = {quote(v)}" for k, v in self.set_options.items())
            found.append(f"{alter} SET TBLPROPERTIES ({pairs})")
        found.append(f"CALL sys.rewrite_file_index(table => {quote(self.table)})")
        return found

    def layout_statements(self) -> list[str]:
        """The statements that would lay the rows out as advised; each reads and writes the whole table."""
        return [s for advice in self.layout for s in advice.statements]

    def apply(self, sql: Callable[[str], Any] | None = None, *, layout: bool = False) -> Advice:
        """Add the indexes that are advised, and measure what that brought; returns the advice with ``measured`` set.

        In this process, or by ``sql`` (such as ``lake.sql``), which builds on Spark.  With ``layout``, it
        also runs :meth:`layout_statements`, which rewrite the rows in another layout, and measures what they brought;
        sorting needs ``sql``.
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


def changed_options(
    options: Mapping[str, str], columns: Sequence[ColumnAdvice], kinds: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the table options to set and to unset for this advice; other indexes stay, unless they are replaced."""
    added = [
        IndexSpec(advice.column, advice.chosen.index_type, dict(advice.chosen.options))
        for advice in columns
        if advice.action in ("add", "replace") and advice.chosen is not None
    ]
    dropped = [IndexSpec(advice.column, kind, {}) for advice in columns for kind in kinds if _is_dropped(advice, kind)]
    changed, unset = changed_index_options(options, added, dropped)
    return changed, tuple(unset)


def _is_dropped(advice: ColumnAdvice, kind: str) -> bool:
    if advice.action == "drop":
        return True
    return advice.action == "replace" and advice.chosen is not None and advice.chosen.index_type != kind
