"""The clauses of a MERGE as SQL text over target and source, and what ON says of their columns.

Both engines use it.  One CASE over the clauses' conditions, in order, decides which clause applies to a row; a clause's
values are computed only for its own rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from bitlake.engine.session import counts
from bitlake.engine.target import StatementTarget, set_values
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import FALSE, And, Comparison, In, Op, Predicate
from bitlake.formatting import counted
from bitlake.lazy_modules import compute as pc
from bitlake.mergetree import dml
from bitlake.metadata.schema import Names
from bitlake.schema.merge_spec import DELETE, UPDATE_AFTER
from bitlake.sql import statements as st
from bitlake.sql.scope import column_key
from bitlake.sql.text import Cursor, SqlText
from bitlake.types import DataField, Root, arrow_type
from bitlake.types.arrow import physical_values

MOST_KEYS = 1000
"""The most rows of a source whose keys are all read; of a larger one only their range is."""
LEAST_BYTES = 16 << 20
"""A target smaller than this is not worth asking the source first."""
ROW = "__bitlake_row"
"""The column that numbers the source's rows."""
ACTION = "__bitlake_action"
OLD, SET = "__bitlake_old", "__bitlake_set"
INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
PRUNED = (*INTEGERS, Root.DATE, Root.DECIMAL, Root.TIMESTAMP, Root.TIMESTAMP_LTZ, Root.VARCHAR)
"""Types whose columns compare as they are stored."""
KINDS = {st.MergeAction.UPDATE: UPDATE_AFTER, st.MergeAction.DELETE: DELETE, st.MergeAction.INSERT: 0}
_UNNAMED = "__bitlake_source"
_RANDOM = re.compile(r"\b(rand|randn|random|uuid|shuffle|uniform|randstr|monotonically_increasing_id)\s*\(", re.I)
CLOCK = re.compile(r"\b(current_\w+|now|localtimestamp|curdate|unix_timestamp)\b", re.I)


@dataclass(frozen=True)
class MergeSource:
    """The source's rows under the name that the statement gives them."""

    alias: str
    names: Names
    """How the session compares names."""

    @property
    def column_names(self) -> Sequence[str]:
        """Its columns, without :data:`ROW`."""
        raise NotImplementedError

    def lenient_value(self, target: StatementTarget, field: DataField, name: str) -> str | None:
        """A column as the new value of a struct whose missing members keep their values; None: as it is."""
        raise NotImplementedError

    @property
    def row(self) -> str:
        """The column that numbers the source's rows, in SQL text."""
        return self.column(ROW)

    @property
    def columns(self) -> dict[str, str]:
        """Its columns by :meth:`Names.key`."""
        return {self.names.key(c): c for c in self.column_names}

    def column(self, name: str) -> str:
        """A column of the source in SQL text."""
        return f"{quoted(self.alias)}.{quoted(name)}"


def source_query(statement: st.MergeInto) -> tuple[str, SqlText]:
    """The source's alias, and the query of its rows."""
    alias = _UNNAMED
    if statement.source_alias is not None:
        alias = Cursor(statement.source_alias).name()
    elif not statement.source.startswith("("):
        alias = Cursor(statement.source).parts("a table name")[-1]
    item = statement.source if statement.source_alias is None else f"{statement.source} AS {statement.source_alias}"
    return alias, SqlText(f"{statement.with_} SELECT * FROM {item}".lstrip())


@dataclass(frozen=True, slots=True)
class Clause:
    """A WHEN clause with the new values of the columns that it names; ``number`` counts from 0 within its kind.

    ``lenient``: its values may lack members of structs.
    """

    number: int
    condition: str | None
    action: st.MergeAction
    values: Mapping[str, str]
    lenient: bool = False


