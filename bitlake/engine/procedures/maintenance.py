"""Maintenance procedures of tables and of whole databases; arguments and results are Paimon's.

``sys.advise`` recommends indexes and layout from a sample.  ``sys.verify`` checks a table's files, and lists what can
be repaired.  The session's runner (on Spark: its executors) does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa

from bitlake.catalog.catalog import Identifier
from bitlake.engine.ddl import analyze_table, checked_query, create_table_like
from bitlake.engine.procedures.compact import compact
from bitlake.engine.procedures.procedure import (
    DRY_RUN,
    OPTIONS,
    PARALLELISM,
    TABLE,
    Arguments,
    Parameter,
    procedure,
    table_of,
)
from bitlake.engine.session import Columns, Session, result
from bitlake.errors import AccessDenied, BitlakeError, InvalidRequest
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata import options as opt
from bitlake.metadata.option_types import timedelta_of
from bitlake.metadata.options import Option, Options, PartitionAge
from bitlake.metadata.paths import render_value
from bitlake.runtime import LocalRunner, Runner
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.snapshot.partitions import PartitionReader, mark_partition_done
from bitlake.sql.parser import parse_table_name
from bitlake.sql.statements import CreateTableLike, Vacuum
from bitlake.sql.text import SqlText
from bitlake.sql.workload import advise_for
from bitlake.table.maintenance import TableMaintenance
from bitlake.table.migrate import migrate_folder
from bitlake.tools.advise.advice import Advice
from bitlake.tools.verify.repair import Indexes, Repair
from bitlake.types import AtomicType
from bitlake.write.commit_plan import physical_partition
from bitlake.write.index_rewrite import Rewritten
from bitlake.write.merge_branch import merge_branch

log = logging.getLogger("bitlake")
_OLDER = Parameter("older_than", False, "only files last changed before this time; default: a day ago")
SOURCE_TYPE = Parameter("source_type", True, "'parquet' or 'hive'")
MADE_WITH = Parameter("options", False, "table options, as 'name=value,name=value'")
OPTIONS_MAP = Parameter("options_map", False, "table options, as map('k', 'v')")
_PARTITIONS = Parameter("partitions", True, "partitions, as 'a=1,b=2;a=3,b=4'")
_TABLES = Parameter("table", True, "the table, as 'db.table', or all of 'db.*'")


# --- files and migration ----------------------------------------------------------------------------------------------


def _tables(session: Session, given: Any) -> list[FileStoreTable]:
    """One table, or all of ``db.*``."""
    if isinstance(given, str) and given.endswith(".*"):
        database = given.removesuffix(".*").strip("`")
        found = []
        for name in session.catalog.tables(database):
            try:
                found.append(table_of(session, f"`{database}`.`{name}`"))
            except AccessDenied as e:
                log.warning("table '%s.%s' is left out: %s", database, name, e)
        return found
    return [table_of(session, given)]


@procedure(
    _TABLES,
    _OLDER,
    DRY_RUN,
    PARALLELISM,
    Parameter("mode", False, "'distributed' (default): by the executors; 'local': by threads of the driver"),
)
def _remove_orphan_files(a: Arguments) -> pa.Table:
    """Delete files that nothing names: what killed writers left."""
    limit, at_a_time = a.time("older_than"), a.workers()
    runner: Runner
    match (a.text("mode") or "distributed").lower():
        case "local":
            runner = LocalRunner(at_a_time)
        case "distributed":
            runner = a.session.runner(at_a_time)
        case _:
            raise InvalidRequest(f"'mode' is local or distributed, not '{a.get('mode')}'")
    files = size = 0
    for table in _tables(a.session, a.get("table")):
        orphans = TableMaintenance(table, runner).remove_orphan_files(limit, dry_run=a.flag("dry_run"))
        files, size = files + len(orphans), size + sum(o.size for o in orphans)
    columns = {"deletedFileCount": int, "deletedFileTotalLenInBytes": int}
    return a.rows(columns, (files, size))


@procedure(_TABLES, DRY_RUN, PARALLELISM)
def _remove_unexisting_files(a: Arguments) -> pa.Table:
    """Take data files that are gone out of the table, so that it can be read again; their rows are lost."""
    runner, dry_run = a.session.runner(a.workers()), a.flag("dry_run")
    tables = _tables(a.session, a.get("table"))
    removed = [p for table in tables for p in TableMaintenance(table, runner).remove_unexisting_files(dry_run=dry_run)]
    return a.rows({"fileName": str}, *((p.rsplit("/", 1)[1],) for p in removed))


@procedure(TABLE)
def _purge_files(a: Arguments) -> pa.Table:
    """Delete everything but the schemas: rows, tags, branches."""
    table = a.table()
    TableMaintenance(table).purge_files()
    return a.rows({"result": str}, (f"Success purge files with table: {table.name}.",))


@procedure(TABLE)
def _create_iceberg_metadata(a: Arguments) -> pa.Table:
    """Publish the latest snapshot as Iceberg metadata, as every commit does with 'metadata.iceberg.storage'."""
    return a.rows({"metadata_file": str}, (TableMaintenance(a.table()).create_iceberg_metadata(),))


@procedure(Parameter("database_or_table", True, "names between commas"))
def _repair(a: Arguments) -> None:
    """Rewrite the hints of the first and last snapshot; this catalog keeps nothing else beside the files."""
    given = str(a.get("database_or_table"))
    for name in given.split(",") if given.strip() else a.session.catalog.databases():
        one = name.strip()
        if "." not in one and a.session.catalog.database_exists(one):
            one = f"{one}.*"
        for table in _tables(a.session, one):
            TableMaintenance(table).repair_hints()


@procedure(
    SOURCE_TYPE,
    Parameter("table", True, "a folder of Parquet files, or a table of Spark's own catalog"),
    MADE_WITH,
    Parameter("delete_origin", False, "false: leave the (then empty) table in Spark's catalog"),
    Parameter("target_table", False, "the table to be; default: the same name"),
    OPTIONS_MAP,
    PARALLELISM,
)
def _migrate_table(a: Arguments) -> None:
    """Make a table of existing Parquet files by moving them; indexes that the options ask for are built."""
    kind = a.needed("source_type").lower()
    if kind not in ("hive", "parquet"):
        raise InvalidRequest(f"'source_type' is hive or parquet (both: a folder of Parquet files), not '{kind}'")
    at_a_time = a.workers()
    source = a.needed("table")
    more = a.get("options_map") or {}
    if not isinstance(more, dict):
        raise InvalidRequest(f"'options_map' must be a map, as map('k', 'v'), and is {more!r}")
    options = {**a.options(), **{str(k): str(v) for k, v in more.items()}}
    target = a.text("target_table")
    folder = source
    if "/" in source and a.flag("delete_origin"):
        raise InvalidRequest("'delete_origin' is for a table of Spark's catalog, and 'table' is a folder, which stays")
    if "/" not in source:
        folder = _location(a.session, source)
        target = target or source.rsplit(".", 1)[-1]
    if target is None:
        raise InvalidRequest("sys.migrate_table needs 'target_table' where 'table' is a folder")
    name = parse_table_name(target)
    identifier = Identifier(name.database or a.session.database, name.table)
    migrate_folder(a.session.catalog, folder, identifier, options, LocalRunner(at_a_time))
    table_of(a.session, target).rebuild_indexes()
    if "/" not in source and a.flag("delete_origin", default=True):
        a.session.spark_rows(f"DROP TABLE IF EXISTS spark_catalog.{source}", f"dropping {source}")


def _location(session: Session, name: str) -> str:
    """The folder of a table of Spark's own catalog."""
    doing = f"looking for {name} in Spark's own catalog"
    rows = session.spark_rows(f"DESCRIBE TABLE EXTENDED spark_catalog.{name}", doing)
    facts = {r[0]: r[1] for r in rows}
    if (facts.get("Provider") or "").lower() not in ("parquet", "hive"):
        raise InvalidRequest(f"table '{name}' of Spark's catalog is of {facts.get('Provider')}; only Parquet can move")
    return str(facts["Location"])


