"""Pictures: shapes are inline SVG that stretches, words are HTML beside it, so that they stay readable when narrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitlake.html.markup import Child, Markup, markup

_WIDE = 1000
_TALL = 100
_FEW = 60
"""Stretches of a line up to which they are drawn apart."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: how much, in which colour (a class of :data:`bitlake.html.style.COLORS`), and what it says when
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
    told = list(rows)
    full = most or max((sum(s.value for s in bar.segments) for bar in told), default=0) or 1
    cells: list[Child] = []
    for bar in told:
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
    return markup("svg", shapes, class_="bar", viewBox=f"0 0 {_WIDE} {_TALL}", preserveAspectRatio="none", role="img")


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
    return markup(
        "svg", tip, shapes, class_="lane", viewBox=f"0 0 {_WIDE} {_TALL}", preserveAspectRatio="none", role="img"
    )


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
    picture = markup(
        "svg", shapes, class_="tall", viewBox=f"0 0 {_WIDE} {_TALL}", preserveAspectRatio="none", role="img"
    )
    return markup("div", picture, markup("div", markup("span", first), markup("span", last), class_="axis"))


def legend(items: Iterable[tuple[str, Child]]) -> Markup:
    """What the colours mean: pairs of a colour's class and words."""
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


def _rect(x: float, y: float, width: float, height: float, part: Segment) -> Markup:
    tip = None if part.tip is None else markup("title", part.tip)
    return markup("rect", *([] if tip is None else [tip]), x=x, y=y, width=width, height=height, class_=part.color)
