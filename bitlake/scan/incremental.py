"""Incremental reads: the changes between two snapshots, and the rows with their kinds.

Modes of a read between two snapshots:

* ``delta``: the files that APPEND snapshots after the first up to the second added, row by row.  COMPACT and OVERWRITE
  snapshots add nothing.
* ``changelog``: the changelog files of these snapshots except OVERWRITE, row by row.
* ``diff``: both snapshots compared, key by key; for append tables the rows of files that only the second one has,
  without those that its deletion vectors delete.
* ``auto``: ``changelog`` for tables that write one, else ``delta``; ``diff`` between tags.

Source: the observed behaviour of Paimon's readers (``incremental-between``, ``incremental-between-scan-mode``).

A :class:`ChangeScan` reads rows with their kinds: an audit log, a binlog, a changelog, or the difference of two
snapshots.  Its columns are a view (:func:`kinds_schema`): ``rowkind`` (``+I -U +U -D``), ``_SEQUENCE_NUMBER`` with the
option ``table-read.sequence-number.enabled``, then the table's.  In a binlog each value is in an array of one; an
update whose ``-U`` and ``+U`` follow each other in a file is one row ``+U`` with arrays of two.  Files are read by a
scan of the underlying table.  Tasks are independent of each other, in this process or on executors.

Source: Paimon's ``$audit_log`` and ``$binlog`` system tables, and its incremental reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import InvalidRequest, NotFound, reading_table
from bitlake.expressions.evaluate import filter_table
from bitlake.expressions.tree import Predicate, all_of, sources_of, terms_on
from bitlake.formats.conform import nullable, retyped
from bitlake.io import Store
from bitlake.merge.keys import group_rows, same_values
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.metadata_only import ScanAggregates
from bitlake.scan.plan import Plan
from bitlake.scan.planner import key_predicate
from bitlake.scan.read_ahead import read_in_order
from bitlake.scan.reader import ReadRequest, output_schema, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import (
    ADD,
    DELETE,
    KIND_NAMES,
    SEQUENCE_NUMBER,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    VALUE_KIND,
)
from bitlake.snapshot import versions
from bitlake.snapshot.file_columns import LiveFiles
from bitlake.snapshot.manifests import PartitionFilter, index_entries, read_manifest_list, read_manifests
from bitlake.snapshot.rollback import are_unused
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import ArrayType, DataField
from bitlake.types.datatypes import parse_type

ROW_KIND = "rowkind"
_SEQUENCE_ENABLED = "table-read.sequence-number.enabled"
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
    """Files to read together; with ``before``, compared with these earlier files of the same keys."""

    files: tuple[FileTask, ...]
    before: tuple[FileTask, ...] | None = None

    @property
    def size(self) -> int:
        """An estimate of the bytes of files that it reads."""
        return sum(f.chosen_bytes for f in (*self.files, *(self.before or ())))


@dataclass(frozen=True, slots=True)
class ChangeSpec:
    """The conversion of rows of files to rows of the result; small, and picklable for the executors."""

    request: ReadRequest
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None
    kinds: frozenset[int] | None
    packed: bool
    paired: bool
    """Whether rows come as they were written, so that the old and the new row of an update follow each other."""

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
    def of(
        base: TableScan,
        before: TableScan | None = None,
        *,
        kinded: bool,
        packed: bool = False,
    ) -> ChangeScan:
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
        # Files that are read row by row have no primary key here (of_files); merging puts other rows side by side.
        paired = self.packed and not compared and not base.state.schema.primary_keys
        return ChangeSpec(request, self.state.schema, self.columns, self.predicate, self.kinds, self.packed, paired)

    def tasks(self) -> list[ChangeTask]:
        """The files to read, one task for each file, or for each bucket to compare, or partition with other buckets."""
        request = self.spec().request

        def planned(scan: TableScan) -> Plan:
            return replace(scan, columns=request.columns, predicate=request.predicate, _planned=[]).plan()

        after = planned(self._base)
        if self.before is None:
            return [ChangeTask((t,)) for t in tasks_of(after.files, after.schemas)]
        earlier = planned(self.before)
        counts: dict[bytes, set[int]] = {}
        for file in (*earlier.files, *after.files):
            counts.setdefault(file.entry.partition, set()).add(file.entry.total_buckets)
        compared: dict[tuple[bytes, int], tuple[list[FileTask], list[FileTask]]] = {}
        for plan, place in ((earlier, 0), (after, 1)):
            for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
                entry = file.entry
                # Of another number of buckets, a key may be in another one.
                bucket = entry.bucket if len(counts[entry.partition]) == 1 else -1
                compared.setdefault((entry.partition, bucket), ([], []))[place].append(task)
        return [ChangeTask(tuple(new), tuple(old)) for old, new in compared.values()]

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
            tables = read_file(store, file, spec.request, ReadCounts())
            for table in _with_whole_updates(tables) if spec.paired else tables:
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

    Each has one row for each key.
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


def _with_whole_updates(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of which only the last may end with the old row of an update."""
    rest: list[pa.Table] = []
    for table in tables:
        table = pa.concat_tables([*rest, table])
        kinds = table.column(VALUE_KIND)
        whole = table.num_rows - int(bool(table.num_rows) and kinds[-1].as_py() == UPDATE_BEFORE)
        rest = [table.slice(whole)]
        yield table.slice(0, whole)
    yield from rest


