"""Writing manifests and lists, and merging old ones at commit (table-format spec, sections 4 and 9).

Merging keeps the number of manifests a reader opens small.  *Full*: once small or deleting manifests together reach
``manifest.full-compaction-threshold-size``, they are rewritten as ADD-only.  *Minor* otherwise: runs of manifests that
reach ``manifest.target-file-size`` become one; a last, smaller run only from ``manifest.merge-min-count`` on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.errors import StorageUnavailable
from bitlake.io import Store
from bitlake.metadata.index_manifest import IndexFileEntry, encode_index_manifest
from bitlake.metadata.manifest import (
    EMPTY_STATS,
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
    encode_manifest_list,
    encode_manifests,
)
from bitlake.metadata.options import (
    MANIFEST_FULL_SIZE,
    MANIFEST_MERGE_MIN,
    MANIFEST_TARGET_SIZE,
    ZSTD_LEVEL,
    Options,
)
from bitlake.metadata.paths import ManifestNames, TablePaths
from bitlake.table.live import live_entries, read_manifests
from bitlake.types import DataType


class ManifestWriter:
    """Writes the manifest files of one commit and remembers them, to delete what the commit does not need."""

    def __init__(self, store: Store, paths: TablePaths, partition_types: Sequence[DataType], options: Options) -> None:
        self._store = store
        self._paths = paths
        self._types = partition_types
        self._options = options
        self._names = ManifestNames()
        self._written: list[str] = []

    def write(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write entries as manifests rolled at the target size; none for no entries."""
        metas = []
        target, level = self._options.of(MANIFEST_TARGET_SIZE), self._options.of(ZSTD_LEVEL)
        for data, held in encode_manifests(entries, target, level):
            name = self._names.manifest()
            self._put(name, data)
            metas.append(manifest_meta(name, len(data), held, self._types))
        return metas

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list; returns its name and size in bytes."""
        name = self._names.manifest_list()
        data = encode_manifest_list(metas, self._options.of(ZSTD_LEVEL))
        self._put(name, data)
        return name, len(data)

    def write_index(self, entries: Sequence[IndexFileEntry]) -> str:
        """Write an index manifest; returns its name."""
        name = self._names.index_manifest()
        self._put(name, encode_index_manifest(entries, self._options.of(ZSTD_LEVEL)))
        return name

    def _put(self, name: str, data: bytes) -> None:
        self._written.append(name)  # before the write: a failed write may have left something
        self._store.write(self._paths.manifest(name), data)

    def mark(self) -> int:
        """A point in the files written, for :meth:`discard`."""
        return len(self._written)

    def discard(self, since: int = 0) -> None:
        """Delete what was written after ``since``, as well as can be; what stays is found by orphan cleaning."""
        while len(self._written) > since:
            try:
                self._store.delete(self._paths.manifest(self._written.pop()))
            except StorageUnavailable:
                continue

    def release(self) -> list[str]:
        """Forget what was written, so that it is never discarded, and return it."""
        held, self._written = self._written, []
        return held

    def take_back(self, held: list[str]) -> None:
        """Undo :meth:`release`."""
        self._written = held + self._written

    def merge(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """The manifests of a new base list in place of ``metas``: the same live files and pending deletes."""
        full = self._merge_full(metas)
        return self._merge_minor(metas) if full is None else full

    def _merge_full(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta] | None:
        target = self._options.of(MANIFEST_TARGET_SIZE)
        candidates = [m for m in metas if m.num_deleted_files > 0 or m.file_size < target]
        if sum(m.file_size for m in candidates) < max(1, self._options.of(MANIFEST_FULL_SIZE)):
            return None
        deleting = read_manifests(self._store, self._paths, [m for m in candidates if m.num_deleted_files > 0])
        deleted = {e.partition for entries in deleting for e in entries if e.kind is EntryKind.DELETE}
        touched = PartitionSet(deleted, self._types)
        small = {m.file_name for m in candidates}
        kept = [m for m in metas if m.file_name not in small and not touched.meets(m)]
        rewritten = [m for m in metas if m.file_name in small or touched.meets(m)]
        if len(rewritten) <= 1:
            return None
        # Every DELETE is in a manifest read here, and so is every ADD it can hit: what is live stays, nothing else.
        return kept + self.write(live_entries(read_manifests(self._store, self._paths, rewritten)))

    def _merge_minor(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        target = self._options.of(MANIFEST_TARGET_SIZE)
        out: list[ManifestFileMeta] = []
        run: list[ManifestFileMeta] = []
        size = 0
        for meta in metas:
            run.append(meta)
            size += meta.file_size
            if size >= target:
                out += self._merge_run(run)
                run, size = [], 0
        return out + (self._merge_run(run) if len(run) >= self._options.of(MANIFEST_MERGE_MIN) else run)

    def _merge_run(self, run: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        if len(run) <= 1:
            return run
        return self.write(merged_entries(read_manifests(self._store, self._paths, run)))


def merged_entries(manifests: Iterable[Iterable[ManifestEntry]]) -> list[ManifestEntry]:
    """Entries after an ADD and its DELETE cancelled each other; a DELETE whose ADD lies elsewhere is kept, first."""
    every = [tuple(entries) for entries in manifests]
    adds = {e.identity for entries in every for e in entries if e.kind is EntryKind.ADD}
    pending = [e for entries in every for e in entries if e.kind is EntryKind.DELETE and e.identity not in adds]
    return pending + live_entries(every)


class PartitionSet:
    """Some partitions, asked whether a manifest may hold entries of any of them."""

    def __init__(self, rows: Iterable[bytes], types: Sequence[DataType]) -> None:
        self._types = types
        self._values = [decode_row(types, r) for r in rows]

    def meets(self, meta: ManifestFileMeta) -> bool:
        """False only if the manifest's partition statistics exclude every partition of the set."""
        if not self._values or not self._types:
            return bool(self._values)
        stats = meta.partition_stats
        lows, highs = decode_row(self._types, stats.min), decode_row(self._types, stats.max)
        nulls = stats.null_counts or (None,) * len(lows)
        return any(
            all(_within(v, low, high, n) for v, low, high, n in zip(values, lows, highs, nulls))
            for values in self._values
        )


