"""Inspect metadata files: manifest lists, manifests and other Avro containers, JSON files, and hints.

::

    "Obj" 0x01 | header: map of text to bytes (avro.schema, avro.codec) | 16 bytes sync
    blocks: long records | long bytes | the records, compressed | 16 bytes sync

The containers are manifest lists, manifests, index manifests and Avro data files.  Longs are zigzag varints; a map is a
list of blocks of pairs, ended by a count of 0.  Records are nodes of the tree.  Only blocks with a shown record are
decompressed; other blocks only count their records.

JSON files are snapshots, tags, schemas, statistics and consumers.  Their members are found one after the other, each
with its place, so that a file that is cut shows all before the cut.  A hint is a number.

Source: the Apache Avro specification.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.codec.avro import MAGIC, SYNC
from bitlake.errors import CorruptError
from bitlake.fileindex.payload import Page
from bitlake.formatting import counted
from bitlake.metadata import manifest
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.metadata.stats import column_stats
from bitlake.tools.inspect.tree import Node, Source, TableContext, shown

# --- Avro containers --------------------------------------------------------------------------------------------------

_MOST_HEADS = 1000
"""Blocks read beyond the page to count all records."""

Describe = Callable[[Node, Any], None]
Decode = Callable[[bytes], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container; ``end`` is where its first block starts."""

    meta: dict[str, bytes]
    sync: bytes
    end: int

    @property
    def schema(self) -> Any:
        """The writer's schema; None if it is not valid JSON."""
        try:
            return json.loads(self.meta.get("avro.schema", b""))
        except ValueError:
            return None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the record's fields."""
        schema = self.schema
        listed = schema.get("fields") if isinstance(schema, dict) else None
        return tuple(f["name"] for f in listed or () if isinstance(f, dict) and isinstance(f.get("name"), str))


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
    if cursor.take(4) != MAGIC:
        raise CorruptError("this is not an Avro file: the magic is wrong", 0)
    meta: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:
            count = -count
            cursor.long()
        for _ in range(count):
            key = cursor.take(cursor.long())
            meta[key.decode("utf-8", "replace")] = cursor.take(cursor.long())
    sync = cursor.take(SYNC)
    return Header(meta, sync, cursor.at)


def avro_tree(tree: Node, source: Source, page: Page, decode: Decode | None, describe: Describe, noun: str) -> None:
    """Add the header and the page's records, in their blocks.

    ``decode`` takes a container of one block; None: the records of a data file, as they are.  ``describe`` fills the
    node of a record.  A block's faults are reported at the block.
    """
    head = tree.add("header", 0)
    with head.reading():
        header = read_header(source)
    if head.fault is not None:
        return
    head.size = header.end
    fields = header.fields
    codec = header.meta.get("avro.codec", b"null").decode("utf-8", "replace")
    head.facts.update({"codec": codec, "fields": len(fields), "sync": header.sync.hex()})
    if header.schema is None:
        with head.reading():
            raise CorruptError("the header holds no schema", 4)
    shown, seen, further = page.offset + page.limit, 0, 0
    for number, (at, size, count) in enumerate(_blocks(tree, source, header)):
        if seen + count > page.offset and seen < shown:
            block = tree.add(f"block {number}", at, size, {noun: count})
            with block.reading(at - header.end):
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


def _blocks(tree: Node, source: Source, header: Header) -> Iterator[tuple[int, int, int]]:
    """(offset, size, records) of every block; what breaks becomes the fault of ``tree``."""
    at = header.end
    while at < source.size:
        with tree.reading():
            cursor = _Cursor(source, at)
            count, size = cursor.long(), cursor.long()
            if count < 0 or size < 0:
                raise CorruptError(f"a block of {count:,} records and {size:,} bytes", at)
            end = cursor.at + size + SYNC
            if end > source.size:
                raise CorruptError(
                    f"a block of {count:,} records takes {size:,} bytes, {source.size - cursor.at:,} are left", at
                )
            if source.view(end - SYNC, SYNC) != header.sync:
                raise CorruptError("a block does not end with the file's sync marker", end - SYNC)
        if tree.fault is not None:
            return
        yield at, end - at, count
        at = end


