"""SQL text → one statement.

Statements about tables are read word by word from sqlglot's tokens, so that errors say what was expected and queries
are kept as they were written; what only Spark knows is passed on as :class:`~bitlake.sql.statements.Other`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from sqlglot import TokenType

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.metadata.schema_change import SetTableComment
from bitlake.predicate.dialect import caret, tokenize
from bitlake.sql import ddl_statements as ds
from bitlake.sql import dml
from bitlake.sql import statements as st
from bitlake.sql.alter import alter_columns
from bitlake.sql.clauses import arguments, partition_spec, properties, property_keys
from bitlake.sql.copy import copy
from bitlake.sql.create import create
from bitlake.sql.cursor import DATABASE_WORDS, LAKE_CATALOGS, Cursor, table_name
from bitlake.sql.show import analyze, describe, show
from bitlake.sql.statements import Statement, TableName
from bitlake.sql.tags import alter_tag

_QUERY_STARTS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "(", "MAP", "REDUCE"})
_SPARKS = frozenset(
    ("SET", "RESET", "CACHE", "UNCACHE", "CLEAR", "ADD", "LIST", "REPAIR", "LOAD", "MSCK")
    + ("DECLARE", "EXECUTE", "BEGIN", "GRANT", "REVOKE", "OPTIMIZE", "START", "COMMIT", "ROLLBACK")
)


def parse_statement(text: str) -> Statement:
    """The statement of a text; comments and a closing semicolon are fine.

    Raises :class:`InvalidRequest` with line, column and what was expected, and :class:`UnsupportedFeature` for
    statements about tables that are not implemented.
    """
    cursor = Cursor(text)
    for token in cursor.tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise InvalidRequest(f"one statement at a time; a second one starts after {caret(text, token.start)}")
    if cursor.at_end:
        raise InvalidRequest("the statement is empty")
    first = cursor.word()
    handler = _HANDLERS.get(first)
    if handler is not None:
        made = handler(cursor)
        return st.Other(_all(cursor)) if made is None or _foreign(made) else made
    if first in _QUERY_STARTS:
        made = _insert_after_with(cursor) or dml.after_with(cursor) if first == "WITH" else None
        return st.Query(_all(cursor)) if made is None or _foreign(made) else made
    if first in _SPARKS:
        return st.Other(_all(cursor))
    known = sorted(_QUERY_STARTS | _SPARKS | set(_HANDLERS))
    near = difflib.get_close_matches(first, known, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidRequest(f"unknown statement '{cursor.raw(0)}'{hint} at {caret(text, cursor.position)}")


def split_statements(text: str) -> list[str]:
    """The statements of a script, without their semicolons; comments between them go with the next one."""
    out: list[str] = []
    start, used = 0, False
    for token in tokenize(text):
        if token.token_type is TokenType.SEMICOLON:
            if used:
                out.append(text[start : token.start].strip())
            start, used = token.end + 1, False
        else:
            used = True
    if used:
        out.append(text[start:].strip())
    return out


def parse_table_name(text: str) -> TableName:
    """The table of ``db.table`` (parts may be in backticks); raises :class:`InvalidRequest`."""
    cursor = Cursor(text)
    parts = cursor.parts("a table name")
    cursor.expect_end()
    if len(parts) > 3:
        raise InvalidRequest(f"table name '{text}' has {len(parts)} parts; write database.table")
    return table_name(parts)


def _all(cursor: Cursor) -> str:
    return cursor.text[cursor.tokens[0].start : cursor.tokens[-1].end + 1]


def _foreign(made: Statement) -> bool:
    """Whether a statement is about a table of another catalog, which is Spark's business."""
    name = getattr(made, "table", None) or getattr(made, "name", None)
    return isinstance(name, TableName) and name.catalog is not None


def _drop(c: Cursor) -> Statement | None:
    c.expect("DROP")
    if c.accept("TABLE"):
        if_exists = c.accept("IF", "EXISTS")
        name = c.table()
        c.accept("PURGE")
        c.expect_end()
        return st.DropTable(name, if_exists)
    if c.accept("VIEW"):
        if_exists = c.accept("IF", "EXISTS")
        view = c.table()
        c.expect_end()
        return ds.DropView(view, if_exists, _all(c))
    if c.word() not in DATABASE_WORDS:
        return None
    c.i += 1
    if_exists = c.accept("IF", "EXISTS")
    database = c.database()
    cascade = c.accept("CASCADE")
    if not cascade:
        c.accept("RESTRICT")
    c.expect_end()
    return st.DropDatabase(database, if_exists, cascade)


def _use(c: Cursor) -> Statement:
    c.expect("USE")
    said = c.word() in DATABASE_WORDS and c.kind(1) is not None and c.word(1) != "."
    c.i += said
    bare = c.kind(1) is None
    name = c.database()
    c.expect_end()
    return st.UseDatabase(name, or_catalog=bare and not said and name.lower() in LAKE_CATALOGS)


def _refresh(c: Cursor) -> Statement | None:
    c.expect("REFRESH")
    if not c.accept("TABLE"):
        return None
    table = c.table()
    c.expect_end()
    return ds.RefreshTable(table)


