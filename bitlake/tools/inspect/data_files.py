"""Data files in ORC and Parquet, down to stripes, column chunks and pages.

ORC::

    "ORC"
    stripes      each: index | data | stripe footer
    metadata     statistics of stripes
    footer       Protocol Buffers, in compressed chunks: 3 bytes little-endian (length << 1 | original), the bytes
    postscript   Protocol Buffers, not compressed: 1 footer length, 2 compression, 3 chunk size, 5 metadata length
    1 byte       length of the postscript

Source: the Apache ORC specification, version 1.

Parquet: the layout is drawn in :mod:`bitlake.formats.parquet.footer`.  The footer is read.  Page offsets come from the
offset index, or from one page header to the next in a file without one.  Only the pages that are shown are read.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import BitlakeError, CorruptError, NotFound, UnsupportedFeature
from bitlake.fileindex.payload import DAMAGE, Page
from bitlake.formats.parquet.footer import MAGIC, ColumnChunk, Footer, SchemaNode, read_footer
from bitlake.formats.parquet.page_index import load_pages, page_bounds
from bitlake.formats.parquet.thrift import ThriftReader
from bitlake.tools.inspect.tree import ORC_MAGIC, Node, Source

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_COMPRESSIONS = ("none", "zlib", "snappy", "lzo", "lz4", "zstd")
_KINDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "TIMESTAMP", "LIST",
    "MAP", "STRUCT", "UNION", "DECIMAL", "DATE", "VARCHAR", "CHAR", "TIMESTAMP WITH LOCAL TIME ZONE",
)  # fmt: skip
_MOST_FOOTER = 1 << 28


def orc_tree(tree: Node, source: Source, page: Page) -> None:
    """Add the parts of an ORC file; stripes are paged."""
    start = source.start(3)
    tree.add("magic", 0, len(start), {"": start.decode("latin-1")})
    if start != ORC_MAGIC:
        with tree.children[-1].reading():
            raise CorruptError("no ORC magic at the start", 0)
    size = source.view(source.size - 1, 1)[0]
    if size + 1 > source.size:
        raise CorruptError(f"a postscript of {size} bytes in a file of {source.size:,}", source.size - 1)
    at = source.size - 1 - size
    post = tree.add("postscript", at, size)
    with post.reading(at):
        message = _message(source.view(at, size))
        compression, footer_size, metadata_size = _number(message, 2), _number(message, 1), _number(message, 5)
        name = _COMPRESSIONS[compression] if compression < len(_COMPRESSIONS) else str(compression)
        post.facts.update({"compression": name, "footer": footer_size, "metadata": metadata_size})
        if message.get(8000) != [ORC_MAGIC]:
            raise CorruptError("the postscript does not end with ORC's magic", size - 3)
        if footer_size + metadata_size > at:
            raise CorruptError(f"footer and metadata of {footer_size + metadata_size:,} bytes before it", 0)
    if post.fault is not None:
        return
    tree.add("metadata", at - footer_size - metadata_size, metadata_size)
    foot = tree.add("footer", at - footer_size, footer_size)
    with foot.reading(at - footer_size):
        raw = _plain(source.view(at - footer_size, footer_size), name)
        footer = _message(raw)
        tree.facts["rows"] = _number(footer, 6)
        _columns(foot, footer)
        _stripes(tree, footer, page, at)


def _columns(foot: Node, footer: dict[int, list[Any]]) -> None:
    types = [_message(t) for t in footer.get(4, ())]
    foot.facts["types"] = len(types)
    if not types:
        return
    names = [n.decode("utf-8", "replace") for n in types[0].get(3, ())]
    for name, number in zip(names, _packed(types[0].get(2, ())), strict=False):
        kind = _number(types[number], 1) if number < len(types) else -1
        foot.add(name, facts={"type": _KINDS[kind] if 0 <= kind < len(_KINDS) else str(kind)})


def _stripes(tree: Node, footer: dict[int, list[Any]], page: Page, end: int) -> None:
    stripes = footer.get(3, [])
    tree.facts["stripes"] = len(stripes)
    first = 0
    for number, raw in enumerate(stripes):
        stripe = _message(raw)
        at, rows = _number(stripe, 1), _number(stripe, 5)
        sizes = [_number(stripe, i) for i in (2, 3, 4)]
        if number in page.of(len(stripes)):
            node = tree.add(f"stripe {number}", at, sum(sizes), {"first row": first, "rows": rows})
            with node.reading():
                if at + sum(sizes) > end:
                    raise CorruptError(f"a stripe of {sum(sizes):,} bytes does not fit", at)
                for name, size in zip(("index", "data", "stripe footer"), sizes, strict=True):
                    node.add(name, at, size)
                    at += size
        first += rows
    tree.more = page.left(len(stripes))


def _plain(data: bytes, compression: str) -> bytes:
    if compression == "none":
        return data
    out, at, size = [], 0, 0
    while at < len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        length = head >> 1
        if length > len(data) - at - 3:
            raise CorruptError(f"a compressed chunk of {length:,} bytes, {len(data) - at - 3:,} are left", at)
        body = data[at + 3 : at + 3 + length]
        out.append(body if head & 1 else _decompressed(body, compression, at))
        size += len(out[-1])
        if size > _MOST_FOOTER:
            raise CorruptError("the footer takes more than 256 MB", at)
        at += 3 + length
    return b"".join(out)


def _decompressed(body: bytes, compression: str, at: int) -> bytes:
    try:
        match compression:
            case "zlib":
                return zlib.decompressobj(-15).decompress(body, _MOST_FOOTER)
            case "zstd":
                return zstd.decompress(body)
            case "snappy":
                size, _ = _varint(body, 0)
                if size > _MOST_FOOTER:
                    raise CorruptError(f"a chunk of {size:,} bytes", at)
                return bytes(pa.Codec("snappy").decompress(body, decompressed_size=size))
    except (zlib.error, zstd.ZstdError, pa.ArrowException, OSError) as e:
        raise CorruptError(f"a compressed chunk cannot be read: {e}", at) from e
    raise UnsupportedFeature(f"the footer is compressed with {compression}, which is not shown here; its data is read")


# --- Protocol Buffers -------------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptError("a number does not end", at)
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def _message(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number, each as often as it is there: numbers, and bytes."""
    out: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        value: Any
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
            case 1 | 5 as width:
                size = 8 if width == 1 else 4
                value, at = data[at : at + size], at + size
            case 2:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
            case other:
                raise CorruptError(f"a field of kind {other}", begin)
        if at > len(data):
            raise CorruptError("a field runs past the end", begin)
        out.setdefault(tag >> 3, []).append(value)
    return out


