"""A table's past: moments of it to read, changes between them, tags, branches, and going back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bitlake import _clock
from bitlake.deletion import check_history
from bitlake.errors import BitlakeError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.expressions.tree import Predicate
from bitlake.io import Store
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.change_scan import ChangeScan
from bitlake.scan.incremental import (
    Between,
    FilesState,
    changed_files,
    check_range,
    differing_files,
    mode_of,
    new_files,
    of_files,
)
from bitlake.scan.scan import Scan
from bitlake.snapshot import branches, tags
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.rollback import rollback
from bitlake.snapshot.state import TableState, state_at
from bitlake.snapshot.tag_files import Tag, load_tag
from bitlake.snapshot.time_travel import Time, epoch_millis, first_snapshot_from, snapshot_at_time, state_of
from bitlake.snapshot.time_travel import When as When
from bitlake.snapshot.versions import existing_snapshots, has_schema, latest_snapshot_id, snapshot_ids, tag_names

Moment = int | str | Tag
"""An end of a range of changes: a snapshot's id, or a tag."""


class TableHistory:
    """The part of :class:`bitlake.table.table.Table` that knows more than one snapshot."""

    name: str
    store: Store
    _timezone: str

    def state(self) -> TableState:
        """The table now."""
        raise NotImplementedError

    @contextmanager
    def _changing_history(self) -> Iterator[TableState]:
        """The table now, for what changes its history; raises :class:`StorageUnavailable` if it is gone afterwards.

        A rename moves what was created, and takes away what the operation looks at next: it may then report a failure
        though it took place, or a success though its last step did not.
        """
        state = self.state()
        check_history(state.store, state.paths)
        try:
            yield state
        except BitlakeError as e:
            if not has_schema(state.table_files):
                raise self._gone_meanwhile() from e
            raise
        if not has_schema(state.table_files):
            raise self._gone_meanwhile()

    def _gone_meanwhile(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"table '{self.name}' was dropped or renamed meanwhile: whether the change of its history took place is "
            "unknown; if it was renamed, look at its tags, branches and snapshots under the new name"
        )

    def scan_of(self, state: TableState, where: str | Predicate | None = None) -> Scan:
        """A scan of all columns of a state."""
        raise NotImplementedError

    def at(self, when: When) -> TableState:
        """The table at a moment."""
        return when.of(self.state(), self._timezone)

    def query_scan(self, when: When) -> Scan:
        """A scan of the table at a moment, as its options ask of queries."""
        latest = self.state()
        return self.scan_of(when.of(latest, self._timezone)).for_query(when, latest.schema.options)

    # --- changes -----------------------------------------------------------------------------------------------------

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> Scan:
        """What was committed after ``start`` up to ``end`` (default: the latest snapshot).

        Both are snapshot ids, or tags.  ``mode`` is ``delta``, ``changelog``, ``diff`` or ``auto`` (see
        :mod:`bitlake.scan.incremental`).  With ``kinds`` rows begin with a column ``rowkind``, and those that were
        deleted or replaced are there too, else only rows that are there; ``packed``: as ``$binlog`` shows them.
        Raises :class:`NotFound` for snapshots and tags that are not there (any more).
        """
        state = self.state()
        return self.changes_between(state, self._between(state, start, end), mode, kinds=kinds, packed=packed)

    def changes_by_time(
        self, start: Time, end: Time | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> Scan:
        """As :meth:`changes`, of the snapshots committed after one time up to another."""
        state = self.state()
        ids = snapshot_ids(state.table_files)
        if not ids:
            return self._changed(state, of_files(state, (), merged=False), None, kinds, packed)
        first = snapshot_at_time(state, epoch_millis(start, self._timezone))
        last = None if end is None else snapshot_at_time(state, epoch_millis(end, self._timezone))
        if end is not None and last is None:
            last_id = ids[0] - 1  # all snapshots are younger: nothing had been committed yet
        else:
            last_id = ids[-1] if last is None else last.id
        between = Between(ids[0] - 1 if first is None else first.id, last_id)
        if between.end < between.start:
            raise InvalidRequest(f"table '{self.name}': changes run from an earlier time to a later one")
        return self.changes_between(state, between, mode, kinds=kinds, packed=packed)

    def changes_between(
        self, state: TableState, between: Between, mode: str, *, kinds: bool, packed: bool = False
    ) -> Scan:
        """The changes between two moments of a state's table."""
        how = mode_of(state, between, mode)
        if how != "diff":
            files = changed_files(state, between, how)
            below = of_files(state, files, merged=how == "delta")
            return self._changed(below, below, None, kinds, packed, plain=how == "delta")
        if between.tags is not None:
            old, new = (state_of(state, s) for s in between.tags)
            if new.snapshot_id is not None and old.snapshot_id is not None and new.snapshot_id < old.snapshot_id:
                raise InvalidRequest(f"table '{self.name}': changes run from an earlier tag to a later one")
        else:
            check_range(state, between)
            new = state_at(state, between.end)
            old = state_at(state, between.start) if between.start else replace(new, snapshot=None)
        if not new.schema.primary_keys:
            below = of_files(new, new_files(old.entries(), new.entries()), merged=True)
            return self._changed(below, below, None, kinds, packed, plain=True)
        before, after = differing_files(old.entries(), new.entries())
        # Rows of both are read with the columns of the later one.
        earlier = FilesState(old.name, old.paths, old.store, new.schema, old.snapshot, tuple(before))
        later = FilesState(new.name, new.paths, new.store, new.schema, new.snapshot, tuple(after))
        return self._changed(new, later, earlier, kinds, packed)

    def _changed(
        self,
        state: TableState,
        below: FilesState,
        before: FilesState | None,
        kinds: bool,
        packed: bool,
        *,
        plain: bool = False,
    ) -> Scan:
        base = self.scan_of(below)
        if plain and not kinds:
            return base  # merging leaves out what was deleted, and indexes may help
        return ChangeScan.of(base, None if before is None else self.scan_of(before), kinded=kinds, packed=packed)

    def _between(self, state: TableState, start: Moment, end: Moment | None) -> Between:
        names = set(tag_names(state.table_files))
        if isinstance(start, str) and isinstance(end, str) and start in names and end in names:
            old, new = load_tag(state, start).snapshot, load_tag(state, end).snapshot
            return Between(old.id, new.id, (old, new))
        last = state.snapshot_id or 0
        return Between(self._snapshot_id(state, start), last if end is None else self._snapshot_id(state, end))

    def _snapshot_id(self, state: TableState, moment: Moment) -> int:
        if isinstance(moment, Tag):
            return moment.snapshot.id
        if isinstance(moment, int):
            return moment
        text = moment.strip()
        if text.isdigit() and text.isascii():
            return int(text)
        return load_tag(state, text).snapshot.id

    # --- tags --------------------------------------------------------------------------------------------------------

    def tags(self) -> dict[str, Tag]:
        """All tags by name."""
        return {t.name: t for t in tags.list_tags(self.state())}

    def create_tag(
        self,
        name: str,
        snapshot: int | None = None,
        *,
        retained_ms: int | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Tag a snapshot (default: the latest), which keeps it readable; ``retained_ms``: for so long.

        Returns False if the tag was there and ``if_not_exists``.  Raises :class:`AlreadyExists`, and :class:`NotFound`
        for a snapshot that is not there (any more).
        """
        with self._changing_history() as state:
            return tags.create_tag(state, name, snapshot, retained_ms=retained_ms, if_not_exists=if_not_exists)

    def create_tag_from_timestamp(self, name: str, timestamp: Time, *, retained_ms: int | None = None) -> Snapshot:
        """Tag the first snapshot committed at or after a time; returns it.  Raises :class:`NotFound` if none was."""
        with self._changing_history() as state:
            found = first_snapshot_from(state, epoch_millis(timestamp, self._timezone))
            if found is None:
                raise NotFound(f"table '{self.name}' has no snapshot committed at {timestamp} or later")
            tags.create_tag(state, name, found.id, retained_ms=retained_ms)
            return found

    def replace_tag(self, name: str, snapshot: int | None = None, *, retained_ms: int | None = None) -> None:
        """Move a tag to another snapshot (default: the latest), or give it another retention."""
        with self._changing_history() as state:
            tags.replace_tag(state, name, snapshot, retained_ms=retained_ms)

    def rename_tag(self, name: str, new_name: str) -> None:
        """Give a tag another name."""
        with self._changing_history() as state:
            tags.rename_tag(state, name, new_name)

    def delete_tag(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a tag, and the files that only it kept; returns False if there was none and ``if_exists``."""
        with self._changing_history() as state:
            return tags.delete_tag(state, name, if_exists=if_exists)

    def expire_tags(self, older_than: Time | None = None, *, dry_run: bool = False) -> list[str]:
        """Delete the tags whose retention is over, or those made before a time; returns their names.

        ``dry_run`` only looks.
        """
        millis = None
        if older_than is not None:
            # Tags keep the local wall clock they were made at.
            millis = epoch_millis(older_than, self._timezone) + _clock.local_ms() - _clock.now_ms()
        with self._changing_history() as state:
            return tags.expire_tags(state, millis, dry_run=dry_run)

    # --- branches ----------------------------------------------------------------------------------------------------

    @property
    def branch(self) -> str:
        """The branch that this table was opened on: ``main``, or another's name."""
        return self.state().paths.branch or MAIN

    def branches(self) -> list[str]:
        """The names of all branches but main."""
        return branches.branches(self.state())

    def create_branch(self, name: str, tag: str | None = None, *, if_not_exists: bool = False) -> bool:
        """Make a branch: of a tag's snapshot, or without one an empty one with today's schema."""
        with self._changing_history() as state:
            return branches.create_branch(state, name, tag, if_not_exists=if_not_exists)

    def delete_branch(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a branch; returns False if there was none and ``if_exists``."""
        if if_exists and name not in self.branches():
            return False
        with self._changing_history() as state:
            branches.delete_branch(state, name)
        return True

    def rename_branch(self, name: str, new_name: str) -> None:
        """Give a branch another name."""
        with self._changing_history() as state:
            branches.rename_branch(state, name, new_name)

    def fast_forward(self, name: str) -> None:
        """Make main what a branch is."""
        with self._changing_history() as state:
            branches.fast_forward(state, name)

    # --- going back --------------------------------------------------------------------------------------------------

    def rollback(
        self, snapshot: int | None = None, *, tag: str | None = None, timestamp: Time | None = None
    ) -> tuple[int, int]:
        """Make an earlier moment the latest again; returns the ids of the latest snapshot before and after.

        Raises :class:`NotFound` for one that is not there (any more), and :class:`InvalidRequest` if a tag holds a
        later snapshot.
        """
        if sum(x is not None for x in (snapshot, tag, timestamp)) != 1:
            raise InvalidRequest(f"table '{self.name}': roll back to one of snapshot, tag and timestamp")
        with self._changing_history() as state:
            latest = latest_snapshot_id(state.table_files)
            if latest is None:
                raise NotFound(f"table '{self.name}' has no snapshot to go back from")
            wanted = When(snapshot, tag, timestamp).of(state, self._timezone).snapshot
            assert wanted is not None
            rollback(state, wanted)
            return latest, wanted.id

    def snapshots(self) -> list[Snapshot]:
        """The snapshots that are kept, the first one first."""
        state = self.state()
        return list(existing_snapshots(state.table_files, snapshot_ids(state.table_files)))
