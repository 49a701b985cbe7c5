"""Spark's DDL types ↔ Paimon types (table-format spec, section 2).

TIMESTAMP is TIMESTAMP(6) WITH LOCAL TIME ZONE, TIMESTAMP_NTZ is TIMESTAMP(6).  Struct members get the id -1: the code
that makes the schema numbers them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.expressions.sql_text import quote
from bitlake.sql.statements import quote_name
from bitlake.sql.text import Cursor
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType
from bitlake.types.datatypes import MAX_LENGTH

_SIMPLE = {
    "BOOLEAN": Root.BOOLEAN,
    "TINYINT": Root.TINYINT,
    "BYTE": Root.TINYINT,
    "SMALLINT": Root.SMALLINT,
    "SHORT": Root.SMALLINT,
    "INT": Root.INT,
    "INTEGER": Root.INT,
    "BIGINT": Root.BIGINT,
    "LONG": Root.BIGINT,
    "FLOAT": Root.FLOAT,
    "REAL": Root.FLOAT,
    "DOUBLE": Root.DOUBLE,
    "DATE": Root.DATE,
    "VARIANT": Root.VARIANT,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_UNSUPPORTED = ("INTERVAL", "VOID", "GEOMETRY", "GEOGRAPHY")
_KNOWN = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, CHAR(n), VARCHAR(n), BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, MAP<…, …>, STRUCT<…>"
)


def parse_ddl_type(text: str) -> DataType:
    """The type of a Spark DDL text; raises :class:`InvalidRequest` with the place of what is wrong."""
    cursor = Cursor(text)
    made = read_type(cursor)
    cursor.expect_end()
    return made


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
            return self._timestamp(start, Root.TIMESTAMP if word == "TIMESTAMP_NTZ" else Root.TIMESTAMP_LTZ)
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
        raise self._wrong(start, f"unknown data type '{word}'; there are {_KNOWN}")

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
