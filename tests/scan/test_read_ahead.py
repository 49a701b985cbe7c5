"""Files read ahead: their order, how much waits, and that closing stops the reading."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.fileindex.selection import Selection
from bitlake.io import open_store
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import REQUESTS
from bitlake.scan import read_ahead, scan
from bitlake.scan.column_reader import FileTask
from bitlake.scan.read_ahead import READ_AHEAD_BYTES, files_at_once, map_ahead, read_in_order
from bitlake.scan.reader import read_file

ROWS = 1 << 17
PART_BYTES = 8 * ROWS
PARTS = 200


class Reads:
    """Files of ``PARTS`` tables of 1 MB; counts the tables that were made."""

    def __init__(self) -> None:
        self.made = 0
        self.open = 0
        self.most_open = 0
        self._lock = threading.Lock()

    def read(self, number: int) -> Iterator[pa.Table]:
        with self._lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            for part in range(PARTS):
                with self._lock:
                    self.made += 1
                yield pa.table({"n": pa.repeat(pa.scalar(number * PARTS + part, pa.int64()), ROWS)})
        finally:
            with self._lock:
                self.open -= 1


def test_what_waits_is_bounded_and_stays_in_order() -> None:
    """All rows of four files were held before the first batch."""
    reads = Reads()
    most_waiting = 0
    for at, table in enumerate(read_in_order([1 << 20] * 6, reads.read)):
        assert table.column(0)[0].as_py() == at
        most_waiting = max(most_waiting, reads.made - at - 1)
    assert at == 6 * PARTS - 1
    # Beside what waits, each thread may be at one table.
    assert most_waiting * PART_BYTES <= READ_AHEAD_BYTES + read_ahead.READ_AHEAD_FILES * PART_BYTES
    assert reads.open == 0


def test_a_reader_that_keeps_all_rows_reads_ahead_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "READ_AHEAD_BYTES", 1)
    reads = Reads()
    found = read_in_order([1 << 40] * 3, reads.read, bounded=False)
    assert sum(t.num_rows for t in found) == 3 * PARTS * ROWS


def test_closing_stops_the_reading() -> None:
    reads = Reads()
    tables = read_in_order([1 << 20] * 6, reads.read)
    next(tables)
    tables.close()
    assert reads.open == 0 and reads.made < 2 * READ_AHEAD_BYTES // PART_BYTES


def test_large_files_are_read_two_at_a_time() -> None:
    reads = Reads()
    assert sum(1 for _ in read_in_order([1 << 30] * 6, reads.read)) == 6 * PARTS
    assert reads.most_open <= 2


@pytest.mark.parametrize("bounded", [True, False])
def test_as_many_files_as_asked_are_read_in_parallel(bounded: bool) -> None:
    together = threading.Barrier(12)

    def read(number: int) -> Iterator[pa.Table]:
        together.wait(60)
        yield pa.table({"n": [number]})

    found = read_in_order([1] * 24, read, bounded=bounded, at_once=12)
    assert [t.column(0)[0].as_py() for t in found] == list(range(24))
    serial = Reads()
    assert sum(1 for _ in read_in_order([1] * 3, serial.read, bounded=bounded, at_once=1)) == 3 * PARTS
    assert serial.most_open == 1


def test_small_reads_of_a_remote_store_are_more_at_once() -> None:
    def at_once(sizes: list[int], *, remote: bool, least: int = 4) -> int:
        root = "memory://at-once" if remote else "/at-once"
        schema = TableSchema(0, (), 0, (), (), {})
        tasks = [FileTask(f"{root}/{i}.parquet", s, 9, 0, (), Selection.all(), schema) for i, s in enumerate(sizes)]
        return files_at_once(open_store(root), tasks, least)

    mb = 1 << 20
    assert at_once([], remote=True) == at_once([mb, mb], remote=False) == 4
    assert at_once([mb] * 100, remote=True) == at_once([0], remote=True) == REQUESTS
    assert at_once([mb, 8 * mb], remote=True) == 8  # 64 MB, if all are as large as the largest
    assert at_once([128 * mb], remote=True) == 4
    assert at_once([128 * mb], remote=True, least=1) == 1


@pytest.mark.parametrize(("root", "at_once"), [("memory://at-once/lake", 8), ("", 4)])
def test_a_scan_reads_more_files_of_a_bucket_at_once(
    root: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four files were read at a time, though reading some rows of one is three requests that wait for each other."""
    table = bitlake.connect(root or str(tmp_path)).create_table("t", pa.schema([("n", pa.int64())]))
    for number in range(8):
        table.append(pa.table({"n": pa.array([number], pa.int64())}))
    together = threading.Barrier(at_once)
    reading = set()

    def wait(*args: Any) -> Iterator[pa.Table]:
        together.wait(60)
        reading.add(threading.get_ident())
        yield from read_file(*args)

    monkeypatch.setattr(scan, "read_file", wait)
    assert table.scan().to_arrow()["n"].to_pylist() == list(range(8))
    assert len(reading) == at_once
    assert sorted(n for batch in table.scan().to_batches() for n in batch["n"].to_pylist()) == list(range(8))


def test_the_pages_of_few_rows_are_estimated_from_above() -> None:
    def pages(selection: Selection, rows: int = 1_000_000) -> int:
        schema = TableSchema(0, (), 0, (), (), {})
        return FileTask("f.parquet", 100 << 20, rows, 0, (), selection, schema).page_bytes

    assert pages(Selection.all()) == pages(Selection.of(range(0, 1_000_000, 20_000), True)) == 100 << 20
    assert pages(Selection.of([5], True)) == (100 << 20) // 50
    assert pages(Selection.none(), 0) == pages(Selection.all(), 0) == 100 << 20


