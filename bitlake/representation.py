"""How the core's values are shown: a registry, so that the core does not import the tools that show them.

``bitlake/__init__.py`` registers the functions of :mod:`bitlake.tools` by name; a function is imported when it is used
for the first time.

>>> register("length", "builtins:len")
>>> render("length", [1, 2])
2
"""

from __future__ import annotations

import importlib
from typing import Any

_functions: dict[str, str] = {}


def register(name: str, function: str) -> None:
    """Register the function that shows one kind of value, as ``module:function``."""
    _functions[name] = function


def render(name: str, *args: Any) -> Any:
    """Call the function that was registered under ``name``; raises :class:`KeyError` if there is none."""
    module, _, function = _functions[name].partition(":")
    return getattr(importlib.import_module(module), function)(*args)
