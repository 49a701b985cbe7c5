"""The files that a plan leaves out, each described when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from bitlake.table.plan import SkippedFile, SkipReason


class SkippedFiles(Sequence[SkippedFile]):
    """Files skipped by the cheap steps, known by number only, and then some that are described already.

    A plan may skip a hundred thousand files, of which explain shows fifty: a text for each would cost more than to
    find out that it is skipped.  Compares and pickles like a tuple.
    """

    __slots__ = ("_describe", "_more", "_numbers", "_outline")

    def __init__(
        self,
        numbers: Sequence[int],
        describe: Callable[[int], SkippedFile],
        more: Sequence[SkippedFile] = (),
        outline: Callable[[int], tuple[SkipReason, int]] | None = None,
    ) -> None:
        """``outline`` tells reason and bytes of a number alone, which is quicker than to describe it."""
        self._numbers = numbers
        self._describe = describe
        self._more = tuple(more)
        self._outline = outline

    def outlines(self) -> Iterator[tuple[SkipReason, int]]:
        """Reason and bytes of each file, in order."""
        if self._outline is None:
            yield from ((s.reason, s.size) for s in self)
            return
        for number in self._numbers:
            yield self._outline(int(number))
        yield from ((s.reason, s.size) for s in self._more)

    def __len__(self) -> int:
        return len(self._numbers) + len(self._more)

    @overload
    def __getitem__(self, index: int) -> SkippedFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SkippedFile, ...]: ...
    def __getitem__(self, index: int | slice) -> SkippedFile | tuple[SkippedFile, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(index)
        known = len(self._numbers)
        return self._describe(int(self._numbers[i])) if i < known else self._more[i - known]

    def __iter__(self) -> Iterator[SkippedFile]:
        for number in self._numbers:
            yield self._describe(int(number))
        yield from self._more

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (SkippedFiles, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SkippedFiles({len(self)} files)"

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def outlines_of(skipped: Sequence[SkippedFile]) -> Iterator[tuple[SkipReason, int]]:
    """Reason and bytes of each skipped file of a plan, in order."""
    if isinstance(skipped, SkippedFiles):
        yield from skipped.outlines()
    else:
        yield from ((s.reason, s.size) for s in skipped)
