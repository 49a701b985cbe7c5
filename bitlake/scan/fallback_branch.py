"""Read two branches in one batch scan: partitions that one branch lacks are read from the other.

``scan.fallback-branch`` names the branch for the partitions that the table lacks; ``scan.primary-branch`` names the
branch that is read first, and the table has the rest.  Writes, streams and changes see only the table itself.  Data
files of all branches are in the table's folders, but each branch has its own schemas, keys and options: a joint plan
gives the other branch's schemas negative ids.

Source: Paimon's ``FallbackReadFileStoreTable``.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata.options import FALLBACK_BRANCH, PRIMARY_BRANCH, branch_option
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName
from bitlake.scan.plan import MergedFiles, Plan, PlannedFile, PlanStep, ScanMetrics, SkippedFile, SkippedFiles
from bitlake.snapshot.state import TableState, load_state, state_at
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.time_travel import When, first_snapshot_from, snapshot_at_time
from bitlake.snapshot.vector_mode import in_readable_mode
from bitlake.snapshot.versions import branch_names, has_schema

if TYPE_CHECKING:
    from bitlake.metadata.manifest import ManifestEntry

log = logging.getLogger(__name__)
_WARNED: CacheName[tuple[str, str], bool] = CacheName("warnings of branches")
"""The tables and missing branches that were logged."""


@dataclass(frozen=True, slots=True)
class OtherBranch:
    """The branch that a table is read together with, at the same point in time, with the table's columns."""

    state: TableState
    preferred: bool
    """Whether partitions of both branches are read from this one."""


def check_branch_option(state: TableState, options: Mapping[str, str]) -> None:
    """Raise :class:`InvalidRequest` for a branch that does not exist, and for both options at once."""
    if all(options.get(o, "").strip() for o in (FALLBACK_BRANCH, PRIMARY_BRANCH)):
        raise InvalidRequest(
            f"table '{state.name}': options '{FALLBACK_BRANCH}' and '{PRIMARY_BRANCH}' cannot both be set"
        )
    chosen = branch_option(options)
    if chosen is not None and not has_schema(TableFiles(state.store, state.paths.on_branch(chosen[1]))):
        names = ", ".join(branch_names(state.table_files)) or "only main"
        raise InvalidRequest(
            f"table '{state.name}': option '{chosen[0]}' = '{chosen[1]}' names a branch that does not exist; "
            f"its branches: {names}"
        )


def other_branch(
    state: TableState, when: When, timezone: str, options: Mapping[str, str] | None = None
) -> OtherBranch | None:
    """The branch to read with a table at a point in time; None without the option, or (with a warning) the branch.

    ``options``: the table's latest ones, if not those of ``state``.  Raises :class:`InvalidRequest` if the columns of
    both differ, and :class:`NotFound` for a tag that the branch lacks.
    """
    chosen = branch_option(state.schema.options if options is None else options)
    if chosen is None:
        return None
    option, branch = chosen
    name = f"{state.name}$branch_{branch}"
    latest = load_state(name, state.table_files.on_branch(branch))
    if latest is None:
        warned, key = state.store.caches[_WARNED], (state.paths.root, branch)
        if warned.get(key) is None:
            warned.put(key, True, len(state.paths.root))
            log.warning("table '%s' is read without '%s' = '%s': no such branch", state.name, option, branch)
        return None
    other = _at(latest, state, when, timezone)
    _check_columns(state, other, option)
    schema = replace(other.schema, fields=state.schema.fields)
    return OtherBranch(replace(other, schema=schema), option == PRIMARY_BRANCH)


def _at(latest: TableState, state: TableState, when: When, timezone: str) -> TableState:
    """The branch at the table's point in time: snapshot ids of two branches differ, so their times are compared."""
    if when == When():
        return in_readable_mode(latest)
    version = str(when.version).strip() if when.version is not None else None
    if when.snapshot is not None or (version is not None and state.snapshot_id is not None and version.isdigit()):
        assert state.snapshot is not None
        millis = state.snapshot.time_millis
        snapshot = snapshot_at_time(latest, millis) or first_snapshot_from(latest, millis)
        return replace(latest, snapshot=None) if snapshot is None else state_at(latest, snapshot.id)
    try:
        return when.of(latest, timezone)
    except NotFound:
        if when.timestamp is None:
            raise
        return replace(latest, snapshot=None)


def _check_columns(state: TableState, other: TableState, option: str) -> None:
    mine, others = ([replace(f.type, nullable=True) for f in s.schema.fields] for s in (state, other))
    if mine != others or state.schema.partition_keys != other.schema.partition_keys:
        raise InvalidRequest(
            f"table '{state.name}' and '{other.name}', which option '{option}' names, differ: both must have the same "
            "column types and partition columns; change one of them, or unset the option"
        )


def listed_entries(state: TableState) -> Sequence[ManifestEntry]:
    """The live files by which a table's partitions are listed: its own, and the other branch's of partitions it lacks.

    Of two branches that have a partition, the one that a query reads counts.
    """
    other = other_branch(state, When(), "UTC")
    if other is None:
        return state.entries()
    first, second = (other.state, state) if other.preferred else (state, other.state)
    own = first.entries()
    partitions = {e.partition for e in own}
    return [*own, *(e for e in second.entries() if e.partition not in partitions)]


# --- one plan of two branches -----------------------------------------------------------------------------------------


def joint_plan(plan: Plan, other: Plan, branch: OtherBranch) -> Plan:
    """The plan of both branches' files; ``other`` is the other branch's."""
    schemas = {**plan.schemas, **{_apart(i): s for i, s in other.schemas.items()}}
    moved = [_moved(f, branch.state.schema) for f in other.files]
    files = (*moved, *plan.files) if branch.preferred else (*plan.files, *moved)
    return replace(
        plan,
        files=files,
        schemas=schemas,
        metrics=_sum(plan.metrics, other.metrics),
        steps=(*plan.steps, *map(_moved_step, other.steps)),
    )


def _apart(schema_id: int) -> int:
    return -1 - schema_id


def _moved_step(step: PlanStep) -> PlanStep:
    def describe(place: int) -> SkippedFile:
        file = step.skipped[place]
        return replace(file, entry=_moved_entry(file.entry))

    skipped = SkippedFiles(len(step.skipped), describe, step.skipped_files, step.skipped_bytes)
    return replace(step, skipped=skipped)


def _moved_entry(entry: ManifestEntry) -> ManifestEntry:
    return replace(entry, file=replace(entry.file, schema_id=_apart(entry.file.schema_id)))


def _moved(file: PlannedFile, schema: TableSchema) -> PlannedFile:
    merge = file.merge
    if merge is not None:
        merge = MergedFiles(tuple(_moved(f, schema) for f in merge.files), merge.predicate, schema)
    return replace(file, entry=_moved_entry(file.entry), merge=merge)


def _sum(a: ScanMetrics, b: ScanMetrics) -> ScanMetrics:
    total = replace(a)
    for f in dataclasses.fields(ScanMetrics):
        mine, others = getattr(a, f.name), getattr(b, f.name)
        if not isinstance(mine, dict):
            setattr(total, f.name, mine + others)
        elif f.name == "by_file":
            total.by_file = {**mine, **others}
        else:
            setattr(total, f.name, {k: mine.get(k, 0) + others.get(k, 0) for k in {**mine, **others}})
    return total
