"""Give Spark long lists of literals as views that it joins: planning 100,000 literals takes it 20 s.

A text has a marker in place of each list (:mod:`bitlake.expressions.literal_lists`): ``k IN ('<marker>')`` becomes
``k IN (SELECT v FROM <view>)``.  Where Spark is asked for the types of a result alone, it gets one literal.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot import exp

from bitlake.engine.metadata_only import PreparedQuery
from bitlake.expressions.literal_lists import LiteralList, has_markers, list_of
from bitlake.expressions.sql_text import quoted
from bitlake.spark.context import EngineContext
from bitlake.spark.read.local_relation import local_frame
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, Root
from bitlake.types.datatypes import INTEGERS

_CONDITIONS = (exp.Where, exp.Having, exp.Join)


def joinable_lists(context: EngineContext, prepared: PreparedQuery) -> dict[LiteralList, exp.Column]:
    """Return the lists that Spark can join, with their columns.

    WHERE must require ``column [NOT] IN (…)``, and the column must have the literals' type: the comparison with a
    subquery's rows is then the same.  Queries with subqueries keep their literals.
    """
    text = prepared.analysis.text
    tree = text.tree if has_markers(text) else None
    if not isinstance(tree, exp.Select) or tree.find(exp.Subquery, exp.CTE, exp.Lateral, exp.Values, exp.Pivot):
        return {}
    if any(alias.columns for alias in tree.find_all(exp.TableAlias)):
        return {}  # columns have other names than in their tables
    where = tree.args.get("where")
    if where is None or len(list(tree.find_all(exp.Table))) != len(prepared.scans):
        return {}
    types: dict[str, set[type | None]] = {}
    for field in (f for s in prepared.scans for f in s.state.schema.fields):
        root = field.type.root if isinstance(field.type, AtomicType) else None
        kind = int if root in INTEGERS else str if root is Root.VARCHAR else None
        types.setdefault(context.names.key(field.name), set()).add(kind)
    lists: dict[LiteralList, exp.Column] = {}
    required = where.this.unnest()
    for term in required.flatten() if isinstance(required, exp.And) else [required]:
        node = term.this.unnest() if isinstance(term, exp.Not) else term
        values = list_of(node) if isinstance(node, exp.In) and isinstance(node.this, exp.Column) else None
        if values is None or not values.is_plain:
            continue
        *owners, name = [context.names.key(part.name) for part in node.this.parts]
        if types.get(name) == {type(values.values[0])} and not types.keys() & set(owners):
            lists[values] = node.this
    # A list that also occurs elsewhere in the text stays literal.
    return {values: column for values, column in lists.items() if text.count(values) == 1}


def list_frame(context: EngineContext, values: LiteralList) -> DataFrame:
    """The values of a list as the column ``v``."""
    kind = T.LongType() if isinstance(values.values[0], int) else T.StringType()
    return local_frame(context.spark, pa.table({"v": values.array}), T.StructType([T.StructField("v", kind)]))


def with_list_views(text: str, lists: Sequence[LiteralList], views: Sequence[str]) -> str:
    """A text with queries of these views in place of the lists."""
    for values, view in zip(lists, views, strict=True):
        text = text.replace(f"'{values}'", f"SELECT v FROM {quoted(view)}")
    return text


def with_first_literals(text: str, query: SqlText) -> str:
    """A text with one literal for each list of a condition: its result has the same names and types.

    ``text`` is that of ``query``, edited.  Lists elsewhere stay: without an alias, Spark makes the name of a column of
    its expression.
    """
    tree = query.tree if has_markers(query) else None
    for node in () if tree is None else tree.find_all(exp.In):
        values = list_of(node)
        place = node.find_ancestor(*_CONDITIONS, exp.Select, exp.Filter, exp.Pivot)
        is_condition = isinstance(place, _CONDITIONS) and not isinstance(place.parent, exp.Filter)
        if values is not None and is_condition and text.count(values) == 1:
            text = text.replace(f"'{values}'", values.first_literal)
    return text
