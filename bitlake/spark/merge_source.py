"""The source of a MERGE: evaluated once, and what its keys say about which rows of the target can matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.expressions.spark_dialect import SparkSql
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import FALSE, And, Comparison, In, Op, Predicate
from bitlake.formats.column_bounds import physical_values
from bitlake.metadata.names import Names
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.query import query
from bitlake.spark.target import Target
from bitlake.spark.types import spark_type
from bitlake.sql import statements as st
from bitlake.sql.text import Cursor
from bitlake.table.partition_files import has_many_files
from bitlake.types import AtomicType, DataField, Root, arrow_type

MOST_KEYS = 1000
"""A source of so many rows or fewer is asked for its keys, a larger one for their range."""
LEAST_BYTES = 16 << 20
"""A target smaller than this is not worth asking the source first."""
MOST_SENT = 500_000
"""A source of so many rows or fewer is sent to every task."""
ROW = "__bitlake_row"
_UNNAMED = "__bitlake_source"
_INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_ORDERED = (T.IntegralType, T.DateType, T.DecimalType, T.TimestampType, T.TimestampNTZType, T.StringType)
"""What Spark has for the types of :data:`_PRUNED`."""
_PRUNED = (*_INTEGERS, Root.DATE, Root.DECIMAL, Root.TIMESTAMP, Root.TIMESTAMP_LTZ, Root.VARCHAR)


@dataclass(frozen=True, slots=True)
class Source:
    """The source's rows as a view of the session, under the name that the statement gives them."""

    frame: DataFrame
    view: str
    alias: str
    rows: int
    names: Names
    """How the session compares names."""
    ends: Mapping[str, tuple[pa.ChunkedArray, pa.ChunkedArray]]
    """The least and the greatest value (one of each, NULL without any) of columns that ON compares."""

    @property
    def hint(self) -> str:
        """What tells Spark to send a small source to every task, rather than the target's rows around."""
        return f"/*+ BROADCAST({quoted(self.alias)}) */ " if self.rows <= MOST_SENT else ""

    @property
    def row(self) -> str:
        """The column that numbers the source's rows, in SQL text."""
        return self.column(ROW)

    @property
    def item(self) -> str:
        """The source as an item of FROM."""
        return f"{quoted(self.view)} AS {quoted(self.alias)}"

    @property
    def columns(self) -> dict[str, str]:
        """Its columns by :meth:`Names.key`."""
        return {self.names.key(c): c for c in self.frame.columns if c != ROW}

    def column(self, name: str) -> str:
        """A column of the source in SQL text."""
        return f"{quoted(self.alias)}.{quoted(name)}"


