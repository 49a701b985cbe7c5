"""Long lines at a terminal: no wider than it, broken at words, what goes on below the text and not the label."""

from __future__ import annotations

import pytest

from bitlake.cli.wrap import wrapped
from bitlake.inspect.tree import Tree, render

_TEXT = """\
Scan of default.orders at snapshot 2
  files      3 of 400 read; skipped by statistics: 200, skipped by index: 197, by deletion vectors: 0
  + day=2024-01-01/bucket-0/data-6fdc3f0e-57a2-4ea5-9b87-31f1e7a44be1-0.parquet: 3 of 10,000 rows by bitmap (status)
         → the latest snapshot does not have it, and older ones never change: it goes when these snapshots expire

Checked  3 snapshots, 2 schemas, 4 manifest lists, 12 manifests, 3 data files (3000 rows, 1.2 MB), 3 file indexes."""


@pytest.mark.parametrize("width", [24, 40, 80, 100])
def test_nothing_is_wider_and_nothing_is_lost(width: int) -> None:
    lines = wrapped(_TEXT, width).split("\n")
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(_TEXT.split())


def test_what_fits_stays_as_it_is() -> None:
    assert wrapped(_TEXT, 1000) == _TEXT


def test_what_goes_on_stands_below_the_text() -> None:
    lines = wrapped(_TEXT, 80).split("\n")
    assert lines[1:3] == [
        "  files      3 of 400 read; skipped by statistics: 200, skipped by index: 197,",
        "             by deletion vectors: 0",
    ]
    assert lines[4].startswith("    ") and lines[4][4] != " "
    assert lines[-1].startswith("         (3000 rows") and lines[-3] == ""


def test_a_path_is_broken_behind_a_slash() -> None:
    path = "/a/long/way/to/a/table/in/a/lake/default.db/orders/bucket-0/data-0.parquet"
    assert wrapped(path, 30).split("\n")[0] == "/a/long/way/to/a/table/in/a/"


def test_a_tree_stays_one() -> None:
    tree = Tree("file", 0, 100)
    part = tree.add("part", 0, 50, {f"fact {i}": "some words" for i in range(9)})
    part.add("inside", 0, 10, {f"fact {i}": "some words" for i in range(9)})
    tree.add("last", 50, 50, {"said": "so " * 30})
    whole, lines = render(tree.done()), render(tree.done(), 70).split("\n")
    assert max(map(len, lines)) <= 70 < max(map(len, whole.split("\n")))
    inside = next(i for i, line in enumerate(lines) if "└─ inside" in line)
    assert lines[inside - 1].startswith("               │  │  fact") and lines[inside + 1].startswith(
        "               │     "
    )
