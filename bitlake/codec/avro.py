"""Avro object containers: Paimon's metadata files, and bounded reading of any container.

::

    size     name     meaning
    4        magic    "Obj" 01
    …        meta     map: avro.schema and avro.codec
    16       sync     random
    per block: count (zigzag) | size (zigzag) | the records, compressed | sync

Paimon's metadata files have Paimon's exact schema text and the codec ``zstandard``; an empty one is header only.
Iceberg's, which Paimon writes beside its own, may have other codecs and more entries in ``meta``.
Nullable is ``["null", T]``: Paimon's reader takes branch 0 for null.  fastavro encodes and decodes the records.

Claims of a hostile file are checked before anything is decoded.  A schema may not refer to a type it is inside, and
each value takes at least one byte: a count of values is therefore bounded by the bytes that hold them.  A block
decompresses to a bounded size.

Sources: the Apache Avro specification; table-format spec, section 4.
"""

from __future__ import annotations

import bz2
import functools
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from bitlake import _clock
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.lazy_modules import fastavro

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"Obj\x01"
SYNC = 16
HEADER_BYTES = 16 << 20
"""The most that a header may take; a schema of 15,000 columns needs less."""
SCHEMA_NODES = 30_000
"""Types in a schema other than null, counted wherever they are used."""
SCHEMA_DEPTH = 64
_XZ_MEMORY = 128 << 20
_PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_LOGICAL = ("logicalType", "precision", "scale")
_CACHED_SCHEMA = 64 << 10


@dataclass(frozen=True, slots=True)
class Header:
    """A container's header: its checked schema, as JSON without references; ``nodes``: how many types it has."""

    schema: Any
    nodes: int
    codec: str
    sync: bytes


class Block(NamedTuple):
    """A block of a container: its number of records and their bytes, uncompressed and as stored with a codec."""

    records: int
    data: bytes
    stored: bytes
    codec: str

    @staticmethod
    def plain(records: int, data: bytes) -> Block:
        """Return an uncompressed block."""
        return Block(records, data, data, "null")

    def compressed(self, codec: str, level: int) -> Block:
        """Return the block compressed by ``codec``: the same block if it has that codec already."""
        return (
            self if self.codec == codec else Block(self.records, self.data, _compress(self.data, codec, level), codec)
        )


def read_header(stream: BinaryIO, what: str, logical: bool = True) -> Header:
    """Read a container's header, its schema by :func:`check_schema`.

    Raises :class:`CorruptError`, and :class:`UnsupportedFeature` for an unknown codec or another format.
    """
    magic = stream.read(len(MAGIC))
    if magic != MAGIC:
        for start, other in ((b"ORC", "ORC"), (b"PAR1", "Parquet")):
            if magic.startswith(start):
                raise UnsupportedFeature(f"the format of {what} is {other}; only Avro is supported")
        raise CorruptError(f"{what} is not an Avro file", 0)
    meta: dict[bytes, bytes] = {}
    left = HEADER_BYTES
    while count := _long(stream, what):
        if count < 0:
            count = -count
            _long(stream, what)
        for _ in range(count):
            key, value = (_sized(stream, left, what) for _ in range(2))
            left -= len(key) + len(value) + 2
            meta[key] = value
    sync = _exactly(stream, SYNC, what)
    codec = meta.get(b"avro.codec", b"null").decode("latin-1")
    if codec not in _CODECS:
        raise UnsupportedFeature(
            f"{what} is compressed with Avro codec {codec!r}; expected one of {', '.join(_CODECS)}"
        )
    schema, nodes = check_schema(meta.get(b"avro.schema", b""), what, logical)
    return Header(schema, nodes, codec, sync)


def read_blocks(
    stream: BinaryIO, header: Header, total: int, limit: Callable[[int], int], what: str
) -> Iterator[tuple[int, bytes]]:
    """Yield (records, uncompressed bytes) of the blocks after the header; raises :class:`CorruptError`.

    ``total``: the container's size in bytes.  ``limit``: from a block's stored size to its greatest size decompressed.
    """
    return ((count, block) for count, block, _ in _stored_blocks(stream, header, total, limit, what))


