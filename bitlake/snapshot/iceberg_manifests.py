"""The folder of a table's Iceberg metadata, and the manifests of a publication, many carried over from its base.

Manifests of the base that list no changed file are carried over.  Of one that does, the blocks that list it are
decoded and lose its entry, and the others are copied; that is possible where all entries have the status *existing*,
or all are *added* and only the status changes (format version 2), so deleted entries get a manifest of their own, and
merges leave the manifests of their own commit alone.  A removed file is searched for in the manifests whose partition
summaries admit it, by its path in the uncompressed bytes.

Small manifests are merged by Paimon's rule: from ``metadata.iceberg.compaction.min.file-num`` on if they have the size
of ``manifest.target-file-size`` together, from ``metadata.iceberg.compaction.max.file-num`` on always.

Deletion vectors of 64 bits are listed where Paimon has them, by offset and length in its index files; those of the
whole table are all listed again when one changes.

An :class:`IcebergFolder` knows the versions, what they name, the refs of tags, expiry and orphan files.
:mod:`bitlake.snapshot.iceberg_metadata` says in which order the files are written.  What happens to a table besides
commits changes the current version in place, as Paimon does for tags: its version number stays the id of the Paimon
snapshot.

Sources: Paimon's ``IcebergCommitCallback`` and ``IcebergPathFactory``; the Iceberg specification, "Deletion Vectors".
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bitlake import _clock
from bitlake.codec.avro import Block
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.iceberg import manifest as manifests
from bitlake.iceberg.manifest import (
    PUFFIN,
    Entry,
    FileContent,
    ManifestCodec,
    ManifestContent,
    ManifestFile,
    decode_manifest_list,
    encode_manifest_list,
    encode_puffin,
    listed_paths,
)
from bitlake.iceberg.schema import (
    FIRST_PARTITION_FIELD_ID,
    exports_vectors,
    file_bounds,
    iceberg_schema,
    iceberg_value,
    partition_fields,
    partition_spec,
)
from bitlake.iceberg.table_metadata import (
    VERSION_HINT,
    IcebergSnapshot,
    PublicationNames,
    TableMetadata,
    is_listed_file,
    java_uri,
    metadata_dir,
    metadata_name,
    parse_version,
)
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, CacheName, LocalRunner
from bitlake.snapshot.manifests import index_entries, read_manifest_list, read_manifests
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, discard_files, first_link, read_hint
from bitlake.snapshot.versions import latest_snapshot_id, load_schema, tag_snapshot

log = logging.getLogger("bitlake")

_LATE_TAG_MS = 3_600_000
"""Tags changed at most this long before the base was written are read again: clocks of machines differ."""


def is_published(schema: TableSchema) -> bool:
    """Whether commits write Iceberg metadata; raises :class:`InvalidRequest` for an unknown storage."""
    return schema.opts.of(opt.ICEBERG_STORAGE) != opt.DISABLED


def asks_for_metadata(state: TableState) -> bool:
    """:func:`is_published`, also for a storage that bitlake does not know."""
    return state.schema.options.get(opt.ICEBERG_STORAGE.name, opt.DISABLED) != opt.DISABLED


def file_name(path: str) -> str:
    """The last name of a path: metadata names its files by whole paths, which a move of the table changes."""
    return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class IcebergFolder:
    """The folder of a table's Iceberg metadata."""

    table: TableFiles
    root: str

    @staticmethod
    def of(table: TableFiles, schema: TableSchema) -> IcebergFolder:
        """The folder that the table's options ask for."""
        return IcebergFolder(table, metadata_dir(table.paths.root, schema.opts))

    @property
    def store(self) -> Store:
        """The table's store."""
        return self.table.store

    def path(self, name: str) -> str:
        """The path of a file."""
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
        path = self.path(file_name(snapshot.manifest_list))
        try:
            return decode_manifest_list(self.store.read(path))
        except CorruptError as e:
            raise e.within(path) from e

    def names_of(self, snapshot: IcebergSnapshot) -> set[str]:
        """The names of a snapshot's manifest list, manifests and Puffin files; only the list's if it is gone."""
        names = {file_name(snapshot.manifest_list)}
        with contextlib.suppress(NotFound):
            for manifest in self.manifests(snapshot):
                name = file_name(manifest.path)
                names.add(name)
                if manifest.content is ManifestContent.DELETES:
                    names |= {
                        n for n in map(file_name, listed_paths(self.store.read(self.path(name)))) if is_listed_file(n)
                    }
        return names

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, a failure suppressed: what remains is found as orphans."""
        discard_files(self.store, [self.path(name) for name in names])


# --- tags -------------------------------------------------------------------------------------------------------------


def sync_refs(state: TableState) -> None:
    """After a change of tags: make them the refs of the current metadata, without a new version, as Paimon does.

    Only tags of snapshots that the metadata lists are refs.  The tag has changed, so a failure is logged.
    """
    if not asks_for_metadata(state) or state.paths.branch is not None:
        return
    try:
        folder = IcebergFolder.of(state.table_files, state.schema)
        latest = latest_snapshot_id(state.table_files)
        metadata = None if latest is None else folder.load(latest)
        if latest is None or metadata is None:
            return  # the next publication names the tags
        refs = tag_refs(state.table_files, metadata.snapshots, metadata)
        if refs != metadata.refs:
            folder.store.write(folder.path(metadata_name(latest)), replace(metadata, refs=refs).to_json().encode())
    except BitlakeError as e:
        log.warning("%s: the tag has changed, but its Iceberg ref has not: %s", state.name, e)


def tag_refs(
    table: TableFiles, snapshots: Iterable[IcebergSnapshot], base: TableMetadata | None = None
) -> Mapping[str, int]:
    """The snapshot ids of tags, if ``snapshots`` has them; tags older than the metadata ``base`` are taken from it."""
    ids = {s.snapshot_id for s in snapshots}
    refs = {}
    for file in table.store.list(table.paths.tag_dir):
        name = file.name.removeprefix("tag-")
        if name == file.name or file.is_dir:
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
        folder = IcebergFolder.of(table, schema)
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
        expired = [s for s in metadata.snapshots if s not in kept]
        folder.delete({name for s in expired for name in folder.names_of(s)} - named)
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
    folder = IcebergFolder(state.table_files, root)
    files = [
        f
        for f in state.store.list(root)
        if not f.is_dir and not f.is_link and f.mtime_ms < older_than_ms and is_listed_file(f.name)
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


_FEW_PATHS = 4
"""Up to this many removed files, blocks are searched for each of their paths, which is faster than listing all paths.
10,000 entries are searched for one path in about half a millisecond, all are listed in three, and decoded in 150.
"""


_BLOCKS: CacheName[str, tuple[Block, ...]] = CacheName("blocks of Iceberg manifests")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A manifest of the base: its blocks, or its bytes if it has another Avro schema than ours."""

    blocks: tuple[Block, ...] | None
    data: bytes = b""


