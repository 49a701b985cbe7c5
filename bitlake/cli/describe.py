"""``bitlake describe``: what a table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, TableName, command

if TYPE_CHECKING:
    from bitlake.table.state import TableState


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "describe", describe)


def describe(run: Run, table: TableName) -> None:
    """What a table is: its columns with their indexes, its keys, its options, and where it lies."""
    state = run.state(table)
    document = _document(state)
    run.out.result(document, lambda screen: _show(screen, document))


def _document(state: TableState) -> dict[str, Any]:
    schema, snapshot = state.schema, state.snapshot
    indexes = _indexes(schema.options)
    return {
        "table": state.name,
        "path": state.paths.root,
        "branch": state.paths.branch or "main",
        "comment": schema.comment,
        "schema_id": schema.id,
        "snapshot": state.snapshot_id,
        "rows": snapshot.total_record_count if snapshot else 0,
        "committed_at": iso(snapshot.time_millis) if snapshot else None,
        "primary_key": list(schema.primary_keys),
        "partitioned_by": list(schema.partition_keys),
        "buckets": schema.num_buckets,
        "bucket_key": list(schema.bucket_keys) if schema.num_buckets > 0 else [],
        "columns": [
            {
                "name": f.name,
                "type": str(f.type).removesuffix(" NOT NULL"),
                "nullable": f.type.nullable,
                "indexes": indexes.get(f.name, []),
                "default": f.default_value,
                "comment": f.description,
            }
            for f in schema.fields
        ],
        "options": dict(sorted(schema.options.items())),
    }


def _indexes(options: Any) -> dict[str, list[str]]:
    """By column, the file indexes that the options ask for; of a map's key ``m[k]``, under the map's name."""
    found: dict[str, list[str]] = {}
    for name, value in options.items():
        if name.startswith("file-index.") and name.endswith(".columns"):
            kind = name.removeprefix("file-index.").removesuffix(".columns")
            for column in filter(None, (c.strip() for c in value.split(","))):
                top, bracket, key = column.partition("[")
                found.setdefault(top, []).append(kind + bracket + key)
    return found


def _buckets(document: dict[str, Any]) -> str | None:
    number = document["buckets"]
    if number > 0:
        return f"{number}, by {', '.join(document['bucket_key'])}"
    if number == -2:
        return "postponed"
    return "dynamic" if document["primary_key"] else None


def _show(screen: Screen, document: dict[str, Any]) -> None:
    snapshot = document["snapshot"]
    screen.pairs(
        [
            ("table", document["table"]),
            ("branch", None if document["branch"] == "main" else document["branch"]),
            ("comment", document["comment"]),
            ("path", document["path"]),
            ("rows", f"{document['rows']:,}"),
            ("snapshot", "none yet" if snapshot is None else f"{snapshot}, {when(document['committed_at'])}"),
            ("primary key", ", ".join(document["primary_key"])),
            ("partitioned by", ", ".join(document["partitioned_by"])),
            ("buckets", _buckets(document)),
        ]
    )
    screen.line()
    columns = document["columns"]
    extra = [n for n in ("indexes", "default", "comment") if any(c[n] for c in columns)]
    rows = [(c["name"], c["type"], "" if c["nullable"] else "NOT NULL", *(_cell(c[n]) for n in extra)) for c in columns]
    screen.table(("column", "*type", "", *(f"*{n}" for n in extra)), rows)
    if document["options"]:
        screen.line()
        screen.table(("option", "*value"), list(document["options"].items()))


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else value or ""
