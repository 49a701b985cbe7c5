"""Page indexes and bloom filters of a Parquet file: where pages are, their bounds, which to fetch for chosen rows.

::

    OffsetIndex   { 1: list<PageLocation>, 2: list<i64> (unused here) }
    PageLocation  { 1: i64 offset, 2: i32 size with header, 3: i64 first row of the row group }
    ColumnIndex   { 1: list<bool> null pages, 2: list<binary> smallest, 3: list<binary> largest, 4: i32 boundary order }

An offset index lists the data pages of a column chunk.  One page is nearly always the same seven varints (three field
headers, three values, the stop), so a list of thousands is decoded with numpy; any other encoding of the same struct
goes through the general reader.

A column index has one entry for each page of the column's offset index; values are plain-encoded (a text bound may be
cut, and still bounds).

A plan (:func:`plan_group`) holds the pages to fetch for chosen rows, and the places of these rows in the fetched pages.

A bloom filter says whether a row group can hold a value, by a few bytes of the column's filter.

::

    BloomFilterHeader { 1: i32 bytes of the bit set, 2: algorithm { 1: split block }, 3: hash { 1: XxHash },
                        4: compression { 1: uncompressed } }
    bit set           blocks of 32 bytes: 8 words of 32 bits, little-endian

A value's hash is the XXH64 (seed 0) of its plain encoding, of a text without the length.  Its block is
``(hash >> 32) * blocks >> 32``; in word i it sets bit ``low 32 bits * SALT[i] >> 27`` (32 bits, wrapping).

Source: the Apache Parquet format (``BloomFilter.md``, ``parquet.thrift``).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.footer import BYTE_ARRAY, INT32, INT64, Column, ColumnChunk, FetchRanges, Footer, Pages
from bitlake.formats.parquet.thrift import Struct, ThriftReader

# --- offset indexes ---------------------------------------------------------------------------------------------------

_HEADERS = ((0, 0x16), (2, 0x15), (4, 0x16), (6, 0x00))
"""Tokens of a PageLocation that are fixed: field 1 i64, field 2 i32, field 3 i64, stop."""


def load_pages(footer: Footer, fetch_ranges: FetchRanges, wanted: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Fill the footer's cache with the pages of (row group, leaf) pairs, in at most one batched request.

    Returns (ranges fetched, bytes fetched).  Raises :class:`CorruptError` for an index that breaks its rules.
    """
    cache = footer.cache
    layouts: dict[bytes, Int64s] = {}
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
        elif (data := cache.in_tail(at, chunk.index_length)) is not None:
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


def _shared(pages: Pages, layouts: dict[bytes, Int64s]) -> Pages:
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


def _decode_fast(data: bytes) -> tuple[Int64s, Int64s, Int64s] | None:
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


def _decode_any(data: bytes, at: int) -> tuple[Int64s, Int64s, Int64s]:
    found = ThriftReader(data, 0, at).struct().get(1)
    try:
        table = np.array([(p[1], p[2], p[3]) for p in found or ()], np.int64).reshape(-1, 3)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as e:
        raise CorruptError(f"Parquet offset index: {type(e).__name__} {e}", at) from e
    if len(table) and (np.abs(table) >= 1 << 62).any():
        raise CorruptError("Parquet offset index: a number too large", at)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


# --- column indexes ---------------------------------------------------------------------------------------------------

_DTYPES = {INT32: "<i4", INT64: "<i8"}


@dataclass(frozen=True, slots=True)
class PageBounds:
    """The pages of one column of a file, in order.

    ``starts``: the first row of each, closed by the file's row count; ``low`` and ``high``: bounds, int64 arrays for
    INT32 and INT64 columns, lists of bytes for BYTE_ARRAY; meaningless where ``empty`` (a page of NULLs only).
    """

    starts: Int64s
    low: Any
    high: Any
    empty: np.ndarray[Any, np.dtype[np.bool_]]


