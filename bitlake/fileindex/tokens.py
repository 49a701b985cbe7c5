"""The ``tokens`` index finds the blocks of rows whose text has a token, such as a word or a number.

The payload is a block signature (:mod:`bitlake.fileindex.block_signature`) with codes of 22 bits, five hash functions,
and :data:`_PARAMETER` as its parameter.  Tokens are those of :mod:`bitlake.expressions.text_functions`.  The code of a
token is computed in 64 bits, wrapping, from its last 8 bytes and the 8 bytes before them, both little-endian, without
the bytes in front of the token: ``last * 0x9E3779B97F4A7C15 + before * 0xC2B2AE3D27D4EB4F >> 42``.  So tokens with the
same last 16 bytes have the same code.  Code 0 is not stored, and excludes no block.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import string_buffers
from bitlake.codec.roaring import Bools, UInt8s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_functions import (
    TextCondition,
    TextUnit,
    inner_tokens,
    leaf_condition,
    tokens_of,
)
from bitlake.expressions.tree import Comparison, In, Leaf, Op
from bitlake.fileindex.block_signature import (
    ROWS,
    SIZE_SHARE,
    CodeLists,
    SignatureIndex,
    SignatureReader,
    SignatureShape,
    SignatureWriter,
    UInt32s,
    share_of,
)
from bitlake.fileindex.payload import Fetch
from bitlake.fileindex.selection import Selection
from bitlake.types import AtomicType, DataType, Root

ACCEPTS = "tokens takes STRING and VARCHAR"
CODE_BITS = 22
_FUNCTIONS = 5
_BITS_FOR_A_CODE = 16
_PARAMETER = 2
"""The version of the tokens and of their codes."""
_MULTIPLIER, _MULTIPLIER_BEFORE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_TABLE = 1 << 15
"""Slots of the table of codes that have been met: 128 KB, for some thousand distinct codes of a block."""
_WINDOW = 1 << 18
"""Bytes of several rows at a time, so that their temporaries stay in the processor's cache."""
_NOT_STORED = re.compile("[\ud800-\udfff\ufffd]")
"""Surrogates, and what stands for bytes that are not UTF-8 in the texts that Spark matches."""


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    return isinstance(kind, AtomicType) and kind.root is Root.VARCHAR


