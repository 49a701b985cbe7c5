"""The ``ngram`` index finds the blocks of rows whose text can hold a substring.

The payload is a block signature (:mod:`bitlake.fileindex.block_signature`) with codes of 18 bits, at most as many
hash functions as its step, and ``n + 16 * step`` as its parameter.  The grams of a text are runs of n bytes of its
UTF-8 with ``A`` … ``Z`` folded to ``a`` … ``z``; NULL, and texts of fewer than n bytes, have none.  With step 1 each
byte of a text begins a gram; with step 2 those at even offsets do, counted from the start of a block's texts, one
after another.  The code of a gram, whose bytes are little-endian, is ``gram * 0x9E3779B97F4A7C15 >> 46`` in 64 bits,
wrapping.

Because grams are folded, one index serves LIKE and comparisons of lower case.  Two characters outside of ASCII have a
lower case within it: U+212A (``k``) and U+0130 (``i`` and U+0307).  The grams of a text that holds one of these are
those of the text and those of the text with both replaced.  Other characters outside of ASCII are not folded: of a
substring in lower case only the runs of ASCII and of scripts without case are looked up.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import string_buffers
from bitlake.codec.roaring import Bools, UInt8s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_functions import TextCondition, TextUnit, leaf_condition
from bitlake.expressions.tree import Leaf
from bitlake.fileindex.block_signature import (
    ROWS,
    SIZE_SHARE,
    CodeSets,
    SignatureIndex,
    SignatureReader,
    SignatureShape,
    SignatureWriter,
    UInt32s,
    share_of,
)
from bitlake.fileindex.capabilities import IndexOption, integer
from bitlake.fileindex.payload import Fetch
from bitlake.fileindex.selection import Selection
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataType, Root

GRAM_BYTES: IndexOption[int] = IndexOption(
    "n", integer(3, 8), 5, "Bytes of a gram: shorter substrings cannot be looked up, longer ones more precisely."
)
STEP: IndexOption[int] = IndexOption(
    "step",
    integer(1, 2),
    2,
    "Bytes between the starts of grams: 1 finds substrings of n bytes, too, and leaves fewer rows; 2 builds faster.",
)
ACCEPTS = "ngram takes STRING and VARCHAR"
CODE_BITS = 18
_BITS_FOR_A_CODE = 6
_GRAM_SIZES = range(3, 9)
_STEP_UNIT = 16
"""The parameter of a payload is the bytes of a gram and this many times the step."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: Knuth, The Art of Computer Programming, volume 3, section 6.4."""
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
    grams = _Grams(n, max(8, len(text)), 1)
    return grams.codes(np.frombuffer(text, np.uint8))[: max(0, len(text) - n + 1)]


