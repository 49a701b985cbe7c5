"""DELETE and UPDATE of append tables: find rows, delete them, write changed ones, in one commit.

1. :func:`find_hits` finds the rows that a condition selects.  A *hit* is a data file's name and row positions in it.
   Files of which statistics or indexes are sure are not read; of the others only the condition's columns are.
2. :func:`write_deletion` deletes hits.  With ``deletion-vectors.enabled`` it adds them to the files' vectors
   (:func:`mark_deleted`), and data files stay as they are; otherwise it writes the files again without them
   (:func:`rewrite`: copy on write, also used by compaction).  Either way a file without remaining rows leaves the
   table unread.
3. :func:`update_rows` also writes the hit rows with their new values.
4. One commit publishes all changes.  If another writer changed files that a statement read, :func:`retrying` runs the
   statement again on the latest state.

Deletion vectors (index-format spec, sections 8.3 and 9.8): a bucketed table has one index file in each bucket, which is
written again with all its vectors; a table without buckets has many, and only those that hold a vector of a hit file
are replaced, together with the other vectors in them.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from datetime import time as time_of_day
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake import _clock
from bitlake.codec.roaring import bitmap_of, deserialize, serialize
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, reading_table
from bitlake.expressions.literals import is_missing
from bitlake.expressions.tree import sources_of
from bitlake.fileindex.selection import Selection
from bitlake.formats.conform import null_column, retyped
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry, vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry, by_bucket
from bitlake.metadata.paths import TablePaths, data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner, Runner
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.plan import Plan, PlannedFile, ScanMetrics
from bitlake.scan.reader import ROW_INDEX, ReadRequest, output_schema, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.snapshot.index_files import IndexChange, read_vectors, write_vectors, write_vectors_rolling
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import PartitionReader, discard_entries, index_path
from bitlake.snapshot.removal_markers import has_expired
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import arrow_type
from bitlake.write.commit_plan import CommitPlan
from bitlake.write.data_file_writer import DataFileFactory, DataFileWriter, file_format
from bitlake.write.writer import write_rows


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """Files of one bucket to write again as one sequence of rows; picklable.

    ``writer`` begins the names of the new files, so that they can be found if the job fails.
    """

    tasks: tuple[FileTask, ...]
    partition: tuple[object, ...]
    bucket: int
    writer: str
    first_sequence: int
    group_bytes: int | None
    """Arrow bytes of a row group, at most; None: the table's option decides."""


REWRITE_BYTES = 128 << 20
"""Arrow bytes of all row groups that a rewrite holds in one process.

A row group is encoded when it is complete, so each file that is being written holds one.  Two of full size took 500 MB
beyond the imports (5M rows of 200 bytes, 2 cores); two of half the size took 330 MB."""
_LEAST_GROUP = 32 << 20
"""Smaller row groups would slow down every scan, so at most four files are written side by side."""


def rewrite(
    state: TableState,
    groups: Sequence[Sequence[ManifestEntry]],
    selections: Mapping[str, Selection],
    runner: Runner,
    source: FileSource,
) -> list[tuple[ManifestEntry, ...]]:
    """Write the selected rows of each group of files into new files; returns the new entries of each group.

    ``selections`` maps data file names to rows; files without one keep all rows.  Statistics and indexes are built
    again, under the table's current schema.  On an error the new files are deleted.
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
        # A group that failed has deleted its files; the others have not, and their names are known in advance.
        for job in jobs:
            _discard_job(state, job)
        raise


def _rewrite_group(
    store: Store, paths: TablePaths, schema: TableSchema, source: FileSource, job: RewriteJob
) -> tuple[ManifestEntry, ...]:
    names = tuple(f.name for f in schema.fields)
    types = output_schema(schema, names)
    request = ReadRequest(schema, names, None)
    factory = DataFileFactory(paths, schema, store)
    # A task can run twice at once.  If both runs used the same names, the one that Spark stops could truncate or delete
    # a file of the other.
    file_names = _job_file_names(schema, f"{job.writer}-{_clock.new_uuid()[:8]}")
    with DataFileWriter(factory, job.partition, job.bucket, file_names, job.group_bytes) as writer:
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


def _job_file_names(schema: TableSchema, writer: str) -> Iterator[str]:
    prefix = schema.opts.of(opt.DATA_FILE_PREFIX)
    return (data_file_name(prefix, writer, i, file_format(schema)) for i in itertools.count())


def _discard_job(state: TableState, job: RewriteJob) -> None:
    factory = DataFileFactory(state.paths, state.schema, state.store)
    name = next(_job_file_names(state.schema, job.writer))
    folder = factory.path(job.partition, job.bucket, name).rsplit("/", 1)[0]
    prefix = name.removesuffix(f"0.{file_format(state.schema)}")  # the names of all runs of the task begin with it
    discard_files(state.store, [f"{folder}/{f.name}" for f in state.store.list(folder) if f.name.startswith(prefix)])


# --- finding rows -----------------------------------------------------------------------------------------------------

Hits = Mapping[str, BitMap]
"""Row positions by data file name."""


def find_hits(scan: TableScan, runner: Runner) -> dict[str, BitMap]:
    """Return the live rows that a scan of an append table selects, by file; the scan must have no limit."""
    plan = scan.exact_plan()
    sure = [f for f in plan.files if f.sure(plan.predicate)]
    hits = {f.entry.file.file_name: _selected_positions(f) for f in sure}
    unsure = [f for f in plan.files if not f.sure(plan.predicate)]
    request = ReadRequest(scan.state.schema, (ROW_INDEX,), scan.predicate, scan.timezone)
    of_items("files", size=lambda task: task.size)
    with reading_table(scan.state.name):
        serialized = runner.run(tasks_of(unsure, plan.schemas), partial(_search_file, scan.store, request))
    for file, data in zip(unsure, serialized, strict=True):
        rows = deserialize(memoryview(data), file.row_count)[0]
        if rows:
            hits[file.entry.file.file_name] = rows
    return hits


def estimated_search_bytes(scan: TableScan) -> int:
    """Estimate the bytes of data files that :func:`find_hits` reads."""
    plan = scan.exact_plan()
    columns = max(1, len(scan.state.schema.fields))
    read_columns = 0 if plan.predicate is None else len(sources_of(plan.predicate))
    unsure = sum(
        f.entry.file.file_size * f.chosen_rows // max(f.row_count, 1) for f in plan.files if not f.sure(plan.predicate)
    )
    return unsure * read_columns // columns


def live_hits(state: TableState, hits: Hits) -> dict[str, BitMap]:
    """Return the hits that are not in their files' deletion vectors yet."""
    vectors = vectors_of_files(state, [e for e in state.entries() if e.file.file_name in hits])
    live = {name: rows - vectors[name].rows if name in vectors else rows for name, rows in hits.items()}
    return {name: rows for name, rows in live.items() if rows}


def _selected_positions(file: PlannedFile) -> BitMap:
    if file.selection.rows is not None:
        return file.selection.rows
    return BitMap(range(file.row_count))


def _search_file(store: Store, request: ReadRequest, task: FileTask) -> bytes:
    return serialize(matching_rows(store, request, task))


def matching_rows(store: Store, request: ReadRequest, task: FileTask) -> BitMap:
    """Return the positions of a file's rows that satisfy a request's predicate; it requests that one column."""
    rows = BitMap()
    for table in read_file(store, task, request, ReadCounts()):
        rows |= bitmap_of(table.column(ROW_INDEX).to_numpy())
    return rows


def scan_of_hits(scan: TableScan, hits: Hits, refiltered: bool = False) -> TableScan:
    """Return a scan of just these rows of the same snapshot, with its columns; it is planned: do not refine it.

    ``refiltered``: the reader drops other rows itself, so files without deleted rows may be read whole.
    """
    state = scan.state
    entries = [e for e in state.entries() if e.file.file_name in hits]
    partitions = PartitionReader(state.schema, state.paths)
    marked: Collection[str] = vectors_by_file(vector_index_files(state)) if refiltered else hits
    files = tuple(
        PlannedFile(
            e,
            partitions.data_path(e),
            partitions.values(e.partition),
            _hit_selection(e, hits),
            # Counted as deleted, rows that were not hit keep the reader from reading the whole file.
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
        metrics=ScanMetrics(),
    )
    return replace(scan, predicate=None, row_limit=None, order=(), _planned=[plan])


def vector_index_files(state: TableState) -> list[IndexFileEntry]:
    """Return the index files of the deletion vectors that readers of a table apply."""
    if not state.schema.opts.of(opt.DV_ENABLED):
        return []
    return [e for e in index_entries(state.table_files, state.snapshot) if e.index_type == DELETION_VECTORS]


def vectors_of_files(state: TableState, files: Iterable[ManifestEntry]) -> dict[str, DeletionVector]:
    """Return the deletion vectors of those data files that have one, by file name."""
    counts = {e.file.file_name: e.file.row_count for e in files}
    index_files = [e for e in vector_index_files(state) if any(r.data_file in counts for r in e.ranges or ())]
    vectors = read_vectors_of(state, index_files, counts)
    return {name: vector for name, vector in vectors.items() if name in counts}


def _hit_selection(entry: ManifestEntry, hits: Hits) -> Selection:
    rows = hits[entry.file.file_name]
    return Selection.all(exact=True) if len(rows) == entry.file.row_count else Selection.of(rows, True)


# --- deleting rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowDeletion:
    """A deletion of rows, written but not committed: files removed, files that replace them, changes of vectors.

    ``hits`` are the rows that were still live.  ``adds`` and the new index files of ``index`` exist already.
    """

    hits: Hits
    deletes: tuple[ManifestEntry, ...] = ()
    adds: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows deleted."""
        return sum(len(rows) for rows in self.hits.values())

    def plan(self, schema: TableSchema, more: Sequence[ManifestEntry] = ()) -> CommitPlan:
        """Return the plan that commits the deletion, with ``more`` new files."""
        return CommitPlan(
            kind="OVERWRITE",
            adds=(*self.adds, *more),
            deletes=self.deletes,
            index=self.index,
            requires_schema=schema.id,
        )

    def discard(self, state: TableState) -> None:
        """Delete the files written for the deletion; failures to delete are ignored."""
        discard_entries(state.table_files, state.schema, self.adds)
        discard_index_files(state, [e for c in self.index for e in c.new])


def discard_index_files(state: TableState, entries: Sequence[IndexFileEntry]) -> None:
    """Delete index files that no snapshot will name; failures to delete are ignored."""
    discard_files(state.store, [index_path(state.paths, state.schema, e) for e in entries])


def write_deletion(state: TableState, hits: Hits, runner: Runner) -> RowDeletion:
    """Write a deletion of rows: as deletion vectors, or by copying the other rows of the files hit."""
    if state.schema.opts.of(opt.DV_ENABLED):
        return mark_deleted(state, hits)
    files = {e.file.file_name: e for e in state.entries() if e.file.file_name in hits}
    touched = {n: rows for n, rows in hits.items() if rows}
    copied = [files[n] for n, rows in touched.items() if len(rows) < files[n].file.row_count]
    kept_rows = {e.file.file_name: Selection.all().minus(hits[e.file.file_name], e.file.row_count) for e in copied}
    copies = rewrite(state, [(e,) for e in copied], kept_rows, runner, FileSource.APPEND)
    return RowDeletion(touched, tuple(files[n] for n in touched), tuple(e for entries in copies for e in entries))


def mark_deleted(state: TableState, hits: Hits) -> RowDeletion:
    """Add hits to the deletion vectors of their files, except those that are in them already."""
    buckets = by_bucket(e for e in state.entries() if e.file.file_name in hits)
    indexes = by_bucket(vector_index_files(state))
    new_hits: dict[str, BitMap] = {}
    deletes: list[ManifestEntry] = []
    changes: list[IndexChange] = []
    try:
        for slot, files in buckets.items():
            base = replaced_index_files(state, indexes.get(slot, ()), {e.file.file_name for e in files})
            vectors = read_vectors_of(state, base, {e.file.file_name: e.file.row_count for e in files})
            had_vectors = bool(vectors)
            changed = False
            for entry in files:
                name = entry.file.file_name
                old = vectors[name].rows if name in vectors else BitMap()
                new = hits[name] - old
                if not new:
                    continue
                changed = True
                new_hits[name] = new
                deleted = old | new
                if len(deleted) == entry.file.row_count:
                    deletes.append(entry)
                    vectors.pop(name, None)
                else:
                    vectors[name] = DeletionVector(deleted)
            if changed and (vectors or had_vectors):
                changes.append(vector_change(state, slot, base, vectors))
    except BaseException:
        discard_index_files(state, [e for c in changes for e in c.new])
        raise
    return RowDeletion(new_hits, tuple(deletes), (), tuple(changes))


def is_bucket_unaware(schema: TableSchema) -> bool:
    """Return whether a table has neither a primary key nor buckets: many index files then share one bucket number."""
    return not schema.primary_keys and schema.num_buckets == -1


def replaced_index_files(
    state: TableState, entries: Sequence[IndexFileEntry], names: set[str]
) -> tuple[IndexFileEntry, ...]:
    """Return the index files of a bucket that a change of the vectors of data files ``names`` replaces."""
    if not is_bucket_unaware(state.schema):
        return tuple(entries)
    return tuple(e for e in entries if any(r.data_file in names for r in e.ranges or ()))


def read_vectors_of(
    state: TableState, entries: Sequence[IndexFileEntry], row_counts: Mapping[str, int]
) -> dict[str, DeletionVector]:
    """Read all deletion vectors of index files, by data file name; ``row_counts`` are those of the data files."""
    read = partial(read_vectors, state.table_files, state.schema, row_counts=row_counts)
    with reading_table(state.name):
        parts = LocalRunner().run(list(entries), read)
    return {name: vector for part in parts for name, vector in part.items()}


def vector_change(
    state: TableState,
    slot: tuple[bytes, int],
    base: tuple[IndexFileEntry, ...],
    vectors: Mapping[str, DeletionVector],
) -> IndexChange:
    """Write deletion vectors into new index files that replace ``base``; returns the change for the commit."""
    arguments = (state.table_files, state.schema, *slot, vectors)
    new = write_vectors_rolling(*arguments) if is_bucket_unaware(state.schema) else (write_vectors(*arguments),)
    return IndexChange(*slot, DELETION_VECTORS, base, new)


# --- statements -------------------------------------------------------------------------------------------------------

NewValue = Any
"""A Python value, an Arrow scalar, or a function that maps the old rows (a table of all columns) to a column."""
CommitRows = Callable[[TableState, RowDeletion, str, Sequence[ManifestEntry]], Any]
"""Commits a deletion and new files under an operation's name: ``commit(state, deletion, operation, files)``."""
Result = TypeVar("Result")

STATEMENT_TRIES = 5
"""Attempts of a statement while other writers keep changing files that it read."""
_LONGEST_WAIT = 10.0
"""The most seconds between two attempts."""


def retrying(now: Callable[[], TableState], step: Callable[[TableState], Result]) -> Result:
    """Run a statement on the latest state, and again if another writer changed or expired files that it read.

    ``now`` loads the state.  Raises :class:`CommitConflict` after :data:`STATEMENT_TRIES` attempts.  Between them is a
    random wait of up to the time that the attempt took, doubled each time: of 128 updates of one row by 8 threads, 40
    gave up without waits, and 10 do so.
    """
    for tried in range(1, STATEMENT_TRIES + 1):
        left = STATEMENT_TRIES - tried
        began = time.monotonic()
        state = now()
        try:
            return step(state)
        except CommitConflict:
            if not left:
                raise
            longest = min((time.monotonic() - began) * 2 ** (tried - 1), _LONGEST_WAIT)
            time.sleep(random.Random(_clock.new_uuid()).uniform(0, longest))
        except NotFound:
            if not left or not has_expired(state.table_files, state.snapshot_id):
                raise
    raise AssertionError("the last try returns or raises")


def delete_rows(scan: TableScan, runner: Runner, commit: CommitRows) -> int:
    """Delete the rows that a scan selects; returns their number."""
    deletion = write_deletion(scan.state, find_hits(scan, runner), runner)
    if deletion.rows:
        commit(scan.state, deletion, "DELETE", ())
    return deletion.rows


def update_rows(scan: TableScan, values: Mapping[str, NewValue], runner: Runner, commit: CommitRows) -> int:
    """Set columns of the rows that a scan selects to new values; returns the number of rows.

    Raises :class:`NotFound` and :class:`InvalidRequest` as :func:`resolve_assignments` does, and
    :class:`InvalidRequest` for values that their columns cannot store.
    """
    state = scan.state
    assignments = resolve_assignments(state.schema, values)
    deletion = write_deletion(state, find_hits(scan, runner), runner)
    if not deletion.rows:
        return 0
    try:
        old = scan_of_hits(scan.select(state.schema.field_names), deletion.hits)
        files = write_rows(state, updated_batches(old, assignments), state.store)
    except BaseException:
        deletion.discard(state)
        raise
    commit(state, deletion, "UPDATE", files)
    return deletion.rows


def discard_statement(state: TableState, deletion: RowDeletion, files: Sequence[ManifestEntry]) -> None:
    """Delete the files that a statement wrote and no commit will name."""
    deletion.discard(state)
    discard_entries(state.table_files, state.schema, files)


def resolve_assignments(schema: TableSchema, values: Mapping[str, NewValue]) -> dict[str, NewValue]:
    """Return new values by the schema's own column names.

    Raises :class:`NotFound` for an unknown column, and :class:`InvalidRequest` for a column set twice, for a constant
    that its column cannot store, and for no column.
    """
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
    for name, value in out.items():
        if not callable(value):
            _constant_column(value, arrow_type(schema.field(name).type), 0, name)
    return out


def updated_batches(old: TableScan, values: Mapping[str, NewValue]) -> Iterator[pa.Table]:
    """Yield the rows of a scan with their new values."""
    schema = old.state.schema
    for batch in old.to_batches():
        table = pa.Table.from_batches([batch])
        columns = []
        for name in table.column_names:
            if name not in values:
                columns.append(table.column(name))
            elif callable(values[name]):
                columns.append(_computed_column(values[name], table, name))
            else:
                columns.append(
                    _constant_column(values[name], arrow_type(schema.field(name).type), table.num_rows, name)
                )
        yield pa.table(columns, names=table.column_names)


def _computed_column(function: Callable[[pa.Table], Any], old: pa.Table, name: str) -> Any:
    column = function(old)
    if not isinstance(column, pa.Array | pa.ChunkedArray) or len(column) != old.num_rows:
        result = f"{len(column)} values" if isinstance(column, pa.Array | pa.ChunkedArray) else type(column).__name__
        raise InvalidRequest(f"UPDATE: the function of column '{name}' returned {result} for {old.num_rows} rows")
    return column


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    return pa.repeat(value, max(rows, 1)).slice(0, rows)  # Arrow cannot repeat a list or map no times


def _constant_column(value: Any, arrow: pa.DataType, rows: int, name: str) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return _repeated(value, rows)
    if is_missing(value):
        return null_column(rows, arrow)
    try:
        made = pa.array(np.array([value])) if isinstance(value, np.datetime64) else None
        is_moment = isinstance(value, datetime) if made is None else pa.types.is_timestamp(made.type)
        # Arrow would drop the day, or the time of day.
        if is_moment and pa.types.is_time(arrow):
            raise ValueError("it has a day, which a TIME would lose")
        if is_moment and pa.types.is_date(arrow):
            is_day = value.time() == time_of_day() if made is None else made.cast(arrow).cast(made.type).equals(made)
            if not is_day:
                raise ValueError("it has a time of day, which a DATE would lose")
        if made is not None:
            return _repeated(made.cast(arrow)[0], rows)
        return _repeated(pa.scalar(value.item() if isinstance(value, np.generic) else value, arrow), rows)
    except (ValueError, TypeError, OverflowError, NotImplementedError) as e:  # Arrow's own errors are among them
        raise InvalidRequest(
            f"UPDATE: invalid {arrow} value {value!r} for column '{name}': {e}; to compute the new value from old "
            f"rows, pass SQL as expressions={{'{name}': '…'}}, or a function of them"
        ) from e
