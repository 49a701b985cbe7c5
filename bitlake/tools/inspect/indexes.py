"""File indexes and table indexes: containers, dictionaries, bitmaps, deletion vectors and key hashes.

Each index type has a function that returns its payload as a tree of nodes; another lists the rows that the indexes of
a column return for one value.  Row positions are runs, shown a page at a time.

Layouts: :mod:`bitlake.fileindex` (the container and a module for each index type),
:mod:`bitlake.tableindex.deletion_vectors` and :mod:`bitlake.tableindex.hash_index`.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import deserialize, positions_of
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.binder import bind
from bitlake.expressions.sql_text import name as column_name
from bitlake.expressions.sql_text import quote
from bitlake.expressions.tree import Comparison, IsNull, MapKey, Op, Predicate
from bitlake.fileindex.container import EMPTY, FIXED_LENGTH, MAGIC, VERSION, ContainerHeader, read_header
from bitlake.fileindex.dictionary import read_fixed, read_variable
from bitlake.fileindex.keyed import cardinality, telling, to_arrow
from bitlake.fileindex.keys import Keys, keys_of
from bitlake.fileindex.lazy_bytes import Window
from bitlake.fileindex.range_bitmap import Dictionary
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import ROW_SELECTIVE, indexed_type
from bitlake.fileindex.selection import Kind, Selection
from bitlake.tableindex.deletion_vectors import EMPTY_FILE, FIRST_OFFSET, decode_vector
from bitlake.tableindex.vector_range import VectorRange
from bitlake.tools.inspect.tree import DAMAGE, Page, Source, Tree, plain, reading
from bitlake.types import AtomicType, DataField
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
    told = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(told + ([f"… {left:,} more runs"] if left else [])) or "none"


_HEAD = 10
_ENTRY_HEAD = 4


def bitmap_tree(index: Tree, window: Window, base: int, keys: Keys, page: Page | None) -> None:
    """Add head, blocks and body; with a ``page`` its values, and where the rows of each are."""
    reader = Reader(window.view(0, min(_HEAD, window.length)))
    version, rows, values, nulls = reader.u1(), reader.i4(), reader.i4(), reader.u1()
    index.facts.update({"version": version, "rows": rows, "values": values})
    index.add("head", base, _HEAD, {"has NULLs": bool(nulls)})
    if version not in (1, 2) or nulls > 1 or rows < 0 or not 0 <= values <= rows:
        raise CorruptError(f"this is no bitmap index: version {version}, {values:,} values in {rows:,} rows", 0)
    (_version_1 if version == 1 else _version_2)(index, window, base, keys, rows, values, bool(nulls), page)


def _version_1(
    index: Tree, window: Window, base: int, keys: Keys, rows: int, values: int, nulls: bool, page: Page | None
) -> None:
    at = _HEAD
    null_offset = None
    if nulls:
        null_offset = Reader(window.view(at, 4), at).i4()
        at += 4
    found, tails, body = _entries(keys, window, at, values, 1, None)
    listed = index.add("values", base + at, body - at, {"": values})
    index.add("bitmaps", base + body, window.length - body)
    offsets = tails[:, 0]
    stored = offsets[offsets >= 0]
    starts = stored if null_offset is None or null_offset < 0 else np.concatenate(([null_offset], stored))
    ends = dict(zip(starts.tolist(), [*starts[1:].tolist(), window.length - body], strict=True))
    if null_offset is not None:
        _null_rows(index, window, base, body, null_offset, ends.get(null_offset, -1), rows)
    if page is not None:
        for i, text in zip(page.of(values), key_texts(keys, found, page.of(values)), strict=True):
            offset = int(offsets[i])
            _value(listed, window, base, body, text, offset, ends.get(offset, offset) - offset, rows)
        listed.more = page.left(values)


def _version_2(
    index: Tree, window: Window, base: int, keys: Keys, rows: int, values: int, nulls: bool, page: Page | None
) -> None:
    at = _HEAD
    null_place = None
    if nulls:
        reader = Reader(window.view(at, 8), at)
        null_place = reader.i4(), reader.i4()
        at += 8
    start = at
    count = Reader(window.view(at, 4), at).i4()
    if not 0 <= count <= values:
        raise CorruptError(f"a bitmap index of {values:,} values cannot have {count:,} blocks", at)
    _first, tails, at = _entries(keys, window, at + 4, count, 1, None)
    size = Reader(window.view(at, 4), at).i4()
    at += 4
    index.add("block index", base + start, at - start, {"blocks": count, "bytes of blocks": size})
    bounds = [*tails[:, 0].tolist(), size]
    if not 0 <= size <= window.length - at or any(not b - a >= 4 for a, b in itertools.pairwise(bounds)):
        raise CorruptError("the blocks of a bitmap index do not follow each other", at)
    body = at + size
    blocks = index.add("blocks", base + at, size, {"": count})
    index.add("bitmaps", base + body, window.length - body)
    if null_place is not None:
        _null_rows(index, window, base, body, *null_place, rows)
    if page is None:
        return
    seen = 0
    for number in range(count):
        begin, end = at + bounds[number], at + bounds[number + 1]
        held = Reader(window.view(begin, 4), begin).i4()
        if held < 0 or held > values:
            raise CorruptError(f"a block of {held:,} values", begin)
        shown = range(max(page.offset - seen, 0), min(held, page.offset + page.limit - seen))
        if shown:
            block = blocks.add(f"block {number}", base + begin, end - begin, {"values": held})
            with reading(block, base):
                found, places, _ = _entries(keys, window, begin + _ENTRY_HEAD, held, 2, end)
                for i, text in zip(shown, key_texts(keys, found, shown), strict=True):
                    _value(block, window, base, body, text, int(places[i, 0]), int(places[i, 1]), rows)
        seen += held
    blocks.more = page.left(seen)


def _entries(
    keys: Keys, window: Window, at: int, n: int, tail: int, end: int | None
) -> tuple[list[bytes] | Int64s, Int64s, int]:
    if keys.width:
        return read_fixed(keys, window, at, n, tail)
    return read_variable(window, at, n, tail, end)


def _null_rows(index: Tree, window: Window, base: int, body: int, offset: int, length: int, rows: int) -> None:
    _value(index, window, base, body, "NULL", offset, length if offset >= 0 else -1, rows)


def _value(parent: Tree, window: Window, base: int, body: int, text: str, offset: int, length: int, rows: int) -> None:
    if offset < 0:  # a single row is in the offset itself
        parent.add(text, facts={"row": -1 - offset})
        return
    node = parent.add(text)  # its bytes are among the bitmaps, not here
    with reading(node, base):
        node.facts.update({"bitmap at": base + body + offset, "bytes": length})
        if length <= 0:
            raise CorruptError(f"a bitmap of {length} bytes", body + offset)
        node.facts = {"rows": counted(window, body + offset, length, rows), **node.facts}


def counted(window: Window, at: int, length: int, rows: int) -> int:
    """How many rows a Roaring bitmap holds, by its header alone."""
    head = min(length, 16 + 5 * (max(rows, 0) // 65536 + 2))
    found = cardinality(window.view(at, head), at)
    if found is None:
        found = cardinality(window.view(at, length), at)
    if found is None:
        raise CorruptError("a bitmap ends inside its header", at)
    return found


def key_texts(keys: Keys, found: Any, shown: range) -> list[str]:
    """Keys of an index as people write the values."""
    picked = list(found[shown.start : shown.stop])
    if telling(keys):
        try:
            made = keys.array_of([k if isinstance(k, bytes) else int(k) for k in picked])
            return [_text(v) for v in to_arrow(keys, made).to_pylist()]
        except (BitlakeError, pa.ArrowException, *DAMAGE):
            pass
    return [_text(k) if isinstance(k, bytes) else str(int(k)) for k in picked]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode() or "''"
        except UnicodeDecodeError:
            return str(plain(value))
    return str(value) or "''"


_DICTIONARY_HEAD = 17
_SLICES_HEAD = 14


def range_tree(index: Tree, window: Window, base: int, keys: Keys, page: Page | None) -> None:
    """Add header, dictionary and slices; with a ``page`` the dictionary's values, and the rows of each slice."""
    length = Reader(window.view(0, min(4, window.length))).i4()
    if not 13 <= length <= window.length - 4:
        raise CorruptError(f"a range-bitmap cannot have a header of {length:,} bytes", 0)
    reader = Reader(window.view(4, length), 4)
    version, rows, values = reader.u1(), reader.i4(), reader.i4()
    index.facts.update({"version": version, "rows": rows, "values": values})
    head = index.add("header", base, 4 + length)
    if version != 1 or not 0 <= values <= rows:
        raise CorruptError(f"this is no range-bitmap: version {version}, {values:,} values in {rows:,} rows", 4)
    for name in ("smallest", "largest") if values else ():
        head.facts[name] = _key(reader, keys)
    size, at = reader.i4(), 4 + length
    if not 0 <= size <= window.length - at:
        raise CorruptError(f"a dictionary of {size:,} bytes does not fit", at)
    dictionary = index.add("dictionary", base + at, size)
    with reading(dictionary, base):
        _dictionary(dictionary, window, base, at, size, keys, values, page)
    _slices(index, window, base, at + size, rows, page is not None)


