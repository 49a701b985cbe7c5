"""DDL parser: CREATE DATABASE, CREATE TABLE and ALTER TABLE, with its changes of columns and tags, and DDL types.

Changes of columns are ``ADD COLUMN[S]``, ``DROP COLUMN[S]``, ``RENAME COLUMN``, ``ALTER | CHANGE [COLUMN]`` and
``RENAME TO``; columns may be parts of structs, of an array's ``element`` or of a map's ``value``.

Spark's DDL types and Paimon's (table-format spec, section 2): TIMESTAMP is TIMESTAMP(6) WITH LOCAL TIME ZONE,
TIMESTAMP_NTZ is TIMESTAMP(6).  Struct members get the id -1: the code that makes the schema numbers them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import TokenType

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.expressions.sql_text import quote
from bitlake.metadata import schema
from bitlake.sql import statements as st
from bitlake.sql.statements import AlterTag, ColumnDef, CreateTable, Statement, TagChange
from bitlake.sql.text import DATABASE_WORDS, QUERY_WORDS, Cursor, Item, SqlText, TableName, properties, quote_name
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType
from bitlake.types.datatypes import MAX_LENGTH

# --- CREATE -----------------------------------------------------------------------------------------------------------

_AFTER_DEFAULT = (",", "COMMENT", "NOT", "DEFAULT", "GENERATED")
_REFUSED = {
    "LOCATION": "a table's folder follows from the warehouse and its name",
    "CLUSTERED": "set 'bucket' and 'bucket-key' in TBLPROPERTIES",
    "CLUSTER": "CALL sys.compact with an 'order_strategy' sorts the rows",
    "SKEWED": "leave it out",
    "ROW": "leave it out; the file format is a table property",
    "STORED": "leave it out; the file format is a table property",
}


def create(c: Cursor) -> Statement | None:
    """CREATE …; None for what is Spark's (views, functions …)."""
    if c.word() in DATABASE_WORDS:
        c.i += 1
        return _database(c)
    if c.looking_at("OR", "REPLACE", "TABLE"):
        c.i += 2
        return replace_table(c, must_exist=False)
    if c.looking_at("EXTERNAL", "TABLE"):
        raise UnsupportedFeature("CREATE EXTERNAL TABLE is not implemented; lake tables live in their warehouse")
    if c.word() in ("OR", "TEMP", "TEMPORARY"):
        return _view(c) or _kept_view(c)
    if c.looking_at("VIEW"):
        return _kept_view(c)
    if c.accept("INDEX"):
        return _index(c)
    return _table(c) if c.accept("TABLE") else None


def _index(c: Cursor) -> Statement:
    """CREATE INDEX [IF NOT EXISTS] name ON [TABLE] table USING type (expression) [WITH | OPTIONS (k = v)]."""
    exists = c.accept("IF", "NOT", "EXISTS")
    name = c.name("an index name")
    c.expect("ON")
    c.accept("TABLE")
    table = c.table()
    c.expect("USING")
    kind = c.string() if c.kind() is TokenType.STRING else c.name("an index type, such as bitmap")
    while c.accept("-"):
        kind += "-" + c.name("an index type, such as bloom-filter")
    c.expect("(")
    expression = c.expression(",")
    if c.looking_at(","):
        c.fail("one expression")
    c.expect(")")
    options = properties(c) if c.accept("WITH") or c.accept("OPTIONS") else {}
    return st.CreateIndex(name, table, kind, expression, options, exists)


def drop_index(c: Cursor) -> Statement:
    """DROP INDEX [IF EXISTS] name ON [TABLE] table, behind INDEX."""
    exists = c.accept("IF", "EXISTS")
    name = c.name("an index name")
    c.expect("ON")
    c.accept("TABLE")
    return st.DropIndex(name, c.table(), exists)


def _view(c: Cursor) -> Statement | None:
    """CREATE [OR REPLACE] TEMPORARY VIEW name AS query; None for other forms, which are Spark's."""
    start = c.i
    replace = c.accept("OR", "REPLACE")
    if c.word() in ("TEMP", "TEMPORARY") and c.word(1) == "VIEW":
        c.i += 2
        name = c.table()
        if name.database is None and c.accept("AS"):
            return st.CreateView(name.table, c.rest(), replace)
    c.i = start
    return None