@dataclass(slots=True)
class Merged:
    """The numbers of rows that a MERGE updated, deleted and inserted."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0

    def as_table(self) -> pa.Table:
        """The result of the statement."""
        return counts(
            num_affected_rows=self.updated + self.deleted + self.inserted,
            num_updated_rows=self.updated,
            num_deleted_rows=self.deleted,
            num_inserted_rows=self.inserted,
        )


def matched_twice(target: StatementTarget, rows: int) -> InvalidRequest:
    """The error of a MERGE that finds several new values for one row."""
    are = "is" if rows == 1 else "are"
    return InvalidRequest(
        f"MERGE INTO '{target.table.name}': {counted(rows, 'row')} of the target {are} matched by several source rows "
        "that change it; make ON more precise, or leave one source row for each (GROUP BY, ROW_NUMBER)"
    )


def first_of_each(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """One row of those with the same values of some columns."""
    places = rows.select(list(ids)).append_column(ROW, pa.array(np.arange(rows.num_rows)))
    return rows.take(places.group_by(list(ids)).aggregate([(ROW, "min")]).column(f"{ROW}_min"))


def check_conditions(target: StatementTarget, statement: st.MergeInto) -> None:
    """Raise for conditions whose answer may change from one query to the next."""
    for text in (statement.condition, *(c.condition or "" for c in statement.clauses)):
        random = _RANDOM.search(text)
        if random is not None:
            raise InvalidRequest(
                f"MERGE INTO '{target.table.name}': a condition cannot use {random.group(1).lower()}(), "
                "which gives another value each time; compute it in the source instead"
            )


def clauses_of(target: StatementTarget, source: MergeSource, statement: st.MergeInto, when: st.When) -> list[Clause]:
    """The clauses of one kind, checked against the schema; raises :class:`NotFound` and :class:`InvalidRequest`."""
    out: list[Clause] = []
    for clause in (c for c in statement.clauses if c.when is when):
        values: Mapping[str, str] = {}
        if clause.action is st.MergeAction.UPDATE:
            values = set_values(target, _assigned(target, source, clause, statement.lenient))
        elif clause.action is st.MergeAction.INSERT:
            values = _inserted(target, _assigned(target, source, clause, statement.lenient))
        out.append(Clause(len(out), clause.condition, clause.action, values, statement.lenient))
    return out


def _assigned(
    target: StatementTarget, source: MergeSource, clause: st.MergeClause, lenient: bool
) -> Sequence[st.Assignment]:
    """Return the assignments of a clause; star forms assign each column of the target the source's of that name."""
    if clause.assignments is not None:
        return clause.assignments
    updates, table = clause.action is st.MergeAction.UPDATE, target.table.name
    names = target.context.names
    out = []
    for field in target.state.schema.fields:
        name = source.columns.get(names.key(field.name))
        if name is None:
            if lenient:
                continue
            raise NotFound(
                f"table '{table}': {'UPDATE SET *' if updates else 'INSERT *'} needs every column, and the source of "
                f"MERGE has no '{field.name}'; it has {', '.join(source.columns.values())} (with the option "
                "write.merge-schema it may lack some)"
            )
        value = source.lenient_value(target, field, name) if lenient and updates else None
        out.append(st.Assignment((field.name,), SqlText(source.column(name) if value is None else value)))
    return out


def _inserted(target: StatementTarget, assignments: Sequence[st.Assignment]) -> dict[str, str]:
    table, out = target.table.name, {}
    for assignment in assignments:
        parts = target.column_parts(assignment.target)
        if len(parts) > 1:
            raise InvalidRequest(f"table '{table}': INSERT takes whole columns, and not '{'.'.join(parts)}'")
        if parts[0] in out:
            raise InvalidRequest(f"table '{table}': column '{parts[0]}' is inserted twice")
        out[parts[0]] = "NULL" if assignment.value is None else f"({assignment.value})"
    return out


def keeping_keys(target: StatementTarget, source: MergeSource, clause: Clause, same: Mapping[str, set[str]]) -> Clause:
    """A clause without assignments to key columns of what ON says they equal, as ``UPDATE SET *`` has them."""
    keys = {*target.state.schema.primary_keys, *target.state.schema.partition_keys}
    values = {
        column: value
        for column, value in clause.values.items()
        if column not in keys or source_column(target, source, value) not in same.get(column, set())
    }
    return replace(clause, values=values)


