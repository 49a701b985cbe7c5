"""Rolling files: rows of one partition and bucket go into files that roll at ``target-file-size``.

:class:`RollingWriter` writes each file and builds its indexes in one pass; subclasses add paths and manifest entries
(:mod:`bitlake.write.data_file_writer`, :mod:`bitlake.mergetree.key_value_file`).  Order of writes: the data file, then
its ``.index`` file; nothing refers to either before a commit does.

The second half sizes files: :func:`rows_per_file` measures bytes per row on the table's newest files, or guesses them
from the column types for a table's first write.
"""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from bitlake.deletion import discard_files
from bitlake.errors import StorageUnavailable
from bitlake.fileindex.registry import IndexBuilder, IndexSpec, known_index_type, parse_index_options
from bitlake.formats.parquet.write import PAGE_BYTES, PAGE_ROWS, WrittenFile
from bitlake.formats.writer import FileWriter, open_writer
from bitlake.io import Store
from bitlake.io.local import failure
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import index_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.partitions import newest_files
from bitlake.snapshot.state import TableState
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType

log = logging.getLogger("bitlake")

_WRITE_ROWS = 64 * 1024
_LEAST_ROWS = 1024


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
    """How new files are written: columns, format, sizes in bytes, and indexes.

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
            parse_index_options(schema.options, schema.fields),
            options.of(opt.FILE_FORMAT).lower(),
            options.of(opt.FILE_COMPRESSION),
            options.of(opt.ZSTD_LEVEL),
            target,
            options.of(opt.TARGET_FILE_ROWS),
            max(1 << 20, min(options.of(opt.FILE_BLOCK_SIZE) or 128 << 20, target)),
            options.of(opt.PARQUET_PAGE_SIZE) or PAGE_BYTES,
            page_rows(schema),
        )


class RollingWriter(abc.ABC):
    """Writes rows into files of about ``shape.target`` bytes.  Mutable, one thread.

    A context manager: leaving it by an exception deletes every file it wrote.
    """

    def __init__(self, store: Store, shape: FileShape, names: Iterator[str]) -> None:
        self._store = store
        self._shape = shape
        self._names = names
        self._entries: list[ManifestEntry] = []
        self._written_paths: list[str] = []
        self._writer: FileWriter | None = None
        self._output: Any = None
        self._builder: IndexBuilder | None = None
        self._name = ""
        self.problems: list[str] = []
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
                assert self._writer is not None and self._builder is not None
                room = part.num_rows if shape.most_rows is None else shape.most_rows - self._writer.row_count
                head, part = part.slice(0, room), part.slice(room)
                with _writing(self._written_paths[-1]):
                    self._writer.write(self._stored(head))
                self._builder.add(head)
                full = shape.most_rows is not None and self._writer.row_count >= shape.most_rows
                if full or self._writer.bytes_written >= shape.target:
                    self._close()

    def finish(self) -> list[ManifestEntry]:
        """Finish the open file and return the entries of all files."""
        self._close()
        return self._entries

    def abort(self) -> None:
        """Delete every file of this writer."""
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
                clustered=[spec.column for spec in shape.indexes if known_index_type(spec.index_type).selects_rows],
            )
        self._builder = IndexBuilder(shape.indexes, shape.indexed)

    def _close(self) -> None:
        if self._writer is None:
            return
        assert self._builder is not None
        with _writing(self._written_paths[-1]):
            written = self._writer.close()
            self._output.close()
        index = self._builder.finish(checksums=True)
        for problem in self._builder.problems:
            log.warning("%s: %s", self._name, problem)
            self.problems.append(f"{self._name}: {problem}")
        entry = self._entry(self._name, written, index)
        self._writer = self._output = self._builder = None
        self._entries.append(entry)


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
    selective = bool(schema.primary_keys) or bool(parse_index_options(schema.options, schema.fields))
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
    if isinstance(data_type, RowType):
        return sum(_value_bytes(f.type) for f in data_type.fields)
    if isinstance(data_type, MapType):
        return 4 * (_value_bytes(data_type.key) + _value_bytes(data_type.value))
    assert isinstance(data_type, (ArrayType, MultisetType))
    return 4 * _value_bytes(data_type.element)
