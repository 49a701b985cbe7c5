"""Manifests decoded to columns hold what the decoder of entries says, or are left to it."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from fixtures import warehouse
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from long import every

from bitlake.codec.avro_cursors import padded
from bitlake.codec.bytes import zigzag
from bitlake.errors import BitlakeError
from bitlake.metadata import manifest, manifest_columns
from bitlake.metadata.manifest import (
    EMPTY_STATS,
    DataFileMeta,
    EntryKind,
    ManifestEntry,
    SimpleStats,
    decode_manifest,
    encode_manifest,
    stored_blocks,
)
from bitlake.metadata.manifest_columns import ManifestColumns, decode_columns

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENTRY = ManifestEntry(
    EntryKind.ADD,
    b"partition",
    3,
    8,
    DataFileMeta("data-1.parquet", 10, 2, b"a", b"z", EMPTY_STATS, SimpleStats(b"low", b"high", (0, 3)), 0, 1, 0, 0),
)


def check(columns: ManifestColumns, entries: Sequence[ManifestEntry]) -> None:
    """Assert that columns are these entries' fields, and that entries come back from any places."""
    every = np.arange(len(entries))
    assert len(columns) == len(entries)
    assert list(columns.entries(every)) == list(entries)
    assert list(columns.entries(every[1::7])) == list(entries[1::7])
    assert columns.kind.tolist() == [e.kind for e in entries]
    assert [columns.partitions[i] for i in columns.partition] == [e.partition for e in entries]
    assert [columns.column_lists[i] for i in columns.covered] == [e.file.value_stats_cols for e in entries]
    assert columns.bucket.tolist() == [e.bucket for e in entries]
    assert columns.total_buckets.tolist() == [e.total_buckets for e in entries]
    assert columns.level.tolist() == [e.file.level for e in entries]
    assert columns.file_size.tolist() == [e.file.file_size for e in entries]
    assert columns.row_count.tolist() == [e.file.row_count for e in entries]
    assert columns.schema_id.tolist() == [e.file.schema_id for e in entries]
    deleted = [-1 if e.file.delete_row_count is None else e.file.delete_row_count for e in entries]
    assert columns.deleted_rows.tolist() == deleted
    assert columns.has_external_path.tolist() == [e.file.external_path is not None for e in entries]
    for step in (1, 7):
        names = [name for chunk in columns.names(every[::step]) for name in chunk.to_pylist()]
        assert names == [e.file.file_name for e in entries[::step]]
    hashes: dict[str, int] = {}
    assert columns.name_hash.tolist() == manifest_columns.name_hashes([e.file.file_name for e in entries]).tolist()
    assert columns.has_extras.tolist() == [bool(e.file.extra_files) for e in entries]
    assert columns.name_hash.tolist() == [
        hashes.setdefault(e.file.file_name, value) for e, value in zip(entries, columns.name_hash.tolist(), strict=True)
    ]
    assert len(set(hashes.values())) == len(hashes)
    longest = max((len(e.file.value_stats.null_counts or ()) for e in entries), default=0)
    data = padded([columns._block(i) for i in range(len(columns.blocks))])
    sizes = [len(columns._block(i)) for i in range(len(columns.blocks))]
    counts = [b.records for b in columns.blocks]
    begins, ends = np.repeat(np.cumsum(sizes) - sizes, counts), np.repeat(np.cumsum(sizes), counts)
    for i in range(longest + 1):
        expected = [(e.file.value_stats.null_counts or ())[i : i + 1] or (None,) for e in entries]
        counted = manifest_columns._null_count(data, begins + columns.nulls, ends, i)
        assert counted.tolist() == [-1 if c is None else c for (c,) in expected]
    for e, low, n, high, m, begin in zip(
        entries, columns.low, columns.low_size, columns.high, columns.high_size, begins, strict=True
    ):
        assert data[begin + low : begin + low + n].tobytes() == e.file.value_stats.min
        assert data[begin + high : begin + high + m].tobytes() == e.file.value_stats.max


def repacked(data: bytes, change: Callable[..., tuple[int, bytes]]) -> bytes:
    """A manifest whose blocks are changed under their compression: number, records, bytes → records, bytes."""
    blocks = enumerate(stored_blocks(data, manifest.KNOWN_SCHEMA))
    return of_blocks(
        [change(i, count, zstd.decompress(data[start : start + size])) for i, (count, start, size) in blocks]
    )


