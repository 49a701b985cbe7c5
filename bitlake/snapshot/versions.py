"""List and load the schemas, snapshots, long-lived changelogs, tags and branches of a table, without opening manifests.

Long-lived changelogs are the changes of snapshots that have expired, which streams can still read.  If a table's
``changelog.*`` options keep changelogs for longer than snapshots, Paimon's expiry copies a snapshot's file to
``changelog/changelog-<id>`` before it deletes the snapshot.  It keeps the snapshot's changelog files or, without a
changelog producer, the files that an APPEND added.  Other files of the snapshot are gone.

Sources: for the hints table-format spec, section 1; for changelogs Paimon's ChangelogManager and ExpireSnapshotsImpl.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from bitlake.errors import CorruptError, NotFound
from bitlake.io import FileInfo
from bitlake.io.base import in_parallel, request_runner
from bitlake.metadata.java_json import JSON_BYTES
from bitlake.metadata.paths import parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import CacheName
from bitlake.snapshot.removal_markers import is_record, load_line, steadily
from bitlake.snapshot.table_files import TableFiles, read_hint

JOURNAL = ".fast-forward"
"""The file in the snapshot folder while a fast-forward runs (:mod:`bitlake.snapshot.fast_forward`)."""
_SCHEMAS: CacheName[tuple[str, bytes], TableSchema] = CacheName("schemas")
_TAGGED_SCHEMAS: CacheName[tuple[str, str], TableSchema] = CacheName("schemas by ETag")
_LISTED: CacheName[str, dict[int, FileInfo]] = CacheName("listings of schemas")
"""The schema files of a schema folder by id, from its last listing."""
_LISTED_BYTES = 300
"""Estimated bytes of a listed file in memory."""
_SNAPSHOTS: CacheName[tuple[str, bytes], Snapshot] = CacheName("snapshots")
_TAGGED_SNAPSHOTS: CacheName[tuple[str, str], Snapshot] = CacheName("snapshots by ETag")
_LONG: CacheName[str, bool] = CacheName("long snapshot folders")
"""The snapshot folders whose listing takes several requests, or has no ETags."""
_SNAPSHOT_BYTES = 1000
_PARSED = 4
"""Bytes of a parsed file in memory for each of its own bytes."""


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot_ids(table: TableFiles) -> list[int]:
    """The ids of all snapshot files, ascending, without strays (:mod:`bitlake.snapshot.removal_markers`)."""
    return list(load_line(table).ids)


def latest_snapshot_id(table: TableFiles) -> int | None:
    """The last snapshot's id, None before the first.

    The LATEST hint is used only if its snapshot exists and the next one does not; else the folder is listed.  (Paimon
    skips the first check, so that a hint that is too high makes a table unreadable there.)
    """
    hint = read_hint(table.store, table.paths.latest_hint)
    if (
        hint
        and not table.store.exists(table.paths.snapshot(hint + 1))
        and table.store.exists(table.paths.snapshot(hint))
    ):
        return hint
    return max(snapshot_ids(table), default=None)


def earliest_snapshot_id(table: TableFiles) -> int | None:
    """The first snapshot's id, None if there is none; the EARLIEST hint is used if its snapshot exists."""
    hint = read_hint(table.store, table.paths.earliest_hint)
    if hint and table.store.exists(table.paths.snapshot(hint)):
        return hint
    return min(snapshot_ids(table), default=None)


def load_snapshot(table: TableFiles, snapshot_id: int) -> Snapshot:
    """Load a snapshot; raises :class:`NotFound`, and :class:`CorruptError` for a file with another snapshot's id.

    The file is read each time and only its parsing is cached, by content: a rollback may reuse its id.
    """
    return _load_snapshot(table, snapshot_id)[0]


def _load_snapshot(table: TableFiles, snapshot_id: int) -> tuple[Snapshot, str | None]:
    """As :func:`load_snapshot`, with the file's ETag."""
    path = table.paths.snapshot(snapshot_id)
    data, etag = table.store.read_tagged(path, JSON_BYTES)
    snapshot = parse_snapshot(table, path, data)
    if snapshot.id != snapshot_id:  # a commit would look for its base under another name, again and again
        raise CorruptError(f"'id' is {snapshot.id}, but the file is snapshot {snapshot_id}'s", None, path)
    return snapshot, etag


def parse_snapshot(table: TableFiles, path: str, data: bytes) -> Snapshot:
    """The snapshot in a snapshot or tag file; each content is parsed once."""
    cache = table.store.caches[_SNAPSHOTS]
    return cache.get_or((path, data), lambda: Snapshot.from_json(data, path), lambda _: _PARSED * len(data))


def find_snapshot(table: TableFiles, snapshot_id: int) -> Snapshot | None:
    """Load a snapshot; None if it does not exist."""
    try:
        return load_snapshot(table, snapshot_id)
    except NotFound:
        return None


