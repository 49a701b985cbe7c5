"""The source of a MERGE, evaluated once, and the clauses as SQL and as columns of the target.

The source's keys bound the rows of the target that can match.  One CASE over the clauses' conditions, in order,
decides which clause applies to a row; a clause's values are computed only for its own rows.  Values are stored as
INSERT stores them: :func:`bitlake.spark.write.insert_cast.store_columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import FALSE, And, Comparison, In, Op, Predicate
from bitlake.formats.column_bounds import physical_values
from bitlake.metadata.schema import Names
from bitlake.snapshot.partitions import has_many_files
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.target import Target, set_values
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.query import query
from bitlake.spark.types import spark_type
from bitlake.spark.write.insert_cast import Members, nested_by_name, store_columns, with_default
from bitlake.sql import statements as st
from bitlake.sql.scope import column_key
from bitlake.sql.text import Cursor, SqlText
from bitlake.types import AtomicType, DataField, Root, arrow_type

MOST_KEYS = 1000
"""The most rows of a source whose keys are all read; of a larger one only their range is."""
LEAST_BYTES = 16 << 20
"""A target smaller than this is not worth asking the source first."""
MOST_SENT = 500_000
"""The most rows of a source that is sent to every task."""
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
    frame = query(context, SqlText(f"{statement.with_} SELECT * FROM {item}".lstrip()))
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


def _compared(frame: DataFrame, condition: SqlText, compared: Names) -> list[str]:
    """The columns that a term ``a = b`` of ON may mean, of types that have an order."""
    sides = [side for t in _terms(condition.tree) if isinstance(t, exp.EQ) for side in (t.this, t.expression)]
    names = {compared.key(s.name) for s in sides if isinstance(s, exp.Column)}
    clear = {name for key, name in compared.clear(frame.columns).items() if key in names}
    return [f.name for f in frame.schema.fields if f.name in clear and isinstance(f.dataType, _ORDERED)]


def key_predicates(target: Target, source: Source, condition: SqlText) -> tuple[Predicate, ...]:
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


def equal_columns(target: Target, source: Source, condition: SqlText) -> dict[str, set[str]]:
    """Which columns of the source each column of the target surely equals where ON holds."""
    out: dict[str, set[str]] = {}
    for field, column in _pairs(target, source, condition):
        out.setdefault(field.name, set()).add(column)
    return out


def source_column(target: Target, source: Source, text: str) -> str | None:
    """The column of the source that an expression plainly is."""
    tree = SqlText(text).tree
    return None if tree is None else _of_source(target, source, tree.unnest())


def of_source_alone(target: Target, source: Source, text: str) -> bool:
    """Whether an expression surely reads nothing but columns of the source: what holds a query may read anything."""
    tree = SqlText(text).tree
    if tree is None or tree.find(exp.Query, exp.Star) is not None:
        return False
    return all(_of_source(target, source, column) is not None for column in tree.find_all(exp.Column))


def _pairs(target: Target, source: Source, condition: SqlText) -> list[tuple[DataField, str]]:
    """The ``target column = source column`` terms of ON."""
    found = []
    for term in _terms(condition.tree):
        if not isinstance(term, exp.EQ):
            continue
        for mine, theirs in ((term.this, term.expression), (term.expression, term.this)):
            field, column = _of_target(target, source, mine), _of_source(target, source, theirs)
            if field is not None and column is not None:
                found.append((field, column))
                break
    return found


def _equalities(target: Target, source: Source, condition: SqlText) -> list[tuple[DataField, str]]:
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


def _terms(node: exp.Expr | None) -> list[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [t for side in (node.this, node.expression) for t in _terms(side)]
    return [] if node is None else [node]


def _of_target(target: Target, source: Source, node: exp.Expr) -> DataField | None:
    names, fields = source.names, {source.names.key(f.name): f for f in target.state.schema.fields}
    mine = names.key(target.alias or target.name)
    key = column_key(node, () if mine in fields else [(mine,)], names, source.columns)
    return None if key is None else fields.get(key)


def _of_source(target: Target, source: Source, node: exp.Expr) -> str | None:
    names = source.names
    taken = [names.key(n) for n in target.state.schema.field_names]
    key = column_key(node, [(names.key(source.alias),)], names, taken)
    return None if key is None else source.columns.get(key)


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


ACTION = "__bitlake_action"
_OLD, _SET = "__bitlake_old", "__bitlake_set"


@dataclass(frozen=True, slots=True)
class Clause:
    """A WHEN clause with the new values of the columns that it names; ``number`` counts from 0 within its kind.

    ``lenient``: its values may lack members of structs.
    """

    number: int
    condition: str | None
    action: st.MergeAction
    values: Mapping[str, str]
    lenient: bool = False


@dataclass(slots=True)
class Merged:
    """How many rows a MERGE updated, deleted and inserted."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0


def matched_twice(target: Target, rows: int) -> InvalidRequest:
    """The error of a MERGE that finds several new values for one row."""
    return InvalidRequest(
        f"MERGE INTO '{target.table.name}': {rows} rows of the target are matched by several source rows that would "
        "change them; make ON more precise, or leave one source row for each (GROUP BY, ROW_NUMBER)"
    )


def clauses_of(target: Target, source: Source, statement: st.MergeInto, when: st.When) -> list[Clause]:
    """The clauses of one kind, checked against the schema; raises :class:`NotFound` and :class:`InvalidRequest`."""
    out: list[Clause] = []
    for clause in (c for c in statement.clauses if c.when is when):
        values: Mapping[str, str] = {}
        if clause.action is st.MergeAction.UPDATE:
            values = set_values(target, _assigned(target, source, clause, statement.lenient))
        elif clause.action is st.MergeAction.INSERT:
            values = _inserted(target, _assigned(target, source, clause, statement.lenient))
        out.append(Clause(len(out), clause.condition, clause.action, values, statement.lenient))
    return out


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


def _assigned(target: Target, source: Source, clause: st.MergeClause, lenient: bool) -> Sequence[st.Assignment]:
    """What a clause assigns; of star forms, each column of the target from the source's of that name."""
    if clause.assignments is not None:
        return clause.assignments
    updates, table = clause.action is st.MergeAction.UPDATE, target.table.name
    names = target.context.names
    types = {f.name: f.dataType for f in source.frame.schema.fields}
    out = []
    for field in target.state.schema.fields:
        name = source.columns.get(names.key(field.name))
        if name is None:
            if lenient:
                continue
            raise NotFound(
                f"table '{table}': {'UPDATE SET *' if updates else 'INSERT *'} needs every column, and the source of "
                f"MERGE has no '{field.name}'; it has {', '.join(source.columns.values())} (with the option "
                "write.merge-schema it may lack some)"
            )
        value, made = source.column(name), None
        if lenient and updates:
            old, wanted = target.column(field.name), spark_type(field.type)
            made = Members(table, names, lenient).as_text(value, types[name], wanted, field.name, old)
        out.append(st.Assignment((field.name,), SqlText(value if made is None else made)))
    return out


def _inserted(target: Target, assignments: Sequence[st.Assignment]) -> dict[str, str]:
    table, out = target.table.name, {}
    for assignment in assignments:
        parts = target.column_parts(assignment.target)
        if len(parts) > 1:
            raise InvalidRequest(f"table '{table}': INSERT takes whole columns, and not '{'.'.join(parts)}'")
        if parts[0] in out:
            raise InvalidRequest(f"table '{table}': column '{parts[0]}' is inserted twice")
        out[parts[0]] = "NULL" if assignment.value is None else f"({assignment.value})"
    return out


# --- as text ----------------------------------------------------------------------------------------------------------


def action(clauses: Sequence[Clause]) -> str:
    """Which clause applies: its number, NULL for none."""
    return _case(clauses, {c.number: str(c.number) for c in clauses})


def items(target: Target, clauses: Sequence[Clause], old: Collection[str] = ()) -> str:
    """The SELECT list of the new rows' parts: the clause, ``old`` columns of the target, and each clause's values."""
    fields = target.state.schema.fields
    out = [f"{action(clauses)} AS {ACTION}"]
    out += [f"{target.column(f.name)} AS {old_column(i)}" for i, f in enumerate(fields) if f.name in old]
    return ", ".join([*out, *value_items(target, clauses)])


def value_items(target: Target, clauses: Sequence[Clause]) -> list[str]:
    """The part of :func:`items` that gives each clause's values, of its own rows alone."""
    out = []
    for clause in clauses:
        for i, field in enumerate(target.state.schema.fields):
            if field.name in clause.values:
                value = _case(clauses, {clause.number: clause.values[field.name]})
                out.append(f"{value} AS {_SET}_{clause.number}_{i}")
    return out


def kept_columns(target: Target, clauses: Sequence[Clause]) -> set[str]:
    """The target's columns of which clauses' rows keep values."""
    names = target.state.schema.field_names
    return {n for c in clauses if c.action is not st.MergeAction.INSERT for n in names if n not in c.values}


def unmatched(source: Source, condition: str, chosen: str) -> tuple[str, str]:
    """What stands before and after the target in a query of ``chosen`` over the source's rows that match none of it.

    They are found by the numbers of those that do match, which a join with a source sent to every task gives.
    """
    found = "__bitlake_matched"
    before = f"SELECT {chosen} FROM {source.item} LEFT ANTI JOIN (SELECT {source.hint}{source.row} AS {found} FROM"
    return before, f"JOIN {source.item} ON ({condition})) AS {found} ON {source.row} = {found}.{found}"


def _case(clauses: Sequence[Clause], results: Mapping[int, str]) -> str:
    """``CASE WHEN c0 THEN r0 WHEN c1 THEN r1 … END``, NULL where a clause has no result."""
    branches = []
    for clause in clauses:
        condition = "true" if clause.condition is None else f"({clause.condition})"
        branches.append(f"WHEN {condition} THEN {results.get(clause.number, 'NULL')}")
    return f"CASE {' '.join(branches)} END"


# --- as columns -------------------------------------------------------------------------------------------------------


def old_column(number: int) -> str:
    """The name that :func:`items` gives to the target's n-th column."""
    return f"{_OLD}_{number}"


def new_rows(target: Target, frame: DataFrame, clauses: Sequence[Clause], *more: Column) -> DataFrame:
    """The target's columns of the rows that clauses make, from a frame of :func:`items`, and more columns of it.

    Members of structs are matched by name; those that a ``lenient`` clause's values lack are NULL.  The rows of a
    DELETE clause are as they were.
    """
    fields, table = target.state.schema.fields, target.table.name
    chosen = F.col(ACTION)
    stored = {}
    for clause in clauses:
        names = []
        for i, field in enumerate(fields):
            name = f"{_SET}_{clause.number}_{i}"
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
    return frame.where(chosen.isin(list(stored))).select(*columns, *more)
