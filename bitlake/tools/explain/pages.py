"""The row ranges of each file that a plan reads, and the planning step that excluded the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from bitlake.codec.hashing import Int64s
from bitlake.errors import BitlakeError
from bitlake.expressions.tree import sources_of
from bitlake.formats.parquet.footer import Footer
from bitlake.formats.parquet.page_index import load_pages, plan_group, split_rows
from bitlake.formats.parquet.pages import MAX_GAP
from bitlake.io import Store
from bitlake.scan.column_reader import FileTask, footer_of, has_pages
from bitlake.scan.plan import Plan, PlannedFile
from bitlake.scan.reader import by_pages, tasks_of
from bitlake.schema.evolution import map_fields
from bitlake.tools.explain.text import describe_choice

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

MOST_CELLS = 200
"""The most cells that show one file; each is a stretch of its pages."""
READ, SOME, INDEX, VECTOR, BOUNDS = "read", "some columns", "file index", "deletion vector", "page bounds"
"""The fate of a page of an opened file; files that are not opened have their skip reason instead."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring pages with one fate: ``rows`` from ``first_row`` on; ``state`` says read, or what spared them."""

    first_row: int
    rows: int
    pages: int
    state: str


@dataclass(frozen=True, slots=True)
class FileMap:
    """One file: ``why`` it is read or skipped in words, and its cells.

    ``column``: the column whose pages the cells are, the one with most of those that are needed; None without pages.
    ``column_bytes``: of the needed columns; ``page_bytes``: of their pages that hold a chosen row.  ``bytes_read``: of
    the file, if it was read.  ``page_size``: rows of most pages.
    """

    path: str
    rows: int
    size: int
    state: str
    why: str
    column: str | None = None
    column_bytes: int = 0
    page_bytes: int = 0
    bytes_read: int | None = None
    rows_chosen: int = 0
    cells: tuple[Cell, ...] = ()

    def pages(self) -> dict[str, int]:
        """Count pages by their fate."""
        out: dict[str, int] = {}
        for cell in self.cells:
            out[cell.state] = out.get(cell.state, 0) + cell.pages
        return out


def maps_of(
    plan: Plan, store: Store, ranges: dict[str, list[tuple[int, int]]] | None, most: int
) -> tuple[list[FileMap], int, int, int]:
    """The plan's files to read: maps of at most ``most``; and of those looked at, column bytes, page bytes and sizes.

    ``ranges``: what was fetched of each file, where the plan was read; without it pages count as read that have to be,
    and only ``most`` files are looked at, for each takes its footer to be read.
    """
    out: list[FileMap] = []
    columns = pages = sizes = 0
    for planned, task in _leaves(plan.files, tasks_of(plan.files, plan.schemas)):
        if len(out) == most and ranges is None:
            break
        file_map = _map(plan, planned, task, store, ranges)
        columns, pages, sizes = columns + file_map.column_bytes, pages + file_map.page_bytes, sizes + file_map.size
        if len(out) < most:
            out.append(file_map)
    return out, columns, pages, sizes


def _leaves(files: Sequence[PlannedFile], tasks: Sequence[FileTask]) -> list[tuple[PlannedFile, FileTask]]:
    out: list[tuple[PlannedFile, FileTask]] = []
    for file, task in zip(files, tasks, strict=True):
        if file.merge is not None and task.merge is not None:
            out += _leaves(file.merge.files, task.merge.files)
        else:
            out.append((file, task))
    return out


