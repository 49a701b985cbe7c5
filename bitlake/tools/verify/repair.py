"""Repair hints, file indexes and HASH indexes, without changing a row.

All of these can be rebuilt from what is sound: hints from the existing snapshots, a file index from its data file, a
HASH index from the keys of its bucket.  Nothing else is repaired: a data file, a deletion vector, a manifest that is
lost or damaged says something that nothing else knows.  Only the latest snapshot is repaired, by a new one; older
snapshots, tags and branches keep naming what they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.fileindex.container import encode_container
from bitlake.formatting import counted, printable
from bitlake.io import Store
from bitlake.metadata.index_manifest import HASH, IndexFileEntry
from bitlake.metadata.manifest import INDEX_SUFFIX, EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.runtime import Runner
from bitlake.snapshot.index_files import IndexChange, read_hashes, write_hashes
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, check_history, discard_files
from bitlake.snapshot.versions import branch_names
from bitlake.tableindex.hash_index import java_order
from bitlake.tools.verify.findings import Finding, VerifyReport
from bitlake.tools.verify.indexes import KeyFile, key_hashes
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan
from bitlake.write.data_file_writer import DataFileFactory
from bitlake.write.index_rewrite import RewriteTask, plan_rewrite, rewrite_file

Indexes = Literal["rebuild", "drop"]
_HINTS = frozenset({"hint-wrong", "hint-ahead"})
_FILE_INDEXES = frozenset({"index-missing", "index-unreadable", "index-wrong", "index-twice", "index-unknown"})
_HASHES = frozenset({"hash-missing", "hash-unreadable", "hash-incomplete"})
_UNSOUND = frozenset({"data-missing", "data-unreadable", "data-size-wrong", "row-count-wrong"})


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that repairing does: ``what`` in words, to the file ``path``, because of ``code``."""

    what: str
    path: str
    code: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of a table, planned or done; ``left`` are findings that it cannot repair.

    ``done``: whether it was carried out; ``snapshot``: the snapshot that came of it, None if none was needed.

    >>> repair = table.maintenance.repair()
    >>> repair.actions, repair.done
    ((), False)
    >>> print(repair.text())
    Table 'default.orders': nothing to repair.
    >>> repair.to_dict()
    {'table': 'default.orders', 'done': False, 'snapshot': None, 'actions': [], 'left': []}
    """

    table: str
    actions: tuple[Action, ...]
    left: tuple[Finding, ...]
    done: bool = False
    snapshot: int | None = None

    def __repr__(self) -> str:
        what = "done" if self.done else "planned"
        left = counted(len(self.left), "finding")
        return f"Repair({self.table}: {counted(len(self.actions), 'action')} {what}, {left} left)"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.table,
            "done": self.done,
            "snapshot": self.snapshot,
            "actions": [{"what": a.what, "file": a.path, "code": a.code} for a in self.actions],
            "left": [f.to_dict() for f in self.left],
        }

    def text(self) -> str:
        """Return the repair as text."""
        lines = [f"Table '{self.table}': nothing to repair."]
        if self.actions:
            n = len(self.actions)
            head = f"{n:,} {'repair' if n == 1 else 'repairs'}"
            lines = [f"Table '{self.table}': {head} {'done' if self.done else 'planned; nothing was changed'}."]
            lines += [f"  {a.what:<14} {a.path}  ({a.code})" for a in self.actions]
        if self.snapshot is not None:
            lines.append(f"Snapshot {self.snapshot} has the new indexes; older snapshots still name the old ones.")
        left = [f for f in self.left if not f.past]  # findings of expiring snapshots need no action
        if left:
            lines.append(f"Not repaired, for it takes a decision or a copy of the table ({len(left):,}):")
            lines += [f"  {f.code:<14} {f.path}: {f.remedy}" for f in left]
        return printable("\n".join(lines))

    def __str__(self) -> str:
        return self.text()


def plan_repair(state: TableState, report: VerifyReport, indexes: Indexes) -> Repair:
    """Plan the repair of a report's findings."""
    if indexes not in ("rebuild", "drop"):
        raise InvalidRequest(f"damaged indexes are rebuilt ('rebuild') or dropped ('drop'), not '{indexes}'")
    work = _Work(state, report)
    word = "build index" if indexes == "rebuild" else "drop index"
    actions = [Action("write hint", f.path, f.code) for f in report.findings if f.code in _HINTS]
    actions += [Action(word, path, code) for path, (_, code) in work.files.items()]
    actions += [Action("build HASH", path, code) for path, (_, code) in work.buckets.items()]
    left = tuple(f for f in report.findings if f not in work.covered)
    return Repair(state.name, tuple(actions), left)


