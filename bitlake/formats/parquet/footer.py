"""The footer of a Parquet file, as frozen values, and the column statistics in it.

::

    "PAR1"
    column chunks     [dictionary page] data pages …          of row group 0, 1, …
    column indexes    Thrift, optional, anywhere before the footer
    offset indexes    Thrift, one per column chunk, optional
    footer            Thrift FileMetaData
    footer length     4 bytes, little-endian
    "PAR1"            ("PARE": an encrypted footer)

Everything is checked once, here: chunks and indexes lie in the file, a row group has one chunk per leaf column, row
counts add up.  :mod:`bitlake.formats.parquet.page_index` reads the indexes when they are needed, and checks that pages
of a chunk are sorted and do not overlap.

Statistics are physical values of :mod:`bitlake.expressions.tree`.  Not all of them are trusted:

* ``min_value``/``max_value`` only under the type-defined column order; the deprecated ``min``/``max`` only for signed
  numbers, because old writers compared strings and decimals as signed bytes.
* A bound flagged as not exact (truncated) is unknown, as is one of a row group that has values but no bounds.
* FLOAT and DOUBLE: parquet-mr drops the bounds of a chunk that holds NaN, but Arrow skips NaN in silence, and NaN is
  greater than any number here.  So their bounds count only from parquet-mr, with a NaN count of 0, or if the caller
  knows which columns held NaN.  A zero bound is widened to -0.0 or 0.0, as the format asks of readers.
* INT96 has no order; nested columns have no statistics (as in Paimon).

Sources: the Apache Parquet format (``parquet.thrift``, Statistics and ColumnOrder); table-format spec, sections 6
and 8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError, NotFound, UnsupportedFeature
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.thrift import Struct, ThriftReader
from bitlake.lazy_modules import parquet as pq
from bitlake.types.arrow import UNITS_PER_SECOND, timestamp_unit
from bitlake.types.datatypes import BINARIES, INTEGERS, STRINGS, TIMESTAMPS, AtomicType, DataField, Root

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
PREFETCH = 128 * 1024
"""Bytes read with the footer's length: holds the footer and the offset indexes of some million rows in one request."""

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
"""Parquet's physical types, on disk."""
REQUIRED, OPTIONAL, REPEATED = range(3)
"""Parquet's repetition types, on disk."""

