"""SHOW and DESCRIBE statements."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bitlake.catalog.catalog import Identifier
from bitlake.engine.session import Columns, Session, result
from bitlake.errors import AccessDenied, InvalidRequest, NotFound
from bitlake.expressions.indexed import zone_of
from bitlake.expressions.sql_text import quote, quoted
from bitlake.expressions.tree import IndexedExpression
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.named_index import TIMEZONE
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.options import is_known
from bitlake.metadata.paths import escape, render_value
from bitlake.metadata.schema import TableSchema, near
from bitlake.scan.fallback_branch import listed_entries
from bitlake.snapshot.partitions import PartitionReader, files_by_partition
from bitlake.snapshot.state import TableState
from bitlake.sql import statements as st
from bitlake.sql.ddl import type_to_ddl
from bitlake.sql.rewrite import CATALOG
from bitlake.table.history import TableHistory
from bitlake.table.indexes import TableIndexes
from bitlake.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    arrow_type,
    parse_type,
)
from bitlake.types.casts import cast_values
from bitlake.types.datatypes import TIMESTAMPS
from bitlake.write.commit_plan import same_value

log = logging.getLogger("bitlake")

DESCRIBED: Columns = {"col_name": str, "data_type": str, "comment": str}
"""The columns of DESCRIBE's result."""


def like_names(names: Iterable[str], pattern: str | None) -> list[str]:
    """Names that match a SHOW … LIKE pattern: ``*`` is any text and ``|`` separates alternatives, ignoring case."""
    if pattern is None:
        return list(names)
    wanted = [p.strip().lower().replace("%", "*") for p in pattern.split("|")]
    return [n for n in names if any(fnmatch.fnmatchcase(n.lower(), p) for p in wanted)]


def databases(session: Session, statement: st.ShowDatabases) -> pa.Table:
    """SHOW DATABASES."""
    names = sorted({*session.catalog.databases(), "default"})
    return result({"namespace": str}, [(n,) for n in like_names(names, statement.like)])


def current_namespace(session: Session, statement: st.ShowCurrentNamespace) -> pa.Table:
    """SHOW CURRENT NAMESPACE: the database that USE chose."""
    return result({"catalog": str, "namespace": str}, [(CATALOG, session.database)])


def tables(session: Session, statement: st.ShowTables) -> pa.Table:
    """SHOW TABLES: the lake's only; Spark's views are in ``spark.catalog``."""
    database = statement.database or session.database
    tables_listed = like_names(session.catalog.tables(database), statement.like)
    columns = {"namespace": str, "tableName": str, "isTemporary": bool}
    return result(columns, [(database, n, False) for n in tables_listed])


def create_table(session: Session, statement: st.ShowCreateTable) -> pa.Table:
    """SHOW CREATE TABLE: a statement that makes the same table again."""
    name = session.identify_table(statement.table)
    schema = session.catalog.load_schema(name)
    columns = []
    for f in schema.fields:
        line = f"  {_name(f.name)} {type_to_ddl(f.type)}"
        if not f.type.nullable:
            line += " NOT NULL"
        if f.default_value is not None:
            line += f" DEFAULT {f.default_value}"
        if f.description is not None:
            line += f" COMMENT {quote(f.description)}"
        columns.append(line)
    text = f"CREATE TABLE {_name(name.database)}.{_name(name.table)} (\n" + ",\n".join(columns) + ")\n"
    if schema.partition_keys:
        text += f"PARTITIONED BY ({', '.join(_name(k) for k in schema.partition_keys)})\n"
    if schema.comment is not None:
        text += f"COMMENT {quote(schema.comment)}\n"
    if options := _shown_options(schema, keys=True):
        pairs = ",\n".join(f"  {quote(k)} = {quote(v)}" for k, v in options.items())
        text += f"TBLPROPERTIES (\n{pairs})\n"
    return result({"createtab_stmt": str}, [(text,)])


def partitions(session: Session, statement: st.ShowPartitions) -> pa.Table:
    """SHOW PARTITIONS: those with live files, optionally only the ones that match a spec."""
    table = session.table(session.identify_table(statement.table))
    state = table.state()
    keys = state.schema.partition_keys
    if not keys:
        raise InvalidRequest(f"table '{table.name}' is not partitioned")
    entries = listed_entries(state)
    reader = PartitionReader(state.schema, state.paths)
    wanted = {}
    if statement.partition:
        wanted = session.partition_values(state, session.partition_spec(state, statement.partition))
    found = set()
    for raw in {e.partition for e in entries}:
        values = dict(zip(keys, reader.values(raw), strict=True))
        if all(same_value(values.get(k), v) for k, v in wanted.items()):
            fields = state.schema.partition_fields
            shown = [(f.name, _shown(values[f.name], f, session.timezone)) for f in fields]
            found.add("/".join(f"{_escaped(name)}={_escaped(text)}" for name, text in shown))
    return result({"partition": str}, [(p,) for p in sorted(found)])


