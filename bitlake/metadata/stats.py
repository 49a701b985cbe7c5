"""Column statistics of data files: built for manifests, and read back lazily for planning.

Bounds are BinaryRows over the covered columns: ``_VALUE_STATS_COLS`` null covers every column of the file's schema, a
list covers exactly those in that order.

:class:`FileStats` reads the statistics of one file.  :func:`column_bounds` reads those of many files, with the same
result: all their BinaryRows (:mod:`bitlake.codec.binary_row`) are decoded at once, column by column.  Rows of one
arity have a field's slot at one offset, so the slots are gathered from the rows joined together; values outside of
their slot are checked and gathered likewise.

Source: table-format spec, section 4.

Formats whose footers have no statistics (ORC, Avro) compute them from Arrow data (:class:`TableBounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitlake.codec.binary_row import (
    decode_arity,
    encode_row_with_arity,
    field_decoder,
    is_fine_timestamp,
    is_wide_decimal,
    null_bytes,
    units_per_milli,
)
from bitlake.errors import CorruptError
from bitlake.expressions.statistics import Bools, ColumnBounds, ColumnStats, Form, Int64s, NotVectorised, Values
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata.manifest import DataFileMeta, SimpleStats
from bitlake.metadata.option_types import StatsMode
from bitlake.metadata.options import STATS_DENSE, STATS_KEEP_FIRST
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import by_identity
from bitlake.types import AtomicType, DataField, DataType, Root
from bitlake.types.arrow import physical_values
from bitlake.types.datatypes import BINARIES, FLOATS, STRINGS, is_scalar

if TYPE_CHECKING:
    import numpy.typing as npt

    _UInt64s = npt.NDArray[np.uint64]


_NONE = StatsMode("none")


@dataclass(frozen=True, slots=True)
class StatsPlan:
    """What to keep: a mode per column of a schema, and whether columns without statistics are left out (dense)."""

    modes: tuple[StatsMode, ...]
    dense: bool = True


def stats_modes(schema: TableSchema) -> StatsPlan:
    """The statistics to keep of an append table's columns, from its options."""
    options = schema.opts
    keep = options.of(STATS_KEEP_FIRST)
    modes = []
    for i, f in enumerate(schema.fields):
        own = f"fields.{f.name}.stats-mode" in options
        modes.append(options.stats_mode(f.name) if own or keep < 0 or i < keep else _NONE)
    return StatsPlan(tuple(modes), options.of(STATS_DENSE))


