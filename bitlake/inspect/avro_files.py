"""Avro containers: manifest lists, manifests, index manifests, and data files.

::

    "Obj" 0x01 | header: map of text to bytes (avro.schema, avro.codec) | 16 bytes sync
    blocks: long records | long bytes | the records, compressed | 16 bytes sync

Longs are zigzag varints, a map is blocks of pairs closed by a count of 0.  Only the blocks that hold a shown record are
read; of the others the number of records.  Source: the Apache Avro specification.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.errors import CorruptError
from bitlake.inspect.source import AVRO_MAGIC, Source
from bitlake.inspect.tree import Page, Tree, reading

_SYNC = 16
_MOST_HEADS = 1000
"""Blocks looked at beyond the page, to tell how many records there are in all."""

Describe = Callable[[Tree, Any], None]
Decode = Callable[[bytes], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Header:
    """What a container says of itself; ``end`` is where its first block starts."""

    meta: dict[str, bytes]
    sync: bytes
    end: int

    @property
    def schema(self) -> Any:
        """The writer's schema; None if it is no JSON."""
        try:
            return json.loads(self.meta.get("avro.schema", b""))
        except ValueError:
            return None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the record's fields."""
        made = self.schema
        found = made.get("fields") if isinstance(made, dict) else None
        return tuple(f["name"] for f in found or () if isinstance(f, dict) and isinstance(f.get("name"), str))


class _Cursor:
    def __init__(self, source: Source, at: int) -> None:
        self.source, self.at = source, at

    def long(self) -> int:
        raw = shift = 0
        while True:
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
            if shift > 63:
                raise CorruptError("a number of more than 64 bits", self.at)

    def take(self, n: int) -> bytes:
        if n < 0 or n > self.source.size - self.at:
            raise CorruptError(f"{n:,} bytes are announced, {self.source.size - self.at:,} are left", self.at)
        self.at += n
        return self.source.view(self.at - n, n)


def read_header(source: Source) -> Header:
    """The header of a container; raises :class:`CorruptError`."""
    cursor = _Cursor(source, 0)
    if cursor.take(4) != AVRO_MAGIC:
        raise CorruptError("this is not an Avro file: the magic is wrong", 0)
    meta: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:
            count = -count
            cursor.long()
        for _ in range(count):
            key = cursor.take(cursor.long())
            meta[key.decode("utf-8", "replace")] = cursor.take(cursor.long())
    sync = cursor.take(_SYNC)
    return Header(meta, sync, cursor.at)


def avro_tree(tree: Tree, source: Source, page: Page, decode: Decode | None, describe: Describe, noun: str) -> None:
    """Add the header and the page's records, in their blocks.

    ``decode`` takes a container of one block; None: the records of a data file, as they are.  ``describe`` fills the
    node of a record.  Faults of a block are told at the block.
    """
    head = tree.add("header", 0)
    with reading(head):
        header = read_header(source)
    if head.fault is not None:
        return
    head.size = header.end
    fields = header.fields
    codec = header.meta.get("avro.codec", b"null").decode("utf-8", "replace")
    head.facts.update({"codec": codec, "fields": len(fields), "sync": header.sync.hex()})
    if header.schema is None:
        with reading(head):
            raise CorruptError("the header holds no schema", 4)
    shown, seen, further = page.offset + page.limit, 0, 0
    for number, (at, size, count) in enumerate(_blocks(tree, source, header)):
        if seen + count > page.offset and seen < shown:
            block = tree.add(f"block {number}", at, size, {noun: count})
            with reading(block, at - header.end):
                _records(block, source, header, decode, describe, page, seen)
        else:
            further += seen >= shown
        seen += count
        if further > _MOST_HEADS:
            tree.more = None
            break
    tree.facts[noun] = seen if tree.more == 0 else f"{seen:,} or more"
    if tree.more == 0 and tree.fault is None:
        tree.more = page.left(seen)


def _blocks(tree: Tree, source: Source, header: Header) -> Iterator[tuple[int, int, int]]:
    """(offset, size, records) of every block; what breaks becomes the fault of ``tree``."""
    at = header.end
    while at < source.size:
        found = None
        with reading(tree):
            cursor = _Cursor(source, at)
            count, size = cursor.long(), cursor.long()
            if count < 0 or size < 0:
                raise CorruptError(f"a block of {count:,} records and {size:,} bytes", at)
            end = cursor.at + size + _SYNC
            if end > source.size:
                raise CorruptError(
                    f"a block of {count:,} records takes {size:,} bytes, {source.size - cursor.at:,} are left", at
                )
            if source.view(end - _SYNC, _SYNC) != header.sync:
                raise CorruptError("a block does not end with the file's sync marker", end - _SYNC)
            found = at, end - at, count
        if found is None:
            return
        yield found
        at = end


def _records(
    block: Tree,
    source: Source,
    header: Header,
    decode: Decode | None,
    describe: Describe,
    page: Page,
    first: int,
) -> None:
    assert block.offset is not None and block.size is not None
    data = source.view(0, header.end) + source.view(block.offset, block.size)
    records = _rows(data) if decode is None else decode(data)
    for i, record in enumerate(records):
        if page.offset <= first + i < page.offset + page.limit:
            node = block.add(str(first + i))
            with reading(node):
                describe(node, record)


def _rows(data: bytes) -> Sequence[Any]:
    from bitlake.formats.avro import read_columns  # Arrow's rows, which metadata is not made of

    return [row for batch in read_columns(io.BytesIO(data)) for row in batch.to_pylist()]


def describe_row(node: Tree, row: dict[str, Any]) -> None:
    """A record of a data file."""
    node.facts.update(row)
