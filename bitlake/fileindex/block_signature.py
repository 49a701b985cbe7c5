"""Block signatures: which blocks of rows can hold a code, such as the hash of an n-gram or of a word.

The ``ngram`` and ``tokens`` indexes share this payload; they differ in how text becomes codes.

============  ========  ==================================================================================
offset        type      meaning
============  ========  ==================================================================================
0             u1        version, 1
1             u1        bits of a code, 1 … 24
2             u1        hash functions k, 1 … 16
3             u1        parameter of the index: bytes and step of a gram, or the version of the tokens
4             i4        rows of the file
8             i4        rows of a block, R; the last block may be short
12            i4        signature rows, M
16            i4        bytes of the dense codes, D
20            bytes[D]  dense codes, a Roaring bitmap (portable): codes that most blocks hold
20 + D        bits      M signature rows of W bits each, highest bit first, without padding between rows
============  ========  ==================================================================================

Integers are big-endian.  The number of blocks is B = rows / R, rounded up; a signature row has W bits: B rounded up
to 1, 2, 4, or a multiple of 8.  Bit b of signature row p is set if a code of block b has the position p.  Code c has k
positions: for i = 1..k, ``h = c * 0x9E3779B1 + i * 0x85EBCA6B``, ``h ^= h >> 15``, ``h *= 0xC2B2AE35``,
``h ^= h >> 13`` (32 bits, wrapping), position ``h * M >> 32``.

The matrix is stored by signature row, so that a look-up reads k rows of B bits for a code, however long the column is.
Dense codes have no bit in it and exclude no block: without them, the signatures of the other codes are sparser.
Files of fewer than :data:`_DENSE_FROM` blocks have no dense codes.
"""

from __future__ import annotations

import functools
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import string_buffers
from bitlake.codec.roaring import Bools, UInt8s, bitmap_of, contains, deserialize, mask_of, serialize
from bitlake.errors import CorruptError
from bitlake.fileindex.capabilities import (
    ColumnFacts,
    IndexOption,
    IndexType,
    SampledColumn,
    SampledRead,
    fraction,
    integer,
)
from bitlake.fileindex.keyed import chunks
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import DataType

UInt32s = npt.NDArray[np.uint32]
Texts = Sequence[pa.Array]
"""The strings of a block, without NULL."""
T = TypeVar("T")
VERSION = 1
_HEAD = struct.Struct(">BBBBiiii")
MOST_CODE_BITS = 24
_MOST_FUNCTIONS = 16

BLOCK_BYTES = 256 * 1024
"""The most bytes of text in a block, unless ``rows`` is set.

Measured on 133 MB of log lines of 222 bytes, 5-grams, 4.5 % of the text: blocks of 1,024, 2,048 and 4,096 rows let
pass 1.1 %, 1.4 % and 4.5 % of the blocks for 8 random hexadecimal digits, 0.06 %, 0.5 % and 4.9 % for
'order 1234567 is'.
"""
MOST_BLOCK_ROWS = 4096
"""Rows of a page in files with indexes: a smaller selection would not read less."""
_SAMPLE_BYTES = 1 << 20
"""Bytes of text that are sampled to choose the rows of a block."""
DENSE_SHARE = 0.5
_DENSE_FROM = 16
_STACKED_ROWS = 8192
"""Signature rows that are put side by side at a time."""
_RANKS = 8
"""Codes of a position that are combined one by one: of 400 MB of log lines, a position has 3 codes on average."""
LEAST_BYTES = 1024
"""The bytes that a payload may take even for a small column."""
_USEFUL_BYTES = 512
"""The least bytes of signatures, even for few codes, if the bound allows them."""
_WHOLE = 64 * 1024
"""Matrices up to this size are fetched at once."""
_PROBE_BYTES = 4096
_MOST_ALTERNATIVES = 100
_FIRST_PROBES = 12
_MOST_PROBES = 48
"""The number of codes that are looked up first, and the most while blocks remain."""

ROWS: IndexOption[int] = IndexOption(
    "rows", integer(1, 1 << 20), None, "Rows of a block; default: a power of two up to 4096, of about 256 KB of text."
)
SIZE_SHARE: IndexOption[float] = IndexOption(
    "size-share", fraction, 0.05, "The most bytes that the index takes, as a share of the column's text."
)


def positions_of(codes: UInt32s, functions: int, rows: int) -> npt.NDArray[np.int64]:
    """Return the signature rows of each code: one row of ``functions`` positions for each."""
    return np.stack(list(each_function(codes, functions, rows)), axis=1)


