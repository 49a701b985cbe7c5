"""numpy, fastavro, pyarrow and three of its modules, each imported when one of its attributes is first used.

Use them as ``from bitlake.lazy_modules import compute as pc``.  pyarrow makes a documented Python function of each
kernel when ``pyarrow.compute`` is imported (25 ms), and ``pyarrow.parquet`` and ``pyarrow.orc`` import all of its file
systems (15 ms).  A command that plans a scan uses none of them and takes 0.2 s; one that only reads metadata needs
neither numpy nor pyarrow (80 ms).  Modules that both kinds of command load take all of them from here.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import fastavro as fastavro
    import numpy as numpy
    import pyarrow as pyarrow
    import pyarrow.compute as compute
    import pyarrow.orc as orc
    import pyarrow.parquet as parquet

__all__ = ["compute", "fastavro", "install_command", "numpy", "orc", "parquet", "pyarrow"]


def install_command(extra: str) -> str:
    """Return the command that installs an optional dependency: for a source checkout, with the checkout's path."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(root, "pyproject.toml")):
        return f"pip install -e '{root}[{extra}]'"
    return f"pip install 'bitlake[{extra}]'"


class _LazyModule:
    """A module's attributes, kept once they are looked up."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by inspect, copy and the like, never by our code
            raise AttributeError(name)
        attribute = getattr(importlib.import_module(self._module), name)
        setattr(self, name, attribute)
        return attribute

    def __reduce__(self) -> tuple[type[_LazyModule], tuple[str]]:
        return _LazyModule, (self._module,)


if not TYPE_CHECKING:
    fastavro = _LazyModule("fastavro")
    numpy = _LazyModule("numpy")
    pyarrow = _LazyModule("pyarrow")
    compute = _LazyModule("pyarrow.compute")
    orc = _LazyModule("pyarrow.orc")
    parquet = _LazyModule("pyarrow.parquet")