@pytest.mark.parametrize("bytes_ahead", [1, READ_AHEAD_BYTES])
def test_an_error_is_raised_after_the_rows_before_it(monkeypatch: pytest.MonkeyPatch, bytes_ahead: int) -> None:
    monkeypatch.setattr(read_ahead, "READ_AHEAD_BYTES", bytes_ahead)

    def read(number: int) -> Iterator[pa.Table]:
        yield pa.table({"n": [number]})
        if number == 3:
            raise ValueError("broken")

    tables = read_in_order([1] * 9, read)
    assert [next(tables).column(0)[0].as_py() for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="broken"):
        next(tables)


class Items:
    """Numbers to work on; counts those taken, and whether the generator was closed."""

    def __init__(self, count: int, broken_at: int | None = None) -> None:
        self.taken = 0
        self.closed = False
        self.count = count
        self.broken_at = broken_at

    def items(self) -> Generator[int, None, None]:
        try:
            for number in range(self.count):
                if number == self.broken_at:
                    raise ValueError("no item")
                self.taken += 1
                yield number
        finally:
            self.closed = True


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_their_items(count: int, threads: int) -> None:
    source = Items(count)
    busy, most = [0], [0]
    lock = threading.Lock()
    together = threading.Barrier(threads) if count % threads == 0 and threads < count else None

    def work(number: int) -> int:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        if together is not None:
            together.wait(60)  # as many are worked on at the same time as there are threads
        with lock:
            busy[0] -= 1
        return number * number

    assert list(map_ahead(source.items(), work, threads)) == [n * n for n in range(count)]
    assert source.closed and most[0] <= threads


def test_few_items_and_results_wait() -> None:
    source = Items(100)
    for done, _ in enumerate(map_ahead(source.items(), lambda n: n, 2)):
        assert source.taken - done <= 2 + 4  # a result that is taken, and an item that is taken too many


def test_an_error_of_an_item_comes_after_the_results_before_it() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise ValueError("broken")
        return number

    source = Items(1_000)
    results = map_ahead(source.items(), work, 2)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="broken"):
        next(results)
    assert source.closed and source.taken < 20
    source = Items(1_000, broken_at=7)
    results = map_ahead(source.items(), lambda n: n, 2)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="no item"):
        next(results)
    for broken in (0, 1):
        with pytest.raises(ValueError, match="no item"):
            list(map_ahead(Items(9, broken_at=broken).items(), lambda n: n, 2))


def test_closing_stops_the_work_on_items() -> None:
    source = Items(10_000)
    results = map_ahead(source.items(), lambda n: n, 2)
    assert next(results) == 0
    results.close()
    assert source.closed and source.taken < 20
    assert not [t for t in threading.enumerate() if t.name.startswith("bitlake-read")]


UNFINISHED = """
import sys, bitlake
from bitlake.merge import sort_merge_reader
from bitlake.scan import column_reader, read_ahead
sort_merge_reader.MEMORY = read_ahead.READ_AHEAD_BYTES = 1
column_reader._BATCH_ROWS = 10
iterator = bitlake.connect(sys.argv[1]).table(sys.argv[2]).scan().to_batches()
print(next(iterator).num_rows > 0)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "buckets"), [("keyed", "1"), ("keyed", "3"), ("files", "-1")])
def test_a_program_ends_with_an_iterator_that_is_not_read_to_its_end(name: str, buckets: str, tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    options = {"page-size": "1 kb", "write-only": "true", "bucket": buckets}
    data = pa.table({"id": pa.array(range(6_000), pa.int64()), "v": ["x" * 50] * 6_000})
    table = lake.create_table(name, data, primary_key=["id"] if name == "keyed" else [], options=options)
    for _ in range(4):
        table.append(data) if name == "files" else table.upsert(data)
    command = [sys.executable, "-c", UNFINISHED, str(tmp_path), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True" and done.returncode == 0, done.stderr


MEMORY = """
import sys, bitlake
from pathlib import Path

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10

lake = bitlake.connect(sys.argv[1], progress=False)
lake.table("tiny").scan(where="k = -1 AND x < 0").to_arrow()
before = memory("VmRSS")
decoded = sum(b.nbytes for b in lake.table("t").scan(where=sys.argv[2] or None).to_batches())
print(decoded, memory("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 14 files, each of 60 MB of Arrow memory in row groups of 8 MB."""
    tmp_path = tmp_path_factory.mktemp("wide")
    lake = bitlake.connect(tmp_path, progress=False)
    rows = 100_000
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("text", pa.string())])
    text = pa.array([f"{i:0600d}" for i in range(1000)])
    batch = pa.table(
        {
            "k": pa.array(range(rows)),
            "x": pa.array([i % 100 / 100 for i in range(rows)]),
            "text": pa.concat_arrays([text] * (rows // 1000)),
        },
        schema,
    )
    lake.create_table("tiny", schema).append(batch.slice(0, 10))
    table = lake.create_table("t", schema, options={"file.block-size": "8 mb"})
    for _ in range(14):
        table.append(batch)
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("where", ["", "x < 0.99"])
def test_peak_memory_of_batches_is_below_the_table(wide: Path, where: str) -> None:
    """All files were held together: peak memory grew with their number. 400 MB is what the documentation promises."""
    peaks = []
    for _ in range(2):  # beside other processes the allocator keeps up to a fifth more in single runs
        command = [sys.executable, "-c", MEMORY, str(wide), where]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        decoded, peak = map(int, done.stdout.split())
        assert decoded > 790 << 20
        peaks.append(peak)
    assert min(peaks) < 400 << 20
