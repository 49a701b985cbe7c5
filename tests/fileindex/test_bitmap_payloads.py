"""bitmap payloads made field by field: unusual ones are read, contradictions are refused where they are.

The payloads are put together here, without the product's writer.  Source: index-format spec, section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, IsNull, Op
from bitlake.fileindex.bitmap import BITMAP, BitmapReader
from bitlake.fileindex.payload import Page, Section
from bitlake.types import parse_type
from tests.fileindex.payloads import check_every_comparison
from tests.fileindex.test_bit_slice_payloads import bitmap, lazy

VALUES = {1: 3, 0: 8, 4: 8, 5: 8, 3: 9, 6: 9}
ROWS = [VALUES.get(i) for i in range(9)]
NULLS = bitmap([2, 7, 8])
EIGHT, NINE = bitmap([0, 4, 5]), bitmap([3, 6])
BODY = NULLS + EIGHT + NINE
ENTRIES = [(3, -2, -1), (8, len(NULLS), len(EIGHT)), (9, len(NULLS) + len(EIGHT), len(NINE))]


def first(*entries: tuple[int, int], rows: int = 9, values: int = 3, nulls: int | None = 0, body: bytes = BODY,
          version: int = 1, has_nulls: int | None = None) -> bytes:  # fmt: skip
    """A payload of version 1: keys with offsets."""
    head = struct.pack(">BiiB", version, rows, values, nulls is not None if has_nulls is None else has_nulls)
    head += b"" if nulls is None else struct.pack(">i", nulls)
    return head + b"".join(struct.pack(">ii", *e) for e in entries or [e[:2] for e in ENTRIES]) + body


def second(blocks: Sequence[Sequence[tuple[int, int, int]]], *, rows: int = 9, values: int = 3,
           nulls: tuple[int, int] | None = (0, len(NULLS)), body: bytes = BODY, version: int = 2,
           count: int | None = None, directory: Sequence[tuple[int, int]] | None = None, size: int | None = None,
           counts: dict[int, int] | None = None) -> bytes:  # fmt: skip
    """A payload of version 2: blocks of keys with offsets and lengths."""
    made = [
        struct.pack(">i", (counts or {}).get(i, len(b))) + b"".join(struct.pack(">iii", *e) for e in b)
        for i, b in enumerate(blocks)
    ]
    starts = np.cumsum([0, *map(len, made)]).tolist()
    places = [(b[0][0], s) for b, s in zip(blocks, starts, strict=False)] if directory is None else directory
    head = struct.pack(">BiiB", version, rows, values, nulls is not None)
    head += b"" if nulls is None else struct.pack(">ii", *nulls)
    head += struct.pack(">i", len(places) if count is None else count) + b"".join(
        struct.pack(">ii", *p) for p in places
    )
    return head + struct.pack(">i", starts[-1] if size is None else size) + b"".join(made) + body


def reader(data: bytes, rows: int = 9) -> BitmapReader:
    return BitmapReader(parse_type("INT"), lambda o, n: data[o : o + n], len(data), rows)


TWO = [ENTRIES[:1], ENTRIES[1:]]
START = 10 + 8 + 4 + 16 + 4
"""Where the first of two blocks begins."""
BODY_AT = START + 16 + 28


@pytest.mark.parametrize("data", [
    first(), second([ENTRIES]), second(TWO), second([[e] for e in ENTRIES]),
    second([ENTRIES, []], directory=[(3, 0), (100, 40)]), second([[], ENTRIES], directory=[(-9, 0), (3, 4)]),
    first((8, len(NULLS)), (3, -2), (9, len(NULLS) + len(EIGHT))),
    second([[(3, -2, -1), (8, 0, len(EIGHT)), (9, len(EIGHT) + len(NULLS), len(NINE))]], body=EIGHT + NULLS + NINE,
           nulls=(len(EIGHT), len(NULLS))),
    second([[(3, 0, len(bitmap([1]))), *((k, o + len(bitmap([1])), n) for k, o, n in ENTRIES[1:])]],
           body=bitmap([1]) + BODY, nulls=(len(bitmap([1])), len(NULLS))),
    second([[(3, -2, 18), *ENTRIES[1:]]]),
    second([[(3, -2, -1), (8, 0, len(EIGHT)), (9, len(EIGHT), len(NINE))]], body=EIGHT + NINE + NULLS,
           nulls=(len(EIGHT + NINE), len(NULLS))),
])  # fmt: skip
def test_blocks_and_orders_of_any_kind(data: bytes) -> None:
    check_every_comparison(reader(data), ROWS, [2, 3, 4, 8, 9, 10])
    made = reader(data)
    assert sorted(made.distinct().to_pylist()) == [3, 8, 9]
    assert made.nulls() == BitMap([2, 7, 8]) and made.present() == BitMap(VALUES)
    for rows in (None, BitMap(range(9)), BitMap([0, 1, 2]), BitMap([7]), BitMap([1]), BitMap([4, 5, 6, 8]), BitMap()):
        chosen = [v for i, v in enumerate(ROWS) if rows is None or i in rows]
        counts = made.value_counts(rows)
        assert counts is not None and counts.nulls == chosen.count(None)
        found = dict(zip(counts.values.to_pylist(), counts.counts.tolist(), strict=True))
        assert {k: n for k, n in found.items() if n} == {v: chosen.count(v) for v in set(chosen) if v is not None}
    assert BITMAP.stored_rows(lazy(data)) == 9
    described = shown(data)
    assert described.facts["values"] == 3 and not any(s.fault for s in flat(described))
    facts = {s.name: s.facts for s in flat(described)}
    assert facts["NULL"]["rows"] == 3 and facts["8"]["rows"] == 3 and facts["9"]["rows"] == 2


def test_one_null_or_none_and_no_value() -> None:
    """`inspect` called an index of version 1 damaged that needs no bitmap at all."""
    one = second([[(3, 0, len(bitmap([0, 1])))]], rows=3, values=1, nulls=(-3, 18), body=bitmap([0, 1]))
    old = first((3, 0), rows=3, values=1, nulls=-3, body=bitmap([0, 1]))
    for data in (one, old):
        check_every_comparison(reader(data, 3), [3, 3, None], [2, 3, 4])
        assert {s.name: s.facts for s in flat(shown(data))}["NULL"] == {"row": 2}
    for data in (
        second([[(3, -1, -1)]], rows=1, values=1, nulls=None, body=b""),
        first((3, -1), rows=1, values=1, nulls=None, body=b""),
    ):
        check_every_comparison(reader(data, 1), [3], [2, 3, 4])
        assert {s.name: s.facts for s in flat(shown(data))}["3"] == {"row": 0}
    alone = struct.pack(">BiiBi", 1, 1, 0, 1, -1)
    check_every_comparison(reader(alone, 1), [None], [3])
    assert [(s.name, s.facts) for s in flat(shown(alone))][3:] == [("NULL", {"row": 0})]
    empty = struct.pack(">BiiBi", 1, 3, 0, 1, 0) + bitmap([0, 1, 2])
    for data in (second([], rows=3, values=0, nulls=(0, len(bitmap([0, 1, 2]))), body=bitmap([0, 1, 2])), empty):
        check_every_comparison(reader(data, 3), [None] * 3, [3])


CASES: list[tuple[bytes, type[Exception], int | None]] = [
    (second(TWO, version=3), UnsupportedFeature, None),
    (second(TWO, version=0), CorruptError, 0),
    (first(has_nulls=2), CorruptError, 0),
    (second(TWO, rows=10), CorruptError, 1),
    (second(TWO, values=10), CorruptError, 5),
    (second(TWO, values=-1), CorruptError, 5),
    (second(TWO, count=4), CorruptError, 18),
    (second(TWO, count=-1), CorruptError, 18),
    (second(TWO, values=1), CorruptError, 18),
    (second(TWO, size=-1), CorruptError, START),
    (second(TWO, size=44 + len(BODY) + 1), CorruptError, START),
    (second(TWO, directory=[(3, 1), (8, 16)]), CorruptError, START),
    (second(TWO, directory=[(3, 0), (8, 3)]), CorruptError, START),
    (second(TWO, directory=[(3, 0), (8, 41)]), CorruptError, START),
    (second(TWO, directory=[(8, 0), (8, 16)]), CorruptError, START),
    (second(TWO, directory=[(9, 0), (8, 16)]), CorruptError, START),
    (second([ENTRIES[:1], [(8, len(NULLS) + 1, len(EIGHT)), ENTRIES[2]]]), CorruptError, BODY_AT + len(NULLS) + 1),
    (second([ENTRIES[:1], [(8, len(BODY), 8), ENTRIES[2]]]), CorruptError, BODY_AT + len(BODY)),
    (second([ENTRIES[:1], [(8, len(NULLS), len(EIGHT) - 1), ENTRIES[2]]]), CorruptError, BODY_AT + len(NULLS) + 16),
    (second([ENTRIES[:1], [(8, -10, -1), ENTRIES[2]]]), CorruptError, None),
    (first((8, 0), (3, -2), (9, len(NULLS) + len(EIGHT))), CorruptError, 14),
    (first((9, len(NULLS) + len(EIGHT)), (3, -2), (8, len(NULLS))), CorruptError, 14),
    (first((3, -2), (8, len(NULLS)), (9, len(BODY))), CorruptError, 14),
    (first((3, -2), (8, -10), (9, len(NULLS))), CorruptError, None),
]


@pytest.mark.parametrize(("data", "error", "offset"), CASES)
def test_contradictions(data: bytes, error: type[Exception], offset: int | None) -> None:
    with pytest.raises(error) as e:
        reader(data).test(Comparison("c", Op.EQ, 8))
    if offset is not None:
        assert e.value.offset == offset  # type: ignore[attr-defined]


def test_blocks_that_hold_other_numbers_of_values() -> None:
    for data, ask in (
        (second(TWO, counts={1: 3}), lambda made: made.test(Comparison("c", Op.EQ, 8))),
        (second(TWO, counts={1: -1}), lambda made: made.test(Comparison("c", Op.EQ, 8))),
        (second(TWO, counts={1: 1}), lambda made: made.distinct()),
        (second(TWO, values=4), lambda made: made.distinct()),
    ):
        with pytest.raises(CorruptError):
            ask(reader(data))


def test_the_last_rows_that_exist() -> None:
    data = second([[(3, -9, -1), (8, 0, len(EIGHT))]], values=2, nulls=None, body=EIGHT)
    for made, rows in ((Comparison("c", Op.EQ, 3), [8]), (In("c", (3, 8)), [0, 4, 5, 8])):
        selection = reader(data).test(made)
        assert selection is not None and selection.positions(9).tolist() == rows
    with pytest.raises(CorruptError, match="names row 9 of 9"):
        reader(second([[(3, -10, -1)]], values=1, nulls=None, body=b"")).test(Comparison("c", Op.EQ, 3))
    with pytest.raises(CorruptError, match="row 9 of 9 rows"):
        reader(second([[(3, 0, len(bitmap([8, 9])))]], values=1, nulls=None, body=bitmap([8, 9]))).test(
            Comparison("c", Op.EQ, 3)
        )
    with pytest.raises(CorruptError, match="row 9 of 9 rows"):
        reader(second(TWO, nulls=(0, len(bitmap([9, 1]))), body=bitmap([9, 1]) + BODY)).test(IsNull("c"))


def test_a_bitmap_of_one_byte_spoils_no_other_value() -> None:
    made = reader(first((3, -2), (8, len(NULLS)), (9, len(NULLS) + 1)))
    selection = made.test(Comparison("c", Op.EQ, 3))
    assert selection is not None and selection.positions(9).tolist() == [1]
    with pytest.raises(CorruptError):
        made.test(Comparison("c", Op.EQ, 8))


def test_the_head_holds_the_rows() -> None:
    for size, rows in ((0, None), (4, None), (5, 9), (6, 9)):
        assert BITMAP.stored_rows(lazy(second(TWO)[:size])) == rows
    assert BITMAP.fixed_bytes(second(TWO)) == 3 * 20


# --- what inspect shows -----------------------------------------------------------------------------------------------


def shown(data: bytes, page: Page | None = Page(0, 100)) -> Section:  # noqa: B008
    section = Section("it", 0, len(data))
    BITMAP.describe(section, lazy(data), parse_type("INT"), page)
    return section


def flat(section: Section) -> list[Section]:
    return [part for child in section.children for part in (child, *flat(child))]


def test_the_parts_of_both_versions() -> None:
    old, new = shown(first()), shown(second(TWO))
    assert [(s.name, s.offset, s.size) for s in old.children if s.offset is not None] == [
        ("head", 0, 10), ("values", 14, 24), ("bitmaps", 38, len(BODY)),
    ]  # fmt: skip
    assert [(s.name, s.offset, s.size) for s in new.children if s.offset is not None] == [
        ("head", 0, 10), ("block index", 18, 24), ("blocks", START, 44), ("bitmaps", BODY_AT, len(BODY)),
    ]  # fmt: skip
    assert new.children[0].facts == {"has NULLs": True} and new.children[1].facts == {
        "blocks": 2,
        "bytes of blocks": 44,
    }
    assert new.facts == {"version": 2, "rows": 9, "values": 3}
    facts = {s.name: s.facts for s in flat(new)}
    assert facts["3"] == {"row": 1} and facts["block 1"] == {"values": 2}
    assert facts["8"] == {"rows": 3, "bitmap at": BODY_AT + len(NULLS), "bytes": len(EIGHT)}
    facts = {s.name: s.facts for s in flat(old)}
    assert facts["9"] == {"rows": 2, "bitmap at": 38 + len(NULLS) + len(EIGHT), "bytes": len(NINE)}
    assert facts["NULL"]["bitmap at"] == 38


@pytest.mark.parametrize(("page", "names", "left"), [
    (Page(0, 1), ["3"], 2), (Page(1, 1), ["8"], 2), (Page(1, 2), ["8", "9"], 1), (Page(2, 5), ["9"], 2),
    (Page(3, 5), [], 3), (Page(0, 0), [], 3), (Page(0, 3), ["3", "8", "9"], 0),
])  # fmt: skip
def test_pages(page: Page, names: list[str], left: int) -> None:
    for data, place in ((first(), "values"), (second(TWO), "blocks"), (second([[e] for e in ENTRIES]), "blocks")):
        section = shown(data, page)
        assert [s.name for s in flat(section) if s.name.isdigit()] == names
        assert {s.name: s.more for s in flat(section)}[place] == left
        blocks = [s for s in flat(section) if s.name.startswith("block ") and s.name != "block index"]
        assert all(s.children for s in blocks)


@pytest.mark.parametrize(("data", "offset"), [
    (second(TWO, version=3), 0), (second(TWO, version=0), 0), (first(has_nulls=2), 0),
    (second(TWO, rows=-1, values=-1), 0),
    (second(TWO, values=10), 0), (second(TWO, values=-1), 0), (second(TWO, count=4), 18), (second(TWO, count=-1), 18),
    (second(TWO, size=-1), START), (second(TWO, size=45 + len(BODY)), START),
    (second(TWO, directory=[(3, 0), (8, 3)]), START), (second(TWO, directory=[(3, 0), (8, 41)]), START),
    (second(TWO, counts={1: -1}), START + 16), (second(TWO, counts={1: 4}), START + 16),
])  # fmt: skip
def test_what_inspect_says_of_contradictions(data: bytes, offset: int) -> None:
    with pytest.raises(CorruptError) as e:
        shown(data)
    assert e.value.offset == offset


def test_damage_of_one_bitmap_is_shown_at_its_value() -> None:
    for wrong, offset in (
        ((8, len(NULLS), 0), len(NULLS)),
        ((8, len(NULLS), -5), len(NULLS)),
        ((8, len(NULLS) + 1, len(EIGHT)), len(NULLS) + 1),
    ):
        section = shown(second([ENTRIES[:1], [wrong, ENTRIES[2]]]))
        faults: dict[str, Any] = {s.name: s.fault for s in flat(section) if s.fault is not None}
        assert set(faults) == {"8"} and faults["8"].offset == BODY_AT + offset
    section = shown(second(TWO, counts={1: 3}))
    assert [s.name for s in flat(section) if s.fault is not None] == ["block 1"]


@pytest.mark.parametrize(("data", "rows"), [
    (second([], rows=0, values=0, nulls=None, body=b""), []), (struct.pack(">BiiB", 1, 0, 0, 0), []),
    (second([], rows=1, values=0, nulls=(-1, 18), body=b""), [None]),
    (second([[(3, -1, -1), (4, -2, -1)], []], rows=2, values=2, nulls=None, directory=[(3, 0), (9, 28)], body=b""),
     [3, 4]),
    (second([[(3, -1, -1)]], rows=1, values=1, nulls=None, body=b""), [3]),
])  # fmt: skip
def test_payloads_that_end_with_what_is_read(data: bytes, rows: list[int | None]) -> None:
    made = reader(data, len(rows))
    check_every_comparison(made, rows, [2, 3, 9, 10])
    counts = made.value_counts(None)
    assert counts is not None and counts.nulls == rows.count(None) and counts.counts.sum() == len(rows) - counts.nulls
    assert not any(s.fault for s in flat(shown(data)))


def test_bytes_before_the_bitmap_of_the_nulls() -> None:
    """An offset counts from the body's start, wherever a bitmap lies; `inspect` added them to the NULLs' bytes."""
    entries = [(k, o + 2 if o >= 0 else o) for k, o, _ in ENTRIES]
    data = first(*entries, nulls=2, body=b"\0\0" + BODY)
    check_every_comparison(reader(data), ROWS, [2, 3, 8, 9])
    facts = {s.name: s.facts for s in flat(shown(data))}
    assert facts["NULL"] == {"rows": 3, "bitmap at": 40, "bytes": len(NULLS)}
    assert facts["8"] == {"rows": 3, "bitmap at": 40 + len(NULLS), "bytes": len(EIGHT)}


def test_a_range_reads_keys_and_bitmaps_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above it, the index does not answer.  Rows that are stored without a bitmap take nothing."""
    keys, bitmaps = 24, len(EIGHT) + len(NINE)
    assert bitmaps > keys
    for limit, op, value, rows in (
        (keys, Op.LT, 8, [1]), (keys - 1, Op.LT, 8, None), (bitmaps, Op.GE, 3, [0, 1, 3, 4, 5, 6]),
        (bitmaps - 1, Op.GE, 3, None), (bitmaps - 1, Op.GE, 9, [3, 6]),
    ):  # fmt: skip
        monkeypatch.setattr("bitlake.fileindex.bitmap._SCAN_BYTES", limit)
        found = reader(first()).test(Comparison("c", op, value))
        assert (None if found is None else found.positions(9).tolist()) == rows, (limit, op, value)


