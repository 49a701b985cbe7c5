"""bsi and range-bitmap payloads made field by field: unusual ones are read, contradictions are refused where they are.

The payloads are put together here, without the product's writers, so that each field can have any value.
Source: index-format spec, section 4 (range-bitmap), and index-format spec, section 5 (bsi).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.tree import Comparison, Op
from bitlake.fileindex.bsi import BSI, BsiReader
from bitlake.fileindex.payload import Fault, LazyBytes, Page, Section
from bitlake.fileindex.range_bitmap import RANGE_BITMAP, RangeBitmapReader
from bitlake.types import parse_type
from tests.fileindex.payloads import check_every_comparison

EVERYTHING = Page(0, 1000)


def bitmap(rows: Sequence[int]) -> bytes:
    made = BitMap(rows)
    made.run_optimize()
    return bytes(made.serialize())


def lazy(data: bytes) -> LazyBytes:
    return LazyBytes(lambda offset, length: data[offset : offset + length], len(data))


# --- bsi --------------------------------------------------------------------------------------------------------------


def part(values: dict[int, int], least: int = 0, most: int | None = None, slices: int | None = None,
         there: int = 1, version: int = 1, count: int | None = None) -> bytes:  # fmt: skip
    """One part of a bsi payload: the rows of ``values`` with their numbers."""
    most = max(values.values(), default=0) if most is None else most
    bits = (most - least).bit_length() if slices is None else slices
    rows = [bitmap([row for row, v in values.items() if v - least >> bit & 1]) for bit in range(bits)]
    head = struct.pack(">BBqq", there, version, least, most) + bitmap(list(values))
    return head + struct.pack(">i", bits if count is None else count) + b"".join(rows)


def bsi(rows: int, *parts: bytes, version: int = 1) -> bytes:
    return struct.pack(">Bi", version, rows) + b"".join([*parts, b"\0", b"\0"][:2])


def bsi_reader(data: bytes, rows: int) -> BsiReader:
    return BsiReader(parse_type("BIGINT"), lambda o, n: data[o : o + n], len(data), rows)


VALUES = {0: 5, 2: 9, 3: 6, 5: 5, 7: 12}
BELOW = {1: 3, 6: 10, 8: 3}


@pytest.mark.parametrize(("least", "slices"), [(0, 4), (0, 5), (0, 63), (3, 4), (5, 3), (5, 7)])
def test_parts_that_begin_at_any_number_and_have_more_slices(least: int, slices: int) -> None:
    """Paimon begins at 0 and writes as many slices as it needs; its readers take others.

    A 64th slice, which no number needs, ended in an OverflowError.
    """
    data = bsi(10, part(VALUES, least, slices=slices), part(BELOW, min(least, 3), slices=slices))
    rows = [VALUES.get(i, -BELOW[i] if i in BELOW else None) for i in range(10)]
    check_every_comparison(bsi_reader(data, 10), rows, [*range(-13, 16)])
    places, numbers = bsi_reader(data, 10).numbers()
    assert dict(zip(places.tolist(), numbers.tolist(), strict=True)) == {
        i: v for i, v in enumerate(rows) if v is not None
    }
    assert places.tolist() == sorted(places.tolist())
    assert bsi_reader(data, 10).difference(bsi_reader(data, 10)) is None
    more = {**VALUES, 9: 5}
    assert bsi_reader(data, 10).difference(bsi_reader(bsi(10, part(more), part(BELOW)), 10)) is not None


def test_values_of_one_sign_or_none() -> None:
    for positive, negative in ((VALUES, {}), ({}, BELOW), ({}, {}), ({4: 0}, {}), ({4: 0}, {5: 1})):
        parts = [part(p) if p else b"\0" for p in (positive, negative)]
        rows = [positive.get(i, -negative[i] if i in negative else None) for i in range(10)]
        check_every_comparison(bsi_reader(bsi(10, *parts), 10), rows, [-11, -3, -1, 0, 1, 5, 12])


SECOND = 5 + len(part(VALUES))


@pytest.mark.parametrize(("data", "error", "offset"), [
    (bsi(10, part(VALUES), version=2), UnsupportedFeature, None),
    (bsi(10, part(VALUES), version=0), CorruptError, 0),
    (bsi(11, part(VALUES)), CorruptError, 1),
    (bsi(10, part(VALUES, there=2)), CorruptError, 5),
    (bsi(10, part(VALUES, version=2)), CorruptError, 5),
    (bsi(10, part(VALUES, version=0)), CorruptError, 5),
    (bsi(10, part(VALUES, most=-1, slices=4)), CorruptError, 5),
    (bsi(10, part(VALUES, least=-1, most=12, slices=4)), CorruptError, 5),
    (bsi(10, part(VALUES, least=5, most=4, slices=4)), CorruptError, 5),
    (bsi(10, part(VALUES), part(BELOW, there=9)), CorruptError, SECOND),
    (bsi(10, part(VALUES, slices=3)), CorruptError, 23 + len(bitmap(list(VALUES)))),
    (bsi(10, part(VALUES, slices=64)), CorruptError, 23 + len(bitmap(list(VALUES)))),
    (bsi(10, part(VALUES, count=-1)), CorruptError, 23 + len(bitmap(list(VALUES)))),
    (bsi(10, part(VALUES), part({5: 1})), CorruptError, SECOND + len(part({5: 1}))),
    (bsi(10, part({**VALUES, 10: 1})), CorruptError, 23 + 16),
    (bsi(10, part(VALUES))[:-1], CorruptError, SECOND),
    (bsi(10, part(VALUES))[:23] + b"\xff" * 60, CorruptError, 23),
])  # fmt: skip
def test_contradictions_of_a_bsi(data: bytes, error: type[Exception], offset: int | None) -> None:
    with pytest.raises(error) as e:
        bsi_reader(data, 10).test(Comparison("c", Op.GE, 0))
    if offset is not None:
        assert e.value.offset == offset  # type: ignore[attr-defined]


def test_the_head_of_a_bsi_is_its_first_five_bytes() -> None:
    for size, rows in ((0, None), (4, None), (5, 10), (6, 10), (99, 10)):
        assert BSI.stored_rows(lazy(bsi(10, part(VALUES))[:size])) == rows


def shown(index: Any, data: bytes, page: Page | None = EVERYTHING) -> Section:
    section = Section("it", 0, len(data))
    index.describe(section, lazy(data), parse_type("BIGINT"), page)
    return section


@pytest.mark.parametrize(("data", "offset"), [
    (bsi(10, part(VALUES), version=2), 0), (bsi(-1, part(VALUES)), 0), (bsi(10, part(VALUES, there=2)), 5),
    (bsi(10, part(VALUES, version=3)), 5), (bsi(10, part(VALUES, least=-1, most=12, slices=4)), 5),
    (bsi(10, part(VALUES, least=5, most=4, slices=4)), 5), (bsi(10, part({**VALUES, 10: 1})), 23 + 16),
    (bsi(10, part(VALUES), part(BELOW, there=9)), SECOND), (bsi(10, part(VALUES))[:23] + b"\xff" * 60, 23),
])  # fmt: skip
def test_what_inspect_says_of_a_bsi_that_contradicts_itself(data: bytes, offset: int) -> None:
    with pytest.raises(CorruptError) as e:
        shown(BSI, data)
    assert e.value.offset == offset


def test_inspect_reads_no_part_of_a_bsi_that_is_not_asked_for() -> None:
    section = shown(BSI, bsi(10, part(VALUES, there=9)), None)
    assert section.facts == {"version": 1, "rows": 10}
    assert [(s.name, s.offset, s.size) for s in section.children] == [("head", 0, 5)]
    section = shown(BSI, bsi(0))
    assert [(s.name, s.offset, s.size, s.facts) for s in section.children[1:]] == [
        ("values from 0", 5, 1, {"": "none"}), ("values below 0", 6, 1, {"": "none"}),
    ]  # fmt: skip
    section = shown(BSI, bsi(10, part({1: 0}), part(BELOW)))
    assert section.children[1].facts == {"smallest": 0, "largest": 0}
    assert section.children[1].size == len(part({1: 0})) and section.children[2].size == len(part(BELOW))


# --- range-bitmap -----------------------------------------------------------------------------------------------------


def chunk_header(key: int, code: int, at: int, size: int, length: int | None = None, width: int = 8,
                 version: int = 1) -> bytes:  # fmt: skip
    return struct.pack(">Bqiiiii", version, key, code, at, size, 8 * size if length is None else length, width)


def dictionary(chunks: Sequence[Sequence[int]], *, version: int = 1, head: int = 13, count: int | None = None,
               offsets: Sequence[int] | None = None, headers: Sequence[bytes] | None = None,
               offsets_length: int | None = None, headers_length: int | None = None) -> bytes:  # fmt: skip
    code = at = 0
    made = []
    for keys in chunks:
        made.append(chunk_header(keys[0], code, at, len(keys) - 1))
        code, at = code + len(keys), at + 8 * (len(keys) - 1)
    made = list(made if headers is None else headers)
    places = np.cumsum([0, *map(len, made)])[:-1].tolist() if offsets is None else offsets
    areas = b"".join(struct.pack(f">{len(keys) - 1}q", *keys[1:]) for keys in chunks)
    lengths = (4 * len(places) if offsets_length is None else offsets_length,
               sum(map(len, made)) if headers_length is None else headers_length)  # fmt: skip
    front = struct.pack(">iBiii", head, version, len(made) if count is None else count, *lengths)
    return front + struct.pack(f">{len(places)}i", *places) + b"".join(made) + areas


def slices(codes: dict[int, int], bits: int, *, version: int = 1, count: int | None = None, length: int | None = None,
           present: int | None = None, directory: int | None = None) -> bytes:  # fmt: skip
    parts = [bitmap([row for row, c in codes.items() if c >> bit & 1]) for bit in range(bits)]
    rows = bitmap(list(codes))
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    places = b"".join(struct.pack(">ii", start, len(p)) for start, p in zip(starts, parts, strict=False))
    front = struct.pack(">iBBii", 10 + len(places) if length is None else length, version,
                        bits if count is None else count, len(rows) if present is None else present,
                        len(places) if directory is None else directory)  # fmt: skip
    return front + places + rows + b"".join(parts)


def ranged(rows: int, keys: Sequence[int], middle: bytes, end: bytes, *, version: int = 1, distinct: int | None = None,
           header: int | None = None, dictionary_length: int | None = None) -> bytes:  # fmt: skip
    bounds = struct.pack(">qq", keys[0], keys[-1]) if keys else b""
    size = len(middle) if dictionary_length is None else dictionary_length
    head = struct.pack(">Bii", version, rows, len(keys) if distinct is None else distinct) + bounds
    head += struct.pack(">i", size)
    return struct.pack(">i", len(head) if header is None else header) + head + middle + end


KEYS = [3, 8, 9, 20, 21, 40]
CODES = {0: 3, 1: 0, 3: 5, 4: 1, 5: 1, 6: 4, 8: 2}
ROWS = [KEYS[CODES[i]] if i in CODES else None for i in range(9)]
CHUNKS = [KEYS[:1], KEYS[1:4], KEYS[4:]]
ALL = slices(CODES, 3)
AT = 4 + 29  # where the dictionary begins
GOOD = ranged(9, KEYS, dictionary(CHUNKS), ALL)
END = AT + len(dictionary(CHUNKS))
HEADERS = AT + 17 + 12


def ranged_reader(data: bytes, rows: int = 9) -> RangeBitmapReader:
    return RangeBitmapReader(parse_type("BIGINT"), lambda o, n: data[o : o + n], len(data), rows)


@pytest.mark.parametrize("chunks", [[KEYS], [[k] for k in KEYS], CHUNKS, [KEYS[:5], KEYS[5:]], [KEYS[:1], KEYS[1:]]])
@pytest.mark.parametrize("bits", [3, 4, 63])
def test_chunks_and_slices_of_any_number(chunks: list[list[int]], bits: int) -> None:
    data = ranged(9, KEYS, dictionary(chunks), slices(CODES, bits))
    check_every_comparison(ranged_reader(data), ROWS, [*range(2, 42)])
    made = ranged_reader(data)
    assert made.distinct() is not None and made.distinct().to_pylist() == KEYS
    for rows in (None, BitMap([0, 1, 2]), BitMap([2, 7]), BitMap([4, 5, 8]), BitMap(), BitMap(range(9))):
        chosen = [v for i, v in enumerate(ROWS) if rows is None or i in rows]
        held = sorted({v for v in chosen if v is not None})
        counts = made.value_counts(rows)
        assert counts is not None and counts.nulls == chosen.count(None)
        assert dict(zip(counts.values.to_pylist(), counts.counts.tolist(), strict=True)) == {
            v: chosen.count(v) for v in held
        }
        assert made.extremes(rows).to_pylist() == ([held[0], held[-1]] if len(held) > 1 else held)
        ranks = made.ranked(BitMap(range(9)) if rows is None else rows)
        assert ranks is not None
        places = [i for i, v in enumerate(ROWS) if v is not None and (rows is None or i in rows)]
        assert ranks.positions.tolist() == places
        assert [ranks.values[r] for r in ranks.ranks.tolist()] == [ROWS[i] for i in places]


@pytest.mark.parametrize(("data", "error", "offset"), [
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, version=2), UnsupportedFeature, None),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, header=12), CorruptError, 0),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, header=len(GOOD) - 3), CorruptError, 0),
    (ranged(9, KEYS, b"", b""), CorruptError, AT), (ranged(9, KEYS, dictionary(CHUNKS), b""), CorruptError, END),
    (ranged(8, KEYS, dictionary(CHUNKS), ALL), CorruptError, 5),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, distinct=10), CorruptError, 9),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, distinct=-1), CorruptError, 9),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, dictionary_length=-1), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, dictionary_length=len(GOOD) - AT + 1), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, version=0)), UnsupportedFeature, None),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, count=4)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, length=35)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, directory=16)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, present=-1)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 2)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 64)), CorruptError, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, present=len(ALL))), CorruptError, END + 14),
    (ranged(9, KEYS, dictionary(CHUNKS, version=2), ALL), UnsupportedFeature, None),
    (ranged(9, KEYS, dictionary(CHUNKS, head=14), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, count=2), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, offsets_length=16), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, headers_length=-1), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, headers_length=999), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary([], count=0), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary([[k, k + 1] for k in range(7)], count=7), ALL), CorruptError, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, offsets=[0, -1, 58]), ALL), CorruptError, HEADERS - 1),
    (ranged(9, KEYS, dictionary(CHUNKS, offsets=[0, 87, 58]), ALL), CorruptError, HEADERS + 87),
])  # fmt: skip
def test_contradictions_of_a_range_bitmap(data: bytes, error: type[Exception], offset: int | None) -> None:
    with pytest.raises(error) as e:
        ranged_reader(data).test(Comparison("c", Op.EQ, 9))
    if offset is not None:
        assert e.value.offset == offset  # type: ignore[attr-defined]


SECOND_CHUNK = HEADERS + 29
KEYS_AT = HEADERS + 3 * 29


@pytest.mark.parametrize(("second", "offset"), [
    (chunk_header(8, 1, 0, 2, version=2), SECOND_CHUNK), (chunk_header(8, -1, 0, 2), SECOND_CHUNK),
    (chunk_header(8, 1, -1, 2), SECOND_CHUNK), (chunk_header(8, 1, 0, -1), SECOND_CHUNK),
    (chunk_header(8, 1, 0, 2, -1), SECOND_CHUNK), (chunk_header(8, 4, 0, 2), SECOND_CHUNK),
    (chunk_header(8, 1, 9, 2), SECOND_CHUNK), (chunk_header(8, 1, 0, 2, 25), SECOND_CHUNK),
    (chunk_header(8, 1, 0, 2, 8), KEYS_AT), (chunk_header(8, 1, 8, 2, 15), KEYS_AT + 8),
])  # fmt: skip
def test_contradictions_of_a_chunk(second: bytes, offset: int) -> None:
    first, third = chunk_header(3, 0, 0, 0), chunk_header(21, 4, 16, 1)
    data = ranged(9, KEYS, dictionary(CHUNKS, headers=[first, second, third]), ALL)
    for ask in (lambda made: made.test(Comparison("c", Op.EQ, 9)), lambda made: made.distinct()):
        with pytest.raises(CorruptError) as e:
            ask(ranged_reader(data))
        assert e.value.offset == offset


def test_the_last_places_that_fit() -> None:
    """The last chunk ends with the dictionary and has the last code."""
    first, second = chunk_header(3, 0, 0, 0), chunk_header(8, 1, 0, 2)
    made = dictionary(CHUNKS, headers=[first, second, chunk_header(21, 4, 16, 1)])
    assert ranged_reader(ranged(9, KEYS, made, ALL)).distinct().to_pylist() == KEYS
    for third in (chunk_header(21, 5, 16, 1), chunk_header(21, 4, 17, 1), chunk_header(21, 4, 24, 1)):
        with pytest.raises(CorruptError, match="does not fit"):
            ranged_reader(ranged(9, KEYS, dictionary(CHUNKS, headers=[first, second, third]), ALL)).distinct()


def test_codes_without_a_key() -> None:
    """Slices may name a code that the dictionary does not have, and chunks may leave one out."""
    data = ranged(9, KEYS, dictionary(CHUNKS), slices({**CODES, 7: 6}, 3))
    for ask in (lambda made: made.value_counts(None), lambda made: made.ranked(BitMap(range(9))),
                lambda made: made.extremes(BitMap([7]))):  # fmt: skip
        with pytest.raises(CorruptError, match="of 6 values cannot have code 6"):
            ask(ranged_reader(data))
    first, third = chunk_header(3, 0, 0, 0), chunk_header(21, 4, 16, 1)
    for headers, match in (
        ([chunk_header(3, 1, 0, 0), chunk_header(8, 2, 0, 1), third], "do not start with code 0"),
        ([first, chunk_header(8, 1, 0, 1), third], "leave out codes"),
    ):
        with pytest.raises(CorruptError, match=match) as e:
            ranged_reader(ranged(9, KEYS, dictionary(CHUNKS, headers=headers), ALL)).distinct()
        assert e.value.offset == HEADERS


def test_a_range_bitmap_that_ends_with_the_length_of_its_header() -> None:
    for ask in (lambda data: ranged_reader(data).present(), lambda data: shown(RANGE_BITMAP, data)):
        with pytest.raises(CorruptError, match="a range-bitmap cannot have a header of 13 bytes") as e:
            ask(struct.pack(">i", 13))
        assert e.value.offset == 0


@pytest.mark.parametrize("bits", [0, 1])
def test_one_value_needs_no_slice(bits: int) -> None:
    data = ranged(3, [7], dictionary([[7]]), slices({0: 0, 2: 0}, bits))
    check_every_comparison(ranged_reader(data, 3), [7, None, 7], [6, 7, 8])
    assert ranged_reader(data, 3).value_counts(None).counts.tolist() == [2]  # type: ignore[union-attr]
    assert ranged_reader(data, 3).top_n(1, True, False) == BitMap([2])
    assert not any(s.fault for part in shown(RANGE_BITMAP, data).children for s in (part, *part.children))


def test_a_slice_is_read_where_the_directory_says() -> None:
    good = bytearray(GOOD)
    at = END + 14
    struct.pack_into(">i", good, at, 10**6)
    with pytest.raises(CorruptError) as e:
        ranged_reader(bytes(good)).test(Comparison("c", Op.EQ, 9))
    assert e.value.offset == END + 14 + 24, "where it is read, with those before it"
    wrong = bytearray(GOOD)
    start = END + 14 + 24 + len(bitmap(list(CODES)))
    assert wrong[start : start + 4] in (b"\x3a\x30\0\0", b"\x3b\x30\0\0")
    wrong[start] = 0
    with pytest.raises(CorruptError) as e:
        ranged_reader(bytes(wrong)).test(Comparison("c", Op.EQ, 9))
    assert e.value.offset == start
    with pytest.raises(CorruptError) as e:
        ranged_reader(ranged(9, KEYS, dictionary(CHUNKS), slices({**CODES, 9: 0}, 3))).present()
    assert e.value.offset == END + 14 + 24 + 9, "the first run container of a bitmap"


def test_a_bitmap_of_the_rows_without_a_byte() -> None:
    with pytest.raises(CorruptError) as e:
        ranged_reader(ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, present=0))).present()
    assert e.value.offset == END + 14 + 24


def test_the_head_of_a_range_bitmap() -> None:
    for size, rows in ((0, None), (8, None), (9, 9), (10, 9), (len(GOOD), 9)):
        assert RANGE_BITMAP.stored_rows(lazy(GOOD[:size])) == rows
    assert RANGE_BITMAP.fixed_bytes(GOOD) == END


def test_what_inspect_shows_of_a_range_bitmap() -> None:
    section = shown(RANGE_BITMAP, GOOD)
    assert section.facts == {"version": 1, "rows": 9, "values": 6}
    header, middle, end = section.children
    assert (header.size, header.facts) == (AT, {"smallest": "3", "largest": "40"})
    assert (middle.offset, middle.size, middle.facts) == (AT, END - AT, {"version": 1, "chunks": 3})
    assert [(s.name, s.offset, s.size) for s in middle.children] == [
        ("chunk offsets", AT + 17, 12), ("chunk headers", HEADERS, 87), ("keys", KEYS_AT, 24),
    ]  # fmt: skip
    assert (end.offset, end.size, end.facts) == (END, len(GOOD) - END, {"slices": 3})
    assert [(s.name, s.offset, s.facts.get("rows")) for s in end.children[:2]] == [
        ("directory", END, None), ("rows not NULL", END + 14 + 24, 7),
    ]  # fmt: skip
    assert [s.facts["rows"] for s in end.children[2:]] == [sum(c >> b & 1 for c in CODES.values()) for b in range(3)]
    without = shown(RANGE_BITMAP, GOOD, None)
    assert (
        all("rows" not in s.facts for s in without.children[2].children)
        and not without.children[1].children[2].children
    )
    empty = ranged(2, [], dictionary([]), slices({}, 1))
    assert not any(s.fault for part in shown(RANGE_BITMAP, empty).children for s in (part, *part.children))
    assert shown(RANGE_BITMAP, empty).children[0].facts == {}
    assert shown(RANGE_BITMAP, empty).facts == {"version": 1, "rows": 2, "values": 0}


@pytest.mark.parametrize(("data", "place", "offset"), [
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, version=2), None, 4),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, header=12), None, 0),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, header=len(GOOD) - 3), None, 0),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, distinct=10), None, 4),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, distinct=-1), None, 4),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, dictionary_length=-1), None, AT),
    (ranged(9, KEYS, dictionary(CHUNKS), ALL, dictionary_length=len(GOOD) - AT + 1), None, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, version=2), ALL), 1, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, count=-1), ALL), 1, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, offsets_length=-1), ALL), 1, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, headers_length=-1), ALL), 1, AT),
    (ranged(9, KEYS, dictionary(CHUNKS, headers_length=87 + 25), ALL), 1, AT),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, version=2)), 2, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, count=4)), 2, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, length=35)), 2, END),
    (ranged(9, KEYS, dictionary(CHUNKS), slices(CODES, 3, present=-1)), 2, END),
])  # fmt: skip
def test_what_inspect_says_of_a_range_bitmap_that_contradicts_itself(
    data: bytes, place: int | None, offset: int
) -> None:
    """The parts before are shown; damage of a part is said there."""
    if place is None:
        with pytest.raises(CorruptError) as e:
            shown(RANGE_BITMAP, data)
        assert e.value.offset == offset
    else:
        fault = shown(RANGE_BITMAP, data).children[place].fault
        assert fault is not None and fault.offset == offset


@pytest.mark.parametrize(("entry", "value"), [(0, -4096), (4, -1), (4, 10**6), (0, 10**6), (8, 10**6), (12, -1)])
def test_a_slice_that_does_not_fit_is_shown_with_its_fault(entry: int, value: int) -> None:
    """In a summary as well, which counts no rows."""
    data = bytearray(GOOD)
    struct.pack_into(">i", data, END + 14 + entry, value)
    for page in (EVERYTHING, None):
        parts = shown(RANGE_BITMAP, bytes(data), page).children[2].children
        assert [s.fault is not None for s in parts] == [False, False, entry < 8, entry >= 8, False]
        (bad,) = [s for s in parts if s.fault is not None]
        assert bad.fault == Fault(f"{bad.size:,} bytes do not fit", bad.offset)
    struct.pack_into(">i", data, END + 14, 0)
    struct.pack_into(">i", data, END + 18, 0)
    assert shown(RANGE_BITMAP, bytes(data)).children[2].children[2].fault == Fault(
        "a bitmap ends inside its header", END + 14 + 24 + len(bitmap(list(CODES)))
    )


def test_a_dictionary_without_room_for_its_keys_has_a_fault_in_a_summary_too() -> None:
    data = ranged(9, KEYS, dictionary(CHUNKS, headers_length=87 + 25), ALL)
    fault = shown(RANGE_BITMAP, data, None).children[1].fault
    assert fault is not None and fault.offset == AT
    assert shown(RANGE_BITMAP, GOOD, None).children[1].fault is None


def test_inspect_shows_the_header_of_a_range_bitmap_that_ends_with_it() -> None:
    section = shown(RANGE_BITMAP, ranged(9, KEYS, b"", b""))
    assert section.children[0].facts == {"smallest": "3", "largest": "40"}
    assert [(s.name, s.size, s.fault is not None) for s in section.children[1:]] == [
        ("dictionary", 0, True), ("slices", 0, True),
    ]  # fmt: skip
