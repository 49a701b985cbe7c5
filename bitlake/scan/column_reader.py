"""Read stored columns of a data file: the pages that hold a few chosen rows, or row groups as a stream.

Columns are the file's own, as they are stored: :mod:`bitlake.scan.reader` converts them to the table's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError, NotFound, UnsupportedFeature
from bitlake.expressions.tree import Predicate
from bitlake.fileindex.selection import Selection
from bitlake.formats.file_format import format_of, reader_for
from bitlake.formats.parquet.decode import narrow_footer, read_columns
from bitlake.formats.parquet.footer import ColumnChunk, ColumnChunks, FileSchema, Footer, parse_schema, read_footer
from bitlake.formats.parquet.pages import read_parts
from bitlake.io import Store
from bitlake.io.remote_files import open_ranges
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName

Rows = tuple[pa.Table | pa.RecordBatch, Int64s | range]
"""Values, and the position in the file of each: a range where they are side by side, which takes no memory."""

_BATCH_ROWS = 128 * 1024
"""DuckDB and Python handle a batch at a time: CPU of TPC-H's queries 4, 6, 12 through Arrow, 32, 64 and 128 thousand
rows: 268, 239, 220 ms; 228, 203, 198 ms; 323, 303, 270 ms."""
_BATCH_BYTES = 8 << 20
"""Batches of long rows have fewer rows, since decoding holds about twice a batch."""
_PICKED_SHARE = 4
"""If at most one row in ``_PICKED_SHARE`` is picked, texts and decimals are converted after that.  1 % of 1.5M rows of
TPC-H's lineitem, 16 columns, scattered: 490 → 340 ms of CPU."""
_THREADED_BYTES = 1 << 20
"""Columns of fewer stored bytes are decoded by one thread: handing them to others takes longer on a busy machine."""
_LOCATION_BYTES = 10
"""An estimate of the bytes of a page's entry in an offset index."""
_SMALL_PAGE = 16 * 1024
"""The bytes in which Arrow looks for a page header."""

_PAGE_ROWS = 20_000
"""Rows of a page, as Arrow and parquet-mr write them; those of tables with file indexes hold fewer."""
_REMOTE_GROUP_BYTES = 32 << 20
"""Of row groups whose columns have up to this size, remote column chunks are fetched whole before they are decoded, in
few requests.  Those of larger ones are decoded while they are fetched, so that memory holds some megabytes of each."""

_FOOTERS: CacheName[str, Footer] = CacheName("footers")
_FILE_SCHEMAS: CacheName[bytes, FileSchema] = CacheName("file schemas")


@dataclass(frozen=True, slots=True)
class FileTask:
    """The read of one file; small, and picklable for the executors."""

    path: str
    size: int
    row_count: int
    bucket: int
    partition: tuple[Any, ...]
    selection: Selection
    file_schema: TableSchema
    merge: MergeTask | None = None
    """Files to read and merge by key instead; ``selection`` is then of the merged rows."""
    level: int = 0

    @property
    def chosen_bytes(self) -> int:
        """An estimate of the stored bytes of the chosen rows, or of all files that are merged."""
        if self.merge is not None:
            return sum(f.chosen_bytes for f in self.merge.files)
        return self.size * self.selection.count(self.row_count) // max(1, self.row_count)

    @property
    def page_bytes(self) -> int:
        """An upper estimate of the stored bytes of the pages with chosen rows: each row may lie in its own page."""
        if self.merge is not None:
            return sum(f.page_bytes for f in self.merge.files)
        rows = self.selection.count(self.row_count) * _PAGE_ROWS
        return self.size if rows >= self.row_count else self.size * rows // self.row_count


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Files whose rows are merged by key, and a condition on key columns that may be applied before."""

    files: tuple[FileTask, ...]
    predicate: Predicate | None = None
    schema: TableSchema | None = None
    """The schema whose keys and options merge them; None: the request's."""


