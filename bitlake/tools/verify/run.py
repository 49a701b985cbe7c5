"""Run a verification: small metadata files first, then the files they name, each once; a runner does the heavy work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from bitlake import _clock
from bitlake.errors import BitlakeError
from bitlake.formatting import DAY_MS
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH
from bitlake.metadata.manifest import ManifestEntry, ManifestFileMeta, by_bucket
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import REQUESTS, Item, LocalRunner, Result, Runner
from bitlake.scan.column_reader import forget_file
from bitlake.snapshot.orphan_files import find_orphans
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.tools.verify import metadata
from bitlake.tools.verify.data import DataTask, check_data_file
from bitlake.tools.verify.findings import Book, Finding, VerifyReport, by_severity
from bitlake.tools.verify.history import Files, HistoryCheck, Known, LiveSet
from bitlake.tools.verify.indexes import (
    HashTask,
    KeyFile,
    LiveFile,
    OnceTask,
    Options,
    VectorTask,
    check_hashes,
    check_once,
    check_vectors,
    index_options,
)

_FEW = 64
"""Small files read in this process whatever the runner."""


def verify_table(
    name: str,
    paths: TablePaths,
    store: Store,
    runner: Runner,
    *,
    deep: bool = True,
    snapshots: Collection[int] | None = None,
    orphans: bool = True,
) -> VerifyReport:
    """Check a table; see :meth:`bitlake.table.maintenance.TableMaintenance.verify`."""
    verify = _Verify(name, paths, store.uncached, runner, deep, snapshots, partial(forget_file, store))
    report = verify.run(orphans and snapshots is None)
    for path in {f.path for f in report.findings} - {task.path for task, _ in verify.tasks.values()}:
        store.drop_cached(path)
    return report


@dataclass(frozen=True, slots=True)
class _FewHere:
    """A runner that leaves many items to another one, and does few of them on threads of this process."""

    many: Runner

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""
        return (LocalRunner(REQUESTS) if len(items) <= _FEW else self.many).run(items, fn)


Task = TypeVar("Task")
Content = TypeVar("Content")
_Holders = dict[ManifestEntry, list[str]]
"""A data file's entries, with the moments that need each."""


