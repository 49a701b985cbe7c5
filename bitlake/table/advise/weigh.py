"""How many bytes a question reads of a data file, by the steps that reading it takes.

In this process (``python``), as :mod:`bitlake.table.read` does it: the condition's columns first, of the others what
survives.  On Spark (``spark``), where no index chooses few rows, Spark's own reader takes the wanted columns whole, or
of columns in order the pages whose bounds allow a match.

Where pages lie is read from the files' own footers and offset indexes, so that what is counted is what would be
fetched.  Of a file of which runs were looked at, the pages of the runs are counted and multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from bitlake.expressions.tree import And, Constant, In, Or, Predicate, sources_of
from bitlake.fileindex.cost import MOST_SHARE, SMALL_ROWS
from bitlake.fileindex.registry import ROW_SELECTIVE
from bitlake.fileindex.selection import Selection
from bitlake.formats.parquet.write import PAGE_ROWS
from bitlake.table.advise.pages import FilePages, positions_of
from bitlake.table.advise.profile import ColumnProfile
from bitlake.table.advise.questions import Question, leaves_of, together, units_of
from bitlake.table.advise.sample import Run
from bitlake.table.advise.trial import Answer, Built, Candidate, Trial, selection_of, slices_scale
from bitlake.table.fetch import Ints
from bitlake.table.read import WHOLE_FILE_SHARE

_LATE_PAGES = 0.5
_LEAST_SCATTERED = 8
_SCATTERED = 0.8
ENGINES = ("spark", "python")
SPARK_SHARE = 0.05
"""Of files with more chosen rows, Spark's own reader reads all; this and the next as in bitlake's ``spark.scan``."""
DRIVER_ROWS = 200_000
DRIVER_BYTES = 4 << 20
"""What is left of a table, if it has no more bytes and rows, is read on the driver, in this process."""

Indexes = Mapping[str, Candidate]
"""The indexes that are taken to be there, by column."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes read of a file: of the data file, and of its index."""

    data: float
    index: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.data + self.index


