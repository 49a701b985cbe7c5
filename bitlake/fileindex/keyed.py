"""Index keys: the form in which file indexes hold values, and predicates evaluated by key.

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

All integers big-endian on disk.  :class:`Keys` converts Arrow arrays and literals to keys, and keys to bytes, hashes
and their order.  :func:`to_arrow` and :func:`physical_value` turn keys back into values, for types whose keys
:func:`are_values`: not CHAR (padded or unpadded, depending on the writer), not timestamps finer than microseconds.

:func:`evaluate_leaf` evaluates a leaf with an index that finds rows by key (bitmap, range-bitmap and bsi), by SQL's
rules: 0.0 equals -0.0, a comparison with NULL is never TRUE, timestamps finer than microseconds share keys, CHAR values
may be padded.  These indexes also share how they count the rows of serialized bitmaps, compare two indexes row by row
(verify), and format keys (inspect).

Source: index-format spec, sections 2.2, 3.1, 4.1 and Traps 11 and 12.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import Int32s, Int64s, UInt64s, long_hashes, murmur_bytes, number_hash, xxh64
from bitlake.codec.roaring import positions_of
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.expressions.evaluate import is_in
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op, derived_from
from bitlake.fileindex.capabilities import RowGroups
from bitlake.fileindex.payload import DAMAGE, LazyBytes, Section
from bitlake.fileindex.selection import Selection
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataType, Root, arrow_type
from bitlake.types.arrow import UNITS_PER_SECOND, timestamp_unit
from bitlake.types.datatypes import BINARIES, FLOATS, INTEGERS, STRINGS, TIMESTAMPS, is_scalar

Key = int | bytes
KeyList: TypeAlias = "Sequence[Key] | pa.Array"
"""Keys to look up; the key array of a long list is shared by all files."""
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
        return self.type.root in FLOATS

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
        values = array.fill_null(0).to_numpy()
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

    def keys_of_all(self, values: Sequence[Any]) -> tuple[list[Key], bool]:
        """Return the keys that are equal to one of many literals, as :meth:`equal_keys` does for each."""
        if self.width and not self.floating:
            top, unit = 1 << (8 * self.width - 1), 1000 if self.lossy else 1
            try:
                found = np.fromiter(values, np.int64, len(values)) // unit
                keys: list[Key] = found[(found >= -top) & (found < top)].tolist()
            except OverflowError:
                keys = [n for v in values if -top <= (n := int(v) // unit) < top]
            return keys, not (self.lossy and keys)
        if self.type.root is Root.VARCHAR:
            return [v.encode("utf-8", "surrogatepass") for v in values], True
        forms = [self.equal_keys(value) for value in values]
        return [key for keys, _ in forms for key in keys], all(sure for _, sure in forms)

    def keys_of_list(self, leaf: In) -> tuple[pa.Array, bool]:
        """Return :meth:`keys_of_all` of a list's values, as an array that all files share; numbers are sorted."""

        def make() -> tuple[pa.Array, bool]:
            keys, exact = self.keys_of_all(leaf.values)
            return pa.array(np.sort(np.array(keys, self.dtype)) if self.width else keys, self.arrow), exact

        return derived_from(leaf, self, make)

    def order(self, keys: Ints) -> Ints:
        """Return fixed-width keys as integers that sort like the values: floats in Java's order, -0.0 before 0.0."""
        if not self.floating:
            return keys
        return keys ^ ((keys >> (8 * self.width - 1)) & np.iinfo(keys.dtype).max)

    def sortable(self, key: Key) -> Key:
        """Return a key as :meth:`order` has it."""
        if isinstance(key, bytes) or not self.floating:
            return key
        return int(self.order(np.array([key], self.dtype))[0])

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
        values: Ints = filled.to_numpy()
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
    if not is_scalar(kind):
        return None
    return Keys(kind, _WIDTHS.get(kind.root, 0))


def keys_for(kind: DataType, accepts: str, supports: Callable[[DataType], bool] | None = None) -> Keys:
    """Return the key rules of a type; raise :class:`InvalidRequest`, with what an index ``accepts``, for any other."""
    keys = keys_of(kind)
    if keys is None or (supports is not None and not supports(kind)):
        raise InvalidRequest(f"{accepts}; not {kind}")
    return keys


def is_floating(kind: DataType) -> bool:
    """Whether a type is FLOAT or DOUBLE."""
    return isinstance(kind, AtomicType) and kind.root in FLOATS


def are_values(keys: Keys) -> bool:
    """Whether the keys of a type are the column's values."""
    return not keys.lossy and keys.type.root is not Root.CHAR


