"""Explanations as HTML: a page that loads nothing, or a part of a notebook's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitlake import html
from bitlake.expressions.sql_text import to_sql
from bitlake.formatting import counted, human_bytes
from bitlake.tools.explain.advice import asked_of
from bitlake.tools.explain.explanation import Explanation, Step
from bitlake.tools.explain.pages import FileMap

_COLORS = {
    "read": "c1",
    "some columns": "c8",
    "file index": "c3",
    "deletion vector": "c5",
    "page bounds": "c4",
    "statistics": "c2",
    "partition": "c7",
}
"""Reasons that are not here share ``c0``."""
_TIME = "c6"
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
    "advice": "trying indexes on a sample",
}
_STEPS = {
    "all files": "all files",
    "all files of these partitions": "all files of these partitions",
    "columns that are needed": "only columns that are needed",
    "pages without a chosen row": "only pages with a chosen row",
    "read": "really read",
}


def render(scans: Sequence[Explanation], query: str | None, spark: str | None, whole: bool) -> str:
    """Explanations as an HTML page, or for ``whole`` False as a fragment for a notebook."""
    body = list(_body(scans, query, spark))
    if not whole:
        return html.fragment(*body)
    return html.page("Explained: " + (query or ", ".join(s.plan.table for s in scans)), *body)


def _body(scans: Sequence[Explanation], query: str | None, spark: str | None) -> Iterator[html.Child]:
    if query is not None:
        yield html.heading("Query")
        yield html.code(query)
        if not scans:
            yield html.markup("p", "It reads no table of the lake.")
    for explanation in scans:
        yield from _scan(explanation)
    if spark:
        yield html.section("Spark's plan", html.code(spark))


def _scan(explanation: Explanation) -> Iterator[html.Child]:
    plan = explanation.plan
    yield html.heading(f"Scan of {plan.table}", None if plan.snapshot_id is None else f"at snapshot {plan.snapshot_id}")
    facts = [("columns", ", ".join(plan.columns) or "none: only counting")]
    if plan.predicate is not None:
        facts.append(("where", to_sql(plan.predicate, plan.schema.fields)))
    if plan.order:
        facts.append(("order by", ", ".join(map(str, plan.order))))
    if plan.limit is not None:
        facts.append(("limit", f"{plan.limit:,}"))
    yield html.names(facts)
    yield _numbers(explanation)
    yield _waterfall(explanation)
    if explanation.leaves:
        yield _conditions(explanation)
    if explanation.files:
        yield _map(explanation)
    yield _phases(explanation)
    if explanation.advice:
        yield _advice(explanation)
    if plan.problems:
        yield html.section("Warnings", [html.note(p, kind="warn") for p in plan.problems])


def _numbers(explanation: Explanation) -> html.Markup:
    m = explanation.plan.metrics
    read = sum(1 for f in explanation.plan.files for _ in (f.merge.files if f.merge else (f,)))
    numbers: list[tuple[str, html.Child, html.Child]] = [
        ("files to read", f"{read:,}", f"of {m.files:,}"),
        ("rows chosen", f"{m.rows_chosen:,}", f"of {m.rows:,}"),
    ]
    if explanation.bytes_read is not None:
        numbers.append(("bytes read", human_bytes(explanation.bytes_read), f"of {human_bytes(m.data_bytes)}"))
        numbers.append(("rows returned", f"{m.rows_returned:,}", f"of {m.rows_read:,} read"))
    else:
        numbers.append(("bytes to read", human_bytes(explanation.steps[-1].bytes), f"of {human_bytes(m.data_bytes)}"))
    numbers.append(
        ("time", _ms(sum(p.ms for p in explanation.phases)), "planned and read" if explanation.analyzed else "planned")
    )
    return html.facts(numbers)


def _waterfall(explanation: Explanation) -> html.Markup:
    first = explanation.steps[0]
    rows, before = [], first.bytes
    for step in explanation.steps:
        took = 0 if step is first or step.name == "read" else max(0, before - step.bytes)
        rows.append(_step(step, took))
        before = step.bytes
    more = (
        html.markup("p", f"More was read than needed: {explanation.read_more}.", class_="dim")
        if explanation.read_more
        else None
    )
    return html.section("What was left after each step", html.bars(rows, most=first.bytes), more)


def _step(step: Step, took: int) -> html.Bar:
    color = _color("file index" if step.name == "pages without a chosen row" else step.name)
    parts = [
        html.Segment(step.bytes, _COLORS["read"], f"{step.bytes:,} bytes left"),
        html.Segment(took, color, f"{took:,} bytes less"),
    ]
    less = f", − {human_bytes(took)}" if took else ""
    size = f"{'about ' * step.estimated}{human_bytes(step.bytes)}"
    text = [size, html.markup("small", f"{counted(step.files, 'file')}{less}")]
    return html.Bar(_STEPS.get(step.name, f"after {step.name}"), parts, text)


def _color(state: str) -> str:
    return _COLORS.get(state, "c0")


def _conditions(explanation: Explanation) -> html.Markup:
    rows: list[Sequence[html.Child]] = []
    for step in explanation.leaves:
        share = f"{100 * step.rows_after / step.rows_before:.3g} %" if step.rows_before else "–"
        notes = [f"not asked in {counted(n, 'file')}: {why}" for why, n in step.not_asked]
        if step.files_without:
            notes.append(f"{step.files_without:,} of {counted(step.files, 'file')} have no index of it")
        if step.files_emptied:
            notes.append(f"no row left in {counted(step.files_emptied, 'file')}")
        condition = [html.markup("code", step.condition), [html.markup("small", n) for n in notes]]
        rows.append((condition, asked_of(step), f"{step.rows_before:,}", f"{step.rows_after:,}", share))
    left_out = explanation.leaves_left_out
    more = (
        html.markup("p", f"{left_out:,} more files were not asked again for this.", class_="dim") if left_out else None
    )
    heads = ("Condition", "Asked", "Rows before", "Rows after", "Left")
    return html.section("What each condition's indexes left", html.table(heads, rows, (2, 3, 4)), more)


def _map(explanation: Explanation) -> html.Markup:
    seen = dict.fromkeys(s for f in explanation.files for s in (f.pages() or {f.state: 1}))
    names_of = [(_color(s), _MEANING.get(s, f"skipped by {s}")) for s in seen]
    left_out = explanation.files_left_out
    caption = "A line is a file, as long as its rows; a box is a page. Click on a line for the reason."
    return html.section(
        "Files and their pages",
        html.markup("p", caption, class_="dim"),
        html.legend(names_of),
        html.lanes(
            (_lane(f, explanation.plan.root) for f in explanation.files), max(f.rows for f in explanation.files)
        ),
        html.markup("p", f"{left_out:,} more files are not shown.", class_="dim") if left_out else None,
    )


def _lane(file: FileMap, root: str) -> html.Lane:
    name = file.path.removeprefix(root).lstrip("/")
    places: dict[str, list[tuple[float, float]]] = {}
    for cell in file.cells:
        places.setdefault(_color(cell.state), []).append((cell.first_row, cell.rows))
    size = human_bytes(file.size)
    pages = ", ".join(f"{n:,} {_MEANING.get(s, s)}" for s, n in file.pages().items())
    title = f"{file.why}. Pages of {file.column}: {pages}" if file.column is not None else file.why
    return html.Lane(
        _tail(name),
        places or {_color(file.state): [(0, file.rows)]},
        size if file.bytes_read is None else f"{human_bytes(file.bytes_read)} of {size}",
        [html.markup("code", name), html.markup("br"), f"{'read' if file.cells else file.state}: {title}"],
        title,
    )


def _tail(name: str) -> str:
    """A data file's name without its middle: UUIDs differ at their start, and the numbers after them count."""
    folder, _, last = name.rpartition("/")
    parts = [p for p in folder.split("/") if p and p != "bucket-0"]
    stem = last.rpartition(".")[0].removeprefix("data-") or last
    return "/".join([*parts, stem if len(stem) <= 16 else f"{stem[:6]}…{stem[-4:]}"])


