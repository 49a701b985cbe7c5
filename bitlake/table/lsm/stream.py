"""Merging sorted runs in bounded memory: their rows key range by key range, all rows of a key in one chunk.

Of every run the next batches are held.  All are cut at the smallest of their last keys: up to there every run has shown
all it has.  What is below goes out as one chunk, the rest waits for the next.  Runs that fit into memory together come
as one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.merge.keys import Key, SortedKeys

MEMORY = 32 << 20
"""Bytes of rows held of all runs together, about: a run has at least one batch of its file.  Merging 1.3M rows of three
runs took the same processor time with 8 and with 96 MB."""


@dataclass(slots=True)
class SortedSource:
    """A run as its batches: tables in key order, one after the other; ``where`` names it in errors."""

    batches: Iterator[pa.Table]
    where: str
    held: pa.Table | None = None
    keys: SortedKeys | None = None
    ended: bool = False
    last: Key | None = None

    def fill(self, key_names: Sequence[str], room: int) -> None:
        """Hold at least one row if there is one, and up to about ``room`` bytes."""
        parts: list[pa.Table] = []
        size = 0
        while size < room and not self.ended:
            batch = next(self.batches, None)
            if batch is None:
                self.ended = True
            elif batch.num_rows:
                parts.append(batch)
                size += batch.nbytes
        if parts:
            self.held = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
            self.keys = SortedKeys.of([self.held.column(k) for k in key_names])
            self._check(key_names)

    def cut(self, count: int) -> pa.Table:
        """Take the first rows out."""
        assert self.held is not None and self.keys is not None
        rows = self.held.slice(0, count)
        if count == len(self.keys):
            self.held = self.keys = None
        else:
            self.held, self.keys = self.held.slice(count), self.keys.slice(count, len(self.keys))
        return rows

    def _check(self, key_names: Sequence[str]) -> None:
        assert self.held is not None and self.keys is not None
        for name in key_names:
            if self.held.column(name).null_count:
                raise CorruptError(f"key column '{name}' holds NULL", None, self.where)
        if not self.keys.ascend or (self.last is not None and self.keys.at(0) <= self.last):
            raise CorruptError("rows are not in the order of their keys", None, self.where)
        self.last = self.keys.at(len(self.keys) - 1)


def merge_runs(sources: Sequence[SortedSource], key_names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all runs in chunks: the keys of a chunk are above those of the one before, inside it in no order.

    Raises :class:`CorruptError` for a run whose rows are not in the order of their keys.
    """
    room = max(1, MEMORY // max(1, len(sources)))
    while True:
        for source in sources:
            if source.held is None and not source.ended:
                source.fill(key_names, room)
        held = [s for s in sources if s.keys is not None]
        if not held:
            return
        going_on = [s.keys.at(len(s.keys) - 1) for s in held if s.keys is not None and not s.ended]
        parts: list[pa.Table] = []
        for source in held:
            assert source.keys is not None
            count = source.keys.upper(min(going_on)) if going_on else len(source.keys)
            if count:
                parts.append(source.cut(count))
        yield parts[0] if len(parts) == 1 else pa.concat_tables(parts)