def _stored_blocks(
    stream: BinaryIO, header: Header, total: int, limit: Callable[[int], int], what: str
) -> Iterator[tuple[int, bytes, bytes]]:
    """As :func:`read_blocks`, with the compressed bytes of each block."""
    decompress = _CODECS[header.codec]
    while first := stream.read(1):
        count = _long(stream, what, first[0])
        size = _long(stream, what)
        body = stream.read(size) if 0 <= size <= total else b""
        if count < 0 or len(body) != size:
            raise CorruptError(
                f"{what} has a block of {count:,} records and {size:,} bytes, of which {len(body):,} exist"
            )
        most = limit(size)
        try:
            block = decompress(body, most)
        except MemoryError as e:
            raise CorruptError(f"{what} has a block that needs more memory than is available") from e
        except Exception as e:  # each codec raises errors of its own
            raise CorruptError(f"{what} has a damaged block: {type(e).__name__}: {e}") from e
        if len(block) > most:
            raise CorruptError(f"{what} has a block of {size:,} bytes that decompresses to more than {most:,} bytes")
        if count > len(block):
            raise CorruptError(f"{what} has a block that claims {count:,} records in {len(block):,} bytes")
        if stream.read(SYNC) != header.sync:
            raise CorruptError(f"{what} has a block that does not end with the file's sync marker")
        yield count, block, body


class PlainContainer:
    """The same container without compression, as a readable stream: one block at a time is in memory."""

    def __init__(self, header: Header, blocks: Iterator[tuple[int, bytes]]) -> None:
        schema = json.dumps(header.schema, separators=(",", ":")).encode()
        pairs = (b"avro.schema", schema, b"avro.codec", b"null")
        meta = b"".join(zigzag(len(p)) + p for p in pairs)
        self._piece = io.BytesIO(MAGIC + zigzag(2) + meta + b"\0" + header.sync)
        self._blocks = blocks
        self._sync = header.sync

    def read(self, size: int) -> bytes:
        """The next bytes, fewer at the end of the container."""
        data = self._piece.read(size)
        while len(data) < size:
            block = next(self._blocks, None)
            if block is None:
                break
            count, body = block
            self._piece = io.BytesIO(b"".join((zigzag(count), zigzag(len(body)), body, self._sync)))
            data += self._piece.read(size - len(data))
        return data


# --- codecs -----------------------------------------------------------------------------------------------------------


def decompress_zstd(body: bytes, most: int) -> bytes:
    """Decompress the frames of ``body``; the result is longer than ``most`` if there is more than that."""
    return _frames(zstd.ZstdDecompressor, body, most)


def compress_zstd(data: bytes, level: int = 1) -> bytes:
    """Compress to one frame with a checksum, which readers verify: a damaged block is never another valid one."""
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.compress(data, options=options)


def has_checksum(frame: bytes) -> bool:
    """Whether a zstd frame ends with a checksum of its content: bit 2 of the frame header descriptor (RFC 8878)."""
    return len(frame) > 4 and bool(frame[4] & 4)


def _frames(make: Callable[[], Any], body: bytes, most: int) -> bytes:
    parts, length = [], 0
    while body:
        decompressor = make()
        part = decompressor.decompress(body, most + 1 - length)
        parts.append(part)
        length += len(part)
        if length > most:
            break
        if not decompressor.eof:
            raise EOFError("the compressed data is cut off")
        body = decompressor.unused_data
    return b"".join(parts)


def _deflate(body: bytes, most: int) -> bytes:
    decompressor = zlib.decompressobj(-15)
    data = decompressor.decompress(body, most + 1)
    if not decompressor.eof and len(data) <= most:
        raise EOFError("the compressed data is cut off")
    return data


