"""What Spark's ``_metadata`` holds of data files that Spark's own reader does not read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as T

from bitlake.io import Store
from bitlake.spark.hadoop_path import file_uri
from bitlake.table.plan import PlannedFile

KEY = "__bitlake_file"
"""The column of a file's path as the plan has it."""

_MODIFIED = "file_modification_time"
_TYPES: dict[str, tuple[pa.DataType, T.DataType]] = {
    "file_path": (pa.string(), T.StringType()),
    "file_name": (pa.string(), T.StringType()),
    "file_size": (pa.int64(), T.LongType()),
    "file_block_start": (pa.int64(), T.LongType()),
    "file_block_length": (pa.int64(), T.LongType()),
    _MODIFIED: (pa.timestamp("us", "UTC"), T.TimestampType()),
}


def file_rows(store: Store, files: Sequence[PlannedFile], members: Sequence[str]) -> tuple[pa.Table, T.StructType]:
    """A row for each file: :data:`KEY` and these members of ``_metadata``, without ``row_index``.

    A file is one block, for it is read by one task.  The time of modification takes a listing of each folder.
    """
    members = [m for m in members if m in _TYPES]
    times: dict[str, dict[str, int]] = {}
    if _MODIFIED in members:
        for folder in {f.path.rpartition("/")[0] for f in files}:
            times[folder] = {info.name: info.mtime_ms for info in store.list(folder)}
    columns: dict[str, pa.Array] = {KEY: pa.array([f.path for f in files], pa.string())}
    for member in members:
        values: list[object]
        if member == "file_path":
            values = [file_uri(f.path) for f in files]
        elif member == "file_name":
            values = [f.path.rpartition("/")[2] for f in files]
        elif member == "file_block_start":
            values = [0] * len(files)
        elif member == _MODIFIED:
            values = [times[folder][name] * 1000 for folder, _, name in (f.path.rpartition("/") for f in files)]
        else:
            values = [f.entry.file.file_size for f in files]
        columns[member] = pa.array(values, _TYPES[member][0])
    types = [T.StructField(KEY, T.StringType(), False)]
    types += [T.StructField(m, _TYPES[m][1], False) for m in members]
    return pa.table(columns), T.StructType(types)
