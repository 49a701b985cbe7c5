"""Manifests decoded to columns: what plans need of each entry, as arrays, without an object for any entry.

A record's end is known only once its fields are read.  Reading records one after the other takes a step for each; so
places where records may begin are looked for by the bytes that all begin with, and all of them are read at once, each
field by a few operations on arrays (:mod:`bitlake.codec.avro_cursors`).  Places prove right or wrong afterwards: a
record begins where its block does, or where another record ends.

An array holds numbers (bucket, rows, bytes, level …) or places: where a record, its statistics and its texts are in
the uncompressed block.  Blocks stay compressed in memory.  A block is decompressed again when an entry of that block is
chosen (:meth:`ManifestColumns.entries`, by the decoder of :mod:`bitlake.metadata.manifest`), when a condition needs
statistics (:meth:`ManifestColumns.bounds`), or when paths are listed (:meth:`ManifestColumns.names`).

Bytes are untrusted.  Each length and count is compared with the bytes that are left in the block, and each block must
end with its last record.  A manifest with unexpected bytes is left to the other decoder, which decodes it or reports
the damage.  The same holds for manifests with another schema, numbers of more than 56 bits, very long arrays, and
blocks of very many records.  Names with bytes beyond ASCII, or with a separator, are checked record by record, by the
other decoder too.

Source: table-format spec, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from bitlake.codec.avro import compress_zstd, decompress_zstd, most_bytes
from bitlake.codec.avro_cursors import (
    NO_NUMBER,
    Cursors,
    Texts,
    padded,
    spread,
    word_view,
)
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

    from bitlake.codec.avro_cursors import Bytes, Words

    _Ints: TypeAlias = npt.NDArray[np.int32]

CHUNK_BYTES, CHUNK_RECORDS = 8 << 20, 16_384
"""Uncompressed bytes and records at which a chunk of blocks ends, which are decoded at once: arrays of this size stay
in the processor's caches."""
_LEAST_RECORD = 29
"""Bytes that a record has at least."""
_MOST_BYTES, _MOST_RECORDS = 64 << 20, 1 << 16
"""A larger block is left to the other decoder: a few bytes of a bomb would take memory for very many numbers."""
_SEPARATORS = b"/\\\0"


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
    name_hash: Words
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
            cursors = Cursors(chunk.data, chunk.begins + self.start[chunk.places], chunk.ends)
            for skip in (Cursors.long, Cursors.long, Cursors.text, Cursors.long, Cursors.long):
                skip(cursors)  # version, kind, partition, bucket, number of buckets
            yield _strings(chunk.data, *cursors.text())

    def _chunks(self, places: Int64s) -> Iterator[_Chunk]:
        """The blocks of ascending places, uncompressed."""
        blocks = ((self._block(number), of) for number, of in self._by_block(places))
        return map(_Chunk.of, at_least(CHUNK_BYTES, blocks, lambda block: len(block[0])))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some blocks of a manifest, uncompressed, and for each of some entries where its block begins and ends."""

    data: Bytes
    begins: Int64s
    ends: Int64s
    places: Int64s

    @staticmethod
    def of(held: Sequence[tuple[bytes, Int64s]]) -> _Chunk:
        """Blocks with the places of their entries."""
        counts = [len(of) for _, of in held]
        ends = np.cumsum([len(block) for block, _ in held])
        begins = ends - [len(block) for block, _ in held]
        data = padded([block for block, _ in held])
        return _Chunk(data, np.repeat(begins, counts), np.repeat(ends, counts), np.concatenate([of for _, of in held]))


def _strings(data: Bytes, at: Int64s, size: Int64s) -> pa.LargeStringArray:
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


def _null_count(data: Bytes, at: Int64s, ends: Int64s, i: int) -> Int64s:
    """The count of the i-th column in arrays of null counts at these places; -1 where unknown."""
    cursors = Cursors(data, at.copy(), ends)
    out = np.full(len(at), NO_NUMBER, np.int64)

    def item(items: Cursors) -> Int64s:
        present, value = items.maybe(Cursors.long)
        return spread(present, value)

    def counts(arrays: Cursors) -> Int64s:
        count = arrays.long()
        value = np.full(len(count), NO_NUMBER, np.int64)
        for number in range(min(i + 1, int(count.max(initial=0)))):
            longer = np.flatnonzero(count > number)
            held = arrays.part(longer)
            current = item(held)
            arrays.join(longer, held)
            if number == i:
                value[longer] = current
        return value

    present, value = cursors.maybe(counts)
    out[present] = NO_NUMBER if value is None else value
    return out


# --- records ----------------------------------------------------------------------------------------------------------

_Numbers: TypeAlias = "dict[str, npt.NDArray[Any]]"
_INTS = ("bucket", "total_buckets", "level", "source")
_HEAD_BYTES = 8
"""Bytes at the start of a record by which it is looked for."""
_MOST_STARTS, _FEW_STARTS = 16, 64
"""A block with this many times its records of possible starts is left out."""
_SLICE = 1 << 18
"""Bytes that are looked through at a time: they and what is found stay in the cache."""


def _read_record(c: Cursors) -> _Numbers:
    """Move all cursors over a record; return the numbers of each, and the places of its texts."""
    n: _Numbers = {"start": c.at}
    version, n["kind"] = c.long(), c.long()
    c.mark((version != VERSION) | (n["kind"] & ~1 != 0))
    n["partition"], n["partition_size"] = c.text()
    n["bucket"], n["total_buckets"] = c.long(), c.long()
    n["name"], n["name_size"] = c.text()
    n["file_size"], n["row_count"] = c.long(), c.long()
    c.repeated(_read_keys)
    n["low"], n["low_size"] = c.text()
    n["high"], n["high_size"] = c.text()
    n["nulls"] = c.at
    c.maybe(Cursors.null_counts)
    for _ in range(2):  # the sequence numbers
        c.long()
    n["schema_id"], n["level"] = c.long(), c.long()
    n["extras"] = c.at
    c.texts()
    n["extras_size"] = c.at - n["extras"]
    c.maybe(Cursors.long)  # the creation time
    n["deleted_rows"] = spread(*c.maybe(Cursors.long))
    c.maybe(Cursors.text)  # the embedded index
    at = c.at
    n["tail_is_first"], tail = c.repeated(_read_tail)
    n["source"], covered, n["covered_size"], n["has_external_path"], path, n["path_size"] = tail
    n["covered"], n["path"] = at + covered, at + path
    c.maybe(Cursors.long)  # the first row's id
    n["written"] = c.at
    c.maybe(Cursors.texts)
    n["written_size"] = c.at - n["written"]
    c.maybe(Cursors.longs)
    c.mark(c.at > c.ends)
    n["end"] = c.at
    return n


def _read_keys(c: Cursors) -> list[Int64s]:
    for _ in range(4):  # the keys, and the bounds of their statistics
        c.text()
    c.maybe(Cursors.null_counts)
    return []


def _read_tail(c: Cursors) -> list[Int64s]:
    """The file's source, its list of columns with statistics, and its external path: places count from the first."""
    start, source = c.at, spread(*c.maybe(Cursors.long))
    covered = c.at - start
    c.maybe(Cursors.texts)
    covered_size = c.at - start - covered
    present, path = c.maybe(Cursors.text)
    at, size = (spread(present, None if path is None else p, 0) for p in path or (None, None))
    return [source, covered, covered_size, present.astype(np.int64), np.where(present, at - start, 0), size]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Uncompressed blocks in a buffer: where each begins and ends, and how many records it claims."""

    data: Bytes
    begins: Int64s
    ends: Int64s
    counts: Int64s

    def part(self, which: Int64s) -> _Blocks:
        """Some of the blocks, in the same buffer."""
        return _Blocks(self.data, self.begins[which], self.ends[which], self.counts[which])

    def likely_starts(self) -> Int64s:
        """Places where bytes are as at the blocks' first records, as far as those agree: places of records, mostly."""
        heads = self.data[self.begins[:, None] + np.arange(_HEAD_BYTES)]
        agree = (heads == heads[0]).all(axis=0)
        agree[3 + int(heads[0, 2]) // 2 :] = False  # behind the partition
        return self._places(heads[0], np.where(agree, 0xFF, 0).astype(np.uint8))

    def possible_starts(self) -> Int64s:
        """All places where a record may be: those of the version and of a kind."""
        nothing = np.zeros(_HEAD_BYTES, np.uint8)
        return self._places(nothing, nothing)

    def _places(self, head: Bytes, mask: Bytes) -> Int64s:
        """Ascending places of bytes that have the version, a kind, and those bytes of ``head`` that ``mask`` has."""
        head, mask = head.copy(), mask.copy()
        head[:2], mask[:2] = (2 * VERSION, 0), (0xFF, 0xFD)
        expected, wanted = (int(b.view("<u8")[0]) for b in (head & mask, mask))
        rarest = 2 + int(np.argmax(mask[2:] * (head[2:] != 0))) if mask[2:].any() else 1
        words, last = word_view(self.data), int(self.ends.max())
        most = np.minimum(_MOST_STARTS * self.counts + _FEW_STARTS, _MOST_RECORDS)
        out = [np.zeros(0, np.int64)]
        for begin in range(int(self.begins.min()), last, _SLICE):
            end = min(begin + _SLICE, last)
            alike = self.data[begin:end] == head[0]
            alike &= (self.data[begin + rarest : end + rarest] & mask[rarest]) == (head[rarest] & mask[rarest])
            at = np.flatnonzero(alike) + begin
            at = at[(words[at] & np.uint64(wanted)) == np.uint64(expected)]
            # A slice has few records.  Of a bomb's block, all places would take many times its bytes.
            few = _SLICE // _LEAST_RECORD
            out.append(at if len(at) <= few else self._uncrowded(at, np.minimum(most, few)))
        places = self._uncrowded(np.concatenate(out), most)
        absent = self.begins[~np.isin(self.begins, places, assume_unique=True)]
        return np.sort(np.concatenate([places, absent])) if len(absent) else places

    def _uncrowded(self, places: Int64s, most: Int64s) -> Int64s:
        """The places in these blocks, without those in blocks that have more than ``most``."""
        block = np.searchsorted(self.begins, places, "right") - 1
        within = (block >= 0) & (places < self.ends[block])
        crowded = np.bincount(block[within], minlength=len(self.begins)) > most
        if within.all() and not crowded.any():
            return places
        kept: Int64s = places[within & ~crowded[block]]
        return kept

    def records(self, starts: Int64s) -> tuple[_Numbers, Bools]:
        """The numbers of the blocks' records, in their order; which blocks have them all.

        ``starts``: ascending places that include the records' starts.  What is read at others is not looked at: a
        record is where its block begins, or where another one ends.
        """
        block = np.searchsorted(self.begins, starts, "right") - 1
        cursors = Cursors(self.data, starts, self.ends[block])
        n = _read_record(cursors)
        bad = cursors.bad
        for name in _INTS:
            bad |= n[name] != n[name].astype(np.int32)
        firsts = np.searchsorted(starts, self.begins)
        chosen = self._chosen(starts, n["end"], bad, block, firsts)
        held = np.bincount(block[chosen], minlength=len(firsts))
        last = np.zeros(len(firsts), np.int64)
        last[block[chosen]] = n["end"][chosen]
        good = (held == self.counts) & (last == self.ends)
        good[block[chosen[bad[chosen]]]] = False
        chosen = chosen[good[block[chosen]]]
        if len(chosen) < len(starts):
            n = {name: column[chosen] for name, column in n.items()}
        return n, good

    def _chosen(self, starts: Int64s, ends: Int64s, bad: Bools, block: Int64s, firsts: Int64s) -> Int64s:
        """Which starts are those of records: the ``firsts`` of the blocks, and those where such a record ends."""
        if bool((np.append(starts[1:], self.ends[-1]) == ends).all()):
            return np.arange(len(starts))
        following = np.searchsorted(starts, ends)
        following[(following == len(starts)) | (ends == self.ends[block]) | bad] = len(starts) - 1
        leads_on = (starts[following] == ends) & (ends < self.ends[block]) & ~bad
        is_chosen = np.zeros(len(starts), bool)
        current = firsts
        for _ in range(int(self.counts.max())):
            is_chosen[current] = True
            current = following[current[leads_on[current]]]
            if not len(current):
                break
        return np.flatnonzero(is_chosen)


def _decode_blocks(blocks: _Blocks) -> tuple[_Numbers, Bools]:
    """The numbers of each record, block by block, and which blocks have them; none of the others."""
    numbers, good = blocks.records(blocks.likely_starts())
    others = np.flatnonzero(~good)
    if len(others):
        rest = blocks.part(others)
        more, good[others] = rest.records(rest.possible_starts())
        more["tail_is_first"] = np.zeros(len(more["start"]), bool)  # the first record of this pass is another one
        order = np.argsort(np.concatenate([numbers["start"], more["start"]]))
        numbers = {name: np.concatenate([column, more[name]])[order] for name, column in numbers.items()}
    return numbers, good


# --- decoding ---------------------------------------------------------------------------------------------------------

_SECTIONS = ("partition", "covered", "written")
"""Bytes that neighbours mostly share: each differing one is looked up among the distinct ones."""


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
    size = records = 0
    for manifest in pending:
        for count, block in _uncompressed(manifest):
            held.append((manifest, count, block))
            size += len(block)
            records += count
            if size >= CHUNK_BYTES or records >= CHUNK_RECORDS:
                _decode_chunk(held)
                held, size, records = [], 0, 0
    if held:
        _decode_chunk(held)
    return [None if m.failed else _finish(m) for m in pending]


def _uncompressed(manifest: _Pending) -> Iterator[tuple[int, bytes]]:
    try:
        for stored in stored_blocks(manifest.data, KNOWN_SCHEMA):
            block = decompress_zstd(manifest.data[stored.start : stored.start + stored.size], manifest.left)
            manifest.left -= len(block)
            most = min(len(block) // _LEAST_RECORD, _MOST_RECORDS)
            if manifest.failed or min(manifest.left, _MOST_BYTES - len(block)) < 0 or not 0 < stored.records <= most:
                manifest.failed = True
                return
            manifest.blocks.append(stored)
            yield stored.records, block
    except NOT_DECODED:
        manifest.failed = True


def _decode_chunk(held: Sequence[tuple[_Pending, int, bytes]]) -> None:
    data = padded([block for _, _, block in held])
    counts = np.array([count for _, count, _ in held], np.int64)
    ends = np.cumsum([len(block) for _, _, block in held])
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    numbers, good = _decode_blocks(_Blocks(data, begins, ends, counts))
    first = block = 0
    while block < len(held):
        manifest, stop = held[block][0], block
        while stop < len(held) and held[stop][0] is manifest:
            stop += 1
        last = first + int((counts * good)[block:stop].sum())
        if not good[block:stop].all():
            manifest.failed = True
        elif not manifest.failed:
            places = np.repeat(begins[block:stop], counts[block:stop])
            _add_part(manifest, data, {n: a[first:last] for n, a in numbers.items()}, places)
        first, block = last, stop


def _add_part(manifest: _Pending, data: Bytes, n: _Numbers, begins: Int64s) -> None:
    """Check the texts of one manifest's records in a chunk, and add their columns to it.

    ``begins``: where the block of each record begins.
    """
    decoder, names = RecordDecoder(), Texts(data, n["name"], n["name_size"])
    odd = (n["name_size"] <= 2) | names.have_odd_bytes(_SEPARATORS)
    # Between the count and the end of the array; a name of one or two bytes, such as "..", has the length 2 or 4.
    odd |= Texts(data, n["extras"] + 1, np.maximum(n["extras_size"] - 2, 0)).have_odd_bytes(_SEPARATORS + b"\2\4")
    odd |= Texts(data, n["path"], n["path_size"]).have_odd_bytes(b"")
    written: dict[bytes, int] = {}
    try:
        for name, seen in zip(_SECTIONS, (manifest.partitions, manifest.lists, written), strict=True):
            known = len(seen)
            n[name] = _codes(data, n[name], n[f"{name}_size"], n["tail_is_first"] if name == "covered" else None, seen)
            for text in list(seen)[known:] if name != "partition" else ():
                decode_texts(text)
        which = np.flatnonzero(odd)
        for start, end in zip(n["start"][which].tolist(), n["end"][which].tolist(), strict=True):
            decoder.entries(data[start:end].tobytes(), 1)
    except NOT_DECODED:
        manifest.failed = True
        return
    n["name_hash"] = names.hashes()
    n["has_extras"] = n["extras_size"] > 1
    for name in _OFFSETS:
        n[name] = n[name] - begins
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


def name_hashes(names: Sequence[str]) -> Words:
    """The hashes of these names, as in :attr:`ManifestColumns.name_hash`.  Different names may have the same hash."""
    texts = [name.encode("utf-8", "surrogateescape") for name in names]
    size = np.array([len(text) for text in texts], np.int64)
    return Texts(padded(texts), np.cumsum(size) - size, size).hashes()


def _codes(data: Bytes, at: Int64s, size: Int64s, alike: Bools | None, seen: dict[bytes, int]) -> Int64s:
    """The number of each text among the distinct ones, ``seen``, which grows.  ``alike``: those that equal each other.

    Only a text that differs from the one before is looked up: neighbours mostly have the same.
    """
    if not len(at):
        return np.zeros(0, np.int64)
    if alike is not None and alike.all():
        changed = np.zeros(len(at), bool)
        changed[0] = True
    else:
        changed = Texts(data, at, size).changes()
    which = np.flatnonzero(changed)
    codes = [
        seen.setdefault(data[a : a + n].tobytes(), len(seen))
        for a, n in zip(at[which].tolist(), size[which].tolist(), strict=True)
    ]
    of_changed: Int64s = np.array(codes, np.int64)
    places: Int64s = np.cumsum(changed) - 1
    return of_changed[places]
