"""Procedures of whole databases, of manifests, and of tags by the period; arguments and results are Paimon's."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.catalog.identifier import Identifier
from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata import options as opt
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.spark.context import EngineContext
from bitlake.spark.ddl import alter_dialect, create_table_like
from bitlake.spark.dml.insert import store
from bitlake.spark.errors import spark_errors
from bitlake.spark.procedures.compact import compact
from bitlake.spark.procedures.maintenance import MADE_WITH, OPTIONS_MAP, SOURCE_TYPE, migrate_table
from bitlake.spark.procedures.procedure import (
    OPTIONS,
    PARALLELISM,
    TABLE,
    Parameter,
    Procedure,
    done,
    flag,
    integer,
    needed,
    options_of,
    pattern,
    table_of,
    text,
)
from bitlake.sql.parser import parse_table_name
from bitlake.sql.statements import CreateTableLike
from bitlake.table.maintenance import TableMaintenance
from bitlake.write.merge_branch import merge_branch

log = logging.getLogger("bitlake")
Arguments = dict[str, Any]


def _compact_database(context: EngineContext, a: Arguments) -> DataFrame:
    databases = pattern(a, "including_databases")
    included, excluded = pattern(a, "including_tables"), pattern(a, "excluding_tables")
    good = bad = 0
    for database in context.catalog.databases():
        if databases is not None and not databases.fullmatch(database):
            continue
        for name in context.catalog.tables(database):
            full = f"{database}.{name}"
            if included is not None and not included.fullmatch(full):
                continue
            if excluded is not None and excluded.fullmatch(full):
                continue
            try:
                compact(context, context.session_table(Identifier(database, name)), {"options": text(a, "options")})
                good += 1
            except BitlakeError as e:
                log.error("table '%s' was not compacted: %s", full, e)
                bad += 1
    return context.rows([("result", T.StringType())], [(f"Compact database finished. Success: {good}, Failed: {bad}",)])


def _migrate_database(context: EngineContext, a: Arguments) -> DataFrame:
    database = needed(a, "database")
    with spark_errors(f"looking for database {database} in Spark's own catalog"):
        rows = context.spark.sql(f"SHOW TABLES IN spark_catalog.{quoted(database)}").collect()
    names = [r["tableName"] for r in rows if not r["isTemporary"]]
    context.catalog.create_database(database, if_not_exists=True)
    good = bad = 0
    for name in names:
        one = {k: v for k, v in a.items() if k != "database"}
        full = quoted(database, name)
        try:
            migrate_table(context, {**one, "table": full, "target_table": full})
            good += 1
        except BitlakeError as e:
            log.error("table '%s.%s' was not migrated: %s", database, name, e)
            bad += 1
    result = f"migrate database is finished, success cnt: {good} , failed cnt: {bad}"
    return context.rows([("result", T.StringType())], [(result,)])


def _copy(context: EngineContext, a: Arguments) -> DataFrame:
    source = table_of(context, a["source_table"])
    names = [parse_table_name(needed(a, name)) for name in ("target_table", "source_table")]
    where = text(a, "where")
    state = source.state()
    source.partition_files(state, where)  # refuses conditions on other columns
    create_table_like(context, CreateTableLike(names[0], names[1]))
    target = table_of(context, a["target_table"])
    try:
        store(context, target, target.state(), source.scan_of(state, where).to_spark(), "WRITE")
    except BaseException:
        context.catalog.drop_table(context.identify(names[0]), if_exists=True)
        raise
    return done(context)


def _trigger_tags(context: EngineContext, a: Arguments) -> DataFrame:
    TableMaintenance(table_of(context, a["table"])).create_automatic_tags()
    return done(context)


def _merge_branch(context: EngineContext, a: Arguments) -> DataFrame:
    merge_branch(table_of(context, a["table"]), needed(a, "source_branch"), text(a, "target_branch") or MAIN)
    return done(context)


def _repair_earliest(context: EngineContext, a: Arguments) -> DataFrame:
    ids = TableMaintenance(table_of(context, a["table"])).repair_earliest_snapshot(integer(a, "snapshot_id") or 0)
    columns = [("previous_earliest_snapshot_id", T.LongType()), ("current_earliest_snapshot_id", T.LongType())]
    return context.rows(columns, [ids])


def _compact_manifest(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    options = options_of(a)
    if flag(a, "dry_run"):
        log.info("%s", _manifest_facts(table, options))
    else:
        TableMaintenance(table).compact_manifests(options)
    return done(context)


def _manifest_facts(table: FileStoreTable, options: dict[str, str]) -> str:
    state = table.state()
    if state.snapshot is None:
        return f"table '{table.name}' has no manifests"
    metas = snapshot_manifests(state.table_files, state.snapshot)
    target = state.schema.with_options(options).opts.of(opt.MANIFEST_TARGET_SIZE)
    due = [m for m in metas if m.num_deleted_files > 0 or m.file_size < target]
    size = sum(m.file_size for m in metas)
    return f"table '{table.name}': {len(metas)} manifests of {size} bytes, {len(due)} of them would be rewritten"


def _alter_view_dialect(context: EngineContext, a: Arguments) -> DataFrame:
    view = parse_table_name(needed(a, "view"))
    query = text(a, "query")
    alter_dialect(context, view, needed(a, "action").lower(), (text(a, "engine") or "").strip() or "spark", query)
    return done(context)


PROCEDURES = (
    Procedure(
        "alter_view_dialect",
        (
            Parameter("view", True, "the view, as 'db.view', of a jdbc catalog"),
            Parameter("action", True, "'add', 'update' or 'drop'"),
            Parameter("engine", False, "whose query it is; default: spark"),
            Parameter("query", False, "the query, to add or update"),
        ),
        "Say what a view that the catalog keeps is to an engine.",
        _alter_view_dialect,
    ),
    Procedure(
        "compact_database",
        (
            Parameter("including_databases", False, "a regular expression of databases; default: all"),
            Parameter("including_tables", False, "a regular expression of 'db.table'; default: all"),
            Parameter("excluding_tables", False, "a regular expression of 'db.table' that are left out"),
            OPTIONS,
        ),
        "Compact the tables of databases, one after the other; one that fails is logged and counted.",
        _compact_database,
    ),
    Procedure(
        "compact_manifest",
        (TABLE, OPTIONS, Parameter("dry_run", False, "true: only log what there is")),
        "Rewrite small manifests and those with deletions, so that planning opens few.",
        _compact_manifest,
    ),
    Procedure(
        "copy",
        (
            Parameter("source_table", True, "the table, as 'db.table'"),
            Parameter("target_table", True, "the table to be made"),
            Parameter("where", False, "a condition on partition columns; default: all rows"),
        ),
        "Make a table with the columns, keys, options and rows of another; rows are rewritten.",
        _copy,
    ),
    Procedure(
        "migrate_database",
        (
            SOURCE_TYPE,
            Parameter("database", True, "a database of Spark's own catalog"),
            MADE_WITH,
            OPTIONS_MAP,
            PARALLELISM,
        ),
        "Make lake tables of all Parquet tables of a database, by moving their files; see migrate_table.",
        _migrate_database,
    ),
    Procedure(
        "merge_branch",
        (
            TABLE,
            Parameter("source_branch", True, "the branch whose rows are to be added"),
            Parameter("target_branch", False, "the branch that gets them; default: main"),
        ),
        "Add the files of a branch to another, of an append table to both of which rows were only added.",
        _merge_branch,
    ),
    Procedure(
        "repair_earliest_snapshot",
        (TABLE, Parameter("snapshot_id", True, "the snapshot with which the table's history begins")),
        "Set the hint of the first snapshot, where those before it are gone or damaged.",
        _repair_earliest,
    ),
    Procedure(
        "trigger_tag_automatic_creation",
        (TABLE,),
        "Make the tags that are due by the table's options tag.automatic-creation, tag.creation-period ….",
        _trigger_tags,
    ),
)
"""Procedures of whole databases, of manifests, and of tags by the period."""
