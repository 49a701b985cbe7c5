"""MERGE of few rows: Spark evaluates the statement over local relations, and the driver writes the result.

The source is in the driver already (:func:`bitlake.spark.dml.merge_source.source_of`).  Its keys find the target's
rows that can match, by statistics, indexes and bounds of pages, and the driver reads them.  Both are local relations
in one partition, so Spark joins them and evaluates conditions, values and casts in one job, and the values of rows
that match nothing in another.  The SQL text is that of :mod:`bitlake.spark.dml.merge`, with the same meaning.

:mod:`bitlake.spark.dml.merge` runs all other statements: a target of which many bytes must be read or many rows can
match, many pairs of rows, and WHEN NOT MATCHED BY SOURCE, which needs all rows of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.engine.merge_clauses import (
    ACTION,
    KINDS,
    ROW,
    Clause,
    Merged,
    clauses_of,
    column_of_source,
    equalities,
    first_of_each,
    items,
    kept_columns,
    keyed_clauses,
    matched_twice,
    old_column,
)
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.lazy_modules import compute as pc
from bitlake.mergetree import writer as upsert
from bitlake.mergetree.commit import publish
from bitlake.metadata.manifest import ManifestEntry
from bitlake.runtime import LocalRunner, Runner
from bitlake.scan.reader import DRIVER_BYTES, DRIVER_FILES
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.dml.key_pairs import FILE, MOST_BYTES, POSITION
from bitlake.spark.dml.merge_source import Source, filter_above, key_predicates, new_rows, stored_equalities
from bitlake.spark.dml.target import Gathered, Target, gathered
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.local_relation import local_frame
from bitlake.spark.read.query import query
from bitlake.spark.read.scan import chosen_bytes, frame_schema
from bitlake.spark.runner import SparkRunner
from bitlake.spark.write.append import tagged
from bitlake.spark.write.insert_cast import has_not_null_inside
from bitlake.sql import statements as st
from bitlake.sql.text import SqlText
from bitlake.types import arrow_type
from bitlake.write.append_dml import RowDeletion, discard_statement, write_deletion
from bitlake.write.writer import write_rows

MOST_ROWS = 1 << 16
"""The most rows of the target that can match, and the most pairs of rows: each takes some 5 µs on its way to Spark."""
MOST_KEYS = 1 << 14
"""The most rows of a source whose keys, not only their range, find the target's rows: their files are read once, for
the columns of the keys alone.  11,000 keys in 6M rows take 0.6 s of CPU, and 8 jobs of Spark twenty times that."""
_NUMBER = "__bitlake_number"


class _Many(Exception):
    """The driver would have to read or join too much."""


def merge_few(target: Target, source: Source, statement: st.MergeInto) -> Merged | None:
    """Run a MERGE whose rows are few; None if they are not, and nothing has changed then.

    Raises :class:`InvalidRequest` if several source rows would change one row of the target.
    """
    schema = target.state.schema
    if source.table is None or has_not_null_inside(schema.fields):
        return None
    if any(c.when is st.When.NOT_MATCHED_BY_SOURCE for c in statement.clauses):
        return None
    try:
        if schema.primary_keys:
            return _merge_keyed(replace(target, level_0=True), source, statement)
        target.table.check_writable(target.state)
        return _merge_append(target, source, statement)
    except _Many:
        return None


def commit_append(
    table: FileStoreTable, state: TableState, deletion: RowDeletion, files: Sequence[ManifestEntry]
) -> None:
    """Commit what a MERGE into an append table deleted and wrote."""
    if deletion.rows:
        table.commit_rows(state, deletion, "MERGE", files)
    else:
        table.commit_files(state, files, "MERGE")


def _merge_append(target: Target, source: Source, statement: st.MergeInto) -> Merged:
    state, table, done = target.state, target.table, Merged()
    matched, missing, _ = (clauses_of(target, source, statement, when) for when in st.When)
    updating = [c for c in matched if c.action is st.MergeAction.UPDATE]
    pairs = _pairs(
        target, source, statement, matched, missing, updating, kept_columns(target, updating), places=bool(matched)
    )
    rows = gathered(pairs.changed.select([FILE, POSITION, ACTION])) if matched else Gathered()
    if rows.twice and not _harmless(matched):
        raise matched_twice(target, sum(len(r) for r in rows.twice.values()))
    new = [pairs.rows_of(updating), _inserted(target, source, statement, missing, pairs)]
    done.updated, done.inserted = (0 if n is None else n.num_rows for n in new)
    done.deleted = _count(rows, [c for c in matched if c.action is st.MergeAction.DELETE])
    deletion = write_deletion(state, rows.hits, _runner(target, rows))
    try:
        files = write_rows(state, (n for n in new if n is not None and n.num_rows), table.store)
    except BaseException:
        discard_statement(state, deletion, ())
        raise
    commit_append(table, state, deletion, files)
    return done


def _merge_keyed(target: Target, source: Source, statement: st.MergeInto) -> Merged:
    state, table, done = target.state, target.table, Merged()
    schema = state.schema
    matched, missing, _ = keyed_clauses(target, source, statement)
    kept = (kept_columns(target, matched) | set(schema.primary_keys)) if matched else set()
    pairs = _pairs(target, source, statement, matched, missing, matched, kept, places=False)
    if matched and not _harmless(matched):
        times = pairs.changed.group_by(_old_keys(target)).aggregate([([], "count_all")]).column("count_all")
        if twice := pc.sum(pc.greater(times, 1)).as_py():
            raise matched_twice(target, twice)
    new = [(clause.action, pairs.rows_of([clause])) for clause in matched]
    if _harmless(matched):  # a row that several rows of the source delete counts once
        new = [(what, rows and first_of_each(rows, schema.primary_keys)) for what, rows in new]
    new.append((st.MergeAction.INSERT, _inserted(target, source, statement, missing, pairs)))
    changes = [(what, rows) for what, rows in new if rows is not None and rows.num_rows]
    for what, rows in changes:
        done.updated += rows.num_rows if what is st.MergeAction.UPDATE else 0
        done.deleted += rows.num_rows if what is st.MergeAction.DELETE else 0
        done.inserted += rows.num_rows if what is st.MergeAction.INSERT else 0
    if changes:
        kinds = pa.concat_arrays([pa.repeat(pa.scalar(KINDS[what], pa.int8()), len(rows)) for what, rows in changes])
        batches = upsert.prepare_rows(table.name, schema, [rows for _, rows in changes], kinds)
        written = upsert.write_changes(state, batches, table.publisher(state).user)
        # New values were computed from old ones: if another writer was first, the statement reads its rows.
        publish(table, state, written, operation="MERGE", renumber=False)
    return done


def _harmless(matched: Sequence[Clause]) -> bool:
    """Whether a row of the target may match several rows of the source: each of them deletes it."""
    return len(matched) == 1 and matched[0].condition is None and matched[0].action is st.MergeAction.DELETE


def _count(rows: Gathered, clauses: Sequence[Clause]) -> int:
    return sum(len(r) for c in clauses for r in rows.by_action.get(c.number, {}).values())


def _runner(target: Target, rows: Gathered) -> Runner:
    """The runner that rewrites files: the driver if they are small."""
    names = rows.hits
    size = sum(e.file.file_size for e in target.state.entries() if e.file.file_name in names)
    return LocalRunner() if size <= DRIVER_BYTES else SparkRunner(target.context.spark)


# --- pairs of rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs of a source row and a target row that ON matches.

    ``rows`` has :data:`ACTION` (NULL: no clause applies), :data:`ROW`, what identifies a row of the target, and the
    columns of new rows.
    """

    columns: Sequence[str]
    rows: pa.Table

    @property
    def changed(self) -> pa.Table:
        """The pairs that a clause applies to."""
        return self.rows.filter(pc.is_valid(self.rows.column(ACTION)))

    def rows_of(self, clauses: Sequence[Clause]) -> pa.Table | None:
        """The new rows of clauses."""
        if not clauses:
            return None
        numbers = pa.array([c.number for c in clauses], pa.int32())
        of_clauses = pc.is_in(self.rows.column(ACTION).cast(pa.int32()), numbers)
        return self.rows.filter(of_clauses).select(list(self.columns))


