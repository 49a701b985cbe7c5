"""DELETE and UPDATE of tables with a primary key: rows with their kinds, written as INSERT writes rows.

Where the merge engine cannot take -D rows and the table has deletion vectors, DELETE marks rows as in append tables
(:mod:`bitlake.spark.delete`), and without writes files again (:mod:`bitlake.table.keyed_rewrite`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.expressions.sql_text import quoted
from bitlake.spark.align import assigned, with_defaults
from bitlake.spark.assignments import set_values
from bitlake.spark.lsm_write import write_changes
from bitlake.spark.target import Target
from bitlake.sql import statements as st
from bitlake.table import keyed
from bitlake.table.append_delete import Hits, only_hits
from bitlake.table.lsm.publish import publish
from bitlake.table.merge.spec import DELETE, UPDATE_AFTER

KIND = "__bitlake_kind"
"""The column of a row's kind, as :func:`bitlake.spark.lsm_write.write_changes` takes it."""


def delete_keyed(target: Target, condition: str | None) -> int:
    """Write a -D row for every row that satisfies the condition; returns how many."""
    schema = target.state.schema
    keyed.check_keyed(target.table.name, schema)
    keyed.check_kinds(target.table.name, schema)
    # Whole rows, as Paimon writes them: the audit log and streams of changes show what was deleted.
    items = [f"{target.column(f.name)} AS {quoted(f.name)}" for f in schema.fields]
    frame = target.query(f"SELECT {', '.join(items)} FROM", _where(condition))
    return write_kind(target, frame, DELETE, "DELETE")


def delete_hits(target: Target, hits: Hits) -> int:
    """Write a -D row for each of these rows, in this process; returns how many."""
    schema = target.state.schema
    keyed.check_keyed(target.table.name, schema)
    keyed.check_kinds(target.table.name, schema)
    if not hits:
        return 0
    return keyed.delete_found(target.table, only_hits(target.scan(None).select(schema.field_names), hits))


def update_keyed(target: Target, statement: st.Update) -> int:
    """Write a +U row for every row that satisfies the condition; returns how many."""
    schema, name = target.state.schema, target.table.name
    keyed.check_keyed(name, schema)
    keyed.check_changes(name, schema, "UPDATE")
    target.context.names.check(name, schema.field_names)
    values = set_values(target, statement.assignments)
    keyed.check_set(name, schema, values)
    items = [f"{values.get(f.name) or target.column(f.name)} AS {quoted(f.name)}" for f in schema.fields]
    frame = target.query(f"SELECT {', '.join(items)} FROM", _where(statement.condition))
    rows = with_defaults(name, assigned(name, frame, schema.fields, target.context.names), schema.fields, values)
    return write_kind(target, rows, UPDATE_AFTER, "UPDATE")


def write_kind(target: Target, frame: DataFrame, kind: int, operation: str) -> int:
    """Write rows of one kind and commit them."""
    return write_kinds(target, frame.withColumn(KIND, F.lit(kind).cast("tinyint")), operation)


def write_kinds(target: Target, frame: DataFrame, operation: str) -> int:
    """Write rows of the table's columns and their kinds, and commit them; returns how many."""
    changes = write_changes(target.context, target.table, target.state, frame, KIND)
    rows = sum(c.rows for c in changes)
    if rows:
        # New values were computed from old ones: if another writer was first, the statement must look at his.
        publish(target.table, target.state, changes, operation=operation, renumber=operation == "DELETE")
    return rows


def _where(condition: str | None) -> str:
    return "" if condition is None else f"WHERE {condition}"
