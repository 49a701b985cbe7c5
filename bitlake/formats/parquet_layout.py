"""Where the pages of a Parquet file begin: after so many rows or bytes, and where a run of an indexed value does.

pyarrow ends a page where one of its write calls ends, if the page has its size by then, and an Arrow chunk is a write
call.  So columns cut into chunks, written with a page size of one byte, have just these chunks as their pages.

A page is read whole for one of its rows.  1,000 PENDING rows side by side lie in one or two pages of 4,096 rows, so
most of what is read are their neighbours.  Smaller pages everywhere would mend that, but every page takes its time in
every scan.  A page of their own takes nothing: where a rare value of an indexed column fills some hundred rows in a
row, a page begins with the first of them, and the next one after the last.

Measured (bench/headline.py: 1M rows, 102 MB, 1,000 of them PENDING; CPU of appending them, of reading all, and bytes
read for the 1,000; a busy machine, so only the ratios count):

========================  ===========  ===========  ==========  ========
pages                     append       read all     1,000 rows  file
========================  ===========  ===========  ==========  ========
4,096 rows                855 ms       369 ms       435 KB      102.3 MB
4,096 rows, runs apart    830 ms       369 ms       110 KB      102.3 MB
1,024 rows or 16 KB       1,146 ms     653 ms       164 KB      104.7 MB
========================  ===========  ===========  ==========  ========
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray[Any, np.dtype[np.int64]]

_STRIDE = 128
"""Rows between the ones looked at: finding runs must not cost more than a hundredth of writing the rows."""
_LEAST_SAMPLES = 3
_RARE = 1 / 16
_MOST_CANDIDATES = 512
_MOST_CUTS = 1 / 8
"""Cuts for each page that there is anyhow: the shortest runs gain most and come first."""


def page_cuts(table: pa.Table, names: Sequence[str], page_rows: int) -> Ints:
    """The rows (sorted, without 0) at which every column should begin a page, for the runs in these columns."""
    runs = sorted({run for name in names for run in value_runs(table.column(name))}, key=lambda r: r[1] - r[0])
    pages = max(8, table.num_rows // page_rows)
    wanted = [row for run in runs[: max(1, int(pages * _MOST_CUTS / 2))] for row in run]
    cuts: Ints = np.unique(np.array([row for row in wanted if 0 < row < table.num_rows], np.int64))
    return cuts


def value_runs(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    """The runs ``[start, stop)`` of at least 512 equal values, of values that are in few of a flat column's rows.

    Shorter runs, down to half of that, are found if they lie well; NULL is a value.
    """
    picked = np.arange(0, len(column), _STRIDE, dtype=np.int64)
    if len(picked) < _LEAST_SAMPLES or pa.types.is_nested(column.type):
        return []
    indices = pa.Array.from_buffers(pa.int64(), len(picked), [None, pa.py_buffer(picked)])
    encoded = column.take(indices).combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False))
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    stops = np.append(starts[1:], len(codes))
    rare = np.bincount(codes)[codes[starts]] <= len(codes) * _RARE
    found = np.flatnonzero((stops - starts >= _LEAST_SAMPLES) & rare)[:_MOST_CANDIDATES]
    return [run for i in found.tolist() if (run := _exact(column, int(starts[i]), int(stops[i]) - 1)) is not None]


def _exact(column: pa.ChunkedArray, first: int, last: int) -> tuple[int, int] | None:
    """The run that holds samples ``first`` to ``last``, if the rows between these are all of it."""
    start = max(0, (first - 1) * _STRIDE + 1)
    stop = min(len(column), (last + 1) * _STRIDE)
    rows = column.slice(start, stop - start)
    value = rows[first * _STRIDE - start]
    equal = pc.equal(rows, value).fill_null(False) if value.is_valid else rows.is_null()
    others = np.flatnonzero(~equal.to_numpy()) + start
    before, after = np.searchsorted(others, (first * _STRIDE, last * _STRIDE))
    if before != after:
        return None
    low = int(others[before - 1]) + 1 if before else start
    high = int(others[after]) if after < len(others) else stop
    return low, high


def into_pages(column: pa.ChunkedArray, cuts: Ints, page_rows: int, page_bytes: int | None) -> pa.ChunkedArray:
    """The column with a chunk for each page: up to ``page_rows`` rows, from each of ``cuts`` (sorted) on.

    ``page_bytes`` are of the values as Parquet writes them plainly; a page of average values ends when it has so many,
    and one of longer values with at most twice as many.  None: any.
    """
    if page_bytes is not None:
        page_rows = max(1, min(page_rows, -(-page_bytes * len(column) // max(1, _plain_bytes(column)))))
    edges = np.concatenate(([0], cuts, [len(column)]))
    starts = np.concatenate([np.arange(a, b, page_rows) for a, b in itertools.pairwise(edges)])
    bounds = np.append(starts, len(column))
    if page_bytes is not None and not _fixed(column.type):
        bounds = _split_long(column, bounds, page_bytes)
    places = bounds.tolist()
    chunks = []
    held, base = iter(column.chunks), 0
    chunk: Any = next(held, None)
    for start, stop in itertools.pairwise(places):
        while chunk is not None and start - base >= len(chunk):
            base += len(chunk)
            chunk = next(held, None)
        if chunk is not None and stop - base <= len(chunk):
            chunks.append(chunk.slice(start - base, stop - start))
        else:
            chunks.append(pa.concat_arrays(column.slice(start, stop - start).chunks))
    return pa.chunked_array(chunks, column.type)


def _split_long(column: pa.ChunkedArray, bounds: Ints, limit: int) -> Ints:
    """``bounds`` with pages over twice ``limit`` bytes cut into equal numbers of rows, as often as it takes."""
    while True:
        places = bounds.tolist()
        sizes = np.array([_plain_bytes(column.slice(a, b - a)) for a, b in itertools.pairwise(places)], np.int64)
        rows = bounds[1:] - bounds[:-1]
        parts = np.where(sizes > 2 * limit, np.minimum(-(-sizes // limit), rows), 1)
        if (parts == 1).all():
            return bounds
        cut = [np.linspace(a, b, n, endpoint=False).astype(np.int64) for a, b, n in zip(places[:-1], places[1:], parts)]
        bounds = np.append(np.concatenate(cut), bounds[-1])


def _fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind))


def _plain_bytes(column: pa.ChunkedArray) -> int:
    """About the bytes of the values in Parquet's PLAIN encoding; texts have their lengths before them."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.precision <= 18:
        return len(column) * (4 if kind.precision <= 9 else 8)
    if pa.types.is_integer(kind):
        return len(column) * (8 if kind.bit_width == 64 else 4)
    return int(column.nbytes)
