"""Scan rows with their kinds: an audit log, a binlog, a changelog, or the difference of two snapshots.

The columns are a view (:func:`kinds_schema`): ``rowkind`` (``+I -U +U -D``), ``_SEQUENCE_NUMBER`` with the option
``table-read.sequence-number.enabled``, then the table's.  In a binlog each value is in an array of one.  Files are read
by a scan of the underlying table.  Tasks are independent of each other, in this process or on executors.

Source: Paimon's ``$audit_log`` and ``$binlog`` system tables, and its incremental reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import InvalidRequest, reading_table
from bitlake.expressions.evaluate import filter_table
from bitlake.expressions.tree import Predicate, all_of, sources_of, terms_on
from bitlake.formats.conform import nullable, retyped
from bitlake.io import Store
from bitlake.merge.keys import group_rows, same_values
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.metadata_only import ScanAggregates
from bitlake.scan.plan import Plan
from bitlake.scan.planner import key_predicate
from bitlake.scan.read_ahead import read_in_order
from bitlake.scan.reader import ReadRequest, bytes_to_read, output_schema, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import ADD, DELETE, SEQUENCE_NUMBER, UPDATE_AFTER, VALUE_KIND
from bitlake.types import ArrayType, DataField
from bitlake.types.datatypes import parse_type

ROW_KIND = "rowkind"
_SEQUENCE_ENABLED = "table-read.sequence-number.enabled"
_NAMES = ("+I", "-U", "+U", "-D")
ADDED = frozenset({ADD, UPDATE_AFTER})
"""The kinds of rows that a query without kinds returns: additions, and no retractions."""


def kinds_schema(schema: TableSchema, packed: bool = False) -> TableSchema:
    """The columns of a table's audit log; ``packed``: of its binlog."""
    own = [DataField(-1, ROW_KIND, parse_type("STRING"))]
    if schema.options.get(_SEQUENCE_ENABLED, "false").strip().lower() == "true":
        own.append(DataField(-2, SEQUENCE_NUMBER, parse_type("BIGINT")))
    columns = [_packed(f) for f in schema.fields] if packed else list(schema.fields)
    return TableSchema(schema.id, (*own, *columns), schema.highest_field_id, options=schema.options)


def _packed(column: DataField) -> DataField:
    return replace(column, type=ArrayType(replace(column.type, nullable=True)))


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """Files to read together; with ``before``, compared with these earlier files of the same bucket."""

    files: tuple[FileTask, ...]
    before: tuple[FileTask, ...] | None = None

    @property
    def size(self) -> int:
        """An estimate of the bytes of files that it reads."""
        return sum(map(bytes_to_read, (*self.files, *(self.before or ()))))


@dataclass(frozen=True, slots=True)
class ChangeSpec:
    """How rows of files become rows of the result; small, and picklable for the executors."""

    request: ReadRequest
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None
    kinds: frozenset[int] | None
    packed: bool

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return output_schema(self.schema, self.columns)


@dataclass(frozen=True, slots=True)
class ChangeScan(TableScan):
    """A scan of rows with their kinds; ``columns`` and ``predicate`` are of the view.

    ``base`` reads the underlying table, ``before`` an earlier snapshot to compare with; ``kinds`` None keeps all kinds.
    """

    base: TableScan | None = None
    before: TableScan | None = None
    kinds: frozenset[int] | None = None
    packed: bool = False

    @staticmethod
    def of(base: TableScan, before: TableScan | None = None, *, kinded: bool, packed: bool = False) -> ChangeScan:
        """The rows of ``base``; ``kinded``: of all kinds, with a column of these, else only additions."""
        base = replace(base, other=None)
        schema = kinds_schema(base.state.schema, packed) if kinded else base.state.schema
        return ChangeScan(
            state=replace(base.state, schema=replace(schema, primary_keys=(), partition_keys=())),
            store=base.store,
            columns=schema.field_names,
            timezone=base.timezone,
            _to_spark=base._to_spark,
            base=base,
            before=before,
            kinds=None if kinded else ADDED,
            packed=packed,
        )

    # --- planning ----------------------------------------------------------------------------------------------------

    def spec(self) -> ChangeSpec:
        """How rows are read."""
        base = self._base
        pushed = () if self.packed else terms_on(self.predicate, base.state.schema.field_names)
        condition = all_of(pushed) if pushed else None
        if self.before is not None:
            # A changed row would look new or deleted if a condition held for only one of its versions.
            condition = key_predicate(base.state.schema, condition)
        requested = frozenset(self.columns) | (frozenset() if self.predicate is None else sources_of(self.predicate))
        compared = self.before is not None
        columns = [c for c in base.state.schema.field_names if compared or c in requested]
        own = [VALUE_KIND, *([SEQUENCE_NUMBER] if SEQUENCE_NUMBER in requested else [])]
        request = ReadRequest(base.state.schema, (*own, *columns), condition, base.timezone, base.ignored)
        return ChangeSpec(request, self.state.schema, self.columns, self.predicate, self.kinds, self.packed)

    def tasks(self) -> list[ChangeTask]:
        """The files to read, one task for each file, or for each bucket to compare."""
        request = self.spec().request

        def planned(scan: TableScan) -> Plan:
            return replace(scan, columns=request.columns, predicate=request.predicate, _planned=[]).plan()

        after = planned(self._base)
        if self.before is None:
            return [ChangeTask((t,)) for t in tasks_of(after.files, after.schemas)]
        earlier = planned(self.before)
        keys = dict.fromkeys((f.entry.partition, f.entry.bucket) for f in (*earlier.files, *after.files))
        old: dict[tuple[bytes, int], list[FileTask]] = {k: [] for k in keys}
        new: dict[tuple[bytes, int], list[FileTask]] = {k: [] for k in keys}
        for plan, buckets in ((earlier, old), (after, new)):
            for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
                buckets[file.entry.partition, file.entry.bucket].append(task)
        return [ChangeTask(tuple(new[k]), tuple(old[k])) for k in keys]

    def plan(self) -> Plan:
        """The files of the underlying table that are read."""
        request = self.spec().request
        return replace(self._base, columns=request.columns, predicate=request.predicate, _planned=[]).plan()

    @property
    def _base(self) -> TableScan:
        assert self.base is not None
        return self.base

    # --- reading -----------------------------------------------------------------------------------------------------

    def count(self, column: str | None = None) -> int:
        """The number of rows, or of those that are not NULL in a column."""
        if column is not None:
            return int(sum(t.num_rows - t.column(0).null_count for t in self.select([column])._tables()))
        return sum(t.num_rows for t in self.select([self.columns[0]] if self.columns else [ROW_KIND])._tables())

    def exists(self) -> bool:
        """Whether there is any row."""
        return any(t.num_rows for t in self._tables())

    def aggregates(self, may_read: bool = True, exact: bool = True) -> ScanAggregates:
        """Raises :class:`InvalidRequest`: no metadata has the kinds of rows."""
        raise InvalidRequest(f"table '{self.state.name}': read the rows of changes, and aggregate those")

    def _tables(self, at_most: int | None = None, bounded: bool = True) -> Iterator[pa.Table]:
        if self.order:
            raise InvalidRequest(f"table '{self.state.name}': changes come in no order; read them and sort")
        tasks, spec = self.tasks(), self.spec()

        def read(i: int) -> Iterator[pa.Table]:
            with reading_table(self.state.name):
                yield from read_changes(self.store, tasks[i], spec)

        sizes = [sum(f.size for f in (*t.files, *(t.before or ()))) for t in tasks]
        yield from read_in_order(sizes, read, row_limit=self.row_limit, bounded=bounded)