def _key(reader: Reader, keys: Keys) -> str:
    raw = bytes(reader.take(keys.width or reader.i4()))
    key = int.from_bytes(raw, "big", signed=True) if keys.width else raw
    return key_texts(keys, [key], range(1))[0]


def _dictionary(
    node: Tree, window: Window, base: int, at: int, size: int, keys: Keys, values: int, page: Page | None
) -> None:
    reader = Reader(window.view(at, min(_DICTIONARY_HEAD, size)), at)
    _, version, chunks, offsets, headers = reader.i4(), reader.u1(), reader.i4(), reader.i4(), reader.i4()
    node.facts.update({"version": version, "chunks": chunks})
    if version != 1 or min(chunks, offsets, headers) < 0 or _DICTIONARY_HEAD + offsets + headers > size:
        raise CorruptError("the dictionary's header contradicts itself", at)
    begin = base + at + _DICTIONARY_HEAD
    node.add("chunk offsets", begin, offsets)
    node.add("chunk headers", begin + offsets, headers)
    areas = node.add("keys", begin + offsets + headers, size - _DICTIONARY_HEAD - offsets - headers)
    if page is None or not values:
        return
    shown = page.of(values)
    found = Dictionary(keys, window, at, size, values).keys_at(np.arange(shown.start, shown.stop, dtype=np.int64))
    picked = found.to_pylist()
    for code, text in zip(shown, key_texts(keys, picked, range(len(picked))), strict=True):
        areas.add(text, facts={"code": code})
    areas.more = page.left(values)