@dataclass(slots=True)
class _Verify:
    name: str
    paths: TablePaths
    store: Store
    runner: Runner
    deep: bool
    snapshots: Collection[int] | None
    forget: Callable[[str], None]
    """Drops what is cached of a data file."""
    book: Book = field(default_factory=Book)
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of data files by name."""
    tasks: dict[tuple[str, str], tuple[DataTask, _Holders]] = field(default_factory=dict)
    """Data files to check by path and schema, with the moments that need them, entry by entry."""

    @property
    def light(self) -> Runner:
        """For metadata: a job on executors takes longer than reading a few small files here."""
        return _FewHere(self.runner)

    def run(self, orphans: bool) -> VerifyReport:
        lines = metadata.read_lines(self.store, self.paths, self.snapshots, self.book)
        known = self._metadata(lines)
        self._statistics(lines)
        self.rows = {e.file.file_name: e.file.row_count for entries in known.manifests.values() for e in entries}
        for line in lines:
            files = Files()
            HistoryCheck(line, known, files, self.book).run()
            if line.latest is not None:
                self._gather(line, line.latest, files)
                self._table_indexes(line, line.latest, files, known)
        self._data()
        for line in lines if self.snapshots is None else ():
            metadata.check_hints(self.store, line, self.book)
        left = self._orphans(lines) if orphans else None
        findings = self._still_there(lines)
        last = tuple(_last_moments(lines))
        return VerifyReport(self.name, self.deep, findings, dict(self.book.counts), dict(self.book.more), left, last)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _metadata(self, lines: Sequence[metadata.Line]) -> Known:
        """Read all manifest lists, manifests and index manifests, each once."""
        sizes: dict[str, list[int]] = {}
        indexes: dict[str, list[str]] = {}
        holders: dict[str, list[str]] = {}
        for moment in _moments(lines):
            for listed, size in _lists(moment):
                sizes.setdefault(listed, [])
                if size is not None:
                    sizes[listed].append(size)
                holders.setdefault(listed, []).append(moment.name)
            if moment.snapshot.index_manifest is not None and moment.path.rsplit("/", 2)[-2] != "changelog":
                indexes.setdefault(moment.snapshot.index_manifest, []).append(moment.name)
        lists = self._read_each(
            "manifest_lists",
            metadata.read_list,
            {n: metadata.ListTask(self.paths.manifest(n), tuple(s)) for n, s in sizes.items()},
            holders,
        )
        paths = {n: self.paths.manifest(n) for n in indexes}
        read = self._read_each("index_manifests", metadata.read_index_manifest, paths, indexes)
        return Known(lists, self._manifests(lines, lists, holders), read)

    def _read_each(
        self,
        what: str,
        read: Callable[[Store, Task], metadata.Read[Content]],
        tasks: Mapping[str, Task],
        holders: Mapping[str, Collection[str]],
    ) -> Mapping[str, Content]:
        """Read files of one kind, each once; returns the contents of those that can be read, by name."""
        reads = self.light.run(list(tasks.values()), partial(read, self.store))
        for name, content in zip(tasks, reads, strict=True):
            self.book.count(what)
            self.book.add_all(content.findings, list(holders[name]))
        return {n: r.content for n, r in zip(tasks, reads, strict=True) if r.content is not None}

    def _manifests(
        self,
        lines: Sequence[metadata.Line],
        lists: Mapping[str, tuple[ManifestFileMeta, ...]],
        holders: Mapping[str, Sequence[str]],
    ) -> Mapping[str, tuple[ManifestEntry, ...]]:
        metas: dict[str, dict[ManifestFileMeta, None]] = {}
        named: dict[str, dict[str, None]] = {}
        for listed, held in lists.items():
            for meta in held:
                metas.setdefault(meta.file_name, {})[meta] = None
                # A manifest is held by every list since; where it was first and last is enough.
                named.setdefault(meta.file_name, {}).update(dict.fromkeys(holders[listed]))
        schema = next((line.latest for line in lines if line.latest is not None), None)
        types = () if schema is None else tuple(f.type for f in schema.partition_fields)
        tasks = {n: metadata.ManifestTask(self.paths.manifest(n), tuple(held), types) for n, held in metas.items()}
        return self._read_each("manifests", metadata.read_manifest, tasks, named)

    def _statistics(self, lines: Sequence[metadata.Line]) -> None:
        named: dict[str, list[str]] = {}
        for moment in (m for line in lines for m in line.moments):
            if moment.snapshot.statistics is not None:
                named.setdefault(moment.snapshot.statistics, []).append(moment.name)
        for name, moments in named.items():
            self.book.count("statistics")
            self.book.add_all(metadata.check_statistics(self.store, self.paths.statistics(name)), moments)

    # --- data files ---------------------------------------------------------------------------------------------------

    def _gather(self, line: metadata.Line, latest: TableSchema, files: Files) -> None:
        """Note the data files that a line needs: what branches share is read once."""
        reader = PartitionReader(latest, line.paths)
        options: dict[int, Options] = {}
        texts = {i: s.to_json() for i, s in line.schemas.items()}
        for changelog, needed in ((False, files.data), (True, files.changelogs)):
            for (partition, _), named in needed.items():
                try:
                    values = reader.values(partition)
                except BitlakeError:
                    continue  # told by the manifest
                for entries in named.values():
                    first = next(iter(entries))
                    path = reader.data_path(first)
                    number = first.file.schema_id
                    schema = line.schemas.get(number)
                    if schema is None:
                        self._schema_missing(line, number, path)
                        continue
                    if number not in options:
                        others = [line.schemas[i] for i in sorted(line.schemas, reverse=True) if i != number]
                        options[number] = index_options([schema, *others])
                    made = DataTask(path, tuple(entries), schema, values, options[number], changelog, self.deep)
                    task, held = self.tasks.get((path, texts[number]), (made, {}))
                    merged = replace(task, entries=tuple(dict.fromkeys((*task.entries, *entries))))
                    for entry, moments in entries.items():
                        held[entry] = [*held.get(entry, ()), *moments]
                    self.tasks[path, texts[number]] = merged, held

    def _data(self) -> None:
        tasks = [task for task, _ in self.tasks.values()]
        found = self.runner.run(tasks, partial(check_data_file, self.store))
        for checked, (task, held) in zip(found, self.tasks.values(), strict=True):
            self.book.count("data_files")
            self.book.count("rows", checked.rows)
            self.book.count("bytes", checked.size)
            self.book.count("file_indexes", checked.indexes)
            if checked.findings:
                self.forget(task.path)
            for finding in checked.findings:
                entries = [task.entries[i] for i in checked.concerned.get(finding, range(len(task.entries)))]
                self.book.add_all([finding], list(dict.fromkeys(m for e in entries for m in held[e])))

    def _schema_missing(self, line: metadata.Line, number: int, path: str) -> None:
        if number not in line.unreadable:
            what = f"the file is not there, and data file {path.rsplit('/', 1)[1]} was written with it"
            self.book.add(Finding("schema-missing", line.paths.schema(number), what))

    # --- table indexes ------------------------------------------------------------------------------------------------

    def _table_indexes(self, line: metadata.Line, latest: TableSchema, files: Files, known: Known) -> None:
        vectors = [e for e in files.indexes if e.index_type == DELETION_VECTORS]
        tasks = []
        for e in vectors:
            named = {r.data_file for r in e.ranges or ()}
            rows = {n: self.rows[n] for n in named if n in self.rows}
            tasks.append(VectorTask(index_path(line.paths, latest, e), e, rows))
        for e, checked in zip(vectors, self.runner.run(tasks, partial(check_vectors, self.store)), strict=True):
            self.book.count("vectors", len(e.ranges or ()))
            self.book.add_all(checked, files.indexes[e])
        self._hashes(line, latest, files)
        if self.deep and files.last is not None:
            self._once(line, latest, files.last, known)

    def _once(
        self, line: metadata.Line, latest: TableSchema, last: tuple[metadata.Moment, LiveSet], known: Known
    ) -> None:
        """Check the latest snapshot: tables whose rows above level 0 are read as they are have each key once there."""
        moment, live = last
        vectors = latest.opts.of(opt.DV_ENABLED)
        if not latest.primary_keys or not (vectors or latest.opts.of(opt.MERGE_ENGINE) == "first-row"):
            return
        index = moment.snapshot.index_manifest
        if vectors and index is not None and index not in known.indexes:
            return
        places = {
            place.data_file: (index_path(line.paths, latest, e), e.file_size, place)
            for e in (known.indexes[index] if vectors and index is not None else ())
            for place in e.ranges or ()
        }
        reader = PartitionReader(latest, line.paths)
        tasks = []
        for entries in live.buckets.values():
            files = [
                LiveFile(KeyFile(reader.data_path(e), schema), e.file.row_count, places.get(e.file.file_name))
                for e in entries.values()
                if e.file.level > 0 and (schema := line.schemas.get(e.file.schema_id)) is not None
            ]
            if len(files) > 1:
                tasks.append(OnceTask(tuple(files)))
        for findings in self.runner.run(tasks, partial(check_once, self.store)):
            self.book.add_all(findings, [moment.name])

    def _hashes(self, line: metadata.Line, latest: TableSchema, files: Files) -> None:
        by_slot = by_bucket(e for e in files.indexes if e.index_type == HASH)
        reader = PartitionReader(latest, line.paths)
        tasks = []
        for slot, entries in by_slot.items():
            wanted = files.hashed.get(slot, {}) if self.deep else {}
            named = set().union(*wanted.values())
            keys = {}
            for name in sorted(named):
                entry = next(iter(files.data[slot][name]))
                schema = line.schemas.get(entry.file.schema_id)
                if schema is not None:
                    keys[name] = KeyFile(reader.data_path(entry), schema)
            indexes = tuple(
                (index_path(line.paths, latest, e), e, frozenset(wanted.get(e.file_name, ()))) for e in entries
            )
            tasks.append(HashTask(indexes, keys))
        for entries, findings in zip(
            by_slot.values(), self.runner.run(tasks, partial(check_hashes, self.store)), strict=True
        ):
            self.book.count("hash_files", len(entries))
            names = {index_path(line.paths, latest, e): files.indexes[e] for e in entries}
            for finding in findings:
                self.book.add_all([finding], names.get(finding.path, []))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _orphans(self, lines: Sequence[metadata.Line]) -> tuple[int, int] | None:
        schema = lines[0].latest
        if schema is None:
            return None
        state = TableState(self.name, self.paths.on_branch(None), self.store, schema, None)
        try:
            orphans = find_orphans(state, _clock.now_ms() - DAY_MS, self.light)
        except BitlakeError:
            return None  # what a damaged file names is not known
        return len(orphans), sum(o.size for o in orphans)

    def _still_there(self, lines: Sequence[metadata.Line]) -> tuple[Finding, ...]:
        """The findings without what is missing because its snapshots expired, or began to, meanwhile."""
        paths = {m.name: m.path for m in _moments(lines)}
        missing = [f for f in self.book.findings() if f.code.endswith("-missing") and f.snapshots]
        asked = list(dict.fromkeys(m for f in missing for m in f.snapshots if m in paths))
        exist = self.light.run([paths[m] for m in asked], self.store.exists) if asked else []
        gone = {m for m, exists in zip(asked, exist, strict=True) if not exists}
        for line in lines if missing else ():
            end = load_line(TableFiles(self.store, line.paths)).end
            gone |= {m.name for m in line.moments if m.is_snapshot and m.snapshot.id < end}
        expired = {f for f in missing if all(m in gone for m in f.snapshots)} if gone else set()
        now = frozenset(_last_moments(lines))
        return by_severity(f.of_past(now) for f in self.book.findings() if f not in expired)


def _last_moments(lines: Iterable[metadata.Line]) -> list[str]:
    """The last snapshot of each line, main's first: what is older is never written again."""
    found = ([m.name for m in line.moments if m.is_snapshot] for line in lines)
    return [names[-1] for names in found if names]


def _moments(lines: Iterable[metadata.Line]) -> Iterable[metadata.Moment]:
    for line in lines:
        yield from line.moments
        yield from line.changelogs


def _lists(moment: metadata.Moment) -> Iterable[tuple[str, int | None]]:
    """The manifest lists that a moment needs, with their sizes as it says."""
    s = moment.snapshot
    if moment.path.rsplit("/", 2)[-2] != "changelog":
        yield s.base_manifest_list, s.base_manifest_list_size
        yield s.delta_manifest_list, s.delta_manifest_list_size
    if moment.own_changelog and s.changelog_manifest_list is not None:
        yield s.changelog_manifest_list, s.changelog_manifest_list_size
