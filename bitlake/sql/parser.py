"""SQL text → one statement.

Statements about tables are read word by word from sqlglot's tokens, so that errors say what was expected and queries
are kept as they were written; what only Spark knows is passed on as :class:`~bitlake.sql.statements.Other`.

Statements of Delta Lake and Iceberg become those of bitlake that do the same.  One that would lose more here than
there, or has no single counterpart, is refused with the statements to use instead: RESTORE and Iceberg's rollbacks keep
the later snapshots, and ``sys.rollback`` deletes them.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from sqlglot import TokenType

from bitlake import _clock
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.expressions.sql_text import quote
from bitlake.formatting import one_line
from bitlake.metadata.schema import SetTableComment, near
from bitlake.sql import dml
from bitlake.sql import statements as st
from bitlake.sql.ddl import alter_columns, alter_tag, create, drop_index, replace_table
from bitlake.sql.dml import copy, insert, insert_after_source
from bitlake.sql.statements import Statement
from bitlake.sql.text import (
    DATABASE_WORDS,
    LAKE_CATALOGS,
    QUERY_STARTS,
    STRINGS,
    Cursor,
    SqlText,
    TableName,
    arguments,
    closing_brackets,
    like,
    outside_brackets,
    partition_spec,
    properties,
    property_keys,
    quote_name,
)

_DATABASES = ("DATABASES", "SCHEMAS", "NAMESPACES")


def show(c: Cursor) -> Statement | None:
    """``SHOW …`` of what the lake has; None for views, functions and other things of Spark's."""
    statement: Statement
    if c.word() in _DATABASES:
        c.i += 1
        if c.accept("IN") or c.accept("FROM"):
            c.name("a catalog name")
        statement = st.ShowDatabases(like(c))
    elif c.accept("TABLES"):
        statement = st.ShowTables(c.in_database(), like(c))
    elif c.accept("CREATE", "TABLE"):
        statement = st.ShowCreateTable(c.table())
        c.accept("AS", "SERDE")
    elif c.accept("COLUMNS"):
        statement = _columns(c)
    elif c.accept("INDEXES") or c.accept("INDEX"):
        if not (c.accept("FROM") or c.accept("IN")):
            c.expect("ON")
        statement = st.ShowIndexes(c.table())
    elif c.accept("CURRENT", "NAMESPACE"):
        statement = st.ShowCurrentNamespace()
    elif c.accept("VIEWS"):
        statement = st.ShowViews(c.in_database(), like(c))
    elif c.accept("TAGS"):
        statement = st.ShowTags(c.table())
    elif c.looking_at("TABLE", "EXTENDED"):
        c.i += 2
        statement = _extended(c)
    elif c.accept("PARTITIONS"):
        table = c.table()
        statement = st.ShowPartitions(table, partition_spec(c) if c.accept("PARTITION") else None)
    elif c.accept("PROCEDURES"):
        if c.accept("IN") or c.accept("FROM"):
            c.parts("sys")
        statement = st.ShowProcedures(like(c))
    elif c.accept("TBLPROPERTIES"):
        table = c.table()
        keys = property_keys(c) if c.looking_at("(") else (None,)
        statement = st.ShowTblProperties(table, keys[0])
    else:
        return None
    return statement


def _columns(c: Cursor) -> Statement:
    if not c.accept("FROM"):
        c.expect("IN")
    table, database = c.table(), c.in_database()
    return st.ShowColumns(table if database is None else replace(table, database=database))


def _extended(c: Cursor) -> Statement:
    database = c.in_database()
    pattern = like(c)
    if pattern is None:
        c.fail("LIKE and a pattern in quotes")
    return st.ShowTableExtended(pattern, database, partition_spec(c) if c.accept("PARTITION") else None)


