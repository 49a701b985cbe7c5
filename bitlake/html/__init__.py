"""Self-contained HTML pages: markup that cannot be broken by what is put in it, one look, and pictures as inline SVG.

A page loads nothing: its style is in it, it has no script, and it is readable in light and dark and from 320 pixels on.
"""

from bitlake.html.chart import Bar, Segment, bars, columns, legend, stacked
from bitlake.html.markup import Markup, markup
from bitlake.html.page import code, facts, note, page, section, table

__all__ = [
    "Bar",
    "Markup",
    "Segment",
    "bars",
    "code",
    "columns",
    "facts",
    "legend",
    "markup",
    "note",
    "page",
    "section",
    "stacked",
    "table",
]