def _kept_view(c: Cursor) -> Statement | None:
    """CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(column [COMMENT …], …)] [COMMENT …] AS query.

    None for other forms, which are Spark's.
    """
    replaced = c.accept("OR", "REPLACE")
    if not c.accept("VIEW"):
        c.i -= 2 * replaced
        return None
    exists = c.accept("IF", "NOT", "EXISTS")
    name = c.table()

    def comment_of() -> str | None:
        return c.string("a comment in quotes") if c.accept("COMMENT") else None

    columns = c.bracketed(lambda: (c.name("a column"), comment_of())) if c.looking_at("(") else []
    comment = comment_of()
    if not c.accept("AS"):
        return None
    return st.CreateKeptView(name, c.rest(), replaced, exists, comment, tuple(columns))


def _database(c: Cursor) -> Statement:
    exists = c.accept("IF", "NOT", "EXISTS")
    name = c.database()
    comment: str | None = None
    options: dict[str, str] = {}
    while not c.at_end:
        if c.accept("COMMENT"):
            comment = c.string("a comment in quotes")
        elif c.accept("WITH", "DBPROPERTIES") or c.accept("WITH", "PROPERTIES"):
            options = properties(c)
        elif c.looking_at("LOCATION"):
            raise UnsupportedFeature("CREATE DATABASE … LOCATION: a database's folder follows from the warehouse")
        else:
            c.fail("COMMENT, WITH DBPROPERTIES or the end of the statement")
    return st.CreateDatabase(name, exists, comment, options)


def replace_table(c: Cursor, must_exist: bool = True) -> Statement:
    """``[CREATE OR] REPLACE TABLE …``, which goes on as CREATE TABLE does."""
    c.expect("TABLE")
    at = c.position
    made = _table(c)
    if not isinstance(made, CreateTable) or made.if_not_exists:
        raise InvalidRequest(f"REPLACE TABLE takes neither LIKE nor IF NOT EXISTS: {caret(c.text, at)}")
    return replace(made, replace=True, must_exist=must_exist)


def _like(c: Cursor, made: CreateTable) -> Statement:
    """``LIKE source [USING …] [COMMENT …] [TBLPROPERTIES …]``."""
    c.expect("LIKE")
    source = c.table()
    while not c.at_end:
        if c.word() not in ("USING", "COMMENT", "TBLPROPERTIES", "LOCATION", "ROW", "STORED"):
            c.fail("USING, COMMENT, TBLPROPERTIES or the end of the statement")
        made = _clause(c, made)
    return st.CreateTableLike(made.name, source, made.if_not_exists, made.using, made.comment, made.properties)


def _table(c: Cursor) -> Statement:
    exists = c.accept("IF", "NOT", "EXISTS")
    made = CreateTable(c.table(), exists)
    if c.looking_at("LIKE"):
        return _like(c, made)
    if c.looking_at("(") and c.word(1) not in ("SELECT", "WITH", "VALUES"):
        made = _columns(c, made)
    seen: set[str] = set()
    while not c.at_end:
        at = c.position
        clause = c.word()
        c.check_once(clause, clause in seen and clause != "AS", at)
        seen.add(clause)
        if clause in ("AS", *QUERY_WORDS) and not c.looking_at("WITH", "("):
            c.accept("AS")
            if c.word() not in QUERY_WORDS:
                c.fail("a query after AS")
            if made.columns:
                raise InvalidRequest(
                    f"CREATE TABLE … AS takes its columns from the query; leave the column list out, "
                    f"or create the table first: {caret(c.text, at)}"
                )
            return replace(made, query=c.rest())
        made = _clause(c, made)
    if not made.columns:
        c.fail(f"the columns of table '{made.name}' in brackets, or AS and a query")
    return made


def _clause(c: Cursor, made: CreateTable) -> CreateTable:
    if c.accept("USING"):
        return replace(made, using=c.name("a format, as in USING paimon"))
    if c.accept("COMMENT"):
        return replace(made, comment=c.string("a comment in quotes"))
    if c.accept("TBLPROPERTIES") or c.accept("OPTIONS") or c.accept("WITH"):
        at = c.position
        added = properties(c)
        twice = sorted(set(added) & set(made.properties))
        c.check_once(f"property '{twice[0] if twice else ''}'", bool(twice), at)
        return replace(made, properties={**made.properties, **added})
    if c.accept("PARTITIONED", "BY"):
        return _partitioned(c, made)
    refused = _REFUSED.get(c.word())
    if refused is not None:
        raise UnsupportedFeature(f"CREATE TABLE … {c.word()} is not supported: {refused}")
    raise c.error("USING, PARTITIONED BY, COMMENT, TBLPROPERTIES, AS or the end of the statement")


