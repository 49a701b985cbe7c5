"""Read chosen rows of a Parquet file by fetching only the pages that hold them.

Steps: split the rows by row group; per flat column, find the pages that hold them in the offset index; fetch those
pages and the dictionary pages of all columns and row groups in one batch, joined over small gaps; decode them and take
the rows (:mod:`bitlake.formats.parquet_decode`).  Nested columns are fetched by row group, as are columns without an
offset index: their pages cannot be told apart by row.

Measured on a local file of 4M orders (136 MB, 7 columns, 4,096 rows a page), footer cached, one thread: 4 × 1,000
clustered rows 4.0 ms (579 KB, 36 ranges; 5 of 6 parts are decoding), one row 1.1 ms (141 KB), 1,000 scattered rows
0.5 s (most pages hold one; since PLAIN pages are gathered, two thirds of that, mostly zstd's).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.formats.parquet_decode import decode_flat, decode_nested
from bitlake.formats.parquet_footer import INT96, Column, FetchRanges, Footer
from bitlake.formats.parquet_index import load_pages
from bitlake.formats.parquet_plan import Ints, Piece, batches, plan_group, split_plan, split_rows

MAX_GAP = 4 * 1024
"""Bytes between two wanted ranges that are read along rather than asked for apart: on a local disk copying 4 KB costs
about what another call does (32 KB read 31 KB along with a headline read of 186 KB).  Larger for an object store."""


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a read cost: data pages decoded, bytes and ranges fetched (index included), row groups touched."""

    pages: int
    bytes: int
    requests: int
    row_groups: int


def read_rows(
    footer: Footer,
    fetch_ranges: FetchRanges,
    rows: Ints,
    columns: Sequence[str],
    *,
    max_gap: int = MAX_GAP,
    int96_unit: str | None = None,
) -> tuple[pa.Table, ReadStats]:
    """The values of ``columns`` at ``rows`` (int64, sorted, from 0), in that order, typed as pyarrow reads them.

    ``fetch_ranges`` gets (offset, length) pairs and returns their bytes; it is called once for missing offset indexes
    and once for pages (once per ``BATCH_BYTES`` of them).  ``int96_unit`` is the unit INT96 timestamps are read in
    (default ns, whose range ends in 2262).

    Raises :class:`InvalidRequest` for rows that are not sorted or not in the file, :class:`NotFound` for an unknown
    column, :class:`CorruptError` for bytes that break the format.
    """
    parts = list(read_parts(footer, fetch_ranges, rows, columns, max_gap=max_gap, int96_unit=int96_unit))
    stats = [s for _, s in parts]
    table = parts[0][0] if len(parts) == 1 else pa.concat_tables([t for t, _ in parts])
    groups = len(split_rows(footer, _checked(rows, footer.rows)))
    return table, ReadStats(
        sum(s.pages for s in stats), sum(s.bytes for s in stats), sum(s.requests for s in stats), groups
    )


def read_parts(
    footer: Footer,
    fetch_ranges: FetchRanges,
    rows: Ints,
    columns: Sequence[str],
    *,
    max_gap: int = MAX_GAP,
    int96_unit: str | None = None,
) -> Iterator[tuple[pa.Table, ReadStats]]:
    """As :func:`read_rows`, in parts (at least one): each holds what about ``BATCH_BYTES`` of pages decode to.

    A row group whose nested columns are wanted is one part: their pages cannot be told apart by row.
    """
    rows = _checked(rows, footer.rows)
    wanted = {name: footer.column(name) for name in columns}
    touched = split_rows(footer, rows)
    if not touched or not wanted:
        yield _nothing(footer, wanted, columns, len(rows)), ReadStats(0, 0, 0, len(touched))
        return
    flat = sorted((c for c in wanted.values() if c.flat), key=lambda c: c.leaf)
    nested = sorted((c for c in wanted.values() if not c.flat), key=lambda c: c.leaf)
    requests, size = load_pages(footer, fetch_ranges, [(t.number, c.leaf) for t in touched for c in flat])

    plans = [plan_group(footer, flat, nested, t) for t in touched]
    if not nested:
        plans = [p for plan in plans for p in split_plan(footer, flat, plan)]
    seen = -1
    for batch in batches(plans):
        pieces = [p for plan in batch for c in (*plan.flat, *plan.nested) for p in c.pieces]
        more_requests, more_size = _fetch(pieces, fetch_ranges, max_gap)
        requests, size = requests + more_requests, size + more_size
        arrays: dict[str, Any] = {}
        if flat:
            decode_flat(footer, flat, batch, int96_unit, arrays)
        if nested:
            decode_nested(footer, nested, batch, int96_unit, arrays)
        pages = sum(c.pages for plan in batch for c in (*plan.flat, *plan.nested))
        groups = {plan.touched.number for plan in batch if plan.touched.number > seen}
        seen = max(seen, batch[-1].touched.number)
        table = _table(footer, wanted, columns, arrays)
        for plan in batch:
            plan.release()
        yield table, ReadStats(pages, size, requests, len(groups))
        requests = size = 0


def _checked(rows: Ints, count: int) -> Ints:
    rows = np.ascontiguousarray(rows, np.int64)
    if rows.ndim != 1 or (len(rows) and (rows[0] < 0 or rows[-1] >= count or (rows[1:] < rows[:-1]).any())):
        raise InvalidRequest(f"rows to read must be sorted and between 0 and {count - 1}")
    return rows


def _nothing(footer: Footer, wanted: dict[str, Column], columns: Sequence[str], rows: int) -> pa.Table:
    if not wanted:
        return pa.table({"": pa.nulls(rows)}).select([])
    schema = footer.schema
    return pa.schema([schema.field(name) for name in columns]).empty_table()


def _fetch(pieces: list[Piece], fetch_ranges: FetchRanges, max_gap: int) -> tuple[int, int]:
    """Fill the pieces' data in one batched request; returns (ranges, bytes) asked for."""
    ordered = sorted((p for p in pieces if p.stop > p.start), key=lambda p: p.start)
    ranges: list[tuple[int, int]] = []
    owners: list[list[Piece]] = []
    stop = -1
    for piece in ordered:
        if ranges and piece.start - stop <= max_gap:
            stop = max(stop, piece.stop)
            ranges[-1] = (ranges[-1][0], stop - ranges[-1][0])
            owners[-1].append(piece)
        else:
            stop = piece.stop
            ranges.append((piece.start, stop - piece.start))
            owners.append([piece])
    blobs = fetch_ranges(ranges) if ranges else []
    if len(blobs) != len(ranges):
        raise CorruptError(f"{len(ranges)} ranges asked for, {len(blobs)} came")
    for (offset, length), blob, owned in zip(ranges, blobs, owners):
        if len(blob) != length:
            raise CorruptError(f"{length} bytes asked for, {len(blob)} came: the file has changed or is cut", offset)
        view = memoryview(blob)
        for piece in owned:
            piece.data = view[piece.start - offset : piece.stop - offset]
    return len(ranges), sum(length for _, length in ranges)


def _table(footer: Footer, wanted: dict[str, Column], columns: Sequence[str], arrays: dict[str, Any]) -> pa.Table:
    schema = footer.schema
    fields = []
    for name in columns:
        field = schema.field(name)
        found = arrays[name]
        if found.type != field.type:
            if wanted[name].flat and footer.leaves[wanted[name].leaf].physical == INT96:
                field = field.with_type(found.type)
            else:
                arrays[name] = found.cast(field.type)
        fields.append(field)
    return pa.Table.from_arrays([arrays[n] for n in columns], schema=pa.schema(fields))
