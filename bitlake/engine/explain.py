"""EXPLAIN of a statement by what it reads of each lake table, and why it skips the rest."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from bitlake.engine.metadata_only import Answer, PreparedQuery, answer, prepare
from bitlake.engine.query import unknown_name
from bitlake.engine.session import Session, result
from bitlake.engine.target import StatementTarget
from bitlake.errors import UnsupportedFeature
from bitlake.expressions.sql_text import quoted
from bitlake.formatting import counted
from bitlake.mergetree.dml import latest_rows
from bitlake.scan.metadata_only import DATA
from bitlake.scan.scan import TableScan
from bitlake.sql import statements as st
from bitlake.sql.aggregate_pushdown import Aggregates
from bitlake.sql.duckdb_engine import direct_files, mixed_files
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import default_as_null
from bitlake.sql.text import SqlText
from bitlake.tools.explain.explanation import explain_scan
from bitlake.tools.explain.text import explain_text


class Explained(NamedTuple):
    """What EXPLAIN shows: a query, and what the statement does with its rows; "" for a query itself."""

    query: SqlText
    purpose: str = ""

    def text(self, plan: str) -> str:
        """The plan below its purpose."""
        return f"{self.purpose}\n\n{plan}" if self.purpose else plan


def explained(session: Session, text: SqlText) -> Explained:
    """The query that finds the rows of a statement; raises :class:`UnsupportedFeature` for one that reads no rows."""
    statement = parse_statement(text)
    match statement:
        case st.Query():
            return Explained(statement.text)
        case st.DeleteFrom():
            return _found(session, statement, "DELETE FROM", "deletes")
        case st.Update():
            return _found(session, statement, "UPDATE", "changes")
        case st.InsertInto():
            name = session.session_table(session.identify_written(statement.table)).name
            start = "INSERT OVERWRITE" if statement.overwrite else "INSERT INTO"
            return Explained(default_as_null(statement.query), f"{start} {name}: writes the rows of this query")
        case st.CreateTable() if statement.query is not None:
            session.identify_written(statement.name, created=True)
            return Explained(statement.query, f"CREATE TABLE {statement.name}: writes the rows of this query")
        case st.MergeInto():
            target = StatementTarget.of(session, statement.table, statement.alias)
            alias = f" AS {statement.source_alias}" if statement.source_alias else ""
            scan = target.table.scan_of(target.state)
            also = "" if latest_rows(scan) is scan else ", those of level 0 too"
            return Explained(
                SqlText(f"{statement.with_} SELECT * FROM {statement.source}{alias}".lstrip()),
                f"MERGE INTO {target.table.name}: reads this source first; of the target it then reads the files and "
                f"pages that can hold the source's keys{also}",
            )
    raise UnsupportedFeature(
        "EXPLAIN takes a query, DELETE, UPDATE, MERGE, INSERT or CREATE TABLE … AS, and this is another statement: "
        f"{text[:60]}"
    )


def _found(session: Session, statement: st.DeleteFrom | st.Update, start: str, does: str) -> Explained:
    """The rows that the condition of a DELETE or UPDATE finds."""
    target = StatementTarget.of(session, statement.table, statement.alias)
    if statement.condition is not None:
        target.check_columns(statement.condition)
    alias = "" if statement.alias is None else f" AS {quoted(statement.alias)}"
    where = "" if statement.condition is None else f" WHERE {statement.condition}"
    query = f"{statement.with_} SELECT * FROM {quoted(target.database, target.name)}{alias}{where}"
    return Explained(SqlText(query.lstrip()), f"{start} {target.table.name}: {does} the rows that are found so")


def details(scan: TableScan) -> str:
    """Describe what a scan skips, by step and by page; empty for changes of snapshots and system tables."""
    return f"\n\n{explain_scan(scan, analyze=False).details()}" if type(scan) is TableScan else ""


def join_filter_line(prepared: PreparedQuery, place: int) -> str:
    """The line about the keys that narrow one of a query's scans; empty if none do."""
    join_filter = prepared.join_filters[place] if prepared.join_filters else None
    return "" if join_filter is None else f"\n  join       {join_filter}"


def explain_answer(answer: Answer) -> str:
    """The plan of a query that metadata and indexes answer."""
    plan = answer.scan.plan()
    read = plan.metrics.answered_by.get(DATA, 0)
    how = f", indexes and {counted(read, 'data file')} of {len(plan.files):,}" if read else ""
    how = how or " and indexes; no data file is opened"
    return f"  answered   from metadata{how}\n\n{explain_text(plan)}{details(answer.scan)}"


def binding(scan: TableScan) -> str:
    """Describe how DuckDB gets a scan's rows."""
    files = direct_files(scan)
    if isinstance(files, str):
        mixed = mixed_files(scan)
        if mixed is None:
            return f"  DuckDB     reads rows through Arrow: {files}"
        direct = counted(len(mixed[0]), "file")
        return f"  DuckDB     reads {direct} with its own Parquet reader, and the others through Arrow: {files}"
    return f"  DuckDB     reads {counted(len(files), 'file')} with its own Parquet reader"


def explain(session: Session, statement: st.Explain) -> pa.Table:
    """EXPLAIN: the plan of each lake table's scan."""
    explained_query = explained(session, statement.query)
    prepared = prepare(session, explained_query.query)
    error = unknown_name(session, prepared)
    if error is not None:
        raise error
    answered = None
    if isinstance(prepared.shape, Aggregates):
        answered = answer(session, prepared.shape, prepared.scans[0], "python")
    if answered is not None:
        return result({"plan": str}, [(explained_query.text(explain_answer(answered)),)])
    parts = [
        f"{explain_text(scan.plan())}{join_filter_line(prepared, i)}\n{binding(scan)}{details(scan)}"
        for i, scan in enumerate(prepared.scans)
    ]
    return result({"plan": str}, [(explained_query.text("\n\n".join(parts) or "the query reads no lake table"),)])
