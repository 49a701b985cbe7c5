"""Places outside of a table's folder: how two spellings of a path compare, and which roots are allowed.

``file:/p``, ``file:///p``, ``file://localhost/p`` and ``/p`` are one place; ``s3``, ``s3a`` and ``s3n`` are one scheme.
Paths are compared by their segments, so that ``/data/ext`` does not hold ``/data/extra``; one with ``..`` has no place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from bitlake.errors import InvalidRequest

_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?$", re.DOTALL)
_SAME = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or file of a store: scheme, host or bucket, and the names on the way to it."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Location:
        """The place of an absolute path or URI; raises ``ValueError`` for a relative one, and one with ``..``."""
        found = _URI.match(text)
        scheme, authority, path = ("file", "", text) if found is None else found.groups("")
        scheme = scheme.lower()
        if "\0" in text or "\\" in text or (not path.startswith("/") and not (authority and not path)):
            raise ValueError(text)
        segments = tuple(s for s in path.split("/") if s not in ("", "."))
        if ".." in segments:
            raise ValueError(text)
        local = scheme == "file" and authority.lower() == "localhost"
        return cls(_SAME.get(scheme, scheme), "" if local else authority.lower(), segments)

    def holds(self, other: Location) -> bool:
        """Whether the other place is this one, or below it."""
        return (self.scheme, self.authority) == (other.scheme, other.authority) and (
            other.segments[: len(self.segments)] == self.segments
        )

    @property
    def store(self) -> tuple[str, str]:
        """What tells one store from another: scheme, and host or bucket."""
        return self.scheme, self.authority


class DeferredRoots(Sequence[str]):
    """External roots that are asked for when they first matter, and then kept.

    To ask a Spark session takes 1 to 2 ms, as long as a small table takes to be planned, and few tables have files
    outside of their folders.  Pickled, they are a tuple: other processes cannot ask.
    """

    __slots__ = ("_ask", "_roots")

    def __init__(self, ask: Callable[[], Iterable[str]]) -> None:
        """``ask`` returns the roots as they were given.  Threads that come together all ask, and get the same."""
        self._ask = ask
        self._roots: tuple[str, ...] | None = None

    @property
    def _known(self) -> tuple[str, ...]:
        if self._roots is None:
            self._roots = _checked(self._ask())
        return self._roots

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._known[index]

    def __len__(self) -> int:
        return len(self._known)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeferredRoots | tuple) and self._known == tuple(other))

    def __hash__(self) -> int:
        return hash(self._known)

    def __reduce__(self) -> Any:
        return tuple, (self._known,)

    def __repr__(self) -> str:
        return "DeferredRoots()" if self._roots is None else f"DeferredRoots{self._roots}"


def check_roots(roots: Iterable[str]) -> Sequence[str]:
    """External roots as they were given, without trailing slashes; raises :class:`InvalidRequest` for no place.

    :class:`DeferredRoots` stay deferred, and raise the same when they are asked for.
    """
    return roots if isinstance(roots, DeferredRoots) else _checked(roots)


def _checked(roots: Iterable[str]) -> tuple[str, ...]:
    out = []
    for root in roots:
        try:
            Location.of(root)
        except ValueError as e:
            raise InvalidRequest(
                f"invalid external path {root!r}; expected an absolute path or URI without '..', such as "
                "file:/data/external or s3://bucket/folder"
            ) from e
        out.append(root.rstrip("/") or "/")
    return tuple(dict.fromkeys(out))


def allowing_root(path: str, roots: Iterable[str]) -> str | None:
    """The root that a path is below; None if it is below none, or has no place."""
    try:
        place = Location.of(path)
    except ValueError:
        return None
    for root in roots:
        try:
            if Location.of(root).holds(place):
                return root
        except ValueError:  # a relative folder, which no absolute path is known to be in
            continue
    return None


def refusal(table: str, path: str, what: str) -> InvalidRequest:
    """The error for an external path that is not allowed; ``what`` names it."""
    folder = path.rpartition("/")[0] or path
    return InvalidRequest(
        f"table {table}: {what} {path!r} is outside of the table's folder and below no allowed external path; if you "
        f"trust this table, allow a folder above it: bitlake.connect(…, external_paths=[{folder!r}]), --external-path "
        "on the command line, the option 'external-paths' of the data source, or spark.bitlake.external-paths"
    )