Fetch = Callable[[int, int], bytes | memoryview]
FetchRanges = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """One element of the schema: a leaf has a ``physical`` type, a group has children; ``raw`` is its Thrift."""

    name: str
    physical: int | None
    repetition: int
    children: int
    converted: int | None
    scale: int
    precision: int
    field_id: int | None
    logical: Struct | None
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A top-level column: nodes ``[node, node_end)`` and leaves ``[leaf, leaf_end)``, one leaf if it is ``flat``."""

    name: str
    node: int
    node_end: int
    leaf: int
    leaf_end: int
    flat: bool


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The pages of one leaf column in one row group, at bytes ``[start, start + compressed)``.

    ``statistics`` is Thrift's Statistics struct as read; ``index_offset`` is None without an offset index.
    """

    physical: int
    encodings: tuple[int, ...]
    path: tuple[bytes, ...]
    codec: int
    values: int
    compressed: int
    uncompressed: int
    start: int
    data_offset: int
    dictionary_offset: int | None
    statistics: Struct | None
    index_offset: int | None
    index_length: int
    bounds_offset: int | None = None
    bounds_length: int = 0
    """Where the column index is (:mod:`bitlake.formats.parquet.page_index`), if there is one that lies in the file."""
    bloom_offset: int | None = None
    """Where the bloom filter is (:mod:`bitlake.formats.parquet.page_index`), if one lies in the file."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows ``[first_row, first_row + rows)`` of the file; one chunk per leaf column."""

    first_row: int
    rows: int
    chunks: Sequence[ColumnChunk]


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a file, shared by the files of a table; ``flat``: the numbers of leaves that are columns."""

    nodes: tuple[SchemaNode, ...]
    columns: Mapping[str, Column]
    leaves: tuple[SchemaNode, ...]
    flat: frozenset[int]

    @property
    def memory(self) -> int:
        """An estimate of the bytes in memory."""
        return _NODE_BYTES * len(self.nodes)


_NODE_BYTES = 1000


@dataclass(frozen=True, slots=True)
class EncodedChunks:
    """The column chunks of a row group as a footer holds them; ``starts``: where each starts in ``raw``, and the end.

    ``base`` is the position of ``raw`` in the file.
    """

    raw: bytes
    base: int
    starts: list[int]

    def __len__(self) -> int:
        return len(self.starts) - 1


class ColumnChunks(Sequence[ColumnChunk]):
    """The column chunks of a row group of ``rows`` rows; each is decoded and checked when it is first used.

    Skipping a chunk takes an eighth of the time of decoding it.  Errors name the file if ``path`` is set.
    """

    __slots__ = ("_encoded", "_known", "_rows", "_schema", "_size", "path")

    def __init__(self, encoded: EncodedChunks, rows: int, schema: FileSchema, size: int) -> None:
        self._encoded, self._rows, self._schema, self._size = encoded, rows, schema, size
        self._known: dict[int, ColumnChunk] = {}
        self.path: str | None = None

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, leaf: Any) -> Any:
        known = self._known.get(leaf)
        if known is None:
            encoded = self._encoded
            start = encoded.starts[range(len(self))[leaf]]
            try:
                with _corrupt_footer(encoded.base):
                    found = ThriftReader(encoded.raw, start, encoded.base).struct()
                    known = _checked_chunk(found, leaf, self._rows, self._schema, self._size)
            except CorruptError as e:
                raise (e if self.path is None else e.within(self.path)) from e
            self._known[leaf] = known
        return known

    def raw(self, leaf: int) -> bytes:
        """The encoded ColumnChunk struct of a leaf."""
        return self._encoded.raw[self._encoded.starts[leaf] : self._encoded.starts[leaf + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The data pages of one column chunk, in order.

    ``offsets`` and ``ends`` are file positions (int64, header included); ``first_rows`` (int64, one more than pages)
    are rows of the row group, closed by its row count.  ``whole``: no offset index, one entry stands for the chunk.
    """

    offsets: np.ndarray[Any, np.dtype[np.int64]]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    first_rows: np.ndarray[Any, np.dtype[np.int64]]
    whole: bool = False


@dataclass(slots=True)
class FooterCache:
    """Values derived from a footer so far.  Mutable, but only ever filled with the same values: safe to share."""

    tail: bytes = b""
    """The bytes in front of the footer that were read with it: of a small file, all its data."""
    tail_offset: int = 0
    schema: pa.Schema | None = None
    metadata: pq.FileMetaData | None = None
    integer_metadata: pq.FileMetaData | None = None
    pages: dict[tuple[int, int], Pages] = field(default_factory=dict)
    preludes: dict[tuple[int, ...], tuple[bytes, bytes]] = field(default_factory=dict)
    heads: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    gathered: dict[int, tuple[pa.DataType, bool]] = field(default_factory=dict)
    """For each leaf that is a column: its Arrow type, and whether rows can be gathered from its PLAIN pages."""
    not_gathered: set[int] = field(default_factory=set)
    """Leaves whose pages have to be decoded by pyarrow to find rows in them."""
    narrow: dict[tuple[str, ...], Footer] = field(default_factory=dict)
    """Footers with a few of the columns only, by these columns."""
    bounds: dict[int, object] = field(default_factory=dict)
    """By leaf: :class:`bitlake.formats.parquet.page_index.PageBounds`."""

    def in_tail(self, offset: int, length: int) -> bytes | None:
        """The bytes of a range of the file that lies in the tail; None for any other range."""
        start = offset - self.tail_offset
        return self.tail[start : start + length] if 0 <= start <= len(self.tail) - length else None


