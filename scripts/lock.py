"""Write requirements.lock: every package of `.[spark,dev]` and of the build, pinned, as pip itself resolves it.

    make lock        (or: python scripts/lock.py)

pip resolves on the oldest Python we support, where the most backports are needed; a package that is only needed
under a marker (`python_version < '3.14'`) keeps that marker, so the same file installs on newer Pythons.  Only names
and versions are written: which index to ask is the business of the machine that installs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("spark", "dev")
HEAD = """\
# Every package the project's environment holds, pinned.  Made by `make lock`; do not edit.
# pip install -r requirements.lock && pip install --no-deps --no-build-isolation -e .
"""


def direct_requirements() -> list[Requirement]:
    """What pyproject.toml asks for, extras and build included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = list(project["build-system"]["requires"]) + list(project["project"]["dependencies"])
    for extra in EXTRAS:
        texts += project["project"]["optional-dependencies"][extra]
    return [Requirement(t) for t in texts]


def resolve(requirements: list[Requirement]) -> dict[str, dict[str, Any]]:
    """Let pip choose a version of everything; by canonical name, the metadata of each chosen package."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = json.loads(
        subprocess.run(command + [str(r) for r in requirements], check=True, stdout=-1, text=True).stdout
    )
    return {canonicalize_name(item["metadata"]["name"]): item["metadata"] for item in report["install"]}


def without_extra(marker: Marker | None, extras: frozenset[str]) -> str | None:
    """The part of a marker that speaks of the machine; "" = always; None = not for these extras."""
    if marker is None:
        return ""
    text = str(marker)
    if "extra" not in text:
        return text
    if not any(marker.evaluate({"extra": extra}) for extra in extras):
        return None
    return re.sub(r"""\s*(and)?\s*\(?extra == ["'][^"']+["']\)?\s*(and)?\s*""", "", text)


def conditions(direct: list[Requirement], chosen: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """By package, the markers under which something asks for it; holding "" means always."""
    found: dict[str, set[str]] = {}
    todo = [(r, str(r.marker or "")) for r in direct]
    done: set[tuple[str, frozenset[str], str]] = set()
    while todo:
        requirement, condition = todo.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras), condition)
        if name not in chosen or key in done:
            continue
        done.add(key)
        found.setdefault(name, set()).add(condition)
        for text in chosen[name].get("requires_dist", []):
            child = Requirement(text)
            own = without_extra(child.marker, frozenset(requirement.extras))
            if own is not None:
                todo.append((child, " and ".join(filter(None, (condition, own)))))
    return found


def main() -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"lock with Python 3.11, the oldest we support (this is {sys.version.split()[0]})")
    direct = direct_requirements()
    chosen = resolve(direct)
    lines = []
    for name, markers in sorted(conditions(direct, chosen).items()):
        marker = "" if "" in markers else " ; " + " or ".join(sorted(markers))
        lines.append(f"{name}=={chosen[name]['version']}{marker}\n")
    (ROOT / "requirements.lock").write_text(HEAD + "".join(lines))
    print(f"requirements.lock: {len(lines)} packages")


if __name__ == "__main__":
    main()
