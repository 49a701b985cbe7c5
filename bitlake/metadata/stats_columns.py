"""Statistics of many files by column: one column of all their BinaryRows decoded at once.

The rows' layout is that of :mod:`bitlake.codec.binary_row`.  Rows of one arity have a field's slot at one offset, so
the slots are gathered from the rows joined together; values outside of their slot are checked and gathered likewise.
What comes out is what :class:`bitlake.metadata.stats.FileStats` says of each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.binary_row import is_fine_timestamp, is_wide_decimal, null_bytes, units_per_milli
from bitlake.errors import CorruptError
from bitlake.expressions.statistics_arrays import Bools, ColumnBounds, Form, Int64s, NotVectorised, Values
from bitlake.lazy_arrow import compute as pc
from bitlake.metadata.manifest import SimpleStats
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import BINARIES, STRINGS

_UInt64s = npt.NDArray[np.uint64]
_SIGNED = {
    Root.TINYINT: (np.uint8, np.int8),
    Root.SMALLINT: (np.uint16, np.int16),
    Root.INT: (np.uint32, np.int32),
    Root.DATE: (np.uint32, np.int32),
    Root.TIME: (np.uint32, np.int32),
}
_RAISED = "\ue000".encode()


def column_bounds(
    stats: Sequence[SimpleStats], fields: Sequence[DataField], columns: tuple[str, ...] | None, wanted: Sequence[str]
) -> dict[str, ColumnBounds | None]:
    """The wanted columns' statistics of files with one schema (``fields``) and one list of covered ``columns``.

    None for a column without statistics.  Raises :class:`CorruptError` when any row is damaged (without saying which:
    read it file by file to learn that), and :class:`NotVectorised` for values beyond this module.
    """
    types = {f.name: f.type for f in fields}
    names = tuple(types) if columns is None else columns
    places = {n: i for i, n in enumerate(names) if n in types}
    found: dict[str, ColumnBounds | None] = dict.fromkeys(wanted)
    there = [n for n in wanted if n in places]
    if not there:
        return found
    lows, highs = _Rows([s.min for s in stats], len(names)), _Rows([s.max for s in stats], len(names))
    for name in there:
        i, made = places[name], types[name]
        nulls = _null_counts(stats, i)
        if not isinstance(made, AtomicType) or made.root is Root.VARIANT:
            unknown = np.zeros(len(stats), bool)
            zeros = np.zeros(len(stats), np.int64)
            found[name] = ColumnBounds(Form.INTEGER, zeros, zeros, unknown, unknown, nulls, False)
            continue
        form, low, has_low = _column(lows, made, i)
        _, high, has_high = _column(highs, made, i)
        if form is Form.TEXT:
            high = _past_question_marks(high)
        found[name] = ColumnBounds(form, low, high, has_low, has_high, nulls, form in (Form.TEXT, Form.BINARY))
    return found


def _null_counts(stats: Sequence[SimpleStats], i: int) -> Int64s:
    try:
        return np.array([s.null_counts[i] for s in stats], np.int64)  # type: ignore[index]
    except (TypeError, IndexError):  # some are unknown
        pass
    counts = [None if s.null_counts is None or i >= len(s.null_counts) else s.null_counts[i] for s in stats]
    return np.array([-1 if c is None else c for c in counts], np.int64)


class _Rows:
    """BinaryRows with arity, joined."""

    def __init__(self, rows: list[bytes], arity: int) -> None:
        self.data = np.frombuffer(b"".join(rows), np.uint8)
        self.lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.fixed = 4 + null_bytes(arity)
        if len(rows) and int(self.lengths.min()) < self.fixed + 8 * arity:
            raise CorruptError("a statistics row is too short")
        if np.any(self._words(">i4", self.starts) != arity):
            raise CorruptError(f"a statistics row does not have {arity} columns")

    def _words(self, kind: str, at: Int64s) -> npt.NDArray[Any]:
        """Numbers at any byte offsets: through a view in which every byte starts one."""
        kind_ = np.dtype(kind)
        view: npt.NDArray[Any] = np.ndarray(
            (max(len(self.data) - kind_.itemsize + 1, 0),), kind_, self.data, strides=(1,)
        )
        return view[at]

    def known(self, i: int) -> Bools:
        bit = i + 8
        made: Bools = self.data[self.starts + 4 + (bit >> 3)] & np.uint8(1 << (bit & 7)) == 0
        return made

    def slots(self, i: int) -> _UInt64s:
        return self._words("<u8", self.starts + self.fixed + 8 * i)

    def pieces(self, i: int, slots: _UInt64s, lengths: Int64s, known: Bools) -> Int64s:
        """Where in ``data`` the piece of each row's field begins, checked; anywhere sound where not ``known``."""
        begin = 4 + (slots >> np.uint64(32)).astype(np.int64)
        bad = (begin < self.fixed + 8 * (i + 1)) | (begin + lengths > self.lengths)
        if np.any(bad & known):
            raise CorruptError("a value lies outside its statistics row")
        return np.where(known, self.starts + begin, 0)

    def numbers(self, at: Int64s) -> Int64s:
        """Little-endian int64s."""
        return self._words("<i8", at)

    def gather(self, at: Int64s, lengths: Int64s) -> pa.Array:
        """The bytes at these places as an Arrow array."""
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        where = np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])
        body = self.data[where]
        return pa.Array.from_buffers(pa.large_binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(body)])