def _within(value: Any, low: Any, high: Any, nulls: int | None) -> bool:
    if value is None:
        return nulls != 0
    if low is None or high is None:
        return False  # partition statistics are never cut: no bounds means that every value is NULL
    return value != value or not (value < low or value > high)


def manifest_meta(
    name: str, size: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType]
) -> ManifestFileMeta:
    """The list record of a manifest with these entries (at least one)."""
    added = sum(e.kind is EntryKind.ADD for e in entries)
    buckets = [e.bucket for e in entries]
    levels = [e.file.level for e in entries]
    rows = [(e.file.first_row_id, e.file.row_count) for e in entries]
    starts = [start for start, _ in rows if start is not None]
    ends = [start + count - 1 for start, count in rows if start is not None]
    tracked = len(starts) == len(entries)
    return ManifestFileMeta(
        name,
        size,
        added,
        len(entries) - added,
        partition_stats([e.partition for e in entries], partition_types),
        max(e.file.schema_id for e in entries),
        min(buckets),
        max(buckets),
        min(levels),
        max(levels),
        min(starts) if tracked else None,
        max(ends) if tracked else None,
    )


def partition_stats(rows: Sequence[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Full bounds and null counts of partition rows, one row per entry."""
    if not types:
        return EMPTY_STATS
    counts: dict[bytes, int] = {}
    for row in rows:
        counts[row] = counts.get(row, 0) + 1
    decoded = [(decode_row(types, row), n) for row, n in counts.items()]
    lows, highs, nulls = [], [], []
    for i in range(len(types)):
        values = [values[i] for values, _ in decoded if values[i] is not None]
        lows.append(min(values, key=_order, default=None))
        highs.append(max(values, key=_order, default=None))
        nulls.append(sum(n for values, n in decoded if values[i] is None))
    return SimpleStats(encode_row_with_arity(types, lows), encode_row_with_arity(types, highs), tuple(nulls))


def _order(value: Any) -> tuple[bool, Any, float]:
    # As Java orders them: NaN last, and -0.0 before 0.0.
    return (value != value, value, math.copysign(1.0, value) if isinstance(value, float) else 0.0)
