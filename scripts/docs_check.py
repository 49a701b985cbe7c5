"""Look through the built site: every page fetches only files of the site, and they are there.

mkdocs --strict has looked at the links between pages; this looks at what a browser would fetch, and at links in what
was put in as HTML.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).resolve().parent.parent / "site"
_FETCHES = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}


class _Links(HTMLParser):
    """The addresses in a page: of what is fetched, and of what can be followed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.followed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (tag, name) in _FETCHES:
                self.fetched.append(value)
            elif value and (tag, name) == ("a", "href"):
                self.followed.append(value)


def problems(site: Path) -> list[str]:
    """What is wrong, in words."""
    found = []
    for page in sorted(site.rglob("*.html")):
        links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
        shown = page.relative_to(site)
        foreign = [a for a in links.fetched if urlsplit(a).scheme in ("http", "https") or a.startswith("//")]
        found += [f"{shown} fetches {a}" for a in foreign]
        for address in (*links.fetched, *links.followed):
            parts = urlsplit(address)
            # The page of a missing page is shown at any depth: its addresses begin at the root.
            if parts.scheme or parts.netloc or not parts.path:
                continue
            base = site if parts.path.startswith("/") else page.parent
            target = base / unquote(parts.path).lstrip("/")
            if not (target / "index.html").exists() and not target.is_file():
                found.append(f"{shown} names {address}, which is not there")
    for style in site.rglob("*.css"):
        found += [f"{style.relative_to(site)} fetches {a}" for a in _foreign(style.read_text(encoding="utf-8"))]
    return found


def _foreign(css: str) -> list[str]:
    return re.findall(r"(?:url\(|@import\s*)[\"']?((?:https?:)?//[^\"')\s]+)", css)


if __name__ == "__main__":
    wrong = problems(SITE)
    print(
        "\n".join(wrong) or f"{len(list(SITE.rglob('*.html')))} pages, nothing fetched from elsewhere, no link broken"
    )
    sys.exit(bool(wrong))
