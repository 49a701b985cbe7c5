"""Iceberg's readers as judges: pyiceberg, DuckDB and Polars, in a process in an environment of their own."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pyarrow as pa
from interop import peer_process
from interop.peer_process import PeerProcess

SERVER = Path(__file__).parent / "iceberg_server.py"


@functools.cache
def find_python() -> Path:
    """The interpreter of the readers' environment: $BITLAKE_ICEBERG_PYTHON, or what `make interop` made."""
    return peer_process.find_python("BITLAKE_ICEBERG_PYTHON", ".venv-iceberg", "Iceberg's readers")


class Readers(PeerProcess):
    """A running process of the readers."""

    def __init__(self) -> None:
        super().__init__("an Iceberg reader", find_python(), SERVER)

    def read(self, engine: str, metadata: Path) -> pa.Table:
        """The rows of a table as an engine reads them; raises RuntimeError with its own words."""
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            self.ask({"engine": engine, "metadata": str(metadata), "file": file.name})
            with pa.OSFile(file.name) as source:
                return pa.ipc.open_file(source).read_all()
