"""CREATE, REPLACE, ALTER and DROP of databases, tables, partitions, and views that a catalog keeps; SHOW of views.

A view is a query in Spark SQL.  Its names are kept with their databases, so that it means the same in every session;
in both engines, :func:`bitlake.sql.rewrite.expand_views` puts the query in place of the view's name.
Spark keeps temporary views and those of its own catalog (:meth:`Session.spark_view`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bitlake.catalog.catalog import DEFAULT_DATABASE, Identifier, View, identifier_exists, open_state
from bitlake.engine.session import COUNTS, Rows, Session, nothing, result
from bitlake.engine.show import DESCRIBED, like_names, shown_type
from bitlake.engine.show import describe as describe_table
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.named_index import name_of_index
from bitlake.fileindex.registry import index_type_named
from bitlake.metadata import options as opt
from bitlake.metadata.option_types import timedelta_of
from bitlake.metadata.schema import SetTableComment, assign_ids, near
from bitlake.schema.create import ColumnSpec
from bitlake.snapshot.partitions import files_by_partition
from bitlake.snapshot.schema_commit import replaced_schema
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import expand_views, whole_names
from bitlake.sql.statements import AlterDatabase, AlterTag, CreateTableLike, RefreshTable, TagChange
from bitlake.sql.text import SqlText, TableName, outside_brackets
from bitlake.table.history import TableHistory
from bitlake.table.indexes import TableIndexes
from bitlake.types import DataType
from bitlake.write.analyze import analyzed_columns, save_statistics
from bitlake.write.commit_plan import overwrite_scope, same_value

log = logging.getLogger("bitlake")

_COMMENT = "comment"


def create_database(session: Session, statement: st.CreateDatabase) -> pa.Table:
    """CREATE DATABASE."""
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties[_COMMENT] = statement.comment
    session.catalog.create_database(statement.name, if_not_exists=statement.if_not_exists, properties=properties)
    return nothing()


def alter_database(session: Session, statement: AlterDatabase) -> pa.Table:
    """ALTER DATABASE … SET DBPROPERTIES."""
    session.catalog.alter_database(statement.name, statement.properties)
    return nothing()


def drop_database(session: Session, statement: st.DropDatabase) -> pa.Table:
    """DROP DATABASE."""
    session.catalog.drop_database(statement.name, if_exists=statement.if_exists, cascade=statement.cascade)
    return nothing()


def use_database(session: Session, statement: st.UseDatabase) -> pa.Table:
    """USE."""
    if not session.catalog.database_exists(statement.name):
        if statement.or_catalog:
            session.database = DEFAULT_DATABASE
            return nothing()
        known = session.catalog.databases()
        raise NotFound(f"database '{statement.name}' does not exist{near(statement.name, known)}")
    session.database = statement.name
    return nothing()


def drop_table(session: Session, statement: st.DropTable) -> pa.Table:
    """DROP TABLE; as in Spark, a temporary view of that name is dropped in its place."""
    if session.is_temporary(statement.name):
        text = SqlText(f"DROP VIEW {quoted(statement.name.table)}")
        return session.spark_view(st.DropView(statement.name, statement.if_exists, text))
    session.catalog.drop_table(session.identify(statement.name), if_exists=statement.if_exists)
    return nothing()


def alter_set(session: Session, statement: st.AlterTableSet) -> pa.Table:
    """ALTER TABLE … SET TBLPROPERTIES."""
    table = session.table(session.identify_table(statement.table))
    options = dict(statement.properties)
    comment = options.pop(_COMMENT, None)
    if comment is not None:  # Spark's way to say what the table is, and no option
        table.alter(SetTableComment(comment))
    if options or comment is None:
        table.alter_options(options)
    return nothing()


def alter_unset(session: Session, statement: st.AlterTableUnset) -> pa.Table:
    """ALTER TABLE … UNSET TBLPROPERTIES; without IF EXISTS every key must be set."""
    table = session.table(session.identify_table(statement.table))
    have = table.schema.options
    if _COMMENT in statement.keys and _COMMENT not in have:
        table.alter(SetTableComment(None))
    keys = [k for k in statement.keys if k != _COMMENT or k in have]
    missing = [k for k in keys if k not in have]
    if missing and not statement.if_exists:
        raise NotFound(f"table '{table.name}' has no property '{missing[0]}'{near(missing[0], have)}; or add IF EXISTS")
    table.alter_options(unset=keys)
    return nothing()


def create_index(session: Session, statement: st.CreateIndex) -> pa.Table:
    """CREATE INDEX: declare an index by name; files that are written from now on have it."""
    indexes = TableIndexes(session.table(session.identify_table(statement.table)))
    try:
        indexes.create(
            str(statement.expression),
            index_type_named(statement.index_type),
            statement.options,
            name=statement.name,
        )
    except AlreadyExists:
        if not statement.if_not_exists:
            raise
    return nothing()


def drop_index(session: Session, statement: st.DropIndex) -> pa.Table:
    """DROP INDEX: stop declaring an index; files keep theirs until they are rewritten."""
    table = session.table(session.identify_table(statement.table))
    indexes = TableIndexes(table)
    if name_of_index(table.stored_state().schema.options, statement.name) is not None:
        indexes.drop(statement.name)
    elif not statement.if_exists:
        have = [index.name for index in indexes.list() if index.name]
        raise NotFound(f"table '{table.name}' has no index '{statement.name}'{near(statement.name, have)}")
    return nothing()


def alter_columns(session: Session, statement: st.AlterColumns) -> pa.Table:
    """ALTER TABLE … ADD, DROP, RENAME, ALTER or CHANGE COLUMN."""
    session.table(session.identify_table(statement.table)).alter(*statement.changes, names=session.names)
    return nothing()


def truncate(session: Session, statement: st.Truncate) -> pa.Table:
    """TRUNCATE TABLE, or one of its partitions."""
    table = session.session_table(session.identify_table(statement.table))
    state = table.state()
    spec = session.partition_spec(state, statement.partition)
    missing = [k for k, v in spec.items() if v is None]
    if missing:
        raise InvalidRequest(f"table '{table.name}': TRUNCATE needs a value for partition column '{missing[0]}'")
    table.truncate(session.partition_values(state, spec) if spec else None)
    return nothing()


def drop_partitions(session: Session, statement: st.DropPartitions) -> pa.Table:
    """ALTER TABLE … DROP PARTITION: every partition that matches a spec, in one snapshot.

    As in Paimon, one that all columns name must exist, without IF EXISTS.
    """
    table = session.session_table(session.identify_table(statement.table))
    state = table.state()
    keys = state.schema.partition_keys
    specs = [session.partition_values(state, session.partition_spec(state, s)) for s in statement.partitions]
    have = files_by_partition(state)
    matched = [s for s in specs if any(_matches(s, keys, values) for values in have)]
    missing = [s for s in specs if s not in matched and len(s) == len(keys)]
    if missing and not statement.if_exists:
        raise NotFound(
            f"table '{table.name}' has no partition {missing[0]}; SHOW PARTITIONS lists them; or add IF EXISTS"
        )
    if matched:
        table.truncate(*matched)
    return nothing()


def _matches(spec: Mapping[str, Any], keys: Sequence[str], values: Sequence[Any]) -> bool:
    named = dict(zip(keys, values, strict=True))
    return all(same_value(named[k], v) for k, v in spec.items())


def add_partitions(session: Session, statement: st.AddPartitions) -> pa.Table:
    """ALTER TABLE … ADD PARTITION: a partition exists where it has rows, so there is nothing to add, as in Paimon."""
    table = session.table(session.identify_table(statement.table))
    state = table.state()
    for given in statement.partitions:
        spec = session.whole_partition(state, given)
        if tuple(spec.values()) in files_by_partition(state) and not statement.if_not_exists:
            raise AlreadyExists(f"table '{table.name}' has a partition {spec} already; add IF NOT EXISTS to keep it")
    return nothing()


def rename_table(session: Session, statement: st.RenameTable) -> pa.Table:
    """ALTER TABLE … RENAME TO; without a database the table stays in its own."""
    old = session.identify_table(statement.table)
    if statement.new_name.catalog is not None:
        raise InvalidRequest(f"table '{old}' cannot move to another catalog, '{statement.new_name.catalog}'")
    new = Identifier(statement.new_name.database or old.database, statement.new_name.table)
    session.catalog.rename_table(old, new)
    return nothing()


def refresh_table(session: Session, statement: RefreshTable) -> pa.Table:
    """REFRESH TABLE: nothing of a table is kept from statement to statement that another writer could make wrong."""
    name = session.identify(statement.table)
    if not identifier_exists(session.catalog, name, session.names):
        session.catalog.check_table(name)  # says what there is
    return nothing()


def alter_tag(session: Session, statement: AlterTag) -> pa.Table:
    """ALTER TABLE … CREATE, REPLACE, DELETE or RENAME TAG."""
    table = session.table(session.identify_table(statement.table))
    snapshot = statement.snapshot
    retain = None if statement.retained_ms is None else timedelta_of(statement.retained_ms)
    history = TableHistory(table)
    match statement.change:
        case TagChange.CREATE:
            history.create_tag(statement.tag, snapshot, retain=retain, if_not_exists=statement.lenient)
        case TagChange.REPLACE:
            history.replace_tag(statement.tag, snapshot, retain=retain)
        case TagChange.CREATE_OR_REPLACE:
            if not history.create_tag(statement.tag, snapshot, retain=retain, if_not_exists=True):
                history.replace_tag(statement.tag, snapshot, retain=retain)
        case TagChange.DELETE:
            delete_tags(table, statement.tag, statement.lenient)
        case TagChange.RENAME:
            history.rename_tag(statement.tag, statement.new_name or "")
    return nothing()


def delete_tags(table: FileStoreTable, given: str, lenient: bool = False) -> None:
    """Delete tags whose names are between commas; one that does not exist is a warning, as in Paimon.

    ``lenient``: not even that.
    """
    have = TableHistory(table).tags()
    names = [given] if given in have else [n.strip() for n in given.split(",") if n.strip()]
    for name in names:
        if not TableHistory(table).delete_tag(name, if_exists=True) and not lenient:
            log.warning("table '%s' has no tag '%s'; its tags: %s", table.name, name, ", ".join(have) or "none")


def create_table(session: Session, statement: st.CreateTable) -> pa.Table:
    """CREATE TABLE, with AS SELECT or without; a table whose query fails is not left behind."""
    name = session.identify_written(statement.name, created=True)
    _check_using(name, statement.using)
    exists = session.catalog.table_exists(name)
    if statement.if_not_exists and exists:
        return nothing()
    if statement.must_exist and not exists:
        session.catalog.check_table(name)  # says what there is
    columns: Sequence[ColumnSpec] = [ColumnSpec(c.name, c.type, c.comment, c.default_sql) for c in statement.columns]
    rows = None if statement.query is None else session.query_rows(statement.query)
    if rows is not None:
        columns = rows.columns
    if statement.replace and exists:
        return _replace(session, name, statement, columns, rows)
    created = session.catalog.create_table(
        name,
        columns,
        partition_keys=statement.partitioned_by,
        primary_keys=statement.primary_key,
        options=statement.properties,
        comment=statement.comment,
        if_not_exists=statement.if_not_exists,
        names=session.names,
    )
    if rows is None or not created:
        return nothing()
    try:
        table = session.session_table(name)
        state = table.state()
        table.check_writable(state, keyed=True)
        count = rows.store(table, state, "CREATE_TABLE_AS_SELECT")
    except BaseException:
        session.catalog.drop_unwritten(name)
        raise
    return result(COUNTS, [(count, count)])


def _replace(
    session: Session,
    name: Identifier,
    statement: st.CreateTable,
    columns: Sequence[ColumnSpec],
    rows: Rows | None,
) -> pa.Table:
    """The table's rows and schema replaced; what it was stays in its history."""
    table = session.table(name)
    old = table.state()
    table.check_writable(old, keyed=True)
    with replaced_schema(
        old,
        columns,
        partition_keys=statement.partitioned_by,
        primary_keys=statement.primary_key,
        options=statement.properties,
        comment=statement.comment,
        names=session.names,
    ):
        if rows is None:
            if old.snapshot is not None:
                table.truncate()
            return nothing()
        state = table.state()
        count = rows.store(table, state, "OVERWRITE", overwrite_scope(state.schema, None))
    return result(COUNTS, [(count, count)])


