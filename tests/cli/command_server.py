"""Run ``bitlake …`` as processes that are forked from one that has imported its modules.

Imports take 0.3 s of processor time, and the tests run some 200 commands.  A command has a process, standard streams,
an environment and an exit of its own, as with ``python -m bitlake``, which tests of terminals, pipes and imports start.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 300
_PIPE_BYTES = 60_000
_OTHERS = ("numpy", "pyarrow.compute", "pyarrow.csv", "pyarrow.json", "pyarrow.parquet", "rich.table")
_LEFT_OUT = ("bitlake.__main__", "bitlake.demo", "bitlake.spark", "bitlake.scan.duckdb_source")


class CommandServer:
    """The process that commands are forked from."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env)
        )

    def run(self, arguments: Sequence[str], env: Mapping[str, str], folder: Path, stdin: str) -> tuple[int, str, str]:
        """Run a command; returns its exit code (negative: a signal's number), and what it wrote."""
        assert len(stdin.encode()) <= _PIPE_BYTES, "it must fit a pipe"
        assert self._process.stdin is not None and self._process.stdout is not None
        out, err = (folder / f".command-{os.getpid()}.{name}" for name in ("out", "err"))
        request = {
            "arguments": list(arguments), "env": dict(env), "folder": str(folder), "stdin": stdin,
            "out": str(out), "err": str(err),
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], SECONDS)[0], f"still running: bitlake {arguments}"
        code = int(self._process.stdout.readline())
        texts = out.read_text(), err.read_text()
        out.unlink()
        err.unlink()
        return code, *texts

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def load() -> None:
    """Import what commands without Spark use."""
    import bitlake

    ours = [m.name for m in pkgutil.walk_packages(bitlake.__path__, "bitlake.", lambda _: None)]
    for name in [*_OTHERS, *(m for m in ours if not m.startswith(_LEFT_OUT))]:
        with contextlib.suppress(ImportError):  # of an optional package
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve() -> dict[str, Any] | None:
    """Fork a process for each request: returns the request there, and None in this process at the end."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            return request
        answers.write(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        answers.flush()
    return None


def become(request: dict[str, Any]) -> None:
    """Make this process one that a user has started."""
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["folder"])
    reader, writer = os.pipe()
    os.write(writer, request["stdin"].encode())
    os.close(writer)
    os.dup2(reader, 0)
    for fd, name in ((1, "out"), (2, "err")):
        opened = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, fd)
        os.close(opened)
    sys.argv = ["bitlake", *request["arguments"]]


if __name__ == "__main__":
    sys.path[0] = ""  # as with -m
    load()
    asked = serve()
    if asked is not None:
        become(asked)
        runpy.run_module("bitlake", run_name="__main__", alter_sys=True)