def latest_snapshot(table: TableFiles) -> Snapshot | None:
    """The latest snapshot; None before the first commit.

    In an object store one listing finds it, and it is not read again while its ETag is the same.  Elsewhere, and where
    a listing takes several requests, the hint is used as :func:`latest_snapshot_id` does; reading the snapshot shows
    that it exists.
    """
    if not table.store.caches[_LONG].get(table.paths.snapshot_dir):
        found = steadily(partial(_latest_of_page, table))  # it may expire, or be rolled back, before it is read
        if found is not None:
            return found[0] if found else None
    hint = read_hint(table.store, table.paths.latest_hint)
    snapshot = _last_snapshot(table, hint) if hint else None
    if snapshot is not None:
        return snapshot

    def listed() -> Snapshot | None:
        latest = max(snapshot_ids(table), default=None)
        return None if latest is None else load_snapshot(table, latest)

    return steadily(listed)  # a rollback may delete it between listing and reading


def _latest_of_page(table: TableFiles) -> list[Snapshot] | None:
    """A list of the latest snapshot, empty before the first commit; None where one request does not show it."""
    files = table.store.list_page(table.paths.snapshot_dir)
    if files is None or any(is_record(f.name) for f in files):
        if files is None and table.store.local_path(table.paths.snapshot_dir) is None:
            table.store.caches[_LONG].put(table.paths.snapshot_dir, True, _LISTED_BYTES)
        return None
    etags = {number: f.etag for f in files if (number := parse_id(f.name, "snapshot-")) is not None}
    if not etags:
        return []
    latest = max(etags)
    cache, path = table.store.caches[_TAGGED_SNAPSHOTS], table.paths.snapshot(latest)
    snapshot = cache.get((path, etags[latest] or ""))
    if snapshot is None:
        snapshot, etag = _load_snapshot(table, latest)
        if etag is not None:
            cache.put((path, etag), snapshot, _PARSED * _SNAPSHOT_BYTES)
    return [snapshot]


def _last_snapshot(table: TableFiles, snapshot_id: int) -> Snapshot | None:
    """The snapshot of an id; None if it does not exist, or if the next one does."""
    following = table.paths.snapshot(snapshot_id + 1)
    return in_parallel(
        table.store,
        following,
        lambda: table.store.exists(following),
        lambda: find_snapshot(table, snapshot_id),
        lambda exists: not exists,
    )[1]


# --- schemas ----------------------------------------------------------------------------------------------------------


def schema_ids(table: TableFiles) -> list[int]:
    """The ids of a table's or branch's schemas, ascending."""
    ids = (parse_id(name, "schema-") for name in table.store.names(table.paths.schema_dir))
    return sorted(i for i in ids if i is not None)


def latest_schema_id(table: TableFiles) -> int | None:
    """The highest schema id; None if the table has no schema, that is, does not exist."""
    return max(schema_ids(table), default=None)


def has_schema(table: TableFiles) -> bool:
    """Whether a table or branch exists: it has a schema, not only a temporary file of a killed writer."""
    return latest_schema_id(table) is not None


def can_open(table: TableFiles) -> bool:
    """As :func:`has_schema`, for a table that is read next: in a remote store, this caches its first schema."""
    if table.store.local_path(table.paths.schema_dir) is not None:
        return has_schema(table)
    try:
        load_schema(table, 0)
    except NotFound:
        return has_schema(table)
    except CorruptError:  # reported where the schema is used
        pass
    return True


def is_same_table(table: TableFiles, schema: TableSchema) -> bool:
    """Whether a schema read before still exists: the table was not dropped, renamed or replaced meanwhile."""
    try:
        return load_schema(table, schema.id).is_version(schema)
    except NotFound:
        return False


def load_schema(table: TableFiles, schema_id: int) -> TableSchema:
    """Load a schema version; raises :class:`NotFound`.

    The file is read each time and only its parsing is cached, by content: a table that was dropped and created again
    has other schemas under the same names.
    """
    path = table.paths.schema(schema_id)
    data, etag = table.store.read_tagged(path, JSON_BYTES)
    cache = table.store.caches[_SCHEMAS]
    schema = cache.get_or((path, data), lambda: TableSchema.from_json(data, path), lambda _: _PARSED * len(data))
    if etag is not None:
        table.store.caches[_TAGGED_SCHEMAS].put((path, etag), schema, _PARSED * len(data))
    return schema


def latest_schema(table: TableFiles, fresh: bool = False) -> TableSchema | None:
    """The current schema; None if the table does not exist.

    It is not read again while the listing shows it unchanged, where the store's listings do.  ``fresh``: it is, after
    what was read before turned out to be another table's.
    """
    if table.store.local_path(table.paths.schema_dir) is not None:
        latest = latest_schema_id(table)
        return None if latest is None else load_schema(table, latest)
    listed = {parse_id(f.name, "schema-"): f for f in table.store.list(table.paths.schema_dir)}
    files = {number: file for number, file in listed.items() if number is not None}
    table.store.caches[_LISTED].put(table.paths.schema_dir, files, _LISTED_BYTES * len(files))
    return _listed_schema(table, files, max(files), fresh) if files else None


