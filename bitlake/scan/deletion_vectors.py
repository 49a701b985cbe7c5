"""Taking deleted rows out of a plan: the snapshot's deletion vectors, found by data file name, read by their ranges.

Vectors are looked up for live files only (the index manifest may name files that are gone), for all planned files of an
index file with one call to the store.  A vector that cannot be read is an error: without it, deleted rows would come
back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap

from bitlake.errors import CorruptError, NotFound
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import IndexFileEntry, vectors_by_file
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import Cache, LocalRunner
from bitlake.scan.plan import PlannedFile, ScanMetrics, SkippedFile, SkipReason
from bitlake.snapshot.index_manifest import clear_index_manifests, index_path, read_index_manifest
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector, decode_frame, frame_bytes
from bitlake.tableindex.vector_range import VectorRange

_THREADS = 16
_Places = Mapping[str, tuple[IndexFileEntry, VectorRange]]

# Index files and manifests never change, so what was read of them stays true.
_places: Cache[str, _Places] = Cache(500_000)
_vectors: Cache[tuple[str, int, int], DeletionVector] = Cache(64 * 1024 * 1024)


def clear_vectors() -> None:
    """Forget cached vectors and index manifests (tests that break files on purpose need it)."""
    clear_index_manifests()
    _places.clear()
    _vectors.clear()


@dataclass(frozen=True, slots=True)
class Vectors:
    """The deletion vectors of one snapshot; ``index_manifest`` is None where there are none."""

    store: Store
    paths: TablePaths
    schema: TableSchema
    index_manifest: str | None

    def places(self) -> _Places:
        """Where the vector of each data file is, by file name; empty unless the table has vectors switched on.

        Paimon, too, no longer applies vectors once they are switched off (index-format spec, section 9.6).
        """
        if self.index_manifest is None or not opt.Options(self.schema.options).get(opt.DV_ENABLED):
            return {}
        path = self.paths.manifest(self.index_manifest)
        found = _places.get(path)
        if found is None:
            try:
                found = vectors_by_file(read_index_manifest(TableFiles(self.store, self.paths), self.index_manifest))
            except CorruptError as e:
                raise e if e.path else e.within(path) from e
            _places.put(path, found, len(found) + 1)
        return found

    def take_out(
        self, files: Sequence[PlannedFile], skipped: list[SkippedFile], metrics: ScanMetrics
    ) -> list[PlannedFile]:
        """The files without their deleted rows; files of which no chosen row is left go to ``skipped``."""
        places = self.places()
        wanted = [f for f in files if f.entry.file.file_name in places] if places else []
        if not wanted:
            return list(files)
        vectors = self._read(wanted, places, metrics)
        left = []
        for file in files:
            vector = vectors.get(file.entry.file.file_name)
            if vector is None:
                left.append(file)
                continue
            kept = without(file, vector.rows)
            if kept is not None:
                left.append(kept)
                continue
            detail = f"of {file.row_count:,} rows it holds {vector.cardinality:,}, all that were chosen"
            size = file.entry.file.file_size
            skipped.append(SkippedFile(file.path, SkipReason.DELETED, detail, file.row_count, size))
        return left

    def _read(self, files: Sequence[PlannedFile], places: _Places, metrics: ScanMetrics) -> dict[str, DeletionVector]:
        found: dict[str, DeletionVector] = {}
        missing: dict[str, list[PlannedFile]] = {}
        for file in files:
            entry, place = places[file.entry.file.file_name]
            path = index_path(self.paths, self.schema, entry)
            known = _vectors.get((path, place.offset, file.row_count))
            if known is None:
                missing.setdefault(path, []).append(file)
            else:
                found[file.entry.file.file_name] = known

        def load(path: str) -> list[tuple[str, DeletionVector, int]]:
            return _load(self.store, path, missing[path], places)

        for path, loaded in zip(missing, LocalRunner(_THREADS).run(list(missing), load), strict=True):
            for file, (name, vector, size) in zip(missing[path], loaded, strict=True):
                found[name] = vector
                metrics.index_bytes_read += size
                _vectors.put((path, places[name][1].offset, file.row_count), vector, size)
        return found


def without(file: PlannedFile, gone: BitMap) -> PlannedFile | None:
    """A planned file without some of its rows, or None if no chosen one is left."""
    selection = file.selection.minus(gone, file.row_count)
    if selection.is_empty:
        return None
    return replace(file, selection=selection, deleted=file.deleted + len(gone))


def _load(
    store: Store, path: str, files: Sequence[PlannedFile], places: _Places
) -> list[tuple[str, DeletionVector, int]]:
    try:
        wanted = [places[f.entry.file.file_name] for f in files]
        sizes = [frame_bytes(place, entry.file_size) for entry, place in wanted]
        parts = store.read_ranges(path, [(p.offset, n) for (_, p), n in zip(wanted, sizes, strict=True)])
        out = []
        for file, (_, place), part in zip(files, wanted, parts, strict=True):
            vector = decode_frame(part, place, file.row_count)
            out.append((place.data_file, vector, len(part)))
        return out
    except CorruptError as e:
        raise e if e.path else e.within(path) from e
    except NotFound as e:
        raise NotFound(
            f"deletion vector file {path} is missing: its snapshot has expired meanwhile (read the table again), "
            "or it was deleted by hand (put it back: without it, deleted rows would come back)"
        ) from e