def _snappy(body: bytes, most: int) -> bytes:
    import pyarrow as pa  # slow to import; Paimon compresses with zstd unless it is asked for another codec

    size = 0
    for at, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    # Snappy copies at most 64 bytes for each 3 bytes of input.
    if size > min(most, 32 * len(body)):
        raise ValueError(f"{size:,} bytes are claimed")
    data: bytes = pa.decompress(body[:-4], size, "snappy").to_pybytes()
    if zlib.crc32(data) != int.from_bytes(body[-4:], "big"):
        raise ValueError("the checksum differs")
    return data


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda body, _: body,
    "deflate": _deflate,
    "zstandard": decompress_zstd,
    "snappy": _snappy,
    "bzip2": lambda body, most: _frames(bz2.BZ2Decompressor, body, most),
    "xz": lambda body, most: _frames(lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), body, most),
}


# --- schemas of containers --------------------------------------------------------------------------------------------


def nullable_field(name: str, kind: Any) -> dict[str, Any]:
    """A field of a record in an Avro schema that may be null, and is null where it is absent."""
    return {"name": name, "type": ["null", kind], "default": None}


def plain_fields(*pairs: str) -> list[dict[str, Any]]:
    """Fields of a record in an Avro schema, each given as ``name:type``."""
    return [{"name": p.split(":")[0], "type": p.split(":")[1]} for p in pairs]


def check_schema(text: bytes, what: str, logical: bool = True) -> tuple[Any, int]:
    """Return a container's schema with each reference replaced by its type, and how many types it then has.

    Only what decoding needs is kept, and logical types if ``logical``.  Raises :class:`CorruptError` for a schema that
    is invalid, refers to itself, has values that take no byte, or exceeds :data:`SCHEMA_NODES` or
    :data:`SCHEMA_DEPTH`.
    """
    return (_check_schema if len(text) > _CACHED_SCHEMA else _cached_schema)(text, what, logical)


def _check_schema(text: bytes, what: str, logical: bool) -> tuple[Any, int]:
    try:
        walk = _SchemaWalk(what, logical)
        return walk.type(json.loads(text), 0, ""), walk.nodes
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise CorruptError(f"{what} has no valid Avro schema: {type(e).__name__}: {e}") from e


# Most files of a table share one schema.
_cached_schema = functools.lru_cache(32)(_check_schema)


class _SchemaWalk:
    """Copies a schema, giving each named type a name of its own; mutable: it counts and remembers."""

    def __init__(self, what: str, logical: bool) -> None:
        self.nodes = 0
        self._kept = _LOGICAL if logical else ()
        self._what = what
        self._named: dict[str, tuple[Any, str] | None] = {}

    def type(self, made: Any, depth: int, namespace: str) -> Any:
        self.nodes += 1
        if self.nodes > SCHEMA_NODES or depth > SCHEMA_DEPTH:
            raise CorruptError(
                f"{self._what} has an Avro schema of more than {SCHEMA_NODES:,} types or {SCHEMA_DEPTH} levels"
            )
        if isinstance(made, list):
            return self._union(made, depth, namespace)
        if isinstance(made, str):
            return made if made in _PRIMITIVES else self._reference(made, depth, namespace)
        kind = made["type"]
        if isinstance(kind, (list, dict)):
            return self.type(kind, depth + 1, namespace)
        kept = {k: made[k] for k in self._kept if k in made}
        if kind in _PRIMITIVES:
            return {"type": kind, **kept} if kept else kind
        if kind == "array":
            return {"type": kind, "items": self.type(made["items"], depth + 1, namespace), **kept}
        if kind == "map":
            return {"type": kind, "values": self.type(made["values"], depth + 1, namespace), **kept}
        if kind in ("record", "fixed", "enum"):
            return self._define(made, kind, kept, depth, namespace)
        return self._reference(kind, depth, namespace)

    def _union(self, branches: list[Any], depth: int, namespace: str) -> list[Any]:
        if not branches or any(isinstance(b, list) for b in branches):
            raise ValueError("a union of no types, or of unions")
        return ["null" if b in ("null", {"type": "null"}) else self.type(b, depth + 1, namespace) for b in branches]

    def _define(self, made: dict[str, Any], kind: str, kept: dict[str, Any], depth: int, namespace: str) -> Any:
        name = str(made["name"])
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = str(made.get("namespace", namespace))
            name = f"{namespace}.{name}"
        out: dict[str, Any] = {"type": kind, "name": f"t{self.nodes}", **kept}
        if kind == "enum":
            out["symbols"] = list(map(str, made["symbols"]))
        elif kind == "fixed":
            out["size"] = made["size"]
            if not isinstance(made["size"], int) or made["size"] < 1:
                raise ValueError("a fixed type of no bytes")
        else:
            self._named[name] = None
            # A member without fields takes no byte: Iceberg's partition of a table without partitions.
            members = [f for f in made["fields"] if not _is_empty(f["type"])]
            if not members:
                raise ValueError("a record without fields")
            out["fields"] = [
                {"name": str(f["name"]), "type": self.type(f["type"], depth + 1, namespace)} for f in members
            ]
        self._named[name] = made, namespace
        return out

    def _reference(self, name: Any, depth: int, namespace: str) -> Any:
        full = name if name in self._named else f"{namespace}.{name}"
        if not isinstance(name, str) or full not in self._named:
            raise ValueError(f"unknown type {str(name)[:60]!r}")
        definition = self._named[full]
        if definition is None:
            raise CorruptError(f"{self._what} has an Avro schema in which type {name[:60]!r} contains itself")
        self.nodes -= 1
        return self.type(definition[0], depth + 1, definition[1])


