"""DELETE and UPDATE of append and primary-key tables.

Statistics and indexes find the condition's rows where they can, and Spark otherwise.  UPDATE deletes the rows it
finds and writes them again with the values of SET.

In a primary-key table both write rows with their kinds, as INSERT writes rows.  Where the merge engine cannot take -D
rows, DELETE marks rows as in append tables if the table has deletion vectors, and otherwise writes files again
(:mod:`bitlake.mergetree.dml`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.engine.session import counts
from bitlake.engine.target import exact_scan, set_values
from bitlake.errors import EvaluationFailed, InvalidRequest, StorageUnavailable
from bitlake.expressions.literal_lists import has_markers
from bitlake.expressions.parser import from_sqlglot
from bitlake.expressions.sql_text import quoted
from bitlake.mergetree import dml
from bitlake.mergetree.commit import publish
from bitlake.metadata import options as opt
from bitlake.runtime import LocalRunner, Runner
from bitlake.scan.reader import DRIVER_BYTES
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import DELETE, UPDATE_AFTER, is_cross_partition
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.target import Target, gather
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.runner import SparkRunner
from bitlake.spark.write.append import write_frame
from bitlake.spark.write.insert_cast import assigned, with_defaults
from bitlake.spark.write.primary_key import write_changes
from bitlake.sql import statements as st
from bitlake.sql.text import SqlText
from bitlake.write import append_dml

MOST_HITS = 1 << 20
"""The most rows whose keys the driver reads and whose deletions it writes."""
MOST_COMPUTED_ROWS = 1 << 23
"""The most rows for which the driver evaluates a computed condition.  ``a % 100 = 3`` over 1.5M rows takes 0.1 s; casts
of text take longer."""
_BEFORE_BRACKETS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "CAST", "DIV"})
"""Words of Spark's grammar that may stand before a bracket and call no function."""
_TYPES_WITH_BRACKETS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
Result = TypeVar("Result")


def delete(context: EngineContext, statement: st.DeleteFrom) -> pa.Table:
    """Run a DELETE; returns how many rows it deleted."""
    target = Target.of(context, statement.table, statement.alias, statement.with_)

    def step(now: Target) -> int:
        scan = whole_condition(now, statement.condition)
        if scan is not None and dml.deletes_partitions(scan):
            return now.table.delete_partitions(scan)
        if dml.deletes_by_rows(now.state):
            now = replace(now, level_0=True)
            hits = keyed_hits(now, statement.condition)
            return delete_keyed(now, statement.condition) if hits is None else delete_hits(now, hits)
        now.table.check_writable(now.state, keyed=True)
        now = replace(now, state=dml.compact_pending(now.table, now.state))
        hits = condition_hits(now, statement.condition)
        deletion = dml.write_table_deletion(now.state, hits, SparkRunner(context.spark))
        if deletion.rows:
            now.table.commit_rows(now.state, deletion, "DELETE")
        return deletion.rows

    return counts(num_affected_rows=retried(target, step))


def retried(target: Target, step: Callable[[Target], Result]) -> Result:
    """Run a statement on the table as it is, and again if another writer changed what it had read."""
    first = [target.state]
    return append_dml.retrying(
        lambda: first.pop() if first else target.table.state(), lambda state: step(replace(target, state=state))
    )


def condition_hits(target: Target, condition: SqlText | None) -> dict[str, BitMap]:
    """The rows of a table, by position, for which a statement's condition is TRUE; some may be deleted already."""
    scan = whole_condition(target, condition)
    if scan is not None:
        scan = dml.position_scan(scan)
        return append_dml.find_hits(scan, runner_for(target, scan))
    hits = hits_in_process(target, condition)
    if hits is not None:
        return hits
    before = f"SELECT {target.path} AS file, {target.index} AS position, 0 AS action FROM"
    after = f"WHERE {condition}"
    doing = f"finding rows of table '{target.table.name}'"
    schema = target.state.schema
    if schema.opts.of(opt.DV_ENABLED) and not schema.primary_keys:
        try:
            # Rows deleted before are found again, which does no harm and lets Spark's own reader find the others.
            return gather(
                target.query(before, after, positions=True, deleted_too=True), doing, target.state, once=True
            ).hits
        except (InvalidRequest, StorageUnavailable):
            pass  # a value that cannot be computed: maybe one of a deleted row
    return gather(target.query(before, after, positions=True), doing, target.state, once=True).hits


