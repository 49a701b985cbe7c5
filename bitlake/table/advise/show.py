"""Advice as text: aligned tables, plain words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitlake.formatting import counted, human_bytes, shortened
from bitlake.table.advise.advice import NOT_ASKED

if TYPE_CHECKING:
    from bitlake.table.advise.advice import Advice, ColumnAdvice
    from bitlake.table.advise.measure import Measured

_WIDTH = 120
_QUESTIONS = 10
_LAID = {"sort": "sort by", "zorder": "z-order by", "bucket": "buckets", "page": "rows a page"}


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
        lines += ["", *_wrapped(f"{_LAID[item.kind]} {item.value.replace(',', ', ')}: ", item.reason, width, "  ")]
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
        lines += ["", "To lay rows out anew (sorting and rescaling read and write the whole table):"]
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
        lines.append(f"  {_LAID[laid.kind]} {laid.value.replace(',', ', ')} took {laid.seconds:.1f} s")
        for name, estimated, real in (
            ("bytes before", laid.estimated_before, laid.before),
            ("bytes after", laid.estimated_after, laid.after),
        ):
            if estimated is not None and real is not None:
                line(f"  {name}", human_bytes(estimated), human_bytes(real))
    asked = [q for q in m.questions if q.estimated_before != q.estimated_after or q.before != q.after]
    if asked:
        lines += ["", "Bytes of a query, before and after (estimated)"]
        shown = sorted(asked, key=lambda q: -q.saved)[:_QUESTIONS]
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
