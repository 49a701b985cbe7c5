"""What a file's columns weigh, for deciding whether an index is worth reading (:mod:`bitlake.fileindex.cost`)."""

from __future__ import annotations

from collections.abc import Callable

from bitlake.errors import BitlakeError
from bitlake.fileindex.cost import MOST_SHARE, SMALL_ROWS, CostGuide
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.table.fetch import FileTask, footer_of, stored_bytes


def cost_guide(store: Store, path: str, file: DataFileMeta, schema: TableSchema, exact: bool) -> CostGuide | None:
    """The guide for one file; None where it would always say yes."""
    if file.row_count < SMALL_ROWS:
        return None
    return CostGuide(file.row_count, column_bytes(store, path, file, schema), exact=exact)


def column_bytes(store: Store, path: str, file: DataFileMeta, schema: TableSchema) -> Callable[[str], int | None]:
    """How many bytes a column takes in a file, told by its footer (cached: whoever reads the file needs it, too)."""

    def size(column: str) -> int | None:
        if not path.endswith(".parquet"):
            return file.file_size // max(len(schema.fields), 1)
        task = FileTask(path, file.file_size, file.row_count, 0, (), Selection.all(), schema)
        try:
            footer = footer_of(store, task)
            return stored_bytes(footer, [getattr(column, "column", column)], range(len(footer.row_groups)))
        except BitlakeError:
            return None  # the read will tell what is wrong

    return size


def too_many(selection: Selection, row_count: int) -> bool:
    """Whether a selection has so many of a large file's rows that reading all of them is faster."""
    return selection.rows is not None and row_count >= SMALL_ROWS and len(selection.rows) > MOST_SHARE * row_count