def build_stats(
    fields: Sequence[DataField],
    mins: Sequence[Any],
    maxs: Sequence[Any],
    null_counts: Sequence[int | None],
    modes: StatsPlan | Sequence[StatsMode],
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Statistics for a manifest, and which columns they cover (None: all, in schema order).

    ``mins`` and ``maxs`` are exact physical bounds (None where unknown or all rows are NULL), one per field like
    ``null_counts``.  Strings and binaries are cut as their mode says; nested columns never have statistics.
    """
    plan = modes if isinstance(modes, StatsPlan) else StatsPlan(tuple(modes))
    names, types, lows, highs, nulls = [], [], [], [], []
    for field, low, high, count, mode in zip(fields, mins, maxs, null_counts, plan.modes, strict=True):
        if not is_scalar(field.type):
            mode = _NONE
        if mode.kind == "none":
            low = high = count = None
        elif mode.kind == "counts":
            low = high = None
        elif mode.kind == "truncate":
            low, high = truncate_bounds(low, high, mode.length)
        if plan.dense and low is None and high is None and count is None:
            continue
        names.append(field.name)
        types.append(field.type)
        lows.append(low)
        highs.append(high)
        nulls.append(count)
    stats = SimpleStats(encode_row_with_arity(types, lows), encode_row_with_arity(types, highs), tuple(nulls))
    return stats, None if len(names) == len(fields) else tuple(names)


def truncate_bounds(low: Any, high: Any, length: int) -> tuple[Any, Any]:
    """Cut string bounds to ``length`` code points and binary ones to as many bytes; the result still bounds.

    The cut maximum is raised in its last unit that can be; if none can, both bounds are dropped, as in Paimon.
    """
    if isinstance(high, (str, bytes)) and len(high) > length:
        high = _raised_text(high[:length]) if isinstance(high, str) else _raised_bytes(high[:length])
        if high is None:
            return None, None
    if isinstance(low, (str, bytes)):
        low = low[:length]
    return low, high


def _raised_text(text: str) -> str | None:
    for i in range(len(text) - 1, -1, -1):
        unit = ord(text[i])
        if unit < 0x10FFFF:
            # After U+D7FF come the surrogates, which are not characters (Paimon writes '?' there, too small a bound).
            return text[:i] + chr(0xE000 if unit == 0xD7FF else unit + 1)
    return None


def _raised_bytes(data: bytes) -> bytes | None:
    kept = data.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


# --- one file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a column is in the statistics rows, and how to read it from one."""

    index: int
    decode: Callable[[bytes], Any]
    # Asked of every file, so not worked out from the type each time (hashing an enum member is slow).
    is_float: bool = False
    is_text: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Layout:
    """The statistics rows of files with one schema and one list of covered columns."""

    arity: bytes
    """As the rows begin: big-endian int32."""
    least: int
    """Bytes that a row of this arity has at least."""
    places: dict[str, _Place]


@by_identity
def _layouts(fields: tuple[DataField, ...]) -> Callable[[tuple[str, ...] | None], _Layout]:
    """From columns to the layout of files of a schema: to hash a wide schema for each file would cost more."""
    types = {f.name: f.type for f in fields}

    @lru_cache(64)
    def of_columns(columns: tuple[str, ...] | None) -> _Layout:
        names = tuple(types) if columns is None else columns
        places = {n: _place(types[n], len(names), i) for i, n in enumerate(names) if n in types}
        return _Layout(len(names).to_bytes(4, "big"), 4 + null_bytes(len(names)) + 8 * len(names), places)

    return of_columns


def _place(made: DataType, arity: int, index: int) -> _Place:
    if not is_scalar(made):
        return _Place(index, lambda row: None)
    root, decode = made.root, field_decoder(made, arity, index)
    is_text = root in STRINGS
    return _Place(index, decode, root in FLOATS, is_text, is_text or root in BINARIES)


class FileStats(Mapping[str, ColumnStats]):
    """A file's column statistics by column name, each decoded when first asked for.

    Columns without statistics are absent.  Reading raises :class:`CorruptError` for damaged rows.
    """

    __slots__ = ("_decoded", "_layout", "_stats")

    def __init__(self, stats: SimpleStats, fields: tuple[DataField, ...], columns: tuple[str, ...] | None) -> None:
        self._stats = stats
        self._layout = _layouts(fields)(columns)
        self._decoded: dict[str, ColumnStats] | None = None

    def __getitem__(self, name: str) -> ColumnStats:
        place = self._layout.places[name]
        known = self._decoded
        if known is None:
            self._check()
            known = self._decoded = {}
        stats = known.get(name)
        if stats is None:
            stats = known[name] = self._decode(place)
        return stats

    def get(self, name: str, default: Any = None) -> Any:
        """The column's statistics, or ``default`` if it has none."""
        return self[name] if name in self._layout.places else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.places)

    def __len__(self) -> int:
        return len(self._layout.places)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.places

    def _check(self) -> None:
        stats, layout = self._stats, self._layout
        for row in (stats.min, stats.max):
            if not row.startswith(layout.arity) or len(row) < layout.least:
                expected = int.from_bytes(layout.arity, "big")
                raise CorruptError(f"statistics of {decode_arity(row)} columns stand where {expected} are listed")

    def _decode(self, place: _Place) -> ColumnStats:
        stats = self._stats
        counts = stats.null_counts
        nulls = counts[place.index] if counts is not None and place.index < len(counts) else None
        low, high = place.decode(stats.min), place.decode(stats.max)
        if place.is_float:
            # Java orders NaN last, other writers leave it out: a NaN bound proves nothing.
            low = None if low != low else low
            high = None if high != high else high
        if place.is_text and high is not None and high.endswith("?"):
            # Perhaps Paimon's mark of a bound it could not raise past U+D7FF; U+E000 there bounds either way.
            high = high[:-1] + "\ue000"
        return ColumnStats(low, high, nulls, place.is_cut)


