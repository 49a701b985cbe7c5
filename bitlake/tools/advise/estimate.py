"""Estimate for the whole table the bytes that queries read, and the size and build time of indexes.

Bytes that a query reads from a data file follow the steps of the reader.  In this process (``python``): the condition's
columns first, then from other columns the pages that survive.  On Spark (``spark``), where no index leaves few rows,
Spark's own reader takes the selected columns whole, or from sorted columns the pages whose bounds allow a match.

Page offsets come from the files' own footers and offset indexes; no page is read.  For a file that was sampled by runs,
the pages of the runs are counted and scaled up.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import positions_of
from bitlake.expressions.tree import And, Computed, Constant, In, Or, Predicate, conjuncts, leaves_of, sources_of
from bitlake.fileindex.capabilities import SampledColumn
from bitlake.fileindex.cost import MOST_SHARE, PAGE_ROWS, SMALL_ROWS
from bitlake.fileindex.registry import known_index_type
from bitlake.fileindex.selection import Selection
from bitlake.formats.parquet.footer import Column, Pages
from bitlake.formats.parquet.page_index import load_pages, plan_nested, split_rows
from bitlake.formats.parquet.pages import MAX_GAP
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts, footer_of, has_pages, stored_bytes
from bitlake.scan.page_pruning import rows_by_pages
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import DRIVER_ROWS, LATE_PAGES, SELECTIVE_SHARE, WHOLE_DRIVER_BYTES, WHOLE_FILE_SHARE
from bitlake.scan.scan import TableScan
from bitlake.schema.evolution import map_fields
from bitlake.tools.advise.policy import Candidate, IndexEstimate, merged_share
from bitlake.tools.advise.questions import (
    ColumnProfile,
    Question,
    Run,
    RunProfile,
    together,
    units_of,
)
from bitlake.tools.advise.sources import places_of
from bitlake.tools.advise.trial import Answer, Trial, selection_of

_MOST_GROUPS = 32
"""Row groups with columns whose page locations a file keeps: those of 1,000 columns with 100 pages take 1.6 MB."""


@dataclass(frozen=True, slots=True)
class _GroupPages:
    """The pages of some columns in a row group.

    ``always``: bytes read whatever the rows: dictionaries, and columns without page locations.  ``layouts``: for flat
    columns cut at the same rows, the first row of each page, and the offsets and ends of the pages, a row for each
    column.
    """

    always: int
    nested: Sequence[Column]
    layouts: Sequence[tuple[Int64s, Int64s, Int64s]]


@dataclass(slots=True)
class FilePages:
    """One data file's pages.  Columns are named as the table has them; mutable: keeps what it found out."""

    store: Store
    task: FileTask
    schema: TableSchema
    _names: dict[str, str | None] = field(default_factory=dict)
    _possible: dict[Predicate, tuple[Int64s | None, int]] = field(default_factory=dict)
    _groups: dict[tuple[int, tuple[str, ...]], _GroupPages] = field(default_factory=dict)

    @property
    def told(self) -> bool:
        """Whether the file has pages that can be fetched: Parquet."""
        return has_pages(self.task)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """The file's own names of those columns that it has."""
        if not self._names:
            stored_fields = map_fields(self.schema.fields, self.task.file_schema.fields).fields
            footer = footer_of(self.store, self.task) if self.told else None
            for name, source in stored_fields.items():
                is_stored = source is not None and (footer is None or source.name in footer.columns)
                self._names[name] = source.name if is_stored and source is not None else None
        return [n for c in columns if (n := self._names.get(c)) is not None]

    def whole(self, columns: Sequence[str]) -> float:
        """Bytes of whole columns."""
        footer = footer_of(self.store, self.task)
        return float(stored_bytes(footer, self.stored(columns), range(len(footer.row_groups))))

    def possible(self, predicate: Predicate) -> tuple[Int64s | None, int]:
        """The rows that bounds of pages leave possible (None: all), and the bytes that finding out takes."""
        known = self._possible.get(predicate)
        if known is None:
            counts = ReadCounts()
            mapping = map_fields(self.schema.fields, self.task.file_schema.fields).fields
            wanted = {n: mapping[n] for t in conjuncts(predicate) for n in sources_of(t) if n in mapping}
            fields = {n: (self.schema.field(n), source) for n, source in wanted.items() if source is not None}
            footer = footer_of(self.store, self.task)
            rows = rows_by_pages(self.store, self.task, footer, predicate, fields, counts)
            known = self._possible[predicate] = (None if rows is None else positions_of(rows), counts.bytes)
        return known

    def fetched(self, columns: Sequence[str], positions: Int64s) -> float:
        """Bytes of the pages of these columns that hold these rows (sorted); their dictionaries too."""
        if not len(positions):
            return 0.0
        footer = footer_of(self.store, self.task)
        size = 0
        for rows in split_rows(footer, positions):
            group = self._pages_of(rows.number, tuple(columns))
            size += group.always
            starts: list[Int64s] = []
            stops: list[Int64s] = []
            for c in group.nested:
                pieces = [p for planned in plan_nested(footer, c, rows).chunks for p in planned.pieces]
                starts.append(np.array([p.start for p in pieces], np.int64))
                stops.append(np.array([p.stop for p in pieces], np.int64))
            for first_rows, offsets, ends in group.layouts:
                which = np.unique(np.searchsorted(first_rows, rows.local, "right") - 1)
                starts.append(offsets[:, which].ravel())
                stops.append(ends[:, which].ravel())
            size += _with_gaps(starts, stops)
        return float(size)

    def _pages_of(self, number: int, columns: tuple[str, ...]) -> _GroupPages:
        """The pages of these columns in a row group; the last ones are kept: questions of a column ask for the same."""
        known = self._groups.get((number, columns))
        if known is not None:
            return known
        footer = footer_of(self.store, self.task)
        wanted = [footer.column(n) for n in self.stored(columns)]
        leaves = [(number, leaf) for c in wanted for leaf in range(c.leaf, c.leaf_end)]
        load_pages(footer, lambda r: self.store.read_ranges(self.task.path, r), leaves)
        always = 0
        alike: dict[bytes, list[Pages]] = {}
        for c in wanted:
            if c.flat:
                chunk, pages = footer.row_groups[number].chunks[c.leaf], footer.cache.pages[number, c.leaf]
                always += chunk.compressed if pages.whole else max(0, int(pages.offsets[0]) - chunk.start)
                if not pages.whole:
                    alike.setdefault(pages.first_rows.tobytes(), []).append(pages)
        layouts = [
            (pages[0].first_rows, np.stack([p.offsets for p in pages]), np.stack([p.ends for p in pages]))
            for pages in alike.values()
        ]
        if len(self._groups) >= _MOST_GROUPS:
            self._groups.clear()
        group = self._groups[number, columns] = _GroupPages(always, [c for c in wanted if not c.flat], layouts)
        return group

    def page_rows(self) -> float | None:
        """About how many rows the pages of the file's widest column have; None without pages."""
        if not self.told:
            return None
        footer = footer_of(self.store, self.task)
        flat = [c.leaf for c in footer.columns.values() if c.flat]
        if not flat or not footer.row_groups:
            return None
        widest = max(flat, key=lambda leaf: footer.row_groups[0].chunks[leaf].compressed)
        wanted = [(n, widest) for n in range(min(len(footer.row_groups), 4))]
        load_pages(footer, lambda r: self.store.read_ranges(self.task.path, r), wanted)
        pages = sum(len(footer.cache.pages[w].offsets) for w in wanted)
        rows = sum(footer.row_groups[n].rows for n, _ in wanted)
        return rows / pages if pages else None


