"""The report as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitlake import html
from bitlake.formatting import counted, human_bytes, share_words, span_words, time_words
from bitlake.tools.advise.policy import LEAST_BYTES, LEAST_SHARE

if TYPE_CHECKING:
    from bitlake.tools.report.facts import Part, TableReport, Thresholds

_KINDS = {"APPEND": "c1", "COMPACT": "c3", "OVERWRITE": "c2", "ANALYZE": "c4"}
_LEVEL_COLORS = ("c2", "c4", "c6", "c7", "c3", "c1")
_SKIPPED = "c3"
_READ = "c2"


def render(report: TableReport, *, whole: bool = True) -> str:
    """The report as a page, or as a part of another's."""
    title = f"Table {report.name}"
    return html.page(title, *_body(report, title)) if whole else html.fragment(*_body(report, title))


def _body(report: TableReport, title: str) -> Iterator[html.Child]:
    at = report.snapshot
    subtitle: list[html.Child] = [
        report.path,
        html.markup("br"),
        f"snapshot {at.id} of {time_words(at.time_ms)}" if at else "no snapshot yet",
        f", branch {report.branch}" if report.branch else "",
        f"; report made {time_words(report.made_ms)} from metadata alone",
    ]
    yield html.heading(title, subtitle)
    yield from _sections(report)


def _sections(r: TableReport) -> Iterator[html.Child]:
    yield _overview(r)
    yield _actions(r)
    if r.total.files:
        yield _partitions(r)
        if r.primary_keys:
            yield _levels(r)
        yield _file_sizes(r)
    yield _indexes(r)
    yield _timeline(r)
    yield _scans(r)
    yield _limits(r)


def _overview(r: TableReport) -> html.Markup:
    t = r.total
    index_size = sum(i.size for i in r.indexes)
    unknown = f"; of {r.unknown_deleted:,} files not known" if r.unknown_deleted else ""
    items: list[tuple[str, html.Child, html.Child]] = [
        ("Rows stored", f"{t.rows:,}", "all versions of keys" if r.primary_keys else None),
        ("Data files", f"{t.files:,}", f"{counted(r.buckets, 'bucket')}, {counted(r.part_count, 'partition')}"),
        ("Data", human_bytes(t.size), f"{human_bytes(t.size / t.files)} a file" if t.files else None),
        (
            "Small files",
            f"{t.small_files:,}",
            f"below {human_bytes(r.small_below)}; {share_words(t.small_files, t.files)}"
            + ("" if r.due.files else "; no compaction is due"),
        ),
        ("Deleted rows", f"{t.deleted:,}", share_words(t.deleted, t.rows) + " of the rows stored" + unknown),
        ("File indexes", human_bytes(index_size), share_words(index_size, t.size) + " of the data"),
        (
            "Snapshots kept",
            f"{r.snapshots:,}",
            f"{counted(r.tags, 'tag')}, {counted(r.branches, 'branch')}",
        ),
        ("Manifests", f"{r.manifests[0]:,}", human_bytes(r.manifests[1])),
    ]
    if r.hash_files[0]:
        items.append(("Hash index", human_bytes(r.hash_files[1]), counted(r.hash_files[0], "file")))
    if r.vector_files[0]:
        items.append(("Deletion vectors", human_bytes(r.vector_files[1]), counted(r.vector_files[0], "file")))
    if r.scans is not None:
        items.append(
            ("Scans skipped", share_words(r.scans.all.skipped, 1), counted(r.scans.all.scans, "recorded scan"))
        )
    return html.facts(items)


def _actions(r: TableReport) -> html.Markup:
    if not r.actions:
        return html.section("What to do", html.note("Nothing: no threshold below is passed.", kind="good"))
    notes = [
        html.note(
            html.markup("h3", a.title),
            html.markup("p", a.why),
            html.code(";\n".join(a.sql) + (";" if len(a.sql) > 1 else "")),
            kind="warn",
        )
        for a in r.actions
    ]
    return html.section("What to do", notes)


def _small_color(r: TableReport) -> str:
    """The color of small files, which stand out only where a compaction would merge them."""
    return "c2" if r.due.files else "c1"


