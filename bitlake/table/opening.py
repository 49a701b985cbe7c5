"""Opening what a catalog's name stands for: a table, a branch of it, or a system table."""

from __future__ import annotations

from collections.abc import Callable

from bitlake.table.catalog import FileSystemCatalog, Identifier
from bitlake.table.relation import split_relation
from bitlake.table.runner import LocalRunner, Runner
from bitlake.table.scan import ToSpark
from bitlake.table.system.table import SystemTable
from bitlake.table.table import Table


def open_table(
    catalog: FileSystemCatalog,
    name: Identifier,
    *,
    timezone: str = "UTC",
    to_spark: ToSpark | None = None,
    runner: Callable[[], Runner] = LocalRunner,
) -> Table:
    """The table of a name, in which ``$`` may stand (see :mod:`bitlake.table.relation`).

    Raises :class:`bitlake.errors.NotFound` for a table, branch or system table that is not there.
    """
    found, branch, system = name, None, None
    if "$" in name.table and not catalog.table_exists(name):
        relation = split_relation(name.table)
        found = catalog.find(Identifier(name.database, relation.table))
        branch, system = relation.branch, relation.system
    catalog.load_schema(found)
    shown = str(found) if branch is None else f"{found}$branch_{branch}"
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
    )
    return table if system is None else SystemTable(table, system)


def relation_exists(catalog: FileSystemCatalog, name: Identifier) -> bool:
    """Whether :func:`open_table` would find at least the table of a name."""
    if catalog.table_exists(name):
        return True
    if "$" not in name.table:
        return False
    table = name.table.split("$")[0]
    return bool(table) and catalog.table_exists(catalog.find(Identifier(name.database, table)))
