"""A folder of Parquet files becomes a table: files are moved, not rewritten, and go back if anything fails."""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import exhaustive
from store_wrappers import FaultyStore

import bitlake
from bitlake.catalog.catalog import Identifier
from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.table.migrate import migrate_folder
from bitlake.table.table import Table

TARGET = Identifier("default", "m")


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "old"
    for day, hour, ids in (("2024-01-01", "7", [1, 2]), ("2024-01-02", "12", [3]), (None, "7", [4, None])):
        name = "__HIVE_DEFAULT_PARTITION__" if day is None else day
        path = root / f"dt={name}" / f"hr={hour}"
        path.mkdir(parents=True)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})
        pq.write_table(rows, path / "000000_0")
    (root / "_SUCCESS").write_text("")
    return root


def contents(folder: Path) -> set[str]:
    return {hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def test_files_move_and_their_folders_become_columns(lake: bitlake.Lake, folder: Path) -> None:
    before = contents(folder)
    table = Table(migrate_folder(lake._catalog, str(folder), TARGET, {"file-index.bitmap.columns": "v"}))
    rows = sorted(table.scan().to_arrow().to_pylist(), key=str)
    assert table.arrow_schema.names == ["id", "v", "dt", "hr"] and pa.types.is_int32(
        table.arrow_schema.field("hr").type
    )
    assert {"id": 3, "v": "v3", "dt": "2024-01-02", "hr": 12} in rows and len(rows) == 5
    assert {r["id"] for r in rows if r["dt"] is None} == {4, None}
    moved = {hashlib.sha256(p.read_bytes()).hexdigest() for p in Path(table.path).rglob("*.parquet")}
    assert moved < before and len(moved) == 3 and not list(folder.rglob("000000_0"))
    assert table.scan(where="dt = '2024-01-01' AND id = 2").to_arrow().num_rows == 1
    plan = table.scan(where="id > 3").plan()
    assert plan.metrics.files_skipped == {"statistics": 2}
    assert table.scan(["hr"], where="v = 'v1'").to_arrow().to_pylist() == [{"hr": 7}]
    done = table.indexes.rebuild()
    assert len(done) == 3 and all(d.new is not None for d in done)
    table.append(pa.table({"id": [9], "v": ["x"], "dt": ["2024-01-01"], "hr": pa.array([7], pa.int32())}))
    assert table.scan(where="dt = '2024-01-01'").count() == 3
    table.maintenance.compact(full=True)
    assert table.scan().count() == 6 and table.scan(where="dt = '2024-01-01' AND hr = 7").count() == 3


def test_values_that_are_no_plain_numbers_stay_text(lake: bitlake.Lake, tmp_path: Path) -> None:
    for name in ("007", "a%2Fb"):
        path = tmp_path / "old" / f"k={name}"
        path.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), path / "part.parquet")
    table = Table(migrate_folder(lake._catalog, str(tmp_path / "old"), TARGET))
    assert sorted(table.scan(["k"]).to_arrow().column(0).to_pylist()) == ["007", "a/b"]


def test_what_cannot_be_a_table_stays_where_it_is(lake: bitlake.Lake, folder: Path, tmp_path: Path) -> None:
    before = contents(folder)
    with pytest.raises(NotFound, match="no files"):
        migrate_folder(lake._catalog, str(tmp_path / "none"), TARGET)
    with pytest.raises(InvalidRequest, match="append table"):
        migrate_folder(lake._catalog, str(folder), TARGET, {"bucket": "4"})
    stray = folder / "part.parquet"
    pq.write_table(pa.table({"id": [1], "v": ["a"]}), stray)
    with pytest.raises(InvalidRequest, match=r"partitioned by"):
        migrate_folder(lake._catalog, str(folder), TARGET)
    stray.unlink()
    other = folder / "dt=2024-01-01/hr=7/other"
    pq.write_table(pa.table({"id": ["text"]}), other)
    with pytest.raises(InvalidRequest, match="other columns"):
        migrate_folder(lake._catalog, str(folder), TARGET)
    other.write_bytes(b"no parquet at all")
    with pytest.raises(BitlakeError, match="not a Parquet file"):
        migrate_folder(lake._catalog, str(folder), TARGET)
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("us"))}), other, use_deprecated_int96_timestamps=True)
    with pytest.raises((InvalidRequest, UnsupportedFeature)):
        migrate_folder(lake._catalog, str(folder), TARGET)
    other.unlink()
    assert contents(folder) == before and lake.tables() == []
    lake.create_table("m", pa.schema([("id", pa.int64())]))
    with pytest.raises(AlreadyExists):
        migrate_folder(lake._catalog, str(folder), TARGET)
    assert contents(folder) == before


