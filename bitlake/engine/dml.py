"""DELETE, UPDATE and MERGE in this process.

DELETE and UPDATE take conditions and values that the core evaluates as Spark does.  In a MERGE, DuckDB joins target
and source; the core finds, deletes and writes the rows.

The source is read once, into memory, with a number for each row.  A kind of clause is a query of its own, so that names
resolve in it as they should: ``target JOIN source`` for WHEN MATCHED, ``target ANTI JOIN source`` for WHEN NOT MATCHED
BY SOURCE, ``source ANTI JOIN target`` for WHEN NOT MATCHED.  A query gives the number of the clause for each row that
one applies to, and its new values; the target's rows come with their file and position, or their key.  Of the target,
only columns that the query names are read, and only rows whose keys the source can match.

Append tables: the rows found are deleted by position, and new ones are written.  Primary-key tables: rows with their
kinds are written.  Either way there is one commit, and the changed rows are in memory until then.

Values become the table's by casts whose result is certain, as those of INSERT (:mod:`bitlake.engine.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from sqlglot import exp

from bitlake.codec.roaring import bitmap_of
from bitlake.engine.insert import evolution, merging
from bitlake.engine.merge_clauses import (
    ACTION,
    CLOCK,
    INTEGERS,
    KINDS,
    LEAST_BYTES,
    MOST_KEYS,
    PRUNED,
    ROW,
    SET,
    Clause,
    Merged,
    MergeSource,
    action,
    between,
    case_of,
    check_conditions,
    clauses_of,
    ends_of,
    equalities,
    first_of_each,
    kept_columns,
    keyed_clauses,
    matched_twice,
    old_column,
    one_of,
    source_query,
)
from bitlake.engine.query import run_query
from bitlake.engine.rows import Column, missing_column, naming_column, stored_column
from bitlake.engine.session import NeedsSpark, Session, counts
from bitlake.engine.target import StatementTarget, exact_scan
from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.assignment import new_values
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.terms import Term
from bitlake.expressions.tree import Predicate
from bitlake.fileindex.dictionary import rows_by_group
from bitlake.lazy_modules import compute as pc
from bitlake.mergetree.commit import publish
from bitlake.mergetree.dml import latest_rows
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.metadata.schema import Names, near
from bitlake.scan.reader import FILE_PATH, ROW_INDEX
from bitlake.scan.scan import TableScan
from bitlake.schema.create import columns_of
from bitlake.snapshot.partitions import has_many_files
from bitlake.snapshot.state import TableState
from bitlake.sql import statements as st
from bitlake.sql.duckdb_engine import fetch, run
from bitlake.sql.duckdb_translation import translate
from bitlake.sql.duckdb_values import UnknownColumn
from bitlake.sql.scope import Mentions
from bitlake.sql.text import SqlText
from bitlake.table.table import Table
from bitlake.types import AtomicType, DataField, Root, arrow_type
from bitlake.write.append_dml import discard_statement, retrying, write_deletion
from bitlake.write.writer import write_rows

_TARGET, _SOURCE = "__bitlake_target", "__bitlake_source_rows"
_FILE, _POSITION = "__bitlake_file", "__bitlake_position"
_PLACES = (DataField(-1, FILE_PATH, AtomicType(Root.VARCHAR)), DataField(-2, ROW_INDEX, AtomicType(Root.BIGINT)))


@dataclass(frozen=True)
class _Source(MergeSource):
    """The source's rows in memory."""

    table: pa.Table
    fields: tuple[DataField, ...]

    @property
    def column_names(self) -> Sequence[str]:
        """Its columns, without :data:`ROW`."""
        return [f.name for f in self.fields if f.name != ROW]

    @property
    def item(self) -> str:
        """The source as an item of FROM."""
        return f"{_SOURCE} AS {quoted(self.alias)}"


def delete(session: Session, statement: st.DeleteFrom) -> pa.Table:
    """Run a DELETE; returns how many rows it deleted."""
    target = _target(session, statement)
    return counts(num_affected_rows=Table(target.table).delete(_condition(target, statement.condition)))


def update(session: Session, statement: st.Update) -> pa.Table:
    """Run an UPDATE; returns how many rows it changed."""
    target = _target(session, statement)
    session.names.check(target.table.name, target.state.schema.field_names)
    values = _values(target, statement.assignments)
    where = _condition(target, statement.condition)
    return counts(num_affected_rows=Table(target.table).update(values, where))


def _target(session: Session, statement: st.DeleteFrom | st.Update) -> StatementTarget:
    session.check_meaning()
    target = StatementTarget.of(session, statement.table, statement.alias)
    if statement.with_:
        raise NeedsSpark(f"table '{target.table.name}': WITH before a statement")
    return target


def _condition(target: StatementTarget, condition: SqlText | None) -> Predicate | None:
    """The rows for which a statement's condition is TRUE; None: all."""
    if condition is None:
        return None
    try:
        predicate = parse_predicate(condition, target.context.timezone, partial(_column_or_member, target))
    except InvalidRequest as e:
        target.check_columns(condition)
        raise NeedsSpark(f"table '{target.table.name}': WHERE {condition}") from e
    if exact_scan(target.context, target.table.scan_of(target.state), predicate, nested=True) is None:
        raise NeedsSpark(f"table '{target.table.name}': WHERE {condition}")
    return predicate


def _column_or_member(target: StatementTarget, column: exp.Column) -> str | None:
    """The name of a column of the target, or of a struct's member with dots; None if it has neither."""
    return target.column_of(column) or target.member_of(column)


def _values(target: StatementTarget, assignments: Sequence[st.Assignment]) -> dict[str, Callable[[pa.Table], pa.Array]]:
    """Return the assignments of SET: for each column it names, a function of the old rows."""
    table, schema = target.table.name, target.state.schema
    terms: dict[str, Term] = {}
    for assignment in assignments:
        name, *members = target.column_parts(assignment.target)
        if name in terms:
            raise InvalidRequest(f"table '{table}': column '{name}' is set twice, whole or in part")
        if members or assignment.value is None or schema.field(name).default_value is not None:
            raise NeedsSpark(f"table '{table}': SET of a member, or of a column with a default, '{name}'")
        terms[name] = _term(target, assignment.value)
    try:
        return new_values(terms, schema.fields, target.context.timezone)
    except EvaluationFailed:
        raise
    except InvalidRequest as e:
        raise NeedsSpark(f"table '{table}': SET {', '.join(terms)}") from e


def _term(target: StatementTarget, value: SqlText) -> Term:
    try:
        return parse_term(value, target.context.timezone, target.column_of)
    except InvalidRequest as e:
        target.check_columns(value)
        raise NeedsSpark(f"table '{target.table.name}': SET … = {value}") from e


def merge(session: Session, statement: st.MergeInto) -> pa.Table:
    """Run a MERGE; returns how many rows it updated, deleted and inserted.

    Raises :class:`InvalidRequest` if several source rows would change one row of the target.
    """
    session.check_meaning()
    target = StatementTarget.of(session, statement.table, statement.alias, statement.with_)
    name = target.table.name
    check_conditions(target, statement)
    session.names.check(name, target.state.schema.field_names)
    _check_left_to_spark(session, target, statement)
    source = _read_source(session, statement)
    tries = [target.state]

    def step(state: TableState) -> Merged:
        change = _merge_keyed if state.schema.primary_keys else _merge_append
        try:
            return change(replace(target, state=state), source, statement)
        except EvaluationFailed as e:
            raise NeedsSpark(f"MERGE INTO '{name}' ({e})") from e

    return retrying(lambda: tries.pop() if tries else target.table.state(), step).as_table()


