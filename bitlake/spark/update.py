"""UPDATE: the rows are found as by DELETE, taken out, and written anew with the values that SET gives."""

from __future__ import annotations

from pyspark.sql import DataFrame

from bitlake.expressions.sql_text import quoted
from bitlake.spark.align import assigned, with_defaults
from bitlake.spark.assignments import set_values
from bitlake.spark.context import EngineContext
from bitlake.spark.delete import condition_hits, retried
from bitlake.spark.dml import write_frame
from bitlake.spark.keyed import update_keyed
from bitlake.spark.runner import SparkRunner
from bitlake.spark.target import Target, counts
from bitlake.sql import statements as st
from bitlake.table.append_delete import take_out


def update(context: EngineContext, statement: st.Update) -> DataFrame:
    """Run an UPDATE; returns how many rows it changed."""
    target = Target.of(context, statement.table, statement.alias, statement.with_)

    def step(now: Target) -> int:
        if now.state.schema.primary_keys:
            return update_keyed(now, statement)
        now.table.check_writable(now.state)
        context.names.check(now.table.name, now.state.schema.field_names)
        values = set_values(now, statement.assignments)
        gone = take_out(now.state, condition_hits(now, statement.condition), SparkRunner(context.spark))
        if not gone.rows:
            return 0
        try:
            fields = now.state.schema.fields
            items = [f"{values.get(f.name) or now.column(f.name)} AS {quoted(f.name)}" for f in fields]
            frame = now.query(f"SELECT {', '.join(items)} FROM", "", hits=gone.hits)
            rows = with_defaults(now.table.name, assigned(now.table.name, frame, fields, context.names), fields, values)
            files = write_frame(context, now.table, now.state, rows)
        except BaseException:
            gone.discard(now.state)
            raise
        now.table.commit_rows(now.state, gone, "UPDATE", files)
        return gone.rows

    return counts(context, num_affected_rows=retried(target, step))
