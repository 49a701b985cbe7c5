"""Remote files read by ranges that are known before: the same bytes, each fetched once, few at a time in memory."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from long import every, exhaustive

import bitlake
from bitlake.errors import CorruptError, StorageUnavailable
from bitlake.io import remote_files
from bitlake.io.base import Store
from bitlake.io.local import LocalStore
from bitlake.io.remote_files import PrefetchedFile, RangedFile, open_ranges
from bitlake.scan import column_reader
from bitlake.scan.reader import tasks_of

DATA = random.Random(1).randbytes(300_000)
Groups = Sequence[Sequence[tuple[int, int]]]


class Requests:
    """Ranges of :data:`DATA`, and which were fetched."""

    def __init__(self, size: int = len(DATA)) -> None:
        self.seen: list[tuple[int, int]] = []
        self.size = size
        self.lock = threading.Lock()

    def __call__(self, offset: int, length: int) -> bytes:
        assert offset >= 0 and length > 0 and offset + length <= len(DATA)
        with self.lock:
            self.seen.append((offset, length))
        return DATA[offset : min(offset + length, self.size)]


class Bucket(Store):
    """A remote store of one file, :data:`DATA`."""

    def __init__(self) -> None:
        self.fetch = Requests()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.fetch(offset, length)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(remote_files, "_INTERLEAVED_BYTES", 300)
    monkeypatch.setattr(remote_files, "_PREFETCHED_BYTES", 8000)


def some_groups(chosen: random.Random) -> list[list[tuple[int, int]]]:
    """Ranges that do not overlap, some side by side, in groups."""
    edges = sorted(chosen.sample(range(len(DATA)), chosen.randrange(2, 40)))
    ranges = [(a, b - a) for a, b in pairwise(edges) if chosen.random() < 0.6]
    ranges += [(edges[0], 0)]  # an empty one
    groups: list[list[tuple[int, int]]] = [[] for _ in range(chosen.randrange(1, 4))]
    for each in ranges:
        groups[chosen.randrange(len(groups))].append(each)
    return groups


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("seed", every(3, range(10)))
def test_each_byte_is_fetched_once_and_is_the_files(seed: int, interleaved: bool) -> None:
    chosen = random.Random(seed)
    groups, fetch = some_groups(chosen), Requests()
    file = PrefetchedFile(fetch, len(DATA), "f", groups, interleaved)
    most = 0
    for group in groups:
        if interleaved:
            read = {at: at for at, length in group if length}
            ends = {at: at + length for at, length in group if length}
            while read:
                for start, at in list(read.items()):
                    length = min(chosen.randrange(1, 700), ends[start] - at)
                    file.seek(at)
                    assert file.read(length) == DATA[at : at + length]
                    read[start] += length
                    if read[start] == ends[start]:
                        del read[start]
        else:
            for start, length in group:
                file.seek(start)
                assert file.read(length) == DATA[start : start + length]
                most = max(most, file._fetched)
    assert sum(n for _, n in fetch.seen) == sum(n for group in groups for _, n in group)
    assert len(set(fetch.seen)) == len(fetch.seen) and file._fetched == 0
    assert most <= 9000, "one block more than is fetched ahead"
    file.close()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_bytes_that_are_in_memory_are_not_fetched(seed: int, interleaved: bool) -> None:
    chosen = random.Random(seed)
    groups = some_groups(chosen)
    start = min(at for group in groups for at, _ in group) if seed == 0 else chosen.randrange(len(DATA))
    store = Bucket()
    file = open_ranges(store, "f", len(DATA), groups, interleaved, (start, DATA[start:]))
    for at, length in (each for group in groups for each in group):
        for part in range(at, at + length, 900):  # of which some begin before the tail and end in it
            end = min(part + 900, at + length)
            assert file.seek(part) == part and file.read(end - part) == DATA[part:end]
    fetched = sorted(store.fetch.seen)
    assert sum(n for _, n in fetched) == sum(min(n, max(0, start - at)) for group in groups for at, n in group)
    assert all(at + n <= start for at, n in fetched)
    file.close()


def test_a_file_that_is_in_memory_is_not_opened() -> None:
    file = open_ranges(LocalStore(), "missing", len(DATA), [[(100, 900)]], tail=(0, DATA))
    assert file.seek(100) == 100 and file.read(900) == DATA[100:1000]
    part = open_ranges(LocalStore(), "missing", len(DATA), [[(1000, 900)]], tail=(1000, DATA[1000:]))
    assert part.seek(1000) == 1000 and part.read(900) == DATA[1000:1900]


def test_a_small_file_is_one_request_wherever_its_reader_begins() -> None:
    fetch = Requests()
    file = RangedFile(fetch, 1000, "f")
    for at in (990, 0, 500):
        file.seek(at)
        assert file.read(10) == DATA[at : at + 10]
    assert fetch.seen == [(0, 1000)]


@pytest.mark.parametrize("seed", range(5))
def test_any_reads_in_any_order_are_a_plain_files(seed: int) -> None:
    chosen = random.Random(seed)
    tail = chosen.randrange(len(DATA))
    groups = [[each for each in group if sum(each) <= tail] for group in some_groups(chosen)]
    file = PrefetchedFile(Requests(), len(DATA), "f", groups, chosen.random() < 0.5, (tail, DATA[tail : tail + 5000]))
    plain = io.BytesIO(DATA)
    for _ in range(300):
        at, length = chosen.randrange(len(DATA) + 100), chosen.choice([0, 1, 10, 3000, 50_000, -1])
        assert file.seek(at) == plain.seek(at)
        assert file.read(length) == plain.read(length)
    file.close()


def test_what_is_wanted_is_fetched_before_what_comes_next() -> None:
    fetch = Requests()
    file = PrefetchedFile(fetch, len(DATA), "f", [[(0, 100_000)], [(200_000, 1000)]])
    file.seek(200_000)
    assert file.read(1000) == DATA[200_000:201_000]
    assert len(fetch.seen) <= 10, "half of what may be ahead, what was asked for, and what took its place"
    file.close()


def test_a_file_that_became_shorter_and_a_store_that_fails() -> None:
    file = PrefetchedFile(Requests(1500), len(DATA), "f", [[(0, 3000)]])
    assert file.read(1000) == DATA[:1000]
    with pytest.raises(CorruptError, match="the file became shorter") as shorter:
        file.read(1000)
    assert shorter.value.offset == 1500
    file.close()

    def fails(offset: int, length: int) -> bytes:
        raise StorageUnavailable("the store is gone")

    file = PrefetchedFile(fails, len(DATA), "f", [[(0, 3000)]])
    with pytest.raises(StorageUnavailable, match="gone"):
        file.read(10)
    file.close()


def test_a_file_that_is_closed_early_fetches_no_more() -> None:
    running, go_on = threading.Semaphore(0), threading.Event()
    seen: list[int] = []

    def slow(offset: int, length: int) -> bytes:
        seen.append(offset)
        running.release()
        go_on.wait()
        return DATA[offset : offset + length]

    file = PrefetchedFile(slow, len(DATA), "f", [[(0, 100_000)]])
    running.acquire()
    file.close()
    begun = len(seen)
    go_on.set()
    file.join()
    assert len(seen) <= begun + remote_files._REQUESTS_OF_A_FILE and len(seen) < 100


@pytest.mark.parametrize("group_bytes", [128 << 20, exhaustive(0)], ids=["whole chunks", "interleaved"])
def test_scans_of_remote_tables_give_what_local_ones_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(column_reader, "_REMOTE_GROUP_BYTES", group_bytes)
    monkeypatch.setattr("bitlake.formats.parquet.decode.WHOLE_CHUNKS_BYTES", 1000)
    monkeypatch.setattr("bitlake.formats.parquet.decode._BUFFER_BYTES", 4096)
    chosen = random.Random(7)
    rows = 60_000
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "v": pa.array([chosen.random() for _ in range(rows)]),
            "s": pa.array([chosen.randbytes(chosen.randrange(12)).hex() for _ in range(rows)]),
            "few": pa.array([str(i % 7) for i in range(rows)]),
        }
    )
    lakes = [bitlake.connect(str(tmp_path / "lake")), bitlake.connect(f"memory://prefetch-{group_bytes}/lake")]
    found = []
    for lake in lakes:
        made = lake.create_table("t", table.schema, options={"file.block-size": "100 kb"})
        made.append(table)
        plan = made._core.scan().plan()
        (task,) = tasks_of(plan.files, plan.schemas)
        assert len(column_reader.footer_of(lake._catalog.store, task).row_groups) > 2
        found.append(
            [
                made.scan().to_arrow(),
                made.scan(columns=["s", "id"]).to_arrow(),
                made.scan(columns=["few"], where="v < 0.5 AND s > '7'").to_arrow(),
                made.scan(where="id BETWEEN 20000 AND 40000", columns=["v", "few", "id"]).to_arrow(),
                made.scan(limit=10).to_arrow(),
            ]
        )
    assert all(a.equals(b) for a, b in zip(*found, strict=True))
    assert found[0][0].sort_by("id").equals(table.cast(found[0][0].schema))


_LATE = """
import sys, threading, time
import pyarrow as pa
import bitlake

