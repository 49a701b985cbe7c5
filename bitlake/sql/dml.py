"""Parser of INSERT, DELETE, UPDATE, MERGE and COPY INTO; queries, conditions and values stay text for Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import TokenType

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.sql import statements as st
from bitlake.sql.statements import CopyIntoFolder, CopyIntoTable, FileFormat, Statement
from bitlake.sql.text import (
    QUERY_STARTS,
    STRINGS,
    Cursor,
    SqlText,
    closing_brackets,
    outside_brackets,
    partition_spec,
    properties,
)


def delete(c: Cursor, with_: str = "") -> st.Statement:
    """``DELETE FROM t [[AS] a] [WHERE …]``; ``with_`` is the text of a WITH clause before it."""
    c.expect("FROM")
    table = c.table()
    alias = _alias(c, "WHERE")
    condition = c.expression() if c.accept("WHERE") else None
    return st.DeleteFrom(table, alias, condition, with_)


def update(c: Cursor, with_: str = "") -> st.Statement:
    """``UPDATE t [[AS] a] SET x = … [, s.y = DEFAULT …] [WHERE …]``."""
    table = c.table()
    alias = _alias(c, "SET")
    c.expect("SET")
    assignments = _assignments(c, "WHERE")
    condition = c.expression() if c.accept("WHERE") else None
    return st.Update(table, assignments, alias, condition, with_)


def merge(c: Cursor, with_: str = "") -> st.Statement:
    """``MERGE [WITH SCHEMA EVOLUTION] INTO t [[AS] a] USING s [[AS] b] ON … WHEN … THEN …``, with any WHEN clauses."""
    evolve = c.accept("WITH", "SCHEMA", "EVOLUTION")
    c.expect("INTO")
    table = c.table()
    alias = _alias(c, "USING")
    c.expect("USING")
    source, source_alias = _source(c)
    c.expect("ON")
    condition = c.expression("WHEN")
    clauses = []
    while c.looking_at("WHEN"):
        clauses.append(_clause(c))
    if not clauses:
        c.fail("WHEN MATCHED or WHEN NOT MATCHED")
    statement = st.MergeInto(table, source, condition, tuple(clauses), alias, source_alias, with_, evolve=evolve)
    _check_order(statement)
    return statement


def _alias(c: Cursor, *ends: str) -> str | None:
    """``[AS] name``, where the clause may also go on with one of these words."""
    if c.accept("AS"):
        return c.name("an alias")
    if c.at_end or c.word() in ends:
        return None
    return c.name(" or ".join(("an alias", *ends)))


def _source(c: Cursor) -> tuple[SqlText, SqlText | None]:
    """Parse USING: a table's name as written or a query in brackets, and the alias with its column names."""
    start = c.position
    if c.looking_at("("):
        closing = closing_brackets(c.words).get(c.i)
        c.i = len(c.tokens) if closing is None else closing + 1
        if closing is None:
            c.fail(")")
    else:
        c.parts("a table name, or a query in brackets")
    source, at = c.text.part(start, c.end), c.i + c.looking_at("AS")
    if _alias(c, "ON") is None:
        return source, None
    if c.looking_at("("):
        c.names("a column name")
    return source, c.text.part(c.tokens[at].start, c.end)


def _assignments(c: Cursor, *stops: str) -> tuple[st.Assignment, ...]:
    """``a = …, b.c = DEFAULT, …``."""

    def read() -> st.Assignment:
        parts = tuple(c.parts("a column name"))
        if not c.accept("=") and not c.accept("=="):
            c.fail("=")
        return st.Assignment(parts, _value(c, ",", *stops))

    return tuple(c.listed(read))


def _value(c: Cursor, *stops: str) -> SqlText | None:
    """An expression's text; None for DEFAULT."""
    if c.word() == "DEFAULT" and (c.kind(1) is None or c.word(1) in (*stops, ")")):
        c.i += 1
        return None
    return c.expression(*stops)