def _with_gaps(starts: Sequence[Int64s], stops: Sequence[Int64s]) -> int:
    """Bytes of ranges, and of small gaps between them, which are read along."""
    if not starts:
        return 0
    begin, end = np.concatenate(starts), np.concatenate(stops)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    gaps = begin[1:] - np.maximum.accumulate(end)[:-1]
    return int((end - begin).sum() + gaps[(gaps > 0) & (gaps <= MAX_GAP)].sum())


_LEAST_SCATTERED = 8
_SCATTERED = 0.8
ENGINES = ("spark", "python")

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
        """The number of rows sampled."""
        return sum(run.rows for run, _ in self.runs)

    def weigh(self, question: Question, indexes: Indexes, engine: str) -> Weight:
        """Estimate the bytes that a question reads of the whole file, with these indexes, on an engine."""
        selections, asked = self._select(question.judged, indexes)
        if all(s.is_empty for s in selections):
            return Weight(self._elsewhere(question, indexes, engine), asked)
        chosen: list[Int64s] | None = None
        if all(s.rows is not None or s.is_empty for s in selections):
            chosen = [s.positions(run.rows) + run.start for s, (run, _) in zip(selections, self.runs, strict=True)]
            count = sum(len(c) for c in chosen)
            if self.pages.task.row_count >= SMALL_ROWS and count > MOST_SHARE * self.rows:
                chosen = None
        if not self.pages.told:
            return Weight(self.pages.task.size, asked)
        if chosen is not None and count / max(self.rows, 1) * self.table_rows <= DRIVER_ROWS:
            engine = "python"  # few rows that an index chose are read on the driver
        if chosen is not None and count <= self.rows * (SELECTIVE_SHARE if engine == "spark" else WHOLE_FILE_SHARE):
            return Weight(self._scaled(question, question.needed, chosen), asked)
        if engine == "python" and chosen is not None and all(s.exact for s in selections):
            return Weight(self.pages.whole(question.needed), asked)
        return Weight(self._bare(question, engine), asked)

    def _elsewhere(self, question: Question, indexes: Indexes, engine: str) -> float:
        """What is read, on average, of a file whose runs do not hold a value, as the rest of it may."""
        if self.pages.told and not self._seen(self.pages.possible(question.predicate)[0]):
            return self._bare(question, engine)  # nothing is known of an index there: it saves nothing
        names = {leaf.column for leaf in leaves_of(question.judged)}
        profile = self.columns.get(min(names)) if len(names) == 1 and question.picked else None
        left = self.pages.task.row_count - self.rows
        if profile is None or profile.name not in indexes or left <= 0 or not self.pages.told:
            return 0.0
        values = sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in leaves_of(question.judged))
        chance = -math.expm1(-left * values / max(profile.distinct, 1.0))
        if known_index_type(indexes[profile.name].index_type).selects_rows:
            return chance * self.pages.fetched(question.needed, np.array([self.runs[0][0].start], np.int64))
        return chance * self._bare(question, engine)

    def _bare(self, question: Question, engine: str) -> float:
        """Estimate the bytes that are read where no index chooses rows."""
        return by_spark(self.pages, question) if engine == "spark" and not self._few(question) else self._late(question)

    def _few(self, question: Question) -> bool:
        """Whether bounds of pages leave so little that it is read on the driver."""
        possible = self.pages.possible(question.predicate)[0]
        return possible is not None and len(possible) <= min(DRIVER_ROWS, self.pages.task.row_count * WHOLE_FILE_SHARE)

    def _seen(self, possible: Int64s | None) -> bool:
        """Whether a run holds any of the rows that the bounds of pages leave possible."""
        if possible is None or not len(possible):
            return True
        return any(np.searchsorted(possible, run.start) < np.searchsorted(possible, run.stop) for run, _ in self.runs)

    def _late(self, question: Question) -> float:
        judged = tuple(sorted(sources_of(question.predicate)))
        rest = tuple(n for n in question.needed if n not in judged)
        matching = self.matching(question.judged)
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
        few = blocks * PAGE_ROWS <= self.rows * LATE_PAGES
        return size + (self._scaled(question, rest, matching) if few else self.pages.whole(rest))

    def _scaled(self, question: Question, columns: Sequence[str], chosen: Sequence[Int64s]) -> float:
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

    def _scattered(self, chosen: Sequence[Int64s]) -> bool:
        """Return whether the rows lie in as many blocks as randomly placed rows would.

        If they do, the file's matching rows are taken as randomly placed, too: that predicts its pages better than the
        few pages of the runs.
        """
        count = sum(len(c) for c in chosen)
        if count < _LEAST_SCATTERED:
            return False
        blocks = max(1, self.rows // PAGE_ROWS)
        held = sum(int(np.count_nonzero(np.diff(c // PAGE_ROWS, prepend=-1))) for c in chosen)
        return held >= _SCATTERED * blocks * -math.expm1(-count / blocks)

    # --- what matches, and what indexes say ---------------------------------------------------------------------------

    def matching(self, predicate: Predicate) -> list[Int64s]:
        """Where in the file a bound predicate is TRUE, by run."""
        return [positions_of(_true(predicate, run, trial)) + run.start for run, trial in self.runs]

    def _select(self, predicate: Predicate, indexes: Indexes) -> tuple[list[Selection], float]:
        """Evaluate each run's indexes; return their selections, and the bytes that the file's would read."""
        selections: list[Selection] = []
        size = 0.0
        units = units_of(predicate)
        for run, trial in self.runs:
            asked: dict[Predicate, Selection] = {}
            for unit in units:
                for place in places_of(unit):
                    candidate = indexes.get(place)
                    built = None if candidate is None else trial.built.get(candidate)
                    answer = None if built is None else built.answers.get(unit)
                    if candidate is None or answer is None:
                        continue
                    selection = selection_of(trial, answer, unit)
                    asked[unit] = selection if unit not in asked else asked[unit].both(selection)
                    size += self._index_bytes(candidate, answer, run) / len(self.runs)
            selections.append(_combine(predicate, asked) if asked else Selection.all())
        return selections, size

    def _index_bytes(self, candidate: Candidate, answer: Answer, run: Run) -> float:
        """Estimate the bytes that evaluating with the file's index reads."""
        scale = known_index_type(candidate.index_type).row_scale(run.rows, run.task.row_count)
        return answer.once + answer.growing * scale

    def blocks(self, predicate: Predicate, rows: int) -> int:
        """Return how many rows are in those blocks of ``rows`` rows that contain a matching row."""
        return sum(int(np.count_nonzero(np.diff(m // rows, prepend=-1))) for m in self.matching(predicate)) * rows

    def column_share(self, columns: Sequence[str]) -> float:
        """Return the share of these columns in the file's bytes."""
        return min(1.0, self.pages.whole(columns) / max(1, self.pages.task.size)) if self.pages.told else 1.0


def by_spark(pages: FilePages, question: Question) -> float:
    """Estimate the bytes that Spark's own reader reads: all of the columns, or the matching pages of sorted ones.

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
        case Computed():
            return BitMap(range(run.rows))  # no index judges it: what it leaves out is read all the same
        case _:
            return trial.matches[predicate]  # type: ignore[index]


def _combine(predicate: Predicate, asked: Mapping[Predicate, Selection]) -> Selection:
    match predicate:
        case And(children):
            selection = Selection.all(exact=True)
            for child in together(children):
                selection &= _combine(child, asked) if child in children else asked.get(child, Selection.all())
            return selection
        case Or(children):
            selection = Selection.none()
            for child in children:
                selection |= _combine(child, asked)
            return selection
        case Constant(value):
            return Selection.all(exact=True) if value else Selection.none()
        case _:
            return asked.get(predicate, Selection.all())


_SORTING = 0.3
"""Eight times the distinct values (131,072 to a million) take 1.3 to 2.9 times as long each: caches, and sorting."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A sampled run: its profiles, and the answers of its indexes."""

    run: Run
    profiles: Mapping[str, RunProfile]
    trial: Trial


@dataclass(slots=True)
class Estimator:
    """Estimates of one table at one snapshot.  Mutable: keeps which files each question reads."""

    scan: TableScan
    files: Sequence[PlannedFile]
    looked: Sequence[Looked]
    columns: Mapping[str, ColumnProfile]
    engine: str = "spark"
    _weighers: dict[str, FileWeigher] = field(default_factory=dict)
    _left: dict[tuple[object, ...], list[PlannedFile]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Weight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runs: dict[str, list[tuple[Run, Trial]]] = {}
        for sampled in self.looked:
            runs.setdefault(sampled.run.task.path, []).append((sampled.run, sampled.trial))
        for path, all_ in runs.items():
            pages = FilePages(self.scan.store, all_[0][0].task, self.scan.state.schema)
            self._weighers[path] = FileWeigher(pages, all_, self.table_rows, self.columns)

    @property
    def table_bytes(self) -> int:
        """Bytes of all data files."""
        return sum(f.entry.file.file_size for f in self.files)

    @property
    def table_rows(self) -> int:
        """Rows of all data files."""
        return sum(f.row_count for f in self.files)

    @property
    def merged_share(self) -> float:
        """The share of bytes in files that are merged by key when they are read, and so read whole."""
        return merged_share(self.scan.plan().files)

    def weighers(self) -> list[FileWeigher]:
        """Return the estimator of each sampled file."""
        return list(self._weighers.values())

    def column_share(self, columns: Sequence[str]) -> float:
        """About which part of the files' bytes these columns are."""
        parts = [w.column_share(columns) for w in self.weighers()]
        return sum(parts) / len(parts) if parts else 1.0

    # --- bytes of a question ------------------------------------------------------------------------------------------

    def weigh(self, question: Question, indexes: Indexes) -> Weight:
        """About what a question reads of the table, where these indexes are there."""
        asked = question.sources.union(question.needed)
        used = {c: i for c, i in indexes.items() if c in asked}
        key = (question.predicate, question.columns, tuple(sorted(used.items(), key=lambda i: i[0])))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._weigh(question, used)
        return known

    def _weigh(self, question: Question, indexes: Indexes) -> Weight:
        data = index = 0.0
        sampled: list[tuple[float, float, int]] = []
        others = 0
        left = self._survivors(question)
        engine = self._engine_for(left)
        for file in left:
            size = file.entry.file.file_size
            if file.merge is not None:
                # Files merged by key are read whole, whatever indexes say.
                data += sum(f.entry.file.file_size for f in file.merge.files)
            elif file.path in self._weighers:
                weighed = self._weighers[file.path].weigh(question, indexes, engine)
                data, index = data + weighed.data, index + weighed.index
                sampled.append((weighed.data, weighed.index, size))
            else:
                others += size
        if others:
            data_share, index_share = self._shares(question, indexes, sampled, engine)
            data, index = data + others * data_share, index + others * index_share
        return Weight(data, index)

    def _shares(
        self, question: Question, indexes: Indexes, sampled: Sequence[tuple[float, float, int]], engine: str
    ) -> tuple[float, float]:
        """Bytes of data and index for each byte of a file that was not looked at."""
        known = list(sampled)
        if not known:
            for path, weigher in self._weighers.items():
                weighed = weigher.weigh(question, indexes, engine)
                size = next((f.entry.file.file_size for f in self.files if f.path == path), 0)
                known.append((weighed.data, weighed.index, size))
        if question.picked and len(known) > 2:
            # The value comes from a file that was looked at, so that one has it more surely than any other.
            known = sorted(known, key=lambda k: k[0] / max(k[2], 1))[:-1]
        size = sum(k[2] for k in known)
        return (sum(k[0] for k in known) / size, sum(k[1] for k in known) / size) if size else (1.0, 0.0)

    def _engine_for(self, files: Sequence[PlannedFile]) -> str:
        """The reader of these files: few and small ones are read in this process also for Spark."""
        size = sum(f.entry.file.file_size for f in files)
        return (
            "python" if sum(f.row_count for f in files) <= DRIVER_ROWS and size <= WHOLE_DRIVER_BYTES else self.engine
        )

    def _survivors(self, question: Question) -> list[PlannedFile]:
        """The files that partitions, buckets and statistics leave."""
        key = (question.predicate, question.columns)
        if key not in self._left:
            scan = self.scan.select(question.columns).where_bound(question.predicate).without_index()
            self._left[key] = list(scan.plan().files)
        return self._left[key]

    # --- an index -----------------------------------------------------------------------------------------------------

    def estimate(self, candidate: Candidate, questions: Sequence[Question], present: Indexes) -> IndexEstimate:
        """Estimate what a candidate saves for these questions; the indexes ``present`` on other columns are built."""
        others = {c: i for c, i in present.items() if c != candidate.column}
        total = sum(q.weight for q in questions) or 1.0
        bare = [self.weigh(q, others).total for q in questions]
        helped = [self.weigh(q, {**others, candidate.column: candidate}).total for q in questions]
        before = sum(q.weight * size for q, size in zip(questions, bare, strict=True)) / total
        after = sum(q.weight * size for q, size in zip(questions, helped, strict=True)) / total
        gains = [(size / max(was, 1.0), n) for n, (was, size) in enumerate(zip(bare, helped, strict=True))]
        most = min(gains, default=(1.0, -1))[1]
        return IndexEstimate(
            candidate.column,
            candidate.index_type,
            candidate.options,
            self.index_bytes(candidate),
            self.build_seconds(candidate),
            before,
            after,
            (questions[most].text, bare[most], helped[most]) if most >= 0 else ("", 0.0, 0.0),
        )

    def index_bytes(self, candidate: Candidate) -> int:
        """Estimate the bytes of an index of all files, without the headers of index files, as ``$file_indexes`` has."""
        by_file: dict[str, list[float]] = {}
        rows: dict[str, int] = {}
        for sampled in self.looked:
            size = self._file_index_bytes(candidate, sampled)
            if size is not None:
                by_file.setdefault(sampled.run.task.path, []).append(size)
                rows[sampled.run.task.path] = sampled.run.task.row_count
        if not by_file:
            return 0
        sizes = {path: sum(all_) / len(all_) for path, all_ in by_file.items()}
        per_row = sum(sizes.values()) / max(1, sum(rows.values()))
        others = sum(f.row_count for f in self.files if f.path not in sizes)
        return round(sum(sizes.values()) + others * per_row)

    def _file_index_bytes(self, candidate: Candidate, found: Looked) -> float | None:
        built, column = found.trial.built.get(candidate), found.profiles.get(candidate.column)
        if built is None or column is None:
            return None
        scale = found.run.scale
        if scale == 1:
            return float(built.size)
        whole = self.columns[candidate.column]
        distinct = whole.growth.distinct_in(found.run.task.row_count, column.rows, column.distinct)
        sampled = SampledColumn(found.run.rows, found.run.task.row_count, column.distinct, distinct, column.value_bytes)
        return known_index_type(candidate.index_type).file_bytes(built.size, built.fixed, sampled)

    def build_seconds(self, candidate: Candidate) -> float:
        """About how long building it for all files takes on this machine: reading the column, building, on all cores.

        What a processor took for a row of the runs (the median of them: the first may have met with a cold start),
        times the table's rows; an index that sorts distinct values takes more for each, the more there are.  Writing
        and committing are not in it.
        """
        each = []
        for sampled in self.looked:
            built = sampled.trial.built.get(candidate)
            if built is not None:
                seconds = built.seconds * self._sorting(candidate, sampled)
                each.append(
                    (seconds + sampled.trial.read_seconds.get(candidate.column, 0.0)) / max(1, sampled.run.rows)
                )
        return median(each) * self.table_rows / side_by_side([f.row_count for f in self.files]) if each else 0.0

    def _sorting(self, candidate: Candidate, found: Looked) -> float:
        column = found.profiles.get(candidate.column)
        if not known_index_type(candidate.index_type).sorts_values or column is None or not column.distinct:
            return 1.0
        whole = self.columns[candidate.column]
        distinct = whole.growth.distinct_in(found.run.task.row_count, column.rows, column.distinct)
        return float(max(1.0, distinct / column.distinct) ** _SORTING)


def side_by_side(rows: Sequence[int]) -> float:
    """Return how many times faster this machine's threads index files than one thread does; ``rows``: of each file.

    Threads share the interpreter and the memory: two are between one and two times as fast as one.  All of them wait
    for the largest file.
    """
    threads = max(1, min(os.cpu_count() or 1, len(rows)))
    return min(float(threads**0.5), sum(rows) / max(rows)) if any(rows) else 1.0