def _slices(index: Tree, window: Window, base: int, at: int, rows: int, entries: bool) -> None:
    node = index.add("slices", base + at, window.length - at)
    with reading(node, base):
        reader = Reader(window.view(at, min(_SLICES_HEAD, window.length - at)), at)
        length, version, count, present, directory = reader.i4(), reader.u1(), reader.u1(), reader.i4(), reader.i4()
        node.facts["slices"] = count
        if version != 1 or directory != 8 * count or length != 10 + directory or present < 0:
            raise CorruptError("the header of the slices contradicts itself", at)
        places = np.frombuffer(window.view(at + _SLICES_HEAD, directory), ">i4").reshape(-1, 2).tolist()
        node.add("directory", base + at, _SLICES_HEAD + directory)
        at += _SLICES_HEAD + directory
        parts = [("rows not NULL", at, present)]
        parts += [(f"bit {i}", at + present + offset, size) for i, (offset, size) in enumerate(places)]
        for name, start, size in parts:
            part = node.add(name, base + start, size)
            with reading(part, base):
                if size < 0 or start < 0 or start + size > window.length:
                    raise CorruptError(f"{size:,} bytes do not fit", start)
                if entries:
                    part.facts["rows"] = counted(window, start, size, rows)


_BSI_HEAD = 5
_COUNTED = 1 << 20
"""Filters up to so many bytes are read for how full they are."""


