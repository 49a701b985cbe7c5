"""Damaged files: the parts before the fault, and the fault with its place; never an error."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from builders import events
from fixtures import warehouse
from long import some

import bitlake
from bitlake.tools.inspect.inspection import inspect_file

KINDS = {
    "snapshot": ("partitioned", "snapshot/snapshot-1"),
    "schema": ("partitioned", "schema/schema-0"),
    "manifest list": ("partitioned", "manifest/manifest-list-*"),
    "manifest": ("partitioned", "manifest/manifest-[0-9a-f]*"),
    "index manifest": ("append_dv", "manifest/index-manifest-*"),
    "vectors": ("append_dv", "index/index-*"),
    "vectors64": ("append_dv_bitmap64", "index/index-*"),
    "hashes": ("pk_dynamic_bucket", "index/index-*"),
    "bitmap v1": ("bitmap_v1", "**/*.index"),
    "bitmap v2": ("bitmap_v2_small_blocks", "**/*.index"),
    "range": ("range_bitmap_small_chunks", "**/*.index"),
    "bsi": ("bsi", "**/*.index"),
    "parquet": ("bitmap_v2", "**/*.parquet"),
    "orc": ("pk_orc_dv", "**/*.orc"),
    "avro": ("pk_avro", "**/*.avro"),
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damaged")
    for name in {t for t, _ in KINDS.values()}:
        shutil.copytree(warehouse() / "default.db" / name, root / name)
    return root


@pytest.mark.parametrize("kind", some(KINDS, *(k for k in KINDS if k not in ("bitmap v2", "range"))))
def test_a_cut_file_shows_what_is_before_the_cut(copies: Path, kind: str) -> None:
    table, pattern = KINDS[kind]
    file = max((copies / table).glob(pattern), key=lambda p: p.stat().st_size)
    data = file.read_bytes()
    whole = inspect_file(str(file), limit=3)
    assert not whole.faults
    places = sorted({0, 1, 2, 3, 4, 5, 8, 9, 12, 16, 20, *range(0, len(data), max(1, len(data) // 30)), len(data) - 1})
    column = next((c.name for c in whole.root.children if c.name.startswith("c_")), None)
    column = "c_int" if kind == "parquet" else column
    try:
        for cut in (c for c in places if c < len(data)):
            file.write_bytes(data[:cut])
            for asked in (None, column):
                found = inspect_file(str(file), limit=3, column=asked)
                assert found.size == cut and found.text() and found.to_json()
                for fault in found.faults:
                    assert fault.offset is None or 0 <= fault.offset <= len(data), fault
                first = asked == column
                if first and kind in ("snapshot", "schema", "parquet", "orc"):
                    assert found.faults, (kind, cut)
                if kind == "hashes":
                    assert bool(found.faults) == bool(cut % 4)
    finally:
        file.write_bytes(data)


@pytest.mark.parametrize("kind", some(KINDS, *(k for k in KINDS if k not in ("bitmap v2", "range"))))
def test_flipped_bytes_end_in_a_fault_or_in_another_value(copies: Path, kind: str) -> None:
    table, pattern = KINDS[kind]
    file = max((copies / table).glob(pattern), key=lambda p: p.stat().st_size)
    data = file.read_bytes()
    random_ = random.Random(kind)
    head = min(len(data), 600)
    places = [random_.randrange(head) for _ in range(12)] + [random_.randrange(len(data)) for _ in range(8)]
    places += [len(data) - 1 - random_.randrange(min(len(data), 200)) for _ in range(8)]
    try:
        for place in places:
            broken = bytearray(data)
            broken[place] = random_.choice([0, 0xFF, broken[place] ^ 0x80, broken[place] ^ 1])
            file.write_bytes(broken)
            column = {"parquet": "c_int"}.get(kind, "c_str" if kind.startswith(("bitmap", "range")) else None)
            for asked in (None, column):
                found = inspect_file(str(file), limit=3, column=asked)
                assert found.text() and found.to_json()
    finally:
        file.write_bytes(data)


def test_a_fault_says_what_and_where(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path / "lake")).create_table(
        "t", events().schema, options={"file-index.bitmap.columns": "status", "file-index.in-manifest-threshold": "0b"}
    )
    table.append(events(100))
    name = table._core.state().entries()[0].file.file_name
    index = Path(table.maintenance.inspect(f"{name}.index").path)
    data = bytearray(index.read_bytes())
    data[-3] ^= 0x40  # in the body, which has checksums
    index.write_bytes(data)
    (fault,) = table.maintenance.inspect(index.name, column="status").faults
    assert "checksum" in fault.what and fault.offset is not None
    assert "damaged: " in str(table.maintenance.inspect(index.name, column="status"))
    (told,) = table.maintenance.inspect(index.name, column="status", value="S1").rows
    assert told.problem is not None and "cannot be read" in str(told)
    snapshot = Path(table.path, "snapshot", "snapshot-1")
    text = snapshot.read_text().replace('"schemaId" : 0', '"schemaId" : oops')
    snapshot.write_text(text)
    (fault,) = inspect_file(str(snapshot)).faults
    assert fault.offset == text.index("oops")
    assert "id" in [c.name for c in inspect_file(str(snapshot)).root.children]
    manifest = next(Path(table.path, "manifest").glob("manifest-[0-9a-f]*"))
    packed = manifest.read_bytes()
    manifest.write_bytes(packed[:-1] + bytes([packed[-1] ^ 1]))
    (fault,) = inspect_file(str(manifest)).faults
    assert "sync marker" in fault.what and fault.offset == len(packed) - 16
