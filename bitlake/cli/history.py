"""``bitlake history``, ``tag`` and ``branch``: snapshots, and the names that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, SnapshotOption, TableName, TagOption, command, duration
from bitlake.cli.startup import LightGroup

if TYPE_CHECKING:
    from bitlake.snapshot.state import TableState


def register(app: typer.Typer, name: str) -> None:
    """Add one of these commands."""
    if name == "history":
        command(app, name, history)
    else:
        app.add_typer({"tag": _tag, "branch": _branch}[name]())


def history(
    run: Run,
    table: TableName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="So many snapshots; 0 for all.")] = 20,
) -> None:
    """What was committed to a table, the latest first: each snapshot with its rows and tags."""
    from bitlake.snapshot.tag_files import list_tags
    from bitlake.snapshot.versions import existing_snapshots, snapshot_ids

    found = run.state(table)
    ids = snapshot_ids(found.store, found.paths)[::-1]
    shown = list(existing_snapshots(found.store, found.paths, ids[:limit] if limit else ids))
    tags: dict[int, list[str]] = {}
    for tag in list_tags(found):
        tags.setdefault(tag.snapshot.id, []).append(tag.name)
    document = {
        "table": found.name,
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
                "tags": sorted(tags.get(s.id, [])),
            }
            for s in shown
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
    columns = [">id", "committed", "kind", "operation", ">change", ">rows", "tags"]
    if not any(s["tags"] for s in document["snapshots"]):
        columns, rows = columns[:-1], [r[:-1] for r in rows]
    screen.table(columns, rows, empty="nothing was committed yet")
    if len(rows) < document["total"]:
        screen.line(f"{document['total'] - len(rows):,} earlier ones: --limit 0 shows all", "dim")


TagName = Annotated[str, typer.Argument(metavar="TAG", help="The tag's name.")]
Keep = Annotated[str | None, typer.Option(metavar="TIME", help="Let it expire after so long: 30d, 12h.")]


def _tag() -> typer.Typer:
    group = typer.Typer(
        name="tag", cls=LightGroup, help="Names for snapshots, which keep them readable.", no_args_is_help=True
    )
    command(group, "list", tag_list)
    command(group, "create", tag_create)
    command(group, "move", tag_move)
    command(group, "rename", tag_rename)
    command(group, "delete", tag_delete)
    return group


def tag_list(run: Run, table: TableName) -> None:
    """The tags of a table."""
    from bitlake.snapshot.tag_files import list_tags as read_tags

    found = run.state(table)
    document = {
        "table": found.name,
        "tags": [
            {
                "name": t.name,
                "snapshot": t.snapshot.id,
                "committed_at": iso(t.snapshot.time_millis),
                "rows": t.snapshot.total_record_count,
                "kept_ms": t.retained_ms,
            }
            for t in read_tags(found)
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


def tag_create(run: Run, table: TableName, name: TagName, snapshot: SnapshotOption = None, keep: Keep = None) -> None:
    """Tag a snapshot, the latest if none is given."""
    from bitlake.errors import AlreadyExists
    from bitlake.snapshot import tags

    found = run.state(table)
    try:
        tags.create_tag(found, name, snapshot, retained_ms=duration("--keep", keep))
    except AlreadyExists as e:
        what = f"table '{found.name}' has a tag '{name}' already"
        raise AlreadyExists(f"{what}; bitlake tag move {table} {name} moves it to another snapshot") from e
    _report_tag(run, found, "created", name)


def tag_move(run: Run, table: TableName, name: TagName, snapshot: SnapshotOption = None, keep: Keep = None) -> None:
    """Move a tag to another snapshot, the latest if none is given."""
    from bitlake.snapshot import tags

    found = run.state(table)
    tags.replace_tag(found, name, snapshot, retained_ms=duration("--keep", keep))
    _report_tag(run, found, "moved", name)


def tag_rename(
    run: Run, table: TableName, name: TagName, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")]
) -> None:
    """Give a tag another name."""
    from bitlake.snapshot import tags

    found = run.state(table)
    tags.rename_tag(found, name, new_name)
    snapshot = tags.load_tag(found, new_name).snapshot.id
    document = {"table": found.name, "tag": new_name, "done": "renamed", "snapshot": snapshot}
    run.out.result(document, lambda screen: screen.line(f"renamed tag {name} of {found.name} to {new_name}"))


def tag_delete(run: Run, table: TableName, name: TagName) -> None:
    """Delete a tag, and the files that only it kept."""
    from bitlake.snapshot import tags

    found = run.state(table)
    tags.delete_tag(found, name)
    document = {"table": found.name, "tag": name, "done": "deleted", "snapshot": None}
    run.out.result(document, lambda screen: screen.line(f"deleted tag {name} of {found.name}"))


def _report_tag(run: Run, table: TableState, done: str, name: str) -> None:
    from bitlake.snapshot.tag_files import load_tag

    snapshot = load_tag(table, name).snapshot.id
    document = {"table": table.name, "tag": name, "done": done, "snapshot": snapshot}
    run.out.result(document, lambda screen: screen.line(f"{done} tag {name} of {table.name}, snapshot {snapshot}"))


BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch's name.")]


def _branch() -> typer.Typer:
    group = typer.Typer(
        name="branch", cls=LightGroup, help="Lines of a table's history beside main.", no_args_is_help=True
    )
    command(group, "list", branch_list)
    command(group, "create", branch_create)
    command(group, "rename", branch_rename)
    command(group, "fast-forward", branch_fast_forward)
    command(group, "delete", branch_delete)
    return group


def branch_list(run: Run, table: TableName) -> None:
    """The branches of a table, main first."""
    from bitlake.snapshot.versions import branch_names

    found = run.state(table)
    branches = []
    for name in ("main", *branch_names(found.store, found.paths)):
        snapshot = (found if name == "main" else run.state(f"{found.name}$branch_{name}")).snapshot
        branches.append(
            {
                "name": name,
                "snapshot": snapshot.id if snapshot else None,
                "committed_at": iso(snapshot.time_millis) if snapshot else None,
                "rows": snapshot.total_record_count if snapshot else 0,
            }
        )
    document = {"table": found.name, "branches": branches}
    run.out.result(document, lambda screen: _show_branches(screen, document))


def _show_branches(screen: Screen, document: dict[str, Any]) -> None:
    rows = [(b["name"], b["snapshot"], when(b["committed_at"]), b["rows"]) for b in document["branches"]]
    screen.table(("branch", ">snapshot", "last commit", ">rows"), rows)


def branch_create(run: Run, table: TableName, name: BranchName, tag: TagOption = None) -> None:
    """Make a branch of a tag's snapshot, or without a tag an empty one.

    Read and write it as TABLE$branch_NAME.
    """
    from bitlake.snapshot.branches import create_branch

    found = run.state(table)
    create_branch(found, name, tag)
    _report_branch(run, found.name, "created", name)


def branch_rename(
    run: Run, table: TableName, name: BranchName, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")]
) -> None:
    """Give a branch another name."""
    from bitlake.snapshot.branches import rename_branch

    found = run.state(table)
    rename_branch(found, name, new_name)
    document = {"table": found.name, "branch": new_name, "done": "renamed"}
    run.out.result(document, lambda screen: screen.line(f"renamed branch {name} of {found.name} to {new_name}"))


def branch_fast_forward(run: Run, table: TableName, name: BranchName) -> None:
    """Make main what a branch is."""
    from bitlake.snapshot import branches

    found = run.state(table)
    branches.fast_forward(found, name)
    _report_branch(run, found.name, "fast-forwarded main to", name)


def branch_delete(run: Run, table: TableName, name: BranchName) -> None:
    """Delete a branch: its snapshots, schemas and tags."""
    from bitlake.snapshot.branches import delete_branch

    found = run.state(table)
    delete_branch(found, name)
    _report_branch(run, found.name, "deleted", name)


def _report_branch(run: Run, table: str, done: str, name: str) -> None:
    document = {"table": table, "branch": name, "done": done}
    run.out.result(document, lambda screen: screen.line(f"{done} branch {name} of {table}"))