def keyed_hits(target: Target, condition: SqlText | None) -> dict[str, BitMap] | None:
    """As :func:`condition_hits`, of a table with a primary key: where they are, if its files are as its rows are.

    None where rows are merged to be read, or where too many are found for the driver to read their keys.  Deleted rows
    are found by Spark's own reader as well; they are left out at the end.  Measured on 1.5M rows of 4 buckets with
    deletion vectors, processor time: 1 % scattered, only Spark can tell, 4.4 s as a query of keys that is written, and
    1.3 s so; 1.3 % of a month 2.4 and 0.5 s.
    """
    if condition is None or is_cross_partition(target.state.schema):
        return None
    hits: dict[str, BitMap] | None
    scan = whole_condition(target, condition)
    if scan is not None:
        if not dml.reads_files_as_they_are(scan):
            return None
        hits = append_dml.find_hits(scan, runner_for(target, scan))
    else:
        hits = hits_in_process(target, condition)
    if hits is None:
        before = f"SELECT {target.path} AS file, {target.index} AS position, 0 AS action FROM"
        query = partial(target.query, before, f"WHERE {condition}", positions=True, deleted_too=True)
        try:
            doing = f"finding rows of table '{target.table.name}'"
            hits = append_dml.live_hits(target.state, gather(query(), doing, target.state, once=True).hits)
        except (InvalidRequest, StorageUnavailable):
            return None
    return hits if sum(map(len, hits.values())) <= MOST_HITS else None


def hits_in_process(target: Target, condition: SqlText | None) -> dict[str, BitMap] | None:
    """Find the rows of a condition that computes with operators and casts, in this process.

    Returns None if Spark must find them: the condition calls a function, which a session may replace;
    terms have other values here (:attr:`~bitlake.engine.session.Session.matches_engine`); rows are merged when read;
    more than :data:`MOST_COMPUTED_ROWS` rows are
    searched; or a value cannot be computed, so that Spark reports the error.
    """
    if condition is None or _calls_functions(condition):
        return None
    if not target.context.matches_engine:
        return None
    scan = whole_condition(target, condition, computes=True)
    if scan is None or not dml.reads_files_as_they_are(scan := dml.position_scan(scan)):
        return None
    plan = scan.exact_plan()
    rows = sum(f.chosen_rows for f in plan.files if not f.sure(plan.predicate))
    if rows > MOST_COMPUTED_ROWS or append_dml.estimated_search_bytes(scan) > DRIVER_BYTES:
        return None
    try:
        return append_dml.find_hits(scan, LocalRunner())
    except EvaluationFailed:
        return None


def _calls_functions(condition: SqlText) -> bool:
    """Whether a name stands before a bracket: sqlglot reads ``mod(a, 2)`` and ``int(a)`` as operator and cast."""
    words = ["", "", *condition.words]
    return any(
        after == "("
        and (word == "" or word.isidentifier())
        and word not in _BEFORE_BRACKETS
        and not (word in _TYPES_WITH_BRACKETS and before in ("AS", "::"))
        for before, word, after in zip(words, words[1:], words[2:], strict=False)
    )


def runner_for(target: Target, scan: TableScan) -> Runner:
    """The runner that searches the files: this process for little work, else the executors."""
    return (
        LocalRunner() if append_dml.estimated_search_bytes(scan) <= DRIVER_BYTES else SparkRunner(target.context.spark)
    )


def whole_condition(target: Target, condition: SqlText | None, *, computes: bool = False) -> TableScan | None:
    """A scan that finds exactly the rows for which the condition is TRUE; None if a scan cannot evaluate it.

    ``computes``: also accept conditions that compute values.
    """
    bare = target.scan(None)
    if condition is None:
        return bare
    if condition.tree is None:
        return None
    predicate = from_sqlglot(condition.tree, target.context.literal_zone, target.column_of, computes=computes)
    return None if predicate is None else exact_scan(target.context, bare, predicate)