def _escaped(text: str) -> str:
    """Escaped as Spark escapes paths: unlike Paimon's folders, without closing braces."""
    return escape(text).replace("%7D", "}")


def _shown(value: Any, field: DataField, timezone: str) -> str:
    """A partition's value as Spark casts it to text: a timestamp without trailing zeros, and in the session's zone."""
    kind = field.type
    assert isinstance(kind, AtomicType)
    if value is None:
        return "null"
    if kind.root not in TIMESTAMPS:
        return render_value(kind, value, legacy=False)
    if kind.root is Root.TIMESTAMP_LTZ:
        texts = cast_values(pa.array([value], arrow_type(kind)), kind, parse_type("STRING"), timezone)
        text: str = texts[0].as_py()
    else:
        text = render_value(kind, value, legacy=False)
    return text.rstrip("0").rstrip(".") if "." in text else text


_SECRET = re.compile(r"secret|password|token|access[.]?key|url", re.IGNORECASE)
"""The defaults of ``spark.redaction.regex`` and ``spark.sql.redaction.options.regex``."""


def _shown_options(schema: TableSchema, *, keys: bool = False) -> dict[str, str]:
    """A table's options by name, with ``keys`` also its primary key.

    As in Spark, the value of an option is hidden if its name looks like that of a secret, such as ``my.password``.
    Values of options that bitlake knows are shown: none is secret.
    """
    options = dict(schema.options)
    if keys and schema.primary_keys:
        options["primary-key"] = ",".join(schema.primary_keys)
    hidden = "*********(redacted)"
    return {k: hidden if _SECRET.search(k) and not is_known(k) else v for k, v in sorted(options.items())}


def properties(session: Session, statement: st.ShowTblProperties) -> pa.Table:
    """SHOW TBLPROPERTIES, or the value of one; a temporary view has none."""
    columns = {"key": str, "value": str}
    if session.is_temporary(statement.table):
        return result(columns, [])
    schema = session.catalog.load_schema(session.identify(statement.table))
    options = _shown_options(schema)
    if statement.key is not None:
        value = options.get(statement.key)
        shown = f"table {session.identify(statement.table)} does not have property: {statement.key}"
        return result(columns, [(statement.key, shown if value is None else value)])
    return result(columns, list(options.items()))


def describe(session: Session, statement: st.Describe) -> pa.Table:
    """DESCRIBE TABLE; EXTENDED adds location, keys, options and defaults, or of a partition how much it holds."""
    name = session.identify(statement.table)
    table = session.table(name)
    state = table.state()
    schema = state.schema
    if statement.partition is not None and statement.column is not None:
        raise InvalidRequest(f"table '{table.name}': DESCRIBE takes a PARTITION or a column, and not both")
    files = None if statement.partition is None else _partition_files(session, state, statement.partition)
    if statement.column is not None:
        field = schema.field(statement.column, session.names)
        facts = [
            ("col_name", field.name),
            ("data_type", shown_type(field.type)),
            ("comment", field.description or "NULL"),
        ]
        return result({"info_name": str, "info_value": str}, facts)
    rows: list[tuple[str, str, str | None]] = [(f.name, shown_type(f.type), f.description) for f in schema.fields]
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(f.name, shown_type(f.type), f.description) for f in schema.partition_fields]
    if files is not None:
        rows += _partition_facts(name, state, files) if statement.extended else []
    elif statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", ""), ("Name", str(name), "")]
        rows += [] if schema.comment is None else [("Comment", schema.comment, "")]
        rows += [("Location", table.path, ""), ("Provider", "paimon", "")]
        rows += [("Primary key", ", ".join(schema.primary_keys), "")] if schema.primary_keys else []
        rows += [("Schema", f"{schema.id}", "")]
        if state.snapshot is not None:
            rows += [("Snapshot", str(state.snapshot.id), ""), ("Rows", f"{state.snapshot.total_record_count}", "")]
        shown = ", ".join(f"{k}={v}" for k, v in _shown_options(schema).items())
        rows += [("Table Properties", f"[{shown}]", ""), *_defaults(schema)]
    return result(DESCRIBED, rows)


