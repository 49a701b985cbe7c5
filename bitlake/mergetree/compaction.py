"""Compaction of one unit of a bucket: merge, rewrite and upgrade files, mark old rows, write the changelog.

1. **Choosing files.**  The unit's files are split into sections by key range.  Overlapping files are merged; a file
   alone in its section is upgraded (it changes only its level) if it is large or has no small neighbours to merge with.
   In tables that look keys up, the keys of a file leaving level 0 are still looked up: to mark the rows they replace,
   or to write the changelog.
2. **Reading.**  :mod:`bitlake.merge.sort_merge_reader` gives the rows of the sorted runs in chunks, key range by key
   range.
3. **Merging** a chunk, while the next is read and the one before is written, takes one of four ways (index-format spec,
   section 9.4):

   * :class:`PlainMerge`: the merge engine over all rows;
   * :class:`LookupMerge`: keys that come from level 0 alone are looked up in the levels above the output; the rows
     found are marked as deleted there (with deletion vectors), and join the merge where the engine needs them;
   * :class:`FirstRowMerge`: keys that a level above already has are dropped;
   * :class:`FullMerge`: compares with the rows of the highest level, for the changelog of full compactions.
4. **Vectors.**  Rewritten files lose their deletion vectors, other files keep theirs, and new marks are added: the
   bucket's vectors are then written as one new index file.
5. **Record-level expiry.**  Rows older than the table's retention time are dropped.  ``record-level.time-field`` is INT
   (seconds), BIGINT (seconds, or milliseconds from 10^12 on) or a timestamp.  A row expires when the current time, in
   whole seconds, is above its time + ``record-level.expire-time``.  Rows with NULL stay.  Readers do not apply expiry.

Nothing is visible before the caller commits; after an error all new files are deleted.  Memory: a few chunks,
what the runs hold, and an open file.

Sources: index-format spec, sections 9.4 and 10; Paimon's compaction task and rewriters.

A changelog is the difference between a key's rows before and after, as rows +I, -U, +U and -D.
:class:`ChangelogMaker` compares whole columns: a compaction passes each key's row before and after its merge.  Source:
index-format spec, section 9.4, step 4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake import _clock
from bitlake.codec.binary_row import units_per_milli
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import Bools, bitmap_of, positions_of
from bitlake.errors import InvalidRequest
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.merge.engine import LEVEL, LevelGroups, merge_rows
from bitlake.merge.interval_partition import interval_partition
from bitlake.merge.keys import group_rows
from bitlake.merge.sort_merge_reader import SortedSource, merge_runs
from bitlake.mergetree.bucket import POSITION, BucketReader, BucketState, Compaction, MergeTreeContext
from bitlake.mergetree.key_value_file import KeyValueWriter, file_shape
from bitlake.mergetree.lookup import FileHits, KeyLookup
from bitlake.mergetree.universal_compaction import (
    CompactUnit,
    pick_compaction,
    pick_full_compaction,
    pick_mostly_deleted,
    sorted_runs,
)
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS
from bitlake.metadata.manifest import EntryKind, FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.runtime import at_least
from bitlake.scan.read_ahead import MERGE_THREADS, map_ahead
from bitlake.schema import merge_spec
from bitlake.schema.evolution import stored_alike
from bitlake.schema.merge_spec import ADD, DELETE, UPDATE_AFTER, UPDATE_BEFORE, VALUE_KIND
from bitlake.snapshot.index_files import IndexChange, read_vectors, write_vectors
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import TIMESTAMPS
from bitlake.write.data_file_writer import target_file_size

_IGNORED = "changelog-producer.row-deduplicate-ignore-fields"


@dataclass(frozen=True, slots=True)
class ChangelogMaker:
    """Makes changelog rows.

    ``compared``: an update counts only if one of these columns differs (``changelog-producer.row-deduplicate``); None:
    every update counts.
    """

    compared: tuple[str, ...] | None

    @staticmethod
    def of(schema: TableSchema) -> ChangelogMaker:
        """Return the maker that a table's options ask for."""
        if not schema.opts.of(opt.ROW_DEDUPLICATE):
            return ChangelogMaker(None)
        ignored = {n.strip() for n in schema.options.get(_IGNORED, "").split(",")}
        return ChangelogMaker(tuple(n for n in schema.field_names if n not in ignored))

    def rows(self, before: pa.Table, before_row: Int64s, after: pa.Table, included: Bools) -> pa.Table:
        """Return the changes of keys, in key order, -U before +U.

        ``after`` holds each key's new row, in key order (kind -U or -D: the key has none); ``before_row`` is the number
        of its old row in ``before``, -1 for none; ``included`` selects the keys whose changes count.
        """
        exists = is_add(after)
        existed = before_row >= 0
        if existed.any():
            existed = existed & is_add(before)[before_row]
        inserted = np.flatnonzero(included & exists & ~existed)
        deleted = np.flatnonzero(included & ~exists & existed)
        updated = np.flatnonzero(included & exists & existed)
        if self.compared is not None and len(updated):
            old, new = before.take(pa.array(before_row[updated])), after.take(pa.array(updated))
            updated = updated[~same_rows(old, new, self.compared)]
        parts = [(after, inserted, inserted, ADD), (before, before_row[deleted], deleted, DELETE)]
        parts += [(before, before_row[updated], updated, UPDATE_BEFORE), (after, updated, updated, UPDATE_AFTER)]
        changes = [_of_kind(table.take(pa.array(rows)), kind) for table, rows, _, kind in parts if len(rows)]
        if not changes:
            return after.schema.empty_table()
        keys = np.concatenate([k for _, rows, k, _ in parts if len(rows)])
        combined = pa.concat_tables(changes)
        return combined if len(changes) == 1 else combined.take(pa.array(np.argsort(keys, kind="stable")))


