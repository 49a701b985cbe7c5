"""From a snapshot's live files to a plan: partition → bucket → statistics → embedded index → ``.index`` files.

Each step only sees the files that the cheaper ones left.  ``.index`` files are opened here, in parallel, so that a file
without a match never becomes a task.  An index that cannot be read never changes a result: its file is read whole, a
warning names it once and the scan counts it — unless ``file-index.on-unreadable`` is ``fail``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.bucket import bucket_of
from bitlake.errors import BitlakeError, CorruptError
from bitlake.fileindex.selection import Selection
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.predicate.stats import ColumnStats, Verdict, test_stats
from bitlake.predicate.text import to_sql
from bitlake.predicate.tree import And, Comparison, In, Op, Predicate, columns_of, conjuncts
from bitlake.storage import Store
from bitlake.table.evolution import MappedPredicate, map_fields, map_predicate, same_columns
from bitlake.table.index_access import has_index, open_for
from bitlake.table.order import Order
from bitlake.table.partitions import PartitionReader
from bitlake.table.plan import Plan, PlannedFile, ScanMetrics, SkippedFile, SkipReason
from bitlake.table.runner import LocalRunner
from bitlake.table.topn import FileRanges, TopNRequest, plan_top_n
from bitlake.types import DataField, arrow_type

log = logging.getLogger("bitlake")

_MAX_BUCKET_COMBINATIONS = 1000
_INDEX_THREADS = 16
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What is asked of a table; the predicate is bound to ``schema``."""

    table: str
    paths: TablePaths
    schema: TableSchema
    snapshot_id: int | None
    columns: tuple[str, ...]
    predicate: Predicate | None
    limit: int | None = None
    use_index: bool = True
    order: tuple[Order, ...] = ()


@dataclass(slots=True)
class _Candidate:
    entry: ManifestEntry
    path: str
    partition: tuple[Any, ...]
    predicate: Predicate | None
    schema: TableSchema
    same: bool = True
    """Whether ``predicate``, said in the file's names, is TRUE for just the rows that the scan's is TRUE for."""
    selection: Selection = field(default_factory=Selection.all)
    pruned_by: tuple[str, ...] = ()
    index_place: str | None = None


def plan_files(
    request: ScanRequest, entries: Sequence[ManifestEntry], schemas: Mapping[int, TableSchema], store: Store
) -> Plan:
    """Decide for every live file whether it is read, and which of its rows."""
    started = time.perf_counter()
    metrics = ScanMetrics()
    metrics.files = len(entries)
    metrics.rows = sum(e.file.row_count for e in entries)
    metrics.data_bytes = sum(e.file.file_size for e in entries)
    skipped: list[SkippedFile] = []
    problems: list[str] = []
    left = _by_metadata(request, entries, schemas, skipped)
    if request.predicate is not None and request.use_index:
        left = _by_index(request, left, store, skipped, problems, metrics)
    files = [PlannedFile(c.entry, c.path, c.partition, c.selection, c.pruned_by, c.index_place) for c in left]
    if request.order and request.limit is not None:
        wanted = TopNRequest(request.order, request.limit, request.predicate is not None, request.use_index)
        ranges = FileRanges(request.order[0], request.schema, schemas, request.paths)
        files = plan_top_n(wanted, files, ranges, schemas, store, skipped, metrics)
    elif request.limit is not None:
        files = _by_limit(files, request, skipped)
    metrics.files_read = len(files)
    metrics.rows_chosen = sum(f.chosen_rows for f in files)
    for s in skipped:
        metrics.files_skipped[s.reason.value] = metrics.files_skipped.get(s.reason.value, 0) + 1
    metrics.plan_ms = (time.perf_counter() - started) * 1000
    return Plan(
        table=request.table,
        root=request.paths.root,
        schema=request.schema,
        schemas=schemas,
        snapshot_id=request.snapshot_id,
        columns=request.columns,
        predicate=request.predicate,
        limit=request.limit,
        files=tuple(files),
        skipped=tuple(skipped),
        problems=tuple(problems),
        metrics=metrics,
        order=request.order,
    )


# --- partition, bucket, statistics -----------------------------------------------------------------------------------