def bloom_tree(index: Tree, window: Window, base: int, entries: bool) -> None:
    """Add the number of hash functions and the bits; with ``entries``, how many of them are set."""
    count = Reader(window.view(0, min(4, window.length))).i4()
    bits = 8 * (window.length - 4)
    index.add("hash functions", base, 4, {"": count})
    node = index.add("bits", base + 4, window.length - 4, {"": bits})
    if count <= 0 or bits <= 0:
        raise CorruptError(f"a bloom filter of {bits:,} bits cannot have {count:,} hash functions", 0)
    if entries and window.length <= _COUNTED:
        share = float(np.unpackbits(np.frombuffer(window.view(4, window.length - 4), np.uint8)).mean())
        node.facts["set"] = f"{100 * share:.1f} %"
        node.facts["absent values let pass"] = f"{100 * share**count:.2g} %"


def bsi_tree(index: Tree, window: Window, base: int, entries: bool) -> None:
    """Add the head; with ``entries`` both parts, too.  Nothing tells where a slice starts, so all is read then."""
    reader = Reader(window.view(0, window.length if entries else min(_BSI_HEAD, window.length)))
    version, rows = reader.u1(), reader.i4()
    index.facts.update({"version": version, "rows": rows})
    index.add("head", base, _BSI_HEAD)
    if version != 1 or rows < 0:
        raise CorruptError(f"this is no bsi index: version {version} of {rows:,} rows", 0)
    for name in ("values from 0", "values below 0") if entries else ():
        at = reader.offset
        part = index.add(name, base + at)
        there = reader.u1()
        part.size = 1
        if not there:
            part.facts[""] = "none"
            continue
        part_version, least, most = reader.u1(), reader.i8(), reader.i8()
        part.facts.update({"smallest": least, "largest": most})
        if there != 1 or part_version != 1 or not 0 <= least <= most:
            raise CorruptError("a part of the bsi index contradicts itself", at)
        _bitmap(part, "rows", reader, base, rows)
        count = reader.count("the number of slices", 8)
        for i in range(count):
            _bitmap(part, f"bit {i}", reader, base, rows)
        part.size = reader.offset - at


def _bitmap(part: Tree, name: str, reader: Reader, base: int, rows: int) -> None:
    at = reader.offset
    node = part.add(name, base + at)
    try:
        bitmap, size = deserialize(reader.take(reader.remaining), rows)
    except CorruptError as e:
        raise CorruptError(e.what, at + (e.offset or 0)) from e
    node.size, node.facts["rows"] = size, len(bitmap)
    reader.seek(at + size)


