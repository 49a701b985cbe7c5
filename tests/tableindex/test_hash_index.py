"""HASH index files: Paimon's order reproduced, damage found."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from fixtures import warehouse
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.binary_row import decode_row
from bitlake.codec.bucket import row_hash
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.metadata.index_manifest import HASH, decode_index_manifest
from bitlake.metadata.snapshot import Snapshot
from bitlake.tableindex.hash_index import decode_hashes, encode_hashes, java_order
from bitlake.types.datatypes import parse_type


class FastutilSet:
    """The same set, one hash after the other."""

    def __init__(self, expected: int) -> None:
        self._resize(1 << (max(2, math.ceil(expected / 0.75)) - 1).bit_length())
        self.size = 0
        self.zero = False

    def _resize(self, n: int) -> None:
        self.n, self.key = n, [0] * n
        self.fill = min(math.ceil(n * 0.75), n - 1)

    def _put(self, x: int) -> bool:
        t = (x * 0x9E3779B9) & 0xFFFFFFFF
        at = (t ^ t >> 16) & (self.n - 1)
        while self.key[at]:
            if self.key[at] == x:
                return False
            at = (at + 1) & (self.n - 1)
        self.key[at] = x
        return True

    def add(self, x: int) -> None:
        if x == 0:
            if self.zero:
                return
            self.zero = True
        elif not self._put(x):
            return
        self.size += 1
        if self.size - 1 >= self.fill:
            old = [k for k in reversed(self.key) if k]
            self._resize(1 << (max(2, math.ceil((self.size + 1) / 0.75)) - 1).bit_length())
            for k in old:
                self._put(k)

    def order(self) -> list[int]:
        return [0] * self.zero + [k for k in reversed(self.key) if k]


hashes = st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-3, 40)), max_size=300)


@given(hashes, st.one_of(st.none(), hashes))
def test_the_order_is_fastutils(arrived: list[int], restored: list[int] | None) -> None:
    before = None if restored is None else list(dict.fromkeys(restored))
    model = FastutilSet(16 if before is None else len(before))
    for x in [*(before or []), *arrived]:
        model.add(x)
    found = java_order(np.array(arrived, np.int32), None if before is None else np.array(before, np.int32))
    assert found.tolist() == model.order()
    assert decode_hashes(encode_hashes(found), len(found)).tolist() == model.order()


@pytest.mark.parametrize("restored", [*range(8), 11, 12, 13, 23, 24, 25, 26, None])
def test_tables_of_each_size_at_first(restored: int | None) -> None:
    """The number of restored hashes gives the capacity, none of them the least."""
    rng = np.random.default_rng(restored)
    for arrivals in (0, 1, 2, 3, 5, 13, 40):
        some = rng.choice(2**31, (restored or 0) + arrivals, replace=False).astype(np.int32)
        before = None if restored is None else some[:restored]
        model = FastutilSet(16 if restored is None else restored)
        for x in some.tolist():
            model.add(x)
        assert java_order(some[restored or 0 :], before).tolist() == model.order()


def test_many_hashes_are_placed_quickly() -> None:
    some = np.random.default_rng(5).integers(-(2**31), 2**31, 300_000).astype(np.int32)
    model = FastutilSet(16)
    for x in some.tolist():
        model.add(x)
    assert java_order(some).tolist() == model.order()


def paimons() -> list[tuple[str, str, list[bytes]]]:
    """(table, bucket folder, its HASH files one after the other) of the fixture tables."""
    found: dict[tuple[str, str], list[bytes]] = {}
    for manifest in sorted(warehouse().glob("default.db/*/snapshot/snapshot-*"), key=lambda p: int(p.name[9:])):
        table = manifest.parent.parent
        named = Snapshot.from_json(manifest.read_bytes()).index_manifest
        if named is None:
            continue
        for entry in decode_index_manifest((table / "manifest" / named).read_bytes()):
            if entry.index_type == HASH:
                data = (table / "index" / entry.file_name).read_bytes()
                assert len(decode_hashes(data, entry.row_count)) * 4 == entry.file_size
                (day,) = decode_row([parse_type("DATE NOT NULL")], entry.partition)
                files = found.setdefault((table.name, f"order_date={day}/bucket-{entry.bucket}"), [])
                if not files or files[-1] != data:
                    files.append(data)
    return [(table, folder, files) for (table, folder), files in found.items()]


def test_paimons_files_are_made_again_from_the_keys_that_arrived() -> None:
    """Sequence numbers tell in which order the keys of a bucket came."""
    made = paimons()
    for table, folder, files in made:
        parts = [
            pa.parquet.read_table(f, columns=["_KEY_order_id", "_SEQUENCE_NUMBER"], partitioning=None)
            for f in (warehouse() / "default.db" / table / folder).glob("data-*.parquet")
        ]
        rows = pa.concat_tables(parts).sort_by("_SEQUENCE_NUMBER")
        keys = row_hash([parse_type("BIGINT NOT NULL")], [rows.column(0)]).view(np.int32)
        _, first = np.unique(keys, return_index=True)
        arrived = keys[np.sort(first)]
        last = None
        for data in files:
            stored = decode_hashes(data)
            known = 0 if last is None else len(last)
            assert encode_hashes(java_order(arrived[known : len(stored)], last)) == data
            last = stored
    assert sum(len(files) for _, _, files in made) >= 8


def test_files_that_cannot_be_are_refused() -> None:
    for size in (5, 6, 7):
        with pytest.raises(CorruptError, match="4 each") as e:
            decode_hashes(bytes(size))
        assert e.value.offset == 4
    with pytest.raises(CorruptError, match="cannot hold 3") as e:
        decode_hashes(bytes(8), 3)
    assert e.value.offset == 0
    with pytest.raises(CorruptError, match="hash 5 is in a HASH index twice at byte 8"):
        decode_hashes(bytes.fromhex("000000050000000600000005"))
    with pytest.raises(InvalidRequest):
        encode_hashes(np.array([1, 1], np.int32))
