"""EXPLAIN of a query by what it reads of each lake table, and why it skips the rest."""

from __future__ import annotations

import pyarrow as pa

from bitlake.engine.metadata_only import Answer, answer, prepare
from bitlake.engine.session import Session, result
from bitlake.errors import UnsupportedFeature
from bitlake.formatting import counted
from bitlake.scan.scan import TableScan
from bitlake.sql import statements as st
from bitlake.sql.aggregate_pushdown import Aggregates
from bitlake.sql.duckdb_binding import direct_files
from bitlake.sql.parser import parse_statement
from bitlake.tools.explain.explanation import explain_scan
from bitlake.tools.explain.text import explain_text


def check_explained(statement: st.Explain) -> None:
    """Raise :class:`UnsupportedFeature` for EXPLAIN of another statement than a query."""
    if not isinstance(parse_statement(statement.query), st.Query):
        raise UnsupportedFeature(f"EXPLAIN takes a query, and this is another statement: {statement.query[:60]}")


def details(scan: TableScan) -> str:
    """What a scan skips, step by step and page by page; empty for changes of snapshots and system tables."""
    return f"\n\n{explain_scan(scan, analyze=False).details()}" if type(scan) is TableScan else ""


def explain_answer(answer: Answer) -> str:
    """The plan of a query that metadata and indexes answer."""
    plan = explain_text(answer.scan.plan())
    return f"  answered   from metadata and indexes; no data file is opened\n\n{plan}{details(answer.scan)}"


def binding(scan: TableScan) -> str:
    """How DuckDB gets a scan's rows."""
    files = direct_files(scan)
    if isinstance(files, str):
        return f"  DuckDB     reads rows through Arrow: {files}"
    return f"  DuckDB     reads {counted(len(files), 'file')} with its own Parquet reader"


def explain(session: Session, statement: st.Explain) -> pa.Table:
    """EXPLAIN: the plan of each lake table's scan."""
    check_explained(statement)
    prepared = prepare(session, statement.query)
    found = None
    if isinstance(prepared.shape, Aggregates):
        found = answer(session, prepared.shape, prepared.scans[0], "python")
    if found is not None:
        return result({"plan": str}, [(explain_answer(found),)])
    parts = [f"{explain_text(scan.plan())}\n{binding(scan)}{details(scan)}" for scan in prepared.scans]
    return result({"plan": str}, [("\n\n".join(parts) or "the query reads no lake table",)])
