"""System tables that are other readings of the table's rows: its changes with their kinds, or only compacted files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.schema import TableSchema
from bitlake.table.change_scan import ChangeScan
from bitlake.table.incremental import FilesState
from bitlake.table.scan import Scan


def audit_log(scan: Scan) -> Scan:
    """``$audit_log``: rows with their kinds, deleted ones too while files hold them."""
    return ChangeScan.of(scan, kinded=True)


def binlog(scan: Scan) -> Scan:
    """``$binlog``: rows with their kinds, each value in an array."""
    return ChangeScan.of(scan, kinded=True, packed=True)


def read_optimized(scan: Scan) -> Scan:
    """``$ro``: of tables with a primary key only files of the last level, which need no merging."""
    state = scan.state
    if not state.schema.primary_keys:
        return scan
    last = _last_level(state.schema)
    files = tuple(e for e in state.entries() if e.file.level == last)
    made = FilesState(state.name, state.paths, state.store, state.schema, state.snapshot, files)
    return replace(scan, state=made, _planned=[])


def _last_level(schema: TableSchema) -> int:
    levels = schema.opts.of(lsm.NUM_LEVELS)
    return (levels if levels is not None else schema.opts.of(lsm.COMPACTION_TRIGGER) + 1) - 1


VIEWS: dict[str, Callable[[Scan], Scan]] = {
    "audit_log": audit_log,
    "binlog": binlog,
    "read_optimized": read_optimized,
    "ro": read_optimized,
}