def of_blocks(blocks: Sequence[tuple[int, bytes]]) -> bytes:
    """A manifest of these blocks: the number of records, and their bytes."""
    any_manifest = encode_manifest([ENTRY])
    sync = any_manifest[-16:]
    out = bytearray(any_manifest[: any_manifest.index(sync) + 16])
    for records, body in blocks:
        packed = zstd.compress(body)
        out += zigzag(records) + zigzag(len(packed)) + packed + sync
    return bytes(out)


def records_of(entries: Sequence[ManifestEntry]) -> bytes:
    """The records of entries, which fit into one block, one after the other."""
    ((_, start, size),) = stored_blocks(data := encode_manifest(entries), manifest.KNOWN_SCHEMA)
    return zstd.decompress(data[start : start + size])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few records each."""
    monkeypatch.setattr("bitlake.codec.avro.BLOCK_BYTES", 1_000)


def test_every_fixture() -> None:
    """All manifests at once, by their schema: those that Paimon of today wrote."""
    paths = [p for p in warehouse().glob("default.db/*/manifest/manifest-*") if "-list-" not in p.name]
    data = [p.read_bytes() for p in paths]
    decoded = decode_columns(data)
    assert sum(columns is not None for columns in decoded) > 150
    for some, columns in zip(data, decoded, strict=True):
        if columns is None:
            assert manifest.KNOWN_SCHEMA not in some, "only another schema is left to the other decoder here"
        else:
            check(columns, decode_manifest(some))


LONGS = st.one_of(st.integers(-3, 130), st.sampled_from([2**13 - 1, 2**13, 2**31, -(2**40), 2**54]))
INTS = st.one_of(st.integers(-3, 130), st.sampled_from([2**31 - 1, -(2**31)]))
PIECES = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 100, b"y" * 900]))
NAMES = st.one_of(st.text(st.sampled_from("ab.-9"), min_size=3, max_size=60), st.sampled_from(["é.parquet", "x" * 530]))
LISTS = st.sampled_from([None, (), ("a",), ("a", "bé"), ("c" * 530, "d")])
STATS = st.builds(SimpleStats, PIECES, PIECES, st.lists(st.one_of(st.none(), LONGS), max_size=9).map(tuple))
FILES = st.builds(
    DataFileMeta,
    file_name=NAMES,
    file_size=LONGS,
    row_count=LONGS,
    min_key=PIECES,
    max_key=PIECES,
    key_stats=STATS,
    value_stats=STATS,
    min_sequence_number=LONGS,
    max_sequence_number=LONGS,
    schema_id=LONGS,
    level=INTS,
    extra_files=st.lists(NAMES, max_size=2).map(tuple),
    creation_time=st.one_of(st.none(), LONGS),
    delete_row_count=st.one_of(st.none(), LONGS),
    embedded_index=st.one_of(st.none(), PIECES),
    file_source=st.sampled_from([None, 0, 1]),
    value_stats_cols=LISTS,
    external_path=st.one_of(st.none(), st.sampled_from(["s3://x/y", "s3://é/y"])),
    first_row_id=st.one_of(st.none(), LONGS),
    write_cols=LISTS,
    write_cols_sequences=st.one_of(st.none(), st.lists(LONGS, max_size=3).map(tuple)),
)
ENTRIES = st.builds(ManifestEntry, st.sampled_from(EntryKind), PIECES, INTS, INTS, FILES)


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(st.lists(ENTRIES, min_size=1, max_size=5), st.integers(0, 2**32))
def test_entries_of_any_kind(some: list[ManifestEntry], seed: int) -> None:
    """Entries in blocks of very different records, read in step."""
    rng = random.Random(seed)
    entries = [rng.choice(some) for _ in range(60)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bitlake.codec.avro.BLOCK_BYTES", rng.choice([1, 2_000, 64_000]))
        data = [encode_manifest(entries), encode_manifest(some)]
    for columns, expected in zip(decode_columns(data), (entries, some), strict=True):
        assert columns is not None
        check(columns, expected)


@pytest.mark.usefixtures("small_blocks")
def test_manifests_are_decoded_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk ends within a manifest, or holds several; an empty manifest has no entry."""
    entries = [replace(ENTRY, bucket=i, partition=b"p%d" % (i // 9)) for i in range(200)]
    data = [encode_manifest(e) for e in (entries, [], entries[:3], entries[5:90])]
    for blocks in (1, 3, 1_000):
        monkeypatch.setattr(manifest_columns, "CHUNK_RECORDS", blocks)
        for columns, expected in zip(decode_columns(data), (entries, [], entries[:3], entries[5:90]), strict=True):
            assert columns is not None and columns.bucket.tolist() == [e.bucket for e in expected]
            if expected:
                check(columns, expected)


def test_other_files_are_left_to_the_other_decoder() -> None:
    good = encode_manifest([ENTRY])
    others = [b"", b"Obj", good[:-1], good + b"\2", good.replace(b"_FILE_SOURCE", b"_FILE_SAUCES")]
    for name in ("..", "a/b", "", "a\\b", "a\0b", "x" * 600 + "/"):
        for file in (replace(ENTRY.file, file_name=name), replace(ENTRY.file, extra_files=("a.index", name))):
            others.append(encode_manifest([replace(ENTRY, file=file)]))
    others.append(encode_manifest([replace(ENTRY, bucket=2**31)]))
    assert decode_columns(others) == [None] * len(others)
    assert [c is not None for c in decode_columns([*others, good])][-1], "others beside it change nothing"


@pytest.mark.parametrize("seed", every(3, range(3)))
@pytest.mark.usefixtures("small_blocks")
def test_damage_never_makes_the_decoders_disagree(seed: int) -> None:
    """Bytes are changed under the compression, where no checksum notices; other manifests of the chunk stay whole."""
    rng = random.Random(seed)
    file = replace(ENTRY.file, extra_files=("data-1.index",), value_stats_cols=("a", "b"), delete_row_count=0)
    entries = [replace(ENTRY, bucket=i, file=replace(file, file_name=f"data-{i}.parquet")) for i in range(12)]
    good = encode_manifest(entries)

    def damage(number: int, count: int, body: bytes) -> tuple[int, bytes]:
        changed = bytearray(body)
        if number != hit:
            return count, body
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(changed))
            match rng.randrange(10):
                case 0:
                    del changed[at : at + rng.randrange(1, 30)]
                case 1:
                    count = rng.choice([0, 1, count + 1, 10**6])
                case _:
                    changed[at] = rng.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, changed[at] ^ 1 << rng.randrange(8)])
        return count, bytes(changed)

    agreed = refused = 0
    for _ in range(25):
        bad = []
        for _ in range(8):
            hit = rng.randrange(3)
            bad.append(repacked(good, damage))
        decoded = decode_columns([good, *bad, good])
        for whole in (decoded[0], decoded[-1]):
            assert whole is not None
            check(whole, entries)
        for data, columns in zip(bad, decoded[1:-1], strict=True):
            if columns is None:
                refused += 1
                continue
            check(columns, decode_manifest(data))
            agreed += 1
    assert agreed > 40 and refused > 40


