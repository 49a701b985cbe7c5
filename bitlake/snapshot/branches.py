"""Branches: lines of snapshots beside the main one, which share the table's data files.

``branch/branch-<name>/`` holds ``schema/``, ``snapshot/``, ``tag/``, ``consumer/`` of its own; manifests, data and
index files are in the main table's folders.

A branch exists when it has a schema.  Each change has one step that makes it visible:

* create: the branch's files are written to ``branch/.making-<uuid>``, which is renamed; an object store, which has no
  rename, writes them in place, schemas last, the latest first.  The tag is read again afterwards: deleting a tag reads
  the branches last.
* rename: the rename of the folder.  An object store copies it, schemas last, and deletes the old one, schemas first.
* delete: the folder is renamed to ``branch/.dropped-<uuid>``, then deleted; an object store deletes the schemas first.

If the process dies before that step, the old branches remain, and after it the new ones; a rename in an object store
may leave both names, with the same snapshots.  Left-over files have no schema: the next call replaces or deletes them.

A process that creates a branch, or renames one to its name, first creates the claim ``branch/.creating-<name>``, only
if absent, and then checks again whether the branch exists.  So one process at a time writes files of that name.  A
claim that a killed process leaves is ignored after a minute, not sooner: in an object store a slow process that lost
its claim would still write files of the branch.
Fast-forward is in :mod:`bitlake.snapshot.fast_forward`.

Of a table whose history a catalog's server changes (:meth:`~bitlake.io.base.Store.history_server`), the server writes
these files.

Source: table-format spec, sections 1 and 9.5.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bitlake import _clock, arguments
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, StorageUnavailable
from bitlake.formatting import counted
from bitlake.io import HistoryServer, Store, has_cheap_rename
from bitlake.metadata.options import branch_option
from bitlake.metadata.paths import DROPPED, parse_id
from bitlake.snapshot.fast_forward import FastForward, leaving
from bitlake.snapshot.iceberg_metadata import publish_history
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.tags import load_tag
from bitlake.snapshot.versions import branch_names, has_schema, latest_schema, snapshot_ids

MAIN = "main"
_CREATING = ".creating-"
_DEAD_MS = 60_000
"""Age of a claim whose process is taken for dead: a process writes a few small files while it holds one."""
_CLAIM_TRIES, _CLAIM_WAIT = 20, 0.05
"""Attempts to create a claim that another process holds, and seconds between them."""
_FORBIDDEN = re.compile(r"[/\\$\x00-\x1f]")  # a branch is opened by the name table$branch_name


def branches(state: TableState) -> list[str]:
    """The names of a table's branches that have a schema, without main."""
    return [name for name in branch_names(state.table_files) if _exists(state, name)]


def _exists(state: TableState, name: str) -> bool:
    return has_schema(state.table_files.on_branch(name))


def find_branch(state: TableState, name: str) -> TableFiles:
    """The files of a branch other than main; raises :class:`NotFound` naming those that exist."""
    if arguments.text("a branch name", name) == MAIN:
        raise InvalidRequest(
            f"'{MAIN}' is table '{state.name}' itself: it cannot be deleted, renamed or fast-forwarded to; name "
            "another branch"
        )
    if not _exists(state, name):
        names = ", ".join(branches(state)) or "only main"
        raise NotFound(f"table '{state.name}' has no branch '{name}'; its branches: {names}")
    return state.table_files.on_branch(name)


def create_branch(state: TableState, name: str, tag: str | None = None, *, if_not_exists: bool = False) -> bool:
    """Create a branch from a tag's snapshot, or without a tag an empty branch with the latest schema.

    Returns False if it exists and ``if_not_exists``.  Raises :class:`AlreadyExists`, :class:`NotFound` for a missing
    tag, and :class:`InvalidRequest` for an invalid name.
    """
    if _exists(state, _checked(name)):
        if if_not_exists:
            return False
        raise _taken(state, name)
    server = state.store.history_server(state.paths.root)
    if server is not None:
        return _create_by_server(server, state, name, tag, if_not_exists)
    try:
        with _claimed(state, name) as check:
            _write_branch(state, name, tag, check)
    except AlreadyExists:
        if if_not_exists and _exists(state, name):
            return False
        raise
    return True


