"""A lake's caches: one budget for whatever its tables read, shared by its tables and by no other lake."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from long import long
from store_wrappers import CountingStore

import bitlake
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.formats.parquet.footer import PREFETCH
from bitlake.lake import catalog_of
from bitlake.runtime import CacheBudget, Caches
from bitlake.scan.column_reader import footer_of
from bitlake.scan.reader import tasks_of
from bitlake.snapshot.manifests import MANY_ENTRIES, memory_of

FILES, ROWS = 40, 200
OPTIONS = {
    "file-index.bitmap.columns": "s",
    "file-index.in-manifest-threshold": "1 b",
    "deletion-vectors.enabled": "true",
}
SMALL = 60_000
"""Bytes: the metadata of some of the files."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of many files with indexes and deletion vectors."""
    made = tmp_path_factory.mktemp("lake")
    table = bitlake.connect(made).create_table("t", pa.schema([("i", pa.int64()), ("s", pa.string())]), options=OPTIONS)
    for file in range(FILES):
        ids = range(file * ROWS, (file + 1) * ROWS)
        table.append(pa.table({"i": list(ids), "s": [f"k{i % 10}" for i in ids]}))
    table.delete("s = 'k7'")
    return made


def expected(where: Callable[[int], bool]) -> list[int]:
    return [i for i in range(FILES * ROWS) if i % 10 != 7 and where(i)]


def ids(lake: bitlake.Lake, where: str) -> list[int]:
    return sorted(lake.table("t").scan(where=where).to_arrow().column("i").to_pylist())


def caches_of(lake: bitlake.Lake) -> Caches:
    return lake._catalog.runtime.caches


def counted(lake: bitlake.Lake) -> CountingStore:
    """The lake's store, which counts from now on."""
    store = lake._catalog.store = CountingStore(lake._catalog.store)
    return store


def reads(store: CountingStore, part: str) -> int:
    """How many reads of files with this in their paths since the last time."""
    found = sum(part in path for call, path in store.paths if call.startswith(("read", "open_input")))
    store.reset()
    return found


def check(lake: bitlake.Lake) -> None:
    """Answers that take manifests, vectors, indexes and footers."""
    assert ids(lake, "s = 'k3'") == expected(lambda i: i % 10 == 3)
    assert ids(lake, "i >= 150 AND i < 950 AND s > 'k4'") == expected(lambda i: 150 <= i < 950 and i % 10 > 4)
    assert lake.table("t").count() == len(expected(lambda i: True))


@pytest.mark.parametrize("cache_bytes", [0, 1, SMALL, 1 << 30])
def test_the_budget_is_kept_and_answers_are_the_same(folder: Path, cache_bytes: int) -> None:
    lake = bitlake.connect(folder, cache_bytes=cache_bytes)
    caches = caches_of(lake)
    for _ in range(2):
        check(lake)
        assert sum(caches.sizes().values()) == caches.budget.used <= cache_bytes
    if cache_bytes > SMALL:
        kept = {name for name, size in caches.sizes().items() if size}
        assert kept >= {"manifests", "live files", "footers", "file indexes", "index results", "deletion vectors"}
        assert caches.budget.used > SMALL, "it does not fit into the small budget"
    elif cache_bytes == SMALL:
        assert caches.budget.used > SMALL / 2, "what was used last stays"


def test_what_was_used_last_stays(folder: Path) -> None:
    """Room for the table's metadata and a few footers, of which reading everything takes many."""
    lake, whole = bitlake.connect(folder, cache_bytes=300_000), bitlake.connect(folder)
    stores = [counted(lake), counted(whole)]
    warm = []
    for each in (lake, whole):
        assert ids(each, "s >= 'k0'") == expected(lambda i: True)
        for _ in range(2):
            ids(each, f"i = {FILES * ROWS - 1}")
    for each, store in zip((lake, whole), stores, strict=True):
        reads(store, "")
        ids(each, f"i = {FILES * ROWS - 1}")
        warm.append(reads(store, ""))
    assert warm[0] == warm[1] < 15
    for each in (lake, whole):
        ids(each, "s >= 'k0'")
    assert reads(stores[0], ".parquet") > reads(stores[1], ".parquet") + FILES / 2, "footers that had to go"


def test_tables_of_a_lake_share_what_was_read(folder: Path) -> None:
    lake = bitlake.connect(folder)
    store = counted(lake)
    check(lake)
    assert reads(store, "/manifest/") > 0
    first, second = lake.table("t"), lake.table("default.t")
    assert first._core.runtime is second._core.runtime
    check(lake)
    assert [part for call, part in store.paths if "/manifest/" in part or ".index" in part] == []


def test_lakes_share_nothing(folder: Path) -> None:
    warm, other = bitlake.connect(folder), bitlake.connect(folder)
    check(warm)
    assert caches_of(other).budget.used == 0
    store = counted(other)
    check(other)
    assert reads(store, "/manifest/") > 0
    used = caches_of(other).budget.used
    warm.clear_cache()
    assert (caches_of(warm).budget.used, caches_of(other).budget.used) == (0, used) and used > SMALL


