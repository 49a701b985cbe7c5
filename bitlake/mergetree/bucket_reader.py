"""Reading the live files of one bucket as they are stored, system columns too, without their deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.interval_partition import KeyRange
from bitlake.merge.keys import Key, SortedKeys
from bitlake.mergetree.commit_message import LsmContext
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.metadata_pruning import physical_array
from bitlake.scan.reader import ROW_INDEX, ReadRequest, read_file
from bitlake.schema.merge_spec import SYSTEM_FIELDS, key_fields
from bitlake.snapshot.partitions import PartitionReader
from bitlake.tableindex.deletion_vectors import DeletionVector


class BucketReader:
    """Reads files of one bucket under the table's schema; ``vectors`` are the current ones by data file name."""

    def __init__(
        self, context: LsmContext, store: Store, partition: bytes, vectors: Mapping[str, DeletionVector]
    ) -> None:
        self.schema = context.schema
        self.store = store
        self.vectors = vectors
        self.counts = ReadCounts()
        self.keys = tuple(f.name for f in key_fields(context.schema))
        self._context = context
        self._partitions = PartitionReader(context.schema, context.paths)
        self._values = self._partitions.values(partition)
        self._extended: dict[int, TableSchema] = {}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Everything that is stored of a row: ``_SEQUENCE_NUMBER``, ``_VALUE_KIND``, the table's columns."""
        return (*(f.name for f in SYSTEM_FIELDS), *self.schema.field_names)

    def file_schema(self, entry: ManifestEntry) -> TableSchema:
        """The schema that a file was written with."""
        number = entry.file.schema_id
        if number == self.schema.id:
            return self.schema
        found = self._context.schemas.get(number)
        if found is None:
            raise CorruptError(f"data file {entry.file.file_name} was written with schema {number}, which is not there")
        return found

    def path(self, entry: ManifestEntry) -> str:
        """Where a file is."""
        return self._partitions.data_path(entry)

    def task(self, entry: ManifestEntry, selection: Selection) -> FileTask:
        """What reading a file's rows takes; ``selection`` is of its physical positions."""
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
        """Rows of a file in its order, with these columns (also ``_SEQUENCE_NUMBER``, ``_VALUE_KIND`` and the row's
        position); ``deleted``: those that its vector marks, too.

        Raises :class:`CorruptError` and :class:`NotFound`, naming the file.
        """
        chosen = selection or Selection.all(True)
        vector = self.vectors.get(entry.file.file_name)
        if vector is not None and not deleted:
            chosen = _without(chosen, vector.rows, entry.file.row_count)
        if chosen.is_empty:
            return
        request = ReadRequest(self._with_system(self.schema), tuple(columns), None)
        task = self.task(entry, chosen)
        try:
            yield from read_file(self.store, task, request, self.counts)
        except BitlakeError as e:
            raise _naming(e, task.path) from e

    def key_range(self, entry: ManifestEntry) -> KeyRange:
        """The smallest and the largest key of a file as physical values; raises :class:`CorruptError`."""
        types = [f.type for f in key_fields(self.schema)]
        try:
            return decode_row(types, entry.file.min_key), decode_row(types, entry.file.max_key)
        except CorruptError as e:
            raise CorruptError(f"the key range of data file {entry.file.file_name}: {e.what}", e.offset) from e

    def key_ends(self, entry: ManifestEntry) -> tuple[Key, Key]:
        """The key range of a file as :class:`bitlake.merge.keys.SortedKeys` has keys."""
        fields = key_fields(self.schema)
        low, high = (
            SortedKeys.of([physical_array(f, [v]) for f, v in zip(fields, end, strict=True)]).at(0)
            for end in self.key_range(entry)
        )
        return low, high

    def _with_system(self, schema: TableSchema) -> TableSchema:
        """The schema with the system columns; they are found by id like any other."""
        found = self._extended.get(schema.id)
        if found is None:
            found = self._extended[schema.id] = replace(schema, fields=(*schema.fields, *SYSTEM_FIELDS))
        return found


POSITION = ROW_INDEX
"""The column of a row's physical position in its file."""


def _without(chosen: Selection, gone: BitMap, rows: int) -> Selection:
    if chosen.rows is None and not chosen.is_empty:
        every = BitMap()
        every.add_range(0, rows)
        return Selection.of(every - gone, True)
    return chosen.minus(gone, rows)


def _naming(error: BitlakeError, path: str) -> BitlakeError:
    """The error, telling which file it is about."""
    if isinstance(error, CorruptError):
        return error if error.path else error.within(path)
    if path in str(error) or not isinstance(error, NotFound | InvalidRequest):
        return error
    return type(error)(f"{error} ({path})")