def _clause(c: Cursor) -> st.MergeClause:
    c.expect("WHEN")
    if c.accept("MATCHED"):
        kind = st.When.MATCHED
    else:
        c.expect("NOT", "MATCHED")
        kind = st.When.NOT_MATCHED
        if c.accept("BY"):
            if c.accept("SOURCE"):
                kind = st.When.NOT_MATCHED_BY_SOURCE
            else:
                c.expect("TARGET")
    condition = c.expression("THEN") if c.accept("AND") else None
    c.expect("THEN")
    if kind is st.When.NOT_MATCHED:
        c.expect("INSERT")
        return st.MergeClause(kind, condition, st.MergeAction.INSERT, _inserted(c))
    if c.accept("DELETE"):
        return st.MergeClause(kind, condition, st.MergeAction.DELETE)
    if not c.accept("UPDATE"):
        c.fail("UPDATE SET or DELETE")
    c.expect("SET")
    at = c.position
    if not c.accept("*"):
        return st.MergeClause(kind, condition, st.MergeAction.UPDATE, _assignments(c, "WHEN"))
    if kind is st.When.NOT_MATCHED_BY_SOURCE:
        raise InvalidRequest(
            f"UPDATE SET * takes the source's columns, and this clause has no source row: {caret(c.text, at)}"
        )
    return st.MergeClause(kind, condition, st.MergeAction.UPDATE, None)


def _inserted(c: Cursor) -> tuple[st.Assignment, ...] | None:
    """``(a, b) VALUES (…, DEFAULT)``; None for ``*``."""
    if c.accept("*"):
        return None
    if not c.looking_at("("):
        c.fail("* or a list of columns in brackets")
    names = c.bracketed(lambda: tuple(c.parts("a column name")))
    c.expect("VALUES")
    at = c.position
    values = c.bracketed(lambda: _value(c, ","))
    if len(values) != len(names):
        raise InvalidRequest(f"INSERT names {len(names)} columns and gives {len(values)} values: {caret(c.text, at)}")
    return tuple(st.Assignment(n, v) for n, v in zip(names, values, strict=True))


def _check_order(made: st.MergeInto) -> None:
    """Only the last clause of each kind may have no condition: no later one would ever apply."""
    for kind in st.When:
        clauses = [k for k in made.clauses if k.when is kind]
        if any(k.condition is None for k in clauses[:-1]):
            raise InvalidRequest(
                f"MERGE INTO {made.table}: only the last WHEN {kind.value} clause may have no condition; "
                "the ones after it would never apply"
            )


def after_with(c: Cursor) -> st.Statement | None:
    """``WITH … DELETE | UPDATE | MERGE …``: the WITH belongs to every query in the statement; None for others."""
    handlers = {"DELETE": delete, "UPDATE": update, "MERGE": merge}
    for at in outside_brackets(c.words):
        if at > 0 and c.words[at - 1] == ")" and c.words[at] in handlers:
            before, c.i = c.text[: c.tokens[at].start].rstrip(), at + 1
            return handlers[c.words[at]](c, before)
    return None


def insert(c: Cursor) -> Statement | None:
    """``INSERT [WITH SCHEMA EVOLUTION] INTO | OVERWRITE [TABLE] t …``; None for folders, which are Spark's."""
    evolve = c.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = c.accept("OVERWRITE")
    if overwrite:
        if c.word() in ("DIRECTORY", "LOCAL"):
            return None
    else:
        c.expect("INTO")
    # TABLE is a word of the clause unless it is the table's own name.
    if c.kind(1) is TokenType.IDENTIFIER or c.word(1) not in ("", ".", "(", "SELECT", "VALUES"):
        c.accept("TABLE")
    statement = _clauses(c, st.InsertInto(c.table(), SqlText(""), overwrite=overwrite, evolve=evolve))
    if c.word() not in QUERY_STARTS:
        c.fail("SELECT, VALUES, TABLE, WITH or FROM")
    return replace(statement, query=c.rest())


def _clauses(c: Cursor, made: st.InsertInto) -> st.InsertInto:
    """Parse the clauses between the table and the query."""
    while True:
        at = c.position
        if not made.options and c.looking_at("WITH", "("):
            c.expect("WITH")
            made = replace(made, options=properties(c))
        elif made.partition is None and c.accept("PARTITION"):
            made = replace(made, partition=partition_spec(c, dynamic=True))
            if c.accept("IF", "NOT", "EXISTS"):
                _check_if_not_exists(c, made, at)
                made = replace(made, if_not_exists=True)
        elif made.replace_where is None and c.looking_at("REPLACE"):
            made = replace(made, replace_where=_replace_where(c, made))
        elif not made.by_name and c.accept("BY", "NAME"):
            made = replace(made, by_name=True)
        elif made.columns is None and not made.by_name and c.looking_at("(") and not _bracketed_query(c):
            made = replace(made, columns=c.names("a column name"))
        else:
            return made


