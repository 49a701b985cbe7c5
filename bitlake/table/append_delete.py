"""Taking rows out of append tables: which rows a condition hits, and how a commit makes them go.

A *hit* is a data file's name and positions in it.  With ``deletion-vectors.enabled`` hits are added to the files'
vectors and data files stay as they are; without, the files that were hit are written again without them (copy on
write).  Either way a file of which no row is left goes from the table without being opened.

Vectors (index-format spec, sections 8.3 and 9.8): a bucketed table has one index file in each bucket, which is written
anew with all its vectors; a table without buckets has many, and only those that hold a vector of a file that was hit
are replaced, with what else is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyroaring import BitMap

from bitlake.codec.roaring import bitmap_of, deserialize, serialize
from bitlake.deletion import discard_files
from bitlake.errors import reading_table
from bitlake.expressions.tree import sources_of
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry, vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner, Runner
from bitlake.snapshot.index_files import read_vectors, write_vectors, write_vectors_rolling
from bitlake.snapshot.index_manifest import index_entries, index_path
from bitlake.snapshot.partitions import PartitionReader, discard_entries
from bitlake.snapshot.state import TableState
from bitlake.table.append_rewrite import rewrite
from bitlake.table.changes import CommitPlan, IndexChange
from bitlake.table.fetch import FileTask, ReadCounts
from bitlake.table.plan import Plan, PlannedFile, ScanMetrics
from bitlake.table.read import ROW_INDEX, ReadRequest, read_file, tasks_of
from bitlake.table.scan import Scan
from bitlake.tableindex.deletion_vectors import DeletionVector

Hits = Mapping[str, BitMap]
"""Positions by data file name."""

# --- which rows -------------------------------------------------------------------------------------------------------


def find_hits(scan: Scan, runner: Runner) -> dict[str, BitMap]:
    """The live rows that a scan of an append table (without limit) finds, of each file.

    Files and rows of which statistics or indexes are sure are not read; of the others, only the condition's columns.
    """
    plan = scan.exact_plan()
    sure = [f for f in plan.files if f.sure(plan.predicate)]
    hits = {f.entry.file.file_name: _positions(f) for f in sure}
    asked = [f for f in plan.files if not f.sure(plan.predicate)]
    request = ReadRequest(scan.state.schema, (ROW_INDEX,), scan.predicate, scan.timezone)
    of_items("files", size=lambda task: task.size)
    with reading_table(scan.state.name):
        found = runner.run(tasks_of(asked, plan.schemas), partial(_ask_file, scan.store, request))
    for file, data in zip(asked, found, strict=True):
        rows = deserialize(memoryview(data), file.row_count)[0]
        if rows:
            hits[file.entry.file.file_name] = rows
    return hits


def bytes_to_ask(scan: Scan) -> int:
    """About how many bytes of data files :func:`find_hits` reads."""
    plan = scan.exact_plan()
    columns = max(1, len(scan.state.schema.fields))
    asked = 0 if plan.predicate is None else len(sources_of(plan.predicate))
    unsure = sum(
        f.entry.file.file_size * f.chosen_rows // max(f.row_count, 1) for f in plan.files if not f.sure(plan.predicate)
    )
    return unsure * asked // columns


def live_hits(state: TableState, hits: Hits) -> dict[str, BitMap]:
    """The hits that are not in their files' deletion vectors."""
    counts = {e.file.file_name: e.file.row_count for e in state.entries() if e.file.file_name in hits}
    named = [e for e in vectors_of(state) if any(r.data_file in counts for r in e.ranges or ())]
    held = read_all(state, named, counts)
    left = {name: rows - held[name].rows if name in held else rows for name, rows in hits.items()}
    return {name: rows for name, rows in left.items() if rows}


def _positions(file: PlannedFile) -> BitMap:
    if file.selection.rows is not None:
        return file.selection.rows
    return BitMap(range(file.row_count))


def _ask_file(store: Store, request: ReadRequest, task: FileTask) -> bytes:
    return serialize(matching_rows(store, request, task))


def matching_rows(store: Store, request: ReadRequest, task: FileTask) -> BitMap:
    """The positions of a file's rows that satisfy a request's predicate; its one column is their position."""
    rows = BitMap()
    for table in read_file(store, task, request, ReadCounts()):
        rows |= bitmap_of(table.column(ROW_INDEX).to_numpy())
    return rows


def only_hits(scan: Scan, hits: Hits, refiltered: bool = False) -> Scan:
    """A scan of just these rows of the same snapshot, by its columns; its plan is made, so it must not be refined.

    ``refiltered``: who reads it drops other rows himself, so that files of which nothing is deleted may be read whole.
    """
    state = scan.state
    entries = [e for e in state.entries() if e.file.file_name in hits]
    partitions = PartitionReader(state.schema, state.paths)
    marked: Collection[str] = vectors_by_file(vectors_of(state)) if refiltered else hits
    files = tuple(
        PlannedFile(
            e,
            partitions.data_path(e),
            partitions.values(e.partition),
            _selection(e, hits),
            # To a reader, rows that were not hit are as good as deleted: no file may be read whole for a few of them.
            deleted=e.file.row_count - len(hits[e.file.file_name]) if e.file.file_name in marked else 0,
        )
        for e in entries
    )
    plan = Plan(
        table=state.name,
        root=state.paths.root,
        schema=state.schema,
        schemas=state.schemas({e.file.schema_id for e in entries}),
        snapshot_id=state.snapshot_id,
        columns=scan.columns,
        predicate=None,
        limit=None,
        files=files,
        skipped=(),
        problems=(),
        metrics=ScanMetrics(),
    )
    return replace(scan, predicate=None, row_limit=None, order=(), _planned=[plan])