def are_numbers(keys: Keys) -> bool:
    """Whether the keys of a type are numbers that add up: integers, and decimals without their scale."""
    return keys.type.root in INTEGERS or keys.type.root is Root.DECIMAL


def to_arrow(keys: Keys, array: pa.Array) -> pa.Array:
    """Return keys (:attr:`Keys.arrow`) as values of the column's Arrow type; requires :func:`are_values`."""
    wanted = arrow_type(keys.type)
    if keys.width == 0:
        try:
            return array.cast(pa.large_string() if pa.types.is_string(wanted) else pa.large_binary()).cast(wanted)
        except pa.ArrowInvalid as e:
            raise CorruptError(f"a key of an index of {keys.type} is not valid: {e}") from e
    if keys.floating:
        return pa.array(keys.numpy(array).view(np.float32 if keys.width == 4 else np.float64), wanted)
    if keys.type.root is Root.DECIMAL:
        low = keys.numpy(array).astype(np.int64)
        words = np.stack([low, low >> 63], axis=1)
        return pa.Array.from_buffers(wanted, len(low), [None, pa.py_buffer(np.ascontiguousarray(words))])
    return array.cast(pa.int8()).cast(wanted) if keys.type.root is Root.BOOLEAN else array.cast(wanted)


def physical_value(keys: Keys, key: Key) -> Any:
    """Return one key as a physical value of :mod:`bitlake.expressions.tree`; requires :func:`are_values`."""
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogatepass") if keys.type.root is Root.VARCHAR else key
    if keys.floating:
        return struct.unpack(">f" if keys.width == 4 else ">d", key.to_bytes(keys.width, "big", signed=True))[0]
    return bool(key) if keys.type.root is Root.BOOLEAN else key


