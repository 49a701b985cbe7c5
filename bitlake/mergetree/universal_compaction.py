"""Which files of a bucket to compact next: Paimon's universal compaction (index-format spec, section 9.3).

Runs stand newest first (:func:`bitlake.mergetree.universal_compaction.sorted_runs`).  A unit is always the first runs
of them: newer rows must not sink below older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitlake import _clock
from bitlake.codec.binary_row import decode_row
from bitlake.merge.interval_partition import comparable_key
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.manifest import DataFileMeta, ManifestEntry
from bitlake.metadata.options import Options
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import max_level, needs_lookup

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Unit:
    """Files to compact together, and the level that their rows go to.

    ``rewrite``: these are files of the output level, each to be rewritten by itself (without its deleted rows).
    """

    files: tuple[ManifestEntry, ...]
    output_level: int
    rewrite: bool = False


def pick(runs: Sequence[Run], schema: TableSchema) -> Unit | None:
    """What to compact after a write; None if nothing is worth it.

    ``lookup-compact`` = gentle forces level 0 up only at the n-th call of one writer: a batch writer makes one call.
    """
    options = schema.opts
    universal = _Universal(runs, options)
    count = universal.pick()
    radical = needs_lookup(schema) and options.of(lsm.LOOKUP_COMPACT) == "radical"
    if count is None and (radical or (options.of(lsm.FORCE_UP_LEVEL_0) and not needs_lookup(schema))):
        level_0 = sum(r.level == 0 for r in runs)
        count = universal.grown(level_0, forced=True) if level_0 else None
    if count is None:
        return None
    unit = universal.unit(count)
    alone = len(unit.files) == 1 and unit.files[0].file.level == unit.output_level
    return None if alone or not unit.files else unit


def full(
    runs: Sequence[Run],
    schema: TableSchema,
    *,
    has_vector: Callable[[str], bool],
    expired: Callable[[ManifestEntry], bool] = lambda entry: False,
) -> Unit | None:
    """A full compaction: everything to the highest level.

    Where all is there already, the files to be written anew: those that have a deletion vector, those with rows past
    their record-level time, or all with ``compaction.force-rewrite-all-files``.  None if there is none.
    """
    if not runs:
        return None
    options = schema.opts
    top = max_level(options, (r.level for r in runs))
    if len(runs) > 1 or runs[0].level != top:
        return Unit(tuple(e for r in runs for e in r.files), top)
    every = options.of(lsm.FORCE_REWRITE_ALL)
    files = tuple(e for e in runs[0].files if every or expired(e) or has_vector(e.file.file_name))
    return Unit(files, top, rewrite=True) if files else None


def mostly_deleted(runs: Sequence[Run], schema: TableSchema, deleted: Mapping[str, int | None]) -> Unit | None:
    """The files of one level to rewrite because too many of their rows are deleted; None if there is none.

    Only where the table sets ``compaction.delete-ratio-threshold``: Paimon compacts key tables by their runs alone.
    ``deleted``: rows in the deletion vector of each file, None if the index file does not count them.
    """
    if lsm.DELETE_RATIO.name not in schema.options:
        return None
    ratio = schema.opts.of(lsm.DELETE_RATIO)
    for run in reversed(runs):
        due = []
        for entry in run.files if run.level else ():
            rows = deleted.get(entry.file.file_name, 0)
            if rows is None or rows > entry.file.row_count * ratio:
                due.append(entry)
        if due:
            return Unit(tuple(due), run.level, rewrite=True)
    return None


class _Universal:
    """The rules, over one list of runs; each answers how many of the first runs to take."""

    def __init__(self, runs: Sequence[Run], options: Options) -> None:
        self._runs = runs
        self._options = options
        self._sizes = [r.size for r in runs]
        self._max = max_level(options, (r.level for r in runs))
        self._trigger = options.of(lsm.COMPACTION_TRIGGER)

    def pick(self) -> int | None:
        """The first rule that applies."""
        runs, sizes = self._runs, self._sizes
        if self._early():
            return len(runs)
        if len(runs) >= self._trigger and runs:
            if sum(sizes[:-1]) * 100 > self._options.of(lsm.SIZE_AMPLIFICATION) * sizes[-1]:
                return len(runs)
            count = self.grown(1)
            if count is not None:
                return count
        if len(runs) > self._trigger:
            return self.grown(len(runs) - self._trigger + 1)
        return None

    def _early(self) -> bool:
        """Whether an option asks for a full compaction before its time."""
        runs, options = self._runs, self._options
        if len(runs) <= 1:
            return False
        interval = options.of(lsm.OPTIMIZATION_INTERVAL)
        if interval is not None:
            top = (options.of(lsm.NUM_LEVELS) or self._trigger + 1) - 1
            made = [e.file.creation_time or 0 for r in runs if r.level == top for e in r.files]
            if not made or _clock.local_ms() - max(made) > interval:
                return True
        below = options.of(lsm.TOTAL_SIZE_THRESHOLD)
        if below is not None and sum(self._sizes) < below:
            return True
        above = options.of(lsm.INCREMENTAL_SIZE_THRESHOLD)
        fresh = sum(s for r, s in zip(runs, self._sizes, strict=True) if r.level != self._max)
        return above is not None and fresh > above

    def grown(self, count: int, *, forced: bool = False) -> int | None:
        """Take runs after the first ``count`` while they are not much larger than what is taken already."""
        size = sum(self._sizes[:count])
        triggered = forced or count > 1
        ratio = 100.0 + self._options.of(lsm.SIZE_RATIO) + self._offpeak()
        for run, more in zip(self._runs[count:], self._sizes[count:], strict=True):
            # Once there is something to compact, runs of levels 0 and 1 always go along.
            if size * ratio / 100.0 < more and (not triggered or run.level > 1):
                break
            size += more
            count += 1
            triggered = True
        return count if triggered else None

    def _offpeak(self) -> int:
        start, end = self._options.of(lsm.OFFPEAK_START), self._options.of(lsm.OFFPEAK_END)
        if start == -1 or end == -1 or start == end:
            return 0
        hour = _clock.local_ms() // _HOUR_MS % 24
        inside = start <= hour < end if start < end else hour < end or start <= hour
        return self._options.of(lsm.OFFPEAK_RATIO) if inside else 0

    def unit(self, count: int) -> Unit:
        """The first ``count`` runs, and more if their rows would else stay in level 0."""
        runs = self._runs
        level = self._max if count == len(runs) else max(0, runs[count].level - 1)
        while level == 0 and count < len(runs):
            level = runs[count].level
            count += 1
        if count == len(runs):
            level = self._max
        return Unit(tuple(e for r in runs[:count] for e in r.files), level)


# --- runs ---
# The sorted runs of a bucket: each file of level 0 is one, and so is each level above that has files.
#
# Order (index-format spec, section 9.3): level 0 first, newest first; then the levels upwards.  Within a level above
# 0 no two files overlap, and they stand in the order of their keys.


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one level whose rows, one file after the other, are in the order of their keys without repeats."""

    level: int
    files: tuple[ManifestEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(e.file.file_size for e in self.files)


def sorted_runs(files: Sequence[ManifestEntry], schema: TableSchema) -> list[Run]:
    """The runs of a bucket's live files; ``schema`` has the table's key."""
    levels: dict[int, list[ManifestEntry]] = {}
    for entry in files:
        levels.setdefault(entry.file.level, []).append(entry)
    out = [Run(0, (e,)) for e in sorted(levels.pop(0, []), key=lambda e: _newest_first(e.file))]
    types = [schema.field(k).type for k in schema.trimmed_primary_keys]
    for level in sorted(levels):
        ordered = sorted(levels[level], key=lambda e: comparable_key(decode_row(types, e.file.min_key)))
        out.append(Run(level, tuple(ordered)))
    return out


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time or 0, file.file_name)
