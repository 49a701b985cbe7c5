"""A plan as text: totals, then each file with the step that selected its rows or skipped it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitlake.errors import InvalidRequest
from bitlake.expressions.indexed import judged_by_indexes
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import leaves_of
from bitlake.fileindex.registry import usable_indexes
from bitlake.formatting import counted, human_bytes, printable
from bitlake.metadata.manifest import has_index
from bitlake.scan.metadata_only import DATA
from bitlake.scan.plan import Plan, PlannedFile, SkippedFile, SkipReason
from bitlake.types import AtomicType, Root

MAX_FILES = 50
_MAX_RUNS = 8


def row_ranges(positions: np.ndarray) -> str:
    """Row positions as runs: ``0, 2, 5-9``; only the first are named."""
    if not len(positions):
        return "none"
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    starts = positions[np.concatenate(([0], breaks))]
    ends = positions[np.concatenate((breaks - 1, [len(positions) - 1]))]
    pairs = zip(starts[:_MAX_RUNS].tolist(), ends[:_MAX_RUNS].tolist(), strict=True)
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in pairs]
    more = len(starts) - len(shown)
    return ", ".join(shown) + (f", … ({more:,} more runs)" if more else "")


def explain_text(plan: Plan) -> str:
    """The plan as text."""
    lines = [f"Scan of {plan.table}" + ("" if plan.snapshot_id is None else f" at snapshot {plan.snapshot_id}")]
    lines.append(f"  columns    {', '.join(plan.columns) or '(none: only counting)'}")
    if plan.predicate is not None:
        lines.append(f"  where      {to_sql(plan.predicate, plan.schema.fields)}")
    if plan.order:
        lines.append(f"  order by   {', '.join(map(str, plan.order))}")
    if plan.limit is not None:
        lines.append(f"  limit      {plan.limit:,}")
    m = plan.metrics
    unopened = bool(m.answered_by) and DATA not in m.answered_by and not m.by_file
    to_read = () if unopened else plan.files
    read = sum(len(f.merge.files) if f.merge is not None else 1 for f in to_read)
    lines.append(f"  files      {read:,} of {m.files:,} read" + _reasons(plan))
    share = f" ({_percent(m.rows_chosen / m.rows)})" if m.rows else ""
    lines.append(f"  rows       {m.rows_chosen:,} of {m.rows:,} chosen{share}")
    size = sum(f.entry.file.file_size for f in to_read)
    lines.append(f"  data       {human_bytes(size)} in files to read, of {human_bytes(m.data_bytes)}")
    if m.files_unseen:
        lines[-1] += " in the files looked at"
        lines.append(
            f"  manifests  {m.manifests_read:,} of {m.manifests:,} read; {m.files_unseen:,} files of other partitions "
            "were not looked at"
        )
    if m.files_unlisted:
        shown = " and ".join(f"{counted(n, 'file')} by {reason}" for reason, n in m.files_unlisted.items())
        lines.append(f"  on Spark   skipped {shown}; they are not listed")
    if m.index_files_opened or m.index_bytes_read:
        lines.append(
            f"  index      {human_bytes(m.index_bytes_read)} read, {m.index_files_opened:,} .index files opened"
        )
    lines += _coverage(plan)
    lines.append(f"  planned in {m.plan_ms:.1f} ms{_phases(plan)}")
    if m.answered_by:
        ways = ", ".join(f"{n:,} by {way}" for way, n in sorted(m.answered_by.items()))
        lines.append(f"  answered   {ways} (times a file was asked)")
    if m.by_file:
        lines.append(
            f"  fetched    {_read(m.data_bytes_read, m.data_requests, m.pages_read, m.row_groups_read)}, instead of "
            f"{human_bytes(m.data_bytes)}; {m.rows_read:,} rows, {m.rows_returned:,} returned in {m.read_ms:.1f} ms"
        )
    lines += [f"  warning    {p}" for p in plan.problems]
    if unopened:
        lines.append(f"  no data file is opened: {counted(len(plan.files), 'file')} answered without")
    lines += _files(plan, to_read, plan.skipped)
    return printable("\n".join(lines))


def _coverage(plan: Plan) -> list[str]:
    """A line on the files that lack an index of the condition, if the table declares one."""
    if plan.predicate is None:
        return []
    try:
        declared = {spec.column for spec in usable_indexes(plan.schema.options, plan.schema.fields)}
    except InvalidRequest:
        return []  # indexes of such declarations are not built
    judged = judged_by_indexes(plan.predicate).predicate  # with expressions as their indexes name them
    if declared.isdisjoint(leaf.column for leaf in leaves_of(judged)):
        return []
    indexed = [f for f in plan.files if f.merge is None and (f.pruned_by or f.unused_indexes or not f.selection.exact)]
    lacking = [f for f in indexed if not f.pruned_by and not f.unused_indexes]
    skipped = sum(f.reason is SkipReason.INDEX for f in plan.skipped)
    if not skipped and len(lacking) == len(indexed):
        # Perhaps no index can answer this condition; files that have none at all are certain.
        lacking = [f for f in lacking if not has_index(f.entry.file)]
    if not lacking:
        return []
    files = counted(len(indexed) + skipped, "file")
    return [
        f"  coverage   {len(lacking):,} of {files} without an index for this condition"
        f"; CALL sys.rewrite_file_index(table => '{plan.table}') builds it"
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.095 else f"{100 * share:.0f} %"


def _phases(plan: Plan) -> str:
    m = plan.metrics
    named = (("statistics", m.prune_ms), ("indexes", m.index_ms), ("page bounds", m.pages_ms), ("top n", m.top_n_ms))
    phases_text = ", ".join(f"{name} {ms:.1f}" for name, ms in named if ms)
    return f" ({phases_text})" if phases_text else ""


def _read(size: int, requests: int, pages: int, groups: int) -> str:
    what = [f"{n:,} {name}" for n, name in ((pages, "pages"), (groups, "row groups")) if n]
    return f"{human_bytes(size)} in {requests:,} requests" + (f" ({', '.join(what)})" if what else "")


def explain_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain values: what was asked, totals, phases, and every file; reading too, if it has happened."""
    m = plan.metrics
    return {
        "table": plan.table,
        "snapshot": plan.snapshot_id,
        "columns": list(plan.columns),
        "where": None if plan.predicate is None else to_sql(plan.predicate, plan.schema.fields),
        "order_by": [str(o) for o in plan.order],
        "limit": plan.limit,
        "files": {"total": m.files, "to_read": len(plan.files), "skipped": dict(m.files_skipped)},
        "rows": {"total": m.rows, "chosen": m.rows_chosen, "read": m.rows_read, "returned": m.rows_returned},
        "bytes": {
            "total": m.data_bytes,
            "in_files_to_read": sum(f.entry.file.file_size for f in plan.files),
            "read": m.data_bytes_read,
            "index_read": m.index_bytes_read,
        },
        "manifests": {
            "total": m.manifests,
            "read": m.manifests_read,
            "files_unseen": m.files_unseen,
            "files_unlisted": dict(m.files_unlisted),
        },
        "requests": m.data_requests,
        "pages": m.pages_read,
        "row_groups": m.row_groups_read,
        "index_files_opened": m.index_files_opened,
        "answered_by": dict(m.answered_by),
        "ms": {
            "plan": m.plan_ms,
            "statistics": m.prune_ms,
            "indexes": m.index_ms,
            "page_bounds": m.pages_ms,
            "top_n": m.top_n_ms,
            "read": m.read_ms,
        },
        "warnings": list(plan.problems),
        "read": [_file_dict(plan, f) for f in plan.files],
        "skipped": [
            {
                "path": _short(plan.root, s.path),
                "by": s.reason.value,
                "detail": s.detail,
                "rows": s.row_count,
                "bytes": s.size,
            }
            for s in plan.skipped
        ],
    }