@dataclass(slots=True)
class Counts:
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
class Changes:
    """The files that a commit adds, as far as readers see them, and removes, by path; mutable."""

    added: dict[str, ManifestEntry] = field(default_factory=dict)
    removed: dict[str, ManifestEntry] = field(default_factory=dict)
    """Only files that readers may see."""
    upgraded: set[str] = field(default_factory=set)
    """Files that are removed and added again: their level has changed, and readers may see them already."""


@dataclass(slots=True)
class Counted:
    """The changes of a commit for readers; mutable."""

    operation: str = "append"
    added: Counts = field(default_factory=Counts)
    removed: Counts = field(default_factory=Counts)
    touched: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def partitions(self) -> int:
        """The number of partitions that change."""
        return len(self.touched)

    def add(self, counts: Counts, entry: Entry) -> None:
        """Count a file that is added or removed."""
        counts.add(entry)
        self.touched.add(tuple(entry["data_file"]["partition"].values()))


@dataclass
class IcebergManifests:
    """The manifests that one publication writes; mutable: it remembers what it has written."""

    table: TableFiles
    schema: TableSchema
    snapshot: Snapshot
    folder: IcebergFolder
    written: list[str] = field(default_factory=list)
    """Names of files that no metadata names yet."""

    def __post_init__(self) -> None:
        self.options = self.schema.opts
        self.version = self.options.of(opt.ICEBERG_VERSION)
        self.names = PublicationNames(_clock.new_uuid())
        self.partition = partition_fields(self.schema.partition_fields, FIRST_PARTITION_FIELD_ID)
        self.partitions = PartitionReader(self.schema, self.table.paths)
        self.shows_vectors = exports_vectors(self.options)
        self._partition_records: dict[bytes, dict[str, Any]] = {}
        self._schemas = {self.schema.id: self.schema}

    @cached_property
    def codec(self) -> ManifestCodec:
        """The codec of the table's manifests."""
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
        """The snapshot's schema."""
        return iceberg_schema(self.schema)

    def discard(self) -> None:
        """Delete what this publication has written, unless metadata may name it."""
        self.folder.delete(self.written)
        self.written.clear()

    # --- files -------------------------------------------------------------------------------------------------------

    def _put(self, name: str, data: bytes) -> str:
        self.written.append(name)  # before the write: a failed write may leave a file
        path = self.folder.path(name)
        self.folder.store.write(path, data)
        return path

    def put_manifests(
        self, entries: Sequence[Entry], content: ManifestContent = ManifestContent.DATA
    ) -> list[ManifestFile]:
        """Write manifests of entries; none for no entries."""
        out = []
        for data, held in self.codec.encode(entries, content):
            path = java_uri(self._put(self.names.manifest(), data))
            out.append(ManifestFile.of(path, len(data), held, content, self.snapshot.id, self.partition))
        return out

    def _put_blocks(
        self, blocks: Sequence[Block], entries: Sequence[Entry], parts: Sequence[ManifestFile]
    ) -> list[ManifestFile]:
        """Write a manifest of the live entries of ``parts``: copied blocks, and other entries."""
        if not any(m.live_files for m in parts):
            return []
        stored = self.codec.stored_blocks(blocks, entries)
        data = self.codec.encode_blocks(stored)
        path = self._put(self.names.manifest(), data)
        self._keep(path, stored)
        path = java_uri(path)
        return [ManifestFile.of_existing(path, len(data), parts, self.snapshot.id, self.partition)]

    def put_list(self, files: Sequence[ManifestFile]) -> str:
        """Write the manifest list; returns its path."""
        meta = {
            "snapshot-id": str(self.snapshot.id),
            "sequence-number": str(self.snapshot.id),
            "format-version": str(self.version),
        }
        legacy = self.options.of(opt.ICEBERG_LEGACY)
        data = encode_manifest_list(files, self.version, self.codec.compression, self.codec.level, meta, legacy)
        return java_uri(self._put(self.names.manifest_list(), data))

    def _read(self, files: Sequence[ManifestFile]) -> list[_Stored]:
        """Read manifests of the base, concurrently; their blocks are cached, since manifests never change."""
        paths = [self.folder.path(file_name(m.path)) for m in files]
        cached = self.folder.store.caches[_BLOCKS]
        missing = [path for path in paths if cached.get(path) is None]
        store = self.folder.store
        local = store.local_path(self.folder.root) is not None  # to start threads takes longer than to read small files
        runner = LocalRunner(1 if local else REQUESTS)
        stored = dict(zip(missing, runner.run(missing, self._read_one), strict=True))
        return [stored.get(path) or self._read_one(path) for path in paths]

    def _read_one(self, path: str) -> _Stored:
        cache = self.folder.store.caches[_BLOCKS]
        blocks = cache.get(path)
        if blocks is not None:
            return _Stored(blocks)
        data = self.folder.store.read(path)
        try:
            found = self.codec.blocks(data)
        except CorruptError as e:
            raise e.within(path) from e
        if found is None:
            return _Stored(None, data)
        return _Stored(self._keep(path, found))

    def _keep(self, path: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Keep the blocks of a manifest in the cache."""
        kept = tuple(blocks)
        size = len(path) + sum(len(block.data) + len(block.stored) for block in kept)
        self.folder.store.caches[_BLOCKS].put(path, kept, size)
        return kept

    def _existing_blocks(self, file: ManifestFile, stored: _Stored) -> Sequence[Block] | None:
        """The blocks of a manifest with all entries as existing ones; None: they must be decoded for that."""
        if stored.blocks is None or file.is_existing:
            return stored.blocks
        return self.codec.existing_blocks(stored.blocks, file.added_snapshot_id) if file.is_added else None

    def _entries(self, file: ManifestFile, stored: _Stored) -> list[Entry]:
        """The entries of a manifest, with the row ids that they inherit."""
        try:
            entries = (
                self.codec.decode(stored.data) if stored.blocks is None else self.codec.decode_blocks(stored.blocks)
            )
        except CorruptError as e:
            raise e.within(self.folder.path(file_name(file.path))) from e
        return manifests.with_row_ids(entries, file.first_row_id)

    # --- which files -------------------------------------------------------------------------------------------------

    @cached_property
    def least_level(self) -> int:
        """The level from which on Iceberg readers see files."""
        return least_level(self.schema)

    @property
    def shown(self) -> str:
        """:data:`SHOWN` of this publication."""
        return f"level >= {self.least_level}{', deletion vectors' if self.shows_vectors else ''}"

    def is_shown(self, entry: ManifestEntry) -> bool:
        """Whether Iceberg readers see a file."""
        return entry.file.level >= self.least_level

    def entry(self, entry: ManifestEntry) -> Entry:
        """The entry of a file that the snapshot adds."""
        file = entry.file
        if file.schema_id not in self._schemas:
            self._schemas[file.schema_id] = load_schema(self.table, file.schema_id)
        record = {
            "content": int(FileContent.DATA),
            "file_path": java_uri(self.partitions.data_path(entry)),
            "file_format": file.file_name.rpartition(".")[2],
            "partition": self._partition(entry.partition),
            "record_count": file.row_count,
            "file_size_in_bytes": file.file_size,
            **file_bounds(file, self._schemas[file.schema_id].fields),
        }
        return manifests.added(record, self.snapshot.id)

    def _partition(self, raw: bytes) -> dict[str, Any]:
        record = self._partition_records.get(raw)
        if record is None:
            values = self.partitions.values(raw)
            record = {f.name: f.to_avro(v) for f, v in zip(self.partition, values, strict=True)}
            self._partition_records[raw] = record
        return record

    # --- deletion vectors --------------------------------------------------------------------------------------------

    def vector_manifests(
        self, base: Sequence[ManifestFile] = (), previous: Snapshot | None = None
    ) -> list[ManifestFile]:
        """New manifests of all deletion vectors; none where readers cannot see any.

        Vectors of index files that the previous snapshot had are where the manifests of the base list them.
        """
        files = self._vector_files(self.snapshot)
        if not self.shows_vectors:
            if files and not self.schema.primary_keys:
                raise UnsupportedFeature(
                    f"table {self.table.paths.root} has deletion vectors, which Iceberg readers see only with "
                    f"'{opt.ICEBERG_VERSION.name}' = '3', '{opt.DV_ENABLED.name}' and '{opt.DV_BITMAP64.name}'; "
                    "compact the table fully (CALL sys.compact) or set these options"
                )
            return []
        known: dict[str, dict[str, Any]] = {}
        for m, stored in zip(base, self._read(base), strict=True):
            for file in (e["data_file"] for e in self._entries(m, stored) if manifests.is_live(e)):
                if is_listed_file(file_name(file["file_path"])):  # Paimon lists its index files
                    known[file["referenced_data_file"]] = file
        kept = {e.file_name for e in self._vector_files(previous)}
        records = [r for index in files for r in self._vector_records(index, known if index.file_name in kept else {})]
        return self.put_manifests([manifests.added(r, self.snapshot.id) for r in records], ManifestContent.DELETES)

    def _vector_files(self, snapshot: Snapshot | None) -> list[IndexFileEntry]:
        return [e for e in index_entries(self.table, snapshot) if e.index_type == DELETION_VECTORS and e.ranges]

    def _vector_records(self, index: IndexFileEntry, known: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """The vectors of an index file: as listed before, or copied into a new Puffin file."""
        path = index_path(self.table.paths, self.schema, index)
        folder = self.partitions.bucket_dir(index.partition, index.bucket)
        ranges = sorted(index.ranges or (), key=lambda r: r.offset)
        names = [java_uri(f"{folder}/{place.data_file}") for place in ranges]
        if all(name in known for name in names):
            return [known[name] for name in names]
        ends = [*(r.offset for r in ranges[1:]), index.file_size]
        for place, end in zip(ranges, ends, strict=True):
            if place.cardinality is None or place.offset + place.length != end:
                raise UnsupportedFeature(
                    f"{path} has a deletion vector of 32 bits or without its number of rows, which Iceberg readers "
                    "cannot read; compact the table fully (CALL sys.compact)"
                )
        frames = self.table.store.read_ranges(path, [(r.offset, r.length) for r in ranges])
        rows = [r.cardinality or 0 for r in ranges]
        data, offsets = encode_puffin(list(zip(names, rows, frames, strict=True)))
        puffin = java_uri(self._put(self.names.puffin(), data))
        return [
            {
                "content": int(FileContent.POSITION_DELETES),
                "file_path": puffin,
                "file_format": PUFFIN,
                "partition": self._partition(index.partition),
                "record_count": count,
                "file_size_in_bytes": len(data),
                "referenced_data_file": name,
                "content_offset": offset,
                "content_size_in_bytes": len(frame),
            }
            for name, count, frame, offset in zip(names, rows, frames, offsets, strict=True)
        ]

    # --- what a commit changed ---------------------------------------------------------------------------------------

    def changes_of(self, changes: Sequence[ManifestEntry] | None, may_show_all: bool) -> Changes:
        """Return the commit's changes; ``may_show_all``: the base may list files that this publication hides."""
        if changes is None:
            snapshot = self.snapshot
            metas = read_manifest_list(self.table, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
            changes = [entry for listed in read_manifests(self.table, metas) for entry in listed]
        out = Changes()
        for entry in changes:
            path = java_uri(self.partitions.data_path(entry))
            if entry.kind is EntryKind.DELETE:
                out.added.pop(path, None)
                if may_show_all or self.is_shown(entry):
                    out.removed[path] = entry
            elif self.is_shown(entry):
                if out.removed.pop(path, None) is not None:
                    out.upgraded.add(path)
                out.added[path] = entry
        return out

    def changed_manifests(
        self, old: Sequence[ManifestFile], changes: Changes, previous: Snapshot | None
    ) -> tuple[list[ManifestFile], Counted]:
        """The manifests of this snapshot, from those of the base, and what changes for readers."""
        counted = Counted()
        # A manifest of deleted entries alone is of no use after the snapshot that deleted them.
        data = [m for m in old if m.content is ManifestContent.DATA and m.live_files]
        if changes.removed or changes.upgraded:
            data = self._without_removed(data, changes, counted)
        entries = [self.entry(e) for e in changes.added.values()]
        for entry in entries:
            counted.add(counted.added, entry)
        data += self.put_manifests(entries)
        vectors = [m for m in old if m.content is ManifestContent.DELETES]
        if previous is None or previous.index_manifest != self.snapshot.index_manifest:
            vectors = self.vector_manifests(vectors, previous)
        return [*self._compact(data), *vectors], counted

    def _without_removed(self, data: Sequence[ManifestFile], changes: Changes, counted: Counted) -> list[ManifestFile]:
        """The manifests of the base, written again where they list removed files, and a manifest of those files."""
        touched = {e.partition for e in changes.removed.values()}
        touched |= {changes.added[path].partition for path in changes.upgraded}
        types = [f.type for f in self.partition]
        values = [
            [iceberg_value(t, v) for t, v in zip(types, self.partitions.values(raw), strict=True)] for raw in touched
        ]
        searched = [m for m in data if any(m.may_hold(self.partition, v) for v in values)]
        stored = dict(zip((m.path for m in searched), self._read(searched), strict=True))
        out: list[ManifestFile] = []
        gone: list[Entry] = []
        for file in data:
            if file.path in stored:
                out += self._search(file, stored[file.path], changes, gone)
            else:
                out.append(file)
        if gone:
            for entry in gone:
                counted.add(counted.removed, entry)
            # Compaction of an append table changes no row.  That of a key table shows the rows that it merges.
            same_rows = self.snapshot.commit_kind == "COMPACT" and not self.schema.primary_keys
            counted.operation = "replace" if same_rows else "overwrite"
            out += self.put_manifests([manifests.deleted(e, self.snapshot.id) for e in gone])
        return out

    def _search(
        self, file: ManifestFile, stored: _Stored, changes: Changes, gone: list[Entry]
    ) -> Sequence[ManifestFile]:
        """A manifest without the files that were removed, whose entries are put into ``gone``."""
        paths = [*changes.removed, *changes.upgraded]
        hit: Sequence[int] = ()
        if stored.blocks is not None:
            hit = _blocks_with(stored.blocks, paths)
            if not hit:
                return [file]
        blocks = self._existing_blocks(file, stored)
        if blocks is None:
            live = [e for e in self._entries(file, stored) if manifests.is_live(e)]
            removed = self._removed_of(live, changes)
            rest = [manifests.kept(e) for e in live if e["data_file"]["file_path"] not in changes.removed]
            gone += removed
            return self.put_manifests(rest) if removed else [file]
        kept = dict(enumerate(blocks))
        before = len(gone)
        for i in hit:
            entries = self._block_entries(file, blocks[i])
            removed = self._removed_of([e for e, _ in entries], changes)
            if removed:
                raw = [data for e, data in entries if e["data_file"]["file_path"] not in changes.removed]
                kept[i] = Block.plain(len(raw), b"".join(raw))
                gone += removed
        if len(gone) == before:
            return [file]
        return self._put_blocks([b for b in kept.values() if b.records], [], [file.without(gone[before:])])

    def _removed_of(self, entries: Sequence[Entry], changes: Changes) -> list[Entry]:
        """The entries of removed files; files whose level alone has changed are no longer added."""
        for path in changes.upgraded & {e["data_file"]["file_path"] for e in entries}:
            changes.added.pop(path, None)
        return [e for e in entries if e["data_file"]["file_path"] in changes.removed]

    def _block_entries(self, file: ManifestFile, block: Block) -> list[tuple[Entry, bytes]]:
        try:
            return self.codec.block_entries(block)
        except CorruptError as e:
            raise e.within(self.folder.path(file_name(file.path))) from e

    def _compact(self, data: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests of earlier commits into one, if there are enough.

        Those of this commit stay as they are, so that all entries of a merged manifest are existing ones, whose blocks
        the next merge copies without decoding them.
        """
        target = self.options.of(opt.MANIFEST_TARGET_SIZE)
        small = [m for m in data if m.length < target * 2 // 3]
        old = [m for m in small if m.added_snapshot_id != self.snapshot.id]
        total = sum(m.length for m in small)
        if len(small) < self.options.of(opt.ICEBERG_COMPACT_MIN) or len(old) < 2:
            return list(data)
        if len(small) < self.options.of(opt.ICEBERG_COMPACT_MAX) and total < target:
            return list(data)
        others = [m for m in data if m not in old]
        blocks: list[Block] = []
        entries: list[Entry] = []
        for file, stored in zip(old, self._read(old), strict=True):
            copied = self._existing_blocks(file, stored)
            if copied is not None:
                blocks += copied
            else:
                entries += [manifests.kept(e) for e in self._entries(file, stored) if manifests.is_live(e)]
        if total < target:
            return [*others, *self._put_blocks(blocks, entries, old)]
        return [*others, *self.put_manifests([*self.codec.decode_blocks(blocks), *entries])]

    def total(self, base: TableMetadata, old: Sequence[ManifestFile], counted: Counted) -> Counts:
        """The files that readers see, by the base's summary or, if it has no totals, by its manifests."""
        names = ("total-data-files", "total-records", "total-files-size")
        known = [base.current.total(name) for name in names]
        data = [m for m in old if m.content is ManifestContent.DATA]
        if known[0] is None or known[1] is None or known[2] is None:
            live = [
                e
                for m in data
                for e in self._entries(m, self._read_one(self.folder.path(file_name(m.path))))
                if manifests.is_live(e)
            ]
            before = Counts()
            for entry in live:
                before.add(entry)
        else:
            before = Counts(sum(m.live_files for m in data), sum(m.live_rows for m in data), known[2])
        added, removed = counted.added, counted.removed
        return Counts(
            before.files + added.files - removed.files,
            before.rows + added.rows - removed.rows,
            max(0, before.size + added.size - removed.size),
        )


def _blocks_with(blocks: Sequence[Block], paths: Sequence[str]) -> Sequence[int]:
    """The numbers of the blocks that may list one of these paths: a superset of those that do.

    A path ends with the control character that is the length of the file's format.
    """
    wanted = {path.encode() for path in paths}
    if len(wanted) <= _FEW_PATHS:
        return [i for i, block in enumerate(blocks) if any(path in block.data for path in wanted)]
    folder = os.path.commonprefix(list(paths)).rpartition("/")[0]  # noqa: RUF071 (cut at a slash; URIs, too)
    listed = re.compile(re.escape(f"{folder}/".encode()) + rb"[^\x00-\x1f]+")
    if not folder or not all(map(listed.fullmatch, wanted)):
        return range(len(blocks))
    return [i for i, block in enumerate(blocks) if not wanted.isdisjoint(listed.findall(block.data))]


def least_level(schema: TableSchema) -> int:
    """The level from which on the files of a table are shown."""
    if not schema.primary_keys:
        return 0
    # Imported lazily: it loads Arrow, which commands that change tags do not need.
    from bitlake.schema.merge_spec import max_level

    return 1 if exports_vectors(schema.opts) else max_level(schema.opts)
