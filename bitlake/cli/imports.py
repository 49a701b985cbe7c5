"""An import hook that keeps pandas out of commands that do not start Spark."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any


class _WithoutPandas:
    """An import hook in whose presence pandas counts as not installed.

    Arrow imports pandas, where it is installed, to find out whether the list that it converts is a pandas object.
    That takes 0.2 to 0.3 s, and no command that runs without Spark handles pandas objects.  The hook has no base class,
    because importing ``importlib.abc`` takes 10 ms.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Refuse pandas; leave other modules to the next hook."""
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does not use pandas", name=fullname)


def leave_out_pandas() -> None:
    """Prepare the process for a command that may run without Spark."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads for linear algebra
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())


def allow_pandas() -> None:
    """Prepare the process for Spark."""
    hooks = [hook for hook in sys.meta_path if isinstance(hook, _WithoutPandas)]
    for hook in hooks:
        sys.meta_path.remove(hook)
    if hooks and "pyarrow" in sys.modules:
        import pyarrow

        # Arrow remembers that pandas is missing until a conversion needs pandas.
        with contextlib.suppress(ModuleNotFoundError):
            pyarrow.table({}).to_pandas()