def _partitioned(c: Cursor, made: CreateTable) -> CreateTable:
    """Names of columns, or as in Hive columns with their types, which come after the others."""
    names: list[str] = []
    columns = list(made.columns)

    def read() -> None:
        at = c.position
        if c.word(1) == "(":
            raise UnsupportedFeature(
                f"partition transforms are not supported; partition by columns: {caret(c.text, at)}"
            )
        if c.word(1) in (",", ")"):
            name = c.name("a partition column")
        else:
            column = _column(c, columns)
            columns.append(column)
            name = column.name
        c.check_once(f"partition column '{name}'", name in names, at)
        names.append(name)

    c.bracketed(read)
    return replace(made, partitioned_by=tuple(names), columns=tuple(columns))


def _columns(c: Cursor, made: CreateTable) -> CreateTable:
    columns: list[ColumnDef] = []
    key: tuple[str, ...] = ()

    def read() -> None:
        nonlocal key
        if c.looking_at("PRIMARY", "KEY", "(") or c.looking_at("CONSTRAINT"):
            if c.accept("CONSTRAINT"):
                c.name("a constraint's name")
            if not c.looking_at("PRIMARY", "KEY"):
                raise UnsupportedFeature(f"only PRIMARY KEY constraints are supported: {caret(c.text, c.position)}")
            key = _primary_key(c, key)
        else:
            columns.append(_column(c, columns))
            if c.looking_at("PRIMARY", "KEY"):
                c.accept("PRIMARY", "KEY")
                _not_enforced(c)
                key = (*key, columns[-1].name)

    _columns_listed(c, read)
    return replace(made, columns=tuple(columns), primary_key=key)


def _primary_key(c: Cursor, key: tuple[str, ...]) -> tuple[str, ...]:
    at = c.position
    c.expect("PRIMARY", "KEY")
    names = c.names("a column name")
    _not_enforced(c)
    if key:
        raise InvalidRequest(f"the table has two primary keys: {caret(c.text, at)}")
    return names


def _not_enforced(c: Cursor) -> None:
    c.accept("NOT", "ENFORCED")
    c.accept("RELY") or c.accept("NORELY")


def _column(c: Cursor, before: list[ColumnDef]) -> ColumnDef:
    at = c.position
    name = c.name("a column name")
    c.check_once(f"column '{name}'", any(name == b.name for b in before), at)
    kind = read_type(c)
    given: dict[str, Any] = {}
    while True:
        if c.accept("NOT", "NULL"):
            kind = replace(kind, nullable=False)
        elif c.accept("NULL"):
            pass
        elif c.accept("COMMENT"):
            given["comment"] = c.string("a comment in quotes")
        elif c.accept("DEFAULT"):
            given["default_sql"] = c.expression(*_AFTER_DEFAULT)
        elif c.looking_at("GENERATED"):
            raise UnsupportedFeature(f"generated columns are not supported: {caret(c.text, c.position)}")
        else:
            break
    return ColumnDef(name, kind, **given)


# --- ALTER TABLE: columns ---------------------------------------------------------------------------------------------

_OTHER = ("REPLACE", "RECOVER", "SET", "CLUSTER", "PARTITION")
_SUPPORTED_CHANGES = (
    "SET TBLPROPERTIES, UNSET TBLPROPERTIES, ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN, CHANGE COLUMN or "
    "RENAME TO"
)


def alter_columns(c: Cursor, table: TableName) -> Statement:
    """Parse what follows ``ALTER TABLE name``, except its properties; takes all of it but the end."""
    rest = c.text[c.position :].rstrip(" ;\n\t")
    if c.looking_at("ADD") and c.word(1) in ("COLUMN", "COLUMNS"):
        c.i += 2
        return st.AlterColumns(table, _columns_listed(c, lambda: _altered_column(c)))
    if c.looking_at("DROP") and c.word(1) in ("COLUMN", "COLUMNS"):
        c.i += 2
        if_exists = c.accept("IF", "EXISTS")
        return st.AlterColumns(table, _columns_listed(c, lambda: schema.DropColumn(_path(c), if_exists)))
    if c.accept("RENAME", "COLUMN"):
        path = _path(c)
        c.expect("TO")
        return st.AlterColumns(table, (schema.RenameColumn(path, c.name("the column's new name")),))
    if c.accept("RENAME", "TO"):
        return st.RenameTable(table, c.table())
    if c.word() in ("ALTER", "CHANGE"):
        hive = c.word() == "CHANGE"
        c.i += 1
        c.accept("COLUMN")
        changes = c.listed(lambda: _altered(c, hive))
        return st.AlterColumns(table, tuple(change for each in changes for change in each))
    if c.word() in ("ADD", "DROP", "RENAME", *_OTHER):
        raise UnsupportedFeature(f"ALTER TABLE {table} {rest}: not implemented; there are {_SUPPORTED_CHANGES}")
    raise c.error(_SUPPORTED_CHANGES)


