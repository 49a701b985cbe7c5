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
and only those that list a removed file are written again.  The base is not used, and everything is written from the
Paimon snapshot, if it is missing or damaged, shows another commit of the same id (a rollback), has another format
version, another location (a rename) or another history of schemas, or if an option changed which files readers may
see.

Which files: of an append table all.  Of a primary-key table those whose rows need no merging: those of the highest
level, or, where deletion vectors are exported, those above level 0.

A rollback leaves metadata of later versions behind.  The next publication deletes it once its own metadata is written,
and never hands out again the table's uuid, column ids and row ids to another table.

Sources: Paimon's ``IcebergCommitCallback``.  Differences: a rebuild here shows the same files as incremental commits
(Paimon adds lone files below the highest level); counts of the summary are of the files that Iceberg readers see; a
rollback is published at once; at the first snapshot only files with names of Iceberg metadata are deleted from its
folder.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bitlake import _clock
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.iceberg import manifest as manifests
from bitlake.iceberg.manifest import PUFFIN, Entry, FileContent, ManifestCodec, ManifestContent
from bitlake.iceberg.manifest_list import ManifestFile, decode_manifest_list, encode_manifest_list, with_first_row_ids
from bitlake.iceberg.paths import (
    VERSION_HINT,
    AvroNames,
    is_avro_file,
    is_iceberg_file,
    metadata_dir,
    metadata_name,
    parse_version,
)
from bitlake.iceberg.schema import (
    FIRST_PARTITION_FIELD_ID,
    check_publishable,
    exports_vectors,
    highest_field_id,
    iceberg_schema,
    partition_spec,
)
from bitlake.iceberg.table_metadata import IDENTITY, IcebergSnapshot, TableMetadata, commit_identity
from bitlake.iceberg.values import file_bounds, iceberg_value, partition_fields
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.index_manifest import index_entries, index_path
from bitlake.snapshot.manifests import live_files, read_manifest_list, read_manifests
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, discard_files, first_link
from bitlake.snapshot.versions import (
    latest_snapshot,
    latest_snapshot_id,
    load_schema,
    load_snapshot,
    read_hint,
    schema_ids,
    tag_snapshot,
)

log = logging.getLogger("bitlake")

SHOWN = "bitlake-shown-files"
"""The member of a snapshot's summary that says which files it lists.  Paimon does not copy it into later snapshots: a
rebuild by Paimon may have listed files of lower levels, so a file that is removed is then looked for whatever its
level.
"""
_LATE_TAG_MS = 3_600_000
"""Tags changed at most this long before the base was written are read again: clocks of machines differ."""


def is_published(schema: TableSchema) -> bool:
    """Whether commits write Iceberg metadata; raises :class:`InvalidRequest` for an unknown storage."""
    return schema.opts.of(opt.ICEBERG_STORAGE) != opt.DISABLED


def _asks(state: TableState) -> bool:
    """:func:`is_published`, also for a storage that bitlake does not know."""
    return state.schema.options.get(opt.ICEBERG_STORAGE.name, opt.DISABLED) != opt.DISABLED


def publish_commit(state: TableState, changes: Sequence[ManifestEntry] | None) -> None:
    """After a commit of the snapshot of ``state``: publish it, if the table's options ask for it.

    ``changes``: the entries that the commit added; None reads them.  The commit has taken place, so a failure is
    logged.
    """
    if not _asks(state) or state.snapshot is None:
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
    latest = latest_snapshot(state.table_files) if _asks(state) else None
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
    return _Folder.of(state.table_files, state.schema).path(metadata_name(state.snapshot.id))


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
        publication.discard()
        raise


# --- tags -------------------------------------------------------------------------------------------------------------


def sync_refs(state: TableState) -> None:
    """After a change of tags: make them the refs of the current metadata, without a new version, as Paimon does.

    Only tags of snapshots that the metadata lists are refs.  The tag has changed, so a failure is logged.
    """
    if not _asks(state) or state.paths.branch is not None:
        return
    try:
        folder = _Folder.of(state.table_files, state.schema)
        latest = latest_snapshot_id(state.table_files)
        metadata = None if latest is None else folder.load(latest)
        if latest is None or metadata is None:
            return  # the next publication names the tags
        refs = _refs(state.table_files, metadata.snapshots)
        if refs != metadata.refs:
            folder.store.write(folder.path(metadata_name(latest)), replace(metadata, refs=refs).to_json().encode())
    except BitlakeError as e:
        log.warning("%s: the tag has changed, but its Iceberg ref has not: %s", state.name, e)


def _refs(
    table: TableFiles, snapshots: Iterable[IcebergSnapshot], base: TableMetadata | None = None
) -> Mapping[str, int]:
    """The snapshots of tags that the metadata lists; tags that are older than a base are not read again."""
    ids = {s.snapshot_id for s in snapshots}
    refs = {}
    for file in table.store.list(table.paths.tag_dir):
        name = file.name.removeprefix("tag-")
        if name == file.name:
            continue
        number = None
        if base is not None and file.mtime_ms < base.last_updated_ms - _LATE_TAG_MS:
            number = base.refs.get(name)
        else:
            with contextlib.suppress(NotFound):
                number = tag_snapshot(table, name).id
        if number in ids:
            refs[name] = number
    return refs


# --- expiry and orphan files ------------------------------------------------------------------------------------------


def forget_expired(table: TableFiles, schema: TableSchema, first_kept: int) -> None:
    """After an expiry of the snapshots before ``first_kept``: take them out of the current metadata, as far as no ref
    names them.

    Their data files may be gone.  They have expired already, so a failure is logged.
    """
    if schema.options.get(opt.ICEBERG_STORAGE.name, opt.DISABLED) == opt.DISABLED or table.paths.branch is not None:
        return
    try:
        folder = _Folder.of(table, schema)
        latest = latest_snapshot_id(table)
        metadata = None if latest is None else folder.load(latest)
        if latest is None or metadata is None:
            return
        tagged = set(metadata.refs.values())
        kept = tuple(s for s in metadata.snapshots if s.snapshot_id >= first_kept or s.snapshot_id in tagged)
        if len(kept) == len(metadata.snapshots):
            return
        folder.store.write(folder.path(metadata_name(latest)), replace(metadata, snapshots=kept).to_json().encode())
        named = {name for s in kept for name in folder.names_of(s)}
        gone = [s for s in metadata.snapshots if s not in kept]
        folder.delete({name for s in gone for name in folder.names_of(s)} - named)
    except BitlakeError as e:
        log.warning("%s: expired snapshots are still in the Iceberg metadata: %s", table.paths.root, e)


def iceberg_folder(state: TableState) -> str | None:
    """The folder of the table's Iceberg metadata; None if its options ask for none."""
    try:
        return metadata_dir(state.paths.root, state.schema.opts) if is_published(state.schema) else None
    except InvalidRequest:
        return None  # of a storage that bitlake does not know, it writes none


def iceberg_orphans(state: TableState, older_than_ms: int) -> list[tuple[str, int]]:
    """The manifests and manifest lists that no table metadata names, last modified before a time: paths and sizes.

    Raises :class:`CorruptError` if metadata cannot be read: what it names is unknown.
    """
    root = iceberg_folder(state)
    if root is None or first_link(state.store, state.paths.root, root) is not None:
        return []
    folder = _Folder(state.table_files, root)
    files = [
        f
        for f in state.store.list(root)
        if not f.is_dir and not f.is_link and f.mtime_ms < older_than_ms and is_avro_file(f.name)
    ]
    if not files:
        return []
    named: set[str] = set()
    # Listed after the files, so that what is published meanwhile is not taken for orphans.
    for version in folder.versions():
        path = folder.path(metadata_name(version))
        with contextlib.suppress(NotFound):  # replaced by a later version meanwhile
            for snapshot in TableMetadata.from_json(state.store.read(path), path).snapshots:
                named |= folder.names_of(snapshot)
    return [(folder.path(f.name), f.size) for f in files if f.name not in named]


# --- the folder of metadata -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder of a table's Iceberg metadata."""

    table: TableFiles
    root: str

    @staticmethod
    def of(table: TableFiles, schema: TableSchema) -> _Folder:
        return _Folder(table, metadata_dir(table.paths.root, schema.opts))

    @property
    def store(self) -> Any:
        return self.table.store

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def load(self, version: int) -> TableMetadata | None:
        """A version of the table metadata; None if it is missing or damaged."""
        path = self.path(metadata_name(version))
        try:
            return TableMetadata.from_json(self.store.read(path), path)
        except (NotFound, CorruptError):
            return None

    def hint(self) -> int | None:
        """The version that the hint names."""
        return read_hint(self.store, self.path(VERSION_HINT))

    def versions(self) -> list[int]:
        """The versions of the table metadata, ascending."""
        return sorted(v for v in map(parse_version, self.store.names(self.root)) if v is not None)

    def manifests(self, snapshot: IcebergSnapshot) -> list[ManifestFile]:
        """The manifests of a snapshot; raises :class:`CorruptError` naming the list."""
        path = self.path(_name(snapshot.manifest_list))
        try:
            return decode_manifest_list(self.store.read(path))
        except CorruptError as e:
            raise e.within(path) from e

    def names_of(self, snapshot: IcebergSnapshot) -> set[str]:
        """The names of a snapshot's manifest list and manifests; only the list's if it is gone."""
        names = {_name(snapshot.manifest_list)}
        with contextlib.suppress(NotFound):
            names |= {_name(m.path) for m in self.manifests(snapshot)}
        return names

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, a failure suppressed: what remains is found as orphans."""
        discard_files(self.store, [self.path(name) for name in names])


# --- one publication --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Counts:
    """Files, rows and bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0

    def add(self, entry: Entry) -> None:
        """Count an entry's file."""
        self.files += 1
        self.rows += entry["data_file"]["record_count"]
        self.size += entry["data_file"]["file_size_in_bytes"]


