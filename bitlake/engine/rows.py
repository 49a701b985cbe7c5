"""The rows of a query in this process, and how they become a table's: by casts whose result is certain.

Spark stores values by its casts of ANSI mode.  Here a column is stored whose type is the table's, whose every value the
table's type has, or that :func:`bitlake.expressions.assignment.store_assignment` converts as Spark does: all else
raises :class:`NeedsSpark` before anything is written.  A value that does not fit its column is an error, as on Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bitlake.engine.insert import Insertion, check_count, match_names
from bitlake.engine.query import run_query
from bitlake.engine.session import NeedsSpark, Session, exact_value
from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.assignment import UncertainValue, store_assignment
from bitlake.expressions.folding import NotConstant, constant
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.conform import null_column
from bitlake.mergetree.bucket import inserted_rows
from bitlake.mergetree.commit import publish
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.scan.scan import TableScan
from bitlake.schema.create import ColumnSpec, columns_of
from bitlake.schema.evolution import default_column
from bitlake.snapshot.state import TableState
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, DataField, Root, arrow_schema, arrow_type, from_arrow
from bitlake.types.datatypes import MAX_LENGTH, TIMESTAMPS
from bitlake.write.append_dml import retrying
from bitlake.write.commit_plan import Overwrite
from bitlake.write.writer import write_rows

_BATCH_ROWS = 100_000
Read = Callable[[], Iterator[pa.Table]]
Column = Callable[[pa.Table], Any]
"""A column of a table, of the rows of a query."""


class ArrowRows:
    """Rows as Arrow tables, which ``read`` gives again for each try; ``specs``: columns of a table for them."""

    def __init__(
        self, session: Session, schema: pa.Schema, read: Read, specs: Callable[[], list[ColumnSpec]] | None = None
    ) -> None:
        self._session = session
        self._schema = schema
        self._read = read
        self._specs = specs

    @property
    def columns(self) -> list[ColumnSpec]:
        """Columns of a table for these rows."""
        return columns_of("", self._schema) if self._specs is None else self._specs()

    def store(
        self, table: FileStoreTable, state: TableState, operation: str, overwrite: Overwrite | None = None
    ) -> int:
        """Write the rows, whose columns are the table's by position, and commit them; returns how many."""
        fields = state.schema.fields
        check_count(table.name, self._schema.names, fields)
        columns = [stored_column(table.name, self._schema, i, f, self._session.timezone) for i, f in enumerate(fields)]
        return self._store(table, state, columns, operation, overwrite)

    def insert(self, insertion: Insertion) -> int:
        """Write the rows as an INSERT asks, and commit them; returns how many."""
        state, statement, table = insertion.state, insertion.statement, insertion.table
        if insertion.merging.on or statement.replace_where is not None:
            raise NeedsSpark(f"table '{table.name}': INSERT that changes columns, or with REPLACE WHERE")
        names, static = self._session.names, insertion.static
        rest = [f for f in state.schema.fields if f.name not in static]
        have: Sequence[str] = self._schema.names
        if not statement.by_name:
            targets = insertion.targets(names)
            check_count(table.name, have, targets)
            have = [f.name for f in targets]
        elif _repeats_names(self._schema):
            raise NeedsSpark("storing columns of one name by name")
        places = dict(zip([f.name for f in rest], match_names(table.name, have, rest, names), strict=True))
        constants = self._session.partition_arrays(state, static) if static else {}
        columns: list[Column] = []
        for f in state.schema.fields:
            place = places.get(f.name)
            if f.name in constants:
                columns.append(_repeated(constants[f.name]))
            else:
                columns.append(
                    missing_column(f)
                    if place is None
                    else stored_column(table.name, self._schema, place, f, self._session.timezone)
                )
        scope = insertion.scope(self._session)
        return self._store(table, state, columns, "WRITE" if scope is None else "OVERWRITE", scope)

    def _store(
        self,
        table: FileStoreTable,
        state: TableState,
        columns: Sequence[Column],
        operation: str,
        overwrite: Overwrite | None = None,
    ) -> int:
        names = state.schema.field_names

        def rows() -> Iterator[pa.Table]:
            for batch in self._read():
                yield pa.table([column(batch) for column in columns], names)

        if not state.schema.primary_keys:
            files = write_rows(state, rows(), table.store)
            table.commit_files(state, files, operation, overwrite)
            return sum(e.file.row_count for e in files)
        tries = [state]

        def step(now: TableState) -> int:
            user = table.publisher(now).user
            batches = prepare_rows(table.name, now.schema, rows())
            changes = list(write_changes(now, batches, user, fresh=overwrite is not None))
            publish(table, now, changes, operation=operation, overwrite=overwrite)
            return inserted_rows(changes)

        # A key's bucket depends on the keys that exist: if another writer changed them, buckets are assigned again.
        return retrying(lambda: tries.pop() if tries else table.state(), step)


