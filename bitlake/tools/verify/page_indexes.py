"""Verify the page indexes of a Parquet file: the offset index against the pages, the bounds against the rows.

Readers of chosen rows find pages by the offset index, and skip pages by the bounds of the column index.  Neither has a
checksum.  A wrong one makes such readers fail or miss rows, while readers of whole files do not notice.

:class:`PageIndexFacts` looks at the header of each page when it is made, and at batches of rows as they are read.
Bounds are checked of the columns that bitlake prunes by: integers, days, timestamps, decimals of up to 18 digits and
texts.

Memory holds a smallest and a largest value for each page, and of nested columns some of the first rows of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.formats.conform import cast_column
from bitlake.formats.parquet.footer import Column, FetchRanges, Footer
from bitlake.formats.parquet.gather import page_values
from bitlake.formats.parquet.page_index import load_pages
from bitlake.formats.parquet.pages import read_parts
from bitlake.formatting import one_line
from bitlake.lazy_modules import compute as pc
from bitlake.scan.page_pruning import PrunedPages, pruned_pages
from bitlake.tools.verify.findings import Finding, of_error
from bitlake.types import DataField
from bitlake.types.arrow import physical_values

CODE = "page-index-wrong"
_HEAD_BYTES = 64
"""Bytes of a page that nearly always hold its header up to the number of values."""
_WAITING_BYTES = 8 << 20
"""Rows of a nested column that wait to be compared with what the offset index finds."""
_BATCH_BYTES = 8 << 20
"""The span of the pages whose headers are read together: ranges near each other are one request of a remote store."""


@dataclass(slots=True)
class _Bounded:
    """A column with page bounds, and what its rows hold: pieces of pages, each with its smallest and largest value."""

    pages: PrunedPages
    numbers: list[int] = field(default_factory=list)
    low: list[pa.Scalar] = field(default_factory=list)
    high: list[pa.Scalar] = field(default_factory=list)


@dataclass(slots=True)
class _Nested:
    """A nested column, whose values do not tell the number of rows: ``firsts`` are the first rows of its pages.

    ``waiting``: those of these rows that were read and not yet compared, which takes place some at a time.
    """

    firsts: np.ndarray[Any, np.dtype[np.int64]]
    checked: int = 0
    waiting: list[pa.Array] = field(default_factory=list)
    bytes: int = 0
    wrong: bool = False


class PageIndexFacts:
    """The faults of one file's page indexes; :meth:`add` batches in the file's order, then ask :meth:`faults`."""

    def __init__(self, path: str, footer: Footer, fetch: FetchRanges, fields: Sequence[DataField]) -> None:
        self._path = path
        self._footer = footer
        self._fetch = fetch
        self._row = 0
        self._found: list[Finding] = []
        self._bounded: dict[str, _Bounded] = {}
        self._nested: dict[str, _Nested] = {}
        for name, column in footer.columns.items():
            self._collect(name, lambda: self._check_pages(name, column))  # noqa: B023 - called at once
        for each in fields:
            if each.name in footer.columns and not self._found:
                self._collect(each.name, lambda: self._open_bounds(each))  # noqa: B023

    def _collect(self, name: str, check: Any) -> None:
        try:
            check()
        except CorruptError as e:
            self._found.append(of_error(CODE, self._path, e, name))

    # --- pages --------------------------------------------------------------------------------------------------------

    def _check_pages(self, name: str, column: Column) -> None:
        """Raise :class:`CorruptError` for pages that are not where the offset index says, or hold other rows."""
        groups, leaves = self._footer.row_groups, range(column.leaf, column.leaf_end)
        places = [(number, leaf) for number in range(len(groups)) for leaf in leaves]
        load_pages(self._footer, self._fetch, places)
        firsts: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        for number, leaf in places:
            pages, group = self._footer.cache.pages[number, leaf], groups[number]
            if pages.whole or not group.rows:
                continue
            firsts.append(pages.first_rows[:-1] + group.first_row)
            held, rows = self._values(pages.offsets, pages.ends), np.diff(pages.first_rows)
            wrong = held != rows if column.flat else held < rows
            if wrong.any():
                at = int(np.argmax(wrong))
                raise CorruptError(
                    f"the offset index of '{name}' says that page {at} has {rows[at]:,} rows, and the page has "
                    f"{held[at]:,} values",
                    int(pages.offsets[at]),
                )
        if firsts and not column.flat:
            self._nested[name] = _Nested(np.unique(np.concatenate(firsts)))

    def _values(self, offsets: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The number of values of each page, by its header."""
        held = np.zeros(len(offsets), np.int64)
        cuts = np.unique(offsets // _BATCH_BYTES, return_index=True)[1].tolist()
        for start, stop in zip(cuts, [*cuts[1:], len(offsets)]):
            lengths = np.minimum(ends[start:stop] - offsets[start:stop], _HEAD_BYTES).tolist()
            heads = self._fetch(list(zip(offsets[start:stop].tolist(), lengths, strict=True)))
            for i, head in enumerate(heads, start):
                held[i] = self._values_of(head, int(offsets[i]), int(ends[i]))
        return held

    def _values_of(self, head: bytes | memoryview, offset: int, end: int) -> int:
        try:
            return page_values(memoryview(head))[0]
        except CorruptError:
            # Its header may be long; then the whole page holds it.
            (page,) = self._fetch([(offset, end - offset)])
        try:
            return page_values(memoryview(page))[0]
        except CorruptError as e:
            raise CorruptError(f"no data page begins where the offset index says ({e.what})", offset) from e

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _open_bounds(self, of: DataField) -> None:
        pages = pruned_pages(self._footer, self._fetch, of, of)
        if pages is not None:
            self._bounded[of.name] = _Bounded(pages)

    def add(self, batch: pa.Table) -> None:
        """Look at the next rows, whose columns are in the Arrow types of the schema."""
        stop = self._row + batch.num_rows
        for name, column in self._bounded.items():
            if name in batch.column_names:
                self._add(column, batch.column(name), stop)
        for name, nested in self._nested.items():
            if name in batch.column_names:
                low, high = np.searchsorted(nested.firsts, (self._row, stop))
                rows = batch.column(name).take(pa.array(nested.firsts[low:high] - self._row))
                nested.waiting += rows.chunks
                nested.bytes += rows.nbytes
                if nested.bytes > _WAITING_BYTES:
                    self._collect(name, lambda: self._check_rows(name, nested))  # noqa: B023
        self._row = stop

    def _add(self, column: _Bounded, values: pa.ChunkedArray, stop: int) -> None:
        starts = column.pages.starts
        first = int(np.searchsorted(starts, self._row, "right")) - 1
        last = int(np.searchsorted(starts, stop, "left"))
        edges = np.clip(starts[first : last + 1], self._row, stop) - self._row
        for number, low, high in zip(range(first, last), edges[:-1].tolist(), edges[1:].tolist()):
            both = pc.min_max(values.slice(low, high - low))
            if both["min"].is_valid:
                column.numbers.append(number)
                column.low.append(both["min"])
                column.high.append(both["max"])

    def faults(self) -> Iterator[Finding]:
        """Everything that is wrong, at most one thing for each column."""
        for name, nested in self._nested.items():
            self._collect(name, lambda: self._check_rows(name, nested))  # noqa: B023
        yield from self._found
        for name, column in self._bounded.items():
            if column.numbers:
                yield from self._outside(name, column)

    def _check_rows(self, name: str, nested: _Nested) -> None:
        """Raise :class:`CorruptError` if the first rows of pages, found by the offset index, differ from those read.

        Every other page is read: of neighbours the reader would find rows that the index gives to the wrong one.
        """
        waiting, nested.waiting, nested.bytes = nested.waiting, [], 0
        if not waiting or nested.wrong:
            return
        nested.wrong = True  # unless all is well
        read = pa.chunked_array(waiting)
        pages = nested.firsts[nested.checked : nested.checked + len(read)]
        for odd in (0, 1):
            firsts, expected = pages[odd::2], read.take(pa.array(np.arange(odd, len(read), 2)))
            start = 0
            for part, _ in read_parts(self._footer, self._fetch, firsts, [name]):
                try:
                    column = cast_column(part.column(name), read.type)
                except pa.ArrowException as e:
                    raise CorruptError(f"pages of '{name}' cannot be decoded one by one ({e})") from e
                if not column.equals(expected.slice(start, part.num_rows)):
                    raise CorruptError(f"the offset index of '{name}' gives pages other rows than they have")
                start += part.num_rows
        nested.checked += len(read)
        nested.wrong = False

    def _outside(self, name: str, column: _Bounded) -> Iterator[Finding]:
        bounds, kind = column.pages.bounds, column.low[0].type
        low, high = (_comparable(pa.array(v, kind)) for v in (column.low, column.high))
        numbers = np.array(column.numbers)
        least, most = (pa.array(v).take(pa.array(numbers)) for v in (bounds.low, bounds.high))
        known = pa.array(bounds.has_low[numbers])
        outside = pc.or_(pc.invert(known), pc.or_(pc.less(low, least), pc.greater(high, most)))
        at = pc.index(outside, True).as_py()
        if at >= 0:
            page = int(numbers[at])
            rows = f"rows {int(column.pages.starts[page]):,} to {int(column.pages.starts[page + 1]) - 1:,}"
            held = " to ".join(one_line(str(v[at].as_py()), 40) for v in (column.low, column.high))
            says = "says that all are NULL" if not known[at].as_py() else "excludes some of them"
            what = f"page {page} ({rows}) holds values from {held}, but the page index {says}"
            yield Finding(CODE, self._path, what, name)


def _comparable(values: pa.Array) -> pa.Array:
    """Values as page bounds have them: texts by their bytes, all others as physical numbers."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values.cast(pa.large_string()).cast(pa.large_binary())
    return pa.array(physical_values(values), pa.int64())