_FOOTER_BYTES, _CHUNK_BYTES = 4096, 2500
"""Bytes of a footer in memory, and of each column chunk with its pages, parsed here and by pyarrow."""


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """A parsed footer; keep it as long as the file may be read again, its cache makes later reads cheap."""

    size: int
    rows: int
    created_by: str
    nodes: tuple[SchemaNode, ...]
    columns: Mapping[str, Column]
    leaves: tuple[SchemaNode, ...]
    row_groups: tuple[RowGroup, ...]
    key_values: Mapping[bytes, bytes]
    type_ordered: tuple[bool, ...]
    raw: bytes = field(repr=False)
    cache: FooterCache = field(repr=False)

    def column(self, name: str) -> Column:
        """The top-level column of that exact name; raises :class:`NotFound`."""
        column = self.columns.get(name)
        if column is None:
            raise NotFound(f"the Parquet file has no column '{name}'; it has {', '.join(self.columns)}")
        return column

    @property
    def memory(self) -> int:
        """An estimate of the bytes in memory, with what will be derived from the footer."""
        chunks = len(self.row_groups) * len(self.leaves)
        return _FOOTER_BYTES + _CHUNK_BYTES * chunks + len(self.raw) + len(self.cache.tail)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer as pyarrow takes it, so that it need not fetch it again; raises :class:`CorruptError`."""
        if self.cache.metadata is None:
            self.cache.metadata = _pyarrow_metadata(self.raw)
        return self.cache.metadata

    @property
    def integer_metadata(self) -> pq.FileMetaData:
        """As :attr:`metadata`, but top-level decimals that are stored as INT32 or INT64 are integers without a scale.

        pyarrow makes 128 bits of each decimal, which takes longer than decoding it.
        """
        if self.cache.integer_metadata is None:
            nodes = [node.raw for node in self.nodes]
            for column in self.columns.values():
                leaf = self.nodes[column.node]
                if leaf.physical in (INT32, INT64) and _scale(leaf) is not None:
                    nodes[column.node] = _without_logical_type(leaf)
            raw = self.raw.replace(b"".join(node.raw for node in self.nodes), b"".join(nodes), 1)
            self.cache.integer_metadata = _pyarrow_metadata(raw)
        return self.cache.integer_metadata

    @property
    def schema(self) -> pa.Schema:
        """The file's columns as Arrow types, as pyarrow reads them."""
        if self.cache.schema is None:
            try:
                self.cache.schema = self.metadata.schema.to_arrow_schema()
            except (pa.ArrowException, OSError, ValueError) as e:
                raise CorruptError(f"Parquet schema: {e}") from e
        return self.cache.schema


def _pyarrow_metadata(raw: bytes) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(MAGIC + raw + struct.pack("<I", len(raw)) + MAGIC))
    except (pa.ArrowException, OSError, ValueError) as e:
        raise CorruptError(f"Parquet footer: {e}") from e


def _without_logical_type(leaf: SchemaNode) -> bytes:
    """A leaf's Thrift with fields 1 (type), 3 (repetition), 4 (name) and 9 (field id) only."""
    assert leaf.physical is not None
    number = b"" if leaf.field_id is None else thrift.i32_field(5, leaf.field_id)
    return b"".join(
        (
            thrift.i32_field(1, leaf.physical),
            thrift.i32_field(2, leaf.repetition),
            thrift.binary_field(1, leaf.name.encode()),
            number,
            bytes((thrift.STOP,)),
        )
    )


def read_footer(
    fetch: Fetch, size: int, *, prefetch: int = PREFETCH, schema_of: Callable[[bytes], FileSchema] | None = None
) -> Footer:
    """Read and check the footer of a file of ``size`` bytes, in one or two requests.

    If the file has more than ``MANY_STRUCTS`` columns, a column chunk is checked when it is first used.
    ``schema_of`` parses the schema, and may cache what :func:`parse_schema` returns.

    Raises :class:`CorruptError` if it is not a Parquet footer, :class:`UnsupportedFeature` if it is encrypted.
    """
    if size < 12:
        raise CorruptError(f"a file of {size} bytes is too short for Parquet")
    tail_offset = max(0, size - max(prefetch, 8))
    tail = bytes(fetch(tail_offset, size - tail_offset))
    if len(tail) != size - tail_offset:
        raise CorruptError("the file is shorter than its size says", tail_offset + len(tail))
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise UnsupportedFeature("the Parquet footer is encrypted")
    if tail[-4:] != MAGIC:
        raise CorruptError("no Parquet magic at the end", size - 4)
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise CorruptError(f"a Parquet footer of {length} bytes in a file of {size}", size - 8)
    start = size - 8 - length
    if start >= tail_offset:
        raw = tail[start - tail_offset : -8]
    else:
        head = bytes(fetch(start, tail_offset - start))
        if len(head) != tail_offset - start:
            raise CorruptError("the file is shorter than its size says", start + len(head))
        raw = (head + tail)[:-8]
    return parse_footer(raw, size, tail[: max(0, start - tail_offset)], tail_offset, schema_of or parse_schema)