def _defaults(schema: TableSchema) -> list[tuple[str, str, str | None]]:
    """The rows of DESCRIBE EXTENDED with the columns' defaults, as Spark shows those of a catalog's tables."""
    defaults = [(f.name, shown_type(f.type), f.default_value) for f in schema.fields if f.default_value is not None]
    return [("", "", ""), ("# Column Default Values", "", ""), *defaults] if defaults else []


def _partition_facts(
    name: Identifier, state: TableState, files: Sequence[ManifestEntry]
) -> list[tuple[str, str, str | None]]:
    """Return the rows that DESCRIBE EXTENDED … PARTITION adds, in Spark's words."""
    reader = PartitionReader(state.schema, state.paths)
    partition = files[0].partition
    shown = ", ".join(f"{k}={v}" for k, v in reader.shown(partition).items())
    size, rows = sum(e.file.file_size for e in files), sum(e.file.row_count for e in files)
    return [
        ("", "", ""),
        ("# Detailed Partition Information", "", ""),
        ("Database", name.database, ""),
        ("Table", name.table, ""),
        ("Partition Values", f"[{shown}]", ""),
        ("Location", f"{state.paths.root}/{reader.folder(partition)}", ""),
        ("Partition Statistics", f"{size} bytes, {rows} rows", ""),
        ("Files", str(len(files)), ""),
    ]


def shown_type(kind: DataType) -> str:
    """A type as DESCRIBE shows it: Spark's ``simpleString``, with all members of a struct."""
    match kind:
        case ArrayType(element):
            return f"array<{shown_type(element)}>"
        case MapType(key, value):
            return f"map<{shown_type(key)},{shown_type(value)}>"
        case MultisetType(element):
            return f"map<{shown_type(element)},int>"
        case RowType(fields):
            return f"struct<{','.join(f'{f.name}:{shown_type(f.type)}' for f in fields)}>"
    return type_to_ddl(kind).lower().replace(", ", ",")


def _name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quoted(name)


def columns(session: Session, statement: st.ShowColumns) -> pa.Table:
    """SHOW COLUMNS, of a temporary view if it hides the table."""
    if session.is_temporary(statement.table):
        rows = session.spark_rows(f"SHOW COLUMNS IN {quoted(statement.table.table)}", f"describing {statement.table}")
        return result({"col_name": str}, [(row[0],) for row in rows])
    schema = session.table(session.identify(statement.table)).state().schema
    return result({"col_name": str}, [(n,) for n in schema.field_names])


def indexes(session: Session, statement: st.ShowIndexes) -> pa.Table:
    """SHOW INDEXES: those that the table declares, how many files and rows have each, and why one is unusable."""
    table = session.table(session.identify_table(statement.table))
    rows = []
    for index in TableIndexes(table).coverage():
        spec, column, options = index.spec, index.spec.column, dict(index.spec.options)
        if isinstance(column, IndexedExpression):
            zone, column = zone_of(column), column.sql
            options |= {} if zone is None else {TIMEZONE: zone}
        shown = ", ".join(f"{k}={v}" for k, v in sorted(options.items()))
        counts = (index.files, index.files_indexed, index.rows, index.rows_indexed)
        rows.append((spec.name or None, spec.index_type or None, str(column), shown, *counts, index.problem))
    columns = {"index_name": str, "index_type": str, "expression": str, "options": str}
    numbers = dict.fromkeys(("files", "files_indexed", "rows", "rows_indexed"), int)
    return result({**columns, **numbers, "problem": str}, rows)


def tags(session: Session, statement: st.ShowTags) -> pa.Table:
    """SHOW TAGS."""
    table = session.table(session.identify(statement.table))
    return result({"tag": str}, [(n,) for n in sorted(TableHistory(table).tags())])


def describe_database(session: Session, statement: st.DescribeDatabase) -> pa.Table:
    """DESCRIBE DATABASE; EXTENDED adds its properties."""
    properties = session.catalog.database_properties(statement.name)
    rows = [("Catalog Name", "paimon"), ("Namespace Name", statement.name)]
    comment = properties.pop("comment", None)
    rows += [] if comment is None else [("Comment", comment)]
    rows += [("Location", session.catalog.database_path(statement.name))]
    if statement.extended:
        pairs = ", ".join(f"({k},{v})" for k, v in sorted(properties.items()))
        rows += [("Properties", f"({pairs})" if pairs else "")]
    return result({"info_name": str, "info_value": str}, rows)


def extended(session: Session, statement: st.ShowTableExtended) -> pa.Table:
    """SHOW TABLE EXTENDED: facts of the tables whose names match, or of a partition of the one that is named."""
    database = statement.database or session.database
    shown = {"namespace": str, "tableName": str, "isTemporary": bool, "information": str}
    if statement.partition is not None:
        name = session.catalog.find(Identifier(database, statement.like), session.names)
        table = session.table(name)
        return result(shown, [(database, name.table, False, _partition(session, table, statement))])
    names = like_names(session.catalog.tables(database), statement.like)
    rows = []
    for found in names:
        try:
            information = _information(session.table(Identifier(database, found)), database, found)
        except AccessDenied as e:
            log.warning("SHOW TABLE EXTENDED leaves out table '%s.%s': %s", database, found, e)
        else:
            rows.append((database, found, False, information))
    return result(shown, rows)


def _information(table: FileStoreTable, database: str, name: str) -> str:
    schema = table.state().schema
    facts = {"Catalog": "paimon", "Namespace": database, "Table": name, "Type": "MANAGED"}
    if schema.comment is not None:
        facts["Comment"] = schema.comment
    facts |= {"Location": table.path, "Provider": "paimon"}
    pairs = ", ".join(f"{k}={v}" for k, v in _shown_options(schema, keys=True).items())
    facts["Table Properties"] = f"[{pairs}]"
    if schema.partition_keys:
        facts["Partition Provider"] = "Catalog"
        facts["Partition Columns"] = "[" + ", ".join(f"`{k}`" for k in schema.partition_keys) + "]"
    text = "\n".join(f"{k}: {v}" for k, v in facts.items())
    return f"{text}\nSchema: root\n{_tree(schema.fields)}\n"


_WORDS = {
    Root.TINYINT: "byte",
    Root.SMALLINT: "short",
    Root.INT: "integer",
    Root.BIGINT: "long",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
}
"""Names of types in Spark's trees of types, where DDL has another name."""


def _tree(fields: Sequence[DataField], prefix: str = " |") -> str:
    """Columns, or members of structs, as Spark prints a schema."""
    return "".join(
        f"{prefix}-- {f.name}: {_tree_word(f.type)} (nullable = {str(f.type.nullable).lower()})\n"
        + _tree_inside(f.type, f"{prefix}    |")
        for f in fields
    )


def _tree_word(made: DataType) -> str:
    match made:
        case AtomicType(root):
            return _WORDS.get(root) or shown_type(made)
        case ArrayType():
            return "array"
        case RowType():
            return "struct"
    return "map"


def _tree_inside(made: DataType, prefix: str) -> str:
    match made:
        case ArrayType(element):
            null = f"(containsNull = {str(element.nullable).lower()})"
            return f"{prefix}-- element: {_tree_word(element)} {null}\n{_tree_inside(element, prefix + '    |')}"
        case MapType(key, value):
            null = f"(valueContainsNull = {str(value.nullable).lower()})"
            keys = f"{prefix}-- key: {_tree_word(key)}\n{_tree_inside(key, prefix + '    |')}"
            return f"{keys}{prefix}-- value: {_tree_word(value)} {null}\n{_tree_inside(value, prefix + '    |')}"
        case MultisetType(element):
            return _tree_inside(MapType(element, AtomicType(Root.INT, nullable=False)), prefix)
        case RowType(fields):
            return _tree(fields, prefix)
    return ""


def _partition_files(session: Session, state: TableState, given: Mapping[str, Any]) -> Sequence[ManifestEntry]:
    """The live files of a partition that all its columns name; raises :class:`NotFound`."""
    partition = session.whole_partition(state, given)
    have = files_by_partition(state)
    files = have.get(tuple(partition.values()))
    if files is None:
        reader = PartitionReader(state.schema, state.paths)
        folders = sorted(reader.folder(files[0].partition) for files in have.values())
        raise NotFound(
            f"table '{state.name}' has no partition ({', '.join(f'{k}={v}' for k, v in given.items())})"
            f"{near(str(next(iter(given.values()))), folders)}; SHOW PARTITIONS lists them"
        )
    return files


def _partition(session: Session, table: FileStoreTable, statement: st.ShowTableExtended) -> str:
    state = table.state()
    files = _partition_files(session, state, statement.partition or {})
    folder = PartitionReader(state.schema, state.paths).folder(files[0].partition)
    size, rows = sum(e.file.file_size for e in files), sum(e.file.row_count for e in files)
    facts = f"numFiles={len(files)}, recordCount={rows}, totalSize={size}"
    pairs = ", ".join(folder.split("/"))
    return f"Partition Values: [{pairs}]\nLocation: {table.path}/{folder}\nPartition Parameters: {{{facts}}}\n"
