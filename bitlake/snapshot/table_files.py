"""The files of a table: the store that holds them, their paths, and how they are deleted.

Deletion never follows a symbolic link inside a table's folder, because it may lead anywhere.  The table's own folder
may be a link, and so may the folders above it: the caller named these.  Only local files have links; other stores are
not asked.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.metadata.paths import HINT_BYTES, TablePaths, parse_hint
from bitlake.progress import of_items
from bitlake.runtime import Runner

log = logging.getLogger("bitlake")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The store and the paths of a table, or of one branch of it."""

    store: Store
    paths: TablePaths

    def on_branch(self, name: str | None) -> TableFiles:
        """The files of a branch of the same table; None is main."""
        return replace(self, paths=self.paths.on_branch(name))


def read_hint(store: Store, path: str) -> int | None:
    """The number in a hint file; None if the file is missing or invalid."""
    try:
        return parse_hint(store.read(path, HINT_BYTES))
    except (NotFound, CorruptError):
        return None


# --- deletion and symbolic links --------------------------------------------------------------------------------------

_TOGETHER = 256
"""Files deleted by one call: one request to an object store, and enough calls for all threads elsewhere."""
_HISTORY = ("schema", "snapshot", "tag", "consumer", "changelog")


def not_through_links(store: Store, roots: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The paths that are reached from one of ``roots`` without a link; each folder is looked at once.

    Others are left out with a warning: the files stay.  The last name of a path may be a link, which deletion removes
    itself.
    """
    bases = [base.rstrip("/") for base in map(store.local_path, roots) if base is not None]
    plain: dict[str, bool] = {}
    out = []
    for path in paths:
        folder = path.rpartition("/")[0]
        known = plain.get(folder)
        if known is None:
            known = plain[folder] = _is_plain(bases, store.local_path(folder))
        if known:
            out.append(path)
    for folder in (f for f, known in plain.items() if not known):
        log.warning("%s leads through a symbolic link: its files are not deleted; delete them by hand", folder)
    return out


def _is_plain(bases: list[str], folder: str | None) -> bool:
    if folder is None:
        return True
    base = next((b for b in bases if folder == b or folder.startswith(f"{b}/")), None)
    return base is not None and _first_link(base, folder) is None


def first_link(store: Store, base: str, folder: str) -> str | None:
    """The first folder below ``base``, up to ``folder`` itself, that is a link; None without one."""
    low, high = store.local_path(base), store.local_path(folder)
    return None if low is None or high is None else _first_link(low.rstrip("/"), high)


def is_link(store: Store, path: str) -> bool:
    """Whether a file or folder is a link."""
    local = store.local_path(path)
    return local is not None and os.path.islink(local.rstrip("/"))


def _first_link(base: str, folder: str) -> str | None:
    at = base
    for name in filter(None, folder[len(base) :].split("/")):
        at = f"{at}/{name}"
        if os.path.islink(at):
            return at
    return None


def check_history(store: Store, paths: TablePaths) -> None:
    """Raise :class:`InvalidRequest` where a folder of snapshots, schemas, tags or consumers is a link.

    For what deletes or replaces such files by names that every table has.
    """
    folders = [f"{paths.root}/branch", *(f"{paths.branch_root}/{name}" for name in _HISTORY)]
    for folder in folders:
        link = first_link(store, paths.root, folder)
        if link is not None:
            raise InvalidRequest(
                f"table {paths.root}: {link} is a symbolic link, and files behind it may be another table's; put the "
                "folder itself there to change the table's history"
            )


def delete_files(store: Store, paths: Iterable[str], runner: Runner, roots: Iterable[str]) -> None:
    """Delete files, many at a time; those that are gone are passed over.

    Only what is below one of ``roots`` is deleted, and nothing behind a link.
    """
    names = not_through_links(store, roots, paths)
    of_items("files deleted", each=len)
    runner.run([names[i : i + _TOGETHER] for i in range(0, len(names), _TOGETHER)], store.delete_all)


def discard_files(store: Store, paths: Iterable[str]) -> None:
    """Delete files that nothing will name.  Storage errors are suppressed: they would hide the error that led here."""
    to_delete = list(paths)
    try:
        store.delete_all(to_delete)
    except StorageUnavailable:
        for path in to_delete:
            with contextlib.suppress(StorageUnavailable):
                store.delete(path)
