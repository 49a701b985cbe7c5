"""Data file writers: rows become files of a table's format that roll at ``target-file-size``, with statistics and
indexes.

:class:`RollingWriter` writes the rows of one partition and bucket, and builds the indexes of each file in one pass;
subclasses add paths and manifest entries (:class:`DataFileWriter` here, for append tables;
:mod:`bitlake.mergetree.key_value_file`).  Order of writes: the data file, then its ``.index`` file; nothing refers to
either before a commit does.  A thread builds the indexes while the rows are encoded.  Memory: one row group, as many
bytes of rows that wait to be indexed, and the state of the index builders.

:class:`GroupWriters` holds the writers of many partitions and buckets, and bounds how many have an open file.
:class:`DataFileFactory` forms the path and the manifest entry of each file.  :func:`indexed_columns` reads back the
columns from which indexes of finished files are built.  :func:`rows_per_file` measures bytes per row on the table's
newest files, or guesses them from the column types for a table's first write.
"""

from __future__ import annotations

import abc
import contextlib
import resource
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import InvalidRequest, StorageUnavailable
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.fileindex.registry import (
    IndexBuilder,
    IndexSpec,
    UnwrittenIndex,
    known_index_type,
    usable_indexes,
    warn_of_unwritten,
)
from bitlake.fileindex.source import IndexSource, index_source
from bitlake.formats.conform import cast_column, take_rows
from bitlake.formats.file_format import FileWriter, format_of, open_writer, reader_for
from bitlake.formats.parquet import decode
from bitlake.formats.parquet.write import PAGE_BYTES, WrittenFile
from bitlake.io import Store
from bitlake.io.local import failure
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, FileSource, ManifestEntry
from bitlake.metadata.paths import TablePaths, index_file_name, partition_path
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import build_stats, stats_modes
from bitlake.progress import count_rows
from bitlake.schema.data_paths import DataPaths
from bitlake.snapshot.partitions import newest_files
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files
from bitlake.types import AtomicType, DataField, DataType, Root, RowType, arrow_field
from bitlake.types.datatypes import STRINGS, inner_types

# --- rolling files ----------------------------------------------------------------------------------------------------

_WRITE_ROWS = 64 * 1024
_LEAST_ROWS = 1024
_BACKGROUND_BYTES = 1 << 20
"""Rows of fewer bytes are indexed by the calling thread: starting a thread takes longer than it saves."""


def store_index(
    store: Store, schema: TableSchema, data_path: str, index_file: str, index: bytes
) -> tuple[tuple[str, ...], bytes | None]:
    """Embed an index, or write it beside its data file if it is too large; returns (extra files, embedded bytes)."""
    if not index:
        return (), None
    if len(index) <= schema.opts.of(opt.INDEX_THRESHOLD):
        return (), index
    store.write(f"{data_path.rsplit('/', 1)[0]}/{index_file}", index)
    return (index_file,), None


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Raise errors of format writers as ours, naming the file: Arrow raises plain OSError, and names no path."""
    try:
        yield
    except StorageUnavailable as e:
        if path in str(e):
            raise
        raise type(e)(f"cannot write {path}: {e}") from e
    except OSError as e:
        raise failure("write", path, e) from e


@dataclass(frozen=True, slots=True)
class FileShape:
    """The shape of new files: columns, format, sizes in bytes, and indexes.

    ``fields`` are the columns stored, ``indexed`` those that ``indexes`` may name.
    """

    fields: Sequence[DataField]
    indexed: Sequence[DataField]
    indexes: Sequence[IndexSpec]
    file_format: str
    compression: str
    level: int
    target: int
    most_rows: int | None
    group_bytes: int
    page_bytes: int
    page_rows: int

    @classmethod
    def of(cls, schema: TableSchema) -> FileShape:
        """Return the shape of files that hold a table's rows as they are."""
        options = schema.opts
        target = target_file_size(schema)
        return cls(
            schema.fields,
            schema.fields,
            usable_indexes(schema.options, schema.fields),
            options.of(opt.FILE_FORMAT).lower(),
            options.of(opt.FILE_COMPRESSION),
            options.of(opt.ZSTD_LEVEL),
            target,
            options.of(opt.TARGET_FILE_ROWS),
            max(1 << 20, min(options.of(opt.FILE_BLOCK_SIZE) or 128 << 20, target)),
            options.of(opt.PARQUET_PAGE_SIZE) or PAGE_BYTES,
            page_rows(schema),
        )


