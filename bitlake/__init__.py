"""bitlake: Apache Paimon lake tables with their whole index system, in Python and on Spark.

>>> import bitlake
>>> lake = bitlake.connect("shop")
>>> lake.table("orders").to_arrow(["order_id", "amount"], "status = 'NEW'").to_pylist()
[{'order_id': 1, 'amount': 10.0}, {'order_id': 3, 'amount': 7.25}, {'order_id': 6, 'amount': 33.0}]
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

if _sys.platform == "win32":
    raise ImportError("bitlake runs on Linux and macOS; on Windows, install and run it in WSL")

from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CommitConflict,
    CorruptError,
    EvaluationFailed,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.formatting import register as _register

if _typing.TYPE_CHECKING:
    __version__: str
    from bitlake.expressions.condition import col
    from bitlake.lake import Lake, connect, register
    from bitlake.scan.plan import Plan
    from bitlake.table.scan import Scan
    from bitlake.table.table import Table

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BitlakeError",
    "CommitConflict",
    "CorruptError",
    "EvaluationFailed",
    "InvalidRequest",
    "Lake",
    "NotFound",
    "Plan",
    "Scan",
    "StorageFull",
    "StorageUnavailable",
    "Table",
    "UnsupportedFeature",
    "__version__",
    "col",
    "connect",
    "register",
]

_HOMES = {
    "Lake": "bitlake.lake",
    "Plan": "bitlake.scan.plan",
    "Scan": "bitlake.table.scan",
    "Table": "bitlake.table.table",
    "col": "bitlake.expressions.condition",
    "connect": "bitlake.lake",
    "register": "bitlake.lake",
}

_register("plan html", "bitlake.tools.notebook:plan_html")
_register("explanation html", "bitlake.tools.explain.html:render")


def __getattr__(name: str) -> _typing.Any:
    """Load what a name stands for when it is first used: a command line that needs no table waits for none of it."""
    if name == "__version__":
        return _version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bitlake' has no attribute '{name}'")
    found = globals()[name] = getattr(_importlib.import_module(home), name)
    return found


def _version() -> str:
    """The installed version, such as ``0.1.0``; ``unknown`` in a source folder that is not installed."""
    metadata = _importlib.import_module("importlib.metadata")  # slow to import
    try:
        found = globals()["__version__"] = str(metadata.version("bitlake"))
    except metadata.PackageNotFoundError:
        return "unknown"
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
