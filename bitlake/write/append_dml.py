"""Writing rows of append tables again: files of a bucket as new files, without some of their rows.

Used where rows are deleted without deletion vectors, and by compaction.  Nothing is visible before a commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyroaring import BitMap

from bitlake import _clock
from bitlake.codec.roaring import bitmap_of, deserialize, serialize
from bitlake.deletion import discard_files
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, reading_table
from bitlake.expressions.tree import sources_of
from bitlake.fileindex.selection import Selection
from bitlake.formats.conform import null_column, retyped
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry, vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.paths import TablePaths, data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner, Runner
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.plan import Plan, PlannedFile, ScanMetrics
from bitlake.scan.reader import ROW_INDEX, ReadRequest, output_schema, read_file, tasks_of
from bitlake.scan.scan import Scan
from bitlake.snapshot.index_files import read_vectors, write_vectors, write_vectors_rolling
from bitlake.snapshot.index_manifest import index_entries, index_path
from bitlake.snapshot.partitions import PartitionReader, discard_entries
from bitlake.snapshot.removal_markers import has_expired
from bitlake.snapshot.state import TableState
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import arrow_type
from bitlake.write.commit_plan import CommitPlan, IndexChange
from bitlake.write.data_file_writer import DataFileWriter, FileMaker, file_format
from bitlake.write.writer import write_rows


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """Files of one bucket to be written again as one sequence of rows; picklable."""

    tasks: tuple[FileTask, ...]
    partition: tuple[object, ...]
    bucket: int
    writer: str
    first_sequence: int
    group_bytes: int | None
    """Arrow bytes of a row group, at most; None: as the table's options say."""


REWRITE_BYTES = 128 << 20
"""Arrow bytes of the row groups that rewriting holds in this process, over all threads (an executor's process: each).

A row group is encoded when it is whole, so that files written side by side hold one each.  Two of full size took
500 MB beyond the imports (5M rows of 200 bytes, 2 cores); two halves 330 MB."""
_LEAST_GROUP = 32 << 20
"""Smaller row groups would cost every scan: more than four files are not written side by side."""


