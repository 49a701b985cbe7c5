"""Iceberg's readers as judges: pyiceberg, DuckDB and Polars, in a process in an environment of their own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

import pyarrow as pa
from interop.paimon_java import Unavailable

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).parent / "iceberg_server.py"
TIMEOUT_S = 120


@functools.cache
def find_python() -> Path:
    """The interpreter of the readers' environment: $BITLAKE_ICEBERG_PYTHON, or what `make interop` made."""
    given = os.environ.get("BITLAKE_ICEBERG_PYTHON")
    python = Path(given) if given else ROOT / ".venv-iceberg" / "bin" / "python"
    if not python.exists() or not (given or (python.parents[1] / ".ready").exists()):
        raise Unavailable("no environment with Iceberg's readers (`make interop` makes .venv-iceberg)")
    return python


class Readers:
    """A running process.  Mutable: one request at a time."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [find_python(), SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
        )
        atexit.register(self.close)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def read(self, engine: str, metadata: Path) -> pa.Table:
        """The rows of a table as an engine reads them; raises RuntimeError with its own words."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
            watchdog.start()
            try:
                stdin.write(json.dumps({"engine": engine, "metadata": str(metadata), "file": file.name}) + "\n")
                stdin.flush()
                answer = json.loads(stdout.readline() or '{"error": "the process ended"}')
            finally:
                watchdog.cancel()
            if "error" in answer:
                raise RuntimeError(f"{engine}: {answer['error']}")
            with pa.OSFile(file.name) as source:
                return pa.ipc.open_file(source).read_all()
