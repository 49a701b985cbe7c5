"""The filesystem catalog: databases and tables are folders, ``<warehouse>/<database>.db/<table>``.

A table exists when its ``schema`` folder holds a schema.  Source: table-format spec, section 1.

Each change of a table has one step that makes it visible; what a death before and after it leaves:

* create: ``schema/schema-0``, created only if absent.  Before it there is no table.
* drop: the ``schema`` folder is renamed to ``.dropped-<uuid>`` beside it (a bucket, which has no rename, deletes it by
  one request).  Then the table's folder is deleted.  A death between leaves files and no table: the next DROP TABLE or
  CREATE TABLE of this name deletes them.
* rename: the rename of the folder.  A bucket's is copied, its schemas last, and deleted, its schemas first: a death
  leaves the table under both names, with the same rows, or under the new one.

Writers who have the table open notice each of these (:mod:`bitlake.write.commit`): their commits are refused.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bitlake import _clock
from bitlake.catalog.identifier import Identifier
from bitlake.deletion import is_link
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature, reading_table
from bitlake.io import Store, has_cheap_rename
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, near
from bitlake.runtime import Recorder
from bitlake.snapshot.versions import JOURNAL, has_schema, latest_schema

if TYPE_CHECKING:
    from bitlake.catalog.jdbc import View
    from bitlake.schema.create import ColumnSpec

log = logging.getLogger("bitlake")

DEFAULT_DATABASE = "default"
_DATABASE_SUFFIX = ".db"
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f]")
_DROPPED = ".dropped-"
_HISTORY = ("snapshot", "tag", "branch", "consumer", "changelog")
"""Folders of a table whose files (``tag/tag-…``) would be taken for a new table's."""


