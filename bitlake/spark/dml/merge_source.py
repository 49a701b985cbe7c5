"""The source of a MERGE, evaluated once, and the new rows as columns of the target.

The source's keys bound the rows of the target that can match.  Values are stored as INSERT stores them:
:func:`bitlake.spark.write.insert_cast.store_columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from bitlake.engine.merge_clauses import (
    ACTION,
    INTEGERS,
    LEAST_BYTES,
    MOST_KEYS,
    PRUNED,
    ROW,
    SET,
    Clause,
    MergeSource,
    between,
    ends_of,
    equalities,
    old_column,
    one_of,
    source_query,
    terms,
)
from bitlake.engine.target import StatementTarget
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Predicate
from bitlake.lazy_modules import compute as pc
from bitlake.metadata.schema import Names
from bitlake.snapshot.partitions import has_many_files
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.target import Target
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.local_relation import local_frame, travels
from bitlake.spark.read.query import query
from bitlake.spark.types import spark_type
from bitlake.spark.write.append import is_local, tagged
from bitlake.spark.write.insert_cast import Members, nested_by_name, store_columns, with_default
from bitlake.sql import statements as st
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, DataField

MOST_SENT = 500_000
"""The most rows of a source that is sent to every task."""
SMALL_ROWS = 1 << 14
"""The most rows of each of Spark's tasks that a source may have to come to the driver."""
SMALL_BYTES = 256 << 20
"""A source that Spark takes for larger than this stays on executors: many tasks may make it."""
_SMALL_TASKS = 64
"""The same for rows of Python lists and RDDs, of which Spark knows no size."""
_IN_TASK = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that number the rows of a task."""
_ORDERED = (T.IntegralType, T.DateType, T.DecimalType, T.TimestampType, T.TimestampNTZType, T.StringType)
"""What Spark has for the types of :data:`PRUNED`."""


@dataclass(frozen=True)
class Source(MergeSource):
    """The source's rows as a view of the session."""

    frame: DataFrame
    view: str
    rows: int
    ends: Mapping[str, tuple[pa.ChunkedArray, pa.ChunkedArray]]
    """The least and the greatest value (one of each, NULL without any) of columns that ON compares."""
    table: pa.Table | None = None
    """The rows of a small source, :data:`ROW` among the columns; ``frame`` is then a local relation of them."""

    @property
    def hint(self) -> str:
        """The hint that makes Spark send a small source to every task instead of shuffling the target's rows."""
        return f"/*+ BROADCAST({quoted(self.alias)}) */ " if self.rows <= MOST_SENT else ""

    @property
    def item(self) -> str:
        """The source as an item of FROM."""
        return f"{quoted(self.view)} AS {quoted(self.alias)}"

    @property
    def column_names(self) -> Sequence[str]:
        """Its columns, without :data:`ROW`."""
        return [c for c in self.frame.columns if c != ROW]

    def lenient_value(self, target: StatementTarget, field: DataField, name: str) -> str | None:
        """A column as the new value of a struct whose missing members keep their values; None: as it is."""
        wanted, given = spark_type(field.type), self.frame.schema[name].dataType
        members = Members(target.table.name, self.names, True)
        return members.as_text(self.column(name), given, wanted, field.name, target.column(field.name))


