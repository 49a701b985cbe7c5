"""A scan of a table: an immutable value to refine, plan, explain and read.

Nothing is read before a method asks for rows or for the plan.  The plan is made once and kept with the scan.
The Spark layer, DML and compaction work on this class; users get the facade :class:`bitlake.table.scan.Scan`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from bitlake import arguments
from bitlake.errors import BitlakeError, CorruptError, EvaluationFailed, InvalidRequest, reading_table
from bitlake.expressions.binder import all_of, bind
from bitlake.expressions.condition import Column, Condition, Where, condition_of, from_terms
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import Constant, Predicate
from bitlake.formats.conform import rebased, retyped
from bitlake.formatting import one_line
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import install_command
from bitlake.metadata.manifest import paused
from bitlake.progress import count_rows
from bitlake.runtime import Executors, Recorder, by_identity
from bitlake.scan.aggregation import aggregate, key_values, parse_aggregates, parse_keys
from bitlake.scan.column_reader import ReadCounts
from bitlake.scan.fallback_branch import OtherBranch, joint_plan, other_branch
from bitlake.scan.metadata_only import ScanAggregates
from bitlake.scan.plan import Plan
from bitlake.scan.planner import ScanRequest, plan_table
from bitlake.scan.read_ahead import files_at_once, read_in_order
from bitlake.scan.reader import (
    IgnoredFiles,
    ReadRequest,
    compact_schema,
    metadata_fields,
    output_schema,
    read_file,
    tasks_of,
)
from bitlake.scan.sort_order import Order, OrderItem, parse_order
from bitlake.scan.task_planning import files_left_by_tasks
from bitlake.scan.top_n import FileRanges, Ranking, TooManyRows, read_top_n
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.partitions import FilesToPlan, files_to_plan
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import When
from bitlake.snapshot.vector_mode import in_readable_mode
from bitlake.types.utf8 import is_utf8

T = TypeVar("T")
_NOW = When()
ToSpark = Callable[["TableScan"], Any]


@dataclass(frozen=True, slots=True)
class TableScan:
    """Rows of a table's state that are described, not read.

    Every refinement returns a new scan, and all conditions must hold.
    """

    state: TableState
    store: Store
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    row_limit: int | None = None
    order: tuple[Order, ...] = ()
    use_index: bool = True
    timezone: str = "UTC"
    ignored: IgnoredFiles | None = None
    """Which unreadable files are left out; None: all files must be readable."""
    other: OtherBranch | None = None
    """A branch that is read as well, for partitions that this one lacks."""
    checks_text: bool = False
    """Whether reading fails on text that is not UTF-8: DuckDB and Polars crash on it, or compute other values."""
    level_0: bool = False
    """Whether level 0 is read where readers skip it until it is compacted, and merged in."""
    _to_spark: ToSpark | None = field(default=None, repr=False, compare=False)
    _executors: Callable[[], Executors] | None = field(default=None, repr=False, compare=False)
    """Makes what decodes very many manifests; None: this process does."""
    _planned: list[Plan] = field(default_factory=list, repr=False, compare=False)
    _recorder: Recorder | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def of_state(
        state: TableState,
        timezone: str = "UTC",
        to_spark: ToSpark | None = None,
        executors: Callable[[], Executors] | None = None,
    ) -> TableScan:
        """A scan of all rows and columns of a state, in the deletion-vector mode that reads it correctly."""
        state = in_readable_mode(state)
        columns = state.schema.field_names
        return TableScan(state, state.store, columns, timezone=timezone, _to_spark=to_spark, _executors=executors)

    @staticmethod
    def at(
        latest: TableState,
        when: When,
        timezone: str = "UTC",
        to_spark: ToSpark | None = None,
        executors: Callable[[], Executors] | None = None,
    ) -> TableScan:
        """A query's scan of a table at a point in time; the latest options apply, such as ``scan.fallback-branch``."""
        scan = TableScan.of_state(when.of(latest, timezone), timezone, to_spark, executors)
        return scan.for_query(when, latest.schema.options)

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        where = "" if self.predicate is None else f", where {to_sql(self.predicate, self.state.schema.fields)}"
        limit = "" if self.row_limit is None else f", limit {self.row_limit:,}"
        return one_line(f"Scan({self.state.name}: {columns}{where}{limit})", 200)

    # --- refining ----------------------------------------------------------------------------------------------------

    def select(self, columns: Sequence[str]) -> TableScan:
        """The same rows with these columns, in this order; names ignore case, ``__paimon_*`` are allowed."""
        columns = arguments.listed(f"table '{self.state.name}': columns", columns)
        metadata = metadata_fields(())
        folded = [str(c).lower() for c in columns]
        schema = self.state.schema
        known = set(schema.field_names)
        names = tuple(
            f if f in metadata else c if type(c) is str and c in known else schema.field(c).name
            for f, c in zip(folded, columns, strict=True)
        )
        twice = [n for n, times in Counter(names).items() if times > 1]
        if twice:
            raise InvalidRequest(f"table '{self.state.name}': column '{twice[0]}' is selected twice")
        return replace(self, columns=names, _planned=[])

    def where(self, condition: Where | Predicate) -> TableScan:
        """The rows that also satisfy a condition, in any form that users write or as a predicate tree."""
        fields = self.state.schema.fields
        if isinstance(condition, str):
            from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

            condition = parse_predicate(condition, self.timezone)
        elif isinstance(condition, Condition | Column):
            condition = condition_of(condition).predicate
        elif isinstance(condition, list | tuple):
            condition = from_terms(condition)
        elif not isinstance(condition, Predicate):
            if not isinstance(condition, pc.Expression):
                raise InvalidRequest(
                    f"table '{self.state.name}': a condition is SQL text, such as \"status = 'NEW'\", "
                    f"or bitlake.col(…) == …, and not {condition!r}"
                )
            from bitlake.expressions.arrow_expression import bind_expression  # only for these conditions

            return self.where_bound(bind_expression(condition, fields, self.timezone))
        return self.where_bound(bind(condition, fields, self.timezone))

    def where_bound(self, bound: Predicate) -> TableScan:
        """The rows that also satisfy a predicate already bound to this scan's schema."""
        both = bound if self.predicate is None else all_of((self.predicate, bound))
        return replace(self, predicate=None if both == Constant(True) else both, _planned=[])

    def limit(self, rows: int | None) -> TableScan:
        """At most this number of rows, in no particular order."""
        if rows is not None and arguments.whole("limit", rows) < 0:
            raise InvalidRequest(f"limit must not be negative, and is {rows}")
        if rows is None and self.row_limit is None and not self.order:
            return self
        return replace(self, row_limit=rows, order=(), _planned=[])

    def top_n(self, order_by: Sequence[OrderItem], n: int) -> TableScan:
        """The first ``n`` rows in this order, sorted."""
        return self.sorted_by(parse_order(order_by, self.state.schema, self.timezone), n)

    def sorted_by(self, orders: Sequence[Order], n: int) -> TableScan:
        """The first ``n`` rows by orders of :func:`bitlake.scan.sort_order.parse_order`, sorted."""
        first: dict[str, Order] = {}
        for order in orders:
            first.setdefault(order.column, order)  # ordering by a column again changes nothing
        return replace(self.limit(n), order=tuple(first.values()))

    def without_index(self) -> TableScan:
        """The same rows, planned without file indexes (to compare)."""
        return replace(self, use_index=False, _planned=[])

    def for_query(self, when: When = _NOW, options: Mapping[str, str] | None = None) -> TableScan:
        """The scan for a query at a point in time, with the table's options: files to ignore, a branch to read as well.

        ``options`` are the table's latest ones, where the schema at that time has others.
        """
        other = None
        if type(self) is TableScan and type(self.state) is TableState:
            other = other_branch(self.state, when, self.timezone, options or self.state.schema.options)
        ignored = IgnoredFiles.of(self.state.schema.options)
        if ignored == self.ignored and other is self.other:
            return self
        return replace(self, ignored=ignored, other=other, _planned=[])

    def with_level_0(self) -> TableScan:
        """Also read level 0 of a primary-key table with deletion vectors or first-row, and merge it in."""
        return replace(self, level_0=True, _planned=[])

    def planned_by(self, executors: Callable[[], Executors]) -> TableScan:
        """The same scan and the same plan, which is made with the help of these executors unless it was made before."""
        return self if self._executors is not None else replace(self, _executors=executors)

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return output_schema(self.state.schema, self.columns)

    def plan(self) -> Plan:
        """The plan: files to read, the rows of each, and what pruned the others; made once and kept."""
        return self._plan(exact=False)

    def exact_plan(self) -> Plan:
        """The plan that finds matching rows as exactly as indexes can, however many they are, as for counting."""
        return self._plan(exact=True)

    def apart(self) -> TableScan:
        """The same scan, with its plan if it has one: a further plan, and what is counted, are not this scan's."""
        plans = [replace(p, metrics=replace(p.metrics, answered_by={})) for p in self._planned]
        return replace(self, _planned=plans)

    def _plan(self, exact: bool) -> Plan:
        # An exact plan may have read indexes that only counting is worth.
        unsure = self.predicate is not None and any(not f.selection.exact for p in self._planned for f in p.files)
        if (exact and unsure) or not self._planned:
            started = time.perf_counter()
            if self.other is None:
                plan = self._plan_files(self.state, self.files_to_plan(), exact)
            else:
                plan = self._joint_plan(self.other, exact)
            plan.metrics.plan_ms = (time.perf_counter() - started) * 1000
            self._planned[:] = [plan]
        return self._planned[0]

    def files_to_plan(self) -> FilesToPlan:
        """The table's files that the planner judges; of very many, those that tasks left."""
        left = None
        # Of two branches, each must know which partitions the other has.
        alone = self.other is None and type(self) is TableScan
        if self._executors is not None and self.predicate is not None and alone:
            executors = self._executors()
            left = files_left_by_tasks(self.state, self.predicate, self.columns, executors, level_0=self.level_0)
        return files_to_plan(self.state, self.predicate) if left is None else left

    def _plan_files(self, state: TableState, listed: FilesToPlan, exact: bool) -> Plan:
        request = ScanRequest(
            table=self.state.name,
            paths=state.paths,
            schema=state.schema,
            snapshot_id=state.snapshot_id,
            columns=self.columns,
            predicate=self.predicate,
            # Where a file may turn out to be ignored, others must stand in for its rows.
            limit=self.row_limit if self.ignored is None else None,
            use_index=self.use_index,
            order=self.order if self.ignored is None else (),
            exact=exact,
            level_0=self.level_0,
        )
        schemas = state.schemas(columns_of_files(listed.files).schema_ids)
        with reading_table(self.state.name), paused():
            plan = plan_table(request, listed.files, schemas, self.store, state.snapshot)
        plan.metrics.count_unlisted(listed.skipped)
        if listed.unseen and state.snapshot is not None:
            plan.metrics.count_unseen(listed.unseen, state.snapshot.total_record_count)
            plan.metrics.manifests, plan.metrics.manifests_read = listed.manifests, listed.manifests_read
        return plan

    def _joint_plan(self, other: OtherBranch, exact: bool) -> Plan:
        """The plan of two branches: the second one's files are read for partitions that the first lacks."""
        own, others = (files_to_plan(s, self.predicate) for s in (self.state, other.state))
        if other.preferred:
            own = own.without_partitions_of(others)
        else:
            others = others.without_partitions_of(own)
        plan, beside = self._plan_files(self.state, own, exact), self._plan_files(other.state, others, exact)
        return joint_plan(plan, beside, other)

    # --- reading -----------------------------------------------------------------------------------------------------

    def to_batches(self, batch_size: int | None = None) -> Iterator[pa.RecordBatch]:
        """Read in batches, file after file in the plan's order; closing the iterator stops the reading."""
        if batch_size is not None and arguments.whole("batch_size", batch_size) < 1:
            raise InvalidRequest(f"batch_size must be positive, and is {batch_size}")
        for table in self._tables():
            yield from table.to_batches(max_chunksize=batch_size)

    def to_reader(self, batch_size: int | None = None) -> pa.RecordBatchReader:
        """Read in batches, as a reader that Arrow's libraries take; the plan is made by its first batch."""
        return pa.RecordBatchReader.from_batches(self.schema, _brief_errors(map(rebased, self.to_batches(batch_size))))

    def candidates(self, columns: Sequence[str], compact: frozenset[str] = frozenset()) -> pa.RecordBatchReader:
        """Read these columns of every row that matches and of others, for an engine that applies the condition itself.

        Rows that do not match are left out where that spares reading.  Columns in ``compact`` come in the types of
        :func:`bitlake.scan.reader.compact_schema`.  Needs a scan without a limit.
        """
        # The plan stays: it does not depend on columns.
        narrowed = replace(self, columns=tuple(columns), checks_text=True)
        tables = narrowed._read(replace(narrowed._request(), exact=False, compact=compact))
        batches = (rebased(batch) for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(compact_schema(narrowed.schema, compact), _brief_errors(batches))

    def to_arrow(self) -> pa.Table:
        """Read everything into one Arrow table."""
        tables = list(self._tables(bounded=False))
        if not tables:
            return self.schema.empty_table()
        if not self.columns:
            # Concatenated, tables without columns have no rows.
            return pa.table({"": pa.nulls(sum(t.num_rows for t in tables))}).select([])
        return pa.concat_tables(tables)

    def to_arrow_within(self, rows: int) -> pa.Table | None:
        """As :meth:`to_arrow`; None if finding the first rows in order takes reading more than ``rows`` rows."""
        try:
            return pa.concat_tables(self._tables(rows))
        except TooManyRows:
            return None

    def to_spark(self) -> Any:
        """The scan as a Spark DataFrame; the table must come from a lake with Spark at hand."""
        if self._to_spark is None:
            raise InvalidRequest(
                "this table was opened without Spark: open it with bitlake.connect(...).table(...), "
                f"with `{install_command('spark')}`"
            )
        return self._to_spark(self)

    # --- aggregates, from metadata or indexes where these suffice (``plan().metrics.answered_by`` counts the ways) ----

    def count(self, column: str | None = None) -> int:
        """The number of rows, or of those that are not NULL in a column."""
        if self.row_limit is None:
            return self._answered(lambda a: a.count(None if column is None else self.state.schema.field(column).name))
        if column is not None:
            return int(sum(t.num_rows - t.column(0).null_count for t in self.select([column])._tables()))
        return sum(t.num_rows for t in replace(self, columns=(), _planned=[])._tables())

    def exists(self) -> bool:
        """Whether there is any row."""
        if self.row_limit is not None:
            return self.row_limit > 0 and replace(self, row_limit=None, order=(), _planned=[]).exists()
        return self._answered(lambda a: a.exists())

    def distinct(self, column: str) -> pa.Array:
        """A column's distinct values, NULL last if there is one; -0.0 is 0.0, and NaN one value."""
        return self._answered(lambda a: a.distinct(self.state.schema.field(column).name))

    def group_count(self, column: str) -> pa.Table:
        """The number of rows for each value of a column, also NULL: a table of the column and ``count``."""
        return self._answered(lambda a: a.group_count(self.state.schema.field(column).name))

    def min_max(self, column: str) -> tuple[Any, Any]:
        """A column's smallest and largest value as Python values, None if all are NULL; NaN is the largest number."""
        low, high = self._answered(lambda a: a.min_max(self.state.schema.field(column).name))
        return low.as_py(), high.as_py()

    def aggregate(self, aggregates: Mapping[str, str | Sequence[str]], group_by: Sequence[str] = ()) -> pa.Table:
        """Aggregates of columns, a row for each group: the keys under the names given, then ``<column>_<aggregate>``.

        As :meth:`bitlake.table.scan.Scan.aggregate`.
        """
        fields = self.state.schema.fields
        keys, terms = parse_keys(group_by, fields, self.timezone)
        requested = parse_aggregates(aggregates, self.state.schema)
        answer = self._answered(lambda a: aggregate(a, keys, list(requested.values())))
        columns = [key_values(term, answer.column(place)) for term, place in terms]
        columns += [answer.column(len(keys) + i) for i in range(len(requested))]
        return pa.Table.from_arrays(columns, names=[*group_by, *requested])

    def aggregates(self, may_read: bool = True, exact: bool = True) -> ScanAggregates:
        """The scan's aggregates; without ``may_read`` only those that need no data file.

        ``exact``: by a plan that finds rows as exactly as indexes can; otherwise by the plan that reads rows.
        """
        if self.row_limit is not None:
            raise InvalidRequest(f"table '{self.state.name}': read the rows of a limited scan, and count those")
        return ScanAggregates(
            self._plan(exact),
            self.store,
            self.state.paths,
            timezone=self.timezone,
            use_index=self.use_index,
            may_read=may_read,
            ignored=self.ignored,
        )

    def _answered(self, question: Callable[[ScanAggregates], T]) -> T:
        with reading_table(self.state.name):
            answer = question(self.aggregates())
        self.record()
        return answer

    def record(self, engine: str = "python", *, was_read: bool = True) -> None:
        """Add the scan to the lake's scan log, if it keeps one; readers outside this class call it after reading."""
        if self._recorder is not None and self._planned:
            self._recorder.add(self._planned[0], self.state.paths, self.store, engine=engine, was_read=was_read)

    # --- reading files -----------------------------------------------------------------------------------------------

    def _tables(self, at_most: int | None = None, bounded: bool = True) -> Iterator[pa.Table]:
        return self._read(self._request(), at_most, bounded)

    def _request(self) -> ReadRequest:
        return ReadRequest(self.state.schema, self.columns, self.predicate, self.timezone, self.ignored)

    def _read(self, request: ReadRequest, at_most: int | None = None, bounded: bool = True) -> Iterator[pa.Table]:
        plan = self.plan()
        tasks = tasks_of(plan.files, plan.schemas)
        counts = [ReadCounts() for _ in tasks]
        started = time.perf_counter()
        left = self.row_limit
        schema = compact_schema(self.schema, request.compact)

        def read(i: int) -> Iterator[pa.Table]:
            with reading_table(self.state.name):
                for table in read_file(self.store, tasks[i], request, counts[i]):
                    yield self._typed(table, tasks[i].path, schema)

        try:
            if self.order and left is not None:
                ranges = FileRanges(self.order[0], self.state.schema, plan.schemas, self.state.paths)
                ranking = Ranking(self.order, left, ranges, self.use_index, plan.metrics)
                with reading_table(self.state.name):
                    table = read_top_n(self.store, plan.files, plan.schemas, request, ranking, counts, at_most)
                yield self._typed(table, plan.root, schema)
                return
            at_once = files_at_once(self.store, tasks)
            sizes = [t.chosen_bytes for t in tasks]
            for table in read_in_order(sizes, read, row_limit=left, bounded=bounded, at_once=at_once):
                count_rows(read=table.num_rows)
                yield table
        finally:
            plan.metrics.count_read({t.path: c.as_dict() for t, c in zip(tasks, counts, strict=True)})
            plan.metrics.read_ms = (time.perf_counter() - started) * 1000
            self.record()

    def _typed(self, table: pa.Table, path: str, schema: pa.Schema) -> pa.Table:
        """A file's rows in the result's schema, whose columns may be NOT NULL."""
        if not self.columns:
            return table  # a schema would lose the number of rows
        for i in _required(schema):
            if nulls := table.column(i).null_count:
                raise CorruptError(f"column '{schema.field(i).name}' is NOT NULL and holds {nulls} NULLs", None, path)
        if self.checks_text:
            _check_text(table, path)
        return table if table.schema.equals(schema) else retyped(table, schema)


def _brief_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; errors come without causes and tracebacks, which Arrow would put into the message."""
    try:
        yield from batches
    except BitlakeError as e:
        raise e.with_traceback(None) from None


def _check_text(table: pa.Table, path: str) -> None:
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not is_utf8(column):
            raise EvaluationFailed(
                f"{path}: column '{name}' has text that is not UTF-8, and only Spark computes with it: query it with "
                "engine='spark', or read it with scan(…).to_arrow()"
            )


@by_identity
def _required(schema: pa.Schema) -> list[int]:
    """The places of the columns that are NOT NULL."""
    return [i for i, f in enumerate(schema) if not f.nullable]