def stored_column(table: str, schema: pa.Schema, place: int, field: DataField, timezone: str) -> Column:
    """A column of the query as one of the table; raises :class:`NeedsSpark` for a cast whose result is not certain."""
    source, wanted = schema.field(place).type, arrow_type(field.type)
    convert = None if _is_exact(source, field) else _conversion(table, source, field, timezone)
    default = None if field.default_value is None else _default(field)[0]

    def column(rows: pa.Table) -> Any:
        values = rows.column(place)
        if pa.types.is_null(source):
            values = null_column(rows.num_rows, wanted)
        with naming_column(table, field):
            if convert is not None:
                values = convert(values)
            return values if default is None else pc.coalesce(values.cast(wanted), default)

    return column


def _conversion(table: str, source: pa.DataType, field: DataField, timezone: str) -> Callable[[Any], Any]:
    try:
        return store_assignment(field, from_arrow(source), timezone)
    except InvalidRequest as e:
        raise NeedsSpark(f"table '{table}', column '{field.name}': the cast of {source} to {field.type}") from e


def _is_exact(source: pa.DataType, field: DataField) -> bool:
    """Whether a column's type has every value of a type; of a whole number it is seen when it is stored."""
    kind, wanted = field.type, arrow_type(field.type)
    if source == wanted or pa.types.is_null(source):
        return True
    if not isinstance(kind, AtomicType):
        return False
    if pa.types.is_integer(source):
        if pa.types.is_integer(wanted):
            return bool(pa.types.is_signed_integer(source))
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[source.bit_width]
        if pa.types.is_decimal(wanted):
            return bool(digits <= wanted.precision - wanted.scale)
        return bool(pa.types.is_floating(wanted) and source.bit_width < wanted.bit_width)
    if pa.types.is_decimal(source) and pa.types.is_decimal(wanted):
        whole = source.precision - source.scale <= wanted.precision - wanted.scale
        return bool(whole and source.scale <= wanted.scale)
    if pa.types.is_float32(source):
        return bool(pa.types.is_float64(wanted))
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        return kind.root in (Root.CHAR, Root.VARCHAR)
    if pa.types.is_binary(source) or pa.types.is_large_binary(source):
        return kind.root is Root.VARBINARY
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(wanted):
        return (source.tz is None) == (wanted.tz is None) and source.unit == wanted.unit == "us"
    return False


def missing_column(field: DataField) -> Column:
    """A column that the rows do not give: its default, or NULL."""
    return _repeated(_default(field))


def _repeated(value: pa.Array) -> Column:
    # By an index: a NULL struct is repeated with what its members hold.
    return lambda rows: value.take(pa.array(np.zeros(rows.num_rows, np.int64)))


def _default(field: DataField) -> pa.Array:
    try:
        return default_column(field, 1)
    except InvalidRequest as e:
        raise NeedsSpark(f"column '{field.name}': the default {field.default_value}") from e


@contextlib.contextmanager
def naming_column(table: str, field: DataField) -> Iterator[None]:
    """Name the column in the error of a value that it cannot store."""
    try:
        yield
    except UncertainValue as e:
        raise NeedsSpark(f"table '{table}', column '{field.name}': {e}") from e
    except (pa.ArrowInvalid, EvaluationFailed) as e:
        raise InvalidRequest(f"table '{table}', column '{field.name}': {e}") from e


# --- where rows come from ---------------------------------------------------------------------------------------------


def scanned_rows(session: Session, scan: TableScan) -> ArrowRows:
    """All columns of a scan's rows."""
    schema = arrow_schema(scan.state.schema.fields)
    return ArrowRows(session, schema, lambda: (pa.Table.from_batches([b]) for b in scan.to_batches()))


def query_rows(session: Session, text: SqlText) -> ArrowRows | ConstantRows:
    """The rows of a query, constants or what DuckDB computes."""
    constants = constant_rows(session, text)
    if constants is not None:
        return constants
    result = run_query(session, text)
    schema = result.schema

    def read() -> Iterator[pa.Table]:
        try:
            yield from result.batches(_BATCH_ROWS)
        except EvaluationFailed as e:
            raise NeedsSpark(f"the query {text} ({e})") from e

    return ArrowRows(session, schema, read, lambda: _specs(session, text, schema))


