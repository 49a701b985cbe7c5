"""Remove deleted rows from a plan, by the deletion vectors of its snapshot.

The snapshot's index manifest names the index file and the range that hold the vector of each data file.  Only vectors
of planned files are read (the index manifest may name files that are gone), those of an index file with one call to the
store, and they stay cached.  A vector that cannot be read is an error: without it, deleted rows would come back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import CorruptError, NotFound
from bitlake.io import Store
from bitlake.io.base import request_runner
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import IndexFileEntry, vectors_by_file
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName
from bitlake.scan.plan import PlannedFile, PlanStep, SkippedFile, SkipReason, StepName
from bitlake.snapshot.manifests import read_index_manifest
from bitlake.snapshot.partitions import index_path
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex import VectorRange
from bitlake.tableindex.deletion_vectors import DeletionVector, decode_frame, frame_bytes

_Ranges = Mapping[str, tuple[IndexFileEntry, VectorRange]]

# Index files and manifests never change, so what was read of them stays true.
_RANGES: CacheName[str, _Ranges] = CacheName("ranges of deletion vectors")
_VECTORS: CacheName[tuple[str, int, int], DeletionVector] = CacheName("deletion vectors")
_RANGE_BYTES, _VECTOR_BYTES = 300, 400
"""Bytes of a range in memory, and of a vector beside its rows."""


@dataclass(frozen=True, slots=True)
class DeletionVectors:
    """The deletion vectors of one snapshot; ``index_manifest`` is its name, None for a snapshot without one."""

    store: Store
    paths: TablePaths
    schema: TableSchema
    index_manifest: str | None

    def prune(self, files: Sequence[PlannedFile]) -> PlanStep:
        """Remove deleted rows from files, and skip files without any other row."""
        started = time.perf_counter()
        ranges = self._ranges()
        with_vector = [f for f in files if f.entry.file.file_name in ranges] if ranges else []
        if not with_vector:
            return PlanStep(StepName.VECTORS, files, ms=(time.perf_counter() - started) * 1000)
        vectors, size = self._read(with_vector, ranges)
        kept, skipped = [], []
        for file in files:
            vector = vectors.get(file.entry.file.file_name)
            if vector is None:
                kept.append(file)
                continue
            selection = file.selection.minus(vector.rows, file.row_count)
            if selection.is_empty:
                detail = f"of {file.row_count:,} rows it holds {vector.cardinality:,}, all that were chosen"
                skipped.append(SkippedFile(file.entry, file.path, SkipReason.DELETED, detail))
            else:
                kept.append(replace(file, selection=selection, deleted=file.deleted + len(vector.rows)))
        elapsed = (time.perf_counter() - started) * 1000
        return PlanStep(StepName.VECTORS, kept, skipped, index_bytes=size, ms=elapsed)

    def _ranges(self) -> _Ranges:
        """Where the vector of each data file is, by file name; empty unless the table has vectors switched on.

        Paimon, too, no longer applies vectors once they are switched off (index-format spec, section 9.6).
        """
        if self.index_manifest is None or not opt.Options(self.schema.options).get(opt.DV_ENABLED):
            return {}
        path = self.paths.manifest(self.index_manifest)
        cache = self.store.caches[_RANGES]
        ranges = cache.get(path)
        if ranges is None:
            try:
                ranges = vectors_by_file(read_index_manifest(TableFiles(self.store, self.paths), self.index_manifest))
            except CorruptError as e:
                raise e if e.path else e.within(path) from e
            cache.put(path, ranges, len(path) + _RANGE_BYTES * len(ranges))
        return ranges

    def _read(self, files: Sequence[PlannedFile], ranges: _Ranges) -> tuple[dict[str, DeletionVector], int]:
        """The vectors of data files, by file name, and the bytes read."""
        vectors: dict[str, DeletionVector] = {}
        missing: dict[str, list[PlannedFile]] = {}
        total = 0
        cache = self.store.caches[_VECTORS]
        for file in files:
            entry, vector_range = ranges[file.entry.file.file_name]
            path = index_path(self.paths, self.schema, entry)
            vector = cache.get((path, vector_range.offset, file.row_count))
            if vector is None:
                missing.setdefault(path, []).append(file)
            else:
                vectors[file.entry.file.file_name] = vector

        def load(path: str) -> list[tuple[str, DeletionVector, int]]:
            return _load(self.store, path, missing[path], ranges)

        for path, loaded in zip(
            missing, request_runner(self.store, self.paths.root).run(list(missing), load), strict=True
        ):
            for file, (name, vector, size) in zip(missing[path], loaded, strict=True):
                vectors[name] = vector
                total += size
                cache.put((path, ranges[name][1].offset, file.row_count), vector, size + _VECTOR_BYTES)
        return vectors, total


def _load(
    store: Store, path: str, files: Sequence[PlannedFile], ranges: _Ranges
) -> list[tuple[str, DeletionVector, int]]:
    try:
        located = [ranges[f.entry.file.file_name] for f in files]
        sizes = [frame_bytes(where, entry.file_size) for entry, where in located]
        frames = store.read_ranges(path, [(where.offset, n) for (_, where), n in zip(located, sizes, strict=True)])
        return [
            (where.data_file, decode_frame(frame, where, file.row_count), len(frame))
            for file, (_, where), frame in zip(files, located, frames, strict=True)
        ]
    except CorruptError as e:
        store.drop_cached(path)
        raise e if e.path else e.within(path) from e
    except NotFound as e:
        raise NotFound(
            f"deletion vector file {path} is missing: its snapshot has expired meanwhile (read the table again), "
            "or it was deleted by hand (put it back: without it, deleted rows would come back)"
        ) from e
