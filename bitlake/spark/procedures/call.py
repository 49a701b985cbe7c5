"""``CALL sys.…``: procedures with named and positional arguments."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.metadata.schema import near
from bitlake.snapshot.partitions import PartitionReader
from bitlake.spark.context import EngineContext
from bitlake.spark.procedures import history, maintenance
from bitlake.spark.procedures.compact import compact, rescale_table
from bitlake.spark.procedures.procedure import (
    OPTIONS,
    TABLE,
    Parameter,
    Procedure,
    epoch_millis,
    flag,
    integer,
    options_of,
    table_of,
)
from bitlake.spark.show import like_names
from bitlake.sql import statements as st
from bitlake.table.maintenance import TableMaintenance

_TRACKING = "tables with row tracking ('row-tracking.enabled'), which bitlake does not write"
_FUNCTIONS = "functions that a REST catalog keeps; CREATE TEMPORARY FUNCTION is Spark's own and runs here"
_OF_PAIMON = {
    **dict.fromkeys(
        ("create_global_index", "drop_global_index", "materialize_deletion_vectors", "reassign_row_id"), _TRACKING
    ),
    **dict.fromkeys(("create_function", "alter_function", "drop_function"), _FUNCTIONS),
    "compact_chain_table": "chain tables ('chain-table.enabled'), which bitlake does not write",
}
"""What procedures of Paimon's that are not here are for; docs/compatibility.md lists them."""


def call(context: EngineContext, statement: st.Call) -> DataFrame:
    """CALL: find the procedure, bind its arguments, run it."""
    name = statement.procedure.lower().removeprefix("sys.")
    procedure = PROCEDURES.get(name)
    if procedure is None and name in _OF_PAIMON:
        raise UnsupportedFeature(f"procedure 'sys.{name}' of Paimon's is not in bitlake: it is for {_OF_PAIMON[name]}")
    if procedure is None:
        close = [PROCEDURES[n].signature for n in get_close_matches(name, PROCEDURES, 3, 0.6)]
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        raise NotFound(f"no procedure '{statement.procedure}'{meant}; SHOW PROCEDURES lists all {len(PROCEDURES)}")
    return procedure.run(context, _arguments(procedure, statement))


def show_procedures(context: EngineContext, statement: st.ShowProcedures) -> DataFrame:
    """SHOW PROCEDURES: their names, how to call them, and what they and their arguments are for."""
    columns = [(name, T.StringType()) for name in ("procedure", "signature", "description", "arguments")]
    rows = []
    for p in sorted(PROCEDURES.values(), key=lambda p: p.name):
        arguments = "\n".join(f"{x.name}: {x.doc}" for x in p.parameters)
        rows.append((f"sys.{p.name}", p.signature, p.doc, arguments))
    wanted = set(like_names([r[0].removeprefix("sys.") for r in rows], statement.like))
    return context.rows(columns, [r for r in rows if r[0].removeprefix("sys.") in wanted])


def _arguments(procedure: Procedure, statement: st.Call) -> dict[str, Any]:
    names = [p.name.lower() for p in procedure.parameters]
    if len(statement.positional) > len(names):
        raise InvalidRequest(
            f"{procedure.signature} takes {len(names)} arguments and was given {len(statement.positional)}"
        )
    out = dict(zip(names, statement.positional, strict=False))
    for given, value in statement.named.items():
        name = given.lower()
        if name not in names:
            raise InvalidRequest(f"{procedure.signature} has no argument '{given}'{near(name, names)}")
        if name in out:
            raise InvalidRequest(f"{procedure.signature} was given '{name}' twice")
        out[name] = value
    missing = [p.name for p in procedure.parameters if p.required and out.get(p.name.lower()) is None]
    if missing:
        raise InvalidRequest(f"{procedure.signature} needs '{missing[0]}'")
    return out


def _rewrite_file_index(context: EngineContext, arguments: dict[str, Any]) -> DataFrame:
    table = table_of(context, arguments["table"])
    where = arguments.get("where")
    done = table.rebuild_indexes(where)
    state = table.state()
    reader = PartitionReader(state.schema, state.paths)
    by_partition: dict[str, list[Any]] = {}
    for d in done:
        by_partition.setdefault(reader.folder(d.old.partition), []).append(d)
    rows: list[Sequence[Any]] = []
    for partition, files in sorted(by_partition.items()):
        changed = [d for d in files if d.new is not None]
        built = sorted({name for d in changed for name in d.built})
        size = sum(d.index_bytes for d in changed)
        rows.append((partition, len(files), len(changed), ", ".join(built), size))
    columns: list[tuple[str, T.DataType]] = [
        ("partition", T.StringType()),
        ("files", T.LongType()),
        ("rewritten", T.LongType()),
        ("built", T.StringType()),
        ("index_bytes", T.LongType()),
    ]
    return context.rows(columns, rows)