def parse_schema(raw: bytes) -> FileSchema:
    """Parse an encoded list of SchemaElement structs, header included."""
    nodes = _schema(ThriftReader(raw))
    columns, leaves = _columns(nodes)
    return FileSchema(nodes, columns, leaves, frozenset(c.leaf for c in columns.values() if c.flat))


def parse_footer(
    raw: bytes,
    size: int,
    tail: bytes = b"",
    tail_offset: int = 0,
    schema_of: Callable[[bytes], FileSchema] = parse_schema,
) -> Footer:
    """Parse a FileMetaData struct of a file of ``size`` bytes; ``tail`` are bytes at ``tail_offset`` known already."""
    base = size - 8 - len(raw)
    with _corrupt_footer(base):
        return _parse(raw, size, base, FooterCache(tail, tail_offset), schema_of)


@contextmanager
def _corrupt_footer(base: int) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, UnicodeDecodeError, OverflowError, ValueError) as e:
        # A field that is missing, or of another type than the format gives it.
        raise CorruptError(f"Parquet footer: {type(e).__name__} {e}", base) from e


def _parse(raw: bytes, size: int, base: int, cache: FooterCache, schema_of: Callable[[bytes], FileSchema]) -> Footer:
    reader = ThriftReader(raw, 0, base)
    meta: Struct = {}
    schema = FileSchema((), {}, (), frozenset())
    ordered: tuple[bool, ...] | None = None
    last = 0
    while True:
        kind, last = reader.field(last)
        if kind == thrift.STOP:
            break
        start = reader.position
        if last == 2:
            count = _struct_list(reader, kind)
            reader.skip_structs(count)
            schema = schema_of(raw[start : reader.position])
        elif last == 4 and len(schema.leaves) > thrift.MANY_STRUCTS:
            meta[4] = [_unparsed_group(reader) for _ in range(_struct_list(reader, kind))]
        elif last == 7 and kind == thrift.LIST and raw.startswith(usual := _type_orders(schema), start):
            reader.position += len(usual)
            ordered = (True,) * len(schema.leaves)
        else:
            meta[last] = reader.value(kind)
    if not schema.nodes:
        raise CorruptError("Parquet footer: no schema", base)
    if 8 in meta:
        raise UnsupportedFeature("the Parquet file's columns are encrypted")
    groups = _row_groups(meta[4], schema, size)
    rows = meta[3]
    if rows != sum(g.rows for g in groups):
        raise CorruptError(f"Parquet footer: {rows} rows, but the row groups' do not add up to it", base)
    leaves, orders = schema.leaves, meta.get(7) or ()
    if ordered is None:
        ordered = tuple(len(orders) == len(leaves) and 1 in orders[i] for i in range(len(leaves)))
    key_values = {kv[1]: kv[2] for kv in meta.get(5, ()) if 2 in kv}
    created_by = meta.get(6, b"").decode("utf-8", "replace")
    return Footer(size, rows, created_by, schema.nodes, schema.columns, leaves, groups, key_values, ordered, raw, cache)


def _struct_list(reader: ThriftReader, kind: int) -> int:
    """Read the header of a list of structs; returns their number."""
    item, count = reader.list_header()
    if kind != thrift.LIST or item != thrift.STRUCT:
        raise reader.fail("a list of structs is expected")
    return count


def _unparsed_group(reader: ThriftReader) -> Struct:
    """Read a RowGroup struct without decoding its column chunks."""
    group: Struct = {}
    last = 0
    while True:
        kind, last = reader.field(last)
        if kind == thrift.STOP:
            return group
        if last == 1:
            group[1] = EncodedChunks(reader.data, reader.base, reader.skip_structs(_struct_list(reader, kind)))
        else:
            group[last] = reader.value(kind)


def _type_orders(schema: FileSchema) -> bytes:
    """The encoded list of column orders of a file whose columns all have the order of their type."""
    order = bytes((1 << 4 | thrift.STRUCT, thrift.STOP, thrift.STOP))
    return thrift.list_value(thrift.STRUCT, [order] * len(schema.leaves))


def _schema(reader: ThriftReader) -> tuple[SchemaNode, ...]:
    count = _struct_list(reader, thrift.LIST)
    nodes = []
    for _ in range(count):
        start = reader.position
        e = reader.struct()
        children = e.get(5, 0)
        physical = None if children else e.get(1)
        if children < 0 or (physical is not None and not 0 <= physical <= FIXED):
            raise reader.fail("a schema element that is neither a leaf nor a group")
        name = e[4].decode("utf-8")
        _expect(int, e.get(2, 0), e.get(3, 0), e.get(6, 0), e.get(7, 0), e.get(8, 0), e.get(9, 0))
        _expect(dict, e.get(10, {}))
        raw = reader.data[start : reader.position]
        nodes.append(
            SchemaNode(
                name, physical, e.get(3, REQUIRED), children, e.get(6), e.get(7, 0), e.get(8, 0),
                e.get(9), e.get(10), raw,
            )
        )  # fmt: skip
    return tuple(nodes)


def _columns(nodes: tuple[SchemaNode, ...]) -> tuple[dict[str, Column], tuple[SchemaNode, ...]]:
    if not nodes:
        raise CorruptError("Parquet footer: no schema")
    columns: dict[str, Column] = {}
    leaves: list[SchemaNode] = []
    at = 1
    for _ in range(nodes[0].children):
        start, first_leaf = at, len(leaves)
        open_nodes = 1
        while open_nodes:
            if at >= len(nodes):
                raise CorruptError("Parquet footer: the schema tree has more children than elements")
            node = nodes[at]
            at += 1
            open_nodes += node.children - 1
            if node.children == 0:
                if node.physical is not None:
                    leaves.append(node)
                elif at - 1 == start:
                    raise CorruptError(f"Parquet footer: column '{node.name}' has neither type nor children")
        flat = at == start + 1 and nodes[start].repetition != REPEATED
        columns[nodes[start].name] = Column(nodes[start].name, start, at, first_leaf, len(leaves), flat)
    if at != len(nodes) or len(columns) != nodes[0].children:
        raise CorruptError("Parquet footer: the schema tree does not use each element once, by its own name")
    return columns, tuple(leaves)


def _row_groups(found: list[Struct], schema: FileSchema, size: int) -> tuple[RowGroup, ...]:
    groups = []
    first_row = 0
    for number, group in enumerate(found):
        rows = group[3]
        found_chunks, count = group[1], len(schema.leaves)
        if rows < 0 or len(found_chunks) != count:
            raise CorruptError(f"Parquet row group {number}: {rows} rows, {len(found_chunks)} columns of {count}")
        chunks = (
            ColumnChunks(found_chunks, rows, schema, size)
            if isinstance(found_chunks, EncodedChunks)
            else tuple([_checked_chunk(c, leaf, rows, schema, size) for leaf, c in enumerate(found_chunks)])
        )
        groups.append(RowGroup(first_row, rows, chunks))
        first_row += rows
    if first_row >= 1 << 62:
        raise CorruptError(f"Parquet footer: {first_row} rows")
    return tuple(groups)


def _expect(kind: type, *values: Any) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r:.40} is not of type {kind.__name__}")


def _checked_chunk(found: Struct, number: int, rows: int, schema: FileSchema, size: int) -> ColumnChunk:
    """The chunk of a leaf in a row group of ``rows`` rows."""
    # pyarrow writes a row group for a table without rows.
    chunk = (_chunk if rows else _empty_chunk)(found, schema.leaves[number], size)
    if number in schema.flat and chunk.values != rows:
        raise CorruptError(f"Parquet footer: column {number} has {chunk.values} values in {rows} rows", chunk.start)
    return chunk


