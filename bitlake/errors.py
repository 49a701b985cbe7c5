"""Every error bitlake raises, sorted by what the caller does next.

::

    BitlakeError
    ├── InvalidRequest        the call, SQL, option or value is wrong: change it
    │   └── EvaluationFailed  an expression fails for some row, as in Spark: overflow, division by zero, an invalid cast
    ├── NotFound              a database, table, column, file or procedure does not exist
    ├── AlreadyExists         it already exists
    ├── CommitConflict        another writer won: read again and retry
    ├── StorageUnavailable    the store did not answer: retry
    │   ├── AccessDenied      it refused (credentials, rights, read-only, wrong path): retrying does not help, fix it
    │   └── StorageFull       no space or quota is left: retrying does not help, free some
    ├── CorruptError          bytes that do not mean what they should
    └── UnsupportedFeature    valid in the format, but this version cannot do it

Messages say what happened, where (table, file, column, offset) and what to do.  Only the types are promised.
Errors about a table's files also name the table and, if a file is missing, what to do about it: the functions at the
end add this context.
"""

from __future__ import annotations

import contextlib


class BitlakeError(Exception):
    """Base of every error bitlake raises on purpose."""


class InvalidRequest(BitlakeError):
    """The request itself is wrong (SQL, option, literal, schema); retrying it unchanged cannot help."""


class EvaluationFailed(InvalidRequest):
    """An expression fails for the values of some row, as it does in Spark's ANSI mode; nothing was changed."""


class NotFound(BitlakeError):
    """A database, table, column, snapshot, file or procedure does not exist."""


class AlreadyExists(BitlakeError):
    """A database, table, column or file already exists."""


class CommitConflict(BitlakeError):
    """Another commit changed what this one relied on; nothing of this one is visible."""


class StorageUnavailable(BitlakeError):
    """The store failed, timed out or refused access."""


class AccessDenied(StorageUnavailable):
    """The store refused; nothing was changed.

    Credentials are wrong or expired, rights are missing, the store is read-only, or it cannot create files safely.
    """


class StorageFull(StorageUnavailable):
    """The store has no space, or the account no quota, for what was to be written; nothing was changed."""


class CorruptError(BitlakeError):
    """Bytes that break their format.

    Codecs know only what is wrong and at which offset; the code that opened the file adds its path with
    :meth:`within`.
    """

    def __init__(self, what: str, offset: int | None = None, path: str | None = None) -> None:
        self.what = what
        self.offset = offset
        self.path = path
        where = "" if offset is None else f" at byte {offset}"
        file = "" if path is None else f" in {path}"
        super().__init__(f"{what}{where}{file}")

    def within(self, path: str) -> CorruptError:
        """Return the same error naming the file it was found in."""
        return type(self)(self.what, self.offset, path)


class UnsupportedFeature(BitlakeError):
    """A valid format feature that this version of bitlake does not implement."""


REPORTED = {
    k.__name__: k
    for k in (
        InvalidRequest,
        EvaluationFailed,
        NotFound,
        StorageUnavailable,
        AccessDenied,
        StorageFull,
        CorruptError,
        UnsupportedFeature,
    )
}
"""The errors that reach a process only as text, through an engine that runs bitlake's code, by their names."""

# The first that fits is raised: AccessDenied is a StorageUnavailable.
_NAMED = (NotFound, EvaluationFailed, AccessDenied, StorageUnavailable, UnsupportedFeature)


def reading_table(name: str, remedy: str = "") -> contextlib.AbstractContextManager[None]:
    """Put the table's name in front of errors of its files, and ``remedy`` behind "no such file"."""
    return _ReadingTable(name, remedy)


class _ReadingTable:
    """A class: a generator takes three times as long to enter and leave."""

    __slots__ = ("_name", "_remedy")

    def __init__(self, name: str, remedy: str) -> None:
        self._name, self._remedy = name, remedy

    def __enter__(self) -> None:
        """Name the table from here on."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (CorruptError, *_NAMED)):
            return
        text = error.what if isinstance(error, CorruptError) else str(error)
        if f"'{self._name}'" in text:
            return
        if isinstance(error, CorruptError):
            raise CorruptError(f"table '{self._name}': {text}", error.offset, error.path) from error
        named: type[BitlakeError] = next(k for k in _NAMED if isinstance(error, k))
        more = self._remedy if isinstance(error, NotFound) and text.startswith("no such file") else ""
        raise named(f"table '{self._name}': {text}{more}") from error
