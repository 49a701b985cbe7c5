"""pypaimon beside us: a process in its own environment that times its own reads."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class PyPaimonTimer:
    """Mutable: a running process; ask it for one read at a time, so that runs can take turns with ours."""

    @staticmethod
    def find() -> Path | None:
        """The interpreter of pypaimon's environment ($BITLAKE_PYPAIMON_PYTHON or .venv-pypaimon), if there is one."""
        given = os.environ.get("BITLAKE_PYPAIMON_PYTHON")
        python = Path(given) if given else HERE.parent / ".venv-pypaimon" / "bin" / "python"
        return python if python.exists() else None

    def __init__(self, python: Path, log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [python, HERE / "pypaimon_timer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
        )
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"pypaimon: {answer['error']}")
        return answer

    def read(self, warehouse: Path, table: str, column: str, value: str, native: bool) -> tuple[float, int]:
        """Seconds and rows of one read with one equality."""
        return self.read_where(warehouse, table, ["equal", column, value], native)

    def read_where(self, warehouse: Path, table: str, where: list[Any], native: bool) -> tuple[float, int]:
        """Seconds and rows of one read; ``where`` is as :mod:`bench.pypaimon_timer` takes it."""
        request = {"warehouse": str(warehouse), "table": table, "where": where, "native": native}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], answer["rows"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._log.close()
