"""Consumers: streams that say which snapshot they read next, so that expiry leaves it to them.

``consumer/consumer-<id>`` under the table's (or branch's) folder: JSON ``{"nextSnapshot": n}``.
Source: table-format spec, section 1.
"""

from __future__ import annotations

import json

from bitlake.errors import CorruptError, NotFound
from bitlake.metadata.paths import TablePaths
from bitlake.storage import Store

_PREFIX = "consumer-"


def consumers(store: Store, paths: TablePaths) -> dict[str, int]:
    """The next snapshot of each consumer by its id; raises :class:`CorruptError` naming a file that cannot be read."""
    found = {}
    folder = f"{paths.branch_root}/consumer"
    for info in store.list(folder):
        if not info.name.startswith(_PREFIX):
            continue
        path = f"{folder}/{info.name}"
        try:
            following = json.loads(store.read(path))["nextSnapshot"]
        except NotFound:
            continue
        except (ValueError, KeyError, TypeError) as e:
            raise CorruptError("a consumer file must be JSON with a number 'nextSnapshot'", 0, path=path) from e
        if not isinstance(following, int):
            raise CorruptError(f"'nextSnapshot' of a consumer is {following!r}, not a number", 0, path=path)
        found[info.name.removeprefix(_PREFIX)] = following
    return found


def least_next_snapshot(store: Store, paths: TablePaths) -> int | None:
    """The first snapshot that a consumer still needs; None without consumers."""
    return min(consumers(store, paths).values(), default=None)
