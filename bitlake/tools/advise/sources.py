"""Sources of advised indexes: columns, and the expressions and members in the conditions of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.roaring import bitmap_of
from bitlake.errors import EvaluationFailed
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.functions import members
from bitlake.expressions.indexed import has_members, values_of
from bitlake.expressions.terms import columns_in
from bitlake.expressions.text_functions import term_condition
from bitlake.expressions.tree import IndexedExpression, IsNull, Leaf, Like, Predicate, leaves_of, sources_of
from bitlake.types import DataField, Root
from bitlake.types.datatypes import AtomicType

_VALUE = "value"
_TESTS = frozenset({"instr", "rlike", "has_token", "has_all_tokens", "has_any_token"})


def columns_of_source(source: str) -> tuple[str, ...]:
    """The table's columns that an index of a source reads."""
    return tuple(sorted(columns_in(source.term))) if isinstance(source, IndexedExpression) else (source,)


def source_of(unit: Predicate) -> str:
    """The column or the expression that the leaves of a unit test."""
    column = leaves_of(unit)[0].column
    return column if isinstance(column, IndexedExpression) else min(sources_of(unit))


def places_of(unit: Predicate) -> tuple[str, ...]:
    """The sources whose indexes may evaluate a unit: its own, and the column of the text that it tests."""
    source, text = source_of(unit), text_column(leaves_of(unit)[0])
    return (source,) if text is None or text == source else (source, text)


def text_column(leaf: Leaf) -> str | None:
    """The column whose index of text may evaluate a leaf; None if none may."""
    if isinstance(leaf.column, IndexedExpression):
        text = term_condition(leaf.column.term, leaf)
        return None if text is None else text.column
    return leaf.column if isinstance(leaf, Like) and not leaf.negated else None


def may_be_advised(source: str) -> bool:
    """Whether an index of a source can serve other constants than those of one query.

    Not of the words of a text: an index of tokens serves the same conditions, and is many times smaller.
    """
    if not isinstance(source, IndexedExpression):
        return True
    if has_members(source) and source.term.arguments[0].function == "split":
        return False
    is_test = isinstance(source.type, AtomicType) and source.type.root is Root.BOOLEAN and not has_members(source)
    return not is_test and source.term.function not in _TESTS


def source_field(source: IndexedExpression) -> DataField:
    """An expression as a field, for code that needs a column's name and type."""
    return DataField(-1, source, source.type)


def source_values(source: str, columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """The values of a source in rows that have its columns: of members, the arrays or maps.

    None if the expression has no value for some row: files are written without such an index.
    """
    if not isinstance(source, IndexedExpression):
        return columns[source]
    try:
        values = values_of(source, pa.record_batch(dict(columns)))
    except EvaluationFailed:
        return None
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def flat_values(source: str, values: pa.Array) -> pa.Array:
    """The values to profile: each member."""
    return members(values)[0] if isinstance(source, IndexedExpression) and has_members(source) else values


def matching_rows(leaf: Leaf, source: str, values: pa.Array, fields: tuple[DataField, ...]) -> BitMap:
    """The rows for which a leaf about a source is TRUE."""
    if not isinstance(source, IndexedExpression):
        return bitmap_of(np.flatnonzero(_is_true(evaluate(leaf, pa.table({source: values}), fields))))
    parents = np.arange(len(values))
    if has_members(source):
        values, parents = members(values)
        if isinstance(leaf, IsNull):
            return bitmap_of(np.unique(parents))
    of_value = replace(leaf, column=_VALUE)
    true = evaluate(of_value, pa.table({_VALUE: values}), [DataField(0, _VALUE, source.type)])
    return bitmap_of(np.unique(parents[_is_true(true)]))


def _is_true(truth: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(truth.fill_null(False).to_numpy(zero_copy_only=False))