def _check_left_to_spark(session: Session, target: StatementTarget, statement: st.MergeInto) -> None:
    name = target.table.name
    if session.names is Names.EXACT:
        raise NeedsSpark("MERGE whose names are case-sensitive")
    how = merging(session, session.identify(statement.table), target.table, evolution(statement.evolve))
    if how.on:
        raise NeedsSpark(f"table '{name}': MERGE that may change columns")
    conditions = [t for t in (statement.condition, *(c.condition for c in statement.clauses)) if t is not None]
    values = [a.value for c in statement.clauses for a in c.assignments or () if a.value is not None]
    clock = next((t for t in conditions if CLOCK.search(t)), None)
    if clock is not None:  # it is asked by several queries
        raise NeedsSpark(f"table '{name}': the condition {clock}")
    for text in (*conditions, *values):
        if text.tree is None or text.tree.find(exp.Window, exp.Query) is not None:
            raise NeedsSpark(f"table '{name}': {text}")


def _read_source(session: Session, statement: st.MergeInto) -> _Source:
    alias, text = source_query(statement)
    _, scans = session.scans(text)
    for field in (f for scan in scans for f in scan.state.schema.fields if f.name in scan.columns):
        if isinstance(field.type, AtomicType) and field.type.root is Root.CHAR:
            raise NeedsSpark(f"MERGE with column '{field.name}' of type {field.type} in its source")
    try:
        rows = run_query(session, text).fetch()
    except EvaluationFailed as e:
        raise NeedsSpark(f"the query {text} ({e})") from e
    rows = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
    try:
        specs = columns_of("", rows.schema)
    except InvalidRequest as e:
        raise NeedsSpark(f"MERGE with the columns of {text}") from e
    if len({n.lower() for n in rows.column_names}) < rows.num_columns:
        raise NeedsSpark("MERGE with columns of one name in its source")
    fields = tuple(DataField(i, c.name, c.type) for i, c in enumerate(specs))
    return _Source(alias, session.names, rows, fields)


# --- finding rows -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows that clauses of one kind apply to: the clause, what identifies a row, old and new values."""

    target: StatementTarget
    clauses: Sequence[Clause]
    rows: pa.Table

    def count(self, what: st.MergeAction) -> int:
        """Count the rows that clauses of an action apply to."""
        return sum(self._of(c).num_rows for c in self.clauses if c.action is what)

    def _of(self, clause: Clause) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows.column(ACTION), clause.number))

    def new_rows(self, *actions: st.MergeAction) -> Iterator[tuple[st.MergeAction, pa.Table]]:
        """The table's rows that clauses of these actions make."""
        fields, table = self.target.state.schema.fields, self.target.table.name
        for clause in self.clauses:
            if clause.action not in actions:
                continue
            # All are made before a row is written: a cast that is not certain is refused, even of no row.
            makers = [self._column(clause, i, field) for i, field in enumerate(fields)]
            rows, columns = self._of(clause), []
            for field, make in zip(fields, makers, strict=True):
                with naming_column(table, field):
                    columns.append(make(rows).cast(arrow_type(field.type)))
            yield clause.action, pa.table(columns, [f.name for f in fields])

    def _column(self, clause: Clause, number: int, field: DataField) -> Column:
        table, schema, timezone = self.target.table.name, self.rows.schema, self.target.context.timezone
        assigned = field.name in clause.values
        if assigned and not _is_null(clause.values[field.name]):
            place = schema.get_field_index(f"{SET}_{clause.number}_{number}")
            return stored_column(table, schema, place, field, timezone)
        if assigned or clause.action is st.MergeAction.INSERT:
            return missing_column(field)
        kept = replace(field, default_value=None)
        return stored_column(table, schema, schema.get_field_index(old_column(number)), kept, timezone)


