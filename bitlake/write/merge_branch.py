"""Merging a branch into another: one commit adds the data files that only the source branch has to the target.

This is correct only if both branches have done nothing but add files since they diverged: a file that the target
compacted or overwrote, or whose rows it marked as deleted, would come back.  So both histories are read, from the first
snapshot (as in Paimon) or from the snapshot at which one branch was created from the other.  Cost: the metadata of
every snapshot since then; no data file is read.  Source: Paimon's FileSystemBranchManager.mergeBranch.
"""

from __future__ import annotations

from collections.abc import Mapping

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.branches import MAIN, find_branch
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import find_snapshot, load_schema, snapshot_ids
from bitlake.write.append_dml import retrying
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, WritableTable

_ADDING = ("APPEND", "ANALYZE")


def merge_branch(table: WritableTable, source: str, target: str = MAIN) -> Snapshot | None:
    """Add the files of branch ``source`` that ``target`` lacks; returns the new snapshot, None if none are missing.

    Raises :class:`NotFound` for an unknown branch, and :class:`InvalidRequest` where a merge could restore deleted rows
    (see the module's description) or the target could not read the files.
    """
    if source == target:
        raise InvalidRequest(f"table '{table.name}': branch '{source}' cannot be merged into itself")
    user = table.commit_user()

    def step(target_state: TableState) -> Snapshot | None:
        source_state = _branch(table, source)
        branches = {source: source_state, target: target_state}
        prefix = f"branch '{source}' cannot be merged into '{target}'"
        _check_branches(branches, prefix)
        _check_histories(branches, prefix)
        live = {e.identity for e in target_state.entries()}
        files = [e for e in source_state.entries() if e.identity not in live]
        if not files:
            return None
        _check_schemas(source_state, target_state, files, prefix)
        plan = CommitPlan(kind="APPEND", adds=tuple(files), shared=True)
        # On failure the files stay: they belong to the source.
        return commit(target_state.store, target_state.paths, plan, target_state.schema, user, operation="WRITE")

    return retrying(lambda: _branch(table, target), step)


def _branch(table: WritableTable, name: str) -> TableState:
    state = table.state()
    branch = state.table_files.on_branch(None) if name == MAIN else find_branch(state, name)
    branch_state = load_state(f"{table.name}$branch_{name}" if name != MAIN else table.name, branch)
    if branch_state is None:
        raise NotFound(f"table '{table.name}' has no schema in branch '{name}'")
    return branch_state


def _check_branches(branches: Mapping[str, TableState], prefix: str) -> None:
    """Check what holds of each branch alone, and that both have the same columns."""
    for name, state in branches.items():
        schema = state.schema
        if schema.primary_keys:
            raise InvalidRequest(f"{prefix}: '{name}' has a primary key ({', '.join(schema.primary_keys)})")
        for option in (opt.ROW_TRACKING, opt.DATA_EVOLUTION, opt.DV_ENABLED):
            if schema.opts.of(option):
                raise InvalidRequest(f"{prefix}: '{name}' has '{option.name}'")
        if state.snapshot is None:
            raise InvalidRequest(f"{prefix}: '{name}' has no snapshot")
        if any(e.index_type == DELETION_VECTORS for e in index_entries(state.table_files, state.snapshot)):
            raise InvalidRequest(f"{prefix}: rows of '{name}' are marked as deleted")
    first, second = branches.values()
    if first.schema.fields != second.schema.fields:
        raise InvalidRequest(f"{prefix}: their columns differ")


def _check_histories(branches: Mapping[str, TableState], prefix: str) -> None:
    """Both branches must only have added files since they diverged."""
    begin = max(snapshot_ids(s.table_files)[0] for s in branches.values())
    if begin > 1:
        first, second = (find_snapshot(s.table_files, begin) for s in branches.values())
        if first is None or first != second:
            raise InvalidRequest(
                f"{prefix}: the snapshot at which they diverged is unknown; snapshot {begin} differs between them or "
                "has expired, and neither branch still has snapshot 1"
            )
    for name, state in branches.items():
        for number in range(begin + (begin > 1), (state.snapshot_id or 0) + 1):
            snapshot = find_snapshot(state.table_files, number)
            if snapshot is None:
                raise InvalidRequest(f"{prefix}: snapshot {number} of '{name}' is missing")
            if snapshot.commit_kind not in _ADDING:
                raise InvalidRequest(
                    f"{prefix}: snapshot {number} of '{name}' is of kind {snapshot.commit_kind}, and only snapshots "
                    "that add files can be merged"
                )


def _check_schemas(source: TableState, target: TableState, files: list[ManifestEntry], prefix: str) -> None:
    """Files name the schema they were written with by its id: it must be the same schema in the target."""
    for number in sorted({e.file.schema_id for e in files}):
        try:
            schema = load_schema(target.table_files, number)
        except NotFound:
            schema = None
        if schema is None or schema != load_schema(TableFiles(source.store, source.paths), number):
            raise InvalidRequest(
                f"{prefix}: files were written with schema {number}, which "
                + ("the target lacks" if schema is None else "differs in the target")
            )
