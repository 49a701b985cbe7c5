"""Text files cut into blocks of whole rows, which are parsed one by one.

Arrow's own readers of streams read ahead in threads.  Such a thread may still hold a Python file, standard input for
instance, when the interpreter ends, which aborts the process; and the text of rows that it cannot parse is gone.  Here
the thread that asks for rows reads the file, and has the text of the block at hand.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.formatting import human_bytes


class StandardInput:
    """Standard input, whose start can be read again after :meth:`rewind`."""

    def __init__(self) -> None:
        self._head = io.BytesIO()
        self._keeps = True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        data = self._head.read(size)
        if not data:
            data = sys.stdin.buffer.read(size)
            if self._keeps:
                self._head.write(data)
        return data

    def rewind(self) -> None:
        """Read again from the start; what is read after that is not kept."""
        self._head.seek(0)
        self._keeps = False

    def __enter__(self) -> StandardInput:
        return self

    def __exit__(self, *error: object) -> None:
        """Standard input stays open."""


def arrow_reader(text: bytes | memoryview) -> pa.BufferReader:
    """A reader of a copy of ``text`` in Arrow's memory, for Arrow's parsers.

    A thread of a parser may let go of its input after the parser has returned.  An input that belongs to Python takes
    the interpreter's lock for that, which aborts the process if the interpreter has ended by then.
    """
    copy = pa.allocate_buffer(len(text))
    memoryview(copy).cast("B")[:] = text
    return pa.BufferReader(copy)


def json_blocks(file: Any, size: int) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a line.  Raises :class:`pyarrow.ArrowInvalid` for a longer line."""
    return _blocks(file, size, lambda text: text.rfind(b"\n") + 1, "")


def csv_blocks(file: Any, size: int, delimiter: str, quote: str) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a record, which may have line breaks in quotes.

    Raises :class:`pyarrow.ArrowInvalid` for a longer record.
    """
    between = np.zeros(256, bool)
    between[list(f"{delimiter}\r\n{quote}".encode())] = True
    d, q = (re.escape(c.encode()) for c in (delimiter, quote))
    value = rb"(?:%(q)s(?:[^%(q)s]++|%(q)s%(q)s)*+%(q)s[^%(d)s\r\n]*+|[^%(q)s%(d)s\r\n][^%(d)s\r\n]*+)?+"
    record = rb"(?:%(v)s(?:%(d)s%(v)s)*+(?:\r?\n|\r(?!\Z)))*+"
    parts = {b"d": d, b"q": q}
    records = re.compile(record % {**parts, b"v": value % parts})

    def end(text: bytes) -> int:
        letters = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(letters == ord(quote))
        opening = quotes[2 if text.startswith(quote.encode()) else 0 :: 2]
        if not between[letters[opening - 1]].all():  # a quote inside an unquoted value is a character like others
            match = records.match(text)
            return 0 if match is None else match.end()
        at = len(text)
        while at > 0:
            at = max(text.rfind(b"\n", 0, at), text.rfind(b"\r", 0, min(at, len(text) - 1)))
            inside = int(np.searchsorted(quotes, at))
            if at < 0 or inside % 2 == 0:
                break
            at = int(quotes[inside - 1])
        return at + 1 if at > 0 else 0

    return _blocks(file, size, end, "; a quote may not be closed")


def _blocks(file: Any, size: int, end_of: Any, hint: str) -> Iterator[bytes]:
    rest = b""
    while data := file.read(size):
        text = rest + data
        end = end_of(text)
        if not end and len(text) > 2 * size:
            raise pa.ArrowInvalid(f"a row is longer than {human_bytes(2 * size)}{hint}")
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest
