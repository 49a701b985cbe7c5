"""Data files of append tables: rows as they are, in the table's file format, with statistics and file indexes.

:class:`DataFileWriter` writes the rows of one partition and bucket, rolling files at the target size.
:class:`DataFileFactory` forms the path and the manifest entry of each.  :func:`indexed_columns` reads back the columns
from which indexes of finished files are built.  Memory: one row group, and the state of the index builders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import InvalidRequest
from bitlake.fileindex.registry import IndexSpec, indexed_type
from bitlake.formats.conform import cast_column
from bitlake.formats.parquet import scan
from bitlake.formats.parquet.write import WrittenFile
from bitlake.formats.reader import format_of, reader_for
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, FileSource, ManifestEntry
from bitlake.metadata.partition import partition_path
from bitlake.metadata.paths import TablePaths, index_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import build_stats, stats_modes
from bitlake.schema.data_paths import DataPaths
from bitlake.types import AtomicType, DataField, arrow_field
from bitlake.types.datatypes import STRINGS
from bitlake.write.rolling_files import FileShape, RollingWriter, store_index

_INDEX_ROWS = 128 * 1024


def source_column(spec: IndexSpec, fields: Sequence[DataField]) -> tuple[str, str | None]:
    """Return the column that an index reads and, for an index of a map key, that key.

    Raises :class:`InvalidRequest` if the column does not exist.
    """
    column = indexed_type(spec.column, fields)
    if column is None:
        raise InvalidRequest(f"index '{spec.index_type}' names column '{spec.column}', which does not exist")
    return column[0].name, column[1]


def source_columns(specs: Sequence[IndexSpec], fields: Sequence[DataField]) -> list[str]:
    """Return the columns that building these indexes reads, each once."""
    return list(dict.fromkeys(source_column(s, fields)[0] for s in specs))


def _text_columns(names: Sequence[str], fields: Sequence[DataField]) -> list[str]:
    """Return the text columns among ``names``: read as dictionaries, each distinct value is hashed and sorted once."""
    texts = {f.name for f in fields if isinstance(f.type, AtomicType) and f.type.root in STRINGS}
    return [n for n in names if n in texts]


def indexed_columns(
    store: Store,
    path: str,
    columns: Sequence[str],
    fields: Sequence[DataField],
    *,
    batch_rows: int = _INDEX_ROWS,
    use_threads: bool = True,
) -> Iterator[pa.Table]:
    """Yield batches of some columns of a data file of any format, as index builders take them.

    ``fields`` are the file's.  Without ``use_threads`` Parquet is decoded in the calling thread.
    """
    types = {f.name: arrow_field(f).type for f in fields if f.name in columns}
    with store.open_input(path) as source:
        if format_of(path) == "parquet":
            texts = _text_columns(columns, fields)
            for batch in scan.read_columns(
                source, columns, batch_size=batch_rows, read_dictionary=texts, use_threads=use_threads
            ):
                yield pa.table(batch)
            return
        for batch in reader_for(path)(source, columns, batch_size=batch_rows):
            yield pa.table({n: cast_column(batch.column(n), types[n]) for n in columns})


def file_format(schema: TableSchema) -> str:
    """Return the format of a table's new data files, which is also the extension of their names."""
    name: str = opt.Options(schema.options).get(opt.FILE_FORMAT)
    return name.lower()


@dataclass(frozen=True, slots=True)
class DataFileFactory:
    """Forms paths and manifest entries of a table's new data files."""

    paths: TablePaths
    schema: TableSchema
    store: Store

    def path(self, partition: tuple[Any, ...], bucket: int, name: str) -> str:
        """Return the full path of a new file."""
        return self._locate(partition, bucket, name)[0]

    def _locate(self, partition: tuple[Any, ...], bucket: int, name: str) -> tuple[str, str | None]:
        """The full path of a new file, and its external path if it lies outside the table's folder."""
        options = opt.Options(self.schema.options)
        folder = partition_path(
            self.schema.partition_fields,
            partition,
            default_name=options.get(opt.PARTITION_DEFAULT_NAME),
            legacy=options.get(opt.PARTITION_LEGACY_NAME),
        )
        return DataPaths(self.paths, self.schema).new(folder, bucket, name)

    def entry(
        self, partition: tuple[Any, ...], bucket: int, name: str, written: WrittenFile, index: bytes
    ) -> ManifestEntry:
        """Return the ADD entry of a finished file; an index too large to embed is written beside the file first."""
        schema = self.schema
        options = opt.Options(schema.options)
        stats, columns = build_stats(
            schema.fields, written.mins, written.maxs, written.null_counts, stats_modes(schema)
        )
        path, external = self._locate(partition, bucket, name)
        extra, embedded = store_index(self.store, schema, path, index_file_name(name), index)
        meta = DataFileMeta(
            file_name=name,
            file_size=written.size,
            row_count=written.row_count,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=stats,
            min_sequence_number=0,
            max_sequence_number=written.row_count - 1,
            schema_id=schema.id,
            level=0,
            extra_files=extra,
            creation_time=_clock.local_ms(),
            delete_row_count=0,
            embedded_index=embedded,
            file_source=FileSource.APPEND,
            value_stats_cols=columns,
            external_path=external,
            first_row_id=None,
            write_cols=None,
        )
        types = [f.type for f in schema.partition_fields]
        total = options.get(opt.BUCKET)
        raw = encode_row_with_arity(types, partition)
        return ManifestEntry(EntryKind.ADD, raw, bucket, total if total > 0 else -1, meta)


class DataFileWriter(RollingWriter):
    """Writes rows of one partition and bucket of an append table into files of about ``target-file-size``."""

    def __init__(
        self,
        factory: DataFileFactory,
        partition: tuple[Any, ...],
        bucket: int,
        names: Iterator[str],
        group_bytes: int | None = None,
    ) -> None:
        """``group_bytes``: the most Arrow memory of a row group, in bytes; None: the table's option decides."""
        shape = FileShape.of(factory.schema)
        if group_bytes is not None:
            shape = replace(shape, group_bytes=min(shape.group_bytes, group_bytes))
        super().__init__(factory.store, shape, names)
        self._factory = factory
        self._partition = partition
        self._bucket = bucket

    def _path(self, name: str) -> str:
        return self._factory.path(self._partition, self._bucket, name)

    def _entry(self, name: str, written: WrittenFile, index: bytes) -> ManifestEntry:
        return self._factory.entry(self._partition, self._bucket, name, written, index)
