"""Verify metadata files: schemas, snapshots, tags, hints, consumers, manifest lists, manifests and statistics.

The small files of main and of every branch are read first and checked by themselves; then the files that they name.
Caches are bypassed: what counts is the content of the store.

A runner reads each manifest once, however many snapshots name it.  What a list states about a manifest is computed from
the manifest's entries; stated bounds may be wider than the entries' but not narrower, because readers skip manifests by
them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, TypeVar

from bitlake import arguments
from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.io import Store
from bitlake.merge.interval_partition import comparable_key
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest
from bitlake.metadata.java_json import load_object
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
)
from bitlake.metadata.paths import TablePaths, parse_hint, parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import KINDS, OPERATIONS, Snapshot
from bitlake.snapshot.fast_forward import unfinished_branch
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.rollback import are_unused
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import JOURNAL, branch_names, existing_snapshots, schema_ids, tag_names
from bitlake.tools.verify.findings import MOST_FINDINGS, Book, Finding, of_error
from bitlake.types import DataType, RowType
from bitlake.types.datatypes import all_types

_PLACE = "snapshot"
_MOMENT = 0.2
"""Seconds in which a commit under way has written its hint."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot that readers can ask for, and where it is written: in a snapshot's file, a tag's, or a changelog's."""

    name: str
    path: str
    snapshot: Snapshot
    is_snapshot: bool
    own_changelog: bool
    """Whether the changelog files that it names must be there."""


@dataclass(slots=True)
class Line:
    """Main or a branch: its schemas by id, its snapshots in order, its tags and long-lived changelogs."""

    name: str
    paths: TablePaths
    schemas: dict[int, TableSchema] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)
    """Schemas that exist and cannot be read."""
    moments: list[Moment] = field(default_factory=list)
    changelogs: list[Moment] = field(default_factory=list)
    forwarding: bool = False
    """Whether a fast-forward is unfinished, so that snapshots need not follow each other."""

    @property
    def latest(self) -> TableSchema | None:
        """The schema of now; None if none can be read."""
        return self.schemas[max(self.schemas)] if self.schemas else None

    def label(self, what: str) -> str:
        """A moment's name, with the branch's where it is not main's."""
        return what if self.paths.branch is None else f"{what} of branch {self.name}"


def read_lines(store: Store, paths: TablePaths, wanted: Collection[int] | None, book: Book) -> list[Line]:
    """Main and all branches; with ``wanted`` only the line of ``paths``, and of it only these snapshots."""
    if wanted is not None:
        return [_read_line(store, paths, wanted, book)]
    lines = [_read_line(store, paths.on_branch(None), None, book)]
    for name in branch_names(TableFiles(store, paths)):
        book.count("branches")
        lines.append(_read_line(store, paths.on_branch(name), None, book))
    return lines


def _read_line(store: Store, paths: TablePaths, wanted: Collection[int] | None, book: Book) -> Line:
    wanted = None if wanted is None else arguments.wholes("snapshots", wanted)
    line = Line(paths.branch or "main", paths)
    _read_schemas(store, line, book)
    ids = load_line(TableFiles(store, paths)).kept  # of the others, files may be missing
    if wanted is None:
        first = ids[0] if ids else 0
        _check_fast_forward(store, line, book)
        _check_gaps(store, line, ids, book)
        _read_snapshots(store, line, ids, book, inherited=first if paths.branch is not None else None)
        _read_tags(store, line, book)
        _read_changelogs(store, line, book)
        _check_consumers(store, line, ids, book)
    else:
        for missing in sorted(set(wanted) - set(ids)):
            book.add(Finding("snapshot-missing", paths.snapshot(missing), f"snapshot {missing} does not exist"))
        _read_snapshots(store, line, [i for i in ids if i in wanted], book, inherited=None)
    return line


# --- schemas ----------------------------------------------------------------------------------------------------------


def _read_schemas(store: Store, line: Line, book: Book) -> None:
    ids = schema_ids(TableFiles(store, line.paths))
    if not ids and line.paths.branch is not None:
        book.add(Finding("branch-wrong", line.paths.branch_root, f"branch '{line.name}' has no schema"))
    elif not ids:
        book.add(Finding("schema-missing", line.paths.schema_dir, "the table has no schema"))
    for number in ids:
        path = line.paths.schema(number)
        book.count("schemas")
        try:
            schema = TableSchema.from_json(store.read(path), path)
        except BitlakeError as e:
            line.unreadable.add(number)
            book.add(of_error("schema-unreadable", path, e))
            continue
        line.schemas[number] = schema
        for what in _schema_faults(schema, number):
            book.add(Finding("schema-wrong", path, what))


