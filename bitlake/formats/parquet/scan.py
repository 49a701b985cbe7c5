"""Read whole columns of a Parquet file as a stream of batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import NotFound, StorageUnavailable
from bitlake.formats.parquet.mini_file import DECODE_ERRORS, decode_error
from bitlake.lazy_modules import parquet as pq

BATCH_ROWS = 64 * 1024
WHOLE_CHUNKS_BYTES = 64 << 20
"""Of files up to this size, Arrow reads column chunks whole."""
_BUFFER_BYTES = 1 << 20
_DICTIONARY_BYTES = 1 << 20
"""Beyond this, Arrow and Parquet (Java) give a dictionary up."""
_CODE_BYTES = 4


def read_columns(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    row_groups: Sequence[int] | None = None,
    batch_size: int = BATCH_ROWS,
    read_dictionary: Sequence[str] = (),
    int96_unit: str | None = None,
    use_threads: bool = True,
    whole_chunks: bool = False,
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``source`` (a local path or a :class:`pyarrow.NativeFile`), in order, as batches of ``batch_size``.

    ``columns`` are top-level names, None for all; ``row_groups`` are numbers, None for all.  Columns in
    ``read_dictionary`` (flat, of strings or bytes) come as Arrow dictionaries, which index builders count quickly, if
    the file has them so: for plain values, Arrow would collect all values seen so far again for every batch (a million
    different texts: 2.2 s for a bloom filter instead of 0.4).
    ``whole_chunks``: column chunks are read as a whole, also of a large file; good for small pages, at whose headers
    Arrow's read buffer grows until it holds the chunk, copied each time (pages of 16 KB: 830 → 650 ms for 100 MB).
    ``metadata``: the file's footer, where it is known; then no byte of it is read.

    No batch has zero rows; a read of no columns gives batches without columns that still count their rows.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    try:
        if metadata is None and read_dictionary:
            metadata = pq.read_metadata(source)
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=coded_columns(metadata, read_dictionary) or None
            if metadata is not None and read_dictionary
            else None,
            coerce_int96_timestamp_unit=int96_unit,
            memory_map=isinstance(source, str),
            pre_buffer=False,
            buffer_size=0 if whole_chunks else _buffer_size(source),
        )
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e
    except (PermissionError, IsADirectoryError) as e:
        raise StorageUnavailable(f"cannot read {source}: {e}") from e
    except DECODE_ERRORS as e:
        raise decode_error(e, "footer") from e
    with file:
        order = _order(file, columns)
        groups = list(range(file.num_row_groups)) if row_groups is None else list(row_groups)
        try:
            for batch in file.iter_batches(batch_size, row_groups=groups, columns=order, use_threads=use_threads):
                if batch.num_rows:
                    yield batch if order is None or batch.schema.names == order else batch.select(order)
        except DECODE_ERRORS as e:
            raise decode_error(e, "pages") from e


def coded_columns(metadata: pq.FileMetaData, names: Sequence[str]) -> list[str]:
    """The columns among ``names`` that are stored as codes of a dictionary, all through the file."""
    paths = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found = []
    for name in (n for n in names if n in paths):
        chunks = [metadata.row_group(g).column(paths[name]) for g in range(metadata.num_row_groups)]
        # A writer that gives the dictionary up goes on with plain values, which take more than a code.
        if all(
            c.has_dictionary_page and c.total_uncompressed_size <= _DICTIONARY_BYTES + _CODE_BYTES * c.num_values
            for c in chunks
        ):
            found.append(name)
    return found


def _buffer_size(source: Any) -> int:
    """How much of a column chunk Arrow reads at a time, 0 for all of it.

    Through a buffer it allocates (and clears) whatever size a page's header states; whole chunks bound that.
    """
    return 0 if isinstance(source, str) or source.size() <= WHOLE_CHUNKS_BYTES else _BUFFER_BYTES


def _order(file: pq.ParquetFile, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    names = file.schema_arrow.names
    for name in columns:
        if name not in names:
            raise NotFound(f"the Parquet file has no column '{name}'; it has {', '.join(names)}")
    return list(columns)
