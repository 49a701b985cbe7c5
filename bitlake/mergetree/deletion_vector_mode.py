"""Switching deletion vectors on or off for a table with data, so that readers see the same rows before and after.

With vectors readers take the files above level 0 as they are, minus vectors; without, they merge all files and ignore
vectors (index-format spec, section 9.6).  Both see the same rows of a *settled* table: every key has one row, above
level 0, and no vector deletes any row.  A full compaction settles a table.  Then the switch is one file, the next
schema, created only if absent:

1. compact fully, until the latest snapshot is settled: readers see the same rows, a crash leaves the table unchanged;
2. create the schema with the option changed: **the switch**.  Compactions computed before it are refused from now on
   (:meth:`bitlake.write.commit_plan.PlanResolver.check_options`); rows written to level 0 count in both modes;
3. publish an empty snapshot.  A writer that read the schema before the switch, and has not committed yet, loses the
   race for the snapshot's id and reads the schema again: the table can no longer be changed in the old mode;
4. if such a writer was faster and left the table unsettled, the commit of that snapshot undoes the switch
   (:func:`bitlake.write.commit.undo_unsafe_switch`): start again.  Until then, readers read its snapshot in the old
   mode.  Rows that came into level 0 meanwhile are compacted, so that readers see them (on).

Options that decide whether compactions look up keys also change how readers merge levels; no switch settles the table
then, and :func:`check_lookup_change` refuses the change of a table that is not settled.

Append tables have no versions: they can be switched on as they are, and are settled when no vector deletes a row.
:func:`drop_all_vectors` settles them: a compaction leaves files with few deleted rows, and before vectors are switched
off all of them must be rewritten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pyroaring import BitMap

from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.fileindex.selection import Selection
from bitlake.mergetree.commit import MergeTreeTable
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import Runner
from bitlake.schema.create import check_schema_options
from bitlake.schema.merge_spec import DEDUPLICATE, MergeSpec
from bitlake.snapshot.index_files import IndexChange
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.schema_commit import write_schema
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import state_of
from bitlake.snapshot.vector_mode import is_settled, key_ranges_are_disjoint
from bitlake.snapshot.versions import latest_snapshot_id, load_schema
from bitlake.write import append_dml
from bitlake.write.commit import commit, undo_unsafe_switch
from bitlake.write.commit_plan import CommitPlan

_TRIES = 20
_PATIENT = 5
"""Tries that wait for other writers to leave level 0 empty; later ones hide its rows from readers for a moment."""


def switch_deletion_vectors(table: MergeTreeTable, on: bool) -> TableSchema:
    """Switch deletion vectors on or off; returns the schema, unchanged if they were switched already.

    Raises :class:`bitlake.errors.InvalidRequest` if the table's other options do not allow it, and
    :class:`CommitConflict` if other writers never leave the table settled; it may be tried again at any time.
    """
    for attempt in range(_TRIES):
        state = table.stored_state()
        if undo_unsafe_switch(state):  # a process died while it switched
            continue
        if state.schema.opts.of(opt.DV_ENABLED) == on:
            return state.schema
        new = _switched_schema(state, on)
        if on:
            _drop_stale_vectors(table, state)
            state = table.stored_state()
        if not is_settled(state, level_0=not on or attempt >= _PATIENT):
            _settle(table, state)
        elif _latest_id(state) == state.snapshot_id and write_schema(state, new):
            new = load_schema(state.table_files, new.id)  # as a catalog's server wrote it
            if _finish(table, state, new):
                return new
    raise CommitConflict(
        f"table '{table.name}': other writers kept changing it while deletion vectors were to be switched "
        f"{'on' if on else 'off'}; try again"
    )


def _settle(table: MergeTreeTable, state: TableState) -> None:
    if state.schema.primary_keys:
        table.compact(full=True)
        return
    publisher = table.publisher(state)
    # If another writer came first, the caller looks at the table again.
    with contextlib.suppress(CommitConflict):
        drop_all_vectors(state, publisher.runner, publisher.user)


def check_lookup_change(state: TableState, options: Mapping[str, str]) -> None:
    """Raise :class:`InvalidRequest` if changed options would make readers merge rows of several levels differently.

    If compactions look up keys, a row above level 0 is complete, and readers ignore rows of its key in higher levels.
    Otherwise, readers merge all of these rows.  Paimon allows the change and reads wrong rows; the next full
    compaction makes them permanent.
    """
    old, new = state.schema, opt.Options(options)
    changed = opt.changed_lookup(old.options, options) if old.primary_keys else None
    if changed is None:
        return
    spec, looks_up = MergeSpec.of(old), opt.needs_lookup(new)
    # Of rows that replace each other, the lowest level has the latest one, unless a sequence field orders them.
    if spec.engine == DEDUPLICATE and not (spec.sequence and looks_up):
        return
    if key_ranges_are_disjoint(old, [e for e in state.entries() if e.bucket >= 0 and e.file.level > 0]):
        return
    raise InvalidRequest(
        f"table '{state.name}': option '{changed.name}' cannot change from '{old.opts.of(changed)}' to "
        f"'{new.of(changed)}' while keys have rows in several levels: readers would merge these differently and return "
        "other rows; compact the table fully first (table.maintenance.compact(full=True), CALL sys.compact)"
    )


def check_rollback(state: TableState, target: Snapshot) -> None:
    """Raise :class:`InvalidRequest` if the table would read other rows of a snapshot than there were in it.

    A rollback keeps the latest schema.  In its deletion-vector mode, a snapshot of the other mode has its rows only if
    it is settled.
    """
    then = state_of(state, target)
    on = state.schema.opts.of(opt.DV_ENABLED)
    if then.schema.opts.of(opt.DV_ENABLED) == on:
        return
    names = {e.file.file_name for e in then.entries()}
    if is_settled(then) and names.isdisjoint(vectors_by_file(index_entries(then.table_files, then.snapshot))):
        return
    switched, switch_back = ("on", "disable") if on else ("off", "enable")
    raise InvalidRequest(
        f"table '{state.name}' cannot go back to snapshot {target.id}: deletion vectors were switched {switched} after "
        f"it, and its rows would not be the same; call table.maintenance.{switch_back}_deletion_vectors() "
        f"(CALL sys.{switch_back}_deletion_vectors) first"
    )


def _drop_stale_vectors(table: MergeTreeTable, state: TableState) -> None:
    """Drop vectors left from a time when they were switched on: readers would apply them again."""
    names = {e.file.file_name for e in state.entries()}
    vectors = (e for e in index_entries(state.table_files, state.snapshot) if e.index_type == DELETION_VECTORS)
    stale = [e for e in vectors if any(r.data_file in names for r in e.ranges or ())]
    if stale:
        changes = tuple(IndexChange(*slot, DELETION_VECTORS, tuple(old), ()) for slot, old in by_bucket(stale).items())
        user = table.publisher(state).user
        commit(table.store, state.paths, CommitPlan("COMPACT", index=changes), state.schema, user)


def _finish(table: MergeTreeTable, before: TableState, new: TableSchema) -> bool:
    """Close the table to the old mode after the switch to ``new``; False if a commit had to undo the switch."""
    if _latest_id(before) is None:
        return True
    fence = commit(
        table.store,
        before.paths,
        CommitPlan("COMPACT"),
        new,
        table.publisher(before).user,
        options={**new.options, opt.FORCE_SNAPSHOT.name: "true"},
    )
    assert fence is not None
    on = new.opts.of(opt.DV_ENABLED)
    if table.stored_state().schema.opts.of(opt.DV_ENABLED) != on:
        return False
    is_first = fence.id == (before.snapshot_id or 0) + 1
    if on and new.primary_keys and not (is_first and is_settled(before)):
        table.compact()
    return True


def _latest_id(state: TableState) -> int | None:
    return latest_snapshot_id(state.table_files)


def _switched_schema(state: TableState, on: bool) -> TableSchema:
    schema = state.schema
    options = {**schema.options, opt.DV_ENABLED.name: str(on).lower()}
    check_schema_options(state.name, schema, options, declares=False)
    return schema.next(options=options)


def drop_all_vectors(state: TableState, runner: Runner, user: str) -> Snapshot | None:
    """Rewrite all files of an append table that have a vector, in one COMPACT snapshot; None if there are none.

    Raises :class:`bitlake.errors.CommitConflict` if another writer deleted rows of those files meanwhile; the new files
    are then deleted.
    """
    vector_files = (e for e in index_entries(state.table_files, state.snapshot) if e.index_type == DELETION_VECTORS)
    indexes = by_bucket(vector_files)
    files = by_bucket(e for e in state.entries() if (e.partition, e.bucket) in indexes)
    marked: list[ManifestEntry] = []
    deleted: dict[str, BitMap] = {}
    changes: list[IndexChange] = []
    adds: list[ManifestEntry] = []
    try:
        for slot, entries in files.items():
            rows = {e.file.file_name: e.file.row_count for e in entries}
            base = append_dml.replaced_index_files(state, indexes[slot], set(rows))
            vectors = append_dml.read_vectors_of(state, base, rows)
            marked_here = [e for e in entries if e.file.file_name in vectors]
            if not marked_here:
                continue
            marked += marked_here
            deleted |= {e.file.file_name: vectors.pop(e.file.file_name).rows for e in marked_here}
            changes.append(append_dml.vector_change(state, slot, base, vectors))
        if not marked:
            return None
        live = {e.file.file_name: Selection.all().minus(deleted[e.file.file_name], e.file.row_count) for e in marked}
        kept = [e for e in marked if len(deleted[e.file.file_name]) < e.file.row_count]
        for copies in append_dml.rewrite(state, [(e,) for e in kept], live, runner, FileSource.COMPACT):
            adds += copies
    except BaseException:
        append_dml.discard_index_files(state, [e for c in changes for e in c.new])
        raise
    deletion = append_dml.RowDeletion({}, tuple(marked), tuple(adds), tuple(changes))
    return commit(
        state.store,
        state.paths,
        CommitPlan("COMPACT", deletion.adds, deletion.deletes, index=deletion.index),
        state.schema,
        user,
        on_failure=lambda: deletion.discard(state),
    )
