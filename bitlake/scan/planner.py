"""From a snapshot's live files to a plan: partition → bucket → statistics → embedded index → ``.index`` files → pages.

Each step only sees the files that the cheaper ones left.  ``.index`` files are opened here, in parallel, so that a file
without a match never becomes a task.  An index that cannot be read never changes a result: its file is read whole, a
warning names it once and the scan counts it — unless ``file-index.on-unreadable`` is ``fail``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import Predicate, columns_of
from bitlake.fileindex.cost import MOST_SHARE, SMALL_ROWS, CostPolicy
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import DataFileMeta, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import LocalRunner
from bitlake.scan.column_reader import FileTask, footer_of, stored_bytes
from bitlake.scan.deletion_vectors import Vectors
from bitlake.scan.index_reader import IndexAnswer, has_index, keep_answer, known_answer, open_for
from bitlake.scan.page_pruning import narrowed_by_pages
from bitlake.scan.plan import Plan, PlannedFile, ScanMetrics, SkippedFile, SkippedFiles, SkipReason
from bitlake.scan.pruning import MetadataPruning
from bitlake.scan.pruning import physical_array as physical_array
from bitlake.scan.sort_order import Order
from bitlake.scan.top_n_planner import FileRanges, TopNRequest, plan_top_n
from bitlake.snapshot.file_columns import FileColumns, columns_of_files

log = logging.getLogger("bitlake")

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
    vectors: Vectors | None = None
    merged: tuple[PlannedFile, ...] = ()
    """What stands for files merged by key; pruned already (see :mod:`bitlake.scan.split_planner`)."""
    exact: bool = False
    """Whether the rows that match are wanted themselves, as for counting: then no index is too unselective."""


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
    spared: tuple[str, ...] = ()


def plan_files(
    request: ScanRequest, entries: Sequence[ManifestEntry], schemas: Mapping[int, TableSchema], store: Store
) -> Plan:
    """Decide for every live file whether it is read, and which of its rows."""
    started = time.perf_counter()
    metrics = ScanMetrics()
    columns = columns_of_files(entries)
    metrics.files, metrics.rows, metrics.data_bytes = len(entries), int(columns.rows.sum()), columns.total_bytes
    skipped: list[SkippedFile] = []
    problems: list[str] = []
    pruned = MetadataPruning(columns, request.schema, schemas, request.paths, request.predicate)
    left = _candidates(request, pruned, columns)
    metrics.prune_ms = (time.perf_counter() - started) * 1000
    if request.predicate is not None and request.use_index:
        left = _by_index(request, left, store, skipped, problems, metrics)
        metrics.index_ms = (time.perf_counter() - started) * 1000 - metrics.prune_ms
    files = [_planned(c) for c in left]
    if request.vectors is not None:
        files = request.vectors.take_out(files, skipped, metrics)
    if request.predicate is not None and request.use_index:
        files = narrowed_by_pages(request.predicate, files, request.schema, schemas, store, skipped, metrics)
    files += request.merged
    ordering = time.perf_counter()
    if request.order and request.limit is not None:
        wanted = TopNRequest(request.order, request.limit, request.predicate is not None, request.use_index)
        ranges = FileRanges(request.order[0], request.schema, schemas, request.paths)
        files = plan_top_n(wanted, files, ranges, schemas, store, skipped, metrics)
        metrics.top_n_ms = (time.perf_counter() - ordering) * 1000
    elif request.limit is not None:
        files = _by_limit(files, request, skipped)
    metrics.files_read = len(files)
    metrics.rows_chosen = sum(f.chosen_rows for f in files)
    metrics.files_skipped = pruned.counts()
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
        skipped=SkippedFiles(pruned.gone.tolist(), pruned.describe, skipped, pruned.outline),
        problems=tuple(problems),
        metrics=metrics,
        order=request.order,
    )


def _planned(c: _Candidate) -> PlannedFile:
    return PlannedFile(c.entry, c.path, c.partition, c.selection, c.pruned_by, c.index_place, c.spared)


# --- partition, bucket, statistics -----------------------------------------------------------------------------------


def _candidates(request: ScanRequest, pruned: MetadataPruning, files: FileColumns) -> list[_Candidate]:
    """What pruning by metadata left."""
    partitions, entries, schemas = pruned.partitions, files.entries, pruned.schemas
    found = []
    for number, whole in zip(pruned.left.tolist(), pruned.whole[pruned.left].tolist(), strict=True):
        entry = entries[number]
        schema = schemas[entry.file.schema_id]
        known = pruned.mapped.get(schema.id)
        found.append(
            _Candidate(
                entry,
                partitions.data_path(entry),
                partitions.values(entry.partition),
                request.predicate if known is None else known.predicate,
                schema,
                known is None or known.exact,
                Selection.all(exact=whole),
            )
        )
    return found


def _skip(entry: ManifestEntry, path: str, reason: SkipReason, detail: str) -> SkippedFile:
    return SkippedFile(path, reason, detail, entry.file.row_count, entry.file.file_size)


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

    exact = request.exact or request.limit is not None
    questions: dict[int, str] = {}
    terms: dict[int, str] = {}

    def question_of(candidate: _Candidate) -> str:
        # Once for each schema, not for each file; literals of equal value and another type are spelled differently.
        question = questions.get(id(candidate.predicate))
        if question is None:
            question = questions[id(candidate.predicate)] = f"{'exact ' if exact else ''}{candidate.predicate!r}"
        return question

    def judge(candidate: _Candidate) -> tuple[_Candidate, list[str], int]:
        return _judge(candidate, store, strict, question_of(candidate), exact)

    def waits(candidate: _Candidate) -> bool:
        file = candidate.entry.file
        try:
            return file.embedded_index is None and known_answer(candidate.path, file, question_of(candidate)) is None
        except CorruptError:
            return False  # the judge says so, as it does of every index that cannot be read

    wanted = [c for c in candidates if has_index(c.entry.file) and not c.selection.exact]
    separate = [c for c in wanted if waits(c)]
    apart = {id(c) for c in separate}
    here = [c for c in wanted if id(c) not in apart]
    # Embedded indexes and answers are in memory already; `.index` files wait for storage: many are under way at once.
    done = [judge(c) for c in here] + LocalRunner(_INDEX_THREADS).run(separate, judge)
    judged = {id(c): j for c, (j, _, _) in zip([*here, *separate], done, strict=True)}
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
            term = terms.get(id(result.predicate))
            if term is None:
                term = terms[id(result.predicate)] = to_sql(result.predicate, result.schema.fields)
            detail = f"{' and '.join(result.pruned_by) or 'index'}{where}: no row has {term}"
            skipped.append(_skip(result.entry, result.path, SkipReason.INDEX, detail))
        else:
            left.append(result)
    return left


def _judge(
    candidate: _Candidate, store: Store, strict: bool, question: str, exact: bool
) -> tuple[_Candidate, list[str], int]:
    file = candidate.entry.file
    candidate.index_place = "embedded" if file.embedded_index is not None else "file"
    assert candidate.predicate is not None
    found: list[str] = []
    size, first = 0, ""
    try:
        answer = known_answer(candidate.path, file, question)
        if answer is None:
            index = open_for(store, candidate.path, file, candidate.schema)
            assert index is not None  # only files with an index are asked
            before = index.bytes_read
            policy = cost_policy(store, candidate.path, file, candidate.schema, exact)
            selection, spared = index.evaluate_at_cost(candidate.predicate, policy)
            if too_many(selection, file.row_count) and not exact:
                many = f"{selection.count(file.row_count):,} rows are too many to be picked, so all are read"
                selection, spared = Selection.all(), (*spared, many)
            # Only after the question: what cannot be read is found when it is first needed.
            found = [f"cannot read the file index of {candidate.path}: {p}" for p in index.problems]
            size = index.bytes_read - before
            first = index.problems[0] if found else ""
            used = tuple(
                f"{kind}({column})"
                for column in sorted(columns_of(candidate.predicate))
                for kind in index.columns.get(column, ())
                if not any(s.startswith(f"{kind}({column}):") for s in spared)
            )
            answer = IndexAnswer(selection, used, spared)
            if not found:
                keep_answer(candidate.path, file, question, answer)
    except BitlakeError as e:
        if strict:
            raise _refused(candidate.path, str(e)) from e
        return candidate, [f"cannot read the file index of {candidate.path}: {e}"], 0
    if strict and found:
        raise _refused(candidate.path, first)
    selection = answer.selection.both(candidate.selection)
    candidate.selection = selection if candidate.same else selection.inexact()
    candidate.pruned_by, candidate.spared = answer.used, answer.spared
    return candidate, found, size


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
        if file.sure(request.predicate):
            left = request.limit - sure
            if file.chosen_rows > left:
                rows = BitMap(range(left)) if file.selection.rows is None else file.selection.rows[:left]
                file = replace(file, selection=Selection.of(rows, True))
            sure += file.chosen_rows
        kept.append(file)
    return kept


# --- cost ---
# What a file's columns weigh, for deciding whether an index is worth reading (:mod:`bitlake.fileindex.cost`).


def cost_policy(store: Store, path: str, file: DataFileMeta, schema: TableSchema, exact: bool) -> CostPolicy | None:
    """The policy for one file; None where every index is read."""
    if file.row_count < SMALL_ROWS:
        return None
    return CostPolicy(file.row_count, column_bytes(store, path, file, schema), exact=exact)


def column_bytes(store: Store, path: str, file: DataFileMeta, schema: TableSchema) -> Callable[[str], int | None]:
    """How many bytes a column takes in a file, told by its footer (cached: whoever reads the file needs it, too)."""

    def size(column: str) -> int | None:
        if not path.endswith(".parquet"):
            return file.file_size // max(len(schema.fields), 1)
        task = FileTask(path, file.file_size, file.row_count, 0, (), Selection.all(), schema)
        try:
            footer = footer_of(store, task)
            return stored_bytes(footer, [getattr(column, "column", column)], range(len(footer.row_groups)))
        except BitlakeError:
            return None  # the read will tell what is wrong

    return size


def too_many(selection: Selection, row_count: int) -> bool:
    """Whether a selection has so many of a large file's rows that reading all of them is faster."""
    return selection.rows is not None and row_count >= SMALL_ROWS and len(selection.rows) > MOST_SHARE * row_count
