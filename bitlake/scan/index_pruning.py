"""Prune files and rows by file indexes: embedded in the manifest, or in ``.index`` files beside the data.

Indexes are read only for files whose matching rows are not known exactly.  ``.index`` files are opened here, many at
once, so that a file without a match never becomes a task.  An index that would cost more than it saves is not read
(:mod:`bitlake.fileindex.cost`).  An index that cannot be read never changes a result: its file is read whole, a warning
names it once and the plan counts it, unless ``file-index.on-unreadable`` is ``fail``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from bitlake.errors import BitlakeError, CorruptError
from bitlake.expressions.sql_text import to_sql
from bitlake.fileindex.cost import MOST_SHARE, SMALL_ROWS, CostPolicy
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import DataFileMeta, has_index
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import REQUESTS, CacheName, LocalRunner
from bitlake.scan.column_reader import FileTask, footer_of, stored_bytes
from bitlake.scan.index_reader import IndexResult, cache_result, cached_result, open_file_index
from bitlake.scan.plan import PlannedFile, PlanStep, SkippedFile, SkipReason, StepName
from bitlake.schema.evolution import MappedPredicate

log = logging.getLogger("bitlake")

_WARNED: CacheName[str, bool] = CacheName("warnings of indexes")
"""The problems that were logged."""


def prune_by_index(
    files: Sequence[PlannedFile],
    mapped: Mapping[int, MappedPredicate],
    schemas: Mapping[int, TableSchema],
    options: opt.Options,
    store: Store,
    *,
    exact: bool,
) -> PlanStep:
    """Ask the files' indexes about a predicate, which ``mapped`` has in the names of each schema of files.

    ``exact``: matching rows must be known exactly where possible (to count them, or for the first N), so that no index
    is too unselective.  Raises :class:`CorruptError` for an unreadable index if ``file-index.on-unreadable`` is
    ``fail``.
    """
    started = time.perf_counter()
    if not options.get(opt.INDEX_READ):
        return PlanStep(StepName.INDEXES, files, ms=(time.perf_counter() - started) * 1000)
    strict = options.get(opt.INDEX_ON_UNREADABLE) == "fail"
    asked = [f for f in files if has_index(f.entry.file) and not f.selection.exact]
    # One question for each schema, not for each file.
    questions = {i: _Question(mapped[i], schemas[i], exact) for i in {f.entry.file.schema_id for f in asked}}

    def question_of(file: PlannedFile) -> _Question:
        return questions[file.entry.file.schema_id]

    def ask(file: PlannedFile) -> _Answered:
        return _ask(file, question_of(file), store, strict)

    # Embedded indexes and cached results are in memory; `.index` files wait for storage and are read in parallel.
    stored = [f for f in asked if _needs_storage(f, question_of(f), store)]
    waiting = {id(f) for f in stored}
    in_memory = [f for f in asked if id(f) not in waiting]
    answers = [ask(f) for f in in_memory] + LocalRunner(REQUESTS).run(stored, ask)
    answered = {id(f): a.file for f, a in zip([*in_memory, *stored], answers, strict=True)}
    problems = tuple(p for a in answers for p in a.problems)
    _warn(store, problems)
    kept, skipped = [], []
    for before in files:
        file = answered.get(id(before), before)
        if file.selection.is_empty:
            skipped.append(_skip(file, question_of(file)))
        else:
            kept.append(file)
    return PlanStep(
        StepName.INDEXES,
        kept,
        skipped,
        problems,
        unreadable=sum(bool(a.problems) for a in answers),
        index_bytes=sum(a.bytes for a in answers),
        index_files=sum(a.file.index_place == "file" for a in answers),
        ms=(time.perf_counter() - started) * 1000,
    )


@dataclass(frozen=True)
class _Question:
    """A predicate put to the indexes of all files of one schema."""

    mapped: MappedPredicate
    schema: TableSchema
    exact: bool

    @cached_property
    def key(self) -> str:
        """Tells questions apart, for kept answers: literals of equal value and another type have another repr."""
        return f"{'exact ' if self.exact else ''}{self.mapped.predicate!r}"

    @cached_property
    def sql(self) -> str:
        """The predicate as SQL."""
        return to_sql(self.mapped.predicate, self.schema.fields)


class _Answered(NamedTuple):
    """A file narrowed by its index, why an index could not be read, and the bytes read."""

    file: PlannedFile
    problems: Sequence[str] = ()
    bytes: int = 0


def _needs_storage(planned: PlannedFile, question: _Question, store: Store) -> bool:
    file = planned.entry.file
    try:
        return file.embedded_index is None and cached_result(store, planned.path, file, question.key) is None
    except CorruptError:
        return False  # asking reports it, as for every index that cannot be read


def _ask(planned: PlannedFile, question: _Question, store: Store, strict: bool) -> _Answered:
    file = planned.entry.file
    place = "embedded" if file.embedded_index is not None else "file"
    problems: Sequence[str] = ()
    size = 0
    try:
        result = cached_result(store, planned.path, file, question.key)
        if result is None:
            result, problems, size = _evaluate(planned, question, store)
            if not problems:
                cache_result(store, planned.path, file, question.key, result)
    except BitlakeError as e:
        if strict:
            raise _refused(planned.path, str(e)) from e
        return _Answered(replace(planned, index_place=place), (_unreadable(planned.path, e),))
    if strict and problems:
        raise _refused(planned.path, problems[0])
    # Usually all rows of the file are left, and there is nothing to intersect with.
    selection = result.selection if planned.selection.rows is None else result.selection.both(planned.selection)
    narrowed = PlannedFile(
        planned.entry,
        planned.path,
        planned.partition,
        selection if question.mapped.exact else selection.inexact(),
        result.used,
        place,
        result.unused,
    )
    return _Answered(narrowed, [_unreadable(planned.path, p) for p in problems] if problems else (), size)


def _evaluate(planned: PlannedFile, question: _Question, store: Store) -> tuple[IndexResult, Sequence[str], int]:
    """Open a file's index and evaluate the predicate: the answer, what could not be read, and the bytes read."""
    file, predicate = planned.entry.file, question.mapped.predicate
    index = open_file_index(store, planned.path, file, question.schema)
    assert index is not None  # the manifest names one
    before = index.bytes_read
    policy = _cost_policy(store, planned.path, file, question.schema, question.exact)
    selection, used, unused = index.evaluate_at_cost(predicate, policy)
    if _too_many(selection, file.row_count) and not question.exact:
        many = f"{selection.count(file.row_count):,} rows are too many to be picked, so all are read"
        selection, unused = Selection.all(), (*unused, many)
    # Parts are read when they are first needed, so problems are known only after the evaluation.
    return IndexResult(selection, tuple(sorted(used)), unused), tuple(index.problems), index.bytes_read - before


