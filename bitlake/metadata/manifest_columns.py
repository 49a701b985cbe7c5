"""Manifests decoded to columns: what plans need of each entry, as arrays, without an object for any entry.

A record's end is known only once its fields are read, so the records of a block are decoded in order.  Blocks are
independent: one cursor stands in each of a thousand blocks, and all cursors read the same field at once, by a few
operations on arrays.  A step of all cursors over a record takes about as long as decoding four records by hand.

An array holds numbers (bucket, rows, bytes, level …) or places: where a record, its statistics and its texts are in
the uncompressed block.  Blocks stay compressed in memory.  A block is decompressed again when an entry of that block is
chosen (:meth:`ManifestColumns.entries`, by the decoder of :mod:`bitlake.metadata.manifest`), when a condition needs
statistics (:meth:`ManifestColumns.bounds`), or when paths are listed (:meth:`ManifestColumns.names`).

Bytes are untrusted.  Each length and count is compared with the bytes that are left in the block, and each block must
end with its last record.  A cursor at unexpected bytes is marked, and the other decoder decodes its manifest or
reports the damage.  The same holds for manifests with another schema, numbers of more than 56 bits,
and blocks of which a few hold far more records than the others.  Names with bytes beyond ASCII, or with a separator,
are checked record by record, by the other decoder too.

Source: table-format spec, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from bitlake.codec.avro import compress_zstd, decompress_zstd, most_bytes
from bitlake.expressions.statistics import Bools, ColumnBounds, Int64s
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata.manifest import (
    KNOWN_SCHEMA,
    NOT_DECODED,
    VERSION,
    ManifestEntry,
    RecordDecoder,
    StoredBlock,
    decode_texts,
    stored_blocks,
)
from bitlake.metadata.stats import StatsRows, rows_bounds
from bitlake.runtime import at_least
from bitlake.types import DataField

if TYPE_CHECKING:
    import numpy.typing as npt

    _Bytes: TypeAlias = npt.NDArray[np.uint8]
    _Words: TypeAlias = npt.NDArray[np.uint64]
    _Ints: TypeAlias = npt.NDArray[np.int32]

CHUNK_BYTES, CHUNK_BLOCKS = 48 << 20, 1_024
"""Limits of what is decoded at once: uncompressed bytes and blocks.  Fewer blocks cost more for each record."""
_PAD = 4_096
"""Zero bytes behind the last block: what a cursor can read beyond its block before it is checked."""
_LEAST_RECORD = 29
"""Bytes that a record has at least."""
_UNEVEN, _FEW_ITEMS = 8, 64
"""A block with this many times the average's records, and an array with this many times the items, is left out."""
_SEPARATORS = b"/\\\0"
_LONG_TEXT = 512
"""Texts of more bytes are checked one by one."""
_NO_NUMBER = -1