COUNTERS = ("rows_read", "rows_returned", "bytes", "requests", "pages", "row_groups", "files_ignored")


@dataclass(slots=True)
class ReadCounts:
    """Counters of reading; threads add to them."""

    rows_read: int = 0
    rows_returned: int = 0
    bytes: int = 0
    requests: int = 0
    pages: int = 0
    row_groups: int = 0
    files_ignored: int = 0
    filter_ns: int = 0
    """Nanoseconds spent filtering rows."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in COUNTERS}

    @contextmanager
    def filtering(self) -> Iterator[None]:
        """Measure the time spent inside, which filters a batch of rows."""
        started = time.perf_counter_ns()
        yield
        self.add(filter_ns=time.perf_counter_ns() - started)

    def add(self, **more: int) -> None:
        """Add to the counters by name."""
        with self._lock:
            for name, value in more.items():
                setattr(self, name, getattr(self, name) + value)


def footer_of(store: Store, task: FileTask) -> Footer:
    """The file's footer, cached: data files never change.  :func:`forget_file` drops it.

    Raises :class:`CorruptError` naming the file, also when its rows are not as many as the manifest says, and
    :class:`NotFound` when it is gone.
    """

    def schema_of(raw: bytes) -> FileSchema:
        return store.caches[_FILE_SCHEMAS].get_or(raw, lambda: parse_schema(raw), lambda s: s.memory + len(raw))

    def load() -> Footer:
        try:
            footer = read_footer(
                lambda offset, length: store.read_range(task.path, offset, length), task.size, schema_of=schema_of
            )
        except CorruptError as e:
            raise _with_size_mismatch(store, task, e).within(task.path) from e
        except NotFound as e:
            raise _gone(task.path) from e
        if footer.rows != task.row_count:
            raise CorruptError(
                f"the footer counts {footer.rows} rows and the manifest says {task.row_count}", None, task.path
            )
        for group in footer.row_groups:
            if isinstance(group.chunks, ColumnChunks):
                group.chunks.path = task.path
        return footer

    return store.caches[_FOOTERS].get_or(task.path, load, lambda footer: footer.memory)


def _with_size_mismatch(store: Store, task: FileTask, error: CorruptError) -> CorruptError:
    """The error of a footer that cannot be read; it names both sizes if the file's differs from its manifest's."""
    size = store.size(task.path)
    if size == task.size:
        return error
    message = f"{error.what} (the file has {size:,} bytes, and its manifest says {task.size:,})"
    return CorruptError(message, error.offset, error.path)


def forget_file(store: Store, path: str) -> None:
    """Drop what is cached of a data file that turned out to be damaged or missing."""
    store.caches[_FOOTERS].discard(path)
    store.drop_cached(path)


def position_array(positions: Int64s | range) -> Int64s:
    """Positions as an array.  Most readers need only their number: of 6M rows, the array takes 20 ms."""
    return np.arange(positions.start, positions.stop, dtype=np.int64) if isinstance(positions, range) else positions


def fetch_rows(store: Store, task: FileTask, positions: Int64s, names: Sequence[str], counts: ReadCounts) -> pa.Table:
    """The columns at these positions (sorted), reading only pages that hold one."""
    parts = [rows for rows, _ in fetch_parts(store, task, positions, names, counts)]
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def fetch_parts(
    store: Store, task: FileTask, positions: Int64s, names: Sequence[str], counts: ReadCounts
) -> Iterator[tuple[pa.Table, Int64s]]:
    """As :func:`fetch_rows`, in parts (at least one) whose pages are in memory one after the other."""
    footer = footer_of(store, task)
    at = 0
    with naming(store, task):
        for rows, stats in read_parts(footer, lambda ranges: store.read_ranges(task.path, ranges), positions, names):
            counts.add(bytes=stats.bytes, requests=stats.requests, pages=stats.pages, row_groups=stats.row_groups)
            yield rows, positions[at : at + rows.num_rows]
            at += rows.num_rows


def stream(
    store: Store,
    task: FileTask,
    names: Sequence[str],
    counts: ReadCounts,
    groups: Sequence[int] | None = None,
    picked: Int64s | None = None,
    compact: Sequence[str] = (),
) -> Generator[Rows, None, None]:
    """The columns of neighbouring row groups (default: all), batch by batch; of rows ``picked`` (sorted) if given.

    Columns in ``compact`` come as Arrow dictionaries where the file stores all their values as codes, and as decimals
    of 32 or 64 bits where it stores these as integers.  If few rows are picked, all such columns are decoded so, and
    the picked values are then converted.
    """
    with naming(store, task):
        footer = narrow_footer(footer_of(store, task), names)
    numbers = list(range(len(footer.row_groups))) if groups is None else list(groups)
    first = start = footer.row_groups[numbers[0]].first_row if numbers else 0
    converted: Collection[str] = ()
    if picked is not None and _PICKED_SHARE * len(picked) <= sum(footer.row_groups[n].rows for n in numbers):
        converted = _texts_and_decimals(names, footer.schema) - {*compact}
        compact = [*compact, *converted]
    text = [name for name in compact if footer.schema.field(name).type == pa.string()]
    as_integers = len(text) < len(compact)
    with naming(store, task):
        ranges = [[(c.start, c.compressed) for c in _chunks(footer, names, [number])] for number in numbers]
        size = stored_bytes(footer, names, numbers)
        cache = footer.cache
        requests = int(any(cache.in_tail(*each) is None for group in ranges for each in group))
        counts.add(bytes=size, requests=requests, row_groups=len(numbers))
        whole = small_pages(footer, names, numbers) or (
            store.local_path(task.path) is None
            and all(stored_bytes(footer, names, [number]) <= _REMOTE_GROUP_BYTES for number in numbers)
        )
        tail = cache.tail_offset, cache.tail
        with open_ranges(store, task.path, task.size, ranges, not whole, tail) as source:
            batches = read_columns(
                source,
                names,
                row_groups=numbers,
                batch_size=_batch_rows(footer, names, numbers),
                read_dictionary=text,
                use_threads=size >= _THREADED_BYTES,
                whole_chunks=whole,
                metadata=footer.integer_metadata if as_integers else footer.metadata,
            )
            for batch in batches:
                if as_integers:
                    batch = _with_decimals(batch, footer.schema)
                for rows, positions in _picked(batch, start, picked):
                    yield _converted(rows, converted, footer.schema), positions
                start += batch.num_rows
    announced = sum(footer.row_groups[n].rows for n in numbers)
    if start - first != announced:
        raise CorruptError(
            f"{start - first} rows came where the footer announces {announced} and the manifest says {task.row_count}",
            None,
            task.path,
        )


def _with_decimals(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch whose integers are decimals of as many bits where ``schema`` has decimals."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.field(name).type
        if pa.types.is_decimal(kind) and pa.types.is_integer(array.type):
            narrow_type = pa.decimal32 if array.type == pa.int32() else pa.decimal64
            narrow = narrow_type(kind.precision, kind.scale)
            array = pa.Array.from_buffers(narrow, len(array), array.buffers(), array.null_count, array.offset)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _texts_and_decimals(names: Sequence[str], schema: pa.Schema) -> set[str]:
    kinds = {name: schema.field(name).type for name in names}
    return {n for n, kind in kinds.items() if kind == pa.string() or pa.types.is_decimal128(kind)}


def _converted(batch: pa.RecordBatch, columns: Collection[str], schema: pa.Schema) -> pa.RecordBatch:
    """A batch, some columns of which get the types that ``schema`` has for them."""
    names = batch.schema.names
    if not columns:
        return batch
    arrays = [
        array.cast(schema.field(name).type) if name in columns else array
        for name, array in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names)


def has_pages(task: FileTask) -> bool:
    """Whether a file's rows can be fetched by the page: Parquet.  ORC and Avro files are decoded in order."""
    return format_of(task.path) == "parquet"