def test_a_failure_puts_files_back(lake: bitlake.Lake, folder: Path) -> None:
    before = contents(folder)
    for number in range(1, 60):
        store = FaultyStore(lake._catalog.store, fail_at=number)
        catalog = FileSystemCatalog(store, lake.path)
        try:
            migrate_folder(
                catalog, str(folder), TARGET, {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}
            )
        except BitlakeError:
            if not lake._catalog.table_exists(TARGET):
                assert contents(folder) == before, number
                continue
        break
    assert lake.table("m").scan().count() == 5


@pytest.mark.parametrize("place", [0, exhaustive(2), exhaustive(4), None])
@pytest.mark.parametrize("page_index", [False, True])
@pytest.mark.parametrize(("door", "index"), [("file", "bitmap"), ("memory", "range-bitmap"), ("memory", None)])
def test_row_groups_without_rows(place: int | None, page_index: bool, door: str, index: str | None) -> None:
    """pyarrow writes one for each table without rows that it is given; ``place`` None: the file has no other."""
    numbers = np.arange(0 if place is None else 40_000)
    types = pa.schema({"n": pa.int64(), "s": pa.string(), "a": pa.list_(pa.int64())})
    rows = pa.table([numbers, [f"v{i % 700}" for i in numbers], [[i] for i in numbers]], types)
    file = io.BytesIO()
    layout = {"write_page_index": page_index, "use_dictionary": False, "data_page_size": 4_000}
    with pq.ParquetWriter(file, rows.schema, **layout) as writer:
        for number in range(5):
            if number == place or place is None:
                writer.write_table(rows.slice(0, 0))
            if number < 4:
                writer.write_table(rows.slice(number * 10_000, 10_000), row_group_size=10_000)
    with tempfile.TemporaryDirectory() as folder:
        root = folder if door == "file" else f"memory://{Path(folder).name}"
        lake = bitlake.connect(f"{root}/lake")
        lake._catalog.store.write(f"{root}/old/p=1/f", file.getvalue())
        options = {} if index is None else {f"file-index.{index}.columns": "n"}
        table = Table(migrate_folder(lake._catalog, f"{root}/old", TARGET, options))
        table.indexes.rebuild()
        every = table.scan(["n", "s", "a"]).to_arrow()
        assert every.equals(rows.cast(every.schema))
        for where, keep in (
            ("n = 30000", numbers == 30_000),
            ("n BETWEEN 9990 AND 10010 OR n = 39999", (abs(numbers - 10_000) <= 10) | (numbers == 39_999)),
            ("s = 'v3'", numbers % 700 == 3),
            ("n % 5000 = 1", numbers % 5_000 == 1),
        ):
            found = table.scan(["n", "a"], where=where).to_arrow().sort_by("n")
            assert found.column("n").to_pylist() == numbers[keep].tolist()
            assert found.column("a").to_pylist() == [[n] for n in numbers[keep].tolist()]
        if index is not None and place is not None:
            (file_plan,) = table.scan(where="n = 30000").plan().files
            assert file_plan.pruned_by[0] == f"{index}(n)"
