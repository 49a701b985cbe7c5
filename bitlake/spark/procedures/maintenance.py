"""Maintenance procedures of tables and of whole databases; arguments and results are Paimon's.

``sys.advise`` recommends indexes and layout from a sample that executors read.  ``sys.verify`` checks a table's files
on the executors, and lists what can be repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.catalog.identifier import Identifier
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata import options as opt
from bitlake.metadata.options import Option, Options
from bitlake.metadata.paths import render_value
from bitlake.runtime import LocalRunner, Runner
from bitlake.schema.partition_age import PartitionAge
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.snapshot.partitions import mark_partition_done
from bitlake.spark.analyze import analyzable, analyze_table
from bitlake.spark.context import EngineContext
from bitlake.spark.ddl import alter_dialect, create_table_like
from bitlake.spark.dml.insert import store
from bitlake.spark.errors import spark_errors
from bitlake.spark.partitions import static_values
from bitlake.spark.procedures.compact import compact
from bitlake.spark.procedures.procedure import (
    DRY_RUN,
    OPTIONS,
    PARALLELISM,
    TABLE,
    Parameter,
    Procedure,
    done,
    epoch_millis,
    flag,
    integer,
    needed,
    options_of,
    pattern,
    table_of,
    text,
    workers,
)
from bitlake.spark.runner import SparkRunner
from bitlake.sql.parser import parse_table_name
from bitlake.sql.statements import CreateTableLike
from bitlake.sql.workload import advise_for
from bitlake.table.maintenance import TableMaintenance
from bitlake.table.migrate import migrate_folder
from bitlake.tools.advise.advice import Advice
from bitlake.tools.verify.repair import Indexes, Repair
from bitlake.types import AtomicType
from bitlake.write.commit_plan import physical_partition
from bitlake.write.merge_branch import merge_branch

log = logging.getLogger("bitlake")
Arguments = dict[str, Any]
_OLDER = Parameter("older_than", False, "only files last changed before this time; default: a day ago")
SOURCE_TYPE = Parameter("source_type", True, "'parquet' or 'hive'")
MADE_WITH = Parameter("options", False, "table options, as 'name=value,name=value'")
OPTIONS_MAP = Parameter("options_map", False, "table options, as map('k', 'v')")
_TABLES = Parameter("table", True, "the table, as 'db.table', or all of 'db.*'")


# --- files and migration ----------------------------------------------------------------------------------------------


def _tables(context: EngineContext, given: Any) -> list[FileStoreTable]:
    """One table, or all of ``db.*``."""
    if isinstance(given, str) and given.endswith(".*"):
        database = given.removesuffix(".*").strip("`")
        return [table_of(context, f"`{database}`.`{name}`") for name in context.catalog.tables(database)]
    return [table_of(context, given)]


def _remove_orphan_files(context: EngineContext, a: Arguments) -> DataFrame:
    older = a.get("older_than")
    limit = None if older is None else epoch_millis(context, older)
    at_a_time = workers(a)
    runner: Runner
    match (text(a, "mode") or "distributed").lower():
        case "local":
            runner = LocalRunner(at_a_time)
        case "distributed":
            runner = SparkRunner(context.spark, at_a_time)
        case _:
            raise InvalidRequest(f"'mode' is local or distributed, not '{a['mode']}'")
    files = size = 0
    for table in _tables(context, a["table"]):
        found = TableMaintenance(table, runner).remove_orphan_files(limit, dry_run=flag(a, "dry_run"))
        files, size = files + len(found), size + sum(o.size for o in found)
    columns = [("deletedFileCount", T.LongType()), ("deletedFileTotalLenInBytes", T.LongType())]
    return context.rows(columns, [(files, size)])


def _remove_unexisting_files(context: EngineContext, a: Arguments) -> DataFrame:
    runner, dry_run = SparkRunner(context.spark, workers(a)), flag(a, "dry_run")
    tables = _tables(context, a["table"])
    gone = [p for table in tables for p in TableMaintenance(table, runner).remove_unexisting_files(dry_run=dry_run)]
    return context.rows([("fileName", T.StringType())], [(p.rsplit("/", 1)[1],) for p in gone])


def _purge_files(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    TableMaintenance(table).purge_files()
    return context.rows([("result", T.StringType())], [(f"Success purge files with table: {table.name}.",)])


def _repair(context: EngineContext, a: Arguments) -> DataFrame:
    given = str(a["database_or_table"])
    for name in given.split(",") if given.strip() else context.catalog.databases():
        one = name.strip()
        if "." not in one and context.catalog.database_exists(one):
            one = f"{one}.*"
        for table in _tables(context, one):
            TableMaintenance(table).repair_hints()
    return done(context)


def migrate_table(context: EngineContext, a: Arguments) -> DataFrame:
    """``CALL sys.migrate_table`` with these arguments."""
    kind = needed(a, "source_type").lower()
    if kind not in ("hive", "parquet"):
        raise InvalidRequest(f"'source_type' is hive or parquet (both: a folder of Parquet files), not '{kind}'")
    at_a_time = workers(a)
    source = needed(a, "table")
    more = a.get("options_map") or {}
    if not isinstance(more, dict):
        raise InvalidRequest(f"'options_map' must be a map, as map('k', 'v'), and is {more!r}")
    options = {**options_of(a), **{str(k): str(v) for k, v in more.items()}}
    target = text(a, "target_table")
    folder = source
    if "/" in source and flag(a, "delete_origin"):
        raise InvalidRequest("'delete_origin' is for a table of Spark's catalog, and 'table' is a folder, which stays")
    if "/" not in source:
        folder = _location(context, source)
        target = target or source.rsplit(".", 1)[-1]
    if target is None:
        raise InvalidRequest("sys.migrate_table needs 'target_table' where 'table' is a folder")
    name = parse_table_name(target)
    identifier = Identifier(name.database or context.database, name.table)
    migrate_folder(context.catalog, folder, identifier, options, LocalRunner(at_a_time))
    table_of(context, target).rebuild_indexes()
    if "/" not in source and (a.get("delete_origin") is None or flag(a, "delete_origin")):
        with spark_errors(f"dropping {source}"):
            context.spark.sql(f"DROP TABLE IF EXISTS spark_catalog.{source}")
    return done(context)


def _location(context: EngineContext, name: str) -> str:
    """The folder of a table of Spark's own catalog."""
    with spark_errors(f"looking for {name} in Spark's own catalog"):
        rows = context.spark.sql(f"DESCRIBE TABLE EXTENDED spark_catalog.{name}").collect()
    facts = {r[0]: r[1] for r in rows}
    if (facts.get("Provider") or "").lower() not in ("parquet", "hive"):
        raise InvalidRequest(f"table '{name}' of Spark's catalog is of {facts.get('Provider')}; only Parquet can move")
    return str(facts["Location"])


