"""Commit a table's next schema; REPLACE TABLE.

REPLACE TABLE changes columns, keys and options of a table that keeps its path, its history and its tags.  As in Paimon,
the new schema is the next of the table's schemas, and an OVERWRITE snapshot removes the rows; earlier snapshots are
read with the columns they had.  Unlike in Paimon, new columns get new ids, so that no new column is taken for an old
one of the same id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.metadata import options as opt
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import Names, TableSchema, assign_ids
from bitlake.schema.create import ColumnSpec, new_schema
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import existing_snapshots, is_same_table, snapshot_ids


def write_schema(state: TableState, schema: TableSchema) -> bool:
    """Create a table's next schema; False if another writer made one first, or replaced the table.

    Order: (1) the schema that the new one was made from is compared with the file, (2) ``schema-<n>`` is created if it
    is absent: the change, (3) the comparison is repeated.  Who drops the table or replaces its schemas meanwhile is
    noticed by (3), and the new schema is deleted.  If it is gone by then, the table was dropped, or renamed together
    with it: raises :class:`StorageUnavailable`, because the change may be part of the renamed table.
    """
    store, path = state.store, state.paths.schema(schema.id)
    data = schema.to_json().encode()
    if not is_same_table(state.table_files, state.schema) or not store.create(path, data):
        return False
    if is_same_table(state.table_files, state.schema):
        return True
    try:
        if store.read(path) == data:
            store.delete(path)
        return False
    except NotFound as e:
        raise StorageUnavailable(
            f"table {state.paths.root} was dropped or renamed while its schema {schema.id} was being created: whether "
            "the change took place is unknown; if the table was renamed, look at the columns under its new name"
        ) from e


def check_postponed(state: TableState, options: Mapping[str, str]) -> None:
    """Refuse to change ``bucket`` while the postpone bucket has rows: nothing would find them."""
    if state.schema.num_buckets != POSTPONE_BUCKET or opt.Options(options).of(opt.BUCKET) == POSTPONE_BUCKET:
        return
    waiting = sum(e.file.row_count for e in state.entries() if e.bucket == POSTPONE_BUCKET)
    if waiting:
        raise InvalidRequest(
            f"table '{state.name}': {waiting} rows are in the postpone bucket; compact the table before you change "
            "'bucket'"
        )


@contextmanager
def replaced_schema(
    state: TableState,
    columns: Sequence[ColumnSpec],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    names: Names = Names.FOLDED,
) -> Iterator[TableSchema]:
    """Replace a table's schema; the block overwrites its rows.

    If the block fails, the old schema is restored, unless rows with the new one were committed, whose response may have
    got lost.

    Raises :class:`InvalidRequest` for what CREATE TABLE refuses, :class:`UnsupportedFeature` for other partition
    columns, which Paimon does not replace either, and :class:`CommitConflict`.
    """
    old = state.schema
    if state.paths.branch is not None:
        raise InvalidRequest(f"table '{state.name}': REPLACE TABLE replaces the whole table; name it without a branch")
    declared = new_schema(state.name, columns, partition_keys, options or {}, comment, primary_keys, names)
    if [(f.name, f.type) for f in declared.partition_fields] != [(f.name, f.type) for f in old.partition_fields]:
        raise UnsupportedFeature(
            f"table '{state.name}': REPLACE TABLE cannot change the partition columns "
            f"({', '.join(old.partition_keys) or 'there are none'}); drop the table and create it again"
        )
    fields, highest = assign_ids([(f.name, f.type, f.description) for f in declared.fields], old.highest_field_id)
    fields = tuple(replace(f, default_value=m.default_value) for f, m in zip(fields, declared.fields, strict=True))
    new = old.next(
        fields=fields,
        highest_field_id=highest,
        partition_keys=declared.partition_keys,
        primary_keys=declared.primary_keys,
        options=declared.options,
        comment=declared.comment,
    )
    try:
        _write(state, new)
        yield new
    except BaseException:
        if is_same_table(state.table_files, new) and not _is_overwritten(state, new):
            back = replace(old, id=new.id + 1, time_millis=new.time_millis, highest_field_id=new.highest_field_id)
            _write(replace(state, schema=new), back)
        raise


def _is_overwritten(state: TableState, schema: TableSchema) -> bool:
    """Whether an overwrite has been committed since the state was loaded, under this schema or a later one."""
    last = 0 if state.snapshot is None else state.snapshot.id
    later = (number for number in snapshot_ids(state.table_files) if number > last)
    return any(
        s.commit_kind == "OVERWRITE" and s.schema_id >= schema.id for s in existing_snapshots(state.table_files, later)
    )


def _write(state: TableState, schema: TableSchema) -> None:
    if not write_schema(state, schema):
        raise CommitConflict(f"table '{state.name}': another writer changed its schema at the same time; try again")
