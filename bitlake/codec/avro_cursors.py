"""Avro values read at many places at once: a cursor stands at each place, and all read the same field in one step.

A step is a few operations on arrays.  It takes about as long as reading some values one by one, whatever the number
of cursors is; with thousands of cursors a value costs a few nanoseconds.

Bytes are untrusted.  Each cursor has an end that it must not pass: lengths and counts are compared with the bytes that
are left before it.  A cursor at unexpected bytes is marked, and what it reads from then on means nothing.  Numbers of
more than 56 bits are marked too.

Source: the Apache Avro specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from bitlake.lazy_modules import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Int64s: TypeAlias = npt.NDArray[np.int64]
    Words: TypeAlias = npt.NDArray[np.uint64]

NO_NUMBER = -1
"""What stands for null in arrays of numbers."""
LONG_TEXT = 512
"""Texts of more bytes are not looked at here."""
_PAD = 4_096
"""Zero bytes behind the last place: what a cursor can read beyond its end before it is checked."""
_MOST_ITEMS = 1 << 14
"""An array of more items is marked: each item takes a step.  A table of 15,000 columns has fewer."""
_UNEVEN, _FEW_ITEMS = 8, 64
"""An array with this many times the average's items is marked: the others would wait for it."""
_HIGH_BITS, _LOW_BITS = 0x8080808080808080, 0x7F7F7F7F7F7F7F7F
_ONES = 0x0101010101010101


def padded(pieces: Sequence[bytes]) -> Bytes:
    """Pieces one after the other, with the bytes behind them that cursors need."""
    return np.frombuffer(b"".join([*pieces, bytes(_PAD)]), np.uint8)


@cache
def _zigzag() -> Int64s:
    """The numbers of one byte."""
    return np.array([(b >> 1) ^ -(b & 1) for b in range(256)], np.int64)


@cache
def _masks() -> Words:
    """The word whose n lowest bytes are set, n from 0 to 8."""
    return np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def word_view(data: Bytes) -> Words:
    """The eight bytes from any place on, as a little-endian number."""
    return np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))


def spread(present: Bools, values: Int64s | None, default: int = NO_NUMBER) -> Int64s:
    """The values of those that are present, ``default`` for the others; see :meth:`Cursors.maybe`."""
    if values is not None and len(values) == len(present):
        return values
    out = np.full(len(present), default, np.int64)
    if values is not None:
        out[present] = values
    return out


class Cursors:
    """Places in padded bytes that read alike; mutable: reading moves them.

    Each of them must stay before ``ends``.  One that does not, or that meets something unexpected, is marked in
    ``bad``; what it reads from then on stays within the buffer.
    """

    __slots__ = ("at", "bad", "data", "ends", "words")

    def __init__(self, data: Bytes, at: Int64s, ends: Int64s, words: Words | None = None) -> None:
        self.data = data
        self.words = word_view(data) if words is None else words
        self.at = at
        self.ends = ends
        self.bad: Bools = np.zeros(len(at), bool)

    def part(self, which: Int64s) -> Cursors:
        """Some of the cursors, to be joined again."""
        return Cursors(self.data, self.at[which], self.ends[which], self.words)

    def join(self, which: Int64s, moved: Cursors) -> None:
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
            return _zigzag().take(first)
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

    def maybe(self, read: Callable[[Cursors], Any]) -> tuple[Bools, Any]:
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

    def array(self, item: Callable[[Cursors], Any], quick: Callable[[Cursors, int], bool] | None = None) -> None:
        """Move over an array of one block, or of none; ``quick`` may move over all items of arrays of one length."""
        count = self.size()
        most = int(count.max(initial=0))
        if not most:
            return
        if most > _MOST_ITEMS:
            self.mark(count > _MOST_ITEMS)
            count = np.where(self.bad, 0, count)
            most = int(count.max())
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

    def texts(self) -> None:
        """Move over an array of strings."""
        self.array(Cursors.text)

    def longs(self) -> None:
        """Move over an array of numbers."""
        self.array(Cursors.long)

    def null_counts(self) -> None:
        """Move over an array of numbers that may be null."""
        self.array(_null_item, _one_byte_counts)

    def repeated(self, read: Callable[[Cursors], list[Int64s]]) -> tuple[Bools, list[Int64s]]:
        """What ``read`` gives, for a section of which most cursors have the same bytes, and which have those.

        The first cursor's section is read, and the bytes of the others are compared with it; only those that differ
        are read.  The numbers must not depend on the section's place.
        """
        differ: Bools = np.ones(len(self.at), bool)
        if len(self.at) < 2:
            return ~differ, read(self)
        first = self.part(np.zeros(1, np.int64))
        values = read(first)
        size = int(first.at[0] - self.at[0])
        if first.bad[0] or not 0 < size <= LONG_TEXT:
            return ~differ, read(self)
        differ = self._differ_from_first(size)
        others = np.flatnonzero(differ)
        if 2 * len(others) > len(differ):
            return ~differ, read(self)
        out = [np.full(len(self.at), value[0], np.int64) for value in values]
        rest = self.part(others)
        self.at = self.at + size
        if len(others):
            for column, value in zip(out, read(rest), strict=True):
                column[others] = value
            self.join(others, rest)
        self.mark(self.at > self.ends)
        return ~differ, out

    def _differ_from_first(self, size: int) -> Bools:
        """Whether the next bytes are others than those at the first cursor."""
        words = _rows_of_words(self.data, self.at, size)
        words ^= words[0].copy()
        words[:, -1] &= _masks()[size - 8 * (words.shape[1] - 1)]
        differ: Bools = np.zeros(len(words), bool)
        if words.any():
            np.any(words, axis=1, out=differ)
        return differ


