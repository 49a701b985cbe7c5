"""Fast-forward: replace main's history by a branch's.

In the end main has the branch's snapshots, schemas and tags from the branch's first snapshot on, and its own before, as
after Paimon's ``fastForward``.  Paimon deletes main's and then copies the branch's; a crash between leaves neither.
Here the new rows become visible by one step, and only then is the history replaced:

1. ``snapshot/.fast-forward``, created only if absent, is the journal: the branch, its last snapshot, and what main
   loses.  The table is checked afterwards: it must be the one that was opened.  The journal is never written again: a
   drop of the table deletes it first, and no step creates it again.  How far the
   fast-forward is, after steps 3 and 4, is in ``snapshot/.fast-forward-progress``.  Paimon ignores both.  While
   the journal exists, the branch cannot be deleted or renamed, nor main rolled back.  Who deletes or renames a branch
   creates ``branch/.leaving-<millis>-<id>-<name>`` before looking for a journal, and a rollback creates its hold.
   Fast-forward looks for both after creating the journal: one of the two sees the other and is refused.  Left-over
   markers of killed processes are ignored after ten minutes.
   A hold, as a rollback makes it (:mod:`bitlake.snapshot.rollback`), keeps snapshots from expiring from step 4's f on.
2. Schemas that only the branch has are copied.  Where a server keeps the table's schemas, it creates the copies, and a
   fast-forward that would replace or delete schemas is refused.  A schema of main that has other columns than the
   branch's of the same id is deleted: its data files fail to be read, instead of being read wrongly, until step 4.
3. ``snapshot-<m+1>``, created only if absent, where m is main's last one: **the switch**.  It names the manifests of
   the branch's last snapshot, all of them as its delta, so that expiry and orphan removal see which files it needs,
   whatever snapshot is before it.  Writers based on m lose the race for the name, and go on from here.
4. What main loses between f, the branch's first snapshot, and m is recorded
   (:mod:`bitlake.snapshot.removal_markers`).  Then the
   branch's snapshots replace main's, and others are deleted; so are schemas and tags of main that the branch lacks.  If
   schemas were deleted, step 3 is repeated, for a writer may have looked at the schemas before.
5. The last snapshot gets the branch's number.  If that is lower, those of step 3 are deleted, and then recorded; if a
   commit followed them meanwhile, the last one is written again instead.  If it is higher, the ids up to it are created
   one by one, as in step 3, and then replaced: by the branch's own, and those that the branch lacks by **fillers** with
   the files of snapshot m, so that a writer that started from m finds no id free.  If another writer has committed on
   top, or an expiry takes the branch's number, this step is left out: the rows are right, and the ids have a gap.
6. The hints; then the manifest lists of step 3, unless a tag or a branch holds their snapshot; then the journal.

The journal is read again before and after each change of steps 2 to 6.  If it is gone, so is the table, and perhaps
another one has its name: what was written last is deleted, and nothing more is written.

A crash before step 3 leaves the old table, a crash after it the new one.  In both cases ``fast_forward`` of the same
branch resumes: commits that came after the switch stay.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from bitlake import _clock
from bitlake.errors import (
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io import Store
from bitlake.metadata.java_json import JSON_BYTES, load_object
from bitlake.metadata.options import Options
from bitlake.metadata.paths import check_file_names, parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import removal_markers, versions
from bitlake.snapshot.manifests import ManifestWriter, restore_snapshot, snapshot_manifests
from bitlake.snapshot.table_files import TableFiles, read_hint

_PROGRESS = ".fast-forward-progress"
FORWARDED_TO = "bitlake.forwarded-to"
"""The property of a switch: the branch whose last snapshot it is."""
_LEAVING = ".leaving-"
_TRIES = 1000
_BEGUN, _SWITCHED, _NUMBERED = "begun", "switched", "numbered"


def check_no_fast_forward(main: TableFiles, name: str, action: str) -> None:
    """Raise :class:`InvalidRequest` if a fast-forward of a table runs, or was interrupted."""
    journal = _read_journal(main)
    if journal is not None:
        raise InvalidRequest(
            f"table '{name}': {action} is refused while a fast-forward to branch '{journal.branch}' runs or is "
            f"interrupted; call fast_forward('{journal.branch}') to complete it"
        )


def unfinished_branch(main: TableFiles) -> str | None:
    """The branch of a fast-forward that runs, or was interrupted; None if there is none."""
    journal = _read_journal(main)
    return None if journal is None else journal.branch


@contextlib.contextmanager
def leaving(branch: TableFiles, name: str) -> Iterator[None]:
    """The block deletes or renames a branch: refused during a fast-forward to it, which cannot begin meanwhile.

    ``name``: the table's.  A marker that a killed process leaves is ignored after ten minutes.
    """
    marker = f"{branch.paths.root}/branch/{_LEAVING}{_clock.now_ms()}-{_clock.new_uuid()[:8]}-{branch.paths.branch}"
    branch.store.write(marker, b"")
    try:
        main = branch.on_branch(None)
        if unfinished_branch(main) == branch.paths.branch:
            check_no_fast_forward(main, name, f"deleting or renaming branch '{branch.paths.branch}'")
        yield
    finally:
        branch.store.delete(marker)


def _is_leaving(branch: TableFiles) -> bool:
    since = _clock.now_ms() - removal_markers.DEAD_MS
    for name in branch.store.names(f"{branch.paths.root}/branch"):
        millis, _, rest = name.removeprefix(_LEAVING).partition("-")
        if name.startswith(_LEAVING) and rest.partition("-")[2] == branch.paths.branch:
            created = parse_id(millis, "")
            if created is not None and created > since:
                return True
    return False


def is_switch(snapshot: Snapshot) -> bool:
    """Whether a fast-forward created a snapshot: it has the branch's files, whatever snapshot precedes it."""
    return FORWARDED_TO in snapshot.properties