def _path(c: Cursor) -> schema.Path:
    return tuple(c.parts("a column name"))


def _columns_listed(c: Cursor, read: Callable[[], Item]) -> tuple[Item, ...]:
    """Columns, or changes of columns, in brackets or not."""
    closing = c.accept("(")
    out = c.listed(read)
    if closing and not c.accept(")"):
        c.fail("',' or ')' after the column")
    return tuple(out)


def _altered_column(c: Cursor) -> schema.AddColumn:
    change = schema.AddColumn(_path(c), read_type(c))
    while True:
        at = c.position
        if c.accept("NOT", "NULL"):
            change = replace(change, type=replace(change.type, nullable=False))
        elif c.accept("NULL"):
            pass
        elif c.accept("COMMENT"):
            change = replace(change, comment=c.string("a comment in quotes"))
        elif c.looking_at("DEFAULT"):
            raise InvalidRequest(
                "a new column cannot have a default, because existing rows would not have it; add the column, then "
                f"use ALTER COLUMN {'.'.join(change.path)} SET DEFAULT …: {caret(c.text, at)}"
            )
        elif c.looking_at("GENERATED"):
            raise UnsupportedFeature(f"generated columns are not supported: {caret(c.text, at)}")
        else:
            position = _position(c)
            if position is None:
                return change
            change = replace(change, position=position)


def _position(c: Cursor) -> schema.Position | None:
    if c.accept("FIRST"):
        return schema.FIRST
    return schema.Position(c.name("a column name")) if c.accept("AFTER") else None


def _altered(c: Cursor, hive: bool) -> tuple[schema.SchemaChange, ...]:
    path = _path(c)
    out: tuple[schema.SchemaChange, ...] = tuple(iter(lambda: _action(c, path), None))
    if out:
        return out
    if hive and not c.at_end:
        return _hive(c, path)
    raise c.error("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT, FIRST or AFTER")


def _action(c: Cursor, path: schema.Path) -> schema.SchemaChange | None:
    """One change of a column; none where something else comes next."""
    if c.accept("TYPE"):
        return schema.RetypeColumn(path, read_type(c))
    if c.accept("COMMENT"):
        return schema.SetComment(path, c.string("a comment in quotes"))
    if c.accept("SET", "NOT", "NULL"):
        return schema.SetNullable(path, False)
    if c.accept("DROP", "NOT", "NULL"):
        return schema.SetNullable(path, True)
    if c.accept("SET", "DEFAULT"):
        return schema.SetDefault(path, c.expression(","))
    if c.accept("DROP", "DEFAULT"):
        return schema.SetDefault(path, None)
    position = _position(c)
    return None if position is None else schema.MoveColumn(path, position)


def _hive(c: Cursor, path: schema.Path) -> tuple[schema.SchemaChange, ...]:
    """``CHANGE COLUMN old new type [NOT NULL] [COMMENT …] [FIRST | AFTER x]``: everything about a column at once."""
    out: list[schema.SchemaChange] = []
    new = c.name("the column's new name")
    if new != path[-1]:
        out.append(schema.RenameColumn(path, new))
        path = (*path[:-1], new)
    out.append(schema.RetypeColumn(path, read_type(c)))
    if c.accept("NOT", "NULL"):
        out.append(schema.SetNullable(path, False))
    if c.accept("COMMENT"):
        out.append(schema.SetComment(path, c.string("a comment in quotes")))
    position = _position(c)
    if position is not None:
        out.append(schema.MoveColumn(path, position))
    return tuple(out)


# --- ALTER TABLE: tags ------------------------------------------------------------------------------------------------

_UNITS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000}


