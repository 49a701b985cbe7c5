"""Partitions of a snapshot: their values, statistics and folders, which files they hold, and which are marked as done.

Partition rows of manifest entries are decoded once each.

Manifest lists record which partitions each manifest holds.  In a table of many files, a manifest in which the required
partitions are a small part is decoded only around them
(:func:`bitlake.metadata.manifest.decode_entries`).  A small table is read whole: its plan then names every file
and the reason why it is skipped.  Of a large table without partitions, writers read the files of their buckets
(:func:`entries_of_buckets`).

A partition is marked as done by a file ``_SUCCESS`` in its folder, Paimon's ``success-file`` action.
``CALL sys.mark_partition_done`` marks one; with ``partition.end-input-to-done`` every batch write marks those that it
wrote to.  Source: Paimon's ``SuccessFileMarkDoneAction`` and the Spark writer's ``markDoneIfNeeded``.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake import _clock
from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.errors import (
    BitlakeError,
    InvalidRequest,
    NotFound,
)
from bitlake.expressions.statistics import ColumnStats, Verdict, test_stats
from bitlake.expressions.tree import TRUE, Predicate, all_of, columns_of, named_values, terms_on
from bitlake.io import Store
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.metadata.java_json import dumps
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.paths import (
    TablePaths,
    is_file_name,
    partition_path,
    partition_spec,
    render_value,
)
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import FileStats
from bitlake.schema.data_paths import DataPaths
from bitlake.snapshot import manifests as live
from bitlake.snapshot.file_columns import FileColumns, columns_of_files, in_partitions
from bitlake.snapshot.manifests import PartitionSet
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, discard_files
from bitlake.types import AtomicType, Root


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

    def title(self, raw: bytes) -> str:
        """The partition for people, ``day=2024-01-31/hour=5``; empty for an unpartitioned table."""
        return "/".join(f"{name}={text}" for name, text in self.shown(raw).items())

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


def index_path(paths: TablePaths, schema: TableSchema, entry: IndexFileEntry) -> str:
    """The full path of an index file: external, beside the data (``index-file-in-data-file-dir``), or in ``index/``."""
    if entry.external_path is not None:
        return paths.external(entry.external_path, "index file")
    if not schema.opts.of(opt.INDEX_IN_DATA_DIR):
        return paths.index(entry.file_name)
    return f"{PartitionReader(schema, paths).bucket_dir(entry.partition, entry.bucket)}/{entry.file_name}"


def new_index_file(
    paths: TablePaths, schema: TableSchema, partition: bytes, bucket: int, name: str
) -> tuple[str, str | None]:
    """The path of a new index file of a bucket by the table's options, and its external path, None if it has none."""
    if not schema.opts.of(opt.INDEX_IN_DATA_DIR):
        return paths.index(name), None
    return PartitionReader(schema, paths).new_file(partition, bucket, name)


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
    kind = state.schema.partition_fields[0].type
    assert isinstance(kind, AtomicType)
    return render_value(kind, max(values), legacy=False)


def files_of_partitions(state: TableState, where: str | None, timezone: str) -> Sequence[ManifestEntry]:
    """The live files of the partitions for which a condition holds; raises :class:`InvalidRequest` for others.

    Of a table with many files, only the manifests and blocks of partitions that can meet the condition are decoded.
    """
    if where is None:
        return state.entries()
    # These bring sqlglot, which only a condition needs.
    from bitlake.expressions.binder import bind
    from bitlake.expressions.parser import parse_predicate

    predicate = bind(parse_predicate(where, timezone), state.schema.fields, timezone)
    others = columns_of(predicate) - frozenset(state.schema.partition_keys)
    if others:
        raise InvalidRequest(
            f"table '{state.name}': the condition names '{min(others)}', but only partition columns "
            f"({', '.join(state.schema.partition_keys) or 'there are none'}) can choose files"
        )
    if not state.schema.partition_keys:
        return state.entries() if predicate == TRUE else []
    files = columns_of_files(files_to_plan(state, predicate).files)
    matches = _partitions_match(state, predicate, files)
    return list(files.take(np.flatnonzero(matches[files.partitions[1]])))


def partitions_where(state: TableState, predicate: Predicate) -> list[dict[str, Any]]:
    """The partitions with files for which a bound condition on their columns is TRUE, as physical values by column."""
    files = columns_of_files(files_to_plan(state, predicate).files)
    values = PartitionReader(state.schema, state.paths).values
    matches = _partitions_match(state, predicate, files)
    raws = itertools.compress(files.partitions[0], matches)
    return [dict(zip(state.schema.partition_keys, values(raw), strict=True)) for raw in raws]