@dataclass(frozen=True, slots=True)
class _Journal:
    """The work of a fast-forward, and its progress."""

    branch: str
    head: int
    """The branch's last snapshot."""
    uuid: str
    """The uuid of the snapshots that steps 3 and 5 create."""
    lists: tuple[str, int, str, int] = ("", 0, "", 0)
    """Their base and delta manifest lists: name and size."""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Main's schemas that the branch lacks, by number."""
    tags: tuple[str, ...] = ()
    """Main's tags of snapshots that are replaced."""
    stage: str = _BEGUN
    switch: int = 0
    """The id of the first snapshot of step 3."""

    def to_bytes(self) -> bytes:
        """The journal file's content."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    def progress(self) -> bytes:
        """The content of the file beside the journal."""
        return json.dumps({"uuid": self.uuid, "stage": self.stage, "switch": self.switch}).encode()

    def advanced(self, data: bytes, path: str) -> _Journal:
        """The journal with the progress of a file, unless that is another fast-forward's."""
        stored = load_object(data, path)
        if stored.text("uuid") != self.uuid:
            return self
        return replace(self, stage=_checked_stage(stored.text("stage"), path), switch=stored.int("switch"))

    @staticmethod
    def from_bytes(data: bytes, path: str) -> _Journal:
        """Parse a journal file; raises :class:`CorruptError`, also for names of files outside of their folders."""
        stored = load_object(data, path)
        lists = stored.list("lists")
        if [type(item) for item in lists] != [str, int, str, int]:
            raise CorruptError(f"'lists' must be two names, each with a size, not {lists!r}", None, path)
        journal = _Journal(
            branch=stored.text("branch"),
            head=stored.int("head"),
            uuid=stored.text("uuid"),
            lists=(lists[0], lists[1], lists[2], lists[3]),
            schemas=stored.mapping("schemas"),
            tags=stored.texts("tags"),
            stage=_checked_stage(stored.text("stage"), path),
            switch=stored.int("switch"),
        )
        try:
            check_file_names((lists[0], lists[2]), "manifest list")
            check_file_names((journal.branch, journal.uuid, *journal.tags), "branch, tag or hold")
        except CorruptError as e:
            raise CorruptError(str(e), None, path) from e
        if not all(parse_id(number, "") is not None for number in journal.schemas):
            raise CorruptError("'schemas' must be by number", None, path)
        return journal


