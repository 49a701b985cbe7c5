"""Interval partition: key ranges of files, and files of a bucket sorted into sections whose keys do not overlap.

Files of one level above 0 must not overlap either; this is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from bitlake.codec.binary_row import decode_row
from bitlake.errors import CommitConflict, CorruptError
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema

Item = TypeVar("Item")


KeyRange = tuple[Sequence[Any], Sequence[Any]]


def interval_partition(items: Sequence[Item], key_range: Callable[[Item], KeyRange]) -> list[list[Item]]:
    """Split items by overlapping key ranges.

    ``key_range`` gives the smallest and largest key of an item as physical values (both ends included).  Sections come
    ordered by key, items inside one by their smallest key.
    """
    ranged = []
    for item in items:
        low, high = (comparable_key(end) for end in key_range(item))
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


def comparable_key(key: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """A key, as physical values, that compares with any other of its columns as Paimon's: NULL first, NaN last."""
    return tuple(map(_comparable_value, key))


def _comparable_value(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        # -0.0 is another key than 0.0, and smaller.
        return (2, 0) if value != value else (1, (value, math.copysign(1.0, value)))
    return (1, value)


class KeyRanges:
    """The key range of a file as physical values of the trimmed primary key, both ends included."""

    def __init__(self, schema: TableSchema) -> None:
        self._types = [schema.field(k).type for k in schema.trimmed_primary_keys]

    def __call__(self, entry: ManifestEntry) -> KeyRange:
        """The smallest and the largest key; raises :class:`CorruptError` naming the file."""
        try:
            return decode_row(self._types, entry.file.min_key), decode_row(self._types, entry.file.max_key)
        except CorruptError as e:
            raise CorruptError(f"the key range of data file {entry.file.file_name}: {e.what}", e.offset) from e


def check_level_overlap(
    schema: TableSchema, table: str, rest: Sequence[ManifestEntry], adds: Sequence[ManifestEntry]
) -> None:
    """Raise :class:`CommitConflict` if an added file shares keys with another one of its bucket and level above 0.

    ``rest`` are the files that stay; ``table`` is only for the message.
    """
    levels = {(e.partition, e.bucket, e.file.level) for e in adds if e.file.level > 0}
    if not levels:
        return
    key_range = KeyRanges(schema)
    files: dict[tuple[bytes, int, int], list[ManifestEntry]] = {}
    for e in (*rest, *adds):
        where = (e.partition, e.bucket, e.file.level)
        if where in levels:
            files.setdefault(where, []).append(e)
    for (_, bucket, level), entries in files.items():
        ranged = []
        for e in entries:
            low, high = key_range(e)
            ranged.append((comparable_key(low), comparable_key(high), e.file.file_name))
        for (_, last, name), (first, _, other) in pairwise(sorted(ranged)):
            if first <= last:
                raise CommitConflict(
                    f"data files {name} and {other} of level {level} in bucket {bucket} of {table} have keys in "
                    "common: another writer compacted the bucket meanwhile; read the table again and retry"
                )


def check_no_common_keys(
    schema: TableSchema, table: str, new: Sequence[ManifestEntry], taken: Sequence[ManifestEntry]
) -> None:
    """Raise :class:`CommitConflict` if a file of ``new`` shares keys with one of ``taken`` in its bucket."""
    key_range = KeyRanges(schema)
    ranges: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for e in taken:
        ranges.setdefault((e.partition, e.bucket), []).append(e)
    for e in new:
        low, high = map(comparable_key, key_range(e))
        for other in ranges.get((e.partition, e.bucket), ()):
            first, last = map(comparable_key, key_range(other))
            if first <= high and low <= last:
                raise CommitConflict(
                    f"data file {e.file.file_name} came into bucket {e.bucket} of {table} while it was compacted, and "
                    f"may hold keys of {other.file.file_name}; read the table again and retry"
                )
