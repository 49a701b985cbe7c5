"""How many bytes a question reads of a data file, by the steps that reading it takes.

In this process (``python``), as :mod:`bitlake.table.read` does it: the condition's columns first, of the others what
survives.  On Spark (``spark``), where no index chooses few rows, Spark's own reader takes the wanted columns whole, or
of columns in order the pages whose bounds allow a match.

Where pages lie is read from the files' own footers and offset indexes, so that what is counted is what would be
fetched.  Of a file of which a run was looked at, the pages of the run are counted and multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.worth import MOST_SHARE, SMALL_ROWS
from bitlake.formats.parquet_index import load_pages
from bitlake.formats.parquet_pages import MAX_GAP
from bitlake.formats.parquet_write import PAGE_ROWS
from bitlake.metadata.schema import TableSchema
from bitlake.predicate.tree import And, Constant, Leaf, Or, Predicate, conjuncts, sources_of
from bitlake.storage import Store
from bitlake.table.advise.questions import Question, leaves_of
from bitlake.table.advise.sample import Run
from bitlake.table.advise.trial import Candidate, Trial, selection_of
from bitlake.table.evolution import map_fields
from bitlake.table.fetch import FileTask, Ints, ReadCounts, footer_of, has_pages, stored_bytes
from bitlake.table.page_pruning import rows_by_pages
from bitlake.table.read import WHOLE_FILE_SHARE

_LATE_PAGES = 0.5
_START = 16 * 1024
"""Bytes that opening an index fetches at once."""

ENGINES = ("spark", "python")
SPARK_SHARE = 0.05
"""Of files with more chosen rows, Spark's own reader reads all; this and the next as in bitlake's ``spark.scan``."""
DRIVER_ROWS = 200_000
DRIVER_BYTES = 4 << 20
"""Tables of up to so many bytes and rows are read on the driver, in this process."""

Indexes = Mapping[str, Candidate]
"""The indexes that are taken to be there, by column."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes read of a file: of the data file, and of its index."""

    data: float
    index: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.data + self.index


