"""``bitlake history``: what was committed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, TableName, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "history", history)


def history(
    run: Run,
    table: TableName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="So many snapshots; 0 for all.")] = 20,
) -> None:
    """What was committed to a table, the latest first: each snapshot with its rows and tags."""
    from bitlake.table.tag_files import list_tags
    from bitlake.table.versions import existing_snapshots, snapshot_ids

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
    run.out.result(document, lambda screen: _show(screen, document))


def _show(screen: Screen, document: dict[str, Any]) -> None:
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
