"""What is in a ``range-bitmap`` index; drawn in :mod:`bitlake.fileindex.range_bitmap` and ``range_dictionary``."""

from __future__ import annotations

import numpy as np

from bitlake.codec.bytes import Reader
from bitlake.errors import CorruptError
from bitlake.fileindex.keys import Keys
from bitlake.fileindex.lazy_bytes import Window
from bitlake.fileindex.range_bitmap import Dictionary
from bitlake.inspect.index_bitmap import counted, key_texts
from bitlake.inspect.tree import Page, Tree, reading

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
