"""What SET and INSERT give the columns of a statement's table, as SQL text over it."""

from __future__ import annotations

from collections.abc import Sequence

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.sql_text import quoted
from bitlake.spark.target import Target
from bitlake.sql import statements as st
from bitlake.types import DataField, RowType


def set_values(target: Target, assignments: Sequence[st.Assignment]) -> dict[str, str]:
    """What SET gives each column that it names, as SQL text over the target; setting a member sets its whole struct.

    DEFAULT is NULL: a column with a default stores it for NULL.
    """
    tops: dict[str, list[tuple[tuple[str, ...], str | None]]] = {}
    for assignment in assignments:
        parts = column_parts(target, assignment.target)
        tops.setdefault(parts[0], []).append((parts[1:], assignment.value))
    out = {}
    for name, changes in tops.items():
        column = target.state.schema.field(name)
        out[name] = _value(target, column, target.column(name), changes, name)
    return out


def column_parts(target: Target, parts: tuple[str, ...]) -> tuple[str, ...]:
    """A name in SET as the column's name and those of struct members, without the table's name before it."""
    key = target.context.names.key
    names = {key(n): n for n in target.state.schema.field_names}
    keys = tuple(map(key, parts))
    own = key(target.alias or target.name)
    if keys[0] not in names or (len(parts) > 1 and keys[0] == own):
        prefixes: list[tuple[str, ...]] = [(own,)]
        if target.alias is None:
            prefixes.append((key(target.database), own))
        for prefix in prefixes:
            if keys[: len(prefix)] == prefix and len(parts) > len(prefix) and keys[len(prefix)] in names:
                parts, keys = parts[len(prefix) :], keys[len(prefix) :]
                break
    if keys[0] not in names:
        known = ", ".join(names.values())
        raise NotFound(f"table '{target.table.name}' has no column '{'.'.join(parts)}'; its columns are {known}")
    return (names[keys[0]], *parts[1:])


def _value(
    target: Target,
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
        items.append(f"'{_escaped(member.name)}', {new}")
    return f"named_struct({', '.join(items)})"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
