"""Paimon's ``rest`` catalog: a server keeps the names and folders of tables and views, and commits snapshots.

The warehouse is a name that the server defines.  :mod:`bitlake.catalog.rest_client` sends the requests;
:mod:`bitlake.catalog.rest_store` reads and writes the tables' files, and asks the server for changes of their history.

Source: ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository; what it leaves open is as in Paimon's
clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from bitlake.catalog.catalog import DEFAULT_DATABASE, Catalog, Identifier, View, check_name
from bitlake.catalog.rest_client import RestClient, as_options
from bitlake.catalog.rest_store import RestStore, RestTable
from bitlake.errors import (
    AlreadyExists,
    BitlakeError,
    CorruptError,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.metadata.options import PAIMON_TYPES, TYPE
from bitlake.metadata.schema import TableSchema
from bitlake.types.datatypes import field_to_json

_REPLACE_TRIES = 20
"""Tries of CREATE OR REPLACE VIEW while other clients create the view between its two requests."""


class RestCatalog(Catalog):
    """Databases and tables named by a server."""

    kind = "rest"
    keeps_views = True

    def __init__(self, client: RestClient, store: RestStore) -> None:
        super().__init__(store, client.options.warehouse)
        self._client = client
        self._rest_store = store

    def __repr__(self) -> str:
        return f"RestCatalog({self._client.options!r})"

    @property
    def location(self) -> str:
        """The server and the warehouse's name, for messages."""
        return f"{self._client.options.uri} (warehouse '{self.warehouse}')"

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database, from the server; raises :class:`NotFound`."""
        return str(self._database(name).get("location") or "").rstrip("/")

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        return sorted(self._client.pages("databases", "databases"))

    def database_exists(self, name: str) -> bool:
        """Whether the server has the database; ``default`` always exists, or is created with its first table."""
        return name == DEFAULT_DATABASE or self._has_database(name)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""
        check_name(name, "database")
        try:
            self._client.post({"name": name, "options": dict(properties or {})}, "databases")
        except AlreadyExists as e:
            if not if_not_exists:
                raise AlreadyExists(f"database '{name}' already exists in {self.location}") from e

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`NotFound`."""
        try:
            self._client.post({"removals": [], "updates": dict(properties)}, "databases", name)
        except NotFound as e:
            raise self._database_not_found(name) from e

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        return as_options(self._database(name).get("options"))

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; see :meth:`Catalog.drop_database`."""
        if not self._has_database(name):
            if if_exists:
                return
            raise self._database_not_found(name)
        tables, views = self.tables(name), self.views(name)
        if not cascade:
            self._check_empty(name, tables, views)
        for table in tables:
            self.drop_table(Identifier(name, table), if_exists=True)
        for view in views:
            with contextlib.suppress(NotFound):  # another client deleted it meanwhile
                self._client.delete("databases", name, "views", view)
        self._client.delete("databases", name)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table_path(self, name: Identifier) -> str:
        """The folder of a table, from the server; raises :class:`NotFound`."""
        return self._table(name).root

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""
        try:
            names = self._client.pages("tables", "databases", database, "tables")
            return sorted(n for n in names if "$" not in n)  # a server may list branches, too
        except NotFound as e:
            if database == DEFAULT_DATABASE:
                return []
            raise self._database_not_found(database) from e

    def table_exists(self, name: Identifier) -> bool:
        """Whether the server has the table."""
        try:
            self._client.get(*self._table_request(name))
        except NotFound:
            return False
        return True

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        """Ask the server to create a table; it writes the first schema."""
        check_name(name.table, "table")
        try:
            self._post_new(name, "tables", _schema_request(schema))
        except AlreadyExists as e:
            self._check_no_view(name)
            raise self._table_exists_already(name) from e

    def _post_new(self, name: Identifier, kind: str, schema: Mapping[str, object]) -> None:
        """Ask the server to create a table or view; the database ``default`` is created with the first one."""
        body = {"identifier": _identifier(name), "schema": schema}
        path = ("databases", name.database, kind)
        try:
            self._client.post(body, *path)
        except NotFound as e:
            if self._has_database(name.database):
                raise
            if name.database != DEFAULT_DATABASE:
                raise self._database_not_found(name.database) from e
            self.create_database(DEFAULT_DATABASE, if_not_exists=True)
            self._client.post(body, *path)

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table; also into another database, if the server supports it."""
        # Some servers check neither name.
        self._check_rename(old, new)
        if not self._has_database(new.database):  # ``default``
            raise self._database_not_found(new.database)
        try:
            self._client.post({"source": _identifier(old), "destination": _identifier(new)}, "tables", "rename")
        except AlreadyExists as e:
            self._check_no_view(new)
            raise AlreadyExists(f"table '{new}' already exists; drop it first") from e

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Ask the server to delete a table with its files; raises :class:`NotFound` unless ``if_exists``."""
        try:
            self._client.delete(*self._table_request(name))
        except NotFound as e:
            if not if_exists:
                raise self._table_not_found(name) from e

    def _table_request(self, name: Identifier) -> tuple[str, ...]:
        """The path of requests about a table; raises :class:`NotFound` for a branch, which to a server is a table, too.

        DELETE would remove the branch from the server and leave its files.
        """
        if "$" in name.table:
            raise NotFound(f"'{name}' is not the name of a table")
        return ("databases", name.database, "tables", name.table)

    # --- views -----------------------------------------------------------------------------------------------------

    def views(self, database: str) -> list[str]:
        """The names of a database's views, sorted; raises :class:`NotFound` for the database."""
        try:
            return sorted(self._client.pages("views", "databases", database, "views"))
        except UnsupportedFeature:
            return []
        except NotFound as e:
            if database == DEFAULT_DATABASE or self._has_database(database):
                return []
            raise self._database_not_found(database) from e

    def find_view(self, name: Identifier) -> View | None:
        """Return a view with its query in Spark SQL; None if it does not exist, or if the server has no views.

        Raises :class:`CorruptError` for a response that cannot be parsed.
        """
        try:
            response = self._client.get("databases", name.database, "views", name.table)
        except (NotFound, UnsupportedFeature):
            return None
        return View.from_schema(response.get("schema"), name)

    def create_view(self, name: Identifier, view: View, *, replace: bool = False) -> None:
        """Ask the server to store a view; raises :class:`AlreadyExists`, also for a table of that name."""
        check_name(name.table, "view")
        if self.table_exists(name):
            raise AlreadyExists(f"cannot create view '{name}': a table has this name")
        for _ in range(_REPLACE_TRIES if replace else 1):
            old = self.find_view(name) if replace else None
            if old is not None:  # the protocol has no request that replaces a view's query
                with contextlib.suppress(NotFound):  # another client replaces it, too
                    self._client.delete("databases", name.database, "views", name.table)
            try:
                self._post_new(name, "views", view.to_schema())
                return
            except AlreadyExists as e:
                error = e
            except BitlakeError as e:
                stored = self.find_view(name)
                if stored is None and old is not None:
                    self._post_new(name, "views", old.to_schema())
                if stored != view or not isinstance(e, StorageUnavailable):
                    raise
                return  # only the response was lost
        hint = "other clients replace it at the same time; try again" if replace else "use CREATE OR REPLACE VIEW"
        raise AlreadyExists(f"view '{name}' already exists; {hint}") from error

    def alter_view_dialect(self, name: Identifier, action: str, engine: str, query: str | None) -> None:
        """See :meth:`Catalog.alter_view_dialect`."""
        change = {"action": f"{action}Dialect", "dialect": engine}
        if query is not None:
            change["query"] = query
        self._client.post({"changes": [change]}, "databases", name.database, "views", name.table)

    def rename_view(self, old: Identifier, new: Identifier) -> None:
        """See :meth:`Catalog.rename_view`."""
        self._check_view_rename(old, new)
        if not self._has_database(new.database):  # ``default``
            raise self._database_not_found(new.database)
        self._client.post({"source": _identifier(old), "destination": _identifier(new)}, "views", "rename")

    def drop_view(self, name: Identifier) -> None:
        """Delete a view; raises :class:`NotFound`."""
        try:
            self._client.delete("databases", name.database, "views", name.table)
        except NotFound as e:
            raise NotFound(f"view '{name}' does not exist") from e

    # --- responses -------------------------------------------------------------------------------------------------

    def _has_database(self, name: str) -> bool:
        try:
            self._client.get("databases", name)
        except NotFound:
            return False
        return True

    def _database(self, name: str) -> dict[str, Any]:
        try:
            return self._client.get("databases", name)
        except NotFound as e:
            raise self._database_not_found(name) from e

    def _table(self, name: Identifier) -> RestTable:
        """Get a table from the server, and register it with the store, which commits its snapshots there."""
        try:
            response = self._client.get(*self._table_request(name))
        except NotFound as e:
            raise self._table_not_found(name) from e
        root, uuid, schema = response.get("path"), response.get("id"), response.get("schema")
        if not isinstance(root, str) or not root.strip("/"):
            raise CorruptError(f"the catalog at {self.location} gives no path for table '{name}'")
        table_type = (schema.get("options") or {}).get(TYPE.name) if isinstance(schema, dict) else None
        if str(table_type or TYPE.default).lower() not in PAIMON_TYPES:
            raise UnsupportedFeature(f"'{name}' is a {table_type}; only tables in Paimon's own format can be opened")
        uuid = uuid if isinstance(uuid, str) else None
        table = RestTable(name.database, name.table, root.rstrip("/"), uuid, response.get("isExternal") is True)
        self._rest_store.add(table)
        return table

    def _schema_not_found(self, name: Identifier, path: str) -> NotFound:
        return NotFound(
            f"the catalog {self.location} has table '{name}' at {path}, where no schema is found; can these files "
            "be reached from here?"
        )


def _identifier(name: Identifier) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _schema_request(schema: TableSchema) -> dict[str, Any]:
    """A schema as in requests: without version, id and time, which the server sets."""
    return {
        "fields": [field_to_json(f) for f in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }
