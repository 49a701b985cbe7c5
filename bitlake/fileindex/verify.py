"""Whether a stored index says of a file's rows what the rows themselves say.

The stored payload is compared with one built anew from the column.  Mostly they are the same bytes.  Where they are
not, for another writer orders bitmaps otherwise or was given other options, they are compared by what they mean: each
key's rows, and what lookups of some keys find.  Of a bloom filter it counts only that no value that is there is denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.expressions.tree import Op
from bitlake.fileindex.bitmap import BitmapReader
from bitlake.fileindex.bloom_filter import BloomWriter, absent
from bitlake.fileindex.bsi import BsiReader
from bitlake.fileindex.keys import Key
from bitlake.fileindex.range_bitmap import RangeBitmapReader
from bitlake.fileindex.registry import INDEX_TYPES, IndexWriter
from bitlake.lazy_arrow import compute as pc
from bitlake.types import DataType

_PROBES = 64
"""Keys looked up, evenly spread, where two payloads differ in their bytes."""


class IndexCheck:
    """Checks one payload: ``add`` the column's rows in file order, then ask :meth:`finish` once.

    Memory: what building the index takes.
    """

    def __init__(self, kind: DataType, index_type: str, options: Mapping[str, str], payload: bytes) -> None:
        """``options``: the ones that the index was probably made with; raises :class:`InvalidRequest` for a type that
        the index does not take."""
        self._kind = kind
        self._type = index_type
        self._payload = payload
        self._writer: IndexWriter = INDEX_TYPES[index_type].writer(kind, options)
        self._rows = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append rows; raises :class:`UnsupportedFeature` for a value that no such index can hold."""
        self._rows += len(column)
        self._writer.add(column)

    def finish(self) -> str | None:
        """What the payload says wrongly, in words; None if nothing.

        Raises :class:`CorruptError` for a payload that cannot be read.
        """
        if isinstance(self._writer, BloomWriter):
            missed, distinct = absent(self._payload, self._writer)
            return f"it denies {missed:,} of the column's {distinct:,} values" if missed else None
        built = self._writer.finish()
        if built == self._payload:
            return None
        stored, fresh = self._open(self._payload), self._open(built)
        return _difference(stored, fresh) or _heads(stored, self._payload, built)

    def _open(self, payload: bytes) -> Any:
        def fetch(offset: int, length: int) -> bytes:
            return payload[offset : offset + length]

        return INDEX_TYPES[self._type].open(self._kind, fetch, len(payload), self._rows)


def _difference(stored: Any, fresh: Any) -> str | None:
    if isinstance(fresh, BitmapReader):
        return _bitmaps(stored, fresh) or _nulls(stored, fresh)
    positions, keys = _by_row(stored)
    right, values = _by_row(fresh)
    odd = np.setxor1d(positions, right)
    if len(odd):
        return (
            f"it says that row {int(odd[0]):,} is {'NULL, and it is not' if odd[0] in right else 'not NULL, and it is'}"
        )
    other = np.flatnonzero(_unlike(keys, values))
    if len(other):
        return f"it says another value of row {int(positions[other[0]]):,}, and of {len(other) - 1:,} more"
    return _probed(stored, fresh, values)


def _nulls(stored: Any, fresh: Any) -> str | None:
    odd = stored.nulls() ^ fresh.nulls()
    return f"it does not tell rightly whether row {odd[0]:,} is NULL, and {len(odd) - 1:,} more" if odd else None


def _bitmaps(stored: BitmapReader, fresh: BitmapReader) -> str | None:
    ours, theirs = fresh.rows_by_key(), stored.rows_by_key()
    if len(ours) != len(theirs):
        return f"it has {len(theirs):,} values, and the column {len(ours):,}"
    for key, rows in ours:  # only of payloads that differ, in order or in what they say
        found = stored.having([key])
        if found != rows:
            return f"it has other rows for a value of row {(found ^ rows)[0]:,}"
    return None


def _by_row(reader: RangeBitmapReader | BsiReader) -> tuple[Int64s, Any]:
    """The rows that are not NULL, and the key of each."""
    everything = BitMap(range(reader.row_count))
    if isinstance(reader, BsiReader):
        return reader.numbers()
    positions, ranks, keys = reader.ranked(everything)
    return positions, keys.take(pa.array(ranks))


def _unlike(left: Any, right: Any) -> Any:
    if isinstance(left, np.ndarray):
        return left != right
    return pc.not_equal(left, right).to_numpy(zero_copy_only=False)


def _probed(stored: Any, fresh: Any, values: Any) -> str | None:
    """Look up some of the keys: a dictionary may tell the right key of a code, and not find it."""
    if not len(values):
        return None
    at = np.unique(np.linspace(0, len(values) - 1, _PROBES).astype(np.int64))
    keys: list[Key] = values[at].tolist() if isinstance(values, np.ndarray) else values.take(pa.array(at)).to_pylist()
    for key in dict.fromkeys(keys):
        odd = stored.having([key]) ^ fresh.having([key])
        odd |= stored.compared(Op.GE, key) ^ fresh.compared(Op.GE, key)
        if odd:
            return f"asked for a value it finds other rows, such as {odd[0]:,}"
    return None


def _heads(stored: Any, payload: bytes, built: bytes) -> str | None:
    """The head of a range-bitmap (rows, distinct values, smallest and largest key) does not depend on options."""
    if not isinstance(stored, RangeBitmapReader):
        return None
    lengths = [int.from_bytes(p[:4], "big") for p in (payload, built)]
    heads = [p[4:n] for p, n in zip((payload, built), lengths, strict=True)]
    return "its smallest or largest value is not the column's" if heads[0] != heads[1] else None