def _file_dict(plan: Plan, file: PlannedFile) -> dict[str, Any]:
    return {
        "path": _short(plan.root, file.path),
        "rows": file.row_count,
        "chosen": file.chosen_rows,
        "positions": None if file.whole else row_ranges(file.selection.positions(file.row_count)),
        "exact": plan.predicate is None or file.selection.exact,
        "pruned_by": list(file.pruned_by),
        "index": file.index_place,
        "index_not_read": list(file.unused_indexes),
        "bytes": file.entry.file.file_size,
        "was_read": plan.metrics.by_file.get(file.path),
    }


def explain_json(plan: Plan) -> str:
    """:func:`explain_dict` as JSON."""
    return json.dumps(explain_dict(plan), indent=2, ensure_ascii=False)


def _reasons(plan: Plan) -> str:
    if not plan.skipped:
        return ""
    return "; skipped by " + ", ".join(f"{reason}: {n:,}" for reason, n in sorted(plan.metrics.files_skipped.items()))


def _files(plan: Plan, files: Sequence[PlannedFile], skipped: Sequence[SkippedFile]) -> list[str]:
    lines = []
    dates = [
        f.name for f in plan.schema.partition_fields if isinstance(f.type, AtomicType) and f.type.root is Root.DATE
    ]
    for file in files[:MAX_FILES]:
        lines.append(f"  + {_named(plan.root, file.path, dates)}: {describe_choice(file)}")
        lines += [f"      not asked: {why}" for why in file.unused_indexes]
    if len(files) > MAX_FILES:
        lines.append(f"  + … {len(files) - MAX_FILES:,} more files to read")
    for left_out in skipped[:MAX_FILES]:
        lines.append(
            f"  - {_named(plan.root, left_out.path, dates)}: skipped by {left_out.reason.value}: {left_out.detail}"
        )
    if len(skipped) > MAX_FILES:
        lines.append(f"  - … {len(skipped) - MAX_FILES:,} more files skipped")
    return lines


