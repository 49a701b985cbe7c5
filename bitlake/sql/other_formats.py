"""Statements of Delta Lake and Iceberg, as the statements of bitlake that do the same.

One that would lose more here than there, or has no single counterpart, is refused with the statements to use instead:
RESTORE and Iceberg's rollbacks keep the later snapshots, and ``sys.rollback`` deletes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from bitlake import _clock
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.sql_text import quote
from bitlake.metadata.schema import near
from bitlake.sql import statements as st
from bitlake.sql.statements import Statement
from bitlake.sql.text import STRINGS, Cursor, SqlText, TableName

# --- Delta Lake -------------------------------------------------------------------------------------------------------

_HISTORY = (
    "snapshot_id AS version, commit_time AS timestamp, commit_user AS userName, "
    "coalesce(operation, commit_kind) AS operation, commit_kind, total_record_count, delta_record_count"
)
_VACUUM_HOURS = 168


def describe_history(c: Cursor) -> Statement | None:
    """``DESCRIBE HISTORY t [LIMIT n]``, the latest first: a query of ``t$snapshots``."""
    table = c.table()
    limit = f" LIMIT {c.expression()}" if c.accept("LIMIT") else ""
    if table.catalog is not None:
        return None
    snapshots = TableName(table.database, f"{table.table}$snapshots")
    return st.Query(SqlText(f"SELECT {_HISTORY} FROM {snapshots} ORDER BY snapshot_id DESC{limit}"))


def optimize(c: Cursor) -> Statement | None:
    """``OPTIMIZE t [WHERE …] [ZORDER BY (…)]``: ``sys.compact``."""
    table = c.table()
    given = {"table": str(table)}
    if c.accept("WHERE"):
        given["where"] = str(c.expression("ZORDER"))
    if c.accept("ZORDER", "BY"):
        columns = c.names("a column") if c.looking_at("(") else c.listed(lambda: c.name("a column"))
        given |= {"order_strategy": "zorder", "order_by": ",".join(columns)}
    return st.Call("sys.compact", named=given) if table.catalog is None else None


def vacuum(c: Cursor) -> Statement | None:
    """``VACUUM t [RETAIN n HOURS] [DRY RUN]``: expires snapshots and deletes orphan files."""
    table = c.table()
    hours: float = _VACUUM_HOURS
    if c.accept("RETAIN"):
        number = c.expression("HOURS")
        try:
            hours = float(number)
        except ValueError as e:
            raise InvalidRequest(f"VACUUM {table} RETAIN {number} HOURS: expected a number of hours") from e
        c.expect("HOURS")
    dry_run = c.accept("DRY", "RUN")
    return st.Vacuum(table, hours, dry_run) if table.catalog is None else None


def restore(c: Cursor) -> Statement | None:
    """``RESTORE [TABLE] t TO VERSION | TIMESTAMP AS OF …``: refused with the statements that go back."""
    c.accept("TABLE")
    table = c.table()
    c.expect("TO")
    by_time = c.accept("TIMESTAMP")
    if not by_time:
        c.expect("VERSION")
    c.expect("AS", "OF")
    moment = c.string() if c.kind() in STRINGS else str(c.expression())
    if table.catalog is not None:
        return None
    _rolled_back(f"RESTORE TABLE {table}", str(table), moment, by_time)


def _rolled_back(what: str, table: str, moment: str, by_time: bool) -> NoReturn:
    shown = quote(moment) if by_time or not moment.isdigit() else moment
    call = f"rollback_to_timestamp(table => {quote(table)}, timestamp => {shown})"
    if not by_time:
        kind = "snapshot" if moment.isdigit() else "version"
        call = f"rollback(table => {quote(table)}, {kind} => {shown})"
    raise UnsupportedFeature(
        f"{what} keeps the later snapshots, and bitlake has no such statement. CALL sys.{call} makes the snapshot the "
        f"latest one and deletes those after it; INSERT OVERWRITE {table} SELECT * FROM {table} "
        f"{'TIMESTAMP' if by_time else 'VERSION'} AS OF {shown} writes its rows again and keeps the history"
    )


# --- Iceberg ----------------------------------------------------------------------------------------------------------

_PARAMETERS = {
    "expire_snapshots": ("table", "older_than", "retain_last", "max_concurrent_deletes", "stream_results"),
    "remove_orphan_files": ("table", "older_than", "location", "dry_run", "max_concurrent_deletes"),
    "rewrite_data_files": ("table", "strategy", "sort_order", "options", "where"),
    "rewrite_position_delete_files": ("table", "options", "where"),
    "rewrite_manifests": ("table", "use_caching"),
    "compute_table_stats": ("table", "snapshot_id", "columns"),
    "rollback_to_snapshot": ("table", "snapshot_id"),
    "rollback_to_timestamp": ("table", "timestamp"),
    "set_current_snapshot": ("table", "snapshot_id", "ref"),
}
_OURS = {
    "expire_snapshots": "expire_snapshots",
    "remove_orphan_files": "remove_orphan_files",
    "rewrite_data_files": "compact",
    "rewrite_position_delete_files": "compact",
    "rewrite_manifests": "compact_manifest",
    "compute_table_stats": "analyze",
}
_INSTEAD = {
    "fast_forward": "CALL sys.fast_forward(table => {table}, branch => 'the branch') makes main the branch",
    "ancestors_of": "DESCRIBE HISTORY {name} lists the snapshots",
    "create_changelog_view": "SELECT * FROM paimon_incremental_query({table}, 1, 2) returns the rows added between two "
    "snapshots",
    **dict.fromkeys(
        ("migrate", "snapshot", "add_files", "register_table"),
        "CALL sys.migrate_table(source_type => 'parquet', table => {table}) takes a table of Parquet files over",
    ),
}
"""What to run instead of a procedure that bitlake does not have under its name."""
_ONLY_SPEED = ("max_concurrent_deletes", "stream_results", "use_caching")
_EXPIRED_MS = 5 * 24 * 3600 * 1000
_ZORDER = re.compile(r"\s*zorder\s*\((.*)\)\s*", re.I | re.S)
_SORTED = re.compile(r"\s*(\S+)(?:\s+asc)?(?:\s+nulls\s+(?:first|last))?\s*", re.I)


def iceberg_call(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Statement:
    """``CALL system.…`` of Iceberg's Spark procedures."""
    known = _PARAMETERS.get(name, ("table",))
    given = {**dict(zip(known, positional, strict=False)), **named}
    table = str(given.pop("table", "t"))
    if name in _INSTEAD:
        shown = _INSTEAD[name].format(table=quote(table), name=table)
        raise UnsupportedFeature(f"system.{name} is a procedure of Iceberg's. In bitlake, {shown}")
    what = f"CALL system.{name}"
    if name not in _PARAMETERS:
        raise InvalidRequest(f"{what} has no counterpart in bitlake{near(name, _PARAMETERS)}")
    for parameter in given:
        if parameter not in known:
            raise InvalidRequest(f"{what} has no argument '{parameter}'{near(parameter, known)}")
    given = {k: v for k, v in given.items() if v is not None and k not in _ONLY_SPEED}
    if name not in _OURS:
        _rolled_back(what, table, str(next(iter(given.values()), 1)), name == "rollback_to_timestamp")
    return st.Call(f"sys.{_OURS[name]}", named={"table": table, **_arguments(name, what, given)})