def _by_metadata(
    request: ScanRequest,
    entries: Sequence[ManifestEntry],
    schemas: Mapping[int, TableSchema],
    skipped: list[SkippedFile],
) -> list[_Candidate]:
    schema, predicate = request.schema, request.predicate
    partitions = PartitionReader(schema, request.paths)
    terms = conjuncts(predicate) if predicate is not None else ()
    keys = frozenset(schema.partition_keys)
    on_partition = And(tuple(t for t in terms if columns_of(t) and columns_of(t) <= keys))
    buckets = _BucketFilter(schema, terms)
    verdicts: dict[bytes, Verdict] = {}
    mappings: dict[int, MappedPredicate] = {}
    left: list[_Candidate] = []
    for entry in entries:
        raw = entry.partition
        path = partitions.data_path(entry)
        if on_partition.children:
            verdict = verdicts.get(raw)
            if verdict is None:
                verdict = verdicts[raw] = test_stats(on_partition, partitions.stats(raw), 1)
            if verdict is Verdict.NONE:
                detail = f"partition {partitions.folder(raw)} fails {to_sql(on_partition, schema.fields)}"
                skipped.append(_skip(entry, path, SkipReason.PARTITION, detail))
                continue
        file_schema = schemas[entry.file.schema_id]
        if not buckets.keeps(entry, file_schema):
            skipped.append(
                _skip(entry, path, SkipReason.BUCKET, f"bucket {entry.bucket} holds none of the key's values")
            )
            continue
        candidate = _Candidate(entry, path, partitions.values(raw), predicate, file_schema)
        if predicate is not None:
            known = mappings.get(file_schema.id)
            if known is None:
                mapping = map_fields(schema.fields, file_schema.fields)
                known = mappings[file_schema.id] = map_predicate(predicate, schema.fields, mapping)
            candidate.predicate, candidate.same = known.predicate, known.exact
            stats: Mapping[str, ColumnStats] = column_stats(entry.file, file_schema.fields)
            if keys:
                stats = {**stats, **partitions.stats(raw)}
            verdict = test_stats(known.predicate, stats, entry.file.row_count)
            if verdict is Verdict.NONE:
                detail = _stats_detail(known.predicate, stats, file_schema.fields)
                skipped.append(_skip(entry, path, SkipReason.STATS, detail))
                continue
            if verdict is Verdict.ALL and known.exact:
                candidate.selection = Selection.all(exact=True)
        left.append(candidate)
    return left


def _skip(entry: ManifestEntry, path: str, reason: SkipReason, detail: str) -> SkippedFile:
    return SkippedFile(path, reason, detail, entry.file.row_count, entry.file.file_size)


def _stats_detail(predicate: Predicate, stats: Mapping[str, ColumnStats], fields: Sequence[DataField]) -> str:
    """Name the first term that statistics exclude, and the range that excludes it."""
    for term in conjuncts(predicate):
        for column in sorted(columns_of(term)):
            known = stats.get(column)
            if known is not None and (known.min is not None or known.null_count is not None):
                return (
                    f"{column} is in [{known.min!r}, {known.max!r}] with {known.null_count} NULLs: "
                    f"{to_sql(predicate, fields)} is never true"
                )
    return f"{to_sql(predicate, fields)} is never true"


class _BucketFilter:
    """Which buckets can hold rows whose bucket key equals the predicate's literals.

    Uses each entry's own bucket count, never the table's current option.
    """

    def __init__(self, schema: TableSchema, terms: Sequence[Predicate]) -> None:
        self._values: list[tuple[Any, ...]] = []
        self._possible: dict[int, frozenset[int]] = {}
        self._fields = [schema.field(k) for k in schema.bucket_keys]
        self._function = opt.Options(schema.options).get(opt.BUCKET_FUNCTION)
        combinations = 1
        for key in schema.bucket_keys:
            found: tuple[Any, ...] | None = None
            for term in terms:
                if isinstance(term, Comparison) and term.op is Op.EQ and term.column == key:
                    found = (term.value,)
                elif isinstance(term, In) and not term.negated and term.column == key and found is None:
                    found = term.values
            if found is None:
                self._values = []
                return
            if any(isinstance(v, float) and (v == 0 or v != v) for v in found):
                # 0.0 and -0.0 are equal but hash apart, and so do two NaNs.
                self._values = []
                return
            combinations *= len(found)
            self._values.append(found)
        if combinations > _MAX_BUCKET_COMBINATIONS:
            self._values = []

    def keeps(self, entry: ManifestEntry, file_schema: TableSchema) -> bool:
        total = entry.total_buckets
        if not self._values or total <= 0:
            return True
        if not same_columns(self._fields, file_schema.fields):
            # The rows were spread by the hash of another type's values.
            return True
        possible = self._possible.get(total)
        if possible is None:
            grid = np.meshgrid(*[np.arange(len(v)) for v in self._values], indexing="ij")
            arrays = [
                physical_array(f, values).take(pa.array(g.ravel()))
                for f, values, g in zip(self._fields, self._values, grid, strict=True)
            ]
            numbers = bucket_of([f.type for f in self._fields], arrays, total, self._function)
            possible = self._possible[total] = frozenset(numbers.tolist())
        return entry.bucket in possible


