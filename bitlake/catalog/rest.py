"""Paimon's ``rest`` catalog as a client: a server says which tables there are, where their files are, and commits.

Requests and answers are those of ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository.  The warehouse is a
name that the server knows.  Files are read and written directly (:mod:`bitlake.catalog.rest_store`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitlake.catalog.filesystem import DEFAULT_DATABASE, FileSystemCatalog, _check_name
from bitlake.catalog.identifier import Identifier
from bitlake.catalog.rest_store import RestStore, RestTable
from bitlake.errors import AlreadyExists, CorruptError, InvalidRequest, NotFound, UnsupportedFeature, reading_table
from bitlake.io.rest import RestClient
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.schema.create import ColumnSpec, new_schema
from bitlake.snapshot.versions import latest_schema
from bitlake.types.datatypes import field_to_json

_PLAIN = (None, "", "table")
"""Values of the option ``type`` of tables that have Paimon's own files."""


class RestCatalog(FileSystemCatalog):
    """Databases and tables that a server names."""

    def __init__(self, client: RestClient, store: RestStore) -> None:
        super().__init__(store, client.options.warehouse)
        if client.settings.get("data-token.enabled", "false").lower() == "true":
            raise UnsupportedFeature(
                f"the catalog at {client.options.uri} hands out credentials for each table (data-token.enabled); this "
                "version takes storage options only"
            )
        self._client = client
        self._rest_store = store

    def __repr__(self) -> str:
        return f"RestCatalog({self._client.options!r})"

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database, as the server says; raises :class:`NotFound`."""
        return str(self._database(name).get("location") or "").rstrip("/")

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        return sorted(self._client.pages("databases", "databases"))

    def database_exists(self, name: str) -> bool:
        """Whether the server knows the database; ``default`` always is there, or made by its first table."""
        return name == DEFAULT_DATABASE or self._has_database(name)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""
        _check_name(name, "database")
        try:
            self._client.post({"name": name, "options": dict(properties or {})}, "databases")
        except AlreadyExists as e:
            if not if_not_exists:
                raise AlreadyExists(f"database '{name}' exists already in {self._shown}") from e

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`NotFound`."""
        try:
            self._client.post({"removals": [], "updates": dict(properties)}, "databases", name)
        except NotFound as e:
            raise self._no_database(name) from e

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        found = self._database(name).get("options") or {}
        return {str(k): str(v) for k, v in found.items()}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; one that holds tables only with ``cascade``."""
        if not self._has_database(name):
            if if_exists:
                return
            raise self._no_database(name)
        tables = self.tables(name)
        if tables and not cascade:
            raise InvalidRequest(
                f"database '{name}' is not empty (it has {len(tables)} tables, {tables[0]} first): "
                "drop them first, or add CASCADE"
            )
        for table in tables:
            self.drop_table(Identifier(name, table), if_exists=True)
        self._client.delete("databases", name)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table_path(self, name: Identifier) -> str:
        """The folder of a table, as the server says; raises :class:`NotFound`."""
        return self._table(name).root

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` without the database."""
        try:
            return sorted(self._client.pages("tables", "databases", database, "tables"))
        except NotFound as e:
            if database == DEFAULT_DATABASE:
                return []
            raise self._no_database(database) from e

    def table_exists(self, name: Identifier) -> bool:
        """Whether the server knows the table."""
        try:
            self._client.get("databases", name.database, "tables", name.table)
        except NotFound:
            return False
        return True

    def load_schema(self, name: Identifier) -> TableSchema:
        """The table's latest schema; raises :class:`NotFound`, naming similar tables."""
        table = self._table(name)
        with reading_table(str(name)):
            schema = latest_schema(self.store, TablePaths(table.root))
        if schema is None:
            raise NotFound(
                f"the catalog {self._shown} has table '{name}' at {table.root}, and there is no schema there: are "
                "these files to be reached from here?"
            )
        return schema

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
        """Create a table; see :meth:`FileSystemCatalog.create_table`.  The server writes its first schema."""
        _check_name(name.table, "table")
        schema = new_schema(str(name), columns, partition_keys, options or {}, comment, primary_keys, names)
        body = {"identifier": _identifier(name), "schema": _schema(schema)}
        path = ("databases", name.database, "tables")
        try:
            try:
                self._client.post(body, *path)
            except NotFound as e:
                if name.database != DEFAULT_DATABASE:
                    raise self._no_database(name.database) from e
                self.create_database(DEFAULT_DATABASE, if_not_exists=True)
                self._client.post(body, *path)
        except AlreadyExists as e:
            if if_not_exists:
                return False
            raise AlreadyExists(f"table '{name}' exists already: drop it, or say IF NOT EXISTS") from e
        return True

    def write_first_schema(self, name: Identifier, schema: TableSchema) -> bool:
        """Refused: a REST catalog's server writes schemas; :meth:`create_table` asks it to."""
        raise UnsupportedFeature(f"table '{name}': a REST catalog writes the schemas of its tables itself")

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Give a table another name; also into another database, if the server does that."""
        _check_name(new.table, "table")
        if not self.table_exists(old):
            raise self._no_table(old)
        if not self._has_database(new.database):
            raise self._no_database(new.database)
        # Servers differ in whether they look.
        if self.table_exists(new):
            raise AlreadyExists(f"table '{new}' exists already: drop it first")
        try:
            self._client.post({"source": _identifier(old), "destination": _identifier(new)}, "tables", "rename")
        except AlreadyExists as e:
            raise AlreadyExists(f"table '{new}' exists already: drop it first") from e

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Take a table from the catalog; its files are for the server to delete."""
        try:
            self._client.delete("databases", name.database, "tables", name.table)
        except NotFound as e:
            if not if_exists:
                raise self._no_table(name) from e

    # --- answers ---------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> str:
        return f"{self._client.options.uri} (warehouse '{self.warehouse}')"

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
            raise self._no_database(name) from e

    def _table(self, name: Identifier) -> RestTable:
        """A table as the server describes it; the store knows it from then on."""
        try:
            found = self._client.get("databases", name.database, "tables", name.table)
        except NotFound as e:
            raise self._no_table(name) from e
        root, uuid, schema = found.get("path"), found.get("id"), found.get("schema")
        if not isinstance(root, str) or not root.strip("/"):
            raise CorruptError(f"the catalog at {self._shown} says no path of table '{name}'")
        kind = (schema.get("options") or {}).get("type") if isinstance(schema, dict) else None
        if kind not in _PLAIN:
            raise UnsupportedFeature(f"'{name}' is a {kind}, and only Paimon's own tables can be opened")
        uuid = uuid if isinstance(uuid, str) else None
        table = RestTable(name.database, name.table, root.rstrip("/"), uuid, found.get("isExternal") is True)
        self._rest_store.add(table)
        return table


def _identifier(name: Identifier) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _schema(schema: TableSchema) -> dict[str, Any]:
    """A schema as requests have it: without version, ids and times, which the server gives."""
    return {
        "fields": [field_to_json(f) for f in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }
