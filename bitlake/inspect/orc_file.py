"""ORC data files: postscript, footer and stripes.

::

    "ORC"
    stripes      each: index | data | stripe footer
    metadata     statistics of stripes
    footer       Protocol Buffers, in compressed chunks: 3 bytes little-endian (length << 1 | original), the bytes
    postscript   Protocol Buffers, not compressed: 1 footer length, 2 compression, 3 chunk size, 5 metadata length
    1 byte       length of the postscript

Source: the Apache ORC specification, version 1.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.inspect.source import ORC_MAGIC, Source
from bitlake.inspect.tree import Page, Tree, reading

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


def orc_tree(tree: Tree, source: Source, page: Page) -> None:
    """Add the parts of an ORC file; stripes are paged."""
    start = source.start(3)
    tree.add("magic", 0, len(start), {"": start.decode("latin-1")})
    if start != ORC_MAGIC:
        with reading(tree.children[-1]):
            raise CorruptError("no ORC magic at the start", 0)
    size = source.view(source.size - 1, 1)[0]
    if size + 1 > source.size:
        raise CorruptError(f"a postscript of {size} bytes in a file of {source.size:,}", source.size - 1)
    at = source.size - 1 - size
    post = tree.add("postscript", at, size)
    with reading(post, at):
        told = _message(source.view(at, size))
        compression, footer_size, metadata_size = _number(told, 2), _number(told, 1), _number(told, 5)
        name = _COMPRESSIONS[compression] if compression < len(_COMPRESSIONS) else str(compression)
        post.facts.update({"compression": name, "footer": footer_size, "metadata": metadata_size})
        if told.get(8000) != [ORC_MAGIC]:
            raise CorruptError("the postscript does not end with ORC's magic", size - 3)
        if footer_size + metadata_size > at:
            raise CorruptError(f"footer and metadata of {footer_size + metadata_size:,} bytes before it", 0)
    if post.fault is not None:
        return
    tree.add("metadata", at - footer_size - metadata_size, metadata_size)
    foot = tree.add("footer", at - footer_size, footer_size)
    with reading(foot, at - footer_size):
        raw = _plain(source.view(at - footer_size, footer_size), name)
        footer = _message(raw)
        tree.facts["rows"] = _number(footer, 6)
        _columns(foot, footer)
        _stripes(tree, footer, page, at)


def _columns(foot: Tree, footer: dict[int, list[Any]]) -> None:
    types = [_message(t) for t in footer.get(4, ())]
    foot.facts["types"] = len(types)
    if not types:
        return
    names = [n.decode("utf-8", "replace") for n in types[0].get(3, ())]
    for name, number in zip(names, _packed(types[0].get(2, ())), strict=False):
        kind = _number(types[number], 1) if number < len(types) else -1
        foot.add(name, facts={"type": _KINDS[kind] if 0 <= kind < len(_KINDS) else str(kind)})


def _stripes(tree: Tree, footer: dict[int, list[Any]], page: Page, end: int) -> None:
    stripes = footer.get(3, [])
    tree.facts["stripes"] = len(stripes)
    first = 0
    for number, raw in enumerate(stripes):
        stripe = _message(raw)
        at, rows = _number(stripe, 1), _number(stripe, 5)
        sizes = [_number(stripe, i) for i in (2, 3, 4)]
        if number in page.of(len(stripes)):
            node = tree.add(f"stripe {number}", at, sum(sizes), {"first row": first, "rows": rows})
            with reading(node):
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
        raise CorruptError(f"field {field} is no number", None)
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
