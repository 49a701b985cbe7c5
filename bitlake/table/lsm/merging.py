"""What a compaction makes of one chunk of rows: all rows of some keys, from all runs that are compacted together.

Four ways (index-format spec, section 9.4, and what Paimon's merge tree does):

* :class:`PlainMerge`: the engine over all rows;
* :class:`LookupMerge`: keys that come from level 0 alone are looked up in the levels above the output; what is found is
  marked deleted there (with deletion vectors), and joins the merge where the engine needs it;
* :class:`FirstRowMerge`: keys that a level above has already are dropped;
* :class:`FullMerge`: compares with what the highest level held, for a changelog of full compactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.roaring import bitmap_of
from bitlake.fileindex.selection import Selection
from bitlake.merge.engine import LEVEL, Levels, merge_rows
from bitlake.merge.keys import group_rows
from bitlake.schema.merge_spec import DEDUPLICATE, FIRST_ROW, MergeSpec
from bitlake.table.lsm.bucket_read import POSITION, BucketReader
from bitlake.table.lsm.changelog import ChangelogMaker, adds
from bitlake.table.lsm.lookup import FileHits, KeyLookup

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows for the output level, in key order, deletes among them; and changelog rows, None if none are made."""

    rows: pa.Table
    changelog: pa.Table | None = None


class ChunkMerge(Protocol):
    """Merges chunk by chunk; a chunk has the stored columns and :data:`bitlake.merge.engine.LEVEL`."""

    def merge(self, chunk: pa.Table) -> Merged:
        """What becomes of the chunk's keys."""


@dataclass(frozen=True, slots=True)
class PlainMerge:
    """The engine alone; ``lowest_wins``: of levels above 0 only the lowest that has a key counts.

    That is so where lookups merge what is above into what goes to a lower level: the rest is merged in it already.
    """

    spec: MergeSpec
    columns: tuple[str, ...]
    lowest_wins: bool = False

    def merge(self, chunk: pa.Table) -> Merged:
        """Merge all rows."""
        if self.lowest_wins:
            chunk = Levels.of(self.spec.keys, chunk).chunk
        return Merged(merge_rows(self.spec, chunk, self.columns, keep_deletes=True))


class LookupMerge:
    """Merges with what the levels above the output hold.

    ``mark`` is told of rows there that no longer count; ``changes`` makes a changelog, or None.
    """

    def __init__(
        self,
        spec: MergeSpec,
        reader: BucketReader,
        lookup: KeyLookup,
        mark: Callable[[FileHits], None] | None,
        changes: ChangelogMaker | None,
        keep: Callable[[pa.Table], pa.Table],
    ) -> None:
        self._spec = spec
        self._reader = reader
        self._lookup = lookup
        self._mark = mark
        self._changes = changes
        self._keep = keep

    @property
    def only_marks(self) -> bool:
        """Whether what is above has no say in the result: the newest row wins, and nobody asks what was."""
        spec = self._spec
        return spec.engine == DEDUPLICATE and not spec.sequence and self._changes is None

    def merge(self, chunk: pa.Table) -> Merged:
        """Look up, mark, merge."""
        spec, columns = self._spec, self._reader.schema.field_names
        if spec.engine == DEDUPLICATE and spec.ignore_delete:
            chunk = chunk.filter(pa.array(adds(chunk)))
        if not chunk.num_rows:
            return Merged(chunk.drop_columns([LEVEL]))
        levels = chunk.column(LEVEL).to_numpy()
        if self.only_marks and not levels.any():
            rows = merge_rows(spec, chunk, columns, keep_deletes=True)
            self.mark_keys([rows.column(k).combine_chunks() for k in spec.keys])
            return Merged(rows)
        sorted_out = Levels.of(spec.keys, chunk)
        chunk = sorted_out.chunk.drop_columns([LEVEL])
        before = sorted_out.high
        unknown = before < 0
        if unknown.any() and not (self.only_marks and self._mark is None):
            hits = self._lookup.find(sorted_out.keys(spec.keys, unknown))
            self._tell(hits)
            if hits and not self.only_marks:
                old, of_key = self._fetch(hits)
                before = before.copy()
                before[np.flatnonzero(unknown)[of_key]] = chunk.num_rows + np.arange(old.num_rows)
                chunk = pa.concat_tables([chunk, old])
        rows = merge_rows(spec, chunk, columns, keep_deletes=True, lone_as_is=False)
        if self._changes is None:
            return Merged(rows)
        return Merged(rows, self._changes.rows(chunk, before, rows, sorted_out.fresh))

    def mark_keys(self, keys: list[pa.Array]) -> None:
        """Mark what is above of these keys: ascending, each once."""
        if self._mark is not None:
            self._tell(self._lookup.find(keys))

    def _tell(self, hits: list[FileHits]) -> None:
        if self._mark is not None:
            for hit in hits:
                self._mark(hit)

    def _fetch(self, hits: list[FileHits]) -> tuple[pa.Table, Int64s]:
        """The rows that were found, and which key each is of; expired ones are left out (they are marked all the same:
        else they would stand beside what comes now)."""
        reader = self._reader
        names = reader.columns
        parts: list[pa.Table] = []
        keys: list[Int64s] = []
        for hit in hits:
            wanted = Selection.of(bitmap_of(hit.positions), True)
            rows = pa.concat_tables(reader.read(hit.entry, (*names, POSITION), wanted))
            rows = self._keep(rows)
            keys.append(hit.keys[np.searchsorted(hit.positions, rows.column(POSITION).to_numpy())])
            parts.append(rows.select(list(names)))
        return pa.concat_tables(parts), np.concatenate(keys)


