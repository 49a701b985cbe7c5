"""``bitlake tag``: names for snapshots, which keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.light import LightGroup
from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, SnapshotOption, TableName, command, duration

if TYPE_CHECKING:
    from bitlake.table.state import TableState

TagName = Annotated[str, typer.Argument(metavar="TAG", help="The tag's name.")]
Keep = Annotated[str | None, typer.Option(metavar="TIME", help="Let it expire after so long: 30d, 12h.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        name="tag", cls=LightGroup, help="Names for snapshots, which keep them readable.", no_args_is_help=True
    )
    command(group, "list", list_tags)
    command(group, "create", create)
    command(group, "move", move)
    command(group, "rename", rename)
    command(group, "delete", delete)
    app.add_typer(group)


def list_tags(run: Run, table: TableName) -> None:
    """The tags of a table."""
    from bitlake.table.tag_files import list_tags as read_tags

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
    run.out.result(document, lambda screen: _show(screen, document))


def _show(screen: Screen, document: dict[str, Any]) -> None:
    rows = [
        (t["name"], t["snapshot"], when(t["committed_at"]), t["rows"], _kept(t["kept_ms"])) for t in document["tags"]
    ]
    screen.table(("tag", ">snapshot", "committed", ">rows", "kept"), rows, empty="no tags")


def _kept(millis: int | None) -> str:
    if millis is None:
        return "until deleted"
    hours = millis / 3_600_000
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"


def create(run: Run, table: TableName, name: TagName, snapshot: SnapshotOption = None, keep: Keep = None) -> None:
    """Tag a snapshot, the latest if none is given."""
    from bitlake.errors import AlreadyExists
    from bitlake.table import tags

    found = run.state(table)
    try:
        tags.create_tag(found, name, snapshot, retained_ms=duration("--keep", keep))
    except AlreadyExists as e:
        what = f"table '{found.name}' has a tag '{name}' already"
        raise AlreadyExists(f"{what}; bitlake tag move {table} {name} moves it to another snapshot") from e
    _tell(run, found, "created", name)


def move(run: Run, table: TableName, name: TagName, snapshot: SnapshotOption = None, keep: Keep = None) -> None:
    """Move a tag to another snapshot, the latest if none is given."""
    from bitlake.table import tags

    found = run.state(table)
    tags.replace_tag(found, name, snapshot, retained_ms=duration("--keep", keep))
    _tell(run, found, "moved", name)


def rename(
    run: Run, table: TableName, name: TagName, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")]
) -> None:
    """Give a tag another name."""
    from bitlake.table import tags

    found = run.state(table)
    tags.rename_tag(found, name, new_name)
    snapshot = tags.load_tag(found, new_name).snapshot.id
    document = {"table": found.name, "tag": new_name, "done": "renamed", "snapshot": snapshot}
    run.out.result(document, lambda screen: screen.line(f"renamed tag {name} of {found.name} to {new_name}"))


def delete(run: Run, table: TableName, name: TagName) -> None:
    """Delete a tag, and the files that only it kept."""
    from bitlake.table import tags

    found = run.state(table)
    tags.delete_tag(found, name)
    document = {"table": found.name, "tag": name, "done": "deleted", "snapshot": None}
    run.out.result(document, lambda screen: screen.line(f"deleted tag {name} of {found.name}"))


def _tell(run: Run, table: TableState, done: str, name: str) -> None:
    from bitlake.table.tag_files import load_tag

    snapshot = load_tag(table, name).snapshot.id
    document = {"table": table.name, "tag": name, "done": done, "snapshot": snapshot}
    run.out.result(document, lambda screen: screen.line(f"{done} tag {name} of {table.name}, snapshot {snapshot}"))
