"""Sketches that estimate distinct values: Apache DataSketches as Paimon writes them, and Spark's HyperLogLog++.

``theta_sketch`` and ``hll_sketch`` are unions of DataSketches, in the bytes that Paimon (Java) writes.  They need the
optional package ``datasketches`` (``pip install 'bitlake[sketches]'``); nothing else does
(docs/decisions/0012-sketches.md).

Its theta sketches equal Java's except for bytes that readers ignore.  This module sets those, so that the same rows
give the same bytes::

    byte 5, bit 0x20   of a sketch of one value (16 bytes, one long of preamble): Java marks it
    bytes 12-15        of larger ones: Java writes the sampling probability, 1.0 as a float

HyperLogLog++ has 512 registers of a column's values, which are those of Spark's ``approx_count_distinct`` with its
default error of 5 %: XXH64 of a value with seed 42 (:func:`sketch_hashes`), of which the first 9 bits choose a
register, which keeps the greatest position of the first bit that is set among the others.

The estimate is Spark's, too: linear counting up to 2.5 values per register, the plain estimate above 5.  Between these
Spark subtracts a bias that was measured; :func:`_improved` needs no table for it, and differs from Spark's by less
than the error of either.  Source: Heule, Nunkesser, Hall, "HyperLogLog in Practice" (2013); Ertl, "New cardinality
estimation algorithms for HyperLogLog sketches" (2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s, UInt64s, xxh64, xxh64_spans
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.lazy_modules import install_command

_Union = Callable[[bytes | None, bytes | None], bytes | None]
_SINGLE_ITEM = 0x20
_ONE = b"\x00\x00\x80\x3f"


def sketch_union(name: str) -> _Union:
    """The function that unites two sketches of ``theta_sketch`` or ``hll_sketch`` (None: nothing yet).

    Raises :class:`UnsupportedFeature` if the package is not installed.  The function raises :class:`CorruptError` for
    bytes that are not a sketch.
    """
    try:
        import datasketches as library
    except ImportError as e:
        raise UnsupportedFeature(
            f"aggregate function '{name}' needs the package datasketches: {install_command('sketches')}"
        ) from e
    unite = _theta if name == "theta_sketch" else _hll

    def agg(held: bytes | None, new: bytes | None) -> bytes | None:
        if held is None or new is None:
            return new if held is None else held
        try:
            return unite(library, held, new)
        except (RuntimeError, ValueError, IndexError, OverflowError, MemoryError) as e:
            raise CorruptError(f"aggregate function '{name}': a value is not a valid sketch ({e})") from e

    return agg


def _theta(library: Any, held: bytes, new: bytes) -> bytes:
    union = library.theta_union()
    for sketch in (held, new):
        union.update(library.compact_theta_sketch.deserialize(sketch))
    data = bytearray(union.get_result().serialize())
    if data[0] & 0x3F > 1:
        data[12:16] = _ONE
    elif len(data) == 16:
        data[5] |= _SINGLE_ITEM
    return bytes(data)


def _hll(library: Any, held: bytes, new: bytes) -> bytes:
    # As in Java: the new sketch's size is the union's, and it comes first.
    first, second = (library.hll_sketch.deserialize(s) for s in (new, held))
    union = library.hll_union(first.lg_config_k)
    union.update(first)
    union.update(second)
    data: bytes = union.get_result(library.tgt_hll_type.HLL_4).serialize_compact()
    return data


_BITS = 9
_REGISTERS = 1 << _BITS
_SEED = 42
_FEW = 400
"""Up to this linear counting is used in any case; the threshold of the paper for 512 registers."""
_REST = 64 - _BITS


class DistinctSketch:
    """A sketch of the distinct values among those whose hashes were added.

    >>> sketch = DistinctSketch()
    >>> sketch.add(sketch_hashes(pa.array(["a", "b", "a", None])))
    >>> sketch.estimate()
    2
    """

    def __init__(self) -> None:
        self._registers = np.zeros(_REGISTERS, np.uint8)

    def add(self, hashes: UInt64s) -> None:
        """Add values by their hashes."""
        rest = (hashes << np.uint64(_BITS)) | np.uint64(1 << (_BITS - 1))
        # Without the bit below the highest one, a conversion to float cannot round up to the next power of two.
        high = rest & ~(rest >> np.uint64(1))
        rank = (65 - np.frexp(high.astype(np.float64))[1]).astype(np.uint8)
        np.maximum.at(self._registers, (hashes >> np.uint64(_REST)).astype(np.intp), rank)

    def estimate(self) -> int:
        """Estimate the number of distinct values added."""
        counts = np.bincount(self._registers, minlength=_REST + 2)
        inverse = float(np.sum(counts * 2.0 ** -np.arange(len(counts))))
        plain = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / inverse
        empty = int(counts[0])
        if empty:
            linear = _REGISTERS * math.log(_REGISTERS / empty)
            if linear <= _FEW or plain <= 2.5 * _REGISTERS:
                return math.floor(linear + 0.5)
        return math.floor((plain if plain >= 5 * _REGISTERS else _improved(counts)) + 0.5)


def _improved(counts: npt.NDArray[np.int64]) -> float:
    """Ertl's estimate from the number of registers of each value; unbiased for any number of values."""
    last = _REST + 1
    z = _REGISTERS * _tau(1 - counts[last] / _REGISTERS)
    for k in range(last - 1, 0, -1):
        z = 0.5 * (z + float(counts[k]))
    z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return _REGISTERS**2 / (2 * math.log(2) * z)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, total = 1.0, x
    while True:
        x *= x
        before = total
        total += x * y
        y += y
        if total == before:
            return total


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, total = 1.0, 1 - x
    while True:
        x = math.sqrt(x)
        before = total
        y *= 0.5
        total -= (1 - x) ** 2 * y
        if total == before:
            return total / 3


