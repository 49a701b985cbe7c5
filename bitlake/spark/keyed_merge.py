"""MERGE INTO tables with a primary key: rows with their kinds, written as INSERT writes rows, in one commit.

The rows that clauses change are found once and kept by Spark while they are checked, counted and written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.errors import InvalidRequest
from bitlake.spark.errors import spark_errors
from bitlake.spark.keyed import KIND, write_kinds
from bitlake.spark.merge_clauses import (
    ACTION,
    Clause,
    Merged,
    clauses_of,
    items,
    kept_columns,
    matched_twice,
    new_rows,
    old_column,
    unmatched,
)
from bitlake.spark.merge_source import Source, equal_columns, key_predicates, source_column
from bitlake.spark.target import Target
from bitlake.sql import statements as st
from bitlake.table import keyed
from bitlake.table.merge.spec import DELETE, UPDATE_AFTER

_INSERT = 0
_KINDS = {st.MergeAction.UPDATE: UPDATE_AFTER, st.MergeAction.DELETE: DELETE, st.MergeAction.INSERT: _INSERT}


def merge_keyed(target: Target, source: Source, statement: st.MergeInto) -> Merged:
    """Run a MERGE; raises :class:`InvalidRequest` for what the table's merge engine cannot take."""
    schema, name = target.state.schema, target.table.name
    keyed.check_keyed(name, schema)
    keyed.check_changes(name, schema, "MERGE")
    if any(c.action is st.MergeAction.DELETE for c in statement.clauses) and not keyed.deletes_by_rows(target.state):
        raise InvalidRequest(
            f"table '{name}': its merge engine takes no deletes; set 'partial-update.remove-record-on-delete', "
            "or leave THEN DELETE out"
        )
    matched, missing, left = (clauses_of(target, source, statement, when) for when in st.When)
    same = equal_columns(target, source, statement.condition)
    matched = [_keeping_keys(target, source, clause, same) for clause in matched]
    for clause in (*matched, *left):
        keyed.check_set(name, schema, clause.values)
    near = replace(target, pushed=key_predicates(target, source, statement.condition))
    on = f"ON ({statement.condition})"
    frames: list[DataFrame] = []
    done = Merged()
    with ExitStack() as stack:
        for clauses, of, join in ((matched, near, "JOIN"), (left, target, "LEFT ANTI JOIN")):
            if clauses:
                kept = kept_columns(target, clauses) | set(schema.primary_keys)
                found = of.query(
                    f"SELECT {source.hint}{items(target, clauses, kept)} FROM", f"{join} {source.item} {on}"
                )
                rows = stack.enter_context(_kept(name, found.where(F.col(ACTION).isNotNull())))
                _count(target, clauses, rows, done)
                frames.append(_written(target, rows, clauses))
        if missing:
            texts = unmatched(source, statement.condition, items(target, missing))
            found = near.query(*texts, read_for=statement.condition)
            frames.append(_written(target, found, missing))
        total = write_kinds(target, functools.reduce(DataFrame.union, frames), "MERGE")
    done.inserted = total - done.updated - done.deleted
    return done


def _keeping_keys(target: Target, source: Source, clause: Clause, same: Mapping[str, set[str]]) -> Clause:
    """A clause without assignments to key columns of what ON says they equal, as ``UPDATE SET *`` has them."""
    keys = {*target.state.schema.primary_keys, *target.state.schema.partition_keys}
    values = {
        column: value
        for column, value in clause.values.items()
        if column not in keys or source_column(target, source, value) not in same.get(column, set())
    }
    return replace(clause, values=values)


@contextmanager
def _kept(table: str, rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that Spark keeps for the block: they are looked at more than once."""
    with spark_errors(f"MERGE INTO '{table}'"):
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        rows.unpersist()


def _count(target: Target, clauses: Sequence[Clause], rows: DataFrame, done: Merged) -> None:
    """Count what clauses do; raises :class:`InvalidRequest` if one row of the target is changed twice."""
    fields = [f.name for f in target.state.schema.fields]
    keys = [old_column(fields.index(k)) for k in target.state.schema.primary_keys]
    action = F.col(ACTION)
    each = [F.count_if(action == c.number).alias(f"n{c.number}") for c in clauses]
    totals = [F.sum(f"n{c.number}").alias(f"n{c.number}") for c in clauses]
    by_key = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("times"), *each)
    with spark_errors(f"MERGE INTO '{target.table.name}'"):
        found = by_key.agg(F.count_if(F.col("times") > 1).alias("twice"), *totals).toArrow().to_pylist()[0]
    deletes = len(clauses) == 1 and clauses[0].action is st.MergeAction.DELETE and clauses[0].condition is None
    if found["twice"] and not deletes:
        raise matched_twice(target, found["twice"])
    for clause in clauses:
        count = found[f"n{clause.number}"] or 0
        if clause.action is st.MergeAction.DELETE:
            done.deleted += count
        else:
            done.updated += count


def _written(target: Target, rows: DataFrame, clauses: Sequence[Clause]) -> DataFrame:
    """The rows to write, and their kinds."""
    kind = F.lit(None).cast("tinyint")
    for clause in clauses:
        kind = F.when(F.col(ACTION) == clause.number, F.lit(_KINDS[clause.action]).cast("tinyint")).otherwise(kind)
    return new_rows(target, rows, clauses, kind.alias(KIND))