def _find(
    target: StatementTarget,
    source: _Source,
    clauses: Sequence[Clause],
    scan: TableScan,
    join: str,
    ids: Sequence[str],
    old: set[str],
) -> _Found:
    """The rows of a join that clauses apply to; ``old``: columns of the target that new rows keep."""
    fields, chosen = target.state.schema.fields, action(clauses)
    items = [f"{chosen} AS {ACTION}", *ids]
    items += [f"{target.column(f.name)} AS {old_column(i)}" for i, f in enumerate(fields) if f.name in old]
    for clause in clauses:
        for i, field in enumerate(fields):
            value = clause.values.get(field.name)
            if value is not None and not _is_null(value):
                tree = SqlText(value).tree
                plain = tree is not None and isinstance(tree.unnest(), exp.Column)
                given = value if plain else case_of(clauses, {clause.number: value})
                items.append(f"{given} AS {SET}_{clause.number}_{i}")
    text = SqlText(f"SELECT {', '.join(items)} FROM {join} WHERE {chosen} IS NOT NULL")
    # What only the source gives, as in WHEN NOT MATCHED, is not read from the target.
    named = Mentions(SqlText(join) if join.startswith(_SOURCE) else text)
    columns = [f.name for f in fields if named.all or f.name.lower() in named.words]
    places = [f.name for f in _PLACES if f.name in named.words]
    scan = scan.select([*columns, *places] or [fields[0].name])
    session = target.context
    tables = {_TARGET: [*fields, *_PLACES], _SOURCE: source.fields}
    try:
        query = translate(text, tables, session.timezone)
    except UnknownColumn as e:
        if e.node.table.lower() not in ("", (target.alias or target.name).lower(), source.alias.lower()):
            raise  # perhaps a member of a struct
        shown, known = ".".join(p.name for p in e.node.parts), {*source.column_names, *(f.name for f in fields)}
        hint = near(e.node.name, sorted(known))
        raise NotFound(f"MERGE INTO '{target.table.name}': no column '{shown}'{hint}") from e
    rows = run(query, {_TARGET: scan, _SOURCE: source.table}, session.timezone, session.catalog.store.caches)
    return _Found(target, clauses, fetch(rows))


def _is_null(value: str) -> bool:
    tree = SqlText(value).tree
    return tree is not None and isinstance(tree.unnest(), exp.Null)


def _near(target: StatementTarget, source: _Source, condition: SqlText) -> TableScan:
    """The rows of the target that can match a row of the source, by equalities of columns in ON."""
    state, scan = target.state, _all_rows(target)
    if not has_many_files(state) and sum(e.file.file_size for e in state.entries()) < LEAST_BYTES:
        return scan
    for field, column in equalities(target, source, condition):
        values, kind = source.table.column(column), field.type
        if not isinstance(kind, AtomicType) or kind.root not in PRUNED:
            continue
        whole = kind.root in INTEGERS and pa.types.is_integer(values.type)
        if not whole and values.type != arrow_type(kind):
            continue
        if source.table.num_rows <= MOST_KEYS:
            scan = scan.where_bound(one_of(field, values))
        else:
            scan = scan.where_bound(between(field, *ends_of(values)))
    return scan


def _all_rows(target: StatementTarget) -> TableScan:
    # What is written again must be whole, whatever queries may do without.
    return latest_rows(replace(target.table.scan_of(target.state), ignored=None, other=None, _planned=[]))


def _check_once(found: _Found, ids: Sequence[str]) -> int:
    """The number of rows of the target that are changed; raises where several rows of the source would change one."""
    times = found.rows.group_by(list(ids)).aggregate([([], "count_all")])
    twice = pc.sum(pc.greater(times.column("count_all"), 1)).as_py() or 0
    only = found.clauses[0]
    harmless = len(found.clauses) == 1 and only.condition is None and only.action is st.MergeAction.DELETE
    if twice and not harmless:
        raise matched_twice(found.target, twice)
    return int(times.num_rows)


def _joins(target: StatementTarget, source: _Source, condition: SqlText) -> tuple[str, str, str]:
    """FROM of each kind of clause, in the order of :class:`bitlake.sql.statements.When`."""
    ours, on = f"{_TARGET} AS {target.qualifier}", f"ON ({condition})"
    return (
        f"{ours} JOIN {source.item} {on}",
        f"{source.item} LEFT ANTI JOIN {ours} {on}",
        f"{ours} LEFT ANTI JOIN {source.item} {on}",
    )


# --- changing rows ----------------------------------------------------------------------------------------------------


def _merge_append(target: StatementTarget, source: _Source, statement: st.MergeInto) -> Merged:
    state, table, done = target.state, target.table, Merged()
    table.check_writable(state)
    matched, missing, left = (clauses_of(target, source, statement, when) for when in st.When)
    joined, unmatched, orphaned = _joins(target, source, statement.condition)
    near_rows = _near(target, source, statement.condition)
    hits: dict[str, BitMap] = {}
    new: list[pa.Table] = []
    places = (f"{target.column(FILE_PATH)} AS {_FILE}", f"{target.column(ROW_INDEX)} AS {_POSITION}")
    for clauses, scan, join in ((matched, near_rows, joined), (left, _all_rows(target), orphaned)):
        if clauses:
            kept = kept_columns(target, [c for c in clauses if c.action is st.MergeAction.UPDATE])
            pairs = _find(target, source, clauses, scan, join, places, kept)
            changed, updated = _check_once(pairs, (_FILE, _POSITION)), pairs.count(st.MergeAction.UPDATE)
            done.updated += updated
            done.deleted += changed - updated
            _add_hits(hits, pairs.rows)
            new += [rows for _, rows in pairs.new_rows(st.MergeAction.UPDATE)]
    if missing:
        pairs = _find(target, source, missing, near_rows, unmatched, (f"{source.row} AS {ROW}",), set())
        done.inserted = pairs.rows.num_rows
        new += [rows for _, rows in pairs.new_rows(st.MergeAction.INSERT)]
    deletion = write_deletion(state, hits, table.runner())
    try:
        files = write_rows(state, (rows for rows in new if rows.num_rows), table.store)
    except BaseException:
        discard_statement(state, deletion, ())
        raise
    if deletion.rows:
        table.commit_rows(state, deletion, "MERGE", files)
    else:
        table.commit_files(state, files, "MERGE")
    return done


def _add_hits(hits: dict[str, BitMap], rows: pa.Table) -> None:
    files = rows.column(_FILE).combine_chunks().dictionary_encode()
    order, bounds = rows_by_group(files.indices.to_numpy(zero_copy_only=False), len(files.dictionary))
    positions = rows.column(_POSITION).to_numpy()[order]
    for path, (start, end) in zip(files.dictionary.to_pylist(), pairwise(bounds.tolist()), strict=True):
        name = path.rsplit("/", 1)[-1]
        hits[name] = hits.get(name, BitMap()) | bitmap_of(np.sort(positions[start:end]))


def _merge_keyed(target: StatementTarget, source: _Source, statement: st.MergeInto) -> Merged:
    state, table, done = target.state, target.table, Merged()
    schema = state.schema
    matched, missing, left = keyed_clauses(target, source, statement)
    joined, unmatched, orphaned = _joins(target, source, statement.condition)
    near_rows = _near(target, source, statement.condition)
    keys = [old_column(schema.field_names.index(k)) for k in schema.primary_keys]
    new: list[tuple[st.MergeAction, pa.Table]] = []
    for clauses, scan, join in ((matched, near_rows, joined), (left, _all_rows(target), orphaned)):
        if clauses:
            kept = kept_columns(target, clauses) | set(schema.primary_keys)
            pairs = _find(target, source, clauses, scan, join, (), kept)
            if _check_once(pairs, keys) < pairs.rows.num_rows:
                pairs = replace(pairs, rows=first_of_each(pairs.rows, keys))
            done.updated += pairs.count(st.MergeAction.UPDATE)
            done.deleted += pairs.count(st.MergeAction.DELETE)
            new += pairs.new_rows(st.MergeAction.UPDATE, st.MergeAction.DELETE)
    if missing:
        pairs = _find(target, source, missing, near_rows, unmatched, (f"{source.row} AS {ROW}",), set())
        done.inserted = pairs.rows.num_rows
        new += pairs.new_rows(st.MergeAction.INSERT)
    new = [(what, rows) for what, rows in new if rows.num_rows]
    if new:
        kinds = pa.concat_arrays([pa.repeat(pa.scalar(KINDS[what], pa.int8()), rows.num_rows) for what, rows in new])
        batches = prepare_rows(table.name, schema, [rows for _, rows in new], kinds)
        changes = list(write_changes(state, batches, table.publisher(state).user))
        # New values were computed from old ones: if another writer was first, the statement reads its rows.
        publish(table, state, changes, operation="MERGE", renumber=False)
    return done