def is_add(rows: pa.Table) -> Bools:
    """Return which rows are of kind +I or +U."""
    kinds = rows.column(VALUE_KIND).to_numpy()
    out: Bools = (kinds == ADD) | (kinds == UPDATE_AFTER)
    return out


def _of_kind(rows: pa.Table, kind: int) -> pa.Table:
    at = rows.column_names.index(VALUE_KIND)
    return rows.set_column(at, rows.schema.field(at), pa.array(np.full(rows.num_rows, kind, np.int8)))


def same_rows(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Bools:
    """Return which rows of two tables of one length have equal values in some columns; NULL = NULL, NaN = NaN."""
    same = np.ones(left.num_rows, bool)
    for name in columns:
        same &= _equal_values(left.column(name).combine_chunks(), right.column(name).combine_chunks())
    return same


def _equal_values(left: Any, right: Any) -> Bools:
    left_null, right_null = (a.is_null().to_numpy(zero_copy_only=False) for a in (left, right))
    valid = ~left_null & ~right_null
    t = pa.types
    if t.is_struct(left.type):
        equal = np.ones(len(left), bool)
        for i in range(left.type.num_fields):
            equal &= _equal_values(pc.struct_field(left, [i]), pc.struct_field(right, [i]))
    elif t.is_list(left.type) or t.is_large_list(left.type) or t.is_map(left.type):
        equal = _equal_lists(left, right, valid)
    else:
        equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
        if t.is_floating(left.type):
            nan = [pc.is_nan(a).fill_null(False).to_numpy(zero_copy_only=False) for a in (left, right)]
            equal = equal | (nan[0] & nan[1])
    out: Bools = (left_null & right_null) | (valid & equal)
    return out


def _equal_lists(left: Any, right: Any, valid: Bools) -> Bools:
    """Compare lists, or maps as lists of pairs: those of equal length entry by entry, all entries at once."""
    lengths = [_lengths(a) for a in (left, right)]
    equal = valid & (lengths[0] == lengths[1])
    rows = np.flatnonzero(equal & (lengths[0] > 0))
    if len(rows):
        entries = _equal_values(*[_entries(a.take(pa.array(rows))) for a in (left, right)])
        starts = np.cumsum(lengths[0][rows]) - lengths[0][rows]
        equal[rows] = np.logical_and.reduceat(entries, starts)
    out: Bools = equal
    return out


def _lengths(array: Any) -> Int64s:
    lists = array.cast(pa.list_(_pair(array.type))) if pa.types.is_map(array.type) else array
    lengths: Int64s = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _pair(kind: Any) -> Any:
    return pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])


def _entries(array: Any) -> Any:
    """The elements of all lists, concatenated; no list may be NULL."""
    if pa.types.is_map(array.type):
        start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        keys, items = array.keys[start:end], array.items[start:end]
        return pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return array.flatten()


