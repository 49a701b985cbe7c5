"""How many rows make a file of ``target-file-size``: measured on the table's own files, else guessed from its types."""

from __future__ import annotations

from collections.abc import Sequence

from bitlake.fileindex.registry import parse_index_options
from bitlake.formats.parquet.write import PAGE_ROWS
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.partitions import newest_files
from bitlake.snapshot.state import TableState
from bitlake.types import ArrayType, AtomicType, DataType, MapType, MultisetType, Root, RowType

# Compressed bytes per value, from tables of real-looking data; only used for a table's first write, and a file that
# turns out far too large is split when it is adopted.
_GUESS = {
    Root.BOOLEAN: 0.2,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 3,
    Root.DATE: 2,
    Root.TIME: 3,
    Root.FLOAT: 4,
    Root.BIGINT: 5,
    Root.DOUBLE: 7,
    Root.DECIMAL: 6,
    Root.TIMESTAMP: 5,
    Root.TIMESTAMP_LTZ: 5,
}
_TEXT_GUESS = 12.0
_CAUTION = 3.0
"""By how much less than guessed a first write may take: repeated values compress well, and one file too large is split,
while many that are too small stay."""
SCAN_PAGE_ROWS = 20_000
"""Parquet (Java)'s own page.  With 4,096 rows Spark's reader takes 5 % more for TPC-H's query 1, 25 % for query 6:
worth while only where an index or a key leads to single pages."""
_APPEND_TARGET = 256 << 20
_KEYED_TARGET = 128 << 20
_ENOUGH_ROWS = 10_000
_MIN_ROWS = 1_000


def target_file_size(schema: TableSchema) -> int:
    """Bytes at which a table's data files are rolled."""
    return opt.Options(schema.options).of(opt.TARGET_FILE_SIZE) or (
        _KEYED_TARGET if schema.primary_keys else _APPEND_TARGET
    )


def page_rows(schema: TableSchema) -> int:
    """Rows of a Parquet page: as the table says; else small ones where an index or a key will choose among them."""
    chosen = bool(schema.primary_keys) or bool(parse_index_options(schema.options, schema.fields))
    return opt.Options(schema.options).of(opt.PARQUET_PAGE_ROWS) or (PAGE_ROWS if chosen else SCAN_PAGE_ROWS)


def rows_per_file(state: TableState) -> int:
    """Rows for which a file of this table comes out near its target size, and within its row limit."""
    target = target_file_size(state.schema)
    most = opt.Options(state.schema.options).of(opt.TARGET_FILE_ROWS)
    if most is not None:
        return min(most, _by_size(state, target))
    return _by_size(state, target)


def _by_size(state: TableState, target: int) -> int:
    width = bytes_per_row(newest_files(state, 100)) or sum(_guess(f.type) for f in state.schema.fields) / _CAUTION
    return max(_MIN_ROWS, int(target / max(width, 0.5)))


def bytes_per_row(entries: Sequence[ManifestEntry]) -> float | None:
    """Average bytes a row takes in files; None when there is too little to judge by."""
    rows = sum(e.file.row_count for e in entries)
    return sum(e.file.file_size for e in entries) / rows if rows >= _ENOUGH_ROWS else None


def _guess(made: DataType) -> float:
    if isinstance(made, AtomicType):
        return _GUESS.get(made.root, _TEXT_GUESS)
    if isinstance(made, RowType):
        return sum(_guess(f.type) for f in made.fields)
    if isinstance(made, MapType):
        return 4 * (_guess(made.key) + _guess(made.value))
    assert isinstance(made, (ArrayType, MultisetType))
    return 4 * _guess(made.element)
