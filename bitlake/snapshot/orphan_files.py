"""Orphan files: files of a table that nothing refers to, left by killed writers, deleted branches and rollbacks.

Candidates are the files that writers create, on main and all branches: files in bucket folders, manifests and lists,
table index and statistics files, Spark's staging folder, temporary files of metadata.  Other files in the table's
folder stay.

A file is an orphan if it is older than a given time, and no snapshot, tag or changelog refers to it, as added or as
deleted.  Files are listed *before* snapshots are read, so that a file committed meanwhile is not taken for an orphan;
files of a running writer, to which nothing refers yet, are protected by their age alone.  If a snapshot cannot be read
completely, nothing is deleted, because its references are unknown.

Iceberg metadata (:mod:`bitlake.snapshot.iceberg_metadata`): manifests and manifest lists that no version of the table
metadata names.

Folders are listed level by level and metadata is read kind by kind, each kind at once, by a runner.  An object store
lists the folders of many partitions together, a thousand files a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from bitlake.errors import InvalidRequest, NotFound
from bitlake.io import Store
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestFileMeta
from bitlake.metadata.manifest_columns import decode_columns, name_hashes
from bitlake.metadata.paths import TablePaths, escape
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import of_items
from bitlake.runtime import REQUESTS, Runner
from bitlake.snapshot.iceberg_manifests import iceberg_folder, iceberg_orphans
from bitlake.snapshot.manifests import MANY_ENTRIES, read_index_manifest, read_manifest_list, read_manifests
from bitlake.snapshot.references import Holder, holders, lines
from bitlake.snapshot.removal_markers import steadily
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, first_link
from bitlake.snapshot.versions import branch_names

if TYPE_CHECKING:
    import numpy.typing as npt

    _Hashes: TypeAlias = npt.NDArray[np.uint64]

K = TypeVar("K")
T = TypeVar("T")
_FOLDERS_AT_ONCE = 1_024
"""Folders whose files are Python objects at once."""
_LISTED_TOGETHER = 256
"""Folders of one listing in an object store: some of these listings run at the same time."""
STAGING = ".staging"
"""The folder of a table in which writers collect files before they move them into place."""
_OWN = frozenset({"schema", "snapshot", "tag", "branch", "consumer", "changelog", "manifest", "index", "statistics"})
_ANY = re.compile("")
_NONE = re.compile(r"(?!)")
_METADATA = re.compile(r"^(manifest|manifest-list|index-manifest|index|stat)-|^\..*\.tmp$")
_TEMPORARY = re.compile(r"^\..*\.tmp$")


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphan file: its full path and size in bytes.

    >>> orphans = table.maintenance.remove_orphan_files(timedelta(hours=12))
    >>> sum(orphan.size for orphan in orphans)
    4
    """

    path: str
    size: int


def find_orphans(state: TableState, older_than_ms: int, runner: Runner) -> list[Orphan]:
    """The orphan files last modified before a time (ms since the epoch).

    Raises :class:`NotFound` or :class:`CorruptError` if metadata of a snapshot cannot be read.
    """
    iceberg = [Orphan(path, size) for path, size in iceberg_orphans(state, older_than_ms)]
    candidates = _candidates(state, older_than_ms, runner)
    if not len(candidates):
        return iceberg
    named = steadily(lambda: _named(state, runner))
    orphans = {o.path: o for o in candidates.without(named.hashes) if _name(o.path) not in named.names}
    return [*orphans.values(), *iceberg]


def orphan_roots(state: TableState) -> tuple[str, ...]:
    """The folders below which orphan files are."""
    folder = iceberg_folder(state)
    return state.paths.roots if folder is None else (*state.paths.roots, folder)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[1]


# --- candidates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to list: a pattern of candidate names, and which subfolders to list as well."""

    path: str
    candidates: re.Pattern[str]
    below: Literal["none", "all", "data"] = "none"


class _Candidates:
    """Files that may be orphans; of a million, arrays of hashes and sizes, and their names in one buffer.  Mutable."""

    def __init__(self) -> None:
        self._folders: list[str] = []
        self._parts: list[tuple[_Hashes, npt.NDArray[np.int64], npt.NDArray[np.int64], pa.Array]] = []

    def __len__(self) -> int:
        return sum(len(hashes) for hashes, *_ in self._parts)

    def add(self, listings: Iterable[tuple[str, Sequence[tuple[str, int]]]]) -> None:
        """Add files of folders: their names and sizes."""
        names, sizes, folders = [], [], []
        for path, files in listings:
            if files:
                names += [name for name, _ in files]
                sizes += [size for _, size in files]
                folders += [len(self._folders)] * len(files)
                self._folders.append(path)
        if names:
            stored = pa.array([name.encode("utf-8", "surrogateescape") for name in names], pa.large_binary())
            self._parts.append((name_hashes(names), np.array(folders, np.int64), np.array(sizes, np.int64), stored))

    def without(self, named: _Hashes) -> Iterator[Orphan]:
        """The files whose names have none of the hashes ``named``."""
        for hashes, folders, sizes, names in self._parts:
            at = np.flatnonzero(~np.isin(hashes, named))
            for place, folder, size in zip(at.tolist(), folders[at].tolist(), sizes[at].tolist(), strict=True):
                name = names[place].as_py().decode("utf-8", "surrogateescape")
                yield Orphan(f"{self._folders[folder]}/{name}", size)


