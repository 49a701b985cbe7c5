"""The target of a DELETE, UPDATE or MERGE under the name that the statement gives it, and conditions on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from sqlglot import exp

from bitlake.engine.session import Session
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import ColumnOf
from bitlake.expressions.sql_text import quote, quoted
from bitlake.expressions.tree import MapKey, Predicate, columns_of
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.schema import TableSchema, near
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.sql import statements as st
from bitlake.sql.scope import column_key
from bitlake.sql.text import SqlText, TableName
from bitlake.types import AtomicType, DataField, DataType, MapType, Root, RowType
from bitlake.types.datatypes import all_types


@dataclass(frozen=True)
class StatementTarget:
    """A statement's table as it was when the statement read it, under the name that the statement gives it.

    ``with_`` is the statement's WITH clause.
    """

    context: Session
    table: FileStoreTable
    state: TableState
    database: str
    name: str
    alias: str | None
    with_: str = ""

    @classmethod
    def of(cls, context: Session, name: TableName, alias: str | None, with_: str = "") -> Self:
        """The target of a statement that names it so."""
        identifier = context.identify_written(name)
        table = context.session_table(identifier)
        return cls(context, table, table.state(), identifier.database, identifier.table, alias, with_)

    @property
    def qualifier(self) -> str:
        """The qualifier of the target's columns in SQL text."""
        return quoted(self.alias or self.name)

    def column(self, name: str) -> str:
        """A column of the target in SQL text."""
        return f"{self.qualifier}.{quoted(name)}"

    @property
    def column_of(self) -> ColumnOf:
        """Names a column of a parsed expression; None for one that is not the target's."""
        names = self.context.names
        fields, mine = names.clear(self.state.schema.field_names), names.key(self.alias or self.name)
        qualifiers: list[tuple[str, ...]] = [(mine,)]
        if self.alias is None:
            qualifiers.append((names.key(self.database), mine))

        def column_of(column: exp.Column) -> str | None:
            key = column_key(column, qualifiers, names)
            return None if key is None else fields.get(key)

        return column_of

    def check_columns(self, expression: SqlText) -> None:
        """Raise :class:`NotFound` for a plain name in an expression, without a subquery, that is not a column."""
        if expression.tree is None or expression.tree.find(exp.Query):
            return
        for column in expression.tree.find_all(exp.Column):
            if len(column.parts) == 1:
                self.state.schema.field(column.name, self.context.names)

    def column_parts(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """A name in SET as the column's name and those of struct members, without the table's name before it."""
        key = self.context.names.key
        names = {key(n): n for n in self.state.schema.field_names}
        keys = tuple(map(key, parts))
        own = key(self.alias or self.name)
        if keys[0] not in names or (len(parts) > 1 and keys[0] == own):
            prefixes: list[tuple[str, ...]] = [(own,)]
            if self.alias is None:
                prefixes.append((key(self.database), own))
            for prefix in prefixes:
                if keys[: len(prefix)] == prefix and len(parts) > len(prefix) and keys[len(prefix)] in names:
                    parts, keys = parts[len(prefix) :], keys[len(prefix) :]
                    break
        if keys[0] not in names:
            hint = near(parts[0], names.values())
            raise NotFound(f"table '{self.table.name}' has no column '{'.'.join(parts)}'{hint}")
        return (names[keys[0]], *parts[1:])

    def member_of(self, column: exp.Column) -> str | None:
        """The name of a struct's member, parts joined by dots; None if there is none, or which one is not certain."""
        names = self.context.names
        try:
            first, *rest = self.column_parts(tuple(part.name for part in column.parts))
        except NotFound:
            return None
        schema = self.state.schema
        kind, path = schema.field(first).type, [first]
        for part in rest:
            same = [f for f in kind.fields if names.same(f.name, part)] if isinstance(kind, RowType) else []
            if len(same) != 1:
                return None
            kind, path = same[0].type, [*path, same[0].name]
        joined = ".".join(path)
        # A name with a dot in it would be taken for two, and a column may have the joined name.
        plain = not any("." in name for name in path) and not any(names.same(joined, c) for c in schema.field_names)
        return joined if rest and plain and names.key(first) in names.clear(schema.field_names) else None


def exact_scan(
    session: Session, scan: TableScan, predicate: Predicate | None, *, nested: bool = False
) -> TableScan | None:
    """The scan with all of WHERE, or None where that cannot be said exactly.

    ``nested``: also if it reads arrays, maps or structs, as ``array_contains(tags, 'x')`` does.
    """
    if predicate is None and scan.predicate is None:
        return scan
    bare = replace(scan, predicate=None, _planned=[])
    if predicate is None:
        return bare
    fields = scan.state.schema.fields
    try:
        bound = bind(predicate, fields, session.literal_zone)
    except (InvalidRequest, NotFound):
        return None
    schema = scan.state.schema
    for column in columns_of(bound):
        if not is_plain_column(column, schema) and not (nested and _has_plain_members(column, schema)):
            return None
    return scan if bound == scan.predicate else bare.where_bound(bound)


def is_plain_column(column: str, schema: TableSchema) -> bool:
    """:func:`is_plain` of a column, or of the values of a map's key."""
    kind = schema.field(column.column if isinstance(column, MapKey) else column).type
    return is_plain(kind.value if isinstance(column, MapKey) and isinstance(kind, MapType) else kind)


def _has_plain_members(column: str, schema: TableSchema) -> bool:
    """Whether an array, a map or a struct has members of plain types alone."""
    kind = schema.field(column.column if isinstance(column, MapKey) else column).type
    return all(is_plain(part) for part in all_types(kind) if isinstance(part, AtomicType))


def is_plain(made: DataType) -> bool:
    """Whether a column's values are to Spark what they are here; CHAR, whose padding differs by writer, is not."""
    return isinstance(made, AtomicType) and made.root not in (Root.CHAR, Root.VARIANT, Root.TIME)


# --- SET -------------------------------------------------------------------------------------------------------------


def set_values(target: StatementTarget, assignments: Sequence[st.Assignment]) -> dict[str, str]:
    """Return SET's values by column, as SQL text over the target; setting a member sets its whole struct.

    DEFAULT is NULL: a column with a default stores it for NULL.
    """
    tops: dict[str, list[tuple[tuple[str, ...], str | None]]] = {}
    for assignment in assignments:
        parts = target.column_parts(assignment.target)
        tops.setdefault(parts[0], []).append((parts[1:], assignment.value))
    out = {}
    for name, changes in tops.items():
        column = target.state.schema.field(name)
        out[name] = _value(target, column, target.column(name), changes, name)
    return out


def _value(
    target: StatementTarget,
    column: DataField,
    old: str,
    changes: Sequence[tuple[tuple[str, ...], str | None]],
    shown: str,
) -> str:
    """The new value of a column, or of a struct's member, as SQL text; ``old`` is its old one."""
    table = target.table.name
    whole = [value for parts, value in changes if not parts]
    if whole:
        if len(changes) > 1:
            raise InvalidRequest(f"table '{table}': column '{shown}' is set twice, whole or in part")
        return "NULL" if whole[0] is None else f"({whole[0]})"
    if not isinstance(column.type, RowType):
        raise InvalidRequest(f"table '{table}': '{shown}' is {column.type} and has no member '{changes[0][0][0]}'")
    key = target.context.names.key
    members = {key(f.name): f for f in column.type.fields}
    inner: dict[str, list[tuple[tuple[str, ...], str | None]]] = {}
    for parts, value in changes:
        if key(parts[0]) not in members:
            raise NotFound(f"table '{table}': '{shown}' has no member '{parts[0]}'; it has {', '.join(members)}")
        inner.setdefault(key(parts[0]), []).append((parts[1:], value))
    items = []
    for name, member in members.items():
        was = f"{old}.{quoted(member.name)}"
        new = _value(target, member, was, inner[name], f"{shown}.{member.name}") if name in inner else was
        items.append(f"{quote(member.name)}, {new}")
    return f"named_struct({', '.join(items)})"
