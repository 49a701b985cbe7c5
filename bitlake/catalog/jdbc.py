"""Paimon's ``jdbc`` catalog: names are rows of a relational database, which several lakes may share.

Tables (of ``org.apache.paimon.jdbc.JdbcUtils``; names are VARCHAR(255), values VARCHAR(1000))::

    paimon_tables               catalog_key, database_name, table_name                                 the key
    paimon_database_properties  catalog_key, database_name, property_key → property_value
    paimon_table_properties     catalog_key, database_name, table_name, property_key → property_value
    paimon_views                catalog_key, database_name, view_name → view_schema (TEXT)

``catalog_key`` separates the lakes that share a database.  A database of the lake exists when any row names it:
property ``exists`` = ``true`` is the row of an empty one, and ``location`` is its folder.  A table's folder is
``<location>/<table>``, as in the filesystem catalog, so that clients without the catalog can read the tables.  The key
of ``paimon_tables`` makes creating and renaming a table one atomic step: if two clients want one name, one of them
gets :class:`AlreadyExists`.

A rename takes effect when its transaction commits.  On a file system the folder is renamed within the transaction; an
object store copies it before and deletes the old one after, so that either name leads to a whole table at any time.

``view_schema`` is JSON (Paimon's ``ViewSchema``): fields as in a table's schema, query, dialects (the query by engine),
comment, options.  Its table is created with the first view.

The database is SQLite, through Python's own module, or PostgreSQL or MySQL, through the optional SQLAlchemy Core.
Statements take ``?`` for their values.  Each transaction opens a connection of its own: catalogs are queried rarely,
and a connection that is kept may be lost, or belong to a thread that has ended.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from bitlake import arguments
from bitlake.catalog.catalog import DEFAULT_DATABASE, Catalog, Identifier, View
from bitlake.catalog.filesystem import check_unused, create_first_schema, delete_table, deleting_external_files
from bitlake.errors import AccessDenied, AlreadyExists, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store, has_cheap_rename
from bitlake.lazy_modules import install_command
from bitlake.metadata.java_json import dumps
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import load_schema, schema_ids

# --- relational databases ---------------------------------------------------------------------------------------------

_WAIT_SECONDS = 30.0
"""Seconds that a transaction waits for another one's lock."""
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

        Raises :class:`AlreadyExists` where a key is taken, :class:`InvalidRequest` for a value that does not fit,
        :class:`AccessDenied` and :class:`StorageUnavailable`.
        """
        with self._mapped(), self._begin(write) as execute:
            yield Transaction(execute)

    def rows(self, text: str, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
        """Run a query in a transaction of its own and return its rows."""
        with self.transaction() as t:
            return t.rows(text, values)

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
            lines = str(cause).strip().splitlines()
            text = f"the catalog {self.shown} failed: {lines[0] if lines else type(cause).__name__}"
            if type(e).__name__ == "DataError":  # of DB-API: a value that a column cannot hold
                raise InvalidRequest(text) from None
            kind = AccessDenied if _REFUSED.search(str(cause)) or "readonly" in str(cause) else StorageUnavailable
            raise kind(text) from None


def open_database(uri: str, properties: dict[str, str] | None = None) -> SqlDatabase:
    """The database of a URI: ``sqlite:///file``, ``postgresql://host/name``, ``mysql://host/name``, or JDBC's spelling.

    ``properties`` (``user``, ``password`` and what the driver takes) add to the URI's.  Nothing is connected yet.
    Raises :class:`InvalidRequest` for any other URI, or without SQLAlchemy or the driver.
    """
    text = arguments.text("a catalog's uri", uri).removeprefix("jdbc:")
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
    if not path.strip("/") or path == ":memory:" or "\0" in path:
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
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # which may quote a part of a password
        raise InvalidRequest(
            f"a catalog's uri is like {kind}://host:port/name; quote '/' in a password as %2F"
        ) from None
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

        url = sqlalchemy.URL.create(f"{kind}+{_DRIVERS[kind]}", user, password, host, port, name)
        engine = create_engine(url, driver_arguments)
    except ModuleNotFoundError as e:
        extra = "postgres" if kind == "postgresql" else "mysql"
        raise InvalidRequest(f"{kind} needs {e.name}: `{install_command(extra)}`") from None
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


# --- the catalog ------------------------------------------------------------------------------------------------------

_EXISTS, _LOCATION = "exists", "location"
_MAX_KEY_CHARS, _MAX_VALUE_CHARS = 255, 1000
"""Limits of a property's key and value; a longer option is in the table's schema only."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS paimon_tables (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255) NOT NULL, "
    "table_name VARCHAR(255) NOT NULL, PRIMARY KEY (catalog_key, database_name, table_name))",
    "CREATE TABLE IF NOT EXISTS paimon_database_properties (catalog_key VARCHAR(255) NOT NULL, "
    "database_name VARCHAR(255) NOT NULL, property_key VARCHAR(255), property_value VARCHAR(1000), "
    "PRIMARY KEY (catalog_key, database_name, property_key))",
    "CREATE TABLE IF NOT EXISTS paimon_table_properties (catalog_key VARCHAR(255) NOT NULL, "
    "database_name VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, "
    "property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name, table_name, property_key))",
)
_NAMES = ("paimon_tables", "paimon_database_properties", "paimon_table_properties")
_VIEW_TABLE = (
    "CREATE TABLE IF NOT EXISTS paimon_views (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255) NOT NULL, "
    "view_name VARCHAR(255) NOT NULL, view_schema TEXT NOT NULL, PRIMARY KEY (catalog_key, database_name, view_name))"
)
_OF_DATABASE = "catalog_key = ? AND database_name = ?"
_OF_VIEW = f"{_OF_DATABASE} AND view_name = ?"
_OF_TABLE = f"{_OF_DATABASE} AND table_name = ?"


