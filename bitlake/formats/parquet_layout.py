"""Where the pages of a Parquet file begin: after so many rows or bytes, and where a cluster of an indexed value does.

pyarrow ends a page where one of its write calls ends, if the page has its size by then, and an Arrow chunk is a write
call.  So columns cut into chunks, written with a page size of a few bytes, have just these chunks as their pages.

A page is read whole for one of its rows.  1,000 PENDING rows side by side lie in one or two pages of 4,096 rows, so
most of what is read are their neighbours.  Smaller pages everywhere would mend that, but every page takes its time in
every scan.  A page of their own takes nothing: where a rare value of an indexed column has most of some hundred rows, a
page begins with the first of them, and the next one after the last.

Measured (bench/headline.py: 1M rows, 102 MB, 1,000 of them PENDING; CPU of appending them, of reading all, and bytes
read for the 1,000; a busy machine, so only the ratios count):

========================  ===========  ===========  ==========  ========
pages                     append       read all     1,000 rows  file
========================  ===========  ===========  ==========  ========
4,096 rows                855 ms       369 ms       435 KB      102.3 MB
4,096 rows, and clusters  830 ms       369 ms       110 KB      102.3 MB
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
"""Rows between the ones looked at: finding clusters must not cost more than a hundredth of writing the rows."""
_LEAST_SAMPLES = 3
_GAP = 4
"""Samples without the value that are still in a cluster, less one."""
_DENSE = 1 / 4
_RARE = 1 / 16
_MOST_CANDIDATES = 128
_MOST_CUTS = 1 / 8
"""Cuts for each page that there is anyhow: the shortest clusters gain most and come first."""


def page_cuts(table: pa.Table, names: Sequence[str], page_rows: int) -> Ints:
    """The rows (sorted, without 0) at which every column should begin a page, for the clusters in these columns."""
    found = sorted({c for name in names for c in clusters(table.column(name))}, key=lambda c: c[1] - c[0])
    pages = max(8, table.num_rows // page_rows)
    wanted = [row for cluster in found[: max(1, int(pages * _MOST_CUTS / 2))] for row in cluster]
    cuts: Ints = np.unique(np.array([row for row in wanted if 0 < row < table.num_rows], np.int64))
    return cuts


def clusters(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    """Where a value that is in few of a flat column's rows is in many of neighbouring ones: rows ``[start, stop)``.

    Clusters of at least 512 rows, of which nearly all have the value, are found; smaller or thinner ones, down to 256
    rows and to every fourth of them, if they lie well.  NULL is a value.
    """
    picked = np.arange(0, len(column), _STRIDE, dtype=np.int64)
    if len(picked) < _LEAST_SAMPLES or pa.types.is_nested(column.type):
        return []
    indices = pa.Array.from_buffers(pa.int64(), len(picked), [None, pa.py_buffer(picked)])
    encoded = column.take(indices).combine_chunks().dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    # Samples by value: a candidate is a row of them with small gaps.
    samples = np.argsort(codes, kind="stable")
    by_value = codes[samples]
    apart = (by_value[1:] != by_value[:-1]) | (samples[1:] - samples[:-1] > _GAP)
    starts = np.flatnonzero(np.concatenate(([True], apart)))
    counts = np.diff(starts, append=len(samples))
    rare = np.bincount(codes)[by_value[starts]] <= len(codes) * _RARE
    found = np.flatnonzero((counts >= _LEAST_SAMPLES) & rare)
    found = found[np.argsort(counts[found], kind="stable")][:_MOST_CANDIDATES]
    exact = [_exact(column, int(samples[starts[i]]), int(samples[starts[i] + counts[i] - 1])) for i in found.tolist()]
    return sorted(c for c in exact if c is not None)


def _exact(column: pa.ChunkedArray, first: int, last: int) -> tuple[int, int] | None:
    """The cluster that holds samples ``first`` to ``last`` of a value, if it is dense enough to be one."""
    reach = _GAP * _STRIDE
    start = max(0, first * _STRIDE - reach)
    rows = column.slice(start, last * _STRIDE + reach - start)
    value = rows[first * _STRIDE - start]
    equal = pc.equal(rows, value).fill_null(False) if value.is_valid else rows.is_null()
    places = np.flatnonzero(equal.to_numpy()) + start
    ends = np.flatnonzero(np.diff(places) > reach)
    low, high = np.searchsorted(places[ends], (first * _STRIDE, last * _STRIDE))
    left = places[ends[low - 1] + 1] if low else places[0]
    right = places[ends[high]] if high < len(ends) else places[-1]
    inside = np.searchsorted(places, right, "right") - np.searchsorted(places, left)
    return (int(left), int(right) + 1) if inside >= (right + 1 - left) * _DENSE else None


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
