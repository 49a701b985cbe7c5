"""Modules that take long to load and that most runs of a command use nothing of: loaded when they are first used.

``import pyarrow.compute as pc`` at the top of a module is right for a library, and costs a command 25 ms although it
may never compute anything.  So a command puts stand-ins in their places before anything imports them.  Whoever has
imported one finds all of the module in it from the first use on.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_MODULES: dict[str, tuple[str, ...]] = {
    "pyarrow.compute": (),  # makes a Python function, with documentation, for each of Arrow's kernels
    "pyarrow.parquet": (),  # brings all file systems
    "pyarrow.orc": (),
    "importlib.metadata": ("entry_points",),  # sqlglot imports it for plugins, which nobody asks for
}
"""By name, with the functions that other modules import from it by name."""


class _Later(ModuleType):
    """Stands for a module until something of it is wanted."""

    def __getattr__(self, name: str) -> Any:
        # Python itself asks for these, and for no other, when a module is imported once more.
        if name in ("__path__", "__spec__", "__file__", "_initializing"):
            raise AttributeError(name)
        found = self.__dict__.get("__real__")
        if found is None:
            found = _load(self)
        return getattr(found, name)


def _load(stand_in: _Later) -> ModuleType:
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    found = importlib.import_module(name)
    kept = {k: v for k, v in vars(found).items() if k not in ("__name__", "__class__")}
    vars(stand_in).update(kept, __real__=found)
    return found


def _function(stand_in: _Later, name: str) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        return getattr(stand_in.__dict__.get("__real__") or _load(stand_in), name)(*given, **named)

    return call


class _NoPandas:
    """Finds that pandas is not installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None, /) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used by this command", name="pandas")


def load_later() -> None:
    """Put the stand-ins in place of what is not loaded yet, for a command that starts no Spark.

    Also, numpy starts no threads for algebra that nobody asks for; and there is no pandas: where it is installed, Arrow
    loads it (300 ms) to look whether the list that it is given is one of pandas'.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
    for name, functions in _MODULES.items():
        if name in sys.modules:
            continue
        stand_in = _Later(name)
        for function in functions:
            setattr(stand_in, function, _function(stand_in, function))
        sys.modules[name] = stand_in
        parent, _, own = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], own, stand_in)