@procedure(TABLE, Parameter("columns", False, "columns between commas; default: all that can have statistics"))
def _analyze(a: Arguments) -> pa.Table:
    """Find statistics of columns, which $statistics shows."""
    table = a.table()
    given = a.text("columns")
    columns = None if given is None else tuple(c.strip() for c in given.split(",") if c.strip())
    analyze_table(a.session, table, None if columns is None else [table.schema.field(c).name for c in columns])
    return a.rows({"snapshot_id": int}, (table.state().snapshot_id,))


@procedure(
    TABLE,
    Parameter("retain_max", False, "keep at most this many snapshots"),
    Parameter("retain_min", False, "keep at least this many snapshots"),
    Parameter("older_than", False, "expire only those before this time, as '2024-01-31 12:00:00'"),
    Parameter("max_deletes", False, "expire at most this many snapshots"),
    Parameter("dry_run", False, "only count them"),
    OPTIONS,
)
def _expire_snapshots(a: Arguments) -> pa.Table:
    """Delete old snapshots and the files that only they needed; tags, branches and consumers hold theirs."""
    expiry = TableMaintenance(a.table()).expire_snapshots(
        retain_max=a.integer("retain_max"),
        retain_min=a.integer("retain_min"),
        older_than=a.time("older_than"),
        max_deletes=a.integer("max_deletes"),
        dry_run=a.flag("dry_run"),
        options=a.options(),
    )
    return result({"deleted_snapshots_count": pa.int32()}, [(len(expiry.snapshots),)])