def _column(rows: _Rows, made: AtomicType, i: int) -> tuple[Form, Values, Bools]:
    known, slots = rows.known(i), rows.slots(i)
    root = made.root
    if root in STRINGS or root in BINARIES:
        return _bytes(rows, i, slots, known, root in STRINGS)
    if is_wide_decimal(made):
        return Form.WIDE, _wide(rows, i, slots, known), known
    if is_fine_timestamp(made):
        return Form.INTEGER, _fine(rows, made, i, slots, known), known
    if root is Root.BOOLEAN:
        return Form.INTEGER, (slots & np.uint64(0xFF) != 0).astype(np.int64), known
    if root in (Root.FLOAT, Root.DOUBLE):
        with np.errstate(invalid="ignore"):
            doubles = (
                slots.astype(np.uint32).view(np.float32).astype(np.float64)
                if root is Root.FLOAT
                else slots.view(np.float64)
            )
        # Java orders NaN last, other writers leave it out: a NaN bound says nothing.
        return Form.FLOAT, doubles, known & ~np.isnan(doubles)
    if root in _SIGNED:
        unsigned, signed = _SIGNED[root]
        return Form.INTEGER, slots.astype(unsigned).view(signed).astype(np.int64), known
    return Form.INTEGER, slots.view(np.int64), known


def _bytes(rows: _Rows, i: int, slots: _UInt64s, known: Bools, text: bool) -> tuple[Form, pa.Array, Bools]:
    mark = (slots >> np.uint64(56)).astype(np.int64)
    inline = mark >= 0x80
    lengths = np.where(inline, mark & 0x7F, (slots & np.uint64(0xFFFFFFFF)).astype(np.int64))
    if np.any(known & inline & (lengths > 7)):
        raise CorruptError("an inline value of more than 7 bytes")
    begin = rows.pieces(i, slots, lengths, known & ~inline)
    begin = np.where(inline, rows.starts + rows.fixed + 8 * i, begin)
    values = rows.gather(begin, np.where(known, lengths, 0))
    if text:
        try:
            values.view(pa.large_string()).validate(full=True)
        except pa.ArrowInvalid as e:
            raise CorruptError("a string is not UTF-8") from e
    return Form.TEXT if text else Form.BINARY, values, known


def _past_question_marks(high: pa.Array) -> pa.Array:
    """As :class:`bitlake.metadata.stats.FileStats` raises bounds that Paimon cut at U+D7FF."""
    data = high.buffers()[2]
    if data is None or b"?" not in data.to_pybytes():
        return high  # hardly any has one, and so Arrow's kernels need not be loaded
    marked = pc.ends_with(high, pattern=b"?")
    if not marked.true_count:
        return high
    raised = pc.binary_join_element_wise(
        pc.binary_slice(high, 0, -1), pa.scalar(_RAISED, high.type), pa.scalar(b"", high.type)
    )
    return pc.if_else(marked, raised, high)


def _wide(rows: _Rows, i: int, slots: _UInt64s, known: Bools) -> pa.Array:
    """Minimal big-endian numbers as 16 bytes that sort like them."""
    lengths = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if np.any(known & ((lengths < 1) | (lengths > 16))):
        raise CorruptError("a decimal of no or of more than 16 bytes")
    lengths = np.where(known, lengths, 1)
    begin = rows.pieces(i, slots, lengths, known)
    source = begin[:, None] + np.arange(16) - (16 - lengths)[:, None]
    held = np.arange(16) >= (16 - lengths)[:, None]
    sign = (rows.data[begin] >> 7) * np.uint8(0xFF)
    words = np.where(held, rows.data[np.where(held, source, 0)], sign[:, None])
    words[:, 0] ^= 0x80
    offsets = np.arange(len(begin) + 1, dtype=np.int64) * 16
    return pa.Array.from_buffers(
        pa.large_binary(), len(begin), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    )


def _fine(rows: _Rows, made: AtomicType, i: int, slots: _UInt64s, known: Bools) -> Int64s:
    nanos = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if np.any(known & (nanos > 999_999)):
        raise CorruptError("more than 999,999 nanoseconds in a millisecond")
    eight = np.full(len(slots), 8, np.int64)
    millis = np.where(known, rows.numbers(rows.pieces(i, slots, eight, known)), 0)
    units = units_per_milli(made)
    if len(millis) and max(-int(millis.min()), int(millis.max())) >= (1 << 62) // units:
        raise NotVectorised
    return millis * units + nanos * units // 1_000_000