@dataclass(frozen=True, slots=True)
class FileWeigher:
    """Weighs questions about a file, of which runs were looked at; ``table_rows`` and ``columns``: of all files."""

    pages: FilePages
    runs: Sequence[tuple[Run, Trial]]
    table_rows: int
    columns: Mapping[str, ColumnProfile]

    @property
    def rows(self) -> int:
        """How many rows were looked at."""
        return sum(run.rows for run, _ in self.runs)

    def weigh(self, question: Question, indexes: Indexes, engine: str) -> Weight:
        """What the question reads of the whole file, with these indexes, where an engine reads."""
        selections, asked = self._select(question.predicate, indexes)
        if all(s.is_empty for s in selections):
            return Weight(self._elsewhere(question, indexes, engine), asked)
        chosen: list[Ints] | None = None
        if all(s.rows is not None or s.is_empty for s in selections):
            chosen = [s.positions(run.rows) + run.start for s, (run, _) in zip(selections, self.runs, strict=True)]
            count = sum(len(c) for c in chosen)
            if self.pages.task.row_count >= SMALL_ROWS and count > MOST_SHARE * self.rows:
                chosen = None
        if not self.pages.told:
            return Weight(self.pages.task.size, asked)
        if chosen is not None and count / max(self.rows, 1) * self.table_rows <= DRIVER_ROWS:
            engine = "python"  # few rows that an index chose are read on the driver
        if chosen is not None and count <= self.rows * (SPARK_SHARE if engine == "spark" else WHOLE_FILE_SHARE):
            return Weight(self._scaled(question, question.needed, chosen), asked)
        if engine == "python" and chosen is not None and all(s.exact for s in selections):
            return Weight(self.pages.whole(question.needed), asked)
        return Weight(self._bare(question, engine), asked)

    def _elsewhere(self, question: Question, indexes: Indexes, engine: str) -> float:
        """What is read, on average, of a file whose runs do not hold a value, as the rest of it may."""
        if self.pages.told and not self._seen(self.pages.possible(question.predicate)[0]):
            return self._bare(question, engine)  # nothing is known of an index there: it saves nothing
        names = {leaf.column for leaf in leaves_of(question.predicate)}
        profile = self.columns.get(min(names)) if len(names) == 1 and question.picked else None
        left = self.pages.task.row_count - self.rows
        if profile is None or left <= 0 or not self.pages.told:
            return 0.0
        values = sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in leaves_of(question.predicate))
        chance = -math.expm1(-left * values / max(profile.distinct, 1.0))
        if indexes[profile.name].index_type in ROW_SELECTIVE:
            return chance * self.pages.fetched(question.needed, np.array([self.runs[0][0].start], np.int64))
        return chance * self._bare(question, engine)

    def _bare(self, question: Question, engine: str) -> float:
        """What is read where no index chooses rows."""
        return by_spark(self.pages, question) if engine == "spark" and not self._few(question) else self._late(question)

    def _few(self, question: Question) -> bool:
        """Whether bounds of pages leave so little that it is read on the driver."""
        possible = self.pages.possible(question.predicate)[0]
        return possible is not None and len(possible) <= min(DRIVER_ROWS, self.pages.task.row_count * WHOLE_FILE_SHARE)

    def _seen(self, possible: Ints | None) -> bool:
        """Whether a run holds any of the rows that the bounds of pages leave possible."""
        if possible is None or not len(possible):
            return True
        return any(np.searchsorted(possible, run.start) < np.searchsorted(possible, run.stop) for run, _ in self.runs)

    def _late(self, question: Question) -> float:
        judged = tuple(sorted(sources_of(question.predicate)))
        rest = tuple(n for n in question.needed if n not in judged)
        matching = self.matching(question.predicate)
        count = sum(len(m) for m in matching)
        if not self.pages.stored(judged) or not self.pages.stored(rest):
            return self.pages.whole(question.needed)
        possible, looked = self.pages.possible(question.predicate)
        if possible is not None and len(possible) <= self.pages.task.row_count * WHOLE_FILE_SHARE:
            # Bounds are of the whole file: nothing is multiplied.  Of a file of which little was looked at, other pages
            # may match too, but none beside those.
            most = self.pages.fetched(rest, possible)
            size = min(most, self._scaled(question, rest, matching)) if self._seen(possible) else most
            return looked + self.pages.fetched(judged, possible) + size
        size = looked + self.pages.whole(judged)
        if not count:
            return size
        blocks = sum(np.count_nonzero(np.diff(m // PAGE_ROWS, prepend=-1)) for m in matching)
        few = blocks * PAGE_ROWS <= self.rows * _LATE_PAGES
        return size + (self._scaled(question, rest, matching) if few else self.pages.whole(rest))

    def _scaled(self, question: Question, columns: Sequence[str], chosen: Sequence[Ints]) -> float:
        """Pages of the rows that each run chose, for the whole file; never more than the columns."""
        if self.rows < self.pages.task.row_count and self._scattered(chosen):
            rows = self.pages.task.row_count
            count = min(rows, round(sum(len(c) for c in chosen) * rows / self.rows))
            return self.pages.fetched(columns, np.unique(np.random.default_rng(0).integers(0, rows, count)))
        sizes = [self.pages.fetched(columns, c) for c in chosen]
        more = self.pages.task.row_count / max(self.rows, 1) * len(sizes)  # runs in the file
        if question.picked and len(sizes) > 1:
            # The value comes from a run that was looked at: that one counts once, the others say what the rest has.
            own = max(sizes)
            size = own + (sum(sizes) - own) / (len(sizes) - 1) * (more - 1)
        else:
            size = sum(sizes) / len(sizes) * more
        return min(size, self.pages.whole(columns)) if more > 1 else size

    def _scattered(self, chosen: Sequence[Ints]) -> bool:
        """Whether rows lie in as many blocks as they would anywhere: then so many lie anywhere in the file, too, which
        says more of its pages than the few that the runs have."""
        count = sum(len(c) for c in chosen)
        if count < _LEAST_SCATTERED:
            return False
        blocks = max(1, self.rows // PAGE_ROWS)
        held = sum(int(np.count_nonzero(np.diff(c // PAGE_ROWS, prepend=-1))) for c in chosen)
        return held >= _SCATTERED * blocks * -math.expm1(-count / blocks)

    # --- what matches, and what indexes say ---------------------------------------------------------------------------

    def matching(self, predicate: Predicate) -> list[Ints]:
        """Where in the file a bound predicate is TRUE, by run."""
        return [positions_of(_true(predicate, run, trial)) + run.start for run, trial in self.runs]

    def _select(self, predicate: Predicate, indexes: Indexes) -> tuple[list[Selection], float]:
        """What each run's indexes say, and the bytes that asking the file's takes."""
        found: list[Selection] = []
        size = 0.0
        units = units_of(predicate)
        for run, trial in self.runs:
            asked: dict[Predicate, Selection] = {}
            for unit in units:
                candidate = indexes.get(min(sources_of(unit)))
                built = None if candidate is None else trial.built.get(candidate)
                answer = None if built is None else built.answers.get(unit)
                if candidate is None or built is None or answer is None:
                    continue
                asked[unit] = selection_of(trial, answer, unit)
                size += self._index_bytes(candidate, built, answer, unit, run) / len(self.runs)
            found.append(_combine(predicate, asked) if asked else Selection.all())
        return found, size

    def _index_bytes(self, candidate: Candidate, built: Built, answer: Answer, unit: Predicate, run: Run) -> float:
        """About how many bytes the answer of the file's index takes."""
        growing, chance = float(answer.growing), 1.0
        if not growing and built.words is not None and answer.selection.is_empty and not answer.same and run.scale > 1:
            # A value that the run lacks: the file's index has it the more likely the more rows it has.
            values = sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in leaves_of(unit))
            distinct = max(1.0, self.columns[candidate.column].distinct)
            growing, chance = float(built.size - built.words), -math.expm1(-run.task.row_count * values / distinct)
        scale = run.scale if built.words is None else slices_scale(run)
        return answer.once + chance * growing * scale

    def blocks(self, predicate: Predicate, rows: int) -> int:
        """In how many rows' worth of blocks of so many rows the matching rows are."""
        return sum(int(np.count_nonzero(np.diff(m // rows, prepend=-1))) for m in self.matching(predicate)) * rows

    def column_share(self, columns: Sequence[str]) -> float:
        """Which part of the file's bytes these columns are."""
        return min(1.0, self.pages.whole(columns) / max(1, self.pages.task.size)) if self.pages.told else 1.0


def by_spark(pages: FilePages, question: Question) -> float:
    """What Spark's own reader reads of a file: its columns, or of those in order the pages that can match.

    Told by footer, offset and column indexes; Spark is not asked.
    """
    whole = pages.whole(question.needed)
    possible, _ = pages.possible(question.predicate)
    return whole if possible is None else min(whole, pages.fetched(question.needed, possible))


def _true(predicate: Predicate, run: Run, trial: Trial) -> BitMap:
    match predicate:
        case And(children):
            return BitMap.intersection(*(_true(c, run, trial) for c in children))
        case Or(children):
            return BitMap.union(*(_true(c, run, trial) for c in children))
        case Constant(value):
            return BitMap(range(run.rows)) if value else BitMap()
        case _:
            return trial.matches[predicate]  # type: ignore[index]


def _combine(predicate: Predicate, asked: Mapping[Predicate, Selection]) -> Selection:
    match predicate:
        case And(children):
            found = Selection.all(exact=True)
            for child in together(children):
                found &= _combine(child, asked) if child in children else asked.get(child, Selection.all())
            return found
        case Or(children):
            found = Selection.none()
            for child in children:
                found |= _combine(child, asked)
            return found
        case Constant(value):
            return Selection.all(exact=True) if value else Selection.none()
        case _:
            return asked.get(predicate, Selection.all())
