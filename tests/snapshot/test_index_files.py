"""Table index files: read whole from tables that Paimon wrote, written as Paimon writes them, damage told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from caches import forget
from fixtures import warehouse
from hypothesis import given, settings
from hypothesis import strategies as st

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.io.base import WHOLE_FILE_BYTES
from bitlake.io.local import LocalStore
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.index_files import read_hashes, read_vectors, write_hashes, write_vectors, write_vectors_rolling
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import index_path
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import parse_type

STORE = LocalStore()


def table(root: Path, **options: str) -> tuple[TablePaths, TableSchema]:
    fields, highest = assign_ids([("k", parse_type("INT"), None), ("v", parse_type("STRING"), None)])
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return TablePaths(str(root)), TableSchema(0, fields, highest, ("k",), (), named)


def vector(*positions: int, wide: bool = False) -> DeletionVector:
    return DeletionVector.of(np.array(positions, np.int64), wide)


def fixture_tables() -> list[Path]:
    return sorted(p.parent for p in warehouse().glob("*.db/*/schema"))


def test_every_index_file_of_every_snapshot_that_paimon_wrote() -> None:
    """Read whole with all row counts known, and written again to the same bytes (in Paimon's order of entries)."""
    seen = {DELETION_VECTORS: 0, HASH: 0}
    for folder in fixture_tables():
        paths = TablePaths(str(folder))
        schema = versions.latest_schema(TableFiles(STORE, paths))
        assert schema is not None
        for number in versions.snapshot_ids(TableFiles(STORE, paths)):
            snapshot = versions.load_snapshot(TableFiles(STORE, paths), number)
            rows = {
                e.file.file_name: e.file.row_count for e in manifests.live_files(TableFiles(STORE, paths), snapshot)
            }
            for entry in index_entries(TableFiles(STORE, paths), snapshot):
                seen[entry.index_type] += 1
                data = STORE.read(index_path(paths, schema, entry))
                assert len(data) == entry.file_size
                if entry.index_type == HASH:
                    hashes = read_hashes(TableFiles(STORE, paths), schema, entry)
                    assert hashes.astype(">i4").tobytes() == data
                    continue
                found = read_vectors(TableFiles(STORE, paths), schema, entry, rows)
                assert list(found) == [r.data_file for r in entry.ranges or ()]
                assert [v.cardinality for v in found.values()] == [r.cardinality for r in entry.ranges or ()]
    assert min(seen.values()) > 10


def test_vectors_are_written_in_one_file_and_read_again(tmp_path: Path) -> None:
    paths, schema = table(tmp_path / "t")
    partition = encode_row_with_arity([parse_type("INT")], [7])
    made = write_vectors(
        TableFiles(STORE, paths), schema, partition, 3, {"a": vector(1, 5), "none": vector(), "b": vector(0, wide=True)}
    )
    assert (made.index_type, made.row_count, made.bucket, made.partition) == (DELETION_VECTORS, 2, 3, partition)
    assert index_path(paths, schema, made) == f"{tmp_path}/t/index/{made.file_name}"
    assert made.file_name.startswith("index-") and made.file_name.endswith("-0")
    found = read_vectors(TableFiles(STORE, paths), schema, made, {"a": 6})
    assert {n: (v.positions().tolist(), v.wide) for n, v in found.items()} == {"a": ([1, 5], False), "b": ([0], False)}
    beside = schema.with_options({"index-file-in-data-file-dir": "true", "deletion-vectors.bitmap64": "true"})
    made = write_vectors(TableFiles(STORE, paths), beside, partition, 3, found)
    assert index_path(paths, beside, made) == f"{tmp_path}/t/k=7/bucket-3/{made.file_name}"
    again = read_vectors(TableFiles(STORE, paths), beside, made)
    assert {n: (v.positions().tolist(), v.wide) for n, v in again.items()} == {"a": ([1, 5], True), "b": ([0], True)}
    outside = dataclasses.replace(made, external_path="file:/elsewhere/x")
    allowed = dataclasses.replace(paths, external_roots=("file:/elsewhere",))
    assert index_path(allowed, schema, outside) == "file:/elsewhere/x"
    with pytest.raises(InvalidRequest, match="outside of the table's folder"):
        index_path(paths, schema, outside)


def test_no_vectors_are_one_byte_or_no_file(tmp_path: Path) -> None:
    paths, schema = table(tmp_path / "t")
    made = write_vectors(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, {"a": vector()})
    assert (made.file_size, made.row_count, made.ranges) == (1, 0, ())
    assert STORE.read(index_path(paths, schema, made)) == b"\x01"
    assert read_vectors(TableFiles(STORE, paths), schema, made) == {}
    assert write_vectors_rolling(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, {"a": vector()}) == ()


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), max_size=20),
    target=st.integers(1, 2000),
)
def test_rolling_ends_a_file_with_the_vector_that_makes_it_too_large(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], target: int
) -> None:
    paths, schema = table(tmp_path_factory.mktemp("t"))
    schema = schema.with_options({"deletion-vector.index-file.target-size": str(target)})
    vectors = {f"f{i}": vector(*range(0, 7 * n, 7)) for i, n in enumerate(sizes)}
    made = write_vectors_rolling(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, vectors)
    assert len({m.file_name for m in made}) == len(made)
    found: dict[str, DeletionVector] = {}
    for entry in made:
        found |= read_vectors(TableFiles(STORE, paths), schema, entry)
        last = (entry.ranges or ())[-1]
        assert last.offset <= target, "an earlier vector already made the file larger"
        assert entry is made[-1] or entry.file_size > target
    assert {n: v.rows for n, v in found.items()} == {n: v.rows for n, v in vectors.items()}


