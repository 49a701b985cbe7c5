"""Opening what a catalog's name stands for: a table, a branch of it, or a system table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.table.catalog import FileSystemCatalog, Identifier
from bitlake.table.relation import split_relation
from bitlake.table.runner import LocalRunner, Runner
from bitlake.table.state import TableState, load_state

if TYPE_CHECKING:
    from bitlake.table.scan import ToSpark
    from bitlake.table.table import Table


def open_table(
    catalog: FileSystemCatalog,
    name: Identifier,
    *,
    timezone: str = "UTC",
    to_spark: ToSpark | None = None,
    runner: Callable[[], Runner] = LocalRunner,
    names: Names = Names.FOLDED,
) -> Table:
    """The table of a name, in which ``$`` may stand (see :mod:`bitlake.table.relation`).

    Raises :class:`bitlake.errors.NotFound` for a table, branch or system table that is not there.
    """
    # Loaded here: reading and writing take long to import, and who only asks what a table is needs neither.
    from bitlake.table.table import Table

    found, branch, system = _taken_apart(catalog, name, names)
    catalog.load_schema(found)
    shown = _shown(found, branch)
    path, store = catalog.table_path(found), catalog.store
    there = branch is None  # its schema was read just now
    table = Table(
        shown,
        path,
        store,
        timezone=timezone,
        to_spark=to_spark,
        runner=runner,
        branch=branch,
        opened=there,
        recorder=catalog.recorder,
        external_roots=catalog.external_roots,
    )
    table.shows_progress = catalog.shows_progress
    if system is None:
        return table
    from bitlake.table.system.table import SystemTable

    return SystemTable(table, system)


def open_state(catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED) -> TableState:
    """What the table (or branch) of a name is now: its schema and its latest snapshot, and its files when asked.

    Upper and lower case are as ``names`` says.  Raises :class:`bitlake.errors.NotFound`, and
    :class:`bitlake.errors.InvalidRequest` for a system table.
    """
    found, branch, system = _taken_apart(catalog, name, names)
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
    state = load_state(_shown(found, branch), paths, catalog.store)
    if state is None:
        raise NotFound(f"table '{found}' has no branch '{branch}'")
    return state


def _taken_apart(
    catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED
) -> tuple[Identifier, str | None, str | None]:
    """A name as table, branch and system table."""
    if "$" not in name.table or catalog.table_exists(name):
        return name, None, None
    relation = split_relation(name.table)
    return catalog.find(Identifier(name.database, relation.table), names), relation.branch, relation.system


def _shown(table: Identifier, branch: str | None) -> str:
    return str(table) if branch is None else f"{table}$branch_{branch}"


def locate(catalog: FileSystemCatalog, name: Identifier) -> tuple[str, TablePaths]:
    """The name to show and the paths of a table or branch, although its latest schema may not be readable.

    Raises :class:`bitlake.errors.NotFound` for one that is not there, and :class:`bitlake.errors.InvalidRequest` for a
    system table.
    """
    found, branch, system = _taken_apart(catalog, catalog.find(name))
    if system is not None:
        raise InvalidRequest(f"'{name}' is a system table, which has no files of its own; use '{found}'")
    with contextlib.suppress(CorruptError):  # that it is there is enough
        catalog.load_schema(found)
    paths = TablePaths(catalog.table_path(found), branch, catalog.external_roots)
    if branch is not None and not catalog.store.dir_exists(paths.branch_root):
        raise NotFound(f"table '{found}' has no branch '{branch}'")
    return _shown(found, branch), paths


def relation_exists(catalog: FileSystemCatalog, name: Identifier, names: Names = Names.FOLDED) -> bool:
    """Whether :func:`open_table` would find at least the table of a name."""
    if catalog.table_exists(name):
        return True
    if "$" not in name.table:
        return False
    table = name.table.split("$")[0]
    return bool(table) and catalog.table_exists(catalog.find(Identifier(name.database, table), names))