def _skip(file: PlannedFile, question: _Question) -> SkippedFile:
    place = "" if file.index_place is None else f", {file.index_place}"
    detail = f"{' and '.join(file.pruned_by) or 'index'}{place}: no row has {question.sql}"
    return SkippedFile(file.entry, file.path, SkipReason.INDEX, detail)


def _unreadable(path: str, why: object) -> str:
    return f"cannot read the file index of {path}: {why}"


def _refused(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"{_unreadable(path, why)}; rebuild it with rewrite_file_index, "
        f"or set '{opt.INDEX_ON_UNREADABLE.name}' = 'scan' to read the file without it"
    )


def _warn(store: Store, problems: Sequence[str]) -> None:
    """Log each problem once, as long as the store's caches remember it."""
    warned = store.caches[_WARNED]
    for problem in problems:
        if warned.get(problem) is None:
            warned.put(problem, True, len(problem))
            log.warning("%s; its data is read without the index", problem)


# --- cost -------------------------------------------------------------------------------------------------------------


def _cost_policy(store: Store, path: str, file: DataFileMeta, schema: TableSchema, exact: bool) -> CostPolicy | None:
    """The policy that weighs a file's indexes against its columns; None for a small file, whose indexes all pay."""
    if file.row_count < SMALL_ROWS:
        return None
    return CostPolicy(file.row_count, _column_bytes(store, path, file, schema), exact=exact)


def _column_bytes(store: Store, path: str, file: DataFileMeta, schema: TableSchema) -> Callable[[str], int | None]:
    """A function from a column of a file to its stored bytes, None if unknown; from the footer, which stays cached."""

    def size(column: str) -> int | None:
        if not path.endswith(".parquet"):
            return file.file_size // max(len(schema.fields), 1)
        task = FileTask(path, file.file_size, file.row_count, 0, (), Selection.all(), schema)
        try:
            footer = footer_of(store, task)
            return stored_bytes(footer, [getattr(column, "column", column)], range(len(footer.row_groups)))
        except BitlakeError:
            return None  # reading the file raises it

    return size


def _too_many(selection: Selection, row_count: int) -> bool:
    """Whether reading all rows of a large file is faster than picking the selected ones."""
    return selection.rows is not None and row_count >= SMALL_ROWS and len(selection.rows) > MOST_SHARE * row_count