def carry_out(
    state: TableState,
    report: VerifyReport,
    indexes: Indexes,
    runner: Runner,
    user: str,
) -> Repair:
    """Carry out the plan of :func:`plan_repair`.

    Raises :class:`CommitConflict` if another writer changed the same files meanwhile: verify and repair again.
    """
    check_history(state.store, state.paths)
    plan = plan_repair(state, report, indexes)
    work = _Work(state, report)
    _write_hints(state.store, state.paths, {a.path for a in plan.actions if a.what == "write hint"})
    entries = [e for e, _ in work.files.values()]
    adds, made = _new_indexes(state, entries, indexes, runner)
    changes: list[IndexChange] = []

    def discard() -> None:
        written = [index_path(state.paths, state.schema, e) for c in changes for e in c.new]
        discard_files(state.store, [*made, *written])

    try:
        for slot, _ in work.buckets.values():
            changes.append(_new_hashes(state, slot))
    except BaseException:
        discard()
        raise
    outcome = None
    if adds or changes:
        deletes = tuple(replace(e, kind=EntryKind.DELETE) for e in entries)
        commit_plan = CommitPlan(kind="COMPACT", adds=tuple(adds), deletes=deletes, index=tuple(changes))
        outcome = commit(state.store, state.paths, commit_plan, state.schema, user, on_failure=discard)
    return replace(plan, done=True, snapshot=None if outcome is None else outcome.id)


class _Work:
    """The live files and buckets of the findings, with these findings."""

    def __init__(self, state: TableState, report: Any) -> None:
        if not isinstance(report, VerifyReport):
            raise InvalidRequest(f"report must be a result of verify(), and is {report!r}")
        self.files: dict[str, tuple[ManifestEntry, str]] = {}
        self.buckets: dict[str, tuple[tuple[bytes, int], str]] = {}
        self.covered: set[Finding] = {f for f in report.findings if f.code in _HINTS}
        wanted = [f for f in report.findings if f.code in _FILE_INDEXES | _HASHES and _is_now(f, state, report)]
        if not wanted or state.snapshot is None:
            return
        unsound = {f.path for f in report.findings if f.code in _UNSOUND}
        self._find(state, wanted, unsound)

    def _find(self, state: TableState, wanted: Sequence[Finding], unsound: set[str]) -> None:
        partitions = PartitionReader(state.schema, state.paths)
        by_path: dict[str, tuple[str, ManifestEntry]] = {}
        folders: dict[str, tuple[bytes, int]] = {}
        for e in state.entries():
            path = partitions.data_path(e)
            folder = path.rsplit("/", 1)[0]
            folders[folder] = (e.partition, e.bucket)
            by_path[path] = path, e
            for extra in e.file.extra_files:
                by_path[f"{folder}/{extra}"] = path, e
        hashes = {
            index_path(state.paths, state.schema, i): (i.partition, i.bucket)
            for i in index_entries(state.table_files, state.snapshot)
            if i.index_type == HASH
        }
        bad = {p.rsplit("/", 1)[0] for p in unsound}
        for f in wanted:
            if f.code in _FILE_INDEXES:
                files = by_path.get(f.path)
                if files is not None and files[0] not in unsound:
                    self.files.setdefault(files[0], (files[1], f.code))
                    self.covered.add(f)
            else:
                slot = hashes.get(f.path) or folders.get(f.path)
                if slot is not None and not any(folders.get(folder) == slot for folder in bad):
                    self.buckets.setdefault(f.path, (slot, f.code))
                    self.covered.add(f)


