"""A format to fuzz, and what targets share."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro

from bitlake.errors import BitlakeError

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """A format: good bytes to start from, each with the function that reads bytes like it."""

    name: str
    seeds: list[tuple[bytes, Read]]


def guarded(*steps: Callable[[], object]) -> None:
    """Ask several questions of one reader: an error of ours ends one question, not the others."""
    for step in steps:
        with contextlib.suppress(BitlakeError):
            step()


def uncompressed(data: bytes) -> bytes:
    """The same Avro records without compression, so that damage reaches the records."""
    reader: Any = fastavro.reader(io.BytesIO(data))
    records = list(reader)[:40]
    sink = io.BytesIO()
    fastavro.writer(sink, reader.writer_schema, records, codec="null", sync_marker=b"0123456789abcdef")
    return sink.getvalue()
