"""Compacting one unit of a bucket: which files are written anew, which only change their level, and what follows.

The unit's files fall into sections by key range.  Where several overlap they are merged; a file alone in its section
moves up as it is when it is large or has no small neighbours to be merged with.  In tables that look keys up, moving a
file out of level 0 still means to look its keys up: to mark what they replace, or to tell a changelog.

Files that are written anew lose their deletion vectors, files that are kept keep theirs, and what was marked is added:
the bucket's vectors are then written as one new file.  Nothing is visible before the caller commits; after an error
nothing that was made is left.

Source: index-format spec, section 9.4, and Paimon's compaction task and rewriters, whose decisions these are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.roaring import bitmap_of
from bitlake.errors import CorruptError
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.engine import LEVEL, Levels, merge_rows
from bitlake.merge.interval_partition import interval_partition
from bitlake.merge.keys import Key, SortedKeys, group_rows
from bitlake.mergetree.bucket_reader import POSITION, BucketReader
from bitlake.mergetree.changelog import ChangelogMaker, adds
from bitlake.mergetree.commit_message import BucketState, Compaction, LsmContext
from bitlake.mergetree.key_value_file import KeyValueWriter, file_shape
from bitlake.mergetree.lookup import FileHits, KeyLookup
from bitlake.mergetree.record_expiry import RecordExpire
from bitlake.mergetree.universal_compaction import Unit, sorted_runs
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS
from bitlake.metadata.manifest import EntryKind, FileSource, ManifestEntry
from bitlake.schema.merge_spec import (
    AGGREGATION,
    DEDUPLICATE,
    FIRST_ROW,
    PARTIAL_UPDATE,
    MergeSpec,
    max_level,
    needs_lookup,
)
from bitlake.snapshot.index_files import IndexChange, read_vectors, write_vectors
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.write.rolling_files import target_file_size

_KEYS_AT_ONCE = 1 << 20
"""Keys of a file moving up that are looked up together: each lookup opens the files above once."""


def compact_unit(
    context: LsmContext, store: Store, state: BucketState, unit: Unit, *, drop_deletes: bool | None = None
) -> Compaction:
    """Compact a unit of a bucket's live files.

    ``drop_deletes``: whether deletes are left out of what is written; None: where nothing lies below that they could
    hide, and always in tables with deletion vectors.  The same state gives the same files, up to their names.

    Raises :class:`bitlake.errors.CorruptError` and :class:`bitlake.errors.NotFound` naming the file that cannot be
    read, :class:`bitlake.errors.InvalidRequest` for rows that the merge engine cannot take.
    """
    with contextlib.ExitStack() as made:
        return _Task(context, store, state, unit, drop_deletes, made).run()


class _Task:
    def __init__(
        self,
        context: LsmContext,
        store: Store,
        state: BucketState,
        unit: Unit,
        drop_deletes: bool | None,
        made: contextlib.ExitStack,
    ) -> None:
        schema, options = context.schema, context.schema.opts
        self._context, self._store, self._state, self._unit, self._made = context, store, state, unit, made
        self._spec = MergeSpec.of(schema)
        self._marks_rows = options.of(opt.DV_ENABLED)
        self._vectors: dict[str, DeletionVector] = {}
        if self._marks_rows and state.vectors is not None:
            rows = {e.file.file_name: e.file.row_count for e in state.files}
            found = read_vectors(TableFiles(store, context.paths), schema, state.vectors, rows)
            # Old index files may name data files that are gone.
            self._vectors = {n: v for n, v in found.items() if n in rows}
        self._reader = BucketReader(context, store, state.partition, self._vectors)
        self._expire = RecordExpire.of(context)
        self._output = unit.output_level
        self._highest = max_level(options, (r.level for r in sorted_runs(state.files, schema)))
        filled = max((e.file.level for e in state.files), default=0)
        hides_nothing = self._output >= filled or self._marks_rows
        self._drops = self._output != 0 and hides_nothing if drop_deletes is None else drop_deletes
        producer = options.of(opt.CHANGELOG_PRODUCER)
        self._full = producer == "full-compaction"
        self._looks_up = needs_lookup(schema) and not self._full
        self._tells = self._looks_up and producer == "lookup"
        self._lookup = KeyLookup(self._reader, state.files, self._output + 1)
        self._marked: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._before: list[ManifestEntry] = []
        self._after: list[ManifestEntry] = []
        self._changelog: list[ManifestEntry] = []
        self._rewritten: set[str] = set()

    def run(self) -> Compaction:
        if self._unit.rewrite:
            for entry in self._unit.files:
                self._rewrite([[entry]])
        else:
            self._compact()
        index = self._new_vectors()
        return Compaction(tuple(self._before), tuple(self._after), tuple(self._changelog), index)

    # --- which files ------------------------------------------------------------------------------------------------

    def _compact(self) -> None:
        options = self._context.schema.opts
        small = int(target_file_size(self._context.schema) * options.of(lsm.SMALL_FILE_RATIO))
        waiting: list[list[ManifestEntry]] = []
        for section in interval_partition(self._unit.files, self._reader.key_range):
            if len(section) > 1 or section[0].file.file_size < small:
                waiting.append(section)
                continue
            self._write_waiting(waiting)
            self._upgrade(section[0])
        self._write_waiting(waiting)

    def _write_waiting(self, waiting: list[list[ManifestEntry]]) -> None:
        if len(waiting) == 1 and len(waiting[0]) == 1:
            self._upgrade(waiting[0][0])
        elif waiting:
            self._rewrite(waiting)
        waiting.clear()

    def _upgrade(self, entry: ManifestEntry) -> None:
        """Move a file to the output level as it is, if that is right."""
        file = entry.file
        deletes = file.delete_row_count != 0  # unknown: perhaps
        force = self._context.schema.opts.of(lsm.FORCE_REWRITE_ALL)
        expired = self._expire is not None and self._expire.expired(entry)
        if (self._output == self._highest and deletes) or force or expired:
            self._rewrite([[entry]])
        elif file.level != self._output:
            if self._looks_up and file.level == 0 and self._output > 0:
                if self._must_rewrite(entry, deletes):
                    self._rewrite([[entry]], drops=self._marks_rows)
                    return
                self._look_up_only(entry)
            elif self._full and self._output == self._highest:
                self._write([[entry]], self._merge_of([[entry]]), None)
            self._before.append(entry)
            self._after.append(replace(entry, kind=EntryKind.ADD, file=replace(file, level=self._output)))

    def _must_rewrite(self, entry: ManifestEntry, deletes: bool) -> bool:
        """Whether a file of level 0 cannot just be kept, in a table that looks keys up."""
        schema = self._context.schema
        formats = {file_shape(schema, n, FileSource.COMPACT, changelog=False).file_format for n in (0, self._output)}
        if len(formats) > 1 or (self._marks_rows and deletes):
            return True
        if self._output == self._highest:
            return False
        return not (self._spec.engine == DEDUPLICATE and not self._spec.sequence)

    def _look_up_only(self, entry: ManifestEntry) -> None:
        """What looking keys up is for, where the file itself is kept: marks and the changelog."""
        merge = self._merge_of([[entry]])
        if self._tells:
            self._write([[entry]], merge, None)
        elif isinstance(merge, LookupMerge) and self._marks_rows and self._lookup:
            for keys in self._keys_of(entry):
                merge.mark_keys(keys)

    def _keys_of(self, entry: ManifestEntry) -> Iterator[list[pa.Array]]:
        """The keys of a file, many at a time; its other columns are not read."""
        parts: list[pa.Table] = []
        rows = 0
        source = SortedSource(self._reader.read(entry, self._reader.keys), self._reader.path(entry))
        for part in merge_runs([source], self._reader.keys):
            parts.append(part)
            rows += part.num_rows
            if rows >= _KEYS_AT_ONCE:
                yield _columns(parts)
                parts, rows = [], 0
        if parts:
            yield _columns(parts)

    # --- what becomes of their rows ---------------------------------------------------------------------------------

    def _merge_of(self, parts: Sequence[Sequence[ManifestEntry]]) -> ChunkMerge:
        columns = self._context.schema.field_names
        if self._full and self._output == self._highest:
            return FullMerge(self._spec, columns, self._highest, ChangelogMaker.of(self._context.schema))
        fresh = any(e.file.level == 0 for section in parts for e in section)
        if not self._looks_up or not fresh or self._output == 0:
            several = self._looks_up and self._spec.engine in (PARTIAL_UPDATE, AGGREGATION)
            return PlainMerge(self._spec, columns, lowest_wins=several)
        if self._spec.engine == FIRST_ROW:
            return FirstRowMerge(self._spec, self._lookup, columns, changelog=self._tells)
        return LookupMerge(
            self._spec,
            self._reader,
            self._lookup,
            self._mark if self._marks_rows else None,
            ChangelogMaker.of(self._context.schema) if self._tells else None,
            (lambda rows: rows) if self._expire is None else self._expire.keep,
        )

    def _rewrite(self, parts: Sequence[Sequence[ManifestEntry]], *, drops: bool | None = None) -> None:
        """Merge sections, which come in key order, into new files of the output level."""
        self._write(parts, self._merge_of(parts), self._drops if drops is None else drops)
        files = [e for section in parts for e in section]
        self._before += files
        self._rewritten.update(e.file.file_name for e in files)

    def _write(self, parts: Sequence[Sequence[ManifestEntry]], merge: ChunkMerge, drops: bool | None) -> None:
        """Write what a merge makes of sections: rows (``drops`` None: none) and changelog."""
        output = None if drops is None else self._made.enter_context(self._writer(changelog=False))
        changelog: KeyValueWriter | None = None
        for section in parts:
            for chunk in merge_runs(self._sources(section), self._reader.keys):
                merged = merge.merge(chunk)
                rows = merged.rows
                if output is not None:
                    if drops and rows.num_rows:
                        alive = adds(rows)
                        rows = rows if alive.all() else rows.filter(pa.array(alive))
                    output.write(rows)
                if merged.changelog is not None and merged.changelog.num_rows:
                    changelog = changelog or self._made.enter_context(self._writer(changelog=True))
                    changelog.write(merged.changelog)
        if output is not None:
            self._after += output.finish()
        if changelog is not None:
            self._changelog += changelog.finish()

    def _writer(self, *, changelog: bool) -> KeyValueWriter:
        state = self._state
        return KeyValueWriter(
            self._context,
            self._store,
            state.partition,
            state.bucket,
            self._output,
            source=FileSource.APPEND if changelog else FileSource.COMPACT,
            changelog=changelog,
            total_buckets=state.total_buckets,
        )

    def _sources(self, section: Sequence[ManifestEntry]) -> list[SortedSource]:
        """The runs of a section; files of one level above 0 follow each other, so one at a time is open."""
        return [
            SortedSource(self._rows(run.files), ", ".join(map(self._reader.path, run.files)))
            for run in sorted_runs(section, self._context.schema)
        ]

    def _rows(self, files: Sequence[ManifestEntry]) -> Iterator[pa.Table]:
        for entry in files:
            for rows in self._reader.read(entry, self._reader.columns):
                kept = rows if self._expire is None else self._expire.keep(rows)
                if kept.num_rows:
                    yield kept.append_column(LEVEL, pa.array(np.full(kept.num_rows, entry.file.level, np.int32)))

    # --- deletion vectors -------------------------------------------------------------------------------------------

    def _mark(self, hits: FileHits) -> None:
        self._marked.setdefault(hits.entry.file.file_name, []).append(hits.positions)

    def _new_vectors(self) -> tuple[IndexChange, ...]:
        """The bucket's vectors after this compaction, if they are others than before."""
        vectors = {n: v for n, v in self._vectors.items() if n not in self._rewritten}
        if len(vectors) == len(self._vectors) and not self._marked:
            return ()
        for name, positions in self._marked.items():
            marked = DeletionVector.of(np.concatenate(positions))
            old = vectors.get(name)
            vectors[name] = marked if old is None else old.merged(marked)
        context, state = self._context, self._state
        new = write_vectors(
            TableFiles(self._store, context.paths), context.schema, state.partition, state.bucket, vectors
        )
        old_entries = () if state.vectors is None else (state.vectors,)
        return (IndexChange(state.partition, state.bucket, DELETION_VECTORS, old_entries, (new,)),)


