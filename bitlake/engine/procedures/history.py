"""Procedures of tags, branches, consumers, and going back; arguments and results are Paimon's."""

from __future__ import annotations

import pyarrow as pa

from bitlake.engine.ddl import delete_tags
from bitlake.engine.procedures.procedure import DRY_RUN, TABLE, Arguments, Parameter, procedure
from bitlake.errors import InvalidRequest, NotFound
from bitlake.snapshot.consumers import clear_consumers, reset_consumer
from bitlake.snapshot.tags import load_tag
from bitlake.snapshot.time_travel import state_at_version
from bitlake.table.history import TableHistory
from bitlake.table.maintenance import TableMaintenance

_TAG = Parameter("tag", True, "the tag's name")
_SNAPSHOT = Parameter("snapshot", False, "the id of the snapshot to tag; default: the latest")
_TIMESTAMP = Parameter("timestamp", True, "ms since the epoch, or a time")
_RETAINED = Parameter("time_retained", False, "how long the tag stays, as '1 d'; default: until it is deleted")


@procedure(TABLE, _TAG, _SNAPSHOT, _RETAINED)
def _create_tag(a: Arguments) -> None:
    """Tag a snapshot, which keeps it."""
    table = a.table()
    TableHistory(table).create_tag(a.needed("tag"), a.integer("snapshot"), retain=a.duration("time_retained"))


@procedure(TABLE, _TAG, _SNAPSHOT, _RETAINED)
def _replace_tag(a: Arguments) -> None:
    """Move a tag to another snapshot."""
    table = a.table()
    TableHistory(table).replace_tag(a.needed("tag"), a.integer("snapshot"), retain=a.duration("time_retained"))


@procedure(TABLE, _TAG, Parameter("target_tag", True, "its new name"))
def _rename_tag(a: Arguments) -> None:
    """Give a tag another name."""
    TableHistory(a.table()).rename_tag(a.needed("tag"), a.needed("target_tag"))


@procedure(TABLE, _TAG)
def _delete_tag(a: Arguments) -> None:
    """Delete tags (names between commas) and what only they kept."""
    delete_tags(a.table(), a.needed("tag"))


@procedure(TABLE, Parameter("older_than", False, "also delete the tags created before this time"), DRY_RUN)
def _expire_tags(a: Arguments) -> pa.Table:
    """Delete the tags whose retention is over."""
    expired = TableMaintenance(a.table()).expire_tags(a.time("older_than"), dry_run=a.flag("dry_run"))
    return a.rows({"expired_tags": str}, *([(name,) for name in expired] or [("No expired tags.",)]))


@procedure(TABLE, _TAG, _TIMESTAMP, _RETAINED)
def _create_tag_from_timestamp(a: Arguments) -> pa.Table:
    """Tag the first snapshot committed at or after a time."""
    table = a.table()
    at, tag = a.moment("timestamp"), a.needed("tag")
    TableHistory(table).create_tag(tag, timestamp=at, retain=a.duration("time_retained"))
    snapshot = load_tag(table.state(), tag).snapshot
    columns = {"tagName": str, "snapshot": int, "commit_time": int, "watermark": str}
    watermark = "" if snapshot.watermark is None else str(snapshot.watermark)
    return a.rows(columns, (tag, snapshot.id, snapshot.time_millis, watermark))


@procedure(
    TABLE,
    Parameter("version", False, "a tag, or a snapshot's id"),
    Parameter("snapshot", False, "a snapshot's id"),
    Parameter("tag", False, "a tag"),
)
def _rollback(a: Arguments) -> pa.Table:
    """Make an earlier snapshot the latest again."""
    table = a.table()
    given = [n for n in ("version", "snapshot", "tag") if a.get(n) is not None]
    if len(given) != 1:
        raise InvalidRequest("sys.rollback needs one of 'version', 'snapshot' and 'tag'")
    if given[0] == "snapshot":
        return _went(a, TableHistory(table).rollback(a.integer("snapshot")))
    if given[0] == "tag":
        return _went(a, TableHistory(table).rollback(tag=a.needed("tag")))
    version = a.needed("version")
    if version in TableHistory(table).tags():
        return _went(a, TableHistory(table).rollback(tag=version))
    snapshot_id = state_at_version(table.state(), version).snapshot_id
    return _went(a, TableHistory(table).rollback(snapshot_id))