def vacuum(session: Session, statement: Vacuum) -> pa.Table:
    """VACUUM of Delta Lake: expiry by age, then the removal of orphan files, which are at least a day old."""
    table = session.session_table(session.identify_table(statement.table))
    maintenance, age = TableMaintenance(table, session.runner()), timedelta_of(int(statement.hours * 3_600_000))
    expiry = maintenance.expire_snapshots(older_than=age, dry_run=statement.dry_run)
    orphans = maintenance.remove_orphan_files(max(age, timedelta(days=1)), dry_run=statement.dry_run)
    files = len(expiry.data_files) + len(expiry.metadata_files) + len(orphans)
    return result({"deleted_snapshots_count": int, "deleted_files_count": int}, [(len(expiry.snapshots), files)])


@procedure(TABLE, Parameter("where", False, "a condition on partition columns that chooses the files"))
def _rewrite_file_index(a: Arguments) -> pa.Table:
    """Build the file indexes that the table's options name for files that lack them, and drop the others."""
    table = a.table()
    rewrites = table.rebuild_indexes(a.text("where"))
    state = table.state()
    reader = PartitionReader(state.schema, state.paths)
    by_partition: dict[str, list[Rewritten]] = {}
    for rewrite in rewrites:
        by_partition.setdefault(reader.folder(rewrite.old.partition), []).append(rewrite)
    rows = []
    for partition, files in sorted(by_partition.items()):
        changed = [r for r in files if r.new is not None]
        built = ", ".join(sorted({name for r in changed for name in r.built}))
        rows.append((partition, len(files), len(changed), built, sum(r.index_bytes for r in changed)))
    return a.rows({"partition": str, "files": int, "rewritten": int, "built": str, "index_bytes": int}, *rows)


@procedure(TABLE)
def _disable_deletion_vectors(a: Arguments) -> pa.Table:
    """Switch deletion vectors off: compacts the table fully first, so that no deleted row comes back."""
    return a.rows({"schema_id": int}, (TableMaintenance(a.table()).disable_deletion_vectors().id,))


@procedure(TABLE)
def _enable_deletion_vectors(a: Arguments) -> pa.Table:
    """Switch deletion vectors on: compacts the table fully first, so that readers go on seeing the same rows."""
    return a.rows({"schema_id": int}, (TableMaintenance(a.table()).enable_deletion_vectors().id,))


# --- partitions -------------------------------------------------------------------------------------------------------


def _specs(session: Session, table: FileStoreTable, given: str) -> list[dict[str, Any]]:
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
        out.append(session.partition_values(state, values))
    if not out:
        raise InvalidRequest(f"table '{table.name}': 'partitions' names none; write 'a=1,b=2;a=3,b=4'")
    return out


@procedure(TABLE, _PARTITIONS)
def _drop_partition(a: Arguments) -> None:
    """Delete the rows of partitions."""
    table = a.table()
    table.truncate(*_specs(a.session, table, a.needed("partitions")))


@procedure(TABLE, _PARTITIONS)
def _mark_partition_done(a: Arguments) -> None:
    """Put a file _SUCCESS into the folders of partitions."""
    table = a.table()
    for spec in _specs(a.session, table, a.needed("partitions")):
        mark_partition_done(table.state(), spec)


