from __future__ import annotations

import dataclasses
import io
import random
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest
from fixtures import warehouse

from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.errors import BitlakeError, CorruptError, UnsupportedFeature
from bitlake.metadata.index_manifest import HASH, IndexFileEntry, encode_index_manifest
from bitlake.metadata.manifest import (
    EMPTY_STATS,
    EntryKind,
    FileSource,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
    encode_manifests,
)
from bitlake.metadata.paths import TablePaths, partition_path
from bitlake.metadata.schema import TableSchema


def files(pattern: str) -> list[Path]:
    return sorted(warehouse().glob(f"default.db/{pattern}"))


def manifests(table: str = "*") -> Iterator[tuple[Path, list[ManifestEntry]]]:
    for f in files(f"{table}/manifest/manifest-*"):
        if not f.name.startswith("manifest-list"):
            yield f, decode_manifest(f.read_bytes())


def schema_of(table: Path, schema_id: int = 0) -> TableSchema:
    return TableSchema.from_json((table / f"schema/schema-{schema_id}").read_bytes())


def test_manifests_survive_a_round_trip_and_read_the_same_to_others() -> None:
    seen = 0
    for f, entries in manifests():
        data = encode_manifest(entries)
        assert decode_manifest(data) == entries
        assert list(fastavro.reader(io.BytesIO(data))) == list(fastavro.reader(io.BytesIO(f.read_bytes())))
        assert data[:2000] == f.read_bytes()[:2000]  # the schema text, to the byte
        seen += len(entries)
    assert seen > 500


def test_lists_survive_a_round_trip() -> None:
    lists = files("*/manifest/manifest-list-*")
    for f in lists:
        metas = decode_manifest_list(f.read_bytes())
        data = encode_manifest_list(metas)
        assert decode_manifest_list(data) == metas
        assert data[:900] == f.read_bytes()[:900]
        if not metas:
            assert len(data) == len(f.read_bytes()) == 1006
    assert len(lists) > 300


def test_partition_rows_re_encode_and_name_existing_folders() -> None:
    rows = 0
    for f, entries in manifests():
        table = f.parent.parent
        schema = schema_of(table)
        fields, types = schema.partition_fields, [p.type for p in schema.partition_fields]
        paths = TablePaths(str(table))
        for e in entries:
            values = decode_row(types, e.partition)
            assert encode_row_with_arity(types, values) == e.partition
            rows += 1
            if e.kind is EntryKind.ADD and not table.name.startswith("pk_"):
                data_file = Path(paths.data_file(partition_path(fields, values), e.bucket, e.file.file_name))
                assert data_file.stat().st_size == e.file.file_size
    assert rows > 500


def test_recorded_buckets_are_what_the_bucket_function_says() -> None:
    rows = 0
    for table in files("bucket_key_*"):
        schema = schema_of(table)
        types = [f.type for f in schema.bucket_fields]
        for _, entries in manifests(table.name):
            for e in entries:
                path = TablePaths(str(table)).data_file("", e.bucket, e.file.file_name)
                data = pq.read_table(path, partitioning=None)
                got = bucket_of(types, [data[n] for n in schema.bucket_keys], e.total_buckets)
                assert set(got.tolist()) == {e.bucket}
                rows += len(got)
    assert rows == 1010


def test_rolling_splits_by_size_and_keeps_order() -> None:
    _, entries = next(manifests("append_plain"))
    rng = random.Random(1)
    many = [
        dataclasses.replace(entries[0], file=dataclasses.replace(entries[0].file, file_name=f"data-{rng.random()}"))
        for _ in range(3000)
    ]
    parts = list(encode_manifests(many, 20_000))
    assert len(parts) > 2
    assert [e for _, part in parts for e in part] == many
    assert [e for data, _ in parts for e in decode_manifest(data)] == many
    assert all(20_000 <= len(data) < 60_000 for data, _ in parts[:-1])
    assert list(encode_manifests([], 100)) == []


def test_older_files_may_lack_nullable_fields() -> None:
    """`_FILE` is read by name: missing nullable fields are null, unknown ones are skipped."""
    f, entries = next(manifests("append_plain"))
    reader = fastavro.reader(io.BytesIO(f.read_bytes()))
    records, schema = list(reader), reader.writer_schema
    fields = schema["fields"][5]["type"]["fields"]  # type: ignore[index]
    del fields[13:]
    fields.append({"name": "_LATER", "type": "long"})
    for r in records:
        r["_FILE"]["_LATER"] = 1  # type: ignore[index]
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate")
    for got, want in zip(decode_manifest(out.getvalue()), entries, strict=True):
        assert got.file.file_name == want.file.file_name
        assert got.file.value_stats_cols is None
        assert got.file.embedded_index is None


def test_damage_is_an_error_of_ours() -> None:
    f, _ = next(manifests("partitioned"))
    good = f.read_bytes()
    with pytest.raises(UnsupportedFeature, match="Parquet; only Avro"):
        decode_manifest(b"PAR1" * 10)
    for bad in (b"", b"Obj", b"Obj\x01", b"PAZ1" * 10, good[: len(good) // 2], good[:-20]):
        with pytest.raises(CorruptError):
            decode_manifest(bad)
    with pytest.raises(CorruptError):
        decode_manifest_list(good)
    rng = random.Random(2)
    for _ in range(300):
        bad = bytearray(good)
        at = rng.randrange(len(bad))
        bad[at] ^= 1 << rng.randrange(8)
        try:
            decode_manifest(bytes(bad))
        except BitlakeError:
            continue
    meta = ManifestFileMeta("m", 1, 1, 0, EMPTY_STATS, 0)
    assert decode_manifest_list(encode_manifest_list([meta])) == [meta]


def test_numbers_of_kinds_and_sources_are_paimons() -> None:
    """FileKind and FileSource of Paimon (Java) by their numbers."""
    assert {kind.name: int(kind) for kind in EntryKind} == {"ADD": 0, "DELETE": 1}
    assert {source.name: int(source) for source in FileSource} == {"APPEND": 0, "COMPACT": 1}


def test_the_level_of_compression_is_paimons_unless_given() -> None:
    """Paimon's default of ``file.compression.zstd-level``, 1, for every kind of manifest."""
    _, (entry, *_) = next((path, found) for path, found in manifests("append_plain") if found)
    rng = random.Random(2)
    many = [
        dataclasses.replace(entry, file=dataclasses.replace(entry.file, file_name=f"data-{rng.randrange(10**6)}"))
        for _ in range(500)
    ]
    metas = [
        dataclasses.replace(meta, file_name=f"manifest-{rng.randrange(10**6)}")
        for meta in decode_manifest_list(files("append_plain/manifest/manifest-list-*")[-1].read_bytes()) * 500
    ]
    indexes = [IndexFileEntry(b"\0" * 12, n % 7, HASH, f"index-{rng.randrange(10**6)}", n, 1) for n in range(500)]
    for encode, records in (
        (encode_manifest, many),
        (lambda *a: next(encode_manifests(a[0], 1 << 30, *a[1:]))[0], many),
        (encode_manifest_list, metas),
        (encode_index_manifest, indexes),
    ):
        sizes = [len(encode(records, *level)) for level in ((), (1,), (2,))]
        assert sizes[0] == sizes[1] != sizes[2]
