"""A plan for a person: totals first, then every file with what chose its rows or proved it needless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitlake.predicate.text import to_sql
from bitlake.table.plan import Plan, PlannedFile, SkippedFile

MAX_FILES = 50
_MAX_RUNS = 8


def human_bytes(size: float) -> str:
    """``1536`` → ``1.5 KB``."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1024 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def row_ranges(positions: np.ndarray, most: int = _MAX_RUNS) -> str:
    """Row positions as runs: ``0, 2, 5-9``; at most ``most`` runs are named."""
    if not len(positions):
        return "none"
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    starts = positions[np.concatenate(([0], breaks))]
    ends = positions[np.concatenate((breaks - 1, [len(positions) - 1]))]
    shown = [
        str(a) if a == b else f"{a}-{b}" for a, b in zip(starts[:most].tolist(), ends[:most].tolist(), strict=True)
    ]
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
    lines.append(f"  files      {len(plan.files):,} of {m.files:,} read" + _reasons(plan))
    share = f" ({100 * m.rows_chosen / m.rows:.2g} %)" if m.rows else ""
    lines.append(f"  rows       {m.rows_chosen:,} of {m.rows:,} chosen{share}")
    size = sum(f.entry.file.file_size for f in plan.files)
    lines.append(f"  data       {human_bytes(size)} in files to read, of {human_bytes(m.data_bytes)}")
    if m.index_files_opened or m.index_bytes_read:
        lines.append(
            f"  index      {human_bytes(m.index_bytes_read)} read, {m.index_files_opened:,} .index files opened"
        )
    lines.append(f"  planned in {m.plan_ms:.1f} ms")
    lines += [f"  warning    {p}" for p in plan.problems]
    lines += _files(plan.root, plan.files, plan.skipped)
    return "\n".join(lines)


def _reasons(plan: Plan) -> str:
    if not plan.skipped:
        return ""
    return "; skipped by " + ", ".join(f"{reason}: {n:,}" for reason, n in sorted(plan.metrics.files_skipped.items()))


def _files(root: str, files: Sequence[PlannedFile], skipped: Sequence[SkippedFile]) -> list[str]:
    lines = []
    for file in files[:MAX_FILES]:
        lines.append(f"  + {_short(root, file.path)}: {describe_choice(file)}")
    if len(files) > MAX_FILES:
        lines.append(f"  + … {len(files) - MAX_FILES:,} more files to read")
    for gone in skipped[:MAX_FILES]:
        lines.append(f"  - {_short(root, gone.path)}: skipped by {gone.reason.value}: {gone.detail}")
    if len(skipped) > MAX_FILES:
        lines.append(f"  - … {len(skipped) - MAX_FILES:,} more files skipped")
    return lines


def describe_choice(file: PlannedFile) -> str:
    """Which rows of a file are read, and which index chose them."""
    if file.merge is not None:
        names = ", ".join(f.path.rsplit("/", 1)[-1] for f in file.merge.files)
        return f"merged by key from {len(file.merge.files)} files of {file.row_count:,} rows: {names}"
    if file.whole:
        return f"all {file.row_count:,} rows"
    by = f" by {' and '.join(file.pruned_by)}" if file.pruned_by else ""
    if file.deleted:
        by += f"{' and' if by else ','} without the {file.deleted:,} of its deletion vector"
    where = f" ({file.index_place})" if file.index_place == "embedded" else " (.index file)" if file.index_place else ""
    sure = "" if file.selection.exact else ", to be filtered again"
    rows = row_ranges(file.selection.positions(file.row_count))
    return f"{file.chosen_rows:,} of {file.row_count:,} rows{by}{where}{sure}: rows {rows}"


def _short(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")