def each_function(codes: UInt32s, functions: int, rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """Return for each hash function the signature rows of all codes."""
    first = codes.astype(np.uint32) * np.uint32(0x9E3779B1)
    for i in range(1, functions + 1):
        h = first + np.uint32(i * 0x85EBCA6B & 0xFFFFFFFF)
        h ^= h >> np.uint32(15)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(13)
        wide = h.astype(np.uint64)
        wide *= np.uint64(rows)
        wide >>= np.uint64(32)
        yield wide.view(np.int64)


def row_width(blocks: int) -> int:
    """Return the bits of a signature row."""
    return next((w for w in (1, 2, 4) if blocks <= w), -(-blocks // 8) * 8)


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignatureShape:
    """Parameters of an index's signatures: bits and most hash functions of a code, parameter, bits for each code."""

    code_bits: int
    functions: int
    parameter: int
    bits_for_a_code: int


class BlockCodes(ABC):
    """Collects the distinct codes of blocks of rows."""

    def __init__(self, code_bits: int) -> None:
        self._code_bits = code_bits
        self._blocks = 0

    def __len__(self) -> int:
        return self._blocks

    def add(self, texts: Texts) -> None:
        """Add a block of strings without NULL."""
        self._add(texts)
        self._blocks += 1

    @abstractmethod
    def _add(self, texts: Texts) -> None:
        """Keep the distinct codes of the next block."""

    @abstractmethod
    def counts(self) -> tuple[UInt32s, UInt32s]:
        """Return the codes that blocks hold, ascending, and for each the number of these blocks."""

    @abstractmethod
    def of_block(self, block: int) -> UInt32s:
        """Return the codes of a block."""

    @abstractmethod
    def signatures(self, functions: int, height: int, codes: UInt32s, dense: UInt32s) -> UInt8s:
        """Return for each of ``height`` signature rows a byte for each 8 blocks; the first block has the highest bit.

        ``codes`` have bits, and ``dense``, the others that blocks hold, have none.
        """


class CodeSets(BlockCodes):
    """Keeps a bit for each code and block, for texts that have a large share of all codes.

    ``mark(texts, seen, value)`` sets ``seen[code]`` for each code; it may write anything behind the last code.
    Memory: 2^(bits of a code) bytes for each 8 blocks.
    """

    def __init__(self, code_bits: int, mark: Callable[[Texts, UInt8s, int], None]) -> None:
        super().__init__(code_bits)
        self._mark = mark
        self._seen = np.zeros(0, np.uint8)
        self._planes: list[UInt8s] = []
        """For each 8 blocks a byte for each code, whose bits are the blocks; the byte behind them is for no code."""

    def _add(self, texts: Texts) -> None:
        size = (1 << self._code_bits) + 1
        if self._blocks % 8 == 0:
            self._planes.append(np.zeros(size, np.uint8))
            self._mark(texts, self._planes[-1], 128)
            return
        if not len(self._seen):
            self._seen = np.empty(size, np.uint8)
        self._seen[:] = 0
        self._mark(texts, self._seen, 128 >> self._blocks % 8)
        self._planes[-1] |= self._seen

    def counts(self) -> tuple[UInt32s, UInt32s]:
        """See :class:`BlockCodes`."""
        counts = np.zeros(1 << self._code_bits, np.uint32)
        for at in range(0, len(self._planes), 31):
            few = np.zeros(1 << self._code_bits, np.uint8)  # adding bytes takes a quarter of the time
            for plane in self._planes[at : at + 31]:
                few += np.bitwise_count(plane[:-1])
            counts += few
        codes = np.flatnonzero(counts).astype(np.uint32)
        return codes, counts[codes]

    def of_block(self, block: int) -> UInt32s:
        """See :class:`BlockCodes`."""
        return np.flatnonzero(self._planes[block // 8][:-1] & np.uint8(128 >> block % 8)).astype(np.uint32)

    def signatures(self, functions: int, height: int, codes: UInt32s, dense: UInt32s) -> UInt8s:
        """See :class:`BlockCodes`."""
        positions = positions_of(codes, functions, height)
        gather = _ByPosition(np.repeat(codes, functions), positions.ravel(), height)
        # Four planes at a time: gathering words takes as long as gathering bytes.
        columns = [gather.combine(self._words(at)) for at in range(0, len(self._planes), 4)]
        return _side_by_side(columns, height)[:, : len(self._planes)]

    def _words(self, at: int) -> UInt32s:
        """Four planes from ``at`` on, side by side."""
        words = np.zeros((1 << self._code_bits, 4), np.uint8)
        for i, plane in enumerate(self._planes[at : at + 4]):
            words[:, i] = plane[:-1]
        return words.view(np.uint32).ravel()


def _side_by_side(columns: Sequence[UInt8s | UInt32s], height: int) -> UInt8s:
    """The bytes of columns by row.  Some rows at a time, so that they stay in the processor's cache."""
    out = np.empty((height, len(columns)), columns[0].dtype)
    for at in range(0, height, _STACKED_ROWS):
        np.stack([c[at : at + _STACKED_ROWS] for c in columns], axis=1, out=out[at : at + _STACKED_ROWS])
    return out.view(np.uint8)


class _ByPosition:
    """Combines the words of all codes that have the same position.

    Positions are ordered by their numbers of codes, so that the codes of rank r in their positions are those of the
    first positions: each rank takes one gather and one OR.  ``reduceat`` combines what is left of long groups.
    """

    def __init__(self, codes: UInt32s, positions: npt.NDArray[np.int64], height: int) -> None:
        order = np.argsort(positions)
        codes, positions = codes[order].astype(np.intp), positions[order]
        starts = np.flatnonzero(np.diff(positions, prepend=-1))
        sizes = np.diff(starts, append=len(positions))
        longest = np.argsort(-sizes)
        starts, sizes = starts[longest], sizes[longest]
        self._height = height
        self._positions = positions[starts]
        counts = [int(np.count_nonzero(sizes > rank)) for rank in range(_RANKS + 1)]
        self._ranks = [codes[starts[:count] + rank] for rank, count in enumerate(counts[:-1]) if count]
        rest = sizes[: counts[-1]] - _RANKS
        self._rest_starts = np.cumsum(rest) - rest
        places = np.arange(rest.sum()) + np.repeat(starts[: len(rest)] + _RANKS - self._rest_starts, rest)
        self._rest = codes[places]

    def combine(self, values: UInt32s) -> UInt32s:
        """Return for each position the OR of its codes' words in ``values``."""
        out = np.zeros(self._height, np.uint32)
        if self._ranks:
            found = values[self._ranks[0]]
            for codes in self._ranks[1:]:
                found[: len(codes)] |= values[codes]
            if len(self._rest):
                found[: len(self._rest_starts)] |= np.bitwise_or.reduceat(values[self._rest], self._rest_starts)
            out[self._positions] = found
        return out


class CodeLists(BlockCodes):
    """Keeps a list of each block's codes, for texts that have few of all codes.

    ``codes(texts)`` returns the distinct codes of a block.
    """

    def __init__(self, code_bits: int, codes: Callable[[Texts], UInt32s]) -> None:
        super().__init__(code_bits)
        self._codes = codes
        self._lists: list[UInt32s] = []

    def _add(self, texts: Texts) -> None:
        self._lists.append(self._codes(texts))

    def counts(self) -> tuple[UInt32s, UInt32s]:
        """See :class:`BlockCodes`."""
        held = np.sort(np.concatenate([np.zeros(0, np.uint32), *self._lists]))
        starts = np.flatnonzero(np.diff(held, prepend=np.uint32(1 << MOST_CODE_BITS)))
        return held[starts], np.diff(starts, append=len(held)).astype(np.uint32)

    def of_block(self, block: int) -> UInt32s:
        """See :class:`BlockCodes`."""
        return self._lists[block]

    def signatures(self, functions: int, height: int, codes: UInt32s, dense: UInt32s) -> UInt8s:
        """See :class:`BlockCodes`."""
        is_dense = np.zeros(1 << self._code_bits if len(dense) else 0, bool)
        is_dense[dense] = True

        def column(lists: Sequence[UInt32s]) -> UInt8s:
            marks, column = np.empty(height, np.uint8), np.zeros(height, np.uint8)
            for i, held in enumerate(lists):
                marks.fill(0)
                for positions in each_function(held[~is_dense[held]] if len(dense) else held, functions, height):
                    marks[positions] = 128 >> i
                column |= marks
            return column

        return _side_by_side([column(self._lists[at : at + 8]) for at in range(0, len(self._lists), 8)], height)


class SignatureWriter:
    """Builds a payload: ``add`` any number of times, then ``finish`` once.

    The payload depends on the rows alone, and not on how they are divided among calls.  Memory: up to
    2^(bits of a code - 3) bytes for each block.
    """

    def __init__(self, shape: SignatureShape, codes: BlockCodes, rows: int | None, share: float) -> None:
        self._shape = shape
        self._codes = codes
        self._block_rows = rows
        self._share = share
        self._pending: list[pa.Array] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._rows = 0
        self._text_bytes = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Add a column's values."""
        for chunk in chunks(column):
            self._add(_plain(chunk))

    def _add(self, chunk: pa.Array) -> None:
        if len(chunk) == 0:
            return
        self._pending.append(chunk)
        self._pending_rows += len(chunk)
        self._rows += len(chunk)
        if self._block_rows is None:
            self._pending_bytes += text_bytes(chunk)
            if self._pending_bytes < _SAMPLE_BYTES:
                return
            self._block_rows = self._rows_for_a_block()
        if self._pending_rows >= self._block_rows:
            self._take_blocks(self._block_rows, whole=True)

    def _rows_for_a_block(self) -> int:
        """Choose the rows of a block by the first rows that have :data:`_SAMPLE_BYTES` of text."""
        if not self._pending:
            return 1
        total = np.cumsum(np.concatenate([_lengths(chunk) for chunk in self._pending]))
        rows = min(int(np.searchsorted(total, _SAMPLE_BYTES)) + 1, len(total))
        average = max(1.0, float(total[rows - 1]) / rows)
        return max(1, min(MOST_BLOCK_ROWS, 1 << max(0, int(BLOCK_BYTES / average).bit_length() - 1)))

    def _take_blocks(self, size: int, whole: bool) -> None:
        """Index the pending rows, block by block; with ``whole``, keep the rows of a block that is not complete."""
        column = pa.chunked_array(self._pending, pa.large_string())
        end = len(column) - len(column) % size if whole else len(column)
        for start in range(0, end, size):
            block = column.slice(start, min(size, end - start))
            self._index([chunk.drop_null() if chunk.null_count else chunk for chunk in block.chunks])
        rest = column.slice(end)
        self._pending = [chunk for chunk in rest.chunks if len(chunk)]
        self._pending_rows = len(rest)

    def _index(self, texts: list[pa.Array]) -> None:
        self._text_bytes += sum(map(text_bytes, texts))
        self._codes.add(texts)

    def _close(self) -> None:
        if self._block_rows is None:
            self._block_rows = self._rows_for_a_block()
        if self._pending_rows:
            self._take_blocks(self._block_rows, whole=False)

    def finish(self) -> bytes:
        """Return the payload."""
        self._close()
        assert self._block_rows is not None
        blocks = len(self._codes)
        codes, counts = self._codes.counts()
        is_dense = counts > (DENSE_SHARE * blocks if blocks >= _DENSE_FROM else blocks)
        dense = serialize(bitmap_of(codes[is_dense]))
        width = row_width(blocks)
        budget = 8 * (max(LEAST_BYTES, int(self._share * self._text_bytes)) - _HEAD.size - len(dense)) // width
        codes_a_block = float(counts[~is_dense].sum()) / max(1, blocks)
        useful = max(int(codes_a_block * self._shape.bits_for_a_code), 8 * _USEFUL_BYTES // width)
        height = max(8, min(budget, useful, (1 << 33) // width))
        shape = self._shape
        # A Bloom filter of m bits for n codes errs least with ln 2 * m / n functions.
        functions = max(1, min(shape.functions, round(math.log(2) * height / max(1.0, codes_a_block))))
        head = _HEAD.pack(
            VERSION, shape.code_bits, functions, shape.parameter, self._rows, self._block_rows, height, len(dense)
        )
        return b"".join((head, dense, self._matrix(functions, height, width, codes[~is_dense], codes[is_dense])))

    def _matrix(self, functions: int, height: int, width: int, codes: UInt32s, dense: UInt32s) -> bytes:
        if not len(self._codes):
            return bytes(-(-height * width // 8))
        rows = self._codes.signatures(functions, height, codes, dense)
        if width < 8:
            rows = np.packbits(np.unpackbits(rows, axis=1, count=width))
        return rows.tobytes()

    def check(self, payload: bytes) -> str | None:
        """See :class:`bitlake.fileindex.capabilities.PayloadChecker`: no block may be denied one of its codes."""
        self._close()
        reader = SignatureReader(lambda offset, n: payload[offset : offset + n], len(payload), self._rows)
        head = reader.head
        if (head.code_bits, head.parameter, head.block_rows) != (
            self._shape.code_bits, self._shape.parameter, self._block_rows
        ):  # fmt: skip
            return None  # built with other options: its codes cannot be compared with these
        bits = reader.matrix()
        dense = mask_of(reader.dense, 0, 1 << head.code_bits)
        wrong = 0
        for block in range(len(self._codes)):
            codes = self._codes.of_block(block)
            positions = positions_of(codes[~dense[codes]], head.functions, head.height)
            wrong += not bits[positions, block].all()
        return f"it denies codes that {wrong:,} of {len(self._codes):,} blocks of rows hold" if wrong else None


def _plain(chunk: pa.Array) -> pa.Array:
    """A chunk as strings of one Arrow type, whatever the type of the column's chunks is."""
    if pa.types.is_dictionary(chunk.type):
        return chunk.dictionary.cast(pa.large_string()).take(chunk.indices)
    return chunk.cast(pa.large_string())


def _lengths(chunk: pa.Array) -> npt.NDArray[np.int64]:
    lengths = np.diff(string_buffers(chunk)[0])
    if chunk.null_count:
        lengths = np.where(chunk.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return lengths


def text_bytes(chunk: pa.Array) -> int:
    """Return the bytes of the values of an array of strings; NULL has none."""
    if chunk.null_count:
        return int(_lengths(chunk).sum())
    starts = string_buffers(chunk)[0]
    return int(starts[-1] - starts[0])


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignatureHead:
    """The head of a payload, checked against the payload's length."""

    code_bits: int
    functions: int
    parameter: int
    rows: int
    block_rows: int
    height: int
    dense_bytes: int

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.rows // self.block_rows)

    @property
    def width(self) -> int:
        """The bits of a signature row."""
        return row_width(self.blocks)

    @property
    def matrix_at(self) -> int:
        """The offset of the first signature row."""
        return _HEAD.size + self.dense_bytes


def read_head(payload: LazyBytes, row_count: int | None) -> SignatureHead:
    """Read and check the head; raises :class:`CorruptError`.  ``row_count``: of the data file, None if unknown."""
    if payload.length < _HEAD.size:
        raise CorruptError(f"a block signature of {payload.length} bytes is shorter than its head", 0)
    version, code_bits, functions, parameter, rows, block_rows, height, dense = _HEAD.unpack(
        payload.view(0, _HEAD.size)
    )
    if version != VERSION:
        raise CorruptError(f"unknown version {version} of a block signature; expected {VERSION}", 0)
    if not 0 < code_bits <= MOST_CODE_BITS or not 0 < functions <= _MOST_FUNCTIONS:
        raise CorruptError(f"a block signature cannot have codes of {code_bits} bits and {functions} functions", 1)
    if rows < 0 or block_rows < 1 or (row_count is not None and rows != row_count):
        raise CorruptError(f"a block signature of {rows} rows in blocks of {block_rows} is not of this file", 4)
    head = SignatureHead(code_bits, functions, parameter, rows, block_rows, height, dense)
    if height < 1 or dense < 0 or head.matrix_at + -(-height * head.width // 8) != payload.length:
        raise CorruptError(
            f"a block signature of {height} rows and {dense} bytes of dense codes has another length", 12
        )
    return head


def share_of(possible: Bools | None) -> float | None:
    """Return the share of the blocks that can match.  None if nothing is known about them."""
    return None if possible is None else float(possible.mean()) if len(possible) else 0.0


class SignatureReader:
    """Finds the blocks that can hold codes; reads the head and the dense codes at once, signature rows as needed."""

    def __init__(self, fetch: Fetch, length: int, row_count: int) -> None:
        self._payload = LazyBytes(fetch, length, _WHOLE)
        self._row_count = row_count

    @functools.cached_property
    def head(self) -> SignatureHead:
        """The head; raises :class:`CorruptError`."""
        return read_head(self._payload, self._row_count)

    @functools.cached_property
    def dense(self) -> BitMap:
        """The dense codes."""
        data = self._payload.view(_HEAD.size, self.head.dense_bytes)
        codes, size = deserialize(data, 1 << self.head.code_bits)
        if size != len(data):
            raise CorruptError(f"the dense codes take {size} of {len(data)} bytes", _HEAD.size)
        return codes

    def matrix(self) -> Bools:
        """Return all signature rows, as one row of bits for each, one bit for each block."""
        head = self.head
        data = self._payload.view(head.matrix_at, self._payload.length - head.matrix_at)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=head.height * head.width)
        return bits.reshape(head.height, head.width)[:, : head.blocks].astype(bool)

    def blocks(self, codes: UInt32s) -> Bools | None:
        """Return for each block whether it can hold all ``codes``.  None if nothing is known about any of them."""
        rare = np.unique(codes)
        rare = rare[~contains(self.dense, rare)] if len(self.dense) else rare
        if not len(rare):
            return None
        possible = np.ones(self.head.blocks, bool)
        for first in range(0, min(len(rare), _MOST_PROBES), _FIRST_PROBES):
            positions = positions_of(rare[first : first + _FIRST_PROBES], self.head.functions, self.head.height)
            for position in np.unique(positions).tolist():
                possible &= self._row(position)
                if not possible.any():
                    return possible
        return possible

    def blocks_of_any(self, alternatives: Sequence[T], blocks_of: Callable[[T], Bools | None]) -> Bools | None:
        """Return for each block whether it can hold one of the alternatives.  None if nothing is known about one.

        ``blocks_of``: the blocks that can hold an alternative, such as :meth:`blocks` for its codes.
        """
        if len(alternatives) > _MOST_ALTERNATIVES:
            return None
        possible = np.zeros(self.head.blocks, bool)
        for alternative in alternatives:
            blocks = blocks_of(alternative)
            if blocks is None:
                return None
            possible |= blocks
        return possible

    def bytes_to_probe(self, length: int) -> int:
        """Estimate the bytes that looking up a few codes fetches from a payload of ``length`` bytes."""
        return min(length, _WHOLE + _FIRST_PROBES * _PROBE_BYTES)

    def _row(self, position: int) -> Bools:
        head = self.head
        start = position * head.width
        first, last = start // 8, -(-(start + head.blocks) // 8)
        size = self._payload.length - head.matrix_at
        if size <= _WHOLE:
            self._payload.view(head.matrix_at, size)
        data = self._payload.view(head.matrix_at + first, last - first, ahead=1)
        bits = np.unpackbits(np.frombuffer(data, np.uint8))
        return bits[start - 8 * first :][: head.blocks].astype(bool)

    def selection(self, possible: Bools | None) -> Selection | None:
        """Return the rows of the blocks that can match.  None if nothing is known about them."""
        if possible is None:
            return None
        if len(possible) and possible.all():
            return Selection.all()
        head = self.head
        starts = np.flatnonzero(possible) * head.block_rows
        rows = (starts[:, None] + np.arange(min(head.block_rows, head.rows))).ravel()
        return Selection.of(bitmap_of(rows[: np.searchsorted(rows, head.rows)]), exact=False)


def _describe(section: Section, payload: LazyBytes, parameter_facts: Callable[[int], Mapping[str, object]]) -> None:
    """Add a payload's parts to ``section``, for ``inspect``."""
    head = read_head(payload, None)
    section.add(
        "head", 0, _HEAD.size,
        {"rows": head.rows, "rows of a block": head.block_rows, "blocks": head.blocks,
         **parameter_facts(head.parameter), "bits of a code": head.code_bits, "hash functions": head.functions},
    )  # fmt: skip
    dense = section.add("dense codes", _HEAD.size, head.dense_bytes)
    with dense.reading():
        codes, _ = deserialize(payload.view(_HEAD.size, head.dense_bytes), 1 << head.code_bits)
        dense.facts["codes"] = len(codes)
    section.add(
        "signature rows",
        head.matrix_at,
        payload.length - head.matrix_at,
        {"": head.height, "bits of a row": head.width},
    )


class SignatureIndex(IndexType):
    """An index of text by signatures of blocks of rows."""

    in_paimon = False
    tests_text = True
    sorts_values = False

    @abstractmethod
    def parameter_facts(self, parameter: int) -> Mapping[str, object]:
        """Return what the parameter in a payload's head means, for ``inspect``."""

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        """See :class:`IndexType`."""
        _describe(section, payload, self.parameter_facts)

    def trial_options(self, column: ColumnFacts) -> Mapping[str, str] | None:
        """See :class:`IndexType`."""
        return {}

    def growing_read(self, payload: bytes, read: SampledRead) -> tuple[int, int | None]:
        """See :class:`IndexType`."""
        return read.beyond_first, None

    def file_bytes(self, payload_bytes: int, fixed_bytes: int, column: SampledColumn) -> float:
        """See :class:`IndexType`."""
        return payload_bytes * self.row_scale(column.rows, column.file_rows)

    def stored_rows(self, payload: LazyBytes) -> int | None:
        """See :class:`IndexType`."""
        return read_head(payload, None).rows
