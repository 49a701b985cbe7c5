"""Procedures of tags, branches, consumers, and going back; arguments and results are Paimon's."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, NotFound
from bitlake.snapshot.consumers import clear_consumers, reset_consumer
from bitlake.snapshot.tags import load_tag
from bitlake.snapshot.time_travel import state_at_version
from bitlake.spark.context import EngineContext
from bitlake.spark.ddl import delete_tags
from bitlake.spark.procedures.procedure import (
    DRY_RUN,
    TABLE,
    Parameter,
    Procedure,
    done,
    duration,
    epoch_millis,
    flag,
    integer,
    moment,
    needed,
    pattern,
    table_of,
    text,
)
from bitlake.table.history import TableHistory
from bitlake.table.maintenance import TableMaintenance

Arguments = dict[str, Any]
_TAG = Parameter("tag", True, "the tag's name")
_SNAPSHOT = Parameter("snapshot", False, "the id of the snapshot to tag; default: the latest")
_TIMESTAMP = Parameter("timestamp", True, "ms since the epoch, or a time")
_RETAINED = Parameter("time_retained", False, "how long the tag stays, as '1 d'; default: until it is deleted")


def _create_tag(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    TableHistory(table).create_tag(needed(a, "tag"), integer(a, "snapshot"), retain=duration(a, "time_retained"))
    return done(context)


def _replace_tag(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    TableHistory(table).replace_tag(needed(a, "tag"), integer(a, "snapshot"), retain=duration(a, "time_retained"))
    return done(context)


def _rename_tag(context: EngineContext, a: Arguments) -> DataFrame:
    TableHistory(table_of(context, a["table"])).rename_tag(needed(a, "tag"), needed(a, "target_tag"))
    return done(context)


def _delete_tag(context: EngineContext, a: Arguments) -> DataFrame:
    delete_tags(table_of(context, a["table"]), needed(a, "tag"))
    return done(context)


def _expire_tags(context: EngineContext, a: Arguments) -> DataFrame:
    older = a.get("older_than")
    before = None if older is None else epoch_millis(context, older)
    gone = TableMaintenance(table_of(context, a["table"])).expire_tags(before, dry_run=flag(a, "dry_run"))
    rows = [(name,) for name in gone] or [("No expired tags.",)]
    return context.rows([("expired_tags", T.StringType())], rows)


def _create_tag_from_timestamp(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    at = moment(context, a["timestamp"])
    TableHistory(table).create_tag(needed(a, "tag"), timestamp=at, retain=duration(a, "time_retained"))
    snapshot = load_tag(table.state(), needed(a, "tag")).snapshot
    columns: list[tuple[str, T.DataType]] = [
        ("tagName", T.StringType()),
        ("snapshot", T.LongType()),
        ("commit_time", T.LongType()),
        ("watermark", T.StringType()),
    ]
    watermark = "" if snapshot.watermark is None else str(snapshot.watermark)
    return context.rows(columns, [(a["tag"], snapshot.id, snapshot.time_millis, watermark)])


def _rollback(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    given = [n for n in ("version", "snapshot", "tag") if a.get(n) is not None]
    if len(given) != 1:
        raise InvalidRequest("sys.rollback needs one of 'version', 'snapshot' and 'tag'")
    if given[0] == "snapshot":
        return _went(context, TableHistory(table).rollback(integer(a, "snapshot")))
    if given[0] == "tag":
        return _went(context, TableHistory(table).rollback(tag=needed(a, "tag")))
    version = needed(a, "version")
    if version in TableHistory(table).tags():
        return _went(context, TableHistory(table).rollback(tag=version))
    found = state_at_version(table.state(), version).snapshot_id
    return _went(context, TableHistory(table).rollback(found))


def _rollback_to_timestamp(context: EngineContext, a: Arguments) -> DataFrame:
    at = moment(context, a["timestamp"])
    return _went(context, TableHistory(table_of(context, a["table"])).rollback(timestamp=at))


def _rollback_to_watermark(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    watermark = integer(a, "watermark")
    below = None
    for snapshot in TableHistory(table).snapshots():
        if snapshot.watermark is not None and watermark is not None and snapshot.watermark <= watermark:
            below = snapshot.id
    if below is None:
        raise NotFound(f"table '{table.name}' has no snapshot with a watermark of {watermark} or less")
    return _went(context, TableHistory(table).rollback(below))


def _went(context: EngineContext, ids: tuple[int, int]) -> DataFrame:
    columns = [("previous_snapshot_id", T.LongType()), ("current_snapshot_id", T.LongType())]
    return context.rows(columns, [ids])


def _create_branch(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    TableHistory(table).create_branch(needed(a, "branch"), text(a, "tag"), if_not_exists=flag(a, "ignoreifexists"))
    return done(context)


def _delete_branch(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    names = _names(needed(a, "branch"))
    have = TableHistory(table).branches()
    missing = [n for n in names if n not in have]
    if missing:
        raise NotFound(
            f"table '{table.name}' has no branch '{missing[0]}'; its branches: {', '.join(have) or 'only main'}"
        )
    for name in names:
        TableHistory(table).delete_branch(name)
    return done(context)


def _rename_branch(context: EngineContext, a: Arguments) -> DataFrame:
    TableHistory(table_of(context, a["table"])).rename_branch(needed(a, "from_branch"), needed(a, "to_branch"))
    return done(context)


def _fast_forward(context: EngineContext, a: Arguments) -> DataFrame:
    TableHistory(table_of(context, a["table"])).fast_forward(needed(a, "branch"))
    return done(context)


def _names(given: str) -> list[str]:
    return [n.strip() for n in given.split(",") if n.strip()]


def _reset_consumer(context: EngineContext, a: Arguments) -> DataFrame:
    reset_consumer(table_of(context, a["table"]).state(), needed(a, "consumerid"), integer(a, "nextsnapshotid"))
    return done(context)


def _clear_consumers(context: EngineContext, a: Arguments) -> DataFrame:
    patterns = [pattern(a, n) for n in ("includingconsumers", "excludingconsumers")]
    clear_consumers(table_of(context, a["table"]).state(), *patterns)
    return done(context)


PROCEDURES = (
    Procedure("create_tag", (TABLE, _TAG, _SNAPSHOT, _RETAINED), "Tag a snapshot, which keeps it.", _create_tag),
    Procedure(
        "create_tag_from_timestamp",
        (TABLE, _TAG, _TIMESTAMP, _RETAINED),
        "Tag the first snapshot committed at or after a time.",
        _create_tag_from_timestamp,
    ),
    Procedure("replace_tag", (TABLE, _TAG, _SNAPSHOT, _RETAINED), "Move a tag to another snapshot.", _replace_tag),
    Procedure(
        "rename_tag",
        (TABLE, _TAG, Parameter("target_tag", True, "its new name")),
        "Give a tag another name.",
        _rename_tag,
    ),
    Procedure("delete_tag", (TABLE, _TAG), "Delete tags (names between commas) and what only they kept.", _delete_tag),
    Procedure(
        "expire_tags",
        (TABLE, Parameter("older_than", False, "delete tags with a retention made before this time"), DRY_RUN),
        "Delete the tags whose retention is over.",
        _expire_tags,
    ),
    Procedure(
        "rollback",
        (
            TABLE,
            Parameter("version", False, "a tag, or a snapshot's id"),
            Parameter("snapshot", False, "a snapshot's id"),
            Parameter("tag", False, "a tag"),
        ),
        "Make an earlier snapshot the latest again.",
        _rollback,
    ),
    Procedure(
        "rollback_to_timestamp",
        (TABLE, _TIMESTAMP),
        "Go back to the last snapshot committed at or before a time.",
        _rollback_to_timestamp,
    ),
    Procedure(
        "rollback_to_watermark",
        (TABLE, Parameter("watermark", True, "a watermark")),
        "Go back to the last snapshot whose watermark is not above this one.",
        _rollback_to_watermark,
    ),
    Procedure(
        "create_branch",
        (
            TABLE,
            Parameter("branch", True, "its name"),
            Parameter("tag", False, "the tag whose snapshot it begins with; default: it begins empty"),
            Parameter("ignoreIfExists", False, "true: leave an existing branch unchanged"),
        ),
        "Make a branch.",
        _create_branch,
    ),
    Procedure(
        "delete_branch",
        (TABLE, Parameter("branch", True, "names between commas")),
        "Delete branches.",
        _delete_branch,
    ),
    Procedure(
        "rename_branch",
        (TABLE, Parameter("from_branch", True, "its name"), Parameter("to_branch", True, "its new name")),
        "Give a branch another name.",
        _rename_branch,
    ),
    Procedure(
        "fast_forward",
        (TABLE, Parameter("branch", True, "the branch")),
        "Make main what a branch is.",
        _fast_forward,
    ),
    Procedure(
        "reset_consumer",
        (
            TABLE,
            Parameter("consumerId", True, "the consumer"),
            Parameter("nextSnapshotId", False, "the snapshot it reads next; default: the consumer is deleted"),
        ),
        "Move or delete a consumer.",
        _reset_consumer,
    ),
    Procedure(
        "clear_consumers",
        (
            TABLE,
            Parameter("includingConsumers", False, "a regular expression; default: all"),
            Parameter("excludingConsumers", False, "a regular expression of those that stay"),
        ),
        "Delete consumers.",
        _clear_consumers,
    ),
)
"""Procedures of a table's history."""
