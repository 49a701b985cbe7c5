from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.bytes import varint, zigzag
from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.thrift import ThriftReader


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_survive(value: int) -> None:
    assert ThriftReader(zigzag(value)).value(thrift.I64) == value
    assert ThriftReader(thrift.i64_field(3, value) + b"\x00").struct() == {3: value}


def test_every_type_in_a_struct() -> None:
    data = b"".join(
        (
            b"\x11",  # 1: TRUE
            b"\x12",  # 2: FALSE
            b"\x13\xff",  # 3: byte -1
            thrift.i32_field(1, -300),
            b"\x17\x00\x00\x00\x00\x00\x00\xf8\x3f",  # 5: 1.5
            thrift.binary_field(1, b"xyz"),
            thrift.list_field(1, thrift.I32, [zigzag(i) for i in range(20)]),
            thrift.list_field(1, thrift.TRUE, [b"\x01", b"\x02"]),
            b"\x1b\x01\x85" + varint(1) + b"x" + zigzag(3),  # 9: map {"x": 3}
            b"\x1c" + thrift.i32_field(1, 5) + b"\x00",  # 10: struct
            b"\x05" + zigzag(100) + zigzag(7),  # 100: the long form of a field header
            b"\x00",
        )
    )
    reader = ThriftReader(data)
    expected: dict[int, Any] = {
        1: True, 2: False, 3: -1, 4: -300, 5: 1.5, 6: b"xyz", 7: list(range(20)), 8: [True, False],
        9: [(b"x", 3)], 10: {1: 5}, 100: 7,
    }  # fmt: skip
    assert reader.struct() == expected and reader.position == len(data)
    for cut in range(len(data)):
        with pytest.raises(CorruptError):
            ThriftReader(data[:cut]).struct()


@pytest.mark.parametrize(
    "data",
    [
        b"\x19\xfc\xff\xff\xff\xff\x0f",  # a list of 4 billion structs
        b"\x18\xff\xff\xff\xff\x0f",  # 4 GB of bytes
        b"\x1b\xff\xff\xff\xff\x0f\x88",  # a map of 4 billion pairs
        b"\x16" + b"\xff" * 11,  # an endless varint
        b"\x1c" * 1000,  # structs without end, nested
        b"\x19\x19" * 1000,
        b"\x1e\x00",  # no such type
    ],
)
def test_absurd_counts_and_depths_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        ThriftReader(data).struct()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_struct_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        ThriftReader(data).struct()