def describe(c: Cursor) -> Statement | None:
    """``DESCRIBE [TABLE] [EXTENDED] t [PARTITION (…)] [column]``, ``DESCRIBE DATABASE``; None for what is Spark's."""
    if c.word() in DATABASE_WORDS and c.kind(1) is not None:
        c.i += 1
        extended = c.accept("EXTENDED")
        return st.DescribeDatabase(c.database(), extended)
    if c.word() == "FUNCTION" and c.kind(1) is not None:
        return None
    if c.word() == "HISTORY" and c.kind(1) is not None:
        c.i += 1
        return describe_history(c)
    if c.word() == "DETAIL" and c.kind(1) is not None:
        raise UnsupportedFeature("DESCRIBE DETAIL is a statement of Delta Lake")  # parse_statement says what to use
    described = c.looking_at("QUERY") and c.word(1) in QUERY_STARTS
    if described or (c.word() in QUERY_STARTS - {"TABLE"} and c.kind(1) is not None):
        c.i += described
        return st.DescribeQuery(c.rest())
    if c.looking_at("TABLE") and c.kind(1) is not None:
        c.i += 1
    extended = c.accept("EXTENDED") or c.accept("FORMATTED")
    table = c.table()
    if c.looking_at("AS", "JSON"):
        raise UnsupportedFeature(f"DESCRIBE … {c.rest()} is not implemented; DESCRIBE [EXTENDED] table is")
    partition = partition_spec(c) if c.looking_at("PARTITION", "(") and c.accept("PARTITION") else None
    column = None if c.at_end else ".".join(c.parts("a column name"))
    return st.Describe(table, extended, column, partition)


def analyze(c: Cursor) -> Statement | None:
    """``ANALYZE TABLE t COMPUTE STATISTICS …``."""
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
            columns = tuple(c.listed(lambda: c.name("a column name")))
    return st.Analyze(table, columns, every)


_SPARKS = frozenset(
    ("SET", "RESET", "ADD", "LIST", "REPAIR", "LOAD", "MSCK")
    + ("DECLARE", "BEGIN", "GRANT", "REVOKE", "START", "COMMIT", "ROLLBACK")
)


def parse_statement(text: str, *, wall_clocks: bool = False) -> Statement:
    """The statement of a text; comments and a closing semicolon are fine.

    ``wall_clocks``: columns of type TIMESTAMP are TIMESTAMP_NTZ.
    Raises :class:`InvalidRequest` with line, column and what was expected, and :class:`UnsupportedFeature` for
    statements about tables that are not implemented.
    """
    cursor = Cursor(SqlText(text), wall_clocks=wall_clocks)
    try:
        return _statement(cursor, text)
    except (InvalidRequest, UnsupportedFeature):
        _refuse_other_formats(" ".join(cursor.text.raw(token) for token in cursor.tokens))
        raise


