"""Where a data file's pages are, and how many bytes of them are fetched for chosen rows; nothing of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from bitlake.expressions.tree import Predicate, conjuncts, sources_of
from bitlake.formats.parquet.page_index import load_pages
from bitlake.formats.parquet.pages import MAX_GAP
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.schema.evolution import map_fields
from bitlake.table.fetch import FileTask, Ints, ReadCounts, footer_of, has_pages, stored_bytes
from bitlake.table.page_pruning import rows_by_pages


@dataclass(slots=True)
class FilePages:
    """One data file's pages.  Columns are named as the table has them; mutable: keeps what it found out."""

    store: Store
    task: FileTask
    schema: TableSchema
    _names: dict[str, str | None] = field(default_factory=dict)
    _possible: dict[Predicate, tuple[Ints | None, int]] = field(default_factory=dict)

    @property
    def told(self) -> bool:
        """Whether the file has pages that can be fetched: Parquet."""
        return has_pages(self.task)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """The file's own names of those columns that it has."""
        if not self._names:
            found = map_fields(self.schema.fields, self.task.file_schema.fields).fields
            footer = footer_of(self.store, self.task) if self.told else None
            for name, source in found.items():
                there = source is not None and (footer is None or source.name in footer.columns)
                self._names[name] = source.name if there and source is not None else None
        return [n for c in columns if (n := self._names.get(c)) is not None]

    def whole(self, columns: Sequence[str]) -> float:
        """Bytes of whole columns."""
        footer = footer_of(self.store, self.task)
        return float(stored_bytes(footer, self.stored(columns), range(len(footer.row_groups))))

    def possible(self, predicate: Predicate) -> tuple[Ints | None, int]:
        """The rows that bounds of pages leave possible (None: all), and the bytes that finding out takes."""
        known = self._possible.get(predicate)
        if known is None:
            counts = ReadCounts()
            mapping = map_fields(self.schema.fields, self.task.file_schema.fields).fields
            wanted = {n: mapping[n] for t in conjuncts(predicate) for n in sources_of(t) if n in mapping}
            fields = {n: (self.schema.field(n), source) for n, source in wanted.items() if source is not None}
            footer = footer_of(self.store, self.task)
            found = rows_by_pages(self.store, self.task, footer, predicate, fields, counts)
            known = self._possible[predicate] = (None if found is None else positions_of(found), counts.bytes)
        return known

    def fetched(self, columns: Sequence[str], positions: Ints) -> float:
        """Bytes of the pages of these columns that hold these rows (sorted); their dictionaries too."""
        if not len(positions):
            return 0.0
        footer = footer_of(self.store, self.task)
        wanted = [footer.column(n) for n in self.stored(columns)]
        flat = [c.leaf for c in wanted if c.flat]
        size = 0
        for number, group in enumerate(footer.row_groups):
            low, high = np.searchsorted(positions, (group.first_row, group.first_row + group.rows))
            if low == high:
                continue
            local = positions[low:high] - group.first_row
            load_pages(footer, lambda r: self.store.read_ranges(self.task.path, r), [(number, n) for n in flat])
            starts: list[Ints] = []
            stops: list[Ints] = []
            touched: dict[int, Ints] = {}
            for c in wanted:
                if not c.flat:
                    size += sum(group.chunks[leaf].compressed for leaf in range(c.leaf, c.leaf_end))
                    continue
                chunk, pages = group.chunks[c.leaf], footer.cache.pages[number, c.leaf]
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
            size += _with_gaps(starts, stops)
        return float(size)

    def page_rows(self) -> float | None:
        """About how many rows the pages of the file's widest column have; None without pages."""
        if not self.told:
            return None
        footer = footer_of(self.store, self.task)
        flat = [c.leaf for c in footer.columns.values() if c.flat]
        if not flat or not footer.row_groups:
            return None
        widest = max(flat, key=lambda leaf: footer.row_groups[0].chunks[leaf].compressed)
        wanted = [(n, widest) for n in range(min(len(footer.row_groups), 4))]
        load_pages(footer, lambda r: self.store.read_ranges(self.task.path, r), wanted)
        pages = sum(len(footer.cache.pages[w].offsets) for w in wanted)
        rows = sum(footer.row_groups[n].rows for n, _ in wanted)
        return rows / pages if pages else None


def _with_gaps(starts: Sequence[Ints], stops: Sequence[Ints]) -> int:
    """Bytes of ranges, and of small gaps between them, which are read along."""
    if not starts:
        return 0
    begin, end = np.concatenate(starts), np.concatenate(stops)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    gaps = begin[1:] - np.maximum.accumulate(end)[:-1]
    return int((end - begin).sum() + gaps[(gaps > 0) & (gaps <= MAX_GAP)].sum())


def positions_of(rows: BitMap) -> Ints:
    """A bitmap's rows, ascending."""
    return np.frombuffer(rows.to_array(), np.uint32).astype(np.int64)
