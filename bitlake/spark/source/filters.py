"""Filters that Spark pushes to the source, as predicate trees.

Spark judges the rows again, so that a filter may be left out or weakened here, never strengthened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import datasource as ds

from bitlake.errors import BitlakeError
from bitlake.predicate.bind import bind
from bitlake.predicate.tree import Comparison, In, IsNull, Like, Not, Op, Predicate, all_of
from bitlake.types import DataField

_OPS: dict[type[ds.Filter], Op] = {
    ds.EqualTo: Op.EQ,
    ds.GreaterThan: Op.GT,
    ds.GreaterThanOrEqual: Op.GE,
    ds.LessThan: Op.LT,
    ds.LessThanOrEqual: Op.LE,
}


def pushed(filters: Iterable[ds.Filter], fields: tuple[DataField, ...]) -> Predicate | None:
    """What surely holds for rows that satisfy all filters, bound to a schema; None if nothing is known."""
    known = []
    for made in filters:
        tree = _tree(made)
        if tree is None:
            continue
        try:
            known.append(bind(tree, fields, on_unsupported="true"))
        except BitlakeError:  # a column that only Spark knows, or a member of a struct
            continue
    return all_of(known) if known else None


def _tree(made: ds.Filter) -> Predicate | None:
    if isinstance(made, ds.Not):
        inner = _tree(made.child)
        return None if inner is None else Not(inner)
    path: Sequence[str] = getattr(made, "attribute", ())
    if len(path) != 1:
        return None  # a member of a struct
    column = path[0]
    if isinstance(made, ds.EqualNullSafe):
        return IsNull(column) if made.value is None else Comparison(column, Op.EQ, made.value)
    if type(made) in _OPS:
        return Comparison(column, _OPS[type(made)], made.value)  # type: ignore[attr-defined]
    if isinstance(made, ds.In):
        return In(column, tuple(made.value))
    if isinstance(made, (ds.IsNull, ds.IsNotNull)):
        return IsNull(column, isinstance(made, ds.IsNotNull))
    if isinstance(made, (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)):
        text = "".join(f"\\{c}" if c in "%_\\" else c for c in made.value)
        before = "" if isinstance(made, ds.StringStartsWith) else "%"
        after = "" if isinstance(made, ds.StringEndsWith) else "%"
        return Like(column, before + text + after)
    return None