def describe_choice(file: PlannedFile) -> str:
    """Describe which rows of a file are read, and which index chose them."""
    if file.merge is not None:
        names = ", ".join(f.path.rsplit("/", 1)[-1] for f in file.merge.files)
        return f"merged by key from {len(file.merge.files)} files of {file.row_count:,} rows: {names}"
    if file.whole:
        return f"all {file.row_count:,} rows" if file.row_count != 1 else "its one row"
    by = f" by {' and '.join(file.pruned_by)}" if file.pruned_by else ""
    if file.deleted:
        by += f"{' and' if by else ','} without the {file.deleted:,} of its deletion vector"
    place = None if file.by_pages else file.index_place
    where = f" ({place})" if place == "embedded" else " (.index file)" if place else ""
    sure = "" if file.selection.exact else ", to be filtered again"
    rows = row_ranges(file.selection.positions(file.row_count))
    return f"{file.chosen_rows:,} of {file.row_count:,} rows{by}{where}{sure}: rows {rows}"


def _named(root: str, path: str, dates: Sequence[str]) -> str:
    """A path below the root, and the dates of folders that are named by days since 1970."""
    short = _short(root, path)
    pairs = [part.partition("=")[::2] for part in short.split("/")] if dates else []
    days = [(name, int(value)) for name, value in pairs if name in dates and re.fullmatch("-?[0-9]{1,6}", value)]
    named = ", ".join(f"{name}={np.datetime64(day, 'D')}" for name, day in days)
    return f"{short} ({named})" if named else short


def _short(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")


FORMATS: dict[str, Callable[[Plan], Any]] = {"text": explain_text, "dict": explain_dict, "json": explain_json}
"""The forms of a plan, by the names that :meth:`bitlake.table.scan.Scan.explain` takes."""
