"""Write Parquet files that Paimon (Java), Spark and Arrow all read the same way, and that can be read by the page.

The choices that Java needs (table-format spec, section 8): zstd, v1 data pages, decimals as integers where they fit,
timestamps in exactly the unit of their precision, field ids, a page index, no ``ARROW:schema``, no exotic encodings.
The choices that page-selective reads need were measured on an orders table (7 columns, 108 MB of Arrow a million rows,
one core; pyarrow's defaults write a million rows in 340 ms and read them in 220 ms).  "Selective" is 4 × 1,000
clustered rows of 4M, all columns, footer cached (:mod:`bitlake.formats.parquet.pages`); "Spark" sums all columns of
4M rows.  Where a value of an indexed column has a cluster of rows, pages begin and end with it,
in place of pages of 1,024 rows everywhere, which every scan would pay for.

================  ==========  ============  ========  ================  =========
rows per page     write 1M    read all 1M   size 1M   selective         Spark
================  ==========  ============  ========  ================  =========
20,000 (Java's)   357 ms      181 ms        34.9 MB   10.6 ms, 1.7 MB   1.39 s
8,192             352 ms      180 ms        34.7 MB   5.5 ms, 0.8 MB    1.45 s
4,096             345 ms      185 ms        34.1 MB   4.0 ms, 0.6 MB    1.46 s
2,048             406 ms      213 ms        34.2 MB   4.5 ms, 0.6 MB    1.48 s
1,024             522 ms      300 ms        35.3 MB
================  ==========  ============  ========  ================  =========

A dictionary is read whole for any row of its chunk.  64 KB of it keep columns of some thousand values small; a column
whose values will not fit gets none (a chunk that gives up carries its useless dictionary along: with it, the selective
read at 4,096 rows took 7 ms and 1.5 MB).

A page begins after a number of rows or bytes, and where a cluster of an indexed value begins.  pyarrow ends a page
where one of its write calls ends, if the page has its size by then, and an Arrow chunk is a write call.  So columns cut
into chunks, written with a page size of a few bytes, have just these chunks as their pages.

A page is read whole for one of its rows.  1,000 PENDING rows side by side lie in one or two pages of 4,096 rows, so
most of what is read are their neighbours.  Smaller pages everywhere would mend that, but every page takes its time in
every scan.  A page of their own takes nothing: where a rare value of an indexed column has most of some hundred rows, a
page begins with the first of them, and the next one after the last.

Measured (bench/headline.py: 1M rows, 102 MB, 1,000 of them PENDING; CPU of appending them, of reading all, and bytes
read for the 1,000; a busy machine, so only the ratios count):

========================  ===========  ===========  ==========  ========
pages                     append       read all     1,000 rows  file
========================  ===========  ===========  ==========  ========
4,096 rows                855 ms       369 ms       435 KB      102.3 MB
4,096 rows, and clusters  830 ms       369 ms       110 KB      102.3 MB
1,024 rows or 16 KB       1,146 ms     653 ms       164 KB      104.7 MB
========================  ===========  ===========  ==========  ========
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.formats.conform import conform
from bitlake.formats.parquet.footer import footer_stats
from bitlake.io.local import failure
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import parquet as pq
from bitlake.types.arrow import arrow_schema, holds, is_nanoseconds
from bitlake.types.datatypes import DataField

ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 128 << 20
PAGE_BYTES = 256 << 10
DICTIONARY_BYTES = 64 << 10

_PAGE_END_BYTES = 16
"""Less than any page worth its own; with 1, Arrow begins a repeated column whose first chunk has one row with an empty
page (the dictionary's own width counts as data), at which its reader takes the column to be at its end."""
_NEWER = ("max_rows_per_page", "write_time_adjusted_to_utc")  # older pyarrow lacks them; files stay valid without
_GUESSED_RATIO = 0.5
_BATCH_VALUES = 1 << 24
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")  # what Java's Parquet decodes without an extra jar
_SAMPLES = 16
_SAMPLE_ROWS = 2048


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file: bytes, rows, and per column its untruncated physical bounds and NULLs (None: unknown)."""

    size: int
    row_count: int
    mins: tuple[Any, ...]
    maxs: tuple[Any, ...]
    null_counts: tuple[int | None, ...]


class ParquetWriter:
    """Writes one file: :meth:`write` any number of times, then :meth:`close` (which leaves ``output`` open).

    Rows are gathered until a row group is full (``row_group_rows``, or ``row_group_bytes`` of Arrow memory) and then
    encoded straight into ``output``: memory is bounded by one row group.  ``output`` is a :class:`pyarrow.NativeFile`
    or any binary file object with ``tell``.  An empty file (no row) is valid.
    """

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str = "zstd",
        level: int | None = 1,
        row_group_rows: int = ROW_GROUP_ROWS,
        row_group_bytes: int = ROW_GROUP_BYTES,
        page_rows: int = PAGE_ROWS,
        page_bytes: int = PAGE_BYTES,
        dictionary_bytes: int = DICTIONARY_BYTES,
        clustered: Sequence[str] = (),
    ) -> None:
        if min(row_group_rows, row_group_bytes, page_rows, page_bytes) < 1:
            raise InvalidRequest("row groups and pages of a Parquet file need at least one row and one byte")
        compression = compression.lower()
        if compression not in CODECS:
            raise InvalidRequest(f"Parquet compression '{compression}' is not one of {', '.join(CODECS)}")
        self._output = output
        self._fields = tuple(fields)
        self._schema = arrow_schema(self._fields, ids=True)
        self._group_rows = row_group_rows
        self._group_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = self._rows = self._encoded_bytes = 0
        self._floats = [f.name for f in self._schema if pa.types.is_floating(f.type)]
        self._nan_columns: set[str] = set()
        self._float_nulls = dict.fromkeys(self._floats, 0)
        self._start: int = output.tell()
        self._dictionary_bytes = dictionary_bytes
        self._page_rows, self._page_bytes = page_rows, page_bytes
        self._clustered = [f.name for f in self._fields if f.name in clustered]
        self._dictionaries: frozenset[str] = frozenset()
        self._writer: Any = None
        self._options: dict[str, Any] = {
            "compression": compression,
            "compression_level": level if compression == "zstd" else None,
            "store_schema": False,
            "write_page_index": True,
            "store_decimal_as_integer": True,
            "write_time_adjusted_to_utc": True,
            # Chunks are the pages: each is one batch, and a few bytes end a page.  A repeated column's page ends before
            # the last row of a chunk.  With a limit of just a chunk, Arrow adds a page without values to each second
            # page, and reading 200,000 rows of an array, a map and a struct took 42 ms instead of 23.
            "max_rows_per_page": 2 * page_rows,
            "data_page_size": _PAGE_END_BYTES,
            "write_batch_size": _BATCH_VALUES,
            # The switch is per file; Java reads INT96 in a column of lower precision just as well.
            "use_deprecated_int96_timestamps": any(holds(k, is_nanoseconds) for k in self._schema.types),
            "data_page_version": "1.0",
            "dictionary_pagesize_limit": dictionary_bytes,
        }
        for name in _NEWER:
            if name not in _parameters():
                del self._options[name]

    def __del__(self) -> None:
        # Else pyarrow's writer would close itself, and print an error where the file was closed before, as by Ctrl-C.
        if getattr(self, "_writer", None) is not None:
            self._writer.is_open = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        return self._schema

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._rows + self._pending_rows

    @property
    def bytes_written(self) -> int:
        """The file's size so far; rows that wait for their row group count by the compression seen until now."""
        done: int = self._output.tell() - self._start
        ratio = done / self._encoded_bytes if self._encoded_bytes else _GUESSED_RATIO
        return done + int(self._pending_bytes * ratio)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are matched by name and brought to the table's types.

        Raises :class:`InvalidRequest`, naming the column, for a NULL in a NOT NULL column or a value that the column's
        type cannot hold; the rows of that batch are then not in the file.
        """
        table = conform(batch, self._fields, self._schema)
        for name in self._floats:
            self._float_nulls[name] += table.column(name).null_count
            if name not in self._nan_columns and pc.any(pc.is_nan(table.column(name))).as_py():
                self._nan_columns.add(name)
        while table.num_rows:
            room = self._group_rows - self._pending_rows
            size = table.nbytes
            by_bytes = max(1, (self._group_bytes - self._pending_bytes) * table.num_rows // max(1, size))
            head = table.slice(0, min(room, by_bytes))
            table = table.slice(head.num_rows)
            self._pending.append(head)
            self._pending_rows += head.num_rows
            self._pending_bytes += size if table.num_rows == 0 else head.nbytes
            # One more row might not fit: the slice above is an estimate, so close to full is full.
            if table.num_rows or self._pending_rows >= self._group_rows or self._pending_bytes >= self._group_bytes:
                self._flush()

    def close(self) -> WrittenFile:
        """Finish the file and return what it holds."""
        self._flush()
        if self._writer is None:
            self._open(self._schema.empty_table())
        self._guard(self._writer.close)
        metadata = self._writer.writer.metadata
        mins, maxs, nulls = footer_stats(metadata, self._fields, nan_columns=self._nan_columns)
        nulls = [self._float_nulls.get(f.name, n) for f, n in zip(self._fields, nulls, strict=True)]
        size = self._output.tell() - self._start
        return WrittenFile(size, self._rows, tuple(mins), tuple(maxs), tuple(nulls))

    def _flush(self) -> None:
        if not self._pending_rows:
            return
        table = pa.concat_tables(self._pending)
        self._pending = []
        if self._writer is None:
            self._open(table)
        paged = self._paged(table)
        self._guard(lambda: self._writer.write_table(paged, row_group_size=paged.num_rows))
        self._rows += self._pending_rows
        self._encoded_bytes += self._pending_bytes
        self._pending_rows = self._pending_bytes = 0

    def _paged(self, table: pa.Table) -> pa.Table:
        """The rows with a chunk for each page; dictionary codes are so short that rows alone bound their pages."""
        cuts = page_cuts(table, self._clustered, self._page_rows)
        columns = [
            into_pages(c, cuts, self._page_rows, None if name in self._dictionaries else self._page_bytes)
            for name, c in zip(table.column_names, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)

    def _open(self, sample: pa.Table) -> None:
        """Start the file; its first row group decides which columns get a dictionary, and which get statistics.

        Arrow leaves NaN out of a column's bounds.  Paimon (Java) then skips row groups and pages with NaN, which is
        greater than all numbers.  Java's writers give such a column no bounds.
        """
        columns = dictionary_columns(sample, self._dictionary_bytes)
        self._dictionaries = frozenset(columns)
        bounded: bool | list[str] = True
        if self._nan_columns:
            fields = [f for f in self._schema if f.name not in self._nan_columns]
            bounded = [leaf for f in fields for leaf in _leaves(f.name, f.type)]
        options = {**self._options, "use_dictionary": columns, "write_statistics": bounded}
        try:
            self._writer = pq.ParquetWriter(self._output, self._schema, **options)
        except (pa.ArrowException, ValueError) as e:
            raise InvalidRequest(f"cannot write Parquet: {e}") from e

    def _guard(self, action: Any) -> None:
        try:
            action()
        except pa.ArrowInvalid as e:
            raise InvalidRequest(f"cannot write Parquet: {e}") from e
        except OSError as e:
            raise failure("write", "a Parquet file", e) from e


@cache
def _parameters() -> Collection[str]:
    """Return the parameters of this pyarrow's Parquet writer."""
    return inspect.signature(pq.ParquetWriter.__init__).parameters


def dictionary_columns(table: pa.Table, limit: int) -> list[str]:
    """The leaf columns (dotted paths) whose distinct values probably fit in a dictionary of ``limit`` bytes.

    A chunk that starts with a dictionary and gives up carries it along, and every read of a few of its rows pays for
    that: 64 KB and 0.1 ms per chunk.  Nested leaves are not sampled.

    Wide decimals get none, as in files of parquet-mr's version 1: Paimon (Java) 1.4 looks for a constant in such a
    dictionary by its shortest bytes, and not by those of the column's width, so that ``=`` and ``IN`` found no row.
    """
    slices = _samples(table)
    coded = []
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            coded += _leaves(field.name, field.type)
            continue
        if pa.types.is_decimal(field.type) and field.type.precision > 18:
            continue
        sample = pa.chunked_array([c for s in slices for c in s.column(i).chunks], field.type)
        distinct = pc.count_distinct(sample, mode="only_valid").as_py()
        if distinct > len(sample) // 2:
            distinct = distinct * table.num_rows // len(sample)
        width = sample.nbytes / max(1, len(sample))
        if distinct * width <= limit:
            coded.append(field.name)
    return coded


def _samples(table: pa.Table) -> list[pa.Table]:
    """Parts of the table that do not overlap; a table of few rows is one part."""
    if table.num_rows <= _SAMPLES * _SAMPLE_ROWS:
        return [table]
    step = table.num_rows // _SAMPLES
    return [table.slice(start, _SAMPLE_ROWS) for start in range(0, table.num_rows, step)]


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_map(kind):
        path, inner = f"{path}.key_value", [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    elif pa.types.is_list(kind):
        path, inner = f"{path}.list", [kind.value_field.with_name("element")]
    elif pa.types.is_struct(kind):
        inner = [kind.field(i) for i in range(kind.num_fields)]
    else:
        return [path]
    return [leaf for field in inner for leaf in _leaves(f"{path}.{field.name}", field.type)]


# --- pages of clusters ------------------------------------------------------------------------------------------------

_STRIDE = 128
"""Rows between the ones looked at: finding clusters must not cost more than a hundredth of writing the rows."""
_LEAST_SAMPLES = 3
_GAP = 4
"""Samples without the value that are still in a cluster, less one."""
_DENSE = 1 / 4
_RARE = 1 / 16
_MOST_CANDIDATES = 128
_MOST_CUTS = 1 / 8
"""Cuts for each page that there is anyhow: the shortest clusters gain most and come first."""


def page_cuts(table: pa.Table, names: Sequence[str], page_rows: int) -> Int64s:
    """The rows (sorted, without 0) at which every column should begin a page, for the clusters in these columns."""
    by_length = sorted({c for name in names for c in clusters(table.column(name))}, key=lambda c: c[1] - c[0])
    pages = max(8, table.num_rows // page_rows)
    wanted = [row for cluster in by_length[: max(1, int(pages * _MOST_CUTS / 2))] for row in cluster]
    cuts: Int64s = np.unique(np.array([row for row in wanted if 0 < row < table.num_rows], np.int64))
    return cuts


def clusters(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    """Where a value that is in few of a flat column's rows is in many of neighbouring ones: rows ``[start, stop)``.

    Clusters of at least 512 rows, of which nearly all have the value, are found; smaller or thinner ones, down to 256
    rows and to every fourth of them, if they lie well.  NULL is a value.
    """
    picked = np.arange(0, len(column), _STRIDE, dtype=np.int64)
    if len(picked) < _LEAST_SAMPLES or pa.types.is_nested(column.type):
        return []
    indices = pa.Array.from_buffers(pa.int64(), len(picked), [None, pa.py_buffer(picked)])
    encoded = column.take(indices).combine_chunks().dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    # Samples by value: a candidate is a row of them with small gaps.
    samples = np.argsort(codes, kind="stable")
    by_value = codes[samples]
    apart = (by_value[1:] != by_value[:-1]) | (samples[1:] - samples[:-1] > _GAP)
    starts = np.flatnonzero(np.concatenate(([True], apart)))
    counts = np.diff(starts, append=len(samples))
    rare = np.bincount(codes)[by_value[starts]] <= len(codes) * _RARE
    runs = np.flatnonzero((counts >= _LEAST_SAMPLES) & rare)
    runs = runs[np.argsort(counts[runs], kind="stable")][:_MOST_CANDIDATES]
    exact = [_exact(column, int(samples[starts[i]]), int(samples[starts[i] + counts[i] - 1])) for i in runs.tolist()]
    return sorted(c for c in exact if c is not None)


def _exact(column: pa.ChunkedArray, first: int, last: int) -> tuple[int, int] | None:
    """The cluster that holds samples ``first`` to ``last`` of a value, if it is dense enough to be one."""
    reach = _GAP * _STRIDE
    start = max(0, first * _STRIDE - reach)
    rows = column.slice(start, last * _STRIDE + reach - start)
    value = rows[first * _STRIDE - start]
    places = np.flatnonzero(_equal(rows, value)) + start
    ends = np.flatnonzero(np.diff(places) > reach)
    low, high = np.searchsorted(places[ends], (first * _STRIDE, last * _STRIDE))
    left = places[ends[low - 1] + 1] if low else places[0]
    right = places[ends[high]] if high < len(ends) else places[-1]
    inside = np.searchsorted(places, right, "right") - np.searchsorted(places, left)
    return (int(left), int(right) + 1) if inside >= (right + 1 - left) * _DENSE else None


def _equal(rows: pa.ChunkedArray, value: pa.Scalar) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the rows that have the value, where NULL and NaN equal themselves."""
    if not value.is_valid:
        equal = rows.is_null()
    elif pa.types.is_floating(value.type) and value.as_py() != value.as_py():
        equal = pc.is_nan(rows).fill_null(False)
    else:
        equal = pc.equal(rows, value).fill_null(False)
    mask: np.ndarray[Any, np.dtype[np.bool_]] = equal.to_numpy()
    return mask


def into_pages(column: pa.ChunkedArray, cuts: Int64s, page_rows: int, page_bytes: int | None) -> pa.ChunkedArray:
    """The column with a chunk for each page: up to ``page_rows`` rows, from each of ``cuts`` (sorted) on.

    ``page_bytes`` counts the values as Parquet writes them plainly: a page of average values ends at ``page_bytes``,
    and one of longer values at twice as many at most.  None: no limit.
    """
    if page_bytes is not None:
        page_rows = max(1, min(page_rows, -(-page_bytes * len(column) // max(1, _plain_bytes(column)))))
    edges = np.concatenate(([0], cuts, [len(column)]))
    starts = np.concatenate([np.arange(a, b, page_rows) for a, b in itertools.pairwise(edges)])
    bounds = np.append(starts, len(column))
    if page_bytes is not None and not _fixed(column.type):
        bounds = _split_long(column, bounds, page_bytes)
    places = bounds.tolist()
    chunks = []
    held, base = iter(column.chunks), 0
    chunk: Any = next(held, None)
    for start, stop in itertools.pairwise(places):
        while chunk is not None and start - base >= len(chunk):
            base += len(chunk)
            chunk = next(held, None)
        if chunk is not None and stop - base <= len(chunk):
            chunks.append(chunk.slice(start - base, stop - start))
        else:
            chunks.append(pa.concat_arrays(column.slice(start, stop - start).chunks))
    return pa.chunked_array(chunks, column.type)


def _split_long(column: pa.ChunkedArray, bounds: Int64s, limit: int) -> Int64s:
    """``bounds`` with pages over twice ``limit`` bytes cut into equal numbers of rows, as often as it takes."""
    while True:
        places = bounds.tolist()
        sizes = np.array([_plain_bytes(column.slice(a, b - a)) for a, b in itertools.pairwise(places)], np.int64)
        rows = bounds[1:] - bounds[:-1]
        parts = np.where(sizes > 2 * limit, np.minimum(-(-sizes // limit), rows), 1)
        if (parts == 1).all():
            return bounds
        cut = [np.linspace(a, b, n, endpoint=False).astype(np.int64) for a, b, n in zip(places[:-1], places[1:], parts)]
        bounds = np.append(np.concatenate(cut), bounds[-1])


def _fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind))


def _plain_bytes(column: pa.ChunkedArray) -> int:
    """About the bytes of the values in Parquet's PLAIN encoding; texts have their lengths before them."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.precision <= 18:
        return len(column) * (4 if kind.precision <= 9 else 8)
    if pa.types.is_integer(kind):
        return len(column) * (8 if kind.bit_width == 64 else 4)
    return int(column.nbytes)