def keyed_clauses(
    target: StatementTarget, source: MergeSource, statement: st.MergeInto
) -> tuple[list[Clause], list[Clause], list[Clause]]:
    """The clauses of a MERGE into a primary-key table, by kind.

    Raises :class:`InvalidRequest` for what the table's merge engine cannot take.
    """
    schema, name = target.state.schema, target.table.name
    dml.check_primary_key(name, schema)
    dml.check_row_changes(name, schema, "MERGE")
    if any(c.action is st.MergeAction.DELETE for c in statement.clauses) and not dml.deletes_by_rows(target.state):
        raise InvalidRequest(
            f"table '{name}': its merge engine takes no deletes; set 'partial-update.remove-record-on-delete', "
            "or leave THEN DELETE out"
        )
    matched, missing, left = (clauses_of(target, source, statement, when) for when in st.When)
    same = equal_columns(target, source, statement.condition)
    matched = [keeping_keys(target, source, clause, same) for clause in matched]
    for clause in (*matched, *left):
        dml.check_assignable(name, schema, clause.values)
    return matched, missing, left


# --- as text ----------------------------------------------------------------------------------------------------------


def action(clauses: Sequence[Clause]) -> str:
    """Return the number of the clause that applies to each row, NULL for none."""
    return case_of(clauses, {c.number: str(c.number) for c in clauses})


def items(target: StatementTarget, clauses: Sequence[Clause], old: Collection[str] = ()) -> str:
    """The SELECT list of the new rows' parts: the clause, ``old`` columns of the target, and each clause's values."""
    fields = target.state.schema.fields
    out = [f"{action(clauses)} AS {ACTION}"]
    out += [f"{target.column(f.name)} AS {old_column(i)}" for i, f in enumerate(fields) if f.name in old]
    return ", ".join([*out, *value_items(target, clauses)])


def value_items(target: StatementTarget, clauses: Sequence[Clause]) -> list[str]:
    """The part of :func:`items` that gives each clause's values, of its own rows alone."""
    out = []
    for clause in clauses:
        for i, field in enumerate(target.state.schema.fields):
            if field.name in clause.values:
                value = case_of(clauses, {clause.number: clause.values[field.name]})
                out.append(f"{value} AS {SET}_{clause.number}_{i}")
    return out


def kept_columns(target: StatementTarget, clauses: Sequence[Clause]) -> set[str]:
    """The target's columns of which clauses' rows keep values."""
    names = target.state.schema.field_names
    return {n for c in clauses if c.action is not st.MergeAction.INSERT for n in names if n not in c.values}


def case_of(clauses: Sequence[Clause], results: Mapping[int, str]) -> str:
    """``CASE WHEN c0 THEN r0 WHEN c1 THEN r1 … END``, NULL where a clause has no result."""
    branches = []
    for clause in clauses:
        condition = "true" if clause.condition is None else f"({clause.condition})"
        branches.append(f"WHEN {condition} THEN {results.get(clause.number, 'NULL')}")
    return f"CASE {' '.join(branches)} END"


def old_column(number: int) -> str:
    """The name that :func:`items` gives to the target's n-th column."""
    return f"{OLD}_{number}"


# --- ON ---------------------------------------------------------------------------------------------------------------


def equal_columns(target: StatementTarget, source: MergeSource, condition: SqlText) -> dict[str, set[str]]:
    """Return the columns of the source that each column of the target surely equals where ON holds."""
    out: dict[str, set[str]] = {}
    for field, column in equalities(target, source, condition):
        out.setdefault(field.name, set()).add(column)
    return out


def source_column(target: StatementTarget, source: MergeSource, text: str) -> str | None:
    """The column of the source that an expression plainly is."""
    tree = SqlText(text).tree
    return None if tree is None else _of_source(target, source, tree.unnest())


