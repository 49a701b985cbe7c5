"""pypaimon as a judge: a process in an environment of its own (its pins clash with ours), one per test process."""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import pickle
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from interop.paimon_java import Condition, Unavailable
from interop.rows import rows_of

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).parent / "pypaimon_server.py"
TIMEOUT_S = 120


@functools.cache
def find_python() -> Path:
    """The interpreter of pypaimon's environment: $BITLAKE_PYPAIMON_PYTHON, or what `make interop` made."""
    given = os.environ.get("BITLAKE_PYPAIMON_PYTHON")
    python = Path(given) if given else ROOT / ".venv-pypaimon" / "bin" / "python"
    if not python.exists() or not (given or (python.parents[1] / ".ready").exists()):
        raise Unavailable("no environment with pypaimon (`make interop` makes .venv-pypaimon)")
    return python


class PyPaimon:
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

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive:
            self._process.kill()
            self._process.wait()

    def ask(self, request: dict[str, Any]) -> int:
        """Send one request; the number of rows it read or wrote.  Raises RuntimeError with pypaimon's own words."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"pypaimon ended: {self._log.read()[-2000:].decode(errors='replace')}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"pypaimon: {answer['error']}")
        return int(answer["rows"])


_running: PyPaimon | None = None


def _ask(op: str, warehouse: Path | str, table: str, file: Path, native: bool = False, where: str = "") -> int:
    global _running
    if _running is None or not _running.alive:
        _running = PyPaimon()
    request = {"op": op, "warehouse": str(Path(warehouse).absolute()), "table": table, "file": str(file)}
    return _running.ask(request | {"native": native, "where": where})


def read(warehouse: Path | str, table: str, where: Iterable[Condition] = (), native: bool = False) -> pa.Table:
    """Read ``db.table`` with pypaimon, or with its Rust core if ``native``; conditions as for paimon_java.read."""
    conditions = list(where)
    text = base64.b64encode(pickle.dumps(conditions)).decode() if conditions else ""
    with tempfile.TemporaryDirectory(prefix="bitlake-pypaimon-") as folder:
        file = Path(folder) / "rows.arrow"
        _ask("read", warehouse, table, file, native, text)
        return pa.ipc.open_file(file.read_bytes()).read_all()


def dump(warehouse: Path | str, table: str, native: bool = False, **equal: Any) -> list[tuple[Any, ...]]:
    """The rows of ``db.table`` in the form paimon_java.dump gives them."""
    return rows_of(read(warehouse, table, [(c, "=", [v]) for c, v in equal.items()], native))


def append(warehouse: Path | str, table: str, rows: pa.Table) -> None:
    """Append an Arrow table with pypaimon, in one commit."""
    with tempfile.TemporaryDirectory(prefix="bitlake-pypaimon-") as folder:
        file = Path(folder) / "rows.arrow"
        with pa.ipc.new_file(str(file), rows.schema) as out:
            out.write_table(rows)
        _ask("append", warehouse, table, file)