def test_a_cleared_cache_is_filled_again(folder: Path) -> None:
    lake = bitlake.connect(folder)
    store = counted(lake)
    check(lake)
    cold = reads(store, "")
    check(lake)
    assert reads(store, "") < cold / 2
    lake.clear_cache()
    assert caches_of(lake).budget.used == 0
    check(lake)
    assert reads(store, "") == cold


def test_nothing_is_read_less_often_without_a_cache(folder: Path) -> None:
    lake = bitlake.connect(folder, cache_bytes=0)
    store = counted(lake)
    check(lake)
    cold = reads(store, "")
    check(lake)
    assert reads(store, "") == cold and caches_of(lake).budget.used == 0


def test_a_pickled_catalog_leaves_entries_behind(folder: Path) -> None:
    """As Spark Connect pickles one with a stream's sink: entries such as locks cannot leave their process."""
    lake = bitlake.connect(folder, cache_bytes=5_000_000)
    check(lake)
    assert caches_of(lake).budget.used > 0
    catalog = pickle.loads(pickle.dumps(catalog_of(lake)))
    assert catalog.runtime.caches.budget.size == 5_000_000 and catalog.runtime.caches.sizes() == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("cache_bytes", [long(0), SMALL, 1 << 30])
def test_threads_share_a_lake(folder: Path, cache_bytes: int) -> None:
    lake = bitlake.connect(folder, cache_bytes=cache_bytes)

    def work(number: int) -> None:
        for key in range(number, number + 4):
            assert ids(lake, f"s = 'k{key % 10}'") == expected(lambda i, key=key: i % 10 == key % 10)  # type: ignore[misc]
            if number == 3:
                lake.clear_cache()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert sum(caches_of(lake).sizes().values()) == caches_of(lake).budget.used <= cache_bytes


@pytest.mark.parametrize("given", [-1, 1.5, "1 gb", None, True])
def test_a_budget_is_a_number_of_bytes(folder: Path, given: object) -> None:
    with pytest.raises(InvalidRequest, match="cache_bytes must be a number of bytes"):
        bitlake.connect(folder, cache_bytes=given)  # type: ignore[arg-type]


def taken(make: Callable[[], object]) -> tuple[object, int]:
    """A value, and the bytes of Python's memory that it takes."""
    gc.collect()
    tracemalloc.start()
    try:
        value = make()
        gc.collect()
        return value, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_sizes_are_about_those_in_memory(folder: Path) -> None:
    lake = bitlake.connect(folder)
    table = lake.table("t")
    check(lake)  # imports, and what is remembered of types
    state = table._core.state()
    lake.clear_cache()
    entries, size = taken(state.entries)
    assert len(entries) == FILES < MANY_ENTRIES  # type: ignore[arg-type]
    stated = caches_of(lake).sizes()
    assert size / 2 < stated["manifests"] + stated["manifest lists"] < 2 * size
    assert stated["live files"] >= memory_of(entries)  # type: ignore[arg-type]
    plan = table._core.scan().plan()
    tasks = tasks_of(plan.files, plan.schemas)
    store = state.store
    store.caches = Caches(CacheBudget(1 << 30))
    _, size = taken(lambda: [footer_of(store, task) for task in tasks])
    assert size / 2 < store.caches.sizes()["footers"] < 2.5 * size


@pytest.mark.parametrize("cached", [True, False])
def test_a_file_that_was_replaced_by_hand_is_seen_after_an_error(tmp_path: Path, cached: bool) -> None:
    lake = bitlake.connect(tmp_path)
    table = lake.create_table("t", pa.schema([("i", pa.int64())]))
    table.append(pa.table({"i": np.random.default_rng(1).integers(0, 1 << 62, 100_000)}))
    file = Path(table.scan().plan().files[0].path)
    whole = file.read_bytes()
    assert len(whole) > 4 * PREFETCH, "a smaller file is cached as a whole"
    if cached:
        assert table.scan().to_arrow().num_rows == 100_000
    file.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(CorruptError):
        table.scan().to_arrow()
    file.write_bytes(whole[: len(whole) // 2])
    sizes = rf"the file has {len(whole) // 2:,} bytes.*its manifest says {len(whole):,}"
    with pytest.raises(CorruptError, match=sizes):
        table.scan().to_arrow()
    file.write_bytes(whole)
    assert table.scan().to_arrow().num_rows == 100_000


def test_what_verify_reports_is_not_read_from_a_cache(tmp_path: Path) -> None:
    """A small file is in memory with its footer."""
    table = bitlake.connect(tmp_path).create_table("t", pa.schema([("i", pa.int64())]))
    table.append(pa.table({"i": [1, 2]}))
    assert table.scan().to_arrow().num_rows == 2
    file = Path(table.scan().plan().files[0].path)
    file.unlink()
    assert [f.code for f in table.maintenance.verify(deep=False).findings] == ["data-missing"]
    with pytest.raises(NotFound, match="is missing"):
        table.scan().to_arrow()
