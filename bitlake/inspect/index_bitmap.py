"""What is in a ``bitmap`` index; the layouts are drawn in :mod:`bitlake.fileindex.bitmap`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.errors import BitlakeError, CorruptError
from bitlake.fileindex.dictionary import read_fixed, read_variable
from bitlake.fileindex.keyed import cardinality, telling, to_arrow
from bitlake.fileindex.keys import Keys
from bitlake.fileindex.lazy_bytes import Window
from bitlake.inspect.tree import DAMAGE, Page, Tree, plain, reading

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
