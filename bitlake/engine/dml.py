"""DELETE and UPDATE in this process: of conditions and values that the core evaluates as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from bitlake.engine.session import NeedsSpark, Session, counts
from bitlake.engine.target import StatementTarget, exact_scan
from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.assignment import new_values
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.terms import Term
from bitlake.expressions.tree import Predicate
from bitlake.sql import statements as st
from bitlake.sql.text import SqlText
from bitlake.table.table import Table


def delete(session: Session, statement: st.DeleteFrom) -> pa.Table:
    """Run a DELETE; returns how many rows it deleted."""
    target = _target(session, statement)
    return counts(num_affected_rows=Table(target.table).delete(_condition(target, statement.condition)))


def update(session: Session, statement: st.Update) -> pa.Table:
    """Run an UPDATE; returns how many rows it changed."""
    target = _target(session, statement)
    session.names.check(target.table.name, target.state.schema.field_names)
    values = _values(target, statement.assignments)
    where = _condition(target, statement.condition)
    return counts(num_affected_rows=Table(target.table).update(values, where))


def _target(session: Session, statement: st.DeleteFrom | st.Update) -> StatementTarget:
    session.check_meaning()
    target = StatementTarget.of(session, statement.table, statement.alias)
    if statement.with_:
        raise NeedsSpark(f"table '{target.table.name}': WITH before a statement")
    return target


def _condition(target: StatementTarget, condition: SqlText | None) -> Predicate | None:
    """The rows for which a statement's condition is TRUE; None: all."""
    if condition is None:
        return None
    try:
        predicate = parse_predicate(condition, target.context.timezone, target.column_of)
    except InvalidRequest as e:
        target.check_columns(condition)
        raise NeedsSpark(f"table '{target.table.name}': WHERE {condition}") from e
    if exact_scan(target.context, target.table.scan_of(target.state), predicate) is None:
        raise NeedsSpark(f"table '{target.table.name}': WHERE {condition}")
    return predicate


def _values(target: StatementTarget, assignments: Sequence[st.Assignment]) -> dict[str, Callable[[pa.Table], pa.Array]]:
    """What SET gives each column that it names, as functions of the old rows."""
    table, schema = target.table.name, target.state.schema
    terms: dict[str, Term] = {}
    for assignment in assignments:
        name, *members = target.column_parts(assignment.target)
        if name in terms:
            raise InvalidRequest(f"table '{table}': column '{name}' is set twice, whole or in part")
        if members or assignment.value is None or schema.field(name).default_value is not None:
            raise NeedsSpark(f"table '{table}': SET of a member, or of a column with a default, '{name}'")
        terms[name] = _term(target, assignment.value)
    try:
        return new_values(terms, schema.fields, target.context.timezone)
    except EvaluationFailed:
        raise
    except InvalidRequest as e:
        raise NeedsSpark(f"table '{table}': SET {', '.join(terms)}") from e


def _term(target: StatementTarget, value: SqlText) -> Term:
    try:
        return parse_term(value, target.context.timezone, target.column_of)
    except InvalidRequest as e:
        target.check_columns(value)
        raise NeedsSpark(f"table '{target.table.name}': SET … = {value}") from e
