"""The bounded cache of immutable values."""

from __future__ import annotations

from bitlake.runtime import Cache


def test_cache_drops_the_least_recently_used() -> None:
    cache: Cache[str, str] = Cache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 5)
    assert cache.get("a") == "A"
    cache.put("c", "C", 5)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")
    cache.put("d", "D", 100)
    assert cache.get("d") == "D"
    assert cache.get("a") is None


def test_a_value_is_made_once() -> None:
    cache: Cache[str, int] = Cache(10)
    made: list[int] = []
    for _ in range(2):
        assert cache.get_or("a", lambda: made.append(1) or 7) == 7
    assert made == [1]