@dataclass(frozen=True, slots=True)
class ValueRows:
    """What one index says of one value.

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
            case "maybe" if not self.runs:
                return start + "may be there (a bloom filter only rules values out)"
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
    """What each index of a column says of a value: a Python value, or text that Spark would read as one; None is NULL.

    ``columns``: of the container's header.  Raises :class:`NotFound` for a column without an index and
    :class:`InvalidRequest` for a value that the column's type cannot have, or when the type is not known.
    """
    name = next((c for c in columns if c == column), None) or next(
        (c for c in columns if c.lower() == column.lower()), None
    )
    if name is None:
        raise NotFound(f"no index of column '{column}' is there; indexed are {', '.join(columns) or 'none'}")
    known = indexed_type(name, fields)
    if known is None:
        raise InvalidRequest(f"the type of column '{name}' is not known: its table's schema cannot be read")
    field, key, kind = known
    leaf_column: str = name if key is None else MapKey(field.name, key)
    predicate = _condition(leaf_column, kind, value, fields, timezone)
    shown = f"{column_name(leaf_column)} = {value!r}" if value is not None else f"{column_name(leaf_column)} IS NULL"
    out = []
    for index, place in columns[name].items():
        if place == EMPTY:
            out.append(ValueRows(name, index, shown, "none", 0))
            continue
        rows = _rows(source, place, index) if row_count is None else row_count
        opened = open_index(source.from_here(0), source.size, fields, rows)
        opened.columns = {name: {index: place}}
        found = opened.evaluate(predicate)
        problem = opened.problems[0] if opened.problems else None
        out.append(_told(name, index, shown, found, rows, page, problem))
    return out


def _condition(column: str, kind: Any, value: Any, fields: Sequence[DataField], timezone: str) -> Predicate:
    if value is None:
        return bind(IsNull(column), fields, timezone)
    text = isinstance(kind, AtomicType) and kind.root in STRINGS
    if isinstance(value, str) and not text:  # as SQL reads a literal, so that '2024-02-29' is a date
        from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

        return bind(parse_predicate(f"{column_name(column)} = {quote(value)}", timezone), fields, timezone)
    return bind(Comparison(column, Op.EQ, value), fields, timezone)


def _rows(source: Source, place: tuple[int, int], index: str) -> int:
    """The rows that an index itself says it has."""
    at = {"bitmap": 1, "bsi": 1, "range-bitmap": 5}.get(index)
    if at is None or place[1] < at + 4:
        return 0
    return int.from_bytes(source.view(place[0] + at, 4), "big")


def _told(
    column: str, index: str, value: str, found: Selection, rows: int, page: Page, problem: str | None
) -> ValueRows:
    if problem is not None:
        return ValueRows(column, index, value, "unknown", rows, problem=problem)
    if found.is_empty:
        return ValueRows(column, index, value, "none", 0)
    if found.kind is Kind.ALL and not found.exact:
        return ValueRows(column, index, value, "unknown" if index in ROW_SELECTIVE else "maybe", rows)
    if found.rows is None:
        return ValueRows(column, index, value, "rows" if rows else "none", rows, ((0, rows - 1),) if rows else ())
    positions = positions_of(found.rows)
    runs, more = runs_of(positions, page)
    shown = tuple((a, b) for a, b in runs)
    return ValueRows(column, index, value, "rows" if found.exact else "maybe", len(positions), shown, more)


MAGIC_BYTES = MAGIC.to_bytes(8, "big")
Columns = Mapping[str, Mapping[str, tuple[int, int]]]


def file_index_tree(
    tree: Tree, source: Source, page: Page, fields: Sequence[DataField], column: str | None
) -> ContainerHeader | None:
    """Add the header and each index; of ``column`` (or of an only one) its entries, a page of each list.

    ``fields`` are those of the schema that the data file was written with; without them keys cannot be told apart.
    Returns the header if it is sound.
    """
    head = tree.add("header", 0)
    with reading(head):
        places = _header(head, source)
    if head.fault is not None:
        return None
    tree.facts.update({"columns": len(places), "indexes": sum(map(len, places.values()))})
    header = None
    with reading(head):
        header = read_header(source.window.view(0, head.size or 0), source.size)
    if header is None:
        return None
    if header.checksums is not None:
        sums = header.checksums
        head.facts["checksums"] = f"{len(sums.sums):,} of {sums.chunk:,} bytes each" if sums.sums else "of the header"
        with reading(head):
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
        known = indexed_type(name, fields)
        if known is not None:
            node.facts["type"] = str(known[2])
        for kind, (start, length) in places[name].items():
            index = node.add(kind, None if start < 0 else start, length)
            keys = None if known is None else keys_of(known[2])
            with reading(index, max(start, 0)):
                _index(index, kind, (start, length), source, keys, page, column is not None or len(places) == 1)
    return header


def _index(
    index: Tree, kind: str, place: tuple[int, int], source: Source, keys: Keys | None, page: Page, entries: bool
) -> None:
    if place == EMPTY:
        index.facts["empty"] = "the writer saw no row"
        return
    start, length = place
    payload = Window(source.from_here(start), length, 0)
    if kind == "bloom-filter":
        bloom_tree(index, payload, start, entries)
    elif kind == "bsi":
        bsi_tree(index, payload, start, entries)
    elif keys is None:
        index.facts["note"] = "the column's type is not known, so keys cannot be told apart"
    elif kind == "bitmap":
        bitmap_tree(index, payload, start, keys, page if entries else None)
    elif kind == "range-bitmap":
        range_tree(index, payload, start, keys, page if entries else None)
    else:
        raise UnsupportedFeature(f"index type '{kind}' is not known")


def _header(head: Tree, source: Source) -> Columns:
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
                with reading(entry):
                    raise CorruptError(f"it is said to have {size:,} bytes at {start:,} of {source.size:,}", at)
        node.size = reader.offset - (node.offset or 0)
    at = reader.offset
    redundant = reader.count("the redundant length", 1)
    head.add("redundant bytes", at, 4 + redundant, {"": redundant})
    if length > source.size:
        raise CorruptError(f"the header has {length:,} bytes, {source.size:,} are there", 12)
    return columns


_FRAME_HEAD = 8
"""Bytes of a frame that tell its size and kind."""
_MOST_FRAMES = 10_000
_MAGICS = {(1581511376).to_bytes(4, "big"): 32, (1681511377).to_bytes(4, "little"): 64}


def is_vectors(start: bytes, size: int) -> bool:
    """Whether the first bytes of a file of ``size`` bytes are those of deletion vectors."""
    return start[:1] == EMPTY_FILE and (size == 1 or start[5:9] in _MAGICS)


def vectors_tree(tree: Tree, source: Source, page: Page, places: Mapping[int, VectorRange]) -> None:
    """A deletion vector file; ``places`` are what the index manifest says of it, by offset."""
    version = source.view(0, 1)
    tree.add("version", 0, 1, {"": version[0]})
    if version != EMPTY_FILE:
        raise CorruptError(f"a deletion vector file of version {version[0]}, only 1 is known", 0)
    at, number = FIRST_OFFSET, 0
    while at < source.size and tree.more == 0:
        size = int.from_bytes(source.view(at, 4), "big", signed=True)
        if size < 4 or size > source.size - at - 8:
            raise CorruptError(f"a vector of {size:,} bytes, and {max(0, source.size - at - 8):,} are left", at)
        if page.offset <= number < page.offset + page.limit:
            place = places.get(at)
            frame = tree.add(place.data_file if place else f"vector {number}", at, size + 8)
            with reading(frame, at + 4):
                _frame(frame, source, at, size, place)
        at, number = at + size + 8, number + 1
        if number > page.offset + page.limit + _MOST_FRAMES:
            tree.more = None
    tree.facts["vectors"] = number
    if tree.more == 0:
        tree.more = page.left(number)


def _frame(frame: Tree, source: Source, at: int, size: int, place: VectorRange | None) -> None:
    frame.facts["bits"] = _MAGICS.get(source.view(at + 4, 4), "unknown")
    body = source.view(at + 4, size)
    crc = int.from_bytes(source.view(at + 4 + size, 4), "big")
    frame.add("size", at, 4, {"": size})
    frame.add("vector", at + 4, size)
    checked = frame.add("CRC-32", at + 4 + size, 4, {"": f"{crc:08x}"})
    if zlib.crc32(body) != crc:
        with reading(checked):
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


def hashes_tree(tree: Tree, source: Source, page: Page) -> None:
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
