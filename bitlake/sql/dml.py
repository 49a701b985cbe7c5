"""DELETE FROM, UPDATE and MERGE INTO; conditions and values stay text as written, for Spark to evaluate."""

from __future__ import annotations

from sqlglot import TokenType

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret
from bitlake.sql import statements as st
from bitlake.sql.cursor import Cursor


def delete(c: Cursor, with_: str = "") -> st.Statement:
    """``DELETE FROM t [[AS] a] [WHERE …]``; ``with_`` is the text of a WITH clause before it."""
    c.expect("DELETE", "FROM")
    table = c.table()
    alias = _alias(c, "WHERE")
    condition = expression(c) if c.accept("WHERE") else None
    c.expect_end()
    return st.DeleteFrom(table, alias, condition, with_)


def update(c: Cursor, with_: str = "") -> st.Statement:
    """``UPDATE t [[AS] a] SET x = … [, s.y = DEFAULT …] [WHERE …]``."""
    c.expect("UPDATE")
    table = c.table()
    alias = _alias(c, "SET")
    c.expect("SET")
    assignments = _assignments(c, "WHERE")
    condition = expression(c) if c.accept("WHERE") else None
    c.expect_end()
    return st.Update(table, assignments, alias, condition, with_)


def merge(c: Cursor, with_: str = "") -> st.Statement:
    """``MERGE [WITH SCHEMA EVOLUTION] INTO t [[AS] a] USING s [[AS] b] ON … WHEN … THEN …``, with any WHEN clauses."""
    c.expect("MERGE")
    evolve = c.accept("WITH", "SCHEMA", "EVOLUTION")
    c.expect("INTO")
    table = c.table()
    alias = _alias(c, "USING")
    c.expect("USING")
    source, source_alias = _source(c)
    c.expect("ON")
    condition = expression(c, "WHEN")
    clauses = []
    while c.looking_at("WHEN"):
        clauses.append(_clause(c))
    if not clauses:
        c.fail("WHEN MATCHED or WHEN NOT MATCHED")
    c.expect_end()
    made = st.MergeInto(table, source, condition, tuple(clauses), alias, source_alias, with_, evolve=evolve)
    _check_order(made)
    return made


def expression(c: Cursor, *stops: str) -> str:
    """The text of an expression: up to one of these words outside brackets and CASE … END, which is not taken."""
    start, first, depth, cases = c.position, c.i, 0, 0
    while not c.at_end:
        word = c.word()
        if depth == 0 and (word == ")" or (cases == 0 and word in stops)):
            break
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if word == "CASE" and c.word(-1 if c.i else 0) != ".":
            cases += 1
        elif word == "END" and cases:
            cases -= 1
        c.i += 1
    if c.i == first:
        c.fail("an expression")
    return c.text[start : c.end]


def _alias(c: Cursor, *ends: str) -> str | None:
    """``[AS] name``, where the clause may also go on with one of these words."""
    if c.accept("AS"):
        return c.name("an alias")
    if c.at_end or c.word() in ends:
        return None
    return c.name(" or ".join(("an alias", *ends)))


def _source(c: Cursor) -> tuple[str, str | None]:
    """What USING names: a table's name as written or a query in brackets, and the alias with its column names."""
    start = c.position
    if c.accept("("):
        depth = 1
        while depth and not c.at_end:
            depth += (c.word() == "(") - (c.word() == ")")
            c.i += 1
        if depth:
            c.fail(")")
    else:
        c.parts("a table name, or a query in brackets")
    source = c.text[start : c.end]
    start = c.position
    if _alias(c, "ON") is None:
        return source, None
    if c.looking_at("("):
        c.names("a column name")
    written = c.text[start : c.end]
    return source, written[3:].lstrip() if written[:3].upper() == "AS " else written


def _assignments(c: Cursor, *stops: str) -> tuple[st.Assignment, ...]:
    """``a = …, b.c = DEFAULT, …``."""
    out = []
    while True:
        parts = tuple(c.parts("a column name"))
        if not c.accept("=") and not c.accept("=="):
            c.fail("=")
        out.append(st.Assignment(parts, _value(c, ",", *stops)))
        if not c.accept(","):
            return tuple(out)


def _value(c: Cursor, *stops: str) -> str | None:
    """An expression's text; None for DEFAULT."""
    if c.word() == "DEFAULT" and (c.kind(1) is None or c.word(1) in (*stops, ")")):
        c.i += 1
        return None
    return expression(c, *stops)


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
    condition = expression(c, "THEN") if c.accept("AND") else None
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
            f"UPDATE SET * takes the source's columns, and there is no source row: {caret(c.text, at)}"
        )
    return st.MergeClause(kind, condition, st.MergeAction.UPDATE, None)


def _inserted(c: Cursor) -> tuple[st.Assignment, ...] | None:
    """``(a, b) VALUES (…, DEFAULT)``; None for ``*``."""
    if c.accept("*"):
        return None
    names: list[tuple[str, ...]] | None = None
    if c.looking_at("("):
        c.i += 1
        names = [tuple(c.parts("a column name"))]
        while c.accept(","):
            names.append(tuple(c.parts("a column name")))
        c.expect(")")
    else:
        c.fail("* or a list of columns in brackets")
    c.expect("VALUES")
    at = c.position
    c.expect("(")
    values = [_value(c, ",")]
    while c.accept(","):
        values.append(_value(c, ","))
    c.expect(")")
    if len(values) != len(names):
        raise InvalidRequest(f"INSERT names {len(names)} columns and gives {len(values)} values: {caret(c.text, at)}")
    return tuple(st.Assignment(n, v) for n, v in zip(names, values, strict=True))


def _check_order(made: st.MergeInto) -> None:
    """Of each kind of clause only the last may go without a condition: no later one would ever apply."""
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
    depth = 0
    for at in range(len(c.tokens)):
        c.i = at
        word = c.word()
        depth += (word == "(") - (word == ")")
        follows = at > 0 and c.word(-1) == ")" and c.tokens[at].token_type is not TokenType.IDENTIFIER
        if depth == 0 and follows and word in handlers:
            before = c.text[c.tokens[0].start : c.position].rstrip()
            return handlers[word](c, before)
    return None
