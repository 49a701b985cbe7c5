"""``bitlake tables``, ``describe``, ``files``, ``head`` and ``count``: tables, their data files, and rows of them."""

from __future__ import annotations

import time
from typing import Any

import click

from bitlake.catalog.catalog import Catalog, Identifier, open_state
from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import (
    Run,
    columns_option,
    command,
    limit_option,
    partitions_option,
    table_argument,
    time_travel_options,
    where_option,
)
from bitlake.errors import BitlakeError
from bitlake.fileindex import INDEX_COLUMNS, INDEX_PREFIX
from bitlake.formatting import counted, human_bytes
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot.state import TableState


@command("tables")
@click.option("--names", is_flag=True, help="Print names only, without opening a table.")
def tables(run: Run, names: bool) -> None:
    """List the tables of the lake by database, with each table's stored rows and last commit.

    Lists all databases, or the one that --database names.

    Example: bitlake tables --lake /data/lake
    """
    lake = run.lake()
    databases = [run.options.database] if run.options.database else lake.databases()
    if not databases or run.options.database:
        run.check_folder()
    identifiers = [(d, t) for d in databases for t in sorted(lake.tables(d))]
    if names:
        rows = [{"database": d, "table": t} for d, t in identifiers]
        run.out.result({"lake": lake.path, "tables": rows}, lambda screen: _show_names(screen, rows))
        return
    catalog = run.catalog()
    rows = LocalRunner(REQUESTS).run(identifiers, lambda name: _table_row(catalog, *name))
    run.out.result({"lake": lake.path, "tables": rows}, lambda screen: _show_tables(screen, rows))
    if any(r["error"] for r in rows):
        run.out.problems()


def _table_row(catalog: Catalog, database: str, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"database": database, "table": name, "error": None}
    try:
        state = open_state(catalog, Identifier(database, name))
    except BitlakeError as e:
        return {**row, "error": str(e)}
    schema, snapshot = state.schema, state.snapshot
    return {
        **row,
        "columns": len(schema.fields),
        "primary_key": list(schema.primary_keys),
        "partitioned_by": list(schema.partition_keys),
        "snapshot": state.snapshot_id,
        "rows": snapshot.total_record_count if snapshot else 0,
        "committed_at": iso(snapshot.time_millis) if snapshot else None,
        "comment": schema.comment,
    }


def _show_names(screen: Screen, rows: list[dict[str, Any]]) -> None:
    for r in rows:
        screen.line(f"{r['database']}.{r['table']}")


def _show_tables(screen: Screen, rows: list[dict[str, Any]]) -> None:
    shown: list[tuple[Any, ...]] = [
        (
            f"{r['database']}.{r['table']}",
            ", ".join(r["primary_key"]) or None,
            ", ".join(r["partitioned_by"]) or None,
            r["rows"],
            when(r["committed_at"]),
        )
        if not r["error"]
        else (f"{r['database']}.{r['table']}", None, None, None, f"error: {r['error']}")
        for r in rows
    ]
    columns = ("table", "?*primary key", "?*partitioned by", ">rows", "last commit")
    screen.table(columns, shown, empty="no tables yet")


@command("describe")
@table_argument()
def describe(run: Run, table: str) -> None:
    """Show a table's columns with their indexes, its keys, options and path.

    Example: bitlake describe orders
    """
    state = run.state(table)
    document = _description(state)
    run.out.result(document, lambda screen: _show_description(screen, document))


def _description(state: TableState) -> dict[str, Any]:
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
    """The file indexes that the options configure, by column; those of a map's key ``m[k]`` under the map's name."""
    indexes: dict[str, list[str]] = {}
    for name, value in options.items():
        if name.startswith(INDEX_PREFIX) and name.endswith(INDEX_COLUMNS):
            kind = name.removeprefix(INDEX_PREFIX).removesuffix(INDEX_COLUMNS)
            for column in filter(None, (c.strip() for c in value.split(","))):
                top, bracket, key = column.partition("[")
                indexes.setdefault(top, []).append(kind + bracket + key)
    return indexes


def _buckets(document: dict[str, Any]) -> str | None:
    number = document["buckets"]
    if number > 0:
        return f"{number}, by {', '.join(document['bucket_key'])}"
    if number == -2:
        return "postponed"
    return "dynamic" if document["primary_key"] else None


def _show_description(screen: Screen, document: dict[str, Any]) -> None:
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
    extra = ("indexes", "default", "comment")
    rows = [
        (c["name"], c["type"], "" if c["nullable"] else "NOT NULL", *(_cell(c[n]) for n in extra))
        for c in document["columns"]
    ]
    screen.table(("column", "*type", "", *(f"?*{n}" for n in extra)), rows)
    if document["options"]:
        screen.line()
        screen.table(("option", "*value"), list(document["options"].items()))


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else value or ""


