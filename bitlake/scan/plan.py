"""The plan of a scan: which rows of which files are read, which files are skipped, and why.

Planning is a row of steps, each a function from files to a :class:`PlanStep`: the files it kept, those it skipped with
the reason, and what it read to decide.  :mod:`bitlake.scan.planner` runs them; a :class:`Plan` holds their results.
Metrics, explain and advice are computed from these.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, overload

from bitlake.expressions.tree import Predicate
from bitlake.fileindex.selection import Selection
from bitlake.formatting import render
from bitlake.metadata.manifest import ManifestEntry, paused
from bitlake.metadata.schema import TableSchema
from bitlake.scan.sort_order import Order


class SkipReason(enum.Enum):
    """The proof that a file holds no matching row."""

    PARTITION = "partition"
    BUCKET = "bucket"
    STATS = "statistics"
    INDEX = "file index"
    PAGES = "page bounds"
    LIMIT = "limit"
    TOP_N = "top n"
    DELETED = "deletion vector"
    LEVEL_0 = "level 0"
    POSTPONED = "postpone bucket"

    # Members are singletons.  Enum hashes the name in Python, which counting 50,000 skipped files notices.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file to read, and which of its rows.

    ``selection`` is a superset of the rows that satisfy the predicate.  ``pruned_by`` names the indexes that narrowed
    it, such as ``bitmap(status)``, and ``page bounds(day)``.  ``index_place`` is ``embedded``, ``file`` or None.
    ``unused_indexes`` names the indexes that would have cost more than they save, each with the reason.

    >>> file = table.scan(where="status = 'SENT'").plan().files[0]
    >>> file.row_count, file.chosen_rows, file.whole, file.pruned_by
    (2, 1, False, ('bitmap(status)',))
    """

    entry: ManifestEntry
    path: str
    partition: tuple[Any, ...]
    selection: Selection
    pruned_by: tuple[str, ...] = ()
    index_place: str | None = None
    unused_indexes: tuple[str, ...] = ()

    deleted: int = 0
    """The number of rows in the file's deletion vector; they are not in ``selection``."""
    merge: MergedFiles | None = None
    """The files that are merged by key into these rows; then ``entry`` is synthetic, ``row_count`` an upper bound."""
    by_pages: bool = False
    """Whether only page bounds narrowed ``selection`` (:mod:`bitlake.scan.page_pruning`), and no index."""

    @property
    def row_count(self) -> int:
        """Rows in the file."""
        return self.entry.file.row_count

    @property
    def chosen_rows(self) -> int:
        """The most rows that will be read."""
        return self.selection.count(self.row_count)

    @property
    def whole(self) -> bool:
        """Whether every row is read as it is stored."""
        return self.merge is None and self.chosen_rows == self.row_count

    def sure(self, predicate: Predicate | None) -> bool:
        """Whether all chosen rows are known to match the predicate."""
        return self.merge is None and (predicate is None or self.selection.exact)


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Files of a bucket whose rows are merged by key before they are filtered.

    ``predicate`` is about key columns alone, so it may leave out rows before they are merged.
    """

    files: tuple[PlannedFile, ...]
    predicate: Predicate | None = None
    schema: TableSchema | None = None
    """The schema whose keys and options merge them; None: the plan's."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A data file that is not read, and what proved that it holds no matching row; ``detail`` is for people.

    >>> file = table.scan(where="status = 'SENT'").plan().skipped[0]
    >>> file.row_count, file.size > 0, file.reason
    (2, True, <SkipReason.STATS: 'statistics'>)
    >>> file.detail
    "status is in ['NEW', 'PAID'] with 0 NULLs: status = 'SENT' is never true"
    """

    entry: ManifestEntry
    path: str
    reason: SkipReason
    detail: str

    @property
    def row_count(self) -> int:
        """Rows in the file."""
        return self.entry.file.row_count

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.entry.file.file_size


class PlannedFiles(Sequence[PlannedFile]):
    """Planned files of a table with very many, made all at once when the first one is looked at.

    A plan that is only counted, or whose sums or paths are asked for, makes none of them.  Compares and pickles like a
    tuple.
    """

    __slots__ = ("_count", "_files", "_make", "_paths", "chosen_rows")

    def __init__(
        self, count: int, rows: int, make: Callable[[], Iterator[PlannedFile]], paths: Callable[[], list[str]]
    ) -> None:
        """``count`` files, which ``make`` makes in their order; all their ``rows`` are chosen."""
        self._count = count
        self.chosen_rows = rows
        self._make = make
        self._paths = paths
        self._files: tuple[PlannedFile, ...] | None = None

    def _all(self) -> tuple[PlannedFile, ...]:
        if self._files is None:
            with paused():
                self._files = tuple(self._make())
        return self._files

    def paths(self) -> list[str]:
        """The paths of the files."""
        return self._paths() if self._files is None else [f.path for f in self._files]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> PlannedFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PlannedFile, ...]: ...
    def __getitem__(self, index: int | slice) -> PlannedFile | tuple[PlannedFile, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[PlannedFile]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == tuple(other) if isinstance(other, (PlannedFiles, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"PlannedFiles({len(self):,} files)"

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._all(),)


def chosen_rows(files: Sequence[PlannedFile]) -> int:
    """The most rows that will be read of these files."""
    return files.chosen_rows if isinstance(files, PlannedFiles) else sum(f.chosen_rows for f in files)


class SkippedFiles(Sequence[SkippedFile]):
    """Skipped files, each described when it is looked at.

    A plan may skip a hundred thousand files, of which explain shows fifty: describing each would cost more than finding
    out that it is skipped.  Compares and pickles like a tuple.
    """

    __slots__ = ("_count", "_counts", "_describe", "_sizes")

    def __init__(
        self,
        count: int,
        describe: Callable[[int], SkippedFile],
        counts: Callable[[], Mapping[SkipReason, int]] | None = None,
        sizes: Callable[[], Mapping[SkipReason, int]] | None = None,
    ) -> None:
        """``describe`` takes a place, 0 to ``count`` - 1; ``counts`` and ``sizes`` sum without describing."""
        self._count = count
        self._describe = describe
        self._counts = counts
        self._sizes = sizes

    @staticmethod
    def joined(parts: Sequence[Sequence[SkippedFile]]) -> SkippedFiles:
        """The files of several sequences, one after the other."""
        ends = list(accumulate(len(p) for p in parts))

        def describe(place: int) -> SkippedFile:
            part = bisect_right(ends, place)
            return parts[part][place - ends[part] + len(parts[part])]

        return SkippedFiles(ends[-1] if ends else 0, describe)

    def counts(self) -> Mapping[SkipReason, int]:
        """The number of files by reason."""
        return _counts(self) if self._counts is None else self._counts()

    def sizes(self) -> Mapping[SkipReason, int]:
        """The bytes of the files by reason."""
        return _sizes(self) if self._sizes is None else self._sizes()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> SkippedFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SkippedFile, ...]: ...
    def __getitem__(self, index: int | slice) -> SkippedFile | tuple[SkippedFile, ...]:
        if isinstance(index, slice):
            return tuple(self._describe(i) for i in range(*index.indices(self._count)))
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        return self._describe(place)

    def __iter__(self) -> Iterator[SkippedFile]:
        return map(self._describe, range(self._count))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (SkippedFiles, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SkippedFiles({self._count} files)"

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def _counts(skipped: Sequence[SkippedFile]) -> dict[SkipReason, int]:
    return Counter(s.reason for s in skipped) if skipped else {}


def _sizes(skipped: Sequence[SkippedFile]) -> dict[SkipReason, int]:
    sizes: Counter[SkipReason] = Counter()
    for file in skipped:
        sizes[file.reason] += file.size
    return sizes


class StepName(enum.Enum):
    """The steps of planning, by what they look at."""

    METADATA = "statistics"
    """Partition values, bucket numbers and statistics of files."""
    INDEXES = "indexes"
    VECTORS = "deletion vectors"
    PAGES = "page bounds"
    MERGED = "merged files"
    """Levels and key ranges of primary-key tables."""
    TOP_N = "top n"
    LIMIT = "limit"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The result of a planning step: which files it kept, which it skipped and why, and what it read to decide.

    ``kept`` are the files given to the step, without the skipped ones and with fewer rows where the step knows better.
    ``problems`` name the indexes that could not be read, ``unreadable`` counts their files.  ``index_bytes`` are read
    from indexes, deletion vectors and page indexes; ``index_files`` are the ``.index`` files used.
    """

    name: StepName
    kept: Sequence[PlannedFile]
    skipped: Sequence[SkippedFile] = ()
    problems: tuple[str, ...] = ()
    unreadable: int = 0
    index_bytes: int = 0
    index_files: int = 0
    ms: float = 0.0

    def skipped_files(self) -> Mapping[SkipReason, int]:
        """The number of skipped files by reason."""
        return self.skipped.counts() if isinstance(self.skipped, SkippedFiles) else _counts(self.skipped)

    def skipped_bytes(self) -> Mapping[SkipReason, int]:
        """The bytes of the skipped files by reason."""
        return self.skipped.sizes() if isinstance(self.skipped, SkippedFiles) else _sizes(self.skipped)


