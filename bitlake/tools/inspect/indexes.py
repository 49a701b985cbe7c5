"""File indexes and table indexes: containers, dictionaries, bitmaps, deletion vectors and key hashes.

Each file index type describes its payload itself (:meth:`bitlake.fileindex.capabilities.IndexType.describe`); the
sections are placed in the file's tree here.  Row positions are runs, shown a page at a time.

Layouts: :mod:`bitlake.fileindex` (the container and a module for each index type),
:mod:`bitlake.tableindex.deletion_vectors` and :mod:`bitlake.tableindex.hash_index`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import positions_of
from bitlake.errors import CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.binder import bind
from bitlake.expressions.indexed import about
from bitlake.expressions.sql_text import name as column_name
from bitlake.expressions.sql_text import quote
from bitlake.expressions.term_binder import VALUE
from bitlake.expressions.tree import Comparison, IndexedExpression, IsNull, MapKey, Op, Predicate
from bitlake.fileindex.container import EMPTY, FIXED_LENGTH, MAGIC, VERSION, ContainerHeader, read_header
from bitlake.fileindex.payload import Page
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import by_column, find_index_type
from bitlake.fileindex.selection import Kind, Selection
from bitlake.fileindex.source import index_source
from bitlake.tableindex import VectorRange
from bitlake.tableindex.deletion_vectors import AROUND, EMPTY_FILE, FIRST_OFFSET, MAGIC_32, MAGIC_64, decode_vector
from bitlake.tools.inspect.tree import Node, Source
from bitlake.types import AtomicType, DataField, DataType
from bitlake.types.datatypes import STRINGS


def runs_of(positions: Int64s, page: Page) -> tuple[list[list[int]], int]:
    """Ascending positions as [first, last] runs of neighbours: those of the page, and how many there are besides."""
    if not len(positions):
        return [], 0
    breaks = np.flatnonzero(np.diff(positions) != 1)
    shown = page.of(len(breaks) + 1)
    starts: Any = positions[np.concatenate(([0], breaks + 1))[shown.start : shown.stop]]
    ends: Any = positions[np.concatenate((breaks, [len(positions) - 1]))[shown.start : shown.stop]]
    return np.stack([starts, ends], axis=1).tolist(), page.left(len(breaks) + 1)


def runs_text(runs: list[list[int]], left: int = 0) -> str:
    """``0, 2, 5-9, … 3 more runs``."""
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(texts + ([f"… {left:,} more runs"] if left else [])) or "none"


@dataclass(frozen=True, slots=True)
class ValueRows:
    """One index's rows of one value.

    ``answer``: ``rows`` (these have it), ``maybe`` (these may), ``none`` (no row has it), ``unknown`` (the index cannot
    tell).  ``runs``: a page of [first, last] positions, ``more`` of them are not shown; ``count``: rows in all.
    """

    column: str
    index: str
    value: str
    answer: str
    count: int
    runs: tuple[tuple[int, int], ...] = ()
    more: int = 0
    problem: str | None = None

    def __str__(self) -> str:
        start = f"{self.index}({self.column}), {self.value}: "
        if self.problem is not None:
            return start + f"cannot be read: {self.problem}"
        match self.answer:
            case "none":
                return start + "surely in no row"
            case "unknown":
                return start + "this index cannot tell"
            case "maybe" if not self.runs and not self.more:
                return start + f"may be there (a {self.index.replace('-', ' ')} only rules values out)"
        sure = "exactly" if self.answer == "rows" else "at most"
        return start + f"{sure} {self.count:,} rows: {runs_text([list(r) for r in self.runs], self.more)}"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        out = {k: getattr(self, k) for k in ("column", "index", "value", "answer", "count", "more", "problem")}
        return {**out, "runs": [list(r) for r in self.runs]}


def rows_of_value(
    source: Source,
    columns: Mapping[str, Mapping[str, tuple[int, int]]],
    fields: Sequence[DataField],
    row_count: int | None,
    column: str,
    value: Any,
    page: Page,
    timezone: str = "UTC",
) -> list[ValueRows]:
    """Look a value up in each index of a column: a Python value, or text that Spark would read as one; None is NULL.

    ``columns``: of the container's header.  Raises :class:`NotFound` for a column without an index and
    :class:`InvalidRequest` for a value that the column's type cannot have, or when the type is not known.
    """
    columns = by_column(columns)
    name = next((c for c in columns if c == column), None) or next(
        (c for c in columns if c.lower() == column.lower()), None
    )
    if name is None:
        raise NotFound(f"no index of column '{column}' is there; indexed are {', '.join(columns) or 'none'}")
    indexed = index_source(name, fields)
    if indexed is None:
        raise InvalidRequest(f"the type of column '{name}' is not known: its table's schema cannot be read")
    leaf_column: str = indexed.name if indexed.key is None else MapKey(indexed.columns[0], indexed.key)
    predicate = _condition(leaf_column, indexed.type, value, fields, timezone)
    shown = f"{column_name(leaf_column)} = {value!r}" if value is not None else f"{column_name(leaf_column)} IS NULL"
    out = []
    for index, place in columns[name].items():
        if place == EMPTY:
            out.append(ValueRows(name, index, shown, "none", 0))
            continue
        rows = _rows(source, place, index) if row_count is None else row_count
        opened = open_index(source.from_here(0), source.size, fields, rows)
        opened.columns = {name: {index: place}}
        selection = opened.evaluate(predicate)
        problem = opened.problems[0] if opened.problems else None
        out.append(_told(name, index, shown, selection, rows, page, problem))
    return out


def _condition(column: str, kind: Any, value: Any, fields: Sequence[DataField], timezone: str) -> Predicate:
    if isinstance(column, IndexedExpression):
        values = _condition(VALUE, kind, value, [DataField(0, VALUE, kind)], timezone)
        return about(values, column)
    if value is None:
        return bind(IsNull(column), fields, timezone)
    text = isinstance(kind, AtomicType) and kind.root in STRINGS
    if isinstance(value, str) and not text:  # as SQL reads a literal, so that '2024-02-29' is a date
        from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

        return bind(parse_predicate(f"{column_name(column)} = {quote(value)}", timezone), fields, timezone)
    return bind(Comparison(column, Op.EQ, value), fields, timezone)


def _rows(source: Source, place: tuple[int, int], index: str) -> int:
    """The rows that an index itself says it has."""
    index_type = find_index_type(index)
    stored = None if index_type is None else index_type.stored_rows(source.part(*place))
    return stored or 0


def _told(
    column: str, index: str, value: str, found: Selection, rows: int, page: Page, problem: str | None
) -> ValueRows:
    if problem is not None:
        return ValueRows(column, index, value, "unknown", rows, problem=problem)
    if found.is_empty:
        return ValueRows(column, index, value, "none", 0)
    if found.kind is Kind.ALL and not found.exact:
        index_type = find_index_type(index)
        unknown = index_type is None or index_type.selects_rows
        return ValueRows(column, index, value, "unknown" if unknown else "maybe", rows)
    if found.rows is None:
        return ValueRows(column, index, value, "rows" if rows else "none", rows, ((0, rows - 1),) if rows else ())
    positions = positions_of(found.rows)
    runs, more = runs_of(positions, page)
    shown = tuple((a, b) for a, b in runs)
    return ValueRows(column, index, value, "rows" if found.exact else "maybe", len(positions), shown, more)


MAGIC_BYTES = MAGIC.to_bytes(8, "big")
Columns = Mapping[str, Mapping[str, tuple[int, int]]]


def file_index_tree(
    tree: Node, source: Source, page: Page, fields: Sequence[DataField], column: str | None
) -> ContainerHeader | None:
    """Add the header and each index; of ``column`` (or of an only one) its entries, a page of each list.

    ``fields`` are those of the schema that the data file was written with; without them keys cannot be decoded.
    Returns the header if it is sound.
    """
    head = tree.add("header", 0)
    with head.reading():
        places = _header(head, source)
        tree.facts.update({"columns": len(places), "indexes": sum(map(len, places.values()))})
        header = read_header(source.window.view(0, head.size or 0), source.size)
    if head.fault is not None:
        return None
    if header.checksums is not None:
        sums = header.checksums
        head.facts["checksums"] = f"{len(sums.sums):,} of {sums.chunk:,} bytes each" if sums.sums else "of the header"
        with head.reading():
            source.window.check(sums)
    wanted = [c for c in places if column is None or c.lower() == column.lower()]
    if column is not None:
        members = len(head.children)
        head.children = [c for c in head.children if c.name not in places or c.name in wanted]
        head.more = members - len(head.children)
    if column is not None and not wanted:
        tree.facts["note"] = f"no index of column '{column}'; there are {', '.join(places) or 'none'}"
    for name in wanted:
        node = tree.add(name)
        indexed = index_source(next(iter(by_column({name: places[name]})), name), fields)
        kind = None if indexed is None else indexed.type
        if kind is not None:
            node.facts["type"] = str(kind)
        for index_type, (start, length) in places[name].items():
            index = node.add(index_type, None if start < 0 else start, length)
            entries = page if column is not None or len(places) == 1 else None
            index.base = max(start, 0)
            with index.reading():
                _index(index, index_type, (start, length), source, kind, entries)
    return header


def _index(
    index: Node, name: str, place: tuple[int, int], source: Source, kind: DataType | None, page: Page | None
) -> None:
    if place == EMPTY:
        index.facts["empty"] = "the writer saw no row"
        return
    index_type = find_index_type(name)
    if index_type is None:
        raise UnsupportedFeature(f"index type '{name}' is not known")
    index_type.describe(index, source.part(*place), kind, page)


def _header(head: Node, source: Source) -> Columns:
    """Add the header's members one by one; whatever does not fit is raised where it stands."""
    fixed = Reader(source.view(0, min(FIXED_LENGTH, source.size)))
    magic = fixed.i8()
    head.add("magic", 0, 8, {"": magic})
    if magic != MAGIC:
        raise CorruptError("this is not a file index: the magic number is wrong", 0)
    version = fixed.i4()
    head.add("version", 8, 4, {"": version})
    if version != VERSION:
        raise UnsupportedFeature(f"file index version {version} is not known, only {VERSION}")
    length = fixed.i4()
    head.add("head length", 12, 4, {"": length})
    if length < FIXED_LENGTH + 8:
        raise CorruptError(f"the header cannot have {length} bytes", 12)
    head.size = min(length, source.size)
    reader = Reader(source.view(0, head.size))
    reader.seek(FIXED_LENGTH)
    columns: dict[str, dict[str, tuple[int, int]]] = {}
    for _ in range(reader.count("the number of columns", 6)):
        at = reader.offset
        name = reader.utf()
        node = head.add(name, at)
        inner = columns.setdefault(name, {})
        for _ in range(reader.count("the number of indexes", 10)):
            at = reader.offset
            kind = reader.utf()
            start, size = reader.i4(), reader.i4()
            place = {"empty": "the writer saw no row"} if (start, size) == EMPTY else {"at": start, "length": size}
            entry = node.add(kind, at, reader.offset - at, place)
            inner[kind] = (start, size)
            if (start, size) != EMPTY and (start < length or size < 0 or start + size > source.size):
                with entry.reading():
                    raise CorruptError(f"it is said to have {size:,} bytes at {start:,} of {source.size:,}", at)
        node.size = reader.offset - (node.offset or 0)
    at = reader.offset
    redundant = reader.count("the redundant length", 1)
    head.add("redundant bytes", at, 4 + redundant, {"": redundant})
    if length > source.size:
        raise CorruptError(f"the header has {length:,} bytes, {source.size:,} are there", 12)
    return columns


