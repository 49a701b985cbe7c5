"""Statistics in manifest entries against the values of the file: queries skip files by them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitlake.errors import BitlakeError
from bitlake.expressions.statistics import ColumnStats
from bitlake.metadata.manifest import DataFileMeta, SimpleStats
from bitlake.metadata.stats import FileStats
from bitlake.table.verify.facts import Bounds
from bitlake.table.verify.findings import Finding, of_error
from bitlake.types import DataField


def value_stats_faults(
    path: str, file: DataFileMeta, fields: Sequence[DataField], bounds: Mapping[str, Bounds]
) -> Iterator[Finding]:
    """What the statistics of a file's columns say wrongly; ``fields`` are those of the file's schema."""
    names = {f.name for f in fields}
    strange = [n for n in file.value_stats_cols or () if n not in names]
    if strange:
        yield Finding("stats-unreadable", path, f"they are of a column '{strange[0]}', which the file does not have")
        return
    yield from _faults(path, file.value_stats, fields, file.value_stats_cols, bounds)


def key_stats_faults(
    path: str, file: DataFileMeta, keys: Sequence[DataField], bounds: Mapping[str, Bounds]
) -> Iterator[Finding]:
    """The same of the statistics of a file's key columns."""
    yield from _faults(path, file.key_stats, keys, None, bounds, "statistics of the key")


def _faults(
    path: str,
    stats: SimpleStats,
    fields: Sequence[DataField],
    columns: tuple[str, ...] | None,
    bounds: Mapping[str, Bounds],
    told: str = "statistics",
) -> Iterator[Finding]:
    found = FileStats(stats, tuple(fields), columns)
    if stats.null_counts is None:
        yield Finding("stats-unreadable", path, f"the {told} lack their NULL counts: Paimon would skip the file")
        return
    for name in found:
        seen = bounds.get(name)
        try:
            said = found[name]
        except BitlakeError as e:
            yield of_error("stats-unreadable", path, e, name)
            return
        if seen is not None:
            yield from _column(path, name, said, seen, told)


def _column(path: str, name: str, said: ColumnStats, seen: Bounds, told: str) -> Iterator[Finding]:
    if said.null_count is not None and said.null_count != seen.nulls:
        what = f"{seen.nulls:,} rows are NULL, and the {told} say {said.null_count:,}"
        yield Finding("null-count-wrong", path, what, name)
    for bound, value, outside in ((said.min, seen.low, operator.lt), (said.max, seen.high, operator.gt)):
        if bound is not None and value is not None and outside(value, bound):
            what = f"it has value {_short(value)}, and the {told} end at {_short(bound)}"
            yield Finding("stats-hide-values", path, what, name)
    if seen.nans and said.max is not None:
        what = f"it has NaN, which is greater than any number, and the {told} end at {_short(said.max)}"
        yield Finding("stats-hide-values", path, what, name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
