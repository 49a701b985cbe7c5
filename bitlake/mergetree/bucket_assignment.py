"""Bucket assignment: which dynamic bucket a row of a primary-key table goes to, for whole batches of key hashes.

A key that the partition's HASH index files hold stays in its bucket.  New keys fill the first bucket below
``dynamic-bucket.target-row-num`` hashes, in the order they arrive, then a new bucket with the lowest free number.
Rows may be spread over *assigners*, each with its own keys and buckets::

    channel = ( |partitionHash % P| + |keyHash % A| ) % P          which assigner gets a row (% as in Java)
    assigner t gives new keys to buckets b with b % A == t % A

A bucket's HASH index file (:mod:`bitlake.tableindex.hash_index`) belongs to the APPEND snapshot of the rows whose
hashes it adds, and is written as a whole (:func:`hash_index_change`).  Two writers that both extend one bucket's file
conflict, by the base of its change.

Memory: 8 bytes for each key of a partition that rows come for.  Source: index-format spec, sections 7.3 and 7.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import decode_row
from bitlake.codec.bucket import murmur_words, row_hash
from bitlake.codec.hashing import Int32s, Int64s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.io import Store
from bitlake.mergetree.bucket import BucketState, MergeTreeContext
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import HASH
from bitlake.metadata.paths import partition_path
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.index_files import IndexChange, read_hashes, write_hashes
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.hash_index import java_order

UNLIMITED = 32767
"""Bucket numbers stay below this; Paimon keeps them in 16 bits."""


@dataclass(frozen=True, slots=True)
class AssignerLayout:
    """The distribution of a write's rows over assigners, and the limit of a bucket's rows.

    ``channels`` (P) is the number of tasks, ``assigners`` (A) the number of tasks that share one partition; ``target``
    is in hashes; ``max_buckets`` is -1 without a limit.
    """

    target: int
    max_buckets: int = -1
    channels: int = 1
    assigners: int = 1

    @staticmethod
    def of(schema: TableSchema, parallelism: int = 1) -> AssignerLayout:
        """Return the layout of a write to a table by ``parallelism`` tasks."""
        options = schema.opts
        most = options.of(opt.DYNAMIC_BUCKET_MAX)
        channels = parallelism if most == -1 else min(parallelism, most)
        shared = min(options.of(opt.DYNAMIC_BUCKET_INITIAL) or channels, channels)
        # Paimon allows any P; two assigners of a partition never own the same bucket only if A divides P.
        channels -= channels % shared
        return AssignerLayout(options.of(opt.DYNAMIC_BUCKET_TARGET), most, channels, shared)

    def channel(self, partition_hash: int | Int32s, key_hashes: Int32s) -> Int32s:
        """Return the assigner of each row; hashes are signed, as in Java."""
        start = np.abs(np.fmod(np.asarray(partition_hash, np.int64), self.channels))
        offset = np.abs(np.fmod(key_hashes.astype(np.int64), self.assigners))
        channels: Int32s = ((start + offset) % self.channels).astype(np.int32)
        return channels


@dataclass(slots=True)
class PartitionAssigner:
    """Assigns buckets to the key hashes of one partition that come to one assigner.  Mutable, one thread.

    ``indexed`` holds all hashes of the partition by bucket, those of other assigners too: their buckets are taken.
    ``channel`` is this assigner's number, ``partition_hash`` the partition's hash.  Raises :class:`CorruptError` if a
    hash is in two buckets.
    """

    layout: AssignerLayout
    indexed: Mapping[int, Int32s]
    channel: int = 0
    partition_hash: int = 0
    _runs: list[tuple[Int32s, Int32s]] = field(default_factory=list)
    _counts: dict[int, int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        hashes, buckets = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for bucket, in_bucket in sorted(self.indexed.items()):
            self._taken.add(bucket)
            if self._owns(bucket):
                self._counts[bucket] = len(in_bucket)
            own_hashes = in_bucket[self.layout.channel(self.partition_hash, in_bucket) == self.channel]
            hashes.append(own_hashes)
            buckets.append(np.full(len(own_hashes), bucket, np.int32))
        run = _sorted_run(np.concatenate(hashes), np.concatenate(buckets))
        twice = np.flatnonzero(run[0][1:] == run[0][:-1])
        if len(twice):
            at = int(twice[0])
            raise CorruptError(
                f"key hash {run[0][at]} is in the HASH index of buckets {run[1][at]} and {run[1][at + 1]}"
            )
        self._runs = [run]
        self.indexed = {}

    @staticmethod
    def from_row_counts(layout: AssignerLayout, counts: Mapping[int, int], channel: int = 0) -> PartitionAssigner:
        """Return an assigner for keys that are all new; ``counts`` are the rows in the partition's buckets."""
        assigner = PartitionAssigner(layout, {}, channel)
        assigner._taken.update(counts)
        assigner._counts.update({b: n for b, n in counts.items() if assigner._owns(b)})
        return assigner

    def assign(self, hashes: Int32s) -> Int32s:
        """Return the bucket of each row, in order of arrival; equal hashes get the same bucket in every call.

        Raises :class:`InvalidRequest` when bucket numbers run out.
        """
        distinct, first, back = np.unique(hashes, return_index=True, return_inverse=True)
        buckets = self._lookup(distinct)
        missing = np.flatnonzero(buckets < 0)
        if len(missing):
            arrived = missing[np.argsort(first[missing], kind="stable")]
            buckets[arrived] = self._place(distinct[arrived])
            self._add(distinct[missing], buckets[missing])
        assigned: Int32s = buckets[back]
        return assigned

    def _owns(self, bucket: int) -> bool:
        return bucket % self.layout.assigners == self.channel % self.layout.assigners

    def _lookup(self, distinct: Int32s) -> Int32s:
        """The buckets of sorted hashes; -1 for new hashes."""
        out = np.full(len(distinct), -1, np.int32)
        for hashes, buckets in self._runs:
            if len(hashes):
                at = np.minimum(np.searchsorted(hashes, distinct), len(hashes) - 1)
                hit = hashes[at] == distinct
                out[hit] = buckets[at[hit]]
        return out

    def _add(self, hashes: Int32s, buckets: Int32s) -> None:
        """Remember sorted hashes; runs of similar length are merged, so that each hash moves only a few times."""
        self._runs.append((hashes, buckets))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) >= len(self._runs[-2][0]):
            (h1, b1), (h2, b2) = self._runs.pop(), self._runs.pop()
            self._runs.append(_sorted_run(np.concatenate((h1, h2)), np.concatenate((b1, b2))))

    def _place(self, hashes: Int32s) -> Int32s:
        """Buckets for new hashes in order of arrival."""
        unassigned = len(hashes)
        buckets, takes = [], []
        for bucket in self._open_buckets():
            take = min(unassigned, self.layout.target - self._counts[bucket])
            self._counts[bucket] += take
            buckets.append(bucket)
            takes.append(take)
            unassigned -= take
            if not unassigned:
                break
        filled = np.repeat(np.array(buckets, np.int32), takes)
        if not unassigned:
            return filled
        # All own buckets are full and no more are allowed: the remaining keys are spread over the full ones.
        own = np.array(sorted(self._counts), np.int32)
        # The low bits of a product depend on the low bits alone, and these are the same for all keys of an assigner.
        mixed = (hashes[len(filled) :].view(np.uint32) * np.uint32(0x9E3779B9)) >> np.uint32(15)
        return np.concatenate((filled, own[mixed % np.uint32(len(own))]))

    def _open_buckets(self) -> Iterable[int]:
        """Yield own buckets below the target, ascending, then new buckets."""
        yield from sorted(b for b, n in self._counts.items() if n < self.layout.target)
        most = self.layout.max_buckets
        step = self.layout.assigners
        for bucket in range(self.channel % step, UNLIMITED if most == -1 else most, step):
            if bucket not in self._taken:
                self._taken.add(bucket)
                self._counts[bucket] = 0
                yield bucket
        if most == -1 or not self._counts:
            raise InvalidRequest(
                f"no bucket number below {UNLIMITED if most == -1 else most} is free for new keys: raise "
                f"'{opt.DYNAMIC_BUCKET_TARGET.name}' (now {self.layout.target})"
            )


