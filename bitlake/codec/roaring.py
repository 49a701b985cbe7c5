"""Portable 32-bit Roaring bitmaps: fast serialization of many bitmaps, and checked reading of untrusted ones.

One bitmap, little-endian (the public RoaringFormatSpec)::

    no run container:    u4 cookie 12346 | u4 containers
    with run containers: u2 cookie 12347 | u2 containers-1 | bit set of (containers+7)/8 bytes, 1 = run container
    containers x ( u2 key, u2 cardinality-1 )                  key = position >> 16, ascending
    containers x   u4 offset from the start of the bitmap      absent with the run cookie and fewer than 4 containers
    containers:    array  cardinality x u2                     cardinality <= 4096
                   bitset 8192 bytes                           cardinality >  4096
                   run    u2 runs, runs x ( u2 first, u2 length-1 )

Paimon run-optimises before it writes: a container is a run container iff ``2 + 4*runs`` is strictly less than its size
otherwise (index-format spec, section 0.3).

Bitmaps of many positions are built and queried through packed masks.  A container of 65,536 rows that holds more than
4,096 of them *is* their packed mask, so setting bytes of a mask and packing it makes the same bitmap tens of times
faster than adding positions one by one.
"""

from __future__ import annotations

import array as pyarray
import struct
from operator import lt

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError

UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
PLAIN, _WITH_RUNS = 12346, 12347
_ONE_PLAIN = bytes.fromhex("3a30000001000000")
_CONTAINER = struct.Struct("<HHI")
_FEW = 64
ARRAY_LIMIT = 4096
BITSET_BYTES = 8192
_OFFSETS_FROM = 4
"""With run containers, the offsets are written from this many containers on."""

EMPTY = bytes.fromhex("3a30000000000000")


def bitmap_of(positions: npt.NDArray[np.integer]) -> BitMap:
    """A bitmap of positions (any integer dtype, 0 ≤ p < 2^32), best ascending."""
    # Through array.array: pyroaring then adds all values in one call, seven times faster than from an ndarray.
    return BitMap(pyarray.array("I", np.ascontiguousarray(positions, np.uint32).tobytes()))


