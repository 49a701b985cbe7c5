"""A small relational database: SQLite by Python's own module, PostgreSQL and MySQL by the optional SQLAlchemy Core.

Statements take ``?`` for their values.  A connection is opened for each transaction: a catalog is asked seldom, and a
connection that is kept may be lost, or belong to a thread that is gone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from bitlake.errors import AccessDenied, AlreadyExists, InvalidRequest, StorageUnavailable

_WAIT_SECONDS = 30.0
"""How long a transaction waits for another one's lock."""
_REFUSED = re.compile(r"password|authentication|permission denied|access denied|role .* does not exist", re.IGNORECASE)
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}
_KEY = "VARCHAR(255)"
Execute = Callable[[str, Sequence[str | None]], Any]
"""Run a statement with its values; the result has ``fetchall`` and ``rowcount``."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements that take effect together, when the block that gave this value ends without an exception."""

    _execute: Execute

    def rows(self, text: str, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return [tuple(row) for row in self._execute(text, values).fetchall()]

    def run(self, text: str, values: Sequence[str | None] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return int(self._execute(text, values).rowcount)


@dataclass(frozen=True, slots=True, repr=False)
class SqlDatabase:
    """A database by its URI.  Neither its text nor any of its errors has a password."""

    kind: str
    shown: str
    _begin: Callable[[bool], AbstractContextManager[Execute]] = field(compare=False)
    """A transaction's block; whether it will write."""

    def __repr__(self) -> str:
        return f"SqlDatabase({self.shown!r})"

    @contextmanager
    def transaction(self, write: bool = False) -> Iterator[Transaction]:
        """A transaction for the block; in SQLite, one that will ``write`` waits for other writers before it reads.

        Raises :class:`AlreadyExists` where a key is taken, :class:`AccessDenied` and :class:`StorageUnavailable`.
        """
        with self._mapped(), self._begin(write) as execute:
            yield Transaction(execute)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """bitlake's errors for the driver's, ``from None``: a driver may quote the whole address."""
        integrity, failure = _errors(self.kind)
        try:
            yield
        except integrity:
            raise AlreadyExists(f"the catalog {self.shown} has this entry already") from None
        except failure as e:
            cause = getattr(e, "orig", None) or e  # what the driver raised, without the statement
            said = str(cause).strip().splitlines()
            text = f"the catalog {self.shown} failed: {said[0] if said else type(cause).__name__}"
            kind = AccessDenied if _REFUSED.search(str(cause)) or "readonly" in str(cause) else StorageUnavailable
            raise kind(text) from None


def open_database(uri: str, properties: dict[str, str] | None = None) -> SqlDatabase:
    """The database of a URI: ``sqlite:///file``, ``postgresql://host/name``, ``mysql://host/name``, or JDBC's spelling.

    ``properties`` (``user``, ``password`` and what the driver takes) add to the URI's.  Nothing is connected yet.
    Raises :class:`InvalidRequest` for any other URI, or without SQLAlchemy or the driver.
    """
    text = uri.removeprefix("jdbc:")
    given = dict(properties or {})
    if text.startswith("sqlite:"):
        if given:
            raise InvalidRequest(f"SQLite takes no properties, and '{next(iter(given))}' was given")
        return _sqlite(text.removeprefix("sqlite:"))
    scheme = {"postgres": "postgresql", "mariadb": "mysql"}.get(text.partition("://")[0], text.partition("://")[0])
    if scheme in _DRIVERS and "://" in text:
        return _server(scheme, text, given)
    raise InvalidRequest(
        f"a catalog's uri is like sqlite:///file, jdbc:sqlite:file, postgresql://host/name or mysql://host/name, and "
        f"not '{uri.split(':', 1)[0]}:…'"
    )


def _sqlite(rest: str) -> SqlDatabase:
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path.strip("/") or path == ":memory:":
        raise InvalidRequest(
            "a catalog's database must outlive a connection: name a file, as in sqlite:////folder/file"
        )

    @contextmanager
    def begin(write: bool) -> Iterator[Execute]:
        # isolation_level None: transactions begin where they are begun here, and nowhere else.
        opened = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, uri=path.startswith("file:"))
        with closing(opened) as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield lambda text, values: connection.execute(text, tuple(values))
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    return SqlDatabase("sqlite", f"sqlite://{path}", begin)


def _server(kind: str, text: str, given: dict[str, str]) -> SqlDatabase:
    """A database server.  What the URI's query or the properties name beside user and password is for the driver."""
    parts = urlsplit(text)
    # Parameters in a URI of MySQL are the Java driver's, which Python's does not know.
    query = dict(parse_qsl(parts.query)) if kind == "postgresql" else {}
    driver_arguments: dict[str, Any] = {"connect_timeout": 10, **query, **given}
    if kind == "postgresql":
        driver_arguments.setdefault("client_encoding", "UTF8")
    user = driver_arguments.pop("user", None) or unquote(parts.username or "") or None
    password = driver_arguments.pop("password", None) or unquote(parts.password or "") or None
    host = driver_arguments.pop("host", None) or parts.hostname
    named = driver_arguments.pop("dbname", None) or driver_arguments.pop("database", None)
    name = named or unquote(parts.path.strip("/")) or None
    shown = f"{kind}://{host or ''}/{name or ''}"
    try:
        import sqlalchemy  # optional, as the drivers are

        url = sqlalchemy.URL.create(f"{kind}+{_DRIVERS[kind]}", user, password, host, parts.port, name)
        engine = create_engine(url, driver_arguments)
    except ModuleNotFoundError as e:
        extra = "postgres" if kind == "postgresql" else "mysql"
        raise InvalidRequest(f"{kind} needs {e.name}: `pip install 'bitlake[{extra}]'`") from None
    return engine_database(engine, shown)


def create_engine(url: Any, driver_arguments: dict[str, Any]) -> Any:
    """SQLAlchemy's engine for a URL: a connection for each transaction, and no values in its errors."""
    import sqlalchemy

    return sqlalchemy.create_engine(
        url, connect_args=driver_arguments, poolclass=sqlalchemy.NullPool, hide_parameters=True
    )


def engine_database(engine: Any, shown: str) -> SqlDatabase:
    """A database by SQLAlchemy's engine."""

    @contextmanager
    def begin(write: bool) -> Iterator[Execute]:
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite" and write:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield lambda text, values: connection.execute(*statement(text, values, engine.dialect.name))

    return SqlDatabase(f"sqlalchemy:{engine.dialect.name}", shown, begin)


def statement(text: str, values: Sequence[str | None], dialect: str) -> tuple[Any, dict[str, str | None]]:
    """A statement for SQLAlchemy and its values by name.

    MySQL's keys have at most 3072 bytes, and compare without case unless told otherwise: Paimon's four key columns of
    255 characters fit with three bytes for each.
    """
    import sqlalchemy

    numbers = iter(range(len(values)))
    named = re.sub(r"\?", lambda _: f":v{next(numbers)}", text)
    if dialect in ("mysql", "mariadb") and named.startswith("CREATE TABLE"):
        key = "CHARACTER SET utf8mb3 COLLATE utf8mb3_bin" if named.count(_KEY) > 3 else "COLLATE utf8mb4_bin"
        named = named.replace(_KEY, f"{_KEY} {key}") + " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return sqlalchemy.text(named), {f"v{i}": value for i, value in enumerate(values)}


def _errors(kind: str) -> tuple[type[Exception], type[Exception]]:
    if kind == "sqlite":
        return sqlite3.IntegrityError, sqlite3.Error
    from sqlalchemy import exc

    return exc.IntegrityError, exc.SQLAlchemyError


__all__ = ["SqlDatabase", "Transaction", "open_database"]
