"""Decode Parquet with pyarrow: whole columns as a stream of batches, and chosen pages as a small Parquet file.

Arrow C++ reads whole column chunks, but it takes a chunk's size and number of values from the footer.  So chosen pages
behind each other, with the chunk's dictionary page first and a new footer that counts only them, are a valid chunk::

    "PAR1"  [dictionary page] page 3, page 4, page 9  [dictionary page] page 7 …  footer  length  "PAR1"

One such file holds all flat columns of all touched row groups.  Its columns may differ in length (their pages do not
start at the same rows), so each is decoded on its own, never as a table.

:func:`read_columns` reads whole columns, in bounded memory.
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bitlake.codec.bytes import varint, zigzag
from bitlake.errors import CorruptError, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.footer import MAGIC, Column, ColumnChunk, ColumnChunks, Footer, parse_footer
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import parquet as pq
from bitlake.types.arrow import holds, is_nanoseconds

_ARROW_SCHEMA = b"ARROW:schema"
_STOP = b"\x00"
_HEAD = MAGIC
_NARROW = 4
"""pyarrow gets a footer of the wanted columns only, if the file has at least this many times as many columns."""
_KEPT_FOOTERS = 4
"""Narrow footers that are kept for each file."""
DECODE_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError)
"""Errors of pyarrow for bytes it cannot decode."""


@dataclass(frozen=True, slots=True)
class MiniChunk:
    """A column chunk of the small file: which chunk it comes from, its bytes (views of the file's) and its values.

    ``dictionary`` and ``data`` are offsets of its dictionary page (or None) and first data page in those bytes.
    """

    group: int
    leaf: int
    parts: Sequence[memoryview | bytes]
    dictionary: int | None
    data: int
    values: int
    codec: int | None = None
    """Parquet's number of the parts' compression, None: that of the file's chunk."""


def mini_file(
    footer: Footer, columns: Sequence[Column], groups: Sequence[tuple[int, Sequence[MiniChunk]]]
) -> pa.Buffer:
    """The small file of ``columns`` (in file order) with one row group per (rows, chunks of all their leaves)."""
    body: list[memoryview | bytes] = [_HEAD]
    at = len(_HEAD)
    encoded_groups = []
    total = 0
    for rows, chunks in groups:
        encoded = []
        size = 0
        for chunk in chunks:
            length = sum(map(len, chunk.parts))
            body.extend(chunk.parts)
            encoded.append(_chunk(footer, chunk, at, length))
            at += length
            size += length
        total += rows
        encoded_groups.append(
            thrift.list_field(1, thrift.STRUCT, encoded) + thrift.i64_field(1, size) + thrift.i64_field(1, rows) + _STOP
        )
    schema, key_values = _prelude(footer, columns)
    meta = b"".join(
        (
            schema,
            thrift.i64_field(1, total),
            thrift.list_field(1, thrift.STRUCT, encoded_groups),
            key_values,
            _STOP,
        )
    )
    body += (meta, struct.pack("<I", len(meta)), MAGIC)
    return pa.py_buffer(b"".join(body))


def narrow_footer(footer: Footer, names: Sequence[str]) -> Footer:
    """The footer with these columns only, if the file has many others: pyarrow decodes the whole footer it is given."""
    columns = sorted({footer.column(name) for name in names}, key=lambda c: c.leaf)
    groups = [g.chunks for g in footer.row_groups if isinstance(g.chunks, ColumnChunks)]
    if not columns or not groups or len(columns) * _NARROW > len(footer.leaves):
        return footer
    key = tuple(c.name for c in columns)
    known = footer.cache.narrow.get(key)
    if known is None:
        schema, key_values = _prelude(footer, columns)
        if key_values or _ARROW_SCHEMA not in footer.key_values:
            known = _narrow(footer, columns, groups, schema, key_values)
        else:
            known = footer
        if len(footer.cache.narrow) == _KEPT_FOOTERS:
            footer.cache.narrow.clear()
        footer.cache.narrow[key] = known
    return known


def _narrow(
    footer: Footer, columns: Sequence[Column], groups: Sequence[ColumnChunks], schema: bytes, key_values: bytes
) -> Footer:
    encoded = [
        thrift.list_field(1, thrift.STRUCT, [chunks.raw(i) for c in columns for i in range(c.leaf, c.leaf_end)])
        + thrift.i64_field(1, 0)  # total_byte_size, which pyarrow does not need
        + thrift.i64_field(1, group.rows)
        + _STOP
        for group, chunks in zip(footer.row_groups, groups, strict=True)
    ]
    parts = (
        schema,
        thrift.i64_field(1, footer.rows),
        thrift.list_field(1, thrift.STRUCT, encoded),
        key_values,
        thrift.binary_field(1 if key_values else 2, footer.created_by.encode()) if footer.created_by else b"",
        _STOP,
    )
    return parse_footer(b"".join(parts), footer.size, footer.cache.tail, footer.cache.tail_offset)


def open_mini(file: pa.Buffer, coded: Sequence[str] = (), int96_unit: str | None = None) -> pq.ParquetFile:
    """Open a small file, with the columns ``coded`` read as dictionaries; raises :class:`CorruptError`."""
    try:
        return pq.ParquetFile(
            pa.BufferReader(file),
            pre_buffer=False,
            read_dictionary=list(coded) or None,
            coerce_int96_timestamp_unit=int96_unit,
        )
    except DECODE_ERRORS as e:
        raise decode_error(e, "footer") from e


def decode_error(e: Exception, what: str) -> CorruptError | UnsupportedFeature:
    """pyarrow's error as bitlake's."""
    if isinstance(e, pa.ArrowNotImplementedError):
        return UnsupportedFeature(f"Parquet {what}: {e}")
    return CorruptError(f"Parquet {what}: {e}")


# --- INT96 ------------------------------------------------------------------------------------------------------------

_FIRST_MICROS, _LAST_MICROS = -(1 << 63) // 1000 + 1, (1 << 63) // 1000


def check_nanoseconds(columns: pa.Table | pa.RecordBatch) -> None:
    """Raise :class:`UnsupportedFeature` for a time, in microseconds, that nanoseconds in 64 bits do not represent.

    INT96 holds a day and the nanoseconds of the day.  Arrow converts them to nanoseconds in 64 bits without a check,
    and returns another time where these overflow: a day of 1816 for 9999-12-31.
    """
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for times in itertools.chain.from_iterable(map(_times, chunks)):
            bounds = pc.min_max(times.cast(pa.int64()))
            ends = (bounds["min"].as_py(), bounds["max"].as_py())  # None if all are NULL
            beyond = [m for m in ends if m is not None and not _FIRST_MICROS <= m <= _LAST_MICROS]
            if beyond:
                when = pc.strftime(pa.scalar(beyond[0], pa.timestamp("us"))).as_py()
                raise UnsupportedFeature(
                    f"column '{name}' holds {when}, outside the range of nanoseconds in 64 bits (1677-09-21 to "
                    "2262-04-11); rewrite the file with microseconds (TIMESTAMP(6))"
                )


def _times(array: pa.Array) -> Iterator[pa.Array]:
    """All timestamps of an array, those inside of structs, maps and lists included."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        yield array
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _times(child)
    elif pa.types.is_map(kind):
        yield from _times(array.keys)
        yield from _times(array.items)
    elif kind.num_fields:  # a list of any kind: a file that Arrow wrote names its kind
        yield from _times(array.flatten())


def _int96_columns(file: pq.ParquetFile, order: Sequence[str] | None) -> list[str]:
    """Those of the columns to read (None: all) that hold INT96."""
    wide = [f.name for f in file.schema_arrow if holds(f.type, is_nanoseconds) and (order is None or f.name in order)]
    if not wide:
        return []
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    stored = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    return [name for name in wide if name in stored]


def _checked_batches(
    source: Any, file: pq.ParquetFile, order: Sequence[str] | None, batch_size: int, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The batches of a file, whose INT96 columns are read a second time, in microseconds, to check them."""
    batches = file.iter_batches(batch_size, columns=order, **options)
    int96 = _int96_columns(file, order)
    if not int96:
        yield from batches
        return
    with pq.ParquetFile(source, metadata=file.metadata, coerce_int96_timestamp_unit="us") as micros:
        times = micros.iter_batches(batch_size, columns=int96, **options)
        checked = 0
        for batch in batches:
            # Dictionaries and long texts end batches of all columns earlier than those of the times alone.
            while checked < batch.num_rows:
                some = next(times)
                check_nanoseconds(some)
                checked += some.num_rows
            checked -= batch.num_rows
            yield batch


# --- chunks of small files --------------------------------------------------------------------------------------------


def _chunk(footer: Footer, chunk: MiniChunk, at: int, length: int) -> bytes:
    """A ColumnChunk struct: fields 2 (file offset) and 3 (metadata)."""
    source = footer.row_groups[chunk.group].chunks[chunk.leaf]
    codec = source.codec if chunk.codec is None else chunk.codec
    key = (chunk.group, chunk.leaf, codec)
    head = footer.cache.heads.get(key)
    if head is None:
        head = footer.cache.heads[key] = _chunk_head(source, codec)
    parts = [
        head,
        thrift.i64_field(1, chunk.values),
        # Its true value would need the page headers; pyarrow does not use it to read.
        thrift.i64_field(1, max(length, source.uncompressed)),
        thrift.i64_field(1, length),
        thrift.i64_field(2, at + chunk.data),
    ]
    if chunk.dictionary is not None:
        parts.append(thrift.i64_field(2, at + chunk.dictionary))
    parts += (_STOP, _STOP)
    return b"".join(parts)


def _chunk_head(chunk: ColumnChunk, codec: int) -> bytes:
    """Field 2, and of field 3 what does not depend on the chosen pages: type, encodings, path, codec."""
    return b"".join(
        (
            thrift.i64_field(2, 0),
            bytes((1 << 4 | thrift.STRUCT,)),
            thrift.i32_field(1, chunk.physical),
            thrift.list_field(1, thrift.I32, [zigzag(e) for e in chunk.encodings]),
            thrift.list_field(1, thrift.BINARY, [varint(len(p)) + p for p in chunk.path]),
            thrift.i32_field(1, codec),
        )
    )


def _prelude(footer: Footer, columns: Sequence[Column]) -> tuple[bytes, bytes]:
    """Fields 1 and 2 (version, schema) and field 5 (``ARROW:schema`` of the same columns, if the file has one)."""
    key = tuple(c.node for c in columns)
    known = footer.cache.preludes.get(key)
    if known is None:
        root = thrift.binary_field(4, b"schema") + thrift.i32_field(1, len(columns)) + _STOP
        nodes = [root, *(n.raw for c in columns for n in footer.nodes[c.node : c.node_end])]
        schema = thrift.i32_field(1, 2) + thrift.list_field(1, thrift.STRUCT, nodes)
        known = footer.cache.preludes[key] = schema, _key_values(footer, columns)
    return known


def _key_values(footer: Footer, columns: Sequence[Column]) -> bytes:
    stored = footer.key_values.get(_ARROW_SCHEMA)
    if stored is None:
        return b""
    order = list(footer.columns)
    try:
        whole = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
        if whole.names != order:
            return b""  # not about these columns: the reader casts to what pyarrow made of the whole file
        part: Any = pa.schema([whole.field(order.index(c.name)) for c in columns])
        value = base64.b64encode(part.serialize())
    except DECODE_ERRORS as e:
        raise CorruptError(f"Parquet footer: ARROW:schema: {e}") from e
    pair = thrift.binary_field(1, _ARROW_SCHEMA) + thrift.binary_field(1, value) + _STOP
    return thrift.list_field(1, thrift.STRUCT, [pair])


BATCH_ROWS = 64 * 1024
WHOLE_CHUNKS_BYTES = 64 << 20
"""Of files up to this size, Arrow reads column chunks whole."""
_BUFFER_BYTES = 1 << 20
_DICTIONARY_BYTES = 1 << 20
"""Beyond this, Arrow and Parquet (Java) give a dictionary up."""
_CODE_BYTES = 4


def read_columns(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    row_groups: Sequence[int] | None = None,
    batch_size: int = BATCH_ROWS,
    read_dictionary: Sequence[str] = (),
    use_threads: bool = True,
    whole_chunks: bool = False,
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``source`` (a local path or a :class:`pyarrow.NativeFile`), in order, as batches of ``batch_size``.

    ``columns`` are top-level names, None for all; ``row_groups`` are numbers, None for all.  Columns in
    ``read_dictionary`` (flat, of strings or bytes) come as Arrow dictionaries, which index builders count quickly, if
    the file has them so: for plain values, Arrow would collect all values seen so far again for every batch (a million
    different texts: 2.2 s for a bloom filter instead of 0.4).
    ``whole_chunks``: column chunks are read as a whole, also of a large file; good for small pages, at whose headers
    Arrow's read buffer grows until it holds the chunk, copied each time (pages of 16 KB: 830 → 650 ms for 100 MB).
    ``metadata``: the file's footer, where it is known; then no byte of it is read.

    No batch has zero rows; a read of no columns gives batches without columns that still count their rows.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    try:
        if metadata is None and read_dictionary:
            metadata = pq.read_metadata(source)
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=coded_columns(metadata, read_dictionary) or None
            if metadata is not None and read_dictionary
            else None,
            memory_map=isinstance(source, str),
            pre_buffer=False,
            buffer_size=0 if whole_chunks else _buffer_size(source),
        )
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e
    except (PermissionError, IsADirectoryError) as e:
        raise StorageUnavailable(f"cannot read {source}: {e}") from e
    except DECODE_ERRORS as e:
        raise decode_error(e, "footer") from e
    with file:
        order = _order(file, columns)
        groups = list(range(file.num_row_groups)) if row_groups is None else list(row_groups)
        try:
            for batch in _checked_batches(source, file, order, batch_size, row_groups=groups, use_threads=use_threads):
                if batch.num_rows:
                    yield batch if order is None or batch.schema.names == order else batch.select(order)
        except DECODE_ERRORS as e:
            raise decode_error(e, "pages") from e


def coded_columns(metadata: pq.FileMetaData, names: Sequence[str]) -> list[str]:
    """The columns among ``names`` that are stored as codes of a dictionary, all through the file."""
    paths = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    coded = []
    for name in (n for n in names if n in paths):
        chunks = [metadata.row_group(g).column(paths[name]) for g in range(metadata.num_row_groups)]
        # A writer that gives the dictionary up goes on with plain values, which take more than a code.
        if all(
            c.has_dictionary_page and c.total_uncompressed_size <= _DICTIONARY_BYTES + _CODE_BYTES * c.num_values
            for c in chunks
        ):
            coded.append(name)
    return coded


def _buffer_size(source: Any) -> int:
    """Return how many bytes of a column chunk Arrow reads at a time, 0 for all of it.

    Through a buffer it allocates (and clears) whatever size a page's header states; whole chunks bound that.
    """
    return 0 if isinstance(source, str) or source.size() <= WHOLE_CHUNKS_BYTES else _BUFFER_BYTES


def _order(file: pq.ParquetFile, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    names = file.schema_arrow.names
    for name in columns:
        if name not in names:
            raise NotFound(f"the Parquet file has no column '{name}'; it has {', '.join(names)}")
    return list(columns)