def page_bounds(footer: Footer, fetch_ranges: FetchRanges, name: str) -> PageBounds | None:
    """The bounds of a flat column's pages; None where a row group with rows has none, or the column is of another type.

    ``fetch_ranges`` gets (offset, length) pairs; what the footer came with is not fetched again.  Raises
    :class:`CorruptError` for an index that breaks its rules.
    """
    column = footer.column(name)
    physical = footer.leaves[column.leaf].physical
    if not column.flat or physical not in (*_DTYPES, BYTE_ARRAY) or not footer.row_groups:
        return None
    groups = [(n, g, g.chunks[column.leaf]) for n, g in enumerate(footer.row_groups) if g.rows]
    chunks = [chunk for _, _, chunk in groups]
    if not chunks or any(c.bounds_offset is None or c.index_offset is None for c in chunks):
        return None
    known = footer.cache.bounds.get(column.leaf)
    if isinstance(known, PageBounds):
        return known
    load_pages(footer, fetch_ranges, [(number, column.leaf) for number, _, _ in groups])
    starts: list[Int64s] = []
    low: list[bytes] = []
    high: list[bytes] = []
    empty: list[bool] = []
    stored = _column_index_bytes(footer, chunks, fetch_ranges)
    for (number, group, chunk), data in zip(groups, stored, strict=True):
        found = _decode_bounds(data, chunk)
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
        bounds = PageBounds(rows, low, high, nothing)
    else:
        kind, at = np.dtype(_DTYPES[physical]), chunks[0].bounds_offset
        bounds = PageBounds(rows, _numbers(low, nothing, kind, at), _numbers(high, nothing, kind, at), nothing)
    footer.cache.bounds[column.leaf] = bounds
    return bounds


def _column_index_bytes(footer: Footer, chunks: list[ColumnChunk], fetch_ranges: FetchRanges) -> list[bytes]:
    ranges = [(chunk.bounds_offset or 0, chunk.bounds_length) for chunk in chunks]
    parts = [footer.cache.in_tail(*each) for each in ranges]
    missing = [each for each, part in zip(ranges, parts, strict=True) if part is None]
    fetched = iter(fetch_ranges(missing) if missing else ())
    return [bytes(next(fetched)) if part is None else part for part in parts]


def _decode_bounds(data: bytes, chunk: ColumnChunk) -> Struct:
    at = chunk.bounds_offset or 0
    index = ThriftReader(data, 0, at).struct()
    fields = [index.get(i) for i in (1, 2, 3)]
    right = all(isinstance(f, list) for f in fields) and len({len(f) for f in fields if f is not None}) == 1
    if not right or not all(isinstance(v, bytes) for f in fields[1:] for v in f or ()):
        raise CorruptError("Parquet column index: not a list of bounds for each page", at)
    return index


def _numbers(values: list[bytes], empty: np.ndarray[Any, Any], kind: np.dtype[Any], at: int | None) -> Int64s:
    size = kind.itemsize
    if any(len(v) != size and not e for v, e in zip(values, empty.tolist(), strict=True)):
        raise CorruptError(f"Parquet column index: a bound that has not {size} bytes", at)
    data = b"".join(v if len(v) == size else bytes(size) for v in values)
    return np.frombuffer(data, kind).astype(np.int64)


# --- which pages to fetch ---------------------------------------------------------------------------------------------

BATCH_BYTES = 32 << 20
"""Decoded bytes of pages after which further ones wait for the next batch: bounds memory when most are wanted."""

_EDGE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Touched:
    """A row group with chosen rows, counted from its start (sorted); ``distinct``: none of them twice."""

    number: int
    rows: int
    local: Int64s
    distinct: bool


@dataclass(slots=True)
class Piece:
    """Bytes ``[start, stop)`` of the file that are wanted, and once fetched, what they are."""

    start: int
    stop: int
    data: memoryview | bytes = b""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Pages of a chunk to fetch: its pieces, its dictionary and data offsets in them, values and pages.

    ``values`` is None for pages of a nested column: only their headers contain their numbers of values.
    """

    group: int
    leaf: int
    pieces: list[Piece]
    dictionary: int | None
    data: int
    values: int | None
    pages: int
    starts: Int64s | None = None
    stops: Int64s | None = None
    """Where each data page lies in the file; None where they are not told apart."""


@dataclass(frozen=True, slots=True)
class NestedPlan:
    """The plan of a nested column: chunks of its leaves, whose pages hold the same rows, and the chosen rows."""

    chunks: list[PlannedChunk]
    choice: Choice


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What to fetch of a row group: flat chunks and which of their pages, nested columns; ``cost`` is about the bytes
    they decode to."""

    touched: Touched
    flat: list[PlannedChunk]
    choices: list[Choice]
    nested: list[NestedPlan]
    cost: int

    @property
    def chunks(self) -> list[PlannedChunk]:
        """The chunks of all columns."""
        return [*self.flat, *(chunk for column in self.nested for chunk in column.chunks)]

    def release(self) -> None:
        """Let go of the bytes that were fetched."""
        for chunk in self.chunks:
            for piece in chunk.pieces:
                piece.data = b""