def _partitions_match(state: TableState, predicate: Predicate, files: FileColumns) -> Any:
    """Whether the condition holds for each of the files' partitions."""
    from bitlake.expressions.evaluate import evaluate, physical_array  # brings numpy and Arrow

    fields, raws = state.schema.partition_fields, files.partitions[0]
    partitions = PartitionReader(state.schema, state.paths)
    values = zip(*map(partitions.values, raws), strict=True) if raws else ((),) * len(fields)
    columns = {f.name: physical_array(f, of_field) for f, of_field in zip(fields, values, strict=True)}
    return evaluate(predicate, pa.table(columns), fields).fill_null(False).to_numpy(zero_copy_only=False)


def files_by_partition(state: TableState) -> dict[tuple[Any, ...], list[ManifestEntry]]:
    """The live files by the physical values of their partition, in key order."""
    reader = PartitionReader(state.schema, state.paths)
    files: dict[tuple[Any, ...], list[ManifestEntry]] = {}
    for entry in state.entries():
        files.setdefault(reader.values(entry.partition), []).append(entry)
    return files


def discard_entries(table: TableFiles, schema: TableSchema, entries: Sequence[ManifestEntry]) -> None:
    """Delete new data files, and the files beside them, that no commit will name.  Storage errors are suppressed."""
    partitions = PartitionReader(schema, table.paths)

    for entry in entries:
        discard_files(table.store, partitions.file_paths(entry))


MANY_FILES = 10_000
"""The number of live files from which on other partitions than the requested ones stay unread."""
_MOST_ROWS = 64
"""Partitions that are looked for one by one."""
_ONE_SPELLING = frozenset(
    (Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DATE, Root.VARCHAR, Root.DECIMAL)
)
"""Types of which equal values have equal bytes (0.0 and -0.0 have not)."""


@dataclass(frozen=True, slots=True)
class FilesToPlan:
    """The files to look at, and how many others there are, which all are of partitions that are not asked for."""

    files: Sequence[ManifestEntry]
    unseen: int = 0
    manifests: int = 0
    """The number of manifests, if any files are unseen."""
    manifests_read: int = 0
    skipped: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    """Files that tasks skipped beside these, by reason: numbers of files, of rows and of bytes."""

    def without_partitions_of(self, others: FilesToPlan) -> FilesToPlan:
        """Only the files of partitions in which the others are not."""
        known = {e.partition for e in others.files}
        return replace(self, files=[e for e in self.files if e.partition not in known])


def is_large(state: TableState) -> bool:
    """Whether a table has too many files to look at those of unwanted partitions or buckets.

    It is the same in every process, whether or not the files are cached there.
    """
    return state.is_snapshot and _count(state) >= MANY_FILES


def has_many_files(state: TableState) -> bool:
    """Whether a table is large and partitioned: a condition may choose few of its files."""
    return bool(state.schema.partition_keys) and is_large(state)


def newest_files(state: TableState, count: int) -> Sequence[ManifestEntry]:
    """Up to ``count`` of the files that were added last; of a table of many files as many as are quickly found."""
    snapshot = state.snapshot
    if snapshot is None or not state.is_snapshot or _is_known(state) or _count(state) < MANY_FILES:
        return state.entries()[-count:]
    out: list[ManifestEntry] = []
    for meta in reversed(live.snapshot_manifests(state.table_files, snapshot)):
        if out and meta.num_added_files >= live.MANY_ENTRIES:
            break
        (entries,) = live.read_manifests(state.table_files, [meta])
        out = [*(e for e in entries if e.kind is EntryKind.ADD), *out]
        if len(out) >= count:
            break
    return out[-count:]


def _count(state: TableState) -> int:
    """The number of live files, by the manifest lists."""
    if state.snapshot is None:
        return 0
    metas = live.snapshot_manifests(state.table_files, state.snapshot)
    return sum(m.num_added_files - m.num_deleted_files for m in metas)


def _is_known(state: TableState) -> bool:
    return state.snapshot is not None and live.is_cached(state.table_files, state.snapshot)


def entries_of(state: TableState, partitions: Collection[bytes]) -> Sequence[ManifestEntry]:
    """The live files of some partitions (BinaryRows with arity), and maybe others', where the table is not large."""
    if not has_many_files(state):
        return state.entries()
    rows = frozenset(partitions)
    types = [f.type for f in state.schema.partition_fields]
    return in_partitions(state.entries(live.PartitionFilter(PartitionSet(rows, types).meets, rows)), rows)