_KEYS_AT_ONCE = 1 << 20
"""Keys of an upgraded file that are looked up together: each lookup opens the files above once."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """New files of -D rows in level 0, by name, and the rows of older files that these delete.

    The statement that wrote them has found the old rows by their positions: nothing has to be looked up.
    """

    files: frozenset[str]
    hits: Mapping[str, BitMap]

    def settles(self, schema: TableSchema, unit: CompactUnit) -> bool:
        """Whether all that the unit's files of level 0 change is that these rows are deleted."""
        options, spec = schema.opts, merge_spec.MergeSpec.of(schema)
        only_marks = spec.engine == merge_spec.DEDUPLICATE and not spec.sequence
        return (
            options.of(opt.DV_ENABLED)
            and only_marks
            and options.of(opt.CHANGELOG_PRODUCER) not in ("lookup", "full-compaction")
            and unit.output_level > 0
            and {e.file.file_name for e in unit.files if e.file.level == 0} == self.files
        )


def compact_bucket(
    context: MergeTreeContext,
    store: Store,
    state: BucketState,
    full: bool = False,
    deletion: Deletion | None = None,
) -> Compaction:
    """Run the pending compaction of a bucket, or a ``full`` one; returns an empty result if there is nothing to do.

    ``deletion`` describes the newest files of level 0, if they hold only -D rows.  A full compaction ignores it: it
    writes the files that these rows hit again, as in Paimon.
    """
    unit = pending_unit(context, state, full)
    if unit is None:
        return Compaction()
    if deletion is not None and (full or not deletion.settles(context.schema, unit)):
        deletion = None
    return compact_unit(context, store, state, unit, deletion)


def pending_unit(context: MergeTreeContext, state: BucketState, full: bool = False) -> CompactUnit | None:
    """Return the files of a bucket that the next compaction would take; None if there is nothing to do."""
    schema = context.schema
    runs = sorted_runs(state.files, schema)
    deleted = {r.data_file: r.cardinality for r in state.vectors.ranges or ()} if state.vectors is not None else {}
    if full:
        expire = RecordExpire.of(context)
        expired = expire.expired if expire is not None else lambda entry: False
        return pick_full_compaction(runs, schema, has_vector=deleted.__contains__, expired=expired)
    return pick_compaction(runs, schema) or pick_mostly_deleted(runs, schema, deleted)


def compact_unit(
    context: MergeTreeContext,
    store: Store,
    state: BucketState,
    unit: CompactUnit,
    deletion: Deletion | None = None,
) -> Compaction:
    """Compact a unit of a bucket's live files.

    With a ``deletion`` that settles the unit's files of level 0, these are not read: the rows that it hits are marked,
    and the unit's other files are compacted as if they had been marked before.

    Delete rows are left out of the new files if no file below holds rows that they hide, and always in tables with
    deletion vectors.  The same state gives the same files, up to their names.

    Raises :class:`bitlake.errors.CorruptError` and :class:`bitlake.errors.NotFound`, naming the file that cannot be
    read, and :class:`bitlake.errors.InvalidRequest` for rows that the merge engine cannot merge.
    """
    with contextlib.ExitStack() as new_files:
        return _CompactTask(context, store, state, unit, new_files, deletion).run()