class FileSystemCatalog:
    """Databases and tables under one warehouse folder."""

    recorder: Recorder | None = None
    """Takes scans of its tables down, where the lake wants that."""
    shows_progress = True
    """Whether long jobs on its tables may show a bar, where somebody watches."""

    external_roots: Sequence[str] = ()
    """Folders that may hold files of its tables besides the tables' own."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self.store = store
        self.warehouse = warehouse.rstrip("/")

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database."""
        _check_name(name, "database")
        return f"{self.warehouse}/{name}{_DATABASE_SUFFIX}"

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        found = self.store.list(self.warehouse)
        return sorted(
            f.name.removesuffix(_DATABASE_SUFFIX) for f in found if f.is_dir and f.name.endswith(_DATABASE_SUFFIX)
        )

    def database_exists(self, name: str) -> bool:
        """Whether the database's folder is there; ``default`` always is."""
        return name == DEFAULT_DATABASE or self.store.dir_exists(self.database_path(name))

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a database; raises :class:`AlreadyExists` unless ``if_not_exists``.

        This catalog has no place for ``properties``; as in Paimon's, they are dropped with a warning.
        """
        path = self.database_path(name)
        if self.store.dir_exists(path):
            if if_not_exists:
                return
            raise AlreadyExists(f"database '{name}' exists already in {self.warehouse}")
        self.store.make_dirs(path)
        if properties:
            log.warning("database '%s': a filesystem catalog keeps no properties (%s)", name, ", ".join(properties))

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`UnsupportedFeature`: a folder has none (nor in Paimon)."""
        if not self.database_exists(name):
            raise self._no_database(name)
        raise UnsupportedFeature(
            f"database '{name}' cannot have properties in a filesystem catalog; connect with catalog='jdbc' for them"
        )

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        if not self.database_exists(name):
            raise self._no_database(name)
        return {}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; one that holds tables only with ``cascade``."""
        path = self.database_path(name)
        if not self.store.dir_exists(path):
            if if_exists:
                return
            raise self._no_database(name)
        tables = self.tables(name)
        if tables and not cascade:
            raise InvalidRequest(
                f"database '{name}' is not empty (it has {len(tables)} tables, {tables[0]} first): "
                "drop them first, or add CASCADE"
            )
        with contextlib.ExitStack() as dropping:
            for table in tables:
                dropping.enter_context(self._dropping(Identifier(name, table)))
            self.store.delete_dir(path)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table_path(self, name: Identifier) -> str:
        """The folder of a table."""
        _check_name(name.table, "table")
        return f"{self.database_path(name.database)}/{name.table}"

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` without the database."""
        if not self.database_exists(database):
            raise self._no_database(database)
        path = self.database_path(database)
        folders = [f.name for f in self.store.list(path) if f.is_dir]
        return sorted(f for f in folders if has_schema(self.store, TablePaths(f"{path}/{f}")))

    def table_exists(self, name: Identifier) -> bool:
        """Whether the table has a schema."""
        return has_schema(self.store, TablePaths(self.table_path(name)))

    def find(self, name: Identifier, names: Names = Names.FOLDED) -> Identifier:
        """The table of this name; if none is called exactly so, the one that is but for upper and lower case.

        Folder names tell cases apart and Spark by default does not.  A name that no table has, or several, comes back
        as it is, and so does every name where names are compared as written.
        """
        if names is Names.EXACT or self.table_exists(name):
            return name
        database = _alike(name.database, self.databases()) if not self.database_exists(name.database) else name.database
        if not self.database_exists(database):
            return name
        found = Identifier(database, name.table)
        return found if self.table_exists(found) else Identifier(database, _alike(name.table, self.tables(database)))

    def load_schema(self, name: Identifier) -> TableSchema:
        """The table's latest schema; raises :class:`NotFound`, naming similar tables."""
        with reading_table(str(name)):
            schema = latest_schema(self.store, TablePaths(self.table_path(name)))
        if schema is None:
            raise self._no_table(name)
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
        """Create a table by writing its first schema; returns False when it was there and ``if_not_exists``.

        ``names``: whether its columns may differ in upper and lower case alone.

        Raises :class:`AlreadyExists`, :class:`NotFound` for the database, and :class:`InvalidRequest` for columns,
        keys or options that Paimon would refuse.
        """
        if not self.database_exists(name.database):
            raise self._no_database(name.database)
        if self.table_exists(name):
            if if_not_exists:
                return False
            raise AlreadyExists(f"table '{name}' exists already: drop it, or say IF NOT EXISTS (if_not_exists=True)")
        from bitlake.schema.create import new_schema

        schema = new_schema(str(name), columns, partition_keys, options or {}, comment, primary_keys, names)
        if not self.write_first_schema(name, schema):
            if if_not_exists:
                return False
            raise AlreadyExists(f"table '{name}' was created by someone else at the same moment")
        return True

    def write_first_schema(self, name: Identifier, schema: TableSchema) -> bool:
        """Write a table's first schema; False if it has one, perhaps since this moment."""
        paths = TablePaths(self.table_path(name))
        delete_remains(self.store, paths.root)
        return self.store.create(paths.schema(0), schema.to_json().encode())

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Give a table another name, by renaming its folder; also into another database.

        Whoever has the table open by its old name finds it gone.  Raises :class:`AlreadyExists` and :class:`NotFound`.
        """
        if not self.table_exists(old):
            raise self._no_table(old)
        if not self.database_exists(new.database):
            raise self._no_database(new.database)
        target = self.table_path(new)
        self.check_free(new)
        self.store.rename(self.table_path(old), target)

    def check_free(self, name: Identifier) -> None:
        """Raise :class:`AlreadyExists` if there is a table of a name, or a folder where it would be."""
        path = self.table_path(name)
        if self.table_exists(name):
            raise AlreadyExists(f"table '{name}' exists already: drop it first")
        if self.store.dir_exists(path):
            delete_remains(self.store, path)
            raise AlreadyExists(f"table '{name}' does not exist, but its folder {path} does: move or delete it first")

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Delete a table and everything in its folder."""
        path = self.table_path(name)
        if not self.table_exists(name):
            delete_remains(self.store, path)
            if if_exists:
                return
            raise self._no_table(name)
        with self._dropping(name):
            delete_table(self.store, path)

    @contextlib.contextmanager
    def _dropping(self, name: Identifier) -> Iterator[None]:
        """Delete the files of a table in external paths after the block, which deletes the table."""
        from bitlake.snapshot.references import delete_external, external_files  # brings Avro, which names need not

        paths = TablePaths(self.table_path(name), None, self.external_roots)
        files = external_files(self.store, paths)
        yield
        delete_external(self.store, paths, files)

    # --- views -----------------------------------------------------------------------------------------------------

    keeps_views = False
    """Whether the catalog has a place for views."""

    def views(self, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        return []

    def find_view(self, name: Identifier) -> str | None:
        """The query of a view; None if there is none of that name."""
        return None

    def create_view(self, name: Identifier, view: View, *, replace: bool = False) -> None:
        """Keep a view; raises :class:`UnsupportedFeature`: folders are tables (in Paimon's filesystem catalog, too)."""
        raise UnsupportedFeature(
            f"view '{name}' cannot be kept by a filesystem catalog: say CREATE TEMPORARY VIEW, or connect with "
            "catalog='jdbc'"
        )

    def alter_view_dialect(self, name: Identifier, action: str, engine: str, query: str | None) -> None:
        """Change what a kept view is to one engine; raises :class:`NotFound`: no view is kept."""
        raise NotFound(f"view '{name}' does not exist")

    def drop_view(self, name: Identifier) -> None:
        """Forget a view; raises :class:`NotFound`."""
        raise NotFound(f"view '{name}' does not exist")

    # --- names -----------------------------------------------------------------------------------------------------

    def _no_database(self, name: str) -> NotFound:
        hint = near(name, self.databases()) or "; create it with lake.create_database or CREATE DATABASE"
        return NotFound(f"database '{name}' does not exist in {self.warehouse}{hint}")

    def _no_table(self, name: Identifier) -> NotFound:
        if not self.database_exists(name.database):
            return self._no_database(name.database)
        return NotFound(f"table '{name}' does not exist{near(name.table, self.tables(name.database))}")


def delete_table(store: Store, root: str) -> None:
    """Delete a table's folder, its schemas first and in one step, so that no reader sees half a table.

    The journal of a fast-forward is deleted first: a running one sees that, and deletes what it wrote last.  It is
    deleted again after the schemas, for a fast-forward that began in between.  Later ones find no schema and stop.

    A folder that is a link leads to what is not the lake's: only the link goes.
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
            store.rename(schemas, f"{root}/{_DROPPED}{_clock.new_uuid()[:8]}")
    else:
        store.delete_dir(schemas)
    store.delete(journal)
    store.delete_dir(root)


def delete_remains(store: Store, root: str) -> None:
    """Delete what an interrupted drop left of a table, or a writer put there after it; not if there is a schema."""
    names = store.names(root)
    if "schema" in names and has_schema(store, TablePaths(root)):
        return
    if any(name.startswith(_DROPPED) for name in names):
        for name in names:
            if name != "schema":  # another process may be creating the table
                store.delete_dir(f"{root}/{name}")
        return
    for kind in _HISTORY:
        if kind in names and any(n.startswith(f"{kind}-") for n in store.names(f"{root}/{kind}")):
            store.delete_dir(f"{root}/{kind}")


def _alike(name: str, names: Sequence[str]) -> str:
    """The one of the names that is the same but for case, or the name itself."""
    alike = [n for n in names if n.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else name


def _check_name(name: str, what: str) -> None:
    if not name or name in (".", "..") or _FORBIDDEN.search(name):
        raise InvalidRequest(
            f"'{name}' cannot name a {what}: it becomes a folder's name, so it must not be empty, '.' or '..', nor "
            "hold '/', '\\' or control characters"
        )