def rewrite(
    state: TableState,
    groups: Sequence[Sequence[ManifestEntry]],
    selections: Mapping[str, Selection],
    runner: Runner,
    source: FileSource,
) -> list[tuple[ManifestEntry, ...]]:
    """Write the selected rows (all, if a file is not named) of each group's files anew; the new entries of each group.

    Statistics and indexes are made anew, under the table's schema of now.  What was written is deleted on an error.
    """
    partitions = PartitionReader(state.schema, state.paths)
    schemas = state.schemas({e.file.schema_id for group in groups for e in group})
    group_bytes = None
    if isinstance(runner, LocalRunner):
        together = max(1, min(runner.threads, len(groups), REWRITE_BYTES // _LEAST_GROUP))
        runner, group_bytes = LocalRunner(together), REWRITE_BYTES // together
    jobs = []
    for group in groups:
        planned = [
            PlannedFile(
                e,
                partitions.data_path(e),
                partitions.values(e.partition),
                selections.get(e.file.file_name, Selection.all()),
            )
            for e in group
        ]
        first = min(e.file.min_sequence_number for e in group)
        place = (partitions.values(group[0].partition), group[0].bucket)
        jobs.append(RewriteJob(tuple(tasks_of(planned, schemas)), *place, _clock.new_uuid(), first, group_bytes))
    of_items("files", each=lambda job: len(job.tasks), size=lambda job: sum(t.size for t in job.tasks))
    call = partial(_rewrite_group, state.store, state.paths, state.schema, source)
    try:
        with reading_table(state.name):
            return runner.run(jobs, call)
    except BaseException:
        # Names are known before the files are: a group that failed has cleaned up, those that did not have not.
        for job in jobs:
            _discard_job(state, job)
        raise


def _rewrite_group(
    store: Store, paths: TablePaths, schema: TableSchema, source: FileSource, job: RewriteJob
) -> tuple[ManifestEntry, ...]:
    names = tuple(f.name for f in schema.fields)
    types = output_schema(schema, names)
    request = ReadRequest(schema, names, None)
    maker = FileMaker.of(paths, schema, store)
    with DataFileWriter(maker, job.partition, job.bucket, _names(schema, job.writer), job.group_bytes) as writer:
        for task in job.tasks:
            for table in read_file(store, task, request, ReadCounts()):
                writer.write(retyped(table, types))
        entries = writer.finish()
    out, at = [], job.first_sequence
    for entry in entries:
        last = at + entry.file.row_count - 1
        file = replace(entry.file, min_sequence_number=at, max_sequence_number=last, file_source=source)
        out.append(replace(entry, file=file))
        at = last + 1
    return tuple(out)


def _names(schema: TableSchema, writer: str) -> Iterator[str]:
    prefix = schema.opts.of(opt.DATA_FILE_PREFIX)
    return (data_file_name(prefix, writer, i, file_format(schema)) for i in itertools.count())


def _discard_job(state: TableState, job: RewriteJob) -> None:
    maker = FileMaker.of(state.paths, state.schema, state.store)
    name = next(_names(state.schema, job.writer))
    folder = maker.path(job.partition, job.bucket, name).rsplit("/", 1)[0]
    mark = name.removesuffix(f"0.{file_format(state.schema)}")
    discard_files(state.store, [f"{folder}/{f.name}" for f in state.store.list(folder) if f.name.startswith(mark)])


# --- append_delete ---
# Taking rows out of append tables: which rows a condition hits, and how a commit makes them go.
#
# A *hit* is a data file's name and positions in it.  With ``deletion-vectors.enabled`` hits are added to the files'
# vectors and data files stay as they are; without, the files that were hit are written again without them (copy on
# write).  Either way a file of which no row is left goes from the table without being opened.
#
# Vectors (index-format spec, sections 8.3 and 9.8): a bucketed table has one index file in each bucket, which is
# written
# anew with all its vectors; a table without buckets has many, and only those that hold a vector of a file that was hit
# are replaced, with what else is in them.

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


# --- append_update ---
# DELETE and UPDATE of append tables in this process: found, taken out, written anew, committed at once.
#
# If another writer changed what a statement had read, it runs again on the table as it is then.

NewValue = Any
"""A Python value, an Arrow scalar, or a function of the old rows (all columns, as a table) giving a column."""
CommitRows = Callable[[TableState, RowsGone, str, Sequence[ManifestEntry]], Any]
Result = TypeVar("Result")

STATEMENT_TRIES = 5
"""How often a statement is run in all when others keep changing what it read."""


def retrying(now: Callable[[], TableState], step: Callable[[TableState], Result]) -> Result:
    """Run a statement on the table as it is, and again if another writer changed what it had read, or it expired."""
    for left in range(STATEMENT_TRIES - 1, -1, -1):
        state = now()
        try:
            return step(state)
        except CommitConflict:
            if not left:
                raise
        except NotFound:
            if not left or not has_expired(state.store, state.paths, state.snapshot_id):
                raise
    raise AssertionError("the last try returns or raises")


def delete_rows(scan: Scan, runner: Runner, commit: CommitRows) -> int:
    """Delete the rows that a scan finds; returns how many."""
    gone = take_out(scan.state, find_hits(scan, runner), runner)
    if gone.rows:
        commit(scan.state, gone, "DELETE", ())
    return gone.rows


def update_rows(scan: Scan, values: Mapping[str, NewValue], runner: Runner, commit: CommitRows) -> int:
    """Replace the rows that a scan finds by themselves with other values in some columns; returns how many."""
    state = scan.state
    named = named_values(state.schema, values)
    gone = take_out(state, find_hits(scan, runner), runner)
    if not gone.rows:
        return 0
    try:
        old = only_hits(scan.select(state.schema.field_names), gone.hits)
        files = write_rows(state, changed(old, named), state.store)
    except BaseException:
        gone.discard(state)
        raise
    commit(state, gone, "UPDATE", files)
    return gone.rows


def discard_all(state: TableState, gone: RowsGone, files: Sequence[ManifestEntry]) -> None:
    """Delete what a statement wrote and no commit will name."""
    gone.discard(state)
    discard_entries(state.store, state.paths, state.schema, files)


def named_values(schema: TableSchema, values: Mapping[str, NewValue]) -> dict[str, NewValue]:
    """The new values by the schema's own names."""
    out: dict[str, NewValue] = {}
    for name, value in values.items():
        try:
            field = schema.field(name)
        except NotFound as e:
            raise NotFound(f"UPDATE: {e}") from e
        if field.name in out:
            raise InvalidRequest(f"UPDATE: column '{field.name}' is set twice")
        out[field.name] = value
    if not out:
        raise InvalidRequest("UPDATE: no column is set")
    return out


def changed(old: Scan, values: Mapping[str, NewValue]) -> Iterator[pa.Table]:
    """The rows of a scan with their new values."""
    schema = old.state.schema
    for batch in old.to_batches():
        table = pa.Table.from_batches([batch])
        columns = []
        for name in table.column_names:
            if name not in values:
                columns.append(table.column(name))
            elif callable(values[name]):
                columns.append(_computed(values[name], table, name))
            else:
                columns.append(_repeated(values[name], arrow_type(schema.field(name).type), table.num_rows, name))
        yield pa.table(columns, names=table.column_names)


def _computed(function: Callable[[pa.Table], Any], old: pa.Table, name: str) -> Any:
    made = function(old)
    if not isinstance(made, pa.Array | pa.ChunkedArray) or len(made) != old.num_rows:
        what = f"{len(made)} values" if isinstance(made, pa.Array | pa.ChunkedArray) else type(made).__name__
        raise InvalidRequest(f"UPDATE: the function of column '{name}' gave {what} for {old.num_rows} rows")
    return made


def _repeated(value: Any, wanted: pa.DataType, rows: int, name: str) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    try:
        return pa.repeat(pa.scalar(value, wanted), rows) if value is not None else null_column(rows, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
        raise InvalidRequest(
            f"UPDATE: {value!r} is no {wanted} (column '{name}'): {e}; an expression "
            "over the old rows is given as a function of them, or in SQL: UPDATE … SET"
        ) from e
