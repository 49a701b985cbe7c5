"""Moments of tables and changes between them, as a statement of a session names them, as scans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bitlake.catalog.identifier import Identifier
from bitlake.errors import InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata import options as opt
from bitlake.scan.scan import Scan
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.time_travel import When
from bitlake.spark.errors import spark_errors
from bitlake.sql.time_travel import Changes, Relation
from bitlake.table.history import TableHistory

if TYPE_CHECKING:
    from bitlake.spark.context import EngineContext

_CONF = "spark.paimon."
_READING = frozenset((opt.SCAN_IGNORE_CORRUPT.name, opt.SCAN_IGNORE_LOST.name))
_MOMENTS = {"scan.snapshot-id": "snapshot", "scan.tag-name": "tag", "scan.version": "version"}
_PERIODS = (r"\d{4}-\d\d-\d\d", r"\d{8}", r"\d{4}-\d\d-\d\d \d\d", r"\d{8} \d\d", r"\d{4}-\d\d-\d\d \d\d:\d\d")
"""How Paimon names tags that it makes by the day, the hour or the minutes; text order is the order of time."""


def relation_scan(context: EngineContext, relation: Relation) -> Scan:
    """The scan of a relation; raises :class:`NotFound` for tables, snapshots and tags that are not there."""
    table = context.table(context.identify(relation.table))
    if isinstance(relation, Changes):
        return _changes(context, table, relation)
    if relation.timestamp is not None:
        return table.scan(timestamp=_millis(context, relation.timestamp))
    return table.query_scan(When(version=relation.version))


def _changes(context: EngineContext, table: FileStoreTable, relation: Changes) -> Scan:
    if relation.function == "paimon_incremental_to_auto_tag":
        return _to_tag(table, str(relation.arguments[0]))
    start, end = relation.arguments
    if relation.function == "paimon_incremental_query":
        return table.changes(_moment(table, start), _moment(table, end), kinds=False)
    return table.changes_by_time(_time(context, start), _time(context, end), kinds=False)


def _to_tag(table: FileStoreTable, tag: str) -> Scan:
    period = next((p for p in _PERIODS if re.fullmatch(p, tag)), None)
    if period is None:
        raise InvalidRequest(f"table '{table.name}': '{tag}' is not the name of an automatic tag, such as '2024-12-04'")
    names = sorted(TableHistory(table).tags())
    earlier = [n for n in names if re.fullmatch(period, n) and n < tag]
    if tag not in names or not earlier:
        return table.scan().where("false")
    return table.changes(earlier[-1], tag, kinds=False)


def _moment(table: FileStoreTable, value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"table '{table.name}': changes are between snapshot ids or tags, and not {value!r}")
    return value


def _time(context: EngineContext, value: Any) -> int:
    text = str(value).strip()
    if text.isdigit():
        return int(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return _millis(context, f"'{quoted}'")


def _millis(context: EngineContext, expression: str) -> int:
    """A time as Spark understands it, in ms since the epoch: numbers are seconds, text is in the session's zone."""
    with spark_errors(f"reading the time {expression}"):
        rows = context.spark.sql(f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP))").collect()
    millis = rows[0][0]
    if millis is None:
        raise InvalidRequest(f"AS OF takes a time, and {expression} is NULL")
    return int(millis)


# --- options of the session -------------------------------------------------------------------------------------------


def session_options(context: EngineContext, database: str, table: str) -> dict[str, str]:
    """The table options that the session sets: ``spark.paimon.<option>``, those of catalog.database.table above."""
    if not context.conf.paimon:
        return {}
    every: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in context.conf.paimon.items():
        key = name.removeprefix(_CONF)
        parts = key.split(".", 3)
        if len(parts) == 4 and (parts[0] == "*" or parts[0] in ("bitlake", "paimon")):
            if parts[1] in ("*", database) and parts[2] in ("*", table):
                own[parts[3]] = value
        else:
            every[key] = value
    return {**every, **own}


def on_branch(name: Identifier, options: Mapping[str, str]) -> Identifier:
    """The table, or the branch of it that the session's option ``branch`` chooses."""
    branch = options.get("branch", MAIN)
    return name if branch == MAIN or "$" in name.table else Identifier(name.database, f"{name.table}$branch_{branch}")


def table_scan(context: EngineContext, table: FileStoreTable, options: Mapping[str, str]) -> Scan:
    """A scan of a table with options of the session: a moment, changes, or options of reading."""
    if not options:
        return table.scan()
    asked = {_MOMENTS[k]: v for k, v in options.items() if k in _MOMENTS}
    if "snapshot" in asked and not asked["snapshot"].strip().isdigit():
        raise InvalidRequest(f"option 'scan.snapshot-id' = '{asked['snapshot']}' is not allowed; it takes a number")
    time: int | None = None
    if "scan.timestamp-millis" in options:
        time = _number(options, "scan.timestamp-millis")
    elif "scan.timestamp" in options:
        time = _time(context, options["scan.timestamp"])
    version: int | str | None = asked.get("version")
    if "scan.watermark" in options:
        version = f"watermark-{_number(options, 'scan.watermark')}"
    when = When(int(asked["snapshot"]) if "snapshot" in asked else None, asked.get("tag"), time, version)
    mode = options.get("incremental-between-scan-mode", "auto").strip().lower()
    between = options.get("incremental-between")
    by_time = options.get("incremental-between-timestamp")
    if between is not None or by_time is not None:
        start, comma, end = (between or by_time or "").partition(",")
        if when != When() or not comma or (between is not None and by_time is not None):
            raise InvalidRequest(f"table '{table.name}': incremental-between takes 'start,end', and no moment beside")
        if between is not None:
            return table.changes(start.strip(), end.strip(), mode=mode, kinds=False)
        return table.changes_by_time(_time(context, start), _time(context, end), mode=mode, kinds=False)
    try:
        state = table.at(when)
    except NotFound as e:
        raise NotFound(f"{e}; the session's options ask for it ({_CONF}…)") from e
    ignored = {k: v for k, v in options.items() if k in _READING}
    scan = table.scan_of(state.with_options({**writing_options(options), **ignored}))
    return scan.for_query(when, None if when == When() else table.state().schema.options)


def writing_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are left when those that choose a state to read, or belong to Spark's writer, are taken away."""
    return {k: v for k, v in options.items() if not k.startswith(("scan.", "incremental-", "write.")) and k != "branch"}


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name].strip()
    if not text.lstrip("-").isdigit():
        raise InvalidRequest(f"option '{name}' = '{text}' is not allowed; it takes a number")
    return int(text)
