"""``CALL sys.rescale``: another number of fixed buckets, the rows read and written on the executors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import write_frame
from bitlake.spark.lsm_write import write_changes
from bitlake.table.commit import Overwrite
from bitlake.table.rescale import rescale
from bitlake.table.state import TableState
from bitlake.table.table import Table


def rescale_table(context: EngineContext, table: Table, arguments: Mapping[str, Any]) -> DataFrame:
    """Run the procedure: ``bucket_num`` is the number wanted, by default the option's; returns TRUE."""
    wanted = arguments.get("bucket_num")
    if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool)):
        raise InvalidRequest(f"'bucket_num' must be a whole number, and is {wanted!r}")

    def rewrite(state: TableState, overwrite: Overwrite) -> object:
        frame = table.scan_of(state).with_level_0().to_spark()
        if state.schema.primary_keys:
            changes = write_changes(context, table, state, frame, fresh=True)
            return table.publisher(state).publish(state, changes, operation="OVERWRITE", overwrite=overwrite)
        files = write_frame(context, table, state, frame)
        return table.commit_files(state, files, "OVERWRITE", overwrite)

    rescale(table, table.schema.num_buckets if wanted is None else wanted, rewrite)
    return context.rows([("result", T.BooleanType())], [(True,)])