def positions_of(bitmap: BitMap) -> Int64s:
    """The positions of a bitmap, ascending."""
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def serialize(bitmap: BitMap) -> bytes:
    """Run-optimise (in place) and serialize."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def serialize_after(head: bytes, bitmap: BitMap) -> bytes | bytearray:
    """Return ``head`` followed by a serialized bitmap, which must be run-optimised.

    Pyroaring fills two fresh buffers with a bitmap, and joining it with ``head`` a third one.  A bitmap of many rows is
    copied window by window, through buffers that stay in the cache, into one.
    """
    if not bitmap or bitmap.max() < _FEW_WINDOWS * _WINDOW:
        data: bytes = head + bitmap.serialize()
        return data
    stats = bitmap.get_statistics()
    start = at = len(head) + _header_size(stats["n_containers"], stats["n_run_containers"] > 0)
    size = stats["n_bytes_array_containers"] + stats["n_bytes_run_containers"] + stats["n_bytes_bitset_containers"]
    out = bytearray(start + size)
    view, directories = memoryview(out), []
    for low in range(bitmap.min() // _WINDOW * _WINDOW, bitmap.max() + 1, _WINDOW):
        data = (bitmap & BitMap(range(low, min(low + _WINDOW, 1 << 32)))).serialize()
        directories.append(_directory(data))
        size = int(directories[-1][3].sum())
        view[at : at + size] = memoryview(data)[len(data) - size :]
        at += size
    assert at == len(out), "the containers fill the buffer"
    view[:start] = head + _header(*map(np.concatenate, zip(*directories, strict=True)))
    return out


def _directory(data: bytes) -> tuple[Int64s, Int64s, Bools, Int64s]:
    """Keys, cardinalities, which are run containers, and sizes of a bitmap's containers, as pyroaring serialized it."""
    with_runs = data[:2] == _WITH_RUNS.to_bytes(2, "little")
    n = int.from_bytes(data[2:4], "little") + 1 if with_runs else int.from_bytes(data[4:8], "little")
    at = 4 + (n + 7) // 8 if with_runs else 8
    flags = np.frombuffer(data[4:at] if with_runs else bytes((n + 7) // 8), np.uint8)
    is_run = np.unpackbits(flags, count=n, bitorder="little").view(np.bool_)
    described = np.frombuffer(data, "<u2", 2 * n, at).astype(np.int64)
    keys, cards = described[::2], described[1::2] + 1
    sizes = np.where(cards > ARRAY_LIMIT, BITSET_BYTES, 2 * cards)
    at = _header_size(n, with_runs)
    for i in np.flatnonzero(is_run).tolist() if n < _OFFSETS_FROM else ():
        body = at + int(sizes[:i].sum())
        sizes[i] = 2 + 4 * int.from_bytes(data[body : body + 2], "little")
    if with_runs and n >= _OFFSETS_FROM:
        sizes = np.diff(np.frombuffer(data, "<u4", n, at - 4 * n), append=len(data)).astype(np.int64)
    return keys, cards, is_run, sizes


def serialize_many(positions: Int64s, bounds: Int64s) -> tuple[bytes, Int64s]:
    """Serialize many bitmaps at once.

    ``positions``: grouped by bitmap, ascending inside a group; group ``g`` is ``positions[bounds[g]:bounds[g+1]]``.
    Returns the concatenated bitmaps and their ``groups + 1`` byte offsets.  Each equals pyroaring's ``run_optimize`` +
    ``serialize``.  Groups of at most 4096 rows are built together by numpy (a bitmap index may have a million values
    of a few rows each); bigger ones one by one.
    """
    counts = np.diff(bounds)
    big = np.flatnonzero(counts > ARRAY_LIMIT)
    if len(big) == 0:
        return _serialize_small(positions, bounds)
    bodies = {int(g): serialize(bitmap_of(positions[bounds[g] : bounds[g + 1]])) for g in big}
    small = np.repeat(counts <= ARRAY_LIMIT, counts)
    kept = np.where(counts <= ARRAY_LIMIT, counts, 0)
    small_bounds = np.concatenate(([0], np.cumsum(kept)))
    mixed, cuts = _serialize_small(positions[small], small_bounds)
    sizes = np.diff(cuts)
    pieces, last = [], 0
    for g, body in bodies.items():
        pieces += [mixed[cuts[last] : cuts[g]], body]
        sizes[g] = len(body)
        last = g + 1
    pieces.append(mixed[cuts[last] :])
    return b"".join(pieces), np.concatenate(([0], np.cumsum(sizes)))


def serialize_mask(mask: npt.NDArray[np.bool_], first_key: int = 0) -> bytes:
    """Serialize the rows where ``mask`` is true, as :func:`serialize` would; best when they are many.

    The mask begins at row ``first_key << 16``.

    A container that needs all its bits is copied from the packed mask, which is several times faster than through
    positions.
    """
    packed = np.packbits(mask, bitorder="little")
    bits = np.zeros((-(-len(packed) // BITSET_BYTES), BITSET_BYTES), np.uint8)
    bits.reshape(-1)[: len(packed)] = packed
    words = bits.view("<u8")
    cards = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    # A run starts at each set bit whose lower neighbour, in the same container, is not set.
    before = words << np.uint64(1)
    before[:, 1:] |= words[:, :-1] >> np.uint64(63)
    run_starts = words & ~before
    runs = np.bitwise_count(run_starts).sum(axis=1, dtype=np.int64)
    is_run = 1 + 2 * runs < np.minimum(cards, ARRAY_LIMIT)  # in pairs of bytes: a bit set has 4,096
    keys = np.flatnonzero(cards)
    bodies = []
    for key in keys.tolist():
        if not is_run[key] and cards[key] > ARRAY_LIMIT:
            bodies.append(bits[key].tobytes())
            continue
        if not is_run[key]:
            bodies.append(_set_bits(bits[key]).astype("<u2").tobytes())
            continue
        first = _set_bits(run_starts[key].view(np.uint8))
        after = words[key] >> np.uint64(1)
        after[:-1] |= words[key, 1:] << np.uint64(63)
        last = _set_bits((words[key] & ~after).view(np.uint8))
        pairs = np.stack([first, last - first], axis=1)
        bodies.append(int(runs[key]).to_bytes(2, "little") + pairs.astype("<u2").tobytes())
    return _with_header(keys + first_key, cards[keys], is_run[keys], bodies)


def _set_bits(container: UInt8s) -> Int64s:
    return np.flatnonzero(np.unpackbits(container, bitorder="little"))


def _with_header(keys: Int64s, cards: Int64s, is_run: Bools, bodies: list[bytes]) -> bytes:
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    return b"".join([_header(keys, cards, is_run, sizes), *bodies])


def _header_size(n: int, with_runs: bool) -> int:
    return (4 + (n + 7) // 8 if with_runs else 8) + (4 if with_runs and n < _OFFSETS_FROM else 8) * n


def _header(keys: Int64s, cards: Int64s, is_run: Bools, sizes: Int64s) -> bytes:
    """What precedes the containers, of these sizes."""
    n = len(keys)
    described = np.stack([keys, cards - 1], axis=1).astype("<u2").tobytes()
    if is_run.any():
        head = (_WITH_RUNS | (n - 1) << 16).to_bytes(4, "little")
        head += np.packbits(is_run, bitorder="little").tobytes() + described
    else:
        head = PLAIN.to_bytes(4, "little") + n.to_bytes(4, "little") + described
    if not is_run.any() or n >= _OFFSETS_FROM:
        head += (len(head) + 4 * n + np.cumsum(sizes) - sizes).astype("<u4").tobytes()
    return head


def _serialize_small(positions: Int64s, bounds: Int64s) -> tuple[bytes, Int64s]:
    """:func:`serialize_many` when every container is an array or a run container."""
    groups = len(bounds) - 1
    counts = np.diff(bounds)
    if len(positions) == 0:
        return EMPTY * groups, np.arange(groups + 1, dtype=np.int64) * len(EMPTY)
    first_of_group = np.zeros(len(positions), bool)
    first_of_group[bounds[:-1][counts > 0]] = True
    high = (positions >> 16).astype(np.uint16)
    low = (positions & 0xFFFF).astype(np.uint16)
    first = first_of_group.copy()
    first[1:] |= high[1:] != high[:-1]
    run_start = first.copy()
    run_start[1:] |= positions[1:] != positions[:-1] + 1
    starts = np.flatnonzero(first)  # of each container, in positions
    cardinality = np.diff(np.append(starts, len(positions)))
    runs = np.add.reduceat(run_start, starts, dtype=np.int64)
    is_run = 1 + 2 * runs < cardinality
    # Per group: its containers, whether any is a run container, and the size of its header.
    container_bounds = np.searchsorted(starts, bounds)
    containers = np.diff(container_bounds)
    has_run = np.diff(np.concatenate(([0], np.cumsum(is_run)))[container_bounds]) > 0
    flags = (containers + 7) // 8
    with_offsets = ~has_run | (containers >= _OFFSETS_FROM)
    head = np.where(has_run, 4 + flags, 8) + 4 * containers + np.where(with_offsets, 4 * containers, 0)
    body = np.where(is_run, 2 + 4 * runs, 2 * cardinality)
    body_before = np.concatenate(([0], np.cumsum(body)))
    group_offsets = np.concatenate(([0], np.cumsum(head + np.diff(body_before[container_bounds]))))
    out = np.zeros(int(group_offsets[-1]), np.uint8)

    at = group_offsets[:-1]
    cookie = np.where(has_run, _WITH_RUNS | (containers - 1) << 16, PLAIN)
    _put4(out, at, cookie)
    plain = np.flatnonzero(~has_run)
    _put4(out, at[plain] + 4, containers[plain])

    group = np.repeat(np.arange(groups), containers)  # of each container
    rank = np.arange(len(starts)) - container_bounds[:-1][group]
    marked = np.flatnonzero(is_run)
    np.bitwise_or.at(out, at[group[marked]] + 4 + rank[marked] // 8, (1 << (rank[marked] % 8)).astype(np.uint8))
    described = at + np.where(has_run, 4 + flags, 8)
    slot = described[group] + 4 * rank
    _put2(out, slot, high[starts])
    _put2(out, slot + 2, cardinality - 1)
    body_at = at[group] + head[group] + body_before[:-1] - body_before[container_bounds[:-1]][group]
    listed = np.flatnonzero(with_offsets[group])
    offset_slot = (described + 4 * containers)[group] + 4 * rank
    _put4(out, offset_slot[listed], (body_at - at[group])[listed])

    in_run = np.repeat(is_run, cardinality)  # of each position
    if not in_run.all():
        where = np.repeat(body_at - 2 * starts, cardinality) + 2 * np.arange(len(positions))
        keep = slice(None) if not in_run.any() else ~in_run
        _put2(out, where[keep], low[keep])
    if len(marked):
        length = np.diff(np.append(np.flatnonzero(run_start), len(positions)))[in_run[run_start]]
        _put_runs(out, body_at[marked], runs[marked], low[run_start & in_run], length)
    return out.tobytes(), group_offsets


def _put_runs(out: UInt8s, at: Int64s, counts: Int64s, first: npt.NDArray[np.uint16], length: Int64s) -> None:
    """Write run containers, of ``counts`` runs each, at their places: the first position and the length of each run."""
    _put2(out, at, counts)
    before = np.cumsum(counts) - counts
    where = np.repeat(at + 2 - 4 * before, counts) + 4 * np.arange(len(first))
    _put2(out, where, first)
    _put2(out, where + 2, length - 1)


def _put2(out: UInt8s, at: Int64s, values: npt.NDArray[np.integer]) -> None:
    """Write u2 numbers at any byte offsets: through a view in which every byte starts a number."""
    np.ndarray((len(out) - 1,), "<u2", out.data, strides=(1,))[at] = values


def _put4(out: UInt8s, at: Int64s, values: Int64s) -> None:
    np.ndarray((len(out) - 3,), "<u4", out.data, strides=(1,))[at] = values


# --- reading untrusted bitmaps ----------------------------------------------------------------------------------------


def deserialize(data: memoryview | bytes, limit: int, at: int = 0) -> tuple[BitMap, int]:
    """Read one bitmap from the start of ``data``, which is at offset ``at``; return it and the bytes it took.

    The structure is checked here before CRoaring sees the bytes: cookie, sizes, ascending keys and values,
    cardinalities, and every position below ``limit`` (the file's row count).  Raises :class:`CorruptError`.
    """
    try:
        size = _checked_few(data, limit) or _checked_size(np.frombuffer(data, np.uint8), limit)
        return BitMap.deserialize(bytes(data[:size])), size
    except CorruptError as e:
        raise CorruptError(e.what, at + (e.offset or 0)) from e
    except ValueError as e:  # adjacent runs that should be one, for example
        raise CorruptError(f"a Roaring bitmap is not valid: {e}", at) from e


def _checked_few(data: memoryview | bytes, limit: int) -> int:
    """The size of a bitmap of a few positions in one array container, if it is one and sound; else 0.

    Planning reads one from each of many small files, for which arrays take longer to make than to look through.
    """
    if len(data) < 18 or data[:8] != _ONE_PLAIN:
        return 0
    key, last, offset = _CONTAINER.unpack_from(data, 8)
    size = 18 + 2 * last
    if offset != 16 or last >= _FEW or size > len(data):
        return 0
    values = struct.unpack_from(f"<{last + 1}H", data, 16)
    return size if all(map(lt, values, values[1:])) and (key << 16 | values[-1]) < limit else 0


def _checked_size(view: UInt8s, limit: int) -> int:
    cookie = _u4(view, 0)
    if cookie & 0xFFFF == _WITH_RUNS:
        n = (cookie >> 16) + 1
        at = 4 + (n + 7) // 8
        is_run = np.unpackbits(_part(view, 4, (n + 7) // 8), bitorder="little")[:n].astype(bool)
        has_offsets = n >= _OFFSETS_FROM
    elif cookie == PLAIN:
        n = _u4(view, 4)
        at = 8
        is_run = np.zeros(min(n, 65536), bool)
        has_offsets = True
    else:
        raise CorruptError(f"a Roaring bitmap cannot start with {cookie:#010x}", 0)
    if n > 65536:
        raise CorruptError(f"a Roaring bitmap cannot have {n} containers", 4)
    described = _part(view, at, 4 * n).view("<u2").astype(np.int64)
    keys, cards = described[::2], described[1::2] + 1
    if np.any(keys[1:] <= keys[:-1]):
        raise CorruptError("the containers of a Roaring bitmap are not in order", at)
    at += 4 * n
    offsets = None
    if has_offsets:
        offsets = _part(view, at, 4 * n).view("<u4")
        at += 4 * n
    for i in range(n):
        if offsets is not None and offsets[i] != at:
            raise CorruptError(f"Roaring container {i} is said to be at {offsets[i]}", at)
        card, base = int(cards[i]), int(keys[i]) << 16
        at += _checked_container(view, at, bool(is_run[i]), card, base, limit)
    return at


def _checked_container(view: UInt8s, at: int, is_run: bool, card: int, base: int, limit: int) -> int:
    """Check one container; returns its size."""
    if is_run:
        runs = int(_part(view, at, 2).view("<u2")[0])
        pairs = _part(view, at + 2, 4 * runs).view("<u2").astype(np.int64)
        first, last = pairs[::2], pairs[::2] + pairs[1::2]
        good = runs > 0 and bool(np.all(first[1:] > last[:-1])) and int((last - first).sum()) + runs == card
        _require(good and int(last[-1]) <= 0xFFFF, at)
        highest, size = int(last[-1]), 2 + 4 * runs
    elif card > ARRAY_LIMIT:
        bits = _part(view, at, BITSET_BYTES)
        _require(int(np.bitwise_count(bits.view("<u8")).sum()) == card, at)
        last_byte = int(np.flatnonzero(bits)[-1])
        highest, size = last_byte * 8 + int(bits[last_byte]).bit_length() - 1, BITSET_BYTES
    else:
        values = _part(view, at, 2 * card).view("<u2")
        _require(bool(np.all(values[1:] > values[:-1])), at)
        highest, size = int(values[-1]), 2 * card
    if base + highest >= limit:
        raise CorruptError(f"a Roaring bitmap holds row {base + highest} of {limit} rows", at)
    return size


def _require(good: bool, at: int) -> None:
    if not good:
        raise CorruptError("the values of a Roaring container are not in order, or not as many as it says", at)


def _part(view: UInt8s, at: int, n: int) -> UInt8s:
    if n > len(view) - at:
        raise CorruptError(f"a Roaring bitmap wants {n} bytes from {at} on, and has {len(view)}", at)
    return view[at : at + n]


def _u4(view: UInt8s, at: int) -> int:
    return int(_part(view, at, 4).view("<u4")[0])


# --- bitmaps of many positions, through packed masks ------------------------------------------------------------------

_ROWS = 1 << 16
_WINDOW = 64 * _ROWS
"""Rows in one mask: 4 MB of it stay in the cache while it is filled and packed."""
_FEW_WINDOWS = 16
"""From this many windows on, a bitmap is serialized window by window.

The allocator has smaller buffers at hand, and larger ones are fresh memory, which takes longer to touch than to fill.
"""
_WHOLE = 1 << 25
"""Up to this many rows, positions are looked up in one mask of them all, if it takes no more memory than positions."""
_CHUNK = 1 << 18
"""Positions looked up at a time: 2 MB of them stay in the cache."""
_SPARSE = 64
"""With fewer than one position in ``_SPARSE`` rows, adding positions is faster than scanning the mask."""


def bitmap_of_any(positions: npt.NDArray[np.integer]) -> BitMap:
    """A bitmap of positions of any order and number (0 ≤ p < 2^32), repeats allowed."""
    if len(positions) < 2:
        return bitmap_of(positions)
    if not bool(np.all(positions[1:] >= positions[:-1])):
        low, high = int(positions.min()), int(positions.max())
        if high - low < _WINDOW and len(positions) * _SPARSE > high - low:
            return _packed(positions, low // _ROWS * _ROWS, high)
        positions = np.sort(positions)
    first, last = int(positions[0]), int(positions[-1])
    if len(positions) * _SPARSE <= last - first:
        return bitmap_of(positions)
    start = first // _ROWS * _ROWS
    borders = np.arange(start, last + _WINDOW, _WINDOW)
    cuts = np.searchsorted(positions, borders.astype(positions.dtype, copy=False)).tolist()
    out = BitMap()
    for at, begin, end in zip(borders.tolist(), cuts, [*cuts[1:], len(positions)], strict=True):
        part = positions[begin:end]
        if len(part) * _SPARSE <= _WINDOW:
            out |= bitmap_of(part)
        else:
            out |= _packed(part, at, int(part[-1]))
    return out


def _packed(positions: npt.NDArray[np.integer], start: int, last: int) -> BitMap:
    """A bitmap of positions from ``start``, a container's first row, to ``last``."""
    mask = np.zeros(last - start + 1, np.bool_)
    mask[positions - start if start else positions] = True
    return BitMap.deserialize(serialize_mask(mask, start // _ROWS))


def mask_of(bitmap: BitMap, start: int, stop: int) -> Bools:
    """Return a mask of the rows ``start`` to ``stop`` (not included) that a bitmap holds."""
    mask: Bools | None = None
    for low in range(start, stop, _WINDOW):
        high = min(low + _WINDOW, stop)
        part = bitmap & BitMap(range(low, high))
        rows = _unpacked(part, low, high)
        if rows is not None and len(rows) == stop - start:
            return rows
        mask = np.zeros(stop - start, np.bool_) if mask is None else mask
        if rows is not None:
            mask[low - start : low - start + len(rows)] = rows
        else:
            mask[np.frombuffer(part.to_array(), np.uint32).astype(np.int64) - start] = True
    return np.zeros(0, np.bool_) if mask is None else mask


def _unpacked(bitmap: BitMap, low: int, high: int) -> Bools | None:
    """The mask, from row ``low`` on, of a bitmap whose containers are all bit sets without gaps between; else None."""
    data = bitmap.serialize()
    if int.from_bytes(data[:4], "little") != PLAIN:
        return None
    n = int.from_bytes(data[4:8], "little")
    head = 8 + 8 * n
    first = low // _ROWS
    described = np.frombuffer(data, "<u2", 2 * n, 8)
    # A container's cardinality less one comes after its key.
    if not np.array_equal(described[::2], np.arange(first, first + n)) or np.any(described[1::2] < ARRAY_LIMIT):
        return None
    bits = np.unpackbits(np.frombuffer(data, np.uint8, -1, head), bitorder="little").view(np.bool_)
    begin = low - first * _ROWS
    return bits[begin : begin + high - low]


def contains(bitmap: BitMap, positions: npt.NDArray[np.integer]) -> Bools:
    """For each position, 0 or more, whether a bitmap holds it; in any order, quickest ascending.

    If a mask of the bitmap's rows takes no more memory than the positions, they are looked up there.  Else chunks of
    positions that lie close together are looked up in a mask of their span, and others are intersected.
    """
    rows = bitmap.max() + 1 if bitmap else 0
    if rows <= min(_WHOLE, positions.itemsize * len(positions)):
        # One row more, which is not held: "clip" looks up all positions beyond the mask there.
        return mask_of(bitmap, 0, rows + 1).take(positions, mode="clip")
    held_mask = np.zeros(len(positions), np.bool_)
    for begin in range(0, len(positions), _CHUNK):
        part = positions[begin : begin + _CHUNK]
        low, high = int(part.min()) // _ROWS * _ROWS, int(part.max()) + 1
        if high - low <= _SPARSE * len(part) or high - low <= _ROWS:
            # Every index is in range: "clip" spares looking again, and take is quicker than an index in brackets.
            mask_of(bitmap, low, high).take(
                part - low if low else part, out=held_mask[begin : begin + len(part)], mode="clip"
            )
        else:
            held = positions_of(bitmap & bitmap_of(np.sort(part)))
            held_mask[begin : begin + _CHUNK] = np.isin(part, held)
    return held_mask
