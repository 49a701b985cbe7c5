"""The ``bloom-filter`` index shows that a value is absent from a file.

============  ====  ==============================================================
offset        type  meaning
============  ====  ==============================================================
0             i4    number of hash functions k, big-endian
4             u1[]  bits; bit ``i`` is bit ``i & 7`` (lowest first) of byte ``i >> 3``
============  ====  ==============================================================

The number of bits is 8 times the bytes after the first four.  A 64-bit hash sets k bits: for i = 1..k,
``c = low32 + i * high32`` (signed, wrapping), ``~c`` if negative, modulo the number of bits.  NULLs are not added.

Unless ``items`` is set, a filter is sized to the distinct values of its file, where Paimon always assumes a million
(600 KB at fpp 0.1); readers need neither option.  Source: index-format spec, section 2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s, UInt64s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.tree import Comparison, In, Leaf, Op, derived_from
from bitlake.fileindex.capabilities import ColumnFacts, IndexOption, IndexType, SampledColumn, fraction, integer
from bitlake.fileindex.keyed import chunks, is_floating, keys_for, keys_of
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import DataType, Root

ITEMS: IndexOption[int] = IndexOption(
    "items", integer(1, 2**31 - 1), None, "Distinct values to size the filter for; default: those of the file."
)
FPP: IndexOption[float] = IndexOption("fpp", fraction, 0.1, "Share of absent values that the filter lets pass.")
_UNSUPPORTED = frozenset({Root.BOOLEAN, Root.DECIMAL, Root.VARIANT})
_I4 = struct.Struct(">i")
_MAX_BITS = 2**31 - 8
_FEWEST_ITEMS = 16
"""A filter sized to its file never assumes fewer values: 10 bytes."""
_SEGMENT = 1 << 27
"""Bits scattered at a time; while setting, a bit takes a byte."""
_BATCH = 1 << 19
"""Hashes at a time, so that their temporaries stay in the processor's cache."""
_WHOLE = 64 * 1024
"""Filters up to this size are fetched whole; of bigger ones only the probed bytes, while they are few."""
_FEW_PROBES = 32
_FIRST_PART = 1000
"""Values of a list that are looked up before the others."""
_MOST_READ = 256 * 1024
"""Bytes that a look-up reads at most, except for long lists of values."""
_MOST_HASHES = 10_000


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    keys = keys_of(kind)
    return keys is not None and keys.type.root not in _UNSUPPORTED


ACCEPTS = "bloom-filter takes strings, binaries, integers, FLOAT, DOUBLE, DATE, TIME and timestamps"


def shape(items: int, fpp: float) -> tuple[int, int]:
    """Return (number of bits, number of hash functions) as Paimon (Java) computes them."""
    bits = int(-items * math.log(fpp) / (math.log(2) * math.log(2)))
    bits += 8 - bits % 8
    return bits, max(1, math.floor(bits / items * math.log(2) + 0.5))


