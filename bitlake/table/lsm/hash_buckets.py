"""The HASH index of dynamic buckets, read to give rows their buckets and written with what came new.

A bucket's file (:mod:`bitlake.tableindex.hash_index`) belongs to the APPEND snapshot of the rows whose hashes it adds,
and is written as a whole.  Two writers that both extend one bucket's file conflict, by the base of its change.
Source: index-format spec, section 7.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitlake.codec.binary_row import decode_row
from bitlake.codec.hashing import Int32s
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.io import Store
from bitlake.metadata.index_manifest import HASH
from bitlake.metadata.partition import partition_path
from bitlake.snapshot.index_files import read_hashes, write_hashes
from bitlake.table.changes import IndexChange
from bitlake.table.lsm.assign import Assigners, PartitionAssigner, partition_hash
from bitlake.table.lsm.model import BucketState, LsmContext
from bitlake.tableindex.hash_index import java_order


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
            s.bucket: read_hashes(self._store, context.paths, context.schema, s.hashes)
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
        restored = read_hashes(store, context.paths, context.schema, state.hashes)
        if bool(np.isin(arrived, restored).all()):
            return None
    hashes = java_order(arrived, restored)
    if not len(hashes):
        return None
    made = write_hashes(store, context.paths, context.schema, state.partition, state.bucket, hashes)
    base = () if state.hashes is None else (state.hashes,)
    return IndexChange(state.partition, state.bucket, HASH, base, (made,))