class _BackgroundIndexes:
    """Builds a file's indexes in a thread while the calling thread encodes its rows: both release Python's lock.

    Mutable.  Small batches are indexed by the calling thread.  At most ``most_bytes`` of rows wait for the thread.
    Errors of the thread are raised by a later call.
    """

    def __init__(self, builder: IndexBuilder, most_bytes: int) -> None:
        self.builder = builder
        self._most_bytes = most_bytes
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows, in order."""
        size = rows.nbytes
        if self._pool is None:
            if size < _BACKGROUND_BYTES or not self.builder.index_count:
                self.builder.add(rows)
                return
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="bitlake-index")
        self._waiting.append((self._pool.submit(self.builder.add, rows), size))
        self._bytes += size
        while self._bytes > self._most_bytes or self._waiting[0][0].done():
            self._take()
            if not self._waiting:
                break

    def finish(self) -> Callable[[], bytes]:
        """Begin to finish the indexes; return a function that waits for the container's bytes."""
        if self._pool is None:
            return lambda: self.builder.finish(checksums=True)
        container = self._pool.submit(self.builder.finish, checksums=True)

        def wait() -> bytes:
            while self._waiting:
                self._take()
            index = container.result()
            self.stop()
            return index

        return wait

    def stop(self) -> None:
        """End the thread; rows that wait for it are not indexed."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _take(self) -> None:
        future, size = self._waiting.popleft()
        future.result()
        self._bytes -= size


class RollingWriter(abc.ABC):
    """Writes rows into files of about ``shape.target`` bytes.  Mutable, for one thread.

    A context manager: leaving it by an exception deletes every file it wrote.
    """

    def __init__(self, store: Store, shape: FileShape, names: Iterator[str], table: str) -> None:
        """``table``: the table's path, for messages."""
        self._store = store
        self._table = table
        self._shape = shape
        self._names = names
        self._entries: list[ManifestEntry] = []
        self._written_paths: list[str] = []
        self._writer: FileWriter | None = None
        self._output: Any = None
        self._indexes: _BackgroundIndexes | None = None
        self._name = ""
        self.problems: list[UnwrittenIndex] = []
        """Indexes that could not be built, and why."""

    @abc.abstractmethod
    def _path(self, name: str) -> str:
        """Return the full path of a new file."""

    @abc.abstractmethod
    def _entry(self, name: str, written: WrittenFile, index: bytes) -> ManifestEntry:
        """Return the manifest entry of the file that was just finished."""

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Return rows as the open file stores them."""
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def write(self, table: pa.Table) -> None:
        """Add rows, opening and finishing files as they fill."""
        shape = self._shape
        # The steps are small, so that a file ends near its target whatever the size of the batches.
        step = max(_LEAST_ROWS, min(_WRITE_ROWS, shape.target * table.num_rows // max(1, 8 * table.nbytes)))
        for start in range(0, table.num_rows, step):
            part = table.slice(start, step)
            while part.num_rows:
                if self._writer is None:
                    self._open()
                assert self._writer is not None and self._indexes is not None
                room = part.num_rows if shape.most_rows is None else shape.most_rows - self._writer.row_count
                head, part = part.slice(0, room), part.slice(room)
                with _writing(self._written_paths[-1]):
                    self._writer.write(self._stored(head))
                self._indexes.add(head)
                count_rows(written=head.num_rows)
                full = shape.most_rows is not None and self._writer.row_count >= shape.most_rows
                if full or self._writer.bytes_written >= shape.target:
                    self._close()

    def roll(self) -> None:
        """Finish the open file, if there is one; the next rows open another."""
        if self._writer is not None:
            self._close()

    def finish(self) -> list[ManifestEntry]:
        """Finish the open file and return the entries of all files."""
        self.roll()
        return self._entries

    def abort(self) -> None:
        """Delete every file of this writer."""
        if self._indexes is not None:
            self._indexes.stop()
        if self._output is not None:
            with contextlib.suppress(OSError, StorageUnavailable):
                getattr(self._output, "discard", self._output.close)()
            self._writer = self._output = None
        discard_files(self._store, [p for path in self._written_paths for p in (path, index_file_name(path))])

    def _open(self) -> None:
        self._name = next(self._names)
        path = self._path(self._name)
        self._written_paths.append(path)
        self._output = self._store.open_output(path)
        shape = self._shape
        with _writing(path):
            self._writer = open_writer(
                shape.file_format,
                self._output,
                shape.fields,
                compression=shape.compression,
                level=shape.level,
                group_bytes=shape.group_bytes,
                page_bytes=shape.page_bytes,
                page_rows=shape.page_rows,
                clustered=[spec.column for spec in shape.indexes if _has_clusters(spec)],
            )
        self._indexes = _BackgroundIndexes(IndexBuilder(shape.indexes, shape.indexed), shape.group_bytes)

    def _close(self) -> None:
        assert self._writer is not None and self._indexes is not None
        index = self._indexes.finish()
        with _writing(self._written_paths[-1]):
            written = self._writer.close()
            self._output.close()
        container = index()
        problems = self._indexes.builder.problems_of(self._name)
        warn_of_unwritten(self._table, problems)
        self.problems += problems
        entry = self._entry(self._name, written, container)
        self._writer = self._output = self._indexes = None
        self._entries.append(entry)


class GroupWriters:
    """The writers of groups of rows (partitions and buckets), of which a bounded number have an open file.

    The first groups keep a file open until the end: as many as a quarter of the files that this process may open, at
    most 256.  Rows of the others wait in memory until they have ``held`` bytes, then each of these groups gets a
    finished file.  Mutable, for one thread.
    """

    def __init__(self, held: int) -> None:
        self._most_bytes = held
        self._most_open = _most_open()
        self._writers: dict[Hashable, RollingWriter] = {}
        self._open: set[Hashable] = set()
        self._held: dict[Hashable, list[pa.Table]] = {}
        self._bytes = 0

    def write(self, group: Hashable, rows: pa.Table, new_writer: Callable[[], RollingWriter]) -> None:
        """Add rows of a group, whose first rows make its writer."""
        writer = self._writers.get(group)
        if writer is None:
            writer = self._writers[group] = new_writer()
        if group in self._open or len(self._open) < self._most_open:
            self._open.add(group)
            writer.write(rows)
            return
        # Copied, because a slice keeps all rows of its batch in memory.
        copied = take_rows(rows, pa.array(np.arange(rows.num_rows)))
        self._held.setdefault(group, []).append(copied)
        self._bytes += copied.nbytes
        if self._bytes > self._most_bytes:
            self._write_held()

    def _write_held(self) -> None:
        for group, tables in self._held.items():
            writer = self._writers[group]
            writer.write(pa.concat_tables(tables))
            writer.roll()
        self._held, self._bytes = {}, 0

    def finish(self) -> dict[Hashable, list[ManifestEntry]]:
        """Finish all files; return the entries of each group's files, in the order in which groups and rows came."""
        self._write_held()
        return {group: writer.finish() for group, writer in self._writers.items()}

    @property
    def problems(self) -> list[UnwrittenIndex]:
        """Indexes that could not be built, and why."""
        return [p for writer in self._writers.values() for p in writer.problems]

    def abort(self) -> None:
        """Delete every file of every group."""
        for writer in self._writers.values():
            writer.abort()