@contextlib.contextmanager
def _claimed(state: TableState, name: str) -> Iterator[Callable[[], None]]:
    """Hold the claim to a branch's name while the block creates the branch's files.

    The block calls the yielded function before the files become visible: it raises if another process has the claim.
    Raises :class:`AlreadyExists` if the branch exists, or if another process is creating it.
    """
    store, path = state.store, f"{state.paths.root}/branch/{_CREATING}{name}"
    claim = f"{_clock.now_ms()}-{_clock.new_uuid()}".encode()
    tries = _CLAIM_TRIES
    while not store.create(path, claim):
        wait_ms = 0
        with contextlib.suppress(NotFound):
            since = parse_id(store.read(path).decode("ascii", "replace").partition("-")[0], "")
            wait_ms = 0 if since is None else _DEAD_MS - abs(_clock.now_ms() - since)
            if since is None or wait_ms < 0:
                store.delete(path)
                continue
        tries -= 1
        if _exists(state, name):
            raise _taken(state, name)
        if not tries:
            raise AlreadyExists(
                f"table '{state.name}': another process is creating branch '{name}'; if it was killed, try again in "
                f"{counted(max(1, -(-wait_ms // 1000)), 'second')}"
            )
        time.sleep(_CLAIM_WAIT)

    def check() -> None:
        if not _has_claim(store, path, claim):
            raise AlreadyExists(
                f"table '{state.name}': another process took over the creation of branch '{name}' after a minute; list "
                "the branches, and try again if it is missing"
            )

    try:
        if _exists(state, name):
            raise _taken(state, name)
        _delete_remains(state, name)
        yield check
    finally:
        if _has_claim(store, path, claim):
            store.delete(path)


def _has_claim(store: Store, path: str, claim: bytes) -> bool:
    try:
        return store.read(path) == claim
    except NotFound:
        return False


def _write_branch(state: TableState, name: str, tag: str | None, check: Callable[[], None]) -> None:
    store, target = state.store, state.paths.on_branch(name)
    last_schema = state.schema.id
    renames = has_cheap_rename(store, state.paths.root)
    folder = f"{state.paths.root}/branch/.making-{_clock.new_uuid()}" if renames else target.branch_root

    def put(path: str, data: bytes) -> None:
        store.write(folder + path.removeprefix(target.branch_root), data)

    text = b""
    if tag is not None:
        snapshot = load_tag(state, tag).snapshot
        last_schema = snapshot.schema_id
        text = store.read(state.paths.tag(tag))
        put(target.tag(tag), text)
        put(target.snapshot(snapshot.id), snapshot.to_json().encode())
    check()
    for number in reversed(range(last_schema + 1)):
        with contextlib.suppress(NotFound):
            put(target.schema(number), store.read(state.paths.schema(number)))
    if renames:
        check()
        try:
            store.rename(folder, target.branch_root)
        except StorageUnavailable:
            if not _exists(state, name):
                raise
            if store.dir_exists(folder):  # else it was renamed, and only the response was lost
                store.delete_dir(folder)
                raise _taken(state, name) from None
    if tag is not None:
        _check_tag(state, name, tag, text)


def _create_by_server(
    server: HistoryServer, state: TableState, name: str, tag: str | None, if_not_exists: bool
) -> bool:
    if tag is not None:
        load_tag(state, tag)
    try:
        server.create_branch(name, tag)
    except AlreadyExists as e:  # another client created it meanwhile
        if if_not_exists:
            return False
        raise _taken(state, name) from e
    except StorageUnavailable:
        if not _exists(state, name):
            raise
    return True


def _check_tag(state: TableState, name: str, tag: str, text: bytes) -> None:
    """Delete a new branch if its tag was deleted meanwhile: that call may not have seen the branch."""
    try:
        moved = state.store.read(state.paths.tag(tag)) != text
    except NotFound:
        moved = True
    if moved:
        _delete(state.table_files.on_branch(name))
        raise NotFound(
            f"table '{state.name}': tag '{tag}' was deleted or moved while branch '{name}' was created from it"
        )


