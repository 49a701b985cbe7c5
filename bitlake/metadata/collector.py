"""Python's garbage collector, told to wait while a great many small things are made.

It looks for cycles through everything that was made lately, and now and then through everything.  Manifest entries and
plans have no cycles, and a hundred thousand of them make it look again and again: a third of the time, growing with
their number.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No automatic collections meanwhile, unless another thread that was here leaves first; as before afterwards.

    Freeing what nothing refers to goes on: only cycles wait.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
