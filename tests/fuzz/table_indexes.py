"""What is fuzzed of table indexes: deletion vectors, HASH files, index manifests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitlake.metadata.index_manifest import (
    DELETION_VECTORS,
    HASH,
    IndexFileEntry,
    decode_index_manifest,
    encode_index_manifest,
    vectors_by_file,
)
from bitlake.tableindex import VectorRange
from bitlake.tableindex.deletion_vectors import (
    DeletionVector,
    decode_index_file,
    decode_vector,
    encode_index_file,
    encode_vector,
    frame_bytes,
)
from bitlake.tableindex.hash_index import decode_hashes, encode_hashes, java_order
from tests.fixtures import warehouse
from tests.fuzz.target import Read, Target, guarded, uncompressed


def _index_files(kind: str) -> list[tuple[IndexFileEntry, bytes]]:
    """The table index files of the fixtures, smallest first."""
    found = {}
    for manifest in warehouse().glob("default.db/*/manifest/index-manifest-*"):
        for entry in decode_index_manifest(manifest.read_bytes()):
            if entry.index_type == kind:
                found[entry.file_name] = entry, (manifest.parent.parent / "index" / entry.file_name).read_bytes()
    return sorted(found.values(), key=lambda f: (len(f[1]), f[0].file_name))


def deletion_vectors() -> Target:
    """Deletion vector files: whole, where checksums leave only the right answer, and vectors alone."""

    def whole(places: Sequence[VectorRange], truth: dict[str, DeletionVector]) -> Read:
        def read(data: bytes) -> None:
            found = decode_index_file(data, places, lambda _: 1 << 20)
            assert found == truth, "a wrong answer"

        return read

    def alone(data: bytes) -> None:
        vector = decode_vector(data, 1 << 20)
        assert vector.cardinality == len(vector.positions()) <= 1 << 20
        decode_vector(encode_vector(vector), 1 << 20)

    dense = np.arange(1 << 18)
    many = {
        "runs": DeletionVector.of(dense[1000:9000]),
        "bits": DeletionVector.of(dense[dense * 7919 % 5 < 2], wide=True),
        "few": DeletionVector.of(dense[::9973]),
        "wide": DeletionVector.of(dense[::50_001], wide=True),
    }
    files = [(data, entry.ranges or ()) for entry, data in _index_files(DELETION_VECTORS)]
    seeds: list[tuple[bytes, Read]] = []
    for data, places in [encode_index_file(many), *files[::20]]:
        truth = decode_index_file(data, places)
        seeds.append((data, whole(places, truth)))
        seeds += [(encode_vector(vector), alone) for vector in list(truth.values())[:4]]
    return Target("deletion-vectors", seeds)


def hashes() -> Target:
    """HASH index files, with and without the number of hashes known."""

    def counted(rows: int) -> Read:
        def read(data: bytes) -> None:
            hashes = decode_hashes(data, rows)
            assert len(hashes) == rows
            java_order(hashes[:10], hashes)

        return read

    many = np.unique(np.arange(700, dtype=np.int64) * 2654435761 % (1 << 32)).astype(np.uint32).view(np.int32)
    files = [data for _, data in _index_files(HASH)]
    seeds: list[tuple[bytes, Read]] = []
    for data in [encode_hashes(java_order(many)), *files[:: max(1, len(files) // 4)]]:
        seeds += [(data, counted(len(data) // 4)), (data, decode_hashes)]
    return Target("hash-index", seeds)


def index_manifests() -> Target:
    """Index manifests, up to the ranges they name."""

    def read(data: bytes) -> None:
        entries = decode_index_manifest(data)
        for entry, place in vectors_by_file(entries).values():
            guarded(lambda entry=entry, place=place: frame_bytes(place, entry.file_size))  # type: ignore[misc]
        encode_index_manifest(entries[:20])

    found = sorted(warehouse().rglob("index-manifest-*"), key=lambda p: (p.stat().st_size, p.name))
    seeds: list[tuple[bytes, Read]] = [(p.read_bytes(), read) for p in found[:: max(1, len(found) // 5)]]
    return Target("index-manifest", seeds + [(uncompressed(data), read) for data, _ in seeds])
