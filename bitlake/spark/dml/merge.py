"""MERGE INTO append and primary-key tables, in one snapshot; ``lake.merge(…)`` builds the statement.

Append tables: first the target is read only for what ON and the clauses' conditions need, to find matches; then, for
those rows alone, the values that updated rows keep or SET computes with.  Spark keeps the pairs of a source row and a
target row that ON matched, so the target is read and joined once.  A clause whose values come from the source alone
(as ``UPDATE SET *``) does not read the target again.  The source is evaluated once.  Each kind of clause is a query
of its own, so that names resolve in it as they should: ``target JOIN source`` for WHEN MATCHED, ``source ANTI JOIN
target`` for WHEN NOT MATCHED, ``target ANTI JOIN source`` for WHEN NOT MATCHED BY SOURCE.

Primary-key tables: rows with their kinds, written as INSERT writes rows, in one commit.  Spark keeps the changed rows
while they are checked, counted and written.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake import arguments
from bitlake.catalog.catalog import Identifier
from bitlake.engine.insert import evolution, merging
from bitlake.engine.merge_clauses import (
    ACTION,
    CLOCK,
    KINDS,
    ROW,
    Clause,
    Merged,
    action,
    check_conditions,
    clauses_of,
    items,
    kept_columns,
    keyed_clauses,
    matched_twice,
    of_source_alone,
    old_column,
    value_items,
)
from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.expressions.sql_text import quoted
from bitlake.metadata.manifest import ManifestEntry
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.delete_update import KIND, retried, write_kinds
from bitlake.spark.dml.key_pairs import FILE, POSITION, key_pairs
from bitlake.spark.dml.merge_few import commit_append, merge_few
from bitlake.spark.dml.merge_source import (
    Source,
    filter_above,
    key_predicates,
    new_columns,
    new_rows,
    source_of,
    unmatched,
)
from bitlake.spark.dml.target import Gathered, Target, gather, gathered
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.local_relation import local_frame
from bitlake.spark.read.query import query
from bitlake.spark.runner import SparkRunner
from bitlake.spark.write.append import write_frame
from bitlake.spark.write.insert_cast import merged_state
from bitlake.sql import statements as st
from bitlake.sql.text import SqlText
from bitlake.write.append_dml import discard_statement, write_deletion
from bitlake.write.frames import is_spark_frame

if TYPE_CHECKING:
    from bitlake.spark.engine import SparkEngine


def merge(context: EngineContext, statement: st.MergeInto) -> pa.Table:
    """Run a MERGE; returns how many rows it updated, deleted and inserted.

    Raises :class:`InvalidRequest` if several source rows would change one row of the target.
    """
    target = Target.of(context, statement.table, statement.alias, statement.with_)
    check_conditions(target, statement)
    context.names.check(target.table.name, target.state.schema.field_names)
    with source_of(context, statement) as source:
        how = merging(context, context.identify(statement.table), target.table, evolution(statement.evolve))
        if how.on:
            rows = source.frame.drop(ROW)
            if not any(c.assignments is None and c.action is not st.MergeAction.DELETE for c in statement.clauses):
                rows = rows.select(*map(quoted, new_columns(target, source, statement)))
            target = replace(target, state=merged_state(context, target.table, target.state, rows, how))
            statement = replace(statement, lenient=True)

        def step(now: Target) -> Merged:
            done = merge_few(now, source, statement)
            if done is not None:
                return done
            if now.state.schema.primary_keys:
                return merge_keyed(now, source, statement)
            now.table.check_writable(now.state)
            return _Merge.of(now, source, statement).run()

        done = retried(target, step)
    return done.as_table()


@dataclass(slots=True)
class _Merge:
    """One try of a MERGE.  Mutable."""

    target: Target
    """All rows."""
    near: Target
    """The rows that can match a row of the source."""
    source: Source
    statement: st.MergeInto
    matched: Sequence[Clause]
    missing: Sequence[Clause]
    orphaned: Sequence[Clause]
    plain: bool
    """Whether WHEN MATCHED makes no row that needs a value of the target."""
    hits: dict[str, BitMap] = field(default_factory=dict)
    deleted: int = 0
    pairs: Pairs | None = None
    again: int = 0
    """Rows that are found once more to be updated."""

    @classmethod
    def of(cls, target: Target, source: Source, statement: st.MergeInto) -> _Merge:
        near = replace(target, pushed=key_predicates(target, source, statement.condition))
        kinds = (st.When.MATCHED, st.When.NOT_MATCHED, st.When.NOT_MATCHED_BY_SOURCE)
        matched, missing, orphaned = (clauses_of(target, source, statement, kind) for kind in kinds)
        updating = [c for c in matched if c.action is st.MergeAction.UPDATE]
        values = [v for c in updating for v in c.values.values()]
        plain = not kept_columns(target, updating) and all(of_source_alone(target, source, v) for v in values)
        return cls(target, near, source, statement, matched, missing, orphaned, plain)

    def run(self) -> Merged:
        """Find, write, commit."""
        state, table = self.target.state, self.target.table
        with ExitStack() as stack:
            found, left = self._find_matched(stack), self._find_left()
            again = self._updated(self.orphaned, left)
            again += [] if self.plain else self._updated(self.matched, found)
            once = self._of_source(found)
            deletion = write_deletion(state, self.hits, SparkRunner(self.target.context.spark))
            expected = deletion.rows - self.deleted
            files: list[ManifestEntry] = []
            try:
                if again and once and self._tells_time:
                    files += self._write(again)
                    self._check(files, self.again)
                    files += self._write(once)
                else:
                    files += self._write([*again, *once])
                if not self.missing:
                    self._check(files, expected)
            except BaseException:
                discard_statement(state, deletion, files)
                raise
        commit_append(table, state, deletion, files)
        return Merged(expected, self.deleted, _rows(files) - expected)

    def _check(self, files: Sequence[ManifestEntry], expected: int) -> None:
        if _rows(files) != expected:
            raise CommitConflict(
                f"MERGE INTO '{self.target.table.name}': {expected} rows were to be updated and {_rows(files)} were; "
                "a condition or the source gave another answer the second time"
            )

    @property
    def _tells_time(self) -> bool:
        texts = (self.statement.condition, *(c.condition or "" for c in self.statement.clauses))
        return any(CLOCK.search(t) for t in texts)

    # --- which rows --------------------------------------------------------------------------------------------------

    def _find_matched(self, stack: ExitStack) -> Gathered:
        if not self.matched:
            return Gathered()
        updates = any(c.action is st.MergeAction.UPDATE for c in self.matched)
        kept = stack if self.missing or (self.plain and updates) else None
        join = f"JOIN {self.source.item} ON ({self.statement.condition})"
        found = self._find_by_keys(kept) or self._find(self.near, self.matched, join, kept)
        only = self.matched[0]
        harmless = len(self.matched) == 1 and only.condition is None and only.action is st.MergeAction.DELETE
        if found.twice and not harmless:
            raise matched_twice(self.target, sum(len(rows) for rows in found.twice.values()))
        return found

    def _find_left(self) -> Gathered:
        if not self.orphaned:
            return Gathered()
        join = f"LEFT ANTI JOIN {self.source.item} ON ({self.statement.condition})"
        return self._find(self.target, self.orphaned, join, None)

    def _find(self, target: Target, clauses: Sequence[Clause], join: str, kept: ExitStack | None) -> Gathered:
        """Where rows are and what becomes of them; with ``kept``, :attr:`pairs` last as long as that."""
        doing = f"MERGE INTO '{target.table.name}'"
        chosen, pair = action(clauses), f", {self.source.row} AS {PAIR}" if kept is not None else ""
        inner = f"{target.path} AS file, {target.index} AS position, {chosen} AS action{pair}"
        if kept is None or not self.missing:
            outer, acting = "*", True
        else:  # of pairs that are left as they are, only that there is one
            at = (f"CASE WHEN action IS NOT NULL THEN {c} END AS {c}" for c in ("file", "position"))
            outer, acting = f"{', '.join(at)}, action, {PAIR}", False
        before = f"SELECT {outer} FROM (SELECT {self.source.hint}{inner} FROM"
        frame = target.query(before, f"{join})", positions=True)
        if acting:
            frame = filter_above(frame, F.col("action").isNotNull())
        if kept is not None:
            frame, self.pairs = kept.enter_context(kept_pairs(target.context, frame, doing))
            frame = frame.where("action IS NOT NULL").select("file", "position", "action")
        return self._noted(gather(frame, doing, self.target.state), clauses)

    def _find_by_keys(self, kept: ExitStack | None) -> Gathered | None:
        """As :meth:`_find`, of one clause without a condition, in this process; None where Spark finds the rows."""
        if len(self.matched) != 1 or self.matched[0].condition is not None:
            return None
        pairs = key_pairs(self.near, self.source, self.statement.condition)
        if pairs is None:
            return None
        action = pa.repeat(pa.scalar(self.matched[0].number, pa.int32()), pairs.num_rows)
        if kept is not None:
            self.pairs = kept.enter_context(local_pairs(self.target.context, pairs.column(ROW), action))
        rows = pa.table([pairs.column(FILE), pairs.column(POSITION), action], names=["file", "position", "action"])
        return self._noted(gathered(rows), self.matched)

    def _noted(self, found: Gathered, clauses: Sequence[Clause]) -> Gathered:
        """What was found, counted among what changes."""
        for name, rows in found.hits.items():
            self.hits[name] = self.hits[name] | rows if name in self.hits else rows
        deleting = {c.number for c in clauses if c.action is st.MergeAction.DELETE}
        self.deleted += sum(len(r) for n in deleting for r in found.by_action.get(n, {}).values())
        return found

    # --- new rows ----------------------------------------------------------------------------------------------------

    def _updated(self, clauses: Sequence[Clause], found: Gathered) -> list[DataFrame]:
        """The rows that UPDATE clauses hit, with new values; Spark checks these even if no row is hit."""
        updating = [c for c in clauses if c.action is st.MergeAction.UPDATE]
        hits: dict[str, BitMap] = {}
        for clause in updating:
            for name, rows in found.by_action.get(clause.number, {}).items():
                hits[name] = hits[name] | rows if name in hits else rows
        if not updating:
            return []
        self.again += sum(len(rows) for rows in hits.values())
        # Rows that no source row matches are known by where they are.
        joined = clauses is self.matched
        join = f"JOIN {self.source.item} ON ({self.statement.condition})" if joined else ""
        old = kept_columns(self.target, updating)
        before = f"SELECT {self.source.hint if joined else ''}{items(self.target, clauses, old)} FROM"
        frame = self.target.query(before, join, hits=hits, refiltered=joined)
        updated = new_rows(self.target, frame, updating)
        return [updated] if hits else []

    def _of_source(self, found: Gathered) -> list[DataFrame]:
        """The rows that are made of the source's alone."""
        updating = [c for c in self.matched if self.plain and c.action is st.MergeAction.UPDATE]
        if not updating and not self.missing:
            return []
        if self.pairs is not None:
            frame, clauses = rows_of_source(self.target, self.source, self.pairs, updating, self.missing)
            rows = new_rows(self.target, frame, clauses)  # checks values, even of clauses that match no row
            return [rows] if self.missing or any(found.by_action.get(c.number) for c in updating) else []
        condition = self.statement.condition
        texts = unmatched(self.source, condition, items(self.target, self.missing))
        return [new_rows(self.target, self.near.query(*texts, read_for=condition), self.missing)]

    def _write(self, frames: Sequence[DataFrame]) -> list[ManifestEntry]:
        if not frames:
            return []
        whole = functools.reduce(DataFrame.union, frames)
        return write_frame(self.target.context, self.target.table, self.target.state, whole)