@procedure(
    TABLE,
    Parameter("expiration_time", False, "how old a partition may get, as '7 d'; default: the table's option"),
    Parameter("timestamp_formatter", False, "how times are written in partitions, as 'yyyy-MM-dd'"),
    Parameter("timestamp_pattern", False, "where they are, as '$dt $hour:00:00'"),
    Parameter("expire_strategy", False, "'values-time' (default), or 'update-time': when files were written"),
    Parameter("max_expires", False, "expire at most this many partitions; default: the table's option, which is 100"),
    OPTIONS,
    DRY_RUN,
)
def _expire_partitions(a: Arguments) -> pa.Table:
    """Delete the rows of partitions that are too old."""
    table = a.table()
    options = {**table.schema.options, **a.options()}
    for argument, option in _EXPIRY.items():
        value = a.text(argument)
        if value is not None:
            options[option.name] = value
    age = PartitionAge.of(options)
    if age is None:
        raise InvalidRequest("sys.expire_partitions needs 'expiration_time', such as '7 d'")
    shown = []
    for values in TableMaintenance(table).expire_partitions(
        timedelta_of(age.limit_ms),
        formatter=age.formatter,
        pattern=age.pattern,
        strategy=age.strategy,
        max_expires=Options(options).of(opt.PARTITION_EXPIRATION_MAX_NUM),
        dry_run=a.flag("dry_run"),
    ):
        physical = physical_partition(table.name, table.schema, values) or {}
        pairs = []
        for f in table.schema.partition_fields:
            assert isinstance(f.type, AtomicType)
            value = physical[f.name]
            pairs.append(f"{f.name}={'null' if value is None else render_value(f.type, value, legacy=False)}")
        shown.append((", ".join(pairs),))
    return a.rows({"expired_partitions": str}, *(shown or [("No expired partitions.",)]))


_EXPIRY: dict[str, Option[Any]] = {
    "expiration_time": opt.PARTITION_EXPIRATION_TIME,
    "timestamp_formatter": opt.PARTITION_TIMESTAMP_FORMATTER,
    "timestamp_pattern": opt.PARTITION_TIMESTAMP_PATTERN,
    "expire_strategy": opt.PARTITION_EXPIRATION_STRATEGY,
    "max_expires": opt.PARTITION_EXPIRATION_MAX_NUM,
}
"""Arguments of expire_partitions, each with the option that it stands for and that is its default."""


# --- advice -----------------------------------------------------------------------------------------------------------

_ADVICE_COLUMNS: Columns = {
    "subject": str,
    "now": str,
    "advice": str,
    "index_bytes": int,
    "build_seconds": float,
    "bytes_before": int,
    "bytes_after": int,
    "reason": str,
    "statement": str,
    "real_index_bytes": int,
    "real_build_seconds": float,
    "real_bytes_before": int,
    "real_bytes_after": int,
}
_NOT_MEASURED = (None,) * 4


@procedure(
    TABLE,
    Parameter("queries", False, "SQL queries with ; between them, or a condition; default: typical ones"),
    Parameter("recorded", False, "true: the scans that the lake recorded, too"),
    Parameter("sample", False, "about how many rows are looked at; default: 500000"),
    Parameter("apply", False, "true: add the indexes that are advised, and measure what they bring"),
    PARALLELISM,
)
def _advise(a: Arguments) -> pa.Table:
    """Say which indexes and which layout a table should have, and why: a row for each column; changes nothing unless
    apply is true."""
    table = a.table()
    queries = a.text("queries")
    advice = advise_for(
        a.session.catalog,
        table,
        None if queries is None else [queries],
        a.session.database,
        a.flag("recorded"),
        a.workers("sample"),
        runner=a.session.runner(a.workers()),
    )
    if a.flag("apply"):
        advice = advice.apply()
    return a.rows(_ADVICE_COLUMNS, *_rows(advice))


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
        statements = "; ".join(item.statements)
        yield (item.kind, None, item.value, None, None, *sizes, item.reason, statements, *_NOT_MEASURED)
    if done is not None:
        expected = (done.estimated_index_bytes, done.estimated_seconds, *_rounded(done.expected_bytes_of()))
        title = "what the statements brought, beside the estimates"
        real = (done.index_bytes, done.seconds, *_rounded(done.bytes_of()))
        yield ("measured", None, None, *expected, title, None, *real)
    for s in advice.statements():
        yield ("statement", *(None,) * 7, s, *_NOT_MEASURED)


def _rounded(sizes: tuple[float, float] | None) -> tuple[int | None, int | None]:
    return (None, None) if sizes is None else (round(sizes[0]), round(sizes[1]))


# --- verification -----------------------------------------------------------------------------------------------------

