"""A judge in a process of its own; one request at a time.

A request to a judge of Python's, in an environment whose pins clash with ours, is a line of JSON, and so is its answer;
``{"error": text}`` is a failure in the judge's own words.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


class Unavailable(Exception):
    """A judge cannot run here; the message says what is missing."""


def find_python(variable: str, environment: str, name: str) -> Path:
    """The interpreter of an environment variable, or of what `make interop` made; raises :class:`Unavailable`."""
    given = os.environ.get(variable)
    python = Path(given) if given else ROOT / environment / "bin" / "python"
    if not python.exists() or not (given or (python.parents[1] / ".ready").exists()):
        raise Unavailable(f"no environment with {name} (`make interop` makes {environment})")
    return python


class PeerProcess:
    """A running process.  Mutable: one request at a time."""

    def __init__(self, name: str, command: Sequence[str | Path], **environment: str) -> None:
        self._name = name
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | environment,
        )
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill it."""
        if self.alive:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """The end of what it wrote to its log."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request; its answer.  Raises RuntimeError with the judge's own words."""
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
            raise RuntimeError(f"{self._name} ended: {self.last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {answer['error']}")
        return answer