class _CompactTask:
    """One call of :func:`compact_unit`; mutable.  ``new_files`` deletes the files of its writers after an error."""

    def __init__(
        self,
        context: MergeTreeContext,
        store: Store,
        state: BucketState,
        unit: CompactUnit,
        new_files: contextlib.ExitStack,
        deletion: Deletion | None = None,
    ) -> None:
        schema, options = context.schema, context.schema.opts
        self._context, self._store, self._state, self._unit = context, store, state, unit
        self._new_files, self._deletion = new_files, deletion
        self._spec = merge_spec.MergeSpec.of(schema)
        self._marks_rows = options.of(opt.DV_ENABLED)
        self._vectors: dict[str, DeletionVector] = {}
        if self._marks_rows and state.vectors is not None:
            row_counts = {e.file.file_name: e.file.row_count for e in state.files}
            vectors = read_vectors(TableFiles(store, context.paths), schema, state.vectors, row_counts)
            # Old index files may name data files that are no longer live.
            self._vectors = {n: v for n, v in vectors.items() if n in row_counts}
        self._before: list[ManifestEntry] = []
        if deletion is not None:
            self._delete(deletion)
        self._reader = BucketReader(context, store, state.partition, self._vectors)
        self._expire = RecordExpire.of(context)
        self._output = unit.output_level
        self._highest = merge_spec.max_level(options, (r.level for r in sorted_runs(state.files, schema)))
        filled = max((e.file.level for e in state.files), default=0)
        hides_nothing = self._output >= filled or self._marks_rows
        self._drop_deletes = self._output != 0 and hides_nothing
        producer = options.of(opt.CHANGELOG_PRODUCER)
        self._full_changelog = producer == "full-compaction"
        self._looks_up = merge_spec.needs_lookup(schema) and not self._full_changelog
        self._lookup_changelog = self._looks_up and producer == "lookup"
        self._lookup = KeyLookup(self._reader, state.files, self._output + 1)
        self._marked: dict[str, list[npt.NDArray[np.int64]]] = {}
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

    # --- choosing files ---------------------------------------------------------------------------------------------

    def _compact(self) -> None:
        options = self._context.schema.opts
        small = int(target_file_size(self._context.schema) * options.of(opt.SMALL_FILE_RATIO))
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
        """Move a file to the output level without rewriting it, if that is correct; else rewrite it."""
        file = entry.file
        deletes = file.delete_row_count != 0  # an unknown count may be above 0
        force = self._context.schema.opts.of(opt.FORCE_REWRITE_ALL)
        expired = self._expire is not None and self._expire.expired(entry)
        if (self._output == self._highest and deletes) or force or expired:
            self._rewrite([[entry]])
        elif file.level != self._output:
            if self._looks_up and file.level == 0 and self._output > 0:
                if self._must_rewrite(deletes):
                    self._rewrite([[entry]], drops=self._marks_rows)
                    return
                self._look_up_only(entry)
            elif self._full_changelog and self._output == self._highest:
                self._write([[entry]], self._merge_of([[entry]]), None)
            self._before.append(entry)
            self._after.append(replace(entry, kind=EntryKind.ADD, file=replace(file, level=self._output)))

    def _must_rewrite(self, deletes: bool) -> bool:
        """Whether a file of level 0 cannot be kept as it is, in a table that looks keys up."""
        schema = self._context.schema
        formats = {file_shape(schema, n, FileSource.COMPACT, changelog=False).file_format for n in (0, self._output)}
        if len(formats) > 1 or (self._marks_rows and deletes):
            return True
        if self._output == self._highest:
            return False
        return not (self._spec.engine == merge_spec.DEDUPLICATE and not self._spec.sequence)

    def _look_up_only(self, entry: ManifestEntry) -> None:
        """Look up the keys of a file that is kept: for marks and the changelog."""
        merge = self._merge_of([[entry]])
        if self._lookup_changelog:
            self._write([[entry]], merge, None)
        elif isinstance(merge, LookupMerge) and self._marks_rows and self._lookup:
            for keys in self._keys_of(entry):
                merge.mark_keys(keys)

    def _keys_of(self, entry: ManifestEntry) -> Iterator[list[pa.Array]]:
        """The keys of a file in large batches; its other columns are not read."""
        source = SortedSource(self._reader.read(entry, self._reader.keys), self._reader.path(entry))
        return map(_columns, at_least(_KEYS_AT_ONCE, merge_runs([source], self._reader.keys), len))

    # --- writing ----------------------------------------------------------------------------------------------------

    def _merge_of(self, parts: Sequence[Sequence[ManifestEntry]]) -> ChunkMerge:
        columns = self._context.schema.field_names
        if self._full_changelog and self._output == self._highest:
            return FullMerge(self._spec, columns, self._highest, ChangelogMaker.of(self._context.schema))
        has_level_0 = any(e.file.level == 0 for section in parts for e in section)
        if not self._looks_up or not has_level_0 or self._output == 0:
            lowest_wins = self._looks_up and self._spec.engine in (merge_spec.PARTIAL_UPDATE, merge_spec.AGGREGATION)
            return PlainMerge(self._spec, columns, lowest_wins=lowest_wins)
        if self._spec.engine == merge_spec.FIRST_ROW:
            return FirstRowMerge(self._spec, self._lookup, columns, changelog=self._lookup_changelog)
        return LookupMerge(
            self._spec,
            self._reader,
            self._lookup,
            self._mark if self._marks_rows else None,
            ChangelogMaker.of(self._context.schema) if self._lookup_changelog else None,
            (lambda rows: rows) if self._expire is None else self._expire.keep,
        )

    def _rewrite(self, parts: Sequence[Sequence[ManifestEntry]], *, drops: bool | None = None) -> None:
        """Merge sections, given in key order, into new files of the output level."""
        self._write(parts, self._merge_of(parts), self._drop_deletes if drops is None else drops)
        files = [e for section in parts for e in section]
        self._before += files
        self._rewritten.update(e.file.file_name for e in files)

    def _write(self, parts: Sequence[Sequence[ManifestEntry]], merge: ChunkMerge, drops: bool | None) -> None:
        """Write the merged rows of sections and their changelog; ``drops``: without delete rows, None: no rows."""
        output = None if drops is None else self._new_files.enter_context(self._writer(changelog=False))
        changelog: KeyValueWriter | None = None
        for section in parts:
            # Merges that look keys up also mark rows, so they take one chunk after the other.
            threads = MERGE_THREADS if isinstance(merge, PlainMerge) else 1
            for merged in map_ahead(merge_runs(self._sources(section), self._reader.keys), merge.merge, threads):
                rows = merged.rows
                if output is not None:
                    if drops and rows.num_rows:
                        added = is_add(rows)
                        rows = rows if added.all() else rows.filter(pa.array(added))
                    output.write(rows)
                if merged.changelog is not None and merged.changelog.num_rows:
                    changelog = changelog or self._new_files.enter_context(self._writer(changelog=True))
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
        """The runs of a section; of the files of one level above 0 only one at a time is open."""
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

    def _delete(self, deletion: Deletion) -> None:
        """Mark the rows that a deletion hits, and leave its files out of the unit."""
        live = {e.file.file_name for e in self._state.files}
        for name, rows in deletion.hits.items():
            if name in live:
                _add_rows(self._vectors, name, positions_of(rows))
        self._before += [e for e in self._unit.files if e.file.file_name in deletion.files]
        rest = tuple(e for e in self._unit.files if e.file.file_name not in deletion.files)
        self._unit = replace(self._unit, files=rest)

    def _mark(self, hits: FileHits) -> None:
        self._marked.setdefault(hits.entry.file.file_name, []).append(hits.positions)

    def _new_vectors(self) -> tuple[IndexChange, ...]:
        """Write the bucket's vectors after this compaction, if they differ from those before."""
        vectors = {n: v for n, v in self._vectors.items() if n not in self._rewritten}
        if len(vectors) == len(self._vectors) and not self._marked and self._deletion is None:
            return ()
        for name, positions in self._marked.items():
            _add_rows(vectors, name, np.concatenate(positions))
        context, state = self._context, self._state
        if not vectors and state.vectors is None:
            return ()
        new = write_vectors(
            TableFiles(self._store, context.paths), context.schema, state.partition, state.bucket, vectors
        )
        old_entries = () if state.vectors is None else (state.vectors,)
        return (IndexChange(state.partition, state.bucket, DELETION_VECTORS, old_entries, (new,)),)


