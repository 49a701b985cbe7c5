"""A typer command that reads plain words and numbers itself.

typer has pydantic check every value, which takes as long to load as all of a small command; texts, lists of texts,
flags and whole numbers need none of it.  Any other value, and any that is wrong, goes typer's own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
