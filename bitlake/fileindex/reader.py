"""Evaluate predicates with all indexes of one data file.

A damaged index never makes a result wrong: its leaf is not evaluated, so every row can match, and the reason is kept in
:attr:`FileIndexReader.problems`, which the planner counts and shows as warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError
from bitlake.expressions.evaluate import parts_of, places_in
from bitlake.expressions.indexed import has_members
from bitlake.expressions.term_groups import Ranges, Tuples, grouped_terms, tuples_of
from bitlake.expressions.text_functions import TextCondition, term_condition
from bitlake.expressions.tree import (
    And,
    Comparison,
    Constant,
    In,
    IndexedExpression,
    IsNull,
    Leaf,
    Like,
    Op,
    Or,
    Predicate,
    TupleIn,
    sorted_points,
)
from bitlake.fileindex import capabilities
from bitlake.fileindex.container import EMPTY, FIXED_LENGTH, header_length, read_header
from bitlake.fileindex.cost import SMALL_BYTES, SMALL_ROWS, IndexQuery, ReadPolicy, expected_bytes
from bitlake.fileindex.payload import Fetch, LazyBytes
from bitlake.fileindex.registry import by_column, evaluation_order, find_index_type
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.source import index_source
from bitlake.types import DataField
from bitlake.types.arrow import physical_values

T = TypeVar("T")
FIRST_BYTES = 16 * 1024
"""Fetched at first: the header, and the whole of small containers."""
_REMOTE_FETCH = 64 * 1024
"""Fetched at least of a remote file: fewer bytes take as long."""
_REMOTE_PAYLOAD = 512 * 1024
"""Fetched when an index of a remote file is opened: all of most indexes, in one request of 25 ms.  Its head, dictionary
and rows would be three, each after the one before."""


class FileIndexReader:
    """Reads the indexes of one data file; :func:`open_index` makes one.  Keeps readers and the bytes they fetched."""

    def __init__(
        self, container: LazyBytes, fields: Sequence[DataField], row_count: int, strict: bool, payload_bytes: int = 0
    ) -> None:
        self._container = container
        self._payload_bytes = payload_bytes
        self._fields = tuple(fields)
        self._row_count = row_count
        self._strict = strict
        self._readers: dict[tuple[str, str], capabilities.IndexReader | None] = {}
        self.columns: Mapping[str, Mapping[str, tuple[int, int]]] = {}
        """Source of an index → index type → (start, length) in the container."""
        self.problems: list[str] = []
        """Indexes that could not be read, each once: column, index type and reason."""
        try:
            self.columns = self._header()
        except BitlakeError as e:
            self._problem("the file index", e)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self._container.bytes_read

    def evaluate(self, predicate: Predicate) -> Selection:
        """Return the rows for which a bound predicate can be TRUE.

        A column without an index, or whose index cannot evaluate the condition, leaves every row possible.  Several
        indexes of a column are used until one is exact.  Damaged bytes raise nothing, unless opened ``strict``.
        """
        return self._evaluate(predicate, _Evaluation(None, [], [], self._row_count))

    def evaluate_at_cost(self, predicate: Predicate, policy: ReadPolicy | None) -> Evaluated:
        """Evaluate a predicate with the indexes that a policy finds worth reading (None: with all)."""
        evaluation = _Evaluation(policy, [], [], self._row_count)
        selection = self._evaluate(predicate, evaluation)
        return Evaluated(selection, tuple(dict.fromkeys(evaluation.used)), tuple(evaluation.skipped))

    def _evaluate(self, predicate: Predicate, evaluation: _Evaluation) -> Selection:
        match predicate:
            case Constant(value):
                return Selection.all(exact=True) if value else Selection.none()
            case And(children):
                terms = grouped_terms(predicate) if len(children) > _MANY_TERMS else children
                groups = [term for term in terms if isinstance(term, Ranges | Tuples)]
                selection = self._all_of([t for t in terms if not isinstance(t, Ranges | Tuples)], evaluation)
                for group in groups if not selection.is_empty else ():
                    selection &= self._group(group, evaluation)
                return selection
            case Or(children):
                selection = Selection.none()
                among = replace(evaluation, also=())
                for child in grouped_terms(predicate) if len(children) > _MANY_TERMS else children:
                    if isinstance(child, Ranges | Tuples):
                        selection |= self._group(child, among)
                    else:
                        selection |= self._evaluate(child, among)
                    if selection == _EVERY:
                        break
                return selection
            case Comparison() | In() | Like() | IsNull():
                return self._leaf(predicate, evaluation)
            case TupleIn():
                return self._tuples(tuples_of(predicate), evaluation)
            case _:  # Not and Between do not occur in bound predicates
                return Selection.all()

    def _group(self, group: Ranges | Tuples, evaluation: _Evaluation) -> Selection:
        """Return the rows for which one term of a group (of an AND: each) can be TRUE."""
        if isinstance(group, Tuples):
            return self._tuples(group, evaluation)
        if len(group.terms) <= _MANY_TERMS:
            return self._evaluate((And if group.conjunction else Or)(group.terms), evaluation)
        return self._ranges(group, evaluation)

    def _tuples(self, group: Tuples, evaluation: _Evaluation) -> Selection:
        """Return the rows that can have one of some tuples (``negated``: another)."""
        if not any(self._places(listed.column) for listed in group.columns):
            return _EVERY
        if len(group.places) <= _MANY_TERMS:
            return self._evaluate(group.terms(), evaluation)
        if group.negated:
            return _EVERY
        # Looking up each of many tuples would take longer than reading the columns: those with other values than the
        # file's are left out first, by small indexes that list their values.
        possible, left, unlisted = np.ones(len(group.places), bool), len(group.places), []
        for listed, places in zip(group.columns, group.places.T, strict=True):
            held = self._held(listed)
            if held is None:
                unlisted += [listed] if places.max() < len(listed.values) else []
                continue
            possible &= held[places]
            before, left = left, int(np.count_nonzero(possible))
            if left > before / 2:
                break  # another column is not worth reading either
        if left <= _MANY_TERMS:
            return self._evaluate(replace(group, places=group.places[possible]).terms(), evaluation)
        return self._all_of(unlisted, evaluation).inexact()

    def _held(self, listed: In) -> npt.NDArray[np.bool_] | None:
        """Whether a column has each value of a list, and NULL at the end; None if no small index lists its values."""
        lengths = [length for _, length in self._places(listed.column).values()]
        is_small = self._row_count < SMALL_ROWS or sum(lengths) <= SMALL_BYTES
        values = self.distinct(listed.column) if lengths and is_small else None
        if values is None:
            return None
        kind = next(f.type for f in self._fields if f.name == listed.column)
        held = np.zeros(len(listed.values) + 2, bool)  # the last one is that of values without a place
        held[places_in(listed, pa.chunked_array([values]), kind)] = True
        held[-2] = True
        return held

    def _ranges(self, group: Ranges, evaluation: _Evaluation) -> Selection:
        """Return the rows within many ranges.

        A small index is asked for those of its values that lie in the ranges.  Another is asked for each range that
        meets the file's values, if these are few.
        """
        column, length = group.column, sum(length for _, length in self._places(group.column).values())
        if not length:
            return _EVERY
        values = self.distinct(column) if length <= SMALL_BYTES else None
        if values is not None and not pa.types.is_decimal(values.type):
            inside = values.filter(pa.array(group.inside[parts_of(group, pa.chunked_array([values]))]))
            points = sorted_points(physical_values(inside))
            return self._leaf(In(column, tuple(points)), evaluation) if points else Selection.none()
        ends = None if group.conjunction else self.extremes(column)
        terms: Sequence[Predicate] = group.terms
        if ends is not None:
            parts = parts_of(group, pa.chunked_array([ends]))
            least, most = (int(parts[0]), int(parts[-1])) if len(parts) else (0, -1)
            meets = (group.term_parts[:, 0] <= most) & (group.term_parts[:, 1] >= least)
            terms = [terms[i] for i in np.flatnonzero(meets).tolist()]
        if len(terms) <= _MANY_TERMS:
            return self._evaluate(Or(tuple(terms)), evaluation)
        evaluation.skipped.append(f"{', '.join(self._places(column))}({column}): {len(terms):,} ranges")
        return _EVERY

    def _all_of(self, children: Sequence[Predicate], evaluation: _Evaluation) -> Selection:
        """Return the rows for which all of these can be TRUE.

        An index that is not worth reading for many rows may be for the few that other conditions leave, so skipped
        conditions are evaluated again at the end.
        """
        selection = Selection.all(exact=True)
        waiting: list[tuple[Predicate, list[str]]] = []
        for child in sorted(children, key=_priority) if evaluation.policy is not None else children:
            reasons: list[str] = []
            rows = self._evaluate(
                child, evaluation.narrowed(selection, self._row_count, _other_ends(child, children), reasons)
            )
            if reasons and rows == _EVERY:
                waiting.append((child, reasons))
            else:
                evaluation.skipped.extend(reasons)
                selection &= rows
            if selection.is_empty:
                break
        for child, reasons in waiting:
            rows = _EVERY
            if not selection.is_empty and selection.rows is not None:
                reasons.clear()
                rows = self._evaluate(
                    child, evaluation.narrowed(selection, self._row_count, _other_ends(child, children), reasons)
                )
            evaluation.skipped.extend(reasons)
            selection &= rows
        return selection

    def reader(self, column: str, index_type: str) -> capabilities.IndexReader | None:
        """Return the reader of one index.  None if it is missing, empty, of an unknown type, or damaged."""
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

    def provides(self, column: str, protocols: tuple[type, ...]) -> bool:
        """Whether a reader of a column's indexes implements one of some protocols; no index is read for that."""
        return any(isinstance(self.reader(column, kind), protocols) for kind in self.columns.get(column, ()))

    def ask(self, column: str, index_type: str, question: Callable[[capabilities.IndexReader], T | None]) -> T | None:
        """Query one index.  None if it is missing, cannot answer, or is damaged (then it is not queried again)."""
        reader = self.reader(column, index_type)
        if reader is None:
            return None
        try:
            return question(reader)
        except BitlakeError as e:
            self._readers[column, index_type] = None
            self._problem(f"index '{index_type}' of column '{column}'", e)
            return None

    def check(self, column: str, index_type: str) -> None:
        """Read an index's head, which any leaf makes a reader do; damage is kept in :attr:`problems`, or raised."""
        self.ask(column, index_type, lambda reader: reader.test(IsNull(column)))

    def ranking_type(self, column: str) -> str | None:
        """Return the type of an index that ranks a column's rows by value.  None if no index does."""
        kinds = self._places(column)
        return next((k for k in _in_order(kinds) if isinstance(self.reader(column, k), capabilities.RowRanker)), None)

    def top_n(
        self,
        column: str,
        k: int,
        descending: bool,
        nulls_first: bool,
        found: BitMap | None = None,
        strict: bool = True,
    ) -> BitMap | None:
        """Return the rows with the k largest or smallest values of a column among ``found`` (None: all rows).

        None without an index that ranks rows.  ``strict``: exactly k rows, if there are as many; else with all that
        tie for the last place, as sorting by further columns needs.
        """
        return self._first(
            column,
            lambda r: (
                r.top_n(k, descending, nulls_first, found, strict) if isinstance(r, capabilities.RowRanker) else None
            ),
        )

    def ranked(self, column: str, rows: BitMap) -> capabilities.RankedRows | None:
        """Rank those of ``rows`` that are not NULL by value.  None without an index that can."""
        return self._first(column, lambda r: r.ranked(rows) if isinstance(r, capabilities.RowRanker) else None)

    def value_counts(self, column: str, rows: BitMap | None = None) -> capabilities.ValueCounts | None:
        """Count how many of ``rows`` (None: all) have each value of a column.  None if no index can."""
        return self._first(column, lambda r: r.value_counts(rows) if isinstance(r, capabilities.ValueCounter) else None)

    def distinct(self, column: str) -> pa.Array | None:
        """Return the distinct values of a column's rows, without NULL.  None if no index has them."""
        return self._first(column, lambda r: r.distinct() if isinstance(r, capabilities.ValueLister) else None)

    def extremes(self, column: str, rows: BitMap | None = None) -> pa.Array | None:
        """Return the smallest and largest value among ``rows`` (in that order, one if equal, none if all are NULL).

        None if no index can tell.
        """
        return self._first(column, lambda r: r.extremes(rows) if isinstance(r, capabilities.ValueBounds) else None)

    def sums(self, column: str, groups: Sequence[BitMap | None]) -> capabilities.ValueSums | None:
        """Sum a column's values over disjoint groups of rows (None: all).  None if no index can, or not cheaply."""
        return self._first(column, lambda r: r.sums(groups) if isinstance(r, capabilities.ValueSummer) else None)

    def groups(self, column: str, rows: BitMap | None, most: int) -> capabilities.RowGroups | None:
        """Split ``rows`` (None: all) by a column's values, at most ``most``.  None if no index can, or not cheaply."""
        return self._first(column, lambda r: r.groups(rows, most) if isinstance(r, capabilities.RowGrouper) else None)

    def nulls(self, column: str) -> Selection | None:
        """Return the rows that are NULL in a column.  None if no index can tell."""

        def question(reader: capabilities.IndexReader) -> Selection | None:
            selection = reader.test(IsNull(column))
            return selection if selection is not None and selection.exact else None

        return self._first(column, question)

    def null_count(self, column: str, rows: BitMap | None = None) -> int | None:
        """Count how many of ``rows`` (None: all) are NULL in a column.  None if no index can tell."""
        nulls = self.nulls(column)
        if nulls is None:
            return None
        if rows is None or nulls.rows is None:
            return nulls.count(self._row_count if rows is None else len(rows))
        return nulls.rows.intersection_cardinality(rows)

    def _first(self, column: str, question: Callable[[capabilities.IndexReader], T | None]) -> T | None:
        """Return the first answer of a column's indexes."""
        for index_type in _in_order(self.columns.get(column, ())):
            answer = self.ask(column, index_type, question)
            if answer is not None:
                return answer
        return None

    def _leaf(self, leaf: Leaf, evaluation: _Evaluation) -> Selection:
        selection = Selection.all()
        for index_type in _in_order(self._places(leaf.column)):
            selection = selection.both(self._by_index(leaf, leaf.column, index_type, evaluation))
            if selection.exact:
                return selection
        text = term_condition(leaf.column.term, leaf) if isinstance(leaf.column, IndexedExpression) else None
        if text is not None:
            for index_type in _in_order(self.columns.get(text.column, ())):
                if isinstance(self.reader(text.column, index_type), capabilities.TextTester):
                    selection = selection.both(self._by_index(leaf, text.column, index_type, evaluation, text))
        return selection

    def _by_index(
        self, leaf: Leaf, column: str, index_type: str, evaluation: _Evaluation, text: TextCondition | None = None
    ) -> Selection:
        """Return the rows that one index leaves; ``text``: what the leaf requires of the text of ``column``."""

        def evaluator(reader: capabilities.IndexReader) -> capabilities.IndexReader:
            return reader if text is None else _TextEvaluator(cast(capabilities.TextTester, reader), text)

        policy = evaluation.policy
        if policy is not None:
            length = self.columns[column][index_type][1]
            query = IndexQuery(leaf, length, evaluation.left, evaluation.also, evaluation.rows)
            why = self.ask(column, index_type, lambda reader: policy.reason_to_skip(evaluator(reader), query))
            if why is not None:
                evaluation.skipped.append(f"{index_type}({column}): {why}")
                return Selection.all()
        rows = self.ask(column, index_type, lambda reader: evaluator(reader).test(leaf))
        if rows is None:
            return Selection.all()
        evaluation.used.append(f"{index_type}({column})")
        return rows

    def _places(self, column: str) -> Mapping[str, tuple[int, int]]:
        if isinstance(column, IndexedExpression) and any(f.name == column for f in self._fields):
            return {}  # the entries are those of a column of that name
        return self.columns.get(column, {})

    def _header(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        prefix = self._container.view(0, FIXED_LENGTH)
        length = header_length(prefix)
        header = read_header(self._container.view(0, length), self._container.length)
        if header.checksums is not None:
            self._container.check(header.checksums)
        return by_column(header.columns)

    def _open(self, column: str, index_type: str, start: int, length: int) -> capabilities.IndexReader | None:
        index = find_index_type(index_type)
        if index is None:
            raise CorruptError(f"index type '{index_type}' is not known")
        of_members = False
        if isinstance(column, IndexedExpression):
            kind, of_members = column.type, has_members(column)
        elif (source := index_source(column, self._fields)) is None:
            raise CorruptError(f"the file has no column '{column}'")
        else:
            kind, of_members = source.type, source.has_members
        container = self._container
        container.view(start, min(length, self._payload_bytes), ahead=0)

        def fetch(offset: int, n: int) -> memoryview:
            return container.view(start + offset, n, ahead=0)

        reader = index.reader(kind, fetch, length, self._row_count)
        if of_members and isinstance(reader, capabilities.MemberReader):
            reader.expect_members()
        return reader

    def _problem(self, where: str, error: BitlakeError) -> None:
        if self._strict:
            if isinstance(error, CorruptError):
                raise CorruptError(f"{where}: {error.what}", error.offset) from error
            raise CorruptError(f"{where}: {error}") from error
        self.problems.append(f"{where}: {error}")


@dataclass(frozen=True, slots=True)
class _TextEvaluator:
    """A reader of text that evaluates what a leaf about an expression requires of the text."""

    reader: capabilities.TextTester
    text: TextCondition

    def test(self, leaf: Leaf) -> Selection | None:
        return self.reader.test_text(self.text)

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        return expected_bytes(self.reader, leaf, length, rows)

    def selectivity(self, leaf: Leaf) -> float | None:
        return self.reader.text_selectivity(self.text)


class Evaluated(NamedTuple):
    """The evaluation of a predicate by a file's indexes.

    ``selection``: the rows, as :meth:`FileIndexReader.evaluate` returns them.  ``used``: the indexes that answered a
    condition of it, as ``type(column)``.  ``skipped``: for each index not read ``type(column): reason``.
    """

    selection: Selection
    used: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation: readable indexes, those that answered or were skipped, possible rows, and what else must hold.

    ``rows``: the possible rows, None if they are not known one by one.
    """

    policy: ReadPolicy | None
    used: list[str]
    skipped: list[str]
    left: int
    also: Sequence[Leaf] = ()
    rows: BitMap | None = None

    def narrowed(self, selection: Selection, row_count: int, also: Sequence[Leaf], skipped: list[str]) -> _Evaluation:
        """Return the same where only rows of ``selection`` are possible."""
        rows = self.rows if selection.rows is None else selection.rows
        return _Evaluation(self.policy, self.used, skipped, min(self.left, selection.count(row_count)), also, rows)


def _priority(predicate: Predicate) -> int:
    """Equality first: it reads least and leaves least."""
    match predicate:
        case Comparison(_, Op.EQ, _) | IsNull(_, False):
            return 0
        case In(_, _, False):
            return 1
    return 2


def _other_ends(child: Predicate, children: Sequence[Predicate]) -> Sequence[Leaf]:
    """Return the other ends of the range that a comparison is one end of."""
    if not isinstance(child, Comparison) or child.op not in _OTHER_END:
        return ()
    ops = _OTHER_END[child.op]
    return [c for c in children if isinstance(c, Comparison) and c.column == child.column and c.op in ops]


_MANY_TERMS = 64
"""Most terms of a group that an index evaluates one by one: more take longer than reading the rows of a small file."""
_OTHER_END = {Op.GT: (Op.LT, Op.LE), Op.GE: (Op.LT, Op.LE), Op.LT: (Op.GT, Op.GE), Op.LE: (Op.GT, Op.GE)}
_EVERY = Selection.all()


def _in_order(index_types: Iterable[str]) -> list[str]:
    return sorted(index_types, key=evaluation_order)


def open_index(
    fetch: Fetch, length: int, fields: Sequence[DataField], row_count: int, strict: bool = False, remote: bool = False
) -> FileIndexReader:
    """Open a container of ``length`` bytes behind ``fetch(offset, length)``.

    ``fields``: of the schema the data file was written with; ``row_count``: of the data file.  Reads the header only.
    An unreadable container has no columns and one problem; ``strict``: raises :class:`CorruptError` for any problem,
    here and in :meth:`FileIndexReader.evaluate`.  ``remote``: a fetch takes some
    20 ms, so few large ones are better than many small ones that wait for each other.
    """
    container = LazyBytes(fetch, length, FIRST_BYTES, _REMOTE_FETCH if remote else 0)
    return FileIndexReader(container, fields, row_count, strict, _REMOTE_PAYLOAD if remote else 0)
