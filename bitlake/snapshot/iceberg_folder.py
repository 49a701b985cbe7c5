"""The folder of a table's Iceberg metadata: its versions, what they name, the refs of tags, expiry and orphan files.

:mod:`bitlake.snapshot.iceberg_metadata` says in which order the files are written.  What happens to a table besides
commits changes the current version in place, as Paimon does for tags: its version number stays the id of the Paimon
snapshot.

Sources: Paimon's ``IcebergCommitCallback`` and ``IcebergPathFactory``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.iceberg.manifest import ManifestContent, listed_paths
from bitlake.iceberg.manifest_list import ManifestFile, decode_manifest_list
from bitlake.iceberg.paths import VERSION_HINT, is_listed_file, metadata_dir, metadata_name, parse_version
from bitlake.iceberg.table_metadata import IcebergSnapshot, TableMetadata
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, discard_files, first_link
from bitlake.snapshot.versions import latest_snapshot_id, read_hint, tag_snapshot

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
        refs = tag_refs(state.table_files, metadata.snapshots)
        if refs != metadata.refs:
            folder.store.write(folder.path(metadata_name(latest)), replace(metadata, refs=refs).to_json().encode())
    except BitlakeError as e:
        log.warning("%s: the tag has changed, but its Iceberg ref has not: %s", state.name, e)


def tag_refs(
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