def _candidates(state: TableState, older_than_ms: int, runner: Runner) -> _Candidates:
    """All files that are old enough and may be orphans."""
    store, root = state.store, state.paths.root
    level = [_Folder(f"{root}/{kind}", _METADATA) for kind in ("manifest", "index", "statistics")]
    for branch in (None, *branch_names(state.table_files)):
        paths = TablePaths(root, branch)
        folders = (paths.schema_dir, paths.snapshot_dir, paths.tag_dir, f"{paths.branch_root}/consumer")
        level += [_Folder(f, _TEMPORARY) for f in folders]
    level.append(_Folder(f"{root}/{STAGING}", _ANY, "all"))
    level = [folder for folder in level if first_link(store, root, folder.path) is None]
    own = {*_OWN, STAGING}
    names = [f.name for f in store.list(root) if f.is_dir and not f.is_link and f.name not in own]
    out = _Candidates()
    if store.list_below(root, ()) is None:
        level += [_data_folder(root, name) for name in names]
    else:
        _add_below(out, store, older_than_ms, root, names, runner)
    level += _external_folders(state)
    while level:
        of_items("folders")
        below: list[_Folder] = []
        for first in range(0, len(level), _FOLDERS_AT_ONCE):
            some = level[first : first + _FOLDERS_AT_ONCE]
            listings = runner.run(some, partial(_list, store, older_than_ms))
            out.add((folder.path, files) for folder, (files, _) in zip(some, listings, strict=True))
            below += [folder for _, folders in listings for folder in folders]
        level = below
    return out


def _add_below(
    out: _Candidates, store: Store, older_than_ms: int, root: str, names: Sequence[str], runner: Runner
) -> None:
    """Add the candidates in the data folders ``names`` of a table, which the store lists together."""
    ordered = sorted(names, key=lambda name: f"{name}/".encode())
    parts = [ordered[i : i + _LISTED_TOGETHER] for i in range(0, len(ordered), _LISTED_TOGETHER)]
    for first in range(0, len(parts), REQUESTS):
        of_items("folders", each=len)
        for listings in runner.run(parts[first : first + REQUESTS], partial(_list_below, store, older_than_ms, root)):
            out.add(listings)


def _list_below(
    store: Store, older_than_ms: int, root: str, names: Sequence[str]
) -> list[tuple[str, list[tuple[str, int]]]]:
    """The names and sizes of the candidates in data folders, by folder."""
    known = {f"{root}/{name}": _data_folder(root, name) for name in names}

    def folder_of(path: str) -> _Folder:
        folder = known.get(path)
        if folder is None:
            parent, _, name = path.rpartition("/")
            above = folder_of(parent)
            folder = known[path] = _data_folder(parent, name) if above.below == "data" else _Folder(path, _NONE)
        return folder

    out = []
    for path, files in store.list_below(root, names) or ():
        candidates = folder_of(path).candidates
        found = [(f.name, f.size) for f in files if f.mtime_ms < older_than_ms and candidates.search(f.name)]
        if found:
            out.append((path, found))
    return out


def _external_folders(state: TableState) -> list[_Folder]:
    """The bucket folders in the external paths of the table's options.

    Raises :class:`InvalidRequest` for a path that is not allowed, or that is the folder of another table.
    """
    store, options = state.store, state.schema.opts
    keys = [f"{escape(key)}=" for key in state.schema.partition_keys]
    out = []
    for root in options.of(opt.EXTERNAL_PATHS) or ():
        state.paths.external(f"{root}/file", f"of the option '{opt.EXTERNAL_PATHS.name}', the path")
        if store.dir_exists(f"{root}/schema") or store.dir_exists(f"{root}/snapshot"):
            raise InvalidRequest(
                f"table '{state.name}': the external path {root} is the folder of a table, whose files would be "
                f"deleted as orphans; change the option '{opt.EXTERNAL_PATHS.name}'"
            )
        directory = options.of(opt.DATA_FILE_DIRECTORY)
        folders = [root if directory is None else f"{root}/{directory}"]
        for key in (*keys, "bucket-"):
            folders = [
                f"{folder}/{f.name}"
                for folder in folders
                for f in store.list(folder)
                if f.is_dir and not f.is_link and f.name.startswith(key)
            ]
        out += [_Folder(folder, _ANY, "all") for folder in folders]
    return out


def _data_folder(parent: str, name: str) -> _Folder:
    path = f"{parent}/{name}"
    return _Folder(path, _ANY) if name.startswith("bucket-") else _Folder(path, _NONE, "data")


