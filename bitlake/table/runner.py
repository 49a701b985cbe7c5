"""Where work runs: the in-process half of the seam ``run(items, fn)``; :mod:`bitlake.spark.runner` is the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from bitlake.errors import StorageUnavailable
from bitlake.io import Store
from bitlake.progress import counting, of_items
from bitlake.table.links import not_through_links

Item = TypeVar("Item")
Result = TypeVar("Result")
REQUESTS = 16
"""Requests of a store at a time: object stores and network disks answer slowly, and each call is independent."""
_TOGETHER = 256
"""Files deleted by one call: one request to an object store, and enough calls for all threads elsewhere."""


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


def delete_files(store: Store, paths: Iterable[str], runner: Runner, roots: Iterable[str]) -> None:
    """Delete files, many at a time; those that are gone are passed over.

    Only what is below one of ``roots`` is deleted, and nothing behind a link (:mod:`bitlake.table.links`).
    """
    names = not_through_links(store, roots, paths)
    of_items("files deleted", each=len)
    runner.run([names[i : i + _TOGETHER] for i in range(0, len(names), _TOGETHER)], store.delete_all)


def discard_files(store: Store, paths: Iterable[str]) -> None:
    """Delete files that nothing will name, as well as can be: the error that led here must not be hidden by another."""
    gone = list(paths)
    try:
        store.delete_all(gone)
    except StorageUnavailable:
        for path in gone:
            with contextlib.suppress(StorageUnavailable):
                store.delete(path)
