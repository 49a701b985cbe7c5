"""What every store must do, whatever its files are kept in."""

from __future__ import annotations

import threading

import pytest

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.io import Store

CREATORS = 12


def check_one_creates(store: Store, path: str) -> None:
    """Of many that create a file at once exactly one does, and its bytes stay."""
    won: list[int] = []

    def run(number: int) -> None:
        if store.create(path, str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(CREATORS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won) == 1
    assert store.read(path) == str(won[0]).encode()


def check_ranges(store: Store, path: str) -> None:
    """Ranges are exact, or the file is said to be too short."""
    store.write(path, b"abcdefghij")
    assert store.read_ranges(path, [(8, 2), (0, 3), (10, 0), (3, 1)]) == [b"ij", b"abc", b"", b"d"]
    assert store.read_ranges(path, [(0, 0)]) == [b""]
    with pytest.raises(CorruptError, match="ends 1 bytes before"):
        store.read_range(path, 8, 3)
    with pytest.raises(CorruptError, match="ends 25 bytes before"):
        store.read_range(path, 30, 5)
    with pytest.raises(CorruptError):
        store.read_range(path, 11, 0)
    for offset, length in ((-1, 3), (3, -1)):
        with pytest.raises(InvalidRequest, match="negative"):
            store.read_range(path, offset, length)
