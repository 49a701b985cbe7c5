"""Which live files a plan or a write has to look at, in a table of very many files of which it needs some partitions.

Manifests say in their list which partitions they hold; and one in which the wanted partitions are a small part is
decoded only around them (:func:`bitlake.metadata.manifest_records.decode_entries`).  A small table is read whole: its
plan then names every file and why it goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.expressions.statistics import Verdict, test_stats
from bitlake.expressions.tree import Predicate, all_of, named_values, terms_on
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import FileStats
from bitlake.table import live
from bitlake.table.manifests import PartitionSet
from bitlake.table.state import TableState
from bitlake.types import AtomicType, Root

MANY_FILES = 10_000
"""Live files from which on the partitions that are not asked for stay unseen."""
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
    """How many manifests there are, if any files are unseen."""
    manifests_read: int = 0

    def without_partitions_of(self, others: FilesToPlan) -> FilesToPlan:
        """Only the files of partitions in which the others are not."""
        known = {e.partition for e in others.files}
        return replace(self, files=[e for e in self.files if e.partition not in known])


def is_large(state: TableState) -> bool:
    """Whether a table has so many files that those of other partitions than the wanted ones should stay unseen."""
    return has_many_files(state) and not _is_known(state)


def has_many_files(state: TableState) -> bool:
    """:func:`is_large`, and the same whether or not this process knows the files: for what other processes will do."""
    return state.is_snapshot and bool(state.schema.partition_keys) and _count(state) >= MANY_FILES


def newest_files(state: TableState, count: int) -> Sequence[ManifestEntry]:
    """Up to ``count`` of the files that were added last; of a table of many files as many as are quickly found."""
    snapshot = state.snapshot
    if snapshot is None or not state.is_snapshot or _is_known(state) or _count(state) < MANY_FILES:
        return state.entries()[-count:]
    out: list[ManifestEntry] = []
    for meta in reversed(live.snapshot_manifests(state.store, state.paths, snapshot)):
        if out and meta.num_added_files >= live.MANY_ENTRIES:
            break
        (entries,) = live.read_manifests(state.store, state.paths, [meta])
        out = [*(e for e in entries if e.kind is EntryKind.ADD), *out]
        if len(out) >= count:
            break
    return out[-count:]


def _count(state: TableState) -> int:
    """The live files, as the manifest lists tell."""
    if state.snapshot is None:
        return 0
    metas = live.snapshot_manifests(state.store, state.paths, state.snapshot)
    return sum(m.num_added_files - m.num_deleted_files for m in metas)


def _is_known(state: TableState) -> bool:
    return state.snapshot is not None and live.is_cached(state.paths, state.snapshot)


def entries_of(state: TableState, partitions: Collection[bytes]) -> Sequence[ManifestEntry]:
    """The live files of some partitions (BinaryRows with arity), and maybe others', where the table is not large."""
    if not is_large(state):
        return state.entries()
    rows = frozenset(partitions)
    types = [f.type for f in state.schema.partition_fields]
    return state.entries(live.PartitionFilter(PartitionSet(rows, types).meets, rows))


def files_to_plan(state: TableState, predicate: Predicate | None) -> FilesToPlan:
    """The live files of a table's snapshot that can hold rows for which ``predicate`` (bound) is TRUE, or all."""
    terms = terms_on(predicate, state.schema.partition_keys)
    snapshot = state.snapshot
    if snapshot is None or not state.is_snapshot or not terms or live.is_cached(state.paths, snapshot):
        return FilesToPlan(state.entries())
    metas = live.snapshot_manifests(state.store, state.paths, snapshot)
    total = _count(state)
    if total < MANY_FILES:
        return FilesToPlan(state.entries())
    fields = state.schema.partition_fields
    asked = all_of(terms)

    def meets(meta: ManifestFileMeta) -> bool:
        stats = FileStats(meta.partition_stats, fields, None)
        return test_stats(asked, stats, meta.num_added_files + meta.num_deleted_files) is not Verdict.NONE

    met = frozenset(m.file_name for m in metas if meets(m))
    found = state.entries(live.PartitionFilter(lambda m: m.file_name in met, _rows(state.schema, terms)))
    return FilesToPlan(found, total - len(found), len(metas), len(met))


def _rows(schema: TableSchema, terms: Sequence[Predicate]) -> frozenset[bytes] | None:
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
