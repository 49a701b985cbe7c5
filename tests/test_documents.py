"""What the documents name exists: files, modules, make targets; and they stay short."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions"]
# A path in backquotes: with a slash or a known ending, no blanks or placeholders.
PATH = re.compile(
    r"`((?:bitlake|tests|bench|docs|scripts|\.ci)/[\w./-]*|[\w-]+\.(?:md|toml|lock))(?:::?\w+(?:\(\))?)?`"
)


SPECS = {d.stem: d for d in sorted((ROOT / "docs" / "spec").glob("*-format.md"))}
# A citation: "table-format spec, sections 2 (Evolution), 4.1 and 6 and trap 19".
_NUMBER = r"\d+(?:\.\d+)?(?: \([^)]*\))?"
_PART = rf"(?:section|trap)s? {_NUMBER}(?:(?:, | and |, and ){_NUMBER})*"
CITATION = re.compile(rf"({'|'.join(SPECS)}) spec(?:, ({_PART}(?:(?:, | and |, and ){_PART})*))?", re.IGNORECASE)
OWN_CITATION = re.compile(rf"\b({_PART})", re.IGNORECASE)


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


def targets(spec: Path) -> set[str]:
    """What can be cited in a spec: ``section 4``, ``section 4.1``, ``trap 19``."""
    text = spec.read_text()
    sections = re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE)
    traps = re.search(r"^## \d+\. Traps\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert traps is not None
    numbers = re.findall(r"^(\d+)\. ", traps.group(1), re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(numbers))]
    return {f"section {s}" for s in sections} | {f"trap {n}" for n in numbers}


def cited(parts: str) -> list[str]:
    """``sections 2 (what cannot change) and 10, trap 19`` → ``section 2``, ``section 10``, ``trap 19``."""
    parts = re.sub(r" \([^)]*\)", "", parts)
    out, kind = [], ""
    for word, number in re.findall(r"(section|trap)s?|(\d+(?:\.\d+)?)", parts, re.IGNORECASE):
        kind = word.lower() or kind
        out += [f"{kind} {number}"] if number else []
    return out


def one_line(path: Path) -> str:
    return re.sub(r"\s+(?:# )?", " ", path.read_text())


def test_cited_sections_of_the_specs_exist() -> None:
    files = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    for folder in ("bitlake", "pyspark_bitlake", "tests", "bench", "scripts", "docs"):
        files += [f for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".md") and f.name != Path(__file__).name]
    known = {name: targets(spec) for name, spec in SPECS.items()}
    citations = [(f, c.group(1).lower(), c.group(2)) for f in files for c in CITATION.finditer(one_line(f))]
    citations += [(f, name, c.group(1)) for name, f in SPECS.items() for c in OWN_CITATION.finditer(one_line(f))]
    unclear = [(str(f.relative_to(ROOT)), spec) for f, spec, parts in citations if parts is None]
    assert not unclear, f"cite a section, as in 'table-format spec, section 4.1': {unclear}"
    missing = [
        (str(f.relative_to(ROOT)), spec, c) for f, spec, p in citations for c in cited(p) if c not in known[spec]
    ]
    assert not missing
    assert len(citations) > 80


def test_index_lists_every_decision_and_spec() -> None:
    for folder in ("decisions", "spec"):
        pages = {p.name for p in (ROOT / "docs" / folder).glob("*.md")} - {"index.md"}
        assert set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / folder / "index.md").read_text())) == pages


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


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_takes_the_first_python_that_is_new_enough(tmp_path: Path) -> None:
    for name, status in (("python3", 1), ("python3.13", 0), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    command = [str(shutil.which("make")), "--print-data-base", "--dry-run", "help"]
    variables = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    ).stdout
    assert "PYTHON := python3.13" in variables.splitlines()


def test_no_file_names_a_package_index() -> None:
    """Which index to ask is the business of the machine that installs (docs/decisions/0001-dependencies.md)."""
    host = re.compile("py" + r"pi\.org|python" + "hosted|index" + r"-url|repo1?\." + "maven")
    files = [ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.lock", ".ci/run")] + documents()
    for folder in ("bitlake", "bench", "scripts", "tests", "docs"):
        files += [f for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".java", ".lock", ".md")]
    assert not [str(f.relative_to(ROOT)) for f in files if host.search(f.read_text())]
