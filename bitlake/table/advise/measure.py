"""What advice brought: the indexes are built, and questions asked before and after, their bytes counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bitlake.predicate.tree import sources_of
from bitlake.table.advise.pages import FilePages
from bitlake.table.advise.questions import Question
from bitlake.table.advise.weigh import DRIVER_BYTES, DRIVER_ROWS, SPARK_SHARE, by_spark
from bitlake.table.fetch import has_pages
from bitlake.table.index_access import forget_all
from bitlake.table.read import ReadCounts, ReadRequest, read_file, tasks_of

if TYPE_CHECKING:
    from bitlake.table.advise.advice import Advice, QuestionEstimate
    from bitlake.table.table import Table

_MOST_QUESTIONS = 40
_MOST_OTHERS = 8
_DRIVER_FILES = 64


@dataclass(frozen=True, slots=True)
class MeasuredIndex:
    """An index that was built: its bytes over all files, estimated and real."""

    column: str
    index_type: str
    estimated_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredQuestion:
    """Bytes that a question read of data and indexes, before and after; estimated and real."""

    where: str
    weight: float
    columns: tuple[str, ...]
    """The condition's."""
    estimated_before: float
    before: int
    estimated_after: float
    after: int

    @property
    def saved(self) -> int:
        """Bytes that it really reads less."""
        return self.before - self.after

    @property
    def estimated_saved(self) -> float:
        """Bytes that it should read less."""
        return self.estimated_before - self.estimated_after


@dataclass(frozen=True, slots=True)
class Measured:
    """How advice turned out, beside what was expected; seconds of building hold reading and committing, too."""

    indexes: tuple[MeasuredIndex, ...]
    questions: tuple[MeasuredQuestion, ...]
    estimated_seconds: float
    seconds: float

    @property
    def estimated_saved(self) -> float:
        """Bytes that a query should read less, on average over the questions by their weights."""
        return self._mean([q.estimated_saved for q in self.questions])

    @property
    def saved(self) -> float:
        """Bytes that a query really reads less, on average."""
        return self._mean([q.saved for q in self.questions])

    @property
    def index_bytes(self) -> int:
        """Of all indexes that were built."""
        return sum(i.bytes for i in self.indexes)

    @property
    def estimated_index_bytes(self) -> int:
        """What they should have."""
        return sum(i.estimated_bytes for i in self.indexes)

    def saved_by_column(self) -> dict[str, tuple[float, float]]:
        """Of each column that questions are about alone: (estimated, real) bytes saved for each query on it."""
        names = dict.fromkeys(q.columns[0] for q in self.questions if len(q.columns) == 1)
        found = {}
        for name in names:
            asked = [q for q in self.questions if q.columns == (name,)]
            weight = sum(q.weight for q in asked)
            found[name] = (
                sum(q.weight * q.estimated_saved for q in asked) / weight,
                sum(q.weight * q.saved for q in asked) / weight,
            )
        return found

    def _mean(self, sizes: Sequence[float]) -> float:
        weight = sum(q.weight for q in self.questions)
        return sum(q.weight * s for q, s in zip(self.questions, sizes, strict=True)) / weight if weight else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "indexes": [asdict(i) for i in self.indexes],
            "questions": [asdict(q) for q in self.questions],
            "estimated_seconds": round(self.estimated_seconds, 3),
            "seconds": round(self.seconds, 3),
            "index_bytes": self.index_bytes,
            "estimated_index_bytes": self.estimated_index_bytes,
            "bytes_saved": round(self.saved),
            "estimated_bytes_saved": round(self.estimated_saved),
        }


def measure(table: Table, advice: Advice, sql: Callable[[str], Any] | None = None) -> Measured:
    """Carry advice on indexes out, and say what it brought."""
    asked = _chosen(advice.questions)
    before = [bytes_of(table, q.question, advice.engine) for q in asked]
    started = time.perf_counter()
    if sql is not None:
        for statement in advice.statements():
            sql(statement)
    elif advice.set_options or advice.unset_options:
        table.alter_options(advice.set_options, advice.unset_options)
        if advice.keyed:
            table.compact(full=True)
        else:
            table.rewrite_file_index()
    seconds = time.perf_counter() - started if advice.statements() else 0.0
    after = [bytes_of(table, q.question, advice.engine) for q in asked]
    real = index_sizes(table)
    return Measured(
        tuple(
            MeasuredIndex(c.column, c.index, c.chosen.index_bytes, real.get((c.column, c.index), 0))
            for c in advice.columns
            if c.action in ("add", "replace") and c.chosen is not None
        ),
        tuple(
            MeasuredQuestion(
                q.question.text,
                q.question.weight,
                tuple(sorted(_columns(q.question))),
                q.before,
                was,
                q.after,
                now,
            )
            for q, was, now in zip(asked, before, after, strict=True)
        ),
        advice.build_seconds,
        seconds,
    )


def _chosen(questions: Sequence[QuestionEstimate]) -> list[QuestionEstimate]:
    """Those that should change, evenly over all of them, and some of the others."""
    changed = [q for q in questions if q.before != q.after]
    others = sorted((q for q in questions if q.before == q.after), key=lambda q: -q.question.weight)
    step = max(1, -(-len(changed) // _MOST_QUESTIONS))
    return changed[::step] + others[:_MOST_OTHERS]


def bytes_of(table: Table, question: Question, engine: str) -> int:
    """What a question reads, nothing of an index being in memory: bytes of data files and indexes.

    What Spark's own reader would read is added up from the file's footer; all else is read here, and counted.
    """
    forget_all()
    scan = table.scan_of(table.state()).select(question.columns).where_bound(question.predicate)
    plan = scan.plan()
    metrics = plan.metrics
    few = plan.chosen_rows <= DRIVER_ROWS and len(plan.files) <= _DRIVER_FILES
    picked = any(not f.whole for f in plan.files)
    size = sum(f.entry.file.file_size for f in plan.files)
    if engine == "python" or not plan.files or (few and (picked or size <= DRIVER_BYTES)):
        for _ in scan.to_batches():
            pass
        return metrics.data_bytes_read + metrics.index_bytes_read
    request = ReadRequest(scan.state.schema, scan.columns, plan.predicate, table.timezone)
    counts = ReadCounts()
    for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
        sparse = file.chosen_rows <= file.row_count * SPARK_SHARE
        if sparse or file.merge is not None or file.deleted or not has_pages(task):
            for _ in read_file(table.store, task, request, counts):
                pass
        else:
            counts.add(bytes=round(by_spark(FilePages(table.store, task, scan.state.schema), question)))
    return counts.bytes + metrics.index_bytes_read


def index_sizes(table: Table) -> dict[tuple[str, str], int]:
    """Bytes of the indexes of all live files, by column and kind."""
    from bitlake.table.system.table import SystemTable

    rows = SystemTable(table, "file_indexes").scan(["column_name", "index_type", "bytes"]).to_arrow()
    found: dict[tuple[str, str], int] = {}
    for column, kind, size in zip(*(c.to_pylist() for c in rows.columns), strict=True):
        if size is not None:
            found[column, kind] = found.get((column, kind), 0) + size
    return found


def _columns(question: Question) -> frozenset[str]:
    return sources_of(question.predicate)
