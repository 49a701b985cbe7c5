"""Tags made, moved and deleted; :mod:`bitlake.table.tag_files` reads them and draws their files.

Source: table-format spec, section 3; deleting follows Paimon's tag deletion, except that files which another branch
needs stay.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from bitlake import _clock
from bitlake.deletion import discard_files, not_through_links
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.metadata.snapshot import Snapshot
from bitlake.metadata.tag_options import DEFAULT_RETAINED
from bitlake.table.expiring import load_line, steadily
from bitlake.table.live import live_files, load_snapshot, snapshot_ids
from bitlake.table.partitions import PartitionReader
from bitlake.table.references import Needed, existing_snapshots, metadata_files, tag_snapshot
from bitlake.table.state import TableState
from bitlake.table.tag_files import Tag, list_tags, load_tag
from bitlake.table.versions import kept_words

__all__ = [
    "Tag",
    "create_tag",
    "delete_tag",
    "expire_tags",
    "list_tags",
    "load_tag",
    "rename_tag",
    "replace_tag",
]

_EPOCH = datetime(1970, 1, 1)


def create_tag(
    state: TableState,
    name: str,
    snapshot_id: int | None = None,
    *,
    retained_ms: int | None = None,
    if_not_exists: bool = False,
) -> bool:
    """Tag a snapshot (default: the latest); returns False if the tag was there and ``if_not_exists``.

    Without ``retained_ms`` it stays as long as the option ``tag.default-time-retained`` says, else until it is deleted.

    Raises :class:`AlreadyExists`, :class:`NotFound` for a snapshot that is not there (any more), and
    :class:`InvalidRequest` for a name that cannot be a file's.
    """
    if retained_ms is None:
        retained_ms = state.schema.opts.of(DEFAULT_RETAINED)
    data = _content(state, _checked(name), snapshot_id, retained_ms)
    if not state.store.create(state.paths.tag(name), data):
        if if_not_exists:
            return False
        raise AlreadyExists(
            f"table '{state.name}' has a tag '{name}' already; replace_tag (bitlake tag move) moves it to a snapshot"
        )
    _check_whole(state, name)
    return True


def replace_tag(
    state: TableState, name: str, snapshot_id: int | None = None, *, retained_ms: int | None = None
) -> None:
    """Move a tag to another snapshot, or give it another retention; raises :class:`NotFound`."""
    path = state.paths.tag(name)
    old = load_tag(state, name)
    before = state.store.read(path)
    state.store.write(path, _content(state, name, snapshot_id, retained_ms))
    try:
        whole = _is_whole(state, name)
        moved = tag_snapshot(state.store, state.paths, name).id
    except NotFound:  # another process has deleted or renamed the tag since
        return
    if not whole:
        if state.store.exists(state.paths.manifest(old.snapshot.base_manifest_list)):
            state.store.write(path, before)
        else:  # the table was replaced by another one
            state.store.delete(path)
        raise NotFound(f"table '{state.name}': snapshot {moved} expired while tag '{name}' was moved to it")
    _clean(state, old.snapshot)


def rename_tag(state: TableState, name: str, new_name: str) -> None:
    """Give a tag another name; the snapshot is held at every moment."""
    load_tag(state, name)
    old, new = state.paths.tag(name), state.paths.tag(_checked(new_name))
    text = state.store.read(old)
    if not state.store.create(new, text):
        raise AlreadyExists(f"table '{state.name}' has a tag '{new_name}' already")
    if not state.store.exists(old):
        state.store.delete(new)
        raise NotFound(f"table '{state.name}': tag '{name}' was deleted while it was renamed to '{new_name}'")
    state.store.delete(old)


def delete_tag(state: TableState, name: str, *, if_exists: bool = False) -> bool:
    """Delete a tag, and the files that only it kept; returns False if there was none and ``if_exists``.

    Files that a branch needs stay (Paimon deletes them, and with them the branch).
    """
    try:
        tag = load_tag(state, name)
    except NotFound:
        if if_exists:
            return False
        raise
    state.store.delete(state.paths.tag(name))
    _clean(state, tag.snapshot)
    return True


def expire_tags(state: TableState, older_than_ms: int | None = None, *, dry_run: bool = False) -> list[str]:
    """Delete the tags whose retention is over, or with ``older_than_ms`` those made before; returns their names.

    ``dry_run`` only looks.  Killed on the way, the next call goes on with the others.
    """
    now = _clock.local_ms()
    gone = []
    for tag in list_tags(state):
        made_before = older_than_ms is not None and tag.created_ms is not None and tag.created_ms < older_than_ms
        if made_before or (older_than_ms is None and tag.expired(now)):
            if not dry_run:
                delete_tag(state, tag.name, if_exists=True)
            gone.append(tag.name)
    return gone


def _checked(name: str) -> str:
    if not name.strip() or "/" in name or "\\" in name or name != name.strip():
        raise InvalidRequest(f"'{name}' cannot be a tag's name: it must not be blank, nor hold '/' or outer blanks")
    return name


def _content(state: TableState, name: str, snapshot_id: int | None, retained_ms: int | None) -> bytes:
    if snapshot_id is None:
        if state.snapshot is None:
            raise NotFound(f"table '{state.name}' has no snapshot to tag yet")
        snapshot_id = state.snapshot.id
    try:
        data = state.store.read(state.paths.snapshot(snapshot_id))
    except NotFound as e:
        held = next((t for t in list_tags(state) if t.snapshot.id == snapshot_id), None)
        if held is None:
            ids = snapshot_ids(state.store, state.paths)
            raise NotFound(f"table '{state.name}' has no snapshot {snapshot_id}: {kept_words(ids)}") from e
        data = held.snapshot.to_json().encode()
    if retained_ms is None:
        return data
    if retained_ms <= 0:
        raise InvalidRequest(f"tag '{name}': a retention must be longer than nothing")
    at = _EPOCH + timedelta(milliseconds=_clock.local_ms())
    parts = [at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond * 1000]
    text = data.decode().rstrip().removesuffix("}").rstrip()
    made = ", ".join(map(str, parts))
    return f'{text},\n  "tagCreateTime" : [ {made} ],\n  "tagTimeRetained" : {retained_ms / 1000:.9f}\n}}'.encode()


def _check_whole(state: TableState, name: str) -> None:
    """Take a tag back whose snapshot expired while it was made: its files may be gone."""
    if not _is_whole(state, name):
        number = tag_snapshot(state.store, state.paths, name).id
        state.store.delete(state.paths.tag(name))
        raise NotFound(f"table '{state.name}': snapshot {number} expired while tag '{name}' was made of it")


def _is_whole(state: TableState, name: str) -> bool:
    """Whether the files of a tag just written are there to stay: no expiry that began before it was seen has them."""
    snapshot = tag_snapshot(state.store, state.paths, name)
    if snapshot.id in load_line(state.store, state.paths).kept:
        # A rollback may have removed the snapshot, and another one may have its id.
        found = next(existing_snapshots(state.store, state.paths, [snapshot.id]), None)
        if found is not None and found.uuid == snapshot.uuid:
            return True
    return any(t.name != name and t.snapshot.id == snapshot.id for t in list_tags(state))


def _clean(state: TableState, snapshot: Snapshot) -> None:
    """Delete what a tag that is gone kept, if its snapshot is gone too; where others keep on expiring, orphans stay."""
    with contextlib.suppress(NotFound):
        paths = steadily(lambda: _kept_by(state, snapshot))
        discard_files(state.store, not_through_links(state.store, state.paths.roots, paths))


def _kept_by(state: TableState, snapshot: Snapshot) -> list[str]:
    """The files that only a tag of a snapshot keeps; raises :class:`NotFound` if the first snapshot goes meanwhile."""
    store, paths = state.store, state.paths
    if store.exists(paths.snapshot(snapshot.id)):
        return []  # what it names goes when it expires
    first = min(load_line(store, paths).kept, default=None)
    needed = Needed.beside(store, paths, None if first is None else load_snapshot(store, paths, first))
    partitions = PartitionReader(state.schema, paths)
    files = [e for e in live_files(store, paths, snapshot) if not needed.data_file(e)]
    data = [path for e in files for path in partitions.file_paths(e)]
    return [*data, *metadata_files(store, paths, state.schema, snapshot, needed)]
