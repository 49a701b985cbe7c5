"""Peers beside us: processes in environments of their own, which time their own work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent


class _Process:
    """A peer's process, which answers each line of JSON with one.  Mutable: a running process."""

    def __init__(
        self, name: str, python: Path, program: str, log: Path, told: dict[str, str], cwd: Path | None
    ) -> None:
        self._name = name
        self._log_path = log
        self._log = log.open("wb")
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME")}
        self._process = subprocess.Popen(
            [python, HERE / program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=cwd,
            env=kept | told,
        )
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ended = json.dumps({"error": f"it ended; see {self._log_path.name}"})
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or ended)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {answer['error']}")
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request as the peer's program takes it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._log.close()


class PyPaimonTimer(_Process):
    """Mutable: a running process; ask it for one read at a time, so that runs can take turns with ours."""

    @staticmethod
    def find() -> Path | None:
        """The interpreter of pypaimon's environment ($BITLAKE_PYPAIMON_PYTHON or .venv-pypaimon), if there is one."""
        given = os.environ.get("BITLAKE_PYPAIMON_PYTHON")
        python = Path(given) if given else HERE.parent / ".venv-pypaimon" / "bin" / "python"
        return python if python.exists() else None

    def __init__(self, python: Path, log: Path) -> None:
        super().__init__("pypaimon", python, "pypaimon_timer.py", log, {}, None)

    def read(self, warehouse: Path, table: str, column: str, value: str, native: bool) -> tuple[float, int]:
        """Seconds and rows of one read with one equality."""
        return self.read_where(warehouse, table, ["equal", column, value], native)

    def read_where(self, warehouse: Path, table: str, where: list[Any], native: bool) -> tuple[float, int]:
        """Seconds and rows of one read; ``where`` is as :mod:`bench.pypaimon_timer` takes it."""
        answer = self.ask(warehouse=str(warehouse), table=table, where=where, native=native)
        return answer["seconds"], answer["rows"]


class SparkPeer(_Process):
    """Delta Lake or Iceberg in its own environment and Spark session.  Mutable: a running process."""

    NAMES = MappingProxyType({"delta": "Delta Lake", "iceberg": "Iceberg"})

    @staticmethod
    def find(kind: str) -> tuple[Path, str] | None:
        """Interpreter and jars ($BITLAKE_DELTA_PYTHON, $BITLAKE_DELTA_JARS with commas between), if both are given.

        For Iceberg the names have ICEBERG in place of DELTA.
        """
        python = os.environ.get(f"BITLAKE_{kind.upper()}_PYTHON")
        jars = os.environ.get(f"BITLAKE_{kind.upper()}_JARS")
        return (Path(python), jars) if python and jars else None

    @classmethod
    def start(cls, kind: str, folder: Path) -> SparkPeer | None:
        """The peer with tables in ``folder``, which is emptied, if there is an environment for it."""
        found = cls.find(kind)
        return cls(kind, *found, folder) if found else None

    def __init__(self, kind: str, python: Path, jars: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.kind = kind
        self.folder = folder
        told = {"BITLAKE_PEER": kind, "BITLAKE_PEER_JARS": jars, "BITLAKE_PEER_FOLDER": str(folder)}
        told["PYSPARK_PYTHON"] = str(python)
        super().__init__(self.NAMES[kind], python, "spark_peer.py", folder.parent / f"{kind}.log", told, folder)


class TextPeer(_Process):
    """Text indexes of chdb and pylance, whichever are installed.  Mutable: a running process."""

    @classmethod
    def start(cls, folder: Path) -> TextPeer | None:
        """The peer with tables in ``folder``, which is emptied, if one of the packages is installed.

        They are looked for in the environment of $BITLAKE_TEXT_PEERS_PYTHON, or in this one.
        """
        peer = cls(Path(os.environ.get("BITLAKE_TEXT_PEERS_PYTHON", sys.executable)), folder)
        if peer.versions:
            return peer
        peer.close()
        return None

    def __init__(self, python: Path, folder: Path) -> None:
        told = {"BITLAKE_PEER_FOLDER": str(folder)}
        log = folder.parent / "text-peers.log"
        super().__init__("text indexes of others", python, "text_peers.py", log, told, None)

    def build(self, files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Load and index files with each engine; yield its name and the answer of :mod:`bench.text_peers`."""
        for engine in self.versions:
            yield engine, self.ask(op="build", engine=engine, files=list(files))

    def find(self, engine: str, literal: str) -> tuple[float, int]:
        """Seconds that a search for a literal took, and its lines."""
        answer = self.ask(op="find", engine=engine, literal=literal)
        return answer["seconds"], answer["rows"]
