"""Making data files: rows in the table's file format, statistics and index in one pass, rolled at ``target-file-size``.

Order of writes: the data file, then its ``.index`` file, and nothing refers to either before a commit does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import InvalidRequest, StorageUnavailable
from bitlake.fileindex.build import IndexBuilder
from bitlake.fileindex.registry import IndexSpec, indexed_type, parse_index_options
from bitlake.formats import parquet_scan
from bitlake.formats.column_bounds import physical_values
from bitlake.formats.parquet_write import PAGE_BYTES, PAGE_ROWS, WrittenFile
from bitlake.formats.reader import format_of, reader_for
from bitlake.formats.writer import FileWriter, open_writer
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, FileSource, ManifestEntry
from bitlake.metadata.partition import partition_path
from bitlake.metadata.paths import TablePaths, index_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import build_stats, stats_modes
from bitlake.storage import Store
from bitlake.table.sizing import target_file_size
from bitlake.types import AtomicType, DataField, arrow_field
from bitlake.types.datatypes import STRINGS

log = logging.getLogger("bitlake")

_WRITE_ROWS = 64 * 1024
_LEAST_ROWS = 1024
_INDEX_ROWS = 128 * 1024


def arrow_to_physical(array: pa.Array | pa.ChunkedArray, field: DataField) -> list[Any]:
    """Values of a column as the physical values of :mod:`bitlake.predicate.tree`; for few values only."""
    return physical_values(array)


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


def indexed_columns(store: Store, path: str, columns: Sequence[str], fields: Sequence[DataField]) -> Iterator[pa.Table]:
    """Rows of these columns of a data file of any format, as index builders take them; ``fields`` are the file's."""
    types = {f.name: arrow_field(f).type for f in fields if f.name in columns}
    with store.open_input(path) as source:
        if format_of(path) == "parquet":
            texts = text_columns(columns, fields)
            for batch in parquet_scan.read_columns(source, columns, batch_size=_INDEX_ROWS, read_dictionary=texts):
                yield pa.table(batch)
            return
        for batch in reader_for(path)(source, columns, batch_size=_INDEX_ROWS):
            yield pa.table({n: batch.column(n).cast(types[n]) for n in columns})


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
        options = opt.Options(self.schema.options)
        folder = partition_path(
            self.schema.partition_fields,
            partition,
            default_name=options.get(opt.PARTITION_DEFAULT_NAME),
            legacy=options.get(opt.PARTITION_LEGACY_NAME),
        )
        return f"{self.paths.bucket_dir(folder, bucket)}/{name}"

    def entry(
        self, partition: tuple[Any, ...], bucket: int, name: str, written: WrittenFile, index: bytes
    ) -> ManifestEntry:
        """The ADD entry of a finished file; an index too large to embed is written beside it now."""
        schema = self.schema
        options = opt.Options(schema.options)
        stats, columns = build_stats(
            schema.fields, written.mins, written.maxs, written.null_counts, stats_modes(schema)
        )
        extra, embedded = self.place_index(self.path(partition, bucket, name), index_file_name(name), index)
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
            external_path=None,
            first_row_id=None,
            write_cols=None,
        )
        types = [f.type for f in schema.partition_fields]
        total = options.get(opt.BUCKET)
        raw = encode_row_with_arity(types, partition)
        return ManifestEntry(EntryKind.ADD, raw, bucket, total if total > 0 else -1, meta)

    def place_index(self, data_path: str, index_file: str, index: bytes) -> tuple[tuple[str, ...], bytes | None]:
        """Embed an index or write it beside its data file; returns (extra files, embedded bytes)."""
        if not index:
            return (), None
        threshold = opt.Options(self.schema.options).get(opt.INDEX_THRESHOLD)
        if len(index) <= threshold:
            return (), index
        self.store.write(f"{data_path.rsplit('/', 1)[0]}/{index_file}", index)
        return (index_file,), None