def _columns(parts: Sequence[pa.Table]) -> list[pa.Array]:
    rows = pa.concat_tables(parts)
    return [c.combine_chunks() for c in rows.columns]


# --- merging ---
# What a compaction makes of one chunk of rows: all rows of some keys, from all runs that are compacted together.
#
# Four ways (index-format spec, section 9.4, and what Paimon's merge tree does):
#
# * :class:`PlainMerge`: the engine over all rows;
# * :class:`LookupMerge`: keys that come from level 0 alone are looked up in the levels above the output; what is
#   found is marked deleted there (with deletion vectors), and joins the merge where the engine needs it;
# * :class:`FirstRowMerge`: keys that a level above has already are dropped;
# * :class:`FullMerge`: compares with what the highest level held, for a changelog of full compactions.

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


# --- stream ---
# Merging sorted runs in bounded memory: their rows key range by key range, all rows of a key in one chunk.
#
# Of every run the next batches are held.  All are cut at the smallest of their last keys: up to there every run has
# shown
# all it has.  What is below goes out as one chunk, the rest waits for the next.  Runs that fit into memory together
# come as one chunk.

MEMORY = 32 << 20
"""Bytes of rows held of all runs together, about: a run has at least one batch of its file.  Merging 1.3M rows of three
runs took the same processor time with 8 and with 96 MB."""


