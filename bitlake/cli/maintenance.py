"""``bitlake compact``, ``rewrite-index`` and ``expire``: maintain a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import Command, Run, TableName, command, duration
from bitlake.formatting import counted

if TYPE_CHECKING:
    from bitlake.snapshot.state import TableState
    from bitlake.table.table import Table


def register(app: typer.Typer, name: str) -> None:
    """Add one of these commands."""
    commands: dict[str, Command] = {"compact": compact, "rewrite-index": rewrite_index, "expire": expire}
    command(app, name, commands[name])


def compact(
    run: Run,
    table: TableName,
    full: Annotated[bool, typer.Option("--full", help="Everything, not only what is due.")] = False,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="A condition on partition columns.", metavar="CONDITION")
    ] = None,
) -> None:
    """Merge a table's small files, and take out rows that are deleted; runs in this process.

    For very large tables CALL sys.compact runs the same on Spark.
    """
    found = run.table(table)
    before = _size(found)
    snapshot = found.compact(full=full, where=where)
    document = {
        "table": found.name,
        "snapshot": None if snapshot is None else snapshot.id,
        "before": before,
        "after": before if snapshot is None else _size(found),
    }
    run.out.result(document, lambda screen: _show_compaction(screen, document, full))


def _size(table: Any) -> dict[str, int]:
    entries = table.state().entries()
    return {"files": len(entries), "bytes": sum(e.file.file_size for e in entries)}


def _show_compaction(screen: Screen, document: dict[str, Any], full: bool) -> None:
    from bitlake.formatting import human_bytes

    if document["snapshot"] is None:
        more = "" if full else "; --full merges what is not due, too"
        screen.line(f"{document['table']}: nothing to compact{more}")
        return
    before, after = document["before"], document["after"]
    screen.line(
        f"{document['table']}: {before['files']:,} files ({human_bytes(before['bytes'])}) became {after['files']:,} "
        f"({human_bytes(after['bytes'])}) in snapshot {document['snapshot']}"
    )


def rewrite_index(
    run: Run,
    table: TableName,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="A condition on partition columns.", metavar="CONDITION")
    ] = None,
) -> None:
    """Build the file indexes that the table's options ask for, in the files that lack them.

    Which columns get one is said by options: ALTER TABLE t SET TBLPROPERTIES
    ('file-index.bitmap.columns' = 'status'). What was killed goes on where it was when it is run again.
    """
    found = run.table(table)
    started = time.perf_counter()
    done = found.rewrite_file_index(where)
    built = [r for r in done if r.new is not None]
    document = {
        "table": found.name,
        "files": len(done),
        "files_rewritten": len(built),
        "index_bytes": sum(r.index_bytes for r in built),
        "indexes": sorted({name for r in built for name in r.built}),
        "problems": [p for r in done for p in r.problems],
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_rewrite(screen, document))
    if document["problems"]:
        run.out.problems()


def _show_rewrite(screen: Screen, document: dict[str, Any]) -> None:
    from bitlake.formatting import human_bytes

    name = document["table"]
    if not document["files_rewritten"]:
        files = document["files"]
        what = "the one file has" if files == 1 else f"all {files:,} files have"
        screen.line(f"{name}: {what} the indexes that the options ask for")
        return
    what = ", ".join(document["indexes"]) or "indexes that no option asks for were dropped"
    screen.line(
        f"{name}: {document['files_rewritten']:,} of {document['files']:,} files, "
        f"{human_bytes(document['index_bytes'])} of indexes in {document['seconds']:.1f} s: {what}"
    )


_DAY_MS = 86_400_000


class What(StrEnum):
    """What expires."""

    SNAPSHOTS = "snapshots"
    PARTITIONS = "partitions"
    TAGS = "tags"
    ORPHANS = "orphans"


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
        _show_expiry(run.out.screen, document, plan.empty)
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
    from bitlake.snapshot.expiry import Retention, plan_expiry

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
    from bitlake.schema.partition_age import PartitionAge
    from bitlake.snapshot.expiry import expired_partitions

    chosen = PartitionAge.of(state.schema.options)
    if age is not None:
        chosen = PartitionAge(age) if chosen is None else PartitionAge(age, *_partition_age_format(chosen))
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


def _partition_age_format(age: Any) -> tuple[str | None, str | None, str]:
    return age.formatter, age.pattern, age.strategy


def _tags(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    from bitlake import _clock
    from bitlake.snapshot.tag_files import list_tags
    from bitlake.snapshot.tags import delete_tag

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
    from bitlake.runtime import REQUESTS, LocalRunner
    from bitlake.snapshot.orphan_files import find_orphans

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


def _show_expiry(screen: Screen, document: dict[str, Any], empty: bool) -> None:
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
    from bitlake.formatting import human_bytes

    found = document["orphans"]
    screen.table(
        (">size", "~file"),
        [(human_bytes(o["bytes"]), o["path"]) for o in found[:50]],
    )
    more = f" ({len(found) - 50:,} not shown)" if len(found) > 50 else ""
    screen.line(f"{len(found):,} files that nothing names, {human_bytes(sum(o['bytes'] for o in found))}{more}")
