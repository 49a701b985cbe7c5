"""Gather the pages of the documentation site in .site/docs: those of docs/, those made from the code, the drawings.

    make docs        (this script, then the notebooks, then mkdocs --strict, which refuses a broken link)

Pages made from the code are generated each time and never committed.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import docs_drawings
import docs_reference

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / ".site"
NAV = (
    ("Start", ("index.md", "notebooks/first-steps.md")),
    ("Concepts", (
        "concepts/tables.md", "concepts/file-indexes.md", "concepts/expressions.md", "concepts/deletion-vectors.md",
        "concepts/primary-keys.md", "concepts/concurrency.md", "concepts/trust.md",
    )),
    ("How to", (
        "how-to/selective-reads.md", "how-to/expression-indexes.md", "how-to/text-search.md",
        "how-to/conditions.md", "how-to/duckdb.md",
        "how-to/polars.md", "how-to/pandas.md", "how-to/arrow.md", "how-to/spark.md",
        "advise.md", "how-to/backfill.md", "how-to/explain-and-inspect.md",
        "how-to/upserts.md", "time-travel.md", "streaming.md", "how-to/maintenance.md", "verify.md",
        "how-to/s3.md", "catalogs.md",
        "how-to/schema-evolution.md", "how-to/iceberg-readers.md", "how-to/from-delta.md", "how-to/from-iceberg.md",
        "how-to/migrate.md", "how-to/troubleshooting.md", "how-to/notebooks.md", "cli.md",
    )),
    ("Reference", (
        "reference/sql.md", "reference/procedures.md", "reference/options.md", "reference/storage-options.md",
        "reference/python.md", "reference/python-lake.md", "reference/python-table.md",
        "reference/python-table-indexes.md", "reference/python-table-history.md",
        "reference/python-table-maintenance.md", "reference/python-scan.md", "reference/python-plan.md",
        "reference/python-results.md", "reference/commands.md", "reference/formats.md", "spec/index.md",
        "spec/table-format.md",
        "spec/index-format.md", "glossary.md",
    )),
    ("About", ("compatibility.md", "benchmarks.md", "scale.md", "testing.md", "decisions/index.md")),
)  # fmt: skip
"""The menu.  Other pages of docs/ come under "How to"; single decisions are reached through their index page."""


def main() -> None:
    """Replace the folder with a new one."""
    shutil.rmtree(SITE, ignore_errors=True)
    pages = SITE / "docs"
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.ipynb"))
    (pages / "reference").mkdir(exist_ok=True)
    for name, make in docs_reference.PAGES.items():
        (pages / "reference" / f"{name}.md").write_text(make(), encoding="utf-8")
    (pages / "drawings.css").write_text(docs_drawings.STYLE, encoding="utf-8")
    for page in pages.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(r"<!-- drawing: ([\w-]+) -->", _drawn, text), encoding="utf-8")
    notebooks = {f"notebooks/{n.stem}.md" for n in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    there = {str(p.relative_to(pages)) for p in pages.rglob("*.md")} | notebooks
    (SITE / "mkdocs.yml").write_text(_config(there), encoding="utf-8")
    print(f"{len(there)} pages in {pages.relative_to(ROOT)}")


def _drawn(m: re.Match[str]) -> str:
    if m.group(1) not in docs_drawings.DRAWINGS:
        sys.exit(f"there is no drawing '{m.group(1)}'; there are {', '.join(docs_drawings.DRAWINGS)}")
    return docs_drawings.DRAWINGS[m.group(1)]()


def _config(there: set[str]) -> str:
    """The site's own settings, and the menu."""
    named = {page for _, group in NAV for page in group}
    missing = sorted(named - there)
    if missing:
        sys.exit(f"the menu names pages that are not there: {', '.join(missing)}")
    rest = sorted(there - named)
    lines = [f"INHERIT: {ROOT / 'mkdocs.yml'}", f"docs_dir: {SITE / 'docs'}", "nav:"]
    for title, group in NAV:
        more = [p for p in rest if title == "How to" and ("/" not in p or p.startswith("how-to/"))]
        lines += [f"  - {title}:", *(f"      - {p}" for p in (*group, *more))]
    lines += ["not_in_nav: |", "  /decisions/0*.md"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
