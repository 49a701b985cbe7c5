"""The ``tokens`` index finds the blocks of rows whose text has a token, such as a word or a number.

The payload is a block signature (:mod:`bitlake.fileindex.block_signature`) with codes of 22 bits, five hash functions,
and the version of the tokenizer (:mod:`bitlake.expressions.text_functions`) as its parameter.  The code of a token of n
bytes is computed in 64 bits, wrapping, from its first and last min(n, 8) bytes, little-endian, the first ones shifted
left to 64 bits: ``h = first * 0x9E3779B97F4A7C15 + last * 0xC2B2AE3D27D4EB4F + n * 0x165667B19E3779F9``,
``h ^= h >> 29``, ``h *= 0xBF58476D1CE4E5B9``, code ``h >> 42``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import string_buffers
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_functions import (
    TOKENIZER,
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
    Bools,
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
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataType, Root

ACCEPTS = "tokens takes STRING and VARCHAR"
CODE_BITS = 22
_FUNCTIONS = 5
_BITS_FOR_A_CODE = 16
_WINDOW = 1 << 19
"""Bytes of several rows at a time, so that their temporaries stay in the processor's cache."""
_IS_TOKEN = bytes(c >= 0x80 or chr(c).isalnum() for c in range(256))
"""1 for each byte that belongs to a token."""
_NOT_STORED = re.compile("[\ud800-\udfff\ufffd]")
"""Surrogates, and what stands for bytes that are not UTF-8 in the texts that Spark matches."""


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    return isinstance(kind, AtomicType) and kind.root is Root.VARCHAR


class CodesOfTokens:
    """Hashes the tokens of text."""

    def __init__(self) -> None:
        self._latest: npt.NDArray[np.int32] | None = None

    def codes(self, texts: Sequence[pa.Array]) -> UInt32s:
        """Return the distinct codes of the tokens of some strings without NULL."""
        codes = [token_codes(part) for text in texts for part in _parts(text)]
        return self._distinct(np.concatenate(codes)) if codes else np.zeros(0, np.uint32)

    def _distinct(self, codes: UInt32s) -> UInt32s:
        # Each code keeps the latest place that wrote it: faster than sorting.
        if self._latest is None:
            self._latest = np.zeros(1 << CODE_BITS, np.int32)
        places = np.arange(len(codes), dtype=np.int32)
        self._latest[codes] = places
        latest: npt.NDArray[np.bool_] = self._latest[codes] == places
        return codes[latest]


def token_codes(texts: pa.Array) -> UInt32s:
    """Return the codes of the tokens of strings without NULL, each as often as it occurs."""
    if not len(texts):
        return np.zeros(0, np.uint32)
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(texts)]), texts.cast(pa.large_string()))
    # Separators between the rows end their tokens; those around the text make every view of 8 bytes lie in it.
    text = b"\0" * 8 + pc.binary_join(lists, pa.scalar("\0", pa.large_string()))[0].as_buffer().to_pybytes() + b"\0" * 8
    is_token = np.frombuffer(text.translate(_IS_TOKEN), np.uint8)
    edges = np.flatnonzero(is_token[1:] != is_token[:-1]) + 1
    begins, ends = edges[::2], edges[1::2]
    words = np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))
    sizes = (ends - begins).astype(np.uint64)
    spare = np.uint64(64) - np.uint64(8) * np.minimum(sizes, np.uint64(8))
    h: npt.NDArray[np.uint64] = (words[begins] << spare) * np.uint64(0x9E3779B97F4A7C15)
    h += (words[ends - 8] >> spare) * np.uint64(0xC2B2AE3D27D4EB4F)
    h += sizes * np.uint64(0x165667B19E3779F9)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return (h >> np.uint64(64 - CODE_BITS)).astype(np.uint32)


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
        shape = SignatureShape(CODE_BITS, _FUNCTIONS, TOKENIZER, _BITS_FOR_A_CODE)
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
        if head.code_bits != CODE_BITS or head.parameter != TOKENIZER:
            raise CorruptError(f"unknown tokenizer version {head.parameter} of a tokens index", 3)
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
        return {"version of the tokenizer": parameter}


TOKENS = _TokensIndex()
