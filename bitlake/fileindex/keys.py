"""Index keys: convert Arrow arrays and literals to keys, and keys to bytes, hashes and their order.

Two values are equal to an index if their *keys* are equal.  Keys of fixed width are signed integers (floats by their
IEEE bits, so that 0.0 and -0.0 differ, every NaN being one canonical NaN; booleans 0 and 1; decimals unscaled); keys
of strings and binaries are bytes.

======================================  =====  ===============================================
type                                    bytes  key
======================================  =====  ===============================================
BOOLEAN, TINYINT                        1      0/1, value
SMALLINT / INT / BIGINT                 2/4/8  value
DATE, TIME                              4      days, milliseconds of the day
FLOAT / DOUBLE                          4/8    IEEE bits
TIMESTAMP(p), TIMESTAMP_LTZ(p)          8      epoch milliseconds if p <= 3, else microseconds (floor)
DECIMAL(p, s)                           8      unscaled value
CHAR, VARCHAR, BINARY, VARBINARY        i4+n   bytes; text in UTF-8
======================================  =====  ===============================================

All integers big-endian on disk.  Source: index-format spec, sections 2.2, 3.1, 4.1 and Traps 11 and 12.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int32s, Int64s, UInt64s, long_hashes, murmur_bytes, number_hash, xxh64
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.fileindex.description import Section
from bitlake.lazy_arrow import compute as pc
from bitlake.types import AtomicType, DataType, Root
from bitlake.types.arrow import timestamp_unit
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS

Key = int | bytes
Ints = npt.NDArray[np.signedinteger[Any]]

_WIDTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
    Root.DECIMAL: 8,
}
_ARROW_INTS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NAN = {4: 0x7FC00000, 8: 0x7FF8000000000000}
_KEY_PRECISION = 6
"""Keys of timestamps are never finer than microseconds."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The key rules of one atomic type; :func:`keys_of` makes one."""

    type: AtomicType
    width: int
    """Bytes of a key; 0 if it varies."""

    @property
    def floating(self) -> bool:
        """Whether keys are IEEE bits."""
        return self.type.root in (Root.FLOAT, Root.DOUBLE)

    @property
    def lossy(self) -> bool:
        """Whether different values share a key: timestamps finer than a microsecond."""
        return self.type.root in TIMESTAMPS and (self.type.precision or 0) > _KEY_PRECISION

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of key arrays."""
        return _ARROW_INTS.get(self.width, pa.large_binary())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of fixed-width keys, native byte order."""
        return np.dtype(f"i{self.width}")

    def of_array(self, array: pa.Array) -> pa.Array:
        """Return the keys of a column's values; NULLs stay.

        A dictionary array gives a dictionary array whose dictionary holds distinct keys without NULL.
        Raises :class:`InvalidRequest` when the array's type cannot hold this column's values, and
        :class:`UnsupportedFeature` when a value is too big for any index (a DECIMAL beyond 64 bits).
        """
        if isinstance(array, pa.DictionaryArray):
            keys = self.of_array(array.dictionary).dictionary_encode()
            if keys.indices.null_count == 0 and len(keys.dictionary) == len(array.dictionary):
                return pa.DictionaryArray.from_arrays(array.indices, keys.dictionary)
            return pa.DictionaryArray.from_arrays(keys.indices.take(array.indices), keys.dictionary)
        try:
            return self._plain(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidRequest(f"values of Arrow type {array.type} do not fit a {self.type} index: {e}") from e

    def _plain(self, array: pa.Array) -> pa.Array:
        root, kind = self.type.root, array.type
        if self.width == 0:
            return array if kind == pa.large_binary() else array.cast(pa.large_binary())
        if root is Root.BOOLEAN:
            return array.cast(pa.bool_()).cast(pa.int8())
        if self.floating:
            return self._float_bits(array.cast(pa.float32() if self.width == 4 else pa.float64()))
        if root is Root.DECIMAL:
            return self._unscaled(array)
        if root is Root.DATE and not pa.types.is_integer(kind):
            return array.cast(pa.date32()).view(pa.int32())
        if root is Root.TIME and not pa.types.is_integer(kind):
            return array.cast(pa.time32("ms"), safe=False).view(pa.int32())
        if root in TIMESTAMPS and not pa.types.is_integer(kind):
            return _rescaled(array, timestamp_unit(min(self.type.precision or 0, _KEY_PRECISION)))
        return array.cast(self.arrow)

    def _float_bits(self, array: pa.Array) -> pa.Array:
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        bits = values.view(self.dtype)
        nan = np.isnan(values)
        if nan.any():
            bits = np.where(nan, self.dtype.type(_NAN[self.width]), bits)
        return _with_nulls_of(array, bits)

    def _unscaled(self, array: pa.Array) -> pa.Array:
        target = pa.decimal128(self.type.precision or 10, self.type.scale or 0)
        array = array.cast(target)
        words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        wide = words[:, 0] >> 63 != words[:, 1]
        if array.null_count:
            wide &= array.is_valid().to_numpy(zero_copy_only=False)
        if np.any(wide):
            raise UnsupportedFeature(f"an unscaled {self.type} value needs more than 64 bits")
        return _with_nulls_of(array, np.ascontiguousarray(words[:, 0]))

    def of_literal(self, value: Any) -> Key | None:
        """Return the key of a bound literal (see :mod:`bitlake.expressions.tree`).  None if no value can have it."""
        root = self.type.root
        if root in STRINGS:
            return str(value).encode("utf-8", "surrogatepass")
        if root in BINARIES:
            return bytes(value)
        if self.floating:
            return self._float_literal(float(value))
        number = int(value)
        if self.lossy:
            number //= 1000
        return number if -(1 << (8 * self.width - 1)) <= number < 1 << (8 * self.width - 1) else None

    def _float_literal(self, value: float) -> Key | None:
        if value != value:
            return _NAN[self.width]
        code = "f" if self.width == 4 else "d"
        try:
            packed = struct.pack(">" + code, value)
        except OverflowError:
            return None
        if struct.unpack(">" + code, packed)[0] != value:
            return None
        return int.from_bytes(packed, "big", signed=True)

    def equal_keys(self, value: Any) -> tuple[list[Key], bool]:
        """Return the keys that are equal to a literal in SQL, and whether rows with them surely match.

        0.0 and -0.0 are equal.  CHAR values are stored padded or unpadded, depending on the writer, and some engines
        ignore trailing spaces; only a full-length literal without a trailing space is certain.
        """
        key = self.of_literal(value)
        if key is None:
            return [], True
        if self.floating and value == 0:
            return [0, -(1 << (8 * self.width - 1))], True
        if self.type.root is Root.CHAR:
            text = str(value)
            bare = text.rstrip(" ")
            forms = dict.fromkeys((text, bare, bare.ljust(self.type.length or 0)))
            return [f.encode("utf-8", "surrogatepass") for f in forms], len(forms) == 1
        return [key], not self.lossy

    def order(self, keys: Ints) -> Ints:
        """Return fixed-width keys as integers that sort like the values: floats in Java's order, -0.0 before 0.0."""
        if not self.floating:
            return keys
        return keys ^ ((keys >> (8 * self.width - 1)) & np.iinfo(keys.dtype).max)

    def sort_indices(self, keys: pa.Array) -> Int64s:
        """Return indices that sort distinct keys (no NULL): numbers by value, bytes unsigned, shorter prefix first."""
        if self.width:
            order: Int64s = np.argsort(self.order(self.numpy(keys)), kind="stable")
            return order
        sorted_: Int64s = pc.sort_indices(keys).to_numpy().astype(np.int64)
        return sorted_

    def numpy(self, keys: pa.Array) -> Ints:
        """Return fixed-width keys as numpy integers; a NULL's is arbitrary."""
        filled = keys.fill_null(0) if keys.null_count else keys
        values: Ints = filled.to_numpy(zero_copy_only=False)
        return values

    def bloom_hashes(self, keys: pa.Array) -> UInt64s:
        """Return the 64-bit hashes that bloom filters use; a NULL's is arbitrary."""
        if self.width == 0:
            return xxh64(keys)
        return number_hash(self.numpy(keys).astype(np.int64)).view(np.uint64)

    def java_hashes(self, keys: pa.Array) -> Int32s:
        """Return the ``hashCode`` of the objects that Paimon (Java) keeps in its maps."""
        if self.width == 0:
            return murmur_bytes(keys)
        numbers = self.numpy(keys)
        if self.type.root is Root.BOOLEAN:
            return np.where(numbers == 1, 1231, 1237).astype(np.int32)
        return long_hashes(numbers) if self.width == 8 else numbers.astype(np.int32)

    def array_of(self, keys: Iterable[Key]) -> pa.Array:
        """Return a key array of Python keys."""
        return pa.array(list(keys), self.arrow)

    def encode(self, key: Key) -> bytes:
        """Return one key as bitmap and range-bitmap headers store it: strings with their i4 length."""
        if isinstance(key, bytes):
            return struct.pack(">i", len(key)) + key
        return key.to_bytes(self.width, "big", signed=True)


def keys_of(kind: DataType) -> Keys | None:
    """Return the key rules of a type.  None for types that no index takes (nested, VARIANT)."""
    if not isinstance(kind, AtomicType) or kind.root is Root.VARIANT:
        return None
    return Keys(kind, _WIDTHS.get(kind.root, 0))


def is_floating(kind: DataType) -> bool:
    """Whether a type is FLOAT or DOUBLE."""
    return isinstance(kind, AtomicType) and kind.root in (Root.FLOAT, Root.DOUBLE)


def chunks(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Iterate over the non-empty arrays of a column."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        if len(chunk):
            yield chunk


def _rescaled(array: pa.Array, unit: str) -> pa.Array:
    have, want = _PER_SECOND[array.type.unit], _PER_SECOND[unit]
    if have == want:
        return array.view(pa.int64())
    raw = array.view(pa.int64())
    if have < want:
        return pc.multiply_checked(raw, want // have)
    return _with_nulls_of(raw, np.floor_divide(raw.fill_null(0).to_numpy(), have // want))


def _with_nulls_of(array: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values, mask=array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None)


def keys_to_describe(section: Section, kind: DataType | None) -> Keys | None:
    """Return the keys of a column's type; None, and a note in the section, if the type is unknown."""
    if kind is None:
        section.facts["note"] = "the column's type is unknown, so keys cannot be decoded"
        return None
    return keys_of(kind)
