"""What advice brought: the indexes are built, and questions asked before and after, their bytes counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import sources_of
from bitlake.formatting import printable
from bitlake.metadata import options as opt
from bitlake.table.advise.layout import LayoutAdvice
from bitlake.table.advise.pages import FilePages
from bitlake.table.advise.questions import Question
from bitlake.table.advise.weigh import DRIVER_BYTES, DRIVER_ROWS, SPARK_SHARE, by_spark
from bitlake.table.fetch import has_pages
from bitlake.table.index_access import forget_all
from bitlake.table.read import ReadCounts, ReadRequest, read_file, tasks_of
from bitlake.table.system.indexes import FILE_INDEXES

if TYPE_CHECKING:
    from bitlake.table.advise.advice import Advice, QuestionEstimate
    from bitlake.table.table import Table

_MOST_QUESTIONS = 40
_MOST_OTHERS = 8
_DRIVER_FILES = 64
_PICKED = 8
"""Where rows are picked, so many times as many bytes are read on the driver."""
_SORTED = ("sort", "zorder")


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
class MeasuredLayout:
    """Rows that were laid out anew: bytes of a query of those it is about, on average, estimated and real.

    None for what is not about bytes (buckets), and for pages, which files have that are written from then on.
    """

    kind: str
    value: str
    estimated_before: float | None
    before: float | None
    estimated_after: float | None
    after: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """How advice turned out, beside what was expected; seconds of building hold reading and committing, too."""

    indexes: tuple[MeasuredIndex, ...]
    questions: tuple[MeasuredQuestion, ...]
    estimated_seconds: float
    seconds: float
    layout: tuple[MeasuredLayout, ...] = ()

    @property
    def estimated_saved(self) -> float:
        """Bytes that a query should read less, on average over the questions by their weights."""
        before, after = self.expected_bytes_of() or (0.0, 0.0)
        return before - after

    @property
    def saved(self) -> float:
        """Bytes that a query really reads less, on average."""
        before, after = self.bytes_of() or (0.0, 0.0)
        return before - after

    @property
    def index_bytes(self) -> int:
        """Of all indexes that were built."""
        return sum(i.bytes for i in self.indexes)

    @property
    def estimated_index_bytes(self) -> int:
        """What they should have."""
        return sum(i.estimated_bytes for i in self.indexes)

    def bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """What a query really reads before and after, on average; with a column, those about it alone (None: none)."""
        return self._means(column, "before", "after")

    def expected_bytes_of(self, column: str | None = None) -> tuple[float, float] | None:
        """What it should have read before and after."""
        return self._means(column, "estimated_before", "estimated_after")

    def _means(self, column: str | None, *members: str) -> tuple[float, float] | None:
        asked = [q for q in self.questions if column is None or q.columns == (column,)]
        weight = sum(q.weight for q in asked)
        if not weight:
            return None
        before, after = (sum(q.weight * getattr(q, m) for q in asked) / weight for m in members)
        return before, after

    def saved_by_column(self) -> dict[str, tuple[float, float]]:
        """Of each column that questions are about alone: (estimated, real) bytes saved for each query on it."""
        found = {}
        for name in dict.fromkeys(q.columns[0] for q in self.questions if len(q.columns) == 1):
            expected, real = self.expected_bytes_of(name), self.bytes_of(name)
            if expected is not None and real is not None:
                found[name] = (expected[0] - expected[1], real[0] - real[1])
        return found

    def text(self) -> str:
        """For people: estimates beside what happened."""
        from bitlake.table.advise.show import measured_text  # which shows what this module defines

        return printable(measured_text(self))

    __str__ = text

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "indexes": [asdict(i) for i in self.indexes],
            "questions": [asdict(q) for q in self.questions],
            "layout": [asdict(item) for item in self.layout],
            "estimated_seconds": round(self.estimated_seconds, 3),
            "seconds": round(self.seconds, 3),
            "index_bytes": self.index_bytes,
            "estimated_index_bytes": self.estimated_index_bytes,
            "bytes_saved": round(self.saved),
            "estimated_bytes_saved": round(self.estimated_saved),
        }


def measure(table: Table, advice: Advice, sql: Callable[[str], Any] | None = None, layout: bool = False) -> Measured:
    """Carry advice on indexes out, and with ``layout`` that on how rows lie, and say what it brought."""
    if layout and sql is None and any(item.kind in _SORTED for item in advice.layout):
        raise InvalidRequest(f"table '{table.name}': rows are sorted by Spark: advice.apply(lake.sql, layout=True)")
    asked = _chosen(advice.questions)
    before = [bytes_of(table, q.question, advice.engine) for q in asked]
    started = time.perf_counter()
    if sql is not None:
        for statement in advice.statements():
            sql(statement)
    elif advice.set_options or advice.unset_options:
        table.alter_options(advice.set_options, advice.unset_options)
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
        tuple(_lay_out(table, item, advice.engine, sql) for item in advice.layout) if layout else (),
    )


def _lay_out(table: Table, item: LayoutAdvice, engine: str, sql: Callable[[str], Any] | None) -> MeasuredLayout:
    """Do one advice on how rows lie, and ask its questions before and after."""
    told = item.kind in _SORTED
    before = _mean_bytes(table, item.questions, engine) if told else None
    started = time.perf_counter()
    if sql is not None:
        for statement in item.statements:
            sql(statement)
    elif item.kind == "bucket":
        table.rescale(int(item.value))
    else:
        table.alter_options({opt.PARQUET_PAGE_ROWS.name: item.value})
    seconds = time.perf_counter() - started
    after = _mean_bytes(table, item.questions, engine) if told else None
    expected = (item.bytes_before, item.bytes_after) if told else (None, None)
    return MeasuredLayout(item.kind, item.value, expected[0], before, expected[1], after, seconds)


def _mean_bytes(table: Table, questions: Sequence[Question], engine: str) -> float:
    weight = sum(q.weight for q in questions) or 1.0
    return sum(q.weight * bytes_of(table, q, engine) for q in questions) / weight


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
    size = sum(f.entry.file.file_size * f.chosen_rows / max(f.row_count, 1) for f in plan.files)
    few = few and size <= DRIVER_BYTES * (_PICKED if picked else 1)
    if engine == "python" or not plan.files or few:
        for _ in scan.to_batches():
            pass
        return metrics.data_bytes_read + metrics.index_bytes_read
    request = ReadRequest(scan.state.schema, scan.columns, plan.predicate, table.timezone)
    counts = ReadCounts()
    for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
        sparse = file.chosen_rows <= file.row_count * SPARK_SHARE and not file.by_pages
        if sparse or file.merge is not None or file.deleted or not has_pages(task):
            for _ in read_file(table.store, task, request, counts):
                pass
        else:
            counts.add(bytes=round(by_spark(FilePages(table.store, task, scan.state.schema), question)))
    return counts.bytes + metrics.index_bytes_read


def index_sizes(table: Table) -> dict[tuple[str, str], int]:
    """Bytes of the indexes of all live files, by column and kind."""
    rows = FILE_INDEXES.table(table.state()).select(["column_name", "index_type", "bytes"])
    found: dict[tuple[str, str], int] = {}
    for column, kind, size in zip(*(c.to_pylist() for c in rows.columns), strict=True):
        if size is not None:
            found[column, kind] = found.get((column, kind), 0) + size
    return found


def _columns(question: Question) -> frozenset[str]:
    return sources_of(question.predicate)