def sketch_hashes(array: pa.Array) -> UInt64s:
    """Spark's XXH64 of the values of an array that are not NULL; uint64, of booleans, numbers, texts, bytes, times."""
    kind = array.type
    array = array.drop_null()
    if pa.types.is_dictionary(kind):
        picked: UInt64s = sketch_hashes(array.dictionary)[array.indices.to_numpy()]
        return picked
    if pa.types.is_decimal(kind):
        return _decimal_hashes(array)
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0, and there is one NaN
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
        return _word_hashes(values)
    if pa.types.is_timestamp(kind):
        values = array.cast(pa.int64()).to_numpy()
        per_micro = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(kind.unit)
        return _word_hashes(values * per_micro if per_micro is not None else values // 1000)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
        word = pa.int64() if kind == pa.int64() else pa.int32()
        return _word_hashes(array.cast(word).to_numpy())
    return xxh64(array, _SEED)


def _word_hashes(values: npt.NDArray[np.generic]) -> UInt64s:
    size = values.dtype.itemsize
    data = np.ascontiguousarray(values).view(np.uint8)
    return xxh64_spans(data, np.arange(0, len(data), size), np.full(len(values), size), _SEED)


def _decimal_hashes(array: pa.Array) -> UInt64s:
    """Up to 18 digits the unscaled number as a word; above, its shortest bytes, the highest first."""
    data = array.cast(pa.decimal128(38, array.type.scale))
    low_first = np.frombuffer(data.buffers()[1], np.uint8)[16 * data.offset : 16 * (data.offset + len(data))]
    if array.type.precision <= 18:
        words: Int64s = low_first.view("<i8")[::2]
        return _word_hashes(words)
    high_first = np.ascontiguousarray(low_first.reshape(-1, 16)[:, ::-1])
    sign = np.where(high_first[:, 0] >= 128, 255, 0).astype(np.uint8)
    same = np.cumprod(high_first == sign[:, None], axis=1, dtype=np.int64).sum(axis=1)
    first = np.minimum(same, 15)
    top = high_first[np.arange(len(first)), first] >= 128
    first = np.where((same < 16) & (top != (sign == 255)), first - 1, first)
    return xxh64_spans(high_first.reshape(-1), 16 * np.arange(len(first)) + first, 16 - first, _SEED)
