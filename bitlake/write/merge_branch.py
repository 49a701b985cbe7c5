"""Merging a branch into another: the data files that only it has are added to the other's, in one commit.

That is right where both only ever added files since they were one: a file that the target has compacted, overwritten or
marked rows of would come back.  So both histories are read, from the first snapshot (which Paimon asks for) or from the
snapshot at which one of them was made of the other.  Source: Paimon's FileSystemBranchManager.mergeBranch.
"""

from __future__ import annotations

from typing import Protocol

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.branches import MAIN, branch_paths, find_branch
from bitlake.snapshot.index_manifest import index_entries
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.versions import load_schema, load_snapshot, snapshot_ids
from bitlake.write.append_dml import retrying
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan

_ADDING = ("APPEND", "ANALYZE")


class Branched(Protocol):
    """What merging asks of a table."""

    name: str

    def state(self) -> TableState:
        """The table now."""

    def commit_user(self) -> str:
        """Who commits to it."""


def merge_branch(table: Branched, source: str, target: str = MAIN) -> Snapshot | None:
    """Add the files that are in ``source`` and not in ``target``; returns the snapshot, None if there are none.

    Raises :class:`NotFound` for a branch that is not there, and :class:`InvalidRequest` where a merge could bring back
    rows, or could not read them: see above.
    """
    if source == target:
        raise InvalidRequest(f"table '{table.name}': branch '{source}' cannot be merged into itself")
    user = table.commit_user()

    def step(into: TableState) -> Snapshot | None:
        given = _branch(table, source)
        _check(given, source, into, target)
        there = {e.identity for e in into.entries()}
        files = [e for e in given.entries() if e.identity not in there]
        if not files:
            return None
        _check_schemas(given, source, into, target, files)
        plan = CommitPlan(kind="APPEND", adds=tuple(files), shared=True)
        # On failure the files stay: they are the source's.
        return commit(into.store, into.paths, plan, into.schema, user, operation="WRITE")

    return retrying(lambda: _branch(table, target), step)


def _branch(table: Branched, name: str) -> TableState:
    state = table.state()
    paths = branch_paths(state.paths, None) if name == MAIN else find_branch(state, name)
    found = load_state(f"{table.name}$branch_{name}" if name != MAIN else table.name, paths, state.store)
    if found is None:
        raise NotFound(f"table '{table.name}' has no schema in branch '{name}'")
    return found


def _check(given: TableState, source: str, into: TableState, target: str) -> None:
    what = f"branch '{source}' cannot be merged into '{target}'"
    for state, name in ((given, source), (into, target)):
        schema = state.schema
        if schema.primary_keys:
            raise InvalidRequest(f"{what}: '{name}' has a primary key ({', '.join(schema.primary_keys)})")
        for option in (opt.ROW_TRACKING, opt.DATA_EVOLUTION, opt.DV_ENABLED):
            if schema.opts.of(option):
                raise InvalidRequest(f"{what}: '{name}' has '{option.name}'")
        if state.snapshot is None:
            raise InvalidRequest(f"{what}: '{name}' has no snapshot")
        if any(e.index_type == DELETION_VECTORS for e in index_entries(state.store, state.paths, state.snapshot)):
            raise InvalidRequest(f"{what}: rows of '{name}' are marked as deleted")
    if given.schema.fields != into.schema.fields:
        raise InvalidRequest(f"{what}: their columns differ")
    _check_histories(given, source, into, target, what)


def _check_histories(given: TableState, source: str, into: TableState, target: str, what: str) -> None:
    """Both must only have added files since they were one."""
    ids = {name: snapshot_ids(s.store, s.paths) for s, name in ((given, source), (into, target))}
    begin = max(i[0] for i in ids.values())
    if begin > 1:
        at = [_at(s, begin) for s in (given, into)]
        if at[0] is None or at[0] != at[1]:
            raise InvalidRequest(
                f"{what}: it is not known since when they differ; snapshot {begin} is not the same in both, or was "
                "expired, and neither is known from snapshot 1 on"
            )
    for state, name in ((given, source), (into, target)):
        for number in range(begin + (begin > 1), (state.snapshot_id or 0) + 1):
            snapshot = _at(state, number)
            if snapshot is None:
                raise InvalidRequest(f"{what}: snapshot {number} of '{name}' is missing")
            if snapshot.commit_kind not in _ADDING:
                raise InvalidRequest(
                    f"{what}: snapshot {number} of '{name}' is of kind {snapshot.commit_kind}, and only what adds "
                    "files can be merged"
                )


def _at(state: TableState, number: int) -> Snapshot | None:
    try:
        return load_snapshot(state.store, state.paths, number)
    except NotFound:
        return None


def _check_schemas(given: TableState, source: str, into: TableState, target: str, files: list[ManifestEntry]) -> None:
    """Files say by number which schema they were written with: it must be the same one in the target."""
    for number in sorted({e.file.schema_id for e in files}):
        try:
            known = load_schema(into.store, into.paths, number)
        except NotFound:
            known = None
        if known is None or known != load_schema(given.store, given.paths, number):
            raise InvalidRequest(
                f"branch '{source}' cannot be merged into '{target}': files were written with schema {number}, which "
                + ("is not there" if known is None else "is another one there")
            )