def _chunk(found: Struct, leaf: SchemaNode, size: int) -> ColumnChunk:
    if found.get(1):
        raise UnsupportedFeature(f"Parquet column '{leaf.name}' lies in another file, {found[1]!r}")
    meta = found[3]
    data_offset, compressed, values = meta[9], meta[7], meta[5]
    dictionary = meta.get(11)
    encodings, path, index_offset, index_length = meta[2], meta[3], found.get(4), found.get(5, 0)
    _expect(int, meta[1], meta[4], meta[6], *encodings)
    _expect(bytes, *path)
    _expect(dict, meta.get(12, {}))
    # Some writers leave 0 for "no dictionary"; a dictionary comes before the data pages.
    if dictionary is not None and not 0 < dictionary < data_offset:
        dictionary = None
    start = data_offset if dictionary is None else dictionary
    if start < 4 or compressed < 0 or start + compressed > size - 8 or data_offset > start + compressed or values < 0:
        raise CorruptError(f"Parquet column '{leaf.name}': a chunk of {compressed} bytes outside the file", start)
    if meta[1] != leaf.physical:
        raise CorruptError(f"Parquet column '{leaf.name}': chunk and schema differ in physical type", start)
    if index_offset is not None and not (index_offset >= 4 and 0 < index_length <= size - 8 - index_offset):
        if index_length or index_offset:
            raise CorruptError(f"Parquet column '{leaf.name}': its offset index lies outside the file", index_offset)
        index_offset = None
    bounds, bounds_length = found.get(6), found.get(7, 0)
    if bounds is not None and not (bounds >= 4 and 0 < bounds_length <= size - 8 - bounds):
        bounds = None
    bloom = meta.get(14)
    if not isinstance(bloom, int) or not 4 <= bloom < size - 8:
        bloom = None
    return ColumnChunk(
        meta[1], tuple(meta[2]), tuple(meta[3]), meta[4], values, compressed, meta[6], start, data_offset,
        dictionary, meta.get(12), index_offset, index_length, bounds, bounds_length, bloom,
    )  # fmt: skip


def _empty_chunk(found: Struct, leaf: SchemaNode, size: int) -> ColumnChunk:
    """The chunk of an empty row group.  Its offsets are ignored, because it has no bytes."""
    meta = found[3]
    _expect(int, meta[4], *meta[2])
    _expect(bytes, *meta[3])
    if meta[1] != leaf.physical or meta[5] != 0:
        raise CorruptError(f"Parquet column '{leaf.name}': an empty row group has {meta[5]} values of type {meta[1]}")
    return ColumnChunk(
        meta[1], tuple(meta[2]), tuple(meta[3]), meta[4], 0, 0, 0, len(MAGIC), len(MAGIC),
        None, None, None, 0, None, 0, None,
    )  # fmt: skip


# --- column statistics ------------------------------------------------------------------------------------------------

MAX, MIN, NULL_COUNT, _DISTINCT, MAX_VALUE, MIN_VALUE, MAX_EXACT, MIN_EXACT, NAN_COUNT = range(1, 10)
"""Field ids of Parquet's Statistics struct, on disk."""

_CONVERTED_UNITS = {9: "ms", 10: "us", 7: "ms", 8: "us"}
_LOGICAL_UNITS = {1: "ms", 2: "us", 3: "ns"}
_LOGICAL_DECIMAL, _LOGICAL_TIME, _LOGICAL_TIMESTAMP, _LOGICAL_INTEGER = 5, 7, 8, 10
_CONVERTED_DECIMAL = 5
_CONVERTED_UNSIGNED = range(11, 15)

Stats = tuple[list[Any], list[Any], list[int | None]]
_Decode = Callable[[bytes], Any]


