"""Docstrings, comments, messages and documentation in plain English: patterns of an older private dialect stay out."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = {
    "'x is no y': say what is wrong and what is expected": r"\b(?:is|are|was|were) no (?!longer|more)\w",
    "'so many': name the number": r"\bso many\b",
    "'that is there': existing": r"\b(?:that|who|which) (?:is|are|was|were) there\b",
    "'but for': except": r"\bbut for\b",
    "'anew': again, or re-": r"\banew\b",
    "'whoever': name who": r"\bwhoever\b",
    "'as well as can be': best effort": r"as well as can be",
    "'told', 'tells of' for things: says, describes": (
        r"\b(?:is|are|was|were|be) told\b|\btells? (?:of|what|which|whether|how)\b"
    ),
    "'as Spark has it': as in Spark": r"\bas (?:Spark|Paimon|Java|Arrow|DuckDB) has it\b",
    "'who reads', 'who asks' for code: the reader, the user": r"\bwho (?:reads|asks)\b",
    "'says nothing', 'knows nothing': proves nothing, is independent of": r"\b(?:says|knows) nothing\b",
}
TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a module, or the lines of a page, with their line numbers."""
    source = path.read_text()
    if path.suffix == ".md":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXTS:
            yield token.start[0], token.string


@functools.cache
def texts() -> list[tuple[Path, int, str]]:
    pages = [*(ROOT / "bitlake").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    return [(path, line, text) for path in sorted(pages) for line, text in texts_of(path)]


@pytest.mark.parametrize("advice", PATTERNS)
def test_plain_english(advice: str) -> None:
    pattern = re.compile(PATTERNS[advice], re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{line + text[: match.start()].count(chr(10))}: {match.group()!r}"
        for path, line, text in texts()
        for match in pattern.finditer(text)
    ]
    assert not wrong, f"{advice}:\n" + "\n".join(wrong)
