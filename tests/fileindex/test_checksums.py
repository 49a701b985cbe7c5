from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import CorruptError
from bitlake.expressions.tree import Comparison, Op
from bitlake.fileindex import payload as lazy_bytes
from bitlake.fileindex.container import encode_container, read_header
from bitlake.fileindex.payload import CHUNK_BITS, MAGIC, MOST_BODY, LazyBytes, block_length
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import IndexBuilder, IndexSpec
from bitlake.types import AtomicType, DataField, Root

CHUNK = 1 << CHUNK_BITS
FIELDS = (DataField(0, "s", AtomicType(Root.VARCHAR, length=99)), DataField(1, "i", AtomicType(Root.INT)))
ROWS = 20_000


def built(checksums: bool) -> bytes:
    builder = IndexBuilder([IndexSpec("s", "bitmap", {}), IndexSpec("i", "bloom-filter", {})], FIELDS)
    numbers = np.arange(ROWS)
    builder.add(pa.table({"s": [f"value-{n % 5000:05d}" for n in numbers], "i": pa.array(numbers % 777, pa.int32())}))
    return builder.finish(checksums=checksums)


CHECKED, PLAIN = built(True), built(False)


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.data[offset : offset + length]


def ask(data: bytes, strict: bool = False) -> tuple[Any, Any, Bytes]:
    fetch = Bytes(data)
    index = open_index(fetch, len(data), FIELDS, ROWS, strict)
    return index, index.evaluate(Comparison("s", Op.EQ, "value-01234")), fetch


def test_the_same_payloads_behind_a_longer_head() -> None:
    with_sums, without = read_header(CHECKED), read_header(PLAIN)
    grown = with_sums.length - without.length
    assert without.checksums is None and with_sums.checksums is not None
    assert grown == block_length(len(PLAIN) - without.length) and MAGIC in CHECKED[: with_sums.length]
    assert CHECKED[with_sums.length :] == PLAIN[without.length :]
    assert ask(CHECKED)[1] == ask(PLAIN)[1] and ask(CHECKED)[1].count(ROWS) == 4


