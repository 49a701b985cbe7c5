"""Open a system table as a read-only table.

Most are metadata gathered into Arrow.  ``$audit_log``, ``$binlog`` and ``$ro`` are other scans of the table's rows: its
changes with their row kinds, or only compacted files.

Times are the local wall clock, as in Paimon.  Source: the columns of Paimon's system tables.

``$statistics`` shows what ANALYZE found, from the last snapshot that names a statistics file.  The file
``statistics/<name>`` is JSON: ``snapshotId``, ``schemaId``, ``mergedRecordCount``, ``mergedRecordSize``, and
``colStats``: by column ``colId``, ``distinctCount``, ``min``, ``max`` (text), ``nullCount``, ``avgLen``, ``maxLen``.
Source: Paimon's statistics files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.condition import Where
from bitlake.expressions.evaluate import filter_table
from bitlake.expressions.tree import Predicate, sources_of
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.conform import retyped
from bitlake.metadata import options as opt
from bitlake.metadata.java_json import dumps, flat, load_object
from bitlake.metadata.schema import TableSchema, near
from bitlake.scan.incremental import ChangeScan, FilesState
from bitlake.scan.metadata_only import ScanAggregates
from bitlake.scan.plan import Plan, ScanMetrics
from bitlake.scan.scan import TableScan
from bitlake.snapshot.consumers import consumers
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import list_tags
from bitlake.snapshot.time_travel import Moment, When
from bitlake.snapshot.versions import existing_snapshots, load_schema, schema_ids, snapshot_ids
from bitlake.system_tables import files
from bitlake.system_tables.files import Metadata, gathered, listed, local_time
from bitlake.types.datatypes import field_to_json

_SNAPSHOTS = listed(
    lambda state: existing_snapshots(state.table_files, snapshot_ids(state.table_files)),
    ("snapshot_id BIGINT NOT NULL", lambda s: s.id),
    "schema_id BIGINT NOT NULL, commit_user STRING NOT NULL, commit_identifier BIGINT NOT NULL",
    "commit_kind STRING NOT NULL",
    ("commit_time TIMESTAMP(3) NOT NULL", lambda s: local_time(s.time_millis)),
    "base_manifest_list STRING NOT NULL, delta_manifest_list STRING NOT NULL, changelog_manifest_list STRING",
    "total_record_count BIGINT, delta_record_count BIGINT, changelog_record_count BIGINT, watermark BIGINT",
    "next_row_id BIGINT, operation STRING, writer_version STRING",
)
_SCHEMAS = listed(
    lambda state: (load_schema(state.table_files, i) for i in schema_ids(state.table_files)),
    ("schema_id BIGINT NOT NULL", lambda s: s.id),
    ("fields STRING NOT NULL", lambda s: flat([field_to_json(f) for f in s.fields])),
    ("partition_keys STRING NOT NULL", lambda s: flat(list(s.partition_keys))),
    ("primary_keys STRING NOT NULL", lambda s: flat(list(s.primary_keys))),
    ("options STRING NOT NULL", lambda s: flat(dict(s.options))),
    "comment STRING",
    ("update_time TIMESTAMP(3) NOT NULL", lambda s: local_time(s.time_millis)),
)
_TAGS = listed(
    list_tags,
    ("tag_name STRING NOT NULL", lambda t: t.name),
    ("snapshot_id BIGINT NOT NULL", lambda t: t.snapshot.id),
    ("schema_id BIGINT NOT NULL", lambda t: t.snapshot.schema_id),
    ("commit_time TIMESTAMP(3) NOT NULL", lambda t: local_time(t.snapshot.time_millis)),
    ("record_count BIGINT", lambda t: t.snapshot.total_record_count),
    ("create_time TIMESTAMP(3)", lambda t: t.created_ms),
    ("time_retained STRING", lambda t: None if t.retained_ms is None else _duration(t.retained_ms)),
)


def _duration(millis: int) -> str:
    """A duration as Java prints it: ``PT24H``, ``PT1M30.5S``."""
    seconds, rest = divmod(millis, 1000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if seconds or rest:
        text += f"{seconds}" + (f".{rest:03d}".rstrip("0") if rest else "") + "S"
    return "PT" + (text or "0S")


@gathered("key STRING NOT NULL, value STRING NOT NULL")
def _options(state: TableState) -> Iterable[Sequence[Any]]:
    return sorted(state.schema.options.items())


@gathered(
    "field_name STRING NOT NULL, field_type STRING NOT NULL, function STRING, function_options STRING, comment STRING"
)
def _aggregation_fields(state: TableState) -> Iterable[Sequence[Any]]:
    """The options ``fields.<column>.…`` of each column: their values and their keys, as Java prints lists."""
    options = state.schema.options
    keys: dict[str, list[str]] = {f.name: [] for f in state.schema.fields}
    for key in options:
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields" and parts[1] in keys:
            keys[parts[1]].append(key)
    return [
        (f.name, str(f.type), f"[{', '.join(options[k] for k in own)}]", f"[{', '.join(own)}]", f.description)
        for f, own in zip(state.schema.fields, keys.values(), strict=True)
    ]


@gathered("consumer_id STRING NOT NULL, next_snapshot_id BIGINT NOT NULL")
def _consumers(state: TableState) -> Iterable[Sequence[Any]]:
    return sorted(consumers(state.table_files).items())


@gathered("branch_name STRING NOT NULL, create_time TIMESTAMP(3) NOT NULL")
def _branches(state: TableState) -> Iterable[Sequence[Any]]:
    # Object stores have no time for folders: that of the branch's first schema, written when it was made.
    folders = [f for f in state.store.list(f"{state.paths.root}/branch") if f.name.startswith("branch-")]
    rows = []
    for folder in folders:
        created = folder.mtime_ms
        if not created:
            inside = state.store.list(f"{state.paths.root}/branch/{folder.name}/schema")
            created = min((f.mtime_ms for f in inside), default=0)
        rows.append((folder.name.removeprefix("branch-"), local_time(created)))
    return rows


@gathered(
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, mergedRecordCount BIGINT, mergedRecordSize BIGINT, "
    "colstat STRING"
)
def _statistics(state: TableState) -> Iterable[Sequence[Any]]:
    if state.snapshot is None or state.snapshot.statistics is None:
        return ()
    path = state.paths.statistics(state.snapshot.statistics)
    try:
        statistics = load_object(state.store.read(path), path)
    except NotFound as e:
        raise NotFound(
            f"table '{state.name}': its statistics file {path} is gone; ANALYZE TABLE makes a new one"
        ) from e
    counts = (statistics.maybe_int("mergedRecordCount"), statistics.maybe_int("mergedRecordSize"))
    stats = dumps(statistics.value.get("colStats") or {})
    return [(statistics.int("snapshotId"), statistics.int("schemaId"), *counts, stats)]


HISTORY_TABLES = {
    "snapshots": _SNAPSHOTS,
    "schemas": _SCHEMAS,
    "options": _options,
    "tags": _TAGS,
    "branches": _branches,
    "consumers": _consumers,
    "aggregation_fields": _aggregation_fields,
    "statistics": _statistics,
}


def audit_log(scan: TableScan) -> TableScan:
    """``$audit_log``: rows with their kinds, deleted ones too while files hold them."""
    return ChangeScan.of(scan, kinded=True)


def binlog(scan: TableScan) -> TableScan:
    """``$binlog``: rows with their kinds, each value in an array."""
    return ChangeScan.of(scan, kinded=True, packed=True)


def read_optimized(scan: TableScan) -> TableScan:
    """``$ro``: of tables with a primary key only files of the last level, which need no merging."""
    state = scan.state
    if not state.schema.primary_keys:
        return scan
    last = _last_level(state.schema)
    files = tuple(e for e in state.entries() if e.file.level == last)
    files_state = FilesState(state.name, state.paths, state.store, state.schema, state.snapshot, files)
    return replace(scan, state=files_state, _planned=[])


def _last_level(schema: TableSchema) -> int:
    levels = schema.opts.of(opt.NUM_LEVELS)
    return (levels if levels is not None else schema.opts.of(opt.COMPACTION_TRIGGER) + 1) - 1


VIEWS: dict[str, Callable[[TableScan], TableScan]] = {
    "audit_log": audit_log,
    "binlog": binlog,
    "read_optimized": read_optimized,
    "ro": read_optimized,
}


TABLES: dict[str, Metadata] = {
    **HISTORY_TABLES,
    **files.FILE_TABLES,
}
"""System tables that are gathered from metadata, by name."""


@dataclass(frozen=True, slots=True)
class SystemScan(TableScan):
    """Rows of a system table, gathered when a scan reads them, and filtered as other rows."""

    gather: Callable[[], pa.Table] | None = None

    def plan(self) -> Plan:
        """A plan without data files."""
        return Plan(
            table=self.state.name,
            root=self.state.paths.root,
            schema=self.state.schema,
            schemas={},
            snapshot_id=self.state.snapshot_id,
            columns=self.columns,
            predicate=self.predicate,
            limit=self.row_limit,
            files=(),
            metrics=ScanMetrics(),
        )

    def count(self, column: str | None = None) -> int:
        """Return the number of rows, or of those that are not NULL in a column."""
        name = self.state.schema.fields[0].name if column is None else column
        rows = pa.concat_tables(self.select([name])._tables())
        return int(rows.num_rows - (0 if column is None else rows.column(0).null_count))

    def exists(self) -> bool:
        """Whether there is a row at all."""
        return self.count() > 0

    def aggregates(self, may_read: bool = True, exact: bool = True) -> ScanAggregates:
        """Raise InvalidRequest: a system table does not have data files with indexes."""
        raise InvalidRequest(f"'{self.state.name}' is a system table: read its rows, and aggregate those")

    def _tables(self, at_most: int | None = None, bounded: bool = True) -> Iterator[pa.Table]:
        assert self.gather is not None
        rows = self.gather()
        if self.predicate is not None:
            needed = sorted(sources_of(self.predicate))
            rows = filter_table(self.predicate, rows, self.state.schema.fields) if needed else rows
        if self.order:
            raise InvalidRequest(f"'{self.state.name}' is a system table: read its rows, and sort those")
        if self.row_limit is not None:
            rows = rows.slice(0, self.row_limit)
        yield retyped(rows.select(list(self.columns)), self.schema)


class SystemTable(FileStoreTable):
    """``t$name``: read as any table, by :meth:`scan`; everything that writes raises :class:`InvalidRequest`."""

    def __init__(self, table: FileStoreTable, system: str) -> None:
        if system not in TABLES and system not in VIEWS:
            known = sorted((*TABLES, *VIEWS))
            raise NotFound(f"table '{table.name}' has no system table '{system}'{near(system, known)}")
        self._table = table
        self._system = system
        super().__init__(
            f"{table.name}${system}",
            table.path,
            table.store,
            timezone=table.timezone,
            to_spark=table.to_spark,
            branch=table.paths.branch,
        )

    @property
    def base(self) -> FileStoreTable:
        """The table that the system table describes."""
        return self._table

    @property
    def system(self) -> str:
        """The name of the system table: ``snapshots``, ``audit_log`` …."""
        return self._system

    def state(self) -> TableState:
        """The system table's columns, with no files of its own."""
        return self._virtual(self._table.state())

    def _virtual(self, state: TableState) -> TableState:
        if self._system in VIEWS:
            schema = VIEWS[self._system](self._table.scan_of(state)).state.schema
        else:
            schema = TABLES[self._system].schema
        return replace(state, name=self.name, schema=schema, snapshot=None)

    def scan_of(self, state: TableState, where: Where | Predicate | None = None) -> TableScan:
        """The rows at a state of the table."""
        if self._system in VIEWS:
            scan = VIEWS[self._system](self._table.scan_of(state))
        else:
            scan = self._gathered(state)
        return scan if where is None else scan.where(where)

    def _gathered(self, state: TableState) -> TableScan:
        metadata = TABLES[self._system]
        virtual = self._virtual(state)
        return SystemScan(
            state=virtual,
            store=self.store,
            columns=virtual.schema.field_names,
            timezone=self.timezone,
            _to_spark=self.to_spark,
            gather=lambda: metadata.table(state),
        )

    def at(self, when: When) -> TableState:
        """The table below, at a moment."""
        return when.of(self._table.state(), self.timezone)

    def query_scan(self, when: When) -> TableScan:
        """The rows at a moment of the table below."""
        return self.scan_of(self.at(when)).for_query(when)

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> TableScan:
        """What changed between two moments, with all kinds of rows: of ``$audit_log`` and ``$binlog`` only."""
        if self._system not in ("audit_log", "binlog"):
            self._refuse()
        return self._table.changes(start, end, mode=mode, kinds=True, packed=packed or self._system == "binlog")

    def check_writable(self, state: TableState, keyed: bool = False) -> None:
        """Raises: a system table cannot be written."""
        self._refuse()

    def _change_schema(self, step: Callable[[TableState], TableSchema]) -> TableSchema:
        self._refuse()

    def partition_files(self, state: TableState, where: str | None = None) -> NoReturn:
        """Raises: a system table has no files."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidRequest(f"'{self.name}' is a system table, which can only be read; use '{self._table.name}'")
