"""What every SQL handler needs: the catalog, the session, the current database, and small helpers around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from bitlake.spark.runner import SparkRunner
from bitlake.spark.scan import SparkReader
from bitlake.sql.statements import TableName
from bitlake.table.catalog import FileSystemCatalog, Identifier
from bitlake.table.table import Table


class EngineContext:
    """State of one SQL session over a lake."""

    def __init__(self, catalog: FileSystemCatalog, spark: SparkSession, database: str) -> None:
        self.catalog = catalog
        self.spark = spark
        self.database = database
        self._views: Any = None
        self.timezone = "UTC"
        """The session's time zone, in which zone-less timestamp literals are read; as of :meth:`begin`."""

    def begin(self) -> None:
        """Look at the session's settings once for a statement: each look is a round trip to the JVM."""
        self.timezone = str(self.spark.conf.get("spark.sql.session.timeZone"))

    def identify(self, name: TableName) -> Identifier:
        """The table's full name, in the current database unless it says another.

        Folder names tell cases apart and Spark does not: a name that is not there as written is looked for in any case.
        """
        exact = Identifier(name.database or self.database, name.table)
        if self.catalog.table_exists(exact) or not self.catalog.database_exists(exact.database):
            return exact
        alike = [t for t in self.catalog.tables(exact.database) if t.lower() == exact.table.lower()]
        return Identifier(exact.database, alike[0]) if len(alike) == 1 else exact

    def table(self, name: Identifier) -> Table:
        """The table; raises :class:`bitlake.errors.NotFound`."""
        self.catalog.load_schema(name)
        reader = SparkReader(self.spark, self.catalog.store)
        return Table(
            str(name),
            self.catalog.table_path(name),
            self.catalog.store,
            timezone=self.timezone,
            to_spark=reader.frame,
            runner=lambda: SparkRunner(self.spark),
        )

    def is_view(self, name: str) -> bool:
        """Whether the session has a temporary view of this name."""
        session: Any = getattr(self.spark, "_jsparkSession", None)
        if session is None:
            return self.spark.catalog.tableExists(name)
        # Ten times quicker than tableExists(), which looks for a table too and fails in the JVM if there is none.
        if self._views is None:
            self._views = session.sessionState().catalog()
        return bool(self._views.getTempView(name).isDefined())

    def rows(self, columns: Sequence[tuple[str, T.DataType]], rows: Sequence[Sequence[Any]]) -> DataFrame:
        """A small result as a DataFrame."""
        schema = T.StructType([T.StructField(name, kind, True) for name, kind in columns])
        return self.spark.createDataFrame([tuple(r) for r in rows], schema)

    def nothing(self) -> DataFrame:
        """The empty result of a statement that returns none."""
        return self.spark.createDataFrame([], T.StructType([]))
