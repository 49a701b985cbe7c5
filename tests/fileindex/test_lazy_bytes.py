from __future__ import annotations

import pytest

from bitlake.errors import CorruptError
from bitlake.fileindex.payload import LazyBytes

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
    with pytest.raises(CorruptError, match="ends after"):
        LazyBytes(lambda o, n: b"abc", 10).view(0, 5)