@pytest.mark.usefixtures("small_blocks")
def test_claims_of_hostile_blocks_are_bounded() -> None:
    """Counts and lengths of up to 2^62 are compared with what is there: nothing is allocated for them."""
    good = encode_manifest([replace(ENTRY, bucket=i) for i in range(12)])
    at = good.index(good[-16:]) + 16
    for claim in (zigzag(2**62), zigzag(-5), zigzag(10**6)):
        assert decode_columns([good[:at] + claim + good[at + 1 :]]) == [None]
    for number in (2**61, -(2**61), 2**40, 70_000):
        claim = zigzag(number) + b"partition"
        bad = repacked(good, lambda _, n, body, claim=claim: (n, body.replace(b"\x12partition", claim)))
        assert decode_columns([bad]) == [None]
        with pytest.raises(BitlakeError):
            decode_manifest(bad)
    many = repacked(good, lambda _, n, body: (n, body.replace(b"\4\2\0\2\6\0", zigzag(len(body)) + b"\2\0\2\6\0")))
    assert many != good and decode_columns([many]) == [None]
    bomb = repacked(good, lambda number, n, body: (n, body if number else body + bytes(80 << 20)))
    assert decode_columns([bomb]) == [None]


def test_blocks_of_very_many_records_are_left_to_the_other_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few bytes of a bomb would take memory for the numbers of millions of records."""
    monkeypatch.setattr(manifest_columns, "_MOST_RECORDS", 200)
    few, many = encode_manifest([ENTRY] * 200), repacked(encode_manifest([ENTRY]), lambda _, n, body: (201, body * 201))
    decoded = decode_columns([few, many])
    assert decoded[0] is not None and decoded[1] is None
    assert len(decode_manifest(many)) == 201


@pytest.mark.parametrize("partition", [b"partition", b"", b"p", b"\0\0\0\1" + bytes(80)])
def test_bytes_that_look_like_records_are_none(partition: bytes) -> None:
    """Whole records, and what records begin with, within the texts of others; and partitions of another length."""
    like = replace(ENTRY, partition=partition)
    record = records_of([like])
    for inner in (record, record[: len(record) // 2], record[:9], b"\4\0" * 2, b"\4\2" + bytes(30)):
        stats = SimpleStats(inner, inner, (0,))
        file = replace(ENTRY.file, value_stats=stats, min_key=inner, embedded_index=inner)
        some = [replace(like, bucket=i, file=file) if i % 3 else replace(like, bucket=i) for i in range(20)]
        some[5] = replace(some[5], partition=partition + b"of another length", kind=EntryKind.DELETE)
        (columns,) = decode_columns([encode_manifest(some)])
        assert columns is not None
        check(columns, some)


def test_a_block_that_is_read_again_keeps_its_own_lists_of_columns() -> None:
    """All records of one block share a list of columns; those of the other, which is read again, share another one."""
    lists = (None, ("a",))
    some = [replace(ENTRY, bucket=i, file=replace(ENTRY.file, value_stats_cols=lists[i // 9])) for i in range(18)]
    for changed in (5, 14):
        entries = [*some]
        entries[changed] = replace(some[changed], partition=b"of another length")
        (columns,) = decode_columns([of_blocks([(9, records_of(entries[i : i + 9])) for i in (0, 9)])])
        assert columns is not None
        check(columns, entries)


def test_blocks_with_too_many_possible_records_are_left_to_the_other_decoder() -> None:
    """Only where records do not begin alike are all places looked at where one could begin; these are limited."""
    crowded = [replace(ENTRY, file=replace(ENTRY.file, min_key=b"\4\0" * 500)), replace(ENTRY, partition=b"another")]
    good = [replace(ENTRY, partition=b"p" * i) for i in range(5)]
    decoded = decode_columns([encode_manifest(e) for e in (crowded, good)])
    assert decoded[0] is None and decoded[1] is not None
    check(decoded[1], good)


def test_places_of_a_hostile_block_take_little_memory() -> None:
    """A few hundred bytes uncompress to millions of places that look like a record's first bytes."""
    body = b"\4\0" * (2 << 20)
    for records in (1, 65_536):
        tracemalloc.start()
        try:
            assert decode_columns([of_blocks([(records, body)])]) == [None]
            assert tracemalloc.get_traced_memory()[1] < 8 * len(body), (
                "8 bytes for each place would be 4 times the block"
            )
        finally:
            tracemalloc.stop()


def test_very_long_arrays_are_left_to_the_other_decoder() -> None:
    """Each of their items takes a step: a few hundred bytes would take minutes."""
    for items, is_decoded in ((16_384, True), (16_385, False)):
        some = replace(ENTRY, file=replace(ENTRY.file, write_cols=("",) * items))
        (columns,) = decode_columns([encode_manifest([ENTRY, some, ENTRY])])
        assert (columns is not None) is is_decoded
        (columns,) = decode_columns([encode_manifest([some])])
        assert (columns is not None) is is_decoded


def test_numbers_of_more_than_56_bits_are_left_to_the_other_decoder() -> None:
    entries = [replace(ENTRY, file=replace(ENTRY.file, file_size=n)) for n in (2**54, 2**55, 2**62, -(2**63))]
    decoded = decode_columns([encode_manifest([e]) for e in entries])
    assert [c is not None for c in decoded] == [True, False, False, False]
