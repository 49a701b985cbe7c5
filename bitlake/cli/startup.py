"""Keep start-up short: deferred modules, and commands that read plain parameters themselves.

``import pyarrow.compute as pc`` at the top of a module is right for a library, and costs a command 25 ms although it
may never compute anything.  So a command puts stand-ins in the place of such modules before anything imports them; a
stand-in loads its module on the first use.

typer has pydantic check every value, which takes as long to load as all of a small command; texts, lists of texts,
flags and whole numbers need no such check.  Any other value, and any that is wrong, goes typer's own way.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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


_TEXTS = (str, str | None)
_LISTS = (list[str], list[str] | None)
_NUMBERS = (int, int | None)


class _Plain:
    """Stands where typer keeps what turns a word into a value."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        made = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if made in _TEXTS and isinstance(value, str):
            return value
        if made in _LISTS and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            return list(value)
        if isinstance(made, type) and issubclass(made, StrEnum) and value in list(made):
            return made(value)
        if made in _NUMBERS:
            number = _whole(value)
            low, high = param.type_descriptor.parameter_info.min, param.type_descriptor.parameter_info.max
            if number is None:
                raise typer.BadParameter(f"'{value}' is no whole number", ctx=ctx, param=param)
            if low is not None and number < low:
                raise typer.BadParameter(f"{number} is less than {low:g}", ctx=ctx, param=param)
            if high is None or number <= high:
                return number
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class LightCommand(TyperCommand):
    """A command whose plain parameters are read at once."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, ``--help`` too."""
        return _lightened(super().get_params(ctx))


class LightGroup(TyperGroup):
    """A group of commands, of whose own options the same is true."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, ``--help`` and those of completion too."""
        return _lightened(super().get_params(ctx))


def _lightened(params: Sequence[Any]) -> Sequence[Any]:
    # The name is typer's own: where another version keeps nothing there, its way is taken for all values.
    for param in params:
        if getattr(param, "_runtime_param", 0) is None and hasattr(param, "type_descriptor"):
            param._runtime_param = _Plain()
    return params


def _whole(value: Any) -> int | None:
    if isinstance(value, int):
        return value
    text = str(value)
    return int(text) if text.removeprefix("-").isdigit() and text.isascii() else None
