"""Reading the files of one bucket as stored: with system columns, without deleted rows, in the order of the file.

Compaction and lookup read through :class:`BucketReader`.  Older schemas are mapped to the table's current one; of
selected rows only their pages are read.  Memory: a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.interval_partition import KeyRange, KeyRanges
from bitlake.merge.keys import Key, SortedKeys
from bitlake.mergetree.commit_message import MergeTreeContext
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.metadata_pruning import physical_array
from bitlake.scan.reader import ROW_INDEX, ReadRequest, read_file
from bitlake.schema.merge_spec import SYSTEM_FIELDS, key_fields
from bitlake.snapshot.partitions import PartitionReader
from bitlake.tableindex.deletion_vectors import DeletionVector


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
            rows = _without(rows, vector.rows, entry.file.row_count)
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


POSITION = ROW_INDEX
"""The column of a row's physical position in its file."""


def _without(selection: Selection, deleted: BitMap, row_count: int) -> Selection:
    if selection.rows is None and not selection.is_empty:
        every = BitMap()
        every.add_range(0, row_count)
        return Selection.of(every - deleted, True)
    return selection.minus(deleted, row_count)


def _with_path(error: BitlakeError, path: str) -> BitlakeError:
    """The error with the path of its file."""
    if isinstance(error, CorruptError):
        return error if error.path else error.within(path)
    if path in str(error) or not isinstance(error, NotFound | InvalidRequest):
        return error
    return type(error)(f"{error} ({path})")