@dataclass(slots=True)
class ScanMetrics:
    """Counters of a scan: planning sets its own from the steps, reading adds its own; times are in milliseconds.

    ``plan_ms`` holds ``prune_ms`` (partitions, buckets, statistics), ``index_ms``, ``pages_ms`` (bounds of pages),
    ``top_n_ms`` and loading manifests.  ``by_file`` counts what was read of each opened data file, by its path.
    ``files_unseen`` are files of partitions that the predicate excludes, in a table of very many files: they are
    counted as skipped by partition, ``data_bytes`` is without them, and ``manifests_read`` of ``manifests`` were read
    to find the others.  ``files_unlisted`` are files that Spark tasks skipped, by reason, and ``bytes_unlisted`` their
    bytes: they are counted as skipped, and in the totals, but the plan does not list them.  ``data_requests``
    leaves out the requests of footers, with which the data of small files comes.

    >>> scan = table.scan(where="status = 'SENT'")
    >>> rows = scan.to_arrow()
    >>> metrics = scan.plan().metrics
    >>> metrics.files_read, metrics.files_skipped, metrics.rows_returned
    (1, {'statistics': 2}, 1)
    >>> metrics.as_dict()["data_requests"]  # the file is small: its data comes with its footer
    0
    """

    files: int = 0
    files_read: int = 0
    files_skipped: dict[str, int] = field(default_factory=dict)
    files_unseen: int = 0
    files_unlisted: dict[str, int] = field(default_factory=dict)
    bytes_unlisted: dict[str, int] = field(default_factory=dict)
    manifests: int = 0
    manifests_read: int = 0
    rows: int = 0
    rows_chosen: int = 0
    rows_read: int = 0
    rows_returned: int = 0
    data_bytes: int = 0
    data_bytes_read: int = 0
    data_requests: int = 0
    pages_read: int = 0
    row_groups_read: int = 0
    files_ignored: int = 0
    index_files_opened: int = 0
    index_bytes_read: int = 0
    unreadable_indexes: int = 0
    answered_by: dict[str, int] = field(default_factory=dict)
    by_file: dict[str, dict[str, int]] = field(default_factory=dict)
    prune_ms: float = 0.0
    index_ms: float = 0.0
    pages_ms: float = 0.0
    top_n_ms: float = 0.0
    plan_ms: float = 0.0
    read_ms: float = 0.0

    @staticmethod
    def of_steps(steps: Sequence[PlanStep]) -> ScanMetrics:
        """Add up what planning steps skipped, read and took; totals of the table and the plan's files are not set."""
        metrics = ScanMetrics()
        times: dict[StepName, float] = {}
        for step in steps:
            for reason, files in step.skipped_files().items():
                metrics.files_skipped[reason.value] = metrics.files_skipped.get(reason.value, 0) + files
            metrics.index_files_opened += step.index_files
            metrics.index_bytes_read += step.index_bytes
            metrics.unreadable_indexes += step.unreadable
            times[step.name] = times.get(step.name, 0.0) + step.ms
        metrics.prune_ms, metrics.index_ms = times.get(StepName.METADATA, 0.0), times.get(StepName.INDEXES, 0.0)
        metrics.pages_ms, metrics.top_n_ms = times.get(StepName.PAGES, 0.0), times.get(StepName.TOP_N, 0.0)
        return metrics

    def count_read(self, files: Mapping[str, Mapping[str, int]]) -> None:
        """Set the counters of reading from counters of :class:`bitlake.scan.column_reader.ReadCounts` by file."""
        self.by_file = {path: dict(c) for path, c in files.items() if c["requests"] or c["rows_read"]}

        def total(name: str) -> int:
            return sum(c[name] for c in files.values())

        self.rows_read, self.rows_returned = total("rows_read"), total("rows_returned")
        self.data_bytes_read, self.data_requests = total("bytes"), total("requests")
        self.pages_read, self.row_groups_read = total("pages"), total("row_groups")
        self.files_ignored = total("files_ignored")

    def count_unseen(self, files: int, rows: int) -> None:
        """Add files that were not looked at; ``rows`` is the table's total."""
        self.files_unseen = files
        self.files += files
        self.rows = rows
        self.files_skipped["partition"] = self.files_skipped.get("partition", 0) + files

    def count_unlisted(self, skipped: Mapping[str, Sequence[int]]) -> None:
        """Add the files, rows and bytes that tasks skipped, by reason."""
        for reason, (files, rows, size) in skipped.items():
            self.files_unlisted[reason], self.bytes_unlisted[reason] = files, size
            self.files_skipped[reason] = self.files_skipped.get(reason, 0) + files
            self.files += files
            self.rows += rows
            self.data_bytes += size

    def as_dict(self) -> dict[str, Any]:
        """The counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to "what would this scan read?".

    ``columns`` are the output columns; ``predicate`` is bound to ``schema`` and always applied to what is read;
    ``schemas`` are the schemas the files were written with, by id; ``steps`` are the results of planning.

    >>> plan = table.scan(where="status = 'SENT'").plan()
    >>> plan
    Plan(default.orders: 1 of 3 files, 1 of 6 rows)
    >>> [(file.pruned_by, file.chosen_rows) for file in plan.files]
    [(('bitmap(status)',), 1)]
    """

    table: str
    root: str
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    snapshot_id: int | None
    columns: tuple[str, ...]
    predicate: Predicate | None
    limit: int | None
    files: Sequence[PlannedFile]
    metrics: ScanMetrics
    order: tuple[Order, ...] = ()
    steps: tuple[PlanStep, ...] = ()

    def __repr__(self) -> str:
        files, rows = self.metrics.files, self.metrics.rows
        return f"Plan({self.table}: {len(self.files):,} of {files:,} files, {self.chosen_rows:,} of {rows:,} rows)"

    @property
    def paths(self) -> list[str]:
        """The paths of the data files to read, in the order of :attr:`files`.

        There may be more paths than ``files``: a merged read has the path of each of its files.  For a table with very
        many files, no object is created for each file, unlike ``files``.

        >>> [path.rsplit("/", 2)[1] for path in table.scan(where="day = '2026-01-01'").plan().paths]
        ['bucket-0']
        """
        if isinstance(self.files, PlannedFiles):
            return self.files.paths()
        return [part.path for f in self.files for part in (f.merge.files if f.merge is not None else (f,))]

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        """The files that no step kept, step by step.

        >>> plan = table.scan(where="day = '2026-01-01' AND status = 'SENT'").plan()
        >>> for file in plan.skipped:
        ...     print(file.reason.value, "|", file.detail)
        statistics | status is in ['NEW', 'PAID'] with 0 NULLs: status = 'SENT' is never true
        partition | partition day=2026-01-02 fails day = DATE '2026-01-01'
        partition | partition day=2026-01-03 fails day = DATE '2026-01-01'
        """
        return SkippedFiles.joined([s.skipped for s in self.steps if s.skipped])

    @property
    def problems(self) -> tuple[str, ...]:
        """Indexes that could not be read, so that their files are read without them.

        >>> table.scan(where="status = 'SENT'").plan().problems
        ()
        """
        return tuple(p for s in self.steps for p in s.problems)

    @property
    def chosen_rows(self) -> int:
        """The most rows that will be read, over all files.

        >>> table.scan(where="status = 'SENT'").plan().chosen_rows
        1
        """
        return chosen_rows(self.files)

    def _repr_html_(self) -> str:
        return str(render("plan html", self))
