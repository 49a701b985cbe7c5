"""Caches under one budget: what goes first, what is counted, and what other threads and processes see."""

from __future__ import annotations

import os
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bitlake.io import ResolvingStore, open_store
from bitlake.io.base import request_runner
from bitlake.io.local import LocalStore
from bitlake.runtime import CacheBudget, CacheName, Caches, LocalRunner, process_caches

NAMES: CacheName[str, str] = CacheName("names")
NUMBERS: CacheName[int, list[int]] = CacheName("numbers")
ELSEWHERE: CacheName[str, str] = CacheName("elsewhere", limit=20)


def test_the_least_recently_used_entry_of_all_caches_goes_first() -> None:
    caches = Caches(CacheBudget(10))
    names, numbers = caches[NAMES], caches[NUMBERS]
    names.put("a", "A", 5)
    numbers.put(1, [1], 5)
    assert names.get("a") == "A"
    names.put("b", "B", 5)
    assert (names.get("a"), numbers.get(1), names.get("b")) == ("A", None, "B")
    numbers.put(2, [2], 6)  # both go, in their order
    assert (names.get("a"), names.get("b"), numbers.get(2)) == (None, None, [2])
    assert caches.budget.used == 6 and caches.sizes() == {"names": 0, "numbers": 6}


def test_the_order_of_many_uses_is_kept() -> None:
    names = Caches(CacheBudget(100))[NAMES]
    rng, order = random.Random(1), list(map(str, range(100)))
    for key in order:
        names.put(key, key, 1)
    for _ in range(1000):
        key = rng.choice(order)
        assert names.get(key) == key
        order.remove(key)
        order.append(key)
    for gone in range(60):
        names.put(f"new {gone}", "", 1)
        assert [k for k in order if k in names._entries] == order[gone + 1 :]


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    caches = Caches(CacheBudget(10))
    names = caches[NAMES]
    names.put("a", "A", 4)
    names.put("b", "B", 11)
    assert (names.get("a"), names.get("b")) == ("A", None)
    names.put("a", "much", 11)
    assert names.get("a") is None and caches.budget.used == 0


def test_a_value_that_is_replaced_or_grows_is_counted_once() -> None:
    caches = Caches(CacheBudget(10))
    names = caches[NAMES]
    names.put("a", "A", 4)
    names.put("b", "B", 3)
    names.put("a", "A2", 2)
    assert (names.get("a"), caches.budget.used) == ("A2", 5)
    names.resize("b", "B", 5)
    names.resize("b", "other", 9)  # not the value that is there
    names.resize("c", "C", 9)
    assert caches.budget.used == 7
    names.resize("b", "B", 9)
    assert (names.get("a"), names.get("b"), caches.budget.used) == (None, "B", 9)


def test_a_value_is_made_once() -> None:
    names = Caches()[NAMES]
    made: list[int] = []
    for _ in range(2):
        assert names.get_or("a", lambda: made.append(1) or "A", len) == "A"
    assert made == [1]


def test_a_budget_of_nothing_keeps_nothing() -> None:
    caches = Caches(CacheBudget(0))
    for cache in (caches[NAMES], caches[ELSEWHERE]):
        cache.put("a", "A", 0)
        assert cache.get("a") is None and len(cache) == 0


def test_clear_frees_the_budget_for_others() -> None:
    caches = Caches(CacheBudget(10))
    caches[NAMES].put("a", "A", 8)
    caches[NUMBERS].put(1, [], 2)
    caches[NAMES].clear()
    assert caches[NAMES].get("a") is None and caches[NUMBERS].get(1) == [] and caches.budget.used == 2
    caches[NAMES].put("b", "B", 8)
    assert caches[NUMBERS].get(1) == [] and caches.budget.used == 10
    caches.clear()
    assert caches.budget.used == 0 and not caches[NUMBERS].get(1) and not caches[NAMES].get("b")


def test_memory_of_another_process_has_a_limit_of_its_own() -> None:
    caches = Caches(CacheBudget(30))
    caches[NAMES].put("a", "A", 30)
    for key in "xyz":
        caches[ELSEWHERE].put(key, key, 8)
    assert [caches[ELSEWHERE].get(k) for k in "xyz"] == [None, "y", "z"] and caches[NAMES].get("a") == "A"
    small = Caches(CacheBudget(8))
    small[ELSEWHERE].put("x", "x", 9)
    assert small[ELSEWHERE].get("x") is None, "a lower budget lowers the limit"