def create_table_like(session: Session, statement: CreateTableLike) -> pa.Table:
    """CREATE TABLE … LIKE: columns, keys, comment and options of another table or branch; no rows."""
    name, source = session.identify(statement.name), session.identify_table(statement.source)
    _check_using(name, statement.using)
    if statement.source.catalog is not None or not identifier_exists(session.catalog, source, session.names):
        known = session.catalog.tables(source.database) if session.catalog.database_exists(source.database) else []
        raise NotFound(f"table '{statement.source}' is not a table of the lake{near(source.table, known)}")
    schema = open_state(session.catalog, source, session.names).schema
    options = {k: v for k, v in schema.options.items() if k not in ("path", "owner", "external", "branch")}
    own = dict(statement.properties)
    keys = () if opt.PRIMARY_KEY.name in own else schema.primary_keys
    session.catalog.create_table(
        name,
        [ColumnSpec(f.name, f.type, f.description, f.default_value) for f in schema.fields],
        partition_keys=schema.partition_keys,
        primary_keys=keys,
        options={**options, **own},
        comment=schema.comment if statement.comment is None else statement.comment,
        if_not_exists=statement.if_not_exists,
        names=session.names,
    )
    return nothing()


def _check_using(name: Identifier, using: str | None) -> None:
    if using is not None and using.lower() not in ("paimon", "bitlake"):
        raise InvalidRequest(
            f"table '{name}': USING {using} does not make a lake table; leave USING out, or write USING paimon"
        )


