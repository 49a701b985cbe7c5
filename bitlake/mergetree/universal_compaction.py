"""Universal compaction: decides which files of a bucket are compacted next (index-format spec, section 9.3).

A bucket's files form *sorted runs* (:func:`sorted_runs`): each file of level 0 is one, and each higher level with files
is one, in which no two files overlap.  Runs are ordered from the newest to the oldest: level 0, its newest file first,
then the levels upwards.  A compaction always takes the first runs: newer rows must not move below older ones.

The rules are Paimon's: a full compaction if the newer runs amplify the size of the oldest too much or an option asks
for one; else runs of similar size; else enough runs to leave no more than ``num-sorted-run.compaction-trigger``.  All
decisions use metadata alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitlake import _clock
from bitlake.codec.binary_row import decode_row
from bitlake.merge.interval_partition import comparable_key
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import DataFileMeta, ManifestEntry
from bitlake.metadata.options import Options
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import max_level, needs_lookup

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CompactUnit:
    """Files to compact together, and the level of their output.

    ``rewrite``: the files are in the output level already, and each is rewritten by itself (without deleted rows).
    """

    files: tuple[ManifestEntry, ...]
    output_level: int
    rewrite: bool = False


def pick_compaction(runs: Sequence[SortedRun], schema: TableSchema) -> CompactUnit | None:
    """Choose what to compact after a write; None if no rule applies.

    ``lookup-compact`` = gentle forces level 0 up only at a writer's n-th call, and a batch writer makes one call.
    """
    options = schema.opts
    universal = _UniversalCompaction(runs, options)
    count = universal.pick()
    radical = needs_lookup(schema) and options.of(opt.LOOKUP_COMPACT) == "radical"
    if count is None and (radical or (options.of(opt.FORCE_UP_LEVEL_0) and not needs_lookup(schema))):
        level_0 = sum(r.level == 0 for r in runs)
        count = universal.grown(level_0, forced=True) if level_0 else None
    return None if count is None else universal.unit(count)


def pick_full_compaction(
    runs: Sequence[SortedRun],
    schema: TableSchema,
    *,
    has_vector: Callable[[str], bool],
    expired: Callable[[ManifestEntry], bool] = lambda entry: False,
) -> CompactUnit | None:
    """Choose the files of a full compaction, into the highest level; None if there is nothing to do.

    If all files are in that level already, these are the files with a deletion vector or with expired rows, or all with
    ``compaction.force-rewrite-all-files``.
    """
    if not runs:
        return None
    options = schema.opts
    top = max_level(options, (r.level for r in runs))
    if len(runs) > 1 or runs[0].level != top:
        return CompactUnit(tuple(e for r in runs for e in r.files), top)
    every = options.of(opt.FORCE_REWRITE_ALL)
    files = tuple(e for e in runs[0].files if every or expired(e) or has_vector(e.file.file_name))
    return CompactUnit(files, top, rewrite=True) if files else None


def pick_mostly_deleted(
    runs: Sequence[SortedRun], schema: TableSchema, deleted: Mapping[str, int | None]
) -> CompactUnit | None:
    """Choose the files of one level to rewrite because too many of their rows are deleted; None if there are none.

    Applies only if the table sets ``compaction.delete-ratio-threshold``: Paimon compacts primary-key tables by their
    runs alone.  ``deleted``: rows in the deletion vector of each file, None if the index file does not count them.
    """
    if opt.DELETE_RATIO.name not in schema.options:
        return None
    ratio = schema.opts.of(opt.DELETE_RATIO)
    for run in reversed(runs):
        files = []
        for entry in run.files if run.level else ():
            rows = deleted.get(entry.file.file_name, 0)
            if rows is None or rows > entry.file.row_count * ratio:
                files.append(entry)
        if files:
            return CompactUnit(tuple(files), run.level, rewrite=True)
    return None


class _UniversalCompaction:
    """The rules over one list of runs; each returns the number of first runs to compact."""

    def __init__(self, runs: Sequence[SortedRun], options: Options) -> None:
        self._runs = runs
        self._options = options
        self._sizes = [r.size for r in runs]
        self._max = max_level(options, (r.level for r in runs))
        self._trigger = options.of(opt.COMPACTION_TRIGGER)

    def pick(self) -> int | None:
        """Return the result of the first rule that applies; None if none does."""
        runs, sizes = self._runs, self._sizes
        if self._full_is_due():
            return len(runs)
        if len(runs) >= self._trigger and runs:
            if sum(sizes[:-1]) * 100 > self._options.of(opt.SIZE_AMPLIFICATION) * sizes[-1]:
                return len(runs)
            count = self.grown(1)
            if count is not None:
                return count
        if len(runs) > self._trigger:
            return self.grown(len(runs) - self._trigger + 1)
        return None

    def _full_is_due(self) -> bool:
        """Whether an option requires a full compaction, regardless of the sizes of the runs."""
        runs, options = self._runs, self._options
        if len(runs) <= 1:
            return False
        interval = options.of(opt.OPTIMIZATION_INTERVAL)
        if interval is not None:
            top = (options.of(opt.NUM_LEVELS) or self._trigger + 1) - 1
            times = [e.file.creation_time or 0 for r in runs if r.level == top for e in r.files]
            if not times or _clock.local_ms() - max(times) > interval:
                return True
        total_threshold = options.of(opt.TOTAL_SIZE_THRESHOLD)
        if total_threshold is not None and sum(self._sizes) < total_threshold:
            return True
        incremental_threshold = options.of(opt.INCREMENTAL_SIZE_THRESHOLD)
        incremental = sum(s for r, s in zip(runs, self._sizes, strict=True) if r.level != self._max)
        return incremental_threshold is not None and incremental > incremental_threshold

    def grown(self, count: int, *, forced: bool = False) -> int | None:
        """Take runs after the first ``count`` while they are not much larger than the runs taken before."""
        size = sum(self._sizes[:count])
        triggered = forced or count > 1
        ratio = 100.0 + self._options.of(opt.SIZE_RATIO) + self._offpeak()
        for run, more in zip(self._runs[count:], self._sizes[count:], strict=True):
            # Once there is something to compact, runs of levels 0 and 1 are always taken.
            if size * ratio / 100.0 < more and (not triggered or run.level > 1):
                break
            size += more
            count += 1
            triggered = True
        return count if triggered else None

    def _offpeak(self) -> int:
        start, end = self._options.of(opt.OFFPEAK_START), self._options.of(opt.OFFPEAK_END)
        if start == -1 or end == -1 or start == end:
            return 0
        hour = _clock.local_ms() // _HOUR_MS % 24
        inside = start <= hour < end if start < end else hour < end or start <= hour
        return self._options.of(opt.OFFPEAK_RATIO) if inside else 0

    def unit(self, count: int) -> CompactUnit:
        """Return the first ``count`` runs, to be merged into the level below the next run's."""
        runs = self._runs
        # :meth:`grown` takes all runs of levels 0 and 1, so this is level 1 at least.
        level = self._max if count == len(runs) else runs[count].level - 1
        return CompactUnit(tuple(e for r in runs[:count] for e in r.files), level)


# --- sorted runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files of one level in key order: their rows, file after file, ascend by key, each key once."""

    level: int
    files: tuple[ManifestEntry, ...]

    @property
    def size(self) -> int:
        """The total size of the files in bytes."""
        return sum(e.file.file_size for e in self.files)


def sorted_runs(files: Sequence[ManifestEntry], schema: TableSchema) -> list[SortedRun]:
    """Return the runs of a bucket's live files; ``schema`` is the table's."""
    levels: dict[int, list[ManifestEntry]] = {}
    for entry in files:
        levels.setdefault(entry.file.level, []).append(entry)
    out = [SortedRun(0, (e,)) for e in sorted(levels.pop(0, []), key=lambda e: _newest_first(e.file))]
    types = [schema.field(k).type for k in schema.trimmed_primary_keys]
    for level in sorted(levels):
        ordered = sorted(levels[level], key=lambda e: comparable_key(decode_row(types, e.file.min_key)))
        out.append(SortedRun(level, tuple(ordered)))
    return out


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time or 0, file.file_name)
