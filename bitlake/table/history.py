"""``table.history``: snapshots, tags, branches and consumers of a table, and going back."""

from __future__ import annotations

from datetime import timedelta

from bitlake.errors import InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import branches, consumers, tags
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.rollback import rollback
from bitlake.snapshot.tags import Tag
from bitlake.snapshot.time_travel import Time, When, epoch_millis, first_snapshot_from
from bitlake.snapshot.versions import existing_snapshots, latest_snapshot_id, snapshot_ids


class TableHistory:
    """The namespace ``table.history``.

    >>> table.history.create_tag("before-load", retain=timedelta(days=7))       # doctest: +SKIP
    >>> table.history.rollback(tag="before-load")                               # doctest: +SKIP
    """

    def __init__(self, core: FileStoreTable) -> None:
        self._core = core

    def snapshots(self) -> list[Snapshot]:
        """The snapshots that are kept, oldest first."""
        state = self._core.state()
        return list(existing_snapshots(state.table_files, snapshot_ids(state.table_files)))

    # --- tags --------------------------------------------------------------------------------------------------------

    def tags(self) -> dict[str, Tag]:
        """All tags by name."""
        return {t.name: t for t in tags.list_tags(self._core.state())}

    def create_tag(
        self,
        name: str,
        snapshot: int | None = None,
        *,
        timestamp: Time | None = None,
        retain: timedelta | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Tag a snapshot (default: the latest), which keeps it readable for ``retain`` (default: until deleted).

        ``timestamp`` chooses the first snapshot committed at or after a time.
        Returns False if the tag exists and ``if_not_exists``.  Raises :class:`AlreadyExists`, and :class:`NotFound`
        for a snapshot that does not exist any more.
        """
        if snapshot is not None and timestamp is not None:
            raise InvalidRequest(f"table '{self._core.name}': give a snapshot or a timestamp, not both")
        with self._core.changing_history() as state:
            if timestamp is not None:
                first = first_snapshot_from(state, epoch_millis(timestamp, self._core.timezone))
                if first is None:
                    raise NotFound(f"table '{self._core.name}' has no snapshot committed at {timestamp} or later")
                snapshot = first.id
            return tags.create_tag(state, name, snapshot, retained_ms=_millis(retain), if_not_exists=if_not_exists)

    def replace_tag(self, name: str, snapshot: int | None = None, *, retain: timedelta | None = None) -> None:
        """Move a tag to another snapshot (default: the latest), or change how long it is kept."""
        with self._core.changing_history() as state:
            tags.replace_tag(state, name, snapshot, retained_ms=_millis(retain))

    def rename_tag(self, name: str, new_name: str) -> None:
        """Give a tag another name."""
        with self._core.changing_history() as state:
            tags.rename_tag(state, name, new_name)

    def delete_tag(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a tag, and the files that only it kept; returns False if there was none and ``if_exists``."""
        with self._core.changing_history() as state:
            return tags.delete_tag(state, name, if_exists=if_exists)

    # --- branches ----------------------------------------------------------------------------------------------------

    @property
    def branch(self) -> str:
        """The branch that this table was opened on: ``main``, or another's name."""
        return self._core.state().paths.branch or MAIN

    def branches(self) -> list[str]:
        """The names of all branches but main."""
        return branches.branches(self._core.state())

    def create_branch(self, name: str, tag: str | None = None, *, if_not_exists: bool = False) -> bool:
        """Make a branch: of a tag's snapshot, or without one an empty one with today's schema."""
        with self._core.changing_history() as state:
            return branches.create_branch(state, name, tag, if_not_exists=if_not_exists)

    def delete_branch(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a branch; returns False if there was none and ``if_exists``."""
        if if_exists and name not in self.branches():
            return False
        with self._core.changing_history() as state:
            branches.delete_branch(state, name)
        return True

    def rename_branch(self, name: str, new_name: str) -> None:
        """Give a branch another name."""
        with self._core.changing_history() as state:
            branches.rename_branch(state, name, new_name)

    def fast_forward(self, name: str) -> None:
        """Make main what a branch is."""
        with self._core.changing_history() as state:
            branches.fast_forward(state, name)

    # --- consumers ---------------------------------------------------------------------------------------------------

    def consumers(self) -> dict[str, int]:
        """The id of the next snapshot that each consumer reads, by the consumer's name."""
        state = self._core.state()
        return consumers.consumers(state.table_files)

    def reset_consumer(self, consumer: str, next_snapshot: int | None = None) -> None:
        """Set the next snapshot that a consumer reads; None deletes the consumer.

        Raises :class:`InvalidRequest` for a name that cannot be a file's, :class:`NotFound` for an unknown consumer or
        an expired snapshot.
        """
        consumers.reset_consumer(self._core.state(), consumer, next_snapshot)

    # --- rollback ----------------------------------------------------------------------------------------------------

    def rollback(
        self, snapshot: int | None = None, *, tag: str | None = None, timestamp: Time | None = None
    ) -> tuple[int, int]:
        """Make an earlier moment the latest again; returns the ids of the latest snapshot before and after.

        Raises :class:`NotFound` for one that is not there (any more), and :class:`InvalidRequest` if a tag holds a
        later snapshot.
        """
        if sum(x is not None for x in (snapshot, tag, timestamp)) != 1:
            raise InvalidRequest(f"table '{self._core.name}': roll back to one of snapshot, tag and timestamp")
        if snapshot is not None and not isinstance(snapshot, int):
            raise InvalidRequest(
                f"table '{self._core.name}': expected a snapshot id, not {snapshot!r}; for a tag use rollback(tag=…)"
            )
        with self._core.changing_history() as state:
            latest = latest_snapshot_id(state.table_files)
            if latest is None:
                raise NotFound(f"table '{self._core.name}' has no snapshot to go back from")
            wanted = When(snapshot, tag, timestamp).of(state, self._core.timezone).snapshot
            assert wanted is not None
            rollback(state, wanted)
            return latest, wanted.id


def _millis(retain: timedelta | None) -> int | None:
    if retain is not None and not isinstance(retain, timedelta):
        raise InvalidRequest(f"invalid retain {retain!r}; expected a timedelta, such as timedelta(days=7)")
    return None if retain is None else retain // timedelta(milliseconds=1)
