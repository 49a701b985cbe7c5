"""File indexes: the container, and what is in each index of it (layouts: :mod:`bitlake.fileindex.container`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bitlake.codec.bytes import Reader
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.fileindex.container import EMPTY, FIXED_LENGTH, MAGIC, VERSION, ContainerHeader, read_header
from bitlake.fileindex.keys import Keys, keys_of
from bitlake.fileindex.lazy_bytes import Window
from bitlake.fileindex.registry import indexed_type
from bitlake.inspect.index_bitmap import bitmap_tree
from bitlake.inspect.index_others import bloom_tree, bsi_tree
from bitlake.inspect.index_range import range_tree
from bitlake.inspect.source import Source
from bitlake.inspect.tree import Page, Tree, reading
from bitlake.types import DataField

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
