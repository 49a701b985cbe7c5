"""Files of a bucket sorted into sections: files of different sections have no key in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


Range = tuple[Sequence[Any], Sequence[Any]]


def sections(items: Sequence[Item], key_range: Callable[[Item], Range]) -> list[list[Item]]:
    """Split items by overlapping key ranges.

    ``key_range`` gives the smallest and largest key of an item as physical values (both ends included).  Sections come
    ordered by key, items inside one by their smallest key.
    """
    ranged = []
    for item in items:
        low, high = (key_place(end) for end in key_range(item))
        ranged.append((low, high, item))
    ranged.sort(key=lambda r: r[:2])
    out: list[list[Item]] = []
    end: tuple[Any, ...] | None = None
    for low, high, item in ranged:
        if end is not None and low <= end:
            out[-1].append(item)
            end = max(end, high)
        else:
            out.append([item])
            end = high
    return out


def key_place(key: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """A key, as physical values, that compares with any other of its columns as Paimon's: NULL first, NaN last."""
    return tuple(map(_place, key))


def _place(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        # -0.0 is another key than 0.0, and smaller.
        return (2, 0) if value != value else (1, (value, math.copysign(1.0, value)))
    return (1, value)
