"""The live files and index files of a table's buckets, as writers and compactions take them.

:func:`bucket_states` groups a snapshot's live files by bucket; :class:`LiveBuckets` does so lazily, for the partitions
that rows come for.  Cost: the manifests of the partitions looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bitlake.errors import InvalidRequest
from bitlake.mergetree.commit_message import BucketState, MergeTreeContext
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.snapshot.index_manifest import index_entries
from bitlake.snapshot.partitions import entries_of, is_large
from bitlake.snapshot.state import TableState

Slot = tuple[bytes, int]
"""A partition row and a bucket's number."""


def merge_tree_context(state: TableState, files: Iterable[ManifestEntry] | None = None) -> MergeTreeContext:
    """Return the context of writers and compactions; ``files`` are those that they read (None: all live files)."""
    ids = {state.schema.id, *(e.file.schema_id for e in (state.entries() if files is None else files))}
    return MergeTreeContext(state.name, state.paths, state.schema, dict(state.schemas(ids)))


def bucket_states(
    state: TableState, only: Collection[Slot] | None = None, partitions: Collection[bytes] | None = None
) -> dict[Slot, BucketState]:
    """Return the buckets of a table that hold files; only those in ``only``, or of ``partitions``, if given.

    Of a large table only the manifests of those partitions are read.
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


def bucket_state(states: Mapping[Slot, BucketState], total: int, slot: Slot) -> BucketState:
    """Return the state of a bucket to write to, of ``total`` buckets; empty if the bucket has no files yet.

    Raises :class:`InvalidRequest` if its files belong to another number of buckets than the table has now: a key would
    be looked up in the wrong bucket.
    """
    state = states.get(slot)
    if state is None:
        return BucketState(*slot, total)
    if state.total_buckets > 0 and total > 0 and state.total_buckets != total:
        raise InvalidRequest(
            f"bucket {state.bucket} was written as one of {state.total_buckets} buckets, and the table now has "
            f"'bucket' = '{total}'; INSERT OVERWRITE the table (or this partition) with its own rows before writing "
            "other rows"
        )
    return state


@dataclass(slots=True)
class LiveBuckets:
    """The states of the buckets that one writer writes to, and the schemas of their files.

    Of a table with many files only the partitions that rows come for are loaded, with their first rows.  The driver
    creates it for the tasks of a write, and each task loads its own partitions.  Mutable, one thread.
    """

    state: TableState = field(repr=False)
    context: MergeTreeContext
    """Holds the schemas of the files loaded so far."""
    states: dict[Slot, BucketState]
    lazy: bool = False
    """Whether partitions that are not loaded yet may have buckets beyond ``states``."""
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """The number of buckets of partitions that differ from the schema's."""
    _loaded: set[bytes] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        state: TableState,
        *,
        fresh: bool = False,
        lazy: bool | None = None,
        counts: Mapping[bytes, int] | None = None,
    ) -> LiveBuckets:
        """Return the buckets of a table; none for a ``fresh`` one.

        ``lazy``: whether partitions are loaded on demand; None: if the table is large and not cached yet.
        """
        lazy = not fresh and (is_large(state) if lazy is None else lazy)
        empty = fresh or lazy
        context = merge_tree_context(state, () if empty else None)
        return cls(state, context, {} if empty else bucket_states(state), lazy, counts or {})

    def load(self, partitions: Collection[bytes]) -> dict[Slot, BucketState]:
        """Load the buckets of partitions; returns those that were not loaded before."""
        new = set(partitions) - self._loaded if self.lazy else set()
        if not new:
            return {}
        self._loaded |= new
        states = bucket_states(self.state, partitions=new)
        self.states |= states
        # Writers created from now on need the schemas of these files; earlier ones do not.
        schemas = merge_tree_context(self.state, [f for b in states.values() for f in b.files]).schemas
        self.context = replace(self.context, schemas={**self.context.schemas, **schemas})
        return states

    def __getitem__(self, slot: Slot) -> BucketState:
        """Return a bucket to write to; its partition must be loaded.  Raises as :func:`bucket_state`."""
        return bucket_state(self.states, self.counts.get(slot[0], self.context.schema.num_buckets), slot)


def hash_index_states(state: TableState) -> dict[Slot, BucketState]:
    """Return the buckets of a table that have a HASH index, without their files: enough to assign rows to buckets."""
    total = state.schema.num_buckets
    return {
        (i.partition, i.bucket): BucketState(i.partition, i.bucket, total, hashes=i)
        for i in index_entries(state.table_files, state.snapshot)
        if i.index_type == HASH
    }
