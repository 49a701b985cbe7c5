"""Branches: a table's other lines of snapshots, sharing its data files, and going back to an earlier snapshot.

``branch/branch-<name>/`` holds ``schema/``, ``snapshot/``, ``tag/``, ``consumer/`` of its own; manifests, data and
index files are in the main table's folders.

Source: table-format spec, sections 1 and 10.
"""

from __future__ import annotations

import re

from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.metadata.paths import TablePaths, parse_id
from bitlake.metadata.snapshot import Snapshot
from bitlake.storage import Store
from bitlake.table.live import earliest_snapshot_id, load_snapshot, snapshot_ids
from bitlake.table.references import branch_names, tag_names, tag_snapshot
from bitlake.table.state import TableState
from bitlake.table.tags import load_tag

MAIN = "main"
_FORBIDDEN = re.compile(r"[/\\$\x00-\x1f]")  # a branch is opened by the name table$branch_name


def branch_paths(paths: TablePaths, name: str | None) -> TablePaths:
    """The paths of a branch of the same table; None or ``main`` is the main one."""
    return TablePaths(paths.root, None if name == MAIN else name, paths.data_directory)


def find_branch(state: TableState, name: str) -> TablePaths:
    """The paths of a branch that is there, other than main; raises :class:`NotFound` naming those that are."""
    if name == MAIN:
        raise InvalidRequest(
            f"'{MAIN}' is table '{state.name}' itself: it cannot be deleted, renamed or gone forward to; name a branch"
        )
    names = branch_names(state.store, state.paths)
    if name not in names:
        raise NotFound(f"table '{state.name}' has no branch '{name}'; its branches: {', '.join(names) or 'only main'}")
    return branch_paths(state.paths, name)


def create_branch(state: TableState, name: str, tag: str | None = None, *, if_not_exists: bool = False) -> bool:
    """Make a branch: of a tag's snapshot, or without one an empty one with today's schema.

    Returns False if it was there and ``if_not_exists``.  Raises :class:`AlreadyExists`, :class:`NotFound` for a tag
    that is not there, and :class:`InvalidRequest` for a name that cannot be one.
    """
    store, target = state.store, branch_paths(state.paths, _checked(name))
    if name in branch_names(store, state.paths):
        if if_not_exists:
            return False
        raise AlreadyExists(f"table '{state.name}' has a branch '{name}' already")
    last_schema = state.schema.id
    if tag is not None:
        snapshot = load_tag(state, tag).snapshot
        last_schema = snapshot.schema_id
        text = store.read(state.paths.tag(tag))
        store.write(target.tag(tag), text)
        store.write(target.snapshot(snapshot.id), snapshot.to_json().encode())
        # Whoever deletes the tag now sees the branch; whoever did before it was there has deleted its files.
        try:
            moved = store.read(state.paths.tag(tag)) != text
        except NotFound:
            moved = True
        if moved:
            store.delete_dir(target.branch_root)
            raise NotFound(
                f"table '{state.name}': tag '{tag}' was deleted or moved while branch '{name}' was made of it"
            )
    # A branch is there once it has a schema: written last, it is never seen half made.
    for number in range(last_schema + 1):
        try:
            store.write(target.schema(number), store.read(state.paths.schema(number)))
        except NotFound:
            continue
    return True


def delete_branch(state: TableState, name: str) -> None:
    """Delete a branch's folder; data files that only it used become orphans, which maintenance removes."""
    paths = find_branch(state, name)
    _check_unused(state, name)
    state.store.delete_dir(paths.branch_root)


def _check_unused(state: TableState, name: str) -> None:
    if state.paths.branch == name:
        raise InvalidRequest(
            f"branch '{name}' is in use: this table was opened on it; open the table on main to do that"
        )


def rename_branch(state: TableState, name: str, new_name: str) -> None:
    """Give a branch another name."""
    source, target = find_branch(state, name), branch_paths(state.paths, _checked(new_name))
    _check_unused(state, name)
    if new_name in branch_names(state.store, state.paths):
        raise AlreadyExists(f"table '{state.name}' has a branch '{new_name}' already")
    for kind in ("tag", "snapshot", "consumer", "schema"):
        _copy_folder(state.store, f"{source.branch_root}/{kind}", f"{target.branch_root}/{kind}")
    state.store.delete_dir(source.branch_root)


def fast_forward(state: TableState, name: str) -> None:
    """Make main what a branch is: its snapshots, schemas and tags replace main's from the branch's first snapshot on.

    Raises :class:`InvalidRequest` for a branch without snapshots.
    """
    store, main = state.store, branch_paths(state.paths, None)
    branch = find_branch(state, name)
    first = earliest_snapshot_id(store, branch)
    if first is None:
        raise InvalidRequest(f"table '{state.name}': branch '{name}' has no snapshot to go forward to")
    first_schema = load_snapshot(store, branch, first).schema_id
    # Without LATEST readers list the folder, and see whatever is the last snapshot then.
    store.delete(main.latest_hint)
    for tag in tag_names(store, main):
        if tag_snapshot(store, main, tag).id >= first:
            store.delete(main.tag(tag))
    for number in reversed(snapshot_ids(store, main)):
        if number >= first:
            store.delete(main.snapshot(number))
    for info in store.list(main.schema_dir):
        version = parse_id(info.name, "schema-")
        if version is not None and version >= first_schema:
            store.delete(main.schema(version))
    _copy_folder(store, branch.schema_dir, main.schema_dir)
    for number in snapshot_ids(store, branch):
        store.write(main.snapshot(number), store.read(branch.snapshot(number)))
    _copy_folder(store, branch.tag_dir, main.tag_dir)
    store.write(main.latest_hint, str(snapshot_ids(store, branch)[-1]).encode())


def rollback(state: TableState, snapshot: Snapshot) -> list[int]:
    """Make an earlier snapshot the latest again; returns the ids of the snapshots that are gone.

    ``snapshot`` may be one that only a tag still holds.  Files that the snapshots after it added become orphans.
    Raises :class:`InvalidRequest` if a tag holds a later snapshot: it would be of a history that is no more.
    """
    store, paths = state.store, state.paths
    later = [t for t in tag_names(store, paths) if tag_snapshot(store, paths, t).id > snapshot.id]
    if later:
        raise InvalidRequest(
            f"table '{state.name}' cannot go back to snapshot {snapshot.id}: tags {', '.join(later)} hold later ones; "
            "delete these tags first"
        )
    ids = snapshot_ids(store, paths)
    if snapshot.id not in ids:
        store.create(paths.snapshot(snapshot.id), snapshot.to_json().encode())
        store.write(paths.earliest_hint, str(snapshot.id).encode())
    store.write(paths.latest_hint, str(snapshot.id).encode())
    gone = [i for i in ids if i > snapshot.id]
    # From the last one down: whoever lists meanwhile sees the table as it was at one of them.
    for number in reversed(gone):
        store.delete(paths.snapshot(number))
    return gone


def _checked(name: str) -> str:
    if not name.strip() or name == MAIN or name.isdigit() or _FORBIDDEN.search(name) or name != name.strip():
        raise InvalidRequest(
            f"'{name}' cannot be a branch's name: it must not be blank, '{MAIN}', a number, nor hold '/', '\\', "
            "'$' or control characters"
        )
    return name


def _copy_folder(store: Store, source: str, target: str) -> None:
    for info in store.list(source):
        if not info.is_dir:
            store.write(f"{target}/{info.name}", store.read(f"{source}/{info.name}"))
