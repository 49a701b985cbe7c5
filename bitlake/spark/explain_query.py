"""A query explained: a scan of each lake table in it, and Spark's plan of the rest."""

from __future__ import annotations

from bitlake.errors import InvalidRequest
from bitlake.spark.context import EngineContext
from bitlake.spark.query import prepare, query, spark_plan
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.table.explanation import QueryExplanation
from bitlake.table.scan import Scan


def explain_query(context: EngineContext, text: str, analyze: bool) -> QueryExplanation:
    """Explain a query; with ``analyze`` what it needs of each lake table is read (here, not by Spark), and let go.

    Raises :class:`InvalidRequest` for any other statement.
    """
    text = context.begin(text)
    statement = parse_statement(text)
    if isinstance(statement, st.Explain):
        text = statement.query
        statement = parse_statement(text)
    if not isinstance(statement, st.Query):
        raise InvalidRequest(f"only queries are explained, and this is another statement: {text[:60]}")
    scans = prepare(context, statement.text).scans
    plain = tuple(s.explanation(analyze=analyze) for s in scans if type(s) is Scan)
    # Changes between snapshots and system tables have no plan by file and page.
    others = [str(s.explain()) for s in scans if type(s) is not Scan]
    plan = "\n\n".join([*others, spark_plan(query(context, statement.text))])
    return QueryExplanation(statement.text, plain, plan)