def entries_of_buckets(state: TableState, slots: Collection[tuple[bytes, int]]) -> Sequence[ManifestEntry]:
    """The live files of some buckets (partition and number), and maybe others'.

    Of a large table without partitions, those of no other bucket; of one with partitions, those of no other partition.
    """
    if state.schema.partition_keys or not is_large(state):
        return entries_of(state, {partition for partition, _ in slots})
    return state.bucket_entries({bucket for _, bucket in slots})


def files_to_plan(state: TableState, predicate: Predicate | None) -> FilesToPlan:
    """The live files of a table's snapshot that can hold rows for which ``predicate`` (bound) is TRUE, or all."""
    terms = terms_on(predicate, state.schema.partition_keys)
    snapshot = state.snapshot
    if snapshot is None or not state.is_snapshot or not terms or live.is_cached(state.table_files, snapshot):
        return FilesToPlan(state.entries())
    metas = live.snapshot_manifests(state.table_files, snapshot)
    total = _count(state)
    if total < MANY_FILES:
        return FilesToPlan(state.entries())
    met = frozenset(m.file_name for m in manifests_of(state.schema, metas, terms))
    found = state.entries(live.PartitionFilter(lambda m: m.file_name in met, rows_of(state.schema, terms)))
    return FilesToPlan(found, total - len(found), len(metas), len(met))


def manifests_of(
    schema: TableSchema, metas: Sequence[ManifestFileMeta], terms: Sequence[Predicate]
) -> list[ManifestFileMeta]:
    """The manifests that may have files of partitions for which all ``terms``, about partition columns, are TRUE."""
    fields, asked = schema.partition_fields, all_of(terms)

    def meets(meta: ManifestFileMeta) -> bool:
        stats = FileStats(meta.partition_stats, fields, None)
        return test_stats(asked, stats, meta.entry_count) is not Verdict.NONE

    return [m for m in metas if meets(m)]


def rows_of(schema: TableSchema, terms: Sequence[Predicate]) -> frozenset[bytes] | None:
    """The rows of all partitions that the terms leave, if they name values of every partition column."""
    values: list[tuple[Any, ...]] = []
    count = 1
    for field in schema.partition_fields:
        if not isinstance(field.type, AtomicType) or field.type.root not in _ONE_SPELLING:
            return None
        named = named_values(terms, field.name)
        if named is None:
            return None
        values.append(named)
        count *= len(named)
    if count > _MOST_ROWS:
        return None
    types = [f.type for f in schema.partition_fields]
    return frozenset(encode_row_with_arity(types, row) for row in itertools.product(*values))


log = logging.getLogger("bitlake")


def mark_partition_done(state: TableState, values: Mapping[str, Any]) -> str:
    """Mark the partition with these physical values; raises :class:`NotFound` if it has no rows."""
    keys = state.schema.partition_keys
    if not keys or set(values) != set(keys):
        raise InvalidRequest(f"table '{state.name}': a partition has values of {', '.join(keys) or 'no column'}")
    entries = files_by_partition(state).get(tuple(values[k] for k in keys))
    if entries is None:
        shown = ", ".join(f"{k}={v}" for k, v in values.items())
        raise NotFound(f"table '{state.name}' has no partition {shown}")
    return mark_done(state, entries[0].partition)


def mark_done(state: TableState, partition: bytes) -> str:
    """Mark a partition (a BinaryRow with arity) and return the path of its file, which keeps its time of creation."""
    folder = PartitionReader(state.schema, state.paths).folder(partition)
    path = f"{TablePaths(state.paths.root).root}/{folder}/_SUCCESS"
    write_success_file(state.store, path)
    return path


def write_success_file(store: Store, path: str) -> None:
    """Write Paimon's JSON of a success file; a file that exists keeps its time of creation."""
    now = _clock.now_ms()
    try:
        created = json.loads(store.read(path))["creationTime"]
    except (NotFound, ValueError, KeyError, TypeError):
        created = now
    store.write(path, dumps({"creationTime": created, "modificationTime": now}).encode())


def mark_written(state: TableState, files: Iterable[ManifestEntry]) -> None:
    """Mark the partitions of a write's committed files, if the table asks for it; a failure is logged."""
    if not state.schema.opts.of(opt.PARTITION_END_INPUT_DONE) or not state.schema.partition_keys:
        return
    try:
        for partition in dict.fromkeys(e.partition for e in files):
            mark_done(state, partition)
    except BitlakeError as e:
        log.warning("%s: snapshot %s is committed, but a partition is not marked: %s", state.name, state.snapshot_id, e)
