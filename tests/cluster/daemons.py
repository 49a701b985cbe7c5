"""A standalone Spark cluster of this machine's processes: a master and workers, started from the PySpark wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyspark

from bitlake.spark.session import find_java

ROOT = Path(__file__).resolve().parents[2]
_SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
_DEPLOY = "org.apache.spark.deploy"


@dataclass
class Cluster:
    """A running cluster.  Mutable: workers can be killed."""

    url: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill(self, number: int) -> None:
        """SIGKILL a worker with its executors and their Python processes, as if its machine lost power."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """What driver, master and workers need to find Java, this interpreter and the package."""
    java = find_java()
    return {
        **os.environ,
        **({"JAVA_HOME": java} if java else {}),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, sys.path)])),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        # Its processes have smaller heaps than the tests' sessions begin with.
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@contextmanager
def running(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """A cluster of workers with a core each, as long as the block runs; logs and work folders go to ``folder``."""
    started: list[subprocess.Popen[bytes]] = []
    cluster = Cluster()
    try:
        master = _start(started, folder / "master.log", "master.Master", "--host", "127.0.0.1", "--port", "0")
        line = _until(master, folder / "master.log", "Starting Spark master at ")
        cluster.url = line.rsplit(" ", 1)[1]
        for number in range(workers):
            log, work = folder / f"worker{number}.log", folder / f"worker{number}"
            work.mkdir()
            arguments = ("--host", "127.0.0.1", "--cores", "1", "--memory", memory, "--work-dir", str(work))
            cluster.workers.append(_start(started, log, "worker.Worker", *arguments, cluster.url))
        for number, worker in enumerate(cluster.workers):
            _until(worker, folder / f"worker{number}.log", "Successfully registered with master")
        yield cluster
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(started: list[subprocess.Popen[bytes]], log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    # Each in a group of its own: what a worker starts dies with it.
    process = subprocess.Popen(
        [_SPARK_CLASS, f"{_DEPLOY}.{name}", "--webui-port", "0", *arguments],
        cwd=log.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    started.append(process)
    return process


def _until(process: subprocess.Popen[bytes], log: Path, words: str) -> str:
    """Read a daemon's log to the line with these words; what follows goes on into the file."""
    assert process.stdout is not None
    out = log.open("wb")
    for raw in process.stdout:
        out.write(raw)
        if words.encode() in raw:
            # A daemon whose pipe is full would stand still.
            threading.Thread(target=_drain, args=(process.stdout, out), daemon=True).start()
            return raw.decode().strip()
    out.close()
    raise AssertionError(f"the daemon ended without '{words}': {log.read_text()}")


def _drain(source: IO[bytes], out: IO[bytes]) -> None:
    with out, suppress(ValueError):  # closed at the end of the block
        shutil.copyfileobj(source, out)