def _partitions(r: TableReport) -> html.Markup:
    parts = [*r.parts, *([r.rest] if r.rest else [])]
    small = _small_color(r)
    split = [(small, f"files below {human_bytes(r.small_below)}"), ("c1", "others")]

    def segments(p: Part) -> list[html.Segment]:
        if p is r.rest:
            return [html.Segment(p.size, "c0", f"{p.name}: {human_bytes(p.size)}")]
        large = p.size - p.small_size
        return [
            html.Segment(p.small_size, small, f"{counted(p.small_files, 'small file')}, {human_bytes(p.small_size)}"),
            html.Segment(large, "c1", f"{counted(p.files - p.small_files, 'other file')}, {human_bytes(large)}"),
        ]

    shown = html.bars(
        html.Bar(p.name, segments(p), f"{human_bytes(p.size)}, {counted(p.files, 'file')}") for p in parts
    )
    rows = [
        (
            p.name,
            f"{p.files:,}",
            f"{p.small_files:,}",
            human_bytes(p.size),
            f"{p.rows:,}",
            f"{p.deleted:,}",
            share_words(p.deleted, p.rows),
        )
        for p in parts
    ]
    heads = ("Partition", "Files", "Small", "Size", "Rows", "Deleted", "Ratio")
    title = "Size by partition" if r.partition_keys else "Size"
    more = f"The largest {len(r.parts):,} of {r.part_count:,} partitions are named." if r.rest else None
    return html.section(
        title,
        html.markup("p", more, class_="dim") if more else None,
        html.legend(split) if small != "c1" else None,
        shown,
        html.table(heads, rows, range(1, 7)),
    )


def _levels(r: TableReport) -> html.Markup:
    levels = sorted(r.total.levels)
    colors = {level: _LEVEL_COLORS[min(level, len(_LEVEL_COLORS) - 1)] for level in levels}

    def segments(p: Part) -> list[html.Segment]:
        sizes = p.levels
        return [
            html.Segment(sizes[n] / (p.size or 1), colors[n], f"level {n}: {human_bytes(sizes[n])}")
            for n in sorted(sizes)
        ]

    names = [(colors[n], f"level {n}: {human_bytes(r.total.levels[n])}") for n in levels]
    parts = [r.total, *r.parts] if len(r.parts) > 1 else [r.total]
    shown = html.bars([html.Bar(p.name, segments(p), human_bytes(p.size)) for p in parts], most=1)
    caption = (
        "New files come in on level 0; compaction moves rows up. What lies on several levels is merged when it is read."
    )
    return html.section("Levels", html.markup("p", caption, class_="dim"), html.legend(names), shown)


def _file_sizes(r: TableReport) -> html.Markup:
    most = max(files for _, files, _ in r.sizes)
    rows = [
        html.Bar(
            f"{human_bytes(below // 2)} – {human_bytes(below)}",
            [
                html.Segment(
                    files,
                    _small_color(r) if below <= r.small_below else "c1",
                    f"{counted(files, 'file')}, {human_bytes(size)}",
                )
            ],
            f"{counted(files, 'file')}, {human_bytes(size)}",
        )
        for below, files, size in r.sizes
    ]
    caption = f"Files are written up to {human_bytes(r.target_size)} (target-file-size)."
    return html.section("Sizes of files", html.markup("p", caption, class_="dim"), html.bars(rows, most))


def _indexes(r: TableReport) -> html.Markup:
    if not r.indexes:
        caption = "No column has a file index: only statistics say which files a scan needs."
        return html.section("File indexes", html.note(caption))
    read, there = r.index_sample
    caption = (
        f"{counted(r.index_files, 'file')} of {r.total.files:,} {'has' if r.index_files == 1 else 'have'} an index."
    )
    if read < there:
        caption += f" What they hold is estimated from {read:,} of {there:,} index files."
    coverage = html.bars(
        [
            html.Bar(
                f"{i.column}: {i.kind}",
                [html.Segment(i.files, "c1" if i.wanted else "c0", f"{counted(i.files, 'file')} of {r.total.files:,}")],
                f"{share_words(i.files, r.total.files)} of files",
            )
            for i in r.indexes[:40]
        ],
        most=r.total.files or 1,
    )
    rows = [
        (
            i.column,
            i.kind,
            f"{i.files:,}",
            human_bytes(i.size),
            share_words(i.size, r.total.size),
            "yes" if i.wanted else "no",
        )
        for i in r.indexes[:40]
    ]
    more = len(r.indexes) - 40
    heads = ("Column", "Index", "Files", "Size", "Of the data", "In the options")
    return html.section(
        "File indexes",
        html.markup("p", caption, class_="dim"),
        coverage,
        html.table(heads, rows, (2, 3, 4)),
        html.markup("p", f"and {more:,} more", class_="dim") if more > 0 else None,
        [html.note(problem, kind="bad") for problem in r.index_problems],
    )


