"""File index types: the protocols that codecs implement, and through which everything else uses an index.

A type is an :class:`IndexType`: its name, the column types it takes, its options, and how to write and read a payload.
Writers and readers implement :class:`IndexWriter` and :class:`IndexReader`.  Whatever more a reader can do it says by
implementing further protocols, which the rest of the package checks with ``isinstance``:

=======================  ==============================================================================
protocol                 used by
=======================  ==============================================================================
:class:`CostEstimator`   planning: is the index worth reading for this predicate?
:class:`ValueCounter`    metadata-only ``GROUP BY`` and ``COUNT``
:class:`ValueLister`     metadata-only ``DISTINCT``, the system table ``$file_indexes``
:class:`ValueBounds`     metadata-only ``MIN`` and ``MAX``
:class:`ValueSummer`     metadata-only ``SUM`` and ``AVG``
:class:`RowGrouper`      metadata-only ``GROUP BY`` with aggregates of other columns
:class:`RowRanker`       ``ORDER BY … LIMIT n``
:class:`Comparable`      verify: is the payload equal to one rebuilt from the rows?
:class:`PayloadChecker`  verify, where no rebuilt payload can be compared (implemented by the writer)
=======================  ==============================================================================

No module outside of a codec names an index type: the built-in ones are registered in
:mod:`bitlake.fileindex.registry`, others by :func:`bitlake.fileindex.registry.register` or an entry point.

Each index option (``file-index.<type>.<column>.<option>``) is declared once, as an :class:`IndexOption` of the codec
that uses it.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest
from bitlake.expressions.text_functions import TextCondition
from bitlake.expressions.tree import Leaf
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import DataType

# --- options of an index ----------------------------------------------------------------------------------------------

T = TypeVar("T")
_SIZE = re.compile(r"^\s*(\d+)\s*([a-z]*)\s*$")
_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 0),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1),
    **dict.fromkeys(("m", "mb", "mebibytes"), 2),
    **dict.fromkeys(("g", "gb", "gibibytes"), 3),
    **dict.fromkeys(("t", "tb", "tebibytes"), 4),
}


@dataclass(frozen=True, slots=True)
class IndexOption(Generic[T]):
    """One option; ``parse`` returns its value from text, or raises ValueError with the allowed values."""

    name: str
    parse: Callable[[str], T]
    default: T | None
    doc: str

    def of(self, options: Mapping[str, str]) -> T | None:
        """Return the value set in ``options``, or the default; raises :class:`InvalidRequest`."""
        text = options.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as e:
            raise InvalidRequest(f"index option '{self.name}' = '{text}': {e}") from e


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers between two bounds, both included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number between {least} and {most}")
        return int(text)

    return parse


def fraction(text: str) -> float:
    """Parse a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ValueError("must be a number between 0 and 1, both excluded")
    return value


