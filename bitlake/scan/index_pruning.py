"""Prune files and rows by file indexes: embedded in the manifest, or in ``.index`` files beside the data.

Indexes are read only for files whose matching rows are not known exactly.  ``.index`` files are opened here, many at
once, so that a file without a match never becomes a task.  An index that would cost more than it saves is not read
(:mod:`bitlake.fileindex.cost`).  An index that cannot be read never changes a result: its file is read whole, a warning
names it once and the plan counts it, unless ``file-index.on-unreadable`` is ``fail``.

Only the parts of an index that a predicate needs are read.  Data files and their indexes never change, so open indexes
and the results of predicates stay cached: the next plan with the same predicate opens no index.
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
from bitlake.expressions.terms import columns_in
from bitlake.expressions.tree import IndexedExpression, MapKey
from bitlake.fileindex.cost import MOST_SHARE, SMALL_ROWS, CostPolicy
from bitlake.fileindex.reader import FileIndexReader, open_index
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.io.base import request_runner
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import DataFileMeta, has_index, index_name
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName
from bitlake.scan.column_reader import FileTask, footer_of, stored_bytes
from bitlake.scan.plan import PlannedFile, PlanStep, SkippedFile, SkipReason, StepName
from bitlake.schema.evolution import MappedPredicate

_INDEXES: CacheName[tuple[str, str], FileIndexReader] = CacheName("file indexes")
_START = 32 * 1024
"""Bytes of an index file fetched together with its size: its header, and all of a small index.  On an object store this
saves the requests for the size, the header's length and the header; on a disk it costs nothing."""
_REMOTE_START = 128 * 1024
"""The same of a remote index file: more bytes would take longer than the request."""
_REMOTE_WHOLE = 1 << 20
"""The same where few remote index files are asked: most are read whole, so that no index waits for the header."""
_FEW = 32
"""Index files that are read whole: 32 MB at most.  A condition on more files usually leaves most of them."""
_OPENED = 8 * 1024
"""An estimate of the memory of an open index beside its own bytes; for 100,000 small ones this is most of it."""
_RESULTS: CacheName[tuple[str, str, str], IndexResult] = CacheName("index results")
_RESULT = 512
"""An estimate of the memory of a result beside its rows."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The rows that a file's index selects for a predicate, the indexes used, and why others were not read."""

    selection: Selection
    used: tuple[str, ...]
    unused: tuple[str, ...] = ()


def open_file_index(
    store: Store, data_path: str, file: DataFileMeta, schema: TableSchema, *, few: bool = False
) -> FileIndexReader | None:
    """Open the index of a data file written with ``schema``; None if it has none.

    ``few``: few index files are opened, so that a remote one is better read whole than in two requests, the second of
    which waits for the first.  Open indexes stay cached.  An index with problems is opened again each time, so that a
    storage failure passes and a lasting problem shows up in every plan that it concerns.  Raises
    :class:`bitlake.errors.BitlakeError` for an index file that does not exist or whose size cannot be read.
    """
    if file.embedded_index is not None:
        return _open_embedded(store, data_path, file, file.embedded_index, schema)
    name = index_name(file)
    if name is None:
        return None
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    cache, key = store.caches[_INDEXES], (path, "")
    index = cache.get(key)
    if index is None or index.problems:
        if index is not None:  # it had problems: what a local cache has of it may be damaged
            store.drop_cached(path)
        remote = store.local_path(path) is None
        first = _START if not remote else _REMOTE_WHOLE if few else _REMOTE_START
        start, length = store.read_part(path, 0, first)

        def fetch(offset: int, size: int) -> bytes:
            inside = offset >= 0 and offset + size <= len(start)
            return start[offset : offset + size] if inside else store.read_range(path, offset, size)

        index = open_index(fetch, length, schema.fields, file.row_count, remote=remote)
        cache.put(key, index, length + _OPENED)
    return index