def update(context: EngineContext, statement: st.Update) -> pa.Table:
    """Run an UPDATE; returns how many rows it changed."""
    target = Target.of(context, statement.table, statement.alias, statement.with_)

    def step(now: Target) -> int:
        if now.state.schema.primary_keys:
            return update_keyed(now, statement)
        now.table.check_writable(now.state)
        context.names.check(now.table.name, now.state.schema.field_names)
        values = set_values(now, statement.assignments)
        gone = append_dml.write_deletion(
            now.state, condition_hits(now, statement.condition), SparkRunner(context.spark)
        )
        try:  # also where no row is found: Spark refuses values that name an unknown column
            fields = now.state.schema.fields
            items = [f"{values.get(f.name) or now.column(f.name)} AS {quoted(f.name)}" for f in fields]
            frame = now.query(f"SELECT {', '.join(items)} FROM", "", hits=gone.hits)
            rows = with_defaults(now.table.name, assigned(now.table.name, frame, fields, context.names), fields, values)
            if not gone.rows:
                return 0
            files = write_frame(context, now.table, now.state, rows)
        except BaseException:
            gone.discard(now.state)
            raise
        now.table.commit_rows(now.state, gone, "UPDATE", files)
        return gone.rows

    return counts(num_affected_rows=retried(target, step))


KIND = "__bitlake_kind"
"""The column of a row's kind, as :func:`bitlake.spark.write.primary_key.write_changes` takes it."""


def delete_keyed(target: Target, condition: SqlText | None) -> int:
    """Write a -D row for every row that satisfies the condition; returns how many."""
    schema = target.state.schema
    dml.check_primary_key(target.table.name, schema)
    dml.check_row_kinds(target.table.name, schema)
    # Whole rows, as Paimon writes them: the audit log and streams of changes show what was deleted.
    items = [f"{target.column(f.name)} AS {quoted(f.name)}" for f in schema.fields]
    frame = rows_where(target, f"SELECT {', '.join(items)} FROM", condition)
    return write_kind(target, frame, DELETE, "DELETE")


def delete_hits(target: Target, hits: append_dml.Hits) -> int:
    """Write a -D row for each of these rows, in this process; returns how many."""
    schema = target.state.schema
    dml.check_primary_key(target.table.name, schema)
    dml.check_row_kinds(target.table.name, schema)
    return dml.delete_hits(target.table, target.scan(None), hits)


def update_keyed(target: Target, statement: st.Update) -> int:
    """Write a +U row for every row that satisfies the condition; returns how many."""
    target = replace(target, level_0=True)
    schema, name = target.state.schema, target.table.name
    dml.check_primary_key(name, schema)
    dml.check_row_changes(name, schema, "UPDATE")
    target.context.names.check(name, schema.field_names)
    values = set_values(target, statement.assignments)
    dml.check_assignable(name, schema, values)
    items = [f"{values.get(f.name) or target.column(f.name)} AS {quoted(f.name)}" for f in schema.fields]
    frame = rows_where(target, f"SELECT {', '.join(items)} FROM", statement.condition)
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
        # Computed from old rows: if another writer was first, the statement must look at its rows.
        publish(target.table, target.state, changes, operation=operation, renumber=False)
    return rows


def rows_where(target: Target, before: str, condition: SqlText | None) -> DataFrame:
    """The query ``<before> <the target> WHERE <condition>``.

    If the condition has a long list and a scan can evaluate all of it, the scan filters the rows and the query has no
    WHERE: Spark takes 20 s to plan 100,000 literals.
    """
    if condition is None:
        return target.query(before, "")
    scan = whole_condition(target, condition) if has_markers(condition) else None
    if scan is None or scan.predicate is None:
        return target.query(before, f"WHERE {condition}")
    reader = SparkReader(target.context.spark, target.context.catalog.store)
    read = partial(reader.frame, exact=True, file_names=True)
    return replace(target, pushed=(*target.pushed, scan.predicate)).query(before, "", read=read)
