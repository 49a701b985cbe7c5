"""The lake on Spark: SQL, DataFrames and streams.  What needs Spark starts or imports it when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bitlake.errors import InvalidRequest
from bitlake.table.catalog import FileSystemCatalog
from bitlake.table.relation import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bitlake.spark.engine import SparkEngine
    from bitlake.spark.merge_builder import MergeBuilder
    from bitlake.table.explanation import QueryExplanation
    from bitlake.table.plan import Plan
    from bitlake.table.scan import Scan


class SparkLake:
    """What a lake does by Spark, and how it takes names; :class:`bitlake.lake.Lake` is one."""

    path: str
    catalog: FileSystemCatalog
    _storage_options: dict[str, str]
    _external_paths: Sequence[str]
    _catalog_options: dict[str, str]
    _spark: SparkSession | None
    _engine: SparkEngine | None
    _database: str
    _timezone: str

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started if need be; raises :class:`InvalidRequest` when PySpark is not installed."""
        return self._sql_engine().spark

    def sql(self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Run one Spark SQL statement over the lake's tables and the session's views; returns a Spark DataFrame.

        ``args`` are the values of parameters: a mapping for ``:name``, a list for ``?``.
        """
        return self._sql_engine().sql(text, args)

    def write(
        self,
        frame: DataFrame,
        name: str,
        mode: str = "append",
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> int:
        """Write a Spark DataFrame's columns, by name, into a table; returns the number of rows.

        ``mode`` is ``append``, ``overwrite``, ``error`` or ``ignore``.  A table that is not there is made, partitioned
        by ``partition_by`` and with these table options.
        """
        table = self.catalog.find(self._identify(name))
        return self._sql_engine().write(table, frame, mode, partition_by, options or {})

    def read_stream(self, name: str, **options: str) -> DataFrame:
        """A table's changes as a streaming DataFrame, by the data source; ``options`` are those of its streams.

        Their names are as in ``docs/streaming.md``, with underscores: ``start="latest"``, ``consumer_id="me"``.
        """
        reader = self.spark.readStream.format("bitlake").options(**self._source)
        given = {k.replace("_", "-"): v for k, v in options.items()}
        return reader.options(**given).option("table", str(self.catalog.find(self._identify(name)))).load()

    def write_stream(
        self,
        frame: DataFrame,
        name: str,
        checkpoint: str,
        *,
        kinds: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        commit_user: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        """Start a query that writes a streaming DataFrame into a table, each batch once; returns the query.

        Rows of tables with a primary key are upserted; ``kinds`` names a column that says ``+I``, ``-U``, ``+U`` or
        ``-D`` of each.  ``trigger`` are the arguments of Spark's: ``{"availableNow": True}``.  Batches are known by the
        query's id, which its ``checkpoint`` keeps, or by ``commit_user`` where that cannot be read from here.
        ``options``: ``{"write.merge-schema": "true"}``, as of :meth:`write`.
        """
        from bitlake.spark.stream_write import StreamTarget, start_stream

        found = self.catalog.find(self._identify(name))
        target = StreamTarget(self.catalog, found, checkpoint, kinds, commit_user, dict(options or {}))
        query: StreamingQuery = start_stream(self.spark, target, frame, trigger, query_name)
        return query

    def merge(
        self, name: str, source: DataFrame | str, on: str, *, alias: str = "target", source_alias: str = "source"
    ) -> MergeBuilder:
        """Begin a MERGE of a DataFrame's rows (or a table's, by name) into a table.

        >>> lake.merge("t", changes, "target.id = source.id") \\
        ...     .when_matched_update().when_not_matched_insert().execute()  # doctest: +SKIP
        """
        from bitlake.spark.merge_builder import MergeBuilder

        return MergeBuilder(self.sql, name, source, on, alias, source_alias)

    @property
    def _source(self) -> dict[str, str]:
        """The data source's options that name this lake."""
        from bitlake.spark.source.options import storage_spelling

        storage = storage_spelling(self.path, self._storage_options)
        external = {"external-paths": ",".join(self._external_paths)} if self._external_paths else {}
        return {"warehouse": self.path, "timezone": self._timezone, **external, **storage, **self._catalog_options}

    def plans(self, text: str) -> list[Plan]:
        """What a query would read of each lake table in it, and why not the rest; no data is read."""
        return [scan.plan() for scan in self._sql_engine().scans(text)]

    def explain(self, text: str, format: str = "text", *, analyze: bool = False) -> Any:
        """Why a query reads what it reads of each lake table, and Spark's plan: ``text``, ``dict``, ``json``, ``html``.

        With ``analyze`` what it needs of the tables is read, to tell bytes and times as they were.
        """
        if format not in ("text", "dict", "json", "html"):
            raise InvalidRequest(f"explain has the formats text, dict, json, html, not '{format}'")
        told = self.explanation(text, analyze=analyze)
        return {"text": told.text, "dict": told.to_dict, "json": told.to_json, "html": told.to_html}[format]()

    def explanation(self, text: str, *, analyze: bool = False) -> QueryExplanation:
        """:meth:`explain` as an object, which notebooks show with pictures."""
        from bitlake.spark.explain_query import explain_query

        return explain_query(self._sql_engine().context, text, analyze)

    def _sql_engine(self) -> SparkEngine:
        if self._engine is None:
            try:
                from bitlake.spark.engine import SparkEngine
                from bitlake.spark.session import get_or_create
            except ModuleNotFoundError as e:
                raise InvalidRequest(
                    f"SQL runs on Spark, and {e.name} is not installed: `pip install 'bitlake[spark]'`"
                ) from e
            self._engine = SparkEngine(self.catalog, self._spark or get_or_create(), self._database)
        return self._engine

    def _to_spark(self, scan: Scan) -> Any:
        return self._sql_engine().frame(scan)

    # --- names -------------------------------------------------------------------------------------------------------

    @property
    def database(self) -> str:
        """The current database: ``default``, or what USE chose."""
        return self._database if self._engine is None else self._engine.context.database

    def _identify(self, name: str) -> Identifier:
        if "`" in name:
            from bitlake.sql.parser import parse_table_name

            parsed = parse_table_name(name)
            if parsed.catalog is not None:
                raise InvalidRequest(f"'{name}' is a table of another catalog, '{parsed.catalog}'")
            return Identifier(parsed.database or self.database, parsed.table)
        parts = name.split(".")
        if len(parts) == 1:
            return Identifier(self.database, name)
        if len(parts) == 2:
            return Identifier(*parts)
        raise InvalidRequest(f"'{name}' is no table name; say 'table' or 'database.table'")
