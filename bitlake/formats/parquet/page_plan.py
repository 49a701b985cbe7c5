"""Which pages of a Parquet file to fetch for chosen rows, and where these rows will be in what was fetched."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitlake.formats.parquet.footer import Column, Footer, Pages

Ints = np.ndarray[Any, np.dtype[np.int64]]

BATCH_BYTES = 32 << 20
"""Decoded bytes of pages after which further ones wait for the next batch: bounds memory when most are wanted."""

_EDGE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Touched:
    """A row group with chosen rows, counted from its start (sorted); ``distinct``: none of them twice."""

    number: int
    rows: int
    local: Ints
    distinct: bool


@dataclass(slots=True)
class Piece:
    """Bytes ``[start, stop)`` of the file that are wanted, and once fetched, what they are."""

    start: int
    stop: int
    data: memoryview | bytes = b""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Pages of a chunk to fetch: its pieces, its dictionary and data offsets in them, values and pages."""

    group: int
    leaf: int
    pieces: list[Piece]
    dictionary: int | None
    data: int
    values: int
    pages: int
    starts: Ints | None = None
    stops: Ints | None = None
    """Where each data page lies in the file; None where they are not told apart."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What to fetch of a row group: flat chunks and which of their pages, nested chunks; ``cost`` is about the bytes
    they decode to."""

    touched: Touched
    flat: list[PlannedChunk]
    choices: list[Choice]
    nested: list[PlannedChunk]
    cost: int

    def release(self) -> None:
        """Let go of the bytes that were fetched."""
        for chunk in (*self.flat, *self.nested):
            for piece in chunk.pieces:
                piece.data = b""


def split_rows(footer: Footer, rows: Ints) -> list[Touched]:
    """The row groups that hold these rows (sorted)."""
    starts = np.array([g.first_row for g in footer.row_groups] + [footer.rows], np.int64)
    cuts = np.searchsorted(rows, starts)
    touched = []
    for number in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
        group = footer.row_groups[number]
        local = rows[cuts[number] : cuts[number + 1]] - group.first_row
        touched.append(Touched(number, group.rows, local, bool((local[1:] != local[:-1]).all())))
    return touched


class Choice:
    """Which pages of one layout hold the chosen rows of a row group, and where these are in those.

    ``pages`` are numbers in the chunk, ``sizes`` their rows, ``values`` the sum of these; ``count`` rows are chosen.
    ``first`` is the place of the first of them among the values of all these pages where they are neighbours, else
    None.
    """

    __slots__ = ("_places", "_rows", "count", "first", "pages", "sizes", "values")

    def __init__(self, first_rows: Ints, touched: Touched) -> None:
        local = touched.local
        self.count = len(local)
        low, high = int(local[0]), int(local[-1])
        self.first: int | None = None
        self._places: tuple[Ints, Ints] | None = None
        self._rows: list[slice | Ints] | None = None
        if touched.distinct and high - low == self.count - 1:
            begin, last = (np.searchsorted(first_rows, (low, high), "right") - 1).tolist()
            starts = first_rows[begin : last + 2].tolist()
            self.sizes = [b - a for a, b in itertools.pairwise(starts)]
            if all(self.sizes):
                self.pages: slice | Ints = slice(begin, last + 1)
                self.values = starts[-1] - starts[0]
                self.first = low - starts[0]
                self._rows = [slice(max(low - a, 0), min(high + 1, b) - a) for a, b in itertools.pairwise(starts)]
                return
        bounds = np.searchsorted(local, first_rows)
        counts = bounds[1:] - bounds[:-1]
        pages = np.flatnonzero(counts)
        firsts = first_rows[pages]
        lengths = first_rows[pages + 1] - firsts
        here = counts[pages]
        places = local - np.repeat(firsts, here)
        self.pages = pages
        self.sizes = lengths.tolist()
        self.values = sum(self.sizes)
        positions = places + np.repeat(np.cumsum(lengths) - lengths, here)
        self._places = places, positions
        if touched.distinct and int(positions[-1] - positions[0]) == self.count - 1:
            self.first = int(positions[0])
        cuts = [*bounds[pages].tolist(), len(local)]
        self._rows = [_as_slice(places[a:b], touched.distinct) for a, b in itertools.pairwise(cuts)]

    @property
    def positions(self) -> Ints:
        """Of each chosen row, its place among the values of all these pages."""
        if self._places is None:
            assert self.first is not None
            return np.arange(self.first, self.first + self.count)
        return self._places[1]

    def rows(self, number: int) -> slice | Ints:
        """The chosen rows of the ``number``-th of these pages, counted in it."""
        assert self._rows is not None
        return self._rows[number]