def vectors_of(state: TableState) -> list[IndexFileEntry]:
    """The index files of deletion vectors that readers of a table apply."""
    if not state.schema.opts.of(opt.DV_ENABLED):
        return []
    return [e for e in index_entries(state.store, state.paths, state.snapshot) if e.index_type == DELETION_VECTORS]


def _selection(entry: ManifestEntry, hits: Hits) -> Selection:
    rows = hits[entry.file.file_name]
    return Selection.all(exact=True) if len(rows) == entry.file.row_count else Selection.of(rows, True)


# --- making them go ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsGone:
    """What taking rows out comes to: files that go, files that replace them, and changes of vectors.

    ``hits`` are the rows that were still there.  ``adds`` and the changes' new index files are written already.
    """

    hits: Hits
    deletes: tuple[ManifestEntry, ...] = ()
    adds: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows go."""
        return sum(len(rows) for rows in self.hits.values())

    def plan(self, schema: TableSchema, more: Sequence[ManifestEntry] = ()) -> CommitPlan:
        """The commit of it, with ``more`` new files beside."""
        return CommitPlan(
            kind="OVERWRITE",
            adds=(*self.adds, *more),
            deletes=self.deletes,
            index=self.index,
            requires_schema=schema.id,
        )

    def discard(self, state: TableState) -> None:
        """Delete what was written for it, as well as can be."""
        discard_entries(state.store, state.paths, state.schema, self.adds)
        discard_index(state, [e for c in self.index for e in c.new])


def discard_index(state: TableState, entries: Sequence[IndexFileEntry]) -> None:
    """Delete index files that no snapshot will name, as well as can be."""
    discard_files(state.store, [index_path(state.paths, state.schema, e) for e in entries])


def take_out(state: TableState, hits: Hits, runner: Runner) -> RowsGone:
    """Write what makes these rows go, by deletion vectors or else by copying the files' other rows."""
    if state.schema.opts.of(opt.DV_ENABLED):
        return mark(state, hits)
    files = {e.file.file_name: e for e in state.entries() if e.file.file_name in hits}
    touched = {n: rows for n, rows in hits.items() if rows}
    copied = [files[n] for n, rows in touched.items() if len(rows) < files[n].file.row_count]
    left = {e.file.file_name: Selection.all().minus(hits[e.file.file_name], e.file.row_count) for e in copied}
    adds = rewrite(state, [(e,) for e in copied], left, runner, FileSource.APPEND)
    return RowsGone(touched, tuple(files[n] for n in touched), tuple(e for made in adds for e in made))


def mark(state: TableState, hits: Hits) -> RowsGone:
    """Add rows to the vectors of their files; hits that are in them already are left out."""
    buckets: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in state.entries():
        if entry.file.file_name in hits:
            buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
    vectors = vectors_of(state)
    by_bucket: dict[tuple[bytes, int], list[IndexFileEntry]] = {}
    for index in vectors:
        by_bucket.setdefault((index.partition, index.bucket), []).append(index)
    gone: dict[str, BitMap] = {}
    deletes: list[ManifestEntry] = []
    changes: list[IndexChange] = []
    try:
        for slot, files in buckets.items():
            base = vector_files(state, by_bucket.get(slot, ()), {e.file.file_name for e in files})
            held = read_all(state, base, {e.file.file_name: e.file.row_count for e in files})
            before = len(held)
            changed = False
            for entry in files:
                name = entry.file.file_name
                old = held[name].rows if name in held else BitMap()
                new = hits[name] - old
                if not new:
                    continue
                changed = True
                gone[name] = new
                both = old | new
                if len(both) == entry.file.row_count:
                    deletes.append(entry)
                    held.pop(name, None)
                else:
                    held[name] = DeletionVector(both)
            if changed and (held or before):
                changes.append(vector_change(state, slot, base, held))
    except BaseException:
        discard_index(state, [e for c in changes for e in c.new])
        raise
    return RowsGone(gone, tuple(deletes), (), tuple(changes))


def unaware(schema: TableSchema) -> bool:
    """Whether a table has neither a primary key nor buckets, and so many index files for one bucket number."""
    return not schema.primary_keys and schema.num_buckets == -1


def vector_files(state: TableState, entries: Sequence[IndexFileEntry], names: set[str]) -> tuple[IndexFileEntry, ...]:
    """The index files of a bucket that a change of these data files' vectors replaces."""
    if not unaware(state.schema):
        return tuple(entries)
    return tuple(e for e in entries if any(r.data_file in names for r in e.ranges or ()))


def read_all(
    state: TableState, entries: Sequence[IndexFileEntry], row_counts: Mapping[str, int]
) -> dict[str, DeletionVector]:
    """All vectors of index files by data file name."""
    read = partial(read_vectors, state.store, state.paths, state.schema, row_counts=row_counts)
    with reading_table(state.name):
        found = LocalRunner().run(list(entries), read)
    return {name: vector for part in found for name, vector in part.items()}


def vector_change(
    state: TableState,
    slot: tuple[bytes, int],
    base: tuple[IndexFileEntry, ...],
    vectors: Mapping[str, DeletionVector],
) -> IndexChange:
    """Write the vectors as the index files that replace ``base``."""
    arguments = (state.store, state.paths, state.schema, *slot, vectors)
    new = write_vectors_rolling(*arguments) if unaware(state.schema) else (write_vectors(*arguments),)
    return IndexChange(*slot, DELETION_VECTORS, base, new)
