"""Bucket assignment by hash (table-format spec, section 7), vectorised over columns.

``default``  murmur3 over the 32-bit words of the key columns' BinaryRow, then ``|h rem N|``.
``mod``      floorMod of one INT or BIGINT column; null counts as 0.
``hive``     Hive's 31-based hash of the columns, then ``(h and 7FFFFFFFh) mod N``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bitlake.codec.binary_row import decimal_words, encode_rows, null_mask, to_column, to_numbers, to_texts
from bitlake.errors import InvalidRequest
from bitlake.types import AtomicType, DataType, Root
from bitlake.types.datatypes import BINARIES, STRINGS

U32 = NDArray[np.uint32]
_CHUNK = 1 << 16
"""Rows hashed at a time: keeps the row bytes and index arrays within a few megabytes."""
_FEW = 8
"""Rows left that are cheaper to finish one by one in plain integers than as arrays of this size."""
_MASK = 0xFFFFFFFF


def bucket_of(
    types: Sequence[DataType], arrays: Sequence[Any], num_buckets: int, function: str = "default"
) -> NDArray[np.int32]:
    """The bucket of each row, from the bucket key columns in bucket key order.

    ``arrays`` are Arrow arrays or chunked arrays of one length.  Raises :class:`InvalidRequest` for a function that
    does not take these types.
    """
    if num_buckets < 1:
        raise InvalidRequest(f"rows cannot be spread over {num_buckets} buckets")
    if not types:
        raise InvalidRequest("a bucketed table needs at least one bucket key column")
    whole = [to_column(kind, array) for kind, array in zip(types, arrays, strict=True)]
    if function == "default":
        sizes = np.abs(row_hash(types, whole).view(np.int32).astype(np.int64)).astype(np.uint32)
        # |h rem N|; dividing by a constant is several times faster than taking remainders.
        return (sizes - sizes // np.uint32(num_buckets) * np.uint32(num_buckets)).astype(np.int32)
    if function == "mod":
        return _mod(types, whole, num_buckets)
    if function == "hive":
        total = np.zeros(len(whole[0]), np.uint32)
        for kind, column in zip(types, whole):
            total = total * np.uint32(31) + _hive(kind, column)
        return ((total & np.uint32(0x7FFFFFFF)) % np.uint32(num_buckets)).astype(np.int32)
    raise InvalidRequest(f"unknown bucket function '{function}'; it is one of default, mod, hive")


def row_hash(types: Sequence[DataType], arrays: Sequence[Any]) -> U32:
    """The 32-bit hash of each row's BinaryRow bytes (also what HASH index files hold for primary keys)."""
    whole = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    rows = len(whole[0])
    out = np.empty(rows, np.uint32)
    for start in range(0, rows, _CHUNK):
        data, offsets = encode_rows(types, [a.slice(start, _CHUNK) for a in whole])
        out[start : start + _CHUNK] = murmur_words(data.view(np.uint32), offsets // 4)
    return out


def murmur_words(words: U32, offsets: NDArray[np.int64]) -> U32:
    """Murmur3 (seed 42) of runs of little-endian words: run i is ``words[offsets[i]:offsets[i + 1]]``."""
    mixed = words * np.uint32(0xCC9E2D51)
    mixed = (mixed << np.uint32(15) | mixed >> np.uint32(17)) * np.uint32(0x1B873593)
    counts = np.diff(offsets)
    rows = len(counts)
    if rows and (counts == counts[0]).all():
        state = np.full(rows, 42, np.uint32)
        for turn in mixed[offsets[0] : offsets[-1]].reshape(rows, counts[0]).T:
            state = _step(state, turn)
        return _last(state, counts)
    # Longest first: the rows that still have a word at step j are then always a prefix.
    order = np.argsort(-counts, kind="stable")
    starts, lengths = offsets[:-1][order], counts[order]
    state = np.full(rows, 42, np.uint32)
    step, active = 0, rows
    while active > _FEW:
        active = int(np.searchsorted(-lengths, -step, side="left"))
        if active <= _FEW:
            break
        state[:active] = _step(state[:active], mixed[starts[:active] + step])
        step += 1
    for row in range(active):  # at most _FEW rows are left here
        h = int(state[row])
        for k in mixed[int(starts[row]) + step : int(starts[row] + lengths[row])].tolist():
            h ^= k
            h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & _MASK
        state[row] = h
    out = np.empty(rows, np.uint32)
    out[order] = _last(state, lengths)
    return out


def _step(state: U32, mixed: U32) -> U32:
    turn = state ^ mixed
    return (turn << np.uint32(13) | turn >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)


def _last(state: U32, counts: NDArray[np.int64]) -> U32:
    """The final mix, with the number of words."""
    state = state ^ (counts * 4).astype(np.uint32)
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return state ^ state >> np.uint32(16)


def _mod(types: Sequence[DataType], columns: Sequence[Any], num_buckets: int) -> NDArray[np.int32]:
    kind = types[0]
    if len(types) != 1 or not isinstance(kind, AtomicType) or kind.root not in (Root.INT, Root.BIGINT):
        raise InvalidRequest("bucket function 'mod' takes exactly one INT or BIGINT bucket key column")
    dtype = np.int32 if kind.root is Root.INT else np.int64
    values = to_numbers(columns[0], dtype, null_mask(columns[0])).astype(np.int64)
    return np.mod(values, num_buckets).astype(np.int32)


def _hive(made: DataType, column: Any) -> U32:
    assert isinstance(made, AtomicType)
    nulls = null_mask(column)
    root = made.root
    if root in STRINGS or root in BINARIES:
        return _hive_bytes(column)
    if root is Root.DECIMAL:
        return _hive_decimal(made.scale or 0, column, nulls)
    if root is Root.BOOLEAN:
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.uint32)
    if root in (Root.TINYINT, Root.SMALLINT, Root.INT, Root.DATE, Root.TIME):
        dtype = {Root.TINYINT: np.int8, Root.SMALLINT: np.int16}.get(root, np.int32)
        return to_numbers(column, dtype, nulls).astype(np.int32).view(np.uint32)
    if root is Root.FLOAT:
        floats = to_numbers(column, np.float32, nulls)
        return np.where(floats == 0, np.float32(0), _with_java_nan(floats)).view(np.uint32)
    if root is Root.BIGINT:
        return _fold(to_numbers(column, np.int64, nulls).view(np.uint64))
    if root is Root.DOUBLE:
        doubles = to_numbers(column, np.float64, nulls)
        return _fold(np.where(doubles == 0, np.float64(0), _with_java_nan(doubles)).view(np.uint64))
    raise InvalidRequest(f"bucket function 'hive' does not take columns of type {made}")