def _map(
    plan: Plan, file: PlannedFile, task: FileTask, store: Store, ranges: dict[str, list[tuple[int, int]]] | None
) -> FileMap:
    size, rows = task.size, task.row_count
    fetched = None if ranges is None else ranges.get(task.path, [])
    got = None if fetched is None else sum(n for _, n in fetched)
    chosen = file.chosen_rows
    why = (
        describe_choice(file)
        if not file.unused_indexes
        else f"{describe_choice(file)} (not asked: {'; '.join(file.unused_indexes)})"
    )
    plain = FileMap(
        task.path, rows, size, READ, why, None, size, size, got, chosen, (Cell(0, rows, 1, READ),) if rows else ()
    )
    if not has_pages(task):
        return plain
    try:
        footer = footer_of(store, task)

        def fetch(wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
            return store.read_ranges(task.path, wanted)

        parts = [[n for n in part if n in footer.columns] for part in _needed(plan, file, task)]
        names = [n for part in parts for n in part]
        if not names:
            return FileMap(
                task.path, rows, size, READ, f"{why}; no column of it is needed", None, 0, 0, got, chosen, plain.cells
            )
        groups = range(len(footer.row_groups))
        flat = [footer.column(n).leaf for n in names if footer.column(n).flat]
        load_pages(footer, fetch, [(g, leaf) for g in groups for n in names for leaf in _leaf_numbers(footer, n)])
        column_bytes = _with_gaps(_chunks(footer, names))
        positions = file.selection.positions(rows)
        # Of columns whose pages mostly hold a chosen row, all pages are read in order.
        apart = [n for part in parts if part and by_pages(footer, fetch, positions, part) for n in part]
        places = _chunks(footer, [n for n in names if n not in apart]) + _pages(footer, apart, positions)
        page_bytes = min(_with_gaps(places), column_bytes)
        column, cells = _cells(footer, flat, file, positions, apart, fetched)
    except BitlakeError:
        return plain  # reading says what is wrong
    return FileMap(task.path, rows, size, READ, why, column, column_bytes, page_bytes, got, chosen, tuple(cells))


def _needed(plan: Plan, file: PlannedFile, task: FileTask) -> tuple[list[str], list[str]]:
    """The file's columns that a scan reads: those of its condition, which are read first, and all others.

    The others are the columns asked for, and the keys if files are merged.
    """
    judged = set() if plan.predicate is None else sources_of(plan.predicate)
    wanted = set(plan.columns) | judged
    if any(f.merge is not None for f in plan.files):
        wanted |= set(plan.schema.primary_keys)
    wanted -= set(plan.schema.partition_keys)
    mapping = map_fields(plan.schema.fields, task.file_schema.fields).fields
    first = set() if file.sure(plan.predicate) else judged
    names = [(name in first, found.name) for name in mapping if name in wanted and (found := mapping[name]) is not None]
    return [name for is_first, name in names if is_first], [name for is_first, name in names if not is_first]


def _chunks(footer: Footer, names: Sequence[str]) -> list[tuple[int, int]]:
    """The byte ranges [start, stop) of columns."""
    leaves = [leaf for n in names for leaf in _leaf_numbers(footer, n)]
    chunks = [group.chunks[leaf] for group in footer.row_groups for leaf in leaves]
    return [(c.start, c.start + c.compressed) for c in chunks]


def _pages(footer: Footer, names: Sequence[str], positions: Int64s) -> list[tuple[int, int]]:
    """The byte ranges [start, stop) of the pages that hold a chosen row."""
    if not names:
        return []
    columns = [footer.column(n) for n in names]
    flat, nested = [c for c in columns if c.flat], [c for c in columns if not c.flat]
    plans = [plan_group(footer, flat, nested, touched) for touched in split_rows(footer, positions)]
    return [(p.start, p.stop) for g in plans for c in g.chunks for p in c.pieces]


def _with_gaps(places: Sequence[tuple[int, int]]) -> int:
    """Bytes of [start, stop) places; small gaps between them are read along (:mod:`bitlake.formats.parquet.pages`)."""
    if not places:
        return 0
    starts, ends = np.array(sorted(places), np.int64).T
    reach = np.maximum.accumulate(ends)
    gaps = starts[1:] - reach[:-1]
    return int(reach[-1] - starts[0] - gaps[gaps > MAX_GAP].sum())


def _leaf_numbers(footer: Footer, name: str) -> range:
    column = footer.column(name)
    return range(column.leaf, column.leaf_end)


def _cells(
    footer: Footer,
    flat: Sequence[int],
    file: PlannedFile,
    positions: Int64s,
    apart: Collection[str],
    fetched: list[tuple[int, int]] | None,
) -> tuple[str | None, list[Cell]]:
    rows = footer.rows
    if not flat or not rows:
        return None, [Cell(0, rows, 1, READ)]
    groups = range(len(footer.row_groups))
    leaf = max(flat, key=lambda i: (sum(len(footer.cache.pages[g, i].offsets) for g in groups), -i))
    pages = [footer.cache.pages[g, leaf] for g in groups]
    starts = np.concatenate(
        [p.first_rows[:-1] + g.first_row for p, g in zip(pages, footer.row_groups, strict=True)]
    ).astype(np.int64)
    bounds = np.append(starts, rows)
    chosen = np.diff(np.searchsorted(positions, bounds))
    spared = BOUNDS if file.by_pages else INDEX if file.pruned_by else VECTOR if file.deleted else BOUNDS
    name = next(c.name for c in footer.columns.values() if c.leaf == leaf)
    # Where all pages of the column are read in order, those without a chosen row are read along.
    wanted = (chosen > 0) | (name not in apart)
    states = np.zeros(len(starts), np.int64)
    if fetched is not None:
        fetched = [*fetched, (footer.cache.tail_offset, len(footer.cache.tail))]  # came with the footer
        # Where conditions are judged first, their columns' pages may tell that those of others need not be read.
        touched = [_touched_rows(footer, i, bounds, fetched) for i in flat]
        states = np.where(wanted & ~np.all(touched, axis=0), 1, states)
        states = np.where(wanted & ~np.any(touched, axis=0), 3, np.where(wanted, states, 2))
    else:
        states = np.where(wanted, 0, 2)
    cells = _runs(starts, bounds, states, (READ, SOME, spared, BOUNDS))
    return name, cells


def _touched(offsets: Int64s, ends: Int64s, ranges: Sequence[tuple[int, int]]) -> Bools:
    """Return a mask of the [offset, end) ranges of which more than a header was fetched."""
    if not ranges:
        return np.zeros(len(offsets), bool)
    spans = np.array(sorted(ranges), np.int64)
    low, high = spans[:, 0], np.maximum.accumulate(spans[:, 0] + spans[:, 1])
    # A page was fetched when the furthest range that starts before its end reaches into it by half or more.
    before = np.searchsorted(low, ends, "left") - 1
    reach = np.where(before >= 0, high[np.maximum(before, 0)], -1)
    covered = np.minimum(reach, ends) - offsets
    found: Bools = covered * 2 >= ends - offsets
    return found


def _touched_rows(footer: Footer, leaf: int, bounds: Int64s, ranges: Sequence[tuple[int, int]]) -> Bools:
    """Return a mask of the ranges of rows that have a fetched page of a column."""
    out = np.zeros(len(bounds) - 1, bool)
    for number, group in enumerate(footer.row_groups):
        pages = footer.cache.pages[number, leaf]
        hit = _touched(pages.offsets, pages.ends, ranges)
        low = np.searchsorted(bounds, pages.first_rows[:-1][hit] + group.first_row, "right") - 1
        high = np.searchsorted(bounds, pages.first_rows[1:][hit] + group.first_row, "left")
        for a, b in zip(low.tolist(), high.tolist(), strict=True):
            out[a:b] = True
    return out


def _runs(starts: Int64s, bounds: Int64s, states: Int64s, names: Sequence[str]) -> list[Cell]:
    """Pages as cells: each its own while they are few, else neighbours together, at most :data:`MOST_CELLS`."""
    count = len(starts)
    cuts = np.arange(count)
    if count > MOST_CELLS:
        cuts = np.flatnonzero(np.diff(states, prepend=-1))
    if len(cuts) > MOST_CELLS:
        cuts = np.unique(np.linspace(0, count, MOST_CELLS, endpoint=False).astype(np.int64))
    ends = np.append(cuts[1:], count)
    cells = []
    for a, b in zip(cuts.tolist(), ends.tolist(), strict=True):
        state = int(states[a:b].min())  # read, if any of them is
        cells.append(Cell(int(bounds[a]), int(bounds[b] - bounds[a]), b - a, names[state]))
    return cells