def _expire_snapshots(context: EngineContext, arguments: dict[str, Any]) -> DataFrame:
    table = table_of(context, arguments["table"])
    older = arguments.get("older_than")
    expiry = TableMaintenance(table).expire_snapshots(
        retain_max=integer(arguments, "retain_max"),
        retain_min=integer(arguments, "retain_min"),
        older_than=None if older is None else epoch_millis(context, older),
        max_deletes=integer(arguments, "max_deletes"),
        dry_run=flag(arguments, "dry_run"),
        options=options_of(arguments),
    )
    return context.rows([("deleted_snapshots_count", T.IntegerType())], [(len(expiry.snapshots),)])


def _switch_vectors(context: EngineContext, arguments: dict[str, Any], on: bool) -> DataFrame:
    table = table_of(context, arguments["table"])
    maintenance = TableMaintenance(table)
    schema = maintenance.enable_deletion_vectors() if on else maintenance.disable_deletion_vectors()
    return context.rows([("schema_id", T.LongType())], [(schema.id,)])


def _compact(context: EngineContext, arguments: dict[str, Any]) -> DataFrame:
    return compact(context, table_of(context, arguments["table"]), arguments)


PROCEDURES = {
    p.name: p
    for p in (
        *history.PROCEDURES,
        *maintenance.PROCEDURES,
        Procedure(
            "compact",
            (
                TABLE,
                Parameter("partitions", False, "partitions, as 'a=1,b=2;a=3': commas are AND, semicolons OR"),
                Parameter("compact_strategy", False, "'full' (the default): everything; 'minor': what is due"),
                Parameter("order_strategy", False, "'order', 'zorder', 'hilbert' or 'none'"),
                Parameter("order_by", False, "columns to sort by, between commas"),
                Parameter("where", False, "a condition on partition columns, instead of partitions"),
                OPTIONS,
                Parameter("partition_idle_time", False, "only partitions without a new file for this long, as '1 h'"),
                Parameter("buckets", False, "only these fixed buckets, as '0,2-4'"),
            ),
            "Compact a table's buckets or its small files, or sort its rows.",
            _compact,
        ),
        Procedure(
            "disable_deletion_vectors",
            (TABLE,),
            "Switch deletion vectors off: compacts the table fully first, so that no deleted row comes back.",
            partial(_switch_vectors, on=False),
        ),
        Procedure(
            "enable_deletion_vectors",
            (TABLE,),
            "Switch deletion vectors on: compacts the table fully first, so that readers go on seeing the same rows.",
            partial(_switch_vectors, on=True),
        ),
        Procedure(
            "expire_snapshots",
            (
                TABLE,
                Parameter("retain_max", False, "keep at most this many snapshots"),
                Parameter("retain_min", False, "keep at least this many snapshots"),
                Parameter("older_than", False, "expire only those before this time, as '2024-01-31 12:00:00'"),
                Parameter("max_deletes", False, "expire at most this many snapshots"),
                Parameter("dry_run", False, "only count them"),
                OPTIONS,
            ),
            "Delete old snapshots and the files that only they needed; tags, branches and consumers hold theirs.",
            _expire_snapshots,
        ),
        Procedure(
            "rescale",
            (
                TABLE,
                Parameter("bucket_num", False, "how many buckets; without it, as many as the option says by now"),
                Parameter("partitions", False, "only these partitions, as 'a=1,b=2;a=3,b=4'; the option stays"),
                Parameter("where", False, "a condition on partition columns, instead of partitions"),
            ),
            "Spread a table's rows over another number of fixed buckets.",
            lambda context, arguments: rescale_table(context, table_of(context, arguments["table"]), arguments),
        ),
        Procedure(
            "rewrite_file_index",
            (
                TABLE,
                Parameter("where", False, "a condition on partition columns that chooses the files"),
            ),
            "Build the file indexes that the table's options name for files that lack them, and drop the others.",
            _rewrite_file_index,
        ),
    )
}
"""Every procedure by name."""
