"""The examples of the how-to pages run as they stand, in an empty folder, and print what the pages show."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parent.parent / "docs" / "how-to"
_OPTIONAL = re.compile(r"import (datafusion|dask|ibis)\b")
_SESSIONS = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_SESSIONS = sorted(p.stem for p in PAGES.glob("*.md") if _SESSIONS.search(p.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", WITH_SESSIONS)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _SESSIONS.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    session = "\n".join(b for b in blocks if all(map(importlib.util.find_spec, _OPTIONAL.findall(b))))
    test = doctest.DocTestParser().get_doctest(session, {}, page, None, None)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=report.append)
    assert test.examples and not report, "".join(report)


def test_pages_of_engines_have_examples() -> None:
    assert {"arrow", "conditions", "duckdb", "polars", "pandas", "spark", "from-delta", "from-iceberg"} <= set(
        WITH_SESSIONS
    )
