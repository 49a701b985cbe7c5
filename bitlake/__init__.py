"""bitlake: Apache Paimon lake tables with their whole index system, in Python and on Spark.

>>> import bitlake
>>> lake = bitlake.connect("/tmp/lake")                                     # doctest: +SKIP
>>> lake.sql("CREATE TABLE t (id INT, status STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'status')")
...                                                                         # doctest: +SKIP
"""

import importlib as _importlib
import typing as _typing

from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
    UnsupportedFeature,
)

if _typing.TYPE_CHECKING:
    from bitlake.lake import Lake, connect
    from bitlake.table.plan import Plan
    from bitlake.table.scan import Scan
    from bitlake.table.table import Table

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BitlakeError",
    "CommitConflict",
    "CorruptError",
    "InvalidRequest",
    "Lake",
    "NotFound",
    "Plan",
    "Scan",
    "StorageFull",
    "StorageUnavailable",
    "Table",
    "UnsupportedFeature",
    "connect",
]

_HOMES = {
    "Lake": "bitlake.lake",
    "Plan": "bitlake.table.plan",
    "Scan": "bitlake.table.scan",
    "Table": "bitlake.table.table",
    "connect": "bitlake.lake",
}


def __getattr__(name: str) -> _typing.Any:
    """Load what a name stands for when it is first used: a command line that needs no table waits for none of it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bitlake' has no attribute '{name}'")
    found = globals()[name] = getattr(_importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