def analyze(session: Session, statement: st.Analyze) -> pa.Table:
    """ANALYZE TABLE … COMPUTE STATISTICS: of the table, of all columns that can have some, or of those named."""
    table = session.session_table(session.identify_table(statement.table))
    listed = [table.schema.field(c, session.names).name for c in statement.columns or ()]
    analyze_table(session, table, None if statement.all_columns else listed)
    return nothing()


def analyze_table(session: Session, table: FileStoreTable, columns: Sequence[str] | None) -> None:
    """Find and keep statistics of a table and these columns, with None of all that can have some.

    Nothing is done for a table without a snapshot.
    """
    state = table.state()
    names = analyzed_columns(table.name, state.schema, columns)
    if state.snapshot is not None:
        rows, statistics = session.column_statistics(table.scan_of(state), names)
        save_statistics(state, rows, statistics, table.commit_user())


def create_view(session: Session, statement: st.CreateKeptView) -> Any:
    """CREATE VIEW: the query must be one that can be run now; its names are kept with their database."""
    name = _identifier(session, statement.name)
    if not session.catalog.keeps_views:
        return session.spark_view(statement)
    if session.catalog.find_view(name) is not None and not statement.replace:
        if statement.if_not_exists:
            return nothing()
        raise AlreadyExists(f"view '{name}' already exists; use CREATE OR REPLACE VIEW")
    written = parse_statement(session.original)  # the statement may have names in place of moments and views
    text = written.query if isinstance(written, st.CreateKeptView | st.AlterView) else statement.query
    whole, columns = checked_query(session, text)
    if statement.replace:
        _check_reads_others(session, name, whole)
    comments: Sequence[str | None] = [None] * len(columns)
    if statement.columns:
        whole, comments = _renamed(session, name, whole, columns, statement.columns)
        columns = [(new, kind) for (new, _), (_, kind) in zip(statement.columns, columns, strict=True)]
    fields, _ = assign_ids([(column, kind, text) for (column, kind), text in zip(columns, comments, strict=True)])
    session.catalog.create_view(name, View(whole, fields, statement.comment), replace=statement.replace)
    return nothing()


