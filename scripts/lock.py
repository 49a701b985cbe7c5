"""Write requirements.lock: every package of `.[spark,dev]` and of the build, pinned, as pip itself resolves it.

Beside it the locks of the environment with the oldest PySpark we support, in which `make versions` runs tests, and of
the one that makes the documentation site: what they share with the first has the same versions.

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
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("spark", "dev")
OLDEST = ROOT / "tests" / "spark" / "requirements-oldest.lock"
TESTING = ("pytest", "hypothesis", "moto[s3]", "flask", "flask-cors")  # what tests of tests/spark import of `dev`
HEAD = """\
# Every package the project's environment holds, pinned.  Made by `make lock`; do not edit.
# pip install -r requirements.lock && pip install --no-deps --no-build-isolation -e .
"""
OLDEST_HEAD = (
    "# The environment with the oldest PySpark we support, for `make versions`.  Made by `make lock`; do not edit.\n"
)
SITE = ROOT / "scripts" / "requirements-docs.lock"
SITE_TOOLS = ("mkdocs-material>=9.6", "nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6.29")
SITE_HEAD = "# The environment that makes the documentation site, for `make docs`.  Made by `make lock`; do not edit.\n"


def direct_requirements() -> list[Requirement]:
    """What pyproject.toml asks for, extras and build included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = list(project["build-system"]["requires"]) + list(project["project"]["dependencies"])
    for extra in EXTRAS:
        texts += project["project"]["optional-dependencies"][extra]
    return [Requirement(t) for t in texts]


def oldest_requirements() -> list[Requirement]:
    """What the environment with the oldest PySpark asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *optional["spark"], *optional["connect"]]
    texts += [t for t in optional["dev"] if re.split(r"[<>=; ]", t)[0] in TESTING]
    return [Requirement(re.sub(r"^(pyspark.*)>=([\d.]+)$", r"\1==\2.0", t)) for t in texts]


def site_requirements() -> list[Requirement]:
    """What the environment of the documentation site asks for: it runs notebooks without Spark."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(t) for t in (*project["dependencies"], *SITE_TOOLS)]


def resolve(requirements: list[Requirement], *given: str) -> dict[str, dict[str, Any]]:
    """Let pip choose a version of everything; by canonical name, the metadata of each chosen package."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command += given
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
    lines = write(ROOT / "requirements.lock", HEAD, direct, resolve(direct))
    oldest = oldest_requirements()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as same:
        same.write("".join(line for line in lines if not line.startswith(("pyspark=", "py4j="))))
        same.flush()
        write(OLDEST, OLDEST_HEAD, oldest, resolve(oldest, "--constraint", same.name))
        site = site_requirements()
        write(SITE, SITE_HEAD, site, resolve(site, "--constraint", same.name))


def write(path: Path, head: str, direct: list[Requirement], chosen: dict[str, dict[str, Any]]) -> list[str]:
    """Write a lock; returns its lines."""
    lines = []
    for name, markers in sorted(conditions(direct, chosen).items()):
        marker = "" if "" in markers else " ; " + " or ".join(sorted(markers))
        lines.append(f"{name}=={chosen[name]['version']}{marker}\n")
    path.write_text(head + "".join(lines))
    print(f"{path.relative_to(ROOT)}: {len(lines)} packages")
    return lines


if __name__ == "__main__":
    main()