def _with_java_nan(values: NDArray[Any]) -> NDArray[Any]:
    """The values, with each NaN replaced by Java's canonical one, which is positive."""
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _fold(words: NDArray[np.uint64]) -> U32:
    return ((words ^ words >> np.uint64(32)) & np.uint64(_MASK)).astype(np.uint32)


def _hive_bytes(column: Any) -> U32:
    """Σ byte · 31^(bytes after it), the bytes signed."""
    texts = to_texts(column)
    out = np.zeros(len(texts.lengths), np.uint32)
    filled = np.flatnonzero(texts.lengths)
    if not len(filled):
        return out
    lengths = texts.lengths[filled]
    before = np.cumsum(lengths) - lengths
    steps = np.arange(int(lengths.sum()))
    within = steps - np.repeat(before, lengths)
    powers = np.uint32(31) ** np.arange(lengths.max(), dtype=np.uint32)
    values = texts.data[np.repeat(texts.starts[filled], lengths) + within].view(np.int8).astype(np.int32)
    weighted = values.view(np.uint32) * powers[np.repeat(lengths, lengths) - 1 - within]
    out[filled] = np.add.reduceat(weighted, before, dtype=np.uint32)
    return out


def _hive_decimal(scale: int, column: Any, nulls: NDArray[np.bool_]) -> U32:
    """Java's BigDecimal hash after trailing zeros (down to scale 0) are gone; values as four 32-bit limbs."""
    words = decimal_words(column, nulls)
    negative = words[:, 1] >> np.uint64(63) != 0
    low = np.where(negative, ~words[:, 0] + np.uint64(1), words[:, 0])
    high = np.where(negative, ~words[:, 1] + (low == 0).astype(np.uint64), words[:, 1])
    mask, half, ten = np.uint64(_MASK), np.uint64(32), np.uint64(10)
    limbs = [high >> half, high & mask, low >> half, low & mask]
    scales = np.full(len(column), scale, np.uint32)
    going = (low != 0) | (high != 0)
    scales[~going] = 0
    for _ in range(scale):
        rest = np.zeros(len(column), np.uint64)
        shorter = []
        for limb in limbs:
            now = rest << half | limb
            shorter.append(now // ten)
            rest = now % ten
        going &= rest == 0
        if not going.any():
            break
        limbs = [np.where(going, s, limb) for s, limb in zip(shorter, limbs)]
        scales[going] -= np.uint32(1)
    total = np.zeros(len(column), np.uint32)
    for limb in limbs:
        total = total * np.uint32(31) + limb.astype(np.uint32)
    total = np.where(negative, np.uint32(0) - total, total)
    return np.where(nulls, np.uint32(0), total * np.uint32(31) + scales)
