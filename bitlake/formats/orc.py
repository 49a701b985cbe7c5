"""Read ORC data files: whole columns by stripe, through Arrow's ORC reader.

Paimon writes TIMESTAMP as ``timestamp`` and LTZ as ``timestamp with local time zone``; Arrow reads both in nanoseconds
(years 1677 to 2262), the latter with time zone UTC.  Source: table-format spec, section 8.

Arrow's decoder (ORC C++) checks less than bitlake's own ones: damage to the lengths of an *uncompressed* file's strings
can crash the process (three of 4,000 mutations), and so can, more rarely, damage to a zstd file (four of some
20,000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.orc as arrow_orc

from bitlake.errors import CorruptError, NotFound
from bitlake.formats.parquet_mini import DECODE_ERRORS, decode_error


def read_schema(source: Any) -> pa.Schema:
    """The columns of an ORC file (a local path or a :class:`pyarrow.NativeFile`)."""
    return _schema(_open(source))


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an ORC file in order, in batches of at most ``batch_size``; a stripe is in memory at a time.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    file = _open(source)
    names = _schema(file).names
    wanted = names if columns is None else list(columns)
    for name in wanted:
        if name not in names:
            raise NotFound(f"the ORC file has no column '{name}'; it has {', '.join(names)}")
    # Arrow reads no stripe without a column, but the rows still count.
    read = wanted or names[:1]
    for stripe in range(file.nstripes):
        try:
            table = file.read_stripe(stripe, columns=[names.index(n) for n in read])
            batch = table if isinstance(table, pa.RecordBatch) else table.combine_chunks().to_batches()[0]
            batch.validate()
        except DECODE_ERRORS as e:
            raise decode_error(e, f"ORC stripe {stripe}") from e
        for start in range(0, batch.num_rows, batch_size):
            yield batch.slice(start, batch_size).select(wanted)


def _schema(file: arrow_orc.ORCFile) -> pa.Schema:
    try:
        schema = file.schema
        # Names are decoded only now, and must be unique for columns to be found by them.
        if len(set(schema.names)) < len(schema.names):
            raise CorruptError("the ORC file names a column twice")
    except DECODE_ERRORS as e:
        raise decode_error(e, "ORC schema") from e
    return schema


def _open(source: Any) -> arrow_orc.ORCFile:
    try:
        return arrow_orc.ORCFile(source)
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e
    except DECODE_ERRORS as e:
        raise decode_error(e, "ORC footer") from e