def read_changes(store: Store, task: ChangeTask, spec: ChangeSpec) -> Iterator[pa.Table]:
    """The rows of a task, as tables of :attr:`ChangeSpec.output`."""
    if task.before is None:
        for file in task.files:
            for table in read_file(store, file, spec.request, ReadCounts()):
                yield from _finished(table, spec)
        return
    before, after = (_all(store, files, spec.request) for files in (task.before, task.files))
    yield from _finished(_difference(before, after, spec.request.schema), spec)


def _all(store: Store, files: tuple[FileTask, ...], request: ReadRequest) -> pa.Table:
    tables = [t for f in files for t in read_file(store, f, request, ReadCounts())]
    if tables:
        return pa.concat_tables(tables)
    return nullable(output_schema(request.schema, request.columns)).empty_table()


def _difference(before: pa.Table, after: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows that ``before`` lacks or has with other values, and rows that only ``before`` has, as -D.

    Each has one row for each key of a bucket.
    """
    both = pa.concat_tables([retyped(before, after.schema), after])
    if not both.num_rows:
        return both
    later = np.arange(both.num_rows) >= before.num_rows
    groups = group_rows([both.column(k) for k in schema.trimmed_primary_keys], [later.astype(np.int64)])
    first, last = groups.order[groups.starts], groups.last
    kinds = both.column(VALUE_KIND).to_numpy()
    added = (kinds == ADD) | (kinds == UPDATE_AFTER)
    same = (first != last) & (added[first] == added[last])
    for name in schema.field_names:
        same &= same_values(both.column(name), first, last)
    deleted = ~later[last]
    # A row that was deleted before is not a change.
    kept = (~same) & (~deleted | added[last])
    rows = both.take(pa.array(last[kept]))
    new_kinds = np.where(deleted[kept], DELETE, kinds[last[kept]]).astype(np.int8)
    return rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND, pa.array(new_kinds))


def _finished(table: pa.Table, spec: ChangeSpec) -> Iterator[pa.Table]:
    kinds = table.column(VALUE_KIND)
    if spec.kinds is not None:
        kept = np.isin(kinds.to_numpy(), list(spec.kinds))
        table = table if kept.all() else table.filter(pa.array(kept))
        kinds = table.column(VALUE_KIND)
    names = dict.fromkeys((*spec.columns, *(() if spec.predicate is None else sorted(sources_of(spec.predicate)))))
    arrays: list[Any] = []
    for name in names:
        if name == ROW_KIND and spec.kinds is None:
            arrays.append(pa.array(_NAMES).take(pa.array(kinds.to_numpy())))
        elif spec.packed and name != SEQUENCE_NUMBER:
            arrays.append(_single(table.column(name).combine_chunks()))
        else:
            arrays.append(table.column(name))
    view = pa.table(arrays, names=list(names)) if names else table.select([])
    if spec.predicate is not None:
        view = filter_table(spec.predicate, view, spec.schema.fields)
    if view.num_rows:
        chosen = view.select(list(spec.columns))
        yield retyped(chosen, spec.output) if spec.columns else chosen


def _single(values: pa.Array) -> pa.Array:
    """Each value in a list of one."""
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
