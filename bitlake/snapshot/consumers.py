"""Consumers: streaming readers that record their next snapshot, which then does not expire.

``consumer/consumer-<id>`` under the table's (or branch's) folder: JSON ``{"nextSnapshot": n}``.  While a stream reads
all rows of snapshot n, bitlake adds ``"bitlake.full": true``, which Paimon ignores: a query that continues without a
checkpoint must read them again.
Source: table-format spec, section 1.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bitlake import arguments
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.metadata.java_json import dumps
from bitlake.metadata.paths import is_file_name
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, check_history
from bitlake.snapshot.versions import find_changelog, kept_words

_PREFIX = "consumer-"
_FULL = "bitlake.full"


@dataclass(frozen=True, slots=True)
class Progress:
    """The next snapshot of a consumer; ``full``: it has yet to read all rows of that snapshot, not just its changes."""

    next_snapshot: int
    full: bool = False

    def to_json(self) -> bytes:
        """The content of a consumer's file."""
        stored: dict[str, object] = {"nextSnapshot": self.next_snapshot}
        return dumps({**stored, _FULL: True} if self.full else stored).encode()


def progress(table: TableFiles, since_ms: int | None = None) -> dict[str, Progress]:
    """The progress of each consumer, by consumer id; ``since_ms``: only of those that made progress since then.

    Raises :class:`CorruptError` for an invalid file.
    """
    found = {}
    folder = f"{table.paths.branch_root}/consumer"
    for info in table.store.list(folder):
        if not info.name.startswith(_PREFIX) or (since_ms is not None and info.mtime_ms < since_ms):
            continue
        path = f"{folder}/{info.name}"
        try:
            stored = json.loads(table.store.read(path))
            following = stored["nextSnapshot"]
        except NotFound:
            continue
        except (ValueError, KeyError, TypeError) as e:
            raise CorruptError("a consumer file must be JSON with a number 'nextSnapshot'", 0, path=path) from e
        if not isinstance(following, int):
            raise CorruptError(f"'nextSnapshot' of a consumer is {following!r}, not a number", 0, path=path)
        found[info.name.removeprefix(_PREFIX)] = Progress(following, stored.get(_FULL) is True)
    return found


def consumers(table: TableFiles, since_ms: int | None = None) -> dict[str, int]:
    """The next snapshot of each consumer, as :func:`progress` finds it."""
    return {consumer: at.next_snapshot for consumer, at in progress(table, since_ms).items()}


def least_next_snapshot(table: TableFiles, since_ms: int | None = None) -> int | None:
    """The first snapshot that any consumer needs, as :func:`consumers` finds them; None without consumers."""
    return min(consumers(table, since_ms).values(), default=None)


def delete_consumers_before(table: TableFiles, since_ms: int) -> None:
    """Delete the consumers that made no progress since then, in milliseconds since the epoch."""
    folder = f"{table.paths.branch_root}/consumer"
    for info in table.store.list(folder):
        if info.name.startswith(_PREFIX) and not info.is_dir and info.mtime_ms < since_ms:
            table.store.delete(f"{folder}/{info.name}")


def reset_consumer(state: TableState, consumer: str, next_snapshot: int | None, *, full: bool = False) -> None:
    """Set the next snapshot of a consumer; None deletes the consumer.  ``full``: as in :class:`Progress`.

    Raises :class:`InvalidRequest` for an invalid id, and :class:`NotFound` for a missing consumer to delete, or for a
    snapshot that has expired without a long-lived changelog.
    """
    if not arguments.text("a consumer id", consumer).strip() or not is_file_name(consumer):
        raise InvalidRequest(
            f"invalid consumer id '{consumer}': it becomes the name of a file, so it must not be blank or contain '/'"
        )
    check_history(state.store, state.paths)
    path = f"{state.paths.branch_root}/consumer/{_PREFIX}{consumer}"
    if next_snapshot is None:
        have = consumers(state.table_files)
        if consumer not in have:
            raise NotFound(
                f"table '{state.name}' has no consumer '{consumer}'; its consumers: {', '.join(have) or 'none'}"
            )
        state.store.delete(path)
        return
    ids = load_line(state.table_files).kept
    next_snapshot = arguments.whole("next_snapshot", next_snapshot)
    changelog = None
    if ids and 0 < next_snapshot < ids[0]:
        changelog = find_changelog(state.table_files, next_snapshot)
    if next_snapshot < 1 or (ids and not ids[0] <= next_snapshot <= ids[-1] + 1 and changelog is None):
        raise NotFound(f"table '{state.name}': a consumer cannot resume at snapshot {next_snapshot}: {kept_words(ids)}")
    before = progress(state.table_files).get(consumer)
    state.store.write(path, Progress(next_snapshot, full).to_json())
    if changelog is None and next_snapshot < load_line(state.table_files).end:
        # An expiry has begun that did not see the new position.
        if before is None:
            state.store.delete(path)
        else:
            state.store.write(path, before.to_json())
        raise NotFound(
            f"table '{state.name}': snapshot {next_snapshot} expired while consumer '{consumer}' was moved to it"
        )


def clear_consumers(
    state: TableState, including: re.Pattern[str] | None = None, excluding: re.Pattern[str] | None = None
) -> list[str]:
    """Delete consumers whose whole ids match ``including`` (None: all) and not ``excluding``; returns their ids."""
    check_history(state.store, state.paths)
    deleted = [
        c
        for c in consumers(state.table_files)
        if (including is None or including.fullmatch(c)) and (excluding is None or not excluding.fullmatch(c))
    ]
    for consumer in deleted:
        state.store.delete(f"{state.paths.branch_root}/consumer/{_PREFIX}{consumer}")
    return deleted
