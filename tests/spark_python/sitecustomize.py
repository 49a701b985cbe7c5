"""What each Python process that the tests' Spark starts does first; ``tests/conftest.py`` puts this folder on its path.

Spark puts its archives at the front of a worker's path.  Modules in a zip have no byte code, so each process
compiles PySpark again, and each task reads the archives' directories again.  The same modules are installed unpacked.
A daemon forks a worker for a minute of use; what all of them need (and nothing of bitlake, which a worker must find by
itself) is loaded before.
"""

from __future__ import annotations

import os
import sys

_SHARED = (
    "numpy",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.classic.dataframe",
) + (
    # What bitlake imports: a third of what its import takes.
    *("fastavro", "pyroaring", "sqlglot.dialects.spark", "sqlglot.optimizer.scope", "xxhash"),
)

if any(p.endswith("pyspark.zip") for p in sys.path):
    sys.path[:] = [p for p in sys.path if not p.endswith((".zip", ".jar"))]
    if "pyspark.daemon" in sys.orig_argv[1:]:
        import gc
        import importlib

        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process that forks has one thread
        gc.disable()
        for name in (*_SHARED, sys.orig_argv[-1]):
            importlib.import_module(name)
        gc.enable()
        gc.freeze()  # a worker collects after each task