@dataclass(slots=True)
class RunWeigher:
    """Weighs questions about the file that a run stands for.  Mutable: keeps what it counted."""

    store: Store
    run: Run
    trial: Trial
    schema: TableSchema
    engine: str
    table_rows: int
    _names: dict[str, str | None] = field(default_factory=dict)
    _possible: dict[Predicate, tuple[BitMap | None, int]] = field(default_factory=dict)

    def weigh(self, question: Question, indexes: Indexes) -> Weight:
        """What the question reads of the whole file, with these indexes."""
        rows = self.run.task.row_count
        selection, asked = self._select(question.predicate, indexes)
        if selection.is_empty:
            return Weight(0, asked)
        if selection.rows is not None and rows >= SMALL_ROWS and len(selection.rows) > MOST_SHARE * self.run.rows:
            selection = Selection.all()
        if not has_pages(self.run.task):
            return Weight(self.run.task.size, asked)
        needed = self._stored_names(question.needed)
        chosen = selection.count(self.run.rows)
        if selection.rows is not None and chosen <= self.run.rows * self._most_share(chosen):
            return Weight(self._pages(needed, selection.positions(self.run.rows)), asked)
        if self.engine == "spark":
            return Weight(self.by_spark(question), asked)
        if selection.exact:
            return Weight(self._whole(needed), asked)
        return Weight(self._late(question), asked)

    def _most_share(self, chosen: int) -> float:
        """Up to which part of a file's rows those that an index chose are read by their pages."""
        if self.engine == "spark" and chosen / max(self.run.rows, 1) * self.table_rows > DRIVER_ROWS:
            return SPARK_SHARE
        return WHOLE_FILE_SHARE

    # --- without rows chosen by an index ------------------------------------------------------------------------------

    def by_spark(self, question: Question) -> float:
        """What Spark's own reader reads of the file."""
        needed = self._stored_names(question.needed)
        possible, _ = self._possible_rows(question.predicate)
        if possible is None:
            return self._whole(needed)
        inside = np.frombuffer(possible.to_array(), np.uint32).astype(np.int64)
        return min(self._whole(needed), self._ranges(needed, inside, 1.0)) if len(inside) else 0.0

    def _late(self, question: Question) -> float:
        judged = self._stored_names(tuple(sorted(sources_of(question.predicate))))
        rest = [n for n in self._stored_names(question.needed) if n not in judged]
        survivors = self.true(question.predicate)
        positions = np.frombuffer(survivors.to_array(), np.uint32).astype(np.int64)
        if not judged or not rest:
            return self._whole(judged or rest)
        possible, looked = self._possible_rows(question.predicate)
        if possible is not None and len(possible) <= self.run.task.row_count * WHOLE_FILE_SHARE:
            # Bounds are of the whole file: nothing is multiplied.
            inside = np.frombuffer(possible.to_array(), np.uint32).astype(np.int64)
            size = self._ranges(judged, inside, 1.0) if len(inside) else 0.0
            return looked + size + (self._pages(rest, positions) if len(positions) else 0.0)
        size = looked + self._whole(judged)
        if not len(positions):
            return size
        blocks = np.count_nonzero(np.diff(positions // PAGE_ROWS, prepend=-1))
        few = blocks * PAGE_ROWS <= self.run.rows * _LATE_PAGES
        return size + (self._pages(rest, positions) if few else self._whole(rest))

    def _possible_rows(self, predicate: Predicate) -> tuple[BitMap | None, int]:
        known = self._possible.get(predicate)
        if known is None:
            task, counts = self.run.task, ReadCounts()
            mapping = map_fields(self.schema.fields, task.file_schema.fields).fields
            wanted = {n: mapping[n] for t in conjuncts(predicate) for n in sources_of(t) if n in mapping}
            fields = {n: (self.schema.field(n), source) for n, source in wanted.items() if source is not None}
            footer = footer_of(self.store, task)
            found = rows_by_pages(self.store, task, footer, predicate, fields, counts)
            known = self._possible[predicate] = (found, counts.bytes)
        return known

    # --- what matches, and what indexes say ---------------------------------------------------------------------------

    def true(self, predicate: Predicate) -> BitMap:
        """Where a bound predicate is TRUE, counted from the run's start."""
        match predicate:
            case And(children):
                return BitMap.intersection(*(self.true(c) for c in children))
            case Or(children):
                return BitMap.union(*(self.true(c) for c in children))
            case Constant(value):
                return BitMap(range(self.run.rows)) if value else BitMap()
            case _:
                return self.trial.matches[predicate]  # type: ignore[index]

    def _select(self, predicate: Predicate, indexes: Indexes) -> tuple[Selection, float]:
        leaves = leaves_of(predicate)
        asked: dict[Leaf, Selection] = {}
        size = 0.0
        for leaf in leaves:
            candidate = indexes.get(leaf.column)
            built = None if candidate is None else self.trial.built.get(candidate)
            answer = None if built is None else built.answers.get(leaf)
            if answer is None or built is None:
                continue
            asked[leaf] = selection_of(self.trial, answer, leaf)
            start = min(answer.index_bytes, _START)
            size += start + (answer.index_bytes - start) * self.run.scale
        return (_combine(predicate, asked), size) if asked else (Selection.all(), 0.0)

    def blocks(self, predicate: Predicate, rows: int) -> int:
        """In how many rows' worth of blocks of so many rows the matching rows are."""
        positions = np.frombuffer(self.true(predicate).to_array(), np.uint32).astype(np.int64) + self.run.start
        return int(np.count_nonzero(np.diff(positions // rows, prepend=-1))) * rows

    def column_share(self, columns: Sequence[str]) -> float:
        """Which part of the file's bytes these columns are."""
        if not has_pages(self.run.task):
            return 1.0
        return min(1.0, self._whole(self._stored_names(columns)) / max(1, self.run.task.size))

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _stored_names(self, columns: Sequence[str]) -> list[str]:
        if not self._names:
            found = map_fields(self.schema.fields, self.run.task.file_schema.fields).fields
            footer = footer_of(self.store, self.run.task) if has_pages(self.run.task) else None
            for name, source in found.items():
                there = source is not None and (footer is None or source.name in footer.columns)
                self._names[name] = source.name if there and source is not None else None
        return [n for c in columns if (n := self._names.get(c)) is not None]

    def _whole(self, names: Sequence[str]) -> float:
        footer = footer_of(self.store, self.run.task)
        return float(stored_bytes(footer, names, range(len(footer.row_groups))))

    def _pages(self, names: Sequence[str], positions: Ints) -> float:
        """Of rows counted from the run's start, multiplied for the file; never more than the columns."""
        if not len(positions):
            return 0.0
        return min(self._ranges(names, positions + self.run.start, self.run.scale), self._whole(names))

    def _ranges(self, names: Sequence[str], positions: Ints, scale: float) -> float:
        footer = footer_of(self.store, self.run.task)
        columns = [footer.column(n) for n in names]
        size = 0.0
        for number, group in enumerate(footer.row_groups):
            low, high = np.searchsorted(positions, (group.first_row, group.first_row + group.rows))
            if low == high:
                continue
            local = positions[low:high] - group.first_row
            starts: list[Ints] = []
            stops: list[Ints] = []
            flat = [c.leaf for c in columns if c.flat]
            load_pages(footer, lambda r: self.store.read_ranges(self.run.task.path, r), [(number, n) for n in flat])
            touched: dict[int, Ints] = {}
            for c in columns:
                chunk = group.chunks[c.leaf]
                if not c.flat:
                    size += sum(group.chunks[leaf].compressed for leaf in range(c.leaf, c.leaf_end)) * scale
                    continue
                pages = footer.cache.pages[number, c.leaf]
                if pages.whole:
                    size += chunk.compressed
                    continue
                which = touched.get(id(pages.first_rows))
                if which is None:
                    which = np.unique(np.searchsorted(pages.first_rows, local, "right") - 1)
                    touched[id(pages.first_rows)] = which
                size += max(0, int(pages.offsets[0]) - chunk.start)  # the dictionary
                starts.append(pages.offsets[which])
                stops.append(pages.ends[which])
            size += _fetched(starts, stops) * scale
        return size


def _fetched(starts: Sequence[Ints], stops: Sequence[Ints]) -> int:
    """Bytes of ranges, and of small gaps between them, which are read along."""
    if not starts:
        return 0
    begin, end = np.concatenate(starts), np.concatenate(stops)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    gaps = begin[1:] - np.maximum.accumulate(end)[:-1]
    return int((end - begin).sum() + gaps[(gaps > 0) & (gaps <= MAX_GAP)].sum())


def _combine(predicate: Predicate, asked: Mapping[Leaf, Selection]) -> Selection:
    match predicate:
        case And(children):
            found = Selection.all(exact=True)
            for child in children:
                found &= _combine(child, asked)
            return found
        case Or(children):
            found = Selection.none()
            for child in children:
                found |= _combine(child, asked)
            return found
        case Constant(value):
            return Selection.all(exact=True) if value else Selection.none()
        case _:
            return asked.get(predicate, Selection.all())  # type: ignore[arg-type]


def spark_bytes(store: Store, task: FileTask, question: Question, schema: TableSchema) -> int:
    """What Spark's own reader reads of a file: its columns, or of those in order the pages that can match.

    Told by footer, offset and column indexes; Spark is not asked.
    """
    weigher = RunWeigher(store, Run(task, 0, task.row_count), Trial({}, {}, {}), schema, "spark", task.row_count)
    return round(weigher.by_spark(question))


def page_rows(store: Store, run: Run) -> float | None:
    """About how many rows a page of a file has; None without pages."""
    if not has_pages(run.task):
        return None
    try:
        footer = footer_of(store, run.task)
        flat = [c.leaf for c in footer.columns.values() if c.flat][:1]
        wanted = [(n, leaf) for n in range(min(len(footer.row_groups), 4)) for leaf in flat]
        load_pages(footer, lambda r: store.read_ranges(run.task.path, r), wanted)
        pages = sum(len(footer.cache.pages[w].offsets) for w in wanted)
    except BitlakeError:
        return None
    rows = sum(footer.row_groups[n].rows for n, _ in wanted)
    return rows / pages if pages else None