def _schema_faults(schema: TableSchema, number: int) -> Iterator[str]:
    if schema.id != number:
        yield f"the file is of schema {number} and says that it is schema {schema.id}"
    names = schema.field_names
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"column '{name}' is there twice"
    for key in (*schema.primary_keys, *schema.partition_keys):
        if key not in names:
            yield f"key column '{key}' is not among the columns"
    rows = [t for f in schema.fields for t in all_types(f.type) if isinstance(t, RowType)]
    ids = [f.id for fields in (schema.fields, *(t.fields for t in rows)) for f in fields]
    for twice in sorted({i for i in ids if ids.count(i) > 1}):
        yield f"field id {twice} is there twice"
    if ids and max(ids) > schema.highest_field_id:
        yield f"field id {max(ids)} is above the highest that was ever used, {schema.highest_field_id}"


# --- snapshots and tags -----------------------------------------------------------------------------------------------


def _check_fast_forward(store: Store, line: Line, book: Book) -> None:
    if line.paths.branch is not None:
        return
    path = f"{line.paths.snapshot_dir}/{JOURNAL}"
    try:
        branch = unfinished_branch(TableFiles(store, line.paths))
    except BitlakeError as e:
        book.add(of_error("fast-forward-unfinished", path, e))
        return
    if branch is not None:
        line.forwarding = True
        book.add(Finding("fast-forward-unfinished", path, f"a fast-forward to branch '{branch}' is not complete"))


def _check_gaps(store: Store, line: Line, ids: list[int], book: Book) -> None:
    if line.forwarding:
        return
    for before, after in pairwise(ids):
        if after == before + 1:
            continue
        if any(are_unused(s, before + 1) for s in existing_snapshots(TableFiles(store, line.paths), [after])):
            continue
        # A snapshot that expired while the folder was listed is not a gap: then the first ones are gone as well.
        if store.exists(line.paths.snapshot(ids[0])):
            for number in range(before + 1, min(after, before + MOST_FINDINGS + 1)):
                what = f"snapshots {ids[0]} to {ids[-1]} are there, but not {number}"
                book.add(Finding("snapshot-missing", line.paths.snapshot(number), what))


def _parsed(store: Store, path: str, code: str, book: Book, what: str | None = None) -> Snapshot | None:
    """The snapshot in a file, counted as ``what``; None if it is gone by now, or cannot be read, which is a finding."""
    snapshot = None
    try:
        snapshot = Snapshot.from_json(store.read(path), path)
    except NotFound:
        return None
    except BitlakeError as e:
        book.add(of_error(code, path, e))
    if what is not None:
        book.count(what)
    return snapshot


def _read_snapshots(store: Store, line: Line, ids: list[int], book: Book, inherited: int | None) -> None:
    """``inherited``: the snapshot that a branch began with, whose changelog the main line may have expired."""
    for number in ids:
        path = line.paths.snapshot(number)
        snapshot = _parsed(store, path, "snapshot-unreadable", book, "snapshots")
        if snapshot is None:
            continue
        name = line.label(f"{_PLACE} {number}")
        line.moments.append(Moment(name, path, snapshot, True, number != inherited))
        if snapshot.id != number:
            what = f"the file is of snapshot {number} and says that it is snapshot {snapshot.id}"
            book.add(Finding("snapshot-wrong", path, what), name)
        if snapshot.commit_kind not in KINDS:
            book.add(Finding("snapshot-wrong", path, f"unknown commit kind '{snapshot.commit_kind}'"), name)
        if snapshot.operation is not None and snapshot.operation not in OPERATIONS:
            book.add(Finding("snapshot-wrong", path, f"Paimon knows no operation '{snapshot.operation}'"), name)


def _read_tags(store: Store, line: Line, book: Book) -> None:
    own = {m.snapshot.id: m.snapshot for m in line.moments}
    for tag in tag_names(TableFiles(store, line.paths)):
        path = line.paths.tag(tag)
        snapshot = _parsed(store, path, "tag-unreadable", book, "tags")
        if snapshot is None:
            continue
        if snapshot.id in own and own[snapshot.id] != snapshot:
            book.add(Finding("tag-differs", path, f"it holds another snapshot {snapshot.id} than the table has"))
        line.moments.append(Moment(line.label(f"tag {tag}"), path, snapshot, False, False))


