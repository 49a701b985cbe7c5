"""Index manifests: Paimon's decode and encode again; what cannot be is refused."""

from __future__ import annotations

import contextlib
import io
import json

import fastavro
import pytest
from fixtures import warehouse

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.metadata.index_manifest import (
    DELETION_VECTORS,
    HASH,
    GlobalIndex,
    IndexFileEntry,
    decode_index_manifest,
    encode_index_manifest,
    vectors_by_file,
)
from bitlake.tableindex import VectorRange

PLACE = VectorRange("data-1.parquet", 1, 26, 3)
VECTORS = IndexFileEntry(b"\0" * 12, 0, DELETION_VECTORS, "index-1", 35, 1, (PLACE,))


def test_paimons_manifests_come_back_with_the_same_schema_and_records() -> None:
    paths = sorted(warehouse().glob("default.db/*/manifest/index-manifest-*"))
    for path in paths:
        data = path.read_bytes()
        entries = decode_index_manifest(data)
        made = encode_index_manifest(entries)
        ours, theirs = fastavro.reader(io.BytesIO(made)), fastavro.reader(io.BytesIO(data))
        assert ours.metadata["avro.schema"] == theirs.metadata["avro.schema"]
        assert json.dumps(list(ours), default=str) == json.dumps(list(theirs), default=str)
    assert len(paths) > 30


def test_every_field_comes_back() -> None:
    one = IndexFileEntry(b"\1\0", 3, HASH, "index-2", 8, 2, None, "s3://elsewhere/index-2")
    two = IndexFileEntry(b"", 0, "btree", "index-3", 9, 1, None, None, GlobalIndex(1, 9, 2, (4, 5), b"m", None))
    three = IndexFileEntry(b"", 0, DELETION_VECTORS, "index-4", 1, 0, ())
    assert decode_index_manifest(encode_index_manifest([VECTORS, one, two, three])) == [VECTORS, one, two, three]
    assert decode_index_manifest(encode_index_manifest([])) == []


def test_vectors_are_found_by_data_file() -> None:
    other = IndexFileEntry(b"\0" * 12, 0, HASH, "index-2", 8, 2)
    assert vectors_by_file([VECTORS, other]) == {"data-1.parquet": (VECTORS, PLACE)}
    again = IndexFileEntry(b"\0" * 12, 1, DELETION_VECTORS, "index-9", 35, 1, (PLACE,))
    with pytest.raises(CorruptError, match="two deletion vectors, in index-1 and index-9"):
        vectors_by_file([VECTORS, again])


def test_a_vector_file_needs_its_list() -> None:
    bare = IndexFileEntry(b"", 0, DELETION_VECTORS, "index-1", 1, 0)
    with pytest.raises(InvalidRequest):
        encode_index_manifest([bare])
    with pytest.raises(CorruptError):
        vectors_by_file([bare])


def test_damage_is_an_error() -> None:
    data = encode_index_manifest([VECTORS])
    for at in range(0, len(data), 7):
        bad = bytearray(data)
        bad[at] ^= 0x55
        with contextlib.suppress(BitlakeError):
            decode_index_manifest(bytes(bad))
        with pytest.raises(BitlakeError):
            decode_index_manifest(data[:at])
