"""INSERT INTO and INSERT OVERWRITE: the parts that do not depend on the engine that computes the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bitlake.catalog.catalog import Identifier
from bitlake.engine.session import COUNTS, PARTITION_OVERWRITE, Session, result, session_options
from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.tree import Comparison, IsNull, Op, conjuncts
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree.dml import compact_pending
from bitlake.metadata import options as opt
from bitlake.metadata.schema import Names
from bitlake.schema.evolution import PREFIX, MergeSchema
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot.partitions import files_by_partition
from bitlake.snapshot.state import TableState
from bitlake.sql import statements as st
from bitlake.sql.rewrite import default_as_null
from bitlake.types import DataField
from bitlake.write.commit_plan import Overwrite, overwrite_scope


@dataclass(frozen=True, slots=True)
class Insertion:
    """An INSERT and its table: where the columns of a query go, and which rows it replaces.

    ``spec`` has the literals of the PARTITION clause, None for a column of the query.
    """

    table: FileStoreTable
    state: TableState
    statement: st.InsertInto
    spec: Mapping[str, Any]
    merging: MergeSchema

    @property
    def static(self) -> dict[str, Any]:
        """The partition columns that have a literal."""
        return {k: v for k, v in self.spec.items() if v is not None}

    def targets(self, names: Names) -> list[DataField]:
        """The columns that a query's columns go into, by position."""
        listed, static = self.statement.columns, self.static
        if listed is None:
            # PARTITION (p) without a value changes nothing: p stands where the table has it, as in Paimon and Spark.
            return [f for f in self.state.schema.fields if f.name not in static]
        table = self.state.name
        try:
            fields = [self.state.schema.field(n, names) for n in listed]
        except NotFound as e:
            raise NotFound(f"table '{table}': {e}") from e
        for i, f in enumerate(fields):
            if f.name in [g.name for g in fields[:i]]:
                raise InvalidRequest(f"table '{table}': column '{f.name}' is listed twice")
            if f.name in static:
                raise InvalidRequest(f"table '{table}': column '{f.name}' has its value from PARTITION already")
        return fields

    def scope(self, session: Session) -> Overwrite | None:
        """Return what the statement replaces, by Spark's mode of partition overwrites; None: nothing."""
        state = self.state
        if self.statement.replace_where is not None:
            return _replaced_scope(session, state, self.statement.replace_where)
        if not self.statement.overwrite:
            return None
        static = self.static
        if is_dynamic(session) and len(static) < len(state.schema.partition_keys):
            return overwrite_scope(state.schema, {})
        # As in Spark, PARTITION (p) without a value narrows nothing: p is a column of the query.
        return overwrite_scope(state.schema, session.partition_values(state, static) if static else None)


def insert(session: Session, statement: st.InsertInto) -> pa.Table:
    """INSERT INTO / OVERWRITE; returns how many rows were written."""
    rows = _inserted(session, statement)
    return result(COUNTS, [(rows, rows)])


def insert_all(session: Session, statement: st.MultiInsert) -> pa.Table:
    """FROM … INSERT … INSERT …: one after the other, each a commit; returns a row of counts for each."""
    counts = [_inserted(session, each) for each in statement.inserts]
    return result(COUNTS, [(rows, rows) for rows in counts])


def _inserted(session: Session, statement: st.InsertInto) -> int:
    name = session.identify_written(statement.table)
    table = session.session_table(name)
    state = table.state()
    table.check_writable(state, keyed=True)
    spec = session.partition_spec(state, statement.partition)
    if statement.if_not_exists:
        partition = tuple(session.whole_partition(state, statement.partition).values())
        if partition in files_by_partition(state):
            return 0
    session.names.check(table.name, state.schema.field_names)
    state = _complete(session, table, state, statement)
    rows = session.query_rows(statement.query if statement.by_name else default_as_null(statement.query))
    how = MergeSchema()
    given = {**_write_options(table.name, statement), **evolution(statement.evolve)}
    if statement.by_name or given:
        how = merging(session, name, table, given)
    return rows.insert(Insertion(table, state, statement, spec, how))


