"""Column indexes: the smallest and largest value of every page of a column, and so which pages can hold a value.

::

    ColumnIndex { 1: list<bool> null pages, 2: list<binary> smallest, 3: list<binary> largest, 4: i32 boundary order }

One entry a page of the column's offset index; values are plain-encoded (a text bound may be cut, and still bounds).
Source: the Apache Parquet format (``parquet.thrift``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitlake.errors import CorruptError
from bitlake.formats.parquet_footer import BYTE_ARRAY, INT32, INT64, ColumnChunk, FetchRanges, Footer
from bitlake.formats.parquet_index import Ints, load_pages
from bitlake.formats.thrift import Struct, ThriftReader

_DTYPES = {INT32: "<i4", INT64: "<i8"}


@dataclass(frozen=True, slots=True)
class PageBounds:
    """The pages of one column of a file, in order.

    ``starts``: the first row of each, closed by the file's row count; ``low`` and ``high``: bounds, int64 arrays for
    INT32 and INT64 columns, lists of bytes for BYTE_ARRAY; meaningless where ``empty`` (a page of NULLs only).
    """

    starts: Ints
    low: Any
    high: Any
    empty: np.ndarray[Any, np.dtype[np.bool_]]


def page_bounds(footer: Footer, fetch_ranges: FetchRanges, name: str) -> PageBounds | None:
    """The bounds of a flat column's pages; None where some row group has none, or the column is of another type.

    ``fetch_ranges`` gets (offset, length) pairs; what the footer came with is not fetched again.  Raises
    :class:`CorruptError` for an index that breaks its rules.
    """
    column = footer.column(name)
    physical = footer.leaves[column.leaf].physical
    if not column.flat or physical not in (*_DTYPES, BYTE_ARRAY) or not footer.row_groups:
        return None
    chunks = [g.chunks[column.leaf] for g in footer.row_groups]
    if any(c.bounds_offset is None or c.index_offset is None for c in chunks):
        return None
    known = footer.cache.bounds.get(column.leaf)
    if isinstance(known, PageBounds):
        return known
    load_pages(footer, fetch_ranges, [(n, column.leaf) for n in range(len(chunks))])
    starts: list[Ints] = []
    low: list[bytes] = []
    high: list[bytes] = []
    empty: list[bool] = []
    for number, (group, chunk, data) in enumerate(zip(footer.row_groups, chunks, _bytes(footer, chunks, fetch_ranges))):
        found = _decode(data, chunk)
        first_rows = footer.cache.pages[number, column.leaf].first_rows[:-1]
        if len(found[1]) != len(first_rows):
            raise CorruptError(
                f"Parquet column index of '{name}': bounds of {len(found[1])} pages, and there are {len(first_rows)}",
                chunk.bounds_offset,
            )
        starts.append(first_rows + group.first_row)
        empty += found[1]
        low += found[2]
        high += found[3]
    rows = np.concatenate([*starts, np.array([footer.rows], np.int64)])
    nothing = np.array(empty, bool)
    if physical == BYTE_ARRAY:
        made = PageBounds(rows, low, high, nothing)
    else:
        kind, at = np.dtype(_DTYPES[physical]), chunks[0].bounds_offset
        made = PageBounds(rows, _numbers(low, nothing, kind, at), _numbers(high, nothing, kind, at), nothing)
    footer.cache.bounds[column.leaf] = made
    return made


def _bytes(footer: Footer, chunks: list[ColumnChunk], fetch_ranges: FetchRanges) -> list[bytes]:
    cache = footer.cache
    out: list[bytes | None] = []
    missing: list[tuple[int, int]] = []
    for chunk in chunks:
        at = chunk.bounds_offset or 0
        inside = at >= cache.tail_offset and at + chunk.bounds_length <= cache.tail_offset + len(cache.tail)
        out.append(cache.tail[at - cache.tail_offset :][: chunk.bounds_length] if inside else None)
        if not inside:
            missing.append((at, chunk.bounds_length))
    came = iter(fetch_ranges(missing) if missing else ())
    return [bytes(next(came)) if part is None else part for part in out]


def _decode(data: bytes, chunk: ColumnChunk) -> Struct:
    at = chunk.bounds_offset or 0
    found = ThriftReader(data, 0, at).struct()
    fields = [found.get(i) for i in (1, 2, 3)]
    right = all(isinstance(f, list) for f in fields) and len({len(f) for f in fields if f is not None}) == 1
    if not right or not all(isinstance(v, bytes) for f in fields[1:] for v in f or ()):
        raise CorruptError("Parquet column index: not a list of bounds for each page", at)
    return found


def _numbers(values: list[bytes], empty: np.ndarray[Any, Any], kind: np.dtype[Any], at: int | None) -> Ints:
    size = kind.itemsize
    if any(len(v) != size and not e for v, e in zip(values, empty.tolist(), strict=True)):
        raise CorruptError(f"Parquet column index: a bound that has not {size} bytes", at)
    data = b"".join(v if len(v) == size else bytes(size) for v in values)
    return np.frombuffer(data, kind).astype(np.int64)