class FirstRowMerge:
    """The first row of a key stays for good: keys that are above level 0 already, here or higher, are no news."""

    def __init__(self, spec: MergeSpec, lookup: KeyLookup, columns: tuple[str, ...], *, changelog: bool) -> None:
        assert spec.engine == FIRST_ROW
        self._spec = spec
        self._lookup = lookup
        self._columns = columns
        self._changelog = changelog

    def merge(self, chunk: pa.Table) -> Merged:
        """Leave out known keys; what is left of those without a row above level 0 is the changelog."""
        if self._spec.ignore_delete:
            chunk = chunk.filter(pa.array(adds(chunk)))
        rows = merge_rows(self._spec, chunk, self._columns, keep_deletes=True)
        if not rows.num_rows:
            return Merged(rows, rows if self._changelog else None)
        levels = Levels.of(self._spec.keys, chunk)
        fresh = levels.high < 0
        if fresh.any():
            kept = np.ones(rows.num_rows, bool)
            of_fresh = np.flatnonzero(fresh)
            for hit in self._lookup.find(levels.keys(self._spec.keys, fresh)):
                kept[of_fresh[hit.keys]] = False
            if not kept.all():
                rows, fresh = rows.filter(pa.array(kept)), fresh[kept]
        return Merged(rows, rows.filter(pa.array(fresh)) if self._changelog else None)


@dataclass(frozen=True, slots=True)
class FullMerge:
    """Everything goes to the highest level: what it held before is what readers of the changelog know."""

    spec: MergeSpec
    columns: tuple[str, ...]
    highest: int
    changes: ChangelogMaker

    def merge(self, chunk: pa.Table) -> Merged:
        """Merge, and compare with the rows of the highest level."""
        keys = [chunk.column(k) for k in self.spec.keys]
        if self.spec.engine == DEDUPLICATE and self.spec.ignore_delete:
            chunk = chunk.filter(pa.array(adds(chunk)))
            keys = [chunk.column(k) for k in self.spec.keys]
        rows = merge_rows(self.spec, chunk, self.columns, keep_deletes=True)
        if not rows.num_rows:
            return Merged(rows, rows)
        top = (chunk.column(LEVEL).to_numpy() == self.highest).astype(np.int64)
        groups = group_rows(keys, [top], key_order=True)
        last = groups.last
        before = np.where(top[last] > 0, last, -1)
        # A row that was there and has met no other is what it was.
        asked = (groups.sizes > 1) | (before < 0)
        return Merged(rows, self.changes.rows(chunk.drop_columns([LEVEL]), before, rows, asked))
