"""Forget what the stores of this process have cached, for tests that change files which never change otherwise."""

from __future__ import annotations

import weakref

from bitlake import runtime

_made: weakref.WeakSet[runtime.Caches] = weakref.WeakSet()
_init = runtime.Caches.__init__


def _remembered(self: runtime.Caches, budget: runtime.CacheBudget | None = None) -> None:
    _init(self, budget)
    _made.add(self)


runtime.Caches.__init__ = _remembered  # type: ignore[method-assign]


def forget(name: str = "") -> None:
    """Clear every cache of this process, or those of one name."""
    for caches in list(_made):
        for kind, cache in list(caches._caches.items()):
            if name in ("", kind.name):
                cache.clear()