def _add_rows(vectors: dict[str, DeletionVector], name: str, positions: Int64s) -> None:
    marked, old = DeletionVector.of(positions), vectors.get(name)
    vectors[name] = marked if old is None else old.merged(marked)


def _columns(parts: Sequence[pa.Table]) -> list[pa.Array]:
    rows = pa.concat_tables(parts)
    return [c.combine_chunks() for c in rows.columns]


# --- merging a chunk --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Rows for the output level in key order, delete rows included; and changelog rows, None without a changelog."""

    rows: pa.Table
    changelog: pa.Table | None = None


class ChunkMerge(Protocol):
    """Merges chunk by chunk; a chunk holds the stored columns and :data:`bitlake.merge.engine.LEVEL`."""

    def merge(self, chunk: pa.Table) -> MergeResult:
        """Merge all rows of the chunk's keys."""


@dataclass(frozen=True, slots=True)
class PlainMerge:
    """Merges by the engine alone; ``lowest_wins``: of the levels above 0 only the lowest that has a key counts.

    That is correct where lookups merge the rows of higher levels into those of lower ones: the lowest row then includes
    the others.
    """

    spec: merge_spec.MergeSpec
    columns: tuple[str, ...]
    lowest_wins: bool

    def merge(self, chunk: pa.Table) -> MergeResult:
        """Merge all rows."""
        if self.lowest_wins:
            chunk = LevelGroups.of(self.spec.keys, chunk).chunk
        return MergeResult(merge_rows(self.spec, chunk, self.columns, keep_deletes=True))