def split_rows(footer: Footer, rows: Int64s) -> list[Touched]:
    """The row groups that hold these rows (sorted)."""
    starts = np.array([g.first_row for g in footer.row_groups] + [footer.rows], np.int64)
    cuts = np.searchsorted(rows, starts)
    touched = []
    for number in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
        group = footer.row_groups[number]
        local = rows[cuts[number] : cuts[number + 1]] - group.first_row
        touched.append(Touched(number, group.rows, local, bool((local[1:] != local[:-1]).all())))
    return touched


def has_codec(footer: Footer, columns: Sequence[str], codec: int) -> bool:
    """Whether all chunks of these columns are compressed by a codec, as Parquet numbers it."""
    leaves = [leaf for c in map(footer.column, columns) for leaf in range(c.leaf, c.leaf_end)]
    return all(group.chunks[leaf].codec == codec for group in footer.row_groups for leaf in leaves)


def share_of_pages(footer: Footer, fetch_ranges: FetchRanges, rows: Int64s, columns: Sequence[str]) -> float:
    """The share of these columns' data pages, in bytes, that hold one of ``rows`` (sorted); from 0 to 1.

    Only row groups with one of the rows count.  Offset indexes that are not known yet are read by one call; raises
    :class:`bitlake.errors.CorruptError` for a damaged one.
    """
    touched = split_rows(footer, rows)
    leaves = [leaf for c in map(footer.column, columns) for leaf in range(c.leaf, c.leaf_end)]
    load_pages(footer, fetch_ranges, [(t.number, leaf) for t in touched for leaf in leaves])
    wanted = total = 0
    for group in touched:
        chosen: dict[int, Any] = {}  # columns share layouts of pages, see :func:`plan_group`
        for leaf in leaves:
            pages = footer.cache.pages[group.number, leaf]
            which = chosen.get(id(pages.first_rows))
            if which is None:
                which = chosen[id(pages.first_rows)] = np.diff(np.searchsorted(group.local, pages.first_rows)) > 0
            sizes = pages.ends - pages.offsets
            wanted, total = wanted + int(sizes[which].sum()), total + int(sizes.sum())
    return wanted / total if total else 0.0


class Choice:
    """Which pages of one layout hold the chosen rows of a row group, and where these are in those.

    ``pages`` are numbers in the chunk, ``sizes`` their rows, ``values`` the sum of these; ``count`` rows are chosen.
    ``first`` is the place of the first of them among the values of all these pages where they are neighbours, else
    None.
    """

    __slots__ = ("_places", "_rows", "count", "first", "pages", "sizes", "values")

    def __init__(self, first_rows: Int64s, touched: Touched) -> None:
        local = touched.local
        self.count = len(local)
        low, high = int(local[0]), int(local[-1])
        self.first: int | None = None
        self._places: tuple[Int64s, Int64s] | None = None
        self._rows: list[slice | Int64s] | None = None
        if touched.distinct and high - low == self.count - 1:
            begin, last = (np.searchsorted(first_rows, (low, high), "right") - 1).tolist()
            starts = first_rows[begin : last + 2].tolist()
            self.sizes = [b - a for a, b in itertools.pairwise(starts)]
            if all(self.sizes):
                self.pages: slice | Int64s = slice(begin, last + 1)
                self.values = starts[-1] - starts[0]
                self.first = low - starts[0]
                self._rows = [slice(max(low - a, 0), min(high + 1, b) - a) for a, b in itertools.pairwise(starts)]
                return
        bounds = np.searchsorted(local, first_rows)
        counts = bounds[1:] - bounds[:-1]
        pages = np.flatnonzero(counts)
        firsts = first_rows[pages]
        lengths = first_rows[pages + 1] - firsts
        rows_of_pages = counts[pages]
        places = local - np.repeat(firsts, rows_of_pages)
        self.pages = pages
        self.sizes = lengths.tolist()
        self.values = sum(self.sizes)
        positions = places + np.repeat(np.cumsum(lengths) - lengths, rows_of_pages)
        self._places = places, positions
        if touched.distinct and int(positions[-1] - positions[0]) == self.count - 1:
            self.first = int(positions[0])
        cuts = [*bounds[pages].tolist(), len(local)]
        self._rows = [_as_slice(places[a:b], touched.distinct) for a, b in itertools.pairwise(cuts)]

    @property
    def positions(self) -> Int64s:
        """The place of each chosen row among the values of all these pages."""
        if self._places is None:
            assert self.first is not None
            return np.arange(self.first, self.first + self.count)
        return self._places[1]

    def rows(self, number: int) -> slice | Int64s:
        """The chosen rows of the ``number``-th of these pages, counted in it."""
        assert self._rows is not None
        return self._rows[number]


