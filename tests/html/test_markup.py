"""Pages: what is put into them stays text, and nothing is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from bitlake.html import Bar, Segment, bars, code, columns, facts, legend, markup, note, page, section, stacked, table

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


def whole() -> str:
    return page(
        NASTY,
        section(NASTY, note(NASTY, kind="warn"), code(NASTY), id=NASTY),
        facts([(NASTY, NASTY, NASTY), ("n", 3, None)]),
        table([NASTY, "n"], [[NASTY, 1.5], [markup("b", NASTY), None]], numbers=[1]),
        bars([Bar(NASTY, [Segment(3, "c1", NASTY), Segment(0)], NASTY)]),
        stacked([]),
        columns([[Segment(1, tip=NASTY)], []], NASTY, NASTY),
        legend([("c1", NASTY)]),
        subtitle=NASTY,
    )


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