def chunks(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Iterate over the non-empty arrays of a column."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        if len(chunk):
            yield chunk


def _rescaled(array: pa.Array, unit: str) -> pa.Array:
    have, want = UNITS_PER_SECOND[array.type.unit], UNITS_PER_SECOND[unit]
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


# --- predicates by key ------------------------------------------------------------------------------------------------


LONG_LIST = 512
"""A list of more keys than this is compared with all keys of a file at once: 100,000 one by one would take seconds."""


def are_listed(known: pa.Array, keys: KeyList) -> npt.NDArray[np.bool_]:
    """Return whether each of an index's keys is in a list; a list that is an array of numbers must be sorted."""
    if isinstance(keys, pa.Array) and pa.types.is_integer(keys.type) and len(keys):
        members, sought = keys.to_numpy(), known.to_numpy()
        found = members[np.minimum(np.searchsorted(members, sought), len(members) - 1)]
        return np.asarray(found == sought)
    members = keys if isinstance(keys, pa.Array) else pa.array(keys, known.type)
    listed: npt.NDArray[np.bool_] = is_in(known, members).to_numpy(zero_copy_only=False)
    return listed


def one_by_one(keys: KeyList) -> Sequence[Key]:
    """Return keys as Python values."""
    return keys.to_pylist() if isinstance(keys, pa.Array) else keys


class KeyedRows(Protocol):
    """An index that finds rows by key; callers do not change the bitmaps that it returns."""

    keys: Keys
    row_count: int

    def present(self) -> BitMap:
        """Return the rows that are not NULL."""

    def nulls(self) -> BitMap:
        """Return the rows that are NULL."""

    def having(self, keys: KeyList) -> BitMap:
        """Return the rows with any of these keys."""

    def compared(self, op: Op, key: Key) -> BitMap | None:
        """Return the rows whose key is <, <=, > or >= another, in the order of values.  None if that costs too much."""


def evaluate_leaf(index: KeyedRows, leaf: Leaf) -> Selection | None:
    """Return the rows for which the leaf is TRUE.  None if the index cannot evaluate it."""
    match leaf:
        case IsNull(_, negated):
            return _selection(index, index.present() if negated else index.nulls(), True)
        case Comparison(_, Op.EQ, value):
            return _equal(index, (value,))
        case Comparison(_, Op.NE, value):
            return _different(index, (value,))
        case In(_, values, negated) if len(values) <= LONG_LIST:
            return _different(index, values) if negated else _equal(index, values)
        case In():
            return _long_list(index, leaf)
        case Comparison(_, op, value):
            return _compare(index, op, value)
        case Like():
            return None


def _selection(index: KeyedRows, rows: BitMap, exact: bool) -> Selection:
    return Selection.all(exact) if len(rows) == index.row_count else Selection.of(rows, exact)


def _equal(index: KeyedRows, values: Sequence[Any]) -> Selection:
    keys, exact = index.keys.keys_of_all(values)
    return _selection(index, index.having(keys), exact)


def _different(index: KeyedRows, values: Sequence[Any]) -> Selection | None:
    if index.keys.lossy:
        return None
    if index.keys.type.root is Root.CHAR:
        # When unsure whether a form equals the literal, only the literal itself may be taken out.
        forms = [index.keys.equal_keys(value) for value in values]
        keys = [key for found, sure in forms for key in (found if sure else found[:1])]
        exact = all(sure for _, sure in forms)
    else:
        keys, exact = index.keys.keys_of_all(values)
    return _selection(index, index.present() - index.having(keys), exact)


def _long_list(index: KeyedRows, leaf: In) -> Selection | None:
    if leaf.negated and (index.keys.lossy or index.keys.type.root is Root.CHAR):
        return _different(index, leaf.values)
    keys, exact = index.keys.keys_of_list(leaf)
    rows = index.having(keys)
    return _selection(index, index.present() - rows if leaf.negated else rows, exact)


def _compare(index: KeyedRows, op: Op, value: Any) -> Selection | None:
    if index.keys.type.root is Root.CHAR:
        return None  # padded or unpadded: the order is unknown
    if index.keys.floating and value == 0:  # -0.0 sorts before 0.0, but equals it
        value = -0.0 if op in (Op.LT, Op.GE) else 0.0
    key = index.keys.of_literal(value)
    if key is None:
        return None
    lossy = index.keys.lossy
    if lossy:  # rows that share the literal's key may match or not
        op = Op.LE if op in (Op.LT, Op.LE) else Op.GE
    rows = index.compared(op, key)
    return None if rows is None else _selection(index, rows, not lossy)


# --- rows of codes and of serialized bitmaps --------------------------------------------------------------------------

MAX_COUNTED = 4096
"""Most bitmaps (of more than one row) that are intersected with a selection one by one; above it, counting takes longer
than reading the column."""
_PLAIN, _WITH_RUNS = 12346, 12347
"""Roaring cookies (:mod:`bitlake.codec.roaring`)."""


def is_few(rows: int, row_count: int) -> bool:
    """Whether looking up the codes of some rows is cheaper than unpacking those of all."""
    return 16 * rows < row_count


def codes_of(slices: Sequence[BitMap], rows: BitMap, row_count: int) -> tuple[Int64s, Int64s]:
    """Return the positions of ``rows``, and the number that the bit slices hold for each."""
    positions = positions_of(rows)
    if not len(positions):  # a column of NULLs has 64 slices, all empty
        return positions, positions
    if is_few(len(positions), row_count):  # look up their positions
        codes = np.zeros(len(positions), np.int64)
        for i, rows_of_bit in enumerate(slices):
            codes[np.searchsorted(positions, positions_of(rows_of_bit & rows))] |= 1 << i
        return positions, codes
    wide = np.zeros(row_count, np.int64)
    for i, rows_of_bit in enumerate(slices):
        wide[np.frombuffer(rows_of_bit.to_array(), np.uint32)] |= 1 << i
    return positions, wide[positions]


def with_nulls(values: pa.Array, rows: Sequence[BitMap], nulls: BitMap) -> RowGroups:
    """Return groups of rows by value, with one of NULLs at the end if there are any."""
    if not nulls:
        return RowGroups(values, rows)
    return RowGroups(pa.concat_arrays([values, pa.nulls(1, values.type)]), [*rows, nulls])


def cardinality(header: memoryview, offset: int) -> int | None:
    """Return the number of rows in a serialized Roaring bitmap, from its header.  None if ``header`` is cut short."""
    if len(header) < 4:
        return None
    cookie = int.from_bytes(header[:4], "little")
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        start = 4 + (count + 7) // 8
    elif cookie == _PLAIN:
        if len(header) < 8:
            return None
        count = int.from_bytes(header[4:8], "little")
        start = 8
    else:
        raise CorruptError("this is not a Roaring bitmap", offset)
    if count > 1 << 16:
        raise CorruptError(f"a Roaring bitmap cannot have {count} containers", offset)
    if start + 4 * count > len(header):
        return None
    return int(np.frombuffer(header[start : start + 4 * count], "<u2")[1::2].sum(dtype=np.int64)) + count


def cardinalities(body: memoryview, offsets: Int64s) -> Int64s:
    """Return the number of rows in each of the serialized bitmaps at ``offsets`` of ``body``.

    Raises :class:`CorruptError` for bytes that are not a Roaring bitmap, or that end outside ``body``.
    """
    data = np.frombuffer(body, np.uint8)
    words = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))
    halves = np.ndarray((max(len(data) - 1, 0),), "<u2", data, strides=(1,))
    if len(offsets) and int(offsets.max()) + 8 > len(data):
        raise CorruptError("a bitmap of an index ends outside of it", int(offsets.max()))
    cookies = words[offsets].astype(np.int64)
    runs = cookies & 0xFFFF == _WITH_RUNS
    if not np.all(runs | (cookies == _PLAIN)):
        raise CorruptError("this is not a Roaring bitmap", int(offsets[~(runs | (cookies == _PLAIN))][0]))
    counts = np.where(runs, (cookies >> 16) + 1, words[offsets + 4].astype(np.int64))
    starts = offsets + np.where(runs, 4 + (counts + 7) // 8, 8)
    if len(offsets) and (int(counts.max()) > 1 << 16 or int((starts + 4 * counts).max()) > len(data)):
        raise CorruptError("a bitmap of an index ends outside of it", int(offsets[np.argmax(starts + 4 * counts)]))
    owners = np.repeat(np.arange(len(offsets)), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    each = halves[np.repeat(starts, counts) + 4 * within + 2].astype(np.int64) + 1
    return np.bincount(owners, each, len(offsets)).astype(np.int64)


# --- comparing two indexes --------------------------------------------------------------------------------------------

_PROBES = 64
"""Keys looked up, evenly spread, where two payloads differ in their bytes."""


def difference_by_row(
    stored: KeyedRows, rebuilt: KeyedRows, stored_keys: tuple[Int64s, Any], rebuilt_keys: tuple[Int64s, Any]
) -> str | None:
    """Compare two indexes that give each row its key: the rows that are not NULL, their keys, and lookups of some keys.

    ``stored_keys`` and ``rebuilt_keys``: the rows that are not NULL, and the key of each (numpy or Arrow).
    """
    positions, keys = stored_keys
    expected, values = rebuilt_keys
    odd = np.setxor1d(positions, expected)
    if len(odd):
        state = "NULL, and it is not" if odd[0] in expected else "not NULL, and it is"
        return f"it says that row {int(odd[0]):,} is {state}"
    other = np.flatnonzero(_unequal(keys, values))
    if len(other):
        return f"it says another value of row {int(positions[other[0]]):,}, and of {len(other) - 1:,} more"
    return _probed(stored, rebuilt, values)


def _unequal(left: Any, right: Any) -> Any:
    if isinstance(left, np.ndarray):
        return left != right
    return pc.not_equal(left, right).to_numpy(zero_copy_only=False)


def _probed(stored: KeyedRows, rebuilt: KeyedRows, values: Any) -> str | None:
    """Look up some of the keys: a dictionary may hold the right key for a code, and not find it."""
    if not len(values):
        return None
    at = np.unique(np.linspace(0, len(values) - 1, _PROBES).astype(np.int64))
    keys: list[Key] = values[at].tolist() if isinstance(values, np.ndarray) else values.take(pa.array(at)).to_pylist()
    for key in dict.fromkeys(keys):
        odd = stored.having([key]) ^ rebuilt.having([key])
        odd |= (stored.compared(Op.GE, key) or BitMap()) ^ (rebuilt.compared(Op.GE, key) or BitMap())
        if odd:
            return f"asked for a value it finds other rows, such as {odd[0]:,}"
    return None


# --- describing an index ----------------------------------------------------------------------------------------------


def counted_rows(payload: LazyBytes, at: int, length: int, rows: int) -> int:
    """Return how many rows the Roaring bitmap at ``at`` holds, from its header alone; ``rows``: of the index."""
    if at + length > payload.length:
        raise CorruptError(f"a bitmap of {length:,} bytes does not fit", at)
    containers = max(rows, 0) // 65536
    head = min(length, 8 + 4 * (containers + 2) + containers // 8)
    count = cardinality(payload.view(at, head, ahead=0), at)
    if count is None:
        count = cardinality(payload.view(at, length), at)
    if count is None:
        raise CorruptError("a bitmap ends inside its header", at)
    return count


def key_texts(keys: Keys, entries: Any, shown: range) -> list[str]:
    """Format some of an index's keys as people write the values."""
    picked = list(entries[shown.start : shown.stop])
    if are_values(keys):
        try:
            array = keys.array_of([k if isinstance(k, bytes) else int(k) for k in picked])
            return [_text(v) for v in to_arrow(keys, array).to_pylist()]
        except (BitlakeError, pa.ArrowException, *DAMAGE):
            pass
    return [_text(k) if isinstance(k, bytes) else str(int(k)) for k in picked]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode() or "''"
        except UnicodeDecodeError:
            return value.hex()
    return str(value) or "''"
