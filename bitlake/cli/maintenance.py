"""``bitlake compact``, ``rewrite-index`` and ``expire``: maintain a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from bitlake import _clock
from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import Integer, Run, command, duration, partitions_option, table_argument, yes_option
from bitlake.errors import InvalidRequest
from bitlake.formatting import DAY_MS, counted, human_bytes
from bitlake.metadata.option_types import timedelta_of
from bitlake.metadata.options import PartitionAge
from bitlake.metadata.paths import partition_spec
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot.expiry import Retention, expired_partitions, max_expired_partitions, plan_expiry
from bitlake.snapshot.orphan_files import find_orphans
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import expire_tags

if TYPE_CHECKING:
    from bitlake.table.table import Table


@command("compact")
@table_argument()
@click.option("--full", is_flag=True, help="Compact all files, not only those that are due.")
@partitions_option()
def compact(run: Run, table: str, full: bool, where: str | None) -> None:
    """Merge a table's small files and remove deleted rows from data files, in this process.

    For very large tables, CALL sys.compact does the same on Spark.

    Example: bitlake compact orders -w "day = '2026-06-01'"
    """
    target = run.table(table)
    before = _size(run.state(table))
    snapshot = target.maintenance.compact(full=full, where=where)
    document = {
        "table": target.name,
        "snapshot": None if snapshot is None else snapshot.id,
        "before": before,
        "after": before if snapshot is None else _size(run.state(table)),
    }
    run.out.result(document, lambda screen: _show_compaction(screen, document, full))


def _size(state: TableState) -> dict[str, int]:
    entries = state.entries()
    return {"files": len(entries), "bytes": sum(e.file.file_size for e in entries)}


def _show_compaction(screen: Screen, document: dict[str, Any], full: bool) -> None:
    if document["snapshot"] is None:
        hint = "" if full else "; --full also merges files that are not due"
        screen.line(f"{document['table']}: nothing to compact{hint}")
        return
    before, after = document["before"], document["after"]
    screen.line(
        f"{document['table']}: {counted(before['files'], 'file')} ({human_bytes(before['bytes'])}) became "
        f"{after['files']:,} ({human_bytes(after['bytes'])}) in snapshot {document['snapshot']}"
    )


@command("rewrite-index")
@table_argument()
@partitions_option()
def rewrite_index(run: Run, table: str, where: str | None) -> None:
    """Build the file indexes that the table's options configure, for files that lack them.

    Table options choose the indexed columns: ALTER TABLE t SET TBLPROPERTIES
    ('file-index.bitmap.columns' = 'status'). If interrupted, run the command again to resume.

    Example: bitlake rewrite-index orders
    """
    target = run.table(table)
    started = time.perf_counter()
    rewrites = target.indexes.rebuild(where)
    built = [r for r in rewrites if r.new is not None]
    document = {
        "table": target.name,
        "files": len(rewrites),
        "files_rewritten": len(built),
        "index_bytes": sum(r.index_bytes for r in built),
        "indexes": sorted({name for r in built for name in r.built}),
        "problems": [str(p) for r in rewrites for p in r.problems],
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_rewrite(screen, document))
    if document["problems"]:
        run.out.problems()


def _show_rewrite(screen: Screen, document: dict[str, Any]) -> None:
    name = document["table"]
    if not document["files_rewritten"]:
        files = document["files"]
        subject = "the one file has" if files == 1 else f"all {files:,} files have"
        screen.line(f"{name}: {subject} the indexes that the options configure")
        return
    indexes = ", ".join(document["indexes"]) or "dropped indexes that no option configures"
    screen.line(
        f"{name}: {document['files_rewritten']:,} of {document['files']:,} files, "
        f"{human_bytes(document['index_bytes'])} of indexes in {document['seconds']:.1f} s: {indexes}"
    )


class _Plan:
    """The things that an expiry would delete, and the function that deletes them."""

    def __init__(self, document: dict[str, Any], execute: Callable[[], object]) -> None:
        self.document = document
        self.execute = execute
        self.empty = not any(document.values())


# A plan needs a table's state; the table itself, whose modules take longer to load, is opened to execute it.


def _snapshots(
    state: TableState, table: Callable[[], Table], age: int | None, retain_max: int | None, retain_min: int | None
) -> _Plan:
    retention = Retention(retain_max, retain_min, None if age is None else _clock.now_ms() - age)
    plan = plan_expiry(state.table_files, state.schema, retention)
    document = {
        "snapshots": list(plan.snapshots),
        "data_files": list(plan.data_files),
        "metadata_files": list(plan.metadata_files),
    }
    return _Plan(
        document,
        lambda: table().maintenance.expire_snapshots(
            retain_max=retain_max, retain_min=retain_min, older_than=retention.older_than_ms
        ),
    )


def _partitions(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    limit = PartitionAge.of(state.schema.options)
    if age is not None:
        limit = PartitionAge(age) if limit is None else replace(limit, limit_ms=age)
    if limit is None:
        raise InvalidRequest(
            f"table '{state.name}' has no partition expiration time: use --older-than 30d, or set its option "
            "'partition.expiration-time'"
        )
    limit.check(state.schema.partition_keys)
    fields = state.schema.partition_fields
    expired = expired_partitions(state, limit, max_expired_partitions(state.schema))
    specs = [partition_spec(fields, list(p.values()), legacy=False) for p in expired]
    return _Plan({"partitions": specs}, lambda: table().maintenance.expire_partitions(timedelta_of(limit.limit_ms)))


def _tags(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    limit = None if age is None else _clock.local_ms() - age
    names = expire_tags(state, limit, dry_run=True)
    # A tag may get another retention before the user confirms: the tags in the plan are looked at again, and no others.
    return _Plan({"tags": names}, lambda: expire_tags(state, limit, names=names))


def _orphans(state: TableState, table: Callable[[], Table], age: int | None, *_: int | None) -> _Plan:
    limit = _clock.now_ms() - (DAY_MS if age is None else age)
    orphans = find_orphans(state, limit, LocalRunner(REQUESTS))
    document = {"orphans": [{"path": o.path, "bytes": o.size} for o in orphans]}
    return _Plan(document, lambda: table().maintenance.remove_orphan_files(limit))


_PLANS: dict[str, Callable[..., _Plan]] = {
    "snapshots": _snapshots, "partitions": _partitions, "tags": _tags, "orphans": _orphans
}  # fmt: skip
"""The things that ``bitlake expire`` can delete."""


@command("iceberg")
@table_argument()
def iceberg(run: Run, table: str) -> None:
    """Publish a table's latest snapshot as Iceberg metadata, for readers that only know Iceberg.

    Every commit does it once the table has the option: ALTER TABLE t SET TBLPROPERTIES
    ('metadata.iceberg.storage' = 'table-location').

    Example: bitlake iceberg orders
    """
    target = run.table(table)
    document = {"table": target.name, "metadata_file": target.maintenance.create_iceberg_metadata()}
    run.out.result(document, lambda screen: screen.line(document["metadata_file"]))


@command("expire")
@table_argument()
@click.option(
    "--what",
    type=click.Choice(list(_PLANS)),
    default="snapshots",
    help="Delete old snapshots, old partitions, expired tags, or orphan files, which no snapshot refers to.",
)
@click.option(
    "--older-than", metavar="DURATION", help="Delete only what is older: 7d, 12h. Default: the table's options."
)
@click.option("--retain-max", type=Integer(min=1), metavar="N", help="Keep at most N snapshots.")
@click.option("--retain-min", type=Integer(min=1), metavar="N", help="Keep at least N snapshots.")
@yes_option()
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
def expire(
    run: Run,
    table: str,
    what: str,
    older_than: str | None,
    retain_max: int | None,
    retain_min: int | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete old snapshots with the files that only they need, or old partitions, expired tags or orphan files.

    The command shows its plan and asks before it deletes anything. It never deletes what a retained snapshot, a tag, a
    branch or a consumer needs.

    Example: bitlake expire orders --older-than 7d
    """
    age = duration("--older-than", older_than)
    if what != "snapshots" and (retain_max or retain_min):
        raise Usage(f"--retain-max and --retain-min apply to snapshots only; remove them, or '--what {what}'")
    state = run.state(table)
    plan = _PLANS[what](state, lambda: run.table(table), age, retain_max, retain_min)
    document: dict[str, Any] = {"table": state.name, "what": what, **plan.document, "done": False}
    if not run.out.json:
        _show_expiry(run.out.screen, document, plan.empty)
    if not plan.empty and run.confirmed("Delete these?", yes, dry_run):
        plan.execute()
        document["done"] = True
    if run.out.json:
        run.out.result(document, lambda screen: None)
    elif not plan.empty:
        run.out.screen.line("deleted" if document["done"] else "nothing deleted; --yes carries out the plan", "bold")


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
    orphans = document["orphans"]
    screen.table(
        (">size", "~file"),
        [(human_bytes(o["bytes"]), o["path"]) for o in orphans[:50]],
    )
    hidden = f" ({len(orphans) - 50:,} not shown)" if len(orphans) > 50 else ""
    screen.line(f"{counted(len(orphans), 'orphan file')}, {human_bytes(sum(o['bytes'] for o in orphans))}{hidden}")
