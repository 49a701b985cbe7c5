"""The documentation site's pages that are made from the code, its menu and its drawings; `make docs` builds it."""

from __future__ import annotations

import importlib
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield
    sys.path.remove(str(ROOT / "scripts"))


def load(name: str) -> Any:
    return importlib.import_module(name)


def test_every_option_procedure_command_and_export_is_in_the_reference() -> None:
    import bitlake
    from bitlake.cli.app import COMMANDS
    from bitlake.engine.procedures import PROCEDURES
    from bitlake.metadata.options import OPTIONS

    pages = {name: make() for name, make in load("docs_reference").PAGES.items()}
    assert all(text.startswith("# ") and "None" not in text.splitlines()[0] for text in pages.values())
    names = [o.name for o in (OPTIONS.values() if isinstance(OPTIONS, dict) else OPTIONS)]
    assert len(names) > 50 and not [n for n in names if f"`{n}`" not in pages["options"]]
    assert not [n for n in PROCEDURES if f"## {n}\n" not in pages["procedures"]]
    assert not [n for n in bitlake.__all__ if n not in pages["python"]]
    assert sum(f"## {n}\n" in pages["commands"] for n in COMMANDS) >= 10
    members = {
        "python-table": "Table.append",
        "python-table-history": "table.history.rollback",
        "python-lake": "Lake.sql",
    }
    assert all(f"## {member}\n" in pages[page] for page, member in members.items())
    text = "".join(pages[p] for p in pages if p.startswith("python"))
    assert ":class:" not in "".join(pages.values()) and "``" not in text.replace("```", "")
    fences = {name: len(re.findall(r"^```", text, re.MULTILINE)) for name, text in pages.items()}
    assert not [name for name, n in fences.items() if n % 2]


def test_docstrings_become_markdown() -> None:
    doc = """One of :class:`bitlake.Table` and ``x``::

        a | b

    and more; :func:`here <bitlake.there>`; :meth:`bitlake.lake.Lake.table`.

    ====  ====
    a     b
    ====  ====
    1     2
    ====  ====

    >>> print("``a``")
    ``a``

    The end.

    >>> 1
    1
    """
    text = load("docs_text").markdown(doc)
    assert (
        text.startswith("One of `Table` and `x`:\n\n```text\n    a | b\n```\n")
        and "and more; `there`; `Lake.table`." in text
    )
    assert "```text\na     b\n1     2\n```" in text
    assert text.endswith('```pycon\n>>> print("``a``")\n``a``\n```\n\nThe end.\n\n```pycon\n>>> 1\n1\n```\n')


def test_drawings_are_pictures_with_a_text() -> None:
    drawings = load("docs_drawings").DRAWINGS
    for name, draw in drawings.items():
        figure = ET.fromstring(draw())
        assert figure.tag == "figure" and figure.find("svg").get("aria-label"), name  # type: ignore[union-attr]
        assert "\n\n" not in draw()
    used = {n for p in (ROOT / "docs").rglob("*.md") for n in re.findall(r"<!-- drawing: ([\w-]+) -->", p.read_text())}
    assert used == set(drawings)


def test_the_menu_names_pages_that_are_there() -> None:
    named = {page for _, group in load("docs_site").NAV for page in group}
    made = {f"reference/{n}.md" for n in load("docs_reference").PAGES} | {"notebooks/first-steps.md"}
    assert not [n for n in named - made if not (ROOT / "docs" / n).exists()] and made <= named


def test_links_between_pages_lead_somewhere() -> None:
    made = {ROOT / "docs" / "reference" / f"{n}.md" for n in load("docs_reference").PAGES}
    made.add(ROOT / "docs" / "notebooks" / "first-steps.md")
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text()):
            target = (page.parent / link).resolve()
            assert target.exists() or target in made, f"{page.name}: {link}"


def test_notebooks_are_kept_without_what_they_printed() -> None:
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert not [c for c in cells if c.get("outputs") or c.get("execution_count")], path.name


def test_a_site_that_fetches_or_names_what_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        "<script src='https://elsewhere.example/x.js'></script><a href='gone/'>x</a><a href='#here'>y</a>"
    )
    (tmp_path / "x.css").write_text("@import '//elsewhere.example/y.css';")
    assert load("docs_check").problems(tmp_path) == [
        "index.html fetches https://elsewhere.example/x.js",
        "index.html names gone/, which is not there",
        "x.css fetches //elsewhere.example/y.css",
    ]
