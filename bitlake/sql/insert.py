"""INSERT INTO, INSERT OVERWRITE, INSERT … REPLACE WHERE, and FROM … INSERT … INSERT …; queries stay text as written."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import TokenType

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.sql import dml
from bitlake.sql import statements as st
from bitlake.sql.clauses import partition_spec, properties
from bitlake.sql.cursor import Cursor
from bitlake.sql.statements import Statement

QUERY_STARTS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "(", "MAP", "REDUCE"})


def insert(c: Cursor) -> Statement | None:
    """``INSERT [WITH SCHEMA EVOLUTION] INTO | OVERWRITE [TABLE] t …``; None for folders, which are Spark's."""
    c.expect("INSERT")
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
    made = _clauses(c, st.InsertInto(c.table(), "", overwrite=overwrite, evolve=evolve))
    if c.word() not in QUERY_STARTS:
        c.fail("SELECT, VALUES, TABLE, WITH or FROM")
    return replace(made, query=c.rest())


def _clauses(c: Cursor, made: st.InsertInto) -> st.InsertInto:
    """What stands between the table and the query."""
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


def _replace_where(c: Cursor, made: st.InsertInto) -> str:
    if c.word(1) != "WHERE":
        raise UnsupportedFeature(
            f"INSERT INTO … {c.word()} {c.word(1)} is not supported; use REPLACE WHERE or MERGE: "
            f"{caret(c.text, c.position)}"
        )
    if made.overwrite or made.partition is not None:
        c.fail("a query: REPLACE WHERE goes with INSERT INTO and without PARTITION")
    c.expect("REPLACE", "WHERE")
    return dml.expression(c, "SELECT", "WITH", "VALUES", "TABLE", "FROM")


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
    made: list[st.InsertInto] = []
    for start, end in zip(starts, ends, strict=False):
        found = insert(Cursor(c.text, tokens[start:end]))
        if not isinstance(found, st.InsertInto):
            return None
        # A WITH of the query's own is inside of the one before.
        query = f"({found.query})" if found.query[:4].upper() == "WITH" else found.query
        made.append(replace(found, query=f"{before} {query}"))
    return made[0] if len(made) == 1 else st.MultiInsert(tuple(made))


def _inserts(c: Cursor) -> tuple[list[int], bool]:
    """Where INSERT stands outside brackets, and whether FROM stands before it."""
    starts: list[int] = []
    depth, is_from = 0, False
    begin = c.i
    for at in range(begin, len(c.tokens)):
        c.i = at
        word = c.word()
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        if word == "INSERT" and c.word(1) in ("INTO", "OVERWRITE", "WITH") and at > begin:
            starts.append(at)
        is_from = is_from or (word == "FROM" and not starts)
    c.i = begin
    return starts, is_from