def column_stats(file: DataFileMeta, fields: Sequence[DataField]) -> FileStats:
    """The statistics of a file's columns by name; ``fields`` are those of the schema the file was written with."""
    return FileStats(file.value_stats, tuple(fields), file.value_stats_cols)


# --- many files at once -----------------------------------------------------------------------------------------------

_SIGNED = {
    Root.TINYINT: ("uint8", "int8"),
    Root.SMALLINT: ("uint16", "int16"),
    Root.INT: ("uint32", "int32"),
    Root.DATE: ("uint32", "int32"),
    Root.TIME: ("uint32", "int32"),
}
_RAISED = "\ue000".encode()


def column_bounds(
    stats: Sequence[SimpleStats], fields: Sequence[DataField], columns: tuple[str, ...] | None, wanted: Sequence[str]
) -> dict[str, ColumnBounds | None]:
    """The wanted columns' statistics of files with one schema (``fields``) and one list of covered ``columns``.

    None for a column without statistics.  Raises :class:`CorruptError` when any row is damaged (without saying which:
    read it file by file to learn that), and :class:`NotVectorised` for values beyond this module.
    """
    lows, highs = StatsRows.of([s.min for s in stats]), StatsRows.of([s.max for s in stats])
    return rows_bounds(lows, highs, lambda i: _null_counts(stats, i), fields, columns, wanted)


def rows_bounds(
    lows: StatsRows,
    highs: StatsRows,
    null_counts: Callable[[int], Int64s],
    fields: Sequence[DataField],
    columns: tuple[str, ...] | None,
    wanted: Sequence[str],
) -> dict[str, ColumnBounds | None]:
    """:func:`column_bounds` of statistics rows that lie in a buffer; ``null_counts``: those of the i-th column."""
    types = {f.name: f.type for f in fields}
    names = tuple(types) if columns is None else columns
    places = {n: i for i, n in enumerate(names) if n in types}
    bounds: dict[str, ColumnBounds | None] = dict.fromkeys(wanted)
    stored = [n for n in wanted if n in places]
    if not stored:
        return bounds
    low_rows, high_rows = _Rows(lows, len(names)), _Rows(highs, len(names))
    count = len(lows.starts)
    for name in stored:
        i, kind = places[name], types[name]
        nulls = null_counts(i)
        if not is_scalar(kind):
            unknown = np.zeros(count, bool)
            zeros = np.zeros(count, np.int64)
            bounds[name] = ColumnBounds(Form.INTEGER, zeros, zeros, unknown, unknown, nulls, False)
            continue
        form, low, has_low = _column_values(low_rows, kind, i)
        _, high, has_high = _column_values(high_rows, kind, i)
        if form is Form.TEXT:
            high = _past_question_marks(high)
        bounds[name] = ColumnBounds(form, low, high, has_low, has_high, nulls, form in (Form.TEXT, Form.BINARY))
    return bounds


def _null_counts(stats: Sequence[SimpleStats], i: int) -> Int64s:
    try:
        return np.array([s.null_counts[i] for s in stats], np.int64)  # type: ignore[index]
    except (TypeError, IndexError):  # some are unknown
        pass
    counts = [None if s.null_counts is None or i >= len(s.null_counts) else s.null_counts[i] for s in stats]
    return np.array([-1 if c is None else c for c in counts], np.int64)