def _as_slice(places: Ints, distinct: bool) -> slice | Ints:
    low, high = int(places[0]), int(places[-1]) + 1
    return slice(low, high) if distinct and high - low == len(places) else places


def plan_group(footer: Footer, flat: Sequence[Column], nested: Sequence[Column], touched: Touched) -> GroupPlan:
    """What to fetch of one row group; the offset indexes of the flat columns are in the footer's cache."""
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
        chunks.append(_planned(footer, number, column.leaf, pages, choice))
        chosen.append(choice)
    whole = [_whole_chunk(footer, number, leaf) for c in nested for leaf in range(c.leaf, c.leaf_end)]
    cost = 0
    for chunk in (*chunks, *whole):
        source = footer.row_groups[number].chunks[chunk.leaf]
        wanted = sum([p.stop - p.start for p in chunk.pieces])
        cost += wanted * max(1, source.uncompressed // max(1, source.compressed))
    return GroupPlan(touched, chunks, chosen, whole, cost)


def split_plan(footer: Footer, flat: Sequence[Column], plan: GroupPlan) -> list[GroupPlan]:
    """The plan of a row group in parts of about ``BATCH_BYTES``; a page on the edge of two is in both."""
    touched = plan.touched
    count = min(-(-plan.cost // BATCH_BYTES), len(touched.local))
    if count <= 1 or any(footer.cache.pages[touched.number, c.leaf].whole for c in flat):
        return [plan]
    # Pages are of equal sizes, so that equal ranges of rows cost the same; edges are multiples of a page's rows.
    edges = np.linspace(0, touched.rows, count, endpoint=False)[1:] // _EDGE_ROWS * _EDGE_ROWS
    parts = [p for p in np.split(touched.local, np.searchsorted(touched.local, edges)) if len(p)]
    return [plan_group(footer, flat, (), replace(touched, local=p)) for p in parts]


def batches(plans: Sequence[GroupPlan]) -> list[list[GroupPlan]]:
    """Row groups to fetch and decode together: nearly always all of them, but bounded in memory."""
    found: list[list[GroupPlan]] = []
    cost = 0
    for plan in plans:
        if found and cost + plan.cost <= BATCH_BYTES:
            found[-1].append(plan)
            cost += plan.cost
        else:
            found.append([plan])
            cost = plan.cost
    return found


def _planned(footer: Footer, group: int, leaf: int, pages: Pages, choice: Choice) -> PlannedChunk:
    source = footer.row_groups[group].chunks[leaf]
    if pages.whole:
        return _whole_chunk(footer, group, leaf)
    first = int(pages.offsets[0])
    # What lies before the first data page is the dictionary page, also where the footer does not say so.
    pieces = [Piece(source.start, first)] if first > source.start else []
    dictionary = 0 if pieces else None
    starts, stops = pages.offsets[choice.pages], pages.ends[choice.pages]
    if len(starts) == 1:
        pieces.append(Piece(int(starts[0]), int(stops[0])))
    else:
        breaks = np.flatnonzero(starts[1:] != stops[:-1])
        run_starts = starts[np.concatenate(([0], breaks + 1))].tolist()
        run_stops = stops[np.concatenate((breaks, [len(stops) - 1]))].tolist()
        pieces += [Piece(a, b) for a, b in zip(run_starts, run_stops)]
    data = first - source.start if dictionary is not None else 0
    return PlannedChunk(group, leaf, pieces, dictionary, data, choice.values, len(starts), starts, stops)


def _whole_chunk(footer: Footer, group: int, leaf: int) -> PlannedChunk:
    source = footer.row_groups[group].chunks[leaf]
    start = source.start
    dictionary = None if source.dictionary_offset is None else source.dictionary_offset - start
    pieces = [Piece(start, start + source.compressed)]
    return PlannedChunk(group, leaf, pieces, dictionary, source.data_offset - start, source.values, 1)
