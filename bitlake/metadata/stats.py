"""Column statistics of data files: made for manifests, and read back lazily for planning.

Bounds are BinaryRows over the covered columns (table-format spec, section 4): ``_VALUE_STATS_COLS`` null covers every
column of the file's schema, a list covers exactly those in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.codec.binary_row import decode_arity, encode_row_with_arity, field_decoder, null_bytes
from bitlake.errors import CorruptError
from bitlake.expressions.statistics import ColumnStats
from bitlake.metadata.manifest import DataFileMeta, SimpleStats
from bitlake.metadata.option_types import StatsMode
from bitlake.metadata.options import STATS_DENSE, STATS_KEEP_FIRST
from bitlake.metadata.schema import TableSchema
from bitlake.types import AtomicType, DataField, DataType, Root
from bitlake.types.datatypes import BINARIES, STRINGS

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
        if not isinstance(field.type, AtomicType) or field.type.root is Root.VARIANT:
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


_layouts: dict[tuple[int, tuple[str, ...] | None], tuple[tuple[DataField, ...], _Layout]] = {}
_LAYOUTS_KEPT = 1024


def _layout(fields: tuple[DataField, ...], columns: tuple[str, ...] | None) -> _Layout:
    """Cached by the identity of ``fields``: hashing a wide schema for each file would cost more than all the rest."""
    key = (id(fields), columns)
    known = _layouts.get(key)
    if known is not None and known[0] is fields:
        return known[1]
    types = {f.name: f.type for f in fields}
    names = tuple(types) if columns is None else columns
    places = {n: _place(types[n], len(names), i) for i, n in enumerate(names) if n in types}
    made = _Layout(len(names).to_bytes(4, "big"), 4 + null_bytes(len(names)) + 8 * len(names), places)
    if len(_layouts) >= _LAYOUTS_KEPT:
        _layouts.clear()
    _layouts[key] = (fields, made)
    return made


def _place(made: DataType, arity: int, index: int) -> _Place:
    if not isinstance(made, AtomicType) or made.root is Root.VARIANT:
        return _Place(index, lambda row: None)
    root, decode = made.root, field_decoder(made, arity, index)
    is_text = root in STRINGS
    return _Place(index, decode, root in (Root.FLOAT, Root.DOUBLE), is_text, is_text or root in BINARIES)


class FileStats(Mapping[str, ColumnStats]):
    """A file's column statistics by column name, each decoded when first asked for.

    Columns without statistics are absent.  Reading raises :class:`CorruptError` for damaged rows.
    """

    __slots__ = ("_decoded", "_layout", "_stats")

    def __init__(self, stats: SimpleStats, fields: tuple[DataField, ...], columns: tuple[str, ...] | None) -> None:
        self._stats = stats
        self._layout = _layout(fields, columns)
        self._decoded: dict[str, ColumnStats] | None = None

    def __getitem__(self, name: str) -> ColumnStats:
        place = self._layout.places[name]
        known = self._decoded
        if known is None:
            self._check()
            known = self._decoded = {}
        found = known.get(name)
        if found is None:
            found = known[name] = self._decode(place)
        return found

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
            # Java orders NaN last, other writers leave it out: a NaN bound says nothing.
            low = None if low != low else low
            high = None if high != high else high
        if place.is_text and high is not None and high.endswith("?"):
            # Perhaps Paimon's mark of a bound it could not raise past U+D7FF; U+E000 there bounds either way.
            high = high[:-1] + "\ue000"
        return ColumnStats(low, high, nulls, place.is_cut)


def column_stats(file: DataFileMeta, fields: Sequence[DataField]) -> FileStats:
    """The statistics of a file's columns by name; ``fields`` are those of the schema the file was written with."""
    return FileStats(file.value_stats, tuple(fields), file.value_stats_cols)