def test_stores_that_share_a_budget_share_no_entries() -> None:
    budget = CacheBudget(10)
    one, other = Caches(budget), Caches(budget)
    one[NAMES].put("a", "A", 6)
    assert other[NAMES].get("a") is None
    other[NAMES].put("a", "B", 6)
    assert (one[NAMES].get("a"), other[NAMES].get("a")) == (None, "B")


def test_threads_may_share_caches() -> None:
    caches = Caches(CacheBudget(2_000))

    def work(seed: int) -> int:
        rng, wrong = random.Random(seed), 0
        for step in range(5_000):
            key = rng.randrange(200)
            found = caches[NUMBERS].get(key)
            wrong += found is not None and found != [key]
            if found is None or step % 7 == 0:
                caches[NUMBERS].put(key, [key], rng.randrange(1, 50))
            if step % 500 == 0:
                caches[NUMBERS].clear()
            assert caches.budget.used <= 2_000 + 50 * 8, "one entry at a time is too many"
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert caches.budget.used == caches.sizes()["numbers"] <= 2_000
    assert len(caches.budget._queue) == len(caches[NUMBERS])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
def test_a_forked_process_can_use_the_caches() -> None:
    caches = Caches(CacheBudget(1_000))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            for key in range(100):
                caches[NUMBERS].put(key, [key], 20)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                # A lock that another thread held at the fork would never be released here.
                caches[NUMBERS].put(1000, [1000], 20)
                fine = caches[NUMBERS].get(1000) == [1000] and caches.budget.used == caches.sizes()["numbers"]
                os._exit(0 if fine else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def sent(store: LocalStore | ResolvingStore) -> LocalStore | ResolvingStore:
    """The store as another process gets it."""
    return pickle.loads(pickle.dumps(store))  # type: ignore[no-any-return]


def test_a_store_leaves_its_entries_behind_and_joins_those_of_the_process() -> None:
    store = LocalStore()
    plain = len(pickle.dumps(store))
    store.caches[NAMES].put("a", "A" * 10_000, 10_000)
    assert len(pickle.dumps(store)) == plain < 1_000
    first = sent(store)
    assert first.caches[NAMES].get("a") is None
    first.caches[NAMES].put("a", "A", 10)
    assert sent(LocalStore()).caches[NAMES].get("a") == "A", "the next task's store, of another lake even"
    assert store.caches[NAMES].get("a") == "A" * 10_000
    first.caches.clear()


def test_stores_with_other_options_share_nothing_in_a_worker() -> None:
    one, other = (ResolvingStore({"s3.endpoint": f"http://{n}"}, None) for n in "ab")
    sent(one).caches[NAMES].put("s3://b/x", "one", 10)
    assert sent(other).caches[NAMES].get("s3://b/x") is None
    assert sent(one).caches[NAMES].get("s3://b/x") == "one"
    sent(one).caches.clear()


def test_a_worker_has_one_budget_and_caches_nothing_where_the_lake_does_not() -> None:
    off = LocalStore()
    off.caches = Caches(CacheBudget(0))
    sent(off).caches[NAMES].put("b", "B", 1)
    assert sent(off).caches[NAMES].get("b") is None and sent(off).caches.budget.size == 0
    one, other = process_caches("one", 50), process_caches("other", 20)
    assert one.budget is other.budget is sent(LocalStore()).caches.budget and one.budget.size >= 50


def test_few_items_run_in_the_calling_thread() -> None:
    threads = LocalRunner(4, few=3).run([1, 2, 3], lambda _: threading.get_ident())
    assert set(threads) == {threading.get_ident()}
    barrier = threading.Barrier(4, timeout=30)
    LocalRunner(4, few=3).run([1, 2, 3, 4], lambda _: barrier.wait())  # all at once


def test_few_local_files_are_read_without_threads() -> None:
    memory = open_store("memory://few/t")
    assert request_runner(LocalStore(), "/lake/t").few > request_runner(memory, "memory://few/t").few == 1
