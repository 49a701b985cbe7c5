"""Advice for a table of a lake, for queries as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.tree import Predicate
from bitlake.sql.statements import TableName
from bitlake.sql.workload import read_workload
from bitlake.table.advise.advice import Advice
from bitlake.table.advise.questions import Query, not_understood
from bitlake.table.catalog import FileSystemCatalog, Identifier
from bitlake.table.runner import Runner
from bitlake.table.scan_log import ScanRecord
from bitlake.table.table import Table
from bitlake.types import DataField


def advise_for(
    catalog: FileSystemCatalog,
    table: Table,
    queries: Sequence[str] | None,
    database: str,
    recorded: bool,
    sample: int | None,
    engine: str = "spark",
    runner: Runner | None = None,
) -> Advice:
    """:meth:`bitlake.table.table.Table.advise` for SQL text; names without a database are of ``database``."""
    if isinstance(queries, str):
        raise InvalidRequest(f"table '{table.name}': queries are a list of texts, not one text")
    if queries is None:
        return table.advise("recorded" if recorded else None, sample=sample, engine=engine, runner=runner)
    fields = table.schema.fields

    def resolve(name: TableName) -> Sequence[DataField] | None:
        try:
            found = catalog.find(Identifier(name.database or database, name.table))
            return fields if str(found) == table.name else catalog.load_schema(found).fields
        except BitlakeError:
            return None

    work = read_workload(queries, fields, resolve, table.timezone)
    asked: list[str | Predicate | Query | ScanRecord] = [*work.queries]
    if recorded:
        asked += table.recorded_scans(None)
    advice = table.advise(asked, sample=sample, engine=engine, runner=runner)
    notes = [not_understood(text) for text in work.unread[:10]]
    if work.elsewhere:
        notes.append(f"of other tables, and passed over: {work.elsewhere:,} of the queries")
    if work.no_queries:
        notes.append(f"no queries, and passed over: {work.no_queries:,} of the statements")
    return replace(advice, notes=(*advice.notes, *notes))
