"""Does what the advisor estimates come true, by table and kind of index?

Every index that advice tried on a column is built by itself, in this process, on all rows; its bytes, the seconds that
took, and the bytes that the column's questions then read less stand against the estimates.  Then all that is advised is
done on Spark.  TPC-H's lineitem is measured too, where its data is there already (the case ``tpch`` makes it).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.measure import Result
from bench.tpch import SCALE
from bitlake.expressions.tree import sources_of
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.tools.advise.advice import Advice
from bitlake.tools.advise.advisor import bytes_of, index_sizes
from bitlake.tools.advise.estimate import side_by_side
from bitlake.tools.advise.policy import IndexEstimate
from bitlake.tools.advise.questions import Question

if TYPE_CHECKING:
    from bench.cases import Bench

FACTOR = 2.0
FARTHEST = 100.0
LITTLE = 256 * 1024
"""Bytes of a query below which a factor says nothing: some requests."""
LITTLE_SHARE = 0.01
"""Of what a query reads: advice asks for 15 %."""
SHORT = 0.25
"""Seconds below which opening files and committing, which no estimate holds, are most of it."""
LINES = (
    "l_partkey = 4711",
    "l_partkey IN (17, 1700, 17000)",
    "l_suppkey = 77",
    "l_extendedprice > 90000.00",
    "l_shipmode = 'MAIL' AND l_quantity > 49",
    "l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-01-05'",
    "l_comment = 'no such comment'",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One estimate beside what happened; ``what``: ``index bytes``, ``saved a query``, ``build time``.

    Or ``processor time``, which building takes on a busy machine as on an idle one.
    """

    table: str
    column: str
    kind: str
    what: str
    estimated: float
    real: float
    read: float = 0.0
    """Bytes that a query reads without the index."""

    @property
    def little(self) -> bool:
        """Whether both are less than a request, or a commit, brings along anyhow, or than 1 % of what queries read."""
        saved = max(LITTLE, self.read * LITTLE_SHARE)
        least = {"index bytes": 16 * 1024, "saved a query": saved, "build time": SHORT, "processor time": SHORT}
        return max(abs(self.estimated), abs(self.real)) < least[self.what]

    @property
    def factor(self) -> float:
        """How far apart they are, 1 or more, up to :data:`FARTHEST`; what is little either way is not.

        A loss is compared with a loss; where one is a loss and the other a gain, they are as far apart as can be.
        """
        if self.little:
            return 1.0
        if self.estimated * self.real <= 0:
            return FARTHEST
        low, high = sorted((abs(self.estimated), abs(self.real)))
        return min(FARTHEST, high / low)


def advise(bench: Bench) -> list[Result]:
    """Are index bytes, build time and bytes saved a query within a factor of 2 of the advisor's estimates?"""
    found = list(_orders(bench))
    lines = bench.folder / f"tpch-{SCALE}" / "lineitem.parquet"
    if lines.exists():
        found += _lineitem(bench, str(lines))
    for c in found:
        bench.say(f"{c.table} {c.column} {c.kind}, {c.what}: {_words(c)}, estimated ÷ real {_ratio(c)}")
    results = []
    for table in dict.fromkeys(c.table for c in found):
        for kind in (*INDEX_TYPES, "all advised, on Spark"):
            for what, unit, scale in _MEASURED:
                some = [c for c in found if (c.table, c.kind, c.what) == (table, kind, what)]
                if some:
                    estimated, real = (sum(getattr(c, side) for c in some) / scale for side in ("estimated", "real"))
                    note = "estimated ÷ real: " + ", ".join(f"{c.column} {_ratio(c)}" for c in some)
                    name = f"{table}, {kind}: {what}"
                    results.append(Result(name, unit, estimated, real, "real", None, 1, note))
    for what, _, _ in _MEASURED:
        worst = max((c for c in found if c.what == what), key=lambda c: c.factor)
        note = f"{worst.table} {worst.column} {worst.kind}: {_words(worst)}"
        results.append(Result(f"worst estimate of {what}", "×", worst.factor, None, "", FACTOR, 1, note))
    return results