@contextmanager
def source_of(context: EngineContext, statement: st.MergeInto) -> Iterator[Source]:
    """The source of a statement, kept by Spark for the block: every query of it sees the same rows."""
    alias, text = source_query(statement)
    frame, doing = query(context, text), "reading the source of MERGE"
    kept = None
    try:
        with spark_errors(doing):
            table, types = _constants(frame), [*frame.schema.fields, T.StructField(ROW, T.LongType(), False)]
            if table is None:
                kept = frame.withColumn(ROW, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
                table, frame = _few(frame, kept), kept
            if table is not None:
                frame = local_frame(context.spark, table, T.StructType(types))
            compared = _compared(frame, statement.condition, context.names)
            if table is None:
                # Counted, it is there, and Spark knows how large it is when it plans the joins.
                bounds = [end(quoted(c)) for c in compared for end in (F.min, F.max)]
                row = frame.agg(F.count(F.lit(1)), *bounds).toArrow()
                rows = int(row.column(0)[0].as_py())
                ends = {c: (row.column(1 + 2 * i), row.column(2 + 2 * i)) for i, c in enumerate(compared)}
            else:
                rows, ends = table.num_rows, {c: ends_of(table.column(c)) for c in compared}
        with context.views([frame]) as (view,):
            yield Source(alias, context.names, frame, view, rows, ends, table)
    finally:
        if kept is not None:
            kept.unpersist()


def _constants(frame: DataFrame) -> pa.Table | None:
    """The numbered rows of a source that the statement's text or the driver holds."""
    if not travels(frame.schema) or not is_local("", frame):
        return None
    rows = frame.toArrow()
    return rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))


def _few(frame: DataFrame, kept: DataFrame) -> pa.Table | None:
    """The numbered rows of a source if no task has more than :data:`SMALL_ROWS`.

    One job keeps the rows of all tasks and fetches the first ones of each; a source of more rows has been kept by it.
    """
    if not travels(frame.schema) or not _bounded(frame):
        return None
    with tagged(frame.sparkSession):
        rows = kept.where(F.col(ROW).bitwiseAND(F.lit(_IN_TASK)) <= SMALL_ROWS).toArrow()
    last = pc.max(pc.bit_wise_and(rows.column(ROW), _IN_TASK)).as_py()
    return rows if last is None or last < SMALL_ROWS else None


def _bounded(frame: DataFrame) -> bool:
    """Whether the first rows of all tasks are certainly not too many for the driver."""
    java: Any = getattr(frame, "_jdf", None)
    if java is None:
        return False
    plan = java.queryExecution().optimizedPlan()
    if int(str(plan.stats().sizeInBytes())) <= SMALL_BYTES:
        return True
    leaves, tasks = plan.collectLeaves(), 0
    for i in range(leaves.size()):
        leaf = leaves.apply(i)
        name = leaf.getClass().getSimpleName()
        if name == "LogicalRDD":
            tasks += leaf.rdd().getNumPartitions()
        elif name != "LocalRelation":
            return False
    return bool(tasks <= _SMALL_TASKS)


def _compared(frame: DataFrame, condition: SqlText, compared: Names) -> list[str]:
    """The columns that a term ``a = b`` of ON may mean, of types that have an order."""
    sides = [side for t in terms(condition.tree) if isinstance(t, exp.EQ) for side in (t.this, t.expression)]
    names = {compared.key(s.name) for s in sides if isinstance(s, exp.Column)}
    clear = {name for key, name in compared.clear(frame.columns).items() if key in names}
    return [f.name for f in frame.schema.fields if f.name in clear and isinstance(f.dataType, _ORDERED)]


def key_predicates(
    target: Target, source: Source, condition: SqlText, most: int | None = None
) -> tuple[Predicate, ...]:
    """Return conditions that hold for rows of the target that can match the source: from equalities of columns in ON.

    Bound to the target's schema; none if nothing can be said, or it is not worth a look at the source.  They hold the
    keys of a source of at most ``most`` rows (default: :data:`MOST_KEYS`), else their range.
    """
    state = target.state
    asks_spark = source.table is None
    if asks_spark and not has_many_files(state) and sum(e.file.file_size for e in state.entries()) < LEAST_BYTES:
        return ()
    pairs = stored_equalities(target, source, condition)
    if not pairs:
        return ()
    if source.rows <= (MOST_KEYS if most is None else most):
        few = source.table
        if few is None:
            with spark_errors("reading the keys of MERGE's source"):
                few = source.frame.select(*[F.col(quoted(c)) for _, c in pairs]).toArrow()
        return tuple(one_of(f, few.column(c)) for f, c in pairs)
    return tuple(between(f, *source.ends[c]) for f, c in pairs if c in source.ends)


