"""The facade of a table: reading, writing, columns; indexes, history and maintenance are namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bitlake import arguments
from bitlake.errors import InvalidRequest, NotFound, reading_table
from bitlake.expressions.assignment import new_values
from bitlake.expressions.condition import Column, Condition, Where, with_args
from bitlake.expressions.terms import Term
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree import dml
from bitlake.metadata.schema import AddColumn, DropColumn, RenameColumn, TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import tracked
from bitlake.schema.evolution import (
    ColumnName,
    ColumnType,
    column_changes,
    path_of,
    position_of,
    type_of,
)
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import Moment, Time, When
from bitlake.table.history import TableHistory
from bitlake.table.indexes import TableIndexes
from bitlake.table.maintenance import TableMaintenance, core_of
from bitlake.table.scan import Scan
from bitlake.tools.notebook import table_html
from bitlake.types import arrow_schema
from bitlake.types.datatypes import AtomicType, Root
from bitlake.write.append_dml import delete_rows, retrying, update_rows
from bitlake.write.commit_plan import overwrite_scope, physical_partition
from bitlake.write.frames import Rows, arrow_tables, is_repeatable, is_spark_frame
from bitlake.write.writer import write_rows

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from bitlake.expressions.spark_dialect import Args
    from bitlake.scan.dataset import ScanDataset


class Table:
    """A table or branch that :meth:`Lake.table` opened; every call sees its current state.

    ``indexes``, ``history`` and ``maintenance`` are namespaces.

    >>> table = lake.table("orders")
    >>> table.to_arrow(["order_id", "amount"], "status = 'NEW'").to_pylist()
    [{'order_id': 1, 'amount': 10.0}, {'order_id': 3, 'amount': 7.25}, {'order_id': 6, 'amount': 33.0}]
    """

    def __init__(self, core: FileStoreTable, write_frame: Callable[..., int] | None = None) -> None:
        self._core = core
        self._write_frame = write_frame
        self.indexes = TableIndexes(core)
        self.history = TableHistory(core)
        self.maintenance = TableMaintenance(core)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.path!r})"

    def _repr_html_(self) -> str:
        return table_html(self._core)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The full name, such as ``default.orders`` or ``default.orders$branch_dev``.

        >>> table.name
        'default.orders'
        """
        return self._core.name

    @property
    def path(self) -> str:
        """The table's folder, a path or URI.

        >>> table.path
        '.../shop/default.db/orders'
        """
        return self._core.path

    @property
    def schema(self) -> TableSchema:
        """The latest schema.

        >>> table.schema
        TableSchema(0: order_id BIGINT, status STRING, amount DOUBLE, day DATE, partitioned by day)
        """
        return self._core.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The latest schema as Arrow's.

        >>> table.arrow_schema
        order_id: int64
        status: string
        amount: double
        day: date32[day]
        """
        return arrow_schema(self._core.schema.fields)

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest snapshot; None before the first commit.

        >>> table.snapshot
        Snapshot(2: APPEND at 2026-01-03 08:00:00 UTC, 6 rows)
        """
        return self._core.snapshot

    # --- reading -----------------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        *,
        args: Args | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
        incremental_between: tuple[Moment, Moment] | None = None,
        mode: str = "auto",
    ) -> Scan:
        """Describe rows to read: these columns (default: all), where this holds, at most ``limit``.

        ``where`` is a Spark SQL condition, in which ``args`` are the values of ``:name`` (a mapping) or ``?`` (a list);
        or a condition of :func:`bitlake.col`; or terms ``(column, operator, value)``, all of which hold, or lists of
        these, one of which holds; or a ``pyarrow.compute`` expression.

        One of ``snapshot`` (an id), ``tag`` and ``timestamp`` (the last snapshot committed at or before it) reads the
        table as it was then, with the columns it had.  ``incremental_between`` takes two snapshot ids or tags, and
        reads the rows added between them, by ``mode`` (see :meth:`changes`).  No data is read before a method of the
        scan needs it.  Raises :class:`NotFound` for a snapshot that has expired or never existed.

        >>> scan = table.scan(["order_id", "amount"], "status = 'NEW' AND day >= '2026-01-02'")
        >>> scan
        Scan(default.orders: order_id, amount, where status = 'NEW' AND day >= DATE '2026-01-02')
        >>> scan.to_arrow().to_pylist()
        [{'order_id': 3, 'amount': 7.25}, {'order_id': 6, 'amount': 33.0}]
        >>> table.scan(timestamp="2026-01-02 12:00").count()
        4
        >>> import pyarrow.compute as pc
        >>> for where in (bitlake.col("amount") > 50, [("amount", ">", 50)], pc.field("amount") > 50):
        ...     print(table.scan(where=where).count())
        2
        2
        2
        >>> table.scan(where="amount > :least", args={"least": 50}).count()
        2
        """
        when = When(snapshot, tag, timestamp)
        if incremental_between is None:
            if mode != "auto":
                raise InvalidRequest(f"table '{self.name}': mode {mode!r} needs incremental_between")
            core = self._core.scan(when)
        elif when != When():
            raise InvalidRequest(f"table '{self.name}': give incremental_between or a moment, not both")
        else:
            given: Any = incremental_between
            pair = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
            if len(pair) != 2:
                raise InvalidRequest(
                    f"table '{self.name}': incremental_between must be a pair of snapshots or tags, such as (1, 2), "
                    f"and is {given!r}"
                )
            core = self._core.changes(*pair, mode=mode, kinds=False)
        condition = with_args(where, args)
        core = core if condition is None else core.where(condition)
        return Scan(core if columns is None else core.select(columns)).limit(limit)

    def to_arrow(self, columns: Sequence[str] | None = None, where: Where | None = None, **scan: Any) -> pa.Table:
        """Read rows into one Arrow table; the arguments are those of :meth:`scan`.

        >>> table.to_arrow(["order_id", "amount"], "amount > 50").to_pylist()
        [{'order_id': 4, 'amount': 120.0}, {'order_id': 5, 'amount': 60.0}]
        """
        return self.scan(columns, where, **scan).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        *,
        batch_size: int | None = None,
        **scan: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows in batches of at most ``batch_size``, in bounded memory; other arguments are those of :meth:`scan`.

        >>> [batch.num_rows for batch in table.to_batches(["order_id"])]
        [2, 2, 2]
        """
        return self.scan(columns, where, **scan).to_batches(batch_size)

    def to_pandas(self, columns: Sequence[str] | None = None, where: Where | None = None, **scan: Any) -> pd.DataFrame:
        """Read rows into a pandas DataFrame; the arguments are those of :meth:`scan`.

        >>> table.to_pandas(["order_id", "status"], "amount > 50")
           order_id status
        0         4   SENT
        1         5   PAID
        """
        return self.scan(columns, where, **scan).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, where: Where | None = None, **scan: Any) -> pl.DataFrame:
        """Read rows into a Polars DataFrame; the arguments are those of :meth:`scan`.

        >>> table.to_polars(["order_id", "status"], "amount > 50").rows()
        [(4, 'SENT'), (5, 'PAID')]
        """
        return self.scan(columns, where, **scan).to_polars()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Describe the rows as a DuckDB relation; its columns and filters are pushed into the scan.

        ``connection`` is by default DuckDB's own of this process.  The relation reads the snapshot of this call.

        >>> table.to_duckdb().filter("status = 'NEW'").aggregate("count(*), sum(amount)").fetchall()
        [(3, 50.25)]
        """
        return self.scan().to_duckdb(connection)

    def lazy(self) -> pl.LazyFrame:
        """Describe the rows as a Polars LazyFrame; its columns, filters and row limit are pushed into the scan.

        The frame reads the snapshot of this call.

        >>> import polars as pl
        >>> table.lazy().filter(pl.col("amount") > 50).select("order_id", "status").collect().rows()
        [(4, 'SENT'), (5, 'PAID')]
        """
        return self.scan().lazy()

    def dataset(self) -> ScanDataset:
        """Describe the rows as a ``pyarrow.dataset.Dataset``; columns and filters given to it are pushed into the scan.

        DuckDB, Polars, DataFusion and others query it as they do any dataset of Arrow's.  The dataset reads the
        snapshot of this call.

        >>> import pyarrow.compute as pc
        >>> orders = table.dataset()
        >>> orders.to_table(columns=["order_id"], filter=pc.field("amount") > 50).to_pydict()
        {'order_id': [4, 5]}
        >>> import duckdb
        >>> duckdb.sql("SELECT status, sum(amount) FROM orders WHERE order_id IN (1, 3) GROUP BY status").fetchall()
        [('NEW', 17.25)]
        """
        return self.scan().dataset()

    def head(self, rows: int = 10) -> pa.Table:
        """Read at most ``rows`` rows, whichever come first, as an Arrow table.

        >>> table.head(2).column("status").to_pylist()
        ['NEW', 'PAID']
        """
        return self.scan(limit=rows).to_arrow()

    def count(self, where: Where | None = None, args: Args | None = None) -> int:
        """Count the rows for which a condition is TRUE (default: all), from metadata and indexes where they suffice.

        >>> table.count()
        6
        >>> table.count("status = 'NEW'")
        3
        """
        return self.scan(where=where, args=args).count()

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> Scan:
        """Describe what was committed after ``start`` up to ``end`` (default: the latest snapshot).

        Both are snapshot ids or tags.  ``mode``: ``delta`` reads the files that APPEND commits added, ``changelog``
        changelog files, ``diff`` compares both snapshots by key, ``auto`` chooses: changelog where the table writes it,
        diff between tags, else delta.  With ``kinds`` rows begin with a column ``rowkind``, and deleted and replaced
        rows are included; ``packed`` shows them as ``$binlog`` does.
        Raises :class:`NotFound` for a snapshot or tag that does not exist any more.

        >>> customers.changes(1).to_arrow().to_pylist()
        [{'rowkind': '+I', 'customer_id': 2, 'name': 'Grace', 'city': 'Boston'}]
        >>> table.changes(1, 2, kinds=False).count()
        2
        """
        return Scan(self._core.changes(start, end, mode=mode, kinds=kinds, packed=packed))

    def changes_by_time(
        self, start: Time, end: Time | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> Scan:
        """Describe what was committed after one time up to another; see :meth:`changes`.

        >>> changes = table.changes_by_time("2026-01-02 12:00", "2026-01-04")
        >>> changes.select(["rowkind", "order_id"]).to_arrow().to_pylist()
        [{'rowkind': '+I', 'order_id': 5}, {'rowkind': '+I', 'order_id': 6}]
        """
        return Scan(self._core.changes_by_time(start, end, mode=mode, kinds=kinds, packed=packed))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface: Polars, DuckDB and others read all rows directly."""
        return self.scan().__arrow_c_stream__(requested_schema)

    # --- writing -----------------------------------------------------------------------------------------------------

    @tracked("appending to", core_of)
    def append(self, rows: Rows) -> Snapshot | None:
        """Add rows in one snapshot, which is returned (None for no rows).

        ``rows`` is an Arrow table, record batch, reader or dataset; a data frame of pandas (without its index), Polars,
        DuckDB or Spark; or an iterable of Arrow batches.  Rows of a table with a primary key replace those of the same
        key, as :meth:`upsert` does.

        >>> rows = pa.table({"order_id": [7], "status": ["NEW"], "amount": [15.0], "day": [date(2026, 1, 4)]})
        >>> table.append(rows)
        Snapshot(3: APPEND at 2026-01-04 12:00:00 UTC, 7 rows)
        """
        core = self._core
        if is_spark_frame(rows):
            return self._write_on_spark(rows, "append")
        state = core.state()
        if state.schema.primary_keys:
            return self.upsert(rows)
        core.check_writable(state)
        return core.commit_files(state, write_rows(state, arrow_tables(rows), core.store), "WRITE")

    @tracked("writing to", core_of)
    def upsert(self, rows: Rows, kinds: Any = None) -> Snapshot | None:
        """Write changes of rows to a table with a primary key; all become visible at once.

        ``kinds`` gives each row's kind, +I, -U, +U or -D (or 0 to 3): an array, or the name of a column of ``rows``
        that the table does not have; by default all are +I.  Later rows of a key come after earlier ones.
        Returns the last snapshot; None for no rows.

        >>> moved = pa.table({"customer_id": [2], "name": ["Grace"], "city": ["Paris"]})
        >>> customers.upsert(moved)
        Snapshot(3: APPEND at 2026-01-04 12:00:00 UTC, 4 rows)
        >>> customers.to_arrow(["name", "city"]).to_pylist()
        [{'name': 'Ada', 'city': 'London'}, {'name': 'Grace', 'city': 'Paris'}]
        >>> gone = pa.table({"customer_id": [1], "name": ["Ada"], "city": ["London"], "kind": ["-D"]})
        >>> snapshot = customers.upsert(gone, kinds="kind")
        >>> customers.count()
        1
        """
        if is_spark_frame(rows) and kinds is None:
            return self._write_on_spark(rows, "append")
        if is_repeatable(rows):
            return retrying(self._core.state, lambda _: dml.upsert(self._core, rows, kinds))
        return dml.upsert(self._core, rows, kinds)  # batches that come one by one cannot be read again

    def _write_on_spark(self, frame: Any, mode: str) -> Snapshot | None:
        if self._write_frame is None:
            raise InvalidRequest(f"table '{self.name}' was opened without Spark: use lake.write(frame, name)")
        return self.snapshot if self._write_frame(frame, mode=mode) else None

    @tracked("overwriting", core_of)
    def overwrite(self, rows: Rows, partition: Mapping[str, Any] | None = None) -> Snapshot | None:
        """Replace the table's rows, or with ``partition`` those of the partitions that match it.

        An empty ``partition`` replaces only the partitions that ``rows`` has.  Raises :class:`InvalidRequest` for rows
        outside of ``partition``.

        >>> table.overwrite(rows, {"day": "2026-01-04"})
        Snapshot(3: OVERWRITE at 2026-01-04 12:00:00 UTC, 7 rows)
        >>> table.overwrite(rows)
        Snapshot(4: OVERWRITE at 2026-01-04 12:00:00 UTC, 1 rows)
        >>> table.count()
        1
        """
        if is_spark_frame(rows) and partition is None:
            return self._write_on_spark(rows, "overwrite")
        core = self._core
        state = core.state()
        scope = overwrite_scope(state.schema, physical_partition(self.name, state.schema, partition))
        if state.schema.primary_keys:
            return dml.upsert(core, rows, None, operation="OVERWRITE", overwrite=scope)
        core.check_writable(state)
        return core.commit_files(state, write_rows(state, arrow_tables(rows), core.store), "OVERWRITE", scope)

    @tracked("deleting from", core_of)
    def delete(self, where: Where | None = None, args: Args | None = None) -> int:
        """Delete the rows for which a condition is TRUE (all without one); returns their number.

        ``where`` and ``args`` are as in :meth:`scan`.

        With ``deletion-vectors.enabled`` an append table keeps its data files, else the files with such rows are
        rewritten.  A table with a primary key gets a -D row for each if its merge engine takes one; else its files are
        rewritten, too.  If ``where`` names partition columns only, or is None, such a table drops the files of
        whole partitions, as in Paimon, and its changelog lacks their rows; with ``delete.force-produce-changelog`` a
        DELETE of some partitions writes -D rows.

        >>> table.delete("status = 'SENT'")
        1
        """
        core, where = self._core, with_args(where, args)

        def step(state: TableState) -> int:
            scan = core.scan_of(state, where)
            if dml.deletes_partitions(scan):
                return core.delete_partitions(scan)
            if dml.deletes_by_rows(state):
                return dml.delete(core, scan)
            core.check_writable(state, keyed=True)
            scan = core.scan_of(dml.compact_pending(core, state), where)
            delete = dml.delete_by_rewrite if dml.deletes_by_rewrite(state) else delete_rows
            return delete(scan, core.runner(), core.commit_rows)

        return retrying(core.state, step)

    @tracked("updating", core_of)
    def update(
        self,
        values: Mapping[str, Any] | None = None,
        where: Where | None = None,
        args: Args | None = None,
        *,
        expressions: Mapping[str, str | Column] | None = None,
    ) -> int:
        """Set columns of the rows for which a condition is TRUE; returns their number.

        ``where`` and ``args`` are as in :meth:`scan`.

        ``values`` are constants, or functions of the old rows (an Arrow table of all columns) that return a column.
        ``expressions`` are computed of the old rows: Spark SQL with the functions that conditions have, or
        ``col("amount") * 2``.  Text among ``values`` is a constant for columns of text and bytes, and SQL for others.

        >>> table.update({"status": "LATE"}, "status = 'NEW' AND day < '2026-01-02'")
        1
        >>> table.update({"amount": "amount * 2"}, "status = 'LATE'", expressions={"status": "lower(status)"})
        1
        >>> import pyarrow.compute as pc
        >>> table.update({"amount": lambda old: pc.add(old["amount"], 1)}, "status = 'late'")
        1
        >>> table.to_arrow(["amount", "status"], "status = 'late'").to_pylist()
        [{'amount': 21.0, 'status': 'late'}]
        """
        core, where = self._core, with_args(where, args)
        given = dict(arguments.mapping("UPDATE: values", values or {}))
        expressions = arguments.mapping("UPDATE: expressions", expressions or {})
        terms = _update_terms(given, expressions, core.timezone)

        def step(state: TableState) -> int:
            scan = core.scan_of(state, where)
            constants, sql = _texts_apart(state.schema, given)
            every = terms | _update_terms({}, sql, core.timezone)
            assigned = {**constants, **new_values(every, state.schema.fields, core.timezone)}
            if state.schema.primary_keys:
                return dml.update(core, scan, assigned)
            core.check_writable(state)
            return update_rows(scan, assigned, core.runner(), core.commit_rows)

        with reading_table(core.name):
            return retrying(core.state, step)

    def truncate(self, partition: Mapping[str, Any] | None = None, *others: Mapping[str, Any]) -> Snapshot | None:
        """Delete all rows, or those of the partitions that match one of the specs; returns the snapshot.

        >>> table.truncate({"day": "2026-01-03"})
        Snapshot(3: OVERWRITE at 2026-01-04 12:00:00 UTC, 4 rows)
        >>> table.count()
        4
        """
        schema = self.schema
        return self._core.truncate(*(physical_partition(self.name, schema, spec) for spec in (partition, *others)))

    # --- schema ------------------------------------------------------------------------------------------------------

    def alter(
        self,
        *,
        drop: Sequence[ColumnName] = (),
        rename: Mapping[str, str] | None = None,
        add: Mapping[str, ColumnType] | None = None,
    ) -> TableSchema:
        """Drop, rename and add columns, all at once or not at all, by writing a new schema; no data file changes.

        Columns are dropped first and added last.  Raises :class:`NotFound`, :class:`AlreadyExists`, and
        :class:`InvalidRequest` for what Paimon forbids.

        >>> table.alter(rename={"amount": "price"}, add={"note": "STRING", "discount": "DECIMAL(5, 2)"}).field_names
        ('order_id', 'status', 'price', 'day', 'note', 'discount')
        """
        drop = arguments.listed(f"table '{self.name}': drop", drop)
        rename = arguments.mapping(f"table '{self.name}': rename", rename or {})
        add = arguments.mapping(f"table '{self.name}': add", add or {})
        if not (drop or rename or add):
            raise InvalidRequest(f"table '{self.name}': nothing to change; give columns to drop, rename or add")
        schema = self.schema
        return self._core.alter(
            *(DropColumn(path_of(schema, name)) for name in drop),
            *(RenameColumn(path_of(schema, old), new) for old, new in rename.items()),
            *(AddColumn(path_of(schema, name), type_of(kind)) for name, kind in add.items()),
        )

    def alter_options(self, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> TableSchema:
        """Set and unset options by writing a new schema; raises :class:`InvalidRequest` for what Paimon forbids.

        >>> table.alter_options({"file.compression": "zstd"}, unset=["file-index.bitmap.columns"]).options
        {'partition.legacy-name': 'false', 'file.compression': 'zstd'}
        """
        return self._core.alter_options(set, unset)

    def add_column(
        self,
        name: ColumnName,
        type: ColumnType,
        *,
        comment: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> TableSchema:
        """Add a nullable column, or a member to a struct (``"s.x"``); existing rows read NULL.

        >>> table.add_column("note", "STRING", comment="what the customer wrote", after="status").field_names
        ('order_id', 'status', 'note', 'amount', 'day')
        """
        path = path_of(self.schema, name)
        return self._core.alter(AddColumn(path, type_of(type), comment, position_of(first, after)))

    def drop_column(self, name: ColumnName, *, if_exists: bool = False) -> TableSchema:
        """Drop a column, or a struct's member, and the indexes that options declare on it.

        >>> table.drop_column("amount").field_names
        ('order_id', 'status', 'day')
        """
        return self._core.alter(DropColumn(path_of(self.schema, name), if_exists))

    def rename_column(self, name: ColumnName, new_name: str) -> TableSchema:
        """Rename a column, or a struct's member; options that name it follow.

        >>> table.rename_column("amount", "price").field_names
        ('order_id', 'status', 'price', 'day')
        """
        return self._core.alter(RenameColumn(path_of(self.schema, name), new_name))

    def alter_column(
        self,
        name: ColumnName,
        *,
        type: ColumnType | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        default: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> TableSchema:
        """Change what is given: type (values are cast when read), NOT NULL, comment, default (SQL text), position.

        An empty ``comment`` or ``default`` removes it.

        >>> table.alter_column("amount", type="DECIMAL(10, 2)", comment="in euros", after="order_id")
        TableSchema(1: order_id BIGINT, amount DECIMAL(10, 2), status STRING, day DATE, partitioned by day)
        """
        path = path_of(self.schema, name)
        return self._core.alter(*column_changes(path, type, nullable, comment, default, position_of(first, after)))


def _texts_apart(schema: TableSchema, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that are constants, and the texts that are SQL because their columns hold neither text nor bytes."""
    sql = {name: v for name, v in values.items() if isinstance(v, str) and not _may_hold_text(schema, name)}
    return {name: v for name, v in values.items() if name not in sql}, sql


def _may_hold_text(schema: TableSchema, name: str) -> bool:
    try:
        kind = schema.field(name).type
    except NotFound:
        return True  # setting the value reports it
    return isinstance(kind, AtomicType) and kind.root in (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)


def _update_terms(
    constants: Mapping[str, Any], expressions: Mapping[str, str | Column], timezone: str
) -> dict[str, Term]:
    """The terms of an UPDATE's expressions; raises :class:`InvalidRequest` for anything else."""
    for name, value in constants.items():
        if isinstance(value, Column | Condition):
            raise InvalidRequest(
                f"UPDATE: column '{name}' is set to {value!r}, which is not a constant; give it in `expressions`"
            )
    terms: dict[str, Term] = {}
    for name, given in expressions.items():
        if name in constants:
            raise InvalidRequest(f"UPDATE: column '{name}' is set twice")
        if isinstance(given, Column):
            terms[name] = given.term
        elif isinstance(given, str):
            from bitlake.expressions.parser import parse_term  # brings sqlglot, which only SQL text needs

            terms[name] = parse_term(given, timezone)
        else:
            raise InvalidRequest(
                f"UPDATE: the expression of column '{name}' is {given!r}; expected SQL text or bitlake.col(…); "
                "constants are given in `values`"
            )
    return terms
