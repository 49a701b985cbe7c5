"""Which dynamic bucket a row of a primary-key table goes to: whole batches of key hashes at a time.

A key that the partition's HASH index files know stays in its bucket; new ones fill the first bucket below
``dynamic-bucket.target-row-num`` hashes, in the order they arrive, then a new bucket of the lowest free number.
Rows may be spread over *assigners*, each with keys and buckets of its own::

    channel = ( |partitionHash % P| + |keyHash % A| ) % P          which assigner gets a row (% as in Java)
    assigner t gives new keys to buckets b with b % A == t % A

Source: index-format spec, sections 7.3 and 7.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import decode_row
from bitlake.codec.bucket import murmur_words, row_hash
from bitlake.codec.hashing import Int32s, Int64s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.io import Store
from bitlake.mergetree.commit_message import BucketState, LsmContext
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import HASH
from bitlake.metadata.partition import partition_path
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.index_files import IndexChange, read_hashes, write_hashes
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.hash_index import java_order

UNLIMITED = 32767
"""Bucket numbers stay below this; Paimon keeps them in 16 bits."""


@dataclass(frozen=True, slots=True)
class Assigners:
    """How the rows of one write are spread over assigners, and how large buckets may grow.

    ``channels`` (P) is the number of tasks, ``assigners`` (A) the number of them that share one partition; ``target``
    is in hashes; ``max_buckets`` is -1 without a limit.
    """

    target: int
    max_buckets: int = -1
    channels: int = 1
    assigners: int = 1

    @staticmethod
    def of(schema: TableSchema, parallelism: int = 1) -> Assigners:
        """Those of a table for a write of so many tasks at once."""
        options = schema.opts
        most = options.of(opt.DYNAMIC_BUCKET_MAX)
        channels = parallelism if most == -1 else min(parallelism, most)
        shared = min(options.of(opt.DYNAMIC_BUCKET_INITIAL) or channels, channels)
        # Paimon takes any P; only where A divides it do no two assigners of a partition own the same buckets.
        channels -= channels % shared
        return Assigners(options.of(opt.DYNAMIC_BUCKET_TARGET), most, channels, shared)

    def channel(self, partition_hash: int | Int32s, key_hashes: Int32s) -> Int32s:
        """The assigner of each row; hashes are signed, as in Java."""
        start = np.abs(np.fmod(np.asarray(partition_hash, np.int64), self.channels))
        own = np.abs(np.fmod(key_hashes.astype(np.int64), self.assigners))
        found: Int32s = ((start + own) % self.channels).astype(np.int32)
        return found


@dataclass(slots=True)
class PartitionAssigner:
    """Gives the key hashes of one partition that come to one assigner their buckets.  Mutable, one thread.

    ``known`` holds all hashes of the partition by bucket, other assigners' too: their buckets count as taken.
    ``channel`` is this assigner's number and ``partition_hash`` the partition's.  Raises :class:`CorruptError` if a
    hash is in two buckets.
    """

    how: Assigners
    known: Mapping[int, Int32s]
    channel: int = 0
    partition_hash: int = 0
    _runs: list[tuple[Int32s, Int32s]] = field(default_factory=list)
    _counts: dict[int, int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        hashes, buckets = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for bucket, found in sorted(self.known.items()):
            self._taken.add(bucket)
            if self._owns(bucket):
                self._counts[bucket] = len(found)
            mine = found[self.how.channel(self.partition_hash, found) == self.channel]
            hashes.append(mine)
            buckets.append(np.full(len(mine), bucket, np.int32))
        run = _sorted_run(np.concatenate(hashes), np.concatenate(buckets))
        twice = np.flatnonzero(run[0][1:] == run[0][:-1])
        if len(twice):
            at = int(twice[0])
            raise CorruptError(
                f"key hash {run[0][at]} is in the HASH index of buckets {run[1][at]} and {run[1][at + 1]}"
            )
        self._runs = [run]
        self.known = {}

    @staticmethod
    def counted(how: Assigners, counts: Mapping[int, int], channel: int = 0) -> PartitionAssigner:
        """An assigner for keys that are all new, of a partition whose buckets hold so many rows each."""
        made = PartitionAssigner(how, {}, channel)
        made._taken.update(counts)
        made._counts.update({b: n for b, n in counts.items() if made._owns(b)})
        return made

    def assign(self, hashes: Int32s) -> Int32s:
        """The bucket of each row, in order of arrival; equal hashes, in whatever call, get the same.

        Raises :class:`InvalidRequest` when bucket numbers run out.
        """
        distinct, first, back = np.unique(hashes, return_index=True, return_inverse=True)
        found = self._lookup(distinct)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            arrived = missing[np.argsort(first[missing], kind="stable")]
            found[arrived] = self._place(distinct[arrived])
            self._add(distinct[missing], found[missing])
        assigned: Int32s = found[back]
        return assigned

    def _owns(self, bucket: int) -> bool:
        return bucket % self.how.assigners == self.channel % self.how.assigners

    def _lookup(self, distinct: Int32s) -> Int32s:
        """The buckets of sorted hashes; -1 for those that are new."""
        out = np.full(len(distinct), -1, np.int32)
        for hashes, buckets in self._runs:
            if len(hashes):
                at = np.minimum(np.searchsorted(hashes, distinct), len(hashes) - 1)
                hit = hashes[at] == distinct
                out[hit] = buckets[at[hit]]
        return out

    def _add(self, hashes: Int32s, buckets: Int32s) -> None:
        """Remember sorted hashes; runs of similar length are merged, so that each hash moves a few times only."""
        self._runs.append((hashes, buckets))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) >= len(self._runs[-2][0]):
            (h1, b1), (h2, b2) = self._runs.pop(), self._runs.pop()
            self._runs.append(_sorted_run(np.concatenate((h1, h2)), np.concatenate((b1, b2))))

    def _place(self, hashes: Int32s) -> Int32s:
        """Buckets for new hashes in order of arrival."""
        left = len(hashes)
        buckets, takes = [], []
        for bucket in self._open_buckets():
            take = min(left, self.how.target - self._counts[bucket])
            self._counts[bucket] += take
            buckets.append(bucket)
            takes.append(take)
            left -= take
            if not left:
                break
        filled = np.repeat(np.array(buckets, np.int32), takes)
        if not left:
            return filled
        # All own buckets are full and no more are allowed: spread over them, whatever they hold.
        own = np.array(sorted(self._counts), np.int32)
        # The low bits of a product depend on the low bits alone, and these are the same for all keys of an assigner.
        mixed = (hashes[len(filled) :].view(np.uint32) * np.uint32(0x9E3779B9)) >> np.uint32(15)
        return np.concatenate((filled, own[mixed % np.uint32(len(own))]))

    def _open_buckets(self) -> Iterable[int]:
        """Own buckets below the target, ascending, then new ones."""
        yield from sorted(b for b, n in self._counts.items() if n < self.how.target)
        most = self.how.max_buckets
        step = self.how.assigners
        for bucket in range(self.channel % step, UNLIMITED if most == -1 else most, step):
            if bucket not in self._taken:
                self._taken.add(bucket)
                self._counts[bucket] = 0
                yield bucket
        if most == -1 or not self._counts:
            raise InvalidRequest(
                f"no bucket number below {UNLIMITED if most == -1 else most} is free for new keys: raise "
                f"'{opt.DYNAMIC_BUCKET_TARGET.name}' (now {self.how.target})"
            )


def key_hashes(schema: TableSchema, rows: pa.Table | pa.RecordBatch) -> Int32s:
    """The hash of each row's key, as HASH index files hold it: Murmur3 of the trimmed primary key's BinaryRow."""
    return _hashes(schema, schema.trimmed_primary_keys, rows)


def partition_hashes(schema: TableSchema, rows: pa.Table | pa.RecordBatch) -> Int32s:
    """The hash of each row's partition."""
    return _hashes(schema, schema.partition_keys, rows)


