"""What a scan will read, file by file, and why it will not read the rest: plain values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from bitlake.expressions.tree import Predicate
from bitlake.fileindex.selection import Selection
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.representation import render
from bitlake.scan.sort_order import Order


class SkipReason(enum.Enum):
    """What proved that a file holds no wanted row."""

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


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file to read, and which of its rows.

    ``selection`` is a superset of the rows that satisfy the predicate; ``pruned_by`` names the indexes that made it,
    such as ``bitmap(status)``, and ``page bounds(day)``; ``index_place`` is ``embedded``, ``file`` or None; ``spared``
    tells which indexes were not worth reading, and why.
    """

    entry: ManifestEntry
    path: str
    partition: tuple[Any, ...]
    selection: Selection
    pruned_by: tuple[str, ...] = ()
    index_place: str | None = None
    spared: tuple[str, ...] = ()

    deleted: int = 0
    """How many of the file's rows its deletion vector holds; they are not in ``selection``."""
    merge: MergedFiles | None = None
    """Files whose rows are merged by key, that this stands for: ``entry`` is made up then, ``row_count`` a bound."""
    by_pages: bool = False
    """Whether no index, but bounds of its pages narrowed ``selection`` (:mod:`bitlake.scan.page_pruning`)."""

    @property
    def row_count(self) -> int:
        """Rows in the file."""
        return self.entry.file.row_count

    @property
    def chosen_rows(self) -> int:
        """Rows that will be read at most."""
        return self.selection.count(self.row_count)

    @property
    def whole(self) -> bool:
        """Whether every row is to be read, just as it is stored."""
        return self.merge is None and self.chosen_rows == self.row_count

    def sure(self, predicate: Predicate | None) -> bool:
        """Whether the chosen rows surely are rows of the result of a scan with this predicate."""
        return self.merge is None and (predicate is None or self.selection.exact)


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Files of a bucket whose rows are merged by key before anything else is asked of them.

    ``predicate`` speaks of key columns only, so it may leave out rows before they are merged.
    """

    files: tuple[PlannedFile, ...]
    predicate: Predicate | None = None
    schema: TableSchema | None = None
    """Whose keys and options merge them; None: the plan's schema."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A data file that is not opened, and what proved it needless."""

    path: str
    reason: SkipReason
    detail: str
    row_count: int
    size: int


@dataclass(slots=True)
class ScanMetrics:
    """What a scan did; filled in while it plans and reads (times in milliseconds).

    ``plan_ms`` holds ``prune_ms`` (partitions, buckets, statistics), ``index_ms``, ``pages_ms`` (bounds of pages),
    ``top_n_ms`` and loading manifests.
    ``by_file``: what was read of each data file that was opened, by its path.  ``files_unseen``: files of partitions
    that are not asked for in a table of very many; they are counted as skipped by partition, ``data_bytes`` is without
    them, and ``manifests_read`` of ``manifests`` were read to find the others.
    """

    files: int = 0
    files_read: int = 0
    files_skipped: dict[str, int] = field(default_factory=dict)
    files_unseen: int = 0
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

    def count_read(self, files: Mapping[str, Mapping[str, int]]) -> None:
        """Set what reading took: counters of :class:`bitlake.scan.column_reader.ReadCounts` by file."""
        self.by_file = {path: dict(c) for path, c in files.items() if c["requests"] or c["rows_read"]}

        def total(name: str) -> int:
            return sum(c[name] for c in files.values())

        self.rows_read, self.rows_returned = total("rows_read"), total("rows_returned")
        self.data_bytes_read, self.data_requests = total("bytes"), total("requests")
        self.pages_read, self.row_groups_read = total("pages"), total("row_groups")
        self.files_ignored = total("files_ignored")

    def count_unseen(self, files: int, rows: int) -> None:
        """Add files that were not looked at, of a table that has so many rows."""
        self.files_unseen = files
        self.files += files
        self.rows = rows
        self.files_skipped["partition"] = self.files_skipped.get("partition", 0) + files

    def as_dict(self) -> dict[str, Any]:
        """The counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to "what would this scan read?".

    ``columns`` are the output columns; ``predicate`` is bound to ``schema`` and always applied to what is read;
    ``schemas`` are the schemas the files were written with, by id.
    """

    table: str
    root: str
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    snapshot_id: int | None
    columns: tuple[str, ...]
    predicate: Predicate | None
    limit: int | None
    files: tuple[PlannedFile, ...]
    skipped: Sequence[SkippedFile]
    problems: tuple[str, ...]
    metrics: ScanMetrics
    order: tuple[Order, ...] = ()

    @property
    def chosen_rows(self) -> int:
        """Rows that will be read at most, over all files."""
        return sum(f.chosen_rows for f in self.files)

    def _repr_html_(self) -> str:
        return str(render("plan html", self))


# --- skipped ---
# The files that a plan leaves out, each described when somebody looks at it.


class SkippedFiles(Sequence[SkippedFile]):
    """Files skipped by the cheap steps, known by number only, and then some that are described already.

    A plan may skip a hundred thousand files, of which explain shows fifty: a text for each would cost more than to
    find out that it is skipped.  Compares and pickles like a tuple.
    """

    __slots__ = ("_describe", "_more", "_numbers", "_outline")

    def __init__(
        self,
        numbers: Sequence[int],
        describe: Callable[[int], SkippedFile],
        more: Sequence[SkippedFile] = (),
        outline: Callable[[int], tuple[SkipReason, int]] | None = None,
    ) -> None:
        """``outline`` tells reason and bytes of a number alone, which is quicker than to describe it."""
        self._numbers = numbers
        self._describe = describe
        self._more = tuple(more)
        self._outline = outline

    def outlines(self) -> Iterator[tuple[SkipReason, int]]:
        """Reason and bytes of each file, in order."""
        if self._outline is None:
            yield from ((s.reason, s.size) for s in self)
            return
        for number in self._numbers:
            yield self._outline(int(number))
        yield from ((s.reason, s.size) for s in self._more)

    def __len__(self) -> int:
        return len(self._numbers) + len(self._more)

    @overload
    def __getitem__(self, index: int) -> SkippedFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SkippedFile, ...]: ...
    def __getitem__(self, index: int | slice) -> SkippedFile | tuple[SkippedFile, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(index)
        known = len(self._numbers)
        return self._describe(int(self._numbers[i])) if i < known else self._more[i - known]

    def __iter__(self) -> Iterator[SkippedFile]:
        for number in self._numbers:
            yield self._describe(int(number))
        yield from self._more

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (SkippedFiles, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SkippedFiles({len(self)} files)"

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def outlines_of(skipped: Sequence[SkippedFile]) -> Iterator[tuple[SkipReason, int]]:
    """Reason and bytes of each skipped file of a plan, in order."""
    if isinstance(skipped, SkippedFiles):
        yield from skipped.outlines()
    else:
        yield from ((s.reason, s.size) for s in skipped)
