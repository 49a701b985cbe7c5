"""Dynamic buckets: keys stay where they are, buckets fill to their target, assigners keep out of each other's way."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import row_hash
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.mergetree.bucket_assignment import (
    AssignerLayout,
    PartitionAssigner,
    key_hashes,
    partition_hash,
)
from bitlake.metadata.schema import TableSchema
from bitlake.types import AtomicType, DataField, Root


class OneByOne:
    """The rules of the spec as they stand there, a key at a time."""

    def __init__(self, how: AssignerLayout, known: dict[int, list[int]]) -> None:
        self.how = how
        self.bucket = {h: b for b, hashes in known.items() for h in hashes}
        self.counts = {b: len(hashes) for b, hashes in known.items()}

    def assign(self, h: int) -> int | None:
        """The bucket, None where any of the existing ones will do."""
        if h in self.bucket:
            return self.bucket[h]
        chosen = next((b for b in sorted(self.counts) if self.counts[b] < self.how.target), None)
        if chosen is None:
            most = 32767 if self.how.max_buckets == -1 else self.how.max_buckets
            chosen = next((b for b in range(most) if b not in self.counts), None)
        if chosen is not None:
            self.counts[chosen] = self.counts.get(chosen, 0) + 1
            self.bucket[h] = chosen
        return chosen


HASHES = st.integers(-40, 40) | st.sampled_from([-(2**31), 2**31 - 1])


@pytest.mark.parametrize("examples", [60, exhaustive(200)])
def test_batches_are_assigned_as_keys_one_by_one(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        st.lists(st.lists(HASHES, max_size=30), max_size=5),
        st.integers(1, 7),
        st.sampled_from([-1, 1, 2, 5]),
        st.sets(HASHES, max_size=12),
    )
    def run(batches: list[list[int]], target: int, most: int, restored: set[int]) -> None:
        how = AssignerLayout(target, most)
        known: dict[int, list[int]] = {}
        for i, h in enumerate(sorted(restored)):
            known.setdefault((i % 3) % (3 if most == -1 else most), []).append(h)
        plain = OneByOne(how, known)
        assigner = PartitionAssigner(how, {b: np.array(hashes, np.int32) for b, hashes in known.items()})
        seen: dict[int, int] = {h: b for b, hashes in known.items() for h in hashes}
        for batch in batches:
            got = assigner.assign(np.array(batch, np.int32)).tolist()
            for h, bucket in zip(batch, got, strict=True):
                wanted = plain.assign(h)
                assert seen.setdefault(h, bucket) == bucket, "a key is in one bucket only"
                if wanted is not None:
                    assert bucket == wanted
                else:
                    assert 0 <= bucket < most and bucket in plain.counts

    run()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(0, 4), st.integers(-1, 6), st.integers(0, 2**32 - 1))
def test_assigners_share_no_new_bucket_and_no_key(parallelism: int, initial: int, most: int, seed: int) -> None:
    options = {"dynamic-bucket.target-row-num": "5", "dynamic-bucket.max-buckets": str(most if most != 0 else -1)}
    if initial:
        options["dynamic-bucket.initial-buckets"] = str(initial)
    how = AssignerLayout.of(_schema(options), parallelism)
    assert 1 <= how.assigners <= how.channels <= parallelism
    rng = np.random.default_rng(seed)
    hashes = rng.integers(-(2**31), 2**31, 60).astype(np.int32)
    start = int(rng.integers(-(2**31), 2**31))
    channels = how.channel(start, hashes)
    assert set(channels.tolist()) <= set(range(how.channels))
    owner: dict[int, int] = {}
    for channel in set(channels.tolist()):
        mine = hashes[channels == channel]
        for bucket in PartitionAssigner(how, {}, channel, start).assign(mine).tolist():
            assert owner.setdefault(bucket, channel) == channel
            assert how.max_buckets == -1 or bucket < how.max_buckets


def test_bucket_numbers_can_run_out() -> None:
    with pytest.raises(InvalidRequest, match="bucket number below 32767 is free"):
        PartitionAssigner(AssignerLayout(1), {}).assign(np.arange(40_000, dtype=np.int32))


def test_a_job_of_another_parallelism_finds_every_key_where_it_is() -> None:
    first = AssignerLayout(10, -1, 3, 3)
    keys = np.random.default_rng(7).integers(-(2**31), 2**31, 500).astype(np.int32)
    start = 12345
    placed: dict[int, int] = {}
    for channel in range(3):
        mine = keys[first.channel(start, keys) == channel]
        placed.update(
            zip(mine.tolist(), PartitionAssigner(first, {}, channel, start).assign(mine).tolist(), strict=True)
        )
    known: dict[int, list[int]] = {}
    for h, b in placed.items():
        known.setdefault(b, []).append(h)
    assert max(len(h) for h in known.values()) <= 10
    files = {b: np.array(h, np.int32) for b, h in known.items()}
    second = AssignerLayout(10, -1, 2, 2)
    fresh = np.random.default_rng(8).integers(-(2**31), 2**31, 300).astype(np.int32)
    both = np.concatenate((keys, fresh))
    for channel in range(2):
        mine = both[second.channel(start, both) == channel]
        for h, b in zip(
            mine.tolist(), PartitionAssigner(second, files, channel, start).assign(mine).tolist(), strict=True
        ):
            assert placed.setdefault(h, b) == b
    sizes = np.unique(list(placed.values()), return_counts=True)[1]
    assert sizes.max() <= 10


def test_many_small_batches_remember_all_that_came_before() -> None:
    rng = random.Random(3)
    assigner = PartitionAssigner(AssignerLayout(50), {})
    seen: dict[int, int] = {}
    for _ in range(200):
        batch = [rng.randrange(-5000, 5000) for _ in range(20)]
        for h, b in zip(batch, assigner.assign(np.array(batch, np.int32)).tolist(), strict=True):
            assert seen.setdefault(h, b) == b
    assert len(assigner._runs) < 12
    assert np.unique(list(seen.values()), return_counts=True)[1].max() == 50


def test_a_hash_in_two_buckets_is_damage() -> None:
    with pytest.raises(CorruptError, match="hash 7 is in the HASH index of buckets 0 and 3"):
        PartitionAssigner(AssignerLayout(5), {0: np.array([7, 1], np.int32), 3: np.array([7], np.int32)})


def test_a_partitions_hash_is_that_of_its_row() -> None:
    schema = _schema({})
    rows = pa.table({"day": ["monday", "a rather long day of the week", None], "id": pa.array([1, 2, 3], pa.int64())})
    found = row_hash([schema.field("day").type], [rows["day"]]).view(np.int32)
    for day, h in zip(rows["day"].to_pylist(), found.tolist(), strict=True):
        assert partition_hash(encode_row_with_arity([AtomicType(Root.VARCHAR, length=2**31 - 1)], [day])) == h
    assert len(set(key_hashes(schema, rows).tolist())) == 3


def _schema(options: dict[str, str]) -> TableSchema:
    fields = (
        DataField(0, "day", AtomicType(Root.VARCHAR, length=2**31 - 1)),
        DataField(1, "id", AtomicType(Root.BIGINT, nullable=False)),
    )
    return TableSchema(0, fields, 1, ("day",), ("day", "id"), options)


@pytest.mark.parametrize(("channels", "assigners"), [(1, 1), (2, 1), (3, 3), (6, 2), (6, 3), (7, 7)])
def test_channels_are_those_of_paimons_bucket_assigner(channels: int, assigners: int) -> None:
    """``computeAssigner``: (|partition % P| + |key % A|) % P, where % has the sign of the dividend."""

    def java_rest(a: int, b: int) -> int:
        return a - b * int(math.copysign(abs(a) // b, a))

    keys = [0, 1, -1, 5, -5, 2**31 - 1, -(2**31), *range(-20, 20)]
    partitions = [0, 1, -1, 4, -7, 2**31 - 1, -(2**31)]
    how = AssignerLayout(5, -1, channels, assigners)
    hashes = np.array(keys, np.int32)
    expected = {
        p: [(abs(java_rest(p, channels)) + abs(java_rest(k, assigners))) % channels for k in keys] for p in partitions
    }
    for partition in partitions:
        assert how.channel(partition, hashes).tolist() == expected[partition]
    each = how.channel(np.repeat(np.array(partitions, np.int32), len(keys)), np.tile(hashes, len(partitions)))
    assert each.tolist() == [c for p in partitions for c in expected[p]]


def test_one_assigner_is_the_default() -> None:
    assert AssignerLayout(5) == AssignerLayout(5, -1, 1, 1)
    assert AssignerLayout.of(_schema({})) == AssignerLayout(2_000_000, -1, 1, 1)
    keys = np.arange(-50, 50, dtype=np.int32)
    assert not AssignerLayout(5).channel(7, keys).any() and not AssignerLayout(5).channel(-(2**31), keys).any()
    assert PartitionAssigner(AssignerLayout(5), {}, partition_hash=7).assign(keys).max() == 19


@pytest.mark.parametrize("spread", ["random", "ascending", "steps"])
def test_keys_beyond_the_last_bucket_are_spread_evenly(spread: str) -> None:
    """Paimon picks a bucket at random; here a key's hash does, which gives each bucket about as many."""
    hashes = {
        "random": np.random.default_rng(4).integers(-(2**31), 2**31, 20_000),
        "ascending": np.arange(-10_000, 10_000),
        "steps": np.arange(-10_000, 10_000) * 4096,
    }[spread].astype(np.int32)
    for most in (2, 5, 8):
        buckets = PartitionAssigner(AssignerLayout(3, most), {}).assign(hashes)
        counts = np.bincount(buckets, minlength=most)
        assert len(counts) == most and counts.min() > 0.8 * len(hashes) / most


def test_keys_fill_the_room_that_is_left_before_they_are_spread() -> None:
    known = {0: np.array([1, 2, 3], np.int32), 1: np.array([4], np.int32)}
    assigner = PartitionAssigner(AssignerLayout(3, 2), known)
    assert assigner.assign(np.array([10, 11], np.int32)).tolist() == [1, 1]
    first = assigner.assign(np.arange(100, 200, dtype=np.int32))
    assert set(first.tolist()) == {0, 1}
    assert assigner.assign(np.arange(100, 200, dtype=np.int32)).tolist() == first.tolist()
