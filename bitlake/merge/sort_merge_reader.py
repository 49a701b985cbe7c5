"""Sort-merge reader: the rows of several sorted runs, key range by key range, in bounded memory.

It holds the next batches of every run and cuts all of them at the smallest of their last keys; up to there every run is
complete.  All rows of a key are in one chunk, and keys ascend from chunk to chunk, so that chunks can be merged at the
same time.  Runs that fit into memory together are one chunk.

Source: Paimon's ``SortMergeReader``; here a chunk of rows is merged at once, not row by row.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.merge.keys import Key, SortedKeys

MEMORY = 32 << 20
"""Approximate bytes of rows held of all runs together, beside chunks that are merged; a run holds at least one batch,
and reads one ahead.  Merging 1.3M rows of three runs took the same processor time with 8 MB and with 96 MB."""


@dataclass(slots=True)
class SortedSource:
    """A run as an iterator of tables in key order; ``where`` names it in errors.  Mutable."""

    batches: Iterator[pa.Table]
    where: str
    held: pa.Table | None = None
    keys: SortedKeys | None = None
    ended: bool = False
    last: Key | None = None
    ahead: pa.Table | None = None
    """The batch after those held, which begins with another key."""

    def fill(self, key_names: Sequence[str], room: int) -> None:
        """Read at least one row, if any remains, up to about ``room`` bytes, and on to the end of the last key's rows.

        Paimon writes a key once into a run; some releases of pypaimon wrote what an upsert repeated.
        """
        parts: list[pa.Table] = []
        size = 0
        while (batch := self._next()) is not None:
            if size >= room and _key_at(parts[-1], key_names, -1) != _key_at(batch, key_names, 0):
                self.ahead = batch
                break
            parts.append(batch)
            size += batch.nbytes
        if parts:
            self.held = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
            self.keys = SortedKeys.of([self.held.column(k) for k in key_names])
            self._check(key_names)

    def _next(self) -> pa.Table | None:
        """The next batch that has rows; None at the end of the run."""
        if self.ahead is not None:
            batch, self.ahead = self.ahead, None
            return batch
        batch = next((b for b in self.batches if b.num_rows), None)
        self.ended = batch is None
        return batch

    def cut(self, count: int) -> pa.Table:
        """Remove the first ``count`` held rows and return them."""
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


def _key_at(rows: pa.Table, key_names: Sequence[str], at: int) -> Key:
    row = rows.slice(at % rows.num_rows, 1)
    return SortedKeys.of([row.column(k) for k in key_names]).at(0)


def merge_runs(sources: Sequence[SortedSource], key_names: Sequence[str]) -> Generator[pa.Table, None, None]:
    """Yield the rows of all runs in chunks: keys ascend from chunk to chunk, inside a chunk they have no order.

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
        last_keys = [s.keys.at(len(s.keys) - 1) for s in held if s.keys is not None and not s.ended]
        parts: list[pa.Table] = []
        for source in held:
            assert source.keys is not None
            count = source.keys.upper(min(last_keys)) if last_keys else len(source.keys)
            if count:
                parts.append(source.cut(count))
        yield parts[0] if len(parts) == 1 else pa.concat_tables(parts)
