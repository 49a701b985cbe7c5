"""Self-contained HTML: pages and notebook fragments, in which everything that is not markup is escaped.

A page loads nothing: its style is in it, it has no script, and it is readable in light and dark and from 320 pixels on.
All pages have one style (:func:`style`), and so have fragments of somebody else's page (:func:`fragment`).

In charts, shapes are inline SVG that stretches, words are HTML beside it, so that they stay readable when narrow.

Small pieces for notebooks (:func:`titled`, :func:`grid` and the like) have no style of their own, so that they look as
the notebook does, light or dark.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any, TypeAlias

from bitlake.formatting import shortened

# --- elements ---------------------------------------------------------------------------------------------------------


class Markup(str):
    """Text that is HTML; any other text is escaped where it is put into an element."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
_VOID = frozenset({"br", "hr", "img", "meta", "rect", "line", "path", "circle"})
# Line ends and the like inside text would do no harm; what a terminal or browser does not show is made visible.
_UNSEEN = {i: chr(0x2400 + i) for i in range(32) if i not in (9, 10, 13)} | {127: "\u2421"}


def markup(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """The element ``<name>``; ``class_`` is the attribute ``class``, ``data_x`` is ``data-x``, None leaves one out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{shown}>" if name in ("br", "hr", "img", "meta") else f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(children: Child) -> Markup:
    """Children one after the other: markup as it is, text escaped, None as nothing."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(_text(children))
    return Markup("".join(joined(child) for child in children))


def _text(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return escape(str(value).translate(_UNSEEN), quote=True)


# --- style ------------------------------------------------------------------------------------------------------------

COLORS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c0")
"""Classes that colour the parts of a picture: seven that differ clearly, also in grey and for colour-blind readers,
``c8``, which is a pale ``c1``, and ``c0`` for the rest."""

ROOT = "bl"
"""The class of the element that the style is about: nothing outside of it changes its look."""


@functools.cache
def style() -> str:
    """The rules of ``html.css``, for elements inside :data:`ROOT` only; ``&`` stands for that element itself."""

    def below_root(selectors: re.Match[str]) -> str:
        return ",".join(f".{ROOT}" if s == "&" else f".{ROOT} {s}" for s in selectors[1].split(",")) + "{"

    rules = resources.files("bitlake").joinpath("html.css").read_text()
    return re.sub(r"^([^@{}:\n][^@{}\n]*)\{", below_root, rules, flags=re.MULTILINE)


# --- pages ------------------------------------------------------------------------------------------------------------

_MOST_TITLE = 120


def page(title: str, *body: Child) -> str:
    """A whole page; ``title`` names its window."""
    head = markup(
        "head",
        markup("meta", charset="utf-8"),
        markup("meta", name="viewport", content="width=device-width, initial-scale=1"),
        markup("meta", name="color-scheme", content="light dark"),
        # Nothing is fetched, whatever a page may hold.
        markup("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        markup("title", shortened(title, _MOST_TITLE)),
        markup("style", Markup(f"{style()}body{{margin:0}}")),
    )
    shown = markup("body", markup("main", body), class_=ROOT)
    return f"<!doctype html>\n{markup('html', head, shown, lang='en')}\n"


def fragment(*body: Child) -> str:
    """A part of another's page, such as a notebook's, which keeps its look: the style is of this element alone."""
    return f"{markup('style', Markup(style()))}{markup('div', markup('main', body), class_=ROOT)}"


def heading(title: Child, subtitle: Child = None) -> Markup:
    """Return the heading of a page or of a part of it."""
    return joined([markup("h1", title), None if subtitle is None else markup("p", subtitle, class_="sub")])


def section(title: str, *body: Child, id: str | None = None) -> Markup:
    """A part of a page under a heading."""
    return markup("section", markup("h2", title), body, id=id)


def facts(items: Iterable[tuple[str, Child, Child]]) -> Markup:
    """Short facts as tiles: a name, a value, and what is to be said of it (None: nothing)."""
    return markup(
        "dl",
        [
            markup("div", markup("dt", name), markup("dd", value, None if more is None else markup("small", more)))
            for name, value, more in items
        ],
        class_="facts",
    )


def names(items: Iterable[tuple[str, Child]]) -> Markup:
    """Names and what they stand for, a line each."""
    return markup("dl", [[markup("dt", name), markup("dd", value)] for name, value in items], class_="names")


def table(headers: Sequence[str], rows: Iterable[Sequence[Child]], numbers: Iterable[int] = ()) -> Markup:
    """A table; ``numbers`` are the columns to align right.

    A table that is too wide scrolls; on a narrow screen each cell is a line that begins with its column's name.
    """
    right = frozenset(numbers)
    kinds = ["n" if i in right else "t" for i in range(len(headers))]
    head = markup("tr", [markup("th", name, class_=kind) for name, kind in zip(headers, kinds, strict=True)])
    body = [
        markup(
            "tr", [markup("td", cell, class_=k, data_name=h) for cell, k, h in zip(row, kinds, headers, strict=True)]
        )
        for row in rows
    ]
    inner = markup("table", markup("thead", head), markup("tbody", body))
    return markup("div", inner, class_="scroll", tabindex="0")


def code(text: str) -> Markup:
    """Something to type, on lines of its own."""
    return markup("pre", text)


def note(*body: Child, kind: str | None = None) -> Markup:
    """Something to notice; ``kind``: ``good``, ``warn`` or ``bad``."""
    return markup("div", joined(body), class_=f"note {kind}" if kind else "note")


# --- charts -----------------------------------------------------------------------------------------------------------

_WIDE = 1000
_TALL = 100
_FEW = 60
"""Stretches of a line up to which they are drawn apart."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: how much, in which colour (a class of :data:`COLORS`), and what it says when
    pointed at."""

    value: float
    color: str = "c1"
    tip: str | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: its name, its parts, and its value in words."""

    label: Child
    segments: Sequence[Segment]
    text: Child


@dataclass(frozen=True, slots=True)
class Lane:
    """A line of stretches: its name, (start, length) of them by colour, its value, and what shows when it is opened.

    ``tip`` is what it says when pointed at.
    """

    label: Child
    stretches: Mapping[str, Sequence[tuple[float, float]]]
    text: Child
    more: Child
    tip: str


def bars(rows: Iterable[Bar], most: float | None = None) -> Markup:
    """Horizontal bars under one another, on one scale; ``most``: what a full bar is, default the longest."""
    bars_given = list(rows)
    full = most or max((sum(s.value for s in bar.segments) for bar in bars_given), default=0) or 1
    cells: list[Child] = []
    for bar in bars_given:
        row = [
            markup("div", bar.label, class_="l"),
            markup("div", stacked(bar.segments, full), class_="p"),
            markup("div", bar.text, class_="v"),
        ]
        cells.append(markup("div", row, class_="row"))
    return markup("div", cells, class_="bars")


def stacked(segments: Iterable[Segment], full: float | None = None) -> Markup:
    """One bar of parts side by side; ``full``: what its whole width is, default the sum of the parts."""
    parts = [s for s in segments if s.value > 0]
    whole = full or sum(s.value for s in parts) or 1
    shapes, at = [], 0.0
    for part in parts:
        width = part.value / whole * _WIDE
        # What is there is seen: no part is thinner than a hair.
        shapes.append(_rect(at, 0, max(width, 1.5), _TALL, part))
        at += width
    return _picture("bar", shapes)


def lanes(rows: Iterable[Lane], full: float) -> Markup:
    """Lines under one another, on one scale, each of which opens; ``full``: the length of the longest."""
    made = []
    for lane in rows:
        line = [
            markup("span", lane.label, class_="l"),
            markup("span", _lane(lane, _WIDE / (full or 1)), class_="p"),
            markup("span", lane.text, class_="v"),
        ]
        made.append(markup("details", markup("summary", line), markup("div", lane.more)))
    return markup("div", made, class_="lanes")


def _lane(lane: Lane, scale: float) -> Markup:
    gap = 1.0 if sum(map(len, lane.stretches.values())) <= _FEW else 0.0
    shapes = []
    for color, places in lane.stretches.items():
        drawn: list[tuple[float, float]] = []
        for start, length in places:
            at, width = start * scale, length * scale
            width = max(0.5, width - gap if width > 4 * gap else width)
            if not gap and drawn and abs(sum(drawn[-1]) - at) < 0.01:
                drawn[-1] = (drawn[-1][0], drawn[-1][1] + width)
            else:
                drawn.append((at, width))
        # One path for each colour: a page of an element for each stretch would be large.
        path = "".join(f"M{x:.1f} 0h{w:.1f}v{_TALL}h{-w:.1f}z" for x, w in drawn)
        shapes.append(markup("path", d=path, class_=color))
    tip = markup("title", lane.tip)
    return _picture("lane", [tip, *shapes])


def columns(groups: Sequence[Sequence[Segment]], first: Child, last: Child, most: float | None = None) -> Markup:
    """Upright bars side by side, each of parts on one another, with what stands left and right under them."""
    full = most or max((sum(s.value for s in group) for group in groups), default=0) or 1
    width = _WIDE / max(len(groups), 1)
    shapes = []
    for i, group in enumerate(groups):
        at = float(_TALL)
        for part in group:
            height = part.value / full * (_TALL - 4)
            at -= height
            shapes.append(_rect(i * width + width * 0.08, at, width * 0.84, height, part))
    return markup(
        "div", _picture("tall", shapes), markup("div", markup("span", first), markup("span", last), class_="axis")
    )


def legend(items: Iterable[tuple[str, Child]]) -> Markup:
    """Return a legend: pairs of a colour's class and words."""
    return markup(
        "ul",
        [
            markup(
                "li",
                markup("svg", markup("rect", width=12, height=12, rx=2, class_=color), viewBox="0 0 12 12"),
                words,
            )
            for color, words in items
        ],
        class_="legend",
    )


def _picture(kind: str, shapes: Child) -> Markup:
    """Shapes in a drawing that stretches to its place."""
    return markup("svg", shapes, class_=kind, viewBox=f"0 0 {_WIDE} {_TALL}", preserveAspectRatio="none", role="img")


def _rect(x: float, y: float, width: float, height: float, part: Segment) -> Markup:
    tip = None if part.tip is None else markup("title", part.tip)
    return markup("rect", *([] if tip is None else [tip]), x=x, y=y, width=width, height=height, class_=part.color)


# --- pieces for notebooks ---------------------------------------------------------------------------------------------

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


_ROWS = 20
"""The most rows that :func:`rows_html` shows."""


def rows_html(names: Sequence[str], table: Any) -> str:
    """The first rows of an Arrow table, and how many there are."""
    # Rows are dicts, and two columns may have one name.
    rows = [
        [_cell(v) for v in row.values()]
        for row in table.slice(0, _ROWS).rename_columns([str(i) for i in range(len(names))]).to_pylist()
    ]
    right = [i for i, f in enumerate(table.schema) if str(f.type).startswith(("int", "uint", "float", "double", "dec"))]
    left = f"the first {_ROWS} of {table.num_rows:,} rows" if table.num_rows > _ROWS else None
    return markup("div", grid(names, rows, right), None if left is None else remark(left))


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
