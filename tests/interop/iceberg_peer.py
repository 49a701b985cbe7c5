"""Iceberg's readers as judges, in processes and environments of their own: pyiceberg, DuckDB, Polars; and Spark."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from interop import peer_process
from interop.paimon_java import find_jar
from interop.peer_process import PeerProcess, Unavailable

SERVER = Path(__file__).parent / "iceberg_server.py"
SPARK_SERVER = Path(__file__).parent / "iceberg_spark_server.py"
SPARK_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"
"""Iceberg's newest runtime that reads on the oldest PySpark that bitlake supports; it does not run on later ones."""


@functools.cache
def find_python() -> Path:
    """The interpreter of the readers' environment: $BITLAKE_ICEBERG_PYTHON, or what `make interop` made."""
    return peer_process.find_python("BITLAKE_ICEBERG_PYTHON", ".venv-iceberg", "Iceberg's readers")


def spark() -> Readers:
    """Iceberg's runtime on Spark; raises :class:`Unavailable`."""
    python = peer_process.find_python("BITLAKE_OLDEST_PYTHON", ".venv-oldest", "the oldest PySpark")
    return Readers(python, SPARK_SERVER, ICEBERG_JAR=str(find_jar(SPARK_RUNTIME)))


class Readers(PeerProcess):
    """A running process of readers: by default of all but Spark."""

    def __init__(self, python: Path | None = None, server: Path = SERVER, **environment: str) -> None:
        super().__init__("an Iceberg reader", [python or find_python(), server], **environment)

    def read(self, engine: str, metadata: Path | str, **properties: str) -> pa.Table:
        """The rows of a table as an engine reads them; raises RuntimeError with its own words.

        ``properties``: pyiceberg's, such as an object store's credentials.
        """
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            self.ask({"engine": engine, "metadata": str(metadata), "properties": properties, "file": file.name})
            with pa.OSFile(file.name) as source:
                return pa.ipc.open_file(source).read_all()


if __name__ == "__main__":
    try:
        print(f"Iceberg's Spark runtime: {find_jar(SPARK_RUNTIME, fetch=True).name}")
    except Unavailable as e:
        print(f"Iceberg's Spark runtime is not available, its tests are skipped: {e}", file=sys.stderr)