def memory(text: str) -> int:
    """Parse a size such as ``16kb`` into bytes: 1024-based, any case, a bare number is bytes."""
    match = _SIZE.match(text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError("must be a size such as '16kb' (units b, kb, mb, gb, tb)")
    size = int(match[1]) << (10 * _UNITS[match[2]])
    if size > 2**31 - 1:
        raise ValueError("must be below 2 gb")
    return size


# --- writers and readers ----------------------------------------------------------------------------------------------


class IndexWriter(Protocol):
    """Builds one payload: ``add`` any number of times, then ``finish`` once."""

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows, in file order.

        Raises :class:`bitlake.errors.UnsupportedFeature` for a value that the format cannot hold: the file is then
        written without this index.
        """

    def finish(self) -> bytes:
        """Return the payload."""


@runtime_checkable
class MemberWriter(Protocol):
    """A writer that takes any number of values of a row, such as the elements of its array."""

    def add_members(self, values: pa.Array, rows: Int64s, count: int) -> None:
        """Append ``count`` rows: ``rows[i]``, ascending and from 0, has ``values[i]``, which may be NULL.

        The index finds a row by any of its values; a row without one is the row that IS NULL finds.
        """


class IndexReader(Protocol):
    """Evaluates predicates with one payload, which it fetches lazily.

    Methods raise :class:`bitlake.errors.CorruptError` for bytes that are not a payload.
    """

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows for which the leaf can be TRUE, or None if this index cannot evaluate it."""


@runtime_checkable
class MemberReader(Protocol):
    """A reader whose check of an entry's size depends on whether a row has one value or any number of them."""

    def expect_members(self) -> None:
        """Take an entry for one of members, which may have more values than rows."""


# --- what readers and writers may provide besides ---------------------------------------------------------------------


@runtime_checkable
class CostEstimator(Protocol):
    """Estimates what evaluating a leaf reads and leaves, before anything large is read."""

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """Estimate the bytes that evaluating ``leaf`` fetches from a payload of ``length`` bytes.

        ``rows``: of the data file, more than the reader's where the reader is of a sample.
        """

    def selectivity(self, leaf: Leaf) -> float | None:
        """Estimate the share of rows (0 to 1) that match a leaf, from the index's dictionary.  None if unknown."""


@runtime_checkable
class TextTester(Protocol):
    """Evaluates what a predicate that computes, such as ``lower(s) LIKE '%x%'``, requires of the text of a column."""

    def test_text(self, condition: TextCondition) -> Selection | None:
        """Return the rows whose text can meet the condition, or None if this index cannot evaluate it."""

    def text_selectivity(self, condition: TextCondition) -> float | None:
        """Estimate the share of rows (0 to 1) that :meth:`test_text` leaves.  None if unknown."""


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The distinct values (Arrow, of the column's type, without NULL) of some rows, the rows of each, and the NULLs."""

    values: pa.Array
    counts: Int64s
    nulls: int


@runtime_checkable
class ValueCounter(Protocol):
    """Counts the rows of each value."""

    def value_counts(self, rows: BitMap | None) -> ValueCounts | None:
        """Count how many of ``rows`` (None: all) have each value.  None if the index cannot tell."""


@runtime_checkable
class ValueLister(Protocol):
    """Lists the distinct values."""

    def distinct(self) -> pa.Array | None:
        """Return the distinct values of all rows, without NULL.  None if the index does not hold the values."""


@runtime_checkable
class ValueBounds(Protocol):
    """Finds the smallest and the largest value."""

    def extremes(self, rows: BitMap | None) -> pa.Array | None:
        """Return the smallest and largest value of ``rows`` (None: all), in that order.

        One value if they are equal, no value if all rows are NULL; None if the index cannot tell.
        """


@dataclass(frozen=True, slots=True)
class ValueSums:
    """For each group of rows: ``counts`` that are not NULL, the exact sum of their physical values, and its magnitude.

    ``magnitudes``: at least the sum of the absolute values, so no order of adding leaves it.
    """

    counts: Int64s
    totals: list[int]
    magnitudes: list[int]


@runtime_checkable
class ValueSummer(Protocol):
    """Sums the physical values of integers and decimals."""

    def sums(self, groups: Sequence[BitMap | None]) -> ValueSums | None:
        """Sum the values of each of some disjoint groups of rows (None: all rows).

        None if the index does not hold the values, or if reading the column takes less time.
        """


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows by value: the distinct values (Arrow, of the column's type), and the rows of each; NULL may be one."""

    values: pa.Array
    rows: Sequence[BitMap]


@runtime_checkable
class RowGrouper(Protocol):
    """Finds the rows of each value."""

    def groups(self, rows: BitMap | None, most: int) -> RowGroups | None:
        """Split ``rows`` (None: all) by their values; a group has at least one row.

        None if the index has more than ``most`` values or does not hold them, or if reading the column takes less time.
        """


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows in the order of their values: ``values`` ascend, and ``ranks[i]`` is the value of row ``positions[i]``."""

    positions: Int64s
    ranks: Int64s
    values: list[Any]


@runtime_checkable
class RowRanker(Protocol):
    """Finds the rows with the largest or smallest values."""

    def top_n(
        self, k: int, descending: bool, nulls_first: bool, found: BitMap | None = None, strict: bool = True
    ) -> BitMap:
        """Return the rows with the k largest (``descending``) or smallest values among ``found`` (None: all rows).

        ``strict``: exactly k rows, if there are as many.  Otherwise also all rows that tie for the last place.
        """

    def ranked(self, rows: BitMap) -> RankedRows | None:
        """Rank those of ``rows`` that are not NULL by their physical values.  None if the keys are not the values."""


@runtime_checkable
class Comparable(Protocol):
    """Compares itself with an index rebuilt from the rows."""

    def difference(self, rebuilt: Any) -> str | None:
        """Say what this index states otherwise than one of the same type rebuilt from the rows.  None if nothing.

        Only called for payloads whose bytes differ: another writer may order or size things otherwise.
        """


@runtime_checkable
class PayloadChecker(Protocol):
    """A writer that checks a stored payload against the rows it was given, instead of building one to compare."""

    def check(self, payload: bytes) -> str | None:
        """Say what is wrong with a payload.  None if nothing."""


# --- index types ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Facts of a sampled column: its type, distinct values, and the most that one run of rows has."""

    type: DataType
    distinct: float
    most_in_run: int


@dataclass(frozen=True, slots=True)
class SampledColumn:
    """A sample of a file's rows in comparison with the file.

    ``value_bytes``: of one value on average; ``distinct``: values in the sample; ``file_distinct``: in the file.
    """

    rows: int
    file_rows: int
    distinct: int
    file_distinct: float
    value_bytes: float


@dataclass(frozen=True, slots=True)
class SampledRead:
    """Reads of the index of a sample that evaluated leaves.

    ``matches``: the rows that match each leaf; ``bytes_read`` in all; ``beyond_first``: after the first fetch of the
    container; ``decided``: whether the index selected rows.
    """

    leaves: Sequence[Leaf]
    matches: Sequence[BitMap]
    bytes_read: int
    beyond_first: int
    decided: bool


_ENTRY = 12
"""Bytes that an index with a directory stores for a value, beside the value."""


class IndexType(abc.ABC):
    """One type of file index: what it takes, how to write and read it, and what tools may know about it.

    Only the abstract methods are required.  The others have defaults that are right for any index, if less precise.
    Instances hold no state: an index type is known by its name, in table options, in files and on Spark executors.
    """

    name: ClassVar[str]
    """As in ``file-index.<name>.columns`` and in containers."""
    accepts: ClassVar[str]
    """Which column types it takes, as a sentence for error messages: ``bitmap takes strings, …``."""
    options: ClassVar[Sequence[IndexOption[Any]]] = ()
    """Options of a column: ``file-index.<name>.<column>.<option>``."""
    in_paimon: ClassVar[bool] = True
    """Whether an entry may have a column's own name.  False: Paimon does not know the type and would fail on a filter
    of that column, so entries are named ``<type>[<column>]``, and only ``bitlake.index.<name>`` declares it."""
    tests_text: ClassVar[bool] = False
    """Whether its readers are :class:`TextTester`."""
    ranks_rows: ClassVar[bool] = False
    """Whether its readers are :class:`RowRanker`."""
    selects_rows: ClassVar[bool] = True
    """Whether it selects rows.  False: it only tests whether a file can hold a value."""

    @abc.abstractmethod
    def supports(self, kind: DataType) -> bool:
        """Whether it can index values of a type."""

    @abc.abstractmethod
    def writer(self, kind: DataType, options: Mapping[str, str]) -> IndexWriter:
        """Return a writer of one payload.  Raises :class:`bitlake.errors.InvalidRequest` for a type or a bad option."""

    @abc.abstractmethod
    def reader(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> IndexReader:
        """Return a lazy reader of a payload of ``length`` bytes; ``row_count``: of the data file."""

    # --- inspect ---

    def describe(  # noqa: B027
        self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None
    ) -> None:
        """Add the payload's parts to ``section``, for ``inspect``.

        ``kind``: the column's type, None if unknown.  With a ``page``, list that page of the index's entries too.
        Offsets count from the payload's start.  Raise for damage: what was added until then is shown with the fault.
        """

    def stored_rows(self, payload: LazyBytes) -> int | None:
        """Return the row count that the payload itself holds.  None if it holds none."""
        return None

    # --- advice ---

    def trial_options(self, column: ColumnFacts) -> Mapping[str, str] | None:
        """Return the options to try this index with on a column of a supported type.  None: not worth a trial."""
        return None

    def suitability(self, leaf: Leaf, kind: DataType) -> int:
        """Rate the index for a predicate on a column of a supported type: 0 does not help, the highest comes first."""
        return 0

    # --- estimating the index of a file from that of a sample ---

    sorts_values: ClassVar[bool] = True
    """Whether building sorts the distinct values, so that it takes longer the more there are."""

    def fixed_bytes(self, payload: bytes) -> int:
        """Return the bytes of a payload that grow with its distinct values, not with its rows."""
        return 0

    def growing_read(self, payload: bytes, read: SampledRead) -> tuple[int, int | None]:
        """Return how many of the bytes read grow with the file's rows, and the most of them that a reader takes.

        Where the whole file's index has more, its reader does not evaluate the leaves.  None: no limit.
        """
        return 0, None

    def row_scale(self, rows: int, file_rows: int) -> float:
        """Return how many times the bytes that grow with rows are in the index of a file, for a sample of ``rows``."""
        return file_rows / max(rows, 1)

    def file_bytes(self, payload_bytes: int, fixed_bytes: int, column: SampledColumn) -> float:
        """Estimate the payload's bytes for the whole file."""
        held = min(payload_bytes, round(column.distinct * (column.value_bytes + _ENTRY)))
        more = column.file_distinct / max(1, column.distinct)
        return held * more + (payload_bytes - held) * self.row_scale(column.rows, column.file_rows)
