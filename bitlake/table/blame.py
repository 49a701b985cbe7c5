"""Errors of a table's files say which table it is and, where something is missing, what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bitlake.errors import AccessDenied, BitlakeError, CorruptError, NotFound, StorageUnavailable, UnsupportedFeature

# The first that fits is raised: AccessDenied is a StorageUnavailable.
_NAMED = (NotFound, AccessDenied, StorageUnavailable, UnsupportedFeature)


@contextlib.contextmanager
def reading_table(name: str, remedy: str = "") -> Iterator[None]:
    """Put the table's name in front of errors of its files, and ``remedy`` behind "no such file"."""
    try:
        yield
    except CorruptError as e:
        if f"'{name}'" in e.what:
            raise
        raise CorruptError(f"table '{name}': {e.what}", e.offset, e.path) from e
    except _NAMED as e:
        if f"'{name}'" in str(e):
            raise
        kind: type[BitlakeError] = next(k for k in _NAMED if isinstance(e, k))
        more = remedy if isinstance(e, NotFound) and str(e).startswith("no such file") else ""
        raise kind(f"table '{name}': {e}{more}") from e
