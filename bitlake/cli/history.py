"""``bitlake history``, ``tag`` and ``branch``: a table's snapshots, tags and branches."""

from __future__ import annotations

from typing import Any

import click

from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import (
    Decorator,
    Group,
    Run,
    argument,
    command,
    duration,
    limit_option,
    snapshot_option,
    table_argument,
    tag_option,
)
from bitlake.errors import AlreadyExists
from bitlake.formatting import counted
from bitlake.snapshot import branches, tags
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import branch_names, existing_snapshots, snapshot_ids


@command("history")
@table_argument()
@limit_option("Show at most N snapshots; 0 shows all.", 20)
def history(run: Run, table: str, limit: int) -> None:
    """List a table's snapshots with their rows and tags, the latest first.

    Example: bitlake history orders -n 5
    """
    state = run.state(table)
    ids = snapshot_ids(state.table_files)[::-1]
    snapshots = existing_snapshots(state.table_files, ids[:limit] if limit else ids)
    tag_names: dict[int, list[str]] = {}
    for entry in tags.list_tags(state):
        tag_names.setdefault(entry.snapshot.id, []).append(entry.name)
    document = {
        "table": state.name,
        "total": len(ids),
        "snapshots": [
            {
                "id": s.id,
                "committed_at": iso(s.time_millis),
                "kind": s.commit_kind,
                "operation": s.operation,
                "rows_added": s.delta_record_count,
                "rows": s.total_record_count,
                "schema_id": s.schema_id,
                "user": s.commit_user,
                "tags": sorted(tag_names.get(s.id, [])),
            }
            for s in snapshots
        ],
    }
    run.out.result(document, lambda screen: _show_history(screen, document))


def _show_history(screen: Screen, document: dict[str, Any]) -> None:
    rows: list[tuple[Any, ...]] = [
        (
            s["id"],
            when(s["committed_at"]),
            s["kind"],
            s["operation"],
            f"{s['rows_added']:+,}",
            s["rows"],
            ", ".join(s["tags"]),
        )
        for s in document["snapshots"]
    ]
    columns = (">id", "committed", "kind", "operation", ">change", ">rows", "?tags")
    screen.table(columns, rows, empty="no snapshots yet")
    if len(rows) < document["total"]:
        screen.line(f"{counted(document['total'] - len(rows), 'earlier snapshot')}: --limit 0 shows all", "dim")


def _name_argument(kind: str) -> Decorator:
    return argument("name", f"The {kind}'s name.", metavar=kind.upper())


_new_name_argument = argument("new_name", "The new name.")
_keep_option = click.option("--keep", metavar="DURATION", help="Let the tag expire after this time: 30d, 12h.")


tag = Group(
    "tag",
    help="Manage tags: named snapshots, which expiry keeps.\n\nExample: bitlake tag create orders june --snapshot 7",
    no_args_is_help=True,
)


@command("list", tag)
@table_argument()
def tag_list(run: Run, table: str) -> None:
    """List a table's tags.

    Example: bitlake tag list orders
    """
    state = run.state(table)
    document = {
        "table": state.name,
        "tags": [
            {
                "name": t.name,
                "snapshot": t.snapshot.id,
                "committed_at": iso(t.snapshot.time_millis),
                "rows": t.snapshot.total_record_count,
                "kept_ms": t.retained_ms,
            }
            for t in tags.list_tags(state)
        ],
    }
    run.out.result(document, lambda screen: _show_tags(screen, document))


def _show_tags(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (t["name"], t["snapshot"], when(t["committed_at"]), t["rows"], _kept(t["kept_ms"])) for t in document["tags"]
    ]
    screen.table(("tag", ">snapshot", "committed", ">rows", "kept"), rows, empty="no tags")


def _kept(millis: int | None) -> str:
    if millis is None:
        return "until deleted"
    hours = millis / 3_600_000
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"


@command("create", tag)
@table_argument()
@_name_argument("tag")
@snapshot_option
@_keep_option
def tag_create(run: Run, table: str, name: str, snapshot: int | None, keep: str | None) -> None:
    """Tag a snapshot, by default the latest.

    Example: bitlake tag create orders june --snapshot 7
    """
    state = run.state(table)
    try:
        tags.create_tag(state, name, snapshot, retained_ms=duration("--keep", keep))
    except AlreadyExists as e:
        raise AlreadyExists(
            f"table '{state.name}' already has a tag '{name}'; bitlake tag move {table} {name} moves it to another "
            "snapshot"
        ) from e
    _report_tag(run, state, "created", name)