class JdbcCatalog(Catalog):
    """Databases, tables and views named by rows of a database; the files of tables are under one warehouse."""

    kind = "jdbc"
    keeps_views = True

    def __init__(self, store: Store, warehouse: str, database: SqlDatabase, catalog_key: str = "jdbc") -> None:
        super().__init__(store, warehouse)
        self._database = database
        self._key = catalog_key
        self._view_table_exists = False
        self._prepare()

    def __repr__(self) -> str:
        return f"JdbcCatalog({self.warehouse!r}, {self._database.shown!r}, {self._key!r})"

    def _prepare(self) -> None:
        """Create the catalog's tables if they are missing: a user with read access only can use existing ones."""
        try:
            with self._database.transaction() as t:
                for table in _NAMES:
                    t.rows(f"SELECT 1 FROM {table} LIMIT 1")
        except StorageUnavailable:
            try:
                self._create_tables()
            except AlreadyExists:  # PostgreSQL raises it when two clients create them at the same time
                self._create_tables()

    @property
    def location(self) -> str:
        """The database and the lake's key in it, for messages."""
        return f"{self._database.shown} (catalog-key '{self._key}')"

    @contextmanager
    def _confirmed(self, is_done: Callable[[], bool]) -> Iterator[Transaction]:
        """A transaction that writes; an error of its commit is ignored if ``is_done`` then finds its effect.

        Raises :class:`StorageUnavailable` if the effect is not there, or the database cannot be read.
        """
        ended = False
        try:
            with self._database.transaction(write=True) as t:
                yield t
                ended = True
        except StorageUnavailable:
            if not ended or not is_done():
                raise

    def _create_tables(self) -> None:
        with self._database.transaction(write=True) as t:
            for text in _TABLES:
                t.run(text)

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database: its property ``location``, by default ``<warehouse>/<database>.db``."""
        default = super().database_path(name)
        rows = self._database.rows(
            f"SELECT property_value FROM paimon_database_properties WHERE {_OF_DATABASE} AND property_key = ?",
            (self._key, name, _LOCATION),
        )
        return str(rows[0][0]).rstrip("/") if rows and rows[0][0] else default

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        rows = self._database.rows(
            "SELECT database_name FROM paimon_tables WHERE catalog_key = ? UNION "
            "SELECT database_name FROM paimon_database_properties WHERE catalog_key = ?",
            (self._key, self._key),
        )
        return sorted(str(name) for (name,) in rows)

    def database_exists(self, name: str) -> bool:
        """Whether any row names the database; ``default`` always exists."""
        if name == DEFAULT_DATABASE:
            return True
        with self._database.transaction() as t:
            return self._has_database(t, name)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""
        location = super().database_path(name)
        _check_properties(name, properties or {})
        with self._database.transaction(write=True) as t:
            if self._has_database(t, name):
                if if_not_exists:
                    return
                raise AlreadyExists(f"database '{name}' already exists in {self.location}")
            self._insert_database(t, name, location)
            self._set_properties(t, name, properties or {})

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`NotFound`."""
        _check_properties(name, properties)
        location = super().database_path(name)
        with self._database.transaction(write=True) as t:
            if not self._has_database(t, name):
                if name != DEFAULT_DATABASE:
                    raise self._database_not_found(name)
                self._insert_database(t, name, location)
            self._set_properties(t, name, properties)

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        self._check_database(name)
        rows = self._database.rows(
            f"SELECT property_key, property_value FROM paimon_database_properties WHERE {_OF_DATABASE}",
            (self._key, name),
        )
        return {str(k): str(v) for k, v in rows if k not in (_EXISTS, _LOCATION)}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database with its views; see :meth:`Catalog.drop_database`."""
        path = self.database_path(name)
        views = self._view_names(name)
        with self._confirmed(lambda: name not in self.databases()) as t:
            if not self._has_database(t, name):
                if if_exists:
                    return
                raise self._database_not_found(name)
            tables = self._tables(t, name)
            if not cascade:
                self._check_empty(name, tables, views)
            for table in _NAMES:
                t.run(f"DELETE FROM {table} WHERE {_OF_DATABASE}", (self._key, name))
        if self._has_views():
            with self._database.transaction(write=True) as t:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_DATABASE}", (self._key, name))
        # The catalog's tables only: the folder may hold files that others put there.
        for table in tables:
            self._delete_folder(f"{path}/{table}")

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""
        self._check_database(database)
        with self._database.transaction() as t:
            return self._tables(t, database)

    def table_exists(self, name: Identifier) -> bool:
        """Whether a row names the table."""
        with self._database.transaction() as t:
            return self._has_table(t, name)

    def check_table(self, name: Identifier) -> None:
        """Raise :class:`NotFound`, naming similar tables, unless a row names the table and it has a schema."""
        self._check_row(name)
        super().check_table(name)

    def load_schema(self, name: Identifier) -> TableSchema:
        """The latest schema of a table; raises :class:`NotFound`, naming similar tables."""
        self._check_row(name)
        return super().load_schema(name)

    def _check_row(self, name: Identifier) -> None:
        if not self.table_exists(name):
            raise self._table_not_found(name)

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        self._check_database(name.database)
        self._check_no_view(name)
        path = self.table_path(name)
        created = False
        try:
            with self._confirmed(lambda: self.table_exists(name)) as t:
                self._insert_table(t, name)
                created = create_first_schema(self.store, path, schema)
                if not created and not self._is_failed_creation(path, schema):
                    raise AlreadyExists(
                        f"the catalog {self.location} has no table '{name}', but the files of one are in {path}: move "
                        "or delete them, or choose another name"
                    )
                self._insert_properties(t, name, schema)
        except BaseException:
            if created:
                self._delete_remains(name, path)
            raise

    def _is_failed_creation(self, path: str, schema: TableSchema) -> bool:
        """Whether a folder holds only the first schema that a failed CREATE TABLE of the same definition left.

        This transaction has inserted the table's name, so no other process is creating the table.
        """
        files = TableFiles(self.store, TablePaths(path))
        if self.store.names(path) != ["schema"] or schema_ids(files) != [0]:
            return False
        return replace(load_schema(files, 0), time_millis=schema.time_millis).to_json() == schema.to_json()

    def _delete_remains(self, name: Identifier, path: str) -> None:
        """Delete the schema of a table whose creation was not committed.

        No other process can create the table meanwhile: its name is inserted until the file is deleted.  If the
        deletion fails too, the next CREATE TABLE uses the file.
        """
        with suppress(AlreadyExists, StorageUnavailable), self._database.transaction(write=True) as t:
            self._insert_name(t, name)
            self.store.delete(TablePaths(path).schema(0))
            t.run(f"DELETE FROM paimon_tables WHERE {_OF_TABLE}", self._row_key(name))

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table in one step; see :meth:`Catalog.rename_table`.

        In an object store, rows that another writer commits during the rename may stay under the old name.
        """
        self._check_rename(old, new)
        self._check_no_view(new)
        source, target = self.table_path(old), self.table_path(new)
        cheap = has_cheap_rename(self.store, source)
        interrupted = False
        try:
            check_unused(self.store, target, str(new))
        except AlreadyExists:
            # A process died after it moved the folder, and before its transaction committed.
            interrupted = cheap and not self.store.dir_exists(source)
            if not interrupted:
                raise
        if not cheap:
            self.store.copy_dir(source, target)
        moved = False
        try:
            with self._confirmed(lambda: self._is_renamed(old, new)) as t:
                self._insert_table(t, new)
                if not t.run(f"DELETE FROM paimon_tables WHERE {_OF_TABLE}", self._row_key(old)):
                    raise self._table_not_found(old)
                t.run(
                    "UPDATE paimon_table_properties SET database_name = ?, table_name = ? WHERE " + _OF_TABLE,
                    (new.database, new.table, *self._row_key(old)),
                )
                if cheap and not interrupted:
                    self.store.rename(source, target)
                    moved = True
        except BaseException as e:
            if isinstance(e, AlreadyExists | NotFound) or not self._is_renamed(old, new):
                if moved:
                    self.store.rename(target, source)
                elif not cheap and not self.table_exists(new):  # else the files are those of another process's rename
                    self.store.delete_dir(target)
            raise
        if not cheap:
            self.store.delete_dir(source)

    def _is_renamed(self, old: Identifier, new: Identifier) -> bool:
        """Whether a rename that raised an error was committed: the database's response may have got lost.

        Raises :class:`StorageUnavailable` if the database cannot be read.  The caller then moves and deletes no file:
        the same rename, run again, completes the move; in a bucket both folders stay.
        """
        with self._database.transaction() as t:
            return self._has_table(t, new) and not self._has_table(t, old)

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Delete a table with everything in its folder; raises :class:`NotFound` unless ``if_exists``."""
        path = self.table_path(name)
        with deleting_external_files(self.table_files(name)):
            with self._confirmed(lambda: not self.table_exists(name)) as t:
                if not t.run(f"DELETE FROM paimon_tables WHERE {_OF_TABLE}", self._row_key(name)):
                    if if_exists:
                        return
                    raise self._table_not_found(name)
                t.run(f"DELETE FROM paimon_table_properties WHERE {_OF_TABLE}", self._row_key(name))
            delete_table(self.store, path)

    def _delete_folder(self, root: str) -> None:
        with deleting_external_files(TableFiles(self.store, TablePaths(root, None, self.external_roots))):
            delete_table(self.store, root)

    # --- views -----------------------------------------------------------------------------------------------------

    def views(self, database: str) -> list[str]:
        """The names of a database's views, sorted; raises :class:`NotFound` for the database."""
        self._check_database(database)
        return self._view_names(database)

    def _view_names(self, database: str) -> list[str]:
        if not self._has_views():
            return []
        rows = self._database.rows(f"SELECT view_name FROM paimon_views WHERE {_OF_DATABASE}", (self._key, database))
        return sorted(str(name) for (name,) in rows)

    def find_view(self, name: Identifier) -> View | None:
        """Return a view with its query in Spark SQL; None if it does not exist.

        Raises :class:`CorruptError` if its row cannot be parsed.
        """
        if not self._has_views():
            return None
        rows = self._database.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", self._row_key(name))
        return View.from_json(rows[0][0], name) if rows else None

    def create_view(self, name: Identifier, view: View, *, replace: bool = False) -> None:
        """Store a view; raises :class:`AlreadyExists`, also for a table of that name, and :class:`NotFound`."""
        self._check_database(name.database)
        if self.table_exists(name):
            raise AlreadyExists(f"cannot create view '{name}': a table has this name")
        if not self._has_views():
            with self._database.transaction(write=True) as t:
                t.run(_VIEW_TABLE)
            self._view_table_exists = True
        key = self._row_key(name)
        with self._database.transaction(write=True) as t:
            if replace:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", key)
            elif t.rows(f"SELECT 1 FROM paimon_views WHERE {_OF_VIEW}", key):
                raise AlreadyExists(f"view '{name}' already exists; use CREATE OR REPLACE VIEW")
            t.run(
                "INSERT INTO paimon_views (catalog_key, database_name, view_name, view_schema) VALUES (?, ?, ?, ?)",
                (*key, view.to_json()),
            )

    def alter_view_dialect(self, name: Identifier, action: str, engine: str, query: str | None) -> None:
        """Add, update or drop (``action``) the query of a view for one engine; the rest of the view does not change.

        Raises :class:`NotFound` for a missing view or query, and :class:`AlreadyExists`.
        """
        view = f"view '{name}'"
        if self.find_view(name) is None:
            raise NotFound(f"{view} does not exist")
        with self._database.transaction(write=True) as t:
            ((text,),) = t.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", self._row_key(name))
            schema = json.loads(text)
            queries = dict(schema.get("dialects") or {})
            if action == "add" and engine in queries:
                raise AlreadyExists(f"{view} already has a query for '{engine}'; update it")
            if action != "add" and engine not in queries:
                raise NotFound(f"{view} has no query for '{engine}'; it has: {', '.join(sorted(queries)) or 'none'}")
            if query is None:
                del queries[engine]
            else:
                queries[engine] = query
            changed = dumps({**schema, "dialects": queries})
            t.run(f"UPDATE paimon_views SET view_schema = ? WHERE {_OF_VIEW}", (changed, *self._row_key(name)))

    def rename_view(self, old: Identifier, new: Identifier) -> None:
        """See :meth:`Catalog.rename_view`."""
        self._check_view_rename(old, new)
        _, *names = self._row_key(new)
        with self._database.transaction(write=True) as t:
            if t.rows(f"SELECT 1 FROM paimon_views WHERE {_OF_VIEW}", self._row_key(new)):
                raise AlreadyExists(f"view '{new}' already exists; drop it first")
            change = f"UPDATE paimon_views SET database_name = ?, view_name = ? WHERE {_OF_VIEW}"
            if not t.run(change, (*names, *self._row_key(old))):  # another client has dropped it since
                raise NotFound(f"view '{old}' does not exist")

    def drop_view(self, name: Identifier) -> None:
        """Delete a view; raises :class:`NotFound`."""
        if self.find_view(name) is None:
            raise NotFound(f"view '{name}' does not exist")
        with self._database.transaction(write=True) as t:
            t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", self._row_key(name))

    def _has_views(self) -> bool:
        """Whether the table of views exists; queried in its own transaction, because an error ends it."""
        if not self._view_table_exists:
            try:
                self._database.rows("SELECT 1 FROM paimon_views LIMIT 1")
                self._view_table_exists = True
            except StorageUnavailable:
                return False
        return self._view_table_exists

    # --- rows ------------------------------------------------------------------------------------------------------

    def _row_key(self, name: Identifier) -> tuple[str, str, str]:
        return self._key, name.database, name.table

    def _insert_table(self, t: Transaction, name: Identifier) -> None:
        """Insert a table's name; raises :class:`AlreadyExists`."""
        if self._has_table(t, name):
            raise self._table_exists_already(name)
        if not self._has_database(t, name.database):
            self._insert_database(t, name.database, super().database_path(name.database))
        self._insert_name(t, name)

    def _insert_name(self, t: Transaction, name: Identifier) -> None:
        t.run(
            "INSERT INTO paimon_tables (catalog_key, database_name, table_name) VALUES (?, ?, ?)", self._row_key(name)
        )

    def _has_database(self, t: Transaction, name: str) -> bool:
        values = (self._key, name)
        return bool(
            t.rows(f"SELECT 1 FROM paimon_tables WHERE {_OF_DATABASE} LIMIT 1", values)
            or t.rows(f"SELECT 1 FROM paimon_database_properties WHERE {_OF_DATABASE} LIMIT 1", values)
        )

    def _has_table(self, t: Transaction, name: Identifier) -> bool:
        return bool(t.rows(f"SELECT 1 FROM paimon_tables WHERE {_OF_TABLE}", self._row_key(name)))

    def _tables(self, t: Transaction, database: str) -> list[str]:
        rows = t.rows(f"SELECT table_name FROM paimon_tables WHERE {_OF_DATABASE}", (self._key, database))
        return sorted(str(name) for (name,) in rows)

    def _insert_database(self, t: Transaction, name: str, location: str) -> None:
        self._insert_database_properties(t, name, {_EXISTS: "true", _LOCATION: location})

    def _set_properties(self, t: Transaction, name: str, properties: Mapping[str, str]) -> None:
        for key in properties:
            t.run(
                f"DELETE FROM paimon_database_properties WHERE {_OF_DATABASE} AND property_key = ?",
                (self._key, name, key),
            )
        self._insert_database_properties(t, name, properties)

    def _insert_database_properties(self, t: Transaction, name: str, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            t.run(
                "INSERT INTO paimon_database_properties (catalog_key, database_name, property_key, property_value) "
                "VALUES (?, ?, ?, ?)",
                (self._key, name, key, value),
            )

    def _insert_properties(self, t: Transaction, name: Identifier, schema: TableSchema) -> None:
        properties = dict(schema.options)
        if schema.primary_keys:
            properties["primary-key"] = ",".join(schema.primary_keys)
        if schema.partition_keys:
            properties["partition"] = ",".join(schema.partition_keys)
        for key, value in properties.items():
            if len(key) <= _MAX_KEY_CHARS and len(value) <= _MAX_VALUE_CHARS:
                t.run(
                    "INSERT INTO paimon_table_properties "
                    "(catalog_key, database_name, table_name, property_key, property_value) VALUES (?, ?, ?, ?, ?)",
                    (*self._row_key(name), key, value),
                )


def _check_properties(name: str, properties: Mapping[str, str]) -> None:
    """Raise :class:`InvalidRequest` for properties that the catalog sets itself, or that do not fit its rows."""
    for key, value in properties.items():
        if key in (_EXISTS, _LOCATION):
            raise InvalidRequest(f"database '{name}': property '{key}' is set by the catalog; leave it out")
        if len(key) > _MAX_KEY_CHARS or len(value) > _MAX_VALUE_CHARS:
            raise InvalidRequest(
                f"database '{name}': property '{key[:40]}' is too long; keys have at most {_MAX_KEY_CHARS} characters, "
                f"values {_MAX_VALUE_CHARS}"
            )