def test_the_first_bitmap_of_a_first_version_without_nulls() -> None:
    """It begins where the values end, at offset 0, and ends where the next one begins."""
    data = first((3, -2), (8, 0), (9, len(EIGHT)), nulls=None, body=EIGHT + NINE)
    facts = {s.name: s.facts for s in flat(shown(data))}
    assert facts["8"] == {"rows": 3, "bitmap at": 34, "bytes": len(EIGHT)}
    assert facts["9"] == {"rows": 2, "bitmap at": 34 + len(EIGHT), "bytes": len(NINE)}


@pytest.mark.parametrize("base", [0, 1000])
def test_every_part_of_both_versions_with_its_place(base: int) -> None:
    """Places count from the start of the file, in which the payload begins at ``base``."""

    def parts(data: bytes) -> list[Any]:
        section = Section("it", base, len(data), base=base)
        BITMAP.describe(section, lazy(data), parse_type("INT"), Page())
        return [(s.name, s.offset, s.size, s.facts) for s in flat(section)]

    def value(text: str, body: int, offset: int, rows: Sequence[int]) -> Any:
        facts = {"rows": len(rows), "bitmap at": base + body + offset, "bytes": len(bitmap(rows))}
        return text, None, None, facts

    def values(body: int) -> list[Any]:
        eight = value("8", body, len(NULLS), [0, 4, 5])
        return [("3", None, None, {"row": 1}), eight, value("9", body, len(NULLS + EIGHT), [3, 6])]

    head = ("head", base, 10, {"has NULLs": True})
    assert parts(first()) == [
        head, ("values", base + 14, 24, {"": 3}), *values(38), ("bitmaps", base + 38, len(BODY), {}),
        value("NULL", 38, 0, [2, 7, 8]),
    ]  # fmt: skip
    assert parts(second(TWO)) == [
        head, ("block index", base + 18, 24, {"blocks": 2, "bytes of blocks": 44}),
        ("blocks", base + START, 44, {"": 2}), ("block 0", base + START, 16, {"values": 1}), values(BODY_AT)[0],
        ("block 1", base + START + 16, 28, {"values": 2}), *values(BODY_AT)[1:],
        ("bitmaps", base + BODY_AT, len(BODY), {}), value("NULL", BODY_AT, 0, [2, 7, 8]),
    ]  # fmt: skip
