"""Ranges of a file as stores are asked for them, ``(offset, length)``: which cannot be, and which the file has not."""

from __future__ import annotations

from collections.abc import Iterable

from bitlake.errors import CorruptError, InvalidRequest

Range = tuple[int, int]


def check_ranges(path: str, ranges: Iterable[Range]) -> None:
    """Raise :class:`InvalidRequest` for a range that begins before the file or is shorter than nothing."""
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise InvalidRequest(f"range [{offset}, +{length}) of {path} is negative")


def check_ends(path: str, ranges: Iterable[Range], size: int) -> None:
    """Raise :class:`CorruptError` for a range that goes beyond a file of ``size`` bytes."""
    for offset, length in ranges:
        missing = offset + length - size
        if missing > 0:
            raise CorruptError(f"the file ends {missing} bytes before the end of a range of {length}", offset, path)
