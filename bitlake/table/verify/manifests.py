"""Manifest lists, manifests, index manifests and statistics: there, readable, and as whoever names them says.

Each is read once, however many snapshots name it, by a runner.  What a list says of a manifest is worked out anew from
the manifest's entries; bounds may be wider than that, but not narrower, for readers skip manifests by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.io import Store
from bitlake.merge.interval_partition import key_place
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest
from bitlake.metadata.java_json import load_object
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
)
from bitlake.table.verify.findings import Finding, of_error
from bitlake.types import DataType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What came of reading one file: its content, None if it cannot be read, and what is wrong with it."""

    content: T | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTask:
    """A manifest list to read, and the sizes that snapshots say it has."""

    path: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ManifestTask:
    """A manifest to read, and what lists say of it."""

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
    """Read a manifest, and compare it with what lists say of it."""
    found = _read(store, task.path, "manifest", [m.file_size for m in task.metas], decode_manifest)
    if found.content is None:
        return found
    wrong = [f for meta in task.metas for f in _meta_faults(task, meta, found.content)]
    return Read(found.content, (*found.findings, *wrong))


def check_statistics(store: Store, path: str) -> tuple[Finding, ...]:
    """Read a statistics file."""
    try:
        found = load_object(store.read(path), path)
        found.int("snapshotId")
        found.int("schemaId")
        columns = found.value.get("colStats") or {}
        if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
            raise CorruptError("'colStats' does not say something of each column")
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
        Finding(f"{kind}-size-wrong", path, f"the file has {len(data):,} bytes, and is said to have {said:,}")
        for said in dict.fromkeys(sizes)
        if said != len(data)
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
        said = (stats.null_counts or ())[i : i + 1]
        if not said or (said[0] is not None and (said[0] == 0) != (nulls == 0)):
            told = "nothing" if not said else f"{said[0]}"
            what = f"{nulls:,} of its entries have NULL in partition column {i + 1}, and its list says {told}"
            yield Finding("manifest-stats-wrong", task.path, what)
        there = [v[i] for v in values.values() if v[i] is not None]
        outside = [v for v in there if not _within(v, lows[i], highs[i])]
        if outside:
            what = f"its list leaves out value {outside[0]!r} of partition column {i + 1}"
            yield Finding("manifest-stats-wrong", task.path, what)


def _within(value: Any, low: Any, high: Any) -> bool:
    if low is None or high is None:
        return False  # partition statistics are never cut: no bounds means that every value is NULL
    return key_place([low]) <= key_place([value]) <= key_place([high])


def by_name(names: Sequence[str], found: Sequence[Read[T]]) -> Mapping[str, T]:
    """The contents of the files that could be read."""
    return {n: r.content for n, r in zip(names, found, strict=True) if r.content is not None}
