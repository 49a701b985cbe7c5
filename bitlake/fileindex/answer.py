"""What a predicate's leaf means to an index that knows the rows of each key: shared by all but bloom filters.

Here SQL is told from keys: 0.0 equals -0.0, NULL is neither ``=`` nor ``<>`` to anything, keys of fine timestamps are
shared, CHAR values may be padded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pyroaring import BitMap

from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op
from bitlake.fileindex.keys import Key, Keys
from bitlake.fileindex.selection import Selection
from bitlake.types import Root


class KeyedRows(Protocol):
    """An index that finds rows by key; returned bitmaps are not changed by the caller."""

    keys: Keys
    row_count: int

    def present(self) -> BitMap:
        """The rows that are not NULL."""

    def nulls(self) -> BitMap:
        """The rows that are NULL."""

    def having(self, keys: list[Key]) -> BitMap:
        """The rows with any of these keys."""

    def compared(self, op: Op, key: Key) -> BitMap | None:
        """The rows whose key is <, <=, > or >= another, in the order of values; None when that takes too long."""


def answer(index: KeyedRows, leaf: Leaf) -> Selection | None:
    """The rows for which the leaf is TRUE, or None when the index cannot tell."""
    match leaf:
        case IsNull(_, negated):
            return _selection(index, index.present() if negated else index.nulls(), True)
        case Comparison(_, Op.EQ, value):
            return _equal(index, (value,))
        case Comparison(_, Op.NE, value):
            return _different(index, (value,))
        case In(_, values, negated):
            return _different(index, values) if negated else _equal(index, values)
        case Comparison(_, op, value):
            return _compared(index, op, value)
        case Like():
            return None


def _selection(index: KeyedRows, rows: BitMap, exact: bool) -> Selection:
    return Selection.all(exact) if len(rows) == index.row_count else Selection.of(rows, exact)


def _equal(index: KeyedRows, values: Iterable[Any]) -> Selection:
    exact, keys = True, []
    for value in values:
        forms, sure = index.keys.equal_keys(value)
        keys += forms
        exact &= sure
    return _selection(index, index.having(keys), exact)


def _different(index: KeyedRows, values: Iterable[Any]) -> Selection | None:
    if index.keys.lossy:
        return None
    exact, keys = True, []
    for value in values:
        forms, sure = index.keys.equal_keys(value)
        # When unsure whether a form equals the literal, only the literal itself may be taken out.
        keys += forms if sure else forms[:1]
        exact &= sure
    return _selection(index, index.present() - index.having(keys), exact)


def _compared(index: KeyedRows, op: Op, value: Any) -> Selection | None:
    if index.keys.type.root is Root.CHAR:
        return None  # padded or not: the order is not known
    if index.keys.floating and value == 0:  # -0.0 sorts before 0.0, but equals it
        value = -0.0 if op in (Op.LT, Op.GE) else 0.0
    key = index.keys.of_literal(value)
    if key is None:
        return None
    lossy = index.keys.lossy
    if lossy:  # rows that share the literal's key may match or not
        op = Op.LE if op in (Op.LT, Op.LE) else Op.GE
    rows = index.compared(op, key)
    return None if rows is None else _selection(index, rows, not lossy)
