"""Interval partition: splits the files of a bucket into sections whose key ranges do not overlap.

Only files of one section can share keys, so sections are merged one by one, and a section of one file is not merged.
Files of one level above 0 must not overlap; commits check that here.  Key ranges come from manifest entries: no data
file is read.  Cost: a sort of the files by their smallest key.
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
"""The smallest and the largest key, as physical values; both ends are included."""


def interval_partition(items: Sequence[Item], key_range: Callable[[Item], KeyRange]) -> list[list[Item]]:
    """Split items into sections of overlapping key ranges.

    ``key_range`` returns the key range of an item.  Sections are ordered by key, items in a section by their smallest
    key.
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
    """Convert a key of physical values to a tuple that compares like keys in Paimon: NULL first, NaN last."""
    return tuple(map(_comparable_value, key))


def _comparable_value(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        # -0.0 and 0.0 are different keys; -0.0 is smaller.
        return (2, 0) if value != value else (1, (value, math.copysign(1.0, value)))
    return (1, value)


class KeyRanges:
    """Returns the key range of a file, by the trimmed primary key of a schema."""

    def __init__(self, schema: TableSchema) -> None:
        self._types = [schema.field(k).type for k in schema.trimmed_primary_keys]

    def __call__(self, entry: ManifestEntry) -> KeyRange:
        """Return the key range of a file; raises :class:`CorruptError`, naming the file, if it cannot be decoded."""
        try:
            return decode_row(self._types, entry.file.min_key), decode_row(self._types, entry.file.max_key)
        except CorruptError as e:
            raise CorruptError(f"the key range of data file {entry.file.file_name}: {e.what}", e.offset) from e


def check_level_overlap(
    schema: TableSchema, table: str, rest: Sequence[ManifestEntry], adds: Sequence[ManifestEntry]
) -> None:
    """Raise :class:`CommitConflict` if an added file overlaps another file of its bucket and level above 0.

    ``rest`` are the files that stay live; ``table`` is for the message.
    """
    levels = {(e.partition, e.bucket, e.file.level) for e in adds if e.file.level > 0}
    if not levels:
        return
    key_range = KeyRanges(schema)
    files: dict[tuple[bytes, int, int], list[ManifestEntry]] = {}
    for e in (*rest, *adds):
        level_of = (e.partition, e.bucket, e.file.level)
        if level_of in levels:
            files.setdefault(level_of, []).append(e)
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
    """Raise :class:`CommitConflict` if a file of ``new`` overlaps one of ``taken`` in the same bucket."""
    common = files_with_common_keys(schema, new, taken)
    if common is not None:
        one, other = common
        raise CommitConflict(
            f"data file {one.file.file_name} was added to bucket {one.bucket} of {table} while the bucket was "
            f"compacted, and may hold keys of {other.file.file_name}; read the table again and retry"
        )


def files_with_common_keys(
    schema: TableSchema, new: Sequence[ManifestEntry], others: Sequence[ManifestEntry]
) -> tuple[ManifestEntry, ManifestEntry] | None:
    """A file of each sequence whose key ranges overlap in the same bucket; None without such two files.

    Each file of ``new`` is compared with each of ``others`` in its bucket.
    """
    key_range = KeyRanges(schema)
    ranges: dict[tuple[bytes, int], list[tuple[Any, Any, ManifestEntry]]] = {}
    for e in others:
        first, last = map(comparable_key, key_range(e))
        ranges.setdefault((e.partition, e.bucket), []).append((first, last, e))
    for e in new:
        low, high = map(comparable_key, key_range(e))
        for first, last, other in ranges.get((e.partition, e.bucket), ()):
            if first <= high and low <= last:
                return e, other
    return None
