"""Explanations as HTML: a page that loads nothing, or a part of a notebook's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitlake.expressions.sql_text import to_sql
from bitlake.formatting import counted, human_bytes
from bitlake.html import (
    Bar,
    Child,
    Lane,
    Markup,
    Segment,
    bars,
    code,
    facts,
    fragment,
    heading,
    lanes,
    legend,
    markup,
    names,
    note,
    page,
    section,
    table,
)
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
        return fragment(*body)
    return page("Explained: " + (query or ", ".join(s.plan.table for s in scans)), *body)


def _body(scans: Sequence[Explanation], query: str | None, spark: str | None) -> Iterator[Child]:
    if query is not None:
        yield heading("Query")
        yield code(query)
        if not scans:
            yield markup("p", "It reads no table of the lake.")
    for told in scans:
        yield from _scan(told)
    if spark:
        yield section("Spark's plan", code(spark))


def _scan(told: Explanation) -> Iterator[Child]:
    plan = told.plan
    yield heading(f"Scan of {plan.table}", None if plan.snapshot_id is None else f"at snapshot {plan.snapshot_id}")
    asked = [("columns", ", ".join(plan.columns) or "none: only counting")]
    if plan.predicate is not None:
        asked.append(("where", to_sql(plan.predicate, plan.schema.fields)))
    if plan.order:
        asked.append(("order by", ", ".join(map(str, plan.order))))
    if plan.limit is not None:
        asked.append(("limit", f"{plan.limit:,}"))
    yield names(asked)
    yield _numbers(told)
    yield _waterfall(told)
    if told.leaves:
        yield _conditions(told)
    if told.files:
        yield _map(told)
    yield _phases(told)
    if told.advice:
        yield _advice(told)
    if plan.problems:
        yield section("Warnings", [note(p, kind="warn") for p in plan.problems])


def _numbers(told: Explanation) -> Markup:
    m = told.plan.metrics
    read = sum(1 for f in told.plan.files for _ in (f.merge.files if f.merge else (f,)))
    found: list[tuple[str, Child, Child]] = [
        ("files to read", f"{read:,}", f"of {m.files:,}"),
        ("rows chosen", f"{m.rows_chosen:,}", f"of {m.rows:,}"),
    ]
    if told.bytes_read is not None:
        found.append(("bytes read", human_bytes(told.bytes_read), f"of {human_bytes(m.data_bytes)}"))
        found.append(("rows returned", f"{m.rows_returned:,}", f"of {m.rows_read:,} read"))
    else:
        found.append(("bytes to read", human_bytes(told.steps[-1].bytes), f"of {human_bytes(m.data_bytes)}"))
    found.append(("time", _ms(sum(p.ms for p in told.phases)), "planned and read" if told.analyzed else "planned"))
    return facts(found)


def _waterfall(told: Explanation) -> Markup:
    first = told.steps[0]
    rows, before = [], first.bytes
    for step in told.steps:
        took = 0 if step is first or step.name == "read" else max(0, before - step.bytes)
        rows.append(_step(step, took))
        before = step.bytes
    more = markup("p", f"More was read than needed: {told.read_more}.", class_="dim") if told.read_more else None
    return section("What was left after each step", bars(rows, most=first.bytes), more)


def _step(step: Step, took: int) -> Bar:
    color = _color("file index" if step.name == "pages without a chosen row" else step.name)
    parts = [
        Segment(step.bytes, _COLORS["read"], f"{step.bytes:,} bytes left"),
        Segment(took, color, f"{took:,} bytes less"),
    ]
    less = f", − {human_bytes(took)}" if took else ""
    size = f"{'about ' * step.estimated}{human_bytes(step.bytes)}"
    text = [size, markup("small", f"{counted(step.files, 'file')}{less}")]
    return Bar(_STEPS.get(step.name, f"after {step.name}"), parts, text)


def _color(state: str) -> str:
    return _COLORS.get(state, "c0")


def _conditions(told: Explanation) -> Markup:
    rows: list[Sequence[Child]] = []
    for step in told.leaves:
        share = f"{100 * step.rows_after / step.rows_before:.3g} %" if step.rows_before else "–"
        notes = [f"not asked in {counted(n, 'file')}: {why}" for why, n in step.not_asked]
        if step.files_without:
            notes.append(f"{step.files_without:,} of {counted(step.files, 'file')} have no index of it")
        if step.files_emptied:
            notes.append(f"no row left in {counted(step.files_emptied, 'file')}")
        condition = [markup("code", step.condition), [markup("small", n) for n in notes]]
        rows.append((condition, asked_of(step), f"{step.rows_before:,}", f"{step.rows_after:,}", share))
    left_out = told.leaves_left_out
    more = markup("p", f"{left_out:,} more files were not asked again for this.", class_="dim") if left_out else None
    heads = ("Condition", "Asked", "Rows before", "Rows after", "Left")
    return section("What each condition's indexes left", table(heads, rows, (2, 3, 4)), more)


def _map(told: Explanation) -> Markup:
    seen = dict.fromkeys(s for f in told.files for s in (f.pages() or {f.state: 1}))
    names_of = [(_color(s), _MEANING.get(s, f"skipped by {s}")) for s in seen]
    left_out = told.files_left_out
    said = "A line is a file, as long as its rows; a box is a page. Click on a line for the reason."
    return section(
        "Files and their pages",
        markup("p", said, class_="dim"),
        legend(names_of),
        lanes((_lane(f, told.plan.root) for f in told.files), max(f.rows for f in told.files)),
        markup("p", f"{left_out:,} more files are not shown.", class_="dim") if left_out else None,
    )


def _lane(file: FileMap, root: str) -> Lane:
    name = file.path.removeprefix(root).lstrip("/")
    places: dict[str, list[tuple[float, float]]] = {}
    for cell in file.cells:
        places.setdefault(_color(cell.state), []).append((cell.first_row, cell.rows))
    size = human_bytes(file.size)
    pages = ", ".join(f"{n:,} {_MEANING.get(s, s)}" for s, n in file.pages().items())
    told = f"{file.why}. Pages of {file.column}: {pages}" if file.column is not None else file.why
    return Lane(
        _tail(name),
        places or {_color(file.state): [(0, file.rows)]},
        size if file.bytes_read is None else f"{human_bytes(file.bytes_read)} of {size}",
        [markup("code", name), markup("br"), f"{'read' if file.cells else file.state}: {told}"],
        told,
    )


def _tail(name: str) -> str:
    """A data file's name without its middle: UUIDs differ at their start, and the numbers after them count."""
    folder, _, last = name.rpartition("/")
    parts = [p for p in folder.split("/") if p and p != "bucket-0"]
    stem = last.rpartition(".")[0].removeprefix("data-") or last
    return "/".join([*parts, stem if len(stem) <= 16 else f"{stem[:6]}…{stem[-4:]}"])


def _phases(told: Explanation) -> Markup:
    rows = []
    for p in told.phases:
        more = f"{human_bytes(p.bytes)} in {counted(p.requests, 'request')}" if p.bytes else None
        text = [_ms(p.ms), None if more is None else markup("small", more)]
        rows.append(Bar(_PHASES.get(p.name, p.name), [Segment(p.ms, _TIME, f"{p.ms:.2f} ms")], text))
    said = "What was cached is not read again." if told.analyzed else "Planned, not read: analyze tells the rest."
    whole = sum(p.ms for p in told.phases)
    return section("Time", bars(rows, most=whole), markup("p", said, class_="dim"))


def _advice(told: Explanation) -> Markup:
    found = []
    for a in told.advice:
        what = [
            markup("b", a.index),
            " on ",
            markup("b", a.column),
            ", for ",
            markup("code", a.condition),
            f": {a.why}",
        ]
        found.append(note(markup("p", what), code(";\n".join(a.statements) + ";")))
    return section("What would have helped", found)


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.2f} s"
