"""Deletion vectors: the deleted rows of a data file, and the index files that store the vectors of many files.

::

    u1 version = 1
    per data file, back to back ("frame"):
        i4 BE size | data[size] | i4 BE CRC-32 of data

    32-bit data:  i4 BE 1581511376 | one Roaring bitmap
    64-bit data:  i4 LE 1681511377 | i8 LE bitmaps | per bitmap: i4 LE key (ascending) , Roaring bitmap
                  a position is key << 32 | member; Java writes every key up to the highest, gaps as empty bitmaps

The index manifest holds the place of each frame: the offset of its size word, and a length that **has two meanings**:
``size`` for 32-bit vectors, ``size + 8`` (the whole frame) for 64-bit ones.  The magic decides; an index file may mix
both.  Java does not verify the CRC; bitlake always does, because a misread vector brings deleted rows back.

Source: index-format spec, section 8.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.codec.bytes import INT_MAX as _MAX
from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import bitmap_of_any, deserialize, positions_of, serialize, serialize_after
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.tableindex import VectorRange

VERSION = 1
FIRST_OFFSET = 1
"""Offset of the first frame in an index file."""
EMPTY_FILE = bytes([VERSION])
"""An index file without vectors, as a compaction leaves it."""
MAGIC_32 = (1581511376).to_bytes(4, "big")
MAGIC_64 = (1681511377).to_bytes(4, "little")
AROUND = 8
"""Bytes of a frame besides its data: size word and CRC."""
_LIMIT_32 = 1 << 32
_MOST_KEY = 2**31 - 2
_WRITTEN_KEYS = 1 << 20
"""Each key up to the highest takes twelve bytes in a file, so larger keys are not written."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of one data file: 0-based physical positions.  Immutable.

    ``wide``: whether it is stored with 64-bit positions.  ``rows``: positions below 2^32; ``high``: the others, by
    their upper 32 bits, in wide vectors only (usually empty, since files with more than 2^32 rows are not read).
    """

    rows: BitMap
    wide: bool = False
    high: Mapping[int, BitMap] = field(default_factory=dict)
    packed: bool = field(default=False, compare=False)
    """Whether ``rows`` are run-optimised already and can be stored as they are."""

    @staticmethod
    def of(positions: npt.NDArray[np.integer], wide: bool = False) -> DeletionVector:
        """Return the vector of these positions, in any order and integer dtype; wide ones may exceed 2^32.

        Raises :class:`InvalidRequest` for positions that it cannot store.
        """
        most = int(positions.max()) if len(positions) else 0
        limit = _WRITTEN_KEYS << 32 if wide else _LIMIT_32
        if most >= limit or (len(positions) and int(positions.min()) < 0):
            raise InvalidRequest(f"deleted positions must be in [0, {limit})")
        if most < _LIMIT_32:
            return DeletionVector(_packed(bitmap_of_any(positions)), wide, packed=True)
        keys = positions.astype(np.int64) >> 32
        parts = {int(k): bitmap_of_any(positions[keys == k] & (_LIMIT_32 - 1)) for k in np.unique(keys)}
        return DeletionVector(_packed(parts.pop(0, BitMap())), wide, parts, packed=True)

    @property
    def cardinality(self) -> int:
        """The number of deleted rows."""
        return len(self.rows) + sum(map(len, self.high.values()))

    def positions(self) -> Int64s:
        """Return the deleted positions, ascending."""
        low = positions_of(self.rows)
        if not self.high:
            return low
        return np.concatenate([low, *(positions_of(rows) + (key << 32) for key, rows in sorted(self.high.items()))])

    def merged(self, other: DeletionVector) -> DeletionVector:
        """Return the union; wide if either vector is (Paimon refuses to merge the two widths)."""
        high = {k: self.high.get(k, BitMap()) | other.high.get(k, BitMap()) for k in {*self.high, *other.high}}
        return DeletionVector(_packed(self.rows | other.rows), self.wide or other.wide, high, packed=True)


def _packed(own: BitMap) -> BitMap:
    """Run-optimise a bitmap in place; nothing else may use it."""
    own.run_optimize()
    return own


# --- one vector -------------------------------------------------------------------------------------------------------


def encode_vector(vector: DeletionVector) -> bytes | bytearray:
    """Encode the data of a frame: magic and bitmap.

    Run-optimised as in Paimon: a container that was read as runs stays one on a tie.
    """
    # A copy: serialising optimises in place, while other threads may read the bitmap.
    rows = vector.rows if vector.packed else _packed(BitMap(vector.rows))
    if not vector.wide:
        return serialize_after(MAGIC_32, rows)
    if not vector.cardinality:
        return MAGIC_64 + (0).to_bytes(8, "little")
    count = max(vector.high, default=0) + 1
    parts = [MAGIC_64, count.to_bytes(8, "little"), (0).to_bytes(4, "little"), rows.serialize()]
    for key in range(1, count):
        parts += (key.to_bytes(4, "little"), serialize(BitMap(vector.high.get(key, ()))))
    return b"".join(parts)


def decode_vector(data: memoryview | bytes, row_count: int | None = None) -> DeletionVector:
    """Decode a frame's data; every position must be below ``row_count`` (None: unknown).

    Raises :class:`CorruptError`, also for trailing bytes.
    """
    view = memoryview(data).cast("B")
    magic = bytes(view[:4])
    if row_count is not None and row_count > _LIMIT_32:
        raise UnsupportedFeature(f"a data file of {row_count} rows with a deletion vector; at most 2^32 are read")
    high: dict[int, BitMap] = {}
    if magic == MAGIC_32:
        rows, size = deserialize(view[4:], _LIMIT_32 if row_count is None else row_count, 4)
        end = 4 + size
    elif magic == MAGIC_64:
        rows, high, end = _wide(view, (_MOST_KEY + 1) << 32 if row_count is None else row_count)
    else:
        raise CorruptError(f"a deletion vector cannot start with {magic.hex() or 'nothing'}", 0)
    if end != len(view):
        raise CorruptError(f"{len(view) - end} bytes follow a deletion vector of {end}", end)
    return DeletionVector(rows, magic == MAGIC_64, high)


def _wide(view: memoryview, limit: int) -> tuple[BitMap, dict[int, BitMap], int]:
    if len(view) < 12:
        raise CorruptError(f"a 64-bit deletion vector of {len(view)} bytes has no bitmap count", 4)
    count = int.from_bytes(view[4:12], "little")
    # Each bitmap takes at least its key and an empty Roaring bitmap.
    if count > (len(view) - 12) // 12:
        raise CorruptError(f"a 64-bit deletion vector of {len(view)} bytes cannot hold {count} bitmaps", 4)
    rows, high, at, last = BitMap(), dict[int, BitMap](), 12, -1
    for _ in range(count):
        if len(view) - at < 4:
            raise CorruptError("a 64-bit deletion vector ends before a key", at)
        key = int.from_bytes(view[at : at + 4], "little")
        if key <= last or key > _MOST_KEY:
            raise CorruptError(f"key {key} follows key {last} in a 64-bit deletion vector", at)
        bitmap, size = deserialize(view[at + 4 :], max(0, min(_LIMIT_32, limit - (key << 32))), at + 4)
        if key == 0:
            rows = bitmap
        elif bitmap:
            high[key] = bitmap
        at, last = at + 4 + size, key
    return rows, high, at


# --- frames -----------------------------------------------------------------------------------------------------------


def frame_bytes(place: VectorRange, file_size: int) -> int:
    """Return how many bytes :func:`decode_frame` needs at ``place.offset``; raises :class:`CorruptError`."""
    left = file_size - place.offset
    if place.offset < FIRST_OFFSET or left < 4 + AROUND or not 4 <= place.length <= left:
        raise CorruptError(
            f"the vector of {place.data_file} is said to take {place.length} bytes of a file of {file_size}",
            place.offset,
        )
    # The length of a 32-bit vector leaves out 8 bytes, and only the magic tells the width.
    return min(place.length + AROUND, left)


def decode_frame(data: memoryview | bytes, place: VectorRange, row_count: int | None = None) -> DeletionVector:
    """Decode one file's vector from the :func:`frame_bytes` read at its offset.

    Size word, magic, CRC, cardinality and positions are verified.  Raises :class:`CorruptError` with offsets in the
    index file.
    """
    reader = Reader(data, place.offset)
    size = reader.i4()
    if size not in (place.length, place.length - AROUND):
        raise CorruptError(
            f"the vector of {place.data_file} has {size} bytes, the index manifest says {place.length}", place.offset
        )
    body = reader.take(size)
    crc = reader.i4() & 0xFFFFFFFF
    if zlib.crc32(body) != crc:
        raise CorruptError(f"the checksum of the vector of {place.data_file} is wrong", place.offset + 4 + size)
    try:
        vector = decode_vector(body, row_count)
    except CorruptError as e:
        raise CorruptError(f"the vector of {place.data_file}: {e.what}", place.offset + 4 + (e.offset or 0)) from e
    if size != place.length - (AROUND if vector.wide else 0):
        raise CorruptError(
            f"the vector of {place.data_file} has {size} bytes, the index manifest says {place.length}", place.offset
        )
    if place.cardinality is not None and place.cardinality != vector.cardinality:
        raise CorruptError(
            f"the vector of {place.data_file} deletes {vector.cardinality} rows, the index manifest says "
            f"{place.cardinality}",
            place.offset,
        )
    return vector


def encode_index_files(
    vectors: Mapping[str, DeletionVector], target: int
) -> Iterator[tuple[bytes, tuple[VectorRange, ...]]]:
    """Encode vectors by data file name into index files, in the mapping's order; yield each with its vectors' places.

    A file ends with the vector that makes it larger than ``target`` bytes, as Paimon rolls them.
    """
    parts: list[bytes | bytearray] = [EMPTY_FILE]
    places, at = list[VectorRange](), FIRST_OFFSET
    for name, vector in vectors.items():
        data = encode_vector(vector)
        parts += [len(data).to_bytes(4, "big"), data, zlib.crc32(data).to_bytes(4, "big")]
        places.append(VectorRange(name, at, len(data) + (AROUND if vector.wide else 0), vector.cardinality))
        at += len(data) + AROUND
        if at > _MAX:
            raise InvalidRequest(f"a deletion vector file would take {at} bytes; offsets in it are limited to 2^31")
        if at > target:
            yield b"".join(parts), tuple(places)
            parts, places, at = [EMPTY_FILE], [], FIRST_OFFSET
    if places:
        yield b"".join(parts), tuple(places)


def encode_index_file(vectors: Mapping[str, DeletionVector]) -> tuple[bytes, tuple[VectorRange, ...]]:
    """Encode vectors by data file name into one index file, in the mapping's order; return it with their places."""
    return next(encode_index_files(vectors, _MAX), (EMPTY_FILE, ()))


def decode_index_file(
    data: bytes, places: Sequence[VectorRange], row_count_of: Callable[[str], int | None] = lambda _: None
) -> dict[str, DeletionVector]:
    """Decode all vectors of an index file by data file name; ``row_count_of`` returns a data file's rows or None.

    Raises :class:`CorruptError`, also for an unknown version.
    """
    if data[:1] != EMPTY_FILE:
        raise CorruptError(f"a deletion vector file of version {data[0] if data else 'none'}, only 1 is known", 0)
    view = memoryview(data)
    vectors = {}
    for place in places:
        size = frame_bytes(place, len(data))
        part = view[place.offset : place.offset + size]
        vectors[place.data_file] = decode_frame(part, place, row_count_of(place.data_file))
    return vectors
