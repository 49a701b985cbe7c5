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
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.io import Store
from bitlake.merge.engine import LEVEL
from bitlake.merge.interval_partition import sections
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
from bitlake.snapshot.index_files import read_vectors, write_vectors
from bitlake.table.changes import IndexChange
from bitlake.table.lsm.bucket_read import BucketReader
from bitlake.table.lsm.changelog import ChangelogMaker, adds
from bitlake.table.lsm.expire import RecordExpire
from bitlake.table.lsm.kv_file import KeyValueWriter, file_shape
from bitlake.table.lsm.lookup import FileHits, KeyLookup
from bitlake.table.lsm.merging import ChunkMerge, FirstRowMerge, FullMerge, LookupMerge, PlainMerge
from bitlake.table.lsm.model import BucketState, Compaction, LsmContext
from bitlake.table.lsm.pick import Unit
from bitlake.table.lsm.runs import sorted_runs
from bitlake.table.lsm.stream import SortedSource, merge_runs
from bitlake.table.sizing import target_file_size
from bitlake.tableindex.deletion_vectors import DeletionVector

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
            found = read_vectors(store, context.paths, schema, state.vectors, rows)
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
        for section in sections(self._unit.files, self._reader.key_range):
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
        new = write_vectors(self._store, context.paths, context.schema, state.partition, state.bucket, vectors)
        old_entries = () if state.vectors is None else (state.vectors,)
        return (IndexChange(state.partition, state.bucket, DELETION_VECTORS, old_entries, (new,)),)


def _columns(parts: Sequence[pa.Table]) -> list[pa.Array]:
    rows = pa.concat_tables(parts)
    return [c.combine_chunks() for c in rows.columns]
