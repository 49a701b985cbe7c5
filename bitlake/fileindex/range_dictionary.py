"""The dictionary of a range-bitmap: sorted keys in chunks; a key's place is its code.

::

    i4 header length = 13 | u1 version=1 | i4 chunks | i4 offsets length = 4*chunks | i4 chunk headers' length
    chunks x i4 offset of each chunk header, from the first one
    chunk headers: u1 version=1 | first key | i4 code | i4 keys offset | i4 size | then
                   fixed width: i4 keys length | i4 key length;  variable width: i4 offsets length | i4 keys length
    key areas of all chunks:       fixed width: keys;  variable width: size x i4 offset from the first key, then keys

A chunk's first key is only in its header; ``size`` counts the others and ``code`` is the first one's.  ``keys offset``
counts from the start of all key areas.  A chunk takes keys while the others' bytes fit ``chunk-size``; with variable
width their offsets must fit another ``chunk-size``.  Integers are big-endian.  Source: index-format spec, section 4.2.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.fileindex.entries import pack
from bitlake.fileindex.keys import Key, Keys
from bitlake.fileindex.window import Window

_HEAD = struct.Struct(">iBiii")
_VERSION = 1
_I4 = struct.Struct(">i")
_FIVE = struct.Struct(">iiiii")


def encode_dictionary(keys: Keys, values: pa.Array, chunk_size: int) -> bytes:
    """The dictionary of sorted, distinct keys without NULL."""
    if len(values) == 0:
        return _HEAD.pack(_HEAD.size - 4, _VERSION, 0, 0, 0)
    offsets, headers, areas = (_fixed if keys.width else _variable)(keys, values, chunk_size)
    head = _HEAD.pack(_HEAD.size - 4, _VERSION, len(offsets), 4 * len(offsets), len(headers))
    return b"".join([head, offsets.astype(">i4").tobytes(), headers, areas])


def _fixed(keys: Keys, values: pa.Array, chunk_size: int) -> tuple[Int64s, bytes, bytes]:
    n, width = len(values), keys.width
    encoded = np.frombuffer(pack(keys, values)[0], np.uint8).reshape(n, width)
    starts = np.arange(0, n, 1 + chunk_size // width, dtype=np.int64)
    sizes = np.diff(np.append(starts, n)) - 1
    headers = np.empty(len(starts), _fixed_header(keys))
    headers["version"] = _VERSION
    headers["key"] = encoded[starts].view(f"V{width}").reshape(-1)
    headers["code"] = starts
    headers["at"] = width * (starts - np.arange(len(starts)))
    headers["size"] = sizes
    headers["length"] = width * sizes
    headers["width"] = width
    others = np.ones(n, bool)
    others[starts] = False
    offsets = np.arange(len(starts), dtype=np.int64) * headers.itemsize
    return offsets, headers.tobytes(), encoded[others].tobytes()


def _fixed_header(keys: Keys) -> np.dtype[np.void]:
    four = [(name, ">i4") for name in ("code", "at", "size", "length", "width")]
    return np.dtype([("version", "u1"), ("key", f"V{keys.width}"), *four])


def _variable(keys: Keys, values: pa.Array, chunk_size: int) -> tuple[Int64s, bytes, bytes]:
    data, ends = pack(keys, values)
    n = len(values)
    offsets, headers, areas, at, header_at, area_at = [], [], [], 0, 0, 0
    while at < n:  # once a chunk
        first, others = data[ends[at] : ends[at + 1]], at + 1
        fit = int(np.searchsorted(ends, ends[others] + chunk_size, side="right")) - 1
        stop = max(others, min(fit, others + chunk_size // 4))
        size, length = stop - others, int(ends[stop] - ends[others])
        areas.append((ends[others:stop] - ends[others]).astype(">i4").tobytes())
        areas.append(data[ends[others] : ends[stop]])
        header = bytes((_VERSION,)) + first + _FIVE.pack(at, area_at, size, 4 * size, length)
        offsets.append(header_at)
        headers.append(header)
        header_at += len(header)
        area_at += 4 * size + length
        at = stop
    return np.array(offsets, np.int64), b"".join(headers), b"".join(areas)


class Dictionary:
    """Finds the codes of keys in the dictionary at ``[start, start + length)`` of a window, reading what it needs."""

    def __init__(self, keys: Keys, window: Window, start: int, length: int, cardinality: int) -> None:
        reader = Reader(window.view(start, _HEAD.size), start)
        head, version, chunks = reader.i4(), reader.u1(), reader.i4()
        offsets_length, headers_length = reader.i4(), reader.i4()
        if version != _VERSION:
            raise UnsupportedFeature(f"range-bitmap dictionary version {version} is not known, only {_VERSION}")
        self._offsets = start + _HEAD.size
        self._headers = self._offsets + offsets_length
        self._areas = self._headers + headers_length
        self._end = start + length
        good = head == _HEAD.size - 4 and offsets_length == 4 * chunks and headers_length >= 0
        if not good or not 0 < chunks <= cardinality or self._areas > self._end:
            raise CorruptError("the header of a range-bitmap's dictionary contradicts itself", start)
        self._keys = keys
        self._window = window
        self._chunks = chunks
        self._cardinality = cardinality
        self._headers_length = headers_length
        self._read: dict[int, tuple[Key, int, int, int, int]] = {}

    def find(self, key: Key) -> tuple[int, bool]:
        """(how many keys are smaller, whether the key is there): then the first is its code."""
        low, high = 0, self._chunks
        while low < high:  # the first chunk whose first key is greater
            middle = (low + high) // 2
            if self._order(self._chunk(middle)[0]) <= self._order(key):  # type: ignore[operator]
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0, False
        first, code, at, size, length = self._chunk(low - 1)
        if first == key:
            return code, True
        smaller, there = (self._in_fixed if self._keys.width else self._in_variable)(key, at, size, length)
        return code + 1 + smaller, there

    def keys_at(self, codes: Int64s) -> pa.Array:
        """The keys of ascending codes (each 0 ≤ code < the number of keys), in order."""
        parts, at = [], 0
        while at < len(codes):  # once a chunk that holds some
            chunk = self._chunk_of(int(codes[at]))
            first, size = self._chunk(chunk)[1], self._chunk(chunk)[3]
            stop = int(np.searchsorted(codes, first + size, side="right"))
            if stop <= at:
                raise CorruptError("the chunks of a range-bitmap's dictionary leave out codes", self._headers)
            parts.append(self._keys_of(chunk).take(pa.array(codes[at:stop] - first)))
            at = stop
        return pa.concat_arrays(parts) if parts else pa.array([], self._keys.arrow)

    def _chunk_of(self, code: int) -> int:
        low, high = 0, self._chunks
        while low < high:  # the first chunk that starts after the code
            middle = (low + high) // 2
            if self._chunk(middle)[1] <= code:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            raise CorruptError("the chunks of a range-bitmap's dictionary do not start with code 0", self._headers)
        return low - 1

    def _keys_of(self, chunk: int) -> pa.Array:
        """All keys of a chunk."""
        first, _, at, size, length = self._chunk(chunk)
        head = pa.array([first], self._keys.arrow)
        if self._keys.width:
            if length != size * self._keys.width:
                raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
            others = np.frombuffer(self._window.view(at, length), self._keys.dtype.newbyteorder(">"))
            return pa.concat_arrays([head, pa.array(others.astype(self._keys.dtype), self._keys.arrow)])
        area = self._window.view(at, 4 * size + length)
        offsets = np.frombuffer(area[: 4 * size], ">i4").astype(np.int64)
        values = np.frombuffer(area[4 * size :], np.uint8)
        ends = np.append(offsets[1:], length) if size else offsets
        lengths = ends - offsets - 4
        if size and (offsets[0] != 0 or np.any(lengths < 0)):
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        told = np.ndarray((max(length - 3, 0),), ">i4", values, strides=(1,))[offsets]
        if np.any(told != lengths):
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        kept = np.ones(length, bool)
        kept[(offsets[:, None] + np.arange(4)).ravel()] = False
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        texts = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), size, [None, pa.py_buffer(bounds), pa.py_buffer(values[kept].tobytes())]
        )
        return pa.concat_arrays([head, texts])

    def _order(self, key: Key) -> Key:
        if isinstance(key, bytes) or not self._keys.floating:
            return key
        return int(self._keys.order(np.array([key], self._keys.dtype))[0])

    def _in_fixed(self, key: Key, at: int, size: int, length: int) -> tuple[int, bool]:
        if length != size * self._keys.width:
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        others = np.frombuffer(self._window.view(at, length), self._keys.dtype.newbyteorder(">"))
        ordered = self._keys.order(others.astype(self._keys.dtype))
        place = int(np.searchsorted(ordered, self._order(key)))
        return place, place < size and int(others[place]) == key

    def _in_variable(self, key: Key, at: int, size: int, length: int) -> tuple[int, bool]:
        assert isinstance(key, bytes)
        area = self._window.view(at, 4 * size + length)
        offsets = np.frombuffer(area[: 4 * size], ">i4")
        values = area[4 * size :]
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            reader = Reader(values, at + 4 * size)
            reader.seek(int(offsets[middle]))
            other = bytes(reader.take(reader.i4()))
            if other == key:
                return middle, True
            if other < key:
                low = middle + 1
            else:
                high = middle
        return low, False

    def _chunk(self, i: int) -> tuple[Key, int, int, int, int]:
        """(first key, its code, offset of the keys, number of other keys, length of the keys)."""
        if i not in self._read:
            offset = _I4.unpack(self._window.view(self._offsets + 4 * i, 4))[0]
            at = self._headers + offset
            if not 0 <= offset < self._headers_length:
                raise CorruptError("a chunk of a range-bitmap's dictionary is out of place", at)
            self._read[i] = self._parse(self._window.view(at, min(4096, self._areas - at), ahead=0), at)
        return self._read[i]

    def _parse(self, view: memoryview, at: int) -> tuple[Key, int, int, int, int]:
        reader = Reader(view, at)
        if reader.u1() != _VERSION:
            raise CorruptError("a chunk of a range-bitmap's dictionary has an unknown version", at)
        first: Key
        if self._keys.width:
            first = int.from_bytes(reader.take(self._keys.width), "big", signed=True)
        else:
            n = reader.i4()
            if 0 <= n < self._areas - at and n + 25 > len(view) and len(view) == 4096:
                return self._parse(self._window.view(at, min(n + 25, self._areas - at), ahead=0), at)
            first = bytes(reader.take(n))
        code, keys_at, size = reader.i4(), reader.i4(), reader.i4()
        if self._keys.width:
            length, _ = reader.i4(), reader.i4()
            extent = length
        else:
            offsets_length, length = reader.i4(), reader.i4()
            extent = length + offsets_length
            if offsets_length != 4 * size:
                raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        start = self._areas + keys_at
        good = min(code, keys_at, size, length) >= 0 and code + size < self._cardinality
        if not good or start + extent > self._end:
            raise CorruptError("a chunk of a range-bitmap's dictionary does not fit it", at)
        return first, code, start, size, length
