"""HASH index files: read to give keys their buckets, extended in Java's order, and nothing written for known keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.io import Store
from bitlake.mergetree.bucket import BucketState, MergeTreeContext
from bitlake.mergetree.bucket_assignment import DynamicBucketAssigner, hash_index_change
from bitlake.snapshot.index_files import read_hashes
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.hash_index import java_order
from tests.lsm_builders import context_of

NONE = BucketState(EMPTY_ROW, 0, -1)


def _table(root: Path, target: int = 3, **options: str) -> tuple[MergeTreeContext, Store]:
    chosen = {"bucket": "-1", "dynamic-bucket.target-row-num": str(target), **options}
    return context_of(root, [("id", "BIGINT NOT NULL"), ("v", "INT")], ["id"], chosen)


def _ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def test_an_index_grows_by_what_is_new_in_javas_order(tmp_path: Path) -> None:
    context, store = _table(tmp_path)
    first = hash_index_change(context, store, NONE, _ints(5, -7, 5, 0))
    assert first is not None and first.base == ()
    (made,) = first.new
    assert (
        read_hashes(TableFiles(store, context.paths), context.schema, made).tolist()
        == java_order(_ints(5, -7, 0)).tolist()
    )
    state = replace(NONE, hashes=made)
    assert hash_index_change(context, store, state, _ints(0, 5)) is None
    second = hash_index_change(context, store, state, _ints(9, 5))
    assert second is not None and second.base == (made,)
    restored = read_hashes(TableFiles(store, context.paths), context.schema, made)
    found = read_hashes(TableFiles(store, context.paths), context.schema, second.new[0])
    assert found.tolist() == java_order(_ints(9, 5), restored).tolist()
    assert hash_index_change(context, store, NONE, _ints()) is None


def test_keys_of_earlier_writes_are_found_and_gaps_filled(tmp_path: Path) -> None:
    context, store = _table(tmp_path)
    states = {}
    for bucket, hashes in ((0, _ints(1, 2, 3)), (1, _ints(4))):
        change = hash_index_change(context, store, replace(NONE, bucket=bucket), hashes)
        assert change is not None
        states[EMPTY_ROW, bucket] = replace(NONE, bucket=bucket, hashes=change.new[0])
    assigner = DynamicBucketAssigner(context, store, states)
    assert assigner.assign(EMPTY_ROW, _ints(4, 9, 2, 10, 11, 9)).tolist() == [1, 1, 0, 1, 2, 1]


def test_a_key_in_two_buckets_and_too_few_buckets_are_told(tmp_path: Path) -> None:
    context, store = _table(tmp_path, target=1)
    states = {}
    for bucket in (0, 1):
        change = hash_index_change(context, store, replace(NONE, bucket=bucket), _ints(8))
        assert change is not None
        states[EMPTY_ROW, bucket] = replace(NONE, bucket=bucket, hashes=change.new[0])
    with pytest.raises(CorruptError, match="table 't': key hash 8 is in the HASH index of buckets 0 and 1"):
        DynamicBucketAssigner(context, store, states).assign(EMPTY_ROW, _ints(1))
    with pytest.raises(InvalidRequest, match="table 't': no bucket number"):
        DynamicBucketAssigner(context, store, {}).assign(EMPTY_ROW, np.arange(40_000, dtype=np.int32))
