"""The compression codecs of Avro containers, as an independent writer applies them to a block."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable

import pyarrow as pa

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def snappy(data: bytes) -> bytes:
    """Compress a block with Snappy; Avro appends the CRC-32 of the plain bytes, big-endian."""
    return pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


def deflate(data: bytes) -> bytes:
    """Compress a block with raw DEFLATE: without the header and checksum of zlib."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflate,
    "zstandard": zstd.compress,
    "snappy": snappy,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