@command("move", tag)
@table_argument()
@_name_argument("tag")
@snapshot_option
@_keep_option
def tag_move(run: Run, table: str, name: str, snapshot: int | None, keep: str | None) -> None:
    """Move a tag to another snapshot, by default the latest.

    Example: bitlake tag move orders june --snapshot 9
    """
    state = run.state(table)
    tags.replace_tag(state, name, snapshot, retained_ms=duration("--keep", keep))
    _report_tag(run, state, "moved", name)


@command("rename", tag)
@table_argument()
@_name_argument("tag")
@_new_name_argument
def tag_rename(run: Run, table: str, name: str, new_name: str) -> None:
    """Rename a tag.

    Example: bitlake tag rename orders june summer
    """
    state = run.state(table)
    tags.rename_tag(state, name, new_name)
    _report_tag(run, state, "renamed", new_name, f"renamed tag {name} of {state.name} to {new_name}")


@command("delete", tag)
@table_argument()
@_name_argument("tag")
def tag_delete(run: Run, table: str, name: str) -> None:
    """Delete a tag, and the files that only the tag keeps.

    Example: bitlake tag delete orders june
    """
    state = run.state(table)
    tags.delete_tag(state, name)
    document = {"table": state.name, "tag": name, "done": "deleted", "snapshot": None}
    run.out.result(document, lambda screen: screen.line(f"deleted tag {name} of {state.name}"))


def _report_tag(run: Run, state: TableState, done: str, name: str, text: str = "") -> None:
    snapshot = tags.load_tag(state, name).snapshot.id
    document = {"table": state.name, "tag": name, "done": done, "snapshot": snapshot}
    line = text or f"{done} tag {name} of {state.name}, snapshot {snapshot}"
    run.out.result(document, lambda screen: screen.line(line))


branch = Group(
    "branch",
    help="Manage branches: histories of a table beside main.\n\nExample: bitlake branch create orders trial --tag june",
    no_args_is_help=True,
)


@command("list", branch)
@table_argument()
def branch_list(run: Run, table: str) -> None:
    """List a table's branches, main first.

    Example: bitlake branch list orders
    """
    state = run.state(table)
    listed = []
    for name in ("main", *branch_names(state.table_files)):
        snapshot = (state if name == "main" else run.state(f"{state.name}$branch_{name}")).snapshot
        listed.append(
            {
                "name": name,
                "snapshot": snapshot.id if snapshot else None,
                "committed_at": iso(snapshot.time_millis) if snapshot else None,
                "rows": snapshot.total_record_count if snapshot else 0,
            }
        )
    document = {"table": state.name, "branches": listed}
    run.out.result(document, lambda screen: _show_branches(screen, document))


def _show_branches(screen: Screen, document: dict[str, Any]) -> None:
    rows = [(b["name"], b["snapshot"], when(b["committed_at"]), b["rows"]) for b in document["branches"]]
    screen.table(("branch", ">snapshot", "last commit", ">rows"), rows)


@command("create", branch)
@table_argument()
@_name_argument("branch")
@tag_option
def branch_create(run: Run, table: str, name: str, tag: str | None) -> None:
    """Create a branch from a tag's snapshot, or an empty branch without --tag.

    Read and write the branch as TABLE$branch_NAME.

    Example: bitlake branch create orders trial --tag june
    """
    state = run.state(table)
    branches.create_branch(state, name, tag)
    _report_branch(run, state.name, "created", name)


@command("rename", branch)
@table_argument()
@_name_argument("branch")
@_new_name_argument
def branch_rename(run: Run, table: str, name: str, new_name: str) -> None:
    """Rename a branch.

    Example: bitlake branch rename orders trial draft
    """
    state = run.state(table)
    branches.rename_branch(state, name, new_name)
    _report_branch(run, state.name, "renamed", new_name, f"renamed branch {name} of {state.name} to {new_name}")


@command("fast-forward", branch)
@table_argument()
@_name_argument("branch")
def branch_fast_forward(run: Run, table: str, name: str) -> None:
    """Replace main by a branch.

    Example: bitlake branch fast-forward orders trial
    """
    state = run.state(table)
    branches.fast_forward(state, name)
    _report_branch(run, state.name, "fast-forwarded main to", name)


@command("delete", branch)
@table_argument()
@_name_argument("branch")
def branch_delete(run: Run, table: str, name: str) -> None:
    """Delete a branch with its snapshots, schemas and tags.

    Example: bitlake branch delete orders trial
    """
    state = run.state(table)
    branches.delete_branch(state, name)
    _report_branch(run, state.name, "deleted", name)


def _report_branch(run: Run, table: str, done: str, name: str, text: str = "") -> None:
    document = {"table": table, "branch": name, "done": done}
    run.out.result(document, lambda screen: screen.line(text or f"{done} branch {name} of {table}"))
