"""Print pip requirements that pin each direct dependency at the lowest version that pyproject.toml declares.

    python scripts/lowest.py        one requirement a line, then what the tests need, as in requirements.lock

``make lowest`` installs them into an environment of their own and runs the tests of the core and of the command line.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("duckdb", "polars")
"""Optional dependencies that the tests of the core need."""
TESTING = ("pytest", "pytest-xdist", "hypothesis", "moto", "flask", "flask-cors", "pandas", "packaging", "tzdata")
"""What the tests import beside the dependencies.  zstandard is left out: fastavro must do without it."""


def lowest() -> list[str]:
    """The dependencies at their lowest versions, with their markers."""
    pins = []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *(r for e in EXTRAS for r in project["optional-dependencies"][e])]:
        requirement = Requirement(text)
        version = next(s.version for s in requirement.specifier if s.operator == ">=")
        pins.append(f"{requirement.name}=={version}" + (f"; {requirement.marker}" if requirement.marker else ""))
    return pins


def testing() -> list[str]:
    """The lines of requirements.lock of what the tests need."""
    lock = (ROOT / "requirements.lock").read_text()
    return [re.search(rf"^{name}(\[[^]]*\])?==.*$", lock, re.M | re.I)[0] for name in TESTING]  # type: ignore[index]


if __name__ == "__main__":
    print(*lowest(), *testing(), sep="\n")
