"""A stored index against the column: the same meaning in other bytes is right, another meaning is wrong in any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive

from bitlake.errors import BitlakeError
from bitlake.fileindex.bloom_filter import BloomWriter
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.fileindex.source import index_source
from bitlake.tools.verify.indexes import IndexCheck
from bitlake.types.datatypes import DataField, parse_type
from tests.fileindex.test_bit_slice_payloads import dictionary, ranged, slices

ROWS = 500
INTS = pa.array([None if i % 7 == 3 else (i * i) % 97 - 40 for i in range(ROWS)], pa.int64())
TEXTS = pa.array([None if i % 11 == 5 else f"text {i * i % 59}" for i in range(ROWS)])
FLOATS = pa.array([float("nan"), -0.0, 0.0, None, *np.linspace(-3, 3, ROWS - 4).tolist()])
COLUMNS = {"BIGINT": INTS, "STRING": TEXTS, "DOUBLE": FLOATS}
KINDS: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    ("bitmap", "BIGINT", {}, {"version": "1"}),
    ("bitmap", "STRING", {}, {"index-block-size": "64b"}),
    ("bitmap", "DOUBLE", {}, {"version": "1"}),
    ("range-bitmap", "BIGINT", {}, {"chunk-size": "32b"}),
    ("range-bitmap", "STRING", {}, {"chunk-size": "64b"}),
    ("range-bitmap", "DOUBLE", {}, {"chunk-size": "0b"}),
    ("bsi", "BIGINT", {}, {}),
    ("bloom-filter", "STRING", {}, {"items": "5000", "fpp": "0.01"}),
]


def payload(index: str, kind: str, column: Any, options: dict[str, str]) -> bytes:
    writer = INDEX_TYPES[index].writer(parse_type(kind), options)
    writer.add(column)
    return writer.finish()


def checked(index: str, kind: str, column: Any, options: dict[str, str], stored: bytes) -> str | None:
    check = IndexCheck(parse_type(kind), index, options, stored)
    source = index_source("v", [DataField(0, "v", parse_type(kind))])
    assert source is not None
    for start in range(0, len(column), 128):
        check.add(source, column.slice(start, 128))
    return check.finish()


@pytest.mark.parametrize(("index", "kind", "usual", "other"), KINDS)
def test_other_options_are_no_fault(index: str, kind: str, usual: dict[str, str], other: dict[str, str]) -> None:
    column = COLUMNS[kind]
    assert checked(index, kind, column, usual, payload(index, kind, column, usual)) is None
    assert checked(index, kind, column, usual, payload(index, kind, column, other)) is None


@pytest.mark.parametrize(("index", "kind", "usual", "other"), KINDS)
@pytest.mark.parametrize("row", [0, exhaustive(3), exhaustive(250), ROWS - 1])
def test_one_other_value_is_a_fault(
    index: str, kind: str, usual: dict[str, str], other: dict[str, str], row: int
) -> None:
    column = COLUMNS[kind]
    values = column.to_pylist()
    values[row] = {"BIGINT": 1234, "STRING": "never", "DOUBLE": 99.5}[kind]
    changed = pa.array(values, column.type)
    for options in (usual, other):
        # The index was made before the row became what it is.
        assert checked(index, kind, changed, usual, payload(index, kind, column, options)) is not None
        values[row] = None
        gone = pa.array(values, column.type)
        if index != "bloom-filter" and column[row].is_valid:
            assert checked(index, kind, gone, usual, payload(index, kind, column, options)) is not None
        values[row] = changed[row].as_py()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("index", "kind"), [("bitmap", "BIGINT"), ("range-bitmap", "BIGINT"), ("bsi", "BIGINT")])
def test_each_byte_of_a_small_payload(index: str, kind: str) -> None:
    """Flipped, it is an error or a fault; unless readers do not look at it, as at the lengths of bitmaps of one row."""
    column = INTS.slice(0, 12)
    stored = payload(index, kind, column, {})
    missed = []
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 0xFF
        try:
            if checked(index, kind, column, {}, bytes(damaged)) is None:
                missed.append(at)
        except BitlakeError:
            continue
    assert len(missed) <= {"bitmap": 4 * 12, "range-bitmap": 16, "bsi": 8}[index], missed


def test_a_filter_that_was_filled_with_more_is_no_fault() -> None:
    more = pa.concat_arrays([TEXTS, pa.array(["x", "y"])])
    assert checked("bloom-filter", "STRING", TEXTS, {}, payload("bloom-filter", "STRING", more, {})) is None


def test_a_filter_of_no_shape() -> None:
    for broken in (b"", b"\0\0\0\1", b"\0\0\0\0" + b"\xff" * 8):
        with pytest.raises(BitlakeError):
            checked("bloom-filter", "STRING", TEXTS, {}, broken)


def test_hashes_are_of_distinct_values() -> None:
    writer = BloomWriter(parse_type("STRING"), {})
    writer.add(TEXTS)
    writer.add(TEXTS)
    assert len(writer.hashes()) == len(TEXTS.drop_null().unique())


@pytest.mark.parametrize("index", ["bsi", "range-bitmap"])
@pytest.mark.parametrize(("rows", "message"), [
    ([5, 1, 7, 7], "it says that row 1 is not NULL, and it is"),
    ([5, None, 7, None], "it says that row 3 is NULL, and it is not"),
    ([6, None, 7, 7], "it says another value of row 0, and of 0 more"),
    ([5, None, 8, 9], "it says another value of row 2, and of 1 more"),
    ([5, None, 7, 7], None),
])  # fmt: skip
def test_the_first_row_that_differs(index: str, rows: list[int | None], message: str | None) -> None:
    stored = payload(index, "BIGINT", pa.array(rows, pa.int64()), {})
    assert checked(index, "BIGINT", pa.array([5, None, 7, 7], pa.int64()), {}, stored) == message


@pytest.mark.parametrize("row", [0, 3, 69])
def test_a_key_that_a_dictionary_holds_and_does_not_find(row: int) -> None:
    """Key 3 stands after the first key of its chunk, 10, which no row has; more rows than are looked up."""
    rows = [3 if i == row else (20, 30)[i % 2] for i in range(70)]
    keys = [10, 3, 20, 30]
    stored = ranged(70, keys, dictionary([keys]), slices({i: keys.index(v) for i, v in enumerate(rows)}, 2))
    expected = f"asked for a value it finds other rows, such as {row}"
    assert checked("range-bitmap", "BIGINT", pa.array(rows), {}, stored) == expected


def test_rows_above_a_key_are_looked_up_as_well() -> None:
    """Key 8 is found; 3, which follows it in the dictionary, is not greater."""
    stored = ranged(3, [8, 3, 9], dictionary([[8, 3, 9]]), slices({0: 0, 1: 2, 2: 1}, 2))
    expected = "asked for a value it finds other rows, such as 2"
    assert checked("range-bitmap", "BIGINT", pa.array([8, 9, 3]), {}, stored) == expected


def test_the_bounds_in_the_header_of_a_range_bitmap() -> None:
    """Each byte of the smallest and largest key counts; what follows them, such as unused bytes, does not."""
    column = pa.array([3, 8, None, 300])
    keys, codes = [3, 8, 300], slices({0: 0, 1: 1, 3: 2}, 2)
    good = ranged(4, keys, dictionary([keys]), codes)
    for stored in (good, ranged(4, keys, dictionary([[3], [8], [300]]), codes),
                   ranged(4, keys, dictionary([keys]) + bytes(1 << 24), codes)):  # fmt: skip
        assert checked("range-bitmap", "BIGINT", column, {}, stored) is None
    for at in range(13, 29):
        stored = good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :]
        expected = "its smallest or largest value is not the column's"
        assert checked("range-bitmap", "BIGINT", column, {}, stored) == expected
