"""The codes are promised: ``docs/verify.md`` shows each as it is."""

from __future__ import annotations

import re
from pathlib import Path

from bitlake.tools.verify import CODES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "verify.md"


def test_the_document_shows_every_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.*) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert [tuple(r) for r in rows] == [(c.name, c.severity, c.meaning, c.remedy) for c in CODES.values()]


def test_codes_are_words_and_say_what_to_do() -> None:
    for code in CODES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", code.name)
        assert code.meaning
        assert code.remedy