table = bitlake.connect("memory://late/lake").create_table("t", pa.schema([("id", pa.int64())]))
for _ in range(2):
    table.append(pa.table({"id": list(range(100_000))}))
begun = table.scan().to_batches()
first = next(begun).num_rows

def late():
    main = threading.main_thread()
    while main.is_alive():
        time.sleep(0.01)
    rest = sum(batch.num_rows for batch in begun)
    table.append(pa.table({"id": [1, 2]}))
    print(first + rest, table.scan(where="id < 5").to_arrow().num_rows, table.scan().count())

if sys.argv[1] == "thread":
    threading.Thread(target=late).start()
else:
    import atexit
    atexit.register(lambda: print(table.scan().to_arrow().num_rows))
"""


@pytest.mark.parametrize(("when", "printed"), [("thread", "200000 12 200002"), exhaustive("atexit", "200000")])
def test_threads_read_and_write_when_the_main_one_has_ended(when: str, printed: str) -> None:
    """Executors took no work by then: no table of an object store could be read or written."""
    done = subprocess.run([sys.executable, "-c", _LATE, when], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


def test_a_program_ends_while_a_request_runs() -> None:
    code = """
import time
from bitlake.io.base import Store
from bitlake.io.local import LocalStore
from bitlake.io.remote_files import PrefetchedFile, RangedFile, open_ranges

def slow(offset, length):
    time.sleep(0.3)
    return bytes(length)

file = PrefetchedFile(slow, 10**8, "f", [[(0, 10**8)]])
print(len(file.read(10)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode, done.stderr) == ("10", 0, "")


def test_a_thread_that_waits_for_a_block_ends_when_the_file_is_closed() -> None:
    """As at the end of a program, which waits for that thread."""
    go_on = threading.Event()
    failed: list[BaseException] = []

    def slow(offset: int, length: int) -> bytes:
        go_on.wait()
        return DATA[offset : offset + length]

    file = PrefetchedFile(slow, len(DATA), "f", [[(0, 100_000)]])
    while file._threads < remote_files._REQUESTS_OF_A_FILE:
        file._ask(file._waiting.popleft())
    file.seek(90_000)

    def read() -> None:
        try:
            file.read(10)
        except BaseException as e:  # noqa: BLE001 - looked at below
            failed.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    while not file._asked:
        thread.join(0.001)
    file.close()
    thread.join()
    assert len(failed) == 1
    with pytest.raises(ValueError, match="closed"):
        file.read(10)
    go_on.set()
    file.join()
