"""Read the files of tags, which keep a snapshot and all its files until the tag is deleted.

``tag/tag-<name>`` is a copy of the snapshot's file; with a retention it has two more members:
``tagCreateTime`` (local time as [year, month, day, hour, minute, second, nanosecond]) and ``tagTimeRetained`` (seconds
with nine decimals).

Source: table-format spec, section 3.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from bitlake.errors import CorruptError, NotFound
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import tag_names


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its snapshot; with a retention, its creation time and retention in milliseconds."""

    name: str
    snapshot: Snapshot
    created_ms: int | None = None
    retained_ms: int | None = None

    def __repr__(self) -> str:
        return f"Tag({self.name}: snapshot {self.snapshot.id})"

    def expired(self, now_local_ms: int) -> bool:
        """Whether its retention is over; ``now_local_ms`` is as :func:`bitlake._clock.local_ms` gives it."""
        return (
            self.created_ms is not None
            and self.retained_ms is not None
            and self.created_ms + self.retained_ms < now_local_ms
        )


def list_tags(state: TableState) -> list[Tag]:
    """All tags by name, without those deleted meanwhile.

    Raises :class:`CorruptError` naming one that cannot be read.
    """
    tags = []
    for name in tag_names(state.table_files):
        with contextlib.suppress(NotFound):
            tags.append(load_tag(state, name))
    return tags


def load_tag(state: TableState, name: str) -> Tag:
    """Load one tag; raises :class:`NotFound`, naming the existing tags."""
    path = state.paths.tag(name)
    try:
        data = state.store.read(path)
    except NotFound as e:
        have = ", ".join(tag_names(state.table_files)) or "none"
        raise NotFound(f"table '{state.name}' has no tag '{name}'; its tags: {have}") from e
    snapshot = Snapshot.from_json(data, path)
    members = json.loads(data)
    try:
        return Tag(name, snapshot, _created(members), _retained(members))
    except (TypeError, ValueError, OverflowError) as e:
        raise CorruptError(f"the retention of a tag cannot be parsed ({e})", 0, path=path) from e


def _created(members: dict[str, object]) -> int | None:
    parts = members.get("tagCreateTime")
    if not isinstance(parts, list):
        return None
    # Java leaves out seconds and nanoseconds that are 0.
    year, month, day, hour, minute, second, nanos = [*map(int, parts), 0, 0][:7]
    at = datetime(year, month, day, hour, minute, second, nanos // 1000, UTC)
    return int(at.timestamp() * 1000)


def _retained(members: dict[str, object]) -> int | None:
    seconds = members.get("tagTimeRetained")
    return None if seconds is None else int(float(str(seconds)) * 1000)
