"""Create and delete the folder of a table, for catalogs that do so themselves.

A table exists when its ``schema`` folder holds a schema.  What a process leaves that dies before or after the step that
takes effect:

* create: ``schema/schema-0``, created only if absent.  The table exists from then on.
* drop: the ``schema`` folder is renamed to ``.dropped-<uuid>`` beside it (an object store, which has no rename, deletes
  it).  Then the table's folder is deleted.  A death between leaves files and no table: the next DROP TABLE or CREATE
  TABLE of this name deletes them.

Writers that have the table open detect both (:mod:`bitlake.write.commit`), and their commits fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bitlake import _clock
from bitlake.deletion import is_link
from bitlake.errors import AlreadyExists, NotFound
from bitlake.io import Store, has_cheap_rename
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import JOURNAL, has_schema

_DROPPED = ".dropped-"
_HISTORY = ("snapshot", "tag", "branch", "consumer", "changelog")
"""Folders of a dropped table whose files (``tag/tag-…``) a new table of its name would take for its own."""


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
            store.rename(schemas, f"{root}/{_DROPPED}{_clock.new_uuid()[:8]}")
    else:
        store.delete_dir(schemas)
    store.delete(journal)
    store.delete_dir(root)


def delete_remains(store: Store, root: str) -> None:
    """Delete what an interrupted drop, or a writer after it, left in a folder; nothing if it holds a schema."""
    names = store.names(root)
    if "schema" in names and has_schema(TableFiles(store, TablePaths(root))):
        return
    if any(name.startswith(_DROPPED) for name in names):
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