def _read_journal(main: TableFiles) -> _Journal | None:
    path = f"{main.paths.snapshot_dir}/{versions.JOURNAL}"
    try:
        journal = _Journal.from_bytes(main.store.read(path, JSON_BYTES), path)
    except NotFound:
        return None
    path = f"{main.paths.snapshot_dir}/{_PROGRESS}"
    try:
        return journal.advanced(main.store.read(path, JSON_BYTES), path)
    except NotFound:
        return journal


def _checked_stage(stage: str, path: str) -> str:
    if stage not in (_BEGUN, _SWITCHED, _NUMBERED):
        raise CorruptError(f"unknown stage {stage!r} of a fast-forward", None, path)
    return stage


@dataclass(slots=True)
class FastForward:
    """One fast-forward of a table's main branch; mutable."""

    main: TableFiles
    branch: TableFiles
    name: str
    """The table's name, for messages."""
    schema: TableSchema
    record: removal_markers.RemovalRecord | None = field(default=None, init=False)

    @property
    def store(self) -> Store:
        """The store of the table."""
        return self.main.store

    @property
    def _path(self) -> str:
        return f"{self.main.paths.snapshot_dir}/{versions.JOURNAL}"

    def run(self) -> None:
        """Fast-forward, or complete an interrupted one; raises :class:`InvalidRequest` during another branch's."""
        journal = self._resumed() or self._begun()
        ids = versions.snapshot_ids(self.branch)
        if not ids:
            self._check_here(journal)
            raise NotFound(f"table '{self.name}': the snapshots of branch '{journal.branch}' are gone")
        first = versions.load_snapshot(self.branch, ids[0])
        hold = f"{self.main.paths.snapshot_dir}/{removal_markers.new_hold(first.id, journal.uuid)}"
        self.store.create(hold, first.to_json().encode())
        try:
            if removal_markers.load_line(self.main).records:
                self._record(journal, (), self._snapshots(self.branch, 0))
            if journal.stage == _BEGUN:
                self._copy_schemas(journal)
                journal = self._save(replace(journal, stage=_SWITCHED, switch=self._switch(journal)))
            if journal.stage == _SWITCHED:
                self._replace_history(journal)
                journal = self._save(replace(journal, stage=_NUMBERED))
            self._renumber(journal)
            self._finish(journal)
        finally:
            self.store.delete(hold)

    def _expiring(self) -> int:
        """Main's snapshots before this one may go: an expiry that began before the hold was made takes them."""
        return removal_markers.load_line(self.main).announced

    # --- the journal -------------------------------------------------------------------------------------------------

    def _resumed(self) -> _Journal | None:
        journal = _read_journal(self.main)
        if journal is None:
            return None
        if journal.branch != self.branch.paths.branch:
            if journal.branch in versions.branch_names(self.main):
                check_no_fast_forward(self.main, self.name, "another fast-forward")
            self._forget(journal)  # nothing is left to complete it with
            return None
        if journal.stage == _BEGUN:
            snapshot = self._made(journal)
            if snapshot:
                return self._save(replace(journal, stage=_SWITCHED, switch=snapshot[0]))
            # Nothing of it is visible, and the branch may have moved on.
            self._forget(journal)
            return None
        if journal.stage == _SWITCHED and journal.switch not in self._made(journal) and not self._expired(journal):
            self._forget(journal)  # rolled back since
            return None
        return journal

    def _begun(self) -> _Journal:
        journal = self._create_journal()
        if not versions.is_same_table(self.main, self.schema):
            self._forget(journal)
            raise StorageUnavailable(f"table '{self.name}' was dropped, renamed or replaced; nothing was changed")
        if not versions.snapshot_ids(self.branch) or _is_leaving(self.branch):
            self._forget(journal)
            raise CommitConflict(
                f"table '{self.name}': branch '{journal.branch}' is being deleted or renamed; nothing was changed; if "
                f"that process died, try again {removal_markers.DEAD_MS // 60_000} minutes later"
            )
        if self.store.keeps_schemas(self.main.paths.root) and (journal.schemas or self._has_other_schemas()):
            self._forget(journal)
            raise InvalidRequest(
                f"table '{self.name}': fast_forward to branch '{journal.branch}' would replace schemas of the main "
                "branch, which only the catalog's server changes; the columns or options of the main branch were "
                "changed after the branch was created. Nothing was changed; copy the rows instead (INSERT OVERWRITE "
                f"or INSERT INTO the table SELECT … FROM `{self.name}$branch_{journal.branch}`), or delete the branch"
            )
        if removal_markers.load_line(self.main).has_rollback:  # this fast-forward creates its own hold later
            self._forget(journal)
            raise CommitConflict(
                f"table '{self.name}': fast_forward is refused while a rollback runs; nothing was changed; try again, "
                f"or {removal_markers.ROLLBACK_MS // 60_000} minutes later if the rollback was killed"
            )
        return journal

    def _create_journal(self) -> _Journal:
        ids = versions.snapshot_ids(self.branch)
        if not ids:
            raise InvalidRequest(
                f"table '{self.name}': branch '{self.branch.paths.branch}' has no snapshot to go forward to"
            )
        head = versions.load_snapshot(self.branch, ids[-1])
        schemas = versions.schema_ids(self.branch)
        kept = set(versions.tag_names(self.branch))
        tags = {t: s.id for t, s in self._tagged(self.main).items() if t not in kept}
        writer = ManifestWriter(
            self.main,
            [f.type for f in self.schema.partition_fields],
            Options(self.schema.options),
        )
        base, base_size = writer.write_list([])
        delta, delta_size = writer.write_list(snapshot_manifests(self.branch, head))
        journal = _Journal(
            branch=self.branch.paths.branch or "",
            head=head.id,
            uuid=_clock.new_uuid(),
            lists=(base, base_size, delta, delta_size),
            schemas={
                str(i): self.store.read(self.main.paths.schema(i)).decode()
                for i in versions.schema_ids(self.main)
                if i not in schemas and i > min(schemas, default=0)
            },
            tags=tuple(t for t, held in tags.items() if held >= ids[0]),
        )
        try:
            created = self.store.create(self._path, journal.to_bytes())
        except UnsupportedFeature:  # a server keeps the history
            writer.discard()
            raise
        if not created:
            writer.discard()
            raise CommitConflict(f"table '{self.name}': another fast-forward began at the same moment; try again")
        return journal

    def _save(self, journal: _Journal) -> _Journal:
        self._write(journal, f"{self.main.paths.snapshot_dir}/{_PROGRESS}", journal.progress())
        return journal

    def _write(self, journal: _Journal, path: str, data: bytes) -> None:
        self._check_here(journal)
        self.store.write(path, data)
        self._take_back(journal, path, data)

    def _delete(self, journal: _Journal, path: str) -> None:
        self._check_here(journal)
        self.store.delete(path)

    def _take_back(self, journal: _Journal, path: str, data: bytes) -> None:
        """Delete what was just written if the table was dropped or renamed before: another one may have its place."""
        if self._is_here(journal):
            return
        with contextlib.suppress(NotFound):
            if self.store.read(path) == data:
                self.store.delete(path)
        self._check_here(journal)

    def _is_here(self, journal: _Journal) -> bool:
        journal_now = _read_journal(self.main)
        return journal_now is not None and journal_now.uuid == journal.uuid

    def _check_here(self, journal: _Journal) -> None:
        if not self._is_here(journal):
            raise StorageUnavailable(
                f"table '{self.name}' was dropped, renamed or replaced during its fast-forward to branch "
                f"'{journal.branch}'; if it was renamed, call fast_forward under its new name to complete it"
            )

    def _forget(self, journal: _Journal) -> None:
        """Delete the holds, the manifest lists if no snapshot or tag names them, and then the journal."""
        for name in self.store.names(self.main.paths.snapshot_dir):
            if name.startswith(removal_markers.HOLD) and name.endswith(journal.uuid):
                self.store.delete(f"{self.main.paths.snapshot_dir}/{name}")
        if not self._is_held(journal):
            for name in (journal.lists[0], journal.lists[2]):
                self.store.delete(self.main.paths.manifest(name))
        self.store.delete(self._path)
        self.store.delete(f"{self.main.paths.snapshot_dir}/{_PROGRESS}")

    def _tagged(self, table: TableFiles) -> dict[str, Snapshot]:
        """The snapshots of tags by name, without those that are deleted or renamed meanwhile."""
        tagged = {}
        for name in versions.tag_names(table):
            with contextlib.suppress(NotFound):
                tagged[name] = versions.tag_snapshot(table, name)
        return tagged

    def _is_held(self, journal: _Journal) -> bool:
        """Whether a snapshot or tag of main, or of a branch that was made of that tag, names the manifest lists.

        ``create_tag`` checks its snapshot again after writing the tag, and ``create_branch`` its tag after writing the
        branch.  So either this call sees the tag or branch, or they are refused.
        """
        if self._made(journal):
            return True
        for line in (self.main, *(self.main.on_branch(b) for b in versions.branch_names(self.main))):
            if any(s.uuid == journal.uuid for s in (*self._tagged(line).values(), *self._snapshots(line, 0))):
                return True
        return False

    def _expired(self, journal: _Journal) -> bool:
        """Whether main's snapshots up to the switch have expired, so that step 4 has nothing to replace."""
        return min(versions.snapshot_ids(self.main), default=0) > journal.switch

    # --- schemas -----------------------------------------------------------------------------------------------------

    def _copy_schemas(self, journal: _Journal) -> None:
        for number in versions.schema_ids(self.branch):
            data = self.store.read(self.branch.paths.schema(number))
            self._check_here(journal)
            if self.store.create(self.main.paths.schema(number), data):
                self._take_back(journal, self.main.paths.schema(number), data)
            elif self._differs(number):
                self._delete(journal, self.main.paths.schema(number))

    def _has_other_schemas(self) -> bool:
        """Whether main has a schema that differs from the branch's of the same number."""
        numbers = set(versions.schema_ids(self.main)) & set(versions.schema_ids(self.branch))
        pairs = ([versions.load_schema(line, n) for line in (self.main, self.branch)] for n in numbers)
        return any((a.fields, dict(a.options), a.comment) != (b.fields, dict(b.options), b.comment) for a, b in pairs)

    def _differs(self, number: int) -> bool:
        """Whether main's schema of a number has other columns, so that files cannot be read by the branch's."""
        try:
            own, new = (versions.load_schema(line, number) for line in (self.main, self.branch))
        except NotFound:
            return False
        return own.fields != new.fields

    # --- the switch --------------------------------------------------------------------------------------------------

    def _switch(self, journal: _Journal) -> int:
        """Make the branch's last snapshot main's next one; returns its id there."""
        for _ in range(_TRIES):
            base = versions.latest_snapshot(self.main)
            if base is not None and base.uuid == journal.uuid:
                return self._made(journal)[0]
            snapshot = self._head(journal, base)
            if self._create(journal, snapshot, base):
                return snapshot.id
        raise CommitConflict(f"table '{self.name}': other writers were first {_TRIES} times; try again")

    def _create(self, journal: _Journal, made: Snapshot, base: Snapshot | None) -> bool:
        self._check_here(journal)
        if not removal_markers.create_snapshot(self.main, made, base):
            return False
        if self._follows(journal, made, base):
            self.store.write(self.main.paths.latest_hint, str(made.id).encode())
            if self._is_here(journal):
                return True
        # Rolled back meanwhile, or the table was dropped.
        self.store.delete(self.main.paths.latest_hint)
        self.store.delete(self.main.paths.snapshot(made.id))
        return False

    def _follows(self, journal: _Journal, made: Snapshot, base: Snapshot | None) -> bool:
        try:
            return self._is_here(journal) and (base is None or versions.load_snapshot(self.main, base.id) == base)
        except NotFound:
            return versions.snapshot_ids(self.main)[:1] == [made.id]  # expired since

    def _head(self, journal: _Journal, base: Snapshot | None) -> Snapshot:
        """The branch's last snapshot as main's next one after ``base``."""
        head = versions.load_snapshot(self.branch, journal.head)
        list_, list_size, delta, delta_size = journal.lists
        snapshot = replace(
            head.with_lists((list_, list_size), (delta, delta_size)),
            id=1 if base is None else base.id + 1,
            uuid=journal.uuid,
            delta_record_count=head.total_record_count,
            properties={**head.properties, FORWARDED_TO: journal.branch},
            time_millis=_clock.now_ms(),
        )
        return removal_markers.on_base(snapshot, base)

    def _made(self, journal: _Journal) -> list[int]:
        """Main's snapshots that steps 3 and 5 created, ascending."""
        return [s.id for s in self._snapshots_made(journal)]

    def _snapshots_made(self, journal: _Journal) -> Iterator[Snapshot]:
        return (s for s in self._snapshots(self.main, journal.switch or 1) if s.uuid == journal.uuid)

    def _record(self, journal: _Journal, lost: Iterable[Snapshot], returned: Iterable[Snapshot] = ()) -> None:
        if self.record is None:
            self.record = removal_markers.RemovalRecord(self.main.paths, journal.uuid, partial(self._write, journal))
        self.record.add(lost, returned)

    def _snapshots(self, table: TableFiles, first: int, end: int | None = None) -> Iterator[Snapshot]:
        """The snapshots from one id to another, which is not included."""
        ids = versions.snapshot_ids(table)
        return versions.existing_snapshots(table, (i for i in ids if i >= first and (end is None or i < end)))

    # --- history -----------------------------------------------------------------------------------------------------

    def _replace_history(self, journal: _Journal) -> None:
        """Step 4: what is before the switch becomes the branch's."""
        store = self.store
        ids = [] if self._expired(journal) else [i for i in versions.snapshot_ids(self.branch) if i <= journal.head]
        if not self.store.keeps_schemas(self.main.paths.root):
            for number in versions.schema_ids(self.branch):
                self._replace_schema(journal, number)
        old = [
            s for s in self._snapshots(self.main, min(ids, default=journal.switch), journal.switch) if s.id not in ids
        ]
        kept = {(s.id, removal_markers.name_of(s)) for s in self._snapshots(self.branch, 0)}
        lost = self._snapshots(self.main, min(ids, default=journal.switch), journal.switch)
        self._record(journal, (s for s in lost if (s.id, removal_markers.name_of(s)) not in kept))
        end = self._expiring()
        for number in ids:
            if end <= number < journal.switch:
                self._write(journal, self.main.paths.snapshot(number), store.read(self.branch.paths.snapshot(number)))
        for snapshot in old:
            self._delete_unchanged(journal, snapshot)
        for tag in journal.tags:
            self._delete(journal, self.main.paths.tag(tag))
        for tag in versions.tag_names(self.branch):
            self._write(journal, self.main.paths.tag(tag), store.read(self.branch.paths.tag(tag)))
        self._drop_schemas(journal)

    def _replace_schema(self, journal: _Journal, number: int) -> None:
        path, data = self.main.paths.schema(number), self.store.read(self.branch.paths.schema(number))
        try:
            if self.store.read(path) == data:
                return
        except NotFound:
            pass
        self._write(journal, path, data)

    def _delete_unchanged(self, journal: _Journal, snapshot: Snapshot) -> None:
        with contextlib.suppress(NotFound):
            if versions.load_snapshot(self.main, snapshot.id) == snapshot:
                self._delete(journal, self.main.paths.snapshot(snapshot.id))

    def _drop_schemas(self, journal: _Journal) -> None:
        """Delete main's own schemas unless a commit after the switch, or an ALTER TABLE, needs them."""
        numbers, last = [int(i) for i in journal.schemas], versions.latest_snapshot(self.main)
        if not numbers or last is None or last.uuid != journal.uuid:
            return
        if max(versions.schema_ids(self.main)) > max(numbers):
            return
        for number in numbers:
            self._delete(journal, self.main.paths.schema(number))
        base = versions.latest_snapshot(self.main)
        if base is not None and base.uuid == journal.uuid and self._create(journal, self._head(journal, base), base):
            return
        for number in numbers:
            self._check_here(journal)
            data = journal.schemas[str(number)].encode()
            if self.store.create(self.main.paths.schema(number), data):
                self._take_back(journal, self.main.paths.schema(number), data)

    def _renumber(self, journal: _Journal) -> None:
        """Step 5: the last snapshot gets the number that it has in the branch."""
        head = versions.load_snapshot(self.branch, journal.head)
        base = versions.latest_snapshot(self.main)
        while base is not None and base.uuid == journal.uuid and base.id < head.id:
            if not self._create(journal, head if base.id + 1 == head.id else self._head(journal, base), base):
                break
            base = versions.latest_snapshot(self.main)
        snapshots = list(self._snapshots_made(journal))
        if base is not None and base.uuid == journal.uuid and base.id >= head.id and head.id >= self._expiring():
            # The rows are the same before and after each of these calls; without LATEST readers list the folder.
            self._write(journal, self.main.paths.snapshot(head.id), head.to_json().encode())
            self._delete(journal, self.main.paths.latest_hint)
            for number in reversed([s.id for s in snapshots if s.id > head.id]):
                self._delete(journal, self.main.paths.snapshot(number))
            later = [i for i in versions.snapshot_ids(self.main) if i > head.id]
            if later and later[0] == base.id + 1:  # a commit followed meanwhile: its base tells why there is a gap
                self._write(journal, self.main.paths.snapshot(base.id), base.to_json().encode())
            else:
                self._record(journal, snapshots)
        if head not in self._snapshots(self.main, head.id, head.id + 1):
            return  # another commit came on top of those that were created
        self._replace_made(journal, [s.id for s in snapshots if s.id < head.id])

    def _replace_made(self, journal: _Journal, numbers: list[int]) -> None:
        """Replace snapshots of step 5 by the branch's own, or by fillers."""
        ids = set(versions.snapshot_ids(self.branch))
        last = next(self._snapshots(self.main, journal.switch - 1, journal.switch), None)
        spare = [number for number in numbers if number not in ids]
        filler = None if last is None or not spare else self._make_filler(last)
        for number in numbers:
            path = self.main.paths.snapshot(number)
            if number in ids:
                self._write(journal, path, self.store.read(self.branch.paths.snapshot(number)))
            elif filler is not None:
                before = next(self._snapshots(self.main, number - 1, number), None)
                self._write(
                    journal, path, removal_markers.on_base(replace(filler, id=number), before).to_json().encode()
                )
            else:
                self._delete(journal, path)

    def _make_filler(self, last: Snapshot) -> Snapshot:
        """A snapshot with the files of main's last one before the switch."""
        uuid = _clock.new_uuid()
        return restore_snapshot(self.main, self.schema, last, last.id + 1, uuid, last.time_millis)

    def _finish(self, journal: _Journal) -> None:
        ids = versions.snapshot_ids(self.main)
        if not ids:
            self._check_here(journal)
            return
        first = read_hint(self.store, self.main.paths.earliest_hint)
        if first is None or first > ids[0]:
            self._write(journal, self.main.paths.earliest_hint, str(ids[0]).encode())
        self._write(journal, self.main.paths.latest_hint, str(ids[-1]).encode())
        self._forget(journal)
