"""``bitlake branch``: lines of a table's history beside main."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.light import LightGroup
from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, TableName, TagOption, command

BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch's name.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        name="branch", cls=LightGroup, help="Lines of a table's history beside main.", no_args_is_help=True
    )
    command(group, "list", list_branches)
    command(group, "create", create)
    command(group, "rename", rename)
    command(group, "fast-forward", fast_forward)
    command(group, "delete", delete)
    app.add_typer(group)


def list_branches(run: Run, table: TableName) -> None:
    """The branches of a table, main first."""
    from bitlake.table.versions import branch_names

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
    run.out.result(document, lambda screen: _show(screen, document))


def _show(screen: Screen, document: dict[str, Any]) -> None:
    rows = [(b["name"], b["snapshot"], when(b["committed_at"]), b["rows"]) for b in document["branches"]]
    screen.table(("branch", ">snapshot", "last commit", ">rows"), rows)


def create(run: Run, table: TableName, name: BranchName, tag: TagOption = None) -> None:
    """Make a branch of a tag's snapshot, or without a tag an empty one.

    Read and write it as TABLE$branch_NAME.
    """
    from bitlake.table.branches import create_branch

    found = run.state(table)
    create_branch(found, name, tag)
    _tell(run, found.name, "created", name)


def rename(
    run: Run, table: TableName, name: BranchName, new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")]
) -> None:
    """Give a branch another name."""
    from bitlake.table.branches import rename_branch

    found = run.state(table)
    rename_branch(found, name, new_name)
    document = {"table": found.name, "branch": new_name, "done": "renamed"}
    run.out.result(document, lambda screen: screen.line(f"renamed branch {name} of {found.name} to {new_name}"))


def fast_forward(run: Run, table: TableName, name: BranchName) -> None:
    """Make main what a branch is."""
    from bitlake.table import branches

    found = run.state(table)
    branches.fast_forward(found, name)
    _tell(run, found.name, "fast-forwarded main to", name)


def delete(run: Run, table: TableName, name: BranchName) -> None:
    """Delete a branch: its snapshots, schemas and tags."""
    from bitlake.table.branches import delete_branch

    found = run.state(table)
    delete_branch(found, name)
    _tell(run, found.name, "deleted", name)


def _tell(run: Run, table: str, done: str, name: str) -> None:
    document = {"table": table, "branch": name, "done": done}
    run.out.result(document, lambda screen: screen.line(f"{done} branch {name} of {table}"))