def _records(
    block: Node,
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
            with node.reading():
                describe(node, record)


def _rows(data: bytes) -> Sequence[Any]:
    from bitlake.formats.avro import read_columns  # Arrow's rows, which metadata is not made of

    return [row for batch in read_columns(io.BytesIO(data)) for row in batch.to_pylist()]


def describe_row(node: Node, row: dict[str, Any]) -> None:
    """A record of a data file."""
    node.facts.update(row)


def manifest_list_tree(tree: Node, source: Source, page: Page, context: TableContext) -> None:
    """A manifest list: its manifests."""

    def describe(node: Node, meta: manifest.ManifestFileMeta) -> None:
        node.name = meta.file_name
        node.facts.update(_known(
            bytes=meta.file_size, added=meta.num_added_files, deleted=meta.num_deleted_files, schema=meta.schema_id,
            buckets=_span(meta.min_bucket, meta.max_bucket), levels=_span(meta.min_level, meta.max_level),
        ))  # fmt: skip
        fields = context.partition_fields
        low, high = context.values(fields, meta.partition_stats.min), context.values(fields, meta.partition_stats.max)
        if fields and low and high:
            node.facts["partitions"] = f"{_spec(low)} … {_spec(high)}"

    avro_tree(tree, source, page, manifest.decode_manifest_list, describe, "manifests")


def manifest_tree(tree: Node, source: Source, page: Page, context: TableContext, column: str | None) -> None:
    """A manifest: its changes of data files; with statistics of one column, or of all where one entry is shown."""

    def describe(node: Node, entry: manifest.ManifestEntry) -> None:
        file = entry.file
        node.name = f"{entry.kind.name} {file.file_name}"
        partition = context.values(context.partition_fields, entry.partition)
        node.facts.update(_known(
            partition=_spec(partition) if partition else None, bucket=entry.bucket, of=entry.total_buckets,
            level=file.level, rows=file.row_count, bytes=file.file_size, schema=file.schema_id,
            sequence=_span(file.min_sequence_number, file.max_sequence_number),
            deletes=file.delete_row_count or None,
            source=None if file.file_source is None else _source(file.file_source),
            **{"beside it": list(file.extra_files) or None, "external path": file.external_path},
        ))  # fmt: skip
        if file.embedded_index is not None:
            node.facts["embedded index"] = counted(len(file.embedded_index), "byte")
        _keys(node, file, context)
        _statistics(node, file, context, column, page.limit == 1)

    avro_tree(tree, source, page, manifest.decode_manifest, describe, "entries")


def index_manifest_tree(tree: Node, source: Source, page: Page, context: TableContext) -> None:
    """An index manifest: the table's index files, and the vectors in each."""

    def describe(node: Node, entry: IndexFileEntry) -> None:
        node.name = entry.file_name
        partition = context.values(context.partition_fields, entry.partition)
        node.facts.update(_known(
            type=entry.index_type, partition=_spec(partition) if partition else None, bucket=entry.bucket,
            bytes=entry.file_size, **{"hashes" if entry.ranges is None else "vectors": entry.row_count},
        ))  # fmt: skip
        for place in (entry.ranges or ())[: page.limit]:
            facts = _known(**{"vector at": place.offset, "length": place.length, "deleted": place.cardinality})
            node.add(place.data_file, facts=facts)
        node.more = max(0, len(entry.ranges or ()) - page.limit)

    avro_tree(tree, source, page, decode_index_manifest, describe, "index files")


def _keys(node: Node, file: manifest.DataFileMeta, context: TableContext) -> None:
    fields = context.key_fields(file.schema_id)
    if fields:
        low, high = context.values(fields, file.min_key), context.values(fields, file.max_key)
        if low and high:
            node.facts["keys"] = f"{_spec(low)} … {_spec(high)}"


def _statistics(
    node: Node, file: manifest.DataFileMeta, context: TableContext, column: str | None, every: bool
) -> None:
    schema = context.schema(file.schema_id)
    if schema is None:
        return
    stats = column_stats(file, schema.fields)
    names = [f for f in schema.fields if f.name in stats]
    if column is None and not every:
        node.facts["statistics"] = f"of {len(names)} columns"
        return
    for field in names:
        if column is None or field.name.lower() == column.lower():
            bounds = stats[field.name]
            facts = {
                "smallest": shown(field, bounds.min),
                "largest": shown(field, bounds.max),
                "NULLs": bounds.null_count,
            }
            node.add(f"statistics of {field.name}", facts=facts)


def _spec(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={'NULL' if v is None else v}" for k, v in values.items())


def _known(**facts: Any) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if v is not None}


def _span(low: int | None, high: int | None) -> str | None:
    return None if low is None or high is None else str(low) if low == high else f"{low}-{high}"


def _source(code: int) -> str:
    return manifest.FileSource(code).name if code in set(manifest.FileSource) else str(code)


# --- JSON files and hints ---------------------------------------------------------------------------------------------

_DECODER = json.JSONDecoder()
_BLANK = " \t\r\n"
_MOST = 64 * 1024 * 1024


def json_tree(tree: Node, source: Source, page: Page, kind: str) -> None:
    """Add a JSON file's members to ``tree``; ``kind`` ``snapshot`` and ``schema`` are checked to be one."""
    if source.size > _MOST:
        raise CorruptError(f"{source.size:,} bytes are too many for JSON of a table; look at a part as hex", 0)
    data = source.view(0, source.size)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        _object(tree, data[: e.start].decode(), page)
        raise CorruptError("this is not UTF-8 text", e.start) from e
    _object(tree, text, page)
    if tree.fault is None and kind in ("snapshot", "tag", "changelog"):
        Snapshot.from_json(data, source.path)
    elif tree.fault is None and kind == "schema":
        TableSchema.from_json(data, source.path)


def hint_tree(tree: Node, source: Source) -> None:
    """Add a hint's number."""
    text = source.view(0, min(source.size, 64)).decode("ascii", "replace")
    number = tree.add("id", 0, source.size, {"": text})
    if not text.isascii() or not text.strip().isdigit():
        with number.reading():
            raise CorruptError("a hint is a number in digits, and readers list the folder instead of this", 0)


class _Places:
    """Map places in a text to those in its bytes; takes places in ascending order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._byte = 0

    def of(self, at: int) -> int:
        if at < self._at:
            self._at = self._byte = 0
        self._byte += len(self._text[self._at : at].encode())
        self._at = at
        return self._byte


def _object(tree: Node, text: str, page: Page) -> None:
    places = _Places(text)
    with tree.reading():
        at = _skip(text, 0, places)
        if text[at : at + 1] == "{":
            _members(tree, text, at, page, places)
        else:
            _expected("a JSON object", text, at, places)


def _members(tree: Node, text: str, at: int, page: Page, places: _Places) -> int:
    """Add the members of the object or list that starts at ``at``; the place after it."""
    listed = text[at] == "["
    stop = "]" if listed else "}"
    at = _skip(text, at + 1, places)
    number = 0
    while text[at : at + 1] != stop:
        if number:
            if text[at : at + 1] != ",":
                _expected(f"',' or '{stop}'", text, at, places)
            at = _skip(text, at + 1, places)
        start, name = at, str(number)
        if not listed:
            name, at = _value(text, at, places)
            if not isinstance(name, str):
                _expected("a name in quotes", text, start, places)
            at = _skip(text, at, places)
            if text[at : at + 1] != ":":
                _expected("':'", text, at, places)
            at = _skip(text, at + 1, places)
        # The top level is always shown; of what is inside of it, a page.
        shown = not (listed or tree.name == "options") or number in range(page.offset, page.offset + page.limit)
        at = _member(tree, name, text, start, at, page, places) if shown else _value(text, at, places)[1]
        tree.more = (tree.more or 0) + (not shown)
        at = _skip(text, at, places)
        number += 1
    return at + 1


def _member(tree: Node, name: str, text: str, start: int, at: int, page: Page, places: _Places) -> int:
    nested = text[at : at + 1] in ("{", "[") and tree.name != "fields"
    child = tree.add(name, places.of(start))
    if nested:
        end = _members(child, text, at, page, places)
    else:
        value, end = _value(text, at, places)
        if isinstance(value, dict):
            child.name = str(value.get("name", name))
            child.facts = {k: v for k, v in value.items() if k != "name"}
        else:
            child.facts = {"": value}
            if name == "timeMillis" and isinstance(value, int) and abs(value) < 1 << 47:
                child.facts["is"] = f"{dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)} UTC"
    child.size = places.of(end) - (child.offset or 0)
    return end


def _value(text: str, at: int, places: _Places) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as e:
        raise CorruptError(f"not JSON: {e.msg}", places.of(e.pos)) from e


def _skip(text: str, at: int, places: _Places) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    if at >= len(text):
        raise CorruptError("the JSON ends before its last bracket", places.of(len(text)))
    return at


def _expected(what: str, text: str, at: int, places: _Places) -> None:
    raise CorruptError(f"not JSON: {what} is expected, and {text[at : at + 1]!r} is there", places.of(at))
