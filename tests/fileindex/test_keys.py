from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from bitlake.codec.roaring import serialize
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.fileindex.keyed import Keys, cardinalities, keys_of
from bitlake.types import parse_type


def keys(text: str) -> Keys:
    made = keys_of(parse_type(text))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("kind", "array", "want"),
    [
        ("BOOLEAN", pa.array([True, None, False]), [1, None, 0]),
        ("TINYINT", pa.array([-1], pa.int8()), [-1]),
        ("INT", pa.array([7, None], pa.int64()), [7, None]),
        ("DATE", pa.array([dt.date(1970, 1, 2), None]), [1, None]),
        ("TIME(3)", pa.array([1500], pa.time32("ms")), [1500]),
        ("TIME(3)", pa.array([1500999], pa.time64("us")), [1500]),
        ("TIMESTAMP(3)", pa.array([-1, 1999, None], pa.timestamp("us")), [-1, 1, None]),
        ("TIMESTAMP(6)", pa.array([5], pa.timestamp("us")), [5]),
        ("TIMESTAMP(6)", pa.array([5], pa.timestamp("ms", "UTC")), [5000]),
        ("TIMESTAMP(9)", pa.array([-1, 1001, None], pa.timestamp("ns")), [-1, 1, None]),
        ("TIMESTAMP(9)", pa.array([10**18 - 1, 10**18], pa.timestamp("ns")), [10**15 - 1, 10**15]),
        ("TIMESTAMP(6)", pa.array([10**9, None], pa.timestamp("s")), [10**15, None]),
        ("TIMESTAMP(3)", pa.array([10**9, None], pa.timestamp("s")), [10**12, None]),
        ("TIMESTAMP(3)", pa.array([10**15 - 1, 10**15], pa.timestamp("us")), [10**12 - 1, 10**12]),
        ("TIMESTAMP(3)", pa.array([10**18 - 1, 10**18], pa.timestamp("ns")), [10**12 - 1, 10**12]),
        ("DECIMAL(9, 2)", pa.array([decimal.Decimal("-1.50"), None, decimal.Decimal("2")]), [-150, None, 200]),
        ("STRING", pa.array(["é", None, ""]), ["é".encode(), None, b""]),
        ("VARBINARY(5)", pa.array([b"\0", None]), [b"\0", None]),
        ("FLOAT", pa.array([1.0, None], pa.float32()), [0x3F800000, None]),
        ("DATE", pa.array([-1, None], pa.int64()), [-1, None]),
        ("TIME(3)", pa.array([1500, None], pa.int64()), [1500, None]),
        ("TIMESTAMP(3)", pa.array([-7, None], pa.int64()), [-7, None]),
        ("SMALLINT", pa.array([2.0, None]), [2, None]),
        ("BIGINT", pa.array([2.0, None]), [2, None]),
    ],
)
def test_keys_of_arrays_plain_sliced_and_dictionaries(kind: str, array: pa.Array, want: list) -> None:
    k = keys(kind)
    got = k.of_array(array)
    assert got.type == k.arrow and got.to_pylist() == want
    assert (
        k.of_array(pa.concat_arrays([array, array]).slice(1, len(array))).to_pylist() == (want + want)[1:][: len(want)]
    )
    coded = k.of_array(array.dictionary_encode())
    assert coded.to_pylist() == want and coded.dictionary.null_count == 0


def test_floats_keep_signed_zeros_apart_and_nans_together() -> None:
    odd = np.array([0.0, -0.0, np.nan, -np.nan, np.inf])
    odd = np.append(odd, np.array([0xFFF0000000000001], np.uint64).view(np.float64))
    got = keys("DOUBLE").of_array(pa.array(odd, from_pandas=False)).to_pylist()
    nan = 0x7FF8000000000000
    assert got == [0, -(1 << 63), nan, nan, 0x7FF0000000000000, nan]
    assert keys("DOUBLE").of_literal(math.nan) == nan
    assert keys("DOUBLE").equal_keys(-0.0) == ([0, -(1 << 63)], True)
    assert keys("FLOAT").of_literal(0.1) is None
    assert keys("FLOAT").of_literal(1e300) is None
    order = keys("DOUBLE").order(np.array(got, np.int64))
    assert order[1] < order[0] < order[4] < order[2]


def test_dictionaries_that_lose_entries_are_merged() -> None:
    kind = pa.dictionary(pa.int8(), pa.timestamp("ns"))
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), pa.array([1000, 1999, None]))
    array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.timestamp("ns")))
    assert array.type == kind
    got = keys("TIMESTAMP(9)").of_array(array)
    assert got.to_pylist() == [1, 1, None, None] and got.dictionary.to_pylist() == [1]


