"""A small relational database: SQLite, which is in Python, or PostgreSQL through the optional driver psycopg.

Statements take ``?`` for their values.  A connection is opened for each transaction: a catalog is asked seldom, and a
connection that is kept may be lost, or belong to a thread that is gone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from bitlake.errors import AccessDenied, AlreadyExists, InvalidRequest, StorageUnavailable

_WAIT_SECONDS = 30.0
"""How long a transaction waits for another one's lock."""
_REFUSED = re.compile(r"password|authentication|permission denied|role .* does not exist", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements that take effect together, when the block that gave this value ends without an exception."""

    _cursor: Any
    _mark: str

    def rows(self, text: str, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
        """What a query finds."""
        self._cursor.execute(text.replace("?", self._mark), tuple(values))
        return [tuple(row) for row in self._cursor.fetchall()]

    def run(self, text: str, values: Sequence[str | None] = ()) -> int:
        """How many rows a statement changed."""
        self._cursor.execute(text.replace("?", self._mark), tuple(values))
        return int(self._cursor.rowcount)


@dataclass(frozen=True, slots=True, repr=False)
class SqlDatabase:
    """A database by its URI.  Its text has no password, and neither has any of its errors."""

    kind: str
    shown: str
    _open: Callable[[], Any] = field(compare=False)
    _mark: str = "?"

    def __repr__(self) -> str:
        return f"SqlDatabase({self.shown!r})"

    @contextmanager
    def transaction(self, write: bool = False) -> Iterator[Transaction]:
        """A transaction for the block; one that will ``write`` waits for other writers before it reads anything.

        Raises :class:`AlreadyExists` where a key is taken, :class:`AccessDenied` and :class:`StorageUnavailable`.
        """
        with self._mapped(), closing(self._open()) as connection, closing(connection.cursor()) as cursor:
            if self.kind == "sqlite":
                cursor.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield Transaction(cursor, self._mark)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """bitlake's errors for the driver's, ``from None``: a driver may quote the whole address."""
        integrity, failure = _errors(self.kind)
        try:
            yield
        except integrity:
            raise AlreadyExists(f"the catalog {self.shown} has this entry already") from None
        except failure as e:
            said = str(e).strip().splitlines()
            text = f"the catalog {self.shown} failed: {said[0] if said else type(e).__name__}"
            kind = AccessDenied if _REFUSED.search(str(e)) or "readonly" in str(e) else StorageUnavailable
            raise kind(text) from None


def open_database(uri: str, properties: dict[str, str] | None = None) -> SqlDatabase:
    """The database of ``sqlite:///file``, ``jdbc:sqlite:file``, ``postgresql://host/name`` or ``jdbc:postgresql://…``.

    ``properties`` (``user``, ``password`` and what the driver takes) add to the URI's.  Nothing is connected yet.
    Raises :class:`InvalidRequest` for any other URI, or without the driver.
    """
    text = uri.removeprefix("jdbc:")
    given = dict(properties or {})
    if text.startswith("sqlite:"):
        if given:
            raise InvalidRequest(f"SQLite takes no properties, and '{next(iter(given))}' was given")
        return _sqlite(text.removeprefix("sqlite:"))
    if text.startswith(("postgresql://", "postgres://")):
        return _postgres(text, given)
    raise InvalidRequest(
        f"a catalog's uri is like sqlite:///file, jdbc:sqlite:file or postgresql://host/name, and not "
        f"'{uri.split(':', 1)[0]}:…'"
    )


def _sqlite(rest: str) -> SqlDatabase:
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path.strip("/") or path == ":memory:":
        raise InvalidRequest(
            "a catalog's database must outlive a connection: name a file, as in sqlite:////folder/file"
        )

    def connect() -> Any:
        named = path.startswith("file:")
        # isolation_level None: transactions begin where they are begun here, and nowhere else.
        return sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, uri=named)

    return SqlDatabase("sqlite", f"sqlite://{path}", connect)


def _postgres(text: str, given: dict[str, str]) -> SqlDatabase:
    try:
        import psycopg
    except ModuleNotFoundError as e:
        raise InvalidRequest(f"PostgreSQL needs {e.name}: `pip install 'bitlake[postgres]'`") from None
    parts = urlsplit(text)
    settings: dict[str, Any] = {
        "connect_timeout": "10",
        "client_encoding": "UTF8",
        **dict(parse_qsl(parts.query)),
        **given,
    }
    if parts.username:
        settings.setdefault("user", unquote(parts.username))
    if parts.password:
        settings.setdefault("password", unquote(parts.password))
    if parts.hostname:
        settings.setdefault("host", parts.hostname)
    if parts.port:
        settings.setdefault("port", str(parts.port))
    if parts.path.strip("/"):
        settings.setdefault("dbname", unquote(parts.path.strip("/")))
    shown = f"postgresql://{settings.get('host', '')}/{settings.get('dbname', '')}"
    return SqlDatabase("postgresql", shown, lambda: psycopg.connect(**settings), "%s")


def _errors(kind: str) -> tuple[type[Exception], type[Exception]]:
    if kind == "sqlite":
        return sqlite3.IntegrityError, sqlite3.Error
    import psycopg

    return psycopg.IntegrityError, psycopg.Error


__all__ = ["SqlDatabase", "Transaction", "open_database"]
