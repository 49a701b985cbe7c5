"""What a figure was measured on, and how much memory Spark's Python workers took."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import threading
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def describe(spark: Any) -> dict[str, str]:
    """The machine and the versions that made the figures."""
    cpu = "unknown CPU"
    if (PROC / "cpuinfo").exists():
        lines = (PROC / "cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = spark._jvm.java.lang.System.getProperty("java.version")
    names = ("pyspark", "pyarrow", "numpy")
    return {
        "machine": f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GB RAM, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": java,
        **{name: importlib.metadata.version(name) for name in names},
    }


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def processor_seconds() -> float:
    """Processor time of this process and its descendants (Spark's JVM and workers), ended workers included."""
    ticks = 0
    for pid in (os.getpid(), *_descendants(os.getpid())):
        try:
            stat = (PROC / str(pid) / "stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        own, ended = slice(11, 13), slice(13, 15)
        fields = stat[stat.rindex(")") + 2 :].split()
        ticks += sum(map(int, fields[own]))
        ticks += 0 if pid == os.getpid() else sum(map(int, fields[ended]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_memory() -> float:
    """The peak memory of this process in MB; Linux counts the parent's in ``ru_maxrss``, and not in ``VmHWM``."""
    status = PROC / "self" / "status"
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class WorkerMemory:
    """Samples the resident memory of this process's Python descendants (Spark's workers) while it is open.

    ``peak_mb`` is the largest single worker's; pages a worker shares with the daemon it was forked from count in full.
    """

    def __init__(self, every_s: float = 0.02) -> None:
        self.peak_mb = 0.0
        self._every = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(self._every):
            for pid in _descendants(os.getpid()):
                try:
                    command = (PROC / str(pid) / "cmdline").read_bytes()
                    if b"pyspark.daemon" in command or b"pyspark.worker" in command:
                        resident = int((PROC / str(pid) / "statm").read_text().split()[1])
                        self.peak_mb = max(self.peak_mb, resident * page / 2**20)
                except (OSError, IndexError):
                    continue
