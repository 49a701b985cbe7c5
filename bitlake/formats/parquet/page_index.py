"""Offset indexes: where the data pages of a column chunk are, and which row each begins with.

::

    OffsetIndex   { 1: list<PageLocation>, 2: list<i64> (unused here) }
    PageLocation  { 1: i64 offset, 2: i32 size with header, 3: i64 first row of the row group }

One page is nearly always the same seven varints (three field headers, three values, the stop), so a list of thousands
is decoded with numpy; any other encoding of the same struct goes through the general reader.

Column indexes: the smallest and largest value of every page of a column, and so which pages can hold a value.

::

    ColumnIndex { 1: list<bool> null pages, 2: list<binary> smallest, 3: list<binary> largest, 4: i32 boundary order }

One entry a page of the column's offset index; values are plain-encoded (a text bound may be cut, and still bounds).
Source: the Apache Parquet format (``parquet.thrift``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.footer import BYTE_ARRAY, INT32, INT64, ColumnChunk, FetchRanges, Footer, Pages
from bitlake.formats.parquet.thrift import Struct, ThriftReader

Ints = np.ndarray[Any, np.dtype[np.int64]]

_HEADERS = ((0, 0x16), (2, 0x15), (4, 0x16), (6, 0x00))
"""Tokens of a PageLocation that are fixed: field 1 i64, field 2 i32, field 3 i64, stop."""


def load_pages(footer: Footer, fetch_ranges: FetchRanges, wanted: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Fill the footer's cache with the pages of (row group, leaf) pairs, in at most one batched request.

    Returns (ranges fetched, bytes fetched).  Raises :class:`CorruptError` for an index that breaks its rules.
    """
    cache = footer.cache
    layouts: dict[bytes, Ints] = {}
    ranges: list[tuple[int, int]] = []
    missing: list[tuple[int, int]] = []
    for key in wanted:
        if key in cache.pages:
            continue
        group = footer.row_groups[key[0]]
        chunk = group.chunks[key[1]]
        at = chunk.index_offset
        if at is None:
            cache.pages[key] = whole_chunk(chunk, group.rows)
        elif at >= cache.tail_offset and at + chunk.index_length <= cache.tail_offset + len(cache.tail):
            data = cache.tail[at - cache.tail_offset : at - cache.tail_offset + chunk.index_length]
            cache.pages[key] = _shared(decode_pages(data, chunk, group.rows), layouts)
        else:
            ranges.append((at, chunk.index_length))
            missing.append(key)
    if not missing:
        return 0, 0
    merged = _merge(ranges)
    blobs = fetch_ranges(merged)
    starts = np.array([m[0] for m in merged], np.int64)
    for key, (at, length) in zip(missing, ranges, strict=True):
        i = int(np.searchsorted(starts, at, "right")) - 1
        low = at - merged[i][0]
        data = bytes(blobs[i][low : low + length])
        group = footer.row_groups[key[0]]
        cache.pages[key] = _shared(decode_pages(data, group.chunks[key[1]], group.rows), layouts)
    return len(merged), sum(m[1] for m in merged)


def _shared(pages: Pages, layouts: dict[bytes, Ints]) -> Pages:
    """``pages`` with its first rows replaced by an equal array seen before: readers compare them by identity."""
    return replace(pages, first_rows=layouts.setdefault(pages.first_rows.tobytes(), pages.first_rows))


def _merge(ranges: Sequence[tuple[int, int]], gap: int = 16 * 1024) -> list[tuple[int, int]]:
    """Sorted ranges that cover ``ranges``, joined over gaps: the indexes of a row group lie side by side."""
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if merged and offset <= merged[-1][0] + merged[-1][1] + gap:
            start = merged[-1][0]
            merged[-1] = (start, max(merged[-1][1], offset + length - start))
        else:
            merged.append((offset, length))
    return merged


def whole_chunk(chunk: ColumnChunk, rows: int) -> Pages:
    """A chunk without an offset index, as one entry."""
    ends = np.array([chunk.start + chunk.compressed], np.int64)
    return Pages(np.array([chunk.start], np.int64), ends, np.array([0, rows], np.int64), whole=True)


def decode_pages(data: bytes, chunk: ColumnChunk, rows: int) -> Pages:
    """Decode and check an OffsetIndex struct of a chunk in a row group of ``rows`` rows."""
    at = chunk.index_offset or 0
    found = _decode_fast(data)
    if found is None:
        found = _decode_any(data, at)
    offsets, sizes, first_rows = found
    pages = len(offsets)
    if pages == 0:
        if rows:
            raise CorruptError("Parquet offset index: no pages", at)
        return whole_chunk(chunk, rows)
    stop = chunk.start + chunk.compressed
    in_chunk = offsets[0] >= chunk.start and offsets.max() <= stop and offsets.min() >= 0 and sizes.min() > 0
    ends = offsets + sizes
    if not in_chunk or sizes.max() > chunk.compressed or ends[-1] > stop or (offsets[1:] < ends[:-1]).any():
        raise CorruptError("Parquet offset index: pages overlap, are not in order, or lie outside their chunk", at)
    bounds = np.append(first_rows, rows)
    if bounds[0] != 0 or (bounds[1:] < bounds[:-1]).any():
        raise CorruptError("Parquet offset index: first rows are not in order from 0", at)
    return Pages(offsets, ends, bounds)


def _decode_fast(data: bytes) -> tuple[Ints, Ints, Ints] | None:
    """(offsets, sizes, first rows) if each PageLocation is the usual seven varints, else None."""
    if len(data) < 2 or data[0] != (1 << 4 | thrift.LIST) or data[1] & 15 != thrift.STRUCT:
        return None
    reader = ThriftReader(data, 1)
    _, count = reader.list_header()
    raw = np.frombuffer(data, np.uint8)[reader.position :]
    ends = np.flatnonzero(raw < 0x80)[: 7 * count]
    if len(ends) < 7 * count:
        return None
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    lengths = (ends - starts + 1).reshape(count, 7)
    tokens = raw[ends].reshape(count, 7)
    for i, expected in _HEADERS:
        if (lengths[:, i] != 1).any() or (tokens[:, i] != expected).any():
            return None
    if count == 0 or lengths.max() > 9:  # nine bytes hold 63 bits: no valid offset is longer
        return None
    first = starts.reshape(count, 7)[:, 1:6:2]
    width = lengths[:, 1:6:2]
    values = np.zeros((count, 3), np.int64)
    for k in range(int(width.max())):
        byte = raw[np.minimum(first + k, len(raw) - 1)].astype(np.int64)
        values |= np.where(k < width, (byte & 0x7F) << (7 * k), 0)
    values = (values >> 1) ^ -(values & 1)
    return values[:, 0].copy(), values[:, 1].copy(), values[:, 2].copy()


def _decode_any(data: bytes, at: int) -> tuple[Ints, Ints, Ints]:
    found = ThriftReader(data, 0, at).struct().get(1)
    try:
        table = np.array([(p[1], p[2], p[3]) for p in found or ()], np.int64).reshape(-1, 3)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as e:
        raise CorruptError(f"Parquet offset index: {type(e).__name__} {e}", at) from e
    if len(table) and (np.abs(table) >= 1 << 62).any():
        raise CorruptError("Parquet offset index: a number too large", at)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


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