def _insert(c: Cursor) -> Statement | None:
    c.expect("INSERT")
    overwrite = c.accept("OVERWRITE")
    if overwrite:
        if c.word() in ("DIRECTORY", "LOCAL"):
            return None
    else:
        c.expect("INTO")
    # TABLE is a word of the clause unless it is the table's own name.
    if c.kind(1) is TokenType.IDENTIFIER or c.word(1) not in ("", ".", "(", "SELECT", "VALUES"):
        c.accept("TABLE")
    table = c.table()
    partition: dict[str, object] | None = None
    columns: tuple[str, ...] | None = None
    by_name = False
    while True:
        if partition is None and c.accept("PARTITION"):
            partition = partition_spec(c, dynamic=True)
        elif c.looking_at("IF", "NOT", "EXISTS"):
            raise UnsupportedFeature("INSERT … IF NOT EXISTS is not implemented")
        elif c.looking_at("REPLACE"):
            raise UnsupportedFeature("INSERT INTO … REPLACE WHERE is not implemented; use INSERT OVERWRITE")
        elif not by_name and c.accept("BY", "NAME"):
            by_name = True
        elif columns is None and not by_name and c.looking_at("(") and not _bracketed_query(c):
            columns = c.names("a column name")
        else:
            break
    if c.word() not in _QUERY_STARTS:
        c.fail("SELECT, VALUES, TABLE, WITH or FROM")
    return st.InsertInto(table, c.rest(), columns, partition, overwrite, by_name)


def _bracketed_query(c: Cursor) -> bool:
    ahead = 1
    while c.word(ahead) == "(":
        ahead += 1
    # A column may be called "values" or "map"; a query goes on after the word.
    return c.word(ahead) in _QUERY_STARTS and c.word(ahead + 1) not in (",", ")")


def _insert_after_with(c: Cursor) -> Statement | None:
    """``WITH … INSERT INTO t SELECT …``: the WITH belongs to the query."""
    depth = 0
    for at in range(len(c.tokens)):
        c.i = at
        word = c.word()
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == "INSERT" and at and c.word(-1) == ")":
            before = c.text[c.tokens[0].start : c.position].rstrip()
            made = _insert(c)
            if isinstance(made, st.InsertInto):
                return st.InsertInto(
                    made.table, f"{before} {made.query}", made.columns, made.partition, made.overwrite, made.by_name
                )
            return made
    return None


def _alter(c: Cursor) -> Statement | None:
    c.expect("ALTER")
    if c.word() in DATABASE_WORDS:
        return _alter_database(c)
    if not c.accept("TABLE"):
        return None
    table = c.table()
    if c.accept("SET", "TBLPROPERTIES"):
        made: Statement = st.AlterTableSet(table, properties(c))
    elif c.accept("UNSET", "TBLPROPERTIES"):
        if_exists = c.accept("IF", "EXISTS")
        made = st.AlterTableUnset(table, property_keys(c), if_exists)
    elif table.catalog is not None:
        return None
    else:
        made = alter_tag(c, table) or _drop_partitions(c, table) or alter_columns(c, table)
    c.expect_end()
    return made


def _alter_database(c: Cursor) -> Statement:
    c.i += 1
    name = c.database()
    if c.looking_at("SET", "LOCATION"):
        raise UnsupportedFeature(f"ALTER DATABASE {name} SET LOCATION: a database's folder follows from the warehouse")
    if not c.accept("SET", "DBPROPERTIES"):
        c.expect("SET", "PROPERTIES")
    made = ds.AlterDatabase(name, properties(c))
    c.expect_end()
    return made


def _drop_partitions(c: Cursor, table: TableName) -> Statement | None:
    start = c.i
    if not c.accept("DROP"):
        return None
    if_exists = c.accept("IF", "EXISTS")
    if not c.accept("PARTITION"):
        c.i = start
        return None
    specs = [partition_spec(c)]
    while c.accept(","):
        c.expect("PARTITION")
        specs.append(partition_spec(c))
    c.accept("PURGE")
    return ds.DropPartitions(table, tuple(specs), if_exists)


def _truncate(c: Cursor) -> Statement:
    c.expect("TRUNCATE", "TABLE")
    table = c.table()
    partition = partition_spec(c) if c.accept("PARTITION") else None
    c.expect_end()
    return st.Truncate(table, partition)


def _call(c: Cursor) -> Statement:
    c.expect("CALL")
    parts = [p.lower() for p in c.parts("a procedure, as in sys.rewrite_file_index")]
    if len(parts) == 3 and parts[0] in ("bitlake", "paimon"):
        parts = parts[1:]
    positional, named = arguments(c)
    c.expect_end()
    return st.Call(".".join(parts), positional, named)


def _explain(c: Cursor) -> Statement | None:
    c.expect("EXPLAIN")
    mode = "simple"
    if c.word() in ("EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL"):
        mode = c.word().lower()
        c.i += 1
    if c.at_end:
        c.fail("a query")
    if c.word() not in _QUERY_STARTS:
        return None
    return st.Explain(c.rest(), mode)


def _comment(c: Cursor) -> Statement | None:
    c.expect("COMMENT", "ON")
    if not c.accept("TABLE"):
        return None
    table = c.table()
    c.expect("IS")
    comment = None if c.accept("NULL") else c.string("a comment in quotes, or NULL")
    c.expect_end()
    return st.AlterColumns(table, (SetTableComment(comment),))


_HANDLERS: dict[str, Callable[[Cursor], Statement | None]] = {
    "CREATE": create,
    "REPLACE": create,
    "REFRESH": _refresh,
    "DROP": _drop,
    "USE": _use,
    "INSERT": _insert,
    "DELETE": dml.delete,
    "UPDATE": dml.update,
    "MERGE": dml.merge,
    "ALTER": _alter,
    "COMMENT": _comment,
    "SHOW": show,
    "DESCRIBE": describe,
    "DESC": describe,
    "TRUNCATE": _truncate,
    "ANALYZE": analyze,
    "CALL": _call,
    "COPY": copy,
    "EXPLAIN": _explain,
}
