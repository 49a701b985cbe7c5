"""Functions of Spark that DuckDB lacks: it calls bitlake's kernels, a vector at a time."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions.json_path import json_values, path_names
from bitlake.expressions.numeric_functions import spark_hash
from bitlake.types.datatypes import Root

JSON_VALUE = "bitlake_get_json_object"


def register_kernels(instance: Any) -> None:
    """Register the functions in an instance of DuckDB, for all of its cursors."""
    instance.create_function(
        JSON_VALUE, _json_value, ["VARCHAR", "VARCHAR"], "VARCHAR", type="arrow", null_handling="special"
    )
    for kind, (name, function) in HASHES.items():
        instance.create_function(name, function, [kind, "INTEGER"], "INTEGER", type="arrow", null_handling="special")
    # DuckDB reports a leak on stderr if an instance with such functions is open when the interpreter ends.
    atexit.register(_close, weakref.ref(instance), os.getpid())


def _close(instance: weakref.ref[Any], process: int) -> None:
    opened = instance()
    if opened is not None and process == os.getpid():  # not the parent's
        opened.close()


def _json_value(texts: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    array = texts.combine_chunks()
    if not len(array):
        return pa.array([], pa.string())
    path = paths[0].as_py()  # a constant
    values, unknown = json_values(array, path_names(path))
    if unknown.any():
        raise EvaluationFailed(f"only Spark can tell the value at '{path}' of some row")
    return values


def _hash_of(root: Root) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]:
    def of_vector(values: pa.ChunkedArray, seeds: pa.ChunkedArray) -> pa.Array:
        return pa.array(spark_hash(values.combine_chunks(), root, seeds.to_numpy().astype(np.int32)))

    return of_vector


HASHES = {
    "INTEGER": ("bitlake_hash_int", _hash_of(Root.INT)),
    "BIGINT": ("bitlake_hash_bigint", _hash_of(Root.BIGINT)),
    "VARCHAR": ("bitlake_hash_text", _hash_of(Root.VARCHAR)),
}
"""By the type of the value: the name of the function of a value and a seed, and the function.

They last as long as the process: DuckDB calls them for relations that outlive the instance they were registered with.
"""
