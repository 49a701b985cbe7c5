"""The ``ngram`` index finds the blocks of rows whose text can hold a substring.

The payload is a block signature (:mod:`bitlake.fileindex.block_signature`) with codes of 18 bits, one hash function,
and the bytes n of a gram as its parameter.  The grams of a text are all runs of n bytes of its UTF-8 with ``A`` … ``Z``
folded to ``a`` … ``z``; NULL, and texts of fewer than n bytes, have none.  The code of a gram is computed in 32 bits,
wrapping: ``h = first * 0x9E3779B1``, where ``first`` is its first min(n, 4) bytes, little-endian; if n > 4,
``h += last * 0x85EBCA6B``, where ``last`` is its last 4 bytes; ``h ^= h >> 15``, ``h *= 0xC2B2AE35``, code ``h >> 14``.

Because grams are folded, one index serves LIKE and comparisons of lower case.  Two characters outside of ASCII have a
lower case within it: U+212A (``k``) and U+0130 (``i`` and U+0307).  The grams of a text that holds one of these are
those of the text and those of the text with both replaced.  Other characters outside of ASCII are not folded: of a
substring in lower case only the runs of ASCII and of scripts without case are looked up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import string_buffers
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_conditions import TextCondition, TextUnit, leaf_condition
from bitlake.expressions.tree import Leaf
from bitlake.fileindex.block_signature import (
    ROWS,
    SIZE_SHARE,
    CodeSets,
    SignatureIndex,
    SignatureReader,
    SignatureShape,
    SignatureWriter,
    UInt8s,
    UInt32s,
)
from bitlake.fileindex.capabilities import IndexOption, integer
from bitlake.fileindex.payload import Fetch
from bitlake.fileindex.selection import Selection
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataType, Root

GRAM_BYTES: IndexOption[int] = IndexOption(
    "n", integer(3, 8), 5, "Bytes of a gram: shorter substrings cannot be looked up, longer ones more precisely."
)
ACCEPTS = "ngram takes STRING and VARCHAR"
CODE_BITS = 18
_BITS_FOR_A_CODE = 6
_GRAM_SIZES = range(3, 9)
_FOLD = bytes(c + 32 if 65 <= c <= 90 else c for c in range(256))
_FOLDED_INTO_ASCII = {"\u212a": "k", "\u0130": "i\u0307"}
_WITHOUT_CASE = ((0x0000, 0x007F), (0x3041, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
"""ASCII, and blocks of characters that equal their lower case, to which no other character is folded."""
_REPLACEMENT = 0xFFFD
"""Stands for bytes that are not UTF-8 in the texts that Spark matches."""
_WINDOW = 1 << 16
"""Bytes at a time, so that their temporaries stay in the processor's cache."""


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type.  Not CHAR: Spark compares it with spaces that are not stored."""
    return isinstance(kind, AtomicType) and kind.root is Root.VARCHAR


def gram_codes(text: bytes, n: int) -> UInt32s:
    """Return the codes of the grams of a text, one for each byte but the last n - 1."""
    grams = _Grams(n, max(4, len(text)))
    return grams.codes(np.frombuffer(text, np.uint8))[: max(0, len(text) - n + 1)]


class _Grams:
    """Computes the codes of a window of text at a time, in memory that is used again: new pages take longer.

    numpy computes quickest with values that are aligned and side by side.  So the window is copied, each time one byte
    further: the words of copy p are those of the text at the offsets 4 k + p.  Gram 4 k + p begins with word k of copy
    p, ends with word k of copy p + n - 4, and has the place p * width + k.  Grams do not begin in the last
    two words of a copy.
    """

    def __init__(self, n: int, window: int) -> None:
        self._n = n
        self._window = window
        self._copies = max(4, n)
        width = -(-window // 4) + 2
        self._words = np.empty(self._copies * width, np.dtype("<u4"))
        self._other, self._places = np.empty(4 * width, np.uint32), np.empty(4 * width, np.intp)
        self._folded, self._is_upper = (np.empty(4 * width + self._copies, np.uint8) for _ in range(2))

    def codes(self, text: UInt8s) -> UInt32s:
        """Return the codes of the grams of a text of at most one window."""
        width = -(-len(text) // 4) + 2
        return self._compute(text, width).reshape(4, width)[:, :-2].T.ravel().astype(np.uint32)

    def _compute(self, text: UInt8s, width: int) -> npt.NDArray[np.intp]:
        """Return the codes of the grams that begin in the first 4 * (``width`` - 2) bytes, each at its place.

        The next call uses the array again.
        """
        size = 4 * width
        words, other, places = self._words[: self._copies * width], self._other[:size], self._places[:size]
        self._fill(text, words.view(np.uint8).reshape(self._copies, size))
        codes = words[:size]
        if self._n == 3:
            codes &= np.uint32(0xFFFFFF)
        if self._n > 4:
            np.multiply(words[-size:], np.uint32(0x85EBCA6B), out=other)
        codes *= np.uint32(0x9E3779B1)
        if self._n > 4:
            codes += other
        np.right_shift(codes, np.uint32(15), out=other)
        codes ^= other
        codes *= np.uint32(0xC2B2AE35)
        codes >>= np.uint32(32 - CODE_BITS)
        np.copyto(places, codes)  # numpy indexes fastest by intp; its own conversion of other integers is slower
        return places

    def _fill(self, text: UInt8s, copies: UInt8s) -> None:
        """Fold the text, and copy it; behind its end are zeros."""
        count, size = copies.shape
        text = text[: size + count]
        is_upper, folded = self._is_upper[: len(text)], self._folded[: size + count]
        np.subtract(text, np.uint8(65), out=is_upper)
        np.less(is_upper, np.uint8(26), out=is_upper.view(np.bool_))
        np.multiply(is_upper, np.uint8(32), out=is_upper)
        np.bitwise_or(text, is_upper, out=folded[: len(text)])
        folded[len(text) :] = 0
        copies[:] = np.ndarray((count, size), np.uint8, folded, 0, (1, 1))

    def mark(self, texts: Sequence[pa.Array], seen: UInt8s, value: int) -> None:
        """Set ``seen[code]`` for all grams of some strings without NULL; its last place is for no code."""
        for chunk in texts:
            if self._mark(chunk, seen, value):
                for c, into in _FOLDED_INTO_ASCII.items():
                    chunk = pc.replace_substring(chunk, c, into)
                self._mark(chunk, seen, value)

    def _mark(self, chunk: pa.Array, seen: UInt8s, value: int) -> bool:
        """Mark the codes of a chunk; return whether it has characters that are folded into ASCII."""
        starts, data = string_buffers(chunk)
        text, ends = data[int(starts[0]) : int(starts[-1])], starts[1:] - starts[0]
        if not len(text):
            return False
        # Windows of the same length, so that none is short.
        windows = -(-len(text) // self._window)
        step = 4 * -(-len(text) // (4 * windows))
        width = step // 4 + 2
        crossing = ends - np.arange(1, self._n)[:, None]
        crossing = (crossing & 3) * width + (crossing >> 2)
        edges = np.arange(0, len(text), step)
        low, high = np.searchsorted(ends, (edges, edges + step + self._n - 2), "right").tolist()
        nowhere = len(seen) - 1
        for i, at in enumerate(edges.tolist()):
            places = self._compute(text[at:], width)
            # Of the grams that cross the end of a row, those outside of the window have places of its last two words.
            places[crossing[:, low[i] : high[i]] - at // 4] = nowhere
            places.reshape(4, width)[:, -2:] = nowhere
            if len(text) - at < step:
                behind = np.arange(len(text) - at, step)
                places[(behind & 3) * width + (behind >> 2)] = nowhere
            seen[places] = value
        if text.max() < 0x80:
            return False
        whole = text.tobytes()
        return any(c.encode() in whole for c in _FOLDED_INTO_ASCII)


class NgramWriter(SignatureWriter):
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        if not supports(kind):
            raise InvalidRequest(f"cannot index values of type {kind}; {ACCEPTS}")
        n = GRAM_BYTES.of(options) or 5
        shape = SignatureShape(CODE_BITS, 1, n, _BITS_FOR_A_CODE)
        super().__init__(
            shape,
            CodeSets(CODE_BITS, _Grams(n, _WINDOW).mark),
            ROWS.of(options),
            SIZE_SHARE.of(options) or 0.05,
        )


class NgramReader(SignatureReader):
    """Evaluates LIKE, ``=``, IN, and substrings of the text or of its lower case."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        super().__init__(fetch, length, row_count)

    @property
    def _n(self) -> int:
        head = self.head
        if head.code_bits != CODE_BITS or head.parameter not in _GRAM_SIZES:
            raise CorruptError(f"an ngram index has no grams of {head.parameter} bytes", 3)
        return head.parameter

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows of the blocks that can match.  None for other conditions, and for short literals."""
        n = self._n
        condition = leaf_condition(leaf)
        return None if condition is None else self._test(condition, n)

    def test_text(self, condition: TextCondition) -> Selection | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return self._test(condition, self._n)

    def _test(self, condition: TextCondition, n: int) -> Selection | None:
        possible = self.blocks_of_any(self._alternatives(condition, n))
        return None if possible is None else self.selection(possible)

    def text_selectivity(self, condition: TextCondition) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return self.share_of_any(self._alternatives(condition, self._n))

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return self.bytes_to_probe(length)

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        condition = leaf_condition(leaf)
        return None if condition is None else self.text_selectivity(condition)

    def _alternatives(self, condition: TextCondition, n: int) -> list[UInt32s]:
        lower = condition.unit is TextUnit.LOWER
        return [literal_codes(parts, n, lower=lower) for parts in condition.alternatives]


def literal_codes(literals: Iterable[str], n: int, *, lower: bool) -> UInt32s:
    """Return the codes of the grams that every text that holds these literals has."""
    codes = [np.zeros(0, np.uint32)]
    for literal in literals:
        for run in _runs(literal, lower):
            folded = run.encode().translate(_FOLD)
            if len(folded) >= n:
                codes.append(gram_codes(folded, n))
    return np.concatenate(codes)


def _runs(literal: str, lower: bool) -> list[str]:
    """The parts of a literal whose bytes a matching text holds, up to the folding of ASCII."""
    runs = itertools.groupby(literal, lambda c: _is_stored(ord(c), lower))
    return ["".join(run) for is_stored, run in runs if is_stored]


def _is_stored(c: int, lower: bool) -> bool:
    if lower:
        return any(low <= c <= high for low, high in _WITHOUT_CASE)
    return c != _REPLACEMENT and not 0xD800 <= c <= 0xDFFF


# --- the index type ---------------------------------------------------------------------------------------------------


class _NgramIndex(SignatureIndex):
    name = "ngram"
    accepts = ACCEPTS
    options = (GRAM_BYTES, ROWS, SIZE_SHARE)
    parameter = "bytes of a gram"

    supports = staticmethod(supports)
    writer = staticmethod(NgramWriter)
    reader = staticmethod(NgramReader)


NGRAM = _NgramIndex()