def alter_tag(c: Cursor, table: TableName) -> AlterTag | None:
    """Parse what follows ``ALTER TABLE name`` if it is about a tag; None, nothing taken, if it is not."""
    if c.accept("CREATE", "OR", "REPLACE", "TAG"):
        return _made(c, table, TagChange.CREATE_OR_REPLACE)
    if c.accept("CREATE", "TAG"):
        return _made(c, table, TagChange.CREATE, c.accept("IF", "NOT", "EXISTS"))
    if c.accept("REPLACE", "TAG"):
        return _made(c, table, TagChange.REPLACE)
    if c.accept("DELETE", "TAG"):
        lenient = c.accept("IF", "EXISTS")
        return AlterTag(table, TagChange.DELETE, c.name("a tag's name"), lenient)
    if c.accept("RENAME", "TAG"):
        old = c.name("a tag's name")
        c.expect("TO")
        return AlterTag(table, TagChange.RENAME, old, new_name=c.name("the tag's new name"))
    return None


def _made(c: Cursor, table: TableName, change: TagChange, lenient: bool = False) -> AlterTag:
    name = c.name("a tag's name")
    snapshot = _number(c, "a snapshot's id") if c.accept("AS", "OF", "VERSION") else None
    retained = _retention(c) if c.accept("RETAIN") else None
    return AlterTag(table, change, name, lenient, snapshot, retained)


def _retention(c: Cursor) -> int:
    number = _number(c, "how long to retain the tag, as in RETAIN 7 DAYS")
    unit = c.word().removesuffix("S")
    if unit not in _UNITS:
        c.fail("DAYS, HOURS or MINUTES")
    c.i += 1
    return number * _UNITS[unit]


def _number(c: Cursor, what: str) -> int:
    word = c.word()
    if not word.isdigit():
        c.fail(what)
    if len(word) > 18:
        raise InvalidRequest(f"{word} is too large a number: {caret(c.text, c.position)}")
    c.i += 1
    return int(word)


# --- types ------------------------------------------------------------------------------------------------------------

_SIMPLE = {
    **{root.value: root for root in (Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.VARIANT)},
    **{root.value: root for root in (Root.FLOAT, Root.DOUBLE, Root.DATE)},
    "BYTE": Root.TINYINT,
    "SHORT": Root.SMALLINT,
    "INTEGER": Root.INT,
    "LONG": Root.BIGINT,
    "REAL": Root.FLOAT,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_UNSUPPORTED = ("INTERVAL", "VOID", "GEOMETRY", "GEOGRAPHY")
_SUPPORTED_TYPES = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, CHAR(n), VARCHAR(n), BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, MAP<…, …>, STRUCT<…>"
)


def parse_ddl_type(text: str) -> DataType:
    """The type of a Spark DDL text; raises :class:`InvalidRequest` with the place of what is wrong."""
    cursor = Cursor(SqlText(text))
    kind = read_type(cursor)
    cursor.expect_end()
    return kind


def read_type(cursor: Cursor) -> DataType:
    """Take a type from a statement's tokens."""
    return _Types(cursor).read()


