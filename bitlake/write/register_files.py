"""A Parquet file that an engine wrote into a staging folder becomes a data file of a table.

Statistics come from its footer, partition and bucket from its first row (the engine grouped rows by them), indexes from
the indexed columns alone; then it is renamed into place.  A file far above ``target-file-size`` is split on the way.
Nothing here is visible to readers before the commit that names the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bitlake import _clock
from bitlake.codec.bucket import bucket_of
from bitlake.errors import BitlakeError, CorruptError
from bitlake.fileindex.registry import IndexBuilder, parse_index_options
from bitlake.formats.column_bounds import physical_values
from bitlake.formats.parquet.footer import Footer, read_footer
from bitlake.formats.parquet.scan import read_columns
from bitlake.formats.parquet.statistics import footer_stats
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths, data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.types import arrow_field
from bitlake.write.data_file_writer import (
    DataFileWriter,
    FileMaker,
    file_format,
    indexed_columns,
    source_columns,
)
from bitlake.write.rolling_files import target_file_size

# A file of up to this many times the target is left whole: rewriting it costs more than its size does.
_SPLIT_ABOVE = 2.0
_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished Parquet file waiting in the staging folder."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of a staged file: its entries in the table, and indexes that could not be made, with the reason."""

    entries: tuple[ManifestEntry, ...]
    problems: tuple[str, ...] = ()
    error: BitlakeError | None = None


@dataclass(frozen=True, slots=True)
class AdoptContext:
    """What adopting files into a table needs; the same for all files of a write, and picklable."""

    table: str
    paths: TablePaths
    schema: TableSchema
    writer_id: str
    next_sequence: tuple[tuple[tuple[bytes, int], int], ...]

    @classmethod
    def of(cls, state: TableState, store: Store) -> AdoptContext:
        """The context of a new write to a table."""
        bucketed = opt.Options(state.schema.options).get(opt.BUCKET) > 0
        top: dict[tuple[bytes, int], int] = {}
        if bucketed:
            for e in state.entries():
                key = (e.partition, e.bucket)
                top[key] = max(top.get(key, -1), e.file.max_sequence_number)
        following = tuple((key, last + 1) for key, last in top.items())
        return cls(state.name, state.paths, state.schema, _clock.new_uuid(), following)

    def file_name(self, number: int) -> str:
        """The name of this write's n-th data file."""
        prefix = opt.Options(self.schema.options).get(opt.DATA_FILE_PREFIX)
        return data_file_name(prefix, self.writer_id, number, file_format(self.schema))

    def file_names(self) -> Iterator[str]:
        """The names of this write's data files, one after the other."""
        return map(self.file_name, itertools.count())

    def in_sequence(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Number the rows of new files: a bucket's files go on where its last one ended, others start at 0."""
        following = dict(self.next_sequence)
        bucketed = opt.Options(self.schema.options).get(opt.BUCKET) > 0
        out = []
        for entry in entries:
            key = (entry.partition, entry.bucket)
            start = following.get(key, 0) if bucketed else 0
            end = start + entry.file.row_count - 1
            following[key] = end + 1
            out.append(replace(entry, file=replace(entry.file, min_sequence_number=start, max_sequence_number=end)))
        return out


def try_adopt(store: Store, context: AdoptContext, item: tuple[str, StagedFile]) -> Adopted:
    """:func:`adopt_file`, with its error as a value: the files adopted beside it must still be told, to be removed."""
    try:
        return adopt_file(store, context, item)
    except BitlakeError as e:
        return Adopted((), error=e)


def adopt_file(store: Store, context: AdoptContext, item: tuple[str, StagedFile]) -> Adopted:
    """Turn one staged file into the table's; returns its manifest entries (none without rows).

    ``item`` is the final name and the staged file.  Raises :class:`CorruptError` naming the file when it is not what
    the writer should have made.
    """
    name, staged = item
    try:
        footer = read_footer(lambda offset, length: store.read_range(staged.path, offset, length), staged.size)
        if footer.rows == 0:
            return Adopted(())
        return _adopt(store, context, name, staged, footer)
    except CorruptError as e:
        raise e if e.path else e.within(staged.path) from e


def _adopt(store: Store, context: AdoptContext, name: str, staged: StagedFile, footer: Footer) -> Adopted:
    schema = context.schema
    maker = FileMaker.of(context.paths, schema, store)
    partition, bucket = _place(store, staged.path, context)
    target = target_file_size(schema)
    if staged.size > _SPLIT_ABOVE * target:
        return _split(store, context, maker, name, staged, partition, bucket)
    specs = parse_index_options(schema.options, schema.fields)
    builder = IndexBuilder(specs, schema.fields)
    columns = source_columns(specs, schema.fields)
    if columns:
        for batch in indexed_columns(store, staged.path, columns, schema.fields):
            builder.add(batch)
    mins, maxs, nulls = footer_stats(footer, schema.fields)
    written = WrittenFile(staged.size, footer.rows, tuple(mins), tuple(maxs), tuple(nulls))
    final = maker.path(partition, bucket, name)
    store.rename(staged.path, final)
    entry = maker.entry(partition, bucket, name, written, builder.finish(checksums=True))
    return Adopted((entry,), tuple(f"{name}: {problem}" for problem in builder.problems))


def _place(store: Store, path: str, context: AdoptContext) -> tuple[tuple[object, ...], int]:
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
    context: AdoptContext,
    maker: FileMaker,
    name: str,
    staged: StagedFile,
    partition: tuple[object, ...],
    bucket: int,
) -> Adopted:
    """Write a staged file that is far too large again, as several of about the target size."""
    stem = name.removesuffix(".parquet")

    def names() -> Iterator[str]:
        number = 0
        while True:
            yield f"{stem}-{number}.parquet"
            number += 1

    writer = DataFileWriter(maker, partition, bucket, names())
    columns = [f.name for f in context.schema.fields]
    with writer, store.open_input(staged.path) as source:
        for batch in read_columns(source, columns, batch_size=_BATCH_ROWS):
            writer.write(pa.table(batch))
        return Adopted(tuple(writer.finish()))
