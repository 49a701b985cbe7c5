"""Making data files of append tables: rows as they are, in the table's file format, with statistics and indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.deletion import discard_files
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
from bitlake.write.rolling_files import FileShape, RollingWriter, place_index

_INDEX_ROWS = 128 * 1024


def source_column(spec: IndexSpec, fields: Sequence[DataField]) -> tuple[str, str | None]:
    """The column that an index reads, and the map key in it that it is of, if any."""
    known = indexed_type(spec.column, fields)
    if known is None:
        raise InvalidRequest(f"index '{spec.index_type}' is of column '{spec.column}', which is not there")
    return known[0].name, known[1]


def source_columns(specs: Sequence[IndexSpec], fields: Sequence[DataField]) -> list[str]:
    """The columns that building these indexes reads, each once."""
    return list(dict.fromkeys(source_column(s, fields)[0] for s in specs))


def text_columns(names: Sequence[str], fields: Sequence[DataField]) -> list[str]:
    """Those of the columns that are text: read as dictionaries, each distinct value is hashed and sorted once."""
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
    """Rows of these columns of a data file of any format, as index builders take them; ``fields`` are the file's.

    Without ``use_threads`` Parquet is decoded by the thread that asks.
    """
    types = {f.name: arrow_field(f).type for f in fields if f.name in columns}
    with store.open_input(path) as source:
        if format_of(path) == "parquet":
            texts = text_columns(columns, fields)
            for batch in scan.read_columns(
                source, columns, batch_size=batch_rows, read_dictionary=texts, use_threads=use_threads
            ):
                yield pa.table(batch)
            return
        for batch in reader_for(path)(source, columns, batch_size=batch_rows):
            yield pa.table({n: cast_column(batch.column(n), types[n]) for n in columns})


def file_format(schema: TableSchema) -> str:
    """The format of a table's new data files, which is also their names' ending."""
    name: str = opt.Options(schema.options).get(opt.FILE_FORMAT)
    return name.lower()


@dataclass(frozen=True, slots=True)
class FileMaker:
    """Forms paths and manifest entries of a table's new data files."""

    paths: TablePaths
    schema: TableSchema
    store: Store

    @classmethod
    def of(cls, paths: TablePaths, schema: TableSchema, store: Store) -> FileMaker:
        """The maker of a table."""
        return cls(paths, schema, store)

    def path(self, partition: tuple[Any, ...], bucket: int, name: str) -> str:
        """The full path of a new file."""
        return self._place(partition, bucket, name)[0]

    def _place(self, partition: tuple[Any, ...], bucket: int, name: str) -> tuple[str, str | None]:
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
        """The ADD entry of a finished file; an index too large to embed is written beside it now."""
        schema = self.schema
        options = opt.Options(schema.options)
        stats, columns = build_stats(
            schema.fields, written.mins, written.maxs, written.null_counts, stats_modes(schema)
        )
        path, external = self._place(partition, bucket, name)
        extra, embedded = place_index(self.store, schema, path, index_file_name(name), index)
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
        maker: FileMaker,
        partition: tuple[Any, ...],
        bucket: int,
        names: Iterator[str],
        group_bytes: int | None = None,
    ) -> None:
        """``group_bytes``: row groups take at most this much Arrow memory; None: as the table's options say."""
        shape = FileShape.of(maker.schema)
        if group_bytes is not None:
            shape = replace(shape, group_bytes=min(shape.group_bytes, group_bytes))
        super().__init__(maker.store, shape, names)
        self._maker = maker
        self._partition = partition
        self._bucket = bucket

    def _path(self, name: str) -> str:
        return self._maker.path(self._partition, self._bucket, name)

    def _entry(self, name: str, written: WrittenFile, index: bytes) -> ManifestEntry:
        return self._maker.entry(self._partition, self._bucket, name, written, index)


__all__ = ["DataFileWriter", "FileMaker", "discard_files", "file_format"]
