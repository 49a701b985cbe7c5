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


def gram_codes(folded: bytes, n: int) -> UInt32s:
    """Return the codes of the grams of a folded text, one for each byte but the last n - 1."""
    grams = _Grams(n, max(4, len(folded)))
    return grams.codes(np.frombuffer(folded, np.uint8), 0)[: max(0, len(folded) - n + 1)]


class _Grams:
    """Computes the codes of a window of text at a time, in memory that is used again: new pages take longer.

    numpy computes quickest with values that are aligned and side by side.  So the window is copied four times, each
    time one byte further: the words of copy p are those of the text at the offsets 4 k + p, and gram 4 k + p has the
    code [p, k].
    """

    def __init__(self, n: int, window: int) -> None:
        self._n = n
        self._window = window
        words = -(-window // 4)
        self._phases = np.zeros((4, words + 2), np.dtype("<u4"))
        self._out, self._other = np.empty(4 * words, np.uint32), np.empty(4 * words, np.uint32)
        self._places = np.empty(4 * words, np.intp)
        self._folded, self._is_upper = np.empty(window + 16, np.uint8), np.empty(window + 16, np.uint8)

    def codes(self, text: UInt8s, at: int) -> UInt32s:
        """Return the codes of the grams that begin in the window at ``at``; the first of them is first."""
        words = -(-min(self._window, len(text) - at) // 4)
        return self._compute(text, at, words).reshape(4, words).T.ravel().astype(np.uint32)

    def _compute(self, text: UInt8s, at: int, words: int) -> npt.NDArray[np.intp]:
        """Return the code of gram 4 k + p of the window at place p * ``words`` + k; the next call uses it again."""
        self._fill(text[at : at + 4 * words + 11], words)
        out, other = self._out[: 4 * words].reshape(4, words), self._other[: 4 * words].reshape(4, words)
        np.multiply(self._phases[:, :words], np.uint32(0x9E3779B1), out=out)
        if self._n == 3:
            np.bitwise_and(self._phases[:, :words], np.uint32(0xFFFFFF), out=out)
            out *= np.uint32(0x9E3779B1)
        if self._n > 4:
            for phase in range(4):
                later, last = divmod(phase + self._n - 4, 4)
                np.multiply(self._phases[last, later : later + words], np.uint32(0x85EBCA6B), out=other[phase])
            out += other
        np.right_shift(out, np.uint32(15), out=other)
        out ^= other
        out *= np.uint32(0xC2B2AE35)
        out >>= np.uint32(32 - CODE_BITS)
        places = self._places[: 4 * words]
        np.copyto(places, out.ravel())  # numpy indexes fastest by intp; its own conversion of other integers is slower
        return places

    def _fill(self, part: UInt8s, words: int) -> None:
        """Fold a part of the text, and copy it; behind its end are zeros."""
        is_upper, folded = self._is_upper[: len(part)], self._folded[: len(part)]
        np.subtract(part, np.uint8(65), out=is_upper)
        np.less(is_upper, np.uint8(26), out=is_upper.view(np.bool_))
        np.multiply(is_upper, np.uint8(32), out=is_upper)
        np.bitwise_or(part, is_upper, out=folded)
        size = 4 * (words + 2)
        self._folded[len(part) : size + 3] = 0
        for phase in range(4):
            self._phases[phase].view(np.uint8)[:size] = self._folded[phase : phase + size]

    def mark(self, texts: Sequence[pa.Array], seen: UInt8s) -> None:
        """Set ``seen[code]`` to 1 for all grams of some strings without NULL; its last place is for no code."""
        for chunk in texts:
            if self._mark(chunk, seen):
                for c, into in _FOLDED_INTO_ASCII.items():
                    chunk = pc.replace_substring(chunk, c, into)
                self._mark(chunk, seen)

    def _mark(self, chunk: pa.Array, seen: UInt8s) -> bool:
        """Mark the codes of a chunk; return whether it has characters that are folded into ASCII."""
        starts, data = string_buffers(chunk)
        first = int(starts[0])
        text, ends = data[first : int(starts[-1])], starts[1:] - first
        lag = np.arange(1, self._n)[:, None]
        for at in range(0, len(text), self._window):
            count = min(self._window, len(text) - at)
            words = -(-count // 4)
            places = self._compute(text, at, words)
            low, high = np.searchsorted(ends, (at, at + count + self._n - 2), "right")
            crossing = (ends[low:high] - at - lag).ravel()
            crossing = np.concatenate((crossing[(crossing >= 0) & (crossing < count)], np.arange(count, 4 * words)))
            places[(crossing & 3) * words + (crossing >> 2)] = len(seen) - 1
            seen[places] = 1
        if not len(text) or text.max() < 0x80:
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
            shape, CodeSets(CODE_BITS, _Grams(n, _WINDOW).mark), ROWS.of(options), SIZE_SHARE.of(options) or 0.05
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
