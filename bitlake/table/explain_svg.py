"""Pictures of explanations as inline SVG; they stretch to the width there is, so they hold shapes and no text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bitlake.table.explain_pages import FileMap

WIDE = 1000
"""The width of every picture in its own units."""
_FEW_CELLS = 60
_STATES = {
    "read": "read",
    "some columns": "some",
    "file index": "index",
    "deletion vector": "vector",
    "page bounds": "bounds",
    "statistics": "stats",
    "partition": "part",
}


def css_class(state: str) -> str:
    """The class that colours a state; reasons without a colour of their own share one."""
    return "bl-" + _STATES.get(state, "other")


def bar(parts: Sequence[tuple[float, str]], whole: float, title: str, height: int = 14) -> str:
    """A bar of parts (amount, class) side by side, on a scale where ``whole`` is all of the width."""
    out, at = [], 0.0
    for amount, kind in parts:
        width = 0.0 if whole <= 0 else amount / whole * WIDE
        if amount > 0:
            width = min(max(width, 2.0), WIDE - at)  # what is there is seen
            out.append(f'<rect class="{kind}" x="{at:.1f}" y="0" width="{width:.1f}" height="{height}"/>')
        at += width
    return _svg(title, height, [f'<rect class="bl-empty" width="{WIDE}" height="{height}"/>', *out])


def file_row(file: FileMap, most_rows: int) -> str:
    """A file's pages from left to right, one path for each state; its width is its share of the largest file's rows."""
    height, scale = 12, WIDE / max(1, most_rows)
    if not file.cells:
        width = max(2.0, file.rows * scale)
        return _svg(file.why, height, [_path(css_class(file.state), [(0.0, width)], height)])
    gap = 1.0 if len(file.cells) <= _FEW_CELLS else 0.0
    spans: dict[str, list[tuple[float, float]]] = {}
    for cell in file.cells:
        start, width = cell.first_row * scale, cell.rows * scale
        width = max(0.5, width - gap if width > 4 * gap else width)
        found = spans.setdefault(css_class(cell.state), [])
        if not gap and found and abs(found[-1][0] + found[-1][1] - start) < 0.01:
            found[-1] = (found[-1][0], found[-1][1] + width)
        else:
            found.append((start, width))
    return _svg(_title(file), height, [_path(kind, places, height) for kind, places in spans.items()])


def _title(file: FileMap) -> str:
    pages = ", ".join(f"{n:,} {state}" for state, n in file.pages().items())
    return f"{file.why} — pages of {file.column}: {pages}" if file.column is not None else file.why


def _path(kind: str, places: Iterable[tuple[float, float]], height: int) -> str:
    drawn = "".join(f"M{x:.1f} 0h{w:.1f}v{height}h{-w:.1f}z" for x, w in places)
    return f'<path class="{kind}" d="{drawn}"/>'


def _svg(title: str, height: int, shapes: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {WIDE} {height}" preserveAspectRatio="none" height="{height}">'
        f"<title>{escape(title)}</title>{''.join(shapes)}</svg>"
    )