def metadata_footer(metadata: pq.FileMetaData) -> Footer:
    """pyarrow's metadata of a file as a :class:`Footer`; its file size is unknown, so only for statistics."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    file = sink.getvalue().to_pybytes()
    length = int.from_bytes(file[-8:-4], "little")
    return parse_footer(file[-8 - length : -8], 1 << 62)


def footer_stats(
    footer: Footer | pq.FileMetaData, fields: Sequence[DataField], *, nan_columns: Collection[str] | None = None
) -> Stats:
    """(mins, maxs, null counts) of the columns ``fields``, by name; None where unknown.

    ``nan_columns`` names the columns that hold NaN, if the caller knows.  A column the file lacks counts as NULL in
    every row.  A column of NULLs only has no bounds and a null count equal to the row count.
    """
    known = footer if isinstance(footer, Footer) else metadata_footer(footer)
    stats = [_column_stats(known, f, nan_columns) for f in fields]
    return [s[0] for s in stats], [s[1] for s in stats], [s[2] for s in stats]


def _column_stats(footer: Footer, field: DataField, nan_columns: Collection[str] | None) -> tuple[Any, Any, int | None]:
    column = footer.columns.get(field.name)
    if column is None:
        return None, None, footer.rows
    if not column.flat or not isinstance(field.type, AtomicType):
        return None, None, None
    leaf = footer.leaves[column.leaf]
    chunks = [g.chunks[column.leaf] for g in footer.row_groups if g.rows]
    try:
        nulls = _null_count(leaf, chunks)
        low, high = _bounds(footer, column.leaf, chunks, field, nan_columns)
    except (TypeError, AttributeError) as e:  # a statistics field of another Thrift type
        raise CorruptError(f"Parquet statistics of column '{field.name}': {e}") from e
    return low, high, nulls


def _null_count(leaf: SchemaNode, chunks: Sequence[ColumnChunk]) -> int | None:
    if leaf.repetition == REQUIRED:
        return 0
    total = 0
    for chunk in chunks:
        count = (chunk.statistics or {}).get(NULL_COUNT)
        if count is None or not 0 <= count <= chunk.values:
            return None
        total += count
    return total


def _bounds(
    footer: Footer, index: int, chunks: Sequence[ColumnChunk], field: DataField, nan_columns: Collection[str] | None
) -> tuple[Any, Any]:
    leaf = footer.leaves[index]
    assert isinstance(field.type, AtomicType)
    decode = _decoder(leaf, field.type)
    if decode is None:
        return None, None
    is_float = leaf.physical in (FLOAT, DOUBLE)
    if is_float and nan_columns is not None and field.name in nan_columns:
        return None, None
    trusted = not is_float or nan_columns is not None or footer.created_by.startswith("parquet-mr")
    low = high = None
    for chunk in chunks:
        stats = chunk.statistics or {}
        if stats.get(NULL_COUNT) == chunk.values:
            continue
        if not trusted and stats.get(NAN_COUNT) != 0:
            return None, None
        raw = _raw_bounds(stats, footer.type_ordered[index], leaf.physical)
        if raw is None:
            return None, None
        try:
            chunk_low, chunk_high = decode(raw[0]), decode(raw[1])
        except (struct.error, UnicodeDecodeError):
            return None, None
        if chunk_low is None or chunk_high is None:
            return None, None
        if chunk_low > chunk_high:  # such bounds were made with another order
            return None, None
        low = chunk_low if low is None or chunk_low < low else low
        high = chunk_high if high is None or chunk_high > high else high
    if is_float and low is not None and high is not None:
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, high


def _raw_bounds(stats: dict[int, Any], type_ordered: bool, physical: int | None) -> tuple[bytes, bytes] | None:
    if MIN_VALUE in stats and MAX_VALUE in stats:
        if not type_ordered or not stats.get(MIN_EXACT, True) or not stats.get(MAX_EXACT, True):
            return None
        return stats[MIN_VALUE], stats[MAX_VALUE]
    if MIN in stats and MAX in stats and physical in (BOOLEAN, INT32, INT64, FLOAT, DOUBLE):
        return stats[MIN], stats[MAX]
    return None


def _decoder(leaf: SchemaNode, made: AtomicType) -> _Decode | None:
    """The function from a bound's bytes to the column's physical value, or None if the types do not go together."""
    physical, root = leaf.physical, made.root
    if physical == BOOLEAN:
        return (lambda b: struct.unpack("<?", b)[0]) if root is Root.BOOLEAN else None
    if physical in (FLOAT, DOUBLE):
        # A FLOAT file read as DOUBLE widens exactly; the reverse would round.
        fits = root is Root.DOUBLE or (root is Root.FLOAT and physical == FLOAT)
        return _float_decoder("<f" if physical == FLOAT else "<d") if fits else None
    if root in STRINGS:
        return (lambda b: b.decode("utf-8")) if physical == BYTE_ARRAY else None
    if root in BINARIES:
        return bytes if physical in (BYTE_ARRAY, FIXED) else None
    if root is Root.DECIMAL:
        return _decimal_decoder(leaf, made)
    if physical not in (INT32, INT64) or _is_unsigned(leaf):
        return None
    number = _number_decoder("<i" if physical == INT32 else "<q")
    unit = _unit(leaf)
    if root in TIMESTAMPS and physical == INT64 and unit is not None:
        return _rescaled(number, UNITS_PER_SECOND[unit], UNITS_PER_SECOND[timestamp_unit(made.precision)])
    if root is Root.TIME and unit is not None:
        return _rescaled(number, UNITS_PER_SECOND[unit], 1_000)
    plain = unit is None and _scale(leaf) is None
    return number if plain and (root in INTEGERS or (root is Root.DATE and physical == INT32)) else None


def _number_decoder(layout: str) -> _Decode:
    return lambda b: struct.unpack(layout, b)[0]


def _float_decoder(layout: str) -> _Decode:
    def decode(b: bytes) -> float | None:
        value: float = struct.unpack(layout, b)[0]
        return None if math.isnan(value) else value

    return decode


def _rescaled(decode: _Decode, source: int, target: int) -> _Decode:
    """``decode``, then from units of 1/source to 1/target second; a value that does not divide is unknown."""

    def rescale(b: bytes) -> int | None:
        whole, rest = divmod(decode(b) * target, source)
        return whole if rest == 0 else None

    return rescale


def number_units(leaf: SchemaNode, made: AtomicType) -> tuple[int, int] | None:
    """Return the factors that make physical values of an INT32 or INT64 leaf: times the second, by the first.

    None if they do not: leaves of other kinds, unsigned ones, decimals of another scale.
    """
    if leaf.physical not in (INT32, INT64) or _is_unsigned(leaf):
        return None
    unit = _unit(leaf)
    if made.root in TIMESTAMPS:
        return None if unit is None else (UNITS_PER_SECOND[unit], UNITS_PER_SECOND[timestamp_unit(made.precision)])
    if made.root is Root.DECIMAL:
        return (1, 1) if _scale(leaf) == (made.scale or 0) else None
    plain = unit is None and _scale(leaf) is None
    return (1, 1) if plain and (made.root in INTEGERS or made.root is Root.DATE) else None


def _decimal_decoder(leaf: SchemaNode, made: AtomicType) -> _Decode | None:
    scale = _scale(leaf)
    if scale is None or scale != (made.scale or 0):
        return None
    if leaf.physical == INT32:
        return _number_decoder("<i")
    if leaf.physical == INT64:
        return _number_decoder("<q")
    if leaf.physical in (BYTE_ARRAY, FIXED):
        return lambda b: int.from_bytes(b, "big", signed=True)
    return None


def _scale(leaf: SchemaNode) -> int | None:
    """The scale of a DECIMAL leaf, None for any other."""
    if leaf.logical is not None and _LOGICAL_DECIMAL in leaf.logical:
        scale = leaf.logical[_LOGICAL_DECIMAL].get(1)
        return scale if isinstance(scale, int) else None
    return leaf.scale if leaf.converted == _CONVERTED_DECIMAL else None


def _unit(leaf: SchemaNode) -> str | None:
    """The unit of a TIME or TIMESTAMP leaf, None for any other."""
    logical = leaf.logical or {}
    timestamp = logical.get(_LOGICAL_TIMESTAMP) or logical.get(_LOGICAL_TIME)
    if timestamp:
        return next((_LOGICAL_UNITS[u] for u in timestamp.get(2, ()) if u in _LOGICAL_UNITS), None)
    return _CONVERTED_UNITS.get(leaf.converted) if leaf.converted is not None else None


def _is_unsigned(leaf: SchemaNode) -> bool:
    logical = leaf.logical or {}
    if _LOGICAL_INTEGER in logical:
        return logical[_LOGICAL_INTEGER].get(2) is False
    return leaf.converted in _CONVERTED_UNSIGNED
