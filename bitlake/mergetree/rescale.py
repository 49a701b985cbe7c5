"""Giving a table with fixed buckets another number of them: its rows are read and overwrite the table, as in Paimon.

1. The option ``bucket`` is changed by a new schema.  Readers go on; whoever would write rows into the old buckets is
   refused from now on, and so a rescale that dies here is finished by calling it again (or by INSERT OVERWRITE).
2. All rows of one snapshot, level 0 included, are written into the new buckets and replace the table, unless another
   snapshot came meanwhile (a writer that had looked at the schema before): then they are read and written again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.io import Store
from bitlake.mergetree import dml
from bitlake.mergetree.commit import Publisher
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.scan.scan import Scan
from bitlake.snapshot.state import TableState
from bitlake.write.commit_plan import Overwrite
from bitlake.write.writer import write_rows

_TRIES = 10


class Rescalable(Protocol):
    """A table, as far as rescaling it goes."""

    name: str
    store: Store

    def state(self) -> TableState:
        """The table now."""

    def scan_of(self, state: TableState) -> Scan:
        """A scan of all its rows."""

    def alter_options(self, set: Mapping[str, str]) -> TableSchema:
        """Change options."""

    def partition_files(self, state: TableState, where: str | None) -> list[ManifestEntry]:
        """The live files of partitions."""

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Who commits to it."""

    def commit_files(
        self, state: TableState, files: Sequence[ManifestEntry], operation: str, overwrite: Overwrite | None = None
    ) -> Snapshot | None:
        """Commit files of an append table."""


Rewrite = Callable[[TableState, Overwrite], object]
"""Writes the rows of a state over themselves and commits that; raises :class:`CommitConflict`."""


def rescale(table: Rescalable, buckets: int, rewrite: Rewrite | None = None) -> None:
    """Spread the table over ``buckets`` buckets; nothing is done if it is already.

    ``rewrite`` does the work elsewhere than in this process.  Raises :class:`InvalidRequest` for tables without fixed
    buckets, as Paimon does, and :class:`CommitConflict` if other writers come between every time.
    """

    def spread(state: TableState) -> bool:
        if state.schema.num_buckets != buckets:
            table.alter_options({opt.BUCKET.name: str(buckets)})
            return False
        if all(e.total_buckets == buckets for e in state.entries()):
            return True
        (rewrite or _rewriting(table))(state, _overwrite_of(state))
        return False

    _until(spread, table, buckets)


def _overwrite_of(state: TableState, *, dynamic: bool = False) -> Overwrite:
    """An overwrite by rows that were made of a state's."""
    uuid = None if state.snapshot is None else state.snapshot.uuid
    return Overwrite(dynamic=dynamic, computed_on=state.snapshot_id, computed_uuid=uuid)


def rescale_partitions(table: Rescalable, buckets: int, where: str, rewrite: Rewrite) -> None:
    """Spread the partitions for which a condition holds over ``buckets`` buckets; the option ``bucket`` stays.

    Each partition's files say how many buckets it has.  To write rows to it again, the option must say the same.
    Raises as :func:`rescale` does, and :class:`InvalidRequest` for a condition on other columns.
    """

    def spread(state: TableState) -> bool:
        if all(e.total_buckets == buckets for e in table.partition_files(state, where)):
            return True
        changed = replace(state, schema=state.schema.with_options({opt.BUCKET.name: str(buckets)}))
        rewrite(changed, _overwrite_of(state, dynamic=bool(state.schema.partition_keys)))
        return False

    _until(spread, table, buckets)


def _until(spread: Callable[[TableState], bool], table: Rescalable, buckets: int) -> None:
    """Call ``spread`` with the table as it is until it finds nothing to do."""
    if buckets < 1:
        raise InvalidRequest(f"table '{table.name}' cannot have {buckets} buckets")
    for _ in range(_TRIES):
        state = table.state()
        if state.schema.num_buckets < 1:
            raise InvalidRequest(
                f"table '{table.name}' has no fixed number of buckets ('bucket' = '{state.schema.num_buckets}'): "
                "it cannot be rescaled"
            )
        with contextlib.suppress(CommitConflict):
            if spread(state):
                return
    raise CommitConflict(f"table '{table.name}': other writers came between {_TRIES} times while it was rescaled")


def _rewriting(table: Rescalable) -> Rewrite:
    def rewrite(state: TableState, overwrite: Overwrite) -> object:
        batches = _tables(table.scan_of(state).with_level_0())
        if state.schema.primary_keys:
            return dml.upsert(table, batches, operation="OVERWRITE", overwrite=overwrite)
        return table.commit_files(state, write_rows(state, batches, table.store), "OVERWRITE", overwrite)

    return rewrite


def _tables(scan: Scan) -> Iterator[pa.Table]:
    for batch in scan.to_batches():
        yield pa.Table.from_batches([batch])
