"""Resolve identifiers in a catalog: to a table, a branch of it, or a system table."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from bitlake.catalog.catalog import Catalog
from bitlake.catalog.identifier import Identifier, parse_object_name
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.snapshot.state import TableState, load_state


class ResolvedName(NamedTuple):
    """What an identifier names; the table may not exist."""

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
        catalog.load_schema(table)
    except NotFound:
        match = catalog.find(table, names)
        if match == table:
            raise
        catalog.load_schema(match)
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
    with contextlib.suppress(CorruptError):  # the table exists, even if its schema cannot be read
        catalog.load_schema(table)
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