def stream_whole(
    store: Store, task: FileTask, names: Sequence[str], counts: ReadCounts, picked: Int64s | None = None
) -> Iterator[Rows]:
    """The columns of a file without pages, batch by batch, of rows ``picked`` (sorted) if given.

    Every row up to the last wanted one is decoded; memory holds one batch (of an ORC file: one stripe).
    Raises :class:`CorruptError` when the file's rows are not as many as the manifest says.
    """
    counts.add(bytes=task.size, requests=1)
    start = end = 0
    last = task.row_count if picked is None else int(picked[-1]) + 1 if len(picked) else 0
    with naming(store, task), store.open_input(task.path, task.size) as source:
        for batch in reader_for(task.path)(source, names, batch_size=_BATCH_ROWS):
            end = start + batch.num_rows
            if end > task.row_count:
                break
            yield from _picked(batch, start, picked)
            start = end
            if picked is not None and start >= last:
                return
    if start != task.row_count or end > task.row_count:
        raise CorruptError(f"{end} rows came where the manifest says {task.row_count}", None, task.path)


def _picked(batch: pa.RecordBatch, start: int, picked: Int64s | None) -> Iterator[Rows]:
    """A batch whose first row is ``start`` of its file, or its picked rows if there are any, with their positions."""
    end = start + batch.num_rows
    if picked is None:
        yield batch, range(start, end)
        return
    low, high = np.searchsorted(picked, (start, end))
    if high - low == batch.num_rows:
        yield batch, picked[low:high]
    elif high > low:
        yield batch.take(pa.array(picked[low:high] - start)), picked[low:high]


