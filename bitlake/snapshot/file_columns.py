"""The live files of a snapshot by column, for planning; statistics are decoded when a plan first needs them.

The columns are cached with the live files of the snapshot, so that a second plan decodes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bitlake.expressions.statistics_arrays import ColumnBounds, Int64s
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.stats_columns import column_bounds
from bitlake.snapshot.manifests import LiveFiles
from bitlake.types import DataField

_FEW = 4
"""Up to 1/4 of the files, statistics are decoded for one plan only; beyond, those of all files are cached."""


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
        self, entries: Sequence[ManifestEntry], fields: Sequence[DataField], wanted: Sequence[str], of: Int64s
    ) -> dict[str, ColumnBounds | None]:
        """The statistics of the ``wanted`` columns for the files at ``of``, a subset of :attr:`places` in their order.

        Raises :class:`CorruptError` and :class:`NotVectorised` as :func:`column_bounds` does.
        """
        with self._lock:
            missing = [c for c in wanted if c not in self._bounds]
            few = len(of) * _FEW <= len(self.places)
            fresh: dict[str, ColumnBounds | None] = {}
            if missing:
                stats = [entries[i].file.value_stats for i in (of if few else self.places).tolist()]
                fresh = column_bounds(stats, fields, self.columns, missing)
                if not few:
                    self._bounds.update(fresh)
                    fresh = {}
            found = {c: self._bounds[c] for c in wanted if c not in fresh}
        if len(of) < len(self.places):
            within = np.searchsorted(self.places, of)
            found = {c: b if b is None else b.take(within) for c, b in found.items()}
        return found | fresh


class FileColumns:
    """Live files in their order."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def rows(self) -> Int64s:
        """Each file's rows."""
        return np.fromiter([e.file.row_count for e in self.entries], np.int64, len(self.entries))

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
    def groups(self) -> list[FileGroup]:
        """The files by schema and covered columns."""
        # Entries of a manifest share their lists of columns: comparing identities is cheaper than hashing.
        keys = [((f := e.file).schema_id, id(f.value_stats_cols)) for e in self.entries]
        seen: dict[tuple[int, int], int] = {}
        codes = np.array([seen.setdefault(k, len(seen)) for k in keys], np.int64)
        by_value: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
        if seen:
            _, firsts = np.unique(codes, return_index=True)
            for code, i in enumerate(firsts.tolist()):
                file = self.entries[i].file
                by_value.setdefault((file.schema_id, file.value_stats_cols), []).append(code)
        groups = []
        for (schema_id, columns), same in by_value.items():
            places = np.flatnonzero(np.isin(codes, same)) if len(by_value) > 1 else np.arange(len(codes))
            groups.append(FileGroup(schema_id, columns, places))
        return groups

    @cached_property
    def schema_ids(self) -> frozenset[int]:
        """The ids of the schemas that the files were written with."""
        return frozenset(g.schema_id for g in self.groups)


def columns_of_files(entries: Sequence[ManifestEntry]) -> FileColumns:
    """The files by column; cached with the entries if these are :class:`LiveFiles`."""
    if not isinstance(entries, LiveFiles):
        return FileColumns(entries)
    if entries.columns is None:
        entries.columns = FileColumns(entries)
    return entries.columns