def test_hashes(tmp_path: Path) -> None:
    paths, schema = table(tmp_path / "t")
    hashes = np.array([5, -1, 2**31 - 1], np.int32)
    made = write_hashes(TableFiles(STORE, paths), schema, EMPTY_ROW, 1, hashes)
    assert (made.index_type, made.row_count, made.file_size, made.ranges) == (HASH, 3, 12, None)
    assert read_hashes(TableFiles(STORE, paths), schema, made).tolist() == hashes.tolist()
    with pytest.raises(InvalidRequest, match="every hash once"):
        write_hashes(TableFiles(STORE, paths), schema, EMPTY_ROW, 1, np.array([5, 5], np.int32))
    with pytest.raises(InvalidRequest, match="HASH; expected DELETION_VECTORS"):
        read_vectors(TableFiles(STORE, paths), schema, made)


def _damaged(path: str, change: str) -> None:
    data = bytearray(Path(path).read_bytes())
    if change == "cut":
        del data[-1]
    elif change == "longer":
        data += b"\0"
    else:
        data[-1] ^= 1
    Path(path).write_bytes(data)


@pytest.mark.parametrize("change", ["cut", "longer", "flip"])
def test_damage_names_the_file(tmp_path: Path, change: str) -> None:
    paths, schema = table(tmp_path / "t")
    made = write_vectors(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, {"a": vector(1, 5)})
    path = index_path(paths, schema, made)
    _damaged(path, change)
    with pytest.raises(CorruptError, match=made.file_name):
        read_vectors(TableFiles(STORE, paths), schema, made)
    Path(path).unlink()
    with pytest.raises(NotFound):
        read_vectors(TableFiles(STORE, paths), schema, made)


def test_a_position_beyond_the_data_file_is_damage(tmp_path: Path) -> None:
    paths, schema = table(tmp_path / "t")
    made = write_vectors(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, {"a": vector(1, 5)})
    with pytest.raises(CorruptError, match="a"):
        read_vectors(TableFiles(STORE, paths), schema, made, {"a": 5})


def test_a_hash_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    paths, schema = table(tmp_path / "t")
    made = write_hashes(TableFiles(STORE, paths), schema, EMPTY_ROW, 0, np.array([5, 6], np.int32))
    Path(index_path(paths, schema, made)).write_bytes(np.array([5, 5], ">i4").tobytes())
    with pytest.raises(CorruptError, match=rf"twice.*{made.file_name}"):
        read_hashes(TableFiles(STORE, paths), schema, made)


def test_index_manifests_are_read_once(tmp_path: Path) -> None:
    forget()
    assert index_entries(TableFiles(STORE, TablePaths(str(tmp_path))), None) == []
    folder = warehouse() / "default.db/append_dv"
    paths = TablePaths(str(folder))
    snapshot = versions.latest_snapshot(TableFiles(STORE, paths))
    assert snapshot is not None

    class Counting(LocalStore):
        reads = 0

        def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
            self.reads += 1
            return super().read(path, limit)

    store = Counting()
    first: list[IndexFileEntry] = index_entries(TableFiles(store, paths), snapshot)
    assert index_entries(TableFiles(store, paths), snapshot) == first != []
    assert store.reads == 1
