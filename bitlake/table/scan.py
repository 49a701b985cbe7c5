"""The facade of a scan: rows to refine, plan, explain and read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.condition import Where, with_args
from bitlake.scan.plan import Plan
from bitlake.scan.scan import TableScan
from bitlake.scan.sort_order import OrderItem
from bitlake.tools.explain.text import FORMATS

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame

    from bitlake.expressions.spark_dialect import Args
    from bitlake.scan.dataset import ScanDataset
    from bitlake.tools.explain.explanation import Explanation


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a table that are described, not read.

    Every refinement returns a new scan, and all conditions must hold.  Nothing is read before a method asks for rows,
    counts or the plan.  Polars, DuckDB and others read a scan directly, by the Arrow C stream interface.

    >>> scan = table.scan().where("status = 'NEW'").select(["order_id", "amount"])
    >>> scan
    Scan(default.orders: order_id, amount, where status = 'NEW')
    >>> scan.count()
    3
    """

    _core: TableScan

    def __repr__(self) -> str:
        return repr(self._core)

    def _repr_html_(self) -> str:
        from bitlake.tools.notebook import scan_html  # only notebooks need it

        return scan_html(self._core)

    # --- refining ----------------------------------------------------------------------------------------------------

    def select(self, columns: Sequence[str]) -> Scan:
        """The same rows with these columns, in this order; names ignore case, ``__paimon_*`` are allowed.

        >>> scan.select(["order_id", "amount"]).limit(1).to_arrow().to_pylist()
        [{'order_id': 1, 'amount': 10.0}]
        """
        return Scan(self._core.select(columns))

    def where(self, condition: Where, args: Args | None = None) -> Scan:
        """The rows that also satisfy a condition; the forms of conditions are those of :meth:`Table.scan`.

        >>> scan.where("status = 'NEW'").where("amount > 20")
        Scan(default.orders: order_id, status, amount, day, where status = 'NEW' AND amount > 20.0D)
        """
        return Scan(self._core.where(with_args(condition, args)))

    def limit(self, rows: int | None) -> Scan:
        """At most this number of rows, in no particular order; None: all.

        >>> scan.limit(4).count()
        4
        """
        return Scan(self._core.limit(rows))

    def top_n(self, order_by: Sequence[OrderItem], n: int) -> Scan:
        """The first ``n`` rows in this order, sorted.

        Items are a column, ``(column, "asc" | "desc")``, or these with a third word for NULLs, ``"first"`` or
        ``"last"``; the default is Spark's: first when ascending.  Rows that tie are in any order.  An expression that
        an index can be of, such as ``length(message)``, may stand for a column.

        >>> scan.select(["order_id", "amount"]).top_n([("amount", "desc")], 2).to_arrow().to_pylist()
        [{'order_id': 4, 'amount': 120.0}, {'order_id': 5, 'amount': 60.0}]
        """
        return Scan(self._core.top_n(order_by, n))

    def without_index(self) -> Scan:
        """The same rows, planned without file indexes (to compare).

        >>> scan = scan.where("status = 'SENT'")
        >>> scan.plan(), scan.without_index().plan()
        (Plan(default.orders: 1 of 3 files, 1 of 6 rows), Plan(default.orders: 1 of 3 files, 2 of 6 rows))
        """
        return Scan(self._core.without_index())

    def with_level_0(self) -> Scan:
        """Also read level 0 of a primary-key table with deletion vectors, and merge it in, which costs more.

        The same as reading with the table option ``deletion-vectors.merge-on-read``.

        >>> schema = customers.maintenance.enable_deletion_vectors()
        >>> schema = customers.alter_options({"write-only": "true"})
        >>> snapshot = customers.upsert(pa.table({"customer_id": [3], "name": ["Alan"], "city": ["London"]}))
        >>> customers.count(), customers.scan().with_level_0().count()
        (2, 3)
        """
        return Scan(self._core.with_level_0())

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result's columns.

        >>> scan.columns
        ('order_id', 'status', 'amount', 'day')
        """
        return self._core.columns

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result.

        >>> scan.select(["order_id", "amount"]).schema
        order_id: int64
        amount: double
        """
        return self._core.schema

    def plan(self) -> Plan:
        """The plan: files to read, the rows of each, and what pruned the others; made once and kept.

        >>> scan.where("status = 'SENT'").plan()
        Plan(default.orders: 1 of 3 files, 1 of 6 rows)
        """
        return self._core.plan()

    def explain(self, format: str = "text", *, analyze: bool = False) -> Any:
        """Explain the plan: every file, what pruned it, and how much is read.

        ``text`` is for people and names the first files, ``dict`` has all files, and ``json`` is the same as text.
        After reading, the explanation has what reading took.  ``html`` is a page with charts.  ``analyze`` plans and
        reads the scan, discards the rows, and gives all of :meth:`explanation` in any format.

        >>> print(scan.where("status = 'SENT'").select(["order_id"]).explain())
        Scan of default.orders at snapshot 2
          columns    order_id
          where      status = 'SENT'
          files      1 of 3 read; skipped by statistics: 2
          rows       1 of 6 chosen (17 %)
          data       ... in files to read, of ...
          planned in ... ms (...)
          + day=2026-01-02/bucket-0/data-....parquet: 1 of 2 rows by bitmap(status) (embedded): rows 1
          - day=2026-01-01/bucket-0/data-....parquet: skipped by statistics: status is in ['NEW', 'PAID']...
          - day=2026-01-03/bucket-0/data-....parquet: skipped by statistics: status is in ['NEW', 'PAID']...
        """
        if format not in (*FORMATS, "html"):
            raise InvalidRequest(f"unknown explain format '{format}'; expected {', '.join((*FORMATS, 'html'))}")
        if format != "html" and not analyze:
            return FORMATS[format](self.plan())
        explanation = self.explanation(analyze=analyze)
        shown = {"text": explanation.text, "dict": explanation.to_dict, "json": explanation.to_json}
        return explanation.to_html() if format == "html" else shown[format]()

    def explanation(self, *, analyze: bool = False) -> Explanation:
        """Explain why this scan reads what it reads, as an :class:`~bitlake.tools.explain.explanation.Explanation`.

        It has the files and bytes that each step left, the pages of each file, and the index that would have helped.
        ``analyze`` reads the scan, one file after the other, and reports the real bytes, requests and times.

        >>> explanation = scan.where("status = 'SENT'").explanation(analyze=True)
        >>> explanation
        Explanation(Plan(default.orders: 1 of 3 files, 1 of 6 rows))
        """
        from bitlake.tools.explain.explanation import explain_scan  # loads what a plan's text does without

        return explain_scan(self._core, analyze)

    # --- reading -----------------------------------------------------------------------------------------------------

    def to_batches(self, batch_size: int | None = None) -> Iterator[pa.RecordBatch]:
        """Read in batches of at most ``batch_size`` rows, file after file in the plan's order.

        A few files are read ahead: at most 64 MB of their rows wait (``bitlake.scan.read_ahead.READ_AHEAD_BYTES``).
        Closing the iterator stops the reading.

        >>> for batch in scan.select(["amount"]).to_batches():
        ...     print(batch.num_rows, batch.column("amount").to_pylist())
        2 [10.0, 25.5]
        2 [7.25, 120.0]
        2 [60.0, 33.0]
        """
        return self._core.to_batches(batch_size)

    def to_arrow(self) -> pa.Table:
        """Read everything into one Arrow table.

        >>> scan.select(["order_id"]).to_arrow().num_rows
        6
        """
        return self._core.to_arrow()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Read everything into a pandas DataFrame; ``options`` go to ``pyarrow.Table.to_pandas``.

        >>> scan.where("amount > 50").to_pandas()
           order_id status  amount         day
        0         4   SENT   120.0  2026-01-02
        1         5   PAID    60.0  2026-01-03
        """
        try:
            import pandas  # noqa: F401 (optional; Arrow's own error names no command)
        except ModuleNotFoundError as e:
            raise InvalidRequest("pandas is not installed: `pip install pandas`") from e
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """Read everything into a Polars DataFrame; needs Polars.

        >>> scan.where("amount > 50").select(["order_id"]).to_polars().rows()
        [(4,), (5,)]
        """
        from bitlake.scan.polars_source import data_frame  # only Polars needs it

        return data_frame(self._core)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Describe the rows as a DuckDB relation, whose columns and filters are pushed into the scan; needs DuckDB.

        ``connection`` is by default DuckDB's own of this process.

        >>> scan.where("amount > 20").to_duckdb().filter("status = 'NEW'").project("order_id").fetchall()
        [(6,)]
        """
        from bitlake.scan.dataset import import_duckdb  # loads pyarrow.dataset

        if connection is None:
            connection = import_duckdb()
        elif not hasattr(connection, "from_arrow"):
            raise InvalidRequest(
                f"connection must be a DuckDB connection, such as duckdb.connect(), not {connection!r}"
            )
        relation: duckdb.DuckDBPyRelation = connection.from_arrow(self.dataset())
        return relation

    def lazy(self) -> pl.LazyFrame:
        """Describe the rows as a Polars LazyFrame, whose columns, filters and row limit are pushed into the scan.

        >>> scan.where("amount > 20").lazy().select("order_id").head(2).collect().rows()
        [(2,), (4,)]
        """
        from bitlake.scan.polars_source import lazy_frame  # only Polars needs it

        return lazy_frame(self._core)

    def dataset(self) -> ScanDataset:
        """Describe the rows as a ``pyarrow.dataset.Dataset``, whose columns and filters are pushed into the scan.

        If ``duckdb`` has been imported, DuckDB also learns the number of rows, and itself applies the filters that
        would spare no reading.

        >>> scan.where("status = 'NEW'").dataset().count_rows()
        3
        """
        from bitlake.scan.dataset import ScanDataset  # loads pyarrow.dataset

        if "duckdb" in sys.modules:
            try:
                from bitlake.scan.duckdb_source import SourceDataset  # DuckDB is optional
            except ImportError:
                return ScanDataset(self._core)  # a DuckDB version with another protocol of sources
            return SourceDataset(self._core)
        return ScanDataset(self._core)

    def to_spark(self) -> DataFrame:
        """Read as a Spark DataFrame; needs PySpark.

        >>> scan.where("status = 'NEW'").to_spark().count()
        3
        """
        frame: DataFrame = self._core.to_spark()
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface."""
        return self._core.to_reader().__arrow_c_stream__(requested_schema)

    # --- aggregates, from metadata or indexes where these suffice (``plan().metrics.answered_by`` counts the ways) ----

    def count(self, column: str | None = None) -> int:
        """The number of rows, or of those that are not NULL in a column.

        >>> scan.where("status = 'NEW'").count()
        3
        >>> scan.count("amount")
        6
        """
        return self._core.count(column)

    def exists(self) -> bool:
        """Whether there is any row.

        >>> scan.where("status = 'LOST'").exists()
        False
        """
        return self._core.exists()

    def count_distinct(self, column: str) -> int:
        """The number of a column's distinct values, without NULL.

        >>> scan.count_distinct("status")
        3
        """
        values = self.distinct(column)
        return len(values) - int(values.null_count)

    def distinct(self, column: str) -> pa.Array:
        """A column's distinct values, NULL last if there is one; -0.0 is 0.0, and NaN one value.

        >>> scan.distinct("status").to_pylist()
        ['NEW', 'PAID', 'SENT']
        """
        return self._core.distinct(column)

    def group_count(self, column: str) -> pa.Table:
        """The number of rows for each value of a column, also NULL: a table of the column and ``count``.

        >>> scan.group_count("status").to_pylist()
        [{'status': 'NEW', 'count': 3}, {'status': 'PAID', 'count': 2}, {'status': 'SENT', 'count': 1}]
        """
        return self._core.group_count(column)

    def min_max(self, column: str) -> tuple[Any, Any]:
        """A column's smallest and largest value as Python values, None if all are NULL; NaN is the largest number.

        >>> scan.min_max("amount")
        (7.25, 120.0)
        >>> scan.where("status = 'NEW'").min_max("day")
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 3))
        """
        return self._core.min_max(column)

    def aggregate(self, aggregates: Mapping[str, str | Sequence[str]], group_by: Sequence[str] = ()) -> pa.Table:
        """Aggregates of columns, as Spark computes them: one row, or one for each group, in no order.

        ``aggregates``: ``count``, ``count_distinct``, ``sum``, ``avg``, ``min`` or ``max`` for each column, and ``"*"``
        for rows; ``group_by``: columns, and SQL expressions over one column each.  Result columns are the keys under
        the names given, then ``count`` and ``<column>_<aggregate>``.  SUM of integers is a BIGINT, AVG a DOUBLE, and
        of DECIMAL(p, s) they are DECIMAL(p + 10, s) and DECIMAL(p + 4, s + 4).

        A file is answered by its metadata and indexes where these suffice (bitmap or range-bitmap for the keys, bsi,
        range-bitmap or bitmap for the columns), else it is read.  Raises :class:`bitlake.errors.EvaluationFailed` for
        a sum beyond its type.

        >>> scan.aggregate({"*": "count", "amount": ["sum", "max"]}, group_by=["status"]).to_pylist()[0]
        {'status': 'NEW', 'count': 3, 'amount_sum': 50.25, 'amount_max': 33.0}
        >>> scan.aggregate({"amount": "max"}, group_by=["month(day)"]).to_pylist()
        [{'month(day)': 1, 'amount_max': 120.0}]
        """
        return self._core.aggregate(aggregates, group_by)