def _check_if_not_exists(c: Cursor, made: st.InsertInto, at: int) -> None:
    """As in Spark, IF NOT EXISTS is of an overwrite, and of one partition."""
    dynamic = [k for k, v in (made.partition or {}).items() if v is None]
    if not made.overwrite:
        raise InvalidRequest(f"INSERT INTO takes no IF NOT EXISTS; use INSERT OVERWRITE: {caret(c.text, at)}")
    if dynamic:
        raise InvalidRequest(
            f"IF NOT EXISTS needs a value of every partition column, and '{dynamic[0]}' has none: {caret(c.text, at)}"
        )


def _replace_where(c: Cursor, made: st.InsertInto) -> SqlText:
    if c.word(1) != "WHERE":
        raise UnsupportedFeature(
            f"INSERT INTO … {c.word()} {c.word(1)} is not supported; use REPLACE WHERE or MERGE: "
            f"{caret(c.text, c.position)}"
        )
    if made.overwrite or made.partition is not None:
        c.fail("a query: REPLACE WHERE goes with INSERT INTO and without PARTITION")
    c.expect("REPLACE", "WHERE")
    return c.expression("SELECT", "WITH", "VALUES", "TABLE", "FROM")


def _bracketed_query(c: Cursor) -> bool:
    ahead = 1
    while c.word(ahead) == "(":
        ahead += 1
    # A column may be called "values" or "map"; a query goes on after the word.
    return c.word(ahead) in QUERY_STARTS and c.word(ahead + 1) not in (",", ")")


def insert_after_source(c: Cursor) -> Statement | None:
    """``WITH … INSERT …`` and ``[WITH …] FROM … INSERT … [INSERT …]``: each query begins with what stands before.

    None for other statements, with the cursor where it was.
    """
    starts, is_from = _inserts(c)
    if not starts:
        return None
    tokens = c.tokens
    before = c.text[tokens[0].start : tokens[starts[0]].start].rstrip()
    ends = [*starts[1:], len(tokens)] if is_from else [len(tokens)]
    statements: list[st.InsertInto] = []
    for start, end in zip(starts, ends, strict=False):
        statement = insert(Cursor(c.text, tokens[start + 1 : end]))
        if not isinstance(statement, st.InsertInto):
            return None
        # A WITH of the query's own is inside of the one before.
        query = f"({statement.query})" if statement.query[:4].upper() == "WITH" else statement.query
        statements.append(replace(statement, query=SqlText(f"{before} {query}")))
    c.i = len(tokens)
    return statements[0] if len(statements) == 1 else st.MultiInsert(tuple(statements))


def _inserts(c: Cursor) -> tuple[list[int], bool]:
    """Where INSERT stands outside brackets, and whether FROM stands before it."""
    starts: list[int] = []
    is_from = False
    for at in outside_brackets(c.words):
        word, after = c.words[at], c.words[at + 1 : at + 2]
        if at > 0 and word == "INSERT" and after and after[0] in ("INTO", "OVERWRITE", "WITH"):
            starts.append(at)
        is_from = is_from or (word == "FROM" and not starts)
    return starts, is_from


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
    c.expect("INTO")
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
        query = c.expression()
        c.expect(")")
    else:
        query = SqlText(f"SELECT * FROM {c.table()}")
    form = _format(c, _EXPORT)
    overwrite = _flag(c) if c.accept("OVERWRITE") else False
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
            options[name] = _option_value(c, name)
    return FileFormat(kind, options, null_if)


def _strings(c: Cursor) -> tuple[str, ...]:
    return tuple(c.bracketed(lambda: _one(c)))


def _one(c: Cursor) -> str:
    if c.kind() not in STRINGS:
        c.fail("a text in quotes")
    c.i += 1
    return c.tokens[c.i - 1].text


def _option_value(c: Cursor, name: str) -> str:
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