def _is_now(finding: Finding, state: TableState, report: VerifyReport) -> bool:
    """Whether the latest snapshot of the table, or of its branch, had the fault when the report was made."""
    branch = state.paths.branch
    ends = f" of branch {branch}" if branch else ""
    last = [m for m in report.last if (m.endswith(ends) if ends else " of branch " not in m)]
    return not finding.snapshots or not last or last[0] in finding.snapshots


# --- hints ------------------------------------------------------------------------------------------------------------


def _write_hints(store: Store, paths: TablePaths, wrong: set[str]) -> None:
    for name in (None, *branch_names(TableFiles(store, paths))):
        line = paths.on_branch(name)
        for path, end in ((line.latest_hint, -1), (line.earliest_hint, 0)):
            if path not in wrong:
                continue
            ids = load_line(TableFiles(store, line)).kept
            if ids:
                store.write(path, str(ids[end]).encode())
            else:
                store.delete(path)


# --- file indexes -----------------------------------------------------------------------------------------------------


def _new_indexes(
    state: TableState, entries: Sequence[ManifestEntry], indexes: Indexes, runner: Runner
) -> tuple[list[ManifestEntry], list[str]]:
    """Entries with new indexes, and the index files written for them; on an error these are deleted again."""
    # As if there were none: what is there is not to be trusted.
    bare = [replace(e, file=replace(e.file, embedded_index=None, extra_files=_others(e))) for e in entries]
    tasks = plan_rewrite(state, bare)
    if indexes == "drop":
        tasks = [replace(t, specs=()) for t in tasks]
    maker = DataFileFactory(state.paths, state.schema, state.store)
    try:
        adds = runner.run(tasks, partial(_rebuilt, state.store, maker))
    except BaseException:
        discard_files(state.store, [t.new_path for t in tasks])
        raise
    return adds, [t.new_path for t in tasks]


def _others(entry: ManifestEntry) -> tuple[str, ...]:
    return tuple(n for n in entry.file.extra_files if not n.endswith(INDEX_SUFFIX))


def _rebuilt(store: Store, maker: DataFileFactory, task: RewriteTask) -> ManifestEntry:
    entry = rewrite_file(store, maker, task).new
    if entry is not None:
        return entry
    # Nothing is indexed: a container of nothing, and a mark, for an entry that was deleted must not come back the same.
    mark = _clock.new_uuid()[:8].encode()
    empty = encode_container({}, mark=mark, checksums=True)
    return replace(task.entry, file=replace(task.entry.file, embedded_index=empty))


# --- HASH indexes -----------------------------------------------------------------------------------------------------


def _new_hashes(state: TableState, slot: tuple[bytes, int]) -> IndexChange:
    """A bucket's HASH index with what it held and the keys of all live files."""
    store, paths, schema = state.store, state.paths, state.schema
    entries = [e for e in state.entries() if (e.partition, e.bucket) == slot]
    schemas = state.schemas({e.file.schema_id for e in entries})
    partitions = PartitionReader(schema, paths)
    base: tuple[IndexFileEntry, ...] = tuple(
        i
        for i in index_entries(TableFiles(store, paths), state.snapshot)
        if i.index_type == HASH and (i.partition, i.bucket) == slot
    )
    parts = [np.zeros(0, np.int32), *_readable(state, base)]
    parts += [key_hashes(store, KeyFile(partitions.data_path(e), schemas[e.file.schema_id])) for e in entries]
    written = write_hashes(TableFiles(store, paths), schema, *slot, java_order(np.unique(np.concatenate(parts))))
    return IndexChange(*slot, HASH, base, (written,))


def _readable(state: TableState, entries: Iterable[IndexFileEntry]) -> list[Any]:
    """Read HASH files, except those that cannot be read: only keys of deleted rows are lost, which is harmless."""
    out = []
    for e in entries:
        try:
            out.append(read_hashes(state.table_files, state.schema, e))
        except BitlakeError:
            continue
    return out
