"""Tables with damaged deletion vectors are errors, never rows that come back; what may be cached is."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from caches import forget
from fixtures import copy_warehouse

import bitlake
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.metadata.index_manifest import decode_index_manifest, encode_index_manifest
from bitlake.metadata.snapshot import Snapshot

NAMES = ["append_dv", "append_dv_bitmap64", "pk_dv", "pk_dv_bitmap64"]


@pytest.fixture(params=NAMES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bitlake.Table, Path]:
    root = copy_warehouse(tmp_path, request.param)
    forget()
    return bitlake.connect(str(root)).table(request.param), root / "default.db" / request.param


def _snapshot(root: Path) -> Snapshot:
    newest = max((root / "snapshot").glob("snapshot-*"), key=lambda p: int(p.name[9:]))
    return Snapshot.from_json(newest.read_bytes())


def _index_manifest(root: Path) -> Path:
    name = _snapshot(root).index_manifest
    assert name is not None
    return root / "manifest" / name


def _vector_files(root: Path) -> list[Path]:
    entries = decode_index_manifest(_index_manifest(root).read_bytes())
    return [root / "index" / e.file_name for e in entries if e.ranges]


def test_every_damaged_byte_of_a_vector_file_is_an_error(table: tuple[bitlake.Table, Path]) -> None:
    lake_table, root = table
    path = _vector_files(root)[0]
    good = path.read_bytes()
    # The version byte is not among what is read for one file's vector.
    for at in range(1, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        forget()
        with pytest.raises(CorruptError, match=f"{path.name}"):
            lake_table.scan().to_arrow()
        with pytest.raises(CorruptError):
            lake_table.scan().count()
    for size in (0, 5, len(good) - 1):
        path.write_bytes(good[:size])
        forget()
        with pytest.raises(BitlakeError):
            lake_table.scan().to_arrow()


def test_a_missing_vector_file_is_an_error(table: tuple[bitlake.Table, Path]) -> None:
    lake_table, root = table
    for path in _vector_files(root):
        path.unlink()
    with pytest.raises(NotFound, match="deletion vector file .* is missing"):
        lake_table.scan().to_arrow()


def test_a_damaged_index_manifest_is_an_error(table: tuple[bitlake.Table, Path]) -> None:
    lake_table, root = table
    path = _index_manifest(root)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptError, match=path.name):
        lake_table.scan().to_arrow()
    path.unlink()
    with pytest.raises(NotFound):
        lake_table.scan().to_arrow()


def test_a_vector_beyond_the_files_rows_is_an_error(table: tuple[bitlake.Table, Path]) -> None:
    """A vector that was meant for a longer file, under a right checksum."""
    lake_table, root = table
    path = _vector_files(root)[0]
    data = bytearray(path.read_bytes())
    entry = next(e for e in decode_index_manifest(_index_manifest(root).read_bytes()) if e.file_name == path.name)
    assert entry.ranges
    for place in entry.ranges:
        size = int.from_bytes(data[place.offset : place.offset + 4], "big")
        body = slice(place.offset + 4, place.offset + 4 + size)
        data[body.stop - 1] |= 0x40  # the last position's high byte
        data[body.stop : body.stop + 4] = zlib.crc32(data[body]).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="holds row|does not|not in order"):
        lake_table.scan().to_arrow()


def test_two_vectors_of_one_file_are_an_error(table: tuple[bitlake.Table, Path]) -> None:
    lake_table, root = table
    path = _index_manifest(root)
    entries = decode_index_manifest(path.read_bytes())
    path.write_bytes(encode_index_manifest([*entries, next(e for e in entries if e.ranges)]))
    with pytest.raises(CorruptError, match="two deletion vectors"):
        lake_table.scan().to_arrow()


def test_a_vector_is_read_once(tmp_path: Path) -> None:
    root = copy_warehouse(tmp_path, "append_dv")
    forget()
    table = bitlake.connect(str(root)).table("append_dv")
    first = table.scan().plan()
    second = table.scan().plan()
    assert first.metrics.index_bytes_read > 0
    assert second.metrics.index_bytes_read == 0
    assert [f.selection for f in first.files] == [f.selection for f in second.files]
