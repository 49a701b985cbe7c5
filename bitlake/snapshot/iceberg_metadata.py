"""Iceberg metadata of a table's snapshots: written after each commit, for tables whose options ask for it.

A publication shows one Paimon snapshot as the current Iceberg snapshot.  Order of writes, and what a death *after* each
step leaves:

1. new manifests, then a manifest list: nothing refers to them yet, and orphan removal finds them;
2. ``v<id>.metadata.json``, created only if absent;
3. ``version-hint.text``, only if the snapshot is still the table's latest: **the publication**.  Before it, Iceberg
   readers see the table as it was, since the earlier metadata and its files exist until step 4;
4. deleted: earlier metadata as the options say, and manifest lists and manifests of snapshots that Iceberg readers no
   longer see.

The Paimon commit has taken place before step 1, and is the truth: a failure here is logged, not raised.  The next
commit finds no metadata of the snapshot before it, and writes all of it from the manifests of Paimon.

Steady commits are incremental: manifests of the base, which is the metadata of the snapshot before, are carried over,
and only those that list a removed file are written again: the blocks that list it are encoded again, others copied.
The base is not used, and everything is written from the Paimon snapshot, if it is missing or damaged, shows another
commit of the same id (a rollback), has another format version, another location (a rename) or another history of
schemas, or if an option changed which files readers may see.

Which files: of an append table all.  Of a primary-key table those whose rows need no merging: those of the highest
level, or, where deletion vectors are exported, those above level 0.

A rollback leaves metadata of later versions behind.  The next publication deletes it once its own metadata is written,
and never hands out again the table's uuid, column ids and row ids to another table.

Sources: Paimon's ``IcebergCommitCallback``.  Differences: deleted entries have a manifest of their own, and merges
leave manifests of the same commit alone, so that blocks can be copied; a rebuild here shows the same files as
incremental commits (Paimon adds lone files below the highest level); counts of the summary are of the files that
Iceberg readers see; a rollback is published at once; at the first snapshot only files with names of Iceberg metadata
are deleted from its folder.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bitlake import _clock
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.iceberg.manifest import ManifestContent, ManifestFile, with_first_row_ids
from bitlake.iceberg.schema import (
    FIRST_PARTITION_FIELD_ID,
    check_publishable,
    exports_vectors,
    highest_field_id,
    iceberg_schema,
    partition_spec,
)
from bitlake.iceberg.table_metadata import (
    IDENTITY,
    VERSION_HINT,
    IcebergSnapshot,
    TableMetadata,
    commit_identity,
    is_iceberg_file,
    java_uri,
    metadata_name,
)
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.iceberg_manifests import (
    Counted,
    Counts,
    IcebergFolder,
    IcebergManifests,
    asks_for_metadata,
    file_name,
    is_published,
    least_level,
    tag_refs,
)
from bitlake.snapshot.manifests import live_files
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import find_snapshot, latest_snapshot, latest_snapshot_id, load_schema, schema_ids

log = logging.getLogger("bitlake")

SHOWN = "bitlake-shown-files"
"""The member of a snapshot's summary that says which files it lists.  Paimon does not copy it into later snapshots: a
rebuild by Paimon may have listed files of lower levels, so a file that is removed is then looked for whatever its
level.
"""


def publish_commit(state: TableState, changes: Sequence[ManifestEntry] | None) -> None:
    """After a commit of the snapshot of ``state``: publish it, if the table's options ask for it.

    ``changes``: the entries that the commit added; None reads them.  The commit has taken place, so a failure is
    logged.
    """
    if not asks_for_metadata(state) or state.snapshot is None:
        return
    try:
        _publish(state, changes)
    except BitlakeError as e:
        log.warning(
            "%s: snapshot %s is committed, but writing its Iceberg metadata failed: %s; Iceberg readers see the table "
            "as it was, and the next commit publishes it (or CALL sys.create_iceberg_metadata)",
            state.name,
            state.snapshot.id,
            e,
        )


def publish_history(state: TableState) -> None:
    """After a rollback or a fast-forward: publish what is now the latest snapshot; a failure is logged."""
    latest = latest_snapshot(state.table_files) if asks_for_metadata(state) else None
    if latest is not None:
        publish_commit(replace(state, snapshot=latest), None)


def create_iceberg_metadata(state: TableState) -> str:
    """Publish the snapshot of ``state`` unless it is published; returns the path of the table metadata file.

    Raises :class:`InvalidRequest` for a table without snapshots, or whose options do not ask for Iceberg metadata.
    """
    if not is_published(state.schema):
        raise InvalidRequest(
            f"table '{state.name}' writes no Iceberg metadata; set the option '{opt.ICEBERG_STORAGE.name}' = "
            f"'{opt.TABLE_LOCATION}' or '{opt.HADOOP_CATALOG}' first"
        )
    if state.paths.branch is not None:
        raise InvalidRequest(f"table '{state.name}': Iceberg metadata shows the main branch only")
    if state.snapshot is None:
        raise InvalidRequest(f"table '{state.name}' has no snapshot yet, so there is nothing to publish")
    _publish(state, None)
    return IcebergFolder.of(state.table_files, state.schema).path(metadata_name(state.snapshot.id))


def _publish(state: TableState, changes: Sequence[ManifestEntry] | None) -> None:
    assert state.snapshot is not None
    if state.paths.branch is not None:
        return  # branches share the table's folder, and main is what Iceberg readers see
    schema, snapshot = state.schema, state.snapshot
    if schema.id != snapshot.schema_id:
        schema = load_schema(state.table_files, snapshot.schema_id).with_options(schema.options)
    try:
        check_publishable(schema.fields, schema.opts, bool(schema.primary_keys))
    except InvalidRequest as e:
        raise InvalidRequest(f"table '{state.name}': {e}") from e
    publication = _Publication(state.table_files, schema, snapshot)
    try:
        publication.run(changes)
    except BaseException:
        publication.files.discard()
        raise


# --- one publication -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Used:
    """Numbers that abandoned metadata has used, and that must not be used again; mutable."""

    uuid: str | None = None
    last_column_id: int = 0
    next_row_id: int = 0

    def raise_to(self, metadata: TableMetadata | None) -> None:
        """Take over what other metadata has handed out."""
        if metadata is not None:
            self.uuid = self.uuid or metadata.table_uuid
            self.last_column_id = max(self.last_column_id, metadata.last_column_id)
            self.next_row_id = max(self.next_row_id, metadata.next_row_id or 0)


class _NoBase(Exception):
    """The base cannot be extended."""


@dataclass
class _Publication:
    """One publication."""

    table: TableFiles
    schema: TableSchema
    snapshot: Snapshot

    def __post_init__(self) -> None:
        self.options = self.schema.opts
        self.version = self.options.of(opt.ICEBERG_VERSION)
        self.folder = IcebergFolder.of(self.table, self.schema)
        self.files = IcebergManifests(self.table, self.schema, self.snapshot, self.folder)

    def run(self, changes: Sequence[ManifestEntry] | None) -> None:
        """Publish the snapshot, unless it is published or no longer part of the table."""
        snapshot, folder = self.snapshot, self.folder
        if not self._is_there():
            return  # rolled back meanwhile
        used, newest = _Used(), 0
        hint = folder.hint()
        if hint != snapshot.id - 1:
            existing = folder.load(snapshot.id)
            if existing is not None and existing.current.shows(snapshot) and self._extends(existing):
                self._move_hint(hint)
                return
            if existing is not None and not self._is_latest():
                return
            if snapshot.id == 1 and self._is_latest():
                # Another table of this name was here; its metadata outlives it in a catalog's folder.
                folder.delete(name for name in folder.store.names(folder.root) if is_iceberg_file(name))
                existing = None
            newest = max(folder.versions(), default=0)
            used.raise_to(existing)
            if newest:
                used.raise_to(folder.load(newest))
        base = folder.load(snapshot.id - 1)
        try:
            metadata, expired = self._extend(base, changes, used)
        except _NoBase:
            used.raise_to(base)
            metadata, expired = self._rebuild(used), None
        if self._write(metadata):
            self._clean(expired, base)
            if newest > snapshot.id:
                self._retire()

    def _is_there(self) -> bool:
        snapshot = find_snapshot(self.table, self.snapshot.id)
        return snapshot is not None and commit_identity(snapshot) == commit_identity(self.snapshot)

    def _is_latest(self) -> bool:
        return latest_snapshot_id(self.table) == self.snapshot.id

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, metadata: TableMetadata) -> bool:
        """Create the metadata file and move the hint; returns whether the hint names this snapshot now."""
        path, data = self.folder.path(metadata_name(self.snapshot.id)), metadata.to_json().encode()
        written, self.files.written = self.files.written, []  # from here on metadata may name the files
        if not self.folder.store.create(path, data):
            other = self.folder.load(self.snapshot.id)
            if other is not None and other.current.shows(self.snapshot) and self._extends(other):
                self.files.written = written  # another process has published it
                self.files.discard()
                return False
            self.folder.store.write(path, data)
        if not self._is_latest():
            return False
        self._write_hint()
        return True

    def _write_hint(self) -> None:
        self.folder.store.write(self.folder.path(VERSION_HINT), str(self.snapshot.id).encode())

    def _move_hint(self, hint: int | None) -> None:
        """Repair what a death after the metadata file left undone."""
        if self._is_latest():
            if hint != self.snapshot.id:
                self._write_hint()
            self._delete_versions()
            self._retire()

    def _clean(self, expired: Sequence[IcebergSnapshot] | None, base: TableMetadata | None) -> None:
        """Delete what no reader needs; after a rebuild (``expired`` is None) all that earlier metadata names."""
        try:
            if expired is None:
                self._delete_before()
            else:
                self._delete_snapshots(expired)
            self._delete_versions()
        except BitlakeError as e:
            log.warning("%s: old Iceberg metadata was not deleted: %s", self.table.paths.root, e)

    def _delete_versions(self) -> None:
        if self.options.of(opt.ICEBERG_DELETE_OLD):
            first = self.snapshot.id - self.options.of(opt.ICEBERG_PREVIOUS_MAX)
            self.folder.delete(metadata_name(v) for v in self.folder.versions() if v < first)

    def _delete_snapshots(self, expired: Sequence[IcebergSnapshot]) -> None:
        """Delete the manifest lists of all snapshots but the last, and the manifests that the following lacks."""
        for snapshot, following in itertools.pairwise(expired):
            self.folder.delete(self.folder.names_of(snapshot) - self.folder.names_of(following))

    def _delete_before(self) -> None:
        deleted: set[str] = set()
        for version in self.folder.versions():
            metadata = self.folder.load(version) if version < self.snapshot.id else None
            for snapshot in metadata.snapshots if metadata is not None else ():
                if file_name(snapshot.manifest_list) not in deleted:
                    with contextlib.suppress(CorruptError):
                        deleted |= self.folder.names_of(snapshot)
        self.folder.delete(deleted)

    def _retire(self) -> None:
        """Delete the versions after the table's latest snapshot: a rollback has abandoned them."""
        latest = latest_snapshot_id(self.table)
        if latest is not None:
            self.folder.delete(metadata_name(v) for v in self.folder.versions() if v > latest)

    # --- all of it ---------------------------------------------------------------------------------------------------

    def _rebuild(self, used: _Used) -> TableMetadata:
        snapshot = self.snapshot
        counted = Counted()
        entries = [self.files.entry(e) for e in live_files(self.table, snapshot) if self.files.is_shown(e)]
        for entry in entries:
            counted.add(counted.added, entry)
        files = [*self.files.put_manifests(entries), *self.files.vector_manifests()]
        current = self._iceberg_snapshot(counted, files, counted.added, used.next_row_id, None)
        known = sorted(i for i in schema_ids(self.table) if i <= self.schema.id)
        schemas = tuple(
            self.files.iceberg_schema if i == self.schema.id else iceberg_schema(load_schema(self.table, i))
            for i in known
        )
        spec = partition_spec(self.schema)
        return TableMetadata(
            format_version=self.version,
            table_uuid=used.uuid or _clock.new_uuid(),
            location=java_uri(self.table.paths.root),
            last_updated_ms=_clock.now_ms(),
            last_column_id=max(used.last_column_id, *map(highest_field_id, schemas)),
            schemas=schemas,
            current_schema_id=self.schema.id,
            partition_specs=(spec,),
            last_partition_id=max((f["field-id"] for f in spec["fields"]), default=FIRST_PARTITION_FIELD_ID - 1),
            snapshots=(current,),
            current_snapshot_id=snapshot.id,
            last_sequence_number=snapshot.id,
            next_row_id=None if current.row_ids is None else sum(current.row_ids),
            refs=tag_refs(self.table, [current]),
        )

    def _iceberg_snapshot(
        self,
        counted: Counted,
        files: Sequence[ManifestFile],
        total: Counts,
        first_row_id: int,
        parent: int | None,
    ) -> IcebergSnapshot:
        """Write the manifest list and describe the snapshot."""
        taken: int | None = None
        if self.version >= 3:
            files, taken = with_first_row_ids(files, first_row_id)
        deletes = [m for m in files if m.content is ManifestContent.DELETES]
        numbers = {
            "added-data-files": counted.added.files,
            "added-records": counted.added.rows,
            "added-files-size": counted.added.size,
            "deleted-data-files": counted.removed.files,
            "deleted-records": counted.removed.rows,
            "removed-files-size": counted.removed.size,
            "changed-partition-count": counted.partitions,
            "total-records": total.rows,
            "total-data-files": total.files,
            "total-files-size": total.size,
            "total-delete-files": sum(m.live_files for m in deletes),
            "total-position-deletes": sum(m.live_rows for m in deletes),
            "total-equality-deletes": 0,
        }
        summary = {
            "operation": counted.operation,
            **{name: str(number) for name, number in numbers.items()},
            **self.snapshot.properties,
            IDENTITY: commit_identity(self.snapshot),
            SHOWN: self.files.shown,
        }
        row_ids = None if taken is None else (first_row_id, taken)
        return IcebergSnapshot.of(self.snapshot, summary, self.files.put_list(files), self.schema.id, row_ids, parent)

    # --- what a commit changed ---------------------------------------------------------------------------------------

    def _extends(self, metadata: TableMetadata) -> bool:
        """Whether metadata is of this table's folder and format, and knows the current schema as it is now."""
        current = next((s for s in metadata.schemas if s["schema-id"] == self.schema.id), None)
        return (
            metadata.format_version == self.version
            and metadata.location == java_uri(self.table.paths.root)
            and metadata.current_schema_id <= self.schema.id
            and current in (None, self.files.iceberg_schema)
            and (self.version < 3 or metadata.next_row_id is not None)
        )

    def _extend(
        self, base: TableMetadata | None, changes: Sequence[ManifestEntry] | None, used: _Used
    ) -> tuple[TableMetadata, Sequence[IcebergSnapshot]]:
        """The metadata of the base and of this commit, and the snapshots that expire, with the first that stays.

        Raises :class:`_NoBase`.
        """
        previous = self._previous()
        if base is None or not self._extends(base) or (previous is not None and not base.current.shows(previous)):
            raise _NoBase
        shown = base.current.summary.get(SHOWN)
        if shown is None:
            self._check_same_files(previous, base)
        elif shown != self.files.shown:
            raise _NoBase
        try:
            old = self.folder.manifests(base.current)
            files, counted = self.files.changed_manifests(old, self.files.changes_of(changes, shown is None), previous)
        except (NotFound, CorruptError) as e:
            self.files.discard()
            raise _NoBase from e
        used.raise_to(base)
        total = self.files.total(base, old, counted)
        current = self._iceberg_snapshot(counted, files, total, used.next_row_id, base.current_snapshot_id)
        kept, expired = self._expire([*base.snapshots, current])
        known = {s["schema-id"] for s in base.schemas}
        new = [i for i in range(base.current_schema_id + 1, self.schema.id + 1) if i not in known]
        schemas = (*base.schemas, *(iceberg_schema(s) for s in self._load_schemas(new)))
        metadata = replace(
            base,
            last_updated_ms=_clock.now_ms(),
            last_column_id=max(used.last_column_id, highest_field_id(self.files.iceberg_schema)),
            schemas=schemas,
            current_schema_id=self.schema.id,
            snapshots=tuple(kept),
            current_snapshot_id=self.snapshot.id,
            last_sequence_number=self.snapshot.id,
            next_row_id=None if current.row_ids is None else sum(current.row_ids),
            refs=tag_refs(self.table, kept, base),
        )
        return metadata, expired

    def _previous(self) -> Snapshot | None:
        """The Paimon snapshot before this one; None if it has expired."""
        return find_snapshot(self.table, self.snapshot.id - 1)

    def _check_same_files(self, previous: Snapshot | None, base: TableMetadata) -> None:
        """Raise :class:`_NoBase` if an option changed which files Iceberg readers see."""
        before = base.current_schema_id if previous is None else previous.schema_id
        try:
            earlier = load_schema(self.table, before)
        except NotFound as e:
            raise _NoBase from e
        if least_level(earlier) != self.files.least_level or exports_vectors(earlier.opts) != self.files.shows_vectors:
            raise _NoBase

    def _load_schemas(self, ids: Iterable[int]) -> list[TableSchema]:
        out = []
        for number in ids:
            with contextlib.suppress(NotFound):
                out.append(self.schema if number == self.schema.id else load_schema(self.table, number))
        return out

    def _expire(
        self, snapshots: Sequence[IcebergSnapshot]
    ) -> tuple[Sequence[IcebergSnapshot], Sequence[IcebergSnapshot]]:
        """The snapshots that stay, and those that expire with the first that stays; none if none expires."""
        first = next(i for i, s in enumerate(snapshots) if s is snapshots[-1] or not self._is_old(s))
        return snapshots[first:], snapshots[: first + 1] if first else ()

    def _is_old(self, snapshot: IcebergSnapshot) -> bool:
        options, latest = self.options, self.snapshot.id
        if snapshot.snapshot_id > latest - options.of(opt.SNAPSHOT_RETAINED_MIN):
            return False
        if snapshot.snapshot_id <= latest - options.of(opt.SNAPSHOT_RETAINED_MAX):
            return True
        return snapshot.timestamp_ms < _clock.now_ms() - options.of(opt.SNAPSHOT_TIME_RETAINED)