@contextmanager
def source_of(context: EngineContext, statement: st.MergeInto) -> Iterator[Source]:
    """The source of a statement, kept by Spark for the block: every query of it sees the same rows."""
    alias = _UNNAMED
    if statement.source_alias is not None:
        alias = Cursor(statement.source_alias).name()
    elif not statement.source.startswith("("):
        alias = Cursor(statement.source).parts("a table name")[-1]
    item = statement.source if statement.source_alias is None else f"{statement.source} AS {statement.source_alias}"
    frame = query(context, f"{statement.with_} SELECT * FROM {item}".lstrip())
    with spark_errors("reading the source of MERGE"):
        frame = frame.withColumn(ROW, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with spark_errors("reading the source of MERGE"):
            # Counted, it is there, and Spark knows how large it is when it plans the joins.
            asked = _compared(frame, statement.condition, context.names)
            ends = [end(quoted(c)) for c in asked for end in (F.min, F.max)]
            row = frame.agg(F.count(F.lit(1)), *ends).toArrow()
        known = {c: (row.column(1 + 2 * i), row.column(2 + 2 * i)) for i, c in enumerate(asked)}
        with context.views([frame]) as (view,):
            yield Source(frame, view, alias, int(row.column(0)[0].as_py()), context.names, known)
    finally:
        frame.unpersist()


def _compared(frame: DataFrame, condition: str, compared: Names) -> list[str]:
    """The columns that a term ``a = b`` of ON may mean, of types that have an order."""
    try:
        tree = sqlglot.parse_one(condition, dialect=SparkSql)
    except (SqlglotError, RecursionError):
        return []
    sides = [side for t in _terms(tree) if isinstance(t, exp.EQ) for side in (t.this, t.expression)]
    names = {compared.key(s.name) for s in sides if isinstance(s, exp.Column)}
    clear = {name for key, name in compared.clear(frame.columns).items() if key in names}
    return [f.name for f in frame.schema.fields if f.name in clear and isinstance(f.dataType, _ORDERED)]


def key_predicates(target: Target, source: Source, condition: str) -> tuple[Predicate, ...]:
    """What rows of the target satisfy that can match a row of the source: from equalities of columns in ON.

    Bound to the target's schema; none if nothing can be said, or it is not worth a look at the source.
    """
    state = target.state
    if not has_many_files(state) and sum(e.file.file_size for e in state.entries()) < LEAST_BYTES:
        return ()
    pairs = _equalities(target, source, condition)
    if not pairs:
        return ()
    if source.rows <= MOST_KEYS:
        with spark_errors("reading the keys of MERGE's source"):
            few = source.frame.select(*[F.col(quoted(c)) for _, c in pairs]).toArrow()
        return tuple(_one_of(f, few.column(i)) for i, (f, _) in enumerate(pairs))
    return tuple(_between(f, *source.ends[c]) for f, c in pairs if c in source.ends)


def equal_columns(target: Target, source: Source, condition: str) -> dict[str, set[str]]:
    """Which columns of the source each column of the target surely equals where ON holds."""
    out: dict[str, set[str]] = {}
    for field, column in _pairs(target, source, condition):
        out.setdefault(field.name, set()).add(column)
    return out


def source_column(target: Target, source: Source, text: str) -> str | None:
    """The column of the source that an expression plainly is."""
    try:
        tree: exp.Expr = sqlglot.parse_one(text, dialect=SparkSql)
    except (SqlglotError, RecursionError):
        return None
    return _of_source(target, source, tree.unnest())


def of_source_alone(target: Target, source: Source, text: str) -> bool:
    """Whether an expression surely reads nothing but columns of the source: what holds a query may read anything."""
    try:
        tree: exp.Expr = sqlglot.parse_one(text, dialect=SparkSql)
    except (SqlglotError, RecursionError):
        return False
    if tree.find(exp.Query, exp.Star) is not None:
        return False
    return all(_of_source(target, source, column) is not None for column in tree.find_all(exp.Column))


def _pairs(target: Target, source: Source, condition: str) -> list[tuple[DataField, str]]:
    """The ``target column = source column`` terms of ON."""
    try:
        tree = sqlglot.parse_one(condition, dialect=SparkSql)
    except (SqlglotError, RecursionError):
        return []
    found = []
    for term in _terms(tree):
        if not isinstance(term, exp.EQ):
            continue
        for mine, theirs in ((term.this, term.expression), (term.expression, term.this)):
            field, column = _of_target(target, source, mine), _of_source(target, source, theirs)
            if field is not None and column is not None:
                found.append((field, column))
                break
    return found


def _equalities(target: Target, source: Source, condition: str) -> list[tuple[DataField, str]]:
    """The ``target column = source column`` terms of ON whose columns compare as they are stored."""
    types = {f.name: f.dataType for f in source.frame.schema.fields}
    found = []
    for field, column in _pairs(target, source, condition):
        if not isinstance(field.type, AtomicType):
            continue
        wanted, given = spark_type(field.type), types[column]
        integers = field.type.root in _INTEGERS and isinstance(given, T.IntegralType)
        if integers or (field.type.root in _PRUNED and given == wanted):
            found.append((field, column))
    return found


def _terms(node: exp.Expr) -> list[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [t for side in (node.this, node.expression) for t in _terms(side)]
    return [node]


def _of_target(target: Target, source: Source, node: exp.Expr) -> DataField | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    key = source.names.key
    names = {key(f.name): f for f in target.state.schema.fields}
    parts = [key(p.name) for p in node.parts]
    alone = len(parts) == 1 and parts[0] not in source.columns
    qualified = len(parts) == 2 and parts[0] == key(target.alias or target.name) and parts[0] not in names
    return names.get(parts[-1]) if alone or qualified else None


def _of_source(target: Target, source: Source, node: exp.Expr) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    key = source.names.key
    parts = [key(p.name) for p in node.parts]
    alone = len(parts) == 1 and all(key(n) != parts[0] for n in target.state.schema.field_names)
    qualified = len(parts) == 2 and parts[0] == key(source.alias)
    return source.columns.get(parts[-1]) if alone or qualified else None


def _physical(field: DataField, values: pa.ChunkedArray) -> list[Any]:
    """Values as the target's column has them; integers beyond its range can match nothing and are left out."""
    wanted = arrow_type(field.type)
    known = values.combine_chunks().drop_null()
    if pa.types.is_integer(wanted):
        bits = wanted.bit_width - 1
        return [v for v in physical_values(known.cast(pa.int64())) if -(1 << bits) <= v < 1 << bits]
    return physical_values(known.cast(wanted))


def _one_of(field: DataField, values: pa.ChunkedArray) -> Predicate:
    found: list[Any] = sorted(set(_physical(field, values)))
    if len(found) > 1:
        return In(field.name, tuple(found))
    return Comparison(field.name, Op.EQ, found[0]) if found else FALSE


def _between(field: DataField, low: pa.ChunkedArray, high: pa.ChunkedArray) -> Predicate:
    wanted = arrow_type(field.type)
    ends = pa.chunked_array([low.combine_chunks(), high.combine_chunks()])
    if ends.null_count:
        return FALSE  # no key at all
    if pa.types.is_integer(wanted):
        bits = wanted.bit_width - 1
        first, last = (int(v.as_py()) for v in ends)
        values: list[Any] = [max(first, -(1 << bits)), min(last, (1 << bits) - 1)]
    else:
        values = physical_values(ends.combine_chunks().cast(wanted))
    return And((Comparison(field.name, Op.GE, values[0]), Comparison(field.name, Op.LE, values[1])))