# --- the columns of a manifest ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class ManifestColumns:
    """One manifest's entries in their order: an array for each of their fields that plans look at.

    Places are offsets in the uncompressed block: ``start`` and ``end`` of the record, ``low`` and ``high`` of the
    statistics' rows, ``nulls`` of their counts.
    """

    data: bytes = field(repr=False)
    blocks: list[StoredBlock] = field(repr=False)
    kind: npt.NDArray[np.int8]
    partition: _Ints
    """The number of the partition among :attr:`partitions`."""
    bucket: _Ints
    total_buckets: _Ints
    level: _Ints
    file_size: Int64s
    row_count: Int64s
    schema_id: Int64s
    deleted_rows: Int64s
    """-1 where unknown."""
    name_hash: _Words
    """The :func:`name_hashes` of the file's name."""
    has_extras: Bools
    """Whether there are files beside it."""
    has_external_path: Bools
    """Whether the entry has an external path."""
    covered: _Ints
    """The number of the list of columns with statistics among :attr:`column_lists`."""
    start: _Ints
    end: _Ints
    low: _Ints
    low_size: _Ints
    high: _Ints
    high_size: _Ints
    nulls: _Ints
    partitions: list[bytes]
    column_lists: list[tuple[str, ...] | None]
    _firsts: Int64s = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = np.array([0, *(b.records for b in self.blocks)], np.int64)
        self._firsts = np.cumsum(counts)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def memory(self) -> int:
        """An estimate of the bytes in memory."""
        arrays = (getattr(self, f.name) for f in fields(self))
        return len(self.data) + 100 * len(self.blocks) + sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))

    def _block(self, number: int) -> bytes:
        _, start, size = self.blocks[number]
        return decompress_zstd(self.data[start : start + size], most_bytes(len(self.data)))

    def _by_block(self, places: Int64s) -> Iterator[tuple[int, Int64s]]:
        """Ascending places, by the block that they are in."""
        numbers = np.searchsorted(self._firsts, places, "right") - 1
        ends = np.flatnonzero(np.diff(numbers, append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            yield int(numbers[begin]), places[begin:end]
            begin = end

    def entries(self, places: Int64s) -> Iterator[ManifestEntry]:
        """The entries at ascending places."""
        decoder = RecordDecoder()
        for number, held in self._by_block(places):
            block, first = self._block(number), int(self._firsts[number])
            count = self.blocks[number].records
            if 4 * len(held) >= count:  # neighbours share most of their bytes
                every = decoder.entries(block, count)
                yield from every if len(held) == count else (every[i] for i in (held - first).tolist())
                continue
            for start, end in zip(self.start[held].tolist(), self.end[held].tolist(), strict=True):
                yield from decoder.entries(block[start:end], 1)

    def taken(self, places: Int64s) -> ManifestColumns:
        """The entries at ascending places alone.

        Blocks whose entries are all taken stay as they are stored.  The records of others are compressed again,
        together: of a million files, a condition leaves a few in each of thousands of blocks.
        """
        if len(places) == len(self):
            return self
        out = _TakenBlocks()
        for number, held in self._by_block(places):
            records, start, size = self.blocks[number]
            if len(held) == records:
                out.add_stored(records, self.data[start : start + size])
            else:
                out.add_records(self._block(number), self.start[held], self.end[held])
        out.end_block()
        columns = {name: getattr(self, name)[places] for name in _kinds()}
        moved = np.concatenate([np.zeros(0, np.int32), *out.moved])
        for name in _OFFSETS:
            columns[name] = columns[name] + moved
        partitions, columns["partition"] = np.unique(columns["partition"], return_inverse=True)
        lists, columns["covered"] = np.unique(columns["covered"], return_inverse=True)
        return ManifestColumns(
            b"".join(out.data),
            out.blocks,
            **{name: columns[name].astype(kind, copy=False) for name, kind in _kinds().items()},
            partitions=[self.partitions[i] for i in partitions.tolist()],
            column_lists=[self.column_lists[i] for i in lists.tolist()],
        )

    def bounds(
        self,
        places: Int64s,
        file_fields: Sequence[DataField],
        columns: tuple[str, ...] | None,
        requested: Sequence[str],
    ) -> Iterator[dict[str, ColumnBounds | None]]:
        """The statistics of ``requested`` columns at ascending places, a chunk at a time; see :func:`column_bounds`."""
        for chunk in self._chunks(places):
            data, begins, ends, of = chunk.data, chunk.begins, chunk.ends, chunk.places
            lows = StatsRows(data, begins + self.low[of], self.low_size[of].astype(np.int64))
            highs = StatsRows(data, begins + self.high[of], self.high_size[of].astype(np.int64))
            nulls = partial(_null_count, data, begins + self.nulls[of], ends)
            yield rows_bounds(lows, highs, nulls, file_fields, columns, requested)

    def names(self, places: Int64s) -> Iterator[pa.LargeStringArray]:
        """The names of the files at ascending places, a chunk at a time."""
        for chunk in self._chunks(places):
            cursors = _Cursors(chunk.data, chunk.begins + self.start[chunk.places], chunk.ends)
            for skip in (_Cursors.long, _Cursors.long, _Cursors.text, _Cursors.long, _Cursors.long):
                skip(cursors)  # version, kind, partition, bucket, number of buckets
            yield _strings(chunk.data, *cursors.text())

    def _chunks(self, places: Int64s) -> Iterator[_Chunk]:
        """The blocks of ascending places, uncompressed."""
        blocks = ((self._block(number), of) for number, of in self._by_block(places))
        return map(_Chunk.of, at_least(CHUNK_BYTES, blocks, lambda block: len(block[0])))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some blocks of a manifest, uncompressed, and for each of some entries where its block begins and ends."""

    data: _Bytes
    begins: Int64s
    ends: Int64s
    places: Int64s

    @staticmethod
    def of(held: Sequence[tuple[bytes, Int64s]]) -> _Chunk:
        """Blocks with the places of their entries."""
        counts = [len(of) for _, of in held]
        ends = np.cumsum([len(block) for block, _ in held])
        begins = ends - [len(block) for block, _ in held]
        data = _padded([block for block, _ in held])
        return _Chunk(data, np.repeat(begins, counts), np.repeat(ends, counts), np.concatenate([of for _, of in held]))


def _strings(data: _Bytes, at: Int64s, size: Int64s) -> pa.LargeStringArray:
    """The texts at ascending places.  Offsets delimit texts and the gaps between them in turn; texts are taken."""
    offsets = np.stack([at, at + size], axis=1).reshape(-1)
    pieces = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return pieces.take(pa.array(np.arange(0, len(offsets), 2)))


_OFFSETS = ("start", "end", "low", "high", "nulls")
"""The columns that are places in the uncompressed block."""
_TAKEN_BYTES = 64 << 10
"""Uncompressed bytes of records at which :class:`_TakenBlocks` ends a block: as many as Avro's writers put into one."""


class _TakenBlocks:
    """Blocks of some of a manifest's records; mutable.  ``moved``: what is added to the offsets of each record."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.blocks: list[StoredBlock] = []
        self.moved: list[_Ints] = []
        self._records: list[bytes] = []
        self._size = 0
        self._at = 0

    def add_stored(self, records: int, stored: bytes) -> None:
        """Add a block as it is stored."""
        self.end_block()
        self._add(records, stored)
        self.moved.append(np.zeros(records, np.int32))

    def add_records(self, block: bytes, starts: _Ints, ends: _Ints) -> None:
        """Add records of an uncompressed block; they follow each other in a new one."""
        sizes = (ends - starts).astype(np.int64)
        self.moved.append((self._size + np.cumsum(sizes) - sizes - starts).astype(np.int32))
        self._records += [block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        self._size += int(sizes.sum())
        if self._size >= _TAKEN_BYTES:
            self.end_block()

    def end_block(self) -> None:
        """End the block of the records that were added."""
        if self._records:
            self._add(len(self._records), compress_zstd(b"".join(self._records)))
            self._records, self._size = [], 0

    def _add(self, records: int, stored: bytes) -> None:
        self.data.append(stored)
        self.blocks.append(StoredBlock(records, self._at, len(stored)))
        self._at += len(stored)


def _null_count(data: _Bytes, at: Int64s, ends: Int64s, i: int) -> Int64s:
    """The count of the i-th column in arrays of null counts at these places; -1 where unknown."""
    cursors = _Cursors(data, at.copy(), ends)
    out = np.full(len(at), _NO_NUMBER, np.int64)

    def item(items: _Cursors) -> Int64s:
        present, value = items.maybe(_Cursors.long)
        return _spread(present, value)

    def counts(arrays: _Cursors) -> Int64s:
        count = arrays.long()
        value = np.full(len(count), _NO_NUMBER, np.int64)
        for number in range(min(i + 1, int(count.max(initial=0)))):
            longer = np.flatnonzero(count > number)
            held = arrays.part(longer)
            current = item(held)
            arrays.join(longer, held)
            if number == i:
                value[longer] = current
        return value

    present, value = cursors.maybe(counts)
    out[present] = _NO_NUMBER if value is None else value
    return out


def _padded(blocks: Sequence[bytes]) -> _Bytes:
    # numpy asks for huge pages: a cursor in each of a thousand blocks would miss the page table's cache otherwise.
    data = np.empty(sum(map(len, blocks)) + _PAD, np.uint8)
    at = 0
    for block in blocks:
        data[at : at + len(block)] = np.frombuffer(block, np.uint8)
        at += len(block)
    data[at:] = 0
    return data


# --- cursors ----------------------------------------------------------------------------------------------------------

_HIGH_BITS, _LOW_BITS = 0x8080808080808080, 0x7F7F7F7F7F7F7F7F
_ONES = 0x0101010101010101


@cache
def _zigzag() -> Int64s:
    """The numbers of one byte."""
    return np.array([(b >> 1) ^ -(b & 1) for b in range(256)], np.int64)


@cache
def _masks() -> _Words:
    """The word whose n lowest bytes are set, n from 0 to 8."""
    return np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def _word_view(data: _Bytes) -> _Words:
    """The eight bytes from any place on, as a little-endian number."""
    return np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))


def _spread(present: Bools, values: Int64s | None, default: int = _NO_NUMBER) -> Int64s:
    if values is not None and len(values) == len(present):
        return values
    out = np.full(len(present), default, np.int64)
    if values is not None:
        out[present] = values
    return out


class _Cursors:
    """Places in blocks that read alike, all at once; mutable: reading moves them.

    Each of them must stay before ``ends``.  One that does not, or that meets something unexpected, is marked in
    ``bad``; what it reads from then on means nothing, and stays within the buffer.
    """

    __slots__ = ("at", "bad", "data", "ends", "words")

    def __init__(self, data: _Bytes, at: Int64s, ends: Int64s, words: _Words | None = None) -> None:
        self.data = data
        self.words = _word_view(data) if words is None else words
        self.at = at
        self.ends = ends
        self.bad: Bools = np.zeros(len(at), bool)

    def part(self, which: Int64s) -> _Cursors:
        """Some of the cursors, to be joined again."""
        return _Cursors(self.data, self.at[which], self.ends[which], self.words)

    def join(self, which: Int64s, moved: _Cursors) -> None:
        """Move to where the cursors of :meth:`part` are."""
        self.at[which] = moved.at
        self.bad[which] |= moved.bad

    def mark(self, wrong: Bools) -> None:
        """Mark cursors, which then stay at their ends."""
        if wrong.any():
            self.bad |= wrong
            self.at = np.where(wrong, self.ends, self.at)

    def long(self) -> Int64s:
        """A zigzag varint of up to eight bytes."""
        first = self.data[self.at]
        if first.max(initial=0) < 0x80:
            self.at = self.at + 1
            return _zigzag()[first]
        words = self.words[self.at]
        stops = ~words & _HIGH_BITS
        below = (stops & (~stops + np.uint64(1))) - np.uint64(1)  # the bits below the first stop bit
        value = words & below & _LOW_BITS
        value = (value & 0x007F007F007F007F) | ((value & 0x7F007F007F007F00) >> 1)
        value = (value & 0x00003FFF00003FFF) | ((value & 0x3FFF00003FFF0000) >> 2)
        value = (value & 0x000000000FFFFFFF) | ((value & 0x0FFFFFFF00000000) >> 4)
        self.at = self.at + ((np.bitwise_count(below) + np.uint8(1)) >> 3)
        self.mark(stops == 0)
        signed = value.view(np.int64)
        return (signed >> 1) ^ -(signed & 1)

    def size(self) -> Int64s:
        """A length or count, at most the bytes that are left."""
        size = self.long()
        wrong = (size < 0) | (size > self.ends - self.at)
        if wrong.any():
            self.mark(wrong)
            size = np.where(wrong, 0, size)
        return size

    def text(self) -> tuple[Int64s, Int64s]:
        """Bytes or a string: where they are, and how many."""
        size = self.size()
        start = self.at
        self.at = start + size
        return start, size

    def maybe(self, read: Callable[[_Cursors], Any]) -> tuple[Bools, Any]:
        """A union of null and something: which have a value, and what ``read`` gives for these; None if none has."""
        branch = self.data[self.at]
        self.at = self.at + 1
        present = branch == 2
        if present.all():
            return present, read(self)
        self.mark((branch != 0) & ~present)
        which = np.flatnonzero(present)
        if not len(which):
            return present, None
        some = self.part(which)
        values = read(some)
        self.join(which, some)
        return present, values

    def array(self, item: Callable[[_Cursors], Any], quick: Callable[[_Cursors, int], bool] | None = None) -> None:
        """Move over an array of one block, or of none; ``quick`` may move over all items of arrays of one length."""
        count = self.size()
        most = int(count.max(initial=0))
        if not most:
            return
        alike = bool((count == most).all())
        if not alike and most > _FEW_ITEMS:
            longer = count > _UNEVEN * count.mean() + _FEW_ITEMS
            self.mark(longer)
            count = np.where(longer, 0, count)
            most = int(count.max())
        if not (alike and quick is not None and quick(self, most)):
            for number in range(most):
                if alike:
                    item(self)
                    self.mark(self.at > self.ends)
                    continue
                which = np.flatnonzero(count > number)
                held = self.part(which)
                item(held)
                held.mark(held.at > held.ends)
                self.join(which, held)
        some = count > 0
        wrong = some & (self.data[self.at] != 0)
        self.at = self.at + some
        self.mark(wrong)


def _one_byte_counts(cursors: _Cursors, count: int) -> bool:
    """Move over null counts if each is known and takes one byte; False, and nothing is moved, otherwise."""
    at = cursors.at
    if (2 * count > cursors.ends - at).any():
        return False
    for number in range(0, count, 4):
        mask = _masks()[2 * min(4, count - number)]
        expected = np.uint64(0x0002000200020002) & mask
        if ((cursors.words[at + 2 * number] & (np.uint64(0x80FF80FF80FF80FF) & mask)) != expected).any():
            return False
    cursors.at = at + 2 * count
    return True


def _text_item(cursors: _Cursors) -> None:
    cursors.text()


def _texts(cursors: _Cursors) -> None:
    cursors.array(_text_item)


def _longs(cursors: _Cursors) -> None:
    cursors.array(_Cursors.long)


def _null_item(cursors: _Cursors) -> None:
    cursors.maybe(_Cursors.long)


def _null_counts(cursors: _Cursors) -> None:
    cursors.array(_null_item, _one_byte_counts)


# --- decoding ---------------------------------------------------------------------------------------------------------

_NUMBERS = (
    *("start", "kind", "partition", "partition_size", "partition_changed", "bucket", "total_buckets"),
    *("name_hash", "name_odd", "file_size", "row_count", "low", "low_size", "high", "high_size", "nulls"),
    *("schema_id", "level", "has_extras", "extra_odd", "deleted_rows", "source", "covered", "covered_size"),
    *("covered_changed", "has_external_path", "external_odd", "written", "written_size", "written_changed", "end"),
)
_INTS = ("bucket", "total_buckets", "level", "source")
_SECTIONS = ("partition", "covered", "written")
"""Bytes that neighbours mostly share: each differing one is looked up among the distinct ones."""


class _Sections:
    """Where the sections of each cursor's last record are; mutable."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Int64s, Int64s]] = {}

    def compare(self, c: _Cursors, name: str, start: Int64s, size: Int64s) -> Iterator[Any]:
        """Yield where the sections are, their sizes, and whether they differ from the last record's."""
        last = self._last.get(name)
        self._last[name] = start, size
        yield start
        yield size
        yield True if last is None else _differ(c.words, start, size, *(a[: len(start)] for a in last))


def _read_record(c: _Cursors, sections: _Sections) -> Iterator[Any]:
    """Move all cursors over a record, and yield :data:`_NUMBERS` in their order."""
    yield c.at
    version, kind = c.long(), c.long()
    c.mark((version != VERSION) | (kind & ~1 != 0))
    yield kind
    yield from sections.compare(c, "partition", *c.text())
    yield c.long()
    yield c.long()
    yield from _read_name(c)
    yield c.long()
    yield c.long()
    for _ in range(4):  # the keys, and their statistics
        c.text()
    c.maybe(_null_counts)
    yield from c.text()
    yield from c.text()
    yield c.at
    c.maybe(_null_counts)
    c.long()
    c.long()
    yield c.long()
    yield c.long()
    start, size = _section(c, _texts)
    yield size > 1
    # Between the count and the end of the array; a name of one or two bytes, such as "..", has the length 2 or 4.
    yield _odd_text(c.words, start + 1, np.maximum(size - 2, 0), _SEPARATORS + b"\2\4")
    c.maybe(_Cursors.long)
    yield _spread(*c.maybe(_Cursors.long))
    c.maybe(_Cursors.text)
    yield _spread(*c.maybe(_Cursors.long))
    yield from sections.compare(c, "covered", *_section(c, lambda s: s.maybe(_texts)))
    present, path = c.maybe(_Cursors.text)
    yield present
    start, size = (_spread(present, None if path is None else p, 0) for p in path or (None, None))
    yield _odd_text(c.words, start, size, b"")
    c.maybe(_Cursors.long)
    yield from sections.compare(c, "written", *_section(c, lambda s: s.maybe(_texts)))
    c.maybe(_longs)
    c.mark(c.at > c.ends)
    yield c.at


def _read_name(c: _Cursors) -> Iterator[Any]:
    """Yield the hash of a file's name, and whether it must be checked by itself."""
    start, size = c.text()
    yield _hashes(c.words, start, size).view(np.int64)
    yield (size <= 2) | _odd_text(c.words, start, size, _SEPARATORS)


def _section(c: _Cursors, read: Callable[[_Cursors], Any]) -> tuple[Int64s, Int64s]:
    """Where a section is that is looked at later, and its size."""
    start = c.at.copy()
    read(c)
    return start, c.at - start


@dataclass(slots=True)
class _Pending:
    """A manifest while its blocks are decoded; mutable."""

    data: bytes
    left: int
    blocks: list[StoredBlock] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    partitions: dict[bytes, int] = field(default_factory=dict)
    lists: dict[bytes, int] = field(default_factory=dict)
    failed: bool = False


def decode_columns(manifests: Sequence[bytes]) -> list[ManifestColumns | None]:
    """The columns of manifest files; None for those that must be decoded entry by entry.

    Never raises for damaged bytes.
    """
    pending = [_Pending(data, most_bytes(len(data))) for data in manifests]
    held: list[tuple[_Pending, int, bytes]] = []
    size = 0
    for manifest in pending:
        for count, block in _uncompressed(manifest):
            held.append((manifest, count, block))
            size += len(block)
            if size >= CHUNK_BYTES or len(held) >= CHUNK_BLOCKS:
                _decode_chunk(held)
                held, size = [], 0
    if held:
        _decode_chunk(held)
    return [None if m.failed else _finish(m) for m in pending]


def _uncompressed(manifest: _Pending) -> Iterator[tuple[int, bytes]]:
    try:
        for stored in stored_blocks(manifest.data, KNOWN_SCHEMA):
            block = decompress_zstd(manifest.data[stored.start : stored.start + stored.size], manifest.left)
            manifest.left -= len(block)
            if manifest.failed or manifest.left < 0 or stored.records * _LEAST_RECORD > len(block):
                manifest.failed = True
                return
            manifest.blocks.append(stored)
            yield stored.records, block
    except NOT_DECODED:
        manifest.failed = True


def _decode_chunk(held: Sequence[tuple[_Pending, int, bytes]]) -> None:
    counts = np.array([count for _, count, _ in held], np.int64)
    uneven = counts > _UNEVEN * counts.mean() + _FEW_ITEMS
    for number in np.flatnonzero(uneven).tolist():
        held[number][0].failed = True
    kept = [h for h in held if not h[0].failed]
    if not kept:
        return
    data = _padded([block for _, _, block in kept])
    counts = np.array([count for _, count, _ in kept], np.int64)
    sizes = np.array([len(block) for _, _, block in kept], np.int64)
    numbers, bad = _decode_blocks(data, counts, sizes)
    first = block = 0
    while block < len(kept):
        manifest, stop = kept[block][0], block
        while stop < len(kept) and kept[stop][0] is manifest:
            stop += 1
        last = first + int(counts[block:stop].sum())
        if bad[block:stop].any():
            manifest.failed = True
        elif not manifest.failed:
            _add_part(manifest, data, {n: a[first:last] for n, a in numbers.items()})
        first, block = last, stop


def _decode_blocks(data: _Bytes, counts: Int64s, sizes: Int64s) -> tuple[dict[str, Int64s], Bools]:
    """The numbers of each record, block by block; which blocks have something unexpected."""
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(-counts, kind="stable")
    ascending = counts[order[::-1]]
    most, every = int(counts.max(initial=0)), _Cursors(data, starts[order], (starts + sizes)[order])
    table = np.zeros((len(_NUMBERS), most, len(counts)), np.int64)
    sections = _Sections()
    for record in range(most):
        # Blocks with the most records come first: those that are not at their end are a prefix.
        active = len(counts) - int(np.searchsorted(ascending, record, "right"))
        cursors = _Cursors(data, every.at[:active], every.ends[:active], every.words)
        for row, values in enumerate(_read_record(cursors, sections)):
            table[row, record, :active] = values
        every.at[:active] = cursors.at
        every.bad[:active] |= cursors.bad
    ints = table[[_NUMBERS.index(name) for name in _INTS]]
    outside = ((ints < -(1 << 31)) | (ints >= 1 << 31)).any(axis=(0, 1))
    bad = np.empty(len(counts), bool)
    bad[order] = every.bad | (every.at != every.ends) | outside
    place = np.empty(len(counts), np.int64)
    place[order] = np.arange(len(counts))
    block = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = within * len(counts) + place[block]
    numbers = {name: table[row].reshape(-1)[at] for row, name in enumerate(_NUMBERS) if name != "source"}
    numbers["begin"] = starts[block]
    return numbers, bad


def _add_part(manifest: _Pending, data: _Bytes, n: dict[str, Int64s]) -> None:
    """Check the texts of one manifest's records in a chunk, and add their columns to it."""
    decoder = RecordDecoder()
    try:
        written: dict[bytes, int] = {}
        for name, seen in zip(_SECTIONS, (manifest.partitions, manifest.lists, written), strict=True):
            known = len(seen)
            n[name] = _codes(data, n[name], n[f"{name}_size"], n[f"{name}_changed"], seen)
            for text in list(seen)[known:] if name != "partition" else ():
                decode_texts(text)
        odd = np.flatnonzero(n["name_odd"] | n["extra_odd"] | n["external_odd"])
        for start, end in zip(n["start"][odd].tolist(), n["end"][odd].tolist(), strict=True):
            decoder.entries(data[start:end].tobytes(), 1)
    except NOT_DECODED:
        manifest.failed = True
        return
    for name in ("start", "end", "low", "high", "nulls"):
        n[name] = n[name] - n["begin"]
    manifest.parts.append({name: n[name].astype(kind) for name, kind in _kinds().items()})


@cache
def _kinds() -> dict[str, Any]:
    """The columns that are kept, and the type of each."""
    ints = (*("partition", "bucket", "total_buckets", "level", "covered"), *_PLACES)
    longs = ("file_size", "row_count", "schema_id", "deleted_rows")
    bools = {"kind": np.int8, "has_extras": np.bool_, "has_external_path": np.bool_}
    return {**bools, "name_hash": np.uint64, **dict.fromkeys(ints, np.int32), **dict.fromkeys(longs, np.int64)}


_PLACES = ("start", "end", "low", "low_size", "high", "high_size", "nulls")


def _finish(manifest: _Pending) -> ManifestColumns:
    empty = [{name: np.zeros(0, kind) for name, kind in _kinds().items()}]
    parts = manifest.parts or empty
    columns = {name: np.concatenate([p[name] for p in parts]) for name in _kinds()}
    lists = [decode_texts(text) for text in manifest.lists]
    return ManifestColumns(
        manifest.data, manifest.blocks, **columns, partitions=list(manifest.partitions), column_lists=lists
    )


# --- texts ------------------------------------------------------------------------------------------------------------


def _text_words(words: _Words, at: Int64s, size: Int64s, filler: int = 0) -> Iterator[_Words]:
    """The bytes of texts, eight at a time; behind the end of a text are ``filler`` bytes."""
    whole = int(size.min(initial=_LONG_TEXT)) & ~7
    for offset in range(0, whole, 8):
        yield words[at + offset]
    for offset in range(whole, int(size.max(initial=0)), 8):
        kept = _masks()[np.clip(size - offset, 0, 8)]
        word = words[at + np.minimum(offset, size)] & kept
        yield word | (~kept & np.uint64(_ONES * filler)) if filler else word


def _odd_text(words: _Words, at: Int64s, size: Int64s, others: bytes) -> Bools:
    """Whether texts have a byte beyond ASCII or one of the ``others``; long ones always do."""
    odd: Bools = size > _LONG_TEXT
    high = np.zeros(len(at), np.uint64)
    for word in _text_words(words, at, np.where(odd, 0, size), ord("a")):
        high |= word
        for byte in others:
            other = word ^ np.uint64(_ONES * byte)
            high |= (other - np.uint64(_ONES)) & ~other
    odd |= (high & _HIGH_BITS) != 0
    return odd


def name_hashes(names: Sequence[str]) -> _Words:
    """The hashes of these names, as in :attr:`ManifestColumns.name_hash`.  Different names may have the same hash."""
    texts = [name.encode("utf-8", "surrogateescape") for name in names]
    size = np.array([len(text) for text in texts], np.int64)
    words = _Cursors(_padded(texts), np.zeros(0, np.int64), np.zeros(0, np.int64)).words
    return _hashes(words, np.cumsum(size) - size, size)


def _hashes(words: _Words, at: Int64s, size: Int64s) -> _Words:
    """A hash of each text: of its first bytes, and of how many there are."""
    factor = 0x9E3779B97F4A7C15
    hashes = size.astype(np.uint64) * np.uint64(factor)
    for number, word in enumerate(_text_words(words, at, np.minimum(size, _LONG_TEXT))):
        # Zeros behind a text's end add nothing: its hash is the same whatever texts are beside it.
        mixed = word * np.uint64((factor * (2 * number + 3)) & 0xFFFFFFFFFFFFFFFF)
        hashes ^= (mixed ^ (mixed >> np.uint64(29))) * np.uint64(factor)
    return hashes


def _differ(words: _Words, at: Int64s, size: Int64s, other: Int64s, other_size: Int64s) -> Bools:
    """Whether texts differ from other ones; long ones always do."""
    differ: Bools = (size != other_size) | (size > _LONG_TEXT)
    size = np.where(differ, 0, size)
    for a, b in zip(_text_words(words, at, size), _text_words(words, other, size), strict=True):
        differ |= a != b
    return differ


def _codes(data: _Bytes, at: Int64s, size: Int64s, changed: Int64s, seen: dict[bytes, int]) -> Int64s:
    """The number of each text among the distinct ones, ``seen``, which grows.

    Only a text that differs from the one before is looked up: neighbours mostly have the same.
    """
    if not len(at):
        return np.zeros(0, np.int64)
    which = np.flatnonzero(changed)
    codes = [
        seen.setdefault(data[a : a + n].tobytes(), len(seen))
        for a, n in zip(at[which].tolist(), size[which].tolist(), strict=True)
    ]
    of_changed: Int64s = np.array(codes, np.int64)
    places: Int64s = np.cumsum(changed) - 1
    return of_changed[places]
