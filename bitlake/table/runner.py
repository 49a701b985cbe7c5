"""Where work runs: the in-process half of the seam ``run(items, fn)``; :mod:`bitlake.spark.runner` is the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from bitlake.progress import counting

Item = TypeVar("Item")
Result = TypeVar("Result")
REQUESTS = 16
"""Requests of a store at a time: object stores and network disks answer slowly, and each call is independent."""


class Runner(Protocol):
    """Runs a function over work items somewhere."""

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""


class LocalRunner:
    """Runs in this process, on as many threads as there are cores: numpy and Arrow release the interpreter lock."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 2

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""
        with counting(items, fn) as counted:
            if len(items) <= 1 or self.threads == 1:
                return [counted(item) for item in items]
            with ThreadPoolExecutor(min(self.threads, len(items)), thread_name_prefix="bitlake") as pool:
                return list(pool.map(counted, items))