class _Grams:
    """Computes the codes of a window of text at a time, in memory that is used again: new pages take longer.

    numpy computes quickest with values that are aligned and side by side.  So the window is copied several times, each
    time ``step`` bytes further: the words of the copy from offset p on are those of the text at the offsets 8 k + p.
    The gram of word k of this copy has the place p / step * width + k.  Grams do not begin in the last word of a copy.
    """

    def __init__(self, n: int, window: int, step: int) -> None:
        self._n, self._step = n, step
        self._window = window
        self._copies = 8 // step
        width = -(-window // 8) + 1
        self._words = np.empty(self._copies * width, np.dtype("<u8"))
        self._folded, self._is_upper = (np.empty(8 * width + 8, np.uint8) for _ in range(2))

    def codes(self, text: UInt8s) -> UInt32s:
        """Return the codes of the grams of a text of at most one window."""
        width = -(-len(text) // 8) + 1
        return self._compute(text, width).reshape(-1, width)[:, :-1].T.ravel().astype(np.uint32)

    def _compute(self, text: UInt8s, width: int) -> npt.NDArray[np.intp]:
        """Return the codes of the grams that begin in the first 8 * (``width`` - 1) bytes, each at its place.

        The next call uses the array again.
        """
        words = self._words[: self._copies * width]
        self._fill(text, words.view(np.uint8).reshape(self._copies, 8 * width))
        if self._n < 8:
            words &= np.uint64((1 << 8 * self._n) - 1)
        words *= _MULTIPLIER
        words >>= np.uint64(64 - CODE_BITS)
        return words.view(np.intp)  # numpy indexes fastest by intp

    def _fill(self, text: UInt8s, copies: UInt8s) -> None:
        """Fold the text, and copy it; behind its end are zeros."""
        count, size = copies.shape
        end = size + (count - 1) * self._step
        text = text[:end]
        is_upper, folded = self._is_upper[: len(text)], self._folded[:end]
        np.subtract(text, np.uint8(65), out=is_upper)
        np.less(is_upper, np.uint8(26), out=is_upper.view(np.bool_))
        np.multiply(is_upper, np.uint8(32), out=is_upper)
        np.bitwise_or(text, is_upper, out=folded[: len(text)])
        folded[len(text) :] = 0
        copies[:] = np.ndarray((count, size), np.uint8, folded, 0, (self._step, 1))

    def mark(self, texts: Sequence[pa.Array], seen: UInt8s, value: int) -> None:
        """Set ``seen[code]`` for all grams of some strings without NULL; its last element is ignored."""
        if self._step > 1 and len(texts) > 1:  # offsets count from the start of the block
            texts = [pa.concat_arrays(texts)]
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
        window = 8 * -(-len(text) // (8 * windows))
        width = window // 8 + 1
        crossing = self._places_of(self._crossing(ends), width)
        edges = np.arange(0, len(text), window)
        low, high = np.searchsorted(ends, (edges, edges + window + self._n - 2), "right").tolist()
        nowhere = len(seen) - 1
        for i, at in enumerate(edges.tolist()):
            places = self._compute(text[at:], width)
            # Of the grams that cross the end of a row, those outside of the window have places of a last word.
            places[crossing[:, low[i] : high[i]] - at // 8] = nowhere
            places.reshape(self._copies, width)[:, -1] = nowhere
            if len(text) - at < window:
                behind = np.arange(-(-(len(text) - at) // self._step) * self._step, window, self._step)
                places[self._places_of(behind, width)] = nowhere
            seen[places] = value
        if text.max() < 0x80:
            return False
        whole = text.tobytes()
        return any(c.encode() in whole for c in _FOLDED_INTO_ASCII)

    def _crossing(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offsets of the grams that begin in a row and end behind it, a column for each row."""
        last = (ends - 1) // self._step * self._step
        offsets = last - self._step * np.arange(-(-(self._n - 1) // self._step))[:, None]
        return np.where(offsets > ends - self._n, offsets, last)

    def _places_of(self, offsets: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """Return the places of the grams that begin at these offsets of a window."""
        return (offsets & 7) // self._step * width + (offsets >> 3)


class NgramWriter(SignatureWriter):
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        if not supports(kind):
            raise InvalidRequest(f"cannot index values of type {kind}; {ACCEPTS}")
        n, step = GRAM_BYTES.of(options) or 5, STEP.of(options) or 2
        # A needle has half as many grams with step 2, so that each must be more certain.
        shape = SignatureShape(CODE_BITS, step, n + _STEP_UNIT * step, _BITS_FOR_A_CODE)
        super().__init__(
            shape,
            CodeSets(CODE_BITS, _Grams(n, _WINDOW, step).mark),
            ROWS.of(options),
            SIZE_SHARE.of(options) or 0.05,
        )


class NgramReader(SignatureReader):
    """Evaluates LIKE, ``=``, IN, and substrings of the text or of its lower case."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        super().__init__(fetch, length, row_count)

    def _grams(self) -> tuple[int, int]:
        """Return the bytes of a gram, and the bytes from one to the next."""
        head = self.head
        step, n = divmod(head.parameter, _STEP_UNIT)
        if head.code_bits != CODE_BITS or n not in _GRAM_SIZES or step not in (1, 2):
            raise CorruptError(
                f"an ngram index of another version must be rebuilt: its parameter is {head.parameter}", 3
            )
        return n, step

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows of the blocks that can match.  None for other conditions, and for short literals."""
        self._grams()
        condition = leaf_condition(leaf)
        return None if condition is None else self.test_text(condition)

    def test_text(self, condition: TextCondition) -> Selection | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return self.selection(self._possible(condition))

    def text_selectivity(self, condition: TextCondition) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.TextTester`."""
        return share_of(self._possible(condition))

    def _possible(self, condition: TextCondition) -> Bools | None:
        """Return for each block whether it can hold all parts of an alternative.  None if nothing is known."""
        n, step = self._grams()
        lower = condition.unit is TextUnit.LOWER
        return self.blocks_of_any(
            condition.alternatives, lambda parts: self._blocks_of_all(literal_codes(parts, n, lower=lower), step)
        )

    def _blocks_of_all(self, runs: list[UInt32s], step: int) -> Bools | None:
        """Return for each block whether it can hold all runs of grams.  None if nothing is known about any of them."""
        if step == 1:
            return self.blocks(np.concatenate([np.zeros(0, np.uint32), *runs]))
        # Which grams of a run are stored depends on the offset at which a text holds it.
        known = [self.blocks_of_any([codes[at::step] for at in range(step)], self.blocks) for codes in runs]
        return functools.reduce(_both, known, None)

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return self.bytes_to_probe(length)

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        condition = leaf_condition(leaf)
        return None if condition is None else self.text_selectivity(condition)


def _both(blocks: Bools | None, others: Bools | None) -> Bools | None:
    """Return the blocks that are possible by both; None: nothing is known."""
    return others if blocks is None else blocks if others is None else blocks & others


def literal_codes(literals: Iterable[str], n: int, *, lower: bool) -> list[UInt32s]:
    """Return the codes of all grams of each run of bytes that every text that holds these literals has."""
    folded = (run.encode().translate(_FOLD) for literal in literals for run in _runs(literal, lower))
    return [gram_codes(run, n) for run in folded if len(run) >= n]


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
    options = (GRAM_BYTES, STEP, ROWS, SIZE_SHARE)
    supports = staticmethod(supports)
    writer = staticmethod(NgramWriter)
    reader = staticmethod(NgramReader)

    def parameter_facts(self, parameter: int) -> Mapping[str, object]:
        """See :class:`SignatureIndex`."""
        step, n = divmod(parameter, _STEP_UNIT)
        return {"bytes of a gram": n, "step": step}


NGRAM = _NgramIndex()