def _as_slice(places: Int64s, distinct: bool) -> slice | Int64s:
    low, high = int(places[0]), int(places[-1]) + 1
    return slice(low, high) if distinct and high - low == len(places) else places


def plan_group(footer: Footer, flat: Sequence[Column], nested: Sequence[Column], touched: Touched) -> GroupPlan:
    """Plan the fetches of one row group; the offset indexes of all leaves of the columns are in the footer's cache."""
    number = touched.number
    chunks: list[PlannedChunk] = []
    chosen: list[Choice] = []
    # Columns nearly always share a few page layouts (equal arrays are one object), so each is searched once.
    choices: dict[int, Choice] = {}
    for column in flat:
        pages = footer.cache.pages[number, column.leaf]
        choice = choices.get(id(pages.first_rows))
        if choice is None:
            choice = choices[id(pages.first_rows)] = Choice(pages.first_rows, touched)
        chunks.append(_plan_chunk(footer, number, column.leaf, pages, choice.pages, choice.values))
        chosen.append(choice)
    plan = GroupPlan(touched, chunks, chosen, [plan_nested(footer, column, touched) for column in nested], 0)
    cost = 0
    for chunk in plan.chunks:
        source = footer.row_groups[number].chunks[chunk.leaf]
        wanted = sum([p.stop - p.start for p in chunk.pieces])
        cost += wanted * max(1, source.uncompressed // max(1, source.compressed))
    return replace(plan, cost=cost)


def plan_nested(footer: Footer, column: Column, touched: Touched) -> NestedPlan:
    """The pages of a nested column's leaves, from one row at which all of these begin a page to another.

    Where a file has an offset index, its pages begin with the first value of a row.
    """
    leaves = range(column.leaf, column.leaf_end)
    pages = [footer.cache.pages[touched.number, leaf] for leaf in leaves]
    if any(p.whole for p in pages):
        whole = [_plan_whole_chunk(footer, touched.number, leaf) for leaf in leaves]
        return NestedPlan(whole, Choice(np.array([0, touched.rows], np.int64), touched))
    shared = np.unique(pages[0].first_rows)
    for p in pages[1:]:
        if p.first_rows is not pages[0].first_rows:
            shared = np.intersect1d(shared, p.first_rows)
    choice = Choice(shared, touched)
    which = np.arange(len(shared) - 1)[choice.pages]
    chunks = []
    for leaf, p in zip(leaves, pages):
        first, stop = np.searchsorted(p.first_rows[:-1], (shared[which], shared[which + 1]))
        count = stop - first
        numbers = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
        chunks.append(_plan_chunk(footer, touched.number, leaf, p, numbers, None))
    return NestedPlan(chunks, choice)


def split_plan(footer: Footer, flat: Sequence[Column], nested: Sequence[Column], plan: GroupPlan) -> list[GroupPlan]:
    """The plan of a row group in parts of about ``BATCH_BYTES``; a page on the edge of two is in both."""
    touched = plan.touched
    count = min(-(-plan.cost // BATCH_BYTES), len(touched.local))
    leaves = [leaf for c in (*flat, *nested) for leaf in range(c.leaf, c.leaf_end)]
    if count <= 1 or any(footer.cache.pages[touched.number, leaf].whole for leaf in leaves):
        return [plan]
    # Pages are of equal sizes, so that equal ranges of rows cost the same; edges are multiples of a page's rows.
    edges = np.linspace(0, touched.rows, count, endpoint=False)[1:] // _EDGE_ROWS * _EDGE_ROWS
    parts = [p for p in np.split(touched.local, np.searchsorted(touched.local, edges)) if len(p)]
    return [plan_group(footer, flat, nested, replace(touched, local=p)) for p in parts]


def batches(plans: Sequence[GroupPlan]) -> list[list[GroupPlan]]:
    """Row groups to fetch and decode together: nearly always all of them, but bounded in memory."""
    batched: list[list[GroupPlan]] = []
    cost = 0
    for plan in plans:
        if batched and cost + plan.cost <= BATCH_BYTES:
            batched[-1].append(plan)
            cost += plan.cost
        else:
            batched.append([plan])
            cost = plan.cost
    return batched


def _plan_chunk(
    footer: Footer, group: int, leaf: int, pages: Pages, which: slice | Int64s, values: int | None
) -> PlannedChunk:
    source = footer.row_groups[group].chunks[leaf]
    if pages.whole:
        return _plan_whole_chunk(footer, group, leaf)
    first = int(pages.offsets[0])
    # What lies before the first data page is the dictionary page, also where the footer does not say so.
    pieces = [Piece(source.start, first)] if first > source.start else []
    dictionary = 0 if pieces else None
    starts, stops = pages.offsets[which], pages.ends[which]
    if len(starts) == 1:
        pieces.append(Piece(int(starts[0]), int(stops[0])))
    else:
        breaks = np.flatnonzero(starts[1:] != stops[:-1])
        run_starts = starts[np.concatenate(([0], breaks + 1))].tolist()
        run_stops = stops[np.concatenate((breaks, [len(stops) - 1]))].tolist()
        pieces += [Piece(a, b) for a, b in zip(run_starts, run_stops)]
    data = first - source.start if dictionary is not None else 0
    return PlannedChunk(group, leaf, pieces, dictionary, data, values, len(starts), starts, stops)


def _plan_whole_chunk(footer: Footer, group: int, leaf: int) -> PlannedChunk:
    source = footer.row_groups[group].chunks[leaf]
    start = source.start
    dictionary = None if source.dictionary_offset is None else source.dictionary_offset - start
    pieces = [Piece(start, start + source.compressed)]
    return PlannedChunk(group, leaf, pieces, dictionary, source.data_offset - start, source.values, 1)


_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK = 32
_HEADER_BYTES = 64
"""Bytes that are read for a header, which takes about 20."""
_WORDS = struct.Struct("<8I")
_PLAIN = {INT32: struct.Struct("<i"), INT64: struct.Struct("<q")}


def plain_bytes(physical: int, value: int | str) -> bytes | None:
    """Return the plain encoding of a value.  None if a leaf of that physical type cannot hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") if physical == BYTE_ARRAY else None
    layout = _PLAIN.get(physical)
    if layout is None or not -(1 << 8 * layout.size - 1) <= value < 1 << 8 * layout.size - 1:
        return None
    return layout.pack(value)


def groups_that_may_hold(footer: Footer, leaf: int, values: Sequence[bytes], fetch: FetchRanges) -> list[bool] | None:
    """Return for each row group whether it can hold one of some plain-encoded values.  None without a filter.

    Raises :class:`CorruptError` for a filter that breaks the format.
    """
    offsets = [group.chunks[leaf].bloom_offset for group in footer.row_groups]
    filtered = [(number, at) for number, at in enumerate(offsets) if at is not None]
    if not filtered:
        return None
    heads = fetch([(at, min(_HEADER_BYTES, footer.size - at)) for _, at in filtered])
    hashes = [xxhash.xxh64_intdigest(value) for value in values]
    groups: list[int] = []
    blocks: list[tuple[int, int]] = []
    for (number, at), head in zip(filtered, heads, strict=True):
        start, count = _bit_set(head, at, footer.size)
        groups += [number] * len(hashes)
        blocks += [(start + _BLOCK * ((h >> 32) * count >> 32), _BLOCK) for h in hashes]
    held = [at is None for at in offsets]
    for number, h, block in zip(groups, hashes * len(filtered), fetch(blocks), strict=True):
        held[number] = held[number] or _has(block, h & 0xFFFFFFFF)
    return held


def _bit_set(head: bytes | memoryview, at: int, size: int) -> tuple[int, int]:
    """Return where a filter's bit set begins, and its number of blocks."""
    reader = ThriftReader(bytes(head), 0, at)
    header = reader.struct()
    length = header.get(1)
    for part, what in ((2, "algorithm"), (3, "hash"), (4, "compression")):
        choice = header.get(part)
        if not isinstance(choice, dict) or list(choice) != [1]:
            raise CorruptError(f"the {what} of a bloom filter is not known", at)
    start = at + reader.position
    if not isinstance(length, int) or length < _BLOCK or length % _BLOCK or start + length > size:
        raise CorruptError(f"a bloom filter of {length} bytes does not fit in the file", at)
    return start, length // _BLOCK


def _has(block: bytes | memoryview, key: int) -> bool:
    words = _WORDS.unpack(block)
    return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALT, strict=True))
