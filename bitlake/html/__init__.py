"""Self-contained HTML pages: markup that cannot be broken by what is put in it, one look, and pictures as inline SVG.

A page loads nothing: its style is in it, it has no script, and it is readable in light and dark and from 320 pixels on.
"""

from bitlake.html.chart import Bar, Lane, Segment, bars, columns, lanes, legend, stacked
from bitlake.html.markup import Markup, markup
from bitlake.html.page import code, facts, fragment, heading, names, note, page, section, table

__all__ = [
    "Bar",
    "Lane",
    "Markup",
    "Segment",
    "bars",
    "code",
    "columns",
    "facts",
    "fragment",
    "heading",
    "lanes",
    "legend",
    "markup",
    "names",
    "note",
    "page",
    "section",
    "stacked",
    "table",
]