def _one_byte_counts(cursors: Cursors, count: int) -> bool:
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


def _null_item(cursors: Cursors) -> None:
    cursors.maybe(Cursors.long)


# --- texts ------------------------------------------------------------------------------------------------------------


class Texts:
    """Texts of up to :data:`LONG_TEXT` bytes, eight bytes to a word; of longer ones the first bytes."""

    __slots__ = ("sizes", "words")

    def __init__(self, data: Bytes, at: Int64s, sizes: Int64s) -> None:
        self.sizes = sizes
        held = np.minimum(sizes, LONG_TEXT)
        self.words: list[Words] = []
        """The n-th word of each text, zero behind its end."""
        rows = _rows_of_words(data, at, int(held.max(initial=0)))
        whole = int(held.min(initial=LONG_TEXT)) // 8
        for number in range(rows.shape[1]):
            word = rows[:, number]
            self.words.append(word if number < whole else word & _masks()[np.clip(held - 8 * number, 0, 8)])

    def have_odd_bytes(self, others: bytes) -> Bools:
        """Which have a byte beyond ASCII or one of the ``others``; long ones always do."""
        odd: Bools = self.sizes > LONG_TEXT
        high = np.zeros(len(odd), np.uint64)
        whole = int(self.sizes.min(initial=LONG_TEXT)) // 8
        for number, word in enumerate(self.words):
            if number >= whole:  # letters behind the end
                word = word | (~_masks()[np.clip(self.sizes - 8 * number, 0, 8)] & np.uint64(_ONES * ord("a")))
            high |= word
            for byte in others:
                other = word ^ np.uint64(_ONES * byte)
                high |= (other - np.uint64(_ONES)) & ~other
        odd |= (high & _HIGH_BITS) != 0
        return odd

    def hashes(self) -> Words:
        """A hash of each text: of its first bytes, and of how many there are."""
        factor = 0x9E3779B97F4A7C15
        hashes = self.sizes.astype(np.uint64) * np.uint64(factor)
        for number, word in enumerate(self.words):
            # Zeros behind a text's end add nothing: its hash is the same whatever texts are beside it.
            mixed = word * np.uint64((factor * (2 * number + 3)) & 0xFFFFFFFFFFFFFFFF)
            hashes ^= (mixed ^ (mixed >> np.uint64(29))) * np.uint64(factor)
        return hashes

    def changes(self) -> Bools:
        """Which differ from the text before; the first and long ones always do."""
        differ: Bools = np.ones(len(self.sizes), bool)
        differ[1:] = (self.sizes[1:] != self.sizes[:-1]) | (self.sizes[1:] > LONG_TEXT)
        for word in self.words:
            differ[1:] |= word[1:] != word[:-1]
        return differ


def _rows_of_words(data: Bytes, at: Int64s, size: int) -> Words:
    """For each place the words that hold the next ``size`` bytes: one access for a row is quicker than one a word."""
    width = -(-size // 8)
    if not width:
        return np.zeros((len(at), 0), np.uint64)
    kind = np.dtype(f"V{8 * width}")
    rows: Words = np.ndarray((len(data) - 8 * width + 1,), kind, data, strides=(1,))[at].view(np.uint64)
    return rows.reshape(-1, width)
