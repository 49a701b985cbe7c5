"""What is in ``bloom-filter`` and ``bsi`` indexes; the layouts are drawn in :mod:`bitlake.fileindex`."""

from __future__ import annotations

import numpy as np

from bitlake.codec.bytes import Reader
from bitlake.codec.roaring import deserialize
from bitlake.errors import CorruptError
from bitlake.fileindex.lazy_bytes import Window
from bitlake.inspect.tree import Tree

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