@dataclass(slots=True)
class _Near:
    """Reads the rows of the target that can match a row of the source.  Mutable: ``rows`` counts them."""

    target: Target
    keys: pa.Table | None = None
    """The values of the target's columns that ON compares with the source's; None: rows are not compared with them."""
    rows: int = field(default=0)

    def read(self, scan: TableScan) -> DataFrame:
        """The rows as a local relation in one partition; raises :class:`_Many`."""
        plan, fields = scan.plan(), self.target.state.schema.fields
        share = max(1, len(scan.columns)) / max(1, len(fields))
        if len(plan.files) > DRIVER_FILES or sum(map(chosen_bytes, plan.files)) * min(1.0, share) > MOST_BYTES:
            raise _Many
        tables = []
        for batch in scan.to_batches():
            found = self._matching(pa.Table.from_batches([batch]))
            self.rows += found.num_rows
            if self.rows > MOST_ROWS:
                raise _Many
            tables.append(found)
        rows = pa.concat_tables(tables) if tables else scan.schema.empty_table()
        return local_frame(self.target.context.spark, rows, frame_schema(scan)).coalesce(1)

    def _matching(self, rows: pa.Table) -> pa.Table:
        """The rows whose keys, taken together, are the source's."""
        if self.keys is None or not set(self.keys.column_names) <= set(rows.column_names):
            return rows
        numbered = rows.select(self.keys.column_names).append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        found = numbered.join(self.keys, self.keys.column_names, join_type="left semi")
        return rows if found.num_rows == rows.num_rows else rows.take(found.column(_NUMBER).sort())


def _keys(target: Target, source: Source, condition: SqlText) -> pa.Table | None:
    """The source's keys as the target stores them, where ON compares several columns."""
    pairs = {f.name: (f, column) for f, column in stored_equalities(target, source, condition)}
    if source.table is None or len(pairs) < 2 or source.rows > MOST_KEYS:
        return None
    # An integer that the target's type does not hold becomes another one: ON is evaluated for what that finds, too.
    columns = {n: source.table.column(c).cast(arrow_type(f.type), safe=False) for n, (f, c) in pairs.items()}
    return pa.table(columns)


def _pairs(
    target: Target,
    source: Source,
    statement: st.MergeInto,
    matched: Sequence[Clause],
    missing: Sequence[Clause],
    making: Sequence[Clause],
    kept: set[str],
    *,
    places: bool,
) -> _Pairs:
    """Join the source and the target rows that can match it.

    ``making``: the clauses that make rows; these rows keep the columns ``kept``.
    """
    doing, fields = f"MERGE INTO '{target.table.name}'", target.state.schema.fields
    pushed = key_predicates(target, source, statement.condition, MOST_KEYS)
    # Both sides have one partition, so the join needs neither an exchange nor a broadcast, which are jobs.
    hint = f"/*+ SHUFFLE_HASH({quoted(source.alias)}) */ " if equalities(target, source, statement.condition) else ""
    chosen, ids = [items(target, matched, kept) if matched else f"CAST(NULL AS INT) AS {ACTION}"], [ACTION, ROW]
    if places:
        chosen += [f"{target.path} AS {FILE}", f"{target.index} AS {POSITION}"]
        ids += [FILE, POSITION]
    elif matched:
        ids += _old_keys(target)
    chosen.append(f"{source.row} AS {ROW}")
    before = f"SELECT * FROM (SELECT {hint}{', '.join(chosen)} FROM"
    near = _Near(target, _keys(target, source, statement.condition))
    context = target.context
    with context.views([source.frame.coalesce(1)]) as (view,):
        join = f"JOIN {quoted(view)} AS {quoted(source.alias)} ON ({statement.condition}))"
        elsewhere = partial(column_of_source, target, source)
        few = replace(target, pushed=pushed)
        frame = few.query(before, join, positions=places, elsewhere=elsewhere, read=near.read)
        if not missing:
            frame = filter_above(frame, F.col(ACTION).isNotNull())
    new = new_rows(target, frame, making, *[F.col(i) for i in ids], others=True)
    number = F.monotonically_increasing_id()
    with spark_errors(doing), tagged(context.spark):
        rows = new.withColumn(_NUMBER, number).where(F.col(_NUMBER) <= MOST_ROWS).drop(_NUMBER).toArrow()
    if rows.num_rows > MOST_ROWS:
        raise _Many
    return _Pairs([f.name for f in fields] if making else [], rows)


def _old_keys(target: Target) -> list[str]:
    """The columns of pairs that hold the target's primary key."""
    schema = target.state.schema
    return [old_column(schema.field_names.index(k)) for k in schema.primary_keys]


def _inserted(
    target: Target, source: Source, statement: st.MergeInto, missing: Sequence[Clause], pairs: _Pairs
) -> pa.Table | None:
    """The rows that WHEN NOT MATCHED makes of the source's rows without a pair."""
    if not missing:
        return None
    assert source.table is not None
    context = target.context
    alone = pc.invert(pc.is_in(source.table.column(ROW), pairs.rows.column(ROW).combine_chunks()))
    rest = local_frame(context.spark, source.table.filter(alone), source.frame.schema)
    with context.views([rest]) as (view,):
        text = f"{target.with_} SELECT {items(target, missing)} FROM {quoted(view)} AS {quoted(source.alias)}"
        frame = new_rows(target, query(context, SqlText(text.lstrip())), missing)
    with spark_errors(f"MERGE INTO '{target.table.name}'"), tagged(context.spark):
        return frame.toArrow()