def physical_array(column: DataField, values: Sequence[Any]) -> pa.Array:
    """An Arrow array of a column's type from physical values (see :mod:`bitlake.predicate.tree`)."""
    wanted = arrow_type(column.type)
    if pa.types.is_decimal(wanted):
        words = b"".join(b"\0" * 16 if v is None else int(v).to_bytes(16, "little", signed=True) for v in values)
        mask = pa.array([v is not None for v in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(wanted, len(values), [mask, pa.py_buffer(words)])
    if pa.types.is_timestamp(wanted):
        return pa.array(values, pa.int64()).cast(wanted)
    if pa.types.is_date(wanted) or pa.types.is_time(wanted):
        return pa.array(values, pa.int32()).cast(wanted)
    return pa.array(values, wanted)


# --- file indexes ----------------------------------------------------------------------------------------------------


def _by_index(
    request: ScanRequest,
    candidates: Sequence[_Candidate],
    store: Store,
    skipped: list[SkippedFile],
    problems: list[str],
    metrics: ScanMetrics,
) -> list[_Candidate]:
    options = opt.Options(request.schema.options)
    if not options.get(opt.INDEX_READ):
        return list(candidates)
    strict = options.get(opt.INDEX_ON_UNREADABLE) == "fail"

    def judge(candidate: _Candidate) -> tuple[_Candidate, list[str], int]:
        return _judge(candidate, store, strict)

    wanted = [c for c in candidates if has_index(c.entry.file) and not c.selection.exact]
    embedded = [c for c in wanted if c.entry.file.embedded_index is not None]
    separate = [c for c in wanted if c.entry.file.embedded_index is None]
    # Embedded indexes are in memory already; `.index` files wait for storage, so many are under way at once.
    done = [judge(c) for c in embedded] + LocalRunner(_INDEX_THREADS).run(separate, judge)
    judged = {id(c): j for c, (j, _, _) in zip([*embedded, *separate], done, strict=True)}
    for candidate, found, size in done:
        metrics.index_bytes_read += size
        metrics.index_files_opened += candidate.index_place == "file"
        metrics.unreadable_indexes += bool(found)
        for problem in found:
            problems.append(problem)
            if problem not in _warned:
                _warned.add(problem)
                log.warning("%s; its data is read without the index", problem)
    left = []
    for candidate in candidates:
        result = judged.get(id(candidate), candidate)
        if result.selection.is_empty:
            where = "" if result.index_place is None else f", {result.index_place}"
            assert result.predicate is not None
            by, term = " and ".join(result.pruned_by) or "index", to_sql(result.predicate, result.schema.fields)
            detail = f"{by}{where}: no row has {term}"
            skipped.append(_skip(result.entry, result.path, SkipReason.INDEX, detail))
        else:
            left.append(result)
    return left


def _judge(candidate: _Candidate, store: Store, strict: bool) -> tuple[_Candidate, list[str], int]:
    file = candidate.entry.file
    place = "embedded" if file.embedded_index is not None else "file"
    assert candidate.predicate is not None
    try:
        index = open_for(store, candidate.path, file, candidate.schema)
        if index is None:
            return candidate, [], 0
        before = index.bytes_read
        selection = index.evaluate(candidate.predicate).both(candidate.selection)
        if not candidate.same:
            selection = selection.inexact()
        # Only after the question: what cannot be read is found when it is first needed.
        found = [f"cannot read the file index of {candidate.path}: {p}" for p in index.problems]
    except BitlakeError as e:
        if strict:
            raise _refused(candidate.path, str(e)) from e
        unread = replace(candidate, index_place=place)
        return unread, [f"cannot read the file index of {candidate.path}: {e}"], 0
    if strict and found:
        raise _refused(candidate.path, index.problems[0])
    used = tuple(
        f"{kind}({column})"
        for column in sorted(columns_of(candidate.predicate))
        for kind in index.columns.get(column, ())
    )
    judged = replace(candidate, selection=selection, pruned_by=used, index_place=place)
    return judged, found, index.bytes_read - before


def _refused(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"cannot read the file index of {path}: {why}; rebuild it with rewrite_file_index, "
        f"or set '{opt.INDEX_ON_UNREADABLE.name}' = 'scan' to read the file without it"
    )


# --- limit -----------------------------------------------------------------------------------------------------------


def _by_limit(files: Sequence[PlannedFile], request: ScanRequest, skipped: list[SkippedFile]) -> list[PlannedFile]:
    """Drop files, and rows of the last one, beyond the point where rows known to match reach the limit."""
    assert request.limit is not None
    kept: list[PlannedFile] = []
    sure = 0
    for file in files:
        if sure >= request.limit:
            detail = f"the {len(kept)} files before it hold {sure} matching rows, and the limit is {request.limit}"
            skipped.append(_skip(file.entry, file.path, SkipReason.LIMIT, detail))
            continue
        if request.predicate is None or file.selection.exact:
            left = request.limit - sure
            if file.chosen_rows > left:
                rows = BitMap(range(left)) if file.selection.rows is None else file.selection.rows[:left]
                file = replace(file, selection=Selection.of(rows, True))
            sure += file.chosen_rows
        kept.append(file)
    return kept