@command("files")
@table_argument()
@partitions_option()
@limit_option("Show at most N files; 0 shows all.", 50)
@time_travel_options
def files(
    run: Run,
    table: str,
    where: str | None,
    limit: int,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """List a table's data files with rows, size, level and index of each, and the totals.

    With --json all files are listed and --limit is ignored.

    Example: bitlake files orders -w "status = 'NEW'"
    """
    from bitlake.metadata.manifest import index_name
    from bitlake.snapshot.partitions import PartitionReader, files_of_partitions
    from bitlake.snapshot.time_travel import When

    state = When(snapshot, tag, timestamp).of(run.state(table), run.options.timezone)
    entries = files_of_partitions(state, where, run.options.timezone)
    reader = PartitionReader(state.schema, state.paths)
    rows = [
        {
            "partition": reader.folder(e.partition),
            "partition_values": reader.shown(e.partition),
            "bucket": e.bucket,
            "level": e.file.level,
            "rows": e.file.row_count,
            "bytes": e.file.file_size,
            "embedded_index_bytes": None if e.file.embedded_index is None else len(e.file.embedded_index),
            "index_file": index_name(e.file),
            "schema_id": e.file.schema_id,
            "path": reader.data_path(e),
        }
        for e in sorted(entries, key=lambda e: (reader.folder(e.partition), e.bucket, -e.file.level, e.file.file_name))
    ]
    document: dict[str, Any] = {
        "table": state.name,
        "snapshot": state.snapshot_id,
        "total": {
            "files": len(entries),
            "rows": sum(e.file.row_count for e in entries),
            "bytes": sum(e.file.file_size for e in entries),
        },
        "files": rows,
    }
    keyed = bool(state.schema.primary_keys)
    run.out.result(document, lambda screen: _show_files(screen, document, limit, keyed))


def _show_files(screen: Screen, document: dict[str, Any], limit: int, keyed: bool) -> None:
    rows = document["files"]
    shown = rows[:limit] if limit else rows
    columns = ("?~partition", ">bucket", *((">level",) if keyed else ()), ">rows", ">size", "?index", "~file")
    cells = [
        (
            "/".join(f"{k}={v}" for k, v in r["partition_values"].items()),
            r["bucket"],
            *((r["level"],) if keyed else ()),
            r["rows"],
            human_bytes(r["bytes"]),
            _index_place(r),
            r["path"].rsplit("/", 1)[-1],
        )
        for r in shown
    ]
    screen.table(columns, cells, empty="no data files")
    total = document["total"]
    if rows:
        more = f" ({len(rows) - len(shown):,} not shown: --limit 0 shows all)" if len(shown) < len(rows) else ""
        screen.line(
            f"{counted(total['files'], 'file')}, {counted(total['rows'], 'row')}, {human_bytes(total['bytes'])}{more}",
            "dim",
        )


def _index_place(row: dict[str, Any]) -> str:
    if row["embedded_index_bytes"] is not None:
        return f"in manifest, {human_bytes(row['embedded_index_bytes'])}"
    return ".index file" if row["index_file"] else ""


@command("head")
@table_argument()
@where_option()
@columns_option()
@limit_option("Return at most N rows.", 10)
@click.option(
    "--format", type=click.Choice(("table", "csv", "json")), default="table", help="table, csv, or json: one per line."
)
@time_travel_options
def head(
    run: Run,
    table: str,
    where: str | None,
    columns: str | None,
    limit: int,
    format: str,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """Show rows of a table that match a condition, without starting Spark.

    Example: bitlake head orders -w "status = 'NEW'" -c order_id,amount -n 5
    """
    scan = run.scan(table, snapshot, tag, timestamp, where, columns)
    # Imported lazily: loads pyarrow, which is not needed to report a wrong name or condition.
    from bitlake.cli.result import SHOW, Result

    started = time.perf_counter()
    rows = scan.limit(limit).to_arrow()
    result = Result(f"head {table}", rows, False, time.perf_counter() - started)
    run.out.result(result.document(), lambda screen: SHOW[format](screen, result))


@command("count")
@table_argument()
@where_option()
@time_travel_options
def count(
    run: Run, table: str, where: str | None, snapshot: int | None, tag: str | None, timestamp: str | None
) -> None:
    """Count the rows of a table that match a condition, from metadata and indexes where they suffice.

    Example: bitlake count orders -w "status = 'NEW'"
    """
    rows = run.scan(table, snapshot, tag, timestamp, where).count()
    run.out.result({"table": table, "rows": rows}, lambda screen: screen.line(str(rows)))
