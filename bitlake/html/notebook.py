"""Small pieces of HTML for notebooks: no style of their own, so that they look as the notebook does, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bitlake.html.markup import Child, Markup, markup

_LEFT, _RIGHT = "text-align: left", "text-align: right"


def titled(title: Child, subtitle: Child, *parts: Child) -> str:
    """Parts under a title."""
    head = markup("div", markup("strong", title), " ", markup("span", subtitle, style="opacity: 0.7"))
    return markup("div", head, parts)


def grid(headers: Sequence[str], rows: Iterable[Sequence[Child]], numbers: Iterable[int] = ()) -> Markup:
    """A table; ``numbers`` are the columns to align right."""
    right = frozenset(numbers)
    sides = [_RIGHT if i in right else _LEFT for i in range(len(headers))]
    head = markup("tr", [markup("th", name, style=side) for name, side in zip(headers, sides, strict=True)])
    body = [
        markup("tr", [markup("td", cell, style=side) for cell, side in zip(row, sides, strict=True)]) for row in rows
    ]
    return markup("table", markup("thead", head), markup("tbody", body), style="color: inherit")


def rows_html(names: Sequence[str], table: Any, most: int = 20) -> str:
    """The first rows of an Arrow table, and how many there are."""
    rows = [[_cell(v) for v in row.values()] for row in table.slice(0, most).rename_columns(_unlike(names)).to_pylist()]
    right = [i for i, f in enumerate(table.schema) if str(f.type).startswith(("int", "uint", "float", "double", "dec"))]
    left = f"the first {most} of {table.num_rows:,} rows" if table.num_rows > most else None
    return markup("div", grid(names, rows, right), None if left is None else remark(left))


def _unlike(names: Sequence[str]) -> list[str]:
    """Names of which none is there twice: rows are dicts."""
    return [str(i) for i in range(len(names))]


def _cell(value: Any) -> Child:
    if value is None:
        return markup("span", "NULL", style="opacity: 0.5")
    return markup("span", str(value), style="white-space: pre-wrap")


def more(summary: str, *parts: Child) -> Markup:
    """Parts that show when the summary is clicked."""
    return markup("details", markup("summary", summary), parts)


def remark(text: Child) -> Markup:
    """A line below the rest."""
    return markup("div", text, style="opacity: 0.7")