def _read_changelogs(store: Store, line: Line, book: Book) -> None:
    """Snapshots that expired, but whose changelogs live longer: only these are still there."""
    folder = f"{line.paths.branch_root}/changelog"
    for number in sorted(i for n in store.names(folder) if (i := parse_id(n, "changelog-")) is not None):
        path = f"{folder}/changelog-{number}"
        snapshot = _parsed(store, path, "snapshot-unreadable", book)
        if snapshot is not None:
            line.changelogs.append(Moment(line.label(f"changelog {number}"), path, snapshot, False, True))


# --- hints and consumers ----------------------------------------------------------------------------------------------


def check_hints(store: Store, line: Line, book: Book) -> None:
    """Compare LATEST and EARLIEST with the existing snapshots; called last, so that running commits have moved on.

    A commit writes its snapshot and then the hint, and expiry both, too: a wrong hint counts only if it stays wrong.
    """
    wrong = [] if line.forwarding else _wrong_hints(store, line)
    if wrong:
        time.sleep(_MOMENT)
        for finding in _wrong_hints(store, line):
            if finding in wrong:
                book.add(finding)


def _wrong_hints(store: Store, line: Line) -> list[Finding]:
    paths, findings = line.paths, []
    for path, latest in ((paths.latest_hint, True), (paths.earliest_hint, False)):
        try:
            data = store.read(path)
        except NotFound:
            continue  # a write-only table has no EARLIEST, and readers list the folder
        now = load_line(TableFiles(store, paths))
        ids = now.ids
        hint = parse_hint(data)
        end, word = (ids[-1], "last") if ids and latest else (ids[0], "first") if ids else (0, "first")
        if hint is not None and not latest and ids and ids[0] <= hint <= now.end:
            continue  # an expiry that has begun moved it on
        if hint is None:
            findings.append(Finding("hint-wrong", path, f"it holds {data[:32]!r} and not a number"))
        elif hint != end:
            right = f"the {word} one is {end}" if ids else "none is there"
            code = "hint-ahead" if latest and hint > end else "hint-wrong"
            findings.append(Finding(code, path, f"it names snapshot {hint}, {right}"))
    return findings


def _check_consumers(store: Store, line: Line, ids: list[int], book: Book) -> None:
    folder = f"{line.paths.branch_root}/consumer"
    for name in sorted(n for n in store.names(folder) if n.startswith("consumer-")):
        path = f"{folder}/{name}"
        book.count("consumers")
        try:
            following = json.loads(store.read(path))["nextSnapshot"]
            if not isinstance(following, int):
                raise CorruptError(f"'nextSnapshot' is {following!r}, not a number", path=path)
        except NotFound:
            continue
        except BitlakeError as e:
            book.add(of_error("consumer-unreadable", path, e))
            continue
        except (ValueError, KeyError, TypeError):
            book.add(Finding("consumer-unreadable", path, "it is not JSON with a number 'nextSnapshot'"))
            continue
        if ids and not ids[0] <= following <= ids[-1] + 1:
            what = f"it would go on at snapshot {following}, and snapshots {ids[0]} to {ids[-1]} are there"
            book.add(Finding("consumer-wrong", path, what))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """The result of reading one file: its content, None if it cannot be read, and its faults."""

    content: T | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTask:
    """A manifest list to read, and its sizes by the snapshots."""

    path: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ManifestTask:
    """A manifest to read, and its entries in lists."""

    path: str
    metas: tuple[ManifestFileMeta, ...]
    partition_types: tuple[DataType, ...]


def read_list(store: Store, task: ListTask) -> Read[tuple[ManifestFileMeta, ...]]:
    """Read a manifest list."""
    return _read(store, task.path, "list", task.sizes, decode_manifest_list)


def read_index_manifest(store: Store, path: str) -> Read[tuple[IndexFileEntry, ...]]:
    """Read an index manifest."""
    return _read(store, path, "index-manifest", (), decode_index_manifest)


def read_manifest(store: Store, task: ManifestTask) -> Read[tuple[ManifestEntry, ...]]:
    """Read a manifest, and compare it with its entries in lists."""
    content = _read(store, task.path, "manifest", [m.file_size for m in task.metas], decode_manifest)
    if content.content is None:
        return content
    wrong = [f for meta in task.metas for f in _meta_faults(task, meta, content.content)]
    return Read(content.content, (*content.findings, *wrong))