def _list(store: Store, older_than_ms: int, folder: _Folder) -> tuple[list[tuple[str, int]], list[_Folder]]:
    """The names and sizes of a folder's candidates, and the folders to list below it."""
    files, below = [], []
    for f in store.list(folder.path):
        if f.is_link:
            continue  # a link leads to files outside of the table
        if not f.is_dir:
            if f.mtime_ms < older_than_ms and folder.candidates.search(f.name):
                files.append((f.name, f.size))
        elif folder.below == "all":
            below.append(_Folder(f"{folder.path}/{f.name}", _ANY, "all"))
        elif folder.below == "data":
            below.append(_data_folder(folder.path, f.name))
    return files, below


# --- references ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Named:
    """The bare names of files that metadata refers to; each contains a UUID.

    Of data files in large manifests there are only hashes.
    """

    names: set[str]
    hashes: _Hashes

    def add(self, other: _Named) -> None:
        self.names |= other.names
        self.hashes = np.union1d(self.hashes, other.hashes)


def _named(state: TableState, runner: Runner) -> _Named:
    """The names of all files that snapshots and tags of all branches refer to.

    Lines are listed until nothing is new, so that a tag or branch is found that replaces another one meanwhile.
    """
    main = state.table_files.on_branch(None)
    seen: set[str] = set()
    named = _Named(set(), np.zeros(0, np.uint64))
    while True:
        new = []
        for line in lines(main):
            # Files that only later snapshots refer to are younger than running writes.
            known = line.paths.snapshot_dir in seen
            new += [h for h in holders(line) if h.path not in seen and not (known and h.snapshot_id is not None)]
            seen.add(line.paths.snapshot_dir)
        if not new:
            return named
        seen.update(h.path for h in new)
        named.add(_named_by(main, new, runner))


def _named_by(table: TableFiles, unseen: list[Holder], runner: Runner) -> _Named:
    by_path = {h.path: h for h in unseen}

    def held(path: str) -> bool:
        return by_path[path].holds() and not by_path[path].partial

    names: set[str] = set()
    lists: dict[str, list[str]] = {}
    indexes: dict[str, list[str]] = {}
    snapshots = _read_all(held, runner, by_path, partial(_snapshot, table.store), lambda path: (path,))
    for path, snapshot in snapshots.items():
        own = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
        for name in own:
            if name is not None:
                lists.setdefault(name, []).append(path)
        if snapshot.index_manifest is not None:
            indexes.setdefault(snapshot.index_manifest, []).append(path)
        if snapshot.statistics is not None:
            names.add(snapshot.statistics)
    manifests: dict[ManifestFileMeta, list[str]] = {}
    for name, listed in _read_all(held, runner, lists, partial(read_manifest_list, table), lists.__getitem__).items():
        for meta in listed:
            manifests.setdefault(meta, []).append(name)
    files = _read_all(
        held, runner, manifests, partial(_files, table), lambda m: (p for n in manifests[m] for p in lists[n])
    )
    tables = _read_all(held, runner, indexes, partial(_index_files, table), indexes.__getitem__)
    names = names.union(
        lists, (m.file_name for m in manifests), indexes, *(own for own, _ in files.values()), *tables.values()
    )
    return _Named(names, np.unique(np.concatenate([np.zeros(0, np.uint64), *(h for _, h in files.values())])))


def _snapshot(store: Store, path: str) -> Snapshot:
    return Snapshot.from_json(store.read(path), path)


def _files(table: TableFiles, meta: ManifestFileMeta) -> tuple[list[str], _Hashes]:
    """The names of a manifest's files, or of a large one's the hashes of data files and the names of those beside them.

    Raises :class:`CorruptError` if entries are missing: their files must not be taken for orphans.
    """
    if meta.entry_count >= MANY_ENTRIES:
        (columns,) = decode_columns([table.store.read(table.paths.manifest(meta.file_name))])
        if columns is not None and len(columns) == meta.entry_count:
            with_extras = columns.entries(np.flatnonzero(columns.has_extras))
            return [name for e in with_extras for name in e.file.extra_files], columns.name_hash
    (entries,) = read_manifests(table, [meta])
    return [n for e in entries for n in (e.file.file_name, *e.file.extra_files)], np.zeros(0, np.uint64)


def _index_files(table: TableFiles, name: str) -> list[str]:
    return [e.file_name for e in read_index_manifest(table, name)]


def _read_all(
    held: Callable[[str], bool],
    runner: Runner,
    names: Iterable[K],
    read: Callable[[K], T],
    holding: Callable[[K], Iterable[str]],
) -> dict[K, T]:
    """Read the file of each item, without those that are missing because all their holders expired meanwhile."""
    all_names: Sequence[K] = list(names)
    out: dict[K, T] = {}
    of_items("metadata files")
    for name, result in zip(all_names, runner.run(all_names, partial(_try_read, read)), strict=True):
        if not isinstance(result, NotFound):
            out[name] = result
        elif any(map(held, holding(name))):
            raise result
    return out


def _try_read(read: Callable[[K], T], name: K) -> T | NotFound:
    try:
        return read(name)
    except NotFound as e:
        return e