class CodesOfTokens:
    """Hashes the tokens of text, in memory that is used again: new pages take longer."""

    def __init__(self) -> None:
        self._text, self._flags, self._others = (np.empty(0, np.uint8) for _ in range(3))
        self._table = np.empty(_TABLE, np.int32)

    def codes(self, texts: Sequence[pa.Array]) -> UInt32s:
        """Return the distinct codes of the tokens of some strings without NULL; never 0."""
        codes = [self._distinct(self._codes(part)) for text in texts for part in _parts(text)]
        distinct = codes[0] if len(codes) == 1 else self._distinct(np.concatenate([np.zeros(0, np.int32), *codes]))
        return distinct.view(np.uint32)

    def _codes(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        """Return the code of the token in front of each separator and at the end of each row; 0 if there is none."""
        starts, data = string_buffers(texts)
        self._fill(data[int(starts[0]) : int(starts[-1])])
        size = int(starts[-1] - starts[0])
        is_end, is_separator = self._flags[: size + 1].view(np.bool_), self._others[: size + 1].view(np.bool_)
        self._find_separators(size + 1)
        is_separator[:] = is_end
        is_end[starts[1:] - starts[0]] = True
        ends = np.flatnonzero(is_end)
        # The bytes from an end to the next one, and one more where the former end is a byte of the token.
        sizes = np.empty_like(ends)
        sizes[:1] = ends[:1] + 1
        np.subtract(ends[1:], ends[:-1], out=sizes[1:])
        sizes[1:] += ~is_separator.take(ends[:-1], mode="clip")
        return self._hashes(ends, sizes)

    def _hashes(self, ends: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the codes of the tokens that end at some offsets of the text; ``sizes`` are one more than theirs.

        Both arrays are used up.
        """
        # The 16 bytes in front of an end lie in three words: numpy computes quickest with aligned values.
        words = self._text[: len(self._text) // 8 * 8].view("<u8")
        low = (ends & 7).view(np.uint64)
        low <<= np.uint64(3)
        high = np.uint64(64) - low
        ends >>= 3
        middle = words[1:].take(ends, mode="clip")
        before, last = words.take(ends, mode="clip"), words[2:].take(ends, mode="clip")
        before >>= low
        before |= middle << high
        last <<= high
        middle >>= low
        last |= middle
        # Shifts remove the bytes in front of the token; 64 leaves none.
        np.minimum(sizes, 17, out=sizes)
        sizes *= -8
        sizes += 8 * 17
        before >>= sizes.view(np.uint64)
        sizes -= 64
        np.maximum(sizes, 0, out=sizes)
        last >>= sizes.view(np.uint64)
        last *= _MULTIPLIER
        before *= _MULTIPLIER_BEFORE
        last += before
        last >>= np.uint64(64 - CODE_BITS)
        return last.astype(np.int32)

    def _fill(self, text: UInt8s) -> None:
        """Put a text behind 16 separators; what follows it is a separator, too."""
        room = len(text) + 48
        if len(self._text) < room:
            self._text, self._flags, self._others = (np.empty(room, np.uint8) for _ in range(3))
        self._text[:16] = 0
        self._text[16 : 16 + len(text)] = text
        self._text[16 + len(text) : room] = 0

    def _find_separators(self, size: int) -> None:
        """Set the flags of the bytes of the text that belong to no token."""
        text, flags, others = self._text[16 : 16 + size], self._flags[:size], self._others[:size]
        is_separator, is_other = flags.view(np.bool_), others.view(np.bool_)
        np.bitwise_or(text, np.uint8(32), out=flags)  # lower case
        np.subtract(flags, np.uint8(97), out=flags)
        np.greater_equal(flags, np.uint8(26), out=is_separator)
        np.subtract(text, np.uint8(48), out=others)
        np.greater_equal(others, np.uint8(10), out=is_other)
        np.logical_and(is_separator, is_other, out=is_separator)
        np.less(text, np.uint8(128), out=is_other)
        np.logical_and(is_separator, is_other, out=is_separator)

    def _distinct(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        # A table keeps one code for each slot.  Few codes share a slot with another: only those are sorted.
        slots = codes.astype(np.intp)
        slots &= _TABLE - 1
        self._table.fill(-1)
        self._table[slots] = codes
        others = codes[self._table.take(slots, mode="clip") != codes]
        kept = self._table[self._table > 0]
        return np.concatenate([kept, np.unique(others[others > 0])])


def _parts(chunk: pa.Array) -> list[pa.Array]:
    """A chunk in runs of rows of about :data:`_WINDOW` bytes."""
    starts = string_buffers(chunk)[0]
    size = int(starts[-1] - starts[0])
    if size <= _WINDOW:
        return [chunk]
    cuts = np.searchsorted(starts, starts[0] + np.arange(0, size, _WINDOW)[1:], "right") - 1
    edges = np.unique(np.concatenate(([0], cuts, [len(chunk)]))).tolist()
    return [chunk.slice(low, high - low) for low, high in itertools.pairwise(edges)]


class TokensWriter(SignatureWriter):
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        if not supports(kind):
            raise InvalidRequest(f"cannot index values of type {kind}; {ACCEPTS}")
        shape = SignatureShape(CODE_BITS, _FUNCTIONS, _PARAMETER, _BITS_FOR_A_CODE)
        super().__init__(
            shape, CodeLists(CODE_BITS, CodesOfTokens().codes), ROWS.of(options), SIZE_SHARE.of(options) or 0.05
        )


class TokensReader(SignatureReader):
    """Evaluates ``has_token``, ``has_all_tokens`` and ``has_any_token``."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        super().__init__(fetch, length, row_count)

    def _possible(self, alternatives: Alternatives | None) -> Bools | None:
        """Return for each block whether it can hold all tokens of an alternative.  None if nothing is known."""
        head = self.head
        if head.code_bits != CODE_BITS or head.parameter != _PARAMETER:
            raise CorruptError(
                f"a tokens index of another version must be rebuilt: its parameter is {head.parameter}", 3
            )
        return None if alternatives is None else self.blocks_of_any(_codes(alternatives), self.blocks)

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows of the blocks that can match.  None for other conditions, and without whole tokens."""
        return self.selection(self._possible(leaf_tokens(leaf)))

    def test_text(self, condition: TextCondition) -> Selection | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return self.selection(self._possible(condition_tokens(condition)))

    def text_selectivity(self, condition: TextCondition) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return share_of(self._possible(condition_tokens(condition)))

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return self.bytes_to_probe(length)

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return share_of(self._possible(leaf_tokens(leaf)))


Alternatives = list[list[str]]
"""Of at least one, a text has all tokens."""


def leaf_tokens(leaf: Leaf) -> Alternatives | None:
    """Return the tokens that a leaf asks for.  None if it asks for none."""
    match leaf:
        case Comparison(_, Op.EQ, str() as value):
            return [tokens_of(value)]
        case In(_, values, False) if all(isinstance(v, str) for v in values):
            return [tokens_of(value) for value in values]
    condition = leaf_condition(leaf)
    return None if condition is None else condition_tokens(condition)


def condition_tokens(condition: TextCondition) -> Alternatives | None:
    """Return the tokens that every text of a condition has; of a substring, those with a separator at both ends."""
    match condition.unit:
        case TextUnit.TOKEN:
            return [list(parts) for parts in condition.alternatives]
        case TextUnit.EXACT:
            return [[t for part in parts for t in inner_tokens(part)] for parts in condition.alternatives]
    return None


def _codes(alternatives: Alternatives) -> list[UInt32s]:
    extractor = CodesOfTokens()
    stored = ([t for t in tokens if _NOT_STORED.search(t) is None] for tokens in alternatives)
    return [extractor.codes([pa.array(tokens, pa.large_string())]) for tokens in stored]


# --- the index type ---------------------------------------------------------------------------------------------------


class _TokensIndex(SignatureIndex):
    name = "tokens"
    accepts = ACCEPTS
    options = (ROWS, SIZE_SHARE)
    supports = staticmethod(supports)
    writer = staticmethod(TokensWriter)
    reader = staticmethod(TokensReader)

    def parameter_facts(self, parameter: int) -> Mapping[str, object]:
        """See :class:`SignatureIndex`."""
        return {"version of the tokens": parameter}


TOKENS = _TokensIndex()