def _arguments(name: str, what: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of bitlake's procedure."""
    if name == "expire_snapshots":
        before = datetime.fromtimestamp((_clock.now_ms() - _EXPIRED_MS) / 1000, UTC)
        return {"older_than": given.get("older_than", str(before)), "retain_min": given.get("retain_last")}
    made = {k: v for k, v in given.items() if k in ("older_than", "dry_run", "where")}
    if name == "compute_table_stats" and "columns" in given:
        made["columns"] = ",".join(given.pop("columns"))
    if name == "rewrite_data_files":
        made |= _order(what, str(given.pop("strategy", "")).lower(), given.pop("sort_order", None))
    left = next((k for k in given if k not in made), None)
    if left is not None:
        raise UnsupportedFeature(f"{what}: bitlake's sys.{_OURS[name]} takes no '{left}'; leave it out")
    return made


def _order(what: str, strategy: str, order: str | None) -> dict[str, str]:
    if order is None:
        if strategy == "sort":
            raise InvalidRequest(f"{what}: strategy 'sort' needs a sort_order, as 'zorder(a, b)' or 'a, b'")
        return {}
    curve = _ZORDER.fullmatch(order)
    items = [_SORTED.fullmatch(item) for item in (order if curve is None else curve.group(1)).split(",")]
    columns = [item.group(1) for item in items if item is not None]
    if len(columns) < len(items):
        raise UnsupportedFeature(f"{what}: sort_order = '{order}' is not supported; use 'zorder(a, b)' or 'a, b'")
    return {"order_strategy": "order" if curve is None else "zorder", "order_by": ",".join(columns)}
