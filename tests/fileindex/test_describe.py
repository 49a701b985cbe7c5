"""What `inspect` shows of a payload: each part where it is, and each bitmap with the rows that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from bitlake.fileindex.payload import LazyBytes, Page, Section
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.types import parse_type

ROWS = 400
NUMBERS = [None if i % 9 == 4 else (i * i) % 23 - 5 for i in range(ROWS - 1)] + [99]
TEXTS = [None if v is None else f"v{v:+03d}" for v in NUMBERS]
COLUMNS: dict[str, tuple[pa.Array, list[Any]]] = {
    "INT": (pa.array(NUMBERS, pa.int32()), NUMBERS),
    "STRING": (pa.array(TEXTS), TEXTS),
}


def payload_of(index: str, kind: str, **options: str) -> bytes:
    writer = INDEX_TYPES[index].writer(parse_type(kind), {k.replace("_", "-"): v for k, v in options.items()})
    writer.add(COLUMNS[kind][0])
    return writer.finish()


def described(index: str, kind: str, data: bytes, page: Page | None = Page(0, 1000)) -> Section:  # noqa: B008
    section = Section(index, 0, len(data))
    payload = LazyBytes(lambda offset, length: data[offset : offset + length], len(data))
    INDEX_TYPES[index].describe(section, payload, parse_type(kind), page)
    return section


def sections(section: Section) -> Iterator[Section]:
    for child in section.children:
        yield child
        yield from sections(child)


def named(section: Section, name: str) -> Section:
    (found,) = [s for s in sections(section) if s.name == name]
    return found


def check_places(section: Section, size: int) -> None:
    """No part leaves the payload or has a fault, and nothing is left out at the top."""
    for part in sections(section):
        assert part.fault is None, part
        if part.offset is not None and part.size is not None:
            assert part.offset >= 0 and part.size >= 0 and part.offset + part.size <= size, part


def rows_of(values: list[Any], value: Any) -> BitMap:
    return BitMap([i for i, v in enumerate(values) if v == value])


@pytest.mark.parametrize("kind", ["INT", "STRING"])
@pytest.mark.parametrize("options", [{"version": "1"}, {}, {"index_block_size": "64b"}])
def test_bitmaps_of_values(kind: str, options: dict[str, str]) -> None:
    data, values = payload_of("bitmap", kind, **options), COLUMNS[kind][1]
    section = described("bitmap", kind, data)
    check_places(section, len(data))
    distinct = {v for v in values if v is not None}
    assert (section.facts["rows"], section.facts["values"]) == (ROWS, len(distinct))
    shown = {s.name: s for s in sections(section) if "row" in s.facts or "bitmap at" in s.facts}
    texts = {"NULL" if v is None else str(v): v for v in (*distinct, None)}
    assert set(shown) == set(texts)
    for text, part in shown.items():
        expected = rows_of(values, texts[text])
        if "row" in part.facts:
            assert BitMap([part.facts["row"]]) == expected
            continue
        at = int(part.facts["bitmap at"])
        assert BitMap.deserialize(data[at : at + part.facts["bytes"]]) == expected
        assert part.facts["rows"] == len(expected)
    bitmaps = named(section, "bitmaps")
    assert bitmaps.offset is not None and bitmaps.size is not None and bitmaps.offset + bitmaps.size == len(data)


@pytest.mark.parametrize("options", [{"version": "1"}, {"index_block_size": "64b"}])
def test_a_page_of_values(options: dict[str, str]) -> None:
    data = payload_of("bitmap", "INT", **options)
    whole = described("bitmap", "INT", data)
    names = [s.name for s in sections(whole) if ("row" in s.facts or "bitmap at" in s.facts) and s.name != "NULL"]
    part = described("bitmap", "INT", data, Page(3, 7))
    shown = [s.name for s in sections(part) if ("row" in s.facts or "bitmap at" in s.facts) and s.name != "NULL"]
    assert shown == names[3:10]
    assert named(part, "values" if "version" in options else "blocks").more == len(names) - 7
    assert named(whole, "values" if "version" in options else "blocks").more == 0


@pytest.mark.parametrize("kind", ["INT", "STRING"])
@pytest.mark.parametrize("chunk", ["0b", "32b", "16kb"])
def test_slices_of_a_range_bitmap(kind: str, chunk: str) -> None:
    data, values = payload_of("range-bitmap", kind, chunk_size=chunk), COLUMNS[kind][1]
    section = described("range-bitmap", kind, data)
    check_places(section, len(data))
    ordered = sorted({v for v in values if v is not None})
    texts = [str(v) for v in ordered]
    assert named(section, "header").facts == {"smallest": texts[0], "largest": texts[-1]}
    assert [(s.name, s.facts["code"]) for s in named(section, "keys").children] == [
        (text, code) for code, text in enumerate(texts)
    ]
    tops = section.children
    assert [s.name for s in tops] == ["header", "dictionary", "slices"]
    assert [s.offset for s in tops] == np.cumsum([0, *(s.size or 0 for s in tops[:-1])]).tolist()
    assert sum(s.size or 0 for s in tops) == len(data)
    codes = [-1 if v is None else ordered.index(v) for v in values]
    slices = {s.name: s for s in named(section, "slices").children}
    present = BitMap([i for i, c in enumerate(codes) if c >= 0])
    bits = {
        f"bit {b}": BitMap([i for i, c in enumerate(codes) if c >= 0 and c >> b & 1])
        for b in range((len(ordered) - 1).bit_length())
    }
    assert set(slices) == {"directory", "rows not NULL", *bits}
    for name, rows in {"rows not NULL": present, **bits}.items():
        part = slices[name]
        assert part.offset is not None and part.size is not None
        assert BitMap.deserialize(data[part.offset : part.offset + part.size]) == rows
        assert part.facts["rows"] == len(rows)


def test_slices_of_a_bsi() -> None:
    data = payload_of("bsi", "INT")
    section = described("bsi", "INT", data)
    check_places(section, len(data))
    assert section.facts["rows"] == ROWS
    for name, sign in (("values from 0", 1), ("values below 0", -1)):
        part = named(section, name)
        held = {i: abs(v) for i, v in enumerate(NUMBERS) if v is not None and (v >= 0) == (sign > 0)}
        assert part.facts["largest"] == max(held.values())
        base = part.facts["smallest"]
        for child in part.children:
            assert child.offset is not None and child.size is not None
            found = BitMap.deserialize(data[child.offset : child.offset + child.size])
            if child.name == "rows":
                assert found == BitMap(held) and child.facts["rows"] == len(held)
            else:
                bit = int(child.name.removeprefix("bit "))
                assert found == BitMap([i for i, v in held.items() if (v - base) >> bit & 1])
    last = section.children[-1]
    assert last.offset is not None and last.size is not None and last.offset + last.size == len(data)


def test_bits_of_a_bloom_filter() -> None:
    data = payload_of("bloom-filter", "INT", items="30", fpp="0.01")
    section = described("bloom-filter", "INT", data)
    check_places(section, len(data))
    bits = named(section, "bits")
    assert (bits.offset, bits.size, bits.facts[""]) == (4, len(data) - 4, 8 * (len(data) - 4))
    share = np.unpackbits(np.frombuffer(data[4:], np.uint8)).mean()
    assert bits.facts["set"] == f"{100 * share:.1f} %"
    functions = named(section, "hash functions").facts[""]
    assert functions == int.from_bytes(data[:4], "big") > 1
    assert bits.facts["absent values let pass"] == f"{100 * share**functions:.2g} %"


@pytest.mark.parametrize("index", ["bitmap", "range-bitmap", "bsi", "bloom-filter"])
def test_the_payload_states_its_rows(index: str) -> None:
    data = payload_of(index, "INT")
    payload = LazyBytes(lambda offset, length: data[offset : offset + length], len(data))
    assert INDEX_TYPES[index].stored_rows(payload) == (None if index == "bloom-filter" else ROWS)


@pytest.mark.parametrize("index", ["bitmap", "range-bitmap", "bsi"])
def test_a_cut_or_changed_payload_has_a_fault_or_an_error(index: str) -> None:
    data = payload_of(index, "INT")
    for size in (0, 1, 4, 5, 9, 10, 13, 17, *range(20, len(data), 37), len(data) - 1):
        root = Section(index, 0, size)
        with root.reading():  # raises what is not damage
            root.children = described(index, "INT", data[:size]).children
        assert any(part.fault is not None for part in (root, *sections(root))), size