def _timeline(r: TableReport) -> html.Markup:
    if not r.snapshots_read:
        return html.section("Snapshots", html.markup("p", "Nothing has been committed yet."))
    first, last = r.timeline_span
    kinds = [k for k in _KINDS if any(k in span for span in r.timeline)]
    length = (last - first) / max(len(r.timeline), 1)
    groups = [
        [
            html.Segment(
                span[k], _KINDS[k], f"{counted(span[k], k.lower())}, about {time_words(int(first + i * length))}"
            )
            for k in kinds
            if k in span
        ]
        for i, span in enumerate(r.timeline)
    ]
    sums = {k: sum(span.get(k, 0) for span in r.timeline) for k in kinds}
    caption = f"{counted(r.snapshots_read, 'commit')} in {span_words(last - first)}"
    if r.snapshots_read < r.snapshots:
        caption = f"The last {r.snapshots_read:,} of {r.snapshots:,} snapshots: {caption}"
    if len(groups) > 1:
        caption += f"; a column is {span_words(length)}"
    rows = [
        (
            c.id,
            time_words(c.time_ms),
            c.kind + (f" ({c.operation})" if c.operation else ""),
            f"{c.delta_rows:+,}",
            f"{c.total_rows:,}",
            c.user,
        )
        for c in r.commits
    ]
    heads = ("Snapshot", "Committed", "Kind", "Rows", "Rows then", "By")
    return html.section(
        "Snapshots over time",
        html.markup("p", caption + ".", class_="dim"),
        html.legend((_KINDS[k], f"{k}: {n:,}") for k, n in sums.items()),
        html.columns(groups, time_words(first), time_words(last)) if len(groups) > 1 else None,
        html.markup("h3", "Last commits"),
        html.table(heads, rows, (0, 3, 4)),
    )


def _scans(r: TableReport) -> html.Markup:
    title = "Recorded scans"
    if r.scans is None:
        caption = (
            "No scan has been recorded. bitlake.connect(…, record_scans=True) records conditions and skipped files."
        )
        return html.section(title, html.note(caption))
    scans = r.scans
    total = scans.all
    shown = html.bars(
        [
            html.Bar(
                a.what,
                [html.Segment(a.skipped, _SKIPPED, "skipped"), html.Segment(1 - a.skipped, _READ, "read")],
                f"{share_words(a.skipped, 1)} skipped, {counted(a.scans, 'scan')}",
            )
            for a in scans.asked
        ],
        most=1,
    )
    files = [(f"skipped by {why}", n) for why, n in scans.files_skipped]
    rows = [(why, f"{n:,}") for why, n in [("read", scans.files_read), *files]]
    caption = (
        f"{counted(total.scans, 'scan')} from {time_words(scans.first_ms)} to {time_words(scans.last_ms)} read "
        f"{human_bytes(total.bytes_touched)} of {human_bytes(total.bytes_total)}, in {span_words(total.ms)}. By what "
        "they ask, those that read most first:"
    )
    return html.section(
        title,
        html.markup("p", caption, class_="dim"),
        html.legend([(_SKIPPED, "bytes skipped"), (_READ, "bytes read")]),
        shown,
        html.markup("p", f"and {scans.more:,} other questions", class_="dim") if scans.more else None,
        html.table(("Files", "Count"), rows, (1,)),
    )


def _limits(r: TableReport) -> html.Markup:
    limits: Thresholds = r.thresholds
    items = [
        "Compaction: what is due by the table's options (compaction.* and num-sorted-run.*), as `bitlake compact` and "
        "the statement take it.",
        f"Deleted rows: {limits.deleted:.0%} of the rows stored, where none of that is due yet.",
        f"Manifests: more than {limits.manifests:,}, of less than 2 MB on average.",
        "Indexes: files that lack a declared one, indexes that cannot be read, and those that are no longer declared.",
        f"Snapshots: more than {limits.snapshots:,} are kept.",
        "Partitions and tags: any that is older than the options or the tag itself say.",
        "Scans: those that ask the same columns read rows that do not match, and an index could save at least "
        f"{LEAST_SHARE:.0%} of their bytes ({human_bytes(LEAST_BYTES)} or more).",
    ]
    return html.section("When something is recommended", html.markup("ul", [html.markup("li", line) for line in items]))
