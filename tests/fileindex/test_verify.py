"""A stored index against the column: the same meaning in other bytes is right, another meaning is wrong in any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import BitlakeError
from bitlake.fileindex.bloom_filter import BloomWriter
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.tools.verify.indexes import IndexCheck
from bitlake.types.datatypes import parse_type

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
    for start in range(0, len(column), 128):
        check.add(column.slice(start, 128))
    return check.finish()


@pytest.mark.parametrize(("index", "kind", "usual", "other"), KINDS)
def test_other_options_are_no_fault(index: str, kind: str, usual: dict[str, str], other: dict[str, str]) -> None:
    column = COLUMNS[kind]
    assert checked(index, kind, column, usual, payload(index, kind, column, usual)) is None
    assert checked(index, kind, column, usual, payload(index, kind, column, other)) is None


@pytest.mark.parametrize(("index", "kind", "usual", "other"), KINDS)
@pytest.mark.parametrize("row", [0, 3, 250, ROWS - 1])
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
