"""``CALL sys.rescale``: another number of fixed buckets, the rows read and written on the executors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.spark.compact import partition_condition
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import write_frame
from bitlake.spark.lsm_write import write_changes
from bitlake.spark.procedure import integer, needed, text
from bitlake.table.commit import Overwrite
from bitlake.table.rescale import rescale, rescale_partitions
from bitlake.table.state import TableState
from bitlake.table.table import Table


def rescale_table(context: EngineContext, table: Table, arguments: Mapping[str, Any]) -> DataFrame:
    """Run the procedure: ``bucket_num`` is the number wanted, by default the option's; returns TRUE.

    With ``partitions`` or ``where`` only the files of these partitions change, and the table's option does not.
    """
    wanted = integer(dict(arguments), "bucket_num")
    where = text(dict(arguments), "where")
    if arguments.get("partitions"):
        if where:
            raise InvalidRequest("sys.rescale takes either 'partitions' or 'where', not both")
        where = partition_condition(needed(dict(arguments), "partitions"))

    def rewrite(state: TableState, overwrite: Overwrite) -> object:
        frame = table.scan_of(state, where).with_level_0().to_spark()
        if state.schema.primary_keys:
            changes = write_changes(context, table, state, frame, fresh=True)
            return table.publisher(state).publish(state, changes, operation="OVERWRITE", overwrite=overwrite)
        files = write_frame(context, table, state, frame)
        return table.commit_files(state, files, "OVERWRITE", overwrite)

    number = table.schema.num_buckets if wanted is None else wanted
    if where is None:
        rescale(table, number, rewrite)
    else:
        rescale_partitions(table, number, where, rewrite)
    return context.rows([("result", T.BooleanType())], [(True,)])
