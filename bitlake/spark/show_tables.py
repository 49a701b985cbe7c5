"""SHOW TABLE EXTENDED, SHOW COLUMNS, SHOW TAGS, SHOW VIEWS and DESCRIBE DATABASE."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata.schema import near
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import static_values
from bitlake.spark.show import like_names
from bitlake.spark.types import spark_schema
from bitlake.sql import statements as st
from bitlake.table.partitions import PartitionReader, files_by_partition
from bitlake.table.relation import Identifier
from bitlake.table.table import Table

_TEXT = T.StringType()


def columns(context: EngineContext, statement: st.ShowColumns) -> DataFrame:
    """SHOW COLUMNS."""
    schema = context.table(context.identify(statement.table)).state().schema
    return context.rows([("col_name", _TEXT)], [(n,) for n in schema.field_names])


def tags(context: EngineContext, statement: st.ShowTags) -> DataFrame:
    """SHOW TAGS."""
    table = context.table(context.identify(statement.table))
    return context.rows([("tag", _TEXT)], [(n,) for n in sorted(table.tags())])


def describe_database(context: EngineContext, statement: st.DescribeDatabase) -> DataFrame:
    """DESCRIBE DATABASE; EXTENDED adds its properties."""
    properties = context.catalog.database_properties(statement.name)
    rows = [("Catalog Name", "paimon"), ("Namespace Name", statement.name)]
    comment = properties.pop("comment", None)
    rows += [] if comment is None else [("Comment", comment)]
    rows += [("Location", context.catalog.database_path(statement.name))]
    if statement.extended:
        pairs = ", ".join(f"({k},{v})" for k, v in sorted(properties.items()))
        rows += [("Properties", f"({pairs})" if pairs else "")]
    return context.rows([("info_name", _TEXT), ("info_value", _TEXT)], rows)


def extended(context: EngineContext, statement: st.ShowTableExtended) -> DataFrame:
    """SHOW TABLE EXTENDED: facts of the tables whose names match, or of a partition of the one that is named."""
    database = statement.database or context.database
    shown = [("namespace", _TEXT), ("tableName", _TEXT), ("isTemporary", T.BooleanType()), ("information", _TEXT)]
    if statement.partition is not None:
        name = context.catalog.find(Identifier(database, statement.like), context.names)
        table = context.table(name)
        return context.rows(shown, [(database, name.table, False, _partition(context, table, statement))])
    names = like_names(context.catalog.tables(database), statement.like)
    rows = [(database, n, False, _information(context.table(Identifier(database, n)), database, n)) for n in names]
    return context.rows(shown, rows)


def _information(table: Table, database: str, name: str) -> str:
    schema = table.state().schema
    facts = {"Catalog": "paimon", "Namespace": database, "Table": name, "Type": "MANAGED"}
    if schema.comment is not None:
        facts["Comment"] = schema.comment
    facts |= {"Location": table.path, "Provider": "paimon"}
    options = dict(schema.options)
    if schema.primary_keys:
        options["primary-key"] = ",".join(schema.primary_keys)
    pairs = ", ".join(f"{k}={v}" for k, v in sorted(options.items()))
    facts["Table Properties"] = f"[{pairs}]"
    if schema.partition_keys:
        facts["Partition Provider"] = "Catalog"
        facts["Partition Columns"] = "[" + ", ".join(f"`{k}`" for k in schema.partition_keys) + "]"
    text = "\n".join(f"{k}: {v}" for k, v in facts.items())
    return f"{text}\nSchema: {spark_schema(schema.fields).treeString()}\n"


def _partition(context: EngineContext, table: Table, statement: st.ShowTableExtended) -> str:
    state = table.state()
    given = statement.partition or {}
    keys = {context.names.key(k): k for k in state.schema.partition_keys}
    unknown = [k for k in given if context.names.key(k) not in keys]
    if unknown or len(given) < len(keys):
        have = ", ".join(keys.values()) or "none"
        raise InvalidRequest(
            f"table '{table.name}': PARTITION must give a value for each of its partition columns: {have}"
        )
    wanted = static_values(context, state, {keys[context.names.key(k)]: v for k, v in given.items()})
    reader = PartitionReader(state.schema, state.paths)
    there = files_by_partition(state)
    found = there.get(tuple(wanted[k] for k in state.schema.partition_keys))
    if found is None:
        folders = sorted(reader.folder(files[0].partition) for files in there.values())
        raise NotFound(
            f"table '{table.name}' has no partition ({', '.join(f'{k}={v}' for k, v in given.items())})"
            f"{near(str(next(iter(given.values()))), folders)}; SHOW PARTITIONS lists them"
        )
    rows = sum(e.file.row_count for e in found)
    size = sum(e.file.file_size for e in found)
    folder = reader.folder(found[0].partition)
    facts = f"numFiles={len(found)}, recordCount={rows}, totalSize={size}"
    pairs = ", ".join(folder.split("/"))
    return f"Partition Values: [{pairs}]\nLocation: {table.path}/{folder}\nPartition Parameters: {{{facts}}}\n"
