"""The lake: databases and tables in one folder, with Spark where it is installed.

SQL, DataFrames and streams start or import Spark when they are first asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bitlake import arguments
from bitlake.catalog import REST, connect_catalog
from bitlake.catalog.catalog import DEFAULT_DATABASE, Catalog, Identifier, identifier_exists, locate, open_state
from bitlake.engine import SessionState
from bitlake.errors import InvalidRequest, NotFound
from bitlake.io.base import absolute_path, scheme_of
from bitlake.lazy_modules import install_command
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata.options import option_texts
from bitlake.metadata.paths import DeferredRoots, split_paths
from bitlake.progress import job
from bitlake.runtime import DEFAULT_CACHE_BYTES, CacheBudget, Caches, LocalRunner, Recorder, Runtime
from bitlake.table import open_table
from bitlake.types.time_zone import zone

# Slow imports are in the functions that need them, so that questions about names and schemas are answered at once.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bitlake.engine.engine import CoreEngine
    from bitlake.expressions.condition import Where
    from bitlake.file_store_table import FileStoreTable
    from bitlake.runtime import Runner
    from bitlake.scan.plan import Plan
    from bitlake.scan.scan import TableScan
    from bitlake.snapshot.state import TableState
    from bitlake.spark.dml.merge import MergeBuilder
    from bitlake.spark.engine import SparkEngine
    from bitlake.table.table import Table
    from bitlake.tools.advise.advice import Advice
    from bitlake.tools.explain.explanation import QueryExplanation
    from bitlake.tools.report import TableReport
    from bitlake.tools.verify import VerifyReport
    from bitlake.write.frames import Rows


EXTERNAL_PATHS_CONF = "spark.bitlake.external-paths"


def connect(
    path: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    database: str = DEFAULT_DATABASE,
    timezone: str = "UTC",
    storage_options: Mapping[str, str] | None = None,
    catalog: str = "filesystem",
    uri: str | None = None,
    catalog_options: Mapping[str, str] | None = None,
    record_scans: bool | str | None = None,
    scan_log: str | os.PathLike[str] | None = None,
    progress: bool = True,
    external_paths: Sequence[str] | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Lake:
    """Open the lake in a folder, which the first table creates.

    ``path`` is a path or a URI: ``file://``, ``s3://``, ``gs://``, ``abfss://``, ``az://``, ``hdfs://``, ``webhdfs://``,
    ``memory://``.  ``spark`` is the session that SQL runs on; without one, SQL takes the active session, or starts a
    local one, and does so again after that was stopped.  ``timezone``, a name or an offset such as ``+02:00``, is the
    zone of timestamp literals that name none, in scans and SQL; SQL on a Spark session of your own uses that session's.

    ``storage_options`` configure an object store, by Paimon's names (``s3.endpoint``, ``s3.access-key`` …), Hadoop's
    (``fs.s3a.access.key`` …) or obstore's; the Spark session's ``spark.hadoop.fs.*`` settings and the environment
    complete them.  No text and no file shows their values.  ``local-cache.dir`` … keep remote files on the local disk.

    ``catalog`` keeps the names of tables: ``filesystem``, the folders themselves; ``jdbc``, a database at ``uri``
    (``sqlite:////folder/file``, ``postgresql://host/name``), which several lakes may share; ``rest``, a server at
    ``uri``, with ``path`` the name of a warehouse.  ``catalog_options`` are Paimon's: ``catalog-key``, ``token`` ….

    ``record_scans`` keeps a log of each table's scans for advice and reports: True or ``"values"``, or ``"masked"``
    without the values of conditions; the default is ``BITLAKE_RECORD_SCANS``.  ``scan_log`` is one folder for all logs.
    Jobs of more than a second show their progress in terminals and notebooks, unless ``progress`` is False or
    ``BITLAKE_PROGRESS=0``.

    ``external_paths`` are folders outside of the tables' own in which files of tables may be read, written and deleted:
    absolute paths or URIs, with everything below them.  The default is the Spark session's
    ``spark.bitlake.external-paths``, with commas between, else none; other tables with such files are refused.

    ``cache_bytes`` is the memory, by an estimate, that the lake's tables may take together for what they have read of
    manifests, indexes and footers; 0 turns caching off.

    >>> lake = bitlake.connect("shop")
    >>> lake.tables()
    ['customers', 'orders', 'payments']
    >>> bitlake.connect("s3://bucket/shop", storage_options={"s3.endpoint": "http://localhost:9000"})
    Lake('s3://bucket/shop')
    """
    _check_session(spark, timezone)
    storage_options = arguments.mapping("storage_options", storage_options or {})
    catalog_options = arguments.mapping("catalog_options", catalog_options or {})
    folder = str(path) if catalog == REST else absolute_path(path, "the lake's folder")
    settings = {} if catalog != REST and scheme_of(folder) == "file" else _configured(spark)
    external = _external(spark, settings, external_paths)
    opened = connect_catalog(catalog, folder, uri, catalog_options, storage_options, settings, external)
    opened.runtime = Runtime(Caches(CacheBudget.of(cache_bytes)), _recorder(record_scans, scan_log), progress)
    chosen = {"catalog": catalog, **({"uri": uri} if uri else {}), **catalog_options}
    return Lake(folder, opened, spark, SessionState(database, timezone), external, dict(storage_options), chosen)


def register(spark: SparkSession) -> None:
    """Set a Spark session up for bitlake's data source; calling it again changes nothing.

    The source is known as ``bitlake`` (PySpark finds it without this, too) and as ``paimon``, so that Paimon's examples
    run.  ``spark.sql("CREATE TABLE … USING bitlake")`` is refused, since Spark's own catalog cannot hold such tables; a
    session that :func:`connect` uses refuses it, too.  Filters of DataFrames are not pushed: name them by the
    source's option ``where``.

    >>> bitlake.register(lake.spark)
    >>> lake.spark.read.format("paimon").load(table.path).count()
    6
    """
    try:
        from bitlake.spark.source import data_source  # imported lazily: PySpark is optional
    except ModuleNotFoundError as e:
        raise _spark_is_missing(e) from e
    data_source.register(spark)


class Lake:
    """A warehouse of Paimon tables.

    >>> lake = bitlake.connect("shop")
    >>> lake.table("orders").count("status = 'NEW'")
    3
    """

    def __init__(
        self,
        path: str,
        catalog: Catalog,
        spark: SparkSession | None,
        session: SessionState,
        external_paths: Sequence[str],
        storage_options: Mapping[str, str],
        catalog_options: Mapping[str, str],
    ) -> None:
        """Use :func:`connect` instead, which opens the catalog and knows the defaults."""
        self._path = path
        self._catalog = catalog
        self._spark = spark
        self._engine: SparkEngine | None = None
        self._session = session
        self._external_paths = external_paths
        self._storage_options = storage_options
        self._catalog_options = catalog_options

    def __repr__(self) -> str:
        return f"Lake({self._path!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, also for its tables and scans: all but the Spark session."""
        session = replace(self._session, settings=dict(self._session.settings), spark=None)
        return {**vars(self), "_spark": None, "_engine": None, "_session": session}

    def _repr_html_(self) -> str:
        from bitlake.tools.notebook import lake_html

        return lake_html(self._path, self._catalog, self.database)

    @property
    def path(self) -> str:
        """The lake's folder, a path or URI; of a REST catalog the warehouse's name.

        >>> lake.path
        '.../shop'
        """
        return self._path

    def clear_cache(self) -> None:
        """Drop what was read of the lake from memory, with the local caches in this process's memory; disks stay as is.

        >>> lake.clear_cache()
        >>> lake.table("orders").count("status = 'NEW'")
        3
        """
        from bitlake.io.local_cache import clear_memory

        self._catalog.runtime.caches.clear()
        clear_memory()

    # --- databases and tables ----------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """The names of all databases.

        >>> lake.databases()
        ['default']
        """
        return self._catalog.databases()

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database.

        >>> lake.create_database("archive")
        >>> lake.databases()
        ['archive', 'default']
        """
        self._catalog.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database.

        >>> lake.create_database("archive")
        >>> lake.drop_database("archive", cascade=True)
        >>> lake.databases()
        ['default']
        """
        self._catalog.drop_database(name, if_exists=if_exists, cascade=cascade)

    def tables(self, database: str | None = None) -> list[str]:
        """The names of a database's tables.

        >>> lake.tables()
        ['customers', 'orders', 'payments']
        """
        return self._catalog.tables(database or self.database)

    def table(self, name: str) -> Table:
        """Open a table by name, ``orders`` or ``db.orders``, with backticks and in any case as in SQL.

        ``orders$branch_dev`` is a branch of it, ``orders$snapshots`` a system table, which can only be read.
        Raises :class:`bitlake.errors.NotFound`.

        >>> lake.table("orders")
        Table('default.orders', '.../shop/default.db/orders')
        >>> lake.table("orders$snapshots").to_arrow(["snapshot_id", "commit_kind"]).to_pylist()
        [{'snapshot_id': 1, 'commit_kind': 'APPEND'}, {'snapshot_id': 2, 'commit_kind': 'APPEND'}]
        """
        # Imported lazily: questions about names and schemas need no table.
        from bitlake.table.table import Table

        return Table(core_table(self, name), partial(self.write, name=name))

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Rows,
        *,
        primary_key: Sequence[str] | None = None,
        partition_by: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table with an Arrow schema's columns, or with the columns and rows of data.

        ``schema`` is an Arrow schema, or rows as :meth:`Table.append` takes them; if these cannot be written, the table
        is dropped again.  The columns of a ``primary_key`` become NOT NULL; rows written later replace those of the
        same key.  ``options`` are Paimon's table options.

        >>> schema = pa.schema({"order_id": pa.int64(), "reason": pa.string(), "day": pa.date32()})
        >>> options = {"file-index.bitmap.columns": "reason"}
        >>> lake.create_table("returns", schema, partition_by=["day"], options=options).schema
        TableSchema(0: order_id BIGINT, reason STRING, day DATE, partitioned by day)
        >>> lake.create_table("cities", pa.table({"city": ["London", "Boston"]})).count()
        2
        """
        from bitlake.schema.create import columns_of

        primary_key = arguments.optional_names(f"table '{name}': primary_key", primary_key)
        partition_by = arguments.optional_names(f"table '{name}': partition_by", partition_by)
        if comment is not None:
            arguments.text(f"table '{name}': comment", comment)
        rows: Rows = None
        if not isinstance(schema, pa.Schema):
            if if_not_exists and self._catalog.table_exists(self._identify(name)):
                return self.table(name)
            schema, rows = self._schema_and_rows(name, schema)
        self._catalog.create_table(
            self._identify(name),
            columns_of(name, schema) if isinstance(schema, pa.Schema) else schema,
            partition_keys=partition_by,
            primary_keys=primary_key,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists and rows is None,
        )
        table = self.table(name)
        if rows is not None:
            self._fill(table, rows)
        return table

    def _schema_and_rows(self, name: str, rows: Rows) -> tuple[Any, Rows]:
        """An Arrow schema, or columns of a Spark DataFrame, and rows to append."""
        from bitlake.write.frames import is_spark_frame, with_schema  # not for a schema

        if isinstance(rows, Mapping | str) or (isinstance(rows, list) and not rows):
            raise InvalidRequest(
                f"table '{name}': give an Arrow schema, such as pa.schema([('id', pa.int64())]), or rows, such as a "
                f"data frame, and not {type(rows).__name__}"
            )
        if not is_spark_frame(rows):
            return with_schema(rows)
        from bitlake.spark.dml.insert import columns_of_frame

        return columns_of_frame(rows), rows

    def _fill(self, table: Table, rows: Rows) -> None:
        """Append to a table that was just created, or drop it."""
        try:
            table.append(rows)
        except BaseException:
            self._catalog.drop_unwritten(self._catalog.find(self._identify(table.name)))
            raise

    def read(self, name: str, where: Where | None = None, **scan: Any) -> DataFrame:
        """Read a table as a Spark DataFrame; the arguments are those of :meth:`Table.scan`, and use indexes.

        Filters on the DataFrame are Spark's, and use none.

        >>> lake.read("orders", "status = 'NEW'", snapshot=1).agg({"amount": "sum"}).collect()
        [Row(sum(amount)=17.25)]
        """
        return self.table(name).scan(where=where, **scan).to_spark()

    def rename_table(self, name: str, new_name: str) -> Table:
        """Rename a table; ``db.name`` moves it into that database.

        >>> lake.rename_table("orders", "sales")
        Table('default.sales', '.../shop/default.db/sales')
        >>> lake.tables()
        ['customers', 'payments', 'sales']
        """
        self._catalog.rename_table(self._catalog.find(self._identify(name)), self._identify(new_name))
        return self.table(new_name)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Delete a table.

        >>> lake.drop_table("orders")
        >>> lake.tables()
        ['customers', 'payments']
        """
        self._catalog.drop_table(self._catalog.find(self._identify(name)), if_exists=if_exists)

    def advise(
        self,
        name: str,
        queries: Sequence[str] | None = None,
        *,
        recorded: bool = False,
        sample: int | None = None,
        engine: str = "spark",
    ) -> Advice:
        """Advise on a table's indexes and layout for SQL queries; see :meth:`TableIndexes.advise`.

        ``queries`` are statements, those about other tables are ignored, or conditions; a text may hold several, with
        semicolons between them.  ``recorded`` adds the scans in the table's own log.  Without either, typical queries
        are assumed.  No query is run.

        >>> advice = lake.advise("payments", ["SELECT amount FROM payments WHERE payment_id = 500000000"])
        >>> advice
        Advice(default.payments: 2 options to change, 0 layout changes)
        >>> advice.statements()[0]
        "ALTER TABLE default.payments SET TBLPROPERTIES ('file-index.bloom-filter.columns' = 'payment_id'...
        """
        from bitlake.sql.workload import advise_for

        return advise_for(self._catalog, core_table(self, name), queries, self.database, recorded, sample, engine)

    def verify(
        self,
        name: str,
        deep: bool = True,
        *,
        distributed: bool = False,
        snapshots: Collection[int] | None = None,
        orphans: bool = True,
    ) -> VerifyReport:
        """Check every file of a table; see :meth:`bitlake.table.maintenance.TableMaintenance.verify`.

        ``distributed`` uses Spark's executors instead of threads.  A table whose latest schema cannot be read is
        checked, too.

        >>> lake.verify("orders")
        VerifyReport(default.orders: 0 findings)
        >>> lake.verify("orders", deep=False).ok
        True
        """
        # No table is opened for this: all that it can do takes longer to load than a small table to verify.
        from bitlake.tools.verify import verify_table

        table, paths = locate(self._catalog, self._identify(name))
        runner: Runner = LocalRunner()
        if distributed:
            from bitlake.spark.runner import SparkRunner

            runner = SparkRunner(self.spark)
        with job(f"verifying {table}", self._catalog.runtime.shows_progress):
            store = self._catalog.store
            return verify_table(table, paths, store, runner, deep=deep, snapshots=snapshots, orphans=orphans)

    def report(self, name: str, path: str | os.PathLike[str] | None = None, *, top: int = 15) -> TableReport:
        """Report where a table's bytes are and what to do about it; see ``table.maintenance.report``.

        >>> lake.report("orders", "orders.html")
        TableReport(default.orders)
        """
        return self.table(name).maintenance.report(path, top=top)

    # --- Spark -------------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use; raises :class:`InvalidRequest` without PySpark.

        >>> lake.spark.range(3).count()
        3
        """
        return self._sql_engine().spark

    def sql(self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None, *, engine: str = "spark") -> Any:
        """Run one Spark SQL statement over the lake's tables and the session's views; returns a Spark DataFrame.

        ``args`` are the values of parameters: a mapping for ``:name``, a list for ``?``.  With ``engine="duckdb"``
        the statement runs in this process, without Java: a query by DuckDB, as a DuckDB relation (``fetchall``, ``df``,
        ``pl``, ``arrow``), other statements by the core, as an Arrow table.  Raises :class:`UnsupportedFeature` for
        what needs Spark, and for what DuckDB would answer in another way.

        >>> lake.sql("SELECT status, count(*) AS n FROM orders GROUP BY status ORDER BY status").toPandas()
          status  n
        0    NEW  3
        1   PAID  2
        2   SENT  1
        >>> lake.sql("SELECT order_id FROM orders WHERE amount > :least", {"least": 50}).toArrow().to_pydict()
        {'order_id': [4, 5]}
        >>> lake.sql("SELECT max(amount) FROM orders WHERE status = 'PAID'", engine="duckdb").fetchall()
        [(60.0,)]
        >>> lake.sql("SHOW TABLES LIKE 'o*'", engine="duckdb")["tableName"].to_pylist()
        ['orders']
        """
        arguments.text("a statement", text)
        if engine == "spark":
            return self._sql_engine().sql(text, args)
        if engine != "duckdb":
            raise InvalidRequest(f"unknown engine '{engine}'; expected spark or duckdb")
        return core_engine(self).sql(text, args)

    def write(
        self,
        frame: Rows,
        name: str,
        mode: str = "append",
        *,
        partition_by: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> int:
        """Write a data frame's columns, by name, into a table; returns the number of rows.

        ``frame`` is a Spark DataFrame, which Spark writes, or other rows as :meth:`Table.append` takes them.  ``mode``
        is ``append``, ``overwrite``, ``error`` or ``ignore``.  A missing table is created, partitioned by
        ``partition_by`` and with these table options.

        >>> columns = ["order_id", "status", "amount", "day"]
        >>> frame = lake.spark.createDataFrame([(7, "NEW", 15.0, date(2026, 1, 4))], columns)
        >>> lake.write(frame, "orders")
        1
        >>> import pandas as pd
        >>> lake.write(pd.DataFrame({"city": ["Paris"], "since": [2026]}), "shops")
        1
        """
        from bitlake.write.frames import is_spark_frame

        partition_by = arguments.optional_names(f"table '{name}': partition_by", partition_by)
        table = self._catalog.find(self._identify(name))
        texts = option_texts(options)
        if is_spark_frame(frame):
            return self._sql_engine().write(table, frame, mode, partition_by, texts)
        return self._write_rows(frame, table, mode, partition_by, texts)

    def _write_rows(
        self, rows: Rows, name: Identifier, mode: str, partition_by: Sequence[str], options: Mapping[str, str]
    ) -> int:
        from bitlake.write.frames import arrow_tables, counted, is_repeatable, is_to_write, with_schema

        exists = identifier_exists(self._catalog, name)
        if not is_to_write(name, exists, mode, partition_by, options):
            return 0
        written: list[int] = []
        if not exists:
            schema, tables = with_schema(rows)
            table = self.create_table(str(name), schema, partition_by=partition_by, options=options)
            self._fill(table, counted(tables, written.append))
            return sum(written)
        if is_repeatable(rows):
            rows = list(arrow_tables(rows))
            written += (t.num_rows for t in rows)
        else:
            rows = counted(arrow_tables(rows), written.append)
        table = self.table(str(name))
        (table.overwrite if mode == "overwrite" else table.append)(rows)
        return sum(written)

    def read_stream(self, name: str, **options: str) -> DataFrame:
        """Read a table's changes as a streaming DataFrame.

        ``options`` are those of the data source's streams, with underscores: ``start="latest"``, ``consumer_id="me"``.

        >>> stream = lake.read_stream("orders", start="latest")
        >>> stream.columns
        ['order_id', 'status', 'amount', 'day']
        """
        _require_spark()
        from bitlake.spark.errors import spark_errors

        table = str(self._catalog.find(self._identify(name)))
        reader = self.spark.readStream.format("bitlake").options(**self._source)
        given = {k.replace("_", "-"): v for k, v in options.items()}
        with spark_errors(f"reading a stream of table '{table}'"):
            return reader.options(**given).option("table", table).load()

    def write_stream(
        self,
        frame: DataFrame,
        name: str,
        checkpoint: str | os.PathLike[str],
        *,
        kinds: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        commit_user: str | None = None,
        partition_by: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        """Start a query that writes a streaming DataFrame into a table, each batch once; returns the query.

        A missing table is created, partitioned by ``partition_by`` and with the table's ``options``, as in
        :meth:`write`.
        Rows of tables with a primary key are upserted; ``kinds`` names a column with each row's kind, ``+I``, ``-U``,
        ``+U`` or ``-D``.  ``trigger`` holds the arguments of Spark's: ``{"availableNow": True}``.  Batches are
        identified by the query's id in its ``checkpoint``, or by ``commit_user`` if this process cannot read that.

        >>> stream = lake.read_stream("orders")
        >>> query = lake.write_stream(stream, "copy", "checkpoint", trigger={"availableNow": True})
        >>> query.awaitTermination()
        >>> lake.table("copy").count()
        6
        """
        _require_spark()
        from bitlake.spark.write.streaming import StreamTarget, start_stream
        from bitlake.write.frames import is_spark_frame

        if not is_spark_frame(frame):
            raise InvalidRequest(f"write_stream takes a streaming DataFrame of Spark, not {type(frame).__name__}")
        partition_by = arguments.optional_names(f"table '{name}': partition_by", partition_by)
        existing = self._catalog.find(self._identify(name))
        # Spark's JVM does not follow changes of the working folder.
        folder = arguments.text(
            "checkpoint", os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
        )
        folder = folder if ":" in folder else os.path.abspath(folder)
        target = StreamTarget(self._catalog, existing, folder, kinds, commit_user, option_texts(options))
        query: StreamingQuery = start_stream(self.spark, target, frame, trigger, query_name, partition_by)
        return query

    def merge(
        self, name: str, source: DataFrame | str, on: str, *, alias: str = "target", source_alias: str = "source"
    ) -> MergeBuilder:
        """Build a MERGE of a DataFrame's rows, or of a table's by name, into a table.

        >>> changes = lake.spark.createDataFrame([(2, "SENT")], ["order_id", "status"])
        >>> merge = lake.merge("orders", changes, "target.order_id = source.order_id")
        >>> done = merge.when_matched_update({"status": "source.status"}).execute()
        >>> table.count("status = 'SENT'")
        2
        """
        _require_spark()
        from bitlake.spark.dml.merge import MergeBuilder

        return MergeBuilder(self._sql_engine(), self._identify(name), source, on, alias, source_alias)

    @property
    def _source(self) -> dict[str, str]:
        """The data source's options that name this lake."""
        from bitlake.spark.source.options import storage_spelling

        storage = storage_spelling(self._path, self._storage_options, _configured(self._spark))
        external = {"external-paths": ",".join(self._external_paths)} if self._external_paths else {}
        own = {"warehouse": self._path, "timezone": self._session.timezone}
        own["cache-bytes"] = str(self._catalog.runtime.caches.budget.size)
        return {**own, **external, **storage, **self._catalog_options}

    def plans(self, text: str) -> list[Plan]:
        """Plan a query: what it reads of each lake table, and why it skips the rest; no data is read.

        >>> text = "SELECT amount, name FROM orders, customers WHERE order_id = customer_id AND status = 'SENT'"
        >>> lake.plans(text)
        [Plan(default.orders: 1 of 3 files, 1 of 6 rows), Plan(default.customers: 1 of 2 files, 3 of 3 ro...
        """
        return [scan.plan() for scan in self._sql_engine().scans(text)]

    def explain(self, text: str, format: str = "text", *, analyze: bool = False) -> Any:
        """Explain what a query reads of each lake table and why, with Spark's plan.

        ``format`` is ``text``, ``dict``, ``json`` or ``html``.  ``analyze`` also reads the tables, and reports the real
        bytes and times.

        >>> print(lake.explain("SELECT order_id FROM orders WHERE status = 'SENT'"))
        Scan of default.orders at snapshot 2
          columns    order_id, status
          where      status = 'SENT'
          files      1 of 3 read; skipped by statistics: 2
          rows       1 of 6 chosen (17 %)
          data       ... in files to read, of ...
          planned in ... ms (...)
          + day=2026-01-02/bucket-0/data-....parquet: 1 of 2 rows by bitmap(status) (embedded): rows 1
          - day=2026-01-01/bucket-0/data-....parquet: skipped by statistics: status is in ['NEW', 'PAID']...
          - day=2026-01-03/bucket-0/data-....parquet: skipped by statistics: status is in ['NEW', 'PAID']...
        ...
        """
        if format not in ("text", "dict", "json", "html"):
            raise InvalidRequest(f"explain has the formats text, dict, json, html, not '{format}'")
        explanation = self.explanation(text, analyze=analyze)
        return {
            "text": explanation.text,
            "dict": explanation.to_dict,
            "json": explanation.to_json,
            "html": explanation.to_html,
        }[format]()

    def explanation(self, text: str, *, analyze: bool = False) -> QueryExplanation:
        """:meth:`explain` as an object, which notebooks show with pictures.

        >>> lake.explanation("SELECT order_id FROM orders WHERE status = 'SENT'", analyze=True)
        QueryExplanation(1 scan: SELECT order_id FROM orders WHERE status = 'SENT')
        """
        _require_spark()
        from bitlake.spark.read.query import explain_query

        return explain_query(self._sql_engine().context, text, analyze)

    def _sql_engine(self) -> SparkEngine:
        self._leave_stopped_session()
        if self._engine is None:
            try:
                from bitlake.spark.engine import SparkEngine
                from bitlake.spark.session import get_or_create
            except ModuleNotFoundError as e:
                raise _spark_is_missing(e) from e
            spark = self._spark or get_or_create(timezone=self._session.timezone)
            self._engine = SparkEngine(self._catalog, spark, self._session)
        return self._engine

    def _leave_stopped_session(self) -> None:
        """Forget a session that was stopped, so that the next statement takes the active one or starts another.

        Raises :class:`InvalidRequest` for one that :func:`connect` was given: only the caller can give another.
        """
        spark = self._spark if self._engine is None else self._engine.spark
        if spark is None:
            return
        from bitlake.spark.session import is_stopped

        if not is_stopped(spark):
            return
        if self._spark is not None:
            raise InvalidRequest(
                f"the Spark session of {self!r} was stopped; connect again, with a session that runs: "
                f"bitlake.connect({self._path!r}, spark=…)"
            )
        self._engine = self._session.spark = None
        self.clear_cache()  # some entries are DataFrames of that session

    def _to_spark(self, scan: TableScan) -> Any:
        return self._sql_engine().frame(scan)

    # --- names -------------------------------------------------------------------------------------------------------

    @property
    def database(self) -> str:
        """The current database: ``default``, or what USE chose.

        >>> lake.database
        'default'
        """
        return self._session.database

    def _identify(self, name: str) -> Identifier:
        if "`" in arguments.text("a table name", name):
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
        raise InvalidRequest(f"invalid table name '{name}'; expected 'table' or 'database.table'")


def lake_has_spark(lake: Lake) -> bool:
    """Whether a lake's Spark session has been started or given, whose settings and views its statements may need."""
    return lake._engine is not None or lake._spark is not None


def core_engine(lake: Lake) -> CoreEngine:
    """What runs statements of a lake without Spark, for bitlake's own modules."""
    from bitlake.engine.engine import CoreEngine

    if lake._spark is None:
        lake._leave_stopped_session()
    else:
        lake._sql_engine()  # its settings and views hold for statements here, too
    return CoreEngine(lake._catalog, lake._session, lake._to_spark)


def catalog_of(lake: Lake) -> Catalog:
    """The catalog of a lake, for bitlake's own modules."""
    return lake._catalog


def state_of(lake: Lake, name: str) -> TableState:
    """A table's schema and latest snapshot, for which no module that reads or writes is imported."""
    return open_state(lake._catalog, lake._identify(name))


def core_table(lake: Lake, name: str) -> FileStoreTable:
    """Open the core's table of a name: see :meth:`Lake.table`."""

    def opened(identifier: Identifier) -> FileStoreTable:
        return open_table(lake._catalog, identifier, timezone=lake._session.timezone, to_spark=lake._to_spark)

    identifier = lake._identify(name)
    try:
        return opened(identifier)
    except NotFound:
        existing = lake._catalog.find(identifier)
        if existing == identifier:
            raise
        return opened(existing)


def _recorder(wanted: bool | str | None, folder: str | os.PathLike[str] | None) -> Recorder | None:
    if wanted is None and not os.environ.get("BITLAKE_RECORD_SCANS"):
        return None
    # Imported lazily: most lakes record no scans.
    from bitlake.tools.scan_log import open_recorder

    return open_recorder(wanted, None if folder is None else absolute_path(folder, "scan_log"))


def _check_session(spark: object, timezone: str) -> None:
    if spark is not None and not (hasattr(spark, "conf") and hasattr(spark, "sql")):
        raise InvalidRequest(f"spark must be a SparkSession, such as SparkSession.builder.getOrCreate(), not {spark!r}")
    zone(timezone)


def _external(spark: SparkSession | None, settings: Mapping[str, str], paths: Sequence[str] | None) -> Sequence[str]:
    """The given external paths, else those that the session allows, or the active one if there is one.

    ``settings`` are the session's, where they were fetched; else it is asked when the paths first matter.
    """
    if paths is not None:
        folders = arguments.listed("external_paths", paths, "folders")
        return [absolute_path(path, "a folder of external_paths") for path in folders]
    if settings or (spark is None and "pyspark" not in sys.modules):
        return split_paths(settings.get(EXTERNAL_PATHS_CONF))
    from bitlake.spark.session import known_session

    session = spark or known_session()
    return [] if session is None else DeferredRoots(lambda: split_paths(session.conf.get(EXTERNAL_PATHS_CONF, None)))


def _require_spark() -> None:
    try:
        import bitlake.spark.session  # noqa: F401 (imports PySpark, which is optional)
    except ModuleNotFoundError as e:
        raise _spark_is_missing(e) from e


def _spark_is_missing(error: ModuleNotFoundError) -> InvalidRequest:
    return InvalidRequest(f"this runs on Spark, and {error.name} is not installed: `{install_command('spark')}`")


def _configured(spark: SparkSession | None) -> Mapping[str, str]:
    """Return the settings of the session, or of the active one if there is one; remote stores may need them."""
    if spark is None and "pyspark" not in sys.modules:
        return {}
    from bitlake.spark.session import settings

    return settings(spark)