_TIMES = ("build time", "processor time")
_MEASURED = (
    ("index bytes", "MB", 1 << 20),
    *((name, "s", 1.0) for name in _TIMES),
    ("saved a query", "MB", 1 << 20),
)


def _ratio(c: Compared) -> str:
    if c.little:
        return "(little)"
    return f"{c.estimated / c.real:.2f}" if c.factor < FARTHEST else f"no ratio: {_words(c)}"


def _words(c: Compared) -> str:
    if c.what in _TIMES:
        return f"{c.estimated:.2f} s, really {c.real:.2f} s"
    return f"{c.estimated / (1 << 20):,.2f} MB, really {c.real / (1 << 20):,.2f} MB"


def _orders(bench: Bench) -> Iterator[Compared]:
    bench.create("advised", {})
    bench.insert("advised")
    yield from _compare(bench, "orders", "bench.advised", None)


def _lineitem(bench: Bench, source: str) -> Iterator[Compared]:
    bench.lake.sql("DROP TABLE IF EXISTS bench.advised_lines")
    bench.spark.read.parquet(source).createOrReplaceTempView("bench_lines")
    bench.lake.sql("CREATE TABLE bench.advised_lines AS SELECT * FROM bench_lines")
    yield from _compare(bench, "lineitem", "bench.advised_lines", LINES)


def _compare(bench: Bench, label: str, name: str, queries: Sequence[str] | None) -> Iterator[Compared]:
    table = bench.lake.table(name)
    advice = bench.lake.advise(name, queries)
    bench.say(str(advice))
    asked = {q.question: bytes_of(table, q.question, advice.engine) for q in advice.questions}
    for column in advice.columns:
        about = {q: size for q, size in asked.items() if column.column in sources_of(q.predicate)}
        for tried in column.tried:
            yield from _one(label, table, tried, about, advice.engine)
    _only(table, None)
    yield from _all(bench, label, advice)
    bench.lake.sql(f"DROP TABLE {name}")


def _one(label: str, table: Any, tried: IndexEstimate, asked: dict[Question, int], engine: str) -> Iterator[Compared]:
    """One index of one column, as it comes out."""
    seconds, processors = _only(table, tried)
    once = side_by_side([e.file.row_count for e in table._core.state().entries()])
    made = index_sizes(table).get((tried.column, tried.index_type), 0)
    weight = sum(q.weight for q in asked) or 1.0
    before = sum(q.weight * was for q, was in asked.items()) / weight
    saved = sum(q.weight * (was - bytes_of(table, q, engine)) for q, was in asked.items()) / weight
    said = (label, tried.column, tried.index_type)
    yield Compared(*said, "index bytes", tried.index_bytes, made)
    yield Compared(*said, "build time", tried.build_seconds, seconds)
    yield Compared(*said, "processor time", tried.build_seconds * once, processors)
    yield Compared(*said, "saved a query", tried.bytes_before - tried.bytes_after, saved, before)


def _only(table: Any, tried: IndexEstimate | None) -> tuple[float, float]:
    """Leave the table with this index alone; the seconds that building it takes, and those of processors."""
    there = [k for k in table.schema.options if k.startswith("file-index.")]
    table.alter_options({}, there)
    table.indexes.rebuild()
    if tried is None:
        return 0.0, 0.0
    prefix = f"file-index.{tried.index_type}"
    table.alter_options({f"{prefix}.columns": tried.column})
    if tried.options:
        table.alter_options({f"{prefix}.{tried.column}.{k}": v for k, v in tried.options})
    started, before = time.perf_counter(), time.process_time()
    table.indexes.rebuild()
    return time.perf_counter() - started, time.process_time() - before


def _all(bench: Bench, label: str, advice: Advice) -> Iterator[Compared]:
    """All indexes that are advised, by the statements that are printed.

    Not how long that takes: Spark's starting of jobs and of Python is in it, which no estimate holds.
    """
    measured = advice.apply(bench.lake.sql).measured
    assert measured is not None
    said = (label, "together", "all advised, on Spark")
    yield Compared(*said, "index bytes", measured.estimated_index_bytes, measured.index_bytes)
    yield Compared(*said, "saved a query", measured.estimated_saved, measured.saved)