def _renamed(
    session: Session,
    view: Identifier,
    query: SqlText,
    columns: Sequence[tuple[str, DataType]],
    given: Sequence[tuple[str, str | None]],
) -> tuple[SqlText, list[str | None]]:
    """The query with its columns renamed, and their comments; other readers of a view use its query only."""
    names = [name for name, _ in given]
    if len(names) != len(columns):
        raise InvalidRequest(
            f"view '{view}' lists {len(names)} columns ({', '.join(names)}), and its query has {len(columns)} "
            f"({', '.join(name for name, _ in columns)}); list a name for each of them"
        )
    if len(session.names.clear(names)) < len(names):
        raise InvalidRequest(f"view '{view}' lists a column twice ({', '.join(names)}); give each another name")
    items, listed = "*", f" ({', '.join(map(quoted, names))})"
    former = [name for name, _ in columns]
    if "*" in query and all(map(str.isidentifier, former)) and len(session.names.clear(former)) == len(former):
        # By name, since a star would include columns that are added to the table later.
        items = ", ".join(f"{quoted(old)} AS {quoted(new)}" for old, new in zip(former, names, strict=True))
        listed = ""
    elif "*" in query:
        query = _without_stars(session, query, columns) or query
    return SqlText(f"SELECT {items} FROM (\n{query}\n) AS {quoted(view.table)}{listed}"), [text for _, text in given]


