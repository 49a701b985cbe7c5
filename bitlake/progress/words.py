"""How far a job is, in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bitlake.formatting import human_bytes

if TYPE_CHECKING:
    from bitlake.progress.jobs import Job


def heading(job: Job) -> str:
    """What it does: ``compacting default.t, batch 2 of 4``."""
    return f"{job.label}, {job.step}" if job.step else job.label


def amounts(job: Job) -> str:
    """``37/200 files``, with bytes where they are known; empty where nothing is counted."""
    if job.total is None:
        return ""
    count = f"{job.done:,}/{job.total:,} {job.unit}".rstrip()
    return f"{count}  {human_bytes(job.read)}/{human_bytes(job.size)}" if job.size else count


def elapsed(job: Job) -> str:
    """``1:02``, ``1:00:02``."""
    minutes, seconds = divmod(int(time.monotonic() - job.began), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
