"""Find what an identifier names in a catalog: a table, a branch of it, or a system table."""

from __future__ import annotations

import contextlib

from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.catalog.identifier import Identifier, split_relation
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.snapshot.state import TableState, load_state


def open_state(catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED) -> TableState:
    """What the table (or branch) of a name is now: its schema and its latest snapshot, and its files when asked.

    Upper and lower case are as ``names`` says.  Raises :class:`bitlake.errors.NotFound`, and
    :class:`bitlake.errors.InvalidRequest` for a system table.
    """
    found, branch, system = taken_apart(catalog, name, names)
    if system is not None:
        raise InvalidRequest(f"'{name}' is a system table, which can only be read; use '{found}'")
    try:
        catalog.load_schema(found)
    except NotFound:
        alike = catalog.find(found, names)
        if alike == found:
            raise
        catalog.load_schema(alike)
        found = alike
    paths = TablePaths(catalog.table_path(found), branch, catalog.external_roots)
    state = load_state(shown_name(found, branch), paths, catalog.store)
    if state is None:
        raise NotFound(f"table '{found}' has no branch '{branch}'")
    return state


def taken_apart(
    catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED
) -> tuple[Identifier, str | None, str | None]:
    """A name as table, branch and system table."""
    if "$" not in name.table or catalog.table_exists(name):
        return name, None, None
    relation = split_relation(name.table)
    return catalog.find(Identifier(name.database, relation.table), names), relation.branch, relation.system


def shown_name(table: Identifier, branch: str | None) -> str:
    """A table's name in messages, with its branch."""
    return str(table) if branch is None else f"{table}$branch_{branch}"


def locate(catalog: FileSystemCatalog, name: Identifier) -> tuple[str, TablePaths]:
    """The name to show and the paths of a table or branch, although its latest schema may not be readable.

    Raises :class:`bitlake.errors.NotFound` for one that is not there, and :class:`bitlake.errors.InvalidRequest` for a
    system table.
    """
    found, branch, system = taken_apart(catalog, catalog.find(name))
    if system is not None:
        raise InvalidRequest(f"'{name}' is a system table, which has no files of its own; use '{found}'")
    with contextlib.suppress(CorruptError):  # that it is there is enough
        catalog.load_schema(found)
    paths = TablePaths(catalog.table_path(found), branch, catalog.external_roots)
    if branch is not None and not catalog.store.dir_exists(paths.branch_root):
        raise NotFound(f"table '{found}' has no branch '{branch}'")
    return shown_name(found, branch), paths


def relation_exists(catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED) -> bool:
    """Whether :func:`bitlake.table.opening.open_table` would find at least the table of a name."""
    if catalog.table_exists(name):
        return True
    if "$" not in name.table:
        return False
    table = name.table.split("$")[0]
    return bool(table) and catalog.table_exists(catalog.find(Identifier(name.database, table), names))
