"""What is live in each bucket of a table, and what writing to buckets takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bitlake.errors import InvalidRequest
from bitlake.mergetree.commit_message import BucketState, LsmContext
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.snapshot.index_manifest import index_entries
from bitlake.snapshot.partitions import entries_of, is_large
from bitlake.snapshot.state import TableState

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
    for i in index_entries(state.table_files, state.snapshot):
        slot = (i.partition, i.bucket)
        if slot in only if only is not None else partitions is None or i.partition in partitions:
            indexes.setdefault(slot, {})[i.index_type] = i
    out = {}
    for slot in {**files, **indexes}:
        live, index = tuple(files.get(slot, ())), indexes.get(slot, {})
        total = live[0].total_buckets if live else state.schema.num_buckets
        out[slot] = BucketState(*slot, total, live, index.get(DELETION_VECTORS), index.get(HASH))
    return out


def state_of(states: Mapping[Slot, BucketState], total: int, slot: Slot) -> BucketState:
    """The state of a bucket that is to be written, of ``total`` ones; empty if nothing is there yet.

    Raises :class:`InvalidRequest` if its files are of another number of buckets than the table has by now: a key would
    be looked for in the wrong one.
    """
    found = states.get(slot)
    if found is None:
        return BucketState(*slot, total)
    if found.total_buckets > 0 and total > 0 and found.total_buckets != total:
        raise InvalidRequest(
            f"bucket {found.bucket} is one of {found.total_buckets}, and 'bucket' = '{total}' by now; "
            "INSERT OVERWRITE the table (or this partition) with its own rows before writing others"
        )
    return found


@dataclass(slots=True)
class LiveBuckets:
    """What is live in the buckets that one writer writes to, and the schemas of their files.

    Of a table of many files only partitions that rows come for are looked at, when the first rows come.  The tasks of a
    write get this as the driver made it, and each looks at its own.  Mutable, one thread.
    """

    state: TableState = field(repr=False)
    context: LsmContext
    """Knows the schemas of the files found so far."""
    states: dict[Slot, BucketState]
    later: bool = False
    """Whether there may be more than ``states`` in partitions that have not been looked at."""
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """Partitions with another number of buckets than the schema's."""
    _looked: set[bytes] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        state: TableState,
        *,
        fresh: bool = False,
        later: bool | None = None,
        counts: Mapping[bytes, int] | None = None,
    ) -> LiveBuckets:
        """The buckets of a table, or none for a ``fresh`` one; ``later`` false: all of them now.

        Whether they are looked at later is by the number of files, and by what this process knows already.
        """
        wait = not fresh and (is_large(state) if later is None else later)
        nothing = fresh or wait
        context = lsm_context(state, () if nothing else None)
        return cls(state, context, {} if nothing else bucket_states(state), wait, counts or {})

    def look_at(self, partitions: Collection[bytes]) -> dict[Slot, BucketState]:
        """Find out what is there in partitions; returns what was found now."""
        new = set(partitions) - self._looked if self.later else set()
        if not new:
            return {}
        self._looked |= new
        found = bucket_states(self.state, partitions=new)
        self.states |= found
        # Writers that are made from now on know the schemas of these files; those before need no others.
        schemas = lsm_context(self.state, [f for b in found.values() for f in b.files]).schemas
        self.context = replace(self.context, schemas={**self.context.schemas, **schemas})
        return found

    def __getitem__(self, slot: Slot) -> BucketState:
        """A bucket that is to be written; its partition was looked at.  Raises as :func:`state_of`."""
        return state_of(self.states, self.counts.get(slot[0], self.context.schema.num_buckets), slot)


def hash_buckets(state: TableState) -> dict[Slot, BucketState]:
    """The buckets of a table that have a HASH index, with that alone: all that rows need to be given buckets."""
    total = state.schema.num_buckets
    found = index_entries(state.table_files, state.snapshot)
    return {
        (i.partition, i.bucket): BucketState(i.partition, i.bucket, total, hashes=i)
        for i in found
        if i.index_type == HASH
    }
