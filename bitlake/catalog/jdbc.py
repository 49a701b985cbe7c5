"""Paimon's ``jdbc`` catalog: names are rows of a database, and several lakes may share one.

Tables (of ``org.apache.paimon.jdbc.JdbcUtils``; all columns are VARCHAR(255), values VARCHAR(1000))::

    paimon_tables               catalog_key, database_name, table_name                                 the key
    paimon_database_properties  catalog_key, database_name, property_key → property_value
    paimon_table_properties     catalog_key, database_name, table_name, property_key → property_value

A database exists when any row names it; property ``exists`` = ``true`` makes an empty one be seen, and ``location``
says where its folder is.  A table's folder is ``<location>/<table>``, as in the filesystem catalog: whoever knows only
the folders can read the tables.  The key of ``paimon_tables`` is what makes creating and renaming one atomic step: of
two that want one name, one gets :class:`AlreadyExists`.  ``catalog_key`` tells lakes of one database apart.

A rename takes effect when its transaction does.  On a file system the folder is renamed within it; a bucket's is
copied before, and the old one deleted after, so that either name leads to a whole table at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bitlake.catalog.filesystem import DEFAULT_DATABASE, FileSystemCatalog, delete_table
from bitlake.catalog.identifier import Identifier
from bitlake.errors import AlreadyExists, CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store, has_cheap_rename
from bitlake.io.sql_database import SqlDatabase, Transaction
from bitlake.metadata.java_json import dumps
from bitlake.metadata.names import Names
from bitlake.metadata.schema import TableSchema
from bitlake.schema.create import ColumnSpec, new_schema
from bitlake.types import DataField
from bitlake.types.datatypes import field_to_json

_EXISTS, _LOCATION = "exists", "location"
_LONGEST = 1000
"""Characters of a property's value; a longer one is only in the table's schema."""
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
_OF_DATABASE = "catalog_key = ? AND database_name = ?"
_OF_TABLE = f"{_OF_DATABASE} AND table_name = ?"


class JdbcCatalog(FileSystemCatalog):
    """Databases and tables that rows of a database name; their files are under one warehouse, as ever."""

    def __init__(self, store: Store, warehouse: str, database: SqlDatabase, catalog_key: str = "jdbc") -> None:
        super().__init__(store, warehouse)
        self._database = database
        self._key = catalog_key
        self._views = JdbcViews(database, catalog_key)
        self._prepare()

    def __repr__(self) -> str:
        return f"JdbcCatalog({self.warehouse!r}, {self._database.shown!r}, {self._key!r})"

    def _prepare(self) -> None:
        """Make the catalog's tables, unless they are there: whoever may only read can use those that are."""
        try:
            with self._database.transaction() as t:
                for table in _NAMES:
                    t.rows(f"SELECT 1 FROM {table} LIMIT 1")
        except StorageUnavailable:
            try:
                self._create_tables()
            except AlreadyExists:  # PostgreSQL says so when two do it at once
                self._create_tables()

    def _create_tables(self) -> None:
        with self._database.transaction(write=True) as t:
            for text in _TABLES:
                t.run(text)

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database: its property ``location``, else where the filesystem catalog has it."""
        usual = super().database_path(name)
        with self._database.transaction() as t:
            found = t.rows(
                f"SELECT property_value FROM paimon_database_properties WHERE {_OF_DATABASE} AND property_key = ?",
                (self._key, name, _LOCATION),
            )
        return str(found[0][0]).rstrip("/") if found and found[0][0] else usual

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        with self._database.transaction() as t:
            found = t.rows(
                "SELECT database_name FROM paimon_tables WHERE catalog_key = ? UNION "
                "SELECT database_name FROM paimon_database_properties WHERE catalog_key = ?",
                (self._key, self._key),
            )
        return sorted(str(name) for (name,) in found)

    def database_exists(self, name: str) -> bool:
        """Whether any row names the database; ``default`` always is there."""
        if name == DEFAULT_DATABASE:
            return True
        with self._database.transaction() as t:
            return self._has_database(t, name)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""
        location = super().database_path(name)
        _check_properties(name, properties or {})
        with self._database.transaction(write=True) as t:
            if self._has_database(t, name):
                if if_not_exists:
                    return
                raise AlreadyExists(f"database '{name}' exists already in {self._shown}")
            self._insert_database(t, name, location)
            self._set_properties(t, name, properties or {})

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`NotFound`."""
        _check_properties(name, properties)
        location = super().database_path(name)
        with self._database.transaction(write=True) as t:
            if not self._has_database(t, name):
                if name != DEFAULT_DATABASE:
                    raise self._no_database(name)
                self._insert_database(t, name, location)
            self._set_properties(t, name, properties)

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        if not self.database_exists(name):
            raise self._no_database(name)
        with self._database.transaction() as t:
            found = t.rows(
                f"SELECT property_key, property_value FROM paimon_database_properties WHERE {_OF_DATABASE}",
                (self._key, name),
            )
        return {str(k): str(v) for k, v in found if k not in (_EXISTS, _LOCATION)}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; one that holds tables only with ``cascade``."""
        path = self.database_path(name)
        views = self._views.names(name)
        with self._database.transaction(write=True) as t:
            if not self._has_database(t, name):
                if if_exists:
                    return
                raise self._no_database(name)
            tables = self._tables(t, name)
            if (tables or views) and not cascade:
                raise InvalidRequest(
                    f"database '{name}' is not empty (it has {len(tables)} tables and {len(views)} views, "
                    f"{(*tables, *views)[0]} first): drop them first, or add CASCADE"
                )
            for table in _NAMES:
                t.run(f"DELETE FROM {table} WHERE {_OF_DATABASE}", (self._key, name))
        self._views.drop(name)
        # Only what the catalog named: the folder may hold what others put there.
        for table in tables:
            with self._dropping(Identifier(name, table)):
                delete_table(self.store, f"{path}/{table}")

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` without the database."""
        if not self.database_exists(database):
            raise self._no_database(database)
        with self._database.transaction() as t:
            return self._tables(t, database)

    def table_exists(self, name: Identifier) -> bool:
        """Whether a row names the table."""
        with self._database.transaction() as t:
            return self._has_table(t, name)

    def load_schema(self, name: Identifier) -> TableSchema:
        """The table's latest schema; raises :class:`NotFound`, naming similar tables."""
        if not self.table_exists(name):
            raise self._no_table(name)
        return super().load_schema(name)

    def create_table(
        self,
        name: Identifier,
        columns: Sequence[ColumnSpec],
        *,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
        names: Names = Names.FOLDED,
    ) -> bool:
        """Create a table by its row and its first schema; see :meth:`FileSystemCatalog.create_table`."""
        if not self.database_exists(name.database):
            raise self._no_database(name.database)
        schema = new_schema(str(name), columns, partition_keys, options or {}, comment, primary_keys, names)
        self._check_no_view(name)
        try:
            with self._database.transaction(write=True) as t:
                self._take(t, name)
                if not self.write_first_schema(name, schema):
                    raise AlreadyExists(
                        f"the files of a table are in {self.table_path(name)} already, though the catalog "
                        f"{self._shown} does not name it: move or delete them, or choose another name"
                    )
                self._insert_properties(t, name, schema)
        except AlreadyExists:
            if if_not_exists and self.table_exists(name):
                return False
            raise
        return True

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Give a table another name, in one step; also into another database.

        Whoever has the table open by its old name finds it gone; rows written to a bucket's table by others in the
        very moment of its renaming may stay behind.  Raises :class:`AlreadyExists` and :class:`NotFound`.
        """
        if not self.table_exists(old):
            raise self._no_table(old)
        if not self.database_exists(new.database):
            raise self._no_database(new.database)
        self._check_no_view(new)
        source, target = self.table_path(old), self.table_path(new)
        cheap = has_cheap_rename(self.store, source)
        interrupted = False
        try:
            self.check_free(new)
        except AlreadyExists:
            # A death after the folder was moved, and before the transaction's end.
            interrupted = cheap and not self.table_exists(new) and not self.store.dir_exists(source)
            if not interrupted:
                raise
        if not cheap:
            self.store.copy_dir(source, target)
        moved = False
        try:
            with self._database.transaction(write=True) as t:
                self._take(t, new)
                gone = t.run(f"DELETE FROM paimon_tables WHERE {_OF_TABLE}", self._of(old))
                if not gone:
                    raise self._no_table(old)
                t.run(
                    "UPDATE paimon_table_properties SET database_name = ?, table_name = ? WHERE " + _OF_TABLE,
                    (new.database, new.table, *self._of(old)),
                )
                if cheap and not interrupted:
                    self.store.rename(source, target)
                    moved = True
        except BaseException:
            if moved:
                self.store.rename(target, source)
            elif not cheap:
                self.store.delete_dir(target)
            raise
        if not cheap:
            self.store.delete_dir(source)

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Delete a table and everything in its folder."""
        path = self.table_path(name)
        with self._dropping(name):
            with self._database.transaction(write=True) as t:
                if not t.run(f"DELETE FROM paimon_tables WHERE {_OF_TABLE}", self._of(name)):
                    if if_exists:
                        return
                    raise self._no_table(name)
                t.run(f"DELETE FROM paimon_table_properties WHERE {_OF_TABLE}", self._of(name))
            delete_table(self.store, path)

    # --- views -----------------------------------------------------------------------------------------------------

    keeps_views = True

    def views(self, database: str) -> list[str]:
        """The names of a database's views, sorted; raises :class:`NotFound` without the database."""
        if not self.database_exists(database):
            raise self._no_database(database)
        return self._views.names(database)

    def find_view(self, name: Identifier) -> str | None:
        """The query of a view; None if there is none of that name."""
        return self._views.find(name.database, name.table)

    def create_view(self, name: Identifier, view: View, *, replace: bool = False) -> None:
        """Keep a view; raises :class:`AlreadyExists`, also for a table of that name, and :class:`NotFound`."""
        if not self.database_exists(name.database):
            raise self._no_database(name.database)
        if self.table_exists(name):
            raise AlreadyExists(f"'{name}' is a table; a view needs a name of its own")
        self._views.create(name.database, name.table, view, replace=replace)

    def alter_view_dialect(self, name: Identifier, action: str, engine: str, query: str | None) -> None:
        """Add, update or drop what a view is to one engine; see :meth:`JdbcViews.alter_dialect`."""
        self._views.alter_dialect(name.database, name.table, action, engine, query)

    def drop_view(self, name: Identifier) -> None:
        """Forget a view; raises :class:`NotFound`."""
        self._views.drop(name.database, name.table)

    def _check_no_view(self, name: Identifier) -> None:
        if self.find_view(name) is not None:
            raise AlreadyExists(f"'{name}' is a view; a table needs a name of its own")

    # --- rows ------------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> str:
        return f"{self._database.shown} (catalog-key '{self._key}')"

    def _of(self, name: Identifier) -> tuple[str, str, str]:
        return self._key, name.database, name.table

    def _take(self, t: Transaction, name: Identifier) -> None:
        """Take a table's name; raises :class:`AlreadyExists`."""
        if self._has_table(t, name):
            raise AlreadyExists(f"table '{name}' exists already: drop it, or say IF NOT EXISTS")
        if not self._has_database(t, name.database):
            self._insert_database(t, name.database, super().database_path(name.database))
        t.run("INSERT INTO paimon_tables (catalog_key, database_name, table_name) VALUES (?, ?, ?)", self._of(name))

    def _has_database(self, t: Transaction, name: str) -> bool:
        values = (self._key, name)
        return bool(
            t.rows(f"SELECT 1 FROM paimon_tables WHERE {_OF_DATABASE} LIMIT 1", values)
            or t.rows(f"SELECT 1 FROM paimon_database_properties WHERE {_OF_DATABASE} LIMIT 1", values)
        )

    def _has_table(self, t: Transaction, name: Identifier) -> bool:
        return bool(t.rows(f"SELECT 1 FROM paimon_tables WHERE {_OF_TABLE}", self._of(name)))

    def _tables(self, t: Transaction, database: str) -> list[str]:
        found = t.rows(f"SELECT table_name FROM paimon_tables WHERE {_OF_DATABASE}", (self._key, database))
        return sorted(str(name) for (name,) in found)

    def _insert_database(self, t: Transaction, name: str, location: str) -> None:
        for key, value in ((_EXISTS, "true"), (_LOCATION, location)):
            t.run(
                "INSERT INTO paimon_database_properties (catalog_key, database_name, property_key, property_value) "
                "VALUES (?, ?, ?, ?)",
                (self._key, name, key, value),
            )

    def _set_properties(self, t: Transaction, name: str, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            t.run(
                f"DELETE FROM paimon_database_properties WHERE {_OF_DATABASE} AND property_key = ?",
                (self._key, name, key),
            )
            t.run(
                "INSERT INTO paimon_database_properties (catalog_key, database_name, property_key, property_value) "
                "VALUES (?, ?, ?, ?)",
                (self._key, name, key, value),
            )

    def _insert_properties(self, t: Transaction, name: Identifier, schema: TableSchema) -> None:
        shown = dict(schema.options)
        if schema.primary_keys:
            shown["primary-key"] = ",".join(schema.primary_keys)
        if schema.partition_keys:
            shown["partition"] = ",".join(schema.partition_keys)
        for key, value in shown.items():
            if len(value) <= _LONGEST:
                t.run(
                    "INSERT INTO paimon_table_properties "
                    "(catalog_key, database_name, table_name, property_key, property_value) VALUES (?, ?, ?, ?, ?)",
                    (*self._of(name), key, value),
                )


__all__ = ["JdbcCatalog"]


def _check_properties(name: str, properties: Mapping[str, str]) -> None:
    """Refuse properties that are the catalog's own, or do not fit its rows."""
    for key, value in properties.items():
        if key in (_EXISTS, _LOCATION):
            raise InvalidRequest(f"database '{name}': property '{key}' is the catalog's own")
        if len(key) > 255 or len(value) > _LONGEST:
            raise InvalidRequest(f"database '{name}': property '{key[:40]}' takes at most {_LONGEST} characters")


# --- jdbc_views ---
# Views that a jdbc catalog keeps, as Paimon does: rows of the table ``paimon_views``.
#
# ``catalog_key, database_name, view_name`` are the key, ``view_schema`` is JSON: fields (as in a table's schema),
# query, dialects (the query by engine: ``spark``), comment, options.  The table is made with the first view.
# Source: Paimon's JdbcUtils and ViewSchema.

_TABLE = (
    "CREATE TABLE IF NOT EXISTS paimon_views (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255) NOT NULL, "
    "view_name VARCHAR(255) NOT NULL, view_schema TEXT NOT NULL, PRIMARY KEY (catalog_key, database_name, view_name))"
)
_VIEWS_OF_DATABASE = "catalog_key = ? AND database_name = ?"
_OF_VIEW = f"{_OF_DATABASE} AND view_name = ?"
_DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class View:
    """A query by a name: its text as Spark reads it, and the columns it gave when it was made."""

    query: str
    fields: Sequence[DataField] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """As the catalog keeps it."""
        out: dict[str, object] = {
            "fields": [field_to_json(f) for f in self.fields],
            "query": self.query,
            "dialects": {_DIALECT: self.query},
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        return dumps(out)


class JdbcViews:
    """The views of one catalog key; databases and tables are the catalog's to look after."""

    def __init__(self, database: SqlDatabase, catalog_key: str) -> None:
        self._database = database
        self._key = catalog_key
        self._there = False

    def names(self, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        if not self._ready():
            return []
        with self._database.transaction() as t:
            rows = t.rows(f"SELECT view_name FROM paimon_views WHERE {_OF_DATABASE}", (self._key, database))
        return sorted(str(name) for (name,) in rows)

    def find(self, database: str, name: str) -> str | None:
        """The query of a view as Spark reads it; None if there is no such view."""
        if not self._ready():
            return None
        with self._database.transaction() as t:
            rows = t.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", (self._key, database, name))
        if not rows:
            return None
        try:
            kept = json.loads(rows[0][0])
            return str(kept.get("dialects", {}).get(_DIALECT) or kept["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptError(f"view '{database}.{name}' of the catalog cannot be read ({e})", 0) from e

    def create(self, database: str, name: str, view: View, *, replace: bool = False) -> None:
        """Keep a view; raises :class:`AlreadyExists` unless it may ``replace`` one."""
        if not self._ready():
            with self._database.transaction(write=True) as t:
                t.run(_TABLE)
            self._there = True
        place = (self._key, database, name)
        with self._database.transaction(write=True) as t:
            if replace:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", place)
            elif t.rows(f"SELECT 1 FROM paimon_views WHERE {_OF_VIEW}", place):
                raise AlreadyExists(f"view '{database}.{name}' exists already: say CREATE OR REPLACE VIEW")
            t.run(
                "INSERT INTO paimon_views (catalog_key, database_name, view_name, view_schema) VALUES (?, ?, ?, ?)",
                (*place, view.to_json()),
            )

    def alter_dialect(self, database: str, name: str, action: str, engine: str, query: str | None) -> None:
        """Add an engine's query to a view, update it, or drop it (``action``); all else about the view stays.

        Raises :class:`NotFound` for a view, or an engine's query, that is not there, and :class:`AlreadyExists`.
        """
        view = f"view '{database}.{name}'"
        if self.find(database, name) is None:
            raise NotFound(f"{view} does not exist")
        place = (self._key, database, name)
        with self._database.transaction(write=True) as t:
            ((text,),) = t.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", place)
            kept = json.loads(text)
            queries = dict(kept.get("dialects") or {})
            if action == "add" and engine in queries:
                raise AlreadyExists(f"{view} has a query for '{engine}' already: update it")
            if action != "add" and engine not in queries:
                raise NotFound(f"{view} has no query for '{engine}'; it has: {', '.join(sorted(queries)) or 'none'}")
            if query is None:
                del queries[engine]
            else:
                queries[engine] = query
            made = dumps({**kept, "dialects": queries})
            t.run(f"UPDATE paimon_views SET view_schema = ? WHERE {_OF_VIEW}", (made, *place))

    def drop(self, database: str, name: str | None = None) -> None:
        """Forget a view, or with no name all of a database; raises :class:`NotFound` for a view that is not there."""
        if name is None and not self._ready():
            return
        if name is not None and self.find(database, name) is None:
            raise NotFound(f"view '{database}.{name}' does not exist")
        with self._database.transaction(write=True) as t:
            if name is None:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_DATABASE}", (self._key, database))
            else:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", (self._key, database, name))

    def _ready(self) -> bool:
        """Whether the table is there; asked in a transaction of its own, which an error would end."""
        if not self._there:
            try:
                with self._database.transaction() as t:
                    t.rows("SELECT 1 FROM paimon_views LIMIT 1")
                self._there = True
            except StorageUnavailable:
                return False
        return self._there
