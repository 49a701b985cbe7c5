"""Keep Spark's classes in a file that the Java processes of later sessions map into memory.

A JVM that runs Spark loads and checks some 20,000 classes; from the file they come ready.  A JVM writes it when it
ends: an AOT cache (Java 25 and later, JEP 514), else a dynamic archive of classes (JEP 350).  It has the classes that
were loaded until then, so the session that writes it runs some of everything first.

The file lies in the folder of the Python environment, which also has Spark's jars.  Java uses it only if it is of the
same Java and the same jars; a JVM that cannot use it starts as it does without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bitlake.errors import StorageUnavailable

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
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options of the JVM that Spark starts."""
_NAME, _NEW = "spark-classes", ".new"
_WRITE = {"aot": "-XX:AOTCacheOutput", "jsa": "-XX:ArchiveClassesAtExit"}
"""The suffix of the file, and the option that writes it; the first that a Java has is used."""
# Java before 25 starts with no option that it does not know, if not told to.
_READ = {"aot": "-XX:+IgnoreUnrecognizedVMOptions -XX:AOTCache", "jsa": "-XX:SharedArchiveFile"}
_QUIET = "-Xlog:disable"
"""Java reports a file that it cannot use: a warning on standard output, from Java 25 on an error.

Its log tag ``aot`` cannot be named, since an older Java does not start with it.
"""


def class_archive(folder: Path | None = None) -> Path | None:
    """The file in a folder, which is this Python environment's by default; None if there is none."""
    archives = (Path(folder or sys.prefix, f"{_NAME}.{suffix}") for suffix in _READ)
    return next((path for path in archives if path.exists()), None)


def archive_options(folder: Path | None = None) -> str:
    """Java options by which a JVM uses the file; empty without one, and for a JVM that is to write one.

    >>> archive_options()
    ''
    """
    archive = class_archive(folder)
    if archive is None or not _is_one_word(archive) or os.environ.get(_OPTIONS, "").endswith(_NEW):
        return ""
    return f"{_QUIET} {_READ[archive.suffix[1:]]}={archive}"


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
        raise StorageUnavailable(f"cannot write {place / _NAME}: the folder is read-only; use a virtual environment")
    if not _is_one_word(place):
        raise StorageUnavailable(
            f"cannot write '{place / _NAME}': options of Java end at a space, and the path has one"
        )
    failed = ""
    for suffix, option in _WRITE.items():
        target = place / f"{_NAME}.{suffix}"
        written = Path(f"{target}{_NEW}")
        written.unlink(missing_ok=True)
        try:
            failed = _run(f"-Xlog:disable {java_options} {option}={written}")
            if written.exists() and not failed:
                written.replace(target)
                for other in _READ.keys() - {suffix}:  # of another Java
                    target.with_suffix(f".{other}").unlink(missing_ok=True)
                return target
        finally:
            written.unlink(missing_ok=True)
    raise StorageUnavailable(f"cannot write {place / _NAME}: {failed or 'this Java keeps no classes'}")


def _run(java_options: str) -> str:
    """Run a session that uses most of what Spark has for tables; returns the end of its errors, empty if none."""
    environment: Mapping[str, str] = {**os.environ, _OPTIONS: java_options}
    with tempfile.TemporaryDirectory(prefix="bitlake-classes-") as lake:
        command = [sys.executable, "-m", "bitlake", "sql", "--engine", "spark", "--lake", lake, _STATEMENTS]
        session = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return session.stderr[-1000:].strip() if session.returncode else ""
