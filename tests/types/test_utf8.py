"""Text that is not UTF-8 is found wherever Arrow holds it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bitlake.types.utf8 import is_utf8, java_text

PIECES = [
    b"",
    b"a",
    b"plain text",
    "é".encode(),
    "日本".encode(),
    "😀".encode(),
    b"\xff",
    b"\xe6\x97",
    b"\xa5",
    b"\x00",
]


def text(values: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Arrow text of any bytes."""
    if kind == pa.large_string():
        return pa.array(values, pa.large_binary()).view(kind)
    return pa.array(values, pa.binary()).view(pa.string())


def valid(values: list[bytes | None]) -> bool:
    try:
        for value in values:
            (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_each_value_counts_alone_and_only_those_of_a_slice(seed: int) -> None:
    draw = random.Random(seed)
    values = [draw.choice([None, *PIECES[: draw.choice((6, 10))]]) for _ in range(draw.randrange(30))]
    start = draw.randrange(len(values) + 1)
    length = draw.randrange(len(values) - start + 1)
    part = values[start : start + length]
    for kind in (pa.string(), pa.large_string()):
        assert is_utf8(text(values, kind).slice(start, length)) == valid(part)
    assert is_utf8(pa.chunked_array([text(part), text([b"x"])])) == valid(part)
    coded = text(part)
    codes = pa.DictionaryArray.from_arrays(pa.array(range(len(part)), pa.int32()), coded)
    assert is_utf8(codes) == is_utf8(pa.chunked_array([codes, codes])) == valid(part)


@pytest.mark.parametrize(("value", "expected"), [(b"ok", True), ("日".encode(), True), (b"\xff", False)])
def test_members_count(value: bytes, expected: bool) -> None:
    column = text([value, b"x"])
    offsets = pa.array([0, 1, 2], pa.int32())
    assert is_utf8(pa.StructArray.from_arrays([column], ["a"])) is expected
    lists = pa.ListArray.from_arrays(offsets, column)
    assert is_utf8(lists) is expected
    assert is_utf8(lists.slice(1))
    keys = pa.MapArray.from_arrays(offsets, column, pa.array([1, 2]))
    assert is_utf8(keys) is expected
    assert is_utf8(keys.slice(1))
    assert is_utf8(pa.MapArray.from_arrays(offsets, pa.array([1, 2]), lists)) is expected


def test_bytes_that_spell_a_character_only_together_are_not_text() -> None:
    assert not is_utf8(text([b"\xe6\x97", b"\xa5"]))
    assert is_utf8(pa.array([1, 2]))
    assert is_utf8(pa.array([b"\xff"]))


@pytest.mark.parametrize(
    ("stored", "decoded"),
    [
        (b"\xff a", "\ufffd a"),
        (b"\xe6\x97b", "\ufffdb"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
        ("日本".encode(), "日本"),
    ],
)
def test_other_bytes_become_java_s_replacement_characters(stored: bytes, decoded: str) -> None:
    column = text([b"a", None, stored, b"\xff"])
    expected = ["a", None, decoded, "\ufffd"]
    assert java_text(column).to_pylist() == expected
    assert java_text(pa.chunked_array([column, column.slice(2, 1)])).to_pylist() == [*expected, decoded]


def test_a_column_with_many_such_values_is_decoded() -> None:
    stored = [b"caf\xe9", b"plain", None, "caf\u00e9".encode()] * 500
    assert java_text(text(stored)).to_pylist() == ["caf\ufffd", "plain", None, "caf\u00e9"] * 500
