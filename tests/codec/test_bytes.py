from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.bytes import INT_MAX, Reader, mutf8_decode, mutf8_encode, utf, varint, zigzag
from bitlake.errors import CorruptError, InvalidRequest


def test_reads_big_endian_and_keeps_its_place() -> None:
    r = Reader(bytes.fromhex("ff 0102 fffffffe 0000000000000005 aabb".replace(" ", "")))
    assert (r.u1(), r.u2(), r.i4(), r.i8()) == (255, 258, -2, 5)
    assert r.offset == 15 and r.remaining == 2
    assert bytes(r.take(2)) == b"\xaa\xbb"
    r.seek(1)
    assert r.u2() == 258


@pytest.mark.parametrize("call", [
    lambda r: r.u2(), lambda r: r.take(2), lambda r: r.seek(4), lambda r: r.seek(-1), lambda r: r.count("x", 1),
    lambda r: r.utf(),
])  # fmt: skip
def test_an_error_is_where_the_reader_has_come_to(call) -> None:
    reader = Reader(b"abc", base=100)
    reader.take(2)
    with pytest.raises(CorruptError) as e:
        call(reader)
    assert e.value.offset == 102


def test_errors_inside_counts_and_texts_are_where_these_begin() -> None:
    for data, call in ((b"ab\0\0\0\3abc", lambda r: r.count("x", 2)), (b"ab\0\2\xff\xff", lambda r: r.utf())):
        reader = Reader(data, base=100)
        reader.take(2)
        with pytest.raises(CorruptError) as e:
            call(reader)
        assert e.value.offset == 102
    with pytest.raises(CorruptError) as e:
        Reader(b"").u1()
    assert e.value.offset == 0


def test_the_whole_view_can_be_read() -> None:
    reader = Reader(b"abc")
    assert bytes(reader.take(0)) == b"" and bytes(reader.take(3)) == b"abc" and bytes(reader.take(0)) == b""
    reader.seek(3)
    reader.seek(0)
    assert reader.remaining == 3
    assert Reader(bytes(4)).count("x", 9) == 0
    assert INT_MAX == 2147483647


@pytest.mark.parametrize("call", [lambda r: r.i4(), lambda r: r.take(4), lambda r: r.take(-1), lambda r: r.seek(9)])
def test_never_leaves_the_view(call) -> None:
    with pytest.raises(CorruptError) as e:
        call(Reader(b"abc", base=100))
    assert e.value.offset == 100


def test_a_count_must_fit() -> None:
    assert Reader(b"\0\0\0\2abcd").count("entries", 2) == 2
    with pytest.raises(CorruptError, match="entries is 3"):
        Reader(b"\0\0\0\3abcd").count("entries", 2)
    with pytest.raises(CorruptError):
        Reader(b"\xff\xff\xff\xffabcd").count("entries", 0)


def test_modified_utf8_is_javas() -> None:
    assert mutf8_encode("a\0é😀") == b"a\xc0\x80\xc3\xa9\xed\xa0\xbd\xed\xb8\x80"
    assert utf("status") == b"\0\6status"
    assert utf("x" * 65535) == b"\xff\xff" + b"x" * 65535
    with pytest.raises(InvalidRequest, match=f"'{'x' * 40}…' takes 65536 bytes"):
        utf("x" * 65536)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_modified_utf8_round_trip(text: str) -> None:
    assert mutf8_decode(mutf8_encode(text)) == text
    assert Reader(utf(text)).utf() == text


@pytest.mark.parametrize("bad", [b"\xc3", b"\x80", b"\xe0\x80", b"\xff", b"\xc3a"])
def test_malformed_text_is_corrupt(bad: bytes) -> None:
    with pytest.raises(CorruptError):
        mutf8_decode(bad)


def test_ascii_is_its_own_encoding() -> None:
    """Every ASCII character but NUL is one byte; NUL is two, alone and among others."""
    for code in range(1, 128):
        assert mutf8_encode(chr(code)) == bytes([code]) and mutf8_decode(bytes([code])) == chr(code)
    assert mutf8_encode("\0") == b"\xc0\x80" and mutf8_encode("a\0b") == b"a\xc0\x80b"
    assert mutf8_decode(b"a\xc0\x80b") == "a\0b"
    assert mutf8_encode("\x01é\x7f") == b"\x01\xc3\xa9\x7f"


@pytest.mark.parametrize("code", [0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF])
def test_lengths_of_encoded_characters(code: int) -> None:
    """The limits of one, two and three bytes are Java's."""
    data = mutf8_encode(chr(code))
    assert len(data) == (1 if code < 0x80 else 2 if code < 0x800 else 3)
    assert data == chr(code).encode() and mutf8_decode(data) == chr(code)


def test_varints_and_zigzag() -> None:
    """The known answers of Avro's specification, and the borders of every length."""
    known = {0: "00", -1: "01", 1: "02", -2: "03", 2: "04", -64: "7f", 64: "8001", 8192: "808001", -65: "8101"}
    assert {value: zigzag(value).hex() for value in known} == known
    for bits in range(1, 64):
        for value in (2**bits - 1, 2**bits):
            data = varint(value)
            assert len(data) == -(-value.bit_length() // 7)
            assert sum((b & 127) << 7 * i for i, b in enumerate(data)) == value
            assert [b >> 7 for b in data] == [1] * (len(data) - 1) + [0]
            assert zigzag(-value) == varint(2 * value - 1)
            assert value == 2**63 or zigzag(value) == varint(2 * value)
    assert zigzag(-(2**63)) == b"\xff" * 9 + b"\x01"