def _chunks(footer: Footer, names: Sequence[str], groups: Sequence[int]) -> list[ColumnChunk]:
    """The column chunks of whole columns in these row groups, in the order of the file's columns."""
    columns = sorted(map(footer.column, names), key=lambda c: c.leaf)
    return [footer.row_groups[n].chunks[leaf] for n in groups for c in columns for leaf in range(c.leaf, c.leaf_end)]


def stored_bytes(footer: Footer, names: Sequence[str], groups: Sequence[int]) -> int:
    """Compressed bytes of whole columns in these row groups."""
    return sum(chunk.compressed for chunk in _chunks(footer, names, groups))


def _batch_rows(footer: Footer, names: Sequence[str], groups: Sequence[int]) -> int:
    """Rows of a batch of these columns."""
    size = sum(chunk.uncompressed for chunk in _chunks(footer, names, groups))
    rows = sum(footer.row_groups[n].rows for n in groups)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))


def small_pages(footer: Footer, names: Sequence[str], groups: Sequence[int]) -> bool:
    """Whether the pages of these columns are small, estimated from the sizes of their offset indexes."""
    chunks = _chunks(footer, names, groups)
    pages = sum(c.index_length for c in chunks if c.index_offset is not None) // _LOCATION_BYTES
    return sum(c.compressed for c in chunks) < pages * _SMALL_PAGE


@contextmanager
def naming(store: Store, task: FileTask) -> Iterator[None]:
    """Errors of the block name the file; for one that is missing, they say what to do.

    What is cached of a damaged or missing file is dropped: someone may have replaced the file, or may do so now.
    """
    try:
        yield
    except CorruptError as e:
        forget_file(store, task.path)
        raise _within(e, task.path) from e
    except UnsupportedFeature as e:
        raise UnsupportedFeature(f"{e} (in {task.path})") from e
    except NotFound as e:
        forget_file(store, task.path)
        raise (NotFound(f"{e} ({task.path})") if store.exists(task.path) else _gone(task.path)) from e


def _within(error: CorruptError, path: str) -> CorruptError:
    return error if error.path else error.within(path)


def _gone(path: str) -> NotFound:
    return NotFound(
        f"data file {path} is missing: its snapshot has expired meanwhile (read the table again), "
        "or the file was deleted by hand (put it back, or overwrite its partition)"
    )
