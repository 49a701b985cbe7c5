"""Changes of a table's columns, as values; :func:`bitlake.metadata.evolve.evolve` applies them.

``path`` names a column, or a part of one: members of a struct by name, ``element`` inside an array, ``value`` inside a
map (``("orders", "element", "price")``).  Names ignore case where that is unambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bitlake.types import DataType

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A column's place among its siblings: behind ``after``, or first when that is None."""

    after: str | None = None


FIRST = Position()


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, last unless ``position`` says otherwise; rows written before read NULL."""

    path: Path
    type: DataType
    comment: str | None = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Take a column away; its values stay in the files, unread."""

    path: Path
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a column another name; options that name it follow."""

    path: Path
    new_name: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """Give a column another type, keeping whether it may be NULL; stored values are cast when they are read."""

    path: Path
    type: DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Let a column hold NULL, or not any more."""

    path: Path
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetComment:
    """Describe a column; None takes the description away."""

    path: Path
    comment: str | None


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Put a column elsewhere among its siblings."""

    path: Path
    position: Position


@dataclass(frozen=True, slots=True)
class SetDefault:
    """The SQL literal that rows written without the column get from now on; None takes it away."""

    path: Path
    sql: str | None


@dataclass(frozen=True, slots=True)
class SetTableComment:
    """Describe the table; None takes the description away."""

    comment: str | None


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | RetypeColumn
    | SetNullable
    | SetComment
    | MoveColumn
    | SetDefault
    | SetTableComment
)
