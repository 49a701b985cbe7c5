"""Asking all indexes of one data file about a predicate.

An index that cannot be read never makes an answer wrong: its leaf stays unanswered, so every row can match, and the
reason is kept in :attr:`OpenIndex.problems` for whoever counts and shows warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.errors import BitlakeError, CorruptError
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Leaf, Like, Op, Or, Predicate
from bitlake.fileindex.bitmap import BitmapReader
from bitlake.fileindex.container import EMPTY, FIXED_LENGTH, header_length, read_header
from bitlake.fileindex.cost import Asked, Guide
from bitlake.fileindex.keyed import ValueCounts, physical_value, telling
from bitlake.fileindex.lazy_bytes import Fetch, Window
from bitlake.fileindex.range_bitmap import RangeBitmapReader
from bitlake.fileindex.registry import INDEX_TYPES, IndexReader, indexed_type
from bitlake.fileindex.selection import Selection
from bitlake.types import DataField

T = TypeVar("T")
_AHEAD = 16 * 1024
"""Fetched at first: the header, and the whole of small containers."""


class OpenIndex:
    """The indexes of one data file; get one from :func:`open_index`.  Readers and their bytes are kept."""

    def __init__(self, window: Window, fields: Sequence[DataField], row_count: int, strict: bool) -> None:
        self._window = window
        self._fields = tuple(fields)
        self._row_count = row_count
        self._strict = strict
        self._readers: dict[tuple[str, str], IndexReader | None] = {}
        self.columns: Mapping[str, Mapping[str, tuple[int, int]]] = {}
        """Column → index type → (start, length) in the container."""
        self.problems: list[str] = []
        """What could not be read, each told once: column, index type and reason."""
        try:
            self.columns = self._header()
        except BitlakeError as e:
            self._problem("the file index", e)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self._window.bytes_read

    def evaluate(self, predicate: Predicate, guide: Guide | None = None, spared: list[str] | None = None) -> Selection:
        """The rows for which a bound predicate can be TRUE.

        ``guide`` may spare an index that is not worth reading; why is added to ``spared``.

        A column without an index, or whose index cannot tell, leaves every row possible.  Several indexes of a column
        are asked until one is exact.  Never raises for what is in the bytes, unless opened ``strict``.
        """
        return self._evaluate(predicate, _Asking(guide, [] if spared is None else spared, self._row_count))

    def _evaluate(self, predicate: Predicate, asking: _Asking) -> Selection:
        match predicate:
            case Constant(value):
                return Selection.all(exact=True) if value else Selection.none()
            case And(children):
                return self._all_of(children, asking)
            case Or(children):
                found = Selection.none()
                for child in children:
                    found |= self._evaluate(child, replace(asking, also=()))
                    if found == _EVERY:
                        break
                return found
            case Comparison() | In() | Like() | IsNull():
                return self._leaf(predicate, asking)
            case _:  # Not and Between are gone once bound
                return Selection.all()

    def _all_of(self, children: Sequence[Predicate], asking: _Asking) -> Selection:
        """The rows for which all of these can be TRUE.

        An index that is not worth reading for many rows may be for the few that others leave: these are looked at last.
        """
        found = Selection.all(exact=True)
        waiting: list[tuple[Predicate, list[str]]] = []
        for child in sorted(children, key=_late) if asking.guide is not None else children:
            why: list[str] = []
            answer = self._evaluate(child, asking.after(found, self._row_count, _also(child, children), why))
            if why and answer == _EVERY:
                waiting.append((child, why))
            else:
                asking.spared.extend(why)
                found &= answer
            if found.is_empty:
                break
        for child, why in waiting:
            answer = _EVERY
            if not found.is_empty and found.rows is not None:
                why.clear()
                answer = self._evaluate(child, asking.after(found, self._row_count, _also(child, children), why))
            asking.spared.extend(why)
            found &= answer
        return found

    def reader(self, column: str, index_type: str) -> IndexReader | None:
        """The reader of one index, or None: not there, without rows, of an unknown type, or unreadable."""
        place = self.columns.get(column, {}).get(index_type)
        if place is None or place == EMPTY:
            return None
        key = (column, index_type)
        if key not in self._readers:
            try:
                self._readers[key] = self._open(column, index_type, *place)
            except BitlakeError as e:
                self._readers[key] = None
                self._problem(f"index '{index_type}' of column '{column}'", e)
        return self._readers[key]

    def ask(self, column: str, index_type: str, question: Callable[[IndexReader], T | None]) -> T | None:
        """Ask one index; None when it is not there, cannot tell, or fails (then it is not asked again)."""
        reader = self.reader(column, index_type)
        if reader is None:
            return None
        try:
            return question(reader)
        except BitlakeError as e:
            self._readers[column, index_type] = None
            self._problem(f"index '{index_type}' of column '{column}'", e)
            return None

    def top_n(
        self,
        column: str,
        k: int,
        descending: bool,
        nulls_first: bool,
        found: BitMap | None = None,
        strict: bool = True,
    ) -> BitMap | None:
        """The rows with the k largest or smallest values of a column among ``found`` (None: all rows).

        None without a range-bitmap.  ``strict``: exactly k rows, if there are; else with all that tie for the last
        place, as sorting by further columns needs.
        """

        def question(reader: IndexReader) -> BitMap | None:
            if not isinstance(reader, RangeBitmapReader):
                return None
            return reader.top_n(k, descending, nulls_first, found, strict)

        return self.ask(column, "range-bitmap", question)

    def ranked(self, column: str, rows: BitMap) -> tuple[Int64s, Int64s, list[Any]] | None:
        """Of ``rows`` not NULL: their positions, and each one's place in the distinct physical values, ascending.

        None without a range-bitmap, or where its keys are not the values.
        """

        def question(reader: IndexReader) -> tuple[Int64s, Int64s, list[Any]] | None:
            if not isinstance(reader, RangeBitmapReader) or not telling(reader.keys):
                return None
            positions, ranks, keys = reader.ranked(rows)
            return positions, ranks, [physical_value(reader.keys, key) for key in keys.to_pylist()]

        return self.ask(column, "range-bitmap", question)

    def value_counts(self, column: str, rows: BitMap | None = None) -> ValueCounts | None:
        """How many of ``rows`` (None: of all) have each value of a column, or None when no index can tell."""
        return self._told(column, lambda r: r.value_counts(rows) if isinstance(r, _COUNTING) else None)

    def distinct(self, column: str) -> pa.Array | None:
        """The distinct values of a column's rows, without NULL, or None when no index can tell."""
        return self._told(column, lambda r: r.distinct() if isinstance(r, _COUNTING) else None)

    def extremes(self, column: str, rows: BitMap | None = None) -> pa.Array | None:
        """Smallest and largest value among ``rows`` (in that order, one if equal, none if all are NULL) or None."""
        return self._told(column, lambda r: r.extremes(rows) if isinstance(r, RangeBitmapReader) else None)

    def null_count(self, column: str, rows: BitMap | None = None) -> int | None:
        """How many of ``rows`` (None: of all) are NULL in a column, or None when no index can tell."""

        def question(reader: IndexReader) -> int | None:
            found = reader.test(IsNull(column))
            if found is None or not found.exact:
                return None
            if rows is None or found.rows is None:
                return found.count(self._row_count if rows is None else len(rows))
            return found.rows.intersection_cardinality(rows)

        return self._told(column, question)

    def _told(self, column: str, question: Callable[[IndexReader], T | None]) -> T | None:
        for index_type in sorted(self.columns.get(column, ()), key=_asking_order):
            answer = self.ask(column, index_type, question)
            if answer is not None:
                return answer
        return None

    def _leaf(self, leaf: Leaf, asking: _Asking) -> Selection:
        found = Selection.all()
        here = self.columns.get(leaf.column, {})
        for index_type in sorted(here, key=_asking_order):
            guide = asking.guide
            if guide is not None:
                asked = Asked(leaf, here[index_type][1], asking.left, asking.also, asking.rows)
                why = self.ask(leaf.column, index_type, lambda r: guide.why_not(r, asked))  # noqa: B023
                if why is not None:
                    asking.spared.append(f"{index_type}({leaf.column}): {why}")
                    continue
            answer = self.ask(leaf.column, index_type, lambda reader: reader.test(leaf))
            if answer is not None:
                found = found.both(answer)
            if found.exact:
                break
        return found

    def _header(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        prefix = self._window.view(0, FIXED_LENGTH)
        length = header_length(prefix)
        header = read_header(self._window.view(0, length), self._window.length)
        if header.checksums is not None:
            self._window.check(header.checksums)
        return header.columns

    def _open(self, column: str, index_type: str, start: int, length: int) -> IndexReader | None:
        known = indexed_type(column, self._fields)
        index = INDEX_TYPES.get(index_type)
        if index is None:
            raise CorruptError(f"index type '{index_type}' is not known")
        if known is None:
            raise CorruptError(f"the file has no column '{column}'")
        window = self._window

        def fetch(offset: int, n: int) -> memoryview:
            return window.view(start + offset, n, ahead=0)

        return index.open(known[2], fetch, length, self._row_count)

    def _problem(self, where: str, error: BitlakeError) -> None:
        if self._strict:
            if isinstance(error, CorruptError):
                raise CorruptError(f"{where}: {error.what}", error.offset) from error
            raise CorruptError(f"{where}: {error}") from error
        self.problems.append(f"{where}: {error}")


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who decides which index is read, what was spared, how many rows are possible yet, and what else must hold.

    ``rows``: which they are; None: not known one by one.
    """

    guide: Guide | None
    spared: list[str]
    left: int
    also: Sequence[Leaf] = ()
    rows: BitMap | None = None

    def after(self, found: Selection, row_count: int, also: Sequence[Leaf], spared: list[str]) -> _Asking:
        """The same when only rows of ``found`` are possible."""
        rows = self.rows if found.rows is None else found.rows
        return _Asking(self.guide, spared, min(self.left, found.count(row_count)), also, rows)


def _late(predicate: Predicate) -> int:
    """Equality first: it reads least and leaves least."""
    match predicate:
        case Comparison(_, Op.EQ, _) | IsNull(_, False):
            return 0
        case In(_, _, False):
            return 1
    return 2


def _also(child: Predicate, children: Sequence[Predicate]) -> Sequence[Leaf]:
    """The other ends of the range that a comparison is one end of."""
    if not isinstance(child, Comparison) or child.op not in _OTHER_END:
        return ()
    wanted = _OTHER_END[child.op]
    return [c for c in children if isinstance(c, Comparison) and c.column == child.column and c.op in wanted]


_OTHER_END = {Op.GT: (Op.LT, Op.LE), Op.GE: (Op.LT, Op.LE), Op.LT: (Op.GT, Op.GE), Op.LE: (Op.GT, Op.GE)}


_COUNTING = (BitmapReader, RangeBitmapReader)
_EVERY = Selection.all()
_ORDER = {name: i for i, name in enumerate(INDEX_TYPES)}


def _asking_order(index_type: str) -> int:
    return _ORDER.get(index_type, len(_ORDER))


def open_index(
    fetch: Fetch, length: int, fields: Sequence[DataField], row_count: int, strict: bool = False
) -> OpenIndex:
    """Open a container of ``length`` bytes behind ``fetch(offset, length)``.

    ``fields``: of the schema the data file was written with; ``row_count``: of the data file.  Reads the header only.
    An unreadable container has no columns and one problem; ``strict``: raises :class:`CorruptError` for any problem,
    here and in :meth:`OpenIndex.evaluate`.
    """
    return OpenIndex(Window(fetch, length, _AHEAD), fields, row_count, strict)
