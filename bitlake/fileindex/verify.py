"""Verify a stored index against the rows of its data file.

The stored payload is compared with one rebuilt from the column.  Usually the bytes are equal.  If they are not, because
another writer orders bitmaps otherwise or used other options, a reader that is
:class:`~bitlake.fileindex.capabilities.Comparable` compares what they mean.  A writer that is a
:class:`~bitlake.fileindex.capabilities.PayloadChecker` checks the payload itself: a bloom filter of any size is right
if it denies no value of the column.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.fileindex.capabilities import Comparable, IndexReader, PayloadChecker
from bitlake.fileindex.registry import find_index_type
from bitlake.types import DataType


class IndexCheck:
    """Checks one payload: ``add`` the column's rows in file order, then call :meth:`finish` once.

    Memory: as much as building the index takes.
    """

    def __init__(self, kind: DataType, index_type: str, options: Mapping[str, str], payload: bytes) -> None:
        """``options``: those that the index was probably written with.

        Raises :class:`InvalidRequest` for an unknown index type, or one that does not take the column's type.
        """
        index = find_index_type(index_type)
        if index is None:
            raise InvalidRequest(f"unknown index type '{index_type}'")
        self._index = index
        self._kind = kind
        self._payload = payload
        self._writer = index.writer(kind, options)
        self._rows = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append rows; raises :class:`UnsupportedFeature` for a value that no such index can hold."""
        self._rows += len(column)
        self._writer.add(column)

    def finish(self) -> str | None:
        """Return what the payload states wrongly.  None if nothing.

        Raises :class:`CorruptError` for a payload that cannot be read.
        """
        if isinstance(self._writer, PayloadChecker):
            return self._writer.check(self._payload)
        rebuilt = self._writer.finish()
        if rebuilt == self._payload:
            return None
        stored = self._reader(self._payload)
        if isinstance(stored, Comparable):
            return stored.difference(self._reader(rebuilt))
        return "its bytes differ from those of an index rebuilt from the rows"

    def _reader(self, payload: bytes) -> IndexReader:
        def fetch(offset: int, length: int) -> bytes:
            return payload[offset : offset + length]

        return self._index.reader(self._kind, fetch, len(payload), self._rows)
