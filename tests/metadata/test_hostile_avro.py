"""Avro files that claim more than they hold: each is refused at once, and none ends the process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bitlake.codec import avro as avro_metadata
from bitlake.codec.avro import check_schema
from bitlake.codec.bytes import zigzag
from bitlake.errors import BitlakeError, CorruptError
from bitlake.formats import avro as avro_data
from bitlake.metadata.index_manifest import decode_index_manifest
from bitlake.metadata.manifest import MANIFEST, MANIFEST_LIST, decode_manifest, decode_manifest_list
from tests.avro_codecs import COMPRESS
from tests.fixtures import warehouse

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SYNC = b"0123456789abcdef"
RECURSIVE = {"type": "record", "name": "r", "fields": [{"name": "r", "type": "r"}]}
NO_FIELDS = {"type": "record", "name": "r", "fields": []}


def container(schema: Any, count: int, body: bytes, codec: str = "null") -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema, separators=(",", ":")).encode()
    meta = b"".join(zigzag(len(p)) + p for p in (b"avro.schema", text, b"avro.codec", codec.encode()))
    return b"Obj\x01" + zigzag(2) + meta + b"\0" + SYNC + zigzag(count) + zigzag(len(body)) + body + SYNC


def read_data(data: bytes) -> list[pa.RecordBatch]:
    return list(avro_data.read_columns(pa.BufferReader(data)))


READERS: dict[str, Callable[[bytes], object]] = {
    "manifest": decode_manifest,
    "manifest list": decode_manifest_list,
    "index manifest": decode_index_manifest,
    "data file": read_data,
}


def record(*types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


def doubled(levels: int) -> dict[str, Any]:
    """A schema whose every level has the one below twice: 2 ** levels columns."""
    made: Any = record("int")
    for level in range(levels):
        fields = [{"name": "a", "type": {**made, "name": f"r{level}"}}, {"name": "b", "type": f"r{level}"}]
        made = {"type": "record", "name": "top", "fields": fields}
    return made


IMPOSSIBLE: list[tuple[Any, int, bytes]] = [
    (RECURSIVE, 1, b"\0"),
    (record({"type": "array", "items": "r"}), 1, b"\2" * 1000),
    (record(["null", "r"]), 1, b"\2" * 1_000_000),
    (NO_FIELDS, 1 << 40, b""),
    (record("null"), 1 << 40, b""),
    (record({"type": "null"}), 1 << 40, b""),
    (record({"type": "array", "items": "null"}), 1, zigzag(1 << 40) + b"\0"),
    (record({"type": "array", "items": NO_FIELDS | {"name": "e"}}), 1, zigzag(1 << 40) + b"\0"),
    (record({"type": "fixed", "name": "f", "size": 0}), 1 << 40, b""),
    (record({"type": "fixed", "name": "f", "size": 1 << 62}), 1, b"x"),
    (record("int"), 1 << 40, b"\2"),
    (record("int"), -5, b"\2"),
    (record("bytes"), 1, zigzag(1 << 60)),
    (record({"type": "array", "items": "int"}), 1, zigzag(1 << 60) + b"\0"),
    (doubled(40), 1, b"\2" * 100),
    (b'{"type":"array","items":' * 100_000, 1, b""),
    (b"[" * 1_000_000, 1, b""),
    (record(json.loads('{"type":"array","items":' * 200 + '"int"' + "}" * 200)), 1, b"\2" * 300),
    (b'"null"', 1 << 40, b""),
    (b"", 1, b""),
]


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("number", range(len(IMPOSSIBLE)))
def test_impossible_schemas_and_counts(kind: str, number: int) -> None:
    # A recursive schema ended Python (a 126-byte manifest); 2^40 records without fields ran for ever (98 bytes).
    with pytest.raises(BitlakeError):
        READERS[kind](container(*IMPOSSIBLE[number]))


@pytest.mark.parametrize("codec", COMPRESS)
def test_each_codec_is_read(codec: str) -> None:
    rows = [{"i": n, "s": f"row {n}" * 20} for n in range(500)]
    schema = {"type": "record", "name": "r", "fields": [{"name": "i", "type": "int"}, {"name": "s", "type": "string"}]}
    block = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(block, fastavro.parse_schema(schema), row)
    data = container(schema, 500, COMPRESS[codec](block.getvalue()), codec)
    assert pa.Table.from_batches(read_data(data)).to_pylist() == rows


@pytest.mark.parametrize("codec", sorted(COMPRESS.keys() - {"null", "snappy"}))
def test_a_block_decompresses_to_a_bounded_size(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A block of some kilobytes that decompressed to 8 GB was decoded whole.
    monkeypatch.setattr(avro_data, "_LEAST_BLOCK", 1 << 20)
    monkeypatch.setattr(avro_metadata, "_LEAST_LIMIT", 1 << 20)
    bomb = COMPRESS[codec](bytes(4 << 20))
    with pytest.raises(CorruptError, match="decompresses to more than"):
        read_data(container(record("int"), 100, bomb, codec))
    for schema, read in ((MANIFEST, decode_manifest), (MANIFEST_LIST, decode_manifest_list)):
        with pytest.raises(CorruptError, match="decompresses to more than"):
            read(container(schema.text.encode(), 100, bomb, codec))


def test_the_bounds_of_a_block() -> None:
    bomb = zstd.compress(bytes(100 << 20))
    with pytest.raises(CorruptError, match=r"decompresses to more than 67,2\d\d,\d\d\d bytes"):
        read_data(container(record("int"), 100, bomb, "zstandard"))
    with pytest.raises(CorruptError, match=r"decompresses to more than 18,128,640 bytes"):
        decode_manifest(container(MANIFEST.text.encode(), 100, bomb, "zstandard"))


def test_the_bound_is_of_the_file_and_not_of_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_metadata, "_LEAST_LIMIT", 10_000)
    monkeypatch.setattr(avro_metadata, "_MOST_RATIO", 0)
    found = min(warehouse().rglob("manifest-list-*"), key=lambda p: -p.stat().st_size).read_bytes()
    sync = found[-16:]
    block = found[found.index(sync) + 16 :]
    assert len(decode_manifest_list(found + block * 2)) == 3 * len(decode_manifest_list(found))
    with pytest.raises(CorruptError, match="decompresses to more than"):
        decode_manifest_list(found + block * 50)


def test_snappy_may_not_claim_more_than_it_can_hold() -> None:
    with pytest.raises(CorruptError, match="are claimed"):
        read_data(container(record("int"), 1, b"\xff\xff\xff\xff\x0f" + bytes(20), "snappy"))


def test_several_frames_are_one_block_and_a_cut_one_is_none() -> None:
    whole = zstd.compress(b"\2") + zstd.compress(b"\4")
    (batch,) = read_data(container(record("int"), 2, whole, "zstandard"))
    assert batch.column(0).to_pylist() == [1, 2]
    with pytest.raises(CorruptError, match="cut off"):
        read_data(container(record("int"), 1, whole[:-2], "zstandard"))


def test_a_known_field_of_another_type_is_refused_and_an_unknown_one_is_not() -> None:
    known = json.loads(MANIFEST_LIST.text)
    name = {"name": "_FILE_NAME", "type": "long"}
    wrong = {**known, "fields": [name if f["name"] == "_FILE_NAME" else f for f in known["fields"]]}
    with pytest.raises(CorruptError, match="_FILE_NAME has type long, and not string"):
        decode_manifest_list(container(wrong, 0, b""))
    null = {
        **known,
        "fields": [f | {"type": ["null", "long"]} if f["name"] == "_FILE_SIZE" else f for f in known["fields"]],
    }
    with pytest.raises(CorruptError, match="_FILE_SIZE may be null"):
        decode_manifest_list(container(null, 0, b""))
    more = {**known, "fields": [*known["fields"], {"name": "_FUTURE", "type": {"type": "map", "values": "double"}}]}
    assert decode_manifest_list(container(more, 0, b"")) == []


def test_a_type_used_twice_is_its_definition() -> None:
    point = {"type": "record", "name": "P", "namespace": "a.b", "fields": [{"name": "x", "type": "int"}]}
    schema, nodes = check_schema(json.dumps(record(point, "a.b.P", ["null", "a.b.P"])).encode(), "it")
    first, second, third = (f["type"] for f in schema["fields"])
    assert first["fields"] == second["fields"] == third[1]["fields"] and nodes == 8
    assert len({first["name"], second["name"], third[1]["name"]}) == 3
    (batch,) = read_data(container(record(point, "a.b.P"), 1, b"\2\4"))
    assert batch.to_pylist() == [{"f0": {"x": 1}, "f1": {"x": 2}}]


def test_every_avro_file_of_paimon_passes() -> None:
    lists = sorted(warehouse().rglob("manifest-list-*"))[::7]
    assert lists and all(decode_manifest_list(p.read_bytes()) is not None for p in lists)
    indexes = sorted(warehouse().rglob("index-manifest-*"))[::5]
    assert indexes and all(decode_index_manifest(p.read_bytes()) for p in indexes)