def _finished(table: pa.Table, spec: ChangeSpec) -> Iterator[pa.Table]:
    kinds = table.column(VALUE_KIND).to_numpy()
    if spec.kinds is not None:
        kept = np.isin(kinds, list(spec.kinds))
        table, kinds = (table, kinds) if kept.all() else (table.filter(pa.array(kept)), kinds[kept])
    names = dict.fromkeys((*spec.columns, *(() if spec.predicate is None else sorted(sources_of(spec.predicate)))))
    if spec.packed:
        view = _in_arrays(table, kinds, names, spec.paired)
    else:
        is_kinded = spec.kinds is None
        columns = [_kind_names(kinds) if n == ROW_KIND and is_kinded else table.column(n) for n in names]
        view = pa.table(columns, names=list(names)) if names else table.select([])
    if spec.predicate is not None:
        view = filter_table(spec.predicate, view, spec.schema.fields)
    if view.num_rows:
        chosen = view.select(list(spec.columns))
        yield retyped(chosen, spec.output) if spec.columns else chosen


def _in_arrays(table: pa.Table, kinds: np.ndarray, names: Iterable[str], paired: bool) -> pa.Table:
    """The rows of a binlog: each value in an array; ``paired``: the two rows of an update are one."""
    starts = np.ones(len(kinds), dtype=bool)
    if paired:
        starts[1:] = (kinds[:-1] != UPDATE_BEFORE) | (kinds[1:] != UPDATE_AFTER)
    offsets = np.append(np.flatnonzero(starts), len(kinds))
    columns: dict[str, Any] = {}
    for name in names:
        if name == ROW_KIND:
            columns[name] = _kind_names(kinds[offsets[1:] - 1])
        elif name == SEQUENCE_NUMBER:
            columns[name] = table.column(name).filter(pa.array(starts))
        else:
            values = table.column(name).combine_chunks()
            columns[name] = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
    return pa.table(columns) if columns else table.select([]).slice(0, len(offsets) - 1)


def _kind_names(kinds: np.ndarray) -> pa.Array:
    return pa.array(KIND_NAMES).take(pa.array(kinds))


MODES = ("auto", "delta", "changelog", "diff")


