"""Lists of (key, fixed-size tail) records, as bitmap and range-bitmap indexes hold them: packing and walking."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError
from bitlake.fileindex.keys import Keys
from bitlake.fileindex.window import Window

_I4 = struct.Struct(">i")
_FEW = 16


def pack(keys: Keys, values: pa.Array, *tail: Int64s) -> tuple[bytes, Int64s]:
    """Records of each key followed by i4 big-endian numbers, one array per number.

    Returns their bytes and the ``n + 1`` offsets of the records.
    """
    n = len(values)
    if keys.width:
        record = np.dtype([("key", keys.dtype.newbyteorder(">"))] + [(f"t{i}", ">i4") for i in range(len(tail))])
        out = np.empty(n, record)
        out["key"] = keys.numpy(values)
        for i, numbers in enumerate(tail):
            out[f"t{i}"] = numbers
        return out.tobytes(), np.arange(n + 1, dtype=np.int64) * record.itemsize
    lengths = pc.binary_length(values).to_numpy()
    tails = np.empty((n, len(tail)), ">i4")
    for i, numbers in enumerate(tail):
        tails[:, i] = numbers
    joined = pc.binary_join_element_wise(
        _fixed(lengths.astype(">i4")), values, _fixed(tails), pa.scalar(b"", pa.large_binary())
    )
    sizes = lengths + (4 + 4 * len(tail))
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    data = joined.buffers()[2] if n else None
    return b"" if data is None else data.to_pybytes()[: int(offsets[-1])], offsets


def _fixed(rows: npt.NDArray[np.integer]) -> pa.Array:
    """Every row of a big-endian array as one binary value."""
    size = rows.nbytes // len(rows) if len(rows) else 0
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * size
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())]
    )


def read_variable(
    window: Window, at: int, n: int, tail: int, end: int | None = None
) -> tuple[list[bytes], Int64s, int]:
    """Read ``n`` records of variable-width keys from ``at``: (keys, tails as an (n, tail) array, end offset).

    ``end``: where the list ends at the latest.  None: it ends where it ends, and is fetched in growing pieces.
    Raises :class:`CorruptError` when it does not end by then.
    """
    least = 4 + 4 * tail
    limit = window.length if end is None else end
    if n < 0 or at > limit or n * least > limit - at:
        raise CorruptError(f"an index cannot have {n} values here", at)
    size = limit - at if end is not None else min(limit - at, max(4096, n * (least + 16)))
    view = window.view(at, size)
    while True:
        found = _walk(view, at, n, tail)
        if found is not None:
            values, numbers, used = found
            return values, numbers, at + used
        more = min(limit - at - size, size)
        if more == 0:
            raise CorruptError("an index ends inside its values", at)
        # Only what is missing: the list may be as long as all else that one question reads.
        view = memoryview(b"".join((view, window.view(at + size, more))))
        size += more


def _walk(view: memoryview, base: int, n: int, tail: int) -> tuple[list[bytes], Int64s, int] | None:
    """The records at the start of ``view``, or None when it ends before they do.

    Where a record starts is known only from the one before it, hence a plain loop; the block size of V2 bitmaps and
    the chunk size of range-bitmaps bound it.
    """
    values: list[bytes] = []
    starts: list[int] = []
    at, end, unpack = 0, len(view), _I4.unpack_from
    for _ in range(n):
        if at + 4 > end:
            return None
        length = unpack(view, at)[0]
        if length < 0:
            raise CorruptError(f"a value cannot have {length} bytes", base + at)
        stop = at + 4 + length
        if stop + 4 * tail > end:
            return None
        values.append(bytes(view[at + 4 : stop]))
        starts.append(stop)
        at = stop + 4 * tail
    if n <= _FEW:  # the usual index of a small file: arrays would take longer to make than to fill
        few = [[unpack(view, start + 4 * i)[0] for i in range(tail)] for start in starts]
        return values, np.array(few, np.int64).reshape(n, tail), at
    numbers = np.zeros((n, tail), np.int64)
    words = np.ndarray((max(end - 3, 0),), ">i4", np.frombuffer(view, np.uint8), strides=(1,))
    for i in range(tail):
        numbers[:, i] = words[np.array(starts, np.int64) + 4 * i]
    return values, numbers, at


def read_fixed(keys: Keys, window: Window, at: int, n: int, tail: int) -> tuple[npt.NDArray[np.int64], Int64s, int]:
    """Read ``n`` records of fixed-width keys from ``at``: (keys as int64, tails as an (n, tail) array, end offset)."""
    record = np.dtype([("key", keys.dtype.newbyteorder(">")), ("tail", ">i4", (tail,))])
    if n < 0 or at + n * record.itemsize > window.length:
        raise CorruptError(f"an index cannot have {n} values here", at)
    rows = np.frombuffer(window.view(at, n * record.itemsize), record)
    return rows["key"].astype(np.int64), rows["tail"].astype(np.int64), at + n * record.itemsize
