"""Statements on tables with a primary key, in this process: upsert, overwrite, delete, update, compact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.schema.create import check_options
from bitlake.schema.merge_spec import AGGREGATION, DEDUPLICATE, DELETE, PARTIAL_UPDATE, UPDATE_AFTER, MergeSpec
from bitlake.snapshot.partitions import entries_of
from bitlake.snapshot.state import TableState
from bitlake.table.append_update import changed, named_values
from bitlake.table.changes import BatchCommitted
from bitlake.table.commit import Overwrite
from bitlake.table.lsm.model import BucketChange
from bitlake.table.lsm.postpone import postponed, read_postponed, with_buckets
from bitlake.table.lsm.publish import Publisher, bucket_states, compact_buckets, discard_changes, lsm_context
from bitlake.table.scan import Scan
from bitlake.table.stream_commits import is_committed
from bitlake.table.upsert import Rows, batches_of, can_repeat, prepared, write_changes

Place: TypeAlias = Callable[[Publisher, TableState, Mapping[bytes, Sequence[ManifestEntry]]], Snapshot | None]
"""Gives the postponed rows of files, by partition, their buckets, and publishes that."""

_TRIES = 20
"""How often rows are written in all while other writers keep extending the same dynamic buckets."""


class Target(Protocol):
    """What statements ask of a table."""

    name: str

    def state(self) -> TableState:
        """The table now."""

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Who commits to it."""


def upsert(
    table: Target,
    rows: Rows,
    kinds: Any = None,
    *,
    operation: str = "WRITE",
    overwrite: Overwrite | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Write rows and make them visible; see :meth:`bitlake.table.table.Table.upsert`.

    If another writer changed what the rows' places depend on (a dynamic bucket's index), they are written again, where
    they can be gone through a second time.  ``identifier`` is a stream's batch: raises :class:`BatchCommitted` if it is
    in the table already.
    """
    tries = _TRIES if can_repeat(rows) else 1
    for left in range(tries - 1, -1, -1):
        state = table.state()
        check_keyed(table.name, state.schema)
        user = table.publisher(state).user
        if identifier != BATCH_IDENTIFIER and is_committed(state, user, identifier):
            # The commit asks only of snapshots after this state, and a try before this one looked at an older.
            raise BatchCommitted(f"batch {identifier} of {user} is in table '{table.name}' already")
        batches = prepared(table.name, state.schema, batches_of(rows), kinds)
        try:
            return _write(table, state, batches, operation, overwrite, identifier=identifier)
        except BatchCommitted:
            raise
        except CommitConflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _write(
    table: Target,
    state: TableState,
    batches: Iterable[pa.Table],
    operation: str,
    overwrite: Overwrite | None = None,
    *,
    renumber: bool = True,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    publisher = table.publisher(state, identifier)
    changes = write_changes(state, batches, publisher.user, fresh=overwrite is not None)
    return publisher.publish(state, changes, operation=operation, overwrite=overwrite, renumber=renumber)


def check_keyed(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` unless the table has a primary key and can be written."""
    if not schema.primary_keys:
        raise InvalidRequest(f"table '{table}' has no primary key: rows can be appended to it, not upserted")
    check_options(table, dict(schema.options), schema.fields, schema.partition_keys, schema.primary_keys)


# --- DELETE and UPDATE ------------------------------------------------------------------------------------------------


def deletes_by_rows(state: TableState) -> bool:
    """Whether DELETE writes -D rows: where the merge engine lets them remove a row, and they are not ignored."""
    schema, options = state.schema, state.schema.opts
    if not schema.primary_keys or options.of(lsm.IGNORE_DELETE):
        return False
    engine = options.of(opt.MERGE_ENGINE)
    if engine == PARTIAL_UPDATE:
        spec = MergeSpec.of(schema)
        return spec.remove_on_delete or bool(spec.remove_on_group)
    return engine == DEDUPLICATE or (engine == AGGREGATION and MergeSpec.of(schema).remove_on_delete)


def check_changes(table: str, schema: TableSchema, statement: str) -> None:
    """Raise :class:`InvalidRequest` unless UPDATE and MERGE can change rows by writing them again, as in Paimon."""
    engine = schema.opts.of(opt.MERGE_ENGINE)
    if engine not in (DEDUPLICATE, PARTIAL_UPDATE):
        raise InvalidRequest(
            f"table '{table}': {statement} needs a merge engine that takes a new row as it is ({DEDUPLICATE} or "
            f"{PARTIAL_UPDATE}), and it has '{engine}'"
        )
    check_kinds(table, schema)