def _statement(cursor: Cursor, text: str) -> Statement:
    for token in cursor.tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise InvalidRequest(f"one statement at a time; a second one starts after {caret(text, token.start)}")
    if cursor.at_end:
        raise InvalidRequest("the statement is empty")
    first = cursor.word()
    handler = _HANDLERS.get(first)
    statement: Statement | None = None
    if handler is not None:
        cursor.i = 1
        statement = handler(cursor)
    elif first in ("WITH", "FROM"):
        statement = insert_after_source(cursor) or (dml.after_with(cursor) if first == "WITH" else None)
    if statement is not None:
        cursor.expect_end()
        if not _foreign(statement):
            return statement
    if first in QUERY_STARTS:
        _check_brackets(cursor)
        return st.Query(cursor.statement)
    if handler is not None or first in _SPARKS:
        return st.Other(cursor.statement)
    known = sorted(QUERY_STARTS | _SPARKS | set(_HANDLERS))
    near = difflib.get_close_matches(first, known, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    written = cursor.text.raw(cursor.tokens[0])
    raise InvalidRequest(f"unknown statement '{written}'{hint} at {caret(text, cursor.position)}")


def _check_brackets(cursor: Cursor) -> None:
    """Raise :class:`InvalidRequest` for an unmatched parenthesis: no engine can parse the query."""
    closing = closing_brackets(cursor.words)
    paired = {*closing, *closing.values()}
    alone = next((i for i, word in enumerate(cursor.words) if word in ("(", ")") and i not in paired), None)
    if alone is not None:
        what = "'(' is never closed" if cursor.words[alone] == "(" else "')' closes no '('"
        raise InvalidRequest(f"{what}: {caret(cursor.text, cursor.tokens[alone].start)}")


def split_statements(text: str) -> list[SqlText]:
    """The statements of a script, without their semicolons; comments between them go with the next one."""
    script = SqlText(text)
    out: list[SqlText] = []
    start, used = 0, False
    places = [(t.start, t.token_type is TokenType.SEMICOLON) for t in script.tokens]
    for end, closes in [*places, (len(script), True)]:
        if closes and used:
            written = script[start:end]
            first = start + len(written) - len(written.lstrip())
            out.append(script.part(first, first + len(written.strip())))
        start, used = (end + 1, False) if closes else (start, True)
    return out


def parse_table_name(text: str) -> TableName:
    """The table of ``db.table`` (parts may be in backticks); raises :class:`InvalidRequest`."""
    cursor = Cursor(SqlText(text))
    parts = cursor.parts("a table name")
    cursor.expect_end()
    if len(parts) > 3:
        raise InvalidRequest(f"table name '{text}' has {len(parts)} parts; write database.table")
    return TableName.of(parts)


def _foreign(made: Statement) -> bool:
    """Whether a statement is about a table of another catalog, which is Spark's business."""
    if isinstance(made, st.MultiInsert):
        return any(_foreign(i) for i in made.inserts)
    name = getattr(made, "table", None) or getattr(made, "name", None)
    return isinstance(name, TableName) and name.catalog is not None


def _drop(c: Cursor) -> Statement | None:
    if c.accept("TABLE"):
        if_exists = c.accept("IF", "EXISTS")
        name = c.table()
        c.accept("PURGE")
        return st.DropTable(name, if_exists)
    if c.accept("INDEX"):
        return drop_index(c)
    if c.accept("VIEW"):
        if_exists = c.accept("IF", "EXISTS")
        view = c.table()
        return st.DropView(view, if_exists, c.statement)
    if c.word() not in DATABASE_WORDS:
        return None
    c.i += 1
    if_exists = c.accept("IF", "EXISTS")
    database = c.database()
    cascade = c.accept("CASCADE")
    if not cascade:
        c.accept("RESTRICT")
    return st.DropDatabase(database, if_exists, cascade)


def _use(c: Cursor) -> Statement:
    has_keyword = c.word() in DATABASE_WORDS and c.kind(1) is not None and c.word(1) != "."
    c.i += has_keyword
    bare = c.kind(1) is None
    name = c.database()
    return st.UseDatabase(name, or_catalog=bare and not has_keyword and name.lower() in LAKE_CATALOGS)


def _refresh(c: Cursor) -> Statement | None:
    if not c.accept("TABLE"):
        return None
    table = c.table()
    return st.RefreshTable(table)


def _alter(c: Cursor) -> Statement | None:
    if c.word() in DATABASE_WORDS:
        return _alter_database(c)
    if c.looking_at("VIEW"):
        return _alter_view(c)
    if not c.accept("TABLE"):
        return None
    table = c.table()
    if c.accept("SET", "TBLPROPERTIES"):
        statement: Statement = st.AlterTableSet(table, properties(c))
    elif c.accept("UNSET", "TBLPROPERTIES"):
        if_exists = c.accept("IF", "EXISTS")
        statement = st.AlterTableUnset(table, property_keys(c), if_exists)
    elif table.catalog is not None:
        return None
    else:
        statement = alter_tag(c, table) or _partitions(c, table) or alter_columns(c, table)
    return statement


def _alter_view(c: Cursor) -> Statement | None:
    c.expect("VIEW")
    view = c.table()
    if c.accept("RENAME", "TO"):
        return st.RenameView(view, c.table(), c.statement)
    c.accept("AS")
    if c.word() not in QUERY_STARTS:
        return None
    return st.AlterView(view, c.rest(), c.statement)


def _cache(c: Cursor) -> Statement | None:
    lazy = c.accept("LAZY")
    c.expect("TABLE")
    table = c.table()
    if c.accept("OPTIONS"):
        properties(c)  # where Spark keeps the rows; it reads the statement again
    c.accept("AS")
    return st.CacheTable(table, lazy, c.rest() or None, c.statement)


def _uncache(c: Cursor) -> Statement | None:
    c.expect("TABLE")
    if_exists = c.accept("IF", "EXISTS")
    table = c.table()
    return st.UncacheTable(table, if_exists, c.statement)


def _clear(c: Cursor) -> Statement | None:
    c.expect("CACHE")
    return st.ClearCache()


def _execute(c: Cursor) -> Statement | None:
    c.expect("IMMEDIATE")
    statement = c.expression("INTO", "USING")
    into: list[str] = []
    if c.accept("INTO"):
        into = c.listed(lambda: ".".join(map(quote_name, c.parts("a variable"))))
    using: list[tuple[str | None, SqlText]] = []
    if c.accept("USING"):

        def read() -> tuple[str | None, SqlText]:
            value = c.expression(",", "AS")
            return (c.name("a parameter") if c.accept("AS") else None), value

        using = c.bracketed(read) if _bracketed(c) else c.listed(read)
    return st.ExecuteImmediate(statement, tuple(into), tuple(using))


def _bracketed(c: Cursor) -> bool:
    """Whether the list of USING stands in brackets, which are not those of its first or only expression."""
    if closing_brackets(c.words).get(c.i) != len(c.tokens) - 1:
        return False
    inside = c.words[c.i + 1 : -1]
    return any(inside[at] in (",", "AS") for at in outside_brackets(inside))


def _alter_database(c: Cursor) -> Statement:
    c.i += 1
    name = c.database()
    if c.looking_at("SET", "LOCATION"):
        raise UnsupportedFeature(f"ALTER DATABASE {name} SET LOCATION: a database's folder follows from the warehouse")
    if not c.accept("SET", "DBPROPERTIES"):
        c.expect("SET", "PROPERTIES")
    return st.AlterDatabase(name, properties(c))


def _partitions(c: Cursor, table: TableName) -> Statement | None:
    """``DROP [IF EXISTS] PARTITION (…), …`` and ``ADD [IF NOT EXISTS] PARTITION (…) …``; None for other changes."""
    start = c.i
    drops = c.accept("DROP")
    if not drops and not c.accept("ADD"):
        return None
    lenient = c.accept("IF", "EXISTS") if drops else c.accept("IF", "NOT", "EXISTS")
    specs = []
    while c.accept("PARTITION"):
        specs.append(partition_spec(c))
        if c.looking_at("LOCATION"):
            raise UnsupportedFeature(
                f"ALTER TABLE {table} ADD PARTITION … LOCATION: a partition's folder follows from the table's"
            )
        if c.accept(",") and not c.looking_at("PARTITION"):
            c.fail("PARTITION")
    if not specs:
        c.i = start
        return None
    if not drops:
        return st.AddPartitions(table, tuple(specs), lenient)
    c.accept("PURGE")
    return st.DropPartitions(table, tuple(specs), lenient)


def _truncate(c: Cursor) -> Statement:
    c.expect("TABLE")
    table = c.table()
    partition = partition_spec(c) if c.accept("PARTITION") else None
    return st.Truncate(table, partition)


def _call(c: Cursor) -> Statement:
    parts = [p.lower() for p in c.parts("a procedure, as in sys.rewrite_file_index")]
    if len(parts) == 3 and parts[0] in ("bitlake", "paimon"):
        parts = parts[1:]
    positional, named = arguments(c)
    if len(parts) == 2 and parts[0] == "system":
        return iceberg_call(parts[1], positional, named)
    return st.Call(".".join(parts), positional, named)


_EXPLAINED = frozenset(("DELETE", "UPDATE", "MERGE", "INSERT", "CREATE"))
"""The first words of statements besides queries that EXPLAIN takes."""


def _explain(c: Cursor) -> Statement | None:
    mode = "simple"
    if c.word() in ("EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL"):
        mode = c.word().lower()
        c.i += 1
    if c.at_end:
        c.fail("a query")
    if c.word() not in QUERY_STARTS | _EXPLAINED:
        return None
    return st.Explain(c.rest(), mode)


def _comment(c: Cursor) -> Statement | None:
    c.expect("ON")
    if not c.accept("TABLE"):
        return None
    table = c.table()
    c.expect("IS")
    comment = None if c.accept("NULL") else c.string("a comment in quotes, or NULL")
    return st.AlterColumns(table, (SetTableComment(comment),))


# --- Delta Lake -------------------------------------------------------------------------------------------------------

_HISTORY = (
    "snapshot_id AS version, commit_time AS timestamp, commit_user AS userName, "
    "coalesce(operation, commit_kind) AS operation, commit_kind, total_record_count, delta_record_count"
)
_VACUUM_HOURS = 168


def describe_history(c: Cursor) -> Statement | None:
    """``DESCRIBE HISTORY t [LIMIT n]``, the latest first: a query of ``t$snapshots``."""
    table = c.table()
    limit = f" LIMIT {c.expression()}" if c.accept("LIMIT") else ""
    if table.catalog is not None:
        return None
    snapshots = TableName(table.database, f"{table.table}$snapshots")
    return st.Query(SqlText(f"SELECT {_HISTORY} FROM {snapshots} ORDER BY snapshot_id DESC{limit}"))


def optimize(c: Cursor) -> Statement | None:
    """``OPTIMIZE t [WHERE …] [ZORDER BY (…)]``: ``sys.compact``."""
    table = c.table()
    given = {"table": str(table)}
    if c.accept("WHERE"):
        given["where"] = str(c.expression("ZORDER"))
    if c.accept("ZORDER", "BY"):
        columns = c.names("a column") if c.looking_at("(") else c.listed(lambda: c.name("a column"))
        given |= {"order_strategy": "zorder", "order_by": ",".join(columns)}
    return st.Call("sys.compact", named=given) if table.catalog is None else None


def vacuum(c: Cursor) -> Statement | None:
    """``VACUUM t [RETAIN n HOURS] [DRY RUN]``: expires snapshots and deletes orphan files."""
    table = c.table()
    hours: float = _VACUUM_HOURS
    if c.accept("RETAIN"):
        number = c.expression("HOURS")
        try:
            hours = float(number)
        except ValueError:
            hours = math.nan
        if not 0 <= hours < math.inf:
            raise InvalidRequest(f"VACUUM {table} RETAIN {number} HOURS: expected a number of hours")
        c.expect("HOURS")
    dry_run = c.accept("DRY", "RUN")
    return st.Vacuum(table, hours, dry_run) if table.catalog is None else None


def restore(c: Cursor) -> Statement | None:
    """``RESTORE [TABLE] t TO VERSION | TIMESTAMP AS OF …``: refused with the statements that go back."""
    c.accept("TABLE")
    table = c.table()
    c.expect("TO")
    by_time = c.accept("TIMESTAMP")
    if not by_time:
        c.expect("VERSION")
    c.expect("AS", "OF")
    moment = c.string() if c.kind() in STRINGS else str(c.expression())
    if table.catalog is not None:
        return None
    _rolled_back(f"RESTORE TABLE {table}", str(table), moment, by_time)


def _rolled_back(what: str, table: str, moment: str, by_time: bool) -> NoReturn:
    shown = quote(moment) if by_time or not moment.isdigit() else moment
    call = f"rollback_to_timestamp(table => {quote(table)}, timestamp => {shown})"
    if not by_time:
        kind = "snapshot" if moment.isdigit() else "version"
        call = f"rollback(table => {quote(table)}, {kind} => {shown})"
    raise UnsupportedFeature(
        f"{what} keeps the later snapshots, and bitlake has no such statement. CALL sys.{call} makes the snapshot the "
        f"latest one and deletes those after it; INSERT OVERWRITE {table} SELECT * FROM {table} "
        f"{'TIMESTAMP' if by_time else 'VERSION'} AS OF {shown} writes its rows again and keeps the history"
    )


_TABLE = r"(?P<table>[^ ]+(?: \. [^ ]+)*)"
_SOURCE = r"(?P<source>[^ ]+(?: \. [^ ]+)*)"
_REPLACEMENTS = (
    (
        f"DESC(RIBE)? DETAIL {_TABLE}",
        "DESCRIBE EXTENDED {table} shows the folder, the columns and the options, and SELECT count(*), "
        "sum(file_size_in_bytes) FROM {table}$files the number and the size of the files",
    ),
    (
        f"CONVERT TO (DELTA|ICEBERG) {_TABLE}",
        "CALL sys.migrate_table(source_type => 'parquet', table => 'name') takes a table of Parquet files over",
    ),
    (
        f"GENERATE [^ ]+ FOR TABLE {_TABLE}",
        "CALL sys.create_iceberg_metadata(table => '{table}') publishes a table for engines that read Iceberg",
    ),
    (
        f"CREATE (OR REPLACE )?TABLE (IF NOT EXISTS )?{_TABLE} ((SHALLOW|DEEP) )?CLONE {_SOURCE}.*",
        "CREATE TABLE {table} AS SELECT * FROM {source} copies the rows, and CALL sys.create_branch(table => "
        "'{source}', branch => 'name') makes a branch that shares the files",
    ),
    (f"REORG TABLE {_TABLE} .*", "CALL sys.compact(table => '{table}') removes deleted rows from the files"),
    (
        f"FSCK REPAIR TABLE {_TABLE}.*",
        "CALL sys.verify(table => '{table}') checks every file, and CALL sys.remove_unexisting_files(table => "
        "'{table}') removes lost ones from the table",
    ),
    (
        f"ALTER TABLE {_TABLE} (ADD|DROP|REPLACE) PARTITION FIELD .*",
        "partition columns are chosen when a table is made: CREATE TABLE … PARTITIONED BY (…) AS SELECT * FROM {table}",
    ),
    (
        f"ALTER TABLE {_TABLE} WRITE .*",
        "CALL sys.compact(table => '{table}', order_strategy => 'zorder', order_by => 'a,b') sorts the rows",
    ),
    (
        f"ALTER TABLE {_TABLE} (SET|DROP) IDENTIFIER FIELDS .*",
        "the primary key is chosen when a table is made: CREATE TABLE … TBLPROPERTIES ('primary-key' = '…')",
    ),
    (
        rf"ALTER TABLE {_TABLE} CREATE (OR REPLACE )?BRANCH (IF NOT EXISTS )?(?P<ref>[^ ]+).*",
        "CALL sys.create_branch(table => '{table}', branch => '{ref}') makes a branch",
    ),
    (
        f"ALTER TABLE {_TABLE} DROP BRANCH (IF EXISTS )?(?P<ref>[^ ]+)",
        "CALL sys.delete_branch(table => '{table}', branch => '{ref}') deletes a branch",
    ),
    (
        f"ALTER TABLE {_TABLE} DROP TAG (IF EXISTS )?(?P<ref>[^ ]+)",
        "ALTER TABLE {table} DELETE TAG {ref} deletes a tag",
    ),
    (
        f"ALTER TABLE {_TABLE} CLUSTER BY .*",
        "CALL sys.compact(table => '{table}', order_strategy => 'zorder', order_by => 'a,b') sorts the rows by "
        "columns; later rows are sorted when you call it again",
    ),
    (
        f"CREATE (OR REPLACE )?TABLE (IF NOT EXISTS )?{_TABLE} (?!.*SELECT .*CLUSTER BY).*CLUSTER BY .*",
        "CALL sys.compact(table => '{table}', order_strategy => 'zorder', order_by => 'a,b') sorts the rows of a table "
        "by columns; leave CLUSTER BY out",
    ),
    (f"ALTER TABLE {_TABLE} DROP FEATURE .*", "ALTER TABLE {table} SET TBLPROPERTIES (…) sets options"),
)
"""Statements of Delta Lake and Iceberg, as patterns of tokens with one space between, and what to run instead."""


def _refuse_other_formats(tokens: str) -> None:
    """Raise :class:`UnsupportedFeature` for a statement of :data:`_REPLACEMENTS`."""
    for pattern, instead in _REPLACEMENTS:
        match = re.fullmatch(pattern, tokens.rstrip("; "), re.I | re.S)
        if match is not None:
            names = {name: part.replace(" . ", ".") for name, part in match.groupdict().items() if part is not None}
            raise UnsupportedFeature(
                f"'{one_line(tokens, 60)}' is a statement of another format. In bitlake, {instead.format(**names)}"
            )


# --- Iceberg ----------------------------------------------------------------------------------------------------------

_PARAMETERS = {
    "expire_snapshots": ("table", "older_than", "retain_last", "max_concurrent_deletes", "stream_results"),
    "remove_orphan_files": ("table", "older_than", "location", "dry_run", "max_concurrent_deletes"),
    "rewrite_data_files": ("table", "strategy", "sort_order", "options", "where"),
    "rewrite_position_delete_files": ("table", "options", "where"),
    "rewrite_manifests": ("table", "use_caching"),
    "compute_table_stats": ("table", "snapshot_id", "columns"),
    "rollback_to_snapshot": ("table", "snapshot_id"),
    "rollback_to_timestamp": ("table", "timestamp"),
    "set_current_snapshot": ("table", "snapshot_id", "ref"),
}
_OURS = {
    "expire_snapshots": "expire_snapshots",
    "remove_orphan_files": "remove_orphan_files",
    "rewrite_data_files": "compact",
    "rewrite_position_delete_files": "compact",
    "rewrite_manifests": "compact_manifest",
    "compute_table_stats": "analyze",
}
_INSTEAD = {
    "fast_forward": "CALL sys.fast_forward(table => {table}, branch => 'the branch') makes main the branch",
    "ancestors_of": "DESCRIBE HISTORY {name} lists the snapshots",
    "create_changelog_view": "SELECT * FROM paimon_incremental_query({table}, 1, 2) returns the rows added between two "
    "snapshots",
    **dict.fromkeys(
        ("migrate", "snapshot", "add_files", "register_table"),
        "CALL sys.migrate_table(source_type => 'parquet', table => {table}) takes a table of Parquet files over",
    ),
}
"""Statements to run instead of a procedure that bitlake does not have under its name."""
_ONLY_SPEED = ("max_concurrent_deletes", "stream_results", "use_caching")
_EXPIRED_MS = 5 * 24 * 3600 * 1000
_ZORDER = re.compile(r"\s*zorder\s*\((.*)\)\s*", re.I | re.S)
_SORTED = re.compile(r"\s*(\S+)(?:\s+asc)?(?:\s+nulls\s+(?:first|last))?\s*", re.I)


def iceberg_call(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Statement:
    """``CALL system.…`` of Iceberg's Spark procedures."""
    known = _PARAMETERS.get(name, ("table",))
    given = {**dict(zip(known, positional, strict=False)), **named}
    table = str(given.pop("table", "t"))
    if name in _INSTEAD:
        shown = _INSTEAD[name].format(table=quote(table), name=table)
        raise UnsupportedFeature(f"system.{name} is a procedure of Iceberg's. In bitlake, {shown}")
    what = f"CALL system.{name}"
    if name not in _PARAMETERS:
        raise InvalidRequest(f"{what} has no counterpart in bitlake{near(name, _PARAMETERS)}")
    for parameter in given:
        if parameter not in known:
            raise InvalidRequest(f"{what} has no argument '{parameter}'{near(parameter, known)}")
    given = {k: v for k, v in given.items() if v is not None and k not in _ONLY_SPEED}
    if name not in _OURS:
        _rolled_back(what, table, str(next(iter(given.values()), 1)), name == "rollback_to_timestamp")
    return st.Call(f"sys.{_OURS[name]}", named={"table": table, **_iceberg_arguments(name, what, given)})


def _iceberg_arguments(name: str, what: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of bitlake's procedure."""
    if name == "expire_snapshots":
        before = datetime.fromtimestamp((_clock.now_ms() - _EXPIRED_MS) / 1000, UTC)
        return {"older_than": given.get("older_than", str(before)), "retain_min": given.get("retain_last")}
    made = {k: v for k, v in given.items() if k in ("older_than", "dry_run", "where")}
    if name == "compute_table_stats" and "columns" in given:
        made["columns"] = ",".join(given.pop("columns"))
    if name == "rewrite_data_files":
        made |= _iceberg_order(what, str(given.pop("strategy", "")).lower(), given.pop("sort_order", None))
    left = next((k for k in given if k not in made), None)
    if left is not None:
        raise UnsupportedFeature(f"{what}: bitlake's sys.{_OURS[name]} takes no '{left}'; leave it out")
    return made


def _iceberg_order(what: str, strategy: str, order: str | None) -> dict[str, str]:
    if order is None:
        if strategy == "sort":
            raise InvalidRequest(f"{what}: strategy 'sort' needs a sort_order, as 'zorder(a, b)' or 'a, b'")
        return {}
    curve = _ZORDER.fullmatch(order)
    items = [_SORTED.fullmatch(item) for item in (order if curve is None else curve.group(1)).split(",")]
    columns = [item.group(1) for item in items if item is not None]
    if len(columns) < len(items):
        raise UnsupportedFeature(f"{what}: sort_order = '{order}' is not supported; use 'zorder(a, b)' or 'a, b'")
    return {"order_strategy": "order" if curve is None else "zorder", "order_by": ",".join(columns)}


# --- what begins a statement ------------------------------------------------------------------------------------------

_HANDLERS: dict[str, Callable[[Cursor], Statement | None]] = {
    "CREATE": create,
    "REPLACE": replace_table,
    "REFRESH": _refresh,
    "DROP": _drop,
    "USE": _use,
    "INSERT": insert,
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
    "CACHE": _cache,
    "UNCACHE": _uncache,
    "CLEAR": _clear,
    "EXECUTE": _execute,
    "OPTIMIZE": optimize,
    "VACUUM": vacuum,
    "RESTORE": restore,
}
