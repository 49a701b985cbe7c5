"""Statements that show what there is."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.metadata.partition import render_value
from bitlake.predicate.dialect import quoted
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import static_values
from bitlake.sql import statements as st
from bitlake.sql.ddl_types import type_to_ddl
from bitlake.table.partitions import PartitionReader
from bitlake.types import AtomicType, DataField

_TEXT = T.StringType()


def like_names(names: Iterable[str], pattern: str | None) -> list[str]:
    """Names that match a SHOW … LIKE pattern: ``*`` is any text and ``|`` separates alternatives, ignoring case."""
    if pattern is None:
        return list(names)
    wanted = [p.strip().lower().replace("%", "*") for p in pattern.split("|")]
    return [n for n in names if any(fnmatch.fnmatchcase(n.lower(), p) for p in wanted)]


def databases(context: EngineContext, statement: st.ShowDatabases) -> DataFrame:
    """SHOW DATABASES."""
    names = sorted({*context.catalog.databases(), "default"})
    return context.rows([("namespace", _TEXT)], [(n,) for n in like_names(names, statement.like)])


def tables(context: EngineContext, statement: st.ShowTables) -> DataFrame:
    """SHOW TABLES: the lake's only; Spark's views are in ``spark.catalog``."""
    database = statement.database or context.database
    found = like_names(context.catalog.tables(database), statement.like)
    columns = [("namespace", _TEXT), ("tableName", _TEXT), ("isTemporary", T.BooleanType())]
    return context.rows(columns, [(database, n, False) for n in found])


def create_table(context: EngineContext, statement: st.ShowCreateTable) -> DataFrame:
    """SHOW CREATE TABLE: a statement that makes the same table again."""
    name = context.identify(statement.table)
    schema = context.catalog.load_schema(name)
    columns = []
    for f in schema.fields:
        line = f"  {_name(f.name)} {type_to_ddl(f.type)}"
        if not f.type.nullable:
            line += " NOT NULL"
        if f.default_value is not None:
            line += f" DEFAULT {f.default_value}"
        if f.description is not None:
            line += f" COMMENT {_quoted(f.description)}"
        columns.append(line)
    text = f"CREATE TABLE {_name(name.database)}.{_name(name.table)} (\n" + ",\n".join(columns) + ")\n"
    if schema.partition_keys:
        text += f"PARTITIONED BY ({', '.join(_name(k) for k in schema.partition_keys)})\n"
    if schema.comment is not None:
        text += f"COMMENT {_quoted(schema.comment)}\n"
    options = dict(sorted(schema.options.items()))
    if schema.primary_keys:
        options["primary-key"] = ",".join(schema.primary_keys)
    if options:
        pairs = ",\n".join(f"  {_quoted(k)} = {_quoted(v)}" for k, v in options.items())
        text += f"TBLPROPERTIES (\n{pairs})\n"
    return context.rows([("createtab_stmt", _TEXT)], [(text,)])


def partitions(context: EngineContext, statement: st.ShowPartitions) -> DataFrame:
    """SHOW PARTITIONS: those with live files, optionally only the ones that match a spec."""
    table = context.table(context.identify(statement.table))
    state = table.state()
    keys = state.schema.partition_keys
    if not keys:
        raise InvalidRequest(f"table '{table.name}' is not partitioned")
    entries = state.entries()
    reader = PartitionReader(state.schema, state.paths)
    wanted = {}
    if statement.partition:
        spec = {state.schema.field(k).name: v for k, v in statement.partition.items()}
        wanted = static_values(context, state, spec)
    found = set()
    for raw in {e.partition for e in entries}:
        values = dict(zip(keys, reader.values(raw), strict=True))
        if all(values.get(k) == v for k, v in wanted.items()):
            fields = state.schema.partition_fields
            found.add("/".join(f"{f.name}={_shown(values[f.name], f)}" for f in fields))
    return context.rows([("partition", _TEXT)], [(p,) for p in sorted(found)])


def _shown(value: object, field: DataField) -> str:
    assert isinstance(field.type, AtomicType)
    return "null" if value is None else render_value(field.type, value, legacy=False)


def properties(context: EngineContext, statement: st.ShowTblProperties) -> DataFrame:
    """SHOW TBLPROPERTIES, or the value of one."""
    schema = context.catalog.load_schema(context.identify(statement.table))
    columns = [("key", _TEXT), ("value", _TEXT)]
    if statement.key is not None:
        value = schema.options.get(statement.key)
        shown = f"table {context.identify(statement.table)} does not have property: {statement.key}"
        return context.rows(columns, [(statement.key, shown if value is None else value)])
    return context.rows(columns, sorted(schema.options.items()))


def describe(context: EngineContext, statement: st.Describe) -> DataFrame:
    """DESCRIBE TABLE; EXTENDED adds where it is, its keys and options."""
    name = context.identify(statement.table)
    table = context.table(name)
    state = table.state()
    schema = state.schema
    if statement.column is not None:
        field = schema.field(statement.column)
        facts = [("col_name", field.name), ("data_type", _shown_type(field)), ("comment", field.description or "NULL")]
        return context.rows([("info_name", _TEXT), ("info_value", _TEXT)], facts)
    rows: list[tuple[str, str, str | None]] = [(f.name, _shown_type(f), f.description) for f in schema.fields]
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(f.name, _shown_type(f), f.description) for f in schema.partition_fields]
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", ""), ("Name", str(name), "")]
        rows += [("Comment", schema.comment, "")] if schema.comment else []
        rows += [("Location", table.path, ""), ("Provider", "paimon", "")]
        rows += [("Primary key", ", ".join(schema.primary_keys), "")] if schema.primary_keys else []
        rows += [("Schema", f"{schema.id}", "")]
        if state.snapshot is not None:
            rows += [("Snapshot", str(state.snapshot.id), ""), ("Rows", f"{state.snapshot.total_record_count}", "")]
        shown = ", ".join(f"{k}={v}" for k, v in sorted(schema.options.items()))
        rows += [("Table Properties", f"[{shown}]", "")]
    columns = [("col_name", _TEXT), ("data_type", _TEXT), ("comment", _TEXT)]
    return context.rows(columns, rows)


def _shown_type(field: DataField) -> str:
    return type_to_ddl(field.type).lower()


def _name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quoted(name)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
