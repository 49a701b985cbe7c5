"""ALTER TABLE of columns and names, as Spark's SQL has it.

``ADD COLUMN[S]``, ``DROP COLUMN[S]``, ``RENAME COLUMN``, ``ALTER | CHANGE [COLUMN]`` and ``RENAME TO``; columns may be
parts of structs, of an array's ``element`` or of a map's ``value``.
"""

from __future__ import annotations

from dataclasses import replace

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.metadata.schema_change import (
    FIRST,
    AddColumn,
    DropColumn,
    MoveColumn,
    Path,
    Position,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
)
from bitlake.sql import statements as st
from bitlake.sql.cursor import Cursor
from bitlake.sql.ddl_types import read_type
from bitlake.sql.statements import Statement, TableName

_OTHER = ("REPLACE", "RECOVER", "SET", "CLUSTER", "PARTITION")
_KNOWN = (
    "SET TBLPROPERTIES, UNSET TBLPROPERTIES, ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN, CHANGE COLUMN or "
    "RENAME TO"
)


def alter_columns(c: Cursor, table: TableName) -> Statement:
    """What follows ``ALTER TABLE name``, except its properties; takes all of it but the end."""
    rest = c.text[c.position :].rstrip(" ;\n\t")
    if c.looking_at("ADD") and c.word(1) in ("COLUMN", "COLUMNS"):
        c.i += 2
        return st.AlterColumns(table, _added(c))
    if c.looking_at("DROP") and c.word(1) in ("COLUMN", "COLUMNS"):
        c.i += 2
        return st.AlterColumns(table, _dropped(c))
    if c.accept("RENAME", "COLUMN"):
        path = _path(c)
        c.expect("TO")
        return st.AlterColumns(table, (RenameColumn(path, c.name("the column's new name")),))
    if c.accept("RENAME", "TO"):
        return st.RenameTable(table, c.table())
    if c.word() in ("ALTER", "CHANGE"):
        hive = c.word() == "CHANGE"
        c.i += 1
        c.accept("COLUMN")
        changes = _altered(c, hive)
        while c.accept(","):
            changes += _altered(c, hive)
        return st.AlterColumns(table, changes)
    if c.word() in ("ADD", "DROP", "RENAME", *_OTHER):
        raise UnsupportedFeature(f"ALTER TABLE {table} {rest}: not implemented; there are {_KNOWN}")
    raise c.error(_KNOWN)


def _path(c: Cursor) -> Path:
    return tuple(c.parts("a column name"))


def _added(c: Cursor) -> tuple[SchemaChange, ...]:
    closing = c.accept("(")
    out = [_column(c)]
    while c.accept(","):
        out.append(_column(c))
    if closing and not c.accept(")"):
        c.fail("',' or ')' after the column")
    return tuple(out)


def _column(c: Cursor) -> AddColumn:
    made = AddColumn(_path(c), read_type(c))
    while True:
        at = c.position
        if c.accept("NOT", "NULL"):
            made = replace(made, type=replace(made.type, nullable=False))
        elif c.accept("NULL"):
            pass
        elif c.accept("COMMENT"):
            made = replace(made, comment=c.string("a comment in quotes"))
        elif c.looking_at("DEFAULT"):
            raise InvalidRequest(
                "a new column cannot have a default, which rows that are there would not have; add the column, then "
                f"say ALTER COLUMN {'.'.join(made.path)} SET DEFAULT …: {caret(c.text, at)}"
            )
        elif c.looking_at("GENERATED"):
            raise UnsupportedFeature(f"generated columns are not supported: {caret(c.text, at)}")
        else:
            position = _position(c)
            if position is None:
                return made
            made = replace(made, position=position)


def _position(c: Cursor) -> Position | None:
    if c.accept("FIRST"):
        return FIRST
    return Position(c.name("a column name")) if c.accept("AFTER") else None


def _dropped(c: Cursor) -> tuple[SchemaChange, ...]:
    if_exists = c.accept("IF", "EXISTS")
    closing = c.accept("(")
    out = [DropColumn(_path(c), if_exists)]
    while c.accept(","):
        out.append(DropColumn(_path(c), if_exists))
    if closing and not c.accept(")"):
        c.fail("',' or ')' after the column")
    return tuple(out)


def _altered(c: Cursor, hive: bool) -> tuple[SchemaChange, ...]:
    path = _path(c)
    out: list[SchemaChange] = []
    while True:
        change = _action(c, path)
        if change is None:
            break
        out.append(change)
    if out:
        return tuple(out)
    if hive and not c.at_end:
        return _hive(c, path)
    raise c.error("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT, FIRST or AFTER")


def _action(c: Cursor, path: Path) -> SchemaChange | None:
    """One change of a column; none where something else comes next."""
    if c.accept("TYPE"):
        return RetypeColumn(path, read_type(c))
    if c.accept("COMMENT"):
        return SetComment(path, c.string("a comment in quotes"))
    if c.accept("SET", "NOT", "NULL"):
        return SetNullable(path, False)
    if c.accept("DROP", "NOT", "NULL"):
        return SetNullable(path, True)
    if c.accept("SET", "DEFAULT"):
        return SetDefault(path, c.until(","))
    if c.accept("DROP", "DEFAULT"):
        return SetDefault(path, None)
    position = _position(c)
    return None if position is None else MoveColumn(path, position)


def _hive(c: Cursor, path: Path) -> tuple[SchemaChange, ...]:
    """``CHANGE COLUMN old new type [NOT NULL] [COMMENT …] [FIRST | AFTER x]``: everything about a column at once."""
    out: list[SchemaChange] = []
    new = c.name("the column's new name")
    if new != path[-1]:
        out.append(RenameColumn(path, new))
        path = (*path[:-1], new)
    out.append(RetypeColumn(path, read_type(c)))
    if c.accept("NOT", "NULL"):
        out.append(SetNullable(path, False))
    if c.accept("COMMENT"):
        out.append(SetComment(path, c.string("a comment in quotes")))
    position = _position(c)
    if position is not None:
        out.append(MoveColumn(path, position))
    return tuple(out)
