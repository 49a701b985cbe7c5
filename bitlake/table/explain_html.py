"""Explanations as HTML: one page that loads nothing, or a fragment for notebooks.  Light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from bitlake.predicate.text import to_sql
from bitlake.table.explain_leaves import asked_of
from bitlake.table.explain_style import STYLE
from bitlake.table.explain_svg import bar, css_class, file_row
from bitlake.words import human_bytes

if TYPE_CHECKING:
    from bitlake.table.explanation import Explanation

_MEANING = {
    "read": "read",
    "some columns": "read of some columns only: no row of it was wanted",
    "file index": "spared by a file index",
    "deletion vector": "all rows deleted",
    "page bounds": "no wanted row, by page bounds or other columns",
    "statistics": "skipped by statistics",
    "partition": "skipped by partition",
}
_PHASES = {
    "manifests": "finding the table's files",
    "statistics": "judging files by partition, bucket and statistics",
    "indexes": "asking file indexes",
    "top n": "ordering files for the first rows",
    "deletion vectors": "deletion vectors and the rest of planning",
    "page bounds": "asking the bounds of pages",
    "footers": "footers of data files",
    "read": "waiting for data",
    "decode": "decoding",
    "filter": "judging rows",
}


def page(scans: Sequence[Explanation], query: str | None = None, spark: str | None = None) -> str:
    """A whole HTML document."""
    title = "Explained: " + (query or ", ".join(s.plan.table for s in scans))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        # Nothing is fetched, whatever a page may hold.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title[:120])}</title><style>body{{margin:0}}</style></head>"
        f"<body>{fragment(scans, query, spark)}</body></html>\n"
    )


def fragment(scans: Sequence[Explanation], query: str | None = None, spark: str | None = None) -> str:
    """The explanations as an element with its own style, to stand in another page."""
    parts = [f'<style>{STYLE}</style><main class="bl-page">']
    if query is not None:
        parts.append(f"<h1>Query</h1><pre>{escape(query)}</pre>")
        if not scans:
            parts.append("<p>It reads no table of the lake.</p>")
    parts += [_scan(s) for s in scans]
    if spark:
        parts.append(f"<section><h2>Spark's plan</h2><pre>{escape(spark)}</pre></section>")
    return "".join([*parts, "</main>"])


def _scan(told: Explanation) -> str:
    plan = told.plan
    at = "" if plan.snapshot_id is None else f" <small>at snapshot {plan.snapshot_id}</small>"
    parts = [f"<h1>Scan of {escape(plan.table)}{at}</h1>"]
    asked = [("columns", ", ".join(plan.columns) or "none: only counting")]
    if plan.predicate is not None:
        asked.append(("where", to_sql(plan.predicate, plan.schema.fields)))
    if plan.order:
        asked.append(("order by", ", ".join(map(str, plan.order))))
    if plan.limit is not None:
        asked.append(("limit", f"{plan.limit:,}"))
    parts.append("<dl>" + "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in asked) + "</dl>")
    parts += [_cards(told), _waterfall(told), _conditions(told), _map(told), _phases(told), _advice(told)]
    if plan.problems:
        listed = "".join(f"<li>{escape(p)}</li>" for p in plan.problems)
        parts.append(f"<section><h2>Warnings</h2><ul>{listed}</ul></section>")
    return "".join(parts)


def _cards(told: Explanation) -> str:
    m = told.plan.metrics
    read = sum(1 for f in told.plan.files for _ in (f.merge.files if f.merge else (f,)))
    cards = [("files to read", f"{read:,}", f"of {m.files:,}"), ("rows chosen", f"{m.rows_chosen:,}", f"of {m.rows:,}")]
    if told.bytes_read is not None:
        cards.append(("bytes read", human_bytes(told.bytes_read), f"of {human_bytes(m.data_bytes)}"))
        cards.append(("rows returned", f"{m.rows_returned:,}", f"of {m.rows_read:,} read"))
    else:
        cards.append(("bytes to read", human_bytes(told.steps[-1].bytes), f"of {human_bytes(m.data_bytes)}"))
    cards.append(("time", _ms(sum(p.ms for p in told.phases)), "planned and read" if told.analyzed else "planned"))
    body = "".join(f"<div><b>{escape(v)}</b><span>{k}</span><small>{escape(of)}</small></div>" for k, v, of in cards)
    return f'<div class="bl-cards">{body}</div>'


def _waterfall(told: Explanation) -> str:
    rows, before = [], told.steps[0].bytes
    for step in told.steps:
        took = max(0, before - step.bytes)
        kind = css_class("file index" if step.name == "pages without a chosen row" else step.name)
        if step.name == "read" or step is told.steps[0]:
            picture = bar([(step.bytes, "bl-read")], told.steps[0].bytes, f"{step.name}: {step.bytes:,} bytes")
        else:
            title = f"{step.bytes:,} bytes left, {took:,} less"
            picture = bar([(step.bytes, "bl-read"), (took, kind)], told.steps[0].bytes, title)
        label = _STEP.get(step.name, f"after {step.name}")
        less = f"− {human_bytes(took)}" if took and step.name != "read" else ""
        size = f"{'about ' * step.estimated}{human_bytes(step.bytes)}"
        rows.append(_row(label, picture, size, f"{step.files:,} files {less}"))
        before = step.bytes
    note = f"<p>More was read than needed: {escape(told.read_more)}.</p>" if told.read_more else ""
    return f"<section><h2>What was left after each step</h2>{''.join(rows)}{note}</section>"


_STEP = {
    "all files": "all files",
    "all files of these partitions": "all files of these partitions",
    "columns that are needed": "only columns that are needed",
    "pages without a chosen row": "only pages with a chosen row",
    "read": "really read",
}


def _row(label: str, picture: str, value: str, note: str = "") -> str:
    return (
        f'<div class="bl-row"><span class="bl-label">{escape(label)}</span>{picture}'
        f'<span class="bl-value">{escape(value)}<small>{escape(note)}</small></span></div>'
    )


def _conditions(told: Explanation) -> str:
    if not told.leaves:
        return ""
    rows = []
    for step in told.leaves:
        share = f"{100 * step.rows_after / step.rows_before:.3g} %" if step.rows_before else "–"
        notes = [f"not asked in {n:,} files: {why}" for why, n in step.not_asked]
        if step.files_without:
            notes.append(f"{step.files_without:,} of {step.files:,} files have no index of it")
        if step.files_emptied:
            notes.append(f"no row left in {step.files_emptied:,} files")
        told_notes = "".join(f"<small>{escape(n)}</small>" for n in notes)
        rows.append(
            f"<tr><td><code>{escape(step.condition)}</code>{told_notes}</td>"
            f"<td>{escape(asked_of(step))}</td>"
            f"<td class='n bl-wide'>{step.rows_before:,}</td><td class=n>{step.rows_after:,}</td>"
            f"<td class=n>{share}</td></tr>"
        )
    more = f"<p>{told.leaves_left_out:,} more files were not asked again for this.</p>" if told.leaves_left_out else ""
    return (
        "<section><h2>What each condition's indexes left</h2><div class=bl-scroll><table><tr><th>condition</th>"
        "<th>asked</th><th class='n bl-wide'>rows before</th><th class=n>rows after</th><th class=n>left</th></tr>"
        f"{''.join(rows)}</table></div>{more}</section>"
    )


def _map(told: Explanation) -> str:
    if not told.files:
        return ""
    most = max(f.rows for f in told.files)
    seen = dict.fromkeys(s for f in told.files for s in (f.pages() or {f.state: 1}))
    legend = "".join(
        f'<span><i class="{css_class(s)}"></i>{escape(_MEANING.get(s, f"skipped by {s}"))}</span>' for s in seen
    )
    rows = []
    for file in told.files:
        name = file.path.removeprefix(told.plan.root).lstrip("/")
        size = human_bytes(file.size if file.bytes_read is None else file.bytes_read)
        value = size if file.bytes_read is None else f"{size} of {human_bytes(file.size)}"
        rows.append(
            f'<details class="bl-file"><summary><span class="bl-label">{escape(_tail(name))}</span>'
            f'{file_row(file, most)}<span class="bl-value">{escape(value)}</span></summary>'
            f"<p><code>{escape(name)}</code><br>{escape(file.state if not file.cells else 'read')}: {escape(file.why)}"
            f"{escape(_pages(file.pages(), file.column))}</p></details>"
        )
    left = f"<p>{told.files_left_out:,} more files are not shown.</p>" if told.files_left_out else ""
    return (
        "<section><h2>Files and their pages</h2><p>A line is a file, as long as its rows; a box is a page. "
        f"Click on a line for the reason.</p><div class=bl-legend>{legend}</div>{''.join(rows)}{left}</section>"
    )


def _pages(pages: dict[str, int], column: str | None) -> str:
    if column is None:
        return ""
    return f". Pages of {column}: " + ", ".join(f"{n:,} {_MEANING.get(s, s)}" for s, n in pages.items())


def _tail(name: str) -> str:
    """A data file's name without its middle: UUIDs differ at their start, and the numbers after them count."""
    folder, _, last = name.rpartition("/")
    parts = [p for p in folder.split("/") if p and p != "bucket-0"]
    stem = last.rpartition(".")[0].removeprefix("data-") or last
    return "/".join([*parts, stem if len(stem) <= 16 else f"{stem[:6]}…{stem[-4:]}"])


def _phases(told: Explanation) -> str:
    whole = sum(p.ms for p in told.phases)
    rows = [
        _row(
            _PHASES.get(p.name, p.name), bar([(p.ms, "bl-time")], whole, f"{p.ms:.2f} ms"), _ms(p.ms),
            f"{human_bytes(p.bytes)} in {p.requests:,} requests" if p.bytes else "",
        )
        for p in told.phases
    ]  # fmt: skip
    note = "What was cached is not read again." if told.analyzed else "Planned, not read: analyze tells the rest."
    return f"<section><h2>Time</h2>{''.join(rows)}<p>{note}</p></section>"


def _advice(told: Explanation) -> str:
    if not told.advice:
        return ""
    items = []
    for a in told.advice:
        sql = escape(";\n".join(a.statements) + ";")
        items.append(
            f"<li><b>{escape(a.index)}</b> on <b>{escape(a.column)}</b>, for <code>{escape(a.condition)}</code>: "
            f"{escape(a.why)}<pre>{sql}</pre></li>"
        )
    return f"<section><h2>What would have helped</h2><ul>{''.join(items)}</ul></section>"


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.2f} s"
