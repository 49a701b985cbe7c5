"""Registering staged files: a Parquet file that an engine wrote into a staging folder becomes a data file of a table.

Statistics come from the footer, partition and bucket from the first row (the engine grouped rows by them), indexes from
the indexed columns alone; once all files of a write have these, they are renamed into place.  A file far above
``target-file-size`` is split: only then are all its columns read.  Nothing is visible to readers before the commit that
names the result.

A task may run twice, in sequence or at once.  So it leaves staged files in place, where the other run expects them, and
the files that it writes either have names of their own (the parts of a split file) or the same bytes (indexes).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bitlake import _clock
from bitlake.codec.bucket import bucket_of
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.fileindex.registry import IndexBuilder, UnwrittenIndex, usable_indexes
from bitlake.formats.parquet.decode import read_columns
from bitlake.formats.parquet.footer import Footer, footer_stats, read_footer
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths, data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.types import arrow_field
from bitlake.types.arrow import physical_values
from bitlake.write import data_file_writer

_SPLIT_ABOVE = 2.0
"""Files up to this multiple of the target size stay whole: splitting costs more than a large file does."""
_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished Parquet file in the staging folder; ``size`` in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """The result of one staged file: its entries in the table, indexes that could not be built and why, or an error.

    ``move``: the path of the staged file and its final path; None for a file that is empty or was split.
    """

    entries: tuple[ManifestEntry, ...]
    problems: tuple[UnwrittenIndex, ...] = ()
    error: BitlakeError | None = None
    move: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RegisterContext:
    """The context of registering files; the same for all files of a write, and picklable.

    ``next_sequence`` holds the next sequence number of each (partition, bucket) of a bucketed table.
    """

    table: str
    paths: TablePaths
    schema: TableSchema
    writer_id: str
    next_sequence: tuple[tuple[tuple[bytes, int], int], ...]

    @classmethod
    def of(cls, state: TableState, store: Store) -> RegisterContext:
        """Return the context of a new write to a table."""
        bucketed = opt.Options(state.schema.options).get(opt.BUCKET) > 0
        highest: dict[tuple[bytes, int], int] = {}
        if bucketed:
            for e in state.entries():
                key = (e.partition, e.bucket)
                highest[key] = max(highest.get(key, -1), e.file.max_sequence_number)
        next_sequence = tuple((key, last + 1) for key, last in highest.items())
        return cls(state.name, state.paths, state.schema, _clock.new_uuid(), next_sequence)

    def file_name(self, number: int) -> str:
        """Return the name of this write's n-th data file."""
        prefix = opt.Options(self.schema.options).get(opt.DATA_FILE_PREFIX)
        return data_file_name(prefix, self.writer_id, number, data_file_writer.file_format(self.schema))

    def file_names(self) -> Iterator[str]:
        """Yield the names of this write's data files."""
        return map(self.file_name, itertools.count())

    def in_sequence(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Number the rows of new files: those of a bucket continue its sequence numbers, others start at 0."""
        next_sequence = dict(self.next_sequence)
        bucketed = opt.Options(self.schema.options).get(opt.BUCKET) > 0
        out = []
        for entry in entries:
            key = (entry.partition, entry.bucket)
            start = next_sequence.get(key, 0) if bucketed else 0
            end = start + entry.file.row_count - 1
            next_sequence[key] = end + 1
            out.append(replace(entry, file=replace(entry.file, min_sequence_number=start, max_sequence_number=end)))
        return out


def try_register_file(store: Store, context: RegisterContext, item: tuple[str, StagedFile]) -> RegisteredFile:
    """Call :func:`register_file` and return its error as a value: the caller needs the other files, to delete them."""
    try:
        return register_file(store, context, item)
    except BitlakeError as e:
        return RegisteredFile((), error=e)


def register_file(store: Store, context: RegisterContext, item: tuple[str, StagedFile]) -> RegisteredFile:
    """Return the manifest entries of one staged file, none if it has no rows; :func:`move_file` moves it afterwards.

    ``item`` is the final name and the staged file.  Raises :class:`CorruptError`, naming the file, if its content does
    not match the table.
    """
    name, staged = item
    try:
        footer = read_footer(lambda offset, length: store.read_range(staged.path, offset, length), staged.size)
        if footer.rows == 0:
            return RegisteredFile(())
        return _register(store, context, name, staged, footer)
    except CorruptError as e:
        raise e if e.path else e.within(staged.path) from e


def move_file(store: Store, move: tuple[str, str]) -> None:
    """Move a registered file into place, unless an earlier run of the task has moved it."""
    source, target = move
    try:
        store.rename(source, target)
    except NotFound:
        if not store.exists(target):
            raise


def _register(store: Store, context: RegisterContext, name: str, staged: StagedFile, footer: Footer) -> RegisteredFile:
    schema = context.schema
    factory = data_file_writer.DataFileFactory(context.paths, schema, store)
    partition, bucket = _partition_and_bucket(store, staged.path, context)
    target = data_file_writer.target_file_size(schema)
    if staged.size > _SPLIT_ABOVE * target:
        return _split(store, context, factory, staged, partition, bucket)
    specs = usable_indexes(schema.options, schema.fields)
    builder = IndexBuilder(specs, schema.fields)
    columns = data_file_writer.source_columns(specs, schema.fields)
    if columns:
        for batch in data_file_writer.indexed_columns(store, staged.path, columns, schema.fields):
            builder.add(batch)
    mins, maxs, nulls = footer_stats(footer, schema.fields)
    written = WrittenFile(staged.size, footer.rows, tuple(mins), tuple(maxs), tuple(nulls))
    entry = factory.entry(partition, bucket, name, written, builder.finish(checksums=True))
    move = (staged.path, factory.path(partition, bucket, name))
    return RegisteredFile((entry,), tuple(builder.problems_of(name)), move=move)


def _partition_and_bucket(store: Store, path: str, context: RegisterContext) -> tuple[tuple[object, ...], int]:
    """The partition values and the bucket of a staged file, from its first row."""
    schema = context.schema
    options = opt.Options(schema.options)
    total = options.get(opt.BUCKET)
    keys = schema.partition_fields
    bucket_fields = [schema.field(k) for k in schema.bucket_keys] if total > 0 else []
    names = list(dict.fromkeys([f.name for f in keys] + [f.name for f in bucket_fields]))
    if not names:
        return (), 0
    with store.open_input(path) as source:
        first = next(iter(read_columns(source, names, batch_size=1)))
    row = {n: first.column(n).slice(0, 1).cast(arrow_field(schema.field(n)).type) for n in names}
    partition = tuple(physical_values(row[f.name])[0] for f in keys)
    bucket = 0
    if bucket_fields:
        types = [f.type for f in bucket_fields]
        function = options.get(opt.BUCKET_FUNCTION)
        bucket = int(bucket_of(types, [row[f.name] for f in bucket_fields], total, function)[0])
    return partition, bucket


def _split(
    store: Store,
    context: RegisterContext,
    factory: data_file_writer.DataFileFactory,
    staged: StagedFile,
    partition: tuple[object, ...],
    bucket: int,
) -> RegisteredFile:
    """Write the rows of a staged file that is far too large into several of about the target size."""
    names = replace(context, writer_id=_clock.new_uuid()).file_names()
    writer = data_file_writer.DataFileWriter(factory, partition, bucket, names)
    columns = [f.name for f in context.schema.fields]
    with writer, store.open_input(staged.path) as source:
        for batch in read_columns(source, columns, batch_size=_BATCH_ROWS):
            writer.write(pa.table(batch))
        return RegisteredFile(tuple(writer.finish()), tuple(writer.problems))
