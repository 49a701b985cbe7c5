"""Catalog: the names of databases, tables and views, and the folder of each table.

A table's own state (schemas, snapshots, data) is in the files of its folder, whatever the catalog.  A catalog decides
which names exist, which folder each name has, and which single step creates, renames or drops a name.
:class:`Catalog` is the base class of all kinds and has what they share; catalogs that create and delete the folders
themselves do so through :mod:`bitlake.catalog.filesystem`.

An :class:`Identifier` resolves to a table, a branch of one, or a system table (:func:`resolve`): as in Paimon, its
table part may be ``t$branch_dev``, ``t$snapshots`` or ``t$branch_dev$files``.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bitlake import arguments
from bitlake.errors import AlreadyExists, CorruptError, InvalidRequest, NotFound, UnsupportedFeature, reading_table
from bitlake.io import Store
from bitlake.metadata.java_json import dumps
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import MissingTable, Names, TableSchema, near
from bitlake.runtime import Runtime
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import can_open, latest_schema, latest_snapshot_id
from bitlake.types import DataField
from bitlake.types.datatypes import field_from_json, field_to_json

if TYPE_CHECKING:
    from bitlake.schema.create import ColumnSpec


DEFAULT_DATABASE = "default"
"""The database of names without one; every catalog has it."""
_BRANCH = "branch_"
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Identifier:
    """A database and the name of an object in it."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parts of an identifier's table name: the table, and perhaps a branch and a system table of it."""

    table: str
    branch: str | None = None
    """None for ``main``."""
    system: str | None = None
    """The system table in lower case, such as ``snapshots``."""


def parse_object_name(name: str) -> ObjectName:
    """Split a name at its ``$``; raises :class:`InvalidRequest` if a part is empty or there are too many."""
    table, *parts = name.split("$")
    branch = None
    if parts and parts[0].lower().startswith(_BRANCH):
        branch = parts.pop(0)[len(_BRANCH) :]
    if len(parts) > 1 or not table or branch == "" or "" in parts:
        raise InvalidRequest(
            f"invalid table name '{name}'; expected t, t$branch_b, t$snapshots or t$branch_b$snapshots"
        )
    return ObjectName(table, None if branch == "main" else branch, parts[0].lower() if parts else None)


def check_name(name: str, kind: str) -> None:
    """Raise :class:`InvalidRequest` unless the name can be a folder's; ``kind`` is ``table`` or ``database``."""
    arguments.text(f"a {kind} name", name)
    if not name or name in (".", "..") or _FORBIDDEN.search(name):
        raise InvalidRequest(
            f"invalid {kind} name '{name}': it becomes the name of a folder, so it must not be empty, '.' or '..', nor "
            "contain '/', '\\' or control characters"
        )


def check_new_table(name: Identifier) -> None:
    """Raise :class:`InvalidRequest` for a new table whose name would hide a branch or system table of another one."""
    if "$" in name.table:
        raise InvalidRequest(
            f"invalid table name '{name}': it must not contain '$', which begins the name of a branch or system table"
        )


DIALECT = "spark"
"""The engine whose query of a view is read and written."""


