"""Rescaling a table with fixed buckets to another number of buckets: its rows are read and overwrite it, as in Paimon.

1. A new schema changes the option ``bucket``.  Readers continue; writes into the old buckets are refused from now on.
   A rescale that is interrupted here is completed by calling it again (or by INSERT OVERWRITE).
2. Rows that wait for a compaction to bring them into the changelog are compacted: an overwrite writes no changelog, so
   streams would lose them.
3. All rows of one snapshot, level 0 included, are written into the new buckets and replace the table, unless another
   snapshot was committed meanwhile (by a writer that read the schema before): then they are read and written again.

Cost: reads and writes every row of the table, or of the partitions rescaled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from bitlake import arguments
from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.mergetree import dml
from bitlake.mergetree.commit import MergeTreeTable
from bitlake.metadata import options as opt
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.write.commit import COMPACT_TRIES
from bitlake.write.commit_plan import Overwrite
from bitlake.write.writer import write_rows

Rewrite = Callable[[TableState, Overwrite], object]
"""Overwrites a state with its own rows and commits that; raises :class:`CommitConflict`."""


def rescale(table: MergeTreeTable, buckets: int, rewrite: Rewrite | None = None) -> None:
    """Rescale a table to ``buckets`` buckets; does nothing if it has that number.

    ``rewrite`` writes the rows (default: in this process).  Raises :class:`InvalidRequest` for tables without fixed
    buckets, as Paimon does, and :class:`CommitConflict` if other writers keep committing first.
    """

    def spread(state: TableState) -> bool:
        if state.schema.num_buckets != buckets:
            table.alter_options({opt.BUCKET.name: str(buckets)})
            return False
        if all(e.total_buckets == buckets for e in state.entries()):
            return True
        state = dml.compact_pending(table, state, overwrites=True)
        (rewrite or _rewrite_here(table))(state, _overwrite_of(state))
        return False

    _repeat_until_spread(spread, table, buckets)


def _overwrite_of(state: TableState, *, dynamic: bool = False) -> Overwrite:
    """An overwrite by rows that were computed from a state's rows."""
    uuid = None if state.snapshot is None else state.snapshot.uuid
    return Overwrite(dynamic=dynamic, computed_on=state.snapshot_id, computed_uuid=uuid)


def rescale_partitions(table: MergeTreeTable, buckets: int, where: str, rewrite: Rewrite) -> None:
    """Rescale the partitions that satisfy a condition to ``buckets`` buckets; the option ``bucket`` stays.

    Each partition's files record its number of buckets.  Rows can be written to it only while the option has the same
    number.  Raises as :func:`rescale` does, and :class:`InvalidRequest` for a condition on other columns.
    """

    def spread(state: TableState) -> bool:
        if all(e.total_buckets == buckets for e in table.partition_files(state, where)):
            return True
        state = dml.compact_pending(table, state, overwrites=True)
        changed = replace(state, schema=state.schema.with_options({opt.BUCKET.name: str(buckets)}))
        rewrite(changed, _overwrite_of(state, dynamic=bool(state.schema.partition_keys)))
        return False

    _repeat_until_spread(spread, table, buckets)


def _repeat_until_spread(spread: Callable[[TableState], bool], table: MergeTreeTable, buckets: int) -> None:
    """Call ``spread`` with the latest state until it returns that nothing is left to do."""
    if arguments.whole("buckets", buckets) < 1:
        raise InvalidRequest(f"table '{table.name}' cannot have {buckets} buckets")
    for _ in range(COMPACT_TRIES):
        state = table.state()
        if state.schema.num_buckets < 1:
            raise InvalidRequest(
                f"table '{table.name}' has no fixed number of buckets ('bucket' = '{state.schema.num_buckets}'): "
                "it cannot be rescaled"
            )
        with contextlib.suppress(CommitConflict):
            if spread(state):
                return
    raise CommitConflict(
        f"table '{table.name}': other writers committed first {COMPACT_TRIES} times while it was rescaled"
    )


def _rewrite_here(table: MergeTreeTable) -> Rewrite:
    def rewrite(state: TableState, overwrite: Overwrite) -> object:
        batches = _tables(table.scan_of(state).with_level_0())
        if state.schema.primary_keys:
            return dml.upsert(table, batches, operation="OVERWRITE", overwrite=overwrite)
        return table.commit_files(state, write_rows(state, batches, table.store), "OVERWRITE", overwrite)

    return rewrite


def _tables(scan: TableScan) -> Iterator[pa.Table]:
    for batch in scan.to_batches():
        yield pa.Table.from_batches([batch])
