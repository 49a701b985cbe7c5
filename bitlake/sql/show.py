"""SHOW, DESCRIBE and ANALYZE."""

from __future__ import annotations

from dataclasses import replace

from bitlake.errors import UnsupportedFeature
from bitlake.sql import ddl_statements as ds
from bitlake.sql import statements as st
from bitlake.sql.clauses import like, partition_spec, property_keys
from bitlake.sql.cursor import DATABASE_WORDS, Cursor
from bitlake.sql.statements import Statement

_DATABASES = ("DATABASES", "SCHEMAS", "NAMESPACES")
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "(", "MAP", "REDUCE")


def show(c: Cursor) -> Statement | None:
    """``SHOW …`` of what the lake has; None for views, functions and other things of Spark's."""
    c.expect("SHOW")
    made: Statement
    if c.word() in _DATABASES:
        c.i += 1
        if c.accept("IN") or c.accept("FROM"):
            c.name("a catalog name")
        made = st.ShowDatabases(like(c))
    elif c.accept("TABLES"):
        database = c.database() if c.accept("IN") or c.accept("FROM") else None
        made = st.ShowTables(database, like(c))
    elif c.accept("CREATE", "TABLE"):
        made = st.ShowCreateTable(c.table())
        c.accept("AS", "SERDE")
    elif c.accept("COLUMNS"):
        made = _columns(c)
    elif c.accept("CURRENT", "NAMESPACE"):
        made = ds.ShowCurrentNamespace()
    elif c.accept("VIEWS"):
        database = c.database() if c.accept("IN") or c.accept("FROM") else None
        made = ds.ShowViews(database, like(c))
    elif c.accept("TAGS"):
        made = ds.ShowTags(c.table())
    elif c.looking_at("TABLE", "EXTENDED"):
        c.i += 2
        made = _extended(c)
    elif c.accept("PARTITIONS"):
        table = c.table()
        made = st.ShowPartitions(table, partition_spec(c) if c.accept("PARTITION") else None)
    elif c.accept("PROCEDURES"):
        if c.accept("IN") or c.accept("FROM"):
            c.parts("sys")
        made = st.ShowProcedures(like(c))
    elif c.accept("TBLPROPERTIES"):
        table = c.table()
        keys = property_keys(c) if c.looking_at("(") else (None,)
        made = st.ShowTblProperties(table, keys[0])
    else:
        return None
    c.expect_end()
    return made


def _columns(c: Cursor) -> Statement:
    if not c.accept("FROM"):
        c.expect("IN")
    table = c.table()
    if c.accept("FROM") or c.accept("IN"):
        table = replace(table, database=c.database())
    return ds.ShowColumns(table)


def _extended(c: Cursor) -> Statement:
    database = c.database() if c.accept("IN") or c.accept("FROM") else None
    pattern = like(c)
    if pattern is None:
        c.fail("LIKE and a pattern in quotes")
    return ds.ShowTableExtended(pattern, database, partition_spec(c) if c.accept("PARTITION") else None)


def describe(c: Cursor) -> Statement | None:
    """``DESCRIBE [TABLE] [EXTENDED] t [PARTITION (…)] [column]``, ``DESCRIBE DATABASE``; None for what is Spark's."""
    c.i += 1
    if c.word() in DATABASE_WORDS and c.kind(1) is not None:
        c.i += 1
        extended = c.accept("EXTENDED")
        database = c.database()
        c.expect_end()
        return ds.DescribeDatabase(database, extended)
    if c.word() == "FUNCTION" and c.kind(1) is not None:
        return None
    described = c.looking_at("QUERY") and c.word(1) in (*_QUERIES, "TABLE")
    if described or (c.word() in _QUERIES and c.kind(1) is not None):
        c.i += described
        return ds.DescribeQuery(c.rest())
    if c.looking_at("TABLE") and c.kind(1) is not None:
        c.i += 1
    extended = c.accept("EXTENDED") or c.accept("FORMATTED")
    table = c.table()
    if c.looking_at("AS", "JSON"):
        raise UnsupportedFeature(f"DESCRIBE … {c.rest()} is not implemented; DESCRIBE [EXTENDED] table is")
    partition = partition_spec(c) if c.looking_at("PARTITION", "(") and c.accept("PARTITION") else None
    column = None if c.at_end else ".".join(c.parts("a column name"))
    c.expect_end()
    return st.Describe(table, extended, column, partition)


def analyze(c: Cursor) -> Statement | None:
    """``ANALYZE TABLE t COMPUTE STATISTICS …``."""
    c.expect("ANALYZE")
    if not c.accept("TABLE"):
        return None
    table = c.table()
    if table.catalog is not None:
        return None
    if c.looking_at("PARTITION"):
        raise UnsupportedFeature("ANALYZE TABLE … PARTITION is not implemented; statistics are the whole table's")
    c.expect("COMPUTE", "STATISTICS")
    columns: tuple[str, ...] | None = None
    every = False
    if not c.accept("NOSCAN") and c.accept("FOR"):
        every = c.accept("ALL", "COLUMNS")
        if not every:
            c.expect("COLUMNS")
            found = [c.name("a column name")]
            while c.accept(","):
                found.append(c.name("a column name"))
            columns = tuple(found)
    c.expect_end()
    return st.Analyze(table, columns, every)