def _without_stars(session: Session, query: SqlText, columns: Sequence[tuple[str, DataType]]) -> SqlText | None:
    """The query with the names of columns in place of the stars of its SELECT list, which has these columns.

    None for set operations and other queries in which stars cannot be replaced by names.
    """
    words = query.words
    top_level = list(outside_brackets(words))
    selects = [at for at in top_level if words[at] == "SELECT"]
    end = next((at for at in top_level if words[at] == "FROM" and selects and at > selects[0]), len(words))
    select_list = [at for at in top_level if selects and selects[0] < at < end]
    stars = [at for at in select_list if words[at] == "*" and words[at - 1] in ("SELECT", "DISTINCT", "ALL", ",", ".")]
    if len(selects) != 1 or not all(words[at + 1 : at + 2] in ([","], ["FROM"]) for at in stars):
        return None
    starts = []  # where "t." of "t.*" begins
    for at in stars:
        while words[at - 1] == ".":
            at -= 2
        starts.append(query.tokens[at].start)
    spans = [(start, query.tokens[at].end + 1) for start, at in zip(starts, stars, strict=True)]
    items = 1 + sum(words[at] == "," for at in select_list)
    try:
        edits: list[tuple[int, int, str]] = []
        star_columns = 0
        for at, (start, stop) in zip(stars, spans, strict=True):
            one_star = query.edit([(*span, "1") for span in spans if span != (start, stop)])
            count = len(session.query_columns(session.begin(one_star))) - items + 1
            first = star_columns + sum(words[i] == "," for i in select_list if i < at) - len(edits)
            prefix = query[start : stop - 1]
            edits.append((start, stop, ", ".join(prefix + quoted(name) for name, _ in columns[first : first + count])))
            star_columns += count
        explicit = query.edit(edits)
        return explicit if session.query_columns(session.begin(explicit)) == list(columns) else None
    except BitlakeError:
        return None


def checked_query(session: Session, text: SqlText) -> tuple[SqlText, list[tuple[str, DataType]]]:
    """A view's query with the database of each name, and its columns; it must be one that can be run now."""

    def known(table: TableName) -> bool:
        return session.view(table) is not None or session.has(table)

    whole = whole_names(text, session.database, known, session.names)
    return whole, session.query_columns(session.begin(whole))


def _check_reads_others(session: Session, name: Identifier, query: SqlText) -> None:
    """Refuse a query that reads its own view, itself or in the views that it reads."""

    def find(used: TableName) -> str | None:
        if used.catalog is None and _identifier(session, used) == name:
            raise InvalidRequest(
                f"view '{name}' cannot read itself, directly or by another view; read its tables instead"
            )
        return session.view(used)

    expand_views(query, find, session.names)


def alter_view(session: Session, statement: st.AlterView) -> Any:
    """ALTER VIEW … AS: another query for the session's view of that name, or for the catalog's."""
    name = _identifier(session, statement.name)
    if session.is_temporary(statement.name) or not session.catalog.keeps_views:
        return session.spark_view(statement)
    if session.catalog.find_view(name) is None:
        raise NotFound(f"view '{name}' does not exist{near(name.table, session.catalog.views(name.database))}")
    return create_view(session, st.CreateKeptView(statement.name, statement.query, replace=True))


