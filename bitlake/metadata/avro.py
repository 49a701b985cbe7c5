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
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAGIC = b"Obj\x01"
_BLOCK_BYTES = 64_000
"""Uncompressed size at which a block ends; Avro's own default in Java."""
# Same length, other key: fastavro then leaves the number alone instead of making a datetime of it.
_LOGICAL = b'"logicalType":"timestamp-millis"'
_IGNORED = b'"logicalTypX":"timestamp-millis"'


class AvroFormat:
    """One record type: its schema text for headers, and its parsed form."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.text = json.dumps(schema, separators=(",", ":"))
        plain = json.loads(self.text.replace(_LOGICAL.decode(), _IGNORED.decode()))
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
        out = bytearray(_MAGIC + zigzag(2))
        for part in meta:
            out += zigzag(len(part)) + part
        return bytes(out + b"\0" + sync), sync


def _end_block(out: bytearray, block: io.BytesIO, count: int, sync: bytes, level: int) -> None:
    body = zstd.compress(block.getvalue(), level)
    out += zigzag(count) + zigzag(len(body)) + body + sync
    block.seek(0)
    block.truncate()


def decode(data: bytes, what: str) -> Iterator[dict[str, Any]]:
    """The records of a container of any codec, one by one; timestamps stay numbers.

    Raises :class:`CorruptError`, when started or in between, for anything that is not a whole, sound container.
    """
    if not data.startswith(_MAGIC):
        raise CorruptError(f"{what} is not an Avro file", 0)
    try:
        # The header is the first occurrence by far; file names cannot hold the quotes.
        reader: Any = fastavro.reader(io.BytesIO(data.replace(_LOGICAL, _IGNORED, 1)))
        yield from reader
    except MemoryError as e:
        raise CorruptError(f"{what} claims more than there is memory for") from e
    except Exception as e:  # fastavro and the codecs raise nearly anything for damaged bytes
        raise CorruptError(f"{what} cannot be decoded: {type(e).__name__}: {e}") from e