_FINDING_COLUMNS: Columns = {
    "severity": str,
    "code": str,
    "file": str,
    "what": str,
    "column": str,
    "offset": int,
    "snapshots": str,
    "remedy": str,
}


@procedure(
    TABLE,
    Parameter("deep", False, "false: only metadata, sizes and footers; default: data and indexes, too"),
    Parameter("snapshots", False, "only these, as '3,4', without tags, branches and hints"),
    Parameter("repair", False, "true: also repair what can be rebuilt from what is sound"),
    Parameter("dry_run", False, "with repair: false carries it out; default: only say what would be done"),
    Parameter("indexes", False, "with repair: 'rebuild' damaged file indexes (the default) or 'drop' them"),
    PARALLELISM,
)
def _verify(a: Arguments) -> pa.Table:
    """Check every file of a table against its metadata; return a row for each fault."""
    table = a.table()
    maintenance = TableMaintenance(table, a.session.runner(a.workers()))
    report = maintenance.verify(a.flag("deep", default=True), snapshots=_snapshots(a))
    rows: list[tuple[Any, ...]] = [
        (f.severity, f.code, f.path, f.what, f.column, f.offset, ", ".join(f.snapshots), f.remedy)
        for f in report.findings
    ]
    if a.flag("repair"):
        repair = maintenance.repair(report, dry_run=a.flag("dry_run", default=True), indexes=_indexes(a))
        rows += _repaired(repair)
    return a.rows(_FINDING_COLUMNS, *rows)


def _repaired(done: Repair) -> list[tuple[Any, ...]]:
    """A row for each repair, after those of the findings."""
    word = "repaired" if done.done else "would repair"
    snapshot = None if done.snapshot is None else f"snapshot {done.snapshot}"
    return [(word, a.code, a.path, a.what, None, None, snapshot, None) for a in done.actions]


def _snapshots(a: Arguments) -> list[int] | None:
    given = a.text("snapshots")
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as e:
        raise InvalidRequest(f"'snapshots' are ids between commas, such as '3,4', and not '{given}'") from e


def _indexes(a: Arguments) -> Indexes:
    given = a.text("indexes") or "rebuild"
    if given in ("rebuild", "drop"):
        return cast("Indexes", given)
    raise InvalidRequest(f"'indexes' is rebuild or drop, not '{given}'")


# --- databases, manifests, automatic tags and branches ----------------------------------------------------------------


@procedure(
    Parameter("including_databases", False, "a regular expression of databases; default: all"),
    Parameter("including_tables", False, "a regular expression of 'db.table'; default: all"),
    Parameter("excluding_tables", False, "a regular expression of 'db.table' that are left out"),
    OPTIONS,
)
def _compact_database(a: Arguments) -> pa.Table:
    """Compact the tables of databases, one after the other; one that fails is logged and counted."""
    databases = a.pattern("including_databases")
    included, excluded = a.pattern("including_tables"), a.pattern("excluding_tables")
    good = bad = 0
    for database in a.session.catalog.databases():
        if databases is not None and not databases.fullmatch(database):
            continue
        for name in a.session.catalog.tables(database):
            full = f"{database}.{name}"
            if included is not None and not included.fullmatch(full):
                continue
            if excluded is not None and excluded.fullmatch(full):
                continue
            try:
                options = replace(a, values={"options": a.text("options")})
                compact(options, a.session.session_table(Identifier(database, name)))
                good += 1
            except BitlakeError as e:
                log.error("table '%s' was not compacted: %s", full, e)
                bad += 1
    return a.rows({"result": str}, (f"Compact database finished. Success: {good}, Failed: {bad}",))


@procedure(
    SOURCE_TYPE, Parameter("database", True, "a database of Spark's own catalog"), MADE_WITH, OPTIONS_MAP, PARALLELISM
)
def _migrate_database(a: Arguments) -> pa.Table:
    """Make lake tables of all Parquet tables of a database, by moving their files; see migrate_table."""
    database = a.needed("database")
    doing = f"looking for database {database} in Spark's own catalog"
    rows = a.session.spark_rows(f"SHOW TABLES IN spark_catalog.{quoted(database)}", doing)
    names = [r["tableName"] for r in rows if not r["isTemporary"]]
    a.session.catalog.create_database(database, if_not_exists=True)
    good = bad = 0
    for name in names:
        full = quoted(database, name)
        try:
            _migrate_table(replace(a, values={**a.values, "table": full, "target_table": full}))
            good += 1
        except BitlakeError as e:
            log.error("table '%s.%s' was not migrated: %s", database, name, e)
            bad += 1
    result = f"migrate database is finished, success cnt: {good} , failed cnt: {bad}"
    return a.rows({"result": str}, (result,))