def _taken(state: TableState, name: str) -> AlreadyExists:
    return AlreadyExists(f"table '{state.name}' already has a branch '{name}'")


def _delete_remains(state: TableState, name: str) -> None:
    """Delete the files that an interrupted call left of a branch without a schema."""
    store, folder = state.store, f"{state.paths.root}/branch"
    for entry in store.names(folder):
        if entry == f"branch-{name}" or entry.startswith(DROPPED):
            store.delete_dir(f"{folder}/{entry}")


def delete_branch(state: TableState, name: str) -> None:
    """Delete a branch's folder; data files that only the branch used become orphan files."""
    branch = find_branch(state, name)
    _check_unused(state, name)
    server = state.store.history_server(state.paths.root)
    if server is not None:
        server.delete_branch(name)
        return
    with leaving(branch, state.name):
        _delete(branch)


def _delete(branch: TableFiles) -> None:
    store, paths = branch.store, branch.paths
    if has_cheap_rename(store, paths.root):
        dropped = f"{paths.root}/branch/{DROPPED}{_clock.new_uuid()}"
        store.rename(paths.branch_root, dropped)
        store.delete_dir(dropped)
    else:
        store.delete_dir(paths.schema_dir)
        store.delete_dir(paths.branch_root)


def _check_unused(state: TableState, name: str) -> None:
    if state.paths.branch == name:
        raise InvalidRequest(f"branch '{name}' is in use: this table was opened on it; open the table on main instead")
    chosen = branch_option(state.schema.options)
    if chosen is not None and chosen[1] == name:
        raise InvalidRequest(
            f"table '{state.name}': branch '{name}' is in use: option '{chosen[0]}' names it; unset the option first"
        )


def rename_branch(state: TableState, name: str, new_name: str) -> None:
    """Rename a branch; raises :class:`NotFound`, :class:`AlreadyExists` and :class:`InvalidRequest`."""
    source, target = find_branch(state, name), state.paths.on_branch(_checked(new_name))
    _check_unused(state, name)
    if _exists(state, new_name):
        raise _taken(state, new_name)
    server = state.store.history_server(state.paths.root)
    if server is not None:
        _rename_by_server(server, state, name, new_name)
        return
    with _claimed(state, new_name) as check, leaving(source, state.name):
        check()
        state.store.rename(source.paths.branch_root, target.branch_root)


def _rename_by_server(server: HistoryServer, state: TableState, name: str, new_name: str) -> None:
    try:
        server.rename_branch(name, new_name)
    except StorageUnavailable:
        if _exists(state, name) or not _exists(state, new_name):
            raise


def fast_forward(state: TableState, name: str) -> None:
    """Replace main's snapshots, schemas and tags by a branch's, from the branch's first snapshot on.

    If interrupted, call it again to complete it (:mod:`bitlake.snapshot.fast_forward`).  Raises :class:`InvalidRequest`
    for a branch without snapshots, and while a fast-forward to another branch is unfinished.
    """
    main = state.table_files.on_branch(None)
    schema = state.schema if state.paths.branch is None else latest_schema(main)
    if schema is None:
        raise NotFound(f"table '{state.name}' was dropped or renamed meanwhile")
    branch, server = find_branch(state, name), state.store.history_server(state.paths.root)
    if server is None:
        FastForward(main, branch, state.name, schema).run()
    else:
        server.fast_forward(name)
        # The branch may begin before main's earliest snapshot, which the server leaves in the hint.
        main.store.write(main.paths.earliest_hint, str(min(snapshot_ids(main))).encode())
    publish_history(replace(state, paths=main.paths, schema=latest_schema(main) or schema))


def _checked(name: str) -> str:
    arguments.text("a branch name", name)
    if not name.strip() or name == MAIN or name.isdigit() or _FORBIDDEN.search(name) or name != name.strip():
        raise InvalidRequest(
            f"invalid branch name '{name}': it must not be blank, '{MAIN}' or a number, nor contain '/', '\\', '$' or "
            "control characters"
        )
    return name