def check_kinds(table: str, schema: TableSchema) -> None:
    """Raise :class:`InvalidRequest` if row kinds come from a column, and so cannot be chosen by a statement."""
    if schema.opts.of(lsm.ROWKIND_FIELD) is not None:
        raise InvalidRequest(f"table '{table}' takes row kinds from a column: upsert rows instead")


def check_set(table: str, schema: TableSchema, columns: Iterable[str]) -> None:
    """Raise :class:`InvalidRequest` for columns that tell where a row is."""
    fixed = next((n for n in columns if n in schema.primary_keys or n in schema.partition_keys), None)
    if fixed is not None:
        raise InvalidRequest(
            f"table '{table}': column '{fixed}' is of the primary key or a partition, which UPDATE cannot change; "
            "delete the rows and insert new ones"
        )


def delete(table: Target, scan: Scan) -> int:
    """Write a -D row for every row that a scan finds; returns how many."""
    check_keyed(table.name, scan.state.schema)
    return delete_found(table, scan.select(scan.state.schema.field_names))


def delete_found(table: Target, scan: Scan) -> int:
    """As :func:`delete`, of a scan of all columns whose plan is read as it is.

    Whole rows are written, as Paimon writes them: the audit log and streams of changes show what was deleted.
    """
    return _rewrite(table, scan, DELETE, "DELETE", None)


def update(table: Target, scan: Scan, values: Mapping[str, Any]) -> int:
    """Write a +U row for every row that a scan finds, with other values in some columns; returns how many."""
    state = scan.state
    schema = state.schema
    check_keyed(table.name, schema)
    check_changes(table.name, schema, "UPDATE")
    named = named_values(schema, values)
    check_set(table.name, schema, named)
    return _rewrite(table, scan.select(schema.field_names), UPDATE_AFTER, "UPDATE", named)


def _rewrite(table: Target, scan: Scan, kind: int, operation: str, values: Mapping[str, Any] | None) -> int:
    state, count = scan.state, 0
    check_kinds(table.name, state.schema)

    def rows() -> Iterator[pa.Table]:
        nonlocal count
        batches = (pa.Table.from_batches([b]) for b in scan.to_batches()) if values is None else changed(scan, values)
        for batch in batches:
            count += batch.num_rows
            kinds = pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows)
            yield from prepared(table.name, state.schema, [batch], kinds)

    # An UPDATE that another writer's rows came before must look at them.
    _write(table, state, rows(), operation, renumber=kind == DELETE)
    return count


# --- compaction -------------------------------------------------------------------------------------------------------


def compact(
    table: Target,
    state: TableState,
    entries: Sequence[ManifestEntry],
    full: bool,
    place: Place | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Compact the buckets of some files; None if there was nothing to do.  Postponed rows get their buckets first.

    ``place`` does that; by default they are read and written here.
    """
    check_keyed(table.name, state.schema)
    publisher = table.publisher(state, identifier)
    waiting = postponed(entries)
    placed = (place or place_postponed)(publisher, state, waiting) if waiting else None
    if placed is not None:
        partitions = set(waiting)
        state = table.state()
        entries = [*entries, *(e for e in entries_of(state, partitions) if e.partition in partitions)]
    states = bucket_states(state, {(e.partition, e.bucket) for e in entries if e.bucket >= 0})
    made = compact_buckets(state, list(states.values()), publisher.runner, full)
    return (publisher.compact(state, made, operation=None, full=full) if made else None) or placed


def place_postponed(
    publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
) -> Snapshot | None:
    """Write postponed rows into level 0 of their buckets, in place of their files."""
    changes: list[BucketChange] = []
    live = entries_of(state, waiting)
    context = lsm_context(state, live)
    try:
        for partition, files in waiting.items():
            real = replace(state, schema=with_buckets(state.schema, partition, files, live))
            rows = read_postponed(context, state.store, partition, files)
            changes += write_changes(real, rows, publisher.user, compact=False)
        return publisher.replace_files(state, [e for files in waiting.values() for e in files], changes)
    except BaseException:
        discard_changes(state, changes)
        raise