@procedure(
    Parameter("source_table", True, "the table, as 'db.table'"),
    Parameter("target_table", True, "the table to be made"),
    Parameter("where", False, "a condition on partition columns; default: all rows"),
)
def _copy(a: Arguments) -> None:
    """Make a table with the columns, keys, options and rows of another; rows are rewritten."""
    source = a.table("source_table")
    names = [parse_table_name(a.needed(name)) for name in ("target_table", "source_table")]
    where = a.text("where")
    state = source.state()
    source.partition_files(state, where)  # refuses conditions on other columns
    create_table_like(a.session, CreateTableLike(names[0], names[1]))
    target = a.table("target_table")
    try:
        a.session.scanned_rows(source.scan_of(state, where)).store(target, target.state(), "WRITE")
    except BaseException:
        a.session.catalog.drop_unwritten(a.session.identify(names[0]))
        raise


@procedure(TABLE)
def _trigger_tag_automatic_creation(a: Arguments) -> None:
    """Make the tags that are due by the table's options tag.automatic-creation, tag.creation-period …."""
    TableMaintenance(a.table()).create_automatic_tags()


@procedure(
    TABLE,
    Parameter("source_branch", True, "the branch whose rows are to be added"),
    Parameter("target_branch", False, "the branch that gets them; default: main"),
)
def _merge_branch(a: Arguments) -> None:
    """Add the files of a branch to another, of an append table to both of which rows were only added."""
    merge_branch(a.table(), a.needed("source_branch"), a.text("target_branch") or MAIN)


@procedure(TABLE, Parameter("snapshot_id", True, "the snapshot with which the table's history begins"))
def _repair_earliest_snapshot(a: Arguments) -> pa.Table:
    """Set the hint of the first snapshot, where those before it are gone or damaged."""
    ids = TableMaintenance(a.table()).repair_earliest_snapshot(a.integer("snapshot_id") or 0)
    columns = {"previous_earliest_snapshot_id": int, "current_earliest_snapshot_id": int}
    return a.rows(columns, ids)


@procedure(TABLE, OPTIONS, Parameter("dry_run", False, "true: only log what there is"))
def _compact_manifest(a: Arguments) -> None:
    """Rewrite small manifests and those with deletions, so that planning opens few."""
    table = a.table()
    options = a.options()
    if a.flag("dry_run"):
        log.info("%s", _manifest_facts(table, options))
    else:
        TableMaintenance(table).compact_manifests(options)


def _manifest_facts(table: FileStoreTable, options: dict[str, str]) -> str:
    state = table.state()
    if state.snapshot is None:
        return f"table '{table.name}' has no manifests"
    metas = snapshot_manifests(state.table_files, state.snapshot)
    target = state.schema.with_options(options).opts.of(opt.MANIFEST_TARGET_SIZE)
    due = [m for m in metas if m.num_deleted_files > 0 or m.file_size < target]
    size = sum(m.file_size for m in metas)
    return f"table '{table.name}': {len(metas)} manifests of {size} bytes, {len(due)} of them would be rewritten"


@procedure(
    Parameter("view", True, "the view, as 'db.view', of a jdbc or rest catalog"),
    Parameter("action", True, "'add', 'update' or 'drop'"),
    Parameter("engine", False, "whose query it is; default: spark"),
    Parameter("query", False, "the query, to add or update"),
)
def _alter_view_dialect(a: Arguments) -> None:
    """Say what a view that the catalog keeps is to an engine."""
    view = parse_table_name(a.needed("view"))
    action, engine = a.needed("action").lower(), (a.text("engine") or "").strip() or "spark"
    query = a.text("query")
    if action not in ("add", "update", "drop"):
        raise InvalidRequest(f"a view's dialect is added, updated or dropped: 'add', 'update', 'drop', not '{action}'")
    if (action == "drop") != (query is None):
        raise InvalidRequest(f"'{action}' goes {'without' if action == 'drop' else 'with'} a query")
    if query is not None and engine == "spark":
        query = checked_query(a.session, SqlText(query))[0]
    name = Identifier(view.database or a.session.database, view.table)
    a.session.catalog.alter_view_dialect(name, action, engine, query)