def _specs(session: Session, text: SqlText, schema: pa.Schema) -> list[ColumnSpec]:
    """Columns of a table for the rows of a query, where their names and types are certainly those that Spark makes."""
    if _repeats_names(schema):
        raise NeedsSpark("storing columns of one name")
    tree = text.tree
    _, scans = session.scans(text)
    fields = [f for scan in scans for f in scan.state.schema.fields if f.name in scan.columns]
    sources = len(scans) + (0 if tree is None else len(list(tree.find_all(exp.Subquery, exp.CTE))))
    if (
        not isinstance(tree, exp.Select)
        or not _keeps_names(schema, tree.expressions, sources)
        or not all(_keeps_type(f) for f in fields)
        or (any(pa.types.is_decimal(f.type) for f in schema) and not all(map(_is_column, tree.expressions)))
    ):
        raise NeedsSpark(f"a table with the columns of {text}")
    return columns_of("", schema)


def _repeats_names(schema: pa.Schema) -> bool:
    return len({n.lower() for n in schema.names}) < len(schema.names)


def _keeps_names(schema: pa.Schema, items: Sequence[exp.Expr], sources: int) -> bool:
    """Whether the query names each column; DuckDB makes up other names than Spark."""
    if any(item.is_star for item in items):
        return len(items) == sources == 1
    are_named = all(isinstance(item, exp.Alias | exp.Column) for item in items)
    return are_named and [item.alias_or_name for item in items] == schema.names


def _is_column(item: exp.Expr) -> bool:
    return isinstance(item.unalias(), exp.Column | exp.Star)


def _keeps_type(field: DataField) -> bool:
    """Whether a column of a query is one of a new table with the same type, and nothing else."""
    kind = field.type
    if not isinstance(kind, AtomicType) or field.description is not None:
        return False
    if kind.root in TIMESTAMPS:
        return kind.precision == 6
    return kind.root not in (Root.CHAR, Root.TIME, Root.VARIANT) and kind.length in (None, MAX_LENGTH)


class ConstantRows:
    """The rows of a VALUES clause of constants, each cast to its column's type."""

    def __init__(self, session: Session, rows: Sequence[Sequence[Any]]) -> None:
        self._session = session
        self._rows = rows

    @property
    def columns(self) -> list[ColumnSpec]:
        """Columns of a table for these rows."""
        raise NeedsSpark("a table of constants")

    def store(
        self, table: FileStoreTable, state: TableState, operation: str, overwrite: Overwrite | None = None
    ) -> int:
        """Write the rows, whose columns are the table's by position, and commit them; returns how many."""
        return self._typed(table.name, state.schema.fields).store(table, state, operation, overwrite)

    def insert(self, insertion: Insertion) -> int:
        """Write the rows as an INSERT asks, and commit them; returns how many."""
        if insertion.statement.by_name:
            raise NeedsSpark(f"table '{insertion.table.name}': INSERT BY NAME of constants")
        targets = insertion.targets(self._session.names)
        return self._typed(insertion.table.name, targets).insert(insertion)

    def _typed(self, table: str, fields: Sequence[DataField]) -> ArrowRows:
        names = [f"col{i + 1}" for i in range(len(self._rows[0]))]
        check_count(table, names, fields)
        arrays = []
        for place, field in enumerate(fields):
            values = [row[place] for row in self._rows]
            # Spark casts the values of a column to one type first.
            if len({type(v) for v in values if v is not None}) > 1:
                raise NeedsSpark(f"table '{table}', column '{field.name}': VALUES of several types")
            arrays.append(pa.concat_arrays([exact_value(table, field, v, self._session.timezone) for v in values]))
        made = pa.table(arrays, names)
        return ArrowRows(self._session, made.schema, lambda: iter([made]))


def constant_rows(session: Session, text: SqlText) -> ConstantRows | None:
    """The rows of a VALUES clause; None for other queries, and for values that are not certain constants."""
    tree = text.tree
    if not isinstance(tree, exp.Values) or any(v for k, v in tree.args.items() if k not in ("expressions", "alias")):
        return None
    rows = []
    for row in tree.expressions:
        cells = row.expressions if isinstance(row, exp.Tuple) else [row]
        try:
            rows.append([constant(cell, session.timezone) for cell in cells])
        except (NotConstant, RecursionError):
            return None
    if len({len(r) for r in rows}) != 1:
        return None
    return ConstantRows(session, rows)