@dataclass(frozen=True, slots=True)
class View:
    """A query in Spark SQL, with the columns it had when the view was created."""

    query: str
    fields: Sequence[DataField] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def to_schema(self) -> dict[str, object]:
        """The members of Paimon's ``ViewSchema``, as JSON has them."""
        out: dict[str, object] = {
            "fields": [field_to_json(f) for f in self.fields],
            "query": self.query,
            "dialects": {DIALECT: self.query},
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        return out

    def to_json(self) -> str:
        """The text that a catalog stores: Paimon's ``ViewSchema``."""
        return dumps(self.to_schema())

    @staticmethod
    def from_json(text: str, name: Identifier) -> View:
        """Read what :meth:`to_json` or Paimon wrote; raises :class:`CorruptError`."""
        try:
            document = json.loads(text)
        except ValueError as e:
            raise _corrupt_view(name, e) from e
        return View.from_schema(document, name)

    @staticmethod
    def from_schema(document: Any, name: Identifier) -> View:
        """Read the members of a ``ViewSchema``; raises :class:`CorruptError`."""
        try:
            query = str((document.get("dialects") or {}).get(DIALECT) or document["query"])
            fields = tuple(field_from_json(f) for f in document.get("fields") or ())
            options = {str(k): str(v) for k, v in (document.get("options") or {}).items()}
            return View(query, fields, document.get("comment"), options)
        except (ValueError, KeyError, TypeError, AttributeError, CorruptError) as e:
            raise _corrupt_view(name, e) from e


def _corrupt_view(name: Identifier, error: Exception) -> CorruptError:
    return CorruptError(f"the catalog's entry of view '{name}' cannot be parsed ({error})", 0)


# --- base class of catalogs -------------------------------------------------------------------------------------------

DATABASE_SUFFIX = ".db"
"""The end of the name of a database's folder."""


class Catalog(ABC):
    """Databases and tables by name, over one store.

    A new kind of catalog implements the abstract methods, and overrides :meth:`table_path` if its tables are not in
    ``<warehouse>/<database>.db/<table>``.
    """

    kind: ClassVar[str]
    """The kind's name, as in ``connect(catalog=…)``."""
    keeps_views: ClassVar[bool] = False
    """Whether the catalog stores views; one that does overrides the five methods for views."""

    external_roots: Sequence[str] = ()
    """Folders outside the tables' own that may hold files of tables."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self.store = store
        self.warehouse = warehouse.rstrip("/")
        self._runtime = Runtime(store.caches)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.warehouse!r})"

    @property
    def runtime(self) -> Runtime:
        """The runtime that its tables share; the store takes its caches from there."""
        return self._runtime

    @runtime.setter
    def runtime(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.store.caches = runtime.caches

    @property
    def location(self) -> str:
        """Where the catalog keeps its names, for messages."""
        return self.warehouse

    # --- databases -------------------------------------------------------------------------------------------------

    @abstractmethod
    def databases(self) -> list[str]:
        """The names of all databases, sorted."""

    @abstractmethod
    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""

    @abstractmethod
    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database, with ``cascade`` also its tables.

        Raises :class:`NotFound` unless ``if_exists``, and :class:`InvalidRequest` for a database with tables unless
        ``cascade``.
        """

    def database_path(self, name: str) -> str:
        """The folder of a database; raises :class:`InvalidRequest` for an invalid name."""
        check_name(name, "database")
        return f"{self.warehouse}/{name}{DATABASE_SUFFIX}"

    def database_exists(self, name: str) -> bool:
        """Whether the database exists; ``default`` always does."""
        return name == DEFAULT_DATABASE or name in self.databases()

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        self._check_database(name)
        return {}

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database.

        Raises :class:`NotFound`, and :class:`UnsupportedFeature` if the catalog stores none.
        """
        self._check_database(name)
        raise UnsupportedFeature(
            f"database '{name}' cannot have properties: a {self.kind} catalog stores none; connect with "
            "catalog='jdbc' or catalog='rest'"
        )

    # --- tables ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""

    @abstractmethod
    def table_exists(self, name: Identifier) -> bool:
        """Whether a table of exactly this name exists; ``$`` has no meaning here."""

    @abstractmethod
    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table, also into another database; writers that have it open fail from then on.

        Raises :class:`NotFound` and :class:`AlreadyExists`.
        """

    @abstractmethod
    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Delete a table and its files; raises :class:`NotFound` unless ``if_exists``."""

    def drop_unwritten(self, name: Identifier) -> None:
        """Drop a table that was created for a write that failed, unless the table has a snapshot.

        A snapshot means that another writer committed rows, or that the write was committed and its response got lost.
        """
        if self.table_exists(name) and latest_snapshot_id(self.table_files(name)) is None:
            self.drop_table(name, if_exists=True)

    @abstractmethod
    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        """Create a table with its first schema, in one step.

        Raises :class:`AlreadyExists`, also if another writer creates the table meanwhile, and :class:`NotFound` for the
        database.
        """

    def table_path(self, name: Identifier) -> str:
        """The folder of a table; raises :class:`InvalidRequest` for an invalid name."""
        check_name(name.table, "table")
        return f"{self.database_path(name.database)}/{name.table}"

    def table_files(self, name: Identifier, branch: str | None = None) -> TableFiles:
        """The files of a table or branch."""
        return TableFiles(self.store, TablePaths(self.table_path(name), branch, self.external_roots))

    def find(self, name: Identifier, names: Names = Names.FOLDED) -> Identifier:
        """The table of this name or, where ``names`` folds case, the only one that differs from it in case alone.

        Folder names are case-sensitive, Spark's names by default are not.  A name of no table, or of several, is
        returned unchanged.
        """
        return name if names is Names.EXACT else self.find_existing(name, names)[0]

    def find_existing(self, name: Identifier, names: Names = Names.FOLDED) -> tuple[Identifier, bool]:
        """As :meth:`find`, and whether that table exists; ``$`` has no meaning here."""
        if self.table_exists(name):
            return name, True
        if names is Names.EXACT:
            return name, False
        exists = self.database_exists(name.database)
        database = name.database if exists else _match_folded(name.database, self.databases())
        if not self.database_exists(database):
            return name, False
        match = Identifier(database, name.table)
        if self.table_exists(match):
            return match, True
        tables = self.tables(database)
        folded = _match_folded(name.table, tables)
        return Identifier(database, folded), folded in tables

    def check_table(self, name: Identifier) -> None:
        """Raise :class:`NotFound`, naming similar tables, unless the table exists; its schema is not read."""
        path = self.table_path(name)
        with reading_table(str(name)):
            exists = can_open(TableFiles(self.store, TablePaths(path)))
        if not exists:
            raise self._schema_not_found(name, path)

    def load_schema(self, name: Identifier) -> TableSchema:
        """The latest schema of a table; raises :class:`NotFound`, naming similar tables."""
        path = self.table_path(name)
        with reading_table(str(name)):
            schema = latest_schema(TableFiles(self.store, TablePaths(path)))
        if schema is None:
            raise self._schema_not_found(name, path)
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
        """Create a table; returns False if it exists and ``if_not_exists``.

        ``names``: whether columns may differ in case alone.

        Raises :class:`AlreadyExists`, :class:`NotFound` for the database, and :class:`InvalidRequest` for columns, keys
        or options that Paimon refuses.
        """
        # Imported lazily: validation imports every option, which commands that only read names do not need.
        from bitlake.schema.create import new_schema

        if self.table_exists(name):
            if if_not_exists:
                return False
            raise self._table_exists_already(name)
        check_new_table(name)
        schema = new_schema(str(name), columns, partition_keys, options or {}, comment, primary_keys, names)
        try:
            self._create_table(name, schema)
        except AlreadyExists:
            if if_not_exists and self.table_exists(name):
                return False
            raise
        return True

    # --- views -----------------------------------------------------------------------------------------------------

    def views(self, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        return []

    def find_view(self, name: Identifier) -> View | None:
        """Return a view with its query in Spark SQL; None if it does not exist."""
        return None

    def create_view(self, name: Identifier, view: View, *, replace: bool = False) -> None:
        """Store a view; with ``replace`` also under the name of another.

        Raises :class:`AlreadyExists`, :class:`NotFound` for the database, and :class:`UnsupportedFeature` if the
        catalog stores no views.
        """
        raise UnsupportedFeature(
            f"view '{name}' cannot be stored: a {self.kind} catalog has no views; use CREATE TEMPORARY VIEW, or "
            "connect with catalog='jdbc' or catalog='rest'"
        )

    def alter_view_dialect(self, name: Identifier, action: str, engine: str, query: str | None) -> None:
        """Add, update or drop (``action``) the query of a view for one engine.

        Raises :class:`NotFound` for a missing view or query, and :class:`AlreadyExists`.
        """
        raise NotFound(f"view '{name}' does not exist")

    def rename_view(self, old: Identifier, new: Identifier) -> None:
        """Rename a view, with its queries of all dialects, in one step.

        Raises :class:`NotFound` for the view or the new database, and :class:`AlreadyExists` for a table or view of
        the new name.
        """
        raise NotFound(f"view '{old}' does not exist")

    def drop_view(self, name: Identifier) -> None:
        """Delete a view; raises :class:`NotFound`."""
        raise NotFound(f"view '{name}' does not exist")

    # --- checks and errors -----------------------------------------------------------------------------------------

    def _check_database(self, name: str) -> None:
        if not self.database_exists(name):
            raise self._database_not_found(name)

    def _check_no_view(self, name: Identifier) -> None:
        if self.find_view(name) is not None:
            raise AlreadyExists(f"cannot create table '{name}': a view has this name")

    def _check_empty(self, name: str, tables: Sequence[str], views: Sequence[str] = ()) -> None:
        """Refuse to drop a database that holds anything."""
        if tables or views:
            count = f"{len(tables)} tables" + (f" and {len(views)} views" if views else "")
            raise InvalidRequest(
                f"database '{name}' is not empty ({count}, the first is {(*tables, *views)[0]}): drop them first, or "
                "add CASCADE (cascade=True)"
            )

    def _check_rename(self, old: Identifier, new: Identifier) -> None:
        """Refuse to rename a table that does not exist, into a missing database, or to the name of another table."""
        if not self.table_exists(old):
            raise self._table_not_found(old)
        self._check_database(new.database)
        check_name(new.table, "table")
        check_new_table(new)
        if self.table_exists(new):
            raise AlreadyExists(f"table '{new}' already exists; drop it first")

    def _check_view_rename(self, old: Identifier, new: Identifier) -> None:
        """Raise the errors of :meth:`rename_view`."""
        if self.find_view(old) is None:
            raise NotFound(f"view '{old}' does not exist{near(old.table, self.views(old.database))}")
        self._check_database(new.database)
        check_name(new.table, "view")
        for kind, exists in (("table", self.table_exists(new)), ("view", self.find_view(new) is not None)):
            if exists:
                raise AlreadyExists(f"{kind} '{new}' already exists; drop it first")

    def _database_not_found(self, name: str) -> NotFound:
        hint = near(name, self.databases()) or "; create it with lake.create_database or CREATE DATABASE"
        return NotFound(f"database '{name}' does not exist in {self.location}{hint}")

    def _table_not_found(self, name: Identifier) -> NotFound:
        if not self.database_exists(name.database):
            return self._database_not_found(name.database)
        if self.find_view(name) is not None:
            return NotFound(f"table '{name}' does not exist: it is a view; use SELECT, ALTER VIEW or DROP VIEW")
        return NotFound(f"table '{name}' does not exist{near(name.table, self.tables(name.database))}")

    def missing_table(self, name: str, database: str) -> MissingTable:
        """The error for a query of a table or view that does not exist, with similar names.

        ``database`` is the current database.
        """
        owner, _, table = name.rpartition(".")
        owner = owner or database
        if self.database_exists(owner):
            return MissingTable(name, near(table, self.tables(owner)))
        before, _, owned = owner.rpartition(".")  # t.snapshots, as Iceberg names what is t$snapshots here
        before = before or database
        if self.database_exists(before) and owned in self.tables(before):
            hint = f"; '{owned}' is a table, and its system tables are named {owner}$snapshots, {owner}$files …"
        else:
            hint = f": database '{owner}' does not exist{near(owner, self.databases())}"
        return MissingTable(name, hint)

    def _schema_not_found(self, name: Identifier, path: str) -> NotFound:
        """The error for a table without a schema file in its folder."""
        return self._table_not_found(name)

    def _table_exists_already(self, name: Identifier) -> AlreadyExists:
        return AlreadyExists(f"table '{name}' already exists; drop it, or add IF NOT EXISTS (if_not_exists=True)")


def _match_folded(name: str, names: Sequence[str]) -> str:
    """Return the only name that equals ``name`` when case is ignored, else ``name``."""
    matches = [n for n in names if n.lower() == name.lower()]
    return matches[0] if len(matches) == 1 else name


# --- identifiers: tables, branches and system tables ------------------------------------------------------------------


class ResolvedName(NamedTuple):
    """A resolved identifier; the table may not exist."""

    table: Identifier
    branch: str | None
    system: str | None


def resolve(catalog: Catalog, name: Identifier, names: Names = Names.FOLDED) -> ResolvedName:
    """Split an identifier into table, branch and system table.

    A table whose own name contains ``$`` takes precedence.
    """
    if "$" not in name.table or catalog.table_exists(name):
        return ResolvedName(name, None, None)
    parts = parse_object_name(name.table)
    return ResolvedName(catalog.find(Identifier(name.database, parts.table), names), parts.branch, parts.system)


def open_state(catalog: Catalog, name: Identifier, names: Names = Names.FOLDED) -> TableState:
    """Load the latest schema and snapshot of a table or branch; ``names`` decides whether case matters.

    Raises :class:`NotFound`, and :class:`InvalidRequest` for a system table.
    """
    table, branch, system = resolve(catalog, name, names)
    if system is not None:
        raise InvalidRequest(f"'{name}' is a system table, which can only be read; use '{table}'")
    try:
        catalog.check_table(table)
    except NotFound:
        match = catalog.find(table, names)
        if match == table:
            raise
        catalog.check_table(match)
        table = match
    state = load_state(display_name(table, branch), catalog.table_files(table, branch))
    if state is None:
        raise NotFound(f"table '{table}' has no branch '{branch}'")
    return state


def locate(catalog: Catalog, name: Identifier) -> tuple[str, TablePaths]:
    """The display name and the paths of a table or branch, even if its latest schema cannot be read.

    Raises :class:`NotFound`, and :class:`InvalidRequest` for a system table.
    """
    table, branch, system = resolve(catalog, catalog.find(name))
    if system is not None:
        raise InvalidRequest(f"'{name}' is a system table, which has no files of its own; use '{table}'")
    catalog.check_table(table)
    paths = catalog.table_files(table, branch).paths
    if branch is not None and not catalog.store.dir_exists(paths.branch_root):
        raise NotFound(f"table '{table}' has no branch '{branch}'")
    return display_name(table, branch), paths


def identifier_exists(catalog: Catalog, name: Identifier, names: Names = Names.FOLDED) -> bool:
    """Whether the table that an identifier names exists; its branch or system table is not checked."""
    if catalog.table_exists(name):
        return True
    if "$" not in name.table:
        return False
    table = name.table.split("$")[0]
    return bool(table) and catalog.table_exists(catalog.find(Identifier(name.database, table), names))


def display_name(table: Identifier, branch: str | None) -> str:
    """The name of a table or branch in messages."""
    return str(table) if branch is None else f"{table}$branch_{branch}"
