"""Changes of columns as Python callers give them, and what a table's options say to the schema they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.schema_change import (
    FIRST,
    MoveColumn,
    Path,
    Position,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
)
from bitlake.table.create import check_options
from bitlake.table.defaults import check_default
from bitlake.types import from_arrow
from bitlake.types.datatypes import DataType, NextId, parse_type

ColumnName: TypeAlias = str | Sequence[str]
"""A column, or a part of one: ``"s.x"`` or ``("s", "x")``; ``element`` inside an array, ``value`` inside a map."""
ColumnType: TypeAlias = pa.DataType | DataType | str
"""An Arrow type, a Paimon type, or the text of one that has no parts (``"DECIMAL(10, 2)"``)."""


def path_of(schema: TableSchema, name: ColumnName) -> Path:
    """The path of a name; dots separate parts unless a column is called so."""
    if not isinstance(name, str):
        return tuple(name)
    return (name,) if name in schema.field_names else tuple(name.split("."))


def type_of(given: ColumnType) -> DataType:
    """The Paimon type that a caller means; struct members are numbered by whoever puts it into a schema."""
    if isinstance(given, str):
        return parse_type(given)
    if isinstance(given, pa.DataType):
        return from_arrow(given, next_id=NextId(-1))
    return given


def position_of(first: bool, after: str | None) -> Position | None:
    """FIRST, AFTER a column, or None for neither."""
    if first and after is not None:
        raise InvalidRequest("a column goes first or after another, not both")
    return FIRST if first else None if after is None else Position(after)


def column_changes(
    path: Path,
    kind: ColumnType | None,
    nullable: bool | None,
    comment: str | None,
    default: str | None,
    position: Position | None,
) -> list[SchemaChange]:
    """What ALTER COLUMN asks for; an empty comment or default takes it away."""
    changes: list[SchemaChange] = []
    if kind is not None:
        changes.append(RetypeColumn(path, type_of(kind)))
    if nullable is not None:
        changes.append(SetNullable(path, nullable))
    if comment is not None:
        changes.append(SetComment(path, comment or None))
    if default is not None:
        changes.append(SetDefault(path, default or None))
    if position is not None:
        changes.append(MoveColumn(path, position))
    if not changes:
        raise InvalidRequest(f"column '{'.'.join(path)}': nothing to change is given")
    return changes


def check_evolved(table: str, old: TableSchema, new: TableSchema) -> None:
    """Refuse columns that the table's options (indexes, buckets) cannot go with.

    Options that did not go with the columns before (another engine's) are no reason to refuse a change.
    """
    for field in new.fields:
        if field not in old.fields:
            check_default(field)
    try:
        check_options(table, dict(old.options), old.fields, old.partition_keys, old.primary_keys)
    except BitlakeError:
        return
    try:
        check_options(table, dict(new.options), new.fields, new.partition_keys, new.primary_keys)
    except InvalidRequest as e:
        where = "" if table in str(e) else f"table '{table}': "
        raise InvalidRequest(f"{where}{e}; change that option first") from e


def made_not_null(old: TableSchema, new: TableSchema) -> list[str]:
    """The columns, by their old names, that could hold NULL and cannot any more."""
    strict = {f.id for f in new.fields if not f.type.nullable}
    return [f.name for f in old.fields if f.type.nullable and f.id in strict]
