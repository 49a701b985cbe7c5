"""From runs of rows to a table: what questions read of it, what indexes of it weigh and take to build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bitlake.table.advise.pages import FilePages
from bitlake.table.advise.profile import ColumnProfile, RunProfile
from bitlake.table.advise.questions import Question
from bitlake.table.advise.sample import Run, data_files
from bitlake.table.advise.trial import Candidate, Trial, slices_scale
from bitlake.table.advise.weigh import DRIVER_BYTES, DRIVER_ROWS, FileWeigher, Indexes, Weight
from bitlake.table.plan import PlannedFile
from bitlake.table.scan import Scan

_ENTRY = 12
"""Bytes of a value in the directory of a bitmap index, beside the value."""
_SORTING = 0.3
"""Eight times the distinct values (131,072 to a million) take 1.3 to 2.9 times as long each: caches, and sorting."""
_CONTAINER = 100
"""About what an index file has beside its payload."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A run that was looked at: its profiles, and what its indexes told."""

    run: Run
    profiles: Mapping[str, RunProfile]
    trial: Trial


@dataclass(slots=True)
class Estimator:
    """Estimates of one table at one snapshot.  Mutable: keeps which files each question reads."""

    scan: Scan
    files: Sequence[PlannedFile]
    looked: Sequence[Looked]
    columns: Mapping[str, ColumnProfile]
    engine: str = "spark"
    _weighers: dict[str, FileWeigher] = field(default_factory=dict)
    _left: dict[tuple[object, ...], list[PlannedFile]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Weight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runs: dict[str, list[tuple[Run, Trial]]] = {}
        for found in self.looked:
            runs.setdefault(found.run.task.path, []).append((found.run, found.trial))
        for path, all_ in runs.items():
            pages = FilePages(self.scan.store, all_[0][0].task, self.scan.state.schema)
            self._weighers[path] = FileWeigher(pages, all_, self.table_rows, self.columns)

    @property
    def table_bytes(self) -> int:
        """Of all data files."""
        return sum(f.entry.file.file_size for f in self.files)

    @property
    def table_rows(self) -> int:
        """Of all data files."""
        return sum(f.row_count for f in self.files)

    @property
    def merged_share(self) -> float:
        """Which part of the bytes is in files that are merged by key when they are read, and so read whole."""
        merged = [f for f in self.scan.plan().files if f.merge is not None]
        size = sum(f.entry.file.file_size for m in merged if m.merge is not None for f in m.merge.files)
        return size / self.table_bytes if self.table_bytes else 0.0

    def weighers(self) -> list[FileWeigher]:
        """What weighs each file that was looked at."""
        return list(self._weighers.values())

    def column_share(self, columns: Sequence[str]) -> float:
        """About which part of the files' bytes these columns are."""
        parts = [w.column_share(columns) for w in self.weighers()]
        return sum(parts) / len(parts) if parts else 1.0

    # --- bytes of a question ------------------------------------------------------------------------------------------

    def weigh(self, question: Question, indexes: Indexes) -> Weight:
        """About what a question reads of the table, where these indexes are there."""
        used = {c: i for c, i in indexes.items() if c in question.needed}
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
                found = self._weighers[file.path].weigh(question, indexes, engine)
                data, index = data + found.data, index + found.index
                sampled.append((found.data, found.index, size))
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
                found = weigher.weigh(question, indexes, engine)
                size = next((f.entry.file.file_size for f in self.files if f.path == path), 0)
                known.append((found.data, found.index, size))
        if question.picked and len(known) > 2:
            # The value comes from a file that was looked at, so that one has it more surely than any other.
            known = sorted(known, key=lambda k: k[0] / max(k[2], 1))[:-1]
        size = sum(k[2] for k in known)
        return (sum(k[0] for k in known) / size, sum(k[1] for k in known) / size) if size else (1.0, 0.0)

    def _engine_for(self, files: Sequence[PlannedFile]) -> str:
        """Who reads these files: few and small ones are read in this process also for Spark."""
        size = sum(f.entry.file.file_size for f in files)
        return "python" if sum(f.row_count for f in files) <= DRIVER_ROWS and size <= DRIVER_BYTES else self.engine

    def _survivors(self, question: Question) -> list[PlannedFile]:
        """The files that partitions, buckets and statistics leave."""
        key = (question.predicate, question.columns)
        if key not in self._left:
            scan = self.scan.select(question.columns).where_bound(question.predicate).without_index()
            self._left[key] = list(scan.plan().files)
        return self._left[key]

    # --- an index -----------------------------------------------------------------------------------------------------

    def index_bytes(self, candidate: Candidate) -> int:
        """About how many bytes an index of all files takes."""
        by_file: dict[str, list[float]] = {}
        rows: dict[str, int] = {}
        for found in self.looked:
            made = self._file_index_bytes(candidate, found)
            if made is not None:
                by_file.setdefault(found.run.task.path, []).append(made)
                rows[found.run.task.path] = found.run.task.row_count
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
        distinct = whole.distinct_in(found.run.task.row_count, column.rows, column.distinct)
        more = distinct / max(1, column.distinct)
        payload = max(0, built.size - _CONTAINER)
        if candidate.index_type == "bloom-filter":
            return _CONTAINER + payload * more
        words, bits = built.words, 1.0
        if words is None:
            words = min(payload, round(column.distinct * (column.value_bytes + _ENTRY)))
        else:
            scale = slices_scale(found.run)
            bits = max(1, int(distinct)).bit_length() / max(1, column.distinct.bit_length())
        return _CONTAINER + words * more + (payload - words) * scale * bits

    def build_seconds(self, candidate: Candidate) -> float:
        """About how long building it for all files takes on this machine: reading the column, building, on all cores.

        What a processor took for a row of the runs (the median of them: the first may have met with a cold start),
        times the table's rows; an index that sorts distinct values takes more for each, the more there are.  Writing
        and committing are not in it.
        """
        each = []
        for found in self.looked:
            built = found.trial.built.get(candidate)
            if built is not None:
                seconds = built.seconds * self._sorting(candidate, found)
                each.append((seconds + found.trial.read_seconds.get(candidate.column, 0.0)) / max(1, found.run.rows))
        return median(each) * self.table_rows / side_by_side([f.row_count for f in self.files]) if each else 0.0

    def _sorting(self, candidate: Candidate, found: Looked) -> float:
        column = found.profiles.get(candidate.column)
        if candidate.index_type == "bloom-filter" or column is None or not column.distinct:
            return 1.0
        whole = self.columns[candidate.column]
        distinct = whole.distinct_in(found.run.task.row_count, column.rows, column.distinct)
        return float(max(1.0, distinct / column.distinct) ** _SORTING)


def side_by_side(rows: Sequence[int]) -> float:
    """How many times quicker than one after the other files of so many rows are indexed by this machine's threads.

    They share the interpreter and the memory: two are between as fast as one and twice as fast.  And all wait for the
    largest file.
    """
    threads = max(1, min(os.cpu_count() or 1, len(rows)))
    return min(float(threads**0.5), sum(rows) / max(rows)) if any(rows) else 1.0


def all_files(scan: Scan) -> list[PlannedFile]:
    """Every data file that reading the table touches."""
    return data_files(scan.plan())