def _open_embedded(
    store: Store, data_path: str, file: DataFileMeta, content: bytes, schema: TableSchema
) -> FileIndexReader:
    # Small ones are quicker to parse again than the garbage collector is to look through all of them.
    small = len(content) < _OPENED
    key = (data_path, index_identity(file))
    index = None if small else store.caches[_INDEXES].get(key)
    if index is None or index.problems:
        index = open_index(
            lambda offset, length: content[offset : offset + length], len(content), schema.fields, file.row_count
        )
        if not small:
            store.caches[_INDEXES].put(key, index, len(content) + _OPENED)
    return index


def index_identity(file: DataFileMeta) -> str:
    """Tells the indexes of a data file apart: rewriting an index leaves the data file's name as it is."""
    content = file.embedded_index
    return index_name(file) or "" if content is None else f"embedded:{len(content)}:{hash(content)}"


def cached_result(store: Store, data_path: str, file: DataFileMeta, predicate_key: str) -> IndexResult | None:
    """The result that :func:`cache_result` kept, or None; the key tells predicates on the file's columns apart."""
    return store.caches[_RESULTS].get((data_path, index_identity(file), predicate_key))


def cache_result(store: Store, data_path: str, file: DataFileMeta, predicate_key: str, result: IndexResult) -> None:
    """Keep a result without problems: the next plan with the same predicate does not open the index."""
    rows = result.selection.rows
    size = 0 if rows is None else min(8 * len(rows), file.row_count // 8 + 64)
    store.caches[_RESULTS].put((data_path, index_identity(file), predicate_key), result, _RESULT + size)


def forget_indexes(store: Store) -> None:
    """Drop cached indexes and results, to measure what reading them takes."""
    store.caches[_INDEXES].clear()
    store.caches[_RESULTS].clear()


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
    indexed = [f for f in files if has_index(f.entry.file) and not f.selection.exact]
    if not indexed or not options.get(opt.INDEX_READ):
        return PlanStep(StepName.INDEXES, files, ms=(time.perf_counter() - started) * 1000)
    strict = options.get(opt.INDEX_ON_UNREADABLE) == "fail"
    # One question for each schema, not for each file.
    few = sum(f.entry.file.embedded_index is None for f in indexed) <= _FEW
    questions = {i: _Question(mapped[i], schemas[i], exact, few) for i in {f.entry.file.schema_id for f in indexed}}

    def question_of(file: PlannedFile) -> _Question:
        return questions[file.entry.file.schema_id]

    def ask(file: PlannedFile) -> _Answered:
        return _ask(file, question_of(file), store, strict)

    # Embedded indexes and cached results are in memory; `.index` files wait for storage and are read in parallel.
    stored = [f for f in indexed if _needs_storage(f, question_of(f), store)]
    waiting = {id(f) for f in stored}
    in_memory = [f for f in indexed if id(f) not in waiting]
    answers = [ask(f) for f in in_memory]
    if stored:
        answers += request_runner(store, stored[0].path).run(stored, ask)
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
    """A predicate put to the indexes of all files of one schema; ``few``: not many index files are asked."""

    mapped: MappedPredicate
    schema: TableSchema
    exact: bool
    few: bool

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
    index = open_file_index(store, planned.path, file, question.schema, few=question.few)
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
            return stored_bytes(footer, _sources(column), range(len(footer.row_groups)))
        except BitlakeError:
            return None  # reading the file raises it

    return size


def _sources(column: str) -> list[str]:
    """The file's columns that must be read to judge a leaf without its index."""
    if isinstance(column, IndexedExpression):
        return sorted(columns_in(column.term))
    return [column.column if isinstance(column, MapKey) else column]


def _too_many(selection: Selection, row_count: int) -> bool:
    """Whether reading all rows of a large file is faster than picking the selected ones."""
    return selection.rows is not None and row_count >= SMALL_ROWS and len(selection.rows) > MOST_SHARE * row_count