def _number(message: dict[int, list[Any]], field: int) -> int:
    value = message.get(field, [0])[-1]
    if not isinstance(value, int):
        raise CorruptError(f"field {field} is not a number", None)
    return value


def _packed(values: Any) -> list[int]:
    """Repeated numbers, packed or one by one."""
    out: list[int] = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            out.append(number)
    return out


_PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ENCODINGS = {
    0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 4: "BIT_PACKED", 5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY", 9: "BYTE_STREAM_SPLIT",
}  # fmt: skip
_PAGE_TYPES = ("data page", "index page", "dictionary page", "data page v2")
_HEADER = 512
"""Bytes in which a page's header is looked for at first."""
_MOST_PAGES = 100_000


def parquet_tree(tree: Node, source: Source, page: Page, column: str | None) -> None:
    """Add the parts of a Parquet file; with a ``column`` only its chunks, and a page of its pages."""
    start = source.start(4)
    tree.add("magic", 0, len(start), {"": start.decode("latin-1")})
    if start != MAGIC:
        with tree.children[-1].reading():
            raise CorruptError("no Parquet magic at the start", 0)
    footer = read_footer(source.view, source.size, prefetch=8)
    tree.facts.update({"rows": footer.rows, "row groups": len(footer.row_groups), "columns": len(footer.columns)})
    tree.facts["written by"] = footer.created_by
    leaves = range(len(footer.leaves))
    if column is not None:
        chosen = next((c for c in footer.columns.values() if c.name.lower() == column.lower()), None)
        if chosen is None:
            raise NotFound(f"the file has no column '{column}'; it has {', '.join(footer.columns)}")
        leaves = range(chosen.leaf, chosen.leaf_end)
    counter = _Counter(page)
    # With a column the page is of its pages, else of the row groups.
    groups = range(len(footer.row_groups)) if column is not None else page.of(len(footer.row_groups))
    for number in groups:
        group = footer.row_groups[number]
        chunks = group.chunks
        at = min((c.start for c in chunks), default=None)
        size = sum(c.compressed for c in chunks)
        if column is not None and counter.full:
            tree.more = None if tree.more is None else tree.more + 1
            continue
        node = tree.add(f"row group {number}", at, size, {"first row": group.first_row, "rows": group.rows})
        for leaf in leaves:
            chunk = node.add(_dotted(chunks[leaf]), chunks[leaf].start, chunks[leaf].compressed)
            with chunk.reading():
                _chunk(chunk, chunks[leaf], footer.leaves[leaf])
                if column is not None:
                    _pages(chunk, source, footer, number, leaf, counter)
    if column is None:
        tree.more = page.left(len(footer.row_groups))
    _indexes(tree, footer)
    foot = tree.add("footer", source.size - 8 - len(footer.raw), len(footer.raw))
    foot.facts["keys"] = [k.decode("utf-8", "replace") for k in footer.key_values] or None
    foot.facts = {k: v for k, v in foot.facts.items() if v is not None}
    tree.add("footer length", source.size - 8, 4, {"": len(footer.raw)})
    tree.add("magic", source.size - 4, 4, {"": "PAR1"})


def _dotted(chunk: ColumnChunk) -> str:
    return ".".join(p.decode("utf-8", "replace") for p in chunk.path)


def _chunk(node: Node, chunk: ColumnChunk, leaf: SchemaNode) -> None:
    node.facts["type"] = _named(_PHYSICAL, chunk.physical)
    node.facts["codec"] = _named(_CODECS, chunk.codec)
    node.facts["values"] = chunk.values
    node.facts["uncompressed"] = chunk.uncompressed
    node.facts["encodings"] = ", ".join(_ENCODINGS.get(e, str(e)) for e in chunk.encodings)
    stats = chunk.statistics or {}
    for name, new, old in (("smallest", 6, 2), ("largest", 5, 1)):
        raw = stats.get(new, stats.get(old))
        if isinstance(raw, bytes):
            node.facts[name] = value_text(raw, leaf)
    if isinstance(stats.get(3), int):
        node.facts["NULLs"] = stats[3]


def _named(names: Sequence[str], code: int) -> str:
    return names[code] if 0 <= code < len(names) else f"unknown ({code})"


def value_text(raw: bytes, leaf: SchemaNode) -> str:
    """A plain-encoded bound as people write it: numbers, and text where it is text."""
    kinds = {1: "<i4", 2: "<i8", 4: "<f4", 5: "<f8"}
    if leaf.physical in kinds and len(raw) == np.dtype(kinds[leaf.physical]).itemsize:
        return str(np.frombuffer(raw, kinds[leaf.physical])[0])
    if leaf.physical == 0 and len(raw) == 1:
        return "true" if raw[0] else "false"
    if leaf.physical == 6:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
    return raw.hex()


class _Counter:
    """Numbers pages over all row groups, and selects those that the shown part of the list contains."""

    def __init__(self, page: Page) -> None:
        self.page, self.number = page, 0

    @property
    def full(self) -> bool:
        return self.number >= self.page.offset + self.page.limit

    def next(self) -> bool:
        self.number += 1
        return self.page.offset < self.number <= self.page.offset + self.page.limit


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page is; ``row`` and ``rows`` are None where nothing tells them."""

    offset: int
    size: int
    row: int | None
    rows: int | None
    bounds: str | None = None


def _pages(node: Node, source: Source, footer: Footer, group: int, leaf: int, counter: _Counter) -> None:
    chunk = footer.row_groups[group].chunks[leaf]
    if chunk.dictionary_offset is not None:
        size = chunk.data_offset - chunk.dictionary_offset
        page = node.add("dictionary page", chunk.dictionary_offset, size)
        with page.reading(chunk.dictionary_offset):
            _page_facts(page, source, chunk.dictionary_offset, size)
    hidden = 0
    for place in _places(source, footer, group, leaf):
        if counter.full and chunk.index_offset is None:
            node.more = None  # counting them would read the headers of all
            return
        if not counter.next():
            hidden += 1
            continue
        page = node.add(f"page {counter.number - 1}", place.offset, place.size)
        if place.row is not None:
            page.facts.update({"first row": place.row, "rows": place.rows})
        if place.bounds is not None:
            page.facts["values from"] = place.bounds
        with page.reading(place.offset):
            _page_facts(page, source, place.offset, place.size)
    node.more = hidden


def _places(source: Source, footer: Footer, group: int, leaf: int) -> Iterator[_Place]:
    row_group = footer.row_groups[group]
    chunk = row_group.chunks[leaf]
    if chunk.index_offset is None:
        at, stop = chunk.data_offset, chunk.start + chunk.compressed
        while at < stop:
            header, length = _header(source, at, stop - at)
            size = length + header.get(3, 0)
            if header.get(3, -1) < 0 or size > stop - at:
                raise CorruptError(f"a page of {size:,} bytes, {stop - at:,} are left of its column chunk", at)
            yield _Place(at, size, None, None)
            at += size
        return
    load_pages(footer, lambda ranges: [source.view(a, n) for a, n in ranges], [(group, leaf)])
    pages = footer.cache.pages[group, leaf]
    bounds = _bounds(source, footer, group, leaf)
    for i in range(min(len(pages.offsets), _MOST_PAGES)):
        first, end = int(pages.first_rows[i]), int(pages.first_rows[i + 1])
        yield _Place(
            int(pages.offsets[i]),
            int(pages.ends[i] - pages.offsets[i]),
            row_group.first_row + first,
            end - first,
            None if bounds is None else bounds[i],
        )


def _bounds(source: Source, footer: Footer, group: int, leaf: int) -> list[str] | None:
    """``low … high`` of every page of a column chunk, by its column index; None without one."""
    column = next((c for c in footer.columns.values() if c.flat and c.leaf == leaf), None)
    if column is None:
        return None
    try:
        bounds = page_bounds(footer, lambda ranges: [source.view(a, n) for a, n in ranges], column.name)
    except (BitlakeError, *DAMAGE):
        return None
    if bounds is None:
        return None
    first = footer.row_groups[group].first_row
    low = int(np.searchsorted(bounds.starts[:-1], first))
    count = len(footer.cache.pages[group, leaf].offsets)
    shown = range(low, low + count)
    return ["only NULLs" if bounds.empty[i] else f"{_bound(bounds.low[i])} … {_bound(bounds.high[i])}" for i in shown]


def _bound(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _header(source: Source, at: int, room: int) -> tuple[dict[int, Any], int]:
    """A page's header and its length."""
    size = min(_HEADER, room)
    while True:
        reader = ThriftReader(source.view(at, size), 0, at)
        try:
            return reader.struct(), reader.position
        except CorruptError:
            if size >= min(room, 1 << 20):
                raise
            size = min(room, size * 16)


def _page_facts(page: Node, source: Source, at: int, size: int) -> None:
    header, length = _header(source, at, size)
    page.facts["kind"] = _named(_PAGE_TYPES, header.get(1, -1))
    page.facts["header"] = length
    page.facts["uncompressed"] = header.get(2)
    inner = header.get(5) or header.get(7) or header.get(8) or {}
    page.facts["values"] = inner.get(1)
    encoding = inner.get(4) if 8 in header else inner.get(2)
    page.facts["encoding"] = _ENCODINGS.get(encoding, str(encoding)) if isinstance(encoding, int) else None
    page.facts = {k: v for k, v in page.facts.items() if v is not None}


def _indexes(tree: Node, footer: Footer) -> None:
    chunks = [c for g in footer.row_groups for c in g.chunks]
    columns = [(c.bounds_offset, c.bounds_length) for c in chunks if c.bounds_offset is not None]
    offsets = [(c.index_offset, c.index_length) for c in chunks if c.index_offset is not None]
    for name, places in (("column indexes", columns), ("offset indexes", offsets)):
        if places:
            start = min(a for a, _ in places)
            tree.add(name, start, max(a + n for a, n in places) - start, {"": len(places)})
