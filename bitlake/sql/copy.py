"""COPY INTO: files into a table, or a table's rows into files, in Paimon's words."""

from __future__ import annotations

from collections.abc import Mapping

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret
from bitlake.sql.cursor import STRINGS, Cursor
from bitlake.sql.ddl_statements import CopyIntoFolder, CopyIntoTable, FileFormat

_IMPORT = {
    "CSV": frozenset(
        ("FIELD_DELIMITER", "SKIP_HEADER", "QUOTE", "ESCAPE", "NULL_IF", "EMPTY_FIELD_AS_NULL", "COMPRESSION")
    ),
    "JSON": frozenset(("MULTI_LINE", "COMPRESSION", "NULL_IF", "EMPTY_FIELD_AS_NULL")),
    "PARQUET": frozenset(("COMPRESSION",)),
}
_EXPORT = {
    "CSV": frozenset(("FIELD_DELIMITER", "HEADER", "QUOTE", "ESCAPE", "COMPRESSION")),
    "JSON": frozenset(("COMPRESSION", "DATE_FORMAT", "TIMESTAMP_FORMAT")),
    "PARQUET": frozenset(("COMPRESSION",)),
}
_FLAGS = frozenset(("EMPTY_FIELD_AS_NULL", "MULTI_LINE", "HEADER"))
ON_ERROR = ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE")


def copy(c: Cursor) -> CopyIntoTable | CopyIntoFolder:
    """``COPY INTO …``; raises :class:`InvalidRequest` with what was expected, and for options there are not."""
    c.expect("COPY", "INTO")
    return _export(c) if c.kind() in STRINGS else _import(c)


def _import(c: Cursor) -> CopyIntoTable:
    table = c.table()
    columns = c.names("a column name") if c.looking_at("(") else None
    c.expect("FROM")
    folder = c.string("a folder in quotes")
    form = _format(c, _IMPORT)
    pattern, force, on_error = None, False, ON_ERROR[0]
    while not c.at_end:
        if c.accept("PATTERN"):
            c.expect("=")
            pattern = c.string("a regular expression in quotes")
        elif c.accept("FORCE"):
            force = _flag(c)
        elif c.accept("ON_ERROR"):
            c.expect("=")
            on_error = c.word()
            if on_error not in ON_ERROR:
                c.fail(" or ".join(ON_ERROR))
            c.i += 1
        else:
            c.fail("PATTERN, FORCE, ON_ERROR or the end of the statement")
    return CopyIntoTable(table, folder, form, columns, pattern, force, on_error)


def _export(c: Cursor) -> CopyIntoFolder:
    folder = c.string()
    c.expect("FROM")
    if c.accept("("):
        query = c.until(")")
        c.expect(")")
    else:
        query = f"SELECT * FROM {c.table()}"
    form = _format(c, _EXPORT)
    overwrite = _flag(c) if c.accept("OVERWRITE") else False
    c.expect_end()
    return CopyIntoFolder(folder, query, form, overwrite)


def _flag(c: Cursor) -> bool:
    c.expect("=")
    if c.word() not in ("TRUE", "FALSE"):
        c.fail("TRUE or FALSE")
    c.i += 1
    return c.word(-1) == "TRUE"


def _format(c: Cursor, known: Mapping[str, frozenset[str]]) -> FileFormat:
    c.expect("FILE_FORMAT", "=", "(", "TYPE", "=")
    kind = c.word()
    if kind not in known:
        c.fail("CSV, JSON or PARQUET")
    c.i += 1
    options: dict[str, str] = {}
    null_if: tuple[str, ...] = ()
    while not c.accept(")"):
        c.accept(",")
        at, name = c.position, c.word()
        if name not in known[kind]:
            raise InvalidRequest(
                f"FILE_FORMAT of {kind} has no option '{name}' here; it has {', '.join(sorted(known[kind]))}: "
                f"{caret(c.text, at)}"
            )
        c.i += 1
        c.expect("=")
        if name == "NULL_IF":
            null_if = _strings(c)
        else:
            options[name] = _value(c, name)
    return FileFormat(kind, options, null_if)


def _strings(c: Cursor) -> tuple[str, ...]:
    c.expect("(")
    out = [_one(c)]
    while c.accept(","):
        out.append(_one(c))
    c.expect(")")
    return tuple(out)


def _one(c: Cursor) -> str:
    if c.kind() not in STRINGS:
        c.fail("a text in quotes")
    c.i += 1
    return c.tokens[c.i - 1].text


def _value(c: Cursor, name: str) -> str:
    at = c.position
    if c.kind() in STRINGS:
        value = _one(c)
    else:
        value = c.word()
        if not value.replace("_", "a").isalnum():
            c.fail(f"a value of {name}")
        c.i += 1
    if name in _FLAGS and value.upper() not in ("TRUE", "FALSE"):
        raise InvalidRequest(f"{name} is TRUE or FALSE: {caret(c.text, at)}")
    if name == "SKIP_HEADER" and value not in ("0", "1"):
        raise InvalidRequest(f"SKIP_HEADER is 0 or 1: {caret(c.text, at)}")
    return value.upper() if name in _FLAGS else value