@dataclass(slots=True)
class _Used:
    """What abandoned metadata has handed out, and must not be handed out again; mutable."""

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
    """One publication; mutable: it remembers what it has written."""

    table: TableFiles
    schema: TableSchema
    snapshot: Snapshot
    written: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = self.schema.opts
        self.options = options
        self.version = options.of(opt.ICEBERG_VERSION)
        self.folder = _Folder.of(self.table, self.schema)
        self.names = AvroNames(_clock.new_uuid())
        self.partition = partition_fields(self.schema.partition_fields, FIRST_PARTITION_FIELD_ID)
        self.partitions = PartitionReader(self.schema, self.table.paths)
        self.shows_vectors = exports_vectors(options)
        self._partition_records: dict[bytes, dict[str, Any]] = {}
        self._schemas = {self.schema.id: self.schema}

    @cached_property
    def codec(self) -> ManifestCodec:
        options = self.options
        return ManifestCodec(
            self.partition,
            self.version,
            options.of(opt.ICEBERG_COMPRESSION),
            options.of(opt.ZSTD_LEVEL),
            options.of(opt.MANIFEST_TARGET_SIZE),
            self.iceberg_schema,
            partition_spec(self.schema),
        )

    @cached_property
    def iceberg_schema(self) -> dict[str, Any]:
        return iceberg_schema(self.schema)

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

    def discard(self) -> None:
        """Delete what this publication has written, unless metadata may name it."""
        self.folder.delete(self.written)
        self.written.clear()

    def _is_there(self) -> bool:
        try:
            return commit_identity(load_snapshot(self.table, self.snapshot.id)) == commit_identity(self.snapshot)
        except NotFound:
            return False

    def _is_latest(self) -> bool:
        return latest_snapshot_id(self.table) == self.snapshot.id

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, metadata: TableMetadata) -> bool:
        """Create the metadata file and move the hint; returns whether the hint names this snapshot now."""
        path, data = self.folder.path(metadata_name(self.snapshot.id)), metadata.to_json().encode()
        written, self.written = self.written, []  # from here on metadata may name the files
        if not self.folder.store.create(path, data):
            other = self.folder.load(self.snapshot.id)
            if other is not None and other.current.shows(self.snapshot) and self._extends(other):
                self.written = written  # another process has published it
                self.discard()
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
        gone: set[str] = set()
        for version in self.folder.versions():
            metadata = self.folder.load(version) if version < self.snapshot.id else None
            for snapshot in metadata.snapshots if metadata is not None else ():
                if _name(snapshot.manifest_list) not in gone:
                    with contextlib.suppress(CorruptError):
                        gone |= self.folder.names_of(snapshot)
        self.folder.delete(gone)

    def _retire(self) -> None:
        """Delete the versions after the table's latest snapshot: a rollback has abandoned them."""
        latest = latest_snapshot_id(self.table)
        if latest is not None:
            self.folder.delete(metadata_name(v) for v in self.folder.versions() if v > latest)

    def _put(self, name: str, data: bytes) -> str:
        self.written.append(name)  # before the write: a failed write may leave a file
        path = self.folder.path(name)
        self.folder.store.write(path, data)
        return path

    def _put_manifests(
        self, entries: Sequence[Entry], content: ManifestContent = ManifestContent.DATA
    ) -> list[ManifestFile]:
        out = []
        for data, held in self.codec.encode(entries, content):
            path = self._put(self.names.manifest(), data)
            out.append(ManifestFile.of(path, len(data), held, content, self.snapshot.id, self.partition))
        return out

    def _put_list(self, files: Sequence[ManifestFile]) -> str:
        meta = {
            "snapshot-id": str(self.snapshot.id),
            "sequence-number": str(self.snapshot.id),
            "format-version": str(self.version),
        }
        legacy = self.options.of(opt.ICEBERG_LEGACY)
        data = encode_manifest_list(files, self.version, self.codec.compression, self.codec.level, meta, legacy)
        return self._put(self.names.manifest_list(), data)

    def _entries(self, file: ManifestFile) -> list[Entry]:
        path = self.folder.path(_name(file.path))
        try:
            found = self.codec.decode(self.folder.store.read(path))
        except CorruptError as e:
            raise e.within(path) from e
        return manifests.with_row_ids(found, file.first_row_id) if file.content is ManifestContent.DATA else found

    # --- which files -------------------------------------------------------------------------------------------------

    @cached_property
    def _least_level(self) -> int:
        """The level from which on Iceberg readers see files."""
        return _least_level(self.schema)

    @property
    def _shown(self) -> str:
        """:data:`SHOWN` of this publication."""
        return f"level >= {self._least_level}{', deletion vectors' if self.shows_vectors else ''}"

    def _is_shown(self, entry: ManifestEntry) -> bool:
        return entry.file.level >= self._least_level

    def _entry(self, entry: ManifestEntry) -> Entry:
        file = entry.file
        if file.schema_id not in self._schemas:
            self._schemas[file.schema_id] = load_schema(self.table, file.schema_id)
        record = {
            "content": int(FileContent.DATA),
            "file_path": self.partitions.data_path(entry),
            "file_format": file.file_name.rpartition(".")[2],
            "partition": self._partition(entry.partition),
            "record_count": file.row_count,
            "file_size_in_bytes": file.file_size,
            **file_bounds(file, self._schemas[file.schema_id].fields),
        }
        return manifests.added(record, self.snapshot.id)

    def _partition(self, raw: bytes) -> dict[str, Any]:
        found = self._partition_records.get(raw)
        if found is None:
            values = self.partitions.values(raw)
            found = {f.name: f.to_avro(v) for f, v in zip(self.partition, values, strict=True)}
            self._partition_records[raw] = found
        return found

    # --- deletion vectors --------------------------------------------------------------------------------------------

    def _vector_files(self) -> list[IndexFileEntry]:
        return [e for e in index_entries(self.table, self.snapshot) if e.index_type == DELETION_VECTORS and e.ranges]

    def _vector_manifests(self) -> list[ManifestFile]:
        """New manifests of all deletion vectors; none where readers cannot see any."""
        files = self._vector_files()
        if not self.shows_vectors:
            if files and not self.schema.primary_keys:
                raise UnsupportedFeature(
                    f"table {self.table.paths.root} has deletion vectors, which Iceberg readers see only with "
                    f"'{opt.ICEBERG_VERSION.name}' = '3', '{opt.DV_ENABLED.name}' and '{opt.DV_BITMAP64.name}'; "
                    "compact the table fully (CALL sys.compact) or set these options"
                )
            return []
        entries = [entry for file in files for entry in self._vector_entries(file)]
        return self._put_manifests(entries, ManifestContent.DELETES)

    def _vector_entries(self, index: IndexFileEntry) -> list[Entry]:
        path = index_path(self.table.paths, self.schema, index)
        folder = self.partitions.bucket_dir(index.partition, index.bucket)
        ranges = sorted(index.ranges or (), key=lambda r: r.offset)
        ends = [*(r.offset for r in ranges[1:]), index.file_size]
        out = []
        for place, end in zip(ranges, ends, strict=True):
            if place.cardinality is None or place.offset + place.length != end:
                raise UnsupportedFeature(
                    f"{path} has a deletion vector of 32 bits or without its number of rows, which Iceberg readers "
                    "cannot read; compact the table fully (CALL sys.compact)"
                )
            record = {
                "content": int(FileContent.POSITION_DELETES),
                "file_path": path,
                "file_format": PUFFIN,
                "partition": self._partition(index.partition),
                "record_count": place.cardinality,
                "file_size_in_bytes": index.file_size,
                "referenced_data_file": f"{folder}/{place.data_file}",
                "content_offset": place.offset,
                "content_size_in_bytes": place.length,
            }
            out.append(manifests.added(record, self.snapshot.id))
        return out

    # --- all of it ---------------------------------------------------------------------------------------------------

    def _rebuild(self, used: _Used) -> TableMetadata:
        snapshot = self.snapshot
        counts = _Counts()
        entries = [self._entry(e) for e in live_files(self.table, snapshot) if self._is_shown(e)]
        for entry in entries:
            counts.add(entry)
        files = [*self._put_manifests(entries), *self._vector_manifests()]
        changed = len({tuple(e["data_file"]["partition"].items()) for e in entries})
        made = self._iceberg_snapshot("append", files, counts, _Counts(), counts, changed, used.next_row_id)
        known = sorted(i for i in schema_ids(self.table) if i <= self.schema.id)
        schemas = tuple(
            self.iceberg_schema if i == self.schema.id else iceberg_schema(load_schema(self.table, i)) for i in known
        )
        spec = partition_spec(self.schema)
        return TableMetadata(
            format_version=self.version,
            table_uuid=used.uuid or _clock.new_uuid(),
            location=self.table.paths.root,
            last_updated_ms=_clock.now_ms(),
            last_column_id=max(used.last_column_id, *map(highest_field_id, schemas)),
            schemas=schemas,
            current_schema_id=self.schema.id,
            partition_specs=(spec,),
            last_partition_id=max((f["field-id"] for f in spec["fields"]), default=FIRST_PARTITION_FIELD_ID - 1),
            snapshots=(made,),
            current_snapshot_id=snapshot.id,
            last_sequence_number=snapshot.id,
            next_row_id=None if made.first_row_id is None else made.first_row_id + (made.added_rows or 0),
            refs=_refs(self.table, [made]),
        )

    def _iceberg_snapshot(
        self,
        operation: str,
        files: Sequence[ManifestFile],
        added: _Counts,
        removed: _Counts,
        total: _Counts,
        partitions: int,
        first_row_id: int,
    ) -> IcebergSnapshot:
        """Write the manifest list and describe the snapshot."""
        taken: int | None = None
        if self.version >= 3:
            files, taken = with_first_row_ids(files, first_row_id)
        deletes = [m for m in files if m.content is ManifestContent.DELETES]
        numbers = {
            "added-data-files": added.files,
            "added-records": added.rows,
            "added-files-size": added.size,
            "deleted-data-files": removed.files,
            "deleted-records": removed.rows,
            "removed-files-size": removed.size,
            "changed-partition-count": partitions,
            "total-records": total.rows,
            "total-data-files": total.files,
            "total-files-size": total.size,
            "total-delete-files": sum(m.live_files for m in deletes),
            "total-position-deletes": sum(m.live_rows for m in deletes),
            "total-equality-deletes": 0,
        }
        return IcebergSnapshot(
            snapshot_id=self.snapshot.id,
            sequence_number=self.snapshot.id,
            parent_id=None if self.snapshot.id == 1 else self.snapshot.id - 1,
            timestamp_ms=self.snapshot.time_millis,
            summary={
                "operation": operation,
                **{name: str(number) for name, number in numbers.items()},
                **self.snapshot.properties,
                IDENTITY: commit_identity(self.snapshot),
                SHOWN: self._shown,
            },
            manifest_list=self._put_list(files),
            schema_id=self.schema.id,
            first_row_id=None if taken is None else first_row_id,
            added_rows=taken,
        )

    # --- what a commit changed ---------------------------------------------------------------------------------------

    def _extends(self, metadata: TableMetadata) -> bool:
        """Whether metadata is of this table's folder and format, and knows the current schema as it is now."""
        current = next((s for s in metadata.schemas if s["schema-id"] == self.schema.id), None)
        return (
            metadata.format_version == self.version
            and metadata.location == self.table.paths.root
            and metadata.current_schema_id <= self.schema.id
            and current in (None, self.iceberg_schema)
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
        elif shown != self._shown:
            raise _NoBase
        try:
            old = self.folder.manifests(base.current)
            files, counted = self._changed_manifests(old, self._changes(changes, shown is None), previous)
        except (NotFound, CorruptError) as e:
            self.discard()
            raise _NoBase from e
        used.raise_to(base)
        total = self._total(base, old, counted)
        made = self._iceberg_snapshot(
            counted.operation, files, counted.added, counted.removed, total, counted.partitions, used.next_row_id
        )
        kept, expired = self._expire([*base.snapshots, made])
        known = {s["schema-id"] for s in base.schemas}
        new = [i for i in range(base.current_schema_id + 1, self.schema.id + 1) if i not in known]
        schemas = (*base.schemas, *(iceberg_schema(s) for s in self._load_schemas(new)))
        metadata = replace(
            base,
            last_updated_ms=_clock.now_ms(),
            last_column_id=max(used.last_column_id, highest_field_id(self.iceberg_schema)),
            schemas=schemas,
            current_schema_id=self.schema.id,
            snapshots=tuple(kept),
            current_snapshot_id=self.snapshot.id,
            last_sequence_number=self.snapshot.id,
            next_row_id=None if made.first_row_id is None else made.first_row_id + (made.added_rows or 0),
            refs=_refs(self.table, kept, base),
        )
        return metadata, expired

    def _previous(self) -> Snapshot | None:
        """The Paimon snapshot before this one; None if it has expired."""
        try:
            return load_snapshot(self.table, self.snapshot.id - 1)
        except NotFound:
            return None

    def _check_same_files(self, previous: Snapshot | None, base: TableMetadata) -> None:
        """Raise :class:`_NoBase` if an option changed which files Iceberg readers see."""
        before = base.current_schema_id if previous is None else previous.schema_id
        try:
            earlier = load_schema(self.table, before)
        except NotFound as e:
            raise _NoBase from e
        if _least_level(earlier) != self._least_level or exports_vectors(earlier.opts) != self.shows_vectors:
            raise _NoBase

    def _load_schemas(self, ids: Iterable[int]) -> list[TableSchema]:
        out = []
        for number in ids:
            with contextlib.suppress(NotFound):
                out.append(self.schema if number == self.schema.id else load_schema(self.table, number))
        return out

    def _changes(self, changes: Sequence[ManifestEntry] | None, may_show_all: bool) -> _Changes:
        """What the commit changes; ``may_show_all``: the base may list files that this publication would not show."""
        if changes is None:
            snapshot = self.snapshot
            metas = read_manifest_list(self.table, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
            changes = [entry for listed in read_manifests(self.table, metas) for entry in listed]
        out = _Changes()
        for entry in changes:
            path = self.partitions.data_path(entry)
            if entry.kind is EntryKind.DELETE:
                out.added.pop(path, None)
                if may_show_all or self._is_shown(entry):
                    out.removed[path] = entry
            elif self._is_shown(entry):
                if out.removed.pop(path, None) is not None:
                    out.upgraded.add(path)
                out.added[path] = entry
        return out

    def _changed_manifests(
        self, old: Sequence[ManifestFile], changes: _Changes, previous: Snapshot | None
    ) -> tuple[list[ManifestFile], _Counted]:
        counted = _Counted()
        data = [m for m in old if m.content is ManifestContent.DATA]
        if changes.removed or changes.upgraded:
            data = self._without_removed(data, changes, counted)
        entries = [self._entry(e) for e in changes.added.values()]
        for entry in entries:
            counted.add(counted.added, entry)
        data += self._put_manifests(entries)
        vectors = [m for m in old if m.content is ManifestContent.DELETES]
        if previous is None or previous.index_manifest != self.snapshot.index_manifest:
            vectors = self._vector_manifests()
        return [*self._compact(data), *vectors], counted

    def _without_removed(
        self, data: Sequence[ManifestFile], changes: _Changes, counted: _Counted
    ) -> list[ManifestFile]:
        """The manifests of the base, written again where they list removed files."""
        touched = {e.partition for e in changes.removed.values()}
        touched |= {changes.added[path].partition for path in changes.upgraded}
        fields = [f.type for f in self.partition]
        values = [
            [iceberg_value(t, v) for t, v in zip(fields, self.partitions.values(raw), strict=True)] for raw in touched
        ]
        out: list[ManifestFile] = []
        for file in data:
            if not any(file.may_hold(self.partition, v) for v in values):
                out.append(file)
                continue
            live = [e for e in self._entries(file) if manifests.is_live(e)]
            paths = [e["data_file"]["file_path"] for e in live]
            for path in changes.upgraded & changes.added.keys() & set(paths):
                del changes.added[path]  # only its level has changed
            gone = changes.removed.keys() & set(paths)
            if not gone:
                out.append(file)
                continue
            new = []
            for entry, path in zip(live, paths, strict=True):
                if path in gone:
                    counted.add(counted.removed, entry)
                    new.append(manifests.deleted(entry, self.snapshot.id))
                else:
                    new.append(manifests.kept(entry))
            counted.operation = "replace" if self.snapshot.commit_kind == "COMPACT" else "overwrite"
            out += self._put_manifests(new)
        return out

    def _compact(self, data: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests into few, if there are enough; of older snapshots, deleted entries are left out."""
        target = self.options.of(opt.MANIFEST_TARGET_SIZE)
        small = [m for m in data if m.length < target * 2 // 3]
        total = sum(m.length for m in small)
        if len(small) < self.options.of(opt.ICEBERG_COMPACT_MIN):
            return list(data)
        if len(small) < self.options.of(opt.ICEBERG_COMPACT_MAX) and total < target:
            return list(data)
        number = self.snapshot.id
        entries: list[Entry] = []
        for file in small:
            for entry in self._entries(file):
                if number in (entry["file_sequence_number"], entry["snapshot_id"]):
                    entries.append(entry)
                elif manifests.is_live(entry):
                    entries.append(manifests.kept(entry))
        merged = self._put_manifests(entries)
        for name in (_name(m.path) for m in small):
            if name in self.written:  # written by this publication, and nothing names it
                self.folder.delete([name])
                self.written.remove(name)
        return [*(m for m in data if m not in small), *merged]

    def _total(self, base: TableMetadata, old: Sequence[ManifestFile], counted: _Counted) -> _Counts:
        """The files that readers see, by the base's summary or, if it has no totals, by its manifests."""
        names = ("total-data-files", "total-records", "total-files-size")
        known = [base.current.total(name) for name in names]
        data = [m for m in old if m.content is ManifestContent.DATA]
        if known[0] is None or known[1] is None or known[2] is None:
            live = [e for m in data for e in self._entries(m) if manifests.is_live(e)]
            before = _Counts()
            for entry in live:
                before.add(entry)
        else:
            before = _Counts(sum(m.live_files for m in data), sum(m.live_rows for m in data), known[2])
        added, removed = counted.added, counted.removed
        return _Counts(
            before.files + added.files - removed.files,
            before.rows + added.rows - removed.rows,
            max(0, before.size + added.size - removed.size),
        )

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


@dataclass(slots=True)
class _Changes:
    """The files that a commit adds, as far as readers see them, and removes, by path; mutable."""

    added: dict[str, ManifestEntry] = field(default_factory=dict)
    removed: dict[str, ManifestEntry] = field(default_factory=dict)
    """Only files that readers may see."""
    upgraded: set[str] = field(default_factory=set)
    """Files that are removed and added again: their level has changed, and readers may see them already."""


@dataclass(slots=True)
class _Counted:
    """What a commit changes for readers; mutable."""

    operation: str = "append"
    added: _Counts = field(default_factory=_Counts)
    removed: _Counts = field(default_factory=_Counts)
    touched: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def partitions(self) -> int:
        """How many partitions change."""
        return len(self.touched)

    def add(self, counts: _Counts, entry: Entry) -> None:
        """Count a file that is added or removed."""
        counts.add(entry)
        self.touched.add(tuple(entry["data_file"]["partition"].values()))


def _least_level(schema: TableSchema) -> int:
    """The level from which on the files of a table are shown."""
    if not schema.primary_keys:
        return 0
    # Imported lazily: it loads Arrow, which commands that change tags do not need.
    from bitlake.schema.merge_spec import max_level

    return 1 if exports_vectors(schema.opts) else max_level(schema.opts)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