def stored_equalities(target: Target, source: Source, condition: SqlText) -> list[tuple[DataField, str]]:
    """The ``target column = source column`` terms of ON whose columns compare as they are stored."""
    types = {f.name: f.dataType for f in source.frame.schema.fields}
    pairs = []
    for field, column in equalities(target, source, condition):
        if not isinstance(field.type, AtomicType):
            continue
        wanted, given = spark_type(field.type), types[column]
        integers = field.type.root in INTEGERS and isinstance(given, T.IntegralType)
        if integers or (field.type.root in PRUNED and given == wanted):
            pairs.append((field, column))
    return pairs


def new_columns(target: Target, source: Source, statement: st.MergeInto) -> list[str]:
    """The source's columns that clauses assign by a plain name which the target does not have."""
    known = {target.context.names.key(n) for n in target.state.schema.field_names}
    named = {
        target.context.names.key(a.target[0])
        for clause in statement.clauses
        for a in clause.assignments or ()
        if clause.when is not st.When.NOT_MATCHED_BY_SOURCE and len(a.target) == 1
    }
    return [column for key, column in source.columns.items() if key in named - known]


def unmatched(source: Source, condition: str, chosen: str) -> tuple[str, str]:
    """What stands before and after the target in a query of ``chosen`` over the source's rows that match none of it.

    They are found by the numbers of those that do match, which a join with a source sent to every task gives.
    """
    mark = "__bitlake_matched"
    before = f"SELECT {chosen} FROM {source.item} LEFT ANTI JOIN (SELECT {source.hint}{source.row} AS {mark} FROM"
    return before, f"JOIN {source.item} ON ({condition})) AS {mark} ON {source.row} = {mark}.{mark}"


def new_rows(
    target: Target, frame: DataFrame, clauses: Sequence[Clause], *more: Column, others: bool = False
) -> DataFrame:
    """The target's columns of the rows that clauses make, from a frame of :func:`items`, and more columns of it.

    Members of structs are matched by name; those that a ``lenient`` clause's values lack are NULL.  The rows of a
    DELETE clause are as they were.  With ``others``, rows that none of the clauses makes come too, without values.
    """
    fields, table = target.state.schema.fields, target.table.name
    chosen = F.col(ACTION)
    stored = {}
    for clause in clauses:
        names = []
        for i, field in enumerate(fields):
            name = f"{SET}_{clause.number}_{i}"
            if field.name in clause.values:
                names.append(name)
                inside = nested_by_name(table, frame.schema[name], field, target.context.names, fill=clause.lenient)
                frame = frame if inside is None else frame.withColumn(name, inside)
            elif clause.action is st.MergeAction.INSERT:
                frame = frame.withColumn(name, F.lit(None))
                names.append(name)
            else:
                names.append(old_column(i))
                continue
            filled = with_default(table, frame.schema[name], field)
            frame = frame if filled is None else frame.withColumn(name, F.when(chosen == clause.number, filled))
        stored[clause.number] = store_columns(table, frame.select(*names), fields)
    columns = []
    for i, field in enumerate(fields):
        # No value of another clause's rows is computed: CASE goes no further than what applies.
        column = F.when(F.lit(False), F.lit(None))
        for number, values in stored.items():
            column = column.when(chosen == number, values[i])
        columns.append(column.alias(field.name))
    rows = frame if others else filter_above(frame, chosen.isin(list(stored)))
    return rows.select(*(columns if stored else []), *more)


def filter_above(frame: DataFrame, condition: Column) -> DataFrame:
    """The frame's rows that a condition keeps, evaluated for no row that the frame's joins leave out.

    Spark pushes a filter below a join, and there a clause's condition may raise an error for rows that match nothing.
    It pushes none below a column that is not deterministic.
    """
    number = "__bitlake_number"
    rows = frame.withColumn(number, F.monotonically_increasing_id())
    return rows.where(condition & (F.col(number) >= 0)).drop(number)