def rename_view(session: Session, statement: st.RenameView) -> Any:
    """Run ALTER VIEW … RENAME TO, of the session's view of that name or of the catalog's.

    Raises the errors of :meth:`Catalog.rename_view`, and :class:`InvalidRequest` for another catalog, and for a view
    that would read itself by its new name.
    """
    if session.is_temporary(statement.name) or not session.catalog.keeps_views:
        return session.spark_view(statement)
    old, given = _identifier(session, statement.name), statement.new_name
    if given.catalog is not None:
        raise InvalidRequest(f"view '{old}' cannot move to another catalog, '{given.catalog}'")
    new = Identifier(given.database or old.database, given.table)
    view = session.catalog.find_view(old)
    if view is not None and new != old:
        _check_reads_others(session, new, SqlText(view.query))
    session.catalog.rename_view(old, new)
    return nothing()


def drop_view(session: Session, statement: st.DropView) -> Any:
    """DROP VIEW: the session's, if it has one of that name, else the catalog's."""
    if session.view(statement.name) is not None:
        session.catalog.drop_view(_identifier(session, statement.name))
        return nothing()
    if session.is_temporary(statement.name) or not session.catalog.keeps_views:
        return session.spark_view(statement)
    if statement.if_exists:
        return nothing()
    views = session.catalog.views(statement.name.database or session.database)
    raise NotFound(f"view '{statement.name}' does not exist{near(statement.name.table, views)}")


def show_views(session: Session, statement: st.ShowViews) -> pa.Table:
    """SHOW VIEWS: those of a database of the catalog (if it keeps none, Spark's own), and those of the session."""
    database = statement.database or session.database
    views = [(database, name, False) for name in session.catalog.views(database)]
    views += [v for v in session.spark_views() if v[2] or not session.catalog.keeps_views]
    shown = set(like_names([name for _, name, _ in views], statement.like))
    columns = {"namespace": str, "viewName": str, "isTemporary": bool}
    return result(columns, [v for v in views if v[1] in shown])


def describe(session: Session, statement: st.Describe) -> pa.Table:
    """DESCRIBE of a table (:func:`bitlake.engine.show.describe`), or of a view: a temporary one comes first."""
    name = statement.table
    if session.is_temporary(name):
        return _describe_temporary_view(session, statement)
    view = session.catalog.find_view(_identifier(session, name)) if session.catalog.keeps_views else None
    if view is None:
        return describe_table(session, statement)
    return _describe_view(_identifier(session, name), view, statement)


def _describe_temporary_view(session: Session, statement: st.Describe) -> pa.Table:
    if statement.partition is not None:
        raise InvalidRequest(f"'{statement.table}' is a temporary view: DESCRIBE takes no PARTITION with it")
    text = f"DESCRIBE TABLE {'EXTENDED ' if statement.extended else ''}{quoted(statement.table.table)}"
    if statement.column is not None:
        text += f" {quoted(statement.column)}"
    rows = session.spark_rows(text, f"describing {statement.table}")
    columns = DESCRIBED if statement.column is None else {"info_name": str, "info_value": str}
    return result(columns, [tuple(row) for row in rows])


def _describe_view(name: Identifier, view: View, statement: st.Describe) -> pa.Table:
    """The columns it had when it was created; EXTENDED adds its query and options."""
    if statement.partition is not None or statement.column is not None:
        raise InvalidRequest(f"'{name}' is a view: DESCRIBE takes neither a PARTITION nor a column with it")
    rows = [(f.name, shown_type(f.type), f.description) for f in view.fields]
    if statement.extended:
        options = ", ".join(f"{k}={v}" for k, v in sorted(view.options.items()))
        rows += [
            ("", "", ""),
            ("# Detailed View Information", "", ""),
            ("Name", str(name), ""),
            ("Comment", view.comment or "", ""),
            ("View Text", view.query, ""),
            ("View Query Output Columns", f"[{', '.join(f.name for f in view.fields)}]", ""),
            ("View Properties", f"[{options}]", ""),
        ]
    return result(DESCRIBED, rows)


def _identifier(session: Session, name: TableName) -> Identifier:
    return Identifier(name.database or session.database, name.table)
