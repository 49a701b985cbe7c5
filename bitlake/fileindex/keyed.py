"""Evaluate leaves with an index that finds rows by key: shared by bitmap, range-bitmap and bsi.

:func:`evaluate_leaf` applies SQL's rules to keys: 0.0 equals -0.0, a comparison with NULL is never TRUE, timestamps
finer than microseconds share keys, CHAR values may be padded.

:func:`to_arrow` and :func:`physical_value` turn keys back into values, for types whose keys :func:`are_values`:
not CHAR (padded or unpadded, depending on the writer), not timestamps finer than microseconds.

Also shared: counting the rows of serialized bitmaps, comparing two indexes row by row (verify), and formatting keys
(inspect).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import positions_of
from bitlake.errors import BitlakeError, CorruptError
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op
from bitlake.fileindex.description import DAMAGE
from bitlake.fileindex.keys import Key, Keys
from bitlake.fileindex.lazy_bytes import LazyBytes
from bitlake.fileindex.selection import Selection
from bitlake.lazy_arrow import compute as pc
from bitlake.types import Root, arrow_type


class KeyedRows(Protocol):
    """An index that finds rows by key; callers do not change the bitmaps that it returns."""

    keys: Keys
    row_count: int

    def present(self) -> BitMap:
        """Return the rows that are not NULL."""

    def nulls(self) -> BitMap:
        """Return the rows that are NULL."""

    def having(self, keys: list[Key]) -> BitMap:
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
        case In(_, values, negated):
            return _different(index, values) if negated else _equal(index, values)
        case Comparison(_, op, value):
            return _compared(index, op, value)
        case Like():
            return None


def _selection(index: KeyedRows, rows: BitMap, exact: bool) -> Selection:
    return Selection.all(exact) if len(rows) == index.row_count else Selection.of(rows, exact)


def _equal(index: KeyedRows, values: Iterable[Any]) -> Selection:
    exact, keys = True, []
    for value in values:
        forms, sure = index.keys.equal_keys(value)
        keys += forms
        exact &= sure
    return _selection(index, index.having(keys), exact)


def _different(index: KeyedRows, values: Iterable[Any]) -> Selection | None:
    if index.keys.lossy:
        return None
    exact, keys = True, []
    for value in values:
        forms, sure = index.keys.equal_keys(value)
        # When unsure whether a form equals the literal, only the literal itself may be taken out.
        keys += forms if sure else forms[:1]
        exact &= sure
    return _selection(index, index.present() - index.having(keys), exact)


def _compared(index: KeyedRows, op: Op, value: Any) -> Selection | None:
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


# Above this, counting takes longer than reading the column.
MAX_COUNTED = 4096
"""Most bitmaps (of more than one row) that are intersected with a selection one by one."""
_PLAIN, _WITH_RUNS = 12346, 12347


def are_values(keys: Keys) -> bool:
    """Whether the keys of a type are the column's values."""
    return not keys.lossy and keys.type.root is not Root.CHAR


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


def codes_of(slices: Sequence[BitMap], rows: BitMap, row_count: int) -> tuple[Int64s, Int64s]:
    """Return the positions of ``rows``, and the number that the bit slices hold for each."""
    positions = positions_of(rows)
    if not len(positions):  # a column of NULLs has 64 slices, all empty
        return positions, positions
    if 16 * len(positions) < row_count:  # few rows: look up their positions
        codes = np.zeros(len(positions), np.int64)
        for i, rows_of_bit in enumerate(slices):
            codes[np.searchsorted(positions, positions_of(rows_of_bit & rows))] |= 1 << i
        return positions, codes
    wide = np.zeros(row_count, np.int64)
    for i, rows_of_bit in enumerate(slices):
        wide[np.frombuffer(rows_of_bit.to_array(), np.uint32)] |= 1 << i
    return positions, wide[positions]


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
    head = min(length, 16 + 5 * (max(rows, 0) // 65536 + 2))
    count = cardinality(payload.view(at, head), at)
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
