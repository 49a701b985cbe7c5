"""The clauses of a MERGE as SQL text, and the rows they make as columns of the target.

Which clause applies to a row is one CASE over the clauses' conditions, in order; a clause's values are only computed
for its own rows.  Values are stored as INSERT stores them: :func:`bitlake.spark.align.store_columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bitlake.errors import InvalidRequest, NotFound
from bitlake.spark.align import nested_by_name, store_columns, with_default
from bitlake.spark.align_nested import members_as_text
from bitlake.spark.assignments import column_parts, set_values
from bitlake.spark.merge_source import Source
from bitlake.spark.target import Target
from bitlake.spark.types import spark_type
from bitlake.sql import statements as st

ACTION = "__bitlake_action"
_OLD, _SET = "__bitlake_old", "__bitlake_set"


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
    """How many rows a MERGE updated, deleted and inserted."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0


def matched_twice(target: Target, rows: int) -> InvalidRequest:
    """The error of a MERGE that finds several new values for one row."""
    return InvalidRequest(
        f"MERGE INTO '{target.table.name}': {rows} rows of the target are matched by several source rows that would "
        "change them; make ON more precise, or leave one source row for each (GROUP BY, ROW_NUMBER)"
    )


def clauses_of(target: Target, source: Source, statement: st.MergeInto, when: st.When) -> list[Clause]:
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


def _assigned(target: Target, source: Source, clause: st.MergeClause, lenient: bool) -> Sequence[st.Assignment]:
    """What a clause assigns; of star forms, each column of the target from the source's of that name."""
    if clause.assignments is not None:
        return clause.assignments
    updates, table = clause.action is st.MergeAction.UPDATE, target.table.name
    names = target.context.names
    types = {f.name: f.dataType for f in source.frame.schema.fields}
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
        value, made = source.column(name), None
        if lenient and updates:
            old, wanted = target.column(field.name), spark_type(field.type)
            made = members_as_text(table, value, types[name], wanted, field.name, old, names, lenient)
        out.append(st.Assignment((field.name,), value if made is None else made))
    return out


def _inserted(target: Target, assignments: Sequence[st.Assignment]) -> dict[str, str]:
    table, out = target.table.name, {}
    for assignment in assignments:
        parts = column_parts(target, assignment.target)
        if len(parts) > 1:
            raise InvalidRequest(f"table '{table}': INSERT takes whole columns, and not '{'.'.join(parts)}'")
        if parts[0] in out:
            raise InvalidRequest(f"table '{table}': column '{parts[0]}' is inserted twice")
        out[parts[0]] = "NULL" if assignment.value is None else f"({assignment.value})"
    return out


# --- as text ----------------------------------------------------------------------------------------------------------


def action(clauses: Sequence[Clause]) -> str:
    """Which clause applies: its number, NULL for none."""
    return _case(clauses, {c.number: str(c.number) for c in clauses})


def items(target: Target, clauses: Sequence[Clause], old: Collection[str] = ()) -> str:
    """The SELECT list of the new rows' parts: the clause, ``old`` columns of the target, and each clause's values."""
    fields = target.state.schema.fields
    out = [f"{action(clauses)} AS {ACTION}"]
    out += [f"{target.column(f.name)} AS {old_column(i)}" for i, f in enumerate(fields) if f.name in old]
    return ", ".join([*out, *value_items(target, clauses)])


def value_items(target: Target, clauses: Sequence[Clause]) -> list[str]:
    """The part of :func:`items` that gives each clause's values, of its own rows alone."""
    out = []
    for clause in clauses:
        for i, field in enumerate(target.state.schema.fields):
            if field.name in clause.values:
                value = _case(clauses, {clause.number: clause.values[field.name]})
                out.append(f"{value} AS {_SET}_{clause.number}_{i}")
    return out


def kept_columns(target: Target, clauses: Sequence[Clause]) -> set[str]:
    """The target's columns of which clauses' rows keep values."""
    names = target.state.schema.field_names
    return {n for c in clauses if c.action is not st.MergeAction.INSERT for n in names if n not in c.values}


def unmatched(source: Source, condition: str, chosen: str) -> tuple[str, str]:
    """What stands before and after the target in a query of ``chosen`` over the source's rows that match none of it.

    They are found by the numbers of those that do match, which a join with a source sent to every task gives.
    """
    found = "__bitlake_matched"
    before = f"SELECT {chosen} FROM {source.item} LEFT ANTI JOIN (SELECT {source.hint}{source.row} AS {found} FROM"
    return before, f"JOIN {source.item} ON ({condition})) AS {found} ON {source.row} = {found}.{found}"


def _case(clauses: Sequence[Clause], results: Mapping[int, str]) -> str:
    """``CASE WHEN c0 THEN r0 WHEN c1 THEN r1 … END``, NULL where a clause has no result."""
    branches = []
    for clause in clauses:
        condition = "true" if clause.condition is None else f"({clause.condition})"
        branches.append(f"WHEN {condition} THEN {results.get(clause.number, 'NULL')}")
    return f"CASE {' '.join(branches)} END"


# --- as columns -------------------------------------------------------------------------------------------------------


def old_column(number: int) -> str:
    """The name that :func:`items` gives to the target's n-th column."""
    return f"{_OLD}_{number}"


def new_rows(target: Target, frame: DataFrame, clauses: Sequence[Clause], *more: Column) -> DataFrame:
    """The target's columns of the rows that clauses make, from a frame of :func:`items`, and more columns of it.

    Members of structs are matched by name; those that a ``lenient`` clause's values lack are NULL.  The rows of a
    DELETE clause are as they were.
    """
    fields, table = target.state.schema.fields, target.table.name
    chosen = F.col(ACTION)
    stored = {}
    for clause in clauses:
        names = []
        for i, field in enumerate(fields):
            name = f"{_SET}_{clause.number}_{i}"
            if field.name in clause.values:
                names.append(name)
                inside = nested_by_name(table, frame.schema[name], field, target.context.names, fill=clause.lenient)
                frame = frame if inside is None else frame.withColumn(name, inside)
            elif clause.action is st.MergeAction.INSERT:
                frame = frame.withColumn(name, F.lit(None))
                names.append(name)
            else:
                names.append(old_column(i))
                continue
            filled = with_default(table, frame.schema[name], field)
            frame = frame if filled is None else frame.withColumn(name, F.when(chosen == clause.number, filled))
        stored[clause.number] = store_columns(table, frame.select(*names), fields)
    columns = []
    for i, field in enumerate(fields):
        # No value of another clause's rows is computed: CASE goes no further than what applies.
        column = F.when(F.lit(False), F.lit(None))
        for number, values in stored.items():
            column = column.when(chosen == number, values[i])
        columns.append(column.alias(field.name))
    return frame.where(chosen.isin(list(stored))).select(*columns, *more)