def partition_hash(partition: bytes) -> int:
    """The hash of a partition, given as a BinaryRow with arity."""
    words = np.frombuffer(partition, "<u4", offset=4)
    return int(murmur_words(words, np.array([0, len(words)], np.int64)).view(np.int32)[0])


def _hashes(schema: TableSchema, names: Sequence[str], rows: pa.Table | pa.RecordBatch) -> Int32s:
    hashes: Int32s = row_hash([schema.field(n).type for n in names], [rows.column(n) for n in names]).view(np.int32)
    return hashes


def _sorted_run(hashes: Int32s, buckets: Int32s) -> tuple[Int32s, Int32s]:
    order: Int64s = np.argsort(hashes, kind="stable")
    return hashes[order], buckets[order]


# --- hash_buckets ---
# The HASH index of dynamic buckets, read to give rows their buckets and written with what came new.
#
# A bucket's file (:mod:`bitlake.tableindex.hash_index`) belongs to the APPEND snapshot of the rows whose hashes it
# adds, and is written as a whole.  Two writers that both extend one bucket's file conflict, by the base of its change.
# Source: index-format spec, section 7.3.


class DynamicAssigner:
    """Gives rows of all partitions of a dynamic-bucket table their buckets, as far as they come to one assigner.

    ``states`` are the table's buckets by (partition, bucket); a partition's HASH files are read when its first row
    comes.  Mutable, one thread.
    """

    def __init__(
        self,
        context: LsmContext,
        store: Store,
        states: Mapping[tuple[bytes, int], BucketState],
        how: Assigners | None = None,
        channel: int = 0,
    ) -> None:
        self._context = context
        self._store = store
        self._how = how or Assigners.of(context.schema)
        self._channel = channel
        self._partitions: dict[bytes, PartitionAssigner] = {}
        self._states: dict[bytes, list[BucketState]] = {}
        self.know(states)

    def know(self, states: Mapping[tuple[bytes, int], BucketState]) -> None:
        """Add the buckets of partitions that no row has come for yet."""
        for (partition, _), state in states.items():
            self._states.setdefault(partition, []).append(state)

    def assign(self, partition: bytes, hashes: Int32s, start: int | None = None) -> Int32s:
        """The bucket of each row of a partition (a BinaryRow with arity), from its key's hash, in order of arrival.

        ``start`` is the channel that the partition's assigners begin at, where its hash did not choose that.
        """
        found = self._partitions.get(partition)
        if found is None:
            begin = partition_hash(partition) if start is None else start
            found = self._partitions[partition] = self._load(partition, begin)
        try:
            return found.assign(hashes)
        except InvalidRequest as e:
            raise InvalidRequest(f"table '{self._context.table}'{self._name(partition)}: {e}") from e

    def _load(self, partition: bytes, begin: int) -> PartitionAssigner:
        context = self._context
        known = {
            s.bucket: read_hashes(TableFiles(self._store, context.paths), context.schema, s.hashes)
            for s in self._states.get(partition, ())
            if s.hashes is not None
        }
        try:
            return PartitionAssigner(self._how, known, self._channel, begin)
        except CorruptError as e:
            raise CorruptError(f"table '{context.table}'{self._name(partition)}: {e}") from e

    def _name(self, partition: bytes) -> str:
        fields = self._context.schema.partition_fields
        if not fields:
            return ""
        return f", partition {partition_path(fields, decode_row([f.type for f in fields], partition))}"


def hash_change(context: LsmContext, store: Store, state: BucketState, arrived: Int32s) -> IndexChange | None:
    """The HASH index of a bucket with the hashes of newly written rows, in order of arrival; None if all were known.

    The whole file is written anew, in the order in which Java would write it.
    """
    restored = None
    if state.hashes is not None:
        restored = read_hashes(TableFiles(store, context.paths), context.schema, state.hashes)
        if bool(np.isin(arrived, restored).all()):
            return None
    hashes = java_order(arrived, restored)
    if not len(hashes):
        return None
    made = write_hashes(TableFiles(store, context.paths), context.schema, state.partition, state.bucket, hashes)
    base = () if state.hashes is None else (state.hashes,)
    return IndexChange(state.partition, state.bucket, HASH, base, (made,))
