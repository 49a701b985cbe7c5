"""Queries over the table that a DELETE, UPDATE or MERGE changes: its rows together with where they are.

Conditions and values stay SQL text that Spark evaluates, over a view of the target's rows.  The other lake tables in
the text are read as in any query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.spark_dialect import tokenize
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Predicate
from bitlake.fileindex.selection import Selection
from bitlake.metadata import options as opt
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.local import held_frame
from bitlake.spark.query import prepare
from bitlake.spark.scan import SparkReader
from bitlake.sql.scope import Mentions
from bitlake.sql.statements import TableName
from bitlake.sql.table_references import replace_tables
from bitlake.table.append_delete import Hits, only_hits
from bitlake.table.read import FILE_PATH, PARTITION, ROW_INDEX
from bitlake.table.scan import Scan
from bitlake.table.state import TableState
from bitlake.table.table import Table


def counts(context: EngineContext, **rows: int) -> DataFrame:
    """What a statement did, as its result: numbers of rows by name."""
    types = T.StructType([T.StructField(name, T.LongType(), False) for name in rows])
    table = pa.table({name: pa.array([count], pa.int64()) for name, count in rows.items()})
    return held_frame(context.spark, table, types)


@dataclass(frozen=True, slots=True)
class Target:
    """A statement's table as it was when the statement read it, under the name that the statement gives it.

    ``with_`` is the statement's WITH clause.
    """

    context: EngineContext
    table: Table
    state: TableState
    database: str
    name: str
    alias: str | None
    with_: str = ""
    pushed: tuple[Predicate, ...] = field(default=())
    """Conditions, bound to the schema, that rows which matter satisfy: from a MERGE's source."""

    @classmethod
    def of(cls, context: EngineContext, name: TableName, alias: str | None, with_: str = "") -> Target:
        """The target of a statement that names it so."""
        identifier = context.identify(name)
        table = context.session_table(identifier)
        return cls(context, table, table.state(), identifier.database, identifier.table, alias, with_)

    @property
    def qualifier(self) -> str:
        """What qualifies the target's columns in SQL text."""
        return quoted(self.alias or self.name)

    @property
    def path(self) -> str:
        """The column of a row's file."""
        return f"{self.qualifier}.{FILE_PATH}"

    @property
    def index(self) -> str:
        """The column of a row's position."""
        return f"{self.qualifier}.{ROW_INDEX}"

    def column(self, name: str) -> str:
        """A column of the target in SQL text."""
        return f"{self.qualifier}.{quoted(name)}"

    @property
    def source(self) -> str:
        """The target as an item of FROM."""
        name = quoted(self.database, self.name)
        return name if self.alias is None else f"{name} AS {quoted(self.alias)}"

    def query(
        self,
        before: str,
        after: str,
        *,
        positions: bool = False,
        deleted_too: bool = False,
        hits: Hits | None = None,
        refiltered: bool = False,
        read_for: str | None = None,
    ) -> DataFrame:
        """The query ``[WITH …] <before> <the target> <after>``, lazy.

        With ``positions`` the target has the columns :attr:`path` (maybe just the file's name) and :attr:`index`;
        ``deleted_too`` gives the rows of its deletion vectors as well, for which Spark's own reader can be used;
        ``hits`` limits it to these rows (and some more, if ``refiltered``: the text filters them itself).
        ``read_for``: the part of the text that names all columns needed of the target, if not all of it does.
        """
        head = f"{self.with_} {before} ".lstrip()
        text = f"{head}{self.source} {after}".rstrip()
        prepared = prepare(self.context, text)
        reader = SparkReader(self.context.spark, self.context.catalog.store)
        frames = []
        uses = prepared.analysis.tables
        if prepared.analysis.by_spark or any(use.file_metadata for use in uses):
            raise UnsupportedFeature(
                f"table '{self.table.name}': DELETE, UPDATE and MERGE do not take _metadata or input_file_name(); "
                f"use {FILE_PATH} and {ROW_INDEX}, or {PARTITION}"
            )
        for use, scan in zip(uses, prepared.scans, strict=True):
            if use.start != len(head):
                frames.append(reader.frame(_without_positions(scan), exact=False))
                continue
            names = tuple(c for c in scan.columns if c not in (FILE_PATH, ROW_INDEX))
            if read_for is not None:
                named = Mentions(read_for, tokenize(read_for))
                names = tuple(c for c in names if named.all or c.lower() in named.words)
            # What is written again must be whole, whatever queries may do without.
            wanted = replace(scan, state=self.state, ignored=None, other=None, _planned=[])
            for predicate in self.pushed:
                wanted = wanted.where_bound(predicate)
            wanted = wanted.select((*names, FILE_PATH, ROW_INDEX) if positions else names)
            if deleted_too:
                wanted = _with_deleted_rows(wanted)
            if hits is not None:
                wanted = only_hits(wanted, hits, refiltered)
            frames.append(reader.frame(wanted, exact=False, file_names=True))
        try:
            with self.context.views(frames) as names_, spark_errors(f"table '{self.table.name}'"):
                query = replace_tables(prepared.analysis.text, uses, names_, self.context.database, self.context.names)
                return self.context.spark.sql(query)
        except NotFound as e:
            columns = ", ".join(self.state.schema.field_names)
            raise NotFound(f"{e}\ntable '{self.table.name}' has columns {columns}") from e.__cause__

    def scan(self, predicate: Predicate | None) -> Scan:
        """The target's rows that satisfy a predicate bound to its schema."""
        scan = self.table.scan_of(self.state)
        return scan if predicate is None else scan.where_bound(predicate)


def _with_deleted_rows(scan: Scan) -> Scan:
    """The scan without the deletion vectors of files that are read as they are; it must not be refined.

    Raises :class:`InvalidRequest` where rows are merged.
    """
    if not scan.state.schema.primary_keys:
        options = {**scan.state.schema.options, opt.DV_ENABLED.name: "false"}
        return replace(scan, state=replace(scan.state, schema=replace(scan.state.schema, options=options)), _planned=[])
    plan = scan.plan()
    if any(f.merge is not None for f in plan.files):
        raise InvalidRequest(f"table '{scan.state.name}': rows are merged to be read")
    whole = {id(f) for f in plan.files if f.deleted and f.chosen_rows + f.deleted == f.row_count}
    files = [replace(f, selection=Selection.all(), deleted=0) if id(f) in whole else f for f in plan.files]
    return replace(scan, _planned=[replace(plan, files=tuple(files))])


def _without_positions(scan: Scan) -> Scan:
    """A scan of another table than the target, without the metadata columns that the text names for the target."""
    left: Sequence[str] = [c for c in scan.columns if c not in (FILE_PATH, ROW_INDEX)]
    return scan if len(left) == len(scan.columns) else scan.select(left)
