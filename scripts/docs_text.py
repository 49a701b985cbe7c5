"""Docstrings and tables as Markdown, for the pages that are made from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_ROLE = re.compile(r":[a-z:]+:`~?(?:[\w.]+ <)?([^`<>]*?)>?`")
_LITERAL = re.compile(r"``([^`]+)``")


def markdown(doc: str | None) -> str:
    """A docstring's reStructuredText (the little of it that this code uses) as Markdown."""
    out: list[str] = []
    fenced = table = example = False
    for line in inspect.cleandoc(doc or "").splitlines():
        if example and not line.strip():
            out.append("```")
            example = False
        elif line.startswith(">>> ") and not (example or fenced):
            out += ["", "```pycon"]
            example = True
        if example:
            out.append(line)
            continue
        inside = line.startswith(" ") or not line.strip()
        if fenced and not inside:
            out[-1:] = ["```", ""] if not out[-1] else [out[-1], "```", ""]
            fenced = False
        if re.match(r"^=+( +=+)+$", line):
            if not table:
                out += ["", "```text"]
            table = True
            continue
        if table and not line.strip():
            out += ["```", ""]
            table = False
            continue
        if fenced or table:
            out.append(line)
            continue
        if line.rstrip().endswith("::"):
            head = line.rstrip()[:-1].rstrip(":")
            out += [_inline(head + ":") if head else "", "", "```text"]
            fenced = True
            continue
        out.append(_inline(line))
    if fenced or table or example:
        out.append("```")
    text = "\n".join(out)
    return re.sub(r"```text\n+", "```text\n", re.sub(r"\n{3,}", "\n\n", text)).strip() + "\n"


def sentence(doc: str | None) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join(markdown((doc or "").split("\n\n")[0]).split())


def _short(target: str) -> str:
    """A dotted name without its modules: ``bitlake.lake.Lake.table`` → ``Lake.table``, ``bitlake.lake`` → ``lake``."""
    parts = target.split(".")
    start = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[start:])


def _inline(line: str) -> str:
    line = _ROLE.sub(lambda m: f"`{_short(m.group(1))}`", line)
    line = _LITERAL.sub(r"`\1`", line)
    return re.sub(r"(?<![`\w])<(?=[\w/])", "&lt;", line) if "`" not in line else line


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped, line ends become blanks."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in row) + " |"

    return "\n".join([cells(heads), "|" + " --- |" * len(heads), *map(cells, rows)]) + "\n"


def code(text: object) -> str:
    """Something as it is written in code; a dash for nothing."""
    return "–" if text in (None, "") else f"`{text}`"