_MOST_OPEN = 256
"""More open files take memory for row groups that are small anyway."""


def _most_open() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_OPEN if allowed == resource.RLIM_INFINITY else max(1, min(_MOST_OPEN, allowed // 4))


def _has_clusters(spec: IndexSpec) -> bool:
    """Whether pages should begin and end with clusters of equal values.  Indexes of text look up parts of values."""
    index_type = known_index_type(spec.index_type)
    return index_type.selects_rows and not index_type.tests_text


# --- sizes of files and pages -----------------------------------------------------------------------------------------

_VALUE_BYTES = {
    Root.BOOLEAN: 0.2,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 3,
    Root.DATE: 2,
    Root.TIME: 3,
    Root.FLOAT: 4,
    Root.BIGINT: 5,
    Root.DOUBLE: 7,
    Root.DECIMAL: 6,
    Root.TIMESTAMP: 5,
    Root.TIMESTAMP_LTZ: 5,
}
"""Compressed bytes of a value by type, measured on realistic tables.  Only a table's first write uses them; a staged
file that turns out far too large is split (:mod:`bitlake.write.register_files`)."""
_TEXT_BYTES = 12.0
_CAUTION = 3.0
"""Divisor of the guessed row width: repeated values compress well, and a file that is too large is split, while many
that are too small stay."""
SCAN_PAGE_ROWS = 20_000
"""Rows of a page that is only scanned: Parquet (Java)'s default.  With 4,096 rows Spark's reader takes 5 % longer for
TPC-H's query 1 and 25 % for query 6: small pages pay off only where an index or a key selects single pages."""
_APPEND_TARGET = 256 << 20
_KEYED_TARGET = 128 << 20
_ENOUGH_ROWS = 10_000
"""Rows from which files show how wide a row is."""
_MIN_ROWS = 1_000


def target_file_size(schema: TableSchema) -> int:
    """Return the size in bytes at which a table's data files roll."""
    return opt.Options(schema.options).of(opt.TARGET_FILE_SIZE) or (
        _KEYED_TARGET if schema.primary_keys else _APPEND_TARGET
    )


def page_rows(schema: TableSchema) -> int:
    """Return the rows of a Parquet page: the table's option, else fewer where an index or a key selects pages."""
    selective = bool(schema.primary_keys) or bool(usable_indexes(schema.options, schema.fields))
    return opt.Options(schema.options).of(opt.PARQUET_PAGE_ROWS) or (PAGE_ROWS if selective else SCAN_PAGE_ROWS)


def rows_per_file(state: TableState) -> int:
    """Return the rows that fill a file of this table to about its target size, within its row limit."""
    guess = sum(_value_bytes(f.type) for f in state.schema.fields) / _CAUTION
    width = bytes_per_row(newest_files(state, 100)) or guess
    rows = max(_MIN_ROWS, int(target_file_size(state.schema) / max(width, 0.5)))
    row_limit = opt.Options(state.schema.options).of(opt.TARGET_FILE_ROWS)
    return rows if row_limit is None else min(row_limit, rows)


def bytes_per_row(entries: Sequence[ManifestEntry]) -> float | None:
    """Return the average bytes of a row in files; None if they hold fewer than 10,000 rows."""
    rows = sum(e.file.row_count for e in entries)
    return sum(e.file.file_size for e in entries) / rows if rows >= _ENOUGH_ROWS else None


def _value_bytes(data_type: DataType) -> float:
    if isinstance(data_type, AtomicType):
        return _VALUE_BYTES.get(data_type.root, _TEXT_BYTES)
    return (1 if isinstance(data_type, RowType) else 4) * sum(map(_value_bytes, inner_types(data_type)))


# --- data files of append tables --------------------------------------------------------------------------------------

INDEX_ROWS = 128 * 1024


def source_of(spec: IndexSpec, fields: Sequence[DataField]) -> IndexSource:
    """Return what an index is of, over some columns.

    Raises :class:`InvalidRequest` if one of them does not exist.
    """
    source = index_source(spec.column, fields)
    if source is None:
        raise InvalidRequest(f"index '{spec.index_type}' names column '{spec.column}', which does not exist")
    return source


def source_columns(specs: Sequence[IndexSpec], fields: Sequence[DataField]) -> list[str]:
    """Return the columns that building these indexes reads, each once."""
    return list(dict.fromkeys(column for s in specs for column in source_of(s, fields).columns))


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
    batch_rows: int = INDEX_ROWS,
    use_threads: bool = True,
) -> Iterator[pa.Table]:
    """Yield batches of some columns of a data file of any format, as index builders take them.

    ``fields`` are the file's.  Without ``use_threads`` Parquet is decoded in the calling thread.
    """
    types = {f.name: arrow_field(f).type for f in fields if f.name in columns}
    with store.open_input(path) as source:
        if format_of(path) == "parquet":
            texts = _text_columns(columns, fields)
            for batch in decode.read_columns(
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
        super().__init__(factory.store, shape, names, factory.paths.root)
        self._factory = factory
        self._partition = partition
        self._bucket = bucket

    def _path(self, name: str) -> str:
        return self._factory.path(self._partition, self._bucket, name)

    def _entry(self, name: str, written: WrittenFile, index: bytes) -> ManifestEntry:
        return self._factory.entry(self._partition, self._bucket, name, written, index)
