"""The page itself: sections, tables, facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitlake.formatting import shortened
from bitlake.html.markup import Child, Markup, joined, markup
from bitlake.html.style import ROOT, STYLE

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
        markup("style", Markup(f"{STYLE}body{{margin:0}}")),
    )
    shown = markup("body", markup("main", body), class_=ROOT)
    return f"<!doctype html>\n{markup('html', head, shown, lang='en')}\n"


def fragment(*body: Child) -> str:
    """A part of another's page, such as a notebook's, which keeps its look: the style is of this element alone."""
    return f"{markup('style', Markup(STYLE))}{markup('div', markup('main', body), class_=ROOT)}"


def heading(title: Child, subtitle: Child = None) -> Markup:
    """What a page, or a part of it, is about."""
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
    """A table that scrolls by itself where it is too wide; ``numbers`` are the columns to align right."""
    right = frozenset(numbers)
    kinds = ["n" if i in right else "t" for i in range(len(headers))]
    head = markup("tr", [markup("th", name, class_=kind) for name, kind in zip(headers, kinds, strict=True)])
    body = [
        markup("tr", [markup("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)]) for row in rows
    ]
    inner = markup("table", markup("thead", head), markup("tbody", body))
    return markup("div", inner, class_="scroll", tabindex="0")


def code(text: str) -> Markup:
    """Something to type, on lines of its own."""
    return markup("pre", text)


def note(*body: Child, kind: str | None = None) -> Markup:
    """Something to notice; ``kind``: ``good``, ``warn`` or ``bad``."""
    return markup("div", joined(body), class_=f"note {kind}" if kind else "note")