_MOST_FRAMES = 10_000
_MAGICS = {MAGIC_32: 32, MAGIC_64: 64}


def is_vectors(start: bytes, size: int) -> bool:
    """Whether the first bytes of a file of ``size`` bytes are those of deletion vectors."""
    return start[:1] == EMPTY_FILE and (size == 1 or start[5:9] in _MAGICS)


def vectors_tree(tree: Node, source: Source, page: Page, places: Mapping[int, VectorRange]) -> None:
    """A deletion vector file; ``places`` are what the index manifest says of it, by offset."""
    version = source.view(0, 1)
    tree.add("version", 0, 1, {"": version[0]})
    if version != EMPTY_FILE:
        raise CorruptError(f"a deletion vector file of version {version[0]}, only 1 is known", 0)
    at, number = FIRST_OFFSET, 0
    while at < source.size and tree.more == 0:
        size = int.from_bytes(source.view(at, 4), "big", signed=True)
        if size < 4 or size > source.size - at - AROUND:
            raise CorruptError(f"a vector of {size:,} bytes, and {max(0, source.size - at - AROUND):,} are left", at)
        if page.offset <= number < page.offset + page.limit:
            place = places.get(at)
            frame = tree.add(place.data_file if place else f"vector {number}", at, size + AROUND)
            with frame.reading(at + 4):
                _frame(frame, source, at, size, place)
        at, number = at + size + AROUND, number + 1
        if number > page.offset + page.limit + _MOST_FRAMES:
            tree.more = None
    tree.facts["vectors"] = number
    if tree.more == 0:
        tree.more = page.left(number)


