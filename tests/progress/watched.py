"""Run by ``test_board.py`` in a process of its own, in a terminal or not: compacts a table that shows how far it is.

With ``silent`` the lake is connected with ``progress=False``, with ``fails`` an item of the job fails.  What is drawn
after each file and at the end of the job does not hang on the time that it takes.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from typing import Any

import pyarrow as pa

import bitlake
from bitlake import progress
from bitlake.progress import Job, board, job
from bitlake.runtime import LocalRunner


def main(how: str) -> None:
    progress._AFTER = 0.0
    tick = Job.tick

    def drawn(self: Job, item: Any) -> None:
        tick(self, item)
        with board._changed:
            board._draw()

    Job.tick = drawn  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        lake = bitlake.connect(folder, progress=how != "silent")
        table = lake.create_table("t", pa.schema([("id", pa.int64())]))
        for i in range(3):
            table.append(pa.table({"id": pa.array([i], pa.int64())}))
        table.maintenance.compact(full=True)
        print(table.scan().count(), "rich" in sys.modules)
    if how == "fails":
        try:
            with job("failing [bold]"):
                LocalRunner(1).run([1, 0], lambda n: warnings.warn("above", stacklevel=1) if n else 1 // n)
        except ZeroDivisionError:
            print("failed", board._jobs, board._screen)


if __name__ == "__main__":
    main(sys.argv[1])