def test_equal_keys() -> None:
    assert keys("CHAR(4)").equal_keys("ab") == ([b"ab", b"ab  "], False)
    assert keys("CHAR(4)").equal_keys("ab  ") == ([b"ab  ", b"ab"], False)
    assert keys("CHAR(2)").equal_keys("ab") == ([b"ab"], True)
    assert keys("STRING").equal_keys("ab ") == ([b"ab "], True)
    assert keys("TIMESTAMP(9)").equal_keys(1999) == ([1], False)
    assert keys("TIMESTAMP(9)").equal_keys(10**18 - 1) == ([10**15 - 1], False)
    assert keys("TIMESTAMP(7)").equal_keys(-1) == ([-1], False)
    assert keys("TIMESTAMP(6)").equal_keys(10**15 - 1) == ([10**15 - 1], True)
    assert keys("TINYINT").equal_keys(300) == ([], True)


def test_what_does_not_fit() -> None:
    assert keys_of(parse_type("VARIANT")) is None
    with pytest.raises(InvalidRequest):
        keys("INT").of_array(pa.array(["a"]))
    with pytest.raises(UnsupportedFeature):
        keys("DECIMAL(38, 0)").of_array(pa.array([decimal.Decimal(2**63)], pa.decimal128(38, 0)))
    assert keys("DECIMAL(38, 0)").of_array(pa.array([-(2**63)], pa.decimal128(38, 0))).to_pylist() == [-(2**63)]


@pytest.mark.parametrize(
    ("kind", "bits"), [("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("DATE", 32), ("BIGINT", 64)]
)
def test_literals_at_the_limits_of_their_columns(kind: str, bits: int) -> None:
    made = keys(kind)
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert [made.of_literal(v) for v in (least, least + 1, -1, 0, most - 1, most)] == [
        least,
        least + 1,
        -1,
        0,
        most - 1,
        most,
    ]
    assert [made.of_literal(v) for v in (least - 1, most + 1)] == [None, None]


BODIES = [[1], [2, 3, 9], [*range(100)], [1, 70_000], [*range(0, 20_000, 2)], [k * 65_536 for k in range(5)]]


def test_rows_of_many_bitmaps_are_counted_by_their_headers() -> None:
    made = [serialize(BitMap(rows)) for rows in BODIES]
    offsets = np.cumsum([0, *map(len, made)])[:-1]
    body = memoryview(b"".join(made))
    assert cardinalities(body, offsets).tolist() == [len(rows) for rows in BODIES]
    assert cardinalities(body, offsets[::-1]).tolist() == [len(rows) for rows in BODIES[::-1]]
    assert cardinalities(memoryview(b""), offsets[:0]).tolist() == cardinalities(body, offsets[:0]).tolist() == []
    last = int(offsets[-1])
    for cut, at in ((last + 7, last), (last + 8 + 19, last), (last + 3, last), (last, last)):
        with pytest.raises(CorruptError, match="ends outside of it") as e:
            cardinalities(body[:cut], offsets)
        assert e.value.offset == at
    assert cardinalities(body[: last + 8 + 20], offsets)[-1] == 5, "its header is enough"
    with pytest.raises(CorruptError, match="not a Roaring bitmap") as e:
        cardinalities(body, offsets + np.array([0, 0, 1, 0, 0, 0]))
    assert e.value.offset == offsets[2] + 1


def test_a_body_too_short_for_any_bitmap() -> None:
    """Without bitmaps there is nothing to count; a bitmap there ends outside of it."""
    for size in range(8):
        assert cardinalities(memoryview(bytes(size)), np.zeros(0, np.int64)).tolist() == []
        with pytest.raises(CorruptError, match="ends outside of it"):
            cardinalities(memoryview(bytes(size)), np.zeros(1, np.int64))


def test_what_stands_below_a_null_decimal_does_not_count() -> None:
    """Arrow leaves the bytes of a NULL undefined: here a number of more than 64 bits."""
    words = np.array([[5, 0], [1, 1], [7, 0]], np.int64)
    array = pa.Array.from_buffers(pa.decimal128(38, 0), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(words)])
    assert keys("DECIMAL(38, 0)").of_array(array).to_pylist() == [5, None, 7]
    with pytest.raises(UnsupportedFeature, match="64 bits"):
        keys("DECIMAL(38, 0)").of_array(pa.Array.from_buffers(pa.decimal128(38, 0), 3, [None, pa.py_buffer(words)]))
