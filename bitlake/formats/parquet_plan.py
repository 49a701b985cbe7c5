"""Which pages of a Parquet file to fetch for chosen rows, and where these rows will be in what was fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitlake.formats.parquet_footer import Column, Footer, Pages

Ints = np.ndarray[Any, np.dtype[np.int64]]

BATCH_BYTES = 64 << 20
"""Decoded bytes after which further row groups wait for the next batch: bounds memory when most pages are wanted."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A row group with chosen rows, counted from its start (sorted)."""

    number: int
    rows: int
    local: Ints


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


def split_rows(footer: Footer, rows: Ints) -> list[Touched]:
    """The row groups that hold these rows (sorted)."""
    starts = np.array([g.first_row for g in footer.row_groups] + [footer.rows], np.int64)
    cuts = np.searchsorted(rows, starts)
    touched = []
    for number in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
        group = footer.row_groups[number]
        touched.append(Touched(number, group.rows, rows[cuts[number] : cuts[number + 1]] - group.first_row))
    return touched


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pages of one layout hold the rows, and where the chosen rows are in those.

    ``pages`` are numbers in the chunk, ``lengths`` their rows, ``values`` the sum of these.  Of each chosen row:
    ``positions`` among the values of all these pages, ``places`` in its page; rows ``bounds[i]`` to ``bounds[i + 1]``
    are in page i of these.  ``first`` is the position of the first row where they are neighbours, else None.
    """

    pages: Ints
    lengths: Ints
    values: int
    positions: Ints
    places: Ints
    bounds: list[int]
    first: int | None


def _choose(first_rows: Ints, local: Ints) -> Choice:
    bounds = np.searchsorted(local, first_rows)
    counts = bounds[1:] - bounds[:-1]
    pages = np.flatnonzero(counts)
    firsts = first_rows[pages]
    lengths = first_rows[pages + 1] - firsts
    ends = np.cumsum(lengths)
    here = counts[pages]
    places = local - np.repeat(firsts, here)
    positions = places + np.repeat(ends - lengths, here)
    neighbours = positions[-1] - positions[0] == len(local) - 1 and (positions[1:] - positions[:-1] == 1).all()
    first = int(positions[0]) if neighbours else None
    return Choice(pages, lengths, int(ends[-1]), positions, places, [*bounds[pages].tolist(), len(local)], first)


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
            choice = choices[id(pages.first_rows)] = _choose(pages.first_rows, touched.local)
        chunks.append(_planned(footer, number, column.leaf, pages, choice))
        chosen.append(choice)
    whole = [_whole_chunk(footer, number, leaf) for c in nested for leaf in range(c.leaf, c.leaf_end)]
    cost = 0
    for chunk in (*chunks, *whole):
        source = footer.row_groups[number].chunks[chunk.leaf]
        wanted = sum(p.stop - p.start for p in chunk.pieces)
        cost += wanted * max(1, source.uncompressed // max(1, source.compressed))
    return GroupPlan(touched, chunks, chosen, whole, cost)


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
    breaks = np.flatnonzero(starts[1:] != stops[:-1])
    if len(breaks):
        run_starts = starts[np.concatenate(([0], breaks + 1))].tolist()
        run_stops = stops[np.concatenate((breaks, [len(stops) - 1]))].tolist()
        pieces += [Piece(a, b) for a, b in zip(run_starts, run_stops)]
    else:
        pieces.append(Piece(int(starts[0]), int(stops[-1])))
    data = first - source.start if dictionary is not None else 0
    return PlannedChunk(group, leaf, pieces, dictionary, data, choice.values, len(choice.pages), starts, stops)


def _whole_chunk(footer: Footer, group: int, leaf: int) -> PlannedChunk:
    source = footer.row_groups[group].chunks[leaf]
    start = source.start
    dictionary = None if source.dictionary_offset is None else source.dictionary_offset - start
    pieces = [Piece(start, start + source.compressed)]
    return PlannedChunk(group, leaf, pieces, dictionary, source.data_offset - start, source.values, 1)