class BloomWriter:
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        self._keys = keys_for(kind, ACCEPTS, supports)
        self._items = ITEMS.of(options)
        self._fpp = FPP.of(options) or 0.1
        if self._items is not None and shape(self._items, self._fpp)[0] > _MAX_BITS:
            raise InvalidRequest(f"a bloom filter of {self._items} items at fpp {self._fpp} exceeds 2^31 bits")
        self._pending: list[UInt64s] = []
        self._pending_rows = 0
        self._distinct = np.zeros(0, np.uint64)

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Add a column's values."""
        for chunk in chunks(column):
            hashes = self._hashes(chunk)
            self._pending.append(hashes)
            self._pending_rows += len(hashes)
            # Merging only when the unmerged have outgrown the merged keeps the sorting linear overall.
            if self._pending_rows > 2 * len(self._distinct) + (1 << 22):
                self._merge()

    def add_members(self, values: pa.Array, rows: Int64s, count: int) -> None:
        """Add the values of rows that have any number of them."""
        self.add(values)

    def _hashes(self, chunk: pa.Array) -> UInt64s:
        keys = self._keys.of_array(chunk)
        if isinstance(keys, pa.DictionaryArray):
            hashes = self._keys.bloom_hashes(keys.dictionary)
            used = np.zeros(len(hashes), bool)
            used[keys.indices.drop_null().to_numpy()] = True
            return hashes if used.all() else hashes[used]
        return self._keys.bloom_hashes(keys.drop_null() if keys.null_count else keys)

    def _merge(self) -> None:
        hashes = np.concatenate([self._distinct, *self._pending])
        hashes.sort()
        if len(hashes):
            keep = np.ones(len(hashes), bool)
            np.not_equal(hashes[1:], hashes[:-1], out=keep[1:])
            hashes = hashes[keep]
        self._distinct, self._pending, self._pending_rows = hashes, [], 0

    def hashes(self) -> UInt64s:
        """Return the hashes of the distinct values so far, ascending."""
        self._merge()
        return self._distinct

    def check(self, payload: bytes) -> str | None:
        """See :class:`bitlake.fileindex.capabilities.PayloadChecker`: a filter of any size and fpp is right if it
        denies no value of the column."""
        missed, distinct = absent(payload, self)
        return f"it denies {missed:,} of the column's {distinct:,} values" if missed else None

    def finish(self) -> bytes:
        """Return the payload."""
        self._merge()
        items = self._items or max(len(self._distinct), _FEWEST_ITEMS)
        bits, hash_functions = shape(items, self._fpp)
        if bits > _MAX_BITS:
            bits = _MAX_BITS
            hash_functions = max(1, math.floor(bits / items * math.log(2) + 0.5))
        return _I4.pack(hash_functions) + _filled(self._distinct, bits, hash_functions)


def _filled(hashes: UInt64s, bits: int, hash_functions: int) -> bytes:
    out = []
    for start in range(0, bits, _SEGMENT):
        # One byte a bit while setting: numpy has no fast scatter-or. Packed at the end.
        segment = np.zeros(min(_SEGMENT, bits - start), bool)
        for first in range(0, len(hashes), _BATCH):
            for positions in _positions(hashes[first : first + _BATCH], bits, hash_functions):
                if bits > _SEGMENT:
                    positions = positions[(positions >= start) & (positions < start + len(segment))] - start
                segment[positions] = True
        out.append(np.packbits(segment, bitorder="little").tobytes())
    return b"".join(out)


