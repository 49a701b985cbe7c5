"""pypaimon as a judge: a process in an environment of its own (its pins clash with ours), one per test process."""

from __future__ import annotations

import base64
import functools
import pickle
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from interop import peer_process
from interop.paimon_java import Condition
from interop.peer_process import PeerProcess
from interop.rows import rows_of

SERVER = Path(__file__).parent / "pypaimon_server.py"


@functools.cache
def find_python() -> Path:
    """The interpreter of pypaimon's environment: $BITLAKE_PYPAIMON_PYTHON, or what `make interop` made."""
    return peer_process.find_python("BITLAKE_PYPAIMON_PYTHON", ".venv-pypaimon", "pypaimon")


_running: PeerProcess | None = None


def _ask(op: str, warehouse: Path | str, table: str, file: Path, native: bool = False, where: str = "") -> int:
    global _running
    if _running is None or not _running.alive:
        _running = PeerProcess("pypaimon", [find_python(), SERVER])
    request = {"op": op, "warehouse": str(Path(warehouse).absolute()), "table": table, "file": str(file)}
    return int(_running.ask(request | {"native": native, "where": where})["rows"])


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
    _write("append", warehouse, table, rows)


def overwrite(warehouse: Path | str, table: str, rows: pa.Table) -> None:
    """Replace all rows of a table by those of an Arrow table with pypaimon, in one commit."""
    _write("overwrite", warehouse, table, rows)


def _write(op: str, warehouse: Path | str, table: str, rows: pa.Table) -> None:
    with tempfile.TemporaryDirectory(prefix="bitlake-pypaimon-") as folder:
        file = Path(folder) / "rows.arrow"
        with pa.ipc.new_file(str(file), rows.schema) as out:
            out.write_table(rows)
        _ask(op, warehouse, table, file)
