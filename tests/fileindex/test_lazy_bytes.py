from __future__ import annotations

import pytest

from bitlake.errors import CorruptError, NotFound, UnsupportedFeature
from bitlake.fileindex.payload import Fault, LazyBytes, Page, Section

DATA = bytes(range(256)) * 40


def make(ahead: int = 16) -> tuple[LazyBytes, list[tuple[int, int]]]:
    calls: list[tuple[int, int]] = []

    def fetch(offset: int, n: int) -> bytes:
        calls.append((offset, n))
        return DATA[offset : offset + n]

    return LazyBytes(fetch, len(DATA), ahead), calls


def test_fetches_once_and_a_little_ahead() -> None:
    w, calls = make()
    assert bytes(w.view(100, 4)) == DATA[100:104]
    assert bytes(w.view(104, 12)) == DATA[104:116]
    assert calls == [(100, 16)] and w.bytes_read == 16
    assert bytes(w.view(90, 20)) == DATA[90:110]
    assert bytes(w.view(92, 2)) == DATA[92:94]
    assert bytes(w.view(len(DATA) - 3, 3)) == DATA[-3:]
    assert calls == [(100, 16), (90, 20), (len(DATA) - 3, 3)]
    assert bytes(w.view(5, 0)) == b""


def test_never_outside() -> None:
    w, _ = make()
    for offset, n in ((-1, 2), (0, len(DATA) + 1), (len(DATA), 1), (3, -1)):
        with pytest.raises(CorruptError):
            w.view(offset, n)


@pytest.mark.parametrize(("offset", "n"), [(0, 5), (4, 4), (6, 3)])
def test_an_index_that_ends_early(offset: int, n: int) -> None:
    """Three bytes where more are needed; what was asked for may be less than what is fetched ahead."""
    with pytest.raises(CorruptError, match=f"^the index ends after {offset + 3} of 10 bytes") as e:
        LazyBytes(lambda o, n: b"abc", 10).view(offset, max(n, 4))
    assert e.value.offset == offset
    assert bytes(LazyBytes(lambda o, n: b"abc", 10).view(offset, 3)) == b"abc"


def test_a_page_is_the_first_20_entries_unless_others_are_asked_for() -> None:
    assert Page().of(30) == range(20) and Page().left(30) == 10
    assert Page().of(20) == range(20) and Page().left(20) == 0
    assert Page(5, 3).of(30) == range(5, 8) and Page(5, 3).left(30) == 27
    assert list(Page(29, 3).of(30)) == [29] and Page(29, 3).left(30) == 29
    assert list(Page(31, 3).of(30)) == [] == list(Page(30, 3).of(30))


def test_faults_say_where_the_bytes_are_wrong() -> None:
    """An offset counts from the base of the section that reads; other errors are described, cut to 200 characters."""
    root = Section("file", 100, base=1000)
    part = root.add("part", 7, 3, {"a": 1, "b": None})
    assert (part.offset, part.size, part.facts, part.more, root.children) == (1007, 3, {"a": 1}, 0, [part])
    for error, base, fault in (
        (CorruptError("bad", 5), None, Fault("bad", 1005)),
        (CorruptError("bad", 5), 20, Fault("bad", 25)),
        (CorruptError("bad"), None, Fault("bad", 100)),
        (ValueError("x" * 300), None, Fault("cannot be understood: ValueError: " + "x" * 200, 100)),
        (UnsupportedFeature("new"), 20, Fault("new", 100)),
    ):
        with root.reading(base):
            raise error
        assert root.fault == fault
    assert str(Fault("bad", None)) == "bad" and str(Fault("bad", 12345)) == "bad (at byte 12,345)"
    for other in (NotFound("gone"), KeyboardInterrupt()):
        with pytest.raises(type(other)), root.reading():
            raise other