def _frame(frame: Node, source: Source, at: int, size: int, place: VectorRange | None) -> None:
    frame.facts["bits"] = _MAGICS.get(source.view(at + 4, 4), "unknown")
    body = source.view(at + 4, size)
    crc = int.from_bytes(source.view(at + 4 + size, 4), "big")
    frame.add("size", at, 4, {"": size})
    frame.add("vector", at + 4, size)
    checked = frame.add("CRC-32", at + 4 + size, 4, {"": f"{crc:08x}"})
    if zlib.crc32(body) != crc:
        with checked.reading():
            raise CorruptError(f"the checksum is wrong: the vector's is {zlib.crc32(body):08x}", None)
    vector = decode_vector(body)
    positions = vector.positions()
    frame.facts["deleted"] = vector.cardinality
    runs, left = runs_of(positions, Page(0, 10))
    frame.facts["rows"] = runs
    if left:
        frame.facts["more runs"] = left
    if place is not None and place.cardinality not in (None, vector.cardinality):
        raise CorruptError(f"it deletes {vector.cardinality} rows, the index manifest says {place.cardinality}", None)


def hashes_tree(tree: Node, source: Source, page: Page) -> None:
    """A HASH index: 4 bytes a hash."""
    count = source.size // 4
    tree.facts["hashes"] = count
    shown = page.of(count)
    if shown:
        values = np.frombuffer(source.view(4 * shown.start, 4 * len(shown)), ">i4").tolist()
        for number, value in zip(shown, values, strict=True):
            tree.add(str(number), 4 * number, 4, {"hash": value})
    tree.more = page.left(count)
    if source.size % 4:
        raise CorruptError(f"a HASH index of {source.size:,} bytes: hashes take 4 each", 4 * count)
