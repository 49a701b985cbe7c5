"""What is live in each bucket of a table, and what writing to buckets takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bitlake.errors import InvalidRequest
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.table.index_files import index_entries
from bitlake.table.lsm.model import BucketState, LsmContext
from bitlake.table.partition_files import entries_of
from bitlake.table.state import TableState

Slot = tuple[bytes, int]
"""A partition row and a bucket's number."""


def lsm_context(state: TableState, files: Iterable[ManifestEntry] | None = None) -> LsmContext:
    """What writers and compactions of a table need, as it is in ``state``; ``files``: all that they read."""
    ids = {state.schema.id, *(e.file.schema_id for e in (state.entries() if files is None else files))}
    return LsmContext(state.name, state.paths, state.schema, dict(state.schemas(ids)))


def bucket_states(
    state: TableState, only: Collection[Slot] | None = None, partitions: Collection[bytes] | None = None
) -> dict[Slot, BucketState]:
    """The buckets of a table that hold anything; those of them in ``only``, or of some ``partitions``.

    Of a large table, files of other partitions are not looked at.
    """
    if only is not None:
        partitions = {partition for partition, _ in only}
    files: dict[Slot, list[ManifestEntry]] = {}
    for e in state.entries() if partitions is None else entries_of(state, partitions):
        slot = (e.partition, e.bucket)
        if slot in only if only is not None else partitions is None or e.partition in partitions:
            files.setdefault(slot, []).append(e)
    indexes: dict[Slot, dict[str, IndexFileEntry]] = {}
    for i in index_entries(state.store, state.paths, state.snapshot):
        slot = (i.partition, i.bucket)
        if slot in only if only is not None else partitions is None or i.partition in partitions:
            indexes.setdefault(slot, {})[i.index_type] = i
    out = {}
    for slot in {**files, **indexes}:
        live, index = tuple(files.get(slot, ())), indexes.get(slot, {})
        total = live[0].total_buckets if live else state.schema.num_buckets
        out[slot] = BucketState(*slot, total, live, index.get(DELETION_VECTORS), index.get(HASH))
    return out


def state_of(states: Mapping[Slot, BucketState], schema: TableSchema, slot: Slot) -> BucketState:
    """The state of a bucket that is to be written, empty if nothing is there yet.

    Raises :class:`InvalidRequest` if its files are of another number of buckets than the table has by now: a key would
    be looked for in the wrong one.
    """
    found = states.get(slot)
    if found is None:
        return BucketState(*slot, schema.num_buckets)
    if found.total_buckets > 0 and schema.num_buckets > 0 and found.total_buckets != schema.num_buckets:
        raise InvalidRequest(
            f"bucket {found.bucket} is one of {found.total_buckets}, and 'bucket' = '{schema.num_buckets}' by now; "
            "INSERT OVERWRITE the table (or this partition) with its own rows before writing others"
        )
    return found