def _is_empty(made: Any) -> bool:
    """Whether a type is a record without fields."""
    return isinstance(made, dict) and made.get("type") == "record" and made.get("fields") == []


# --- numbers and bytes of a stream ------------------------------------------------------------------------------------


def _long(stream: BinaryIO, what: str, first: int | None = None) -> int:
    value = shift = 0
    byte = first
    while True:
        if byte is None:
            byte = _exactly(stream, 1, what)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        byte = None
        if shift > 63:
            raise CorruptError(f"{what} has a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1)


def _sized(stream: BinaryIO, left: int, what: str) -> bytes:
    size = _long(stream, what)
    if not 0 <= size <= left:
        raise CorruptError(f"{what} has an Avro header of more than {HEADER_BYTES:,} bytes")
    return _exactly(stream, size, what)


def _exactly(stream: BinaryIO, size: int, what: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise CorruptError(f"{what} ends inside its header or between two blocks")
    return data


# --- Paimon's metadata files ------------------------------------------------------------------------------------------

BLOCK_BYTES = 64_000
"""Uncompressed size at which a block ends; Avro's own default in Java."""
_ARRAY_END = b"\0"
_MARKER = b"\xffBLOCK\xff\xff"
_LEAST_LIMIT = 16 << 20
_MOST_RATIO = 256


class AvroFormat:
    """One record type: its schema text for headers, and its parsed form."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.text = json.dumps(schema, separators=(",", ":"))

    @functools.cached_property
    def checked(self) -> Any:
        """The schema as :func:`read_header` returns it, without logical types: a timestamp's number stays a number."""
        return check_schema(self.text.encode(), "the schema", logical=False)[0]

    @functools.cached_property
    def parsed(self) -> Any:
        """The schema as fastavro takes it."""
        return fastavro.parse_schema(self.checked)

    @functools.cached_property
    def framed(self) -> Any:
        """The schema of a block of these records, as fastavro takes it."""
        return fastavro.parse_schema(_framed(self.checked))

    def encode(
        self,
        records: Sequence[dict[str, Any]],
        level: int = 1,
        codec: str = "zstandard",
        meta: Mapping[str, str] | None = None,
    ) -> bytes:
        """A whole container file of the records; ``meta``: more entries of the header."""
        files = [data for data, _ in self.encode_rolling(records, 1 << 62, level, codec, meta)]
        return files[0] if files else self._header(codec, meta)[0]

    def encode_rolling(
        self,
        records: Sequence[dict[str, Any]],
        target: int,
        level: int = 1,
        codec: str = "zstandard",
        meta: Mapping[str, str] | None = None,
        block_bytes: int | None = None,
    ) -> Iterator[tuple[bytes, int]]:
        """Container files of at least one record each, a new one started when one has reached ``target`` bytes.

        ``block_bytes``: the uncompressed size at which a block ends; None: :data:`BLOCK_BYTES`.
        Yields (file, number of records in it); nothing for no records.
        """
        most = min(target, BLOCK_BYTES if block_bytes is None else block_bytes)
        header, sync = self._header(codec, meta)
        out = bytearray(header)
        block = io.BytesIO()
        in_file = in_block = 0
        for record in records:
            fastavro.schemaless_writer(block, self.parsed, record)
            in_block += 1
            in_file += 1
            # Blocks shrink by compression, so also look before a small file's target is overrun by one full block.
            if block.tell() >= most:
                _end_block(out, block, in_block, sync, codec, level)
                in_block = 0
                if len(out) >= target:
                    yield bytes(out), in_file
                    header, sync = self._header(codec, meta)
                    out, in_file = bytearray(header), 0
        if in_block:
            _end_block(out, block, in_block, sync, codec, level)
        if in_file:
            yield bytes(out), in_file

    def blocks(self, data: bytes, what: str) -> list[Block] | None:
        """The blocks of a container; None for one of another schema.

        Raises :class:`CorruptError`.
        """
        stream = io.BytesIO(data)
        header = read_header(stream, what, logical=False)
        if header.schema != self.checked:
            return None
        stored = _stored_blocks(stream, header, len(data), lambda _: most_bytes(len(data)), what)
        return [Block(count, block, body, header.codec) for count, block, body in stored]

    def records(self, block: Block, what: str) -> list[tuple[dict[str, Any], bytes]]:
        """The records of a block of this schema, each with its bytes; raises :class:`CorruptError`."""
        stream, start = io.BytesIO(block.data), 0
        out = []
        try:
            for _ in range(block.records):
                record: Any = fastavro.schemaless_reader(stream, self.parsed, None)
                end = stream.tell()
                out.append((record, block.data[start:end]))
                start = end
        except Exception as e:  # fastavro raises nearly anything for damaged bytes
            raise CorruptError(f"{what} cannot be decoded: {type(e).__name__}: {e}") from e
        if start != len(block.data):
            raise CorruptError(
                f"{what} has a block whose {block.records:,} records do not take its {len(block.data):,} bytes"
            )
        return out

    def encode_blocks(
        self, blocks: Sequence[Block], level: int, codec: str, meta: Mapping[str, str] | None = None
    ) -> bytes:
        """A whole container file of blocks of this schema; those that have the codec are copied as they are stored."""
        header, sync = self._header(codec, meta)
        out = bytearray(header)
        for block in blocks:
            body = block.compressed(codec, level).stored
            out += zigzag(block.records) + zigzag(len(body)) + body + sync
        return bytes(out)

    def _header(self, codec: str, meta: Mapping[str, str] | None) -> tuple[bytes, bytes]:
        sync = bytes.fromhex(_clock.new_uuid().replace("-", ""))
        entries = {"avro.schema": self.text, "avro.codec": codec, **(meta or {})}
        out = bytearray(MAGIC + zigzag(len(entries)))
        for entry in entries.items():
            for part in map(str.encode, entry):
                out += zigzag(len(part)) + part
        return bytes(out + b"\0" + sync), sync


def _end_block(out: bytearray, block: io.BytesIO, count: int, sync: bytes, codec: str, level: int) -> None:
    body = _compress(block.getvalue(), codec, level)
    out += zigzag(count) + zigzag(len(body)) + body + sync
    block.seek(0)
    block.truncate()


def _compress(data: bytes, codec: str, level: int) -> bytes:
    if codec == "zstandard":
        return compress_zstd(data, level)
    if codec == "snappy":
        import pyarrow as pa  # slow to import; Paimon's own metadata is compressed with zstd

        body: bytes = pa.compress(data, "snappy", asbytes=True)
        return body + zlib.crc32(data).to_bytes(4, "big")
    if codec == "deflate":
        deflate = zlib.compressobj(wbits=-15)
        return deflate.compress(data) + deflate.flush()
    if codec != "null":
        raise UnsupportedFeature(f"Avro files are not written with the codec '{codec}'")
    return data


def decode(data: bytes, what: str, expected: AvroFormat) -> Iterator[dict[str, Any]]:
    """Yield the records of a container of any codec, one by one; timestamps stay numbers.

    Fields of ``expected`` must have its types where the container has them; other fields may have any type.  What is
    decoded is at most :func:`most_bytes` of the container.  Raises :class:`CorruptError`, when started or in between,
    for anything else.
    """
    stream = io.BytesIO(data)
    header = read_header(stream, what, logical=False)
    same = header.schema == expected.checked
    problem = None if same else _difference(header.schema, expected.parsed, "record")
    if problem is not None:
        raise CorruptError(f"{what} has an unexpected Avro schema: {problem}")
    left = most_bytes(len(data))

    def limit(_: int) -> int:
        return left

    def bounded() -> Iterator[tuple[int, bytes]]:
        nonlocal left
        for count, block in read_blocks(stream, header, len(data), limit, what):
            left -= len(block)
            yield count, block

    try:
        rows = expected.framed if same else fastavro.parse_schema(_framed(header.schema))
        for count, block in bounded():
            # Read as one array that a marker follows: a count that is too low or too high shows at the end.
            framed = io.BytesIO(b"".join((zigzag(count), block, _ARRAY_END if count else b"", _MARKER)))
            found: Any = fastavro.schemaless_reader(framed, rows, None)
            if found["end"] != _MARKER or len(found["rows"]) != count:
                raise CorruptError(f"{what} has a block whose {count:,} records do not take its {len(block):,} bytes")
            yield from found["rows"]
    except (CorruptError, GeneratorExit):
        raise
    except MemoryError as e:
        raise CorruptError(f"{what} needs more memory than is available") from e
    except Exception as e:  # fastavro raises nearly anything for damaged bytes
        raise CorruptError(f"{what} cannot be decoded: {type(e).__name__}: {e}") from e


def _framed(schema: Any) -> dict[str, Any]:
    rows = {"name": "rows", "type": {"type": "array", "items": schema}}
    end = {"name": "end", "type": {"type": "fixed", "name": "marker", "size": len(_MARKER)}}
    return {"type": "record", "name": "block", "fields": [rows, end]}


def most_bytes(stored: int) -> int:
    """The most bytes that a metadata file of ``stored`` bytes may decompress to.

    Entries that differ in a counter and a few statistics alone compress to about a fiftieth.
    """
    return _LEAST_LIMIT + _MOST_RATIO * stored


def _difference(found: Any, wanted: Any, path: str) -> str | None:
    """Describe how a schema's known fields differ from those wanted; None: not in a way that matters.

    A type may be NOT NULL where NULL is allowed, and INT stands for LONG and the reverse: writers differ in both.
    """
    kind, nullable = _branch(found)
    known, may_be_null = _branch(wanted)
    name, known_name = (k["type"] if isinstance(k, dict) else k for k in (kind, known))
    if isinstance(kind, list) or (name != known_name and {name, known_name} != {"int", "long"}):
        return f"{path} has type {'union' if isinstance(kind, list) else name}, and not {known_name}"
    if nullable and not may_be_null:
        return f"{path} may be null"
    if name == "array":
        return _difference(kind["items"], known["items"], f"an item of {path}")
    if name == "record":
        fields = {f["name"]: f["type"] for f in known["fields"]}
        for field in kind["fields"]:
            if field["name"] in fields:
                problem = _difference(field["type"], fields[field["name"]], field["name"])
                if problem is not None:
                    return problem
    return None


def _branch(made: Any) -> tuple[Any, bool]:
    """A type without null, and whether it had it; a union of several types stays one."""
    if not isinstance(made, list):
        return made, False
    others = [b for b in made if b != "null"]
    return (others[0] if len(others) == 1 else others), len(others) < len(made)
