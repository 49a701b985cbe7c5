"""Row positions as runs, a page of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitlake.codec.hashing import Int64s
from bitlake.inspect.tree import Page


def runs_of(positions: Int64s, page: Page) -> tuple[list[list[int]], int]:
    """Ascending positions as [first, last] runs of neighbours: those of the page, and how many there are besides."""
    if not len(positions):
        return [], 0
    breaks = np.flatnonzero(np.diff(positions) != 1)
    shown = page.of(len(breaks) + 1)
    starts: Any = positions[np.concatenate(([0], breaks + 1))[shown.start : shown.stop]]
    ends: Any = positions[np.concatenate((breaks, [len(positions) - 1]))[shown.start : shown.stop]]
    return np.stack([starts, ends], axis=1).tolist(), page.left(len(breaks) + 1)


def runs_text(runs: list[list[int]], left: int = 0) -> str:
    """``0, 2, 5-9, … 3 more runs``."""
    told = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(told + ([f"… {left:,} more runs"] if left else [])) or "none"
