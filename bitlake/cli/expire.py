"""``bitlake expire``: what is old goes, after its plan was shown."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import Run, TableName, command, duration
from bitlake.words import counted

if TYPE_CHECKING:
    from bitlake.table.state import TableState
    from bitlake.table.table import Table

_DAY_MS = 86_400_000


class What(StrEnum):
    """What expires."""

    SNAPSHOTS = "snapshots"
    PARTITIONS = "partitions"
    TAGS = "tags"
    ORPHANS = "orphans"


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "expire", expire)


def expire(
    run: Run,
    table: TableName,
    what: Annotated[
        What, typer.Option(help="Old snapshots, old partitions, tags whose time is over, or files that nothing names.")
    ] = What.SNAPSHOTS,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what is older than this: 7d, 12h. Default: the options.")
    ] = None,
    retain_max: Annotated[int | None, typer.Option(min=1, help="Keep at most so many snapshots.")] = None,
    retain_min: Annotated[int | None, typer.Option(min=1, help="Keep at least so many snapshots.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it, do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
) -> None:
    """Delete old snapshots with the files that only they need (or old partitions, tags, orphaned files).

    The plan comes first; nothing is deleted before you agree, or say --yes. What a snapshot that stays, a tag, a branch
    or a consumer needs is never deleted.
    """
    age = duration("--older-than", older_than)
    if what is not What.SNAPSHOTS and (retain_max or retain_min):
        raise Usage(f"--retain-max and --retain-min are for snapshots, not for {what}")
    found = run.state(table)
    plan = _PLANS[what](found, lambda: run.table(table), age, retain_max, retain_min)
    document: dict[str, Any] = {"table": found.name, "what": str(what), **plan.document, "done": False}
    if not run.out.json:
        _show(run.out.screen, document, plan.empty)
    if not plan.empty and run.agreed("Delete these?", yes, dry_run):
        plan.act()
        document["done"] = True
    if run.out.json:
        run.out.result(document, lambda screen: None)
    elif not plan.empty:
        run.out.screen.line("deleted" if document["done"] else "nothing was deleted; --yes does it", "bold")


class _Plan:
    def __init__(self, document: dict[str, Any], act: Callable[[], object]) -> None:
        self.document = document
        self.act = act
        self.empty = not any(document.values())


# A plan needs what a table is now; only what is agreed to loads all that a table can do.


def _snapshots(
    state: TableState, table: Callable[[], Table], age: int | None, retain_max: int | None, retain_min: int | None
) -> _Plan:
    from bitlake import _clock
    from bitlake.table.expire import Retention, plan_expiry

    retention = Retention(retain_max, retain_min, None if age is None else _clock.now_ms() - age)
    plan = plan_expiry(state.store, state.paths, state.schema, retention)
    document = {
        "snapshots": list(plan.snapshots),
        "data_files": list(plan.data_files),
        "metadata_files": list(plan.metadata_files),
    }
    return _Plan(document, lambda: table().expire_snapshots(retention))


def _partitions(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    from bitlake.errors import InvalidRequest
    from bitlake.metadata.partition import partition_spec
    from bitlake.table.partition_expiry import PartitionAge, expired_partitions

    chosen = PartitionAge.of(state.schema.options)
    if age is not None:
        chosen = PartitionAge(age) if chosen is None else PartitionAge(age, *_rest(chosen))
    if chosen is None:
        raise InvalidRequest(
            f"table '{state.name}' does not say when a partition is too old: give --older-than 30d, or set its option "
            "'partition.expiration-time'"
        )
    chosen.check(state.schema.partition_keys)
    fields = state.schema.partition_fields
    found = [partition_spec(fields, list(p.values()), legacy=False) for p in expired_partitions(state, chosen)]
    document = {"partitions": found}
    return _Plan(document, lambda: table().expire_partitions(chosen))


def _rest(age: Any) -> tuple[str | None, str | None, str]:
    return age.formatter, age.pattern, age.strategy


def _tags(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    from bitlake import _clock
    from bitlake.table.tags import delete_tag, list_tags

    now = _clock.local_ms()
    if age is None:
        gone = [t.name for t in list_tags(state) if t.expired(now)]
    else:
        gone = [t.name for t in list_tags(state) if t.created_ms is not None and t.created_ms < now - age]

    def act() -> None:
        for name in gone:
            delete_tag(state, name, if_exists=True)

    return _Plan({"tags": gone}, act)


def _orphans(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    from bitlake import _clock
    from bitlake.table.orphans import find_orphans
    from bitlake.table.runner import REQUESTS, LocalRunner

    limit = _clock.now_ms() - (_DAY_MS if age is None else age)
    found = find_orphans(state, limit, LocalRunner(REQUESTS))
    document = {"orphans": [{"path": o.path, "bytes": o.size} for o in found]}
    return _Plan(document, lambda: table().remove_orphan_files(limit))


_PLANS: dict[What, Callable[..., _Plan]] = {
    What.SNAPSHOTS: _snapshots,
    What.PARTITIONS: _partitions,
    What.TAGS: _tags,
    What.ORPHANS: _orphans,
}


def _show(screen: Screen, document: dict[str, Any], empty: bool) -> None:
    name = document["table"]
    if empty:
        screen.line(f"{name}: no {document['what']} to delete")
    elif document["what"] == "snapshots":
        ids = document["snapshots"]
        screen.pairs(
            [
                ("table", name),
                ("snapshots", f"{len(ids):,}: {ids[0]} to {ids[-1]}"),
                ("data files", f"{len(document['data_files']):,}"),
                ("metadata files", f"{len(document['metadata_files']):,}"),
            ]
        )
    elif document["what"] == "partitions":
        screen.line(f"{name}: {counted(len(document['partitions']), 'partition')}")
        for values in document["partitions"]:
            screen.line("  " + "/".join(f"{k}={v}" for k, v in values.items()))
    elif document["what"] == "tags":
        screen.line(f"{name}: tags {', '.join(document['tags'])}")
    else:
        _show_orphans(screen, document)


def _show_orphans(screen: Screen, document: dict[str, Any]) -> None:
    from bitlake.words import human_bytes

    found = document["orphans"]
    screen.table(
        (">size", "~file"),
        [(human_bytes(o["bytes"]), o["path"]) for o in found[:50]],
    )
    more = f" ({len(found) - 50:,} not shown)" if len(found) > 50 else ""
    screen.line(f"{len(found):,} files that nothing names, {human_bytes(sum(o['bytes'] for o in found))}{more}")
