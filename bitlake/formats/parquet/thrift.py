"""Thrift's compact protocol: the encoding of Parquet footers, page headers and page indexes.

A struct is a run of fields closed by a 0 byte; a field starts with one byte ``delta << 4 | type`` (or ``type`` alone
followed by the zigzag field id)::

    type  1, 2   TRUE, FALSE (in the header itself; one byte each inside a list)
          3      one signed byte
          4-6    zigzag varint (i16, i32, i64)
          7      8 bytes, little-endian double
          8      varint length, bytes
          9, 10  list, set: one byte ``size << 4 | type`` (15 in the size: a varint follows), then the values
          11     map: varint size, then (unless 0) ``key type << 4 | value type``, then the pairs
          12     struct

Values come out untyped: a struct is a dict from field id to value (bool, int, float, bytes, list or dict), so a reader
of one format picks its fields by number and ignores the rest.  A value of a type the reader did not expect is its own
business; lengths, counts and depth are checked here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from bitlake.codec.bytes import varint, zigzag
from bitlake.errors import CorruptError

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
"""The compact protocol's type codes, on disk."""

MANY_STRUCTS = 50
"""A list with more structs than this is skipped by a regular expression, which takes 8 ms to build."""
MAX_DEPTH = 32
"""Deepest nesting accepted; Parquet's own structures nest 6 deep."""

Struct = dict[int, Any]
_DOUBLE = struct.Struct("<d")