def _analyze(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    given = text(a, "columns")
    columns = None if given is None else tuple(c.strip() for c in given.split(",") if c.strip())
    if columns is None:
        columns = analyzable(table)
    analyze_table(context, table, [table.schema.field(c).name for c in columns])
    return context.rows([("snapshot_id", T.LongType())], [(table.state().snapshot_id,)])


# --- partitions -------------------------------------------------------------------------------------------------------


def _specs(context: EngineContext, table: FileStoreTable, given: str) -> list[dict[str, Any]]:
    """``a=1,b=2;a=3`` as physical values by column."""
    state = table.state()
    out = []
    for spec in filter(None, (p.strip() for p in given.split(";"))):
        values = {}
        for pair in spec.split(","):
            name, sign, value = pair.partition("=")
            column = state.schema.field(name.strip()).name
            if not sign or column not in state.schema.partition_keys:
                raise InvalidRequest(f"table '{table.name}': partitions are column=value, and '{pair.strip()}' is not")
            values[column] = value.strip().strip("'\"")
        out.append(static_values(context, state, values))
    if not out:
        raise InvalidRequest(f"table '{table.name}': 'partitions' names none; write 'a=1,b=2;a=3,b=4'")
    return out


def _drop_partition(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    table.truncate(*_specs(context, table, needed(a, "partitions")))
    return done(context)


def _mark_partition_done(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    for spec in _specs(context, table, needed(a, "partitions")):
        mark_partition_done(table.state(), spec)
    return done(context)


def _expire_partitions(context: EngineContext, a: Arguments) -> DataFrame:
    table = table_of(context, a["table"])
    options = {**table.schema.options, **options_of(a)}
    for argument, option in _EXPIRY.items():
        value = text(a, argument)
        if value is not None:
            options[option.name] = value
    age = PartitionAge.of(options)
    if age is None:
        raise InvalidRequest("sys.expire_partitions needs 'expiration_time', such as '7 d'")
    shown = []
    for values in TableMaintenance(table).expire_partitions(
        timedelta(milliseconds=age.limit_ms),
        formatter=age.formatter,
        pattern=age.pattern,
        strategy=age.strategy,
        max_expires=Options(options).of(opt.PARTITION_EXPIRATION_MAX_NUM),
        dry_run=flag(a, "dry_run"),
    ):
        physical = physical_partition(table.name, table.schema, values) or {}
        pairs = []
        for f in table.schema.partition_fields:
            assert isinstance(f.type, AtomicType)
            value = physical[f.name]
            pairs.append(f"{f.name}={'null' if value is None else render_value(f.type, value, legacy=False)}")
        shown.append((", ".join(pairs),))
    return context.rows([("expired_partitions", T.StringType())], shown or [("No expired partitions.",)])


_EXPIRY: dict[str, Option[Any]] = {
    "expiration_time": opt.PARTITION_EXPIRATION_TIME,
    "timestamp_formatter": opt.PARTITION_TIMESTAMP_FORMATTER,
    "timestamp_pattern": opt.PARTITION_TIMESTAMP_PATTERN,
    "expire_strategy": opt.PARTITION_EXPIRATION_STRATEGY,
    "max_expires": opt.PARTITION_EXPIRATION_MAX_NUM,
}
"""Arguments of expire_partitions, each with the option that it stands for and that is its default."""
_PARTITIONS = Parameter("partitions", True, "partitions, as 'a=1,b=2;a=3,b=4'")
_TABLE_PROCEDURES = (
    Procedure(
        "analyze",
        (TABLE, Parameter("columns", False, "columns between commas; default: all that can have statistics")),
        "Find statistics of columns, which $statistics shows.",
        _analyze,
    ),
    Procedure("drop_partition", (TABLE, _PARTITIONS), "Delete the rows of partitions.", _drop_partition),
    Procedure(
        "expire_partitions",
        (
            TABLE,
            Parameter("expiration_time", False, "how old a partition may get, as '7 d'; default: the table's option"),
            Parameter("timestamp_formatter", False, "how times are written in partitions, as 'yyyy-MM-dd'"),
            Parameter("timestamp_pattern", False, "where they are, as '$dt $hour:00:00'"),
            Parameter("expire_strategy", False, "'values-time' (default), or 'update-time': when files were written"),
            Parameter("max_expires", False, "expire at most this many partitions; default: 100"),
            OPTIONS,
            DRY_RUN,
        ),
        "Delete the rows of partitions that are too old.",
        _expire_partitions,
    ),
    Procedure(
        "mark_partition_done",
        (TABLE, _PARTITIONS),
        "Put a file _SUCCESS into the folders of partitions.",
        _mark_partition_done,
    ),
    Procedure(
        "migrate_table",
        (
            SOURCE_TYPE,
            Parameter("table", True, "a folder of Parquet files, or a table of Spark's own catalog"),
            MADE_WITH,
            Parameter("delete_origin", False, "false: leave the (then empty) table in Spark's catalog"),
            Parameter("target_table", False, "the table to be; default: the same name"),
            OPTIONS_MAP,
            PARALLELISM,
        ),
        "Make a table of existing Parquet files by moving them; indexes that the options ask for are built.",
        migrate_table,
    ),
    Procedure("purge_files", (TABLE,), "Delete everything but the schemas: rows, tags, branches.", _purge_files),
    Procedure(
        "remove_orphan_files",
        (
            _TABLES,
            _OLDER,
            DRY_RUN,
            PARALLELISM,
            Parameter("mode", False, "'distributed' (default): by the executors; 'local': by threads of the driver"),
        ),
        "Delete files that nothing names: what killed writers left.",
        _remove_orphan_files,
    ),
    Procedure(
        "remove_unexisting_files",
        (_TABLES, DRY_RUN, PARALLELISM),
        "Take data files that are gone out of the table, so that it can be read again; their rows are lost.",
        _remove_unexisting_files,
    ),
    Procedure(
        "repair",
        (Parameter("database_or_table", True, "names between commas"),),
        "Rewrite the hints of the first and last snapshot; this catalog keeps nothing else beside the files.",
        _repair,
    ),
)


# --- advice -----------------------------------------------------------------------------------------------------------

_ADVICE_COLUMNS: list[tuple[str, T.DataType]] = [
    ("subject", T.StringType()),
    ("now", T.StringType()),
    ("advice", T.StringType()),
    ("index_bytes", T.LongType()),
    ("build_seconds", T.DoubleType()),
    ("bytes_before", T.LongType()),
    ("bytes_after", T.LongType()),
    ("reason", T.StringType()),
    ("statement", T.StringType()),
    ("real_index_bytes", T.LongType()),
    ("real_build_seconds", T.DoubleType()),
    ("real_bytes_before", T.LongType()),
    ("real_bytes_after", T.LongType()),
]
_NOT_MEASURED = (None,) * 4


def _advise(context: EngineContext, a: dict[str, Any]) -> DataFrame:
    table = table_of(context, a["table"])
    queries = text(a, "queries")
    advice = advise_for(
        context.catalog,
        table,
        None if queries is None else [queries],
        context.database,
        flag(a, "recorded"),
        workers(a, "sample"),
        runner=SparkRunner(context.spark, workers(a)),
    )
    if flag(a, "apply"):
        advice = advice.apply()
    return context.rows(_ADVICE_COLUMNS, [*_rows(advice)])


def _rows(advice: Advice) -> Iterator[tuple[Any, ...]]:
    done = advice.measured
    built = {} if done is None else {(i.column, i.index_type): i.bytes for i in done.indexes}
    for c in advice.columns:
        e = c.chosen
        word = c.index if c.action in ("add", "replace") else c.action
        known = (
            (None,) * 4 if e is None else (e.index_bytes, e.build_seconds, round(e.bytes_before), round(e.bytes_after))
        )
        real: tuple[Any, ...] = _NOT_MEASURED
        if done is not None and (c.column, c.index) in built:
            real = (built[c.column, c.index], None, *_rounded(done.bytes_of(c.column)))
        yield (c.column, ", ".join(c.now) or None, word, *known, c.reason, None, *real)
    for item in advice.layout:
        sizes = [None if s is None else round(s) for s in (item.bytes_before, item.bytes_after)]
        told = "; ".join(item.statements)
        yield (item.kind, None, item.value, None, None, *sizes, item.reason, told, *_NOT_MEASURED)
    if done is not None:
        expected = (done.estimated_index_bytes, done.estimated_seconds, *_rounded(done.expected_bytes_of()))
        said = "what the statements brought, beside the estimates"
        real = (done.index_bytes, done.seconds, *_rounded(done.bytes_of()))
        yield ("measured", None, None, *expected, said, None, *real)
    for s in advice.statements():
        yield ("statement", *(None,) * 7, s, *_NOT_MEASURED)


def _rounded(sizes: tuple[float, float] | None) -> tuple[int | None, int | None]:
    return (None, None) if sizes is None else (round(sizes[0]), round(sizes[1]))


_ADVISE_PROCEDURES = (
    Procedure(
        "advise",
        (
            TABLE,
            Parameter("queries", False, "SQL queries with ; between them, or a condition; default: typical ones"),
            Parameter("recorded", False, "true: the scans that the lake recorded, too"),
            Parameter("sample", False, "about how many rows are looked at; default: 500000"),
            Parameter("apply", False, "true: add the indexes that are advised, and measure what they bring"),
            PARALLELISM,
        ),
        "Say which indexes and which layout a table should have, and why: a row for each column; changes nothing "
        "unless apply is true.",
        _advise,
    ),
)


# --- verification -----------------------------------------------------------------------------------------------------

_FINDING_COLUMNS: list[tuple[str, T.DataType]] = [
    ("severity", T.StringType()),
    ("code", T.StringType()),
    ("file", T.StringType()),
    ("what", T.StringType()),
    ("column", T.StringType()),
    ("offset", T.LongType()),
    ("snapshots", T.StringType()),
    ("remedy", T.StringType()),
]


def _verify(context: EngineContext, a: dict[str, Any]) -> DataFrame:
    table = table_of(context, a["table"])
    maintenance = TableMaintenance(table, SparkRunner(context.spark, workers(a)))
    deep = True if a.get("deep") is None else flag(a, "deep")
    report = maintenance.verify(deep, snapshots=_snapshots(a))
    rows: list[tuple[Any, ...]] = [
        (f.severity, f.code, f.path, f.what, f.column, f.offset, ", ".join(f.snapshots), f.remedy)
        for f in report.findings
    ]
    if flag(a, "repair"):
        dry_run = True if a.get("dry_run") is None else flag(a, "dry_run")
        rows += _repaired(maintenance.repair(report, dry_run=dry_run, indexes=_indexes(a)))
    return context.rows(_FINDING_COLUMNS, rows)


def _repaired(done: Repair) -> list[tuple[Any, ...]]:
    """A row for each repair, after those of the findings."""
    word = "repaired" if done.done else "would repair"
    made = None if done.snapshot is None else f"snapshot {done.snapshot}"
    return [(word, a.code, a.path, a.what, None, None, made, None) for a in done.actions]


def _snapshots(a: dict[str, Any]) -> list[int] | None:
    given = text(a, "snapshots")
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as e:
        raise InvalidRequest(f"'snapshots' are ids between commas, such as '3,4', and not '{given}'") from e


def _indexes(a: dict[str, Any]) -> Indexes:
    given = text(a, "indexes") or "rebuild"
    if given in ("rebuild", "drop"):
        return cast("Indexes", given)
    raise InvalidRequest(f"'indexes' is rebuild or drop, not '{given}'")


_VERIFY_PROCEDURES = (
    Procedure(
        "verify",
        (
            TABLE,
            Parameter("deep", False, "false: only metadata, sizes and footers; default: data and indexes, too"),
            Parameter("snapshots", False, "only these, as '3,4', without tags, branches and hints"),
            Parameter("repair", False, "true: also repair what can be rebuilt from what is sound"),
            Parameter("dry_run", False, "with repair: false carries it out; default: only say what would be done"),
            Parameter("indexes", False, "with repair: 'rebuild' damaged file indexes (the default) or 'drop' them"),
            PARALLELISM,
        ),
        "Check every file of a table against its metadata; return a row for each fault.",
        _verify,
    ),
)


# --- databases, manifests, automatic tags and branches ----------------------------------------------------------------


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


_DATABASE_PROCEDURES = (
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


PROCEDURES = (*_TABLE_PROCEDURES, *_DATABASE_PROCEDURES, *_VERIFY_PROCEDURES, *_ADVISE_PROCEDURES)