class _Types:
    """Reads one type; ``>>`` is one token to sqlglot and closes two brackets here."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.half = False

    def read(self) -> DataType:
        cursor = self.cursor
        start = cursor.i
        word = cursor.name("a data type").upper()
        if word in _SIMPLE:
            if word == "DOUBLE":
                cursor.accept("PRECISION")
            return AtomicType(_SIMPLE[word])
        if word in _DECIMALS:
            precision, scale = (self._numbers(2) + [0])[:2] if cursor.looking_at("(") else (10, 0)
            if not 1 <= precision <= 38 or not 0 <= scale <= precision:
                raise self._wrong(start, "DECIMAL takes a precision of 1 to 38 and a scale of 0 to the precision")
            return AtomicType(Root.DECIMAL, precision=precision, scale=scale)
        if word in ("CHAR", "CHARACTER", "VARCHAR"):
            length = self._numbers(1)[0] if cursor.looking_at("(") else 0
            if not 1 <= length <= MAX_LENGTH:
                raise self._wrong(start, f"{word} takes a length of at least 1, as in {word}(10)")
            return AtomicType(Root.VARCHAR if word == "VARCHAR" else Root.CHAR, length=length)
        if word == "STRING":
            if cursor.accept("COLLATE"):
                raise UnsupportedFeature("collations are not supported by the table format; use plain STRING")
            return AtomicType(Root.VARCHAR, length=MAX_LENGTH)
        if word in ("BINARY", "BYTES"):
            return AtomicType(Root.VARBINARY, length=MAX_LENGTH)
        if word in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
            local = word == "TIMESTAMP_NTZ" or (word == "TIMESTAMP" and cursor.wall_clocks)
            return self._timestamp(start, Root.TIMESTAMP if local else Root.TIMESTAMP_LTZ)
        if word == "TIME":
            precision = self._numbers(1)[0] if cursor.looking_at("(") else 6
            return AtomicType(Root.TIME, precision=min(precision, 3))
        if word == "ARRAY":
            self._open("ARRAY<INT>")
            element = self.read()
            self._close()
            return ArrayType(element)
        if word == "MAP":
            self._open("MAP<STRING, INT>")
            key = replace(self.read(), nullable=False)
            cursor.expect(",")
            value = self.read()
            self._close()
            return MapType(key, value)
        if word == "STRUCT":
            return self._struct()
        if word in _UNSUPPORTED:
            raise UnsupportedFeature(f"a table cannot hold columns of type {word}")
        raise self._wrong(start, f"unknown data type '{word}'; there are {_SUPPORTED_TYPES}")

    def _timestamp(self, start: int, root: Root) -> AtomicType:
        precision = self._numbers(1)[0] if self.cursor.looking_at("(") else 6
        if precision > 9:
            raise self._wrong(start, "a timestamp's precision is 0 to 9")
        return AtomicType(root, precision=precision)

    def _struct(self) -> RowType:
        cursor = self.cursor
        if cursor.accept("<>"):
            raise self._wrong(cursor.i - 1, "a STRUCT needs at least one member")
        self._open("STRUCT<a: INT>")
        fields: list[DataField] = []
        while True:
            start = cursor.i
            name = cursor.name("a member's name")
            cursor.accept(":")
            made = self.read()
            if not self.half and cursor.accept("NOT", "NULL"):
                made = replace(made, nullable=False)
            comment = cursor.string() if not self.half and cursor.accept("COMMENT") else None
            if any(f.name == name for f in fields):
                raise self._wrong(start, f"the STRUCT has two members '{name}'")
            fields.append(DataField(-1, name, made, comment))
            if self.half or not cursor.accept(","):
                break
        self._close()
        return RowType(tuple(fields))

    def _numbers(self, most: int) -> list[int]:
        self.cursor.expect("(")
        out = []
        while True:
            word = self.cursor.word()
            if not word.isdigit() or len(word) > 10:
                self.cursor.fail("a number")
            out.append(int(word))
            self.cursor.i += 1
            if len(out) == most or not self.cursor.accept(","):
                break
        self.cursor.expect(")")
        return out

    def _open(self, example: str) -> None:
        if not self.cursor.accept("<"):
            self.cursor.fail(f"'<' as in {example}")

    def _close(self) -> None:
        if self.half:
            self.half = False
            self.cursor.i += 1
        elif self.cursor.word() == ">>":
            self.half = True
        else:
            self.cursor.expect(">")

    def _wrong(self, at: int, what: str) -> InvalidRequest:
        position = self.cursor.tokens[at].start
        return InvalidRequest(f"{what}: {caret(self.cursor.text, position)}")


def type_to_ddl(made: DataType) -> str:
    """Spark's DDL text of a type (without NOT NULL at the top, which belongs to the column).

    Spark has one precision of timestamps and one BINARY; types it cannot write keep Paimon's words.
    """
    match made:
        case ArrayType(element):
            return f"ARRAY<{type_to_ddl(element)}>"
        case MapType(key, value):
            return f"MAP<{type_to_ddl(key)}, {type_to_ddl(value)}>"
        case MultisetType(element):
            return f"MAP<{type_to_ddl(element)}, INT>"
        case RowType(fields):
            return f"STRUCT<{', '.join(_member(f) for f in fields)}>"
    match made.root:
        case Root.DECIMAL:
            return f"DECIMAL({made.precision}, {made.scale})"
        case Root.VARCHAR if made.length == MAX_LENGTH:
            return "STRING"
        case Root.VARCHAR | Root.CHAR:
            return f"{made.root.value}({made.length})"
        case Root.BINARY | Root.VARBINARY:
            return "BINARY"
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            return "TIMESTAMP_NTZ" if made.root is Root.TIMESTAMP else "TIMESTAMP"
        case Root.TIME:
            return f"TIME({made.precision})"
    return re.sub(r" NOT NULL$", "", str(made))


def _member(field: DataField) -> str:
    null = "" if field.type.nullable else " NOT NULL"
    comment = "" if field.description is None else f" COMMENT {quote(field.description)}"
    return f"{quote_name(field.name)}: {type_to_ddl(field.type)}{null}{comment}"
