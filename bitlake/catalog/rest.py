"""A client of Paimon's ``rest`` catalog: a server keeps the names and folders of tables, and commits their snapshots.

Requests and responses follow ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository.  The warehouse is a
name that the server defines.  Files are read and written directly (:mod:`bitlake.catalog.rest_store`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitlake.catalog.catalog import Catalog
from bitlake.catalog.identifier import DEFAULT_DATABASE, Identifier, check_name
from bitlake.catalog.rest_store import RestStore, RestTable
from bitlake.errors import AlreadyExists, CorruptError, NotFound, UnsupportedFeature
from bitlake.io.rest import RestClient
from bitlake.metadata.schema import TableSchema
from bitlake.types.datatypes import field_to_json

_PAIMON_TABLE = (None, "", "table")
"""Values of the option ``type`` of tables in Paimon's own format."""


class RestCatalog(Catalog):
    """Databases and tables named by a server."""

    kind = "rest"

    def __init__(self, client: RestClient, store: RestStore) -> None:
        super().__init__(store, client.options.warehouse)
        if client.settings.get("data-token.enabled", "false").lower() == "true":
            raise UnsupportedFeature(
                f"the catalog at {client.options.uri} issues credentials for each table (data-token.enabled), which is "
                "not supported; set data-token.enabled to false there, and give storage_options"
            )
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
        properties = self._database(name).get("options") or {}
        return {str(k): str(v) for k, v in properties.items()}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; see :meth:`Catalog.drop_database`."""
        if not self._has_database(name):
            if if_exists:
                return
            raise self._database_not_found(name)
        tables = self.tables(name)
        if not cascade:
            self._check_empty(name, tables)
        for table in tables:
            self.drop_table(Identifier(name, table), if_exists=True)
        self._client.delete("databases", name)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table_path(self, name: Identifier) -> str:
        """The folder of a table, from the server; raises :class:`NotFound`."""
        return self._table(name).root

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""
        try:
            return sorted(self._client.pages("tables", "databases", database, "tables"))
        except NotFound as e:
            if database == DEFAULT_DATABASE:
                return []
            raise self._database_not_found(database) from e

    def table_exists(self, name: Identifier) -> bool:
        """Whether the server has the table."""
        try:
            self._client.get("databases", name.database, "tables", name.table)
        except NotFound:
            return False
        return True

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        """Ask the server to create a table; it writes the first schema."""
        check_name(name.table, "table")
        body = {"identifier": _identifier(name), "schema": _schema(schema)}
        path = ("databases", name.database, "tables")
        try:
            try:
                self._client.post(body, *path)
            except NotFound as e:
                if name.database != DEFAULT_DATABASE:
                    raise self._database_not_found(name.database) from e
                self.create_database(DEFAULT_DATABASE, if_not_exists=True)
                self._client.post(body, *path)
        except AlreadyExists as e:
            raise self._table_exists_already(name) from e

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table; also into another database, if the server supports it."""
        # Some servers check neither name.
        self._check_rename(old, new)
        if not self._has_database(new.database):  # ``default``
            raise self._database_not_found(new.database)
        try:
            self._client.post({"source": _identifier(old), "destination": _identifier(new)}, "tables", "rename")
        except AlreadyExists as e:
            raise AlreadyExists(f"table '{new}' already exists; drop it first") from e

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Ask the server to delete a table with its files; raises :class:`NotFound` unless ``if_exists``."""
        try:
            self._client.delete("databases", name.database, "tables", name.table)
        except NotFound as e:
            if not if_exists:
                raise self._table_not_found(name) from e

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
            response = self._client.get("databases", name.database, "tables", name.table)
        except NotFound as e:
            raise self._table_not_found(name) from e
        root, uuid, schema = response.get("path"), response.get("id"), response.get("schema")
        if not isinstance(root, str) or not root.strip("/"):
            raise CorruptError(f"the catalog at {self.location} gives no path for table '{name}'")
        table_type = (schema.get("options") or {}).get("type") if isinstance(schema, dict) else None
        if table_type not in _PAIMON_TABLE:
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


def _schema(schema: TableSchema) -> dict[str, Any]:
    """A schema as in requests: without version, id and time, which the server sets."""
    return {
        "fields": [field_to_json(f) for f in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }
