"""Buckets of primary-key tables: the live files and index files that writers and compactions work on.

A writer receives the :class:`BucketState` (the live files) of each bucket that it writes to and returns a
:class:`BucketChange`: the files that the APPEND commit, and the COMPACT commit after it, publish.  These values pass
between processes, so all are picklable.

:func:`bucket_states` groups a snapshot's live files by bucket; :class:`LiveBuckets` does so lazily, for what rows come
for: the partitions, or the buckets of a table without partitions.  Cost: the manifests of the partitions looked at, or
the columns of the manifests that may hold the buckets, which a process decodes once.

Compaction and lookup read files through :class:`BucketReader`: as stored, with system columns, without deleted rows, in
the order of the file.  Older schemas are mapped to the table's current one; of selected rows only their pages are read.
Memory: a batch at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.expressions.evaluate import physical_array
from bitlake.fileindex.registry import UnwrittenIndex
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.interval_partition import KeyRange, KeyRanges
from bitlake.merge.keys import Key, SortedKeys
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry, Slot
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.reader import ROW_INDEX, ReadRequest, read_file
from bitlake.schema.merge_spec import SYSTEM_FIELDS, key_fields
from bitlake.snapshot.file_columns import ColumnarFiles
from bitlake.snapshot.index_files import IndexChange
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import PartitionReader, entries_of, entries_of_buckets, is_large
from bitlake.snapshot.state import TableState
from bitlake.tableindex.deletion_vectors import DeletionVector


@dataclass(frozen=True, slots=True)
class MergeTreeContext:
    """The context that all buckets of a write or compaction share; created on the driver, sent to the executors.

    ``schemas`` holds the schemas of all live files by id, and the table's own.
    """

    table: str
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]


@dataclass(frozen=True, slots=True)
class BucketState:
    """The live files of one bucket of a snapshot.

    ``partition`` is a BinaryRow with arity, as in manifests.  ``total_buckets`` goes into the entries of new files: -1
    for dynamic buckets.  ``vectors`` and ``hashes`` are the bucket's index files, if it has any.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[ManifestEntry, ...] = ()
    vectors: IndexFileEntry | None = None
    hashes: IndexFileEntry | None = None
    reserved: int = 0
    """Sequence numbers left to other tasks that write to the bucket at the same time."""

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next row."""
        return max((e.file.max_sequence_number for e in self.files), default=-1) + 1 + self.reserved


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of compacting a bucket: entries removed and added, changelog files, changes of index files.

    An upgraded file is in both ``before`` (old level) and ``after`` (new level) under the same name; ``new_files`` are
    the files written, to be deleted if nothing is committed.
    """

    before: tuple[ManifestEntry, ...] = ()
    after: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    @property
    def new_files(self) -> tuple[ManifestEntry, ...]:
        """The files that this compaction wrote."""
        old = {e.file.file_name for e in self.before}
        return (*(e for e in self.after if e.file.file_name not in old), *self.changelog)

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.changelog or self.index)


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The result of writing to one bucket: new level-0 files, input changelog, HASH index, and the compaction after."""

    partition: bytes
    bucket: int
    new_files: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()
    compaction: Compaction = field(default_factory=Compaction)
    rows: int = 0
    deletes: int = 0
    """The -D rows among ``rows``; counted only where keys may move between partitions, else 0."""
    problems: tuple[UnwrittenIndex, ...] = ()


def inserted_rows(changes: Iterable[BucketChange]) -> int:
    """Count the rows that a write without row kinds inserts: its -D rows only delete moved keys from old partitions."""
    return sum(c.rows - c.deletes for c in changes)


# --- buckets of a snapshot --------------------------------------------------------------------------------------------


def merge_tree_context(state: TableState, files: Iterable[ManifestEntry] | None = None) -> MergeTreeContext:
    """Return the context of writers and compactions; ``files`` are those that they read (None: all live files)."""
    read = state.entries() if files is None else files
    ids = read.columns.schema_ids if isinstance(read, ColumnarFiles) else {e.file.schema_id for e in read}
    return MergeTreeContext(state.name, state.paths, state.schema, dict(state.schemas({state.schema.id, *ids})))


def bucket_states(
    state: TableState, only: Collection[Slot] | None = None, partitions: Collection[bytes] | None = None
) -> dict[Slot, BucketState]:
    """Return the buckets of a table that hold files; only those in ``only``, or of ``partitions``, if given.

    Of a large table only the manifests that may have entries of those are read.
    """
    files: dict[Slot, list[ManifestEntry]] = {}
    if only is not None:
        entries = entries_of_buckets(state, only)
    else:
        entries = state.entries() if partitions is None else entries_of(state, partitions)
    for e in entries:
        slot = (e.partition, e.bucket)
        if slot in only if only is not None else partitions is None or e.partition in partitions:
            files.setdefault(slot, []).append(e)
    indexes: dict[Slot, dict[str, IndexFileEntry]] = {}
    for i in index_entries(state.table_files, state.snapshot):
        slot = (i.partition, i.bucket)
        if slot in only if only is not None else partitions is None or i.partition in partitions:
            indexes.setdefault(slot, {})[i.index_type] = i
    out = {}
    for slot in {**files, **indexes}:
        live, index = tuple(files.get(slot, ())), indexes.get(slot, {})
        total = live[0].total_buckets if live else state.schema.num_buckets
        out[slot] = BucketState(*slot, total, live, index.get(DELETION_VECTORS), index.get(HASH))
    return out


def bucket_state(states: Mapping[Slot, BucketState], total: int, slot: Slot) -> BucketState:
    """Return the state of a bucket to write to, of ``total`` buckets; empty if the bucket has no files yet.

    Raises :class:`InvalidRequest` if its files belong to another number of buckets than the table has now: a key would
    be looked up in the wrong bucket.
    """
    state = states.get(slot)
    if state is None:
        return BucketState(*slot, total)
    if state.total_buckets > 0 and total > 0 and state.total_buckets != total:
        raise InvalidRequest(
            f"bucket {state.bucket} was written as one of {state.total_buckets} buckets, and the table now has "
            f"'bucket' = '{total}'; INSERT OVERWRITE the table (or this partition) with its own rows before writing "
            "other rows"
        )
    return state


@dataclass(slots=True)
class LiveBuckets:
    """The states of the buckets that one writer writes to, and the schemas of their files.

    Of a table with many files only the partitions that rows come for are loaded, with their first rows; of one without
    partitions, only the buckets.  The driver creates it for the tasks of a write, and each task loads its own.
    Mutable, one thread.
    """

    state: TableState = field(repr=False)
    context: MergeTreeContext
    """Holds the schemas of the files loaded so far."""
    states: dict[Slot, BucketState]
    lazy: bool = False
    """Whether there may be buckets beyond ``states`` that are not loaded yet."""
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """The number of buckets of partitions that differ from the schema's."""
    _partitions: set[bytes] = field(default_factory=set)
    """Those loaded so far, with all their buckets."""
    _buckets: set[Slot] = field(default_factory=set)
    """Those loaded one by one, of a table without partitions."""

    @classmethod
    def of(
        cls,
        state: TableState,
        *,
        fresh: bool = False,
        lazy: bool | None = None,
        counts: Mapping[bytes, int] | None = None,
    ) -> LiveBuckets:
        """Return the buckets of a table; none for a ``fresh`` one.

        ``lazy``: whether buckets are loaded on demand; None: if the table is large.
        """
        lazy = not fresh and (is_large(state) if lazy is None else lazy)
        empty = fresh or lazy
        context = merge_tree_context(state, () if empty else None)
        return cls(state, context, {} if empty else bucket_states(state), lazy, counts or {})

    def load(self, slots: Collection[Slot]) -> None:
        """Load buckets to write to, unless they are loaded; of a partitioned table all those of their partitions.

        Postponed rows need none.
        """
        states: dict[Slot, BucketState] = {}
        wanted = {slot for slot in slots if slot[1] != POSTPONE_BUCKET} if self.lazy else set()
        if self.context.schema.partition_keys:
            partitions = {partition for partition, _ in wanted} - self._partitions
            if partitions:
                self._partitions |= partitions
                states = bucket_states(self.state, partitions=partitions)
        elif not wanted <= self._buckets:
            states = bucket_states(self.state, wanted - self._buckets)
            self._buckets |= wanted
        if not states:
            return
        self.states |= states
        # Writers created from now on need the schemas of these files; earlier ones do not.
        schemas = merge_tree_context(self.state, [f for b in states.values() for f in b.files]).schemas
        self.context = replace(self.context, schemas={**self.context.schemas, **schemas})

    def __getitem__(self, slot: Slot) -> BucketState:
        """Return a bucket to write to; it must be loaded.  Raises as :func:`bucket_state`."""
        return bucket_state(self.states, self.counts.get(slot[0], self.context.schema.num_buckets), slot)


def hash_index_states(state: TableState) -> dict[Slot, BucketState]:
    """Return the buckets of a table that have a HASH index, without their files: enough to assign rows to buckets."""
    total = state.schema.num_buckets
    return {
        (i.partition, i.bucket): BucketState(i.partition, i.bucket, total, hashes=i)
        for i in index_entries(state.table_files, state.snapshot)
        if i.index_type == HASH
    }


# --- reading a bucket's files -----------------------------------------------------------------------------------------

POSITION = ROW_INDEX
"""The column of a row's physical position in its file."""


class BucketReader:
    """Reads files of one bucket under the table's schema; ``vectors`` are the deletion vectors by data file name."""

    def __init__(
        self, context: MergeTreeContext, store: Store, partition: bytes, vectors: Mapping[str, DeletionVector]
    ) -> None:
        self.schema = context.schema
        self.store = store
        self.vectors = vectors
        self.counts = ReadCounts()
        self.keys = tuple(f.name for f in key_fields(context.schema))
        self._context = context
        self._partitions = PartitionReader(context.schema, context.paths)
        self._values = self._partitions.values(partition)
        self._key_ranges = KeyRanges(context.schema)
        self._extended: dict[int, TableSchema] = {}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All stored columns: ``_SEQUENCE_NUMBER``, ``_VALUE_KIND``, the table's columns."""
        return (*(f.name for f in SYSTEM_FIELDS), *self.schema.field_names)

    def file_schema(self, entry: ManifestEntry) -> TableSchema:
        """Return the schema that a file was written with; raises :class:`CorruptError` if it does not exist."""
        number = entry.file.schema_id
        if number == self.schema.id:
            return self.schema
        schema = self._context.schemas.get(number)
        if schema is None:
            raise CorruptError(
                f"data file {entry.file.file_name} was written with schema {number}, which does not exist"
            )
        return schema

    def path(self, entry: ManifestEntry) -> str:
        """Return the path of a file."""
        return self._partitions.data_path(entry)

    def task(self, entry: ManifestEntry, selection: Selection) -> FileTask:
        """Return the task that reads a file's rows; ``selection`` holds physical positions."""
        file = entry.file
        return FileTask(
            self.path(entry),
            file.file_size,
            file.row_count,
            entry.bucket,
            self._values,
            selection,
            self._with_system(self.file_schema(entry)),
        )

    def read(
        self, entry: ManifestEntry, columns: Sequence[str], selection: Selection | None = None, *, deleted: bool = False
    ) -> Iterator[pa.Table]:
        """Yield rows of a file in its order.

        ``columns`` may name ``_SEQUENCE_NUMBER``, ``_VALUE_KIND`` and :data:`POSITION` beside the table's columns.
        ``deleted``: include rows that the file's deletion vector marks.  Raises :class:`CorruptError` and
        :class:`NotFound`, naming the file.
        """
        rows = selection or Selection.all(True)
        vector = self.vectors.get(entry.file.file_name)
        if vector is not None and not deleted:
            rows = rows.minus(vector.rows, entry.file.row_count)
        if rows.is_empty:
            return
        request = ReadRequest(self._with_system(self.schema), tuple(columns), None)
        task = self.task(entry, rows)
        try:
            yield from read_file(self.store, task, request, self.counts)
        except BitlakeError as e:
            raise _with_path(e, task.path) from e

    def key_range(self, entry: ManifestEntry) -> KeyRange:
        """Return the smallest and largest key of a file as physical values; raises :class:`CorruptError`."""
        return self._key_ranges(entry)

    def key_ends(self, entry: ManifestEntry) -> tuple[Key, Key]:
        """Return the key range of a file as keys of :class:`bitlake.merge.keys.SortedKeys`."""
        fields = key_fields(self.schema)
        low, high = (
            SortedKeys.of([physical_array(f, [v]) for f, v in zip(fields, end, strict=True)]).at(0)
            for end in self.key_range(entry)
        )
        return low, high

    def _with_system(self, schema: TableSchema) -> TableSchema:
        """The schema with the system columns, which are mapped by id like any other column."""
        extended = self._extended.get(schema.id)
        if extended is None:
            extended = self._extended[schema.id] = replace(schema, fields=(*schema.fields, *SYSTEM_FIELDS))
        return extended


def _with_path(error: BitlakeError, path: str) -> BitlakeError:
    """The error with the path of its file."""
    if isinstance(error, CorruptError):
        return error if error.path else error.within(path)
    if path in str(error) or not isinstance(error, NotFound | InvalidRequest):
        return error
    return type(error)(f"{error} ({path})")
