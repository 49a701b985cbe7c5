"""The filesystem catalog: databases and tables are folders, ``<warehouse>/<database>.db/<table>``.

A table exists when its ``schema`` folder holds a schema.  Source: table-format spec, section 1.

Creating and dropping a table take effect in one step each (:mod:`bitlake.catalog.table_folder`).  So does a rename of
the folder on a file system.  An object store copies the folder, its schemas last, and deletes the old one, its schemas
first: a process that dies meanwhile leaves the table under both names, with the same rows, or under the new one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from bitlake.catalog.catalog import DATABASE_SUFFIX, Catalog
from bitlake.catalog.identifier import DEFAULT_DATABASE, Identifier
from bitlake.catalog.table_folder import (
    check_unused,
    create_first_schema,
    delete_remains,
    delete_table,
    deleting_external_files,
)
from bitlake.errors import AlreadyExists
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import has_schema

log = logging.getLogger("bitlake")


class FileSystemCatalog(Catalog):
    """Databases and tables that are folders of one warehouse folder."""

    kind = "filesystem"

    # --- databases -------------------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        folders = [f.name for f in self.store.list(self.warehouse) if f.is_dir]
        return sorted(name.removesuffix(DATABASE_SUFFIX) for name in folders if name.endswith(DATABASE_SUFFIX))

    def database_exists(self, name: str) -> bool:
        """Whether the database's folder exists; ``default`` always does."""
        return name == DEFAULT_DATABASE or self.store.dir_exists(self.database_path(name))

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a database; raises :class:`AlreadyExists` unless ``if_not_exists``.

        A folder cannot store ``properties``; as in Paimon, they are ignored with a warning.
        """
        path = self.database_path(name)
        if self.store.dir_exists(path):
            if if_not_exists:
                return
            raise AlreadyExists(f"database '{name}' already exists in {self.location}")
        self.store.make_dirs(path)
        if properties:
            log.warning(
                "database '%s': a filesystem catalog stores no properties; ignored: %s", name, ", ".join(properties)
            )

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; see :meth:`Catalog.drop_database`."""
        path = self.database_path(name)
        if not self.store.dir_exists(path):
            if if_exists:
                return
            raise self._database_not_found(name)
        tables = self.tables(name)
        if not cascade:
            self._check_empty(name, tables)
        with contextlib.ExitStack() as drops:
            for table in tables:
                drops.enter_context(deleting_external_files(self.table_files(Identifier(name, table))))
            self.store.delete_dir(path)

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""
        self._check_database(database)
        path = self.database_path(database)
        folders = [f.name for f in self.store.list(path) if f.is_dir]
        return sorted(f for f in folders if has_schema(TableFiles(self.store, TablePaths(f"{path}/{f}"))))

    def table_exists(self, name: Identifier) -> bool:
        """Whether the table has a schema."""
        return has_schema(TableFiles(self.store, TablePaths(self.table_path(name))))

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        self._check_database(name.database)
        if not create_first_schema(self.store, self.table_path(name), schema):
            raise AlreadyExists(f"table '{name}' was created by another process at the same time")

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table by renaming its folder; see :meth:`Catalog.rename_table`."""
        self._check_rename(old, new)
        target = self.table_path(new)
        check_unused(self.store, target, str(new))
        self.store.rename(self.table_path(old), target)

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Delete a table with everything in its folder; raises :class:`NotFound` unless ``if_exists``."""
        path = self.table_path(name)
        if not self.table_exists(name):
            delete_remains(self.store, path)
            if if_exists:
                return
            raise self._table_not_found(name)
        with deleting_external_files(self.table_files(name)):
            delete_table(self.store, path)