def _complete(session: Session, table: FileStoreTable, state: TableState, statement: st.InsertInto) -> TableState:
    """The state whose rows an overwrite with the table's own rows replaces: all of them can be read.

    A query never reads level 0 of a table with merge engine ``first-row``, so it is compacted first.
    """
    overwrites = statement.overwrite or statement.replace_where is not None
    if not overwrites or state.schema.opts.of(opt.MERGE_ENGINE) != FIRST_ROW:
        return state
    if all(scan.state.name != table.name for scan in session.scans(statement.query)[1]):
        return state
    return compact_pending(table, state, overwrites=True)


def is_dynamic(session: Session) -> bool:
    """Whether an overwrite replaces only the partitions that its rows have."""
    return session.settings.get(PARTITION_OVERWRITE, "static").lower() == "dynamic"


def _replaced_scope(session: Session, state: TableState, condition: str) -> Overwrite:
    """Return the scope of REPLACE WHERE.

    Raises :class:`UnsupportedFeature` for other conditions than equalities of partition columns, which Paimon's
    overwrites do not take either.
    """
    keys = state.schema.partition_keys
    bound = bind(parse_predicate(condition, session.literal_zone), state.schema.fields, session.literal_zone)
    spec: dict[str, Any] = {}
    present: set[str] = set()  # what <=> has beside its equality
    understood = True
    for leaf in conjuncts(bound):
        match leaf:
            case Comparison(column, Op.EQ, value) if spec.get(column, value) == value:
                spec[column] = value
            case IsNull(column, False) if spec.get(column) is None:
                spec[column] = None
            case IsNull(column, True):
                present.add(column)
            case _:
                understood = False
    filled = {k for k, v in spec.items() if v is not None}
    if not understood or not present <= filled or not set(spec) <= set(keys):
        raise UnsupportedFeature(
            f"table '{state.name}', REPLACE WHERE {condition}: only equalities of partition columns "
            f"({', '.join(keys) or 'none'}), joined by AND, can be replaced; use DELETE and INSERT, or MERGE"
        )
    return overwrite_scope(state.schema, spec or None)


def _write_options(table: str, statement: st.InsertInto) -> Mapping[str, str]:
    other = next((k for k in statement.options if not k.startswith(PREFIX)), None)
    if other is not None:
        raise UnsupportedFeature(
            f"table '{table}': INSERT INTO … WITH takes {PREFIX} and the options below it, and not '{other}'; set it "
            "as an option of the table"
        )
    return statement.options


def merging(
    session: Session, name: Identifier, table: FileStoreTable, given: Mapping[str, str] | None = None
) -> MergeSchema:
    """Return how schemas merge, by the options of the write, else the session, else the table."""
    options = session_options(session, name.database, name.table)
    return MergeSchema.of({**table.schema.options, **options, **(given or {})})


def evolution(on: bool) -> dict[str, str]:
    """Return how schemas merge under WITH SCHEMA EVOLUTION."""
    return {PREFIX: "true"} if on else {}


# --- a query's columns and the table's --------------------------------------------------------------------------------


def check_count(table: str, have: Sequence[str], fields: Sequence[DataField]) -> None:
    """Raise :class:`InvalidRequest` unless a query gives as many columns as are to be written."""
    if len(have) != len(fields):
        raise InvalidRequest(
            f"table '{table}' takes {len(fields)} columns ({', '.join(f.name for f in fields)}) "
            f"and the query gives {len(have)} ({', '.join(have)})"
        )


def match_names(table: str, have: Sequence[str], fields: Sequence[DataField], names: Names) -> list[int | None]:
    """For each field the place of the query's column of its name; None where the query has none.

    Raises :class:`InvalidRequest` for columns that the table lacks, or that ``names`` does not tell apart.
    """
    names.check(table, [f.name for f in fields])
    places: dict[str, int] = {}
    for place, name in enumerate(have):
        if names.key(name) in places:
            raise InvalidRequest(f"table '{table}': the query gives column '{name}' twice")
        places[names.key(name)] = place
    known = {names.key(f.name) for f in fields}
    extra = [have[place] for key, place in places.items() if key not in known]
    if extra:
        raise InvalidRequest(
            f"table '{table}' has no column '{extra[0]}'; its columns are {', '.join(f.name for f in fields)}"
        )
    return [places.get(names.key(f.name)) for f in fields]