def load_schemas(table: TableFiles, ids: Iterable[int]) -> dict[int, TableSchema]:
    """Load schema versions by id, in parallel, as :func:`load_schema` does.

    A file that the last listing (:func:`latest_schema`) shows unchanged is not read again.
    """
    files = table.store.caches[_LISTED].get(table.paths.schema_dir) or {}
    numbers = list(ids)
    runner = request_runner(table.store, table.paths.schema_dir)
    return dict(zip(numbers, runner.run(numbers, partial(_listed_schema, table, files)), strict=True))


def _listed_schema(
    table: TableFiles, files: Mapping[int, FileInfo], schema_id: int, fresh: bool = False
) -> TableSchema:
    """A schema version; from the cache if its file is listed with the same ETag as when it was read."""
    file = files.get(schema_id)
    if fresh or file is None or file.etag is None:
        return load_schema(table, schema_id)
    schema = table.store.caches[_TAGGED_SCHEMAS].get((table.paths.schema(schema_id), file.etag))
    return load_schema(table, schema_id) if schema is None else schema


def kept_words(ids: Sequence[int], asked: int | None = None, tags: Sequence[str] = ()) -> str:
    """Describe the kept snapshots, for an error about a missing one, ``asked``, and whether that one has expired."""
    if not ids:
        return "it has no snapshots"
    kept = f"snapshots {ids[0]} to {ids[-1]} are kept" if len(ids) > 1 else f"only snapshot {ids[0]} is kept"
    if asked is None or not 0 < asked < ids[0]:
        return kept
    return f"{kept}; {asked} has expired (a tag keeps a snapshot; its tags: {', '.join(tags) or 'none'})"


# --- tags and branches ------------------------------------------------------------------------------------------------


def existing_snapshots(table: TableFiles, ids: Iterable[int]) -> Iterator[Snapshot]:
    """The snapshots of these ids that still exist."""
    for number in ids:
        with contextlib.suppress(NotFound):
            yield load_snapshot(table, number)


def tag_names(table: TableFiles) -> list[str]:
    """The names of a table's (or branch's) tags."""
    files = (f.name for f in table.store.list(table.paths.tag_dir) if not f.is_dir)
    return sorted(name.removeprefix("tag-") for name in files if name.startswith("tag-"))


def tag_snapshot(table: TableFiles, name: str) -> Snapshot:
    """The snapshot a tag holds; raises :class:`NotFound`, and :class:`CorruptError` if it cannot be read."""
    path = table.paths.tag(name)
    return parse_snapshot(table, path, table.store.read(path, JSON_BYTES))


def branch_names(table: TableFiles) -> list[str]:
    """The names of a table's branches, without main."""
    names = (f.name for f in table.store.list(f"{table.paths.root}/branch"))
    return sorted(n.removeprefix("branch-") for n in names if n.startswith("branch-"))


_CHANGELOG = "changelog-"


def changelog_path(table: TableFiles, snapshot_id: int) -> str:
    """The path of a snapshot's long-lived changelog."""
    return f"{table.paths.branch_root}/changelog/{_CHANGELOG}{snapshot_id}"


def changelog_ids(table: TableFiles) -> list[int]:
    """The ids of the snapshots whose changes are kept, ascending."""
    ids = (parse_id(name, _CHANGELOG) for name in table.store.names(f"{table.paths.branch_root}/changelog"))
    return sorted(i for i in ids if i is not None)


def find_changelog(table: TableFiles, snapshot_id: int) -> Snapshot | None:
    """The expired snapshot of that id, from its long-lived changelog; None if its changes are not kept."""
    path = changelog_path(table, snapshot_id)
    try:
        return Snapshot.from_json(table.store.read(path, JSON_BYTES), path)
    except NotFound:
        return None


def delete_changelogs_after(table: TableFiles, snapshot_id: int) -> None:
    """Delete the long-lived changelogs of the snapshots that a rollback to ``snapshot_id`` removed, as Paimon does.

    New snapshots get these ids.  Files that only these changelogs name become orphans.
    """
    later = [number for number in changelog_ids(table) if number > snapshot_id]
    if not later:
        return
    # Without the hints, Paimon lists the folder.
    for hint in ("LATEST", "EARLIEST"):
        table.store.delete(f"{table.paths.branch_root}/changelog/{hint}")
    for number in reversed(later):
        table.store.delete(changelog_path(table, number))


def first_changelog_from(table: TableFiles, millis: int) -> Snapshot | None:
    """The first snapshot with a long-lived changelog that was committed at or after a time (ms since the epoch)."""
    ids = changelog_ids(table)

    def committed(number: int) -> int:
        changelog = find_changelog(table, number)
        return -1 if changelog is None else changelog.time_millis

    at = bisect.bisect_left(ids, millis, key=committed)
    return find_changelog(table, ids[at]) if at < len(ids) else None
