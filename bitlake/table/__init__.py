"""Tables: scans and their plans, writing, committing, keeping indexes.  Independent of Spark.

:func:`open_table` resolves a catalog's name to a table, a branch of a table, or a system table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bitlake.catalog.catalog import Catalog, Identifier, display_name, resolve
from bitlake.metadata.schema import Names
from bitlake.runtime import Executors, Runner

if TYPE_CHECKING:
    from bitlake.file_store_table import FileStoreTable
    from bitlake.scan.scan import ToSpark


def open_table(
    catalog: Catalog,
    name: Identifier,
    *,
    timezone: str = "UTC",
    to_spark: ToSpark | None = None,
    runner: Callable[[], Runner] | None = None,
    executors: Callable[[], Executors] | None = None,
    names: Names = Names.FOLDED,
    exists: bool = False,
) -> FileStoreTable:
    """The table of a name, in which ``$`` may stand (see :mod:`bitlake.catalog.catalog`).

    ``runner``: another one than the catalog's.  ``executors`` makes what decodes very many manifests for its scans.
    ``exists``: the table itself is known to.
    Raises :class:`bitlake.errors.NotFound` for a table, branch or system table that is not there.
    """
    # Imported lazily: reading and writing take long to import, and commands that only describe a table need neither.
    from bitlake.file_store_table import FileStoreTable

    found, branch, system = resolve(catalog, name, names)
    if not exists:
        catalog.check_table(found)
    shown = display_name(found, branch)
    path, store = catalog.table_path(found), catalog.store
    runtime = catalog.runtime  # the same one for all tables, unless they run elsewhere
    if runner is not None:
        runtime = replace(runtime, runner=runner)
    if executors is not None:
        runtime = replace(runtime, executors=executors)
    there = branch is None
    table = FileStoreTable(
        shown,
        path,
        store,
        timezone=timezone,
        to_spark=to_spark,
        runtime=runtime,
        branch=branch,
        opened=there,
        external_roots=catalog.external_roots,
    )
    if system is None:
        return table
    from bitlake.system_tables.tables import SystemTable

    return SystemTable(table, system)