def discard_files(store: Store, paths: Iterable[str]) -> None:
    """Delete files that nothing will name, as well as can be: the error that led here must not be hidden by another."""
    for path in paths:
        with contextlib.suppress(StorageUnavailable):
            store.delete(path)


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Arrow's own files raise the operating system's errors, when a disk is full for example."""
    try:
        yield
    except OSError as e:
        raise StorageUnavailable(f"cannot write {path}: {e.strerror or e}") from e


class DataFileWriter:
    """Writes rows of one partition and bucket into files of about ``target-file-size``.

    A context manager: leaving it by an exception deletes every file it made.
    """

    def __init__(self, maker: FileMaker, partition: tuple[Any, ...], bucket: int, names: Iterator[str]) -> None:
        self._maker = maker
        self._partition = partition
        self._bucket = bucket
        self._names = names
        options = opt.Options(maker.schema.options)
        self._target = target_file_size(maker.schema)
        self._most_rows = options.of(opt.TARGET_FILE_ROWS)
        self._group_bytes = options.of(opt.FILE_BLOCK_SIZE) or 128 << 20
        self._page_bytes = options.of(opt.PARQUET_PAGE_SIZE) or PAGE_BYTES
        self._page_rows = options.of(opt.PARQUET_PAGE_ROWS) or PAGE_ROWS
        self._compression = options.get(opt.FILE_COMPRESSION)
        self._level = options.get(opt.ZSTD_LEVEL)
        self._specs = parse_index_options(maker.schema.options, maker.schema.fields)
        self._entries: list[ManifestEntry] = []
        self._made: list[str] = []
        self._format = file_format(maker.schema)
        self._writer: FileWriter | None = None
        self._output: Any = None
        self._builder: IndexBuilder | None = None
        self._name = ""
        self.problems: list[str] = []
        """Indexes that files of this writer go without, and why."""

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def write(self, table: pa.Table) -> None:
        """Add rows, opening and finishing files as they fill."""
        # Small enough steps that a file ends near its target, whatever the batches are.
        step = max(_LEAST_ROWS, min(_WRITE_ROWS, self._target * table.num_rows // max(1, 8 * table.nbytes)))
        for start in range(0, table.num_rows, step):
            part = table.slice(start, step)
            while part.num_rows:
                if self._writer is None:
                    self._open()
                assert self._writer is not None and self._builder is not None
                room = part.num_rows if self._most_rows is None else self._most_rows - self._writer.row_count
                head, part = part.slice(0, room), part.slice(room)
                with _writing(self._made[-1]):
                    self._writer.write(head)
                self._builder.add(head)
                full = self._most_rows is not None and self._writer.row_count >= self._most_rows
                if full or self._writer.bytes_written >= self._target:
                    self._close()

    def finish(self) -> list[ManifestEntry]:
        """Finish the open file and return the entries of all."""
        self._close()
        return self._entries

    def abort(self) -> None:
        """Delete everything this writer made."""
        if self._output is not None:
            with contextlib.suppress(OSError):
                self._output.close()
            self._writer = self._output = None
        discard_files(self._maker.store, [p for path in self._made for p in (path, index_file_name(path))])

    def _open(self) -> None:
        self._name = next(self._names)
        path = self._maker.path(self._partition, self._bucket, self._name)
        self._made.append(path)
        self._output = self._maker.store.open_output(path)
        with _writing(path):
            self._writer = open_writer(
                self._format,
                self._output,
                self._maker.schema.fields,
                compression=self._compression,
                level=self._level,
                group_bytes=max(1 << 20, min(self._group_bytes, self._target)),
                page_bytes=self._page_bytes,
                page_rows=self._page_rows,
            )
        self._builder = IndexBuilder(self._specs, self._maker.schema.fields)

    def _close(self) -> None:
        if self._writer is None:
            return
        assert self._builder is not None
        with _writing(self._made[-1]):
            written = self._writer.close()
            self._output.close()
        index = self._builder.finish(checksums=True)
        for problem in self._builder.problems:
            log.warning("%s: %s", self._name, problem)
            self.problems.append(f"{self._name}: {problem}")
        entry = self._maker.entry(self._partition, self._bucket, self._name, written, index)
        self._writer = self._output = self._builder = None
        self._entries.append(entry)


__all__ = ["DataFileWriter", "FileMaker", "arrow_to_physical", "discard_files", "file_format"]
