"""The bytes of one file, fetched when looked at and counted."""

from __future__ import annotations

from collections.abc import Callable

from bitlake.fileindex.lazy_bytes import Fetch, Window
from bitlake.io import Store

_AHEAD = 4096

AVRO_MAGIC = b"Obj\x01"
ORC_MAGIC = b"ORC"


class Source:
    """A file, or bytes that stand inside of another.  What was fetched is kept; every access is checked.

    ``path`` names it; ``size`` in bytes.
    """

    def __init__(self, path: str, size: int, fetch: Fetch, ahead: int = _AHEAD) -> None:
        self.path = path
        self.size = size
        self.requests = 0
        self._fetch = fetch
        self.window = Window(self._counted, size, ahead)

    @staticmethod
    def of_file(store: Store, path: str) -> Source:
        """A file of a store; asks for its size only."""
        return Source(path, store.size(path), lambda offset, length: store.read_range(path, offset, length))

    @staticmethod
    def of_bytes(path: str, data: bytes) -> Source:
        """Bytes that are at hand, as an index embedded in a manifest."""
        return Source(path, len(data), lambda offset, length: data[offset : offset + length])

    def _counted(self, offset: int, length: int) -> bytes | memoryview:
        self.requests += 1
        return self._fetch(offset, length)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self.window.bytes_read

    def view(self, offset: int, length: int) -> bytes:
        """These bytes; raises :class:`bitlake.errors.CorruptError` where the file ends before."""
        return bytes(self.window.view(offset, length))

    def start(self, length: int) -> bytes:
        """The first ``length`` bytes, or all of a shorter file."""
        return self.view(0, min(length, self.size))

    def part(self, offset: int, length: int) -> Window:
        """A window on a part of it."""
        return Window(self.from_here(offset), length, 0)

    def from_here(self, offset: int) -> Callable[[int, int], memoryview]:
        """A ``fetch`` for a part that starts at ``offset``."""
        return lambda at, n: self.window.view(offset + at, n, ahead=0)
