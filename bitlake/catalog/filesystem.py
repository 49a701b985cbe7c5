"""The filesystem catalog: databases and tables are folders, ``<warehouse>/<database>.db/<table>``.

A table exists when its ``schema`` folder holds a schema.  Creating, dropping and renaming a table take effect in one
step each.  What a process that dies before or after this step leaves behind:

* create: ``schema/schema-0``, created only if absent.  The table exists from then on.
* drop: the ``schema`` folder is renamed to ``.dropped-<uuid>`` beside it (an object store, which has no rename, deletes
  it).  Then the table's folder is deleted.  A death in between leaves files but no table: the next DROP TABLE or CREATE
  TABLE of this name deletes them.
* rename: the folder is renamed.  An object store copies it, its schemas last, and deletes the old one, its schemas
  first: a death in between leaves the table under both names, with the same rows, or under the new one.

Writers that have the table open detect a drop, also when the name is used again, and their commits fail
(:mod:`bitlake.write.commit`).  The JDBC catalog creates and deletes table folders with the same functions.

Source: table-format spec, section 1.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from bitlake import _clock
from bitlake.catalog.catalog import DATABASE_SUFFIX, DEFAULT_DATABASE, Catalog, Identifier
from bitlake.errors import AccessDenied, AlreadyExists, NotFound
from bitlake.io import Store, has_cheap_rename
from bitlake.metadata.paths import DROPPED, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.table_files import TableFiles, is_link
from bitlake.snapshot.versions import JOURNAL, has_schema

log = logging.getLogger("bitlake")

_HISTORY = ("snapshot", "tag", "branch", "consumer", "changelog")
"""Folders of a dropped table whose files (``tag/tag-…``) a new table of its name would take for its own."""


# --- table folders ----------------------------------------------------------------------------------------------------


def create_first_schema(store: Store, root: str, schema: TableSchema) -> bool:
    """Write the first schema of a table; False if the table exists, or another process creates it meanwhile."""
    delete_remains(store, root)
    return store.create(TablePaths(root).schema(0), schema.to_json().encode())


def check_unused(store: Store, root: str, name: str) -> None:
    """Raise :class:`AlreadyExists` if the folder of a table that does not exist is there."""
    if store.dir_exists(root):
        delete_remains(store, root)
        raise AlreadyExists(f"table '{name}' does not exist, but its folder {root} does: move or delete it first")


def delete_table(store: Store, root: str) -> None:
    """Delete a table's folder, its schemas first and in one step, so that no reader sees half a table.

    The journal of a fast-forward is deleted first: a running one detects that, and deletes what it wrote last.  It is
    deleted again after the schemas, for a fast-forward that began in between.  Later ones find no schema and stop.

    Of a folder that is a symbolic link only the link is deleted: it leads to files outside of the lake.
    """
    if is_link(store, root):
        store.delete_dir(root)
        return
    paths = TablePaths(root)
    schemas = paths.schema_dir
    journal = f"{paths.snapshot_dir}/{JOURNAL}"
    store.delete(journal)
    if has_cheap_rename(store, root):
        with contextlib.suppress(NotFound):
            store.rename(schemas, f"{root}/{DROPPED}{_clock.new_uuid()[:8]}")
    else:
        store.delete_dir(schemas)
    store.delete(journal)
    store.delete_dir(root)


def delete_remains(store: Store, root: str) -> None:
    """Delete what an interrupted drop, or a writer after it, left in a folder; nothing if it holds a schema."""
    names = store.names(root)
    if "schema" in names and has_schema(TableFiles(store, TablePaths(root))):
        return
    if any(name.startswith(DROPPED) for name in names):
        for name in names:
            if name != "schema":  # another process may be creating the table
                store.delete_dir(f"{root}/{name}")
        return
    for folder in _HISTORY:
        if folder in names and any(n.startswith(f"{folder}-") for n in store.names(f"{root}/{folder}")):
            store.delete_dir(f"{root}/{folder}")


@contextlib.contextmanager
def deleting_external_files(table: TableFiles) -> Iterator[None]:
    """Delete a table's files in external paths after the block, which drops the table."""
    # Imported lazily: it reads manifests, so it imports Avro, which commands that only read names do not need.
    from bitlake.snapshot.references import delete_external, external_files

    files = external_files(table)
    yield
    delete_external(table, files)


# --- the catalog ------------------------------------------------------------------------------------------------------


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
        return sorted(f for f in folders if self._may_be_table(f"{path}/{f}"))

    def _may_be_table(self, path: str) -> bool:
        """Whether the folder has a schema, or reading it is denied; opening such a table raises AccessDenied."""
        try:
            return has_schema(TableFiles(self.store, TablePaths(path)))
        except AccessDenied:
            return True

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
