"""Pages: what is put into them stays text, and nothing is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from bitlake.html import (
    COLORS,
    Bar,
    Child,
    Lane,
    Segment,
    bars,
    code,
    columns,
    facts,
    fragment,
    heading,
    lanes,
    legend,
    markup,
    names,
    note,
    page,
    section,
    stacked,
    style,
    table,
)

NASTY = "</pre><script>alert(1)</script>\"'&\x00\x1b[31m"


class Tags(HTMLParser):
    """The elements of a page, its text, and whether each that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "hr", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def body() -> list[Child]:
    return [
        heading(NASTY, NASTY),
        section(NASTY, note(NASTY, kind="warn"), code(NASTY), id=NASTY),
        facts([(NASTY, NASTY, NASTY), ("n", 3, None)]),
        names([(NASTY, NASTY)]),
        table([NASTY, "n"], [[NASTY, 1.5], [markup("b", NASTY), None]], numbers=[1]),
        bars([Bar(NASTY, [Segment(3, "c1", NASTY), Segment(0)], NASTY)]),
        stacked([]),
        lanes([Lane(NASTY, {"c1": [(0, 3)], "c2": [(3, 4)]}, NASTY, NASTY, NASTY)], 7),
        columns([[Segment(1, tip=NASTY)], []], NASTY, NASTY),
        legend([("c1", NASTY)]),
    ]


def whole() -> str:
    return page(NASTY, *body())


def test_whatever_is_put_in_stays_text() -> None:
    found = Tags(whole())
    assert not found.open and "script" not in found.names
    assert found.text.count("<script>alert(1)</script>") > 10
    assert "\x00" not in whole() and "\x1b" not in whole() and "\u241b[31m" in found.text


def test_a_page_loads_nothing() -> None:
    found = Tags(whole())
    assert not {"link", "img", "iframe"} & set(found.names)
    assert not [a for a in found.attributes if a[0] in ("src", "href") or a[0].startswith("on")]
    assert not re.search(r"url\(|@import|https?:", whole())


def test_bars_share_one_scale() -> None:
    text = bars([Bar("a", [Segment(10)], "10"), Bar("b", [Segment(5)], "5")])
    assert [float(w) for w in re.findall(r' width="([\d.]+)"', text)] == [1000, 500]
    assert 'width="250"' in bars([Bar("a", [Segment(10)], "10")], most=40)


def test_stretches_of_a_line_lie_where_they_are() -> None:
    few = lanes([Lane("a", {"c1": [(0, 50)], "c3": [(50, 50)]}, "", "", "")], 200)
    assert [float(x) for x in re.findall(r"M([\d.]+) ", few)] == [0, 250]
    many = lanes([Lane("a", {"c1": [(i, 1) for i in range(500)]}, "", "", "")], 1000)
    assert re.findall(r' d="([^"]*)"', many) == ["M0.0 0h500.0v100h-500.0z"], (
        "neighbours of one colour are drawn as one"
    )


def test_a_part_of_another_page_leaves_that_as_it_is() -> None:
    """Every rule is about the element or what is in it; a page is the same element."""
    text = fragment(*body())
    Tags(text)
    selectors = [s for line in re.findall(r"^([^@{}\n]+)\{", style(), re.MULTILINE) for s in line.split(",")]
    assert len(selectors) > 50 and all(re.match(r"\.bl( |$)", s) for s in selectors), selectors
    assert all(f".bl .{color}{{fill:" in style() for color in COLORS)
    assert text.startswith("<style>") and '<div class="bl">' in text and '<body class="bl">' in whole()