@dataclass(frozen=True, slots=True)
class StatsRows:
    """BinaryRows with arity in a buffer: where each begins, and its bytes."""

    data: npt.NDArray[np.uint8]
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def of(rows: Sequence[bytes]) -> StatsRows:
        """Rows, joined."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return StatsRows(np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths)


class _Rows:
    """Statistics rows of one arity."""

    def __init__(self, rows: StatsRows, arity: int) -> None:
        self.data = rows.data
        self.lengths = rows.lengths
        self.starts = rows.starts
        self.fixed = 4 + null_bytes(arity)
        if len(self.lengths) and int(self.lengths.min()) < self.fixed + 8 * arity:
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


def _column_values(rows: _Rows, made: AtomicType, i: int) -> tuple[Form, Values, Bools]:
    known, slots = rows.known(i), rows.slots(i)
    root = made.root
    if root in STRINGS or root in BINARIES:
        return _byte_values(rows, i, slots, known, root in STRINGS)
    if is_wide_decimal(made):
        return Form.WIDE, _wide_decimals(rows, i, slots, known), known
    if is_fine_timestamp(made):
        return Form.INTEGER, _fine_timestamps(rows, made, i, slots, known), known
    if root is Root.BOOLEAN:
        return Form.INTEGER, (slots & np.uint64(0xFF) != 0).astype(np.int64), known
    if root in FLOATS:
        with np.errstate(invalid="ignore"):
            doubles = (
                slots.astype(np.uint32).view(np.float32).astype(np.float64)
                if root is Root.FLOAT
                else slots.view(np.float64)
            )
        # Java orders NaN last, other writers leave it out: a NaN bound proves nothing.
        return Form.FLOAT, doubles, known & ~np.isnan(doubles)
    if root in _SIGNED:
        unsigned, signed = _SIGNED[root]
        return Form.INTEGER, slots.astype(unsigned).view(signed).astype(np.int64), known
    return Form.INTEGER, slots.view(np.int64), known


def _byte_values(rows: _Rows, i: int, slots: _UInt64s, known: Bools, text: bool) -> tuple[Form, pa.Array, Bools]:
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
    """As :class:`FileStats` raises bounds that Paimon cut at U+D7FF."""
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


def _wide_decimals(rows: _Rows, i: int, slots: _UInt64s, known: Bools) -> pa.Array:
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


def _fine_timestamps(rows: _Rows, made: AtomicType, i: int, slots: _UInt64s, known: Bools) -> Int64s:
    nanos = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if np.any(known & (nanos > 999_999)):
        raise CorruptError("more than 999,999 nanoseconds in a millisecond")
    eight = np.full(len(slots), 8, np.int64)
    millis = np.where(known, rows.numbers(rows.pieces(i, slots, eight, known)), 0)
    units = units_per_milli(made)
    if len(millis) and max(-int(millis.min()), int(millis.max())) >= (1 << 62) // units:
        raise NotVectorised
    return millis * units + nanos * units // 1_000_000


class Bounds:
    """Smallest and largest physical value of a column, and how many NULLs and NaNs it has; a nested one has neither."""

    def __init__(self, column: DataField) -> None:
        self.field = column
        self.plain = is_scalar(column.type)
        self.low: Any = None
        self.high: Any = None
        self.nulls = self.nans = 0

    def add(self, column: Any) -> None:
        """Count a batch of the column, in the field's Arrow type."""
        self.nulls += column.null_count
        if not self.plain or column.null_count == len(column):
            return
        if pa.types.is_floating(column.type):
            nan = pc.is_nan(column)
            held = pc.sum(nan).as_py() or 0
            self.nans += held
            column = column.filter(pc.invert(nan)) if held else column
        both = pc.min_max(column)
        low, high = physical_values(pa.array([both["min"], both["max"]], column.type))
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)


class TableBounds:
    """Smallest and largest value and NULLs of each column: :meth:`add` tables in the fields' Arrow types, then ask.

    As in a Parquet footer: a column that holds NaN has no bounds, nor has a nested one, whose NULLs are unknown too.
    """

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._columns = [Bounds(f) for f in fields]

    def add(self, table: pa.Table) -> None:
        """Count rows; the columns are the fields, in order."""
        for bounds, column in zip(self._columns, table.columns, strict=True):
            bounds.add(column)

    def result(self) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int | None, ...]]:
        """(mins, maxs, null counts), physical and untruncated; None where unknown."""
        lows = tuple(_bound(b, b.low, -0.0) for b in self._columns)
        highs = tuple(_bound(b, b.high, 0.0) for b in self._columns)
        return lows, highs, tuple(b.nulls if b.plain else None for b in self._columns)


def _bound(bounds: Bounds, value: Any, zero: float) -> Any:
    """A bound, None beside NaN.  0.0 and -0.0 are equal here but not in a Java comparison of bounds."""
    if bounds.nans:
        return None
    return zero if isinstance(value, float) and value == 0 else value
