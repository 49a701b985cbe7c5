"""The live files of a snapshot by column, for planning: arrays of buckets, rows and bytes, and bounds of statistics.

There are two kinds of live files, with the same columns (:class:`FileColumns`).  :class:`LiveFiles` are entries, read
one by one; their columns are made when a plan first needs them.  :class:`ColumnarFiles` are columns that manifests were
decoded to (:mod:`bitlake.metadata.manifest_columns`): a sequence of entries too, but each access creates the
entry again.  A plan of a million files then holds some 100 bytes for each of them instead of 1.2 KB.  Up to
:data:`_KEPT_FILES`, entries are kept from the second walk over all of them on.

Statistics are decoded when a plan first needs them, column by column, and are kept with the columns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

from bitlake.expressions.statistics import Bools, ColumnBounds, Int64s, joined_bounds
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.manifest_columns import ManifestColumns
from bitlake.metadata.stats import column_bounds
from bitlake.types import DataField

_ENTRY_BYTES = 800
"""Bytes of an entry in memory beside its index, measured with seven columns."""
_SAMPLE = 64
"""The number of entries whose size is measured to estimate that of all."""
_FEW = 4
"""Up to 1/4 of the files, statistics are decoded for one plan only; beyond, those of all files are cached."""
_KEPT_FILES = 200_000
"""Up to this many files, entries that are created twice stay in memory: DELETE and DROP PARTITION walk over all entries
many times, at 13 µs for each entry that is created."""
_BUCKET_SHIFT = 1 << 31
"""Added to the number of a bucket (32 bits, maybe -1 or -2), makes it non-negative."""
_FILE_BYTES, _BOUNDS_BYTES = 49, 48
"""The bytes of a file in all columns except statistics, and in the bounds of one column."""


def memory_of(entries: Sequence[ManifestEntry]) -> int:
    """An estimate of the bytes that entries take in memory."""
    return sum([_ENTRY_BYTES + len(e.file.embedded_index or b"") for e in entries])


# --- live files -------------------------------------------------------------------------------------------------------


class LiveFiles(tuple[ManifestEntry, ...]):
    """The live files of a snapshot, as ADD entries; cached with the decoded statistics of their columns."""

    columns: FileColumns | None = None
    """Set by :func:`columns_of_files`, which needs numpy, when a plan first needs it."""

    @property
    def memory(self) -> int:
        """An estimate of the bytes in memory; it grows with what plans decode."""
        return self._entry_bytes + (0 if self.columns is None else self.columns.memory)

    @cached_property
    def _entry_bytes(self) -> int:
        sample = self[:: max(1, len(self) // _SAMPLE)]
        return memory_of(sample) * len(self) // max(1, len(sample))


class ColumnarFiles(Sequence[ManifestEntry]):
    """The live files of a snapshot with many, as columns.  Compares and pickles like a tuple of ADD entries."""

    def __init__(self, parts: Sequence[tuple[ManifestColumns, Int64s]]) -> None:
        """``parts``: manifests in their order, each with the ascending places of its live files."""
        self.parts = parts
        self.firsts: Int64s = np.cumsum([0, *(len(places) for _, places in parts)])
        """The number of files before each part, and of all."""
        self.columns: FileColumns = _ColumnarFileColumns(self)
        self._entries: LiveFiles | None = None
        self._is_walked = False

    @property
    def memory(self) -> int:
        """An estimate of the bytes in memory beside the manifests' columns, which are cached by themselves."""
        entries = 0 if self._entries is None else self._entries.memory
        return sum(places.nbytes for _, places in self.parts) + self.columns.memory + entries

    def take(self, numbers: Int64s) -> Iterator[ManifestEntry]:
        """The entries at ascending positions."""
        for part, places in self.parts_of(numbers):
            yield from part.entries(places)

    def parts_of(self, numbers: Int64s) -> Iterator[tuple[ManifestColumns, Int64s]]:
        """The manifests that hold the files at ascending positions, each with their ascending places in it."""
        cuts = np.searchsorted(numbers, self.firsts)
        for (part, places), first, begin, end in zip(self.parts, self.firsts, cuts, cuts[1:], strict=False):
            if begin < end:
                yield part, places[numbers[begin:end] - first]

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __iter__(self) -> Iterator[ManifestEntry]:
        if self._entries is None and self._is_walked and len(self) <= _KEPT_FILES:
            self._entries = LiveFiles(self.take(np.arange(len(self))))
        self._is_walked = True
        return self.take(np.arange(len(self))) if self._entries is None else iter(self._entries)

    @overload
    def __getitem__(self, index: int) -> ManifestEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ManifestEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> ManifestEntry | tuple[ManifestEntry, ...]:
        if isinstance(index, slice):
            numbers = np.arange(len(self))[index]
            if index.step is not None and index.step < 0:
                return tuple(self.take(numbers[::-1]))[::-1]
            return tuple(self.take(numbers))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        return next(self.take(np.array([number])))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (ColumnarFiles, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"ColumnarFiles({len(self):,} files)"

    def __reduce__(self) -> tuple[type[LiveFiles], tuple[tuple[ManifestEntry, ...]]]:
        return LiveFiles, (tuple(self),)


def live_columns(manifests: Sequence[ManifestColumns]) -> ColumnarFiles:
    """The ADD entries that no DELETE entry of any of the manifests cancels, in their order."""
    adds = [np.flatnonzero(m.kind == EntryKind.ADD) for m in manifests]
    deletes = [np.flatnonzero(m.kind == EntryKind.DELETE) for m in manifests]
    if any(len(d) for d in deletes):
        deleted = {e.identity for m, d in zip(manifests, deletes, strict=True) for e in m.entries(d)}
        names = np.unique(np.concatenate([m.name_hash[d] for m, d in zip(manifests, deletes, strict=True)]))
        for i, (manifest, added) in enumerate(zip(manifests, adds, strict=True)):
            # Hashes of names nearly always decide; the whole identity is compared only for deleted ones.
            alike = added[np.isin(manifest.name_hash[added], names)]
            is_deleted = [e.identity in deleted for e in manifest.entries(alike)]
            adds[i] = np.setdiff1d(added, alike[np.array(is_deleted, bool)], assume_unique=True)
    return ColumnarFiles(list(zip(manifests, adds, strict=True)))


def in_buckets(files: LiveFiles | ColumnarFiles, buckets: frozenset[int]) -> Sequence[ManifestEntry]:
    """The files of some buckets, in all partitions, in their order; no other file becomes an object."""
    if isinstance(files, LiveFiles):
        return [e for e in files if e.bucket in buckets]
    return _chosen(files, _is_in(files, buckets))


def totals_of_others(files: ColumnarFiles, buckets: frozenset[int]) -> list[int]:
    """The distinct numbers of buckets that the files outside some buckets were written with."""
    of_others = files.columns.buckets[~_is_in(files, buckets), 1]
    totals: list[int] = np.unique(of_others).tolist()
    return totals


def _is_in(files: ColumnarFiles, buckets: frozenset[int]) -> Bools:
    return np.isin(files.columns.buckets[:, 0], np.array(sorted(buckets), np.int64))


def in_partitions(files: LiveFiles | ColumnarFiles, partitions: frozenset[bytes]) -> Sequence[ManifestEntry]:
    """The files of some partitions (BinaryRows with arity), in their order; no other file becomes an object."""
    if isinstance(files, LiveFiles):
        return [e for e in files if e.partition in partitions]
    rows, codes = files.columns.partitions
    return _chosen(files, np.isin(codes, [code for code, row in enumerate(rows) if row in partitions]))


def _chosen(files: ColumnarFiles, chosen: Bools) -> Sequence[ManifestEntry]:
    # All of them may be kept as objects, see :data:`_KEPT_FILES`.
    return files if chosen.all() else list(files.take(np.flatnonzero(chosen)))


# --- their columns ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FileGroup:
    """Files with one schema and one list of columns with statistics; caches decoded bounds."""

    schema_id: int
    columns: tuple[str, ...] | None
    places: Int64s
    """Their positions among the live files, ascending."""
    _bounds: dict[str, ColumnBounds | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bounds(
        self, files: FileColumns, fields: Sequence[DataField], requested: Sequence[str], of: Int64s
    ) -> dict[str, ColumnBounds | None]:
        """The statistics of ``requested`` columns for the files at ``of``, a subset of :attr:`places` in their order.

        Raises :class:`CorruptError` and :class:`NotVectorised` as :func:`column_bounds` does.
        """
        with self._lock:
            missing = [c for c in requested if c not in self._bounds]
            few = len(of) * _FEW <= len(self.places)
            fresh: dict[str, ColumnBounds | None] = {}
            if missing:
                fresh = files.decode_bounds(of if few else self.places, fields, self.columns, missing)
                if not few:
                    self._bounds.update(fresh)
                    fresh = {}
            cached = {c: self._bounds[c] for c in requested if c not in fresh}
        if len(of) < len(self.places):
            within = np.searchsorted(self.places, of)
            cached = {c: b if b is None else b.take(within) for c, b in cached.items()}
        return cached | fresh


class FileColumns:
    """Live files in their order."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, numbers: Int64s) -> Iterator[ManifestEntry]:
        """The entries at ascending positions."""
        return map(self.entries.__getitem__, numbers.tolist())

    def names(self, numbers: Int64s) -> pa.ChunkedArray:
        """The names of the files at ascending positions, as large strings."""
        return pa.chunked_array([pa.array([e.file.file_name for e in self.take(numbers)], pa.large_string())])

    @cached_property
    def has_external_path(self) -> Bools:
        """Whether each file's entry has an external path."""
        return np.array([e.file.external_path is not None for e in self.entries], bool)

    @cached_property
    def rows(self) -> Int64s:
        """Each file's rows."""
        return np.fromiter([e.file.row_count for e in self.entries], np.int64, len(self.entries))

    @cached_property
    def sizes(self) -> Int64s:
        """Each file's bytes."""
        return np.fromiter([e.file.file_size for e in self.entries], np.int64, len(self.entries))

    @cached_property
    def total_bytes(self) -> int:
        """The total size of the files."""
        return sum([e.file.file_size for e in self.entries])

    @cached_property
    def buckets(self) -> Int64s:
        """Each file's bucket and its bucket count, as an array of n rows and 2 columns."""
        pairs = [(e.bucket, e.total_buckets) for e in self.entries]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @cached_property
    def partitions(self) -> tuple[list[bytes], Int64s]:
        """The distinct partition rows, and the index of each file's row among them."""
        seen: dict[bytes, int] = {}
        codes = [seen.setdefault(e.partition, len(seen)) for e in self.entries]
        return list(seen), np.array(codes, np.int64)

    @cached_property
    def slots(self) -> tuple[list[tuple[bytes, int]], Int64s]:
        """The distinct buckets (partition row and number), in order, and the index of each file's among them."""
        rows, codes = self.partitions
        packed, of = np.unique((codes << 32) | (self.buckets[:, 0] + _BUCKET_SHIFT), return_inverse=True)
        numbers = ((packed & 0xFFFFFFFF) - _BUCKET_SHIFT).tolist()
        return [(rows[code], bucket) for code, bucket in zip((packed >> 32).tolist(), numbers, strict=True)], of

    @cached_property
    def groups(self) -> list[FileGroup]:
        """The files by schema and covered columns."""
        keys, codes = self._schemas_and_columns()
        by_value: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
        for code, key in enumerate(keys):
            by_value.setdefault(key, []).append(code)
        groups = []
        for (schema_id, columns), same in by_value.items():
            places = np.flatnonzero(np.isin(codes, same)) if len(by_value) > 1 else np.arange(len(codes))
            groups.append(FileGroup(schema_id, columns, places))
        return groups

    def _schemas_and_columns(self) -> tuple[list[tuple[int, tuple[str, ...] | None]], Int64s]:
        """Schemas and lists of covered columns, some of them perhaps equal, and the number of each file's."""
        # Entries of a manifest share their lists of columns: comparing identities is cheaper than hashing.
        keys = [((f := e.file).schema_id, id(f.value_stats_cols)) for e in self.entries]
        seen: dict[tuple[int, int], int] = {}
        codes = np.array([seen.setdefault(k, len(seen)) for k in keys], np.int64)
        _, firsts = np.unique(codes, return_index=True)
        files = [self.entries[i].file for i in firsts.tolist()]
        return [(f.schema_id, f.value_stats_cols) for f in files], codes

    @cached_property
    def schema_ids(self) -> frozenset[int]:
        """The ids of the schemas that the files were written with."""
        return frozenset(g.schema_id for g in self.groups)

    def decode_bounds(
        self, places: Int64s, fields: Sequence[DataField], columns: tuple[str, ...] | None, requested: Sequence[str]
    ) -> dict[str, ColumnBounds | None]:
        """The statistics of files with one schema (``fields``) and one list of ``columns``, at ascending places.

        Raises :class:`CorruptError` and :class:`NotVectorised` as :func:`column_bounds` does.
        """
        return column_bounds([e.file.value_stats for e in self.take(places)], fields, columns, requested)

    @property
    def memory(self) -> int:
        """An estimate of the bytes that the columns take in memory, beside the files."""
        groups: list[FileGroup] = vars(self).get("groups", [])
        return _FILE_BYTES * len(self) + sum(_BOUNDS_BYTES * len(g.places) * len(g._bounds) for g in groups)


class _ColumnarFileColumns(FileColumns):
    """The columns of :class:`ColumnarFiles`, joined when a plan first needs them."""

    def __init__(self, files: ColumnarFiles) -> None:
        super().__init__(files)
        self._files = files

    def take(self, numbers: Int64s) -> Iterator[ManifestEntry]:
        return self._files.take(numbers)

    def names(self, numbers: Int64s) -> pa.ChunkedArray:
        names = (chunk for part, places in self._files.parts_of(numbers) for chunk in part.names(places))
        return pa.chunked_array(names, pa.large_string())

    @cached_property
    def has_external_path(self) -> Bools:
        return self._joined("has_external_path").astype(bool)

    def _joined(self, name: str) -> Int64s:
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *(getattr(part, name)[places] for part, places in self._files.parts)])

    @cached_property
    def rows(self) -> Int64s:
        return self._joined("row_count")

    @cached_property
    def sizes(self) -> Int64s:
        return self._joined("file_size")

    @cached_property
    def total_bytes(self) -> int:
        # In halves: a damaged manifest may claim more than 64 bits.
        return (int((self.sizes >> 32).sum()) << 32) + int((self.sizes & 0xFFFFFFFF).sum())

    @cached_property
    def buckets(self) -> Int64s:
        return np.stack([self._joined("bucket"), self._joined("total_buckets")], axis=1)

    @cached_property
    def partitions(self) -> tuple[list[bytes], Int64s]:
        seen: dict[bytes, int] = {}
        codes = [np.zeros(0, np.int64)]
        for part, places in self._files.parts:
            of_part = part.partition[places]
            used, firsts = np.unique(of_part, return_index=True)
            table = np.zeros(len(part.partitions), np.int64)
            for code in used[np.argsort(firsts)].tolist():
                row = part.partitions[code]
                table[code] = seen.setdefault(row, len(seen))
            codes.append(table[of_part])
        return list(seen), np.concatenate(codes)

    def _schemas_and_columns(self) -> tuple[list[tuple[int, tuple[str, ...] | None]], Int64s]:
        keys: list[tuple[int, tuple[str, ...] | None]] = []
        codes = [np.zeros(0, np.int64)]
        for part, places in self._files.parts:
            schemas, of_schema = np.unique(part.schema_id[places], return_inverse=True)
            pairs, of_part = np.unique(of_schema * len(part.column_lists) + part.covered[places], return_inverse=True)
            codes.append(of_part + len(keys))
            for pair in pairs.tolist():
                schema, columns = divmod(pair, len(part.column_lists))
                keys.append((int(schemas[schema]), part.column_lists[columns]))
        return keys, np.concatenate(codes)

    def decode_bounds(
        self, places: Int64s, fields: Sequence[DataField], columns: tuple[str, ...] | None, requested: Sequence[str]
    ) -> dict[str, ColumnBounds | None]:
        pieces: list[dict[str, ColumnBounds | None]] = []
        for part, held in self._files.parts_of(places):
            pieces += part.bounds(held, fields, columns, requested)
        if not pieces:
            return column_bounds((), fields, columns, requested)
        return {name: joined_bounds([piece[name] for piece in pieces]) for name in requested}


def columns_of_files(entries: Sequence[ManifestEntry]) -> FileColumns:
    """The files by column; cached with the entries if these are the live files of a snapshot."""
    if isinstance(entries, ColumnarFiles):
        return entries.columns
    if not isinstance(entries, LiveFiles):
        return FileColumns(entries)
    if entries.columns is None:
        entries.columns = FileColumns(entries)
    return entries.columns