@procedure(TABLE, _TIMESTAMP)
def _rollback_to_timestamp(a: Arguments) -> pa.Table:
    """Go back to the last snapshot committed at or before a time."""
    at = a.moment("timestamp")
    return _went(a, TableHistory(a.table()).rollback(timestamp=at))


@procedure(TABLE, Parameter("watermark", True, "a watermark"))
def _rollback_to_watermark(a: Arguments) -> pa.Table:
    """Go back to the last snapshot whose watermark is not above this one."""
    table = a.table()
    watermark = a.integer("watermark")
    below = None
    for snapshot in TableHistory(table).snapshots():
        if snapshot.watermark is not None and watermark is not None and snapshot.watermark <= watermark:
            below = snapshot.id
    if below is None:
        raise NotFound(f"table '{table.name}' has no snapshot with a watermark of {watermark} or less")
    return _went(a, TableHistory(table).rollback(below))


def _went(a: Arguments, ids: tuple[int, int]) -> pa.Table:
    return a.rows({"previous_snapshot_id": int, "current_snapshot_id": int}, ids)


@procedure(
    TABLE,
    Parameter("branch", True, "its name"),
    Parameter("tag", False, "the tag whose snapshot it begins with; default: it begins empty"),
    Parameter("ignoreIfExists", False, "true: leave an existing branch unchanged"),
)
def _create_branch(a: Arguments) -> None:
    """Make a branch."""
    table = a.table()
    TableHistory(table).create_branch(a.needed("branch"), a.text("tag"), if_not_exists=a.flag("ignoreifexists"))


@procedure(TABLE, Parameter("branch", True, "names between commas"))
def _delete_branch(a: Arguments) -> None:
    """Delete branches."""
    table = a.table()
    names = _names(a.needed("branch"))
    have = TableHistory(table).branches()
    missing = [n for n in names if n not in have]
    if missing:
        raise NotFound(
            f"table '{table.name}' has no branch '{missing[0]}'; its branches: {', '.join(have) or 'only main'}"
        )
    for name in names:
        TableHistory(table).delete_branch(name)


@procedure(TABLE, Parameter("from_branch", True, "its name"), Parameter("to_branch", True, "its new name"))
def _rename_branch(a: Arguments) -> None:
    """Give a branch another name."""
    TableHistory(a.table()).rename_branch(a.needed("from_branch"), a.needed("to_branch"))


@procedure(TABLE, Parameter("branch", True, "the branch"))
def _fast_forward(a: Arguments) -> None:
    """Make main what a branch is."""
    TableHistory(a.table()).fast_forward(a.needed("branch"))


def _names(given: str) -> list[str]:
    return [n.strip() for n in given.split(",") if n.strip()]


@procedure(
    TABLE,
    Parameter("consumerId", True, "the consumer"),
    Parameter("nextSnapshotId", False, "the snapshot it reads next; default: the consumer is deleted"),
)
def _reset_consumer(a: Arguments) -> None:
    """Move or delete a consumer."""
    reset_consumer(a.table().state(), a.needed("consumerid"), a.integer("nextsnapshotid"))


@procedure(
    TABLE,
    Parameter("includingConsumers", False, "a regular expression; default: all"),
    Parameter("excludingConsumers", False, "a regular expression of those that stay"),
)
def _clear_consumers(a: Arguments) -> None:
    """Delete consumers."""
    patterns = [a.pattern(n) for n in ("includingconsumers", "excludingconsumers")]
    clear_consumers(a.table().state(), *patterns)