def _rows(files: Sequence[ManifestEntry]) -> int:
    return sum(e.file.row_count for e in files)


def merge_keyed(target: Target, source: Source, statement: st.MergeInto) -> Merged:
    """Run a MERGE; raises :class:`InvalidRequest` for what the table's merge engine cannot take."""
    target = replace(target, level_0=True)
    schema, name = target.state.schema, target.table.name
    matched, missing, left = keyed_clauses(target, source, statement)
    near = replace(target, pushed=key_predicates(target, source, statement.condition))
    on = f"ON ({statement.condition})"
    frames: list[DataFrame] = []
    done = Merged()
    with ExitStack() as stack:
        for clauses, of, join in ((matched, near, "JOIN"), (left, target, "LEFT ANTI JOIN")):
            if clauses:
                kept = kept_columns(target, clauses) | set(schema.primary_keys)
                found = of.query(
                    f"SELECT {source.hint}{items(target, clauses, kept)} FROM", f"{join} {source.item} {on}"
                )
                rows = stack.enter_context(_kept(name, filter_above(found, F.col(ACTION).isNotNull())))
                if _count(target, clauses, rows, done):
                    rows = rows.dropDuplicates(_old_keys(target))
                frames.append(_written(target, rows, clauses))
        if missing:
            texts = unmatched(source, statement.condition, items(target, missing))
            found = near.query(*texts, read_for=statement.condition)
            frames.append(_written(target, found, missing))
        total = write_kinds(target, functools.reduce(DataFrame.union, frames), "MERGE")
    done.inserted = total - done.updated - done.deleted
    return done


@contextmanager
def _kept(table: str, rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that Spark keeps for the block: they are looked at more than once."""
    with spark_errors(f"MERGE INTO '{table}'"):
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        rows.unpersist()


def _old_keys(target: Target) -> list[str]:
    """The columns of the target's primary key, as they were."""
    fields = [f.name for f in target.state.schema.fields]
    return [old_column(fields.index(k)) for k in target.state.schema.primary_keys]


def _count(target: Target, clauses: Sequence[Clause], rows: DataFrame, done: Merged) -> bool:
    """Count what clauses do; returns whether rows are deleted by several rows of the source, which counts once.

    Raises :class:`InvalidRequest` if one row of the target is changed twice in another way.
    """
    action = F.col(ACTION)
    each = [F.count_if(action == c.number).alias(f"n{c.number}") for c in clauses]
    totals = [F.sum(f"n{c.number}").alias(f"n{c.number}") for c in clauses]
    by_key = rows.groupBy(*_old_keys(target)).agg(F.count(F.lit(1)).alias("times"), *each)
    with spark_errors(f"MERGE INTO '{target.table.name}'"):
        several = F.count_if(F.col("times") > 1).alias("twice")
        counts = by_key.agg(several, F.count(F.lit(1)).alias("keys"), *totals).toArrow().to_pylist()[0]
    deletes = len(clauses) == 1 and clauses[0].action is st.MergeAction.DELETE and clauses[0].condition is None
    if counts["twice"] and not deletes:
        raise matched_twice(target, counts["twice"])
    if counts["twice"]:
        done.deleted += counts["keys"]
        return True
    for clause in clauses:
        count = counts[f"n{clause.number}"] or 0
        if clause.action is st.MergeAction.DELETE:
            done.deleted += count
        else:
            done.updated += count
    return False


def _written(target: Target, rows: DataFrame, clauses: Sequence[Clause]) -> DataFrame:
    """The rows to write, and their kinds."""
    kind = F.lit(None).cast("tinyint")
    for clause in clauses:
        kind = F.when(F.col(ACTION) == clause.number, F.lit(KINDS[clause.action]).cast("tinyint")).otherwise(kind)
    return new_rows(target, rows, clauses, kind.alias(KIND))


PAIR = "__bitlake_pair"
"""The column of a pair's row of the source."""
_CLAUSE = "__bitlake_clause"
_ALIAS = "__bitlake_pairs"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of rows: ``view`` has :data:`PAIR` and the number of the clause, NULL if none is for them."""

    view: str

    @property
    def item(self) -> str:
        """The pairs as an item of FROM."""
        return f"{quoted(self.view)} AS {quoted(_ALIAS)}"

    def on(self, source: Source) -> str:
        """Return the condition that a row of the source and its matches have in common."""
        return f"ON {source.row} = {quoted(_ALIAS, PAIR)}"


@contextmanager
def local_pairs(context: EngineContext, rows: pa.ChunkedArray, clauses: pa.Array) -> Iterator[Pairs]:
    """Pairs that the driver has: row numbers of the source, and numbers of clauses."""
    types = T.StructType([T.StructField(PAIR, T.LongType()), T.StructField(_CLAUSE, T.IntegerType())])
    frame = local_frame(context.spark, pa.table([rows, clauses], names=types.names), types)
    with context.views([frame]) as (view,):
        yield Pairs(view)


@contextmanager
def kept_pairs(context: EngineContext, frame: DataFrame, doing: str) -> Iterator[tuple[DataFrame, Pairs]]:
    """Rows of (file, position, action, :data:`PAIR`) that Spark keeps for the block, and the pairs of them."""
    with spark_errors(doing):
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        known = frame.selectExpr(quoted(PAIR), f"action AS {quoted(_CLAUSE)}")
    try:
        with context.views([known]) as (view,):
            yield frame, Pairs(view)
    finally:
        frame.unpersist()


def rows_of_source(
    target: Target, source: Source, pairs: Pairs, updating: Sequence[Clause], missing: Sequence[Clause]
) -> tuple[DataFrame, list[Clause]]:
    """The parts of new rows (as of ``items``) that need nothing of the target, and the clauses that number them.

    ``updating`` are clauses of WHEN MATCHED whose values are of the source alone.
    """
    above = 1 + max((c.number for c in updating), default=-1)
    inserting = [replace(c, number=above + c.number) for c in missing]
    clause, pair = quoted(_ALIAS, _CLAUSE), quoted(_ALIAS, PAIR)
    matched = [replace(c, condition=f"{clause} = {c.number}") for c in updating]
    unmatched = [replace(c, condition=f"{pair} IS NULL AND ({c.condition or 'true'})") for c in inserting]
    chosen = [f"{action([*matched, *unmatched])} AS {ACTION}"]
    chosen += [*value_items(target, matched), *value_items(target, unmatched)]
    join = "LEFT JOIN" if missing else "JOIN"
    text = f"{target.with_} SELECT {', '.join(chosen)} FROM {source.item} {join} {pairs.item} {pairs.on(source)}"
    return query(target.context, SqlText(text.lstrip())), [*updating, *inserting]


_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A MERGE statement; every call gives a new one, :meth:`execute` runs it.

    Conditions and values are Spark SQL text in which the rows are called ``target`` and ``source``, or what ``alias``
    and ``source_alias`` say.  Of several clauses, the first one whose condition holds is taken, as in SQL.

    >>> columns = ["customer_id", "name", "city"]
    >>> rows = [(1, "Ada", None), (2, "Grace", "Paris"), (3, "Alan", "London")]
    >>> changes = lake.spark.createDataFrame(rows, columns)
    >>> merge = lake.merge("customers", changes, "target.customer_id = source.customer_id")
    >>> merge = merge.when_matched_delete("source.city IS NULL").when_matched_update()
    >>> merge = merge.when_not_matched_insert()
    >>> merge.execute().collect()
    [Row(num_affected_rows=3, num_updated_rows=1, num_deleted_rows=1, num_inserted_rows=1)]

    Rows of the target that no row of the source matches:

    >>> kept = lake.spark.createDataFrame([(3,)], ["customer_id"])
    >>> merge = lake.merge("customers", kept, "target.customer_id = source.customer_id")
    >>> merge = merge.when_not_matched_by_source_update({"city": "'unknown'"}, "target.city IS NULL")
    >>> merge = merge.when_not_matched_by_source_delete("target.city = 'Paris'").execute()
    >>> customers.to_arrow(["name", "city"]).to_pylist()
    [{'name': 'Alan', 'city': 'London'}]
    """

    engine: SparkEngine
    target: Identifier
    source: DataFrame | str
    on: str
    alias: str = "target"
    source_alias: str = "source"
    clauses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _sql("ON", self.on)
        if not isinstance(self.source, str) and not is_spark_frame(self.source):
            raise InvalidRequest(
                f"the source of a merge is a Spark DataFrame or a table's name, not {type(self.source).__name__}; "
                "lake.spark.createDataFrame(…) makes a DataFrame of pandas and Arrow data"
            )

    def when_matched_update(self, set: Mapping[str, str] | None = None, condition: str | None = None) -> MergeBuilder:
        """Set columns of rows that match (None: all columns, to those of the source)."""
        return self._with("MATCHED", condition, f"UPDATE SET {_assignments(set)}")

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows that match."""
        return self._with("MATCHED", condition, "DELETE")

    def when_not_matched_insert(
        self, values: Mapping[str, str] | None = None, condition: str | None = None
    ) -> MergeBuilder:
        """Insert rows of the source that match none (None: all their columns)."""
        if values is None:
            return self._with("NOT MATCHED", condition, "INSERT *")
        columns, texts = zip(*_values("values", values), strict=True)
        return self._with("NOT MATCHED", condition, f"INSERT ({', '.join(columns)}) VALUES ({', '.join(texts)})")

    def when_not_matched_by_source_update(self, set: Mapping[str, str], condition: str | None = None) -> MergeBuilder:
        """Set columns of rows that no row of the source matches."""
        return self._with("NOT MATCHED BY SOURCE", condition, f"UPDATE SET {_assignments(set)}")

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows that no row of the source matches."""
        return self._with("NOT MATCHED BY SOURCE", condition, "DELETE")

    def execute(self) -> DataFrame:
        """Run it; returns the numbers of rows, as MERGE INTO does.  Nothing has happened before."""
        if not self.clauses:
            raise InvalidRequest("a merge needs a clause, such as when_matched_update()")
        if isinstance(self.source, str):
            # A name is quoted, since it may contain any character; other text is SQL, such as a query in parentheses.
            is_name = re.fullmatch(r"[^`(\s]+", self.source)
            return self.engine.sql(self._text(quoted(*self.source.split(".")) if is_name else self.source))
        session, view = self.source.sparkSession, f"__bitlake_source_{next(_numbers)}"
        self.source.createOrReplaceTempView(view)
        try:
            return self.engine.of_session(session).sql(self._text(view))
        finally:
            session.catalog.dropTempView(view)

    def _with(self, when: str, condition: str | None, action: str) -> MergeBuilder:
        also = "" if condition is None else f" AND ({_sql('a condition', condition)})"
        return replace(self, clauses=(*self.clauses, f"WHEN {when}{also} THEN {action}"))

    def _text(self, source: str) -> str:
        parts = [
            f"MERGE INTO {quoted(self.target.database, self.target.table)} AS {quoted(self.alias)}",
            f"USING {source} AS {quoted(self.source_alias)}",
            f"ON {_sql('ON', self.on)}",
            *self.clauses,
        ]
        return "\n".join(parts)


def _assignments(values: Mapping[str, str] | None) -> str:
    if values is None:
        return "*"
    return ", ".join(f"{column} = {value}" for column, value in _values("set", values))


def _values(argument: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """The columns, in backticks, and their values as SQL."""
    given = arguments.mapping(f"a merge: {argument}", values)
    if not given:
        raise InvalidRequest(
            f"a merge: '{argument}' needs a column with its value; omit '{argument}' to take all columns of the source"
        )
    return [
        (quoted(arguments.text("a column's name", name)), _sql(f"the value of column '{name}'", value))
        for name, value in given.items()
    ]


def _sql(what: str, value: object) -> str:
    """Return the SQL text, with a line break after its end if that may be a comment."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(
            f"a merge: {what} must be Spark SQL text, such as \"source.status = 'NEW'\", not {value!r}"
        )
    return f"{value}\n" if "--" in value else value