def of_source_alone(target: StatementTarget, source: MergeSource, text: str) -> bool:
    """Whether an expression surely reads nothing but columns of the source: what holds a query may read anything."""
    tree = SqlText(text).tree
    if tree is None or tree.find(exp.Query, exp.Star) is not None:
        return False
    return all(column_of_source(target, source, column) for column in tree.find_all(exp.Column))


def column_of_source(target: StatementTarget, source: MergeSource, node: exp.Column) -> bool:
    """Whether a column of an expression is surely one of the source."""
    return _of_source(target, source, node) is not None


def equalities(target: StatementTarget, source: MergeSource, condition: SqlText) -> list[tuple[DataField, str]]:
    """The ``target column = source column`` terms of ON."""
    pairs = []
    for term in terms(condition.tree):
        if not isinstance(term, exp.EQ):
            continue
        for mine, theirs in ((term.this, term.expression), (term.expression, term.this)):
            field, column = _of_target(target, source, mine), _of_source(target, source, theirs)
            if field is not None and column is not None:
                pairs.append((field, column))
                break
    return pairs


def terms(node: exp.Expr | None) -> list[exp.Expr]:
    """The terms that AND joins."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [t for side in (node.this, node.expression) for t in terms(side)]
    return [] if node is None else [node]


def _of_target(target: StatementTarget, source: MergeSource, node: exp.Expr) -> DataField | None:
    names, fields = source.names, {source.names.key(f.name): f for f in target.state.schema.fields}
    # Also where a column has the table's name: in both engines `t.id` is its member only if the table has no `id`.
    key = column_key(node, [(names.key(target.alias or target.name),)], names, source.columns)
    return None if key is None else fields.get(key)


def _of_source(target: StatementTarget, source: MergeSource, node: exp.Expr) -> str | None:
    names = source.names
    taken = [names.key(n) for n in target.state.schema.field_names]
    key = column_key(node, [(names.key(source.alias),)], names, taken)
    return None if key is None else source.columns.get(key)


def one_of(field: DataField, values: pa.ChunkedArray) -> Predicate:
    """Whether a column is one of these values."""
    distinct: list[Any] = sorted(set(_physical(field, values)))
    if len(distinct) > 1:
        return In(field.name, tuple(distinct))
    return Comparison(field.name, Op.EQ, distinct[0]) if distinct else FALSE


def ends_of(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The smallest and the largest of these values, each as an array of one; NULL where there are none."""
    ends = pc.min_max(values)
    low, high = (pa.chunked_array([pa.array([ends[end].as_py()], values.type)]) for end in ("min", "max"))
    return low, high


def between(field: DataField, low: pa.ChunkedArray, high: pa.ChunkedArray) -> Predicate:
    """Whether a column lies between two values, each of which may be NULL where there are none."""
    wanted = arrow_type(field.type)
    ends = pa.chunked_array([low.combine_chunks(), high.combine_chunks()])
    if ends.null_count:
        return FALSE  # no key at all
    if pa.types.is_integer(wanted):
        bits = wanted.bit_width - 1
        first, last = (int(v.as_py()) for v in ends)
        values: list[Any] = [max(first, -(1 << bits)), min(last, (1 << bits) - 1)]
    else:
        values = physical_values(ends.combine_chunks().cast(wanted))
    return And((Comparison(field.name, Op.GE, values[0]), Comparison(field.name, Op.LE, values[1])))


def _physical(field: DataField, values: pa.ChunkedArray) -> list[Any]:
    """Values as the target's column has them; integers beyond its range can match nothing and are left out."""
    wanted = arrow_type(field.type)
    known = values.combine_chunks().drop_null()
    if pa.types.is_integer(wanted):
        bits = wanted.bit_width - 1
        return [v for v in physical_values(known.cast(pa.int64())) if -(1 << bits) <= v < 1 << bits]
    return physical_values(known.cast(wanted))