class ThriftReader:
    """Reads structs out of ``data``, from ``position``; the position after the last value read stays in ``position``.

    ``base`` is the offset of ``data`` in its file, for messages.
    Raises :class:`CorruptError` when a value does not fit in the data, nests too deep, or has an unknown type.  Every
    value takes at least one byte, so a count is compared with the bytes left before its list is read.
    """

    __slots__ = ("base", "data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, base: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.base = base

    def fail(self, what: str) -> CorruptError:
        """A :class:`CorruptError` at the current position."""
        return CorruptError(f"Thrift: {what}", self.base + self.position)

    def struct(self) -> Struct:
        """The struct that starts here."""
        try:
            return self._struct(0)
        except IndexError as e:
            raise self.fail("a value runs past the end of the data") from e

    def varint(self) -> int:
        """An unsigned varint of at most 64 bits."""
        data, at = self.data, self.position
        value = shift = 0
        try:
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise self.fail("a varint longer than 64 bits")
        except IndexError as e:
            raise self.fail("a value runs past the end of the data") from e
        self.position = at
        return value

    def field(self, last: int) -> tuple[int, int]:
        """The next field's (type, id) after field ``last``; type STOP at the end of the struct."""
        at = self.position
        if at >= self.end:
            raise self.fail("a struct without an end")
        header = self.data[at]
        self.position = at + 1
        if header == STOP:
            return STOP, 0
        if header >> 4:
            return header & 15, last + (header >> 4)
        raw = self.varint()
        return header & 15, (raw >> 1) ^ -(raw & 1)

    def list_header(self) -> tuple[int, int]:
        """A list's (element type, count)."""
        at = self.position
        if at >= self.end:
            raise self.fail("a list without its header")
        header = self.data[at]
        self.position = at + 1
        count = header >> 4
        if count == 15:
            count = self.varint()
        if count > self.end - self.position:
            raise self.fail(f"a list of {count} values in {self.end - self.position} bytes")
        return header & 15, count

    def value(self, kind: int) -> Any:
        """One value of a type."""
        try:
            return self._value(kind, 0)
        except IndexError as e:
            raise self.fail("a value runs past the end of the data") from e

    def skip_structs(self, count: int) -> list[int]:
        """Skip consecutive structs; returns the offset of each, and the end of the last one.

        If there are many, a regular expression skips those of the usual form; others are decoded.  1,000 column chunks
        take 1.9 ms instead of 15.
        """
        match = _struct_pattern() if count > MANY_STRUCTS else None
        data, at = self.data, self.position
        starts = [at]
        for _ in range(count):
            usual = match and match(data, at)
            if usual is None:
                self.position = at
                self.struct()
                at = self.position
            else:
                at = usual.end()
            starts.append(at)
        self.position = at
        return starts

    def _struct(self, depth: int) -> Struct:
        # Footers are thousands of small fields: one- and two-byte integers are decoded in this loop, without a call.
        if depth > MAX_DEPTH:
            raise self.fail("structs nest too deep")
        data = self.data
        out: Struct = {}
        number = 0
        at = self.position
        while True:
            header = data[at]
            at += 1
            if header == STOP:
                self.position = at
                return out
            kind = header & 15
            if header >= 16:
                number += header >> 4
            else:
                self.position = at
                raw = self.varint()
                number = (raw >> 1) ^ -(raw & 1)
                at = self.position
            if I16 <= kind <= I64:
                raw = data[at]
                at += 1
                if raw >= 0x80:
                    second = data[at]
                    if second < 0x80:
                        at += 1
                        raw = (raw & 0x7F) | second << 7
                    else:
                        self.position = at - 1
                        raw = self.varint()
                        at = self.position
                out[number] = (raw >> 1) ^ -(raw & 1)
            elif kind <= FALSE:
                out[number] = kind == TRUE
            else:
                self.position = at
                out[number] = self._value(kind, depth + 1)
                at = self.position

    def _value(self, kind: int, depth: int) -> Any:
        if kind == BINARY:
            length = self.varint()
            start = self.position
            if length > self.end - start:
                raise self.fail(f"{length} bytes announced, {self.end - start} left")
            self.position = start + length
            return self.data[start : start + length]
        if kind == STRUCT:
            return self._struct(depth)
        if kind in (LIST, SET):
            return self._list(depth)
        if I16 <= kind <= I64:
            raw = self.varint()
            return (raw >> 1) ^ -(raw & 1)
        if kind in (TRUE, FALSE):
            return kind == TRUE
        size = {BYTE: 1, DOUBLE: 8}.get(kind, 0)
        if size > self.end - self.position:
            raise self.fail("a value runs past the end of the data")
        if kind == BYTE:
            self.position += 1
            raw = self.data[self.position - 1]
            return raw - 256 if raw > 127 else raw
        if kind == DOUBLE:
            self.position += 8
            return _DOUBLE.unpack_from(self.data, self.position - 8)[0]
        if kind == MAP:
            return self._map(depth)
        raise self.fail(f"unknown type {kind}")

    def _list(self, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise self.fail("lists nest too deep")
        kind, count = self.list_header()
        if kind == STRUCT:
            return [self._struct(depth + 1) for _ in range(count)]
        if kind in (TRUE, FALSE):
            start = self.position
            self.position += count
            return [b == TRUE for b in self.data[start : self.position]]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _map(self, depth: int) -> list[tuple[Any, Any]]:
        if depth > MAX_DEPTH:
            raise self.fail("maps nest too deep")
        count = self.varint()
        if count == 0:
            return []
        if count > self.end - self.position:
            raise self.fail(f"a map of {count} pairs in {self.end - self.position} bytes")
        kinds = self._value(BYTE, depth) & 0xFF
        pairs = []
        for _ in range(count):
            key = self._value(kinds >> 4, depth + 1)
            pairs.append((key, self._value(kinds & 15, depth + 1)))
        return pairs


@cache
def _struct_pattern() -> Callable[[bytes, int], re.Match[bytes] | None]:
    """The matcher of structs of the usual form in footers.

    It accepts three levels of structs, lists of up to four values, and texts of up to 39 bytes.  Each header determines
    what follows it, so a match is unambiguous, and :class:`ThriftReader` reads the same bytes as one struct.
    """

    def headers(*kinds: int) -> bytes:
        return b"[" + b"".join(re.escape(bytes((delta << 4 | k,))) for delta in range(1, 16) for k in kinds) + b"]"

    def values(kind: int, value: bytes) -> bytes:
        return b"|".join(re.escape(bytes((n << 4 | kind,))) + b"(?:" + value + b"){%d}" % n for n in range(5))

    def fields(*forms: bytes) -> bytes:
        return b"(?:" + b"|".join(forms) + b")*+" + re.escape(bytes((STOP,)))

    number = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
    text = b"(?:" + b"|".join(re.escape(bytes((n,))) + b".{%d}" % n for n in range(40)) + b")"
    plain = (headers(TRUE, FALSE), headers(I16, I32, I64) + number, headers(BINARY) + text)
    lists = headers(LIST) + b"(?:" + b"|".join((values(I32, number), values(I64, number), values(BINARY, text))) + b")"
    inner = headers(STRUCT) + fields(*plain, lists)
    items = headers(LIST) + b"(?:" + values(STRUCT, fields(*plain)) + b")"
    middle = headers(STRUCT) + fields(*plain, lists, inner, items)
    return re.compile(fields(*plain, lists, middle, items), re.DOTALL).match


def i32_field(delta: int, value: int) -> bytes:
    """A field header (1 ≤ ``delta`` ≤ 15 after the previous field) and an i32."""
    return bytes((delta << 4 | I32,)) + zigzag(value)


def i64_field(delta: int, value: int) -> bytes:
    """A field header and an i64."""
    return bytes((delta << 4 | I64,)) + zigzag(value)


def binary_field(delta: int, value: bytes) -> bytes:
    """A field header and bytes."""
    return bytes((delta << 4 | BINARY,)) + varint(len(value)) + value


def list_field(delta: int, kind: int, values: Sequence[bytes]) -> bytes:
    """A field header and a list of values that are encoded already."""
    return bytes((delta << 4 | LIST,)) + list_value(kind, values)


def list_value(kind: int, values: Sequence[bytes]) -> bytes:
    """A list of values that are encoded already."""
    count = len(values)
    head = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + varint(count)
    return head + b"".join(values)