def _phases(explanation: Explanation) -> html.Markup:
    rows = []
    for p in explanation.phases:
        more = f"{human_bytes(p.bytes)} in {counted(p.requests, 'request')}" if p.bytes else None
        more = more and f"{more}, {human_bytes(p.cached_bytes)} from the local cache" if p.cached_bytes else more
        text = [_ms(p.ms), None if more is None else html.markup("small", more)]
        rows.append(html.Bar(_PHASES.get(p.name, p.name), [html.Segment(p.ms, _TIME, f"{p.ms:.2f} ms")], text))
    caption = (
        "What was cached is not read again." if explanation.analyzed else "Planned, not read: analyze tells the rest."
    )
    whole = sum(p.ms for p in explanation.phases)
    return html.section("Time", html.bars(rows, most=whole), html.markup("p", caption, class_="dim"))


def _advice(explanation: Explanation) -> html.Markup:
    notes = []
    for a in explanation.advice:
        what = [
            html.markup("b", a.index),
            " on ",
            html.markup("b", a.column),
            ", for ",
            html.markup("code", a.condition),
            f": {a.why}",
        ]
        notes.append(html.note(html.markup("p", what), html.code(";\n".join(a.statements) + ";")))
    return html.section("What would have helped", notes)


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.2f} s"
