"""What the documents name exists: files, modules, make targets; and they stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions"]
# A path in backquotes: with a slash or a known ending, no blanks or placeholders.
PATH = re.compile(
    r"`((?:bitlake|tests|bench|docs|scripts|\.ci)/[\w./-]*|[\w-]+\.(?:md|toml|lock))(?:::?\w+(?:\(\))?)?`"
)


def documents() -> list[Path]:
    found = []
    for name in DOCUMENTS:
        path = ROOT / name
        found += sorted(path.glob("*.md")) if path.is_dir() else [path]
    return found


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.name)
def test_named_paths_exist(document: Path) -> None:
    text = document.read_text()
    named = set(PATH.findall(text))
    links = set(re.findall(r"\]\(([^)#:]+)\)", text))
    missing = [n for n in named if not (ROOT / n).exists()]
    missing += [t for t in links if not (document.parent / t).exists()]
    assert not missing, f"{document.name} names what is not there: {missing}"


def test_architecture_is_short_and_names_its_modules() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 250
    assert len(set(PATH.findall(text))) >= 30


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.name)
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", document.read_text(), re.MULTILINE))
    assert named <= targets


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split())  # type: ignore[union-attr]
    helped = set(re.findall(r"^## ([a-z-]+) ", makefile, re.MULTILINE))
    assert phony - helped == {"python-version"}


def test_no_file_names_a_package_index() -> None:
    """Which index to ask is the business of the machine that installs (docs/decisions/0001-dependencies.md)."""
    host = re.compile("py" + r"pi\.org|python" + "hosted|index" + r"-url|repo1?\." + "maven")
    files = [ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.lock", ".ci/run")] + documents()
    for folder in ("bitlake", "bench", "scripts", "tests", "docs"):
        files += [f for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".java", ".lock", ".md")]
    assert not [str(f.relative_to(ROOT)) for f in files if host.search(f.read_text())]
