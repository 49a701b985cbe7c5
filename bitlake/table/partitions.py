"""Partition rows of manifest entries: their values, statistics and folders, decoded once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitlake.codec.binary_row import decode_row
from bitlake.errors import InvalidRequest
from bitlake.expressions.statistics import ColumnStats, Verdict, test_stats
from bitlake.expressions.tree import columns_of
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.partition import partition_path, partition_spec, render_value
from bitlake.metadata.paths import TablePaths, is_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.schema.data_paths import DataPaths
from bitlake.table.state import TableState
from bitlake.types import AtomicType


class PartitionReader:
    """Decodes partition rows with the table's partition types; the folder is formed from the row, never parsed."""

    def __init__(self, schema: TableSchema, paths: TablePaths) -> None:
        self._fields = schema.partition_fields
        self._types = [f.type for f in self._fields]
        self._paths = paths
        self.data_paths = DataPaths(paths, schema)
        options = opt.Options(schema.options)
        self._default_name = options.get(opt.PARTITION_DEFAULT_NAME)
        self._legacy = options.get(opt.PARTITION_LEGACY_NAME)
        self._values: dict[bytes, tuple[Any, ...]] = {}
        self._folders: dict[bytes, str] = {}
        self._stats: dict[bytes, Mapping[str, ColumnStats]] = {}
        self._allowed: set[str] = set()

    def values(self, raw: bytes) -> tuple[Any, ...]:
        """The physical values of the partition columns, in key order."""
        found = self._values.get(raw)
        if found is None:
            found = self._values[raw] = tuple(decode_row(self._types, raw))
        return found

    def folder(self, raw: bytes) -> str:
        """``k1=v1/k2=v2``, empty for an unpartitioned table."""
        found = self._folders.get(raw)
        if found is None:
            found = partition_path(self._fields, self.values(raw), default_name=self._default_name, legacy=self._legacy)
            self._folders[raw] = found
        return found

    def shown(self, raw: bytes) -> dict[str, str]:
        """The partition's values as people write them, whatever the folder's name has: a DATE as ``2024-01-31``."""
        return partition_spec(self._fields, self.values(raw), default_name=self._default_name, legacy=False)

    def spec(self, raw: bytes) -> dict[str, str]:
        """The partition's values as text by column; empty for an unpartitioned table."""
        return partition_spec(self._fields, self.values(raw), default_name=self._default_name, legacy=self._legacy)

    def stats(self, raw: bytes) -> Mapping[str, ColumnStats]:
        """The partition as statistics of its columns: one value each."""
        found = self._stats.get(raw)
        if found is None:
            found = {
                f.name: ColumnStats(v, v, 1 if v is None else 0, False)
                for f, v in zip(self._fields, self.values(raw), strict=True)
            }
            self._stats[raw] = found
        return found

    def data_path(self, entry: ManifestEntry) -> str:
        """The full path of an entry's data file."""
        if entry.file.external_path is not None:
            return self._external(entry.file.external_path)
        return f"{self.bucket_dir(entry.partition, entry.bucket)}/{entry.file.file_name}"

    def bucket_dir(self, raw: bytes, bucket: int) -> str:
        """The folder of a bucket in the table."""
        return self.data_paths.folder(self.folder(raw), bucket)

    def new_file(self, raw: bytes, bucket: int, name: str) -> tuple[str, str | None]:
        """The path of a new data file, and its external path if it has one; see :meth:`DataPaths.new`."""
        return self.data_paths.new(self.folder(raw), bucket, name)

    def _external(self, path: str) -> str:
        """An external path that is allowed; its folder is looked up once."""
        folder, _, name = path.rpartition("/")
        if folder not in self._allowed or not is_file_name(name):
            self._paths.external(path, "data file")
            self._allowed.add(folder)
        return path

    def file_paths(self, entry: ManifestEntry) -> list[str]:
        """The full paths of an entry's data file and of what is kept beside it."""
        path = self.data_path(entry)
        folder = path.rsplit("/", 1)[0]
        return [path, *(f"{folder}/{extra}" for extra in entry.file.extra_files)]


def max_partition(state: TableState, entries: Sequence[ManifestEntry]) -> str:
    """The greatest value of the first partition column among live files, as text; NULL is none.

    Raises :class:`InvalidRequest` for a table without partitions.
    """
    if not state.schema.partition_keys:
        raise InvalidRequest(f"table '{state.name}' is not partitioned: it has no last partition")
    reader = PartitionReader(state.schema, state.paths)
    values = [v for v in (reader.values(raw)[0] for raw in {e.partition for e in entries}) if v is not None]
    if not values:
        raise InvalidRequest(f"table '{state.name}' has no partitions with rows")
    made = state.schema.partition_fields[0].type
    assert isinstance(made, AtomicType)
    return render_value(made, max(values), legacy=False)


def files_of_partitions(state: TableState, where: str | None, timezone: str) -> list[ManifestEntry]:
    """The live files of the partitions for which a condition holds; raises :class:`InvalidRequest` for others."""
    entries = state.entries()
    if where is None:
        return list(entries)
    # These bring sqlglot, numpy and Arrow, which only a condition needs.
    from bitlake.expressions.binder import bind
    from bitlake.expressions.parser import parse_predicate

    predicate = bind(parse_predicate(where, timezone), state.schema.fields, timezone)
    others = columns_of(predicate) - frozenset(state.schema.partition_keys)
    if others:
        raise InvalidRequest(
            f"table '{state.name}': the condition names '{min(others)}', but only partition columns "
            f"({', '.join(state.schema.partition_keys) or 'there are none'}) can choose files"
        )
    partitions = PartitionReader(state.schema, state.paths)
    return [e for e in entries if test_stats(predicate, partitions.stats(e.partition), 1) is not Verdict.NONE]


def files_by_partition(state: TableState) -> dict[tuple[Any, ...], list[ManifestEntry]]:
    """The live files by the physical values of their partition, in key order."""
    reader = PartitionReader(state.schema, state.paths)
    found: dict[tuple[Any, ...], list[ManifestEntry]] = {}
    for entry in state.entries():
        found.setdefault(reader.values(entry.partition), []).append(entry)
    return found


def discard_entries(store: Store, paths: TablePaths, schema: TableSchema, entries: Sequence[ManifestEntry]) -> None:
    """Delete new data files, and what is kept beside them, that no commit will name, as well as can be."""
    partitions = PartitionReader(schema, paths)
    from bitlake.deletion import discard_files

    for entry in entries:
        discard_files(store, partitions.file_paths(entry))