def check_statistics(store: Store, path: str) -> tuple[Finding, ...]:
    """Read a statistics file."""
    try:
        statistics = load_object(store.read(path), path)
        statistics.int("snapshotId")
        statistics.int("schemaId")
        columns = statistics.value.get("colStats") or {}
        if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
            raise CorruptError("'colStats' must be an object that holds an object for each column")
    except NotFound:
        return (Finding("statistics-missing", path, "the file is not there"),)
    except BitlakeError as e:
        return (of_error("statistics-unreadable", path, e),)
    return ()


def _read(
    store: Store, path: str, kind: str, sizes: Sequence[int], decode: Callable[[bytes], list[T]]
) -> Read[tuple[T, ...]]:
    try:
        data = store.read(path)
    except NotFound:
        return Read(None, (Finding(f"{kind}-missing", path, "the file is not there"),))
    wrong = [
        Finding(f"{kind}-size-wrong", path, f"the file has {len(data):,} bytes, and is said to have {recorded:,}")
        for recorded in dict.fromkeys(sizes)
        if recorded != len(data)
    ]
    try:
        return Read(tuple(decode(data)), tuple(wrong))
    except BitlakeError as e:
        return Read(None, (*wrong, of_error(f"{kind}-unreadable", path, e)))


# --- what a list says of a manifest -----------------------------------------------------------------------------------


def _meta_faults(task: ManifestTask, meta: ManifestFileMeta, entries: Sequence[ManifestEntry]) -> Iterator[Finding]:
    added = sum(e.kind is EntryKind.ADD for e in entries)
    deleted = len(entries) - added
    if (meta.num_added_files, meta.num_deleted_files) != (added, deleted):
        what = (
            f"it adds {added:,} and deletes {deleted:,} files, and is said to add {meta.num_added_files:,} and delete "
            f"{meta.num_deleted_files:,}"
        )
        yield Finding("manifest-count-wrong", task.path, what)
    if not entries:
        return
    for name, low, high, values in (
        ("buckets", meta.min_bucket, meta.max_bucket, [e.bucket for e in entries]),
        ("levels", meta.min_level, meta.max_level, [e.file.level for e in entries]),
    ):
        if low is not None and high is not None and not low <= min(values) <= max(values) <= high:
            what = f"it has {name} {min(values)} to {max(values)}, and is said to have {low} to {high}"
            yield Finding("manifest-stats-wrong", task.path, what)
    schema = max(e.file.schema_id for e in entries)
    if schema > meta.schema_id:
        what = f"it has files of schema {schema}, and is said to have none after schema {meta.schema_id}"
        yield Finding("manifest-stats-wrong", task.path, what)
    if task.partition_types:
        yield from _partition_faults(task, meta, entries)


def _partition_faults(
    task: ManifestTask, meta: ManifestFileMeta, entries: Sequence[ManifestEntry]
) -> Iterator[Finding]:
    types, stats = task.partition_types, meta.partition_stats
    counted: dict[bytes, int] = {}
    for e in entries:
        counted[e.partition] = counted.get(e.partition, 0) + 1
    try:
        lows, highs = decode_row(types, stats.min), decode_row(types, stats.max)
    except BitlakeError as e:
        yield of_error("manifest-stats-wrong", task.path, e)
        return
    try:
        values = {row: decode_row(types, row) for row in counted}
    except BitlakeError as e:
        yield of_error("manifest-unreadable", task.path, e)
        return
    for i in range(len(types)):
        nulls = sum(n for row, n in counted.items() if values[row][i] is None)
        recorded = (stats.null_counts or ())[i : i + 1]
        if not recorded or (recorded[0] is not None and (recorded[0] == 0) != (nulls == 0)):
            recorded_text = "nothing" if not recorded else f"{recorded[0]}"
            what = f"{nulls:,} of its entries have NULL in partition column {i + 1}, and its list says {recorded_text}"
            yield Finding("manifest-stats-wrong", task.path, what)
        present = [v[i] for v in values.values() if v[i] is not None]
        outside = [v for v in present if not _within(v, lows[i], highs[i])]
        if outside:
            what = f"its list leaves out value {outside[0]!r} of partition column {i + 1}"
            yield Finding("manifest-stats-wrong", task.path, what)


def _within(value: Any, low: Any, high: Any) -> bool:
    if low is None or high is None:
        return False  # partition statistics are never cut: no bounds means that every value is NULL
    return comparable_key([low]) <= comparable_key([value]) <= comparable_key([high])
