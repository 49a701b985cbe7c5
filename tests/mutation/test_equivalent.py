"""The list of mutants that no test can notice."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.exhaustive
def test_each_mutant_of_the_list_exists() -> None:
    """A changed line of the product leaves an entry behind that excuses nothing, or something else."""
    sys.path.insert(0, str(ROOT / "scripts"))
    mutation = importlib.import_module("mutation")
    sys.path.remove(str(ROOT / "scripts"))
    listed = mutation.equivalents()
    files = {key.split(" | ")[0] for key in listed}
    every = [site for room in mutation.ROOMS for site in mutation.sites(room, files)]
    assert mutation.stale_entries(listed, every) == []
    assert mutation.stale_entries(listed | {f"{min(files)} | no_such_function | a -> b": "gone"}, every) != []
