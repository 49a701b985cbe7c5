"""A Spark session on a machine with nothing but Python: Java found or brought, workers on this interpreter."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bitlake.progress.board import in_notebook
from bitlake.spark.java import find_java

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


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
    os.environ["JAVA_HOME"] = find_java()
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
    if in_notebook():
        settings["spark.sql.repl.eagerEval.enabled"] = "true"  # a query at the end of a cell shows its first rows
    settings.update({name.replace("__", "."): value for name, value in conf.items()})
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
