"""Read ORC data files: whole columns by stripe, through Arrow's ORC reader.

Paimon writes TIMESTAMP as ``timestamp`` and LTZ as ``timestamp with local time zone``; Arrow reads both in nanoseconds
(years 1677 to 2262), the latter with time zone UTC.  Source: table-format spec, section 8.

Damage to a file can crash Arrow's decoder, so it runs in a process of its own (:mod:`bitlake.formats.orc_process`),
which ends then: :class:`CorruptError` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError, NotFound, StorageUnavailable
from bitlake.formats.orc_process import OrcHead, opened
from bitlake.formats.parquet_mini import DECODE_ERRORS


def read_schema(source: Any) -> pa.Schema:
    """The columns of an ORC file (a local path or a :class:`pyarrow.NativeFile`)."""
    process, head = opened(_open(source))
    try:
        _names(head)
    finally:
        process.leave()
    return head.schema


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an ORC file in order, in batches of at most ``batch_size``; a stripe is in memory at a time.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    process, head = opened(_open(source))
    try:
        names = _names(head)
        wanted = names if columns is None else list(columns)
        for name in wanted:
            if name not in names:
                raise NotFound(f"the ORC file has no column '{name}'; it has {', '.join(names)}")
        # Arrow reads no stripe without a column, but the rows still count.
        process.select([names.index(n) for n in wanted or names[:1]])
        rows = 0
        while (stripe := process.next()) is not None:
            rows += stripe.num_rows
            if rows > head.rows:
                break
            chosen = stripe.select(wanted)
            for start in range(0, chosen.num_rows, batch_size):
                yield chosen.slice(start, batch_size)
        if rows != head.rows:
            raise CorruptError(f"the ORC file's stripes hold {rows} rows or more, its footer says {head.rows}")
    finally:
        process.leave()


def _names(head: OrcHead) -> list[str]:
    try:
        # Names are decoded only now, and must be unique for columns to be found by them.
        names: list[str] = head.schema.names
    except DECODE_ERRORS as e:
        raise CorruptError(f"ORC footer: a column's name is not text: {e}") from e
    if len(set(names)) < len(names):
        raise CorruptError("the ORC file names a column twice")
    return names


def _open(source: Any) -> pa.NativeFile:
    if isinstance(source, pa.NativeFile):
        return source
    try:
        return pa.OSFile(source)
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e
    except OSError as e:
        raise StorageUnavailable(f"cannot read {source}: {e}") from e