def key_hashes(schema: TableSchema, rows: pa.Table | pa.RecordBatch) -> Int32s:
    """Return the hash of each row's key as in HASH index files: Murmur3 of the trimmed primary key's BinaryRow."""
    names = schema.trimmed_primary_keys
    hashes: Int32s = row_hash([schema.field(n).type for n in names], [rows.column(n) for n in names]).view(np.int32)
    return hashes


def partition_hash(partition: bytes) -> int:
    """Return the hash of a partition, given as a BinaryRow with arity."""
    words = np.frombuffer(partition, "<u4", offset=4)
    return int(murmur_words(words, np.array([0, len(words)], np.int64)).view(np.int32)[0])


def _sorted_run(hashes: Int32s, buckets: Int32s) -> tuple[Int32s, Int32s]:
    order: Int64s = np.argsort(hashes, kind="stable")
    return hashes[order], buckets[order]


# --- HASH index files -------------------------------------------------------------------------------------------------


class DynamicBucketAssigner:
    """Assigns buckets to rows of all partitions of a dynamic-bucket table that come to one assigner.

    ``states`` are the table's buckets by (partition, bucket); a partition's HASH files are read with its first row.
    Mutable, one thread.
    """

    def __init__(
        self,
        context: MergeTreeContext,
        store: Store,
        states: Mapping[tuple[bytes, int], BucketState],
        layout: AssignerLayout | None = None,
        channel: int = 0,
    ) -> None:
        self._context = context
        self._store = store
        self._layout = layout or AssignerLayout.of(context.schema)
        self._channel = channel
        self._partitions: dict[bytes, PartitionAssigner] = {}
        self._states: dict[bytes, list[BucketState]] = {}
        for (partition, _), state in states.items():
            self._states.setdefault(partition, []).append(state)

    def assign(self, partition: bytes, hashes: Int32s, start: int | None = None) -> Int32s:
        """Return the bucket of each row of a partition (a BinaryRow with arity) from its key's hash.

        Rows come in order of arrival.  ``start`` is the channel at which the partition's assigners begin; None: its
        hash decides.  Raises :class:`InvalidRequest` when bucket numbers run out and :class:`CorruptError` for damaged
        HASH files.
        """
        assigner = self._partitions.get(partition)
        if assigner is None:
            begin = partition_hash(partition) if start is None else start
            assigner = self._partitions[partition] = self._load(partition, begin)
        try:
            return assigner.assign(hashes)
        except InvalidRequest as e:
            raise InvalidRequest(f"table '{self._context.table}'{self._name(partition)}: {e}") from e

    def _load(self, partition: bytes, begin: int) -> PartitionAssigner:
        context = self._context
        indexed = {
            s.bucket: read_hashes(TableFiles(self._store, context.paths), context.schema, s.hashes)
            for s in self._states.get(partition, ())
            if s.hashes is not None
        }
        try:
            return PartitionAssigner(self._layout, indexed, self._channel, begin)
        except CorruptError as e:
            raise CorruptError(f"table '{context.table}'{self._name(partition)}: {e}") from e

    def _name(self, partition: bytes) -> str:
        fields = self._context.schema.partition_fields
        if not fields:
            return ""
        return f", partition {partition_path(fields, decode_row([f.type for f in fields], partition))}"


def hash_index_change(
    context: MergeTreeContext, store: Store, state: BucketState, arrived: Int32s
) -> IndexChange | None:
    """Write a bucket's HASH index with the hashes of new rows, in order of arrival; None if it holds all of them.

    The whole file is written again, in the order in which Java writes it.
    """
    restored = None
    if state.hashes is not None:
        restored = read_hashes(TableFiles(store, context.paths), context.schema, state.hashes)
        if bool(np.isin(arrived, restored).all()):
            return None
    hashes = java_order(arrived, restored)
    if not len(hashes):
        return None
    index_file = write_hashes(TableFiles(store, context.paths), context.schema, state.partition, state.bucket, hashes)
    base = () if state.hashes is None else (state.hashes,)
    return IndexChange(state.partition, state.bucket, HASH, base, (index_file,))