@dataclass(frozen=True, slots=True)
class FilesState(TableState):
    """The state of a table that consists of given files, whatever its snapshot holds."""

    files: tuple[ManifestEntry, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Always False."""
        return False

    def entries(self, partitions: PartitionFilter | None = None) -> LiveFiles:
        """These files, whatever their partitions."""
        return LiveFiles(self.files)

    def schemas(self, ids: Iterable[int]) -> Mapping[int, TableSchema]:
        """The schemas that files were written with, as stored; :attr:`schema` may have other keys and options."""
        with reading_table(self.name, ": data files were written with it; put it back from a copy of the table"):
            return versions.load_schemas(TableFiles(self.store, self.paths), ids)


def of_files(state: TableState, files: Sequence[ManifestEntry], *, merged: bool) -> FilesState:
    """The state of these files alone, with level 0; not ``merged``: row by row, even with a primary key."""
    schema = state.schema
    options = {**schema.options, opt.DV_ENABLED.name: "false"}
    keys = schema.primary_keys if merged else ()
    schema = replace(schema, options=options, primary_keys=keys)
    return FilesState(state.name, state.paths, state.store, schema, state.snapshot, tuple(files))


def columns_of_difference(latest: TableSchema, snapshot_schema: TableSchema) -> TableSchema:
    """The schema of a difference up to a snapshot: the latest one, in which files of the snapshot are read by field id.

    After CREATE OR REPLACE TABLE no column of these files is left, and the snapshot's own schema is returned.
    """
    ids = {f.id for f in latest.fields}
    return latest if any(f.id in ids for f in snapshot_schema.fields) else snapshot_schema


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots after ``start`` up to ``end``; ``start`` 0: from the first snapshot on.

    ``tags`` are the two snapshots, if both were given as tags.
    """

    start: int
    end: int
    tags: tuple[Snapshot, Snapshot] | None = None


def mode_of(state: TableState, between: SnapshotRange, mode: str) -> str:
    """Resolve ``auto`` to ``delta``, ``changelog`` or ``diff``; raises :class:`InvalidRequest` for unknown modes."""
    if mode not in MODES:
        raise InvalidRequest(f"table '{state.name}': unknown incremental mode '{mode}'; expected {', '.join(MODES)}")
    if mode != "auto":
        return mode
    if between.tags is not None:
        return "diff"
    return "delta" if state.schema.opts.of(opt.CHANGELOG_PRODUCER) == "none" else "changelog"


def changed_files(state: TableState, between: SnapshotRange, mode: str) -> list[ManifestEntry]:
    """The files of the snapshots of a range, by ``delta`` or ``changelog``.

    Raises :class:`NotFound` for snapshots that have expired, naming those that are kept.
    """
    ids = check_range(state, between)
    snapshots: list[Snapshot] = []
    for number in _ids_between(state, between, ids):
        try:
            snapshots.append(versions.load_snapshot(state.table_files, number))
        except NotFound as e:
            raise NotFound(f"table '{state.name}': snapshot {number} expired meanwhile; read again") from e
    return files_of_changes(state, snapshots, mode)


def files_of_changes(state: TableState, snapshots: Iterable[Snapshot], mode: str) -> list[ManifestEntry]:
    """The files that hold the changes of these snapshots; ``mode`` is ``delta`` or ``changelog``."""
    manifests: list[ManifestFileMeta] = []
    for snapshot in snapshots:
        name: str | None = None
        if mode == "delta" and snapshot.commit_kind == "APPEND":
            name = snapshot.delta_manifest_list
        elif mode == "changelog" and snapshot.commit_kind != "OVERWRITE":
            name = snapshot.changelog_manifest_list
        if name is not None:
            with reading_table(state.name):
                manifests += read_manifest_list(state.table_files, name)
    with reading_table(state.name):
        read = read_manifests(state.table_files, manifests)
        return [e for entries in read for e in entries if e.kind is EntryKind.ADD]


def overwritten_files(state: TableState, snapshot: Snapshot | None) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """The files that an OVERWRITE snapshot added, and those that it removed, without files that changed their level.

    Both are empty for a snapshot of another kind, and for None.
    """
    if snapshot is None or snapshot.commit_kind != "OVERWRITE":
        return [], []
    with reading_table(state.name):
        manifests = read_manifest_list(state.table_files, snapshot.delta_manifest_list)
        entries = [e for read in read_manifests(state.table_files, manifests) for e in read]
    added = [e for e in entries if e.kind is EntryKind.ADD]
    removed = [e for e in entries if e.kind is EntryKind.DELETE]
    return new_files(removed, added), new_files(added, removed)


def _ids_between(state: TableState, between: SnapshotRange, ids: Sequence[int]) -> list[int]:
    """The snapshots of ``ids`` after one up to another; raises :class:`NotFound` if one is missing."""
    expected = between.start + 1
    if expected > between.end:
        return []
    for number in (i for i in ids if i > between.start):
        if number != expected and not any(
            are_unused(s, expected) for s in versions.existing_snapshots(state.table_files, [number])
        ):
            break
        expected = number + 1
        if expected > between.end:
            return [i for i in ids if between.start < i <= between.end]
    raise NotFound(f"table '{state.name}': snapshot {expected} is missing, or expired meanwhile; read again")


def check_range(state: TableState, between: SnapshotRange) -> list[int]:
    """The ids of all snapshots.

    Raises :class:`NotFound` if snapshots of the range have expired, :class:`InvalidRequest` if it ends before it
    starts.
    """
    if between.end < between.start:
        raise InvalidRequest(
            f"table '{state.name}': changes run from an earlier moment to a later one, and snapshot {between.end} "
            f"comes before {between.start}"
        )
    ids = versions.snapshot_ids(state.table_files)
    if not ids or between.start < ids[0] - 1 or between.end > ids[-1]:
        raise NotFound(
            f"table '{state.name}': cannot compute changes between snapshots {between.start} and {between.end}: "
            f"{versions.kept_words(ids)}"
        )
    return ids


def differing_files(before: TableState, after: TableState) -> tuple[list[ManifestEntry], ...]:
    """The files of buckets that differ: those before, and those after.

    Files that only changed their level count as changed, for merging goes by level, and so do files of which only the
    deleted rows changed.
    """
    old, new = by_bucket(before.entries()), by_bucket(after.entries())
    old_vectors, new_vectors = _vector_files(before), _vector_files(after)
    changed = [
        k
        for k in {**old, **new}
        if _names(old.get(k, ())) != _names(new.get(k, ())) or old_vectors.get(k) != new_vectors.get(k)
    ]
    return [e for k in changed for e in old.get(k, ())], [e for k in changed for e in new.get(k, ())]


def _vector_files(state: TableState) -> dict[tuple[bytes, int], set[str]]:
    """The index files that hold the deletion vectors of each bucket; none where vectors are switched off."""
    out: dict[tuple[bytes, int], set[str]] = {}
    if state.schema.opts.of(opt.DV_ENABLED):
        for e in index_entries(state.table_files, state.snapshot):
            if e.index_type == DELETION_VECTORS:
                out.setdefault((e.partition, e.bucket), set()).add(e.file_name)
    return out


def new_files(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The files that only the second one has."""
    old = {(e.partition, e.bucket, e.file.file_name) for e in before}
    return [e for e in after if (e.partition, e.bucket, e.file.file_name) not in old]


def _names(files: Iterable[ManifestEntry]) -> set[tuple[str, int]]:
    return {(e.file.file_name, e.file.level) for e in files}