def test_little_more_is_read() -> None:
    plain, checked = ask(PLAIN)[0], ask(CHECKED)[0]
    assert len(CHECKED) > 40 * CHUNK
    assert checked.bytes_read <= plain.bytes_read + 4 * CHUNK
    assert checked.bytes_read < 64 * 1024


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_noticed_or_not_looked_at(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(CHECKED)
    at = int(rng.integers(len(data)))
    data[at] ^= 1 << int(rng.integers(8))
    index, found, fetch = ask(bytes(data))
    looked = any(offset <= at < offset + length for offset, length in fetch.asked)
    assert found.count(ROWS) == ROWS if index.problems else found == ask(CHECKED)[1]
    assert bool(index.problems) == looked or at >= read_header(CHECKED).length  # read ahead, but not used
    with pytest.raises(CorruptError):
        read_header(bytes(data))


def test_every_bit_of_a_small_container_counts() -> None:
    data = encode_container({"a": {"bitmap": b"123", "bsi": None}}, mark=b"rewrite1", checksums=True)
    assert read_header(data).columns["a"]["bsi"] == (-1, 0)
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        if bit // 8 in range(len(data) - 3 - 8, len(data) - 3 - 4):
            continue  # without its magic the block is somebody else's: no checksums
        with pytest.raises(Exception, match=r"checksum|file index|index|UTF|column|known|left|bytes") as found:
            read_header(bytes(broken))
        assert type(found.value).__module__ == "bitlake.errors"


@pytest.mark.parametrize("change", [-1, -CHUNK, 1, CHUNK])
def test_a_container_cut_or_grown(change: int) -> None:
    data = CHECKED[:change] if change < 0 else CHECKED + bytes(change)
    with pytest.raises(CorruptError):
        read_header(data)


def test_a_large_body_has_a_checked_head_only() -> None:
    data = encode_container({"a": {"bitmap": bytes(MOST_BODY + 1)}}, checksums=True)
    header = read_header(data)
    assert header.length < 100 and header.checksums is None
    broken = bytearray(data)
    broken[24] ^= 1
    with pytest.raises(CorruptError):
        read_header(bytes(broken))
    assert read_header(data[: header.length], len(data)).columns == header.columns


def test_empty_and_full_chunks() -> None:
    for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK):
        data = encode_container({"a": {"bitmap": bytes(size)}}, checksums=True)
        header = read_header(data)
        assert header.columns["a"]["bitmap"] == (header.length, size) and header.length + size == len(data)
        assert header.checksums is not None and len(header.checksums.sums) == -(-size // CHUNK)


def test_chunks_of_every_size_that_the_block_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for bits in (8, 24):
        monkeypatch.setattr(lazy_bytes, "CHUNK_BITS", bits)
        data = encode_container({"a": {"bitmap": bytes(700)}}, checksums=True)
        found = read_header(data).checksums
        assert found is not None and (found.chunk, len(found.sums)) == (1 << bits, -(-700 // (1 << bits)))
    for bits in (7, 25):
        monkeypatch.setattr(lazy_bytes, "CHUNK_BITS", bits)
        with pytest.raises(CorruptError, match="no checksums for a body of 700 bytes"):
            read_header(encode_container({"a": {"bitmap": bytes(700)}}, checksums=True))


@pytest.mark.parametrize("size", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1])
def test_the_last_byte_is_verified(size: int) -> None:
    data = encode_container({"a": {"bitmap": bytes(size)}}, checksums=True)
    start = read_header(data).length
    for at in (start, len(data) - 1):
        with pytest.raises(CorruptError, match="checksum of .* bytes of the index") as e:
            read_header(data[:at] + b"\1" + data[at + 1 :])
        assert e.value.offset == start + (at - start) // CHUNK * CHUNK


@pytest.mark.parametrize("last", [1, 7, CHUNK - 1, CHUNK])
def test_a_chunk_is_verified_when_it_is_fetched_alone(last: int) -> None:
    """The last one, which may be short, as well as those before."""
    data = encode_container({"a": {"bitmap": bytes(2 * CHUNK + last)}}, checksums=True)
    header = read_header(data)
    assert header.checksums is not None
    for at in (header.length, header.length + CHUNK, header.length + 2 * CHUNK, len(data) - 1):
        broken = data[:at] + b"\1" + data[at + 1 :]
        lazy = LazyBytes(Bytes(broken), len(data), header.length)
        lazy.view(0, header.length)
        lazy.check(header.checksums)
        for other in range(header.length, len(data), CHUNK):
            if other <= at < other + CHUNK:
                with pytest.raises(CorruptError, match="checksum of .* bytes of the index") as e:
                    lazy.view(at, 1, ahead=0)
                assert e.value.offset == other
            else:
                assert bytes(lazy.view(other, 1, ahead=0)) == b"\0"


def test_each_chunk_has_its_own_sum() -> None:
    data = encode_container({"a": {"bitmap": np.arange(CHUNK, dtype=">u4").tobytes()}}, checksums=True)
    start = read_header(data).length
    for at in range(start, len(data), CHUNK // 2):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(CorruptError) as e:
            read_header(bytes(broken))
        assert e.value.offset == start + (at - start) // CHUNK * CHUNK


def test_the_largest_body_with_sums() -> None:
    data = encode_container({"a": {"bitmap": bytes(MOST_BODY)}}, checksums=True)
    found = read_header(data).checksums
    assert found is not None and len(found.sums) == MOST_BODY // CHUNK


@pytest.mark.parametrize("chunks", [1, 2, 3, 9])
def test_a_body_of_whole_chunks_more_or_less(chunks: int) -> None:
    """The block in the head has one sum for each chunk, and no room for those of a larger body."""
    head = read_header(CHECKED).length
    whole = head + (len(CHECKED) - head) // CHUNK * CHUNK
    for data in (CHECKED + bytes(chunks * CHUNK), CHECKED[:whole] + bytes(CHUNK * chunks + 1)):
        with pytest.raises(CorruptError):
            read_header(data)


def test_a_damaged_head_is_said_where_its_checksum_is() -> None:
    """The name of a column is changed, which nothing but the checksum shows."""
    at = CHECKED.index(b"\0\1s") + 2
    length = read_header(CHECKED).length
    with pytest.raises(CorruptError, match="checksum of the file index header") as e:
        read_header(CHECKED[:at] + b"t" + CHECKED[at + 1 :])
    assert e.value.offset == length - 4