@dataclass(slots=True)
class SortedSource:
    """A run as its batches: tables in key order, one after the other; ``where`` names it in errors."""

    batches: Iterator[pa.Table]
    where: str
    held: pa.Table | None = None
    keys: SortedKeys | None = None
    ended: bool = False
    last: Key | None = None

    def fill(self, key_names: Sequence[str], room: int) -> None:
        """Hold at least one row if there is one, and up to about ``room`` bytes."""
        parts: list[pa.Table] = []
        size = 0
        while size < room and not self.ended:
            batch = next(self.batches, None)
            if batch is None:
                self.ended = True
            elif batch.num_rows:
                parts.append(batch)
                size += batch.nbytes
        if parts:
            self.held = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
            self.keys = SortedKeys.of([self.held.column(k) for k in key_names])
            self._check(key_names)

    def cut(self, count: int) -> pa.Table:
        """Take the first rows out."""
        assert self.held is not None and self.keys is not None
        rows = self.held.slice(0, count)
        if count == len(self.keys):
            self.held = self.keys = None
        else:
            self.held, self.keys = self.held.slice(count), self.keys.slice(count, len(self.keys))
        return rows

    def _check(self, key_names: Sequence[str]) -> None:
        assert self.held is not None and self.keys is not None
        for name in key_names:
            if self.held.column(name).null_count:
                raise CorruptError(f"key column '{name}' holds NULL", None, self.where)
        if not self.keys.ascend or (self.last is not None and self.keys.at(0) <= self.last):
            raise CorruptError("rows are not in the order of their keys", None, self.where)
        self.last = self.keys.at(len(self.keys) - 1)


def merge_runs(sources: Sequence[SortedSource], key_names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all runs in chunks: the keys of a chunk are above those of the one before, inside it in no order.

    Raises :class:`CorruptError` for a run whose rows are not in the order of their keys.
    """
    room = max(1, MEMORY // max(1, len(sources)))
    while True:
        for source in sources:
            if source.held is None and not source.ended:
                source.fill(key_names, room)
        held = [s for s in sources if s.keys is not None]
        if not held:
            return
        going_on = [s.keys.at(len(s.keys) - 1) for s in held if s.keys is not None and not s.ended]
        parts: list[pa.Table] = []
        for source in held:
            assert source.keys is not None
            count = source.keys.upper(min(going_on)) if going_on else len(source.keys)
            if count:
                parts.append(source.cut(count))
        yield parts[0] if len(parts) == 1 else pa.concat_tables(parts)
