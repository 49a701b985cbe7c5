"""Damage that leaves metadata readable: what it contradicts shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.metadata.index_manifest import decode_index_manifest, encode_index_manifest
from bitlake.metadata.manifest import EntryKind, decode_manifest, decode_manifest_list, encode_manifest
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lake = bitlake.connect(tmp_path)
    rows = pa.table({"i": range(100)})
    table = lake.create_table("t", rows.schema, options={"deletion-vectors.enabled": "true"})
    table.append(rows)
    table.append(rows)
    table.delete("i < 10")
    return Path(table.path)


def read(root: Path) -> int:
    forget()
    return bitlake.connect(root.parents[1]).table("t").scan().to_arrow().num_rows


def test_a_flip_in_a_members_name_does_not_bring_rows_back(root: Path) -> None:
    # A flip in the name of "indexManifest" made it unknown, so that deleted rows came back unnoticed.
    path = root / "snapshot/snapshot-3"
    text = path.read_text()
    for at in range(text.index('"indexManifest"') + 1, text.index('"indexManifest"') + 14):
        path.write_text(text[:at] + chr(ord(text[at]) ^ 2) + text[at + 1 :])
        with pytest.raises(CorruptError, match="'indexManifest' is missing"):
            read(root)
    path.write_text(text)
    assert read(root) == 180


def test_members_of_later_versions_are_ignored(root: Path) -> None:
    path = root / "snapshot/snapshot-3"
    more = {**json.loads(path.read_text()), "indexManifestSize": 12, "somethingNew": {"a": []}}
    assert Snapshot.from_json(json.dumps(more).encode()).id == 3
    schema = {**json.loads((root / "schema/schema-0").read_text()), "optionz": {}}
    assert TableSchema.from_json(json.dumps({**schema, "optionsOfUsers": {}}).encode()).id == 0
    del schema["options"]
    with pytest.raises(CorruptError, match="'options' is missing"):
        TableSchema.from_json(json.dumps(schema).encode())


def test_every_flip_of_an_index_manifest_is_noticed(root: Path) -> None:
    (path,) = root.glob("manifest/index-manifest-*")
    good = path.read_bytes()
    truth = decode_index_manifest(good)
    wrong = []
    # Behind the schema: the sync marker, the block's head, the compressed records, the marker again.
    for at in range(good.index(b"avro.codec"), len(good)):
        for bit in (0, 3, 7):
            damaged = bytearray(good)
            damaged[at] ^= 1 << bit
            try:
                if decode_index_manifest(bytes(damaged)) != truth:
                    wrong.append((at, bit))
            except (CorruptError, UnsupportedFeature):
                pass
    assert not wrong


def test_vectors_that_the_counts_contradict(root: Path) -> None:
    (path,) = root.glob("manifest/index-manifest-*")
    (entry,) = decode_index_manifest(path.read_bytes())
    path.write_bytes(encode_index_manifest([replace(entry, row_count=3)]))
    with pytest.raises(CorruptError, match="holds 3 vectors, and the index manifest lists 2"):
        read(root)
    path.write_bytes(encode_index_manifest([replace(entry, index_type="DELETION_VECTORZ")]))
    with pytest.raises(CorruptError, match="'DELETION_VECTORZ' lists deletion vectors"):
        read(root)


def test_a_manifest_that_lost_or_turned_an_entry(root: Path) -> None:
    manifest_list = root / "manifest" / json.loads((root / "snapshot/snapshot-2").read_text())["deltaManifestList"]
    (meta,) = decode_manifest_list(manifest_list.read_bytes())
    path = root / "manifest" / meta.file_name
    (entry,) = decode_manifest(path.read_bytes())
    path.write_bytes(encode_manifest([]))
    with pytest.raises(CorruptError, match="adds 0 and deletes 0 files; its list records 1 and 0"):
        read(root)
    path.write_bytes(encode_manifest([replace(entry, kind=EntryKind.DELETE)]))
    with pytest.raises(CorruptError, match="adds 0 and deletes 1 files; its list records 1 and 0"):
        read(root)


def test_a_list_that_is_cut_between_two_blocks(root: Path) -> None:
    path = root / "manifest" / json.loads((root / "snapshot/snapshot-3").read_text())["baseManifestList"]
    data = path.read_bytes()
    sync = data[-16:]
    path.write_bytes(data[: data.index(sync) + 16])
    assert decode_manifest_list(path.read_bytes()) == []
    with pytest.raises(CorruptError, match="its snapshot expects"):
        read(root)