class LookupMerge:
    """Merges with the rows of the levels above the output.

    ``mark`` is called with the rows there that are superseded, ``keep`` filters out expired rows; ``changes`` makes the
    changelog (None: none is written).
    """

    def __init__(
        self,
        spec: merge_spec.MergeSpec,
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
        """Whether the rows above do not affect the result: the newest row wins, and no changelog is written."""
        spec = self._spec
        return spec.engine == merge_spec.DEDUPLICATE and not spec.sequence and self._changes is None

    def merge(self, chunk: pa.Table) -> MergeResult:
        """Look keys up, mark the rows they supersede, and merge."""
        spec, columns = self._spec, self._reader.schema.field_names
        if spec.engine == merge_spec.DEDUPLICATE and spec.ignore_delete:
            chunk = chunk.filter(pa.array(is_add(chunk)))
        if not chunk.num_rows:
            return MergeResult(chunk.drop_columns([LEVEL]))
        levels = chunk.column(LEVEL).to_numpy()
        if self.only_marks and not levels.any():
            rows = merge_rows(spec, chunk, columns, keep_deletes=True)
            self.mark_keys([rows.column(k).combine_chunks() for k in spec.keys])
            return MergeResult(rows)
        groups = LevelGroups.of(spec.keys, chunk)
        chunk = groups.chunk.drop_columns([LEVEL])
        before = groups.high
        unknown = before < 0
        if unknown.any() and not (self.only_marks and self._mark is None):
            hits = self._lookup.find(groups.keys(spec.keys, unknown))
            self._mark_hits(hits)
            if hits and not self.only_marks:
                old, of_key = self._fetch(hits)
                before = before.copy()
                before[np.flatnonzero(unknown)[of_key]] = chunk.num_rows + np.arange(old.num_rows)
                chunk = pa.concat_tables([chunk, old])
        rows = merge_rows(spec, chunk, columns, keep_deletes=True, lone_as_is=False)
        if self._changes is None:
            return MergeResult(rows)
        return MergeResult(rows, self._changes.rows(chunk, before, rows, groups.fresh))

    def mark_keys(self, keys: list[pa.Array]) -> None:
        """Mark the rows above of these keys: key columns, ascending, each key once."""
        if self._mark is not None:
            self._mark_hits(self._lookup.find(keys))

    def _mark_hits(self, hits: list[FileHits]) -> None:
        if self._mark is not None:
            for hit in hits:
                self._mark(hit)

    def _fetch(self, hits: list[FileHits]) -> tuple[pa.Table, Int64s]:
        """Read the rows of hits; returns them and the number of each row's key, without expired rows.

        Expired rows are still marked as deleted: otherwise a key would have them beside its new row.
        """
        reader = self._reader
        names = reader.columns
        parts: list[pa.Table] = []
        keys: list[Int64s] = []
        for hit in hits:
            positions = Selection.of(bitmap_of(hit.positions), True)
            rows = self._keep(pa.concat_tables(reader.read(hit.entry, (*names, POSITION), positions)))
            keys.append(hit.keys[np.searchsorted(hit.positions, rows.column(POSITION).to_numpy())])
            parts.append(rows.select(list(names)))
        return pa.concat_tables(parts), np.concatenate(keys)


class FirstRowMerge:
    """Keeps the first row of a key: rows of keys that a level above 0 already has are dropped."""

    def __init__(
        self, spec: merge_spec.MergeSpec, lookup: KeyLookup, columns: tuple[str, ...], *, changelog: bool
    ) -> None:
        assert spec.engine == merge_spec.FIRST_ROW
        self._spec = spec
        self._lookup = lookup
        self._columns = columns
        self._changelog = changelog

    def merge(self, chunk: pa.Table) -> MergeResult:
        """Drop existing keys; the rows of new keys are the changelog."""
        if self._spec.ignore_delete:
            chunk = chunk.filter(pa.array(is_add(chunk)))
        rows = merge_rows(self._spec, chunk, self._columns, keep_deletes=True)
        if not rows.num_rows:
            return MergeResult(rows, rows if self._changelog else None)
        levels = LevelGroups.of(self._spec.keys, chunk)
        fresh = levels.high < 0
        if fresh.any():
            kept = np.ones(rows.num_rows, bool)
            fresh_rows = np.flatnonzero(fresh)
            for hit in self._lookup.find(levels.keys(self._spec.keys, fresh)):
                kept[fresh_rows[hit.keys]] = False
            if not kept.all():
                rows, fresh = rows.filter(pa.array(kept)), fresh[kept]
        return MergeResult(rows, rows.filter(pa.array(fresh)) if self._changelog else None)


@dataclass(frozen=True, slots=True)
class FullMerge:
    """Merges into the highest level; its former rows are the old rows of the changelog."""

    spec: merge_spec.MergeSpec
    columns: tuple[str, ...]
    highest: int
    changes: ChangelogMaker

    def merge(self, chunk: pa.Table) -> MergeResult:
        """Merge, and compare the result with the rows of the highest level."""
        keys = [chunk.column(k) for k in self.spec.keys]
        if self.spec.engine == merge_spec.DEDUPLICATE and self.spec.ignore_delete:
            chunk = chunk.filter(pa.array(is_add(chunk)))
            keys = [chunk.column(k) for k in self.spec.keys]
        rows = merge_rows(self.spec, chunk, self.columns, keep_deletes=True)
        if not rows.num_rows:
            return MergeResult(rows, rows)
        top = (chunk.column(LEVEL).to_numpy() == self.highest).astype(np.int64)
        groups = group_rows(keys, [top], key_order=True)
        last = groups.last
        before = np.where(top[last] > 0, last, -1)
        # The only row of a key, if it comes from the highest level, has not changed.
        may_differ = (groups.sizes > 1) | (before < 0)
        return MergeResult(rows, self.changes.rows(chunk.drop_columns([LEVEL]), before, rows, may_differ))


# --- record-level expiry ----------------------------------------------------------------------------------------------

_MILLIS_FROM = 10**12


@dataclass(frozen=True, slots=True)
class RecordExpire:
    """The rows of a table that have expired at the time of its creation."""

    field: DataField
    oldest: int
    """Seconds since the epoch: rows before it are expired."""
    context: MergeTreeContext

    @staticmethod
    def of(context: MergeTreeContext) -> RecordExpire | None:
        """Return a table's expiry, None if its rows do not expire.

        Raises :class:`InvalidRequest` if the time field does not exist or has another type.
        """
        schema = context.schema
        retention = schema.opts.of(opt.EXPIRE_TIME)
        if retention is None:
            return None
        name = schema.opts.of(opt.EXPIRE_FIELD)
        field = next((f for f in schema.fields if f.name == name), None)
        kind = None if field is None else field.type
        if field is None or not isinstance(kind, AtomicType) or kind.root not in (Root.INT, Root.BIGINT, *TIMESTAMPS):
            raise InvalidRequest(
                f"table {context.table}: record-level.expire-time needs record-level.time-field to name a column of "
                f"type INT, BIGINT or TIMESTAMP, not {name!r}"
            )
        return RecordExpire(field, _clock.now_ms() // 1000 - retention // 1000, context)

    def keep(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are not expired."""
        column = rows.column(self.field.name).combine_chunks()
        seconds = self._seconds(np.asarray(_integers(column)))
        kept = (seconds >= self.oldest) | column.is_null().to_numpy(zero_copy_only=False)
        return rows if kept.all() else rows.filter(pa.array(kept))

    def expired(self, entry: ManifestEntry) -> bool:
        """Return whether a file holds expired rows, by its statistics; False if they do not show it."""
        schema = self._schema(entry)
        stored = next((f for f in schema.fields if f.id == self.field.id), None)
        if stored is None or not stored_alike(stored.type, self.field.type):
            return False
        stats = column_stats(entry.file, schema.fields).get(stored.name)
        low = None if stats is None else stats.min
        return low is not None and int(self._seconds(np.array([low], np.int64))[0]) < self.oldest

    def _schema(self, entry: ManifestEntry) -> TableSchema:
        return self.context.schemas.get(entry.file.schema_id, self.context.schema)

    def _seconds(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        kind = self.field.type
        assert isinstance(kind, AtomicType)
        if kind.root is Root.BIGINT:
            return np.where(values >= _MILLIS_FROM, values // 1000, values)
        return values if kind.root is Root.INT else values // (1000 * units_per_milli(kind))


def _integers(column: Any) -> npt.NDArray[np.int64]:
    plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
    values: npt.NDArray[np.int64] = plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values
