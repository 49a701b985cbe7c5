"""One door to data files of any format: whole columns as a stream, or chosen rows.  The name says the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.formats import avro, orc
from bitlake.formats.parquet import scan

Ints = np.ndarray[Any, np.dtype[np.int64]]


class ReadColumns(Protocol):
    """Reads columns of a whole file; ``source`` is a local path or a :class:`pyarrow.NativeFile`."""

    def __call__(
        self, source: Any, columns: Sequence[str] | None = None, *, batch_size: int = ...
    ) -> Iterator[pa.RecordBatch]:
        """Rows in order, columns in the order asked for; raises NotFound, CorruptError, UnsupportedFeature."""


_READERS: dict[str, ReadColumns] = {
    "parquet": scan.read_columns,
    "orc": orc.read_columns,
    "avro": avro.read_columns,
}


def format_of(file_name: str) -> str:
    """``parquet``, ``orc`` or ``avro``, by the file's extension; raises :class:`UnsupportedFeature` for others."""
    _, dot, extension = file_name.rsplit("/", 1)[-1].lower().rpartition(".")
    if not dot or extension not in _READERS:
        raise UnsupportedFeature(f"data file {file_name}: format '{extension}' is not one of {', '.join(_READERS)}")
    return extension


def reader_for(file_name: str) -> ReadColumns:
    """The function that reads columns of such a file."""
    return _READERS[format_of(file_name)]


def take_rows(batches: Iterator[pa.RecordBatch], rows: Ints) -> pa.Table:
    """The rows at ``rows`` (int64, sorted, from 0) of a stream that holds them all; stops reading after the last one.

    For formats without pages; Parquet has :func:`bitlake.formats.parquet.pages.read_rows`.  Without any batch the
    result has no columns.  Raises :class:`CorruptError` if the stream ends before the last row.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    if len(rows) and (rows[0] < 0 or (rows[1:] < rows[:-1]).any()):
        raise InvalidRequest("rows to read must be sorted and not negative")
    parts: list[pa.RecordBatch] = []
    schema: pa.Schema | None = None
    start = taken = 0
    for batch in batches:
        schema = batch.schema
        stop = start + batch.num_rows
        end = int(np.searchsorted(rows, stop))
        if end > taken:
            local = np.ascontiguousarray(rows[taken:end] - start)
            parts.append(batch.take(pa.Array.from_buffers(pa.int64(), end - taken, [None, pa.py_buffer(local)])))
        start, taken = stop, end
        if taken == len(rows):
            break
    if taken < len(rows):
        raise CorruptError(f"row {int(rows[-1])} was asked for, but the file has {start} rows")
    return pa.table({}) if schema is None else pa.Table.from_batches(parts, schema)
