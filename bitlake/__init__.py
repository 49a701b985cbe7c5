"""bitlake: Apache Paimon lake tables with their whole index system, in Python and on Spark.

>>> import bitlake
>>> lake = bitlake.connect("/tmp/lake")                                     # doctest: +SKIP
>>> lake.sql("CREATE TABLE t (id INT, status STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'status')")
...                                                                         # doctest: +SKIP
"""

from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
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
    "StorageUnavailable",
    "Table",
    "UnsupportedFeature",
    "connect",
]
