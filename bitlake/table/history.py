"""``table.history``: snapshots, tags, branches and consumers of a table, and rollback."""

from __future__ import annotations

from datetime import timedelta

from bitlake.errors import InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree.deletion_vector_mode import check_rollback
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import branches, consumers, tags
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.rollback import rollback
from bitlake.snapshot.tags import Tag
from bitlake.snapshot.time_travel import Time, When, epoch_millis, first_snapshot_from
from bitlake.snapshot.versions import existing_snapshots, latest_snapshot_id, snapshot_ids


class TableHistory:
    """The namespace ``table.history``.

    >>> table.history.create_tag("before-load", retain=timedelta(days=7))
    True
    >>> table.append(rows)
    Snapshot(3: APPEND at 2026-01-04 12:00:00 UTC, 7 rows)
    >>> table.history.rollback(tag="before-load")
    (3, 2)
    """

    def __init__(self, core: FileStoreTable) -> None:
        self._core = core

    def snapshots(self) -> list[Snapshot]:
        """The snapshots that are kept, oldest first.

        >>> for snapshot in table.history.snapshots():
        ...     print(snapshot)
        Snapshot(1: APPEND at 2026-01-02 08:00:00 UTC, 4 rows)
        Snapshot(2: APPEND at 2026-01-03 08:00:00 UTC, 6 rows)
        """
        state = self._core.state()
        return list(existing_snapshots(state.table_files, snapshot_ids(state.table_files)))

    # --- tags --------------------------------------------------------------------------------------------------------

    def tags(self) -> dict[str, Tag]:
        """All tags by name.

        >>> table.history.create_tag("january", snapshot=1)
        True
        >>> table.history.tags()
        {'january': Tag(january: snapshot 1)}
        """
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

        >>> table.history.create_tag("january", retain=timedelta(days=365))
        True
        >>> table.history.create_tag("first", timestamp="2026-01-01")
        True
        >>> table.scan(tag="first").count()
        4
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
        """Move a tag to another snapshot (default: the latest), or change how long it is kept.

        >>> table.history.create_tag("checked", snapshot=1)
        True
        >>> table.history.replace_tag("checked", snapshot=2)
        >>> table.history.tags()
        {'checked': Tag(checked: snapshot 2)}
        """
        with self._core.changing_history() as state:
            tags.replace_tag(state, name, snapshot, retained_ms=_millis(retain))

    def rename_tag(self, name: str, new_name: str) -> None:
        """Rename a tag.

        >>> table.history.create_tag("checked")
        True
        >>> table.history.rename_tag("checked", "audited")
        >>> table.history.tags()
        {'audited': Tag(audited: snapshot 2)}
        """
        with self._core.changing_history() as state:
            tags.rename_tag(state, name, new_name)

    def delete_tag(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a tag, and the files that only it kept; returns False if there was none and ``if_exists``.

        >>> table.history.create_tag("checked")
        True
        >>> table.history.delete_tag("checked")
        True
        >>> table.history.delete_tag("checked", if_exists=True)
        False
        """
        with self._core.changing_history() as state:
            return tags.delete_tag(state, name, if_exists=if_exists)

    # --- branches ----------------------------------------------------------------------------------------------------

    @property
    def branch(self) -> str:
        """The branch that this table was opened on: ``main``, or another's name.

        >>> table.history.branch
        'main'
        """
        return self._core.state().paths.branch or MAIN

    def branches(self) -> list[str]:
        """The names of all branches but main.

        >>> table.history.create_branch("dev")
        True
        >>> table.history.branches()
        ['dev']
        """
        return branches.branches(self._core.state())

    def create_branch(self, name: str, tag: str | None = None, *, if_not_exists: bool = False) -> bool:
        """Create a branch of a tag's snapshot, or without a tag an empty one with the latest schema.

        >>> table.history.create_tag("january")
        True
        >>> table.history.create_branch("dev", tag="january")
        True
        >>> lake.table("orders$branch_dev").count()
        6
        """
        with self._core.changing_history() as state:
            return branches.create_branch(state, name, tag, if_not_exists=if_not_exists)

    def delete_branch(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a branch; returns False if there was none and ``if_exists``.

        >>> table.history.create_branch("dev")
        True
        >>> table.history.delete_branch("dev")
        True
        """
        if if_exists and name not in self.branches():
            return False
        with self._core.changing_history() as state:
            branches.delete_branch(state, name)
        return True

    def rename_branch(self, name: str, new_name: str) -> None:
        """Rename a branch.

        >>> table.history.create_branch("dev")
        True
        >>> table.history.rename_branch("dev", "trial")
        >>> table.history.branches()
        ['trial']
        """
        with self._core.changing_history() as state:
            branches.rename_branch(state, name, new_name)

    def fast_forward(self, name: str) -> None:
        """Replace main by a branch.

        >>> table.history.create_tag("january")
        True
        >>> table.history.create_branch("dev", tag="january")
        True
        >>> lake.table("orders$branch_dev").append(rows)
        Snapshot(3: APPEND at 2026-01-04 12:00:00 UTC, 7 rows)
        >>> table.history.fast_forward("dev")
        >>> table.count()
        7
        """
        with self._core.changing_history() as state:
            branches.fast_forward(state, name)

    # --- consumers ---------------------------------------------------------------------------------------------------

    def consumers(self) -> dict[str, int]:
        """The id of the next snapshot that each consumer reads, by the consumer's name.

        >>> table.history.reset_consumer("billing", 2)
        >>> table.history.consumers()
        {'billing': 2}
        """
        state = self._core.state()
        return consumers.consumers(state.table_files)

    def reset_consumer(self, consumer: str, next_snapshot: int | None = None) -> None:
        """Set the next snapshot that a consumer reads; None deletes the consumer.

        Raises :class:`InvalidRequest` for a name that cannot be a file's, :class:`NotFound` for an unknown consumer or
        an expired snapshot.

        >>> table.history.reset_consumer("billing", 2)
        >>> table.history.reset_consumer("billing")
        >>> table.history.consumers()
        {}
        """
        consumers.reset_consumer(self._core.state(), consumer, next_snapshot)

    # --- rollback ----------------------------------------------------------------------------------------------------

    def rollback(
        self, snapshot: int | None = None, *, tag: str | None = None, timestamp: Time | None = None
    ) -> tuple[int, int]:
        """Go back to an earlier snapshot; returns the ids of the latest snapshot before and after.

        Raises :class:`NotFound` for a snapshot or tag that does not exist (any more), and :class:`InvalidRequest` if a
        tag holds a later snapshot, or if deletion vectors were switched on or off after the snapshot.

        >>> table.history.rollback(1)
        (2, 1)
        >>> table.count()
        4
        """
        if sum(x is not None for x in (snapshot, tag, timestamp)) != 1:
            raise InvalidRequest(f"table '{self._core.name}': roll back to one of snapshot, tag and timestamp")
        if snapshot is not None and not hasattr(snapshot, "__index__"):
            raise InvalidRequest(
                f"table '{self._core.name}': expected a snapshot id, not {snapshot!r}; for a tag use rollback(tag=…)"
            )
        with self._core.changing_history() as state:
            latest = latest_snapshot_id(state.table_files)
            if latest is None:
                raise NotFound(f"table '{self._core.name}' has no snapshot to go back from")
            wanted = When(snapshot, tag, timestamp).of(state, self._core.timezone).snapshot
            assert wanted is not None
            check_rollback(state, wanted)
            rollback(state, wanted)
            return latest, wanted.id


def _millis(retain: timedelta | None) -> int | None:
    if retain is not None and not isinstance(retain, timedelta):
        raise InvalidRequest(f"invalid retain {retain!r}; expected a timedelta, such as timedelta(days=7)")
    return None if retain is None else retain // timedelta(milliseconds=1)
