"""The decoder by hand says what the general one says, or nothing."""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import Any

import pytest
from fixtures import warehouse
from long import exhaustive

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import BitlakeError
from bitlake.metadata import manifest
from bitlake.metadata.manifest import (
    DataFileMeta,
    EntryKind,
    ManifestEntry,
    SimpleStats,
    decode_entries,
    encode_manifest,
)
from bitlake.types.datatypes import parse_type

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def quick(data: bytes, partitions: list[bytes] | None = None) -> list[ManifestEntry] | None:
    makers = (manifest._make_stats, DataFileMeta, manifest._EntryMaker())
    return decode_entries(data, manifest.KNOWN_SCHEMA, *makers, partitions)


def test_every_fixture_is_decoded_by_hand() -> None:
    seen = 0
    for path in warehouse().glob("default.db/*/manifest/manifest-*"):
        if path.name.startswith("manifest-list"):
            continue
        data = path.read_bytes()
        assert quick(data) == manifest._decode_any(data)
        seen += 1
    assert seen > 150


def entries() -> list[ManifestEntry]:
    """Entries in which everything that is shared with the last one is also different once, and every union is used."""
    rng = random.Random(3)
    stats = SimpleStats(b"low", b"high", (0, None, 5, -1, 2**40))
    plain = DataFileMeta("data-1.parquet", 10, 2, b"", b"", stats, stats, 0, 1, 0, 0)
    changes = {
        "file_name": ["é" * 40, "x" * 200, "z"],
        "file_size": [2**63 - 1, 0],
        "key_stats": [manifest.EMPTY_STATS, SimpleStats(b"", b"", (None,))],
        "value_stats": [manifest.EMPTY_STATS, SimpleStats(b"a" * 300, b"", ())],
        "schema_id": [7],
        "extra_files": [("a.index",), ("a", "b")],
        "creation_time": [1_760_000_000_000],
        "delete_row_count": [0],
        "embedded_index": [b"", b"i" * 500],
        "file_source": [0, 1],
        "value_stats_cols": [(), ("a", "b")],
        "external_path": ["s3://x/y"],
        "first_row_id": [5],
        "write_cols": [("a",)],
        "write_cols_sequences": [(1, 2)],
    }
    found = []
    for _ in range(400):
        name = rng.choice(list(changes))
        plain = dataclasses.replace(plain, **{name: rng.choice(changes[name])})
        kind = rng.choice(list(EntryKind))
        found.append(
            ManifestEntry(kind, rng.choice([b"p", b"q" * 20]), rng.choice([0, 300]), rng.choice([-1, 8]), plain)
        )
    return found


def test_every_field_and_every_change_between_neighbours() -> None:
    some = entries()
    data = encode_manifest(some)
    assert quick(data) == some == manifest._decode_any(data)


def test_no_entries_and_other_schemas() -> None:
    assert quick(encode_manifest([])) == []
    assert quick(encode_manifest(entries()).replace(b"_FILE_SOURCE", b"_FILE_SAUCES")) is None
    assert quick(b"") is None


@pytest.mark.parametrize("types", ["INT", "STRING"])
@pytest.mark.parametrize("count", [exhaustive(1), exhaustive(4), 5, 60])
def test_blocks_of_chosen_partitions(types: str, count: int) -> None:
    """All entries of them are found, however many are asked for, and blocks of others are left out."""
    rng = random.Random(count)
    values: list[Any] = list(range(300)) if types == "INT" else ["day " * (i % 5) + str(i) for i in range(300)]
    rows = [encode_row_with_arity([parse_type(types)], (v,)) for v in values]
    made = [dataclasses.replace(e, partition=rows[i // 20]) for i, e in enumerate(entries() * 15)]
    data = encode_manifest(made)
    for first in (0, 100, 299 - count):
        asked = rng.sample(rows[first : first + count + 1], count)
        found = quick(data, asked)
        assert found is not None and len(found) < len(made) / 2
        assert [e for e in found if e.partition in asked] == [e for e in made if e.partition in asked]
    gone = [encode_row_with_arity([parse_type("BIGINT")], (2**40 + v,)) for v in range(count)]
    assert quick(data, gone) == []


@pytest.mark.parametrize("others", [0, 3, 4, 9])
def test_entries_of_chosen_partitions(others: int) -> None:
    """Other partitions' entries of the same block are left out, also where partitions have no byte in common."""
    some = entries()
    data = encode_manifest(some)
    for wanted in (b"p", b"q" * 20):
        asked = [wanted, *(bytes((i + 1,)) * 30 for i in range(others))]
        assert manifest.decode_manifest(data, asked) == [e for e in some if e.partition == wanted]
    assert manifest.decode_manifest(data, [b"p", b"q" * 20]) == some == manifest.decode_manifest(data)
    assert manifest.decode_manifest(data, []) == []
    alike = [b"q" * n for n in range(15, 21)]
    assert manifest.decode_manifest(data, alike) == [e for e in some if e.partition == b"q" * 20]


def test_blocks_that_end_elsewhere_are_left_to_the_other_decoder() -> None:
    """A block ends with the header's 16 bytes; fewer records than none cannot be in it."""
    good = encode_manifest(entries()[:1])
    start = good.index(good[-16:]) + 16
    assert quick(good) == entries()[:1] and good[start] == 2, "the zigzag of 1"
    assert quick(good[:-1] + bytes((good[-1] ^ 1,))) is None
    assert quick(good[:start] + b"\1" + good[start + 1 :]) is None
    assert quick(good[:-1]) is None and quick(good + b"\2") is None
    with pytest.raises(BitlakeError):
        manifest.decode_manifest(good[:-1] + bytes((good[-1] ^ 1,)))


@pytest.mark.parametrize("seed", range(4))
def test_damage_inside_of_blocks_never_makes_them_disagree(seed: int) -> None:
    """Bytes are changed under the compression, where no checksum notices."""
    rng = random.Random(seed)
    good = encode_manifest(entries()[:3])
    start = good.index(zstd.compress(b"")[:4])
    sync = good[-16:]
    body = zstd.decompress(good[start:-16])
    agreed = 0
    for _ in range(500):
        bad = bytearray(body)
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(bad))
            if rng.random() < 0.8:
                bad[at] = rng.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, bad[at] ^ 1 << rng.randrange(8)])
            else:
                del bad[at : at + rng.randrange(1, 30)]
        packed = zstd.compress(bytes(bad))
        size, varint = len(packed) << 1, bytearray()
        while size > 0x7F:
            varint.append(size & 0x7F | 0x80)
            size >>= 7
        header = good[: good.index(sync) + 16]
        data = header + b"\x06" + bytes(varint) + bytes((size,)) + packed + sync
        try:
            found = quick(data)
        except BitlakeError:
            with pytest.raises(BitlakeError):
                manifest._decode_any(data)
            continue
        if found is not None:
            assert found == manifest._decode_any(data)
            agreed += 1
    assert agreed > 50


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31), 2**31, -(2**31) - 1])
def test_numbers_beyond_an_avro_int_are_left_to_the_other_decoder(number: int) -> None:
    plain = entries()[0]
    inside = -(2**31) <= number < 2**31
    for entry in (
        dataclasses.replace(plain, bucket=number),
        dataclasses.replace(plain, total_buckets=number),
        dataclasses.replace(plain, file=dataclasses.replace(plain.file, level=number)),
    ):
        assert quick(encode_manifest([entry])) == ([entry] if inside else None)
