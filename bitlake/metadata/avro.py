"""Avro object containers as Paimon writes them, around records that fastavro encodes.

::

    size     name     meaning
    4        magic    "Obj" 01
    …        meta     map: avro.schema (Paimon's exact text) and avro.codec ("zstandard")
    16       sync     random
    per block: count (zigzag), size (zigzag), zstd-compressed records, sync

An empty file is header only.  Nullable is ``["null", T]``: Paimon's reader takes branch 0 for null.
Source: table-format spec, section 4.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro

from bitlake import _clock
from bitlake.codec.avro import MAGIC, check_schema, read_blocks, read_header
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BLOCK_BYTES = 64_000
"""Uncompressed size at which a block ends; Avro's own default in Java."""
_ARRAY_END = b"\0"
_MARKER = b"\xffBLOCK\xff\xff"
_LEAST_LIMIT = 16 << 20
_MOST_RATIO = 256


class AvroFormat:
    """One record type: its schema text for headers, and its parsed form."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.text = json.dumps(schema, separators=(",", ":"))
        # Without logical types, fastavro leaves a timestamp's number alone instead of making a datetime of it.
        plain, _ = check_schema(self.text.encode(), "the schema", logical=False)
        self.parsed = fastavro.parse_schema(plain)

    def encode(self, records: Sequence[dict[str, Any]], level: int = 1) -> bytes:
        """A whole container file of the records."""
        (data,) = [*self.encode_rolling(records, 1 << 62, level)] or [(self._header()[0], 0)]
        return data[0]

    def encode_rolling(
        self, records: Sequence[dict[str, Any]], target: int, level: int = 1
    ) -> Iterator[tuple[bytes, int]]:
        """Container files of at least one record each, a new one started when one has reached ``target`` bytes.

        Yields (file, number of records in it); nothing for no records.
        """
        header, sync = self._header()
        out = bytearray(header)
        block = io.BytesIO()
        in_file = in_block = 0
        for record in records:
            fastavro.schemaless_writer(block, self.parsed, record)
            in_block += 1
            in_file += 1
            # Blocks shrink by compression, so also look before a small file's target is overrun by one full block.
            if block.tell() >= min(_BLOCK_BYTES, target):
                _end_block(out, block, in_block, sync, level)
                in_block = 0
                if len(out) >= target:
                    yield bytes(out), in_file
                    header, sync = self._header()
                    out, in_file = bytearray(header), 0
        if in_block:
            _end_block(out, block, in_block, sync, level)
        if in_file:
            yield bytes(out), in_file

    def _header(self) -> tuple[bytes, bytes]:
        sync = bytes.fromhex(_clock.new_uuid().replace("-", ""))
        schema, codec = self.text.encode(), b"zstandard"
        meta = [b"avro.schema", schema, b"avro.codec", codec]
        out = bytearray(MAGIC + zigzag(2))
        for part in meta:
            out += zigzag(len(part)) + part
        return bytes(out + b"\0" + sync), sync


def _end_block(out: bytearray, block: io.BytesIO, count: int, sync: bytes, level: int) -> None:
    # With a checksum, which readers verify where there is one: a damaged block is never another valid one.
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    body = zstd.compress(block.getvalue(), options=options)
    out += zigzag(count) + zigzag(len(body)) + body + sync
    block.seek(0)
    block.truncate()


def decode(data: bytes, what: str, expected: AvroFormat) -> Iterator[dict[str, Any]]:
    """Yield the records of a container of any codec, one by one; timestamps stay numbers.

    Fields of ``expected`` must have its types where the container has them; other fields may have any type.  What is
    decoded is at most :func:`most_bytes` of the container.  Raises :class:`CorruptError`, when started or in between,
    for anything else.
    """
    stream = io.BytesIO(data)
    header = read_header(stream, what, logical=False)
    problem = _difference(header.schema, expected.parsed, "record")
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
        rows = fastavro.parse_schema(_framed(header.schema))
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
    """How a schema's known fields differ from those wanted; None: not in a way that matters.

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