def _positions(hashes: UInt64s, bits: int, hash_functions: int) -> list[npt.NDArray[np.uint32]]:
    """Return the bit positions of every hash, one array per hash function."""
    low = hashes.astype(np.uint32).view(np.int32)
    high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
    out = []
    for _ in range(hash_functions):
        low = low + high
        position = (low ^ (low >> 31)).view(np.uint32)
        out.append(position - position // np.uint32(bits) * np.uint32(bits))
    return out


def absent(payload: bytes, values: BloomWriter) -> tuple[int, int]:
    """Count the distinct values that were added: (those that a filter denies, all).

    Raises :class:`CorruptError` for a payload that is not a filter.
    """
    bits, hashes = 8 * (len(payload) - 4), values.hashes()
    functions = _I4.unpack_from(payload)[0] if len(payload) > 4 else 0
    _check_shape(bits, functions)
    body, missed = np.frombuffer(payload, np.uint8, offset=4), 0
    for first in range(0, len(hashes), _BATCH):
        part = hashes[first : first + _BATCH]
        hit = np.ones(len(part), bool)
        for positions in _positions(part, bits, functions):
            hit &= (body[positions >> np.uint32(3)] >> (positions & np.uint32(7)).astype(np.uint8) & 1).astype(bool)
        missed += int(len(part) - np.count_nonzero(hit))
    return missed, len(hashes)


def _check_shape(bits: int, hash_functions: int) -> None:
    if not 0 < hash_functions <= _MOST_HASHES or not 0 < bits <= 2**31:
        raise CorruptError(f"a bloom filter of {bits} bits cannot have {hash_functions} hash functions", 0)


class BloomReader:
    """Evaluates ``=`` and ``IN``: no row can match, or every row can."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        self._keys = keys_for(kind, ACCEPTS)
        self._payload = LazyBytes(fetch, length, _WHOLE)
        self._bits = 8 * (length - 4)
        self._hash_functions = 0

    def test(self, leaf: Leaf) -> Selection | None:
        """Return NONE if no value can be in the file, ALL if one may be.  None for other operators."""
        match leaf:
            case Comparison(_, Op.EQ, value):
                hashes = self._hashes((value,))
            case In(_, values, False):
                hashes = derived_from(leaf, ("bloom filter", self._keys), lambda: self._hashes(values))
            case _:
                return None
        # In a long list a match or a false positive is likely among the first values.
        held = any(len(part) and self._may_hold(part) for part in (hashes[:_FIRST_PART], hashes[_FIRST_PART:]))
        return Selection.all() if held else Selection.none()

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return min(length, _MOST_READ)  # single bytes, or everything for long lists of values

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return None

    def _hashes(self, values: Sequence[Any]) -> UInt64s:
        return self._keys.bloom_hashes(self._keys.array_of(self._keys.keys_of_all(values)[0]))

    def _may_hold(self, hashes: UInt64s) -> bool:
        if not self._hash_functions:
            self._open()
        positions = np.stack(_positions(hashes, self._bits, self._hash_functions), axis=1).astype(np.int64)
        where = positions >> 3
        if self._payload.length <= _WHOLE or where.size > _FEW_PROBES:
            body = np.frombuffer(self._payload.view(4, self._payload.length - 4), np.uint8)
            bytes_at = body[where]
        else:
            bytes_at = np.array([[self._payload.view(4 + b, 1, ahead=1)[0] for b in row] for row in where.tolist()])
        return bool(np.any(np.all(bytes_at >> (positions & 7) & 1, axis=1)))

    def _open(self) -> None:
        ahead = None if self._payload.length <= _WHOLE else 4
        hash_functions = _I4.unpack(self._payload.view(0, 4, ahead))[0]
        _check_shape(self._bits, hash_functions)
        self._hash_functions = hash_functions


# --- the index type ---------------------------------------------------------------------------------------------------

_TRIED_FPP = "0.01"
_FEWEST_ADVISED = 100
"""A column of fewer distinct values is not tried: most files hold all of them."""
_COUNTED = 1 << 20
"""Filters of up to this size are read to count the bits that are set."""


class _BloomFilterIndex(IndexType):
    name = "bloom-filter"
    accepts = ACCEPTS
    options = (ITEMS, FPP)
    selects_rows = False
    sorts_values = False

    supports = staticmethod(supports)
    writer = staticmethod(BloomWriter)
    reader = staticmethod(BloomReader)

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        count = _I4.unpack(payload.view(0, 4))[0]
        size = 8 * (payload.length - 4)
        section.add("hash functions", 0, 4, {"": count})
        bits = section.add("bits", 4, payload.length - 4, {"": size})
        if count <= 0 or size <= 0:
            raise CorruptError(f"a bloom filter of {size:,} bits cannot have {count:,} hash functions", 0)
        if page is not None and payload.length <= _COUNTED:
            share = float(np.unpackbits(np.frombuffer(payload.view(4, payload.length - 4), np.uint8)).mean())
            bits.facts["set"] = f"{100 * share:.1f} %"
            bits.facts["absent values let pass"] = f"{100 * share**count:.2g} %"

    def trial_options(self, column: ColumnFacts) -> Mapping[str, str] | None:
        return {FPP.name: _TRIED_FPP} if column.distinct > _FEWEST_ADVISED else None

    def suitability(self, leaf: Leaf, kind: DataType) -> int:
        match leaf:
            case Comparison(_, Op.EQ, _) | In(_, _, False):
                return 3 if is_floating(kind) else 2
        return 0

    def file_bytes(self, payload_bytes: int, fixed_bytes: int, column: SampledColumn) -> float:
        return payload_bytes * (column.file_distinct / max(1, column.distinct))


BLOOM_FILTER = _BloomFilterIndex()
