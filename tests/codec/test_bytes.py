from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.bytes import Reader, mutf8_decode, mutf8_encode, utf
from bitlake.errors import CorruptError, InvalidRequest


def test_reads_big_endian_and_keeps_its_place() -> None:
    r = Reader(bytes.fromhex("ff 0102 fffffffe 0000000000000005 aabb".replace(" ", "")))
    assert (r.u1(), r.u2(), r.i4(), r.i8()) == (255, 258, -2, 5)
    assert r.offset == 15 and r.remaining == 2
    assert bytes(r.take(2)) == b"\xaa\xbb"
    r.seek(1)
    assert r.u2() == 258


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
    with pytest.raises(InvalidRequest):
        utf("x" * 65536)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_modified_utf8_round_trip(text: str) -> None:
    assert mutf8_decode(mutf8_encode(text)) == text
    assert Reader(utf(text)).utf() == text


@pytest.mark.parametrize("bad", [b"\xc3", b"\x80", b"\xe0\x80", b"\xff", b"\xc3a"])
def test_malformed_text_is_corrupt(bad: bytes) -> None:
    with pytest.raises(CorruptError):
        mutf8_decode(bad)
