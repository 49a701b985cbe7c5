"""Writing Arrow data to append tables in this process.

:func:`fit` conforms rows to the table's columns and types; :func:`split_groups` spreads a batch over partitions and
buckets by one sort and one gather; :func:`write_rows` does both and writes the data files, which a commit then names.
Memory: a batch, an open file for each of the first 256 partitions and buckets, and ``write-buffer-size`` bytes of rows
of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import bucket_of
from bitlake.errors import InvalidRequest, NotFound
from bitlake.formats.conform import conform, fit_length, in_pieces
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import at_least
from bitlake.schema.evolution import default_column
from bitlake.snapshot.state import TableState
from bitlake.types import DataField, arrow_schema
from bitlake.types.arrow import physical_values
from bitlake.write.data_file_writer import DataFileFactory, DataFileWriter, GroupWriters
from bitlake.write.register_files import RegisterContext


def fit(table: str, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Conform rows to the columns and types of a table.

    Names are matched exactly, else ignoring case; missing nullable columns become NULL or their default; CHAR values
    are padded.  Raises :class:`InvalidRequest`, naming table and column, for values that the table cannot store.
    """
    columns: dict[str, None] = {}
    names = frozenset(schema.field_names)
    for name in rows.column_names:
        try:
            column = name if name in names else schema.field(name).name
        except NotFound as e:
            raise InvalidRequest(
                f"table '{table}' has no column '{name}'; its columns are {', '.join(f.name for f in schema.fields)}"
            ) from e
        if column in columns:
            raise InvalidRequest(f"table '{table}': column '{name}' is given twice (names ignore case)")
        columns[column] = None
    renamed = rows.rename_columns(list(columns))
    for field in schema.fields:
        if field.name not in columns and field.default_value is not None:
            renamed = renamed.append_column(field.name, default_column(field, rows.num_rows))
    try:
        conformed = conform(renamed, schema.fields, arrow_schema(schema.fields))
    except InvalidRequest as e:
        raise InvalidRequest(f"table '{table}': {e}") from e
    for i, field in enumerate(schema.fields):
        if field.name in columns:
            column = conformed.column(i)
            fitted = fit_length(table, column, field)
            if fitted is not column:
                conformed = conformed.set_column(i, conformed.schema.field(i), fitted)
    return conformed


def with_defaults(table: str, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows with the columns' defaults in place of NULLs, as Paimon's writers store them.

    A column with such NULLs gets the type of the table's column.  Raises :class:`InvalidRequest`, naming table and
    column, for values that it cannot store.
    """
    if all(f.default_value is None for f in schema.fields):
        return rows
    for at, name in enumerate(rows.column_names):
        try:
            field = schema.field(name)
        except NotFound:
            continue  # the row kinds, or a column that `fit` refuses
        if field.default_value is None or not rows.column(at).null_count:
            continue
        optional = replace(field, type=replace(field.type, nullable=True))
        try:
            given = conform(rows.select([at]).rename_columns([field.name]), [optional], arrow_schema([optional]))
            values = pc.coalesce(given.column(0), default_column(field, 1)[0])
        except InvalidRequest as e:
            raise InvalidRequest(f"table '{table}': {e}") from e
        rows = rows.set_column(at, name, values)
    return rows


def write_rows(state: TableState, batches: Iterator[pa.Table], store: Store) -> list[ManifestEntry]:
    """Write batches of rows as new data files and return their manifest entries.

    On an error every file is deleted.
    """
    schema = state.schema
    context = RegisterContext.of(state, store)
    factory = DataFileFactory(state.paths, schema, store)
    names = context.file_names()
    writers = GroupWriters(schema.opts.of(opt.WRITE_BUFFER_SIZE))
    try:
        write_groups(writers, (fit(state.name, batch, schema) for batch in batches), factory, names)
        return context.in_sequence([entry for entries in writers.finish().values() for entry in entries])
    except BaseException:
        writers.abort()
        raise


def write_groups(
    writers: GroupWriters, batches: Iterable[pa.Table], factory: DataFileFactory, names: Iterator[str]
) -> None:
    """Write rows of a table (:func:`fit`) by the writers of their partitions and buckets, which ``writers`` keeps."""
    for rows in (piece for batch in batches for piece in in_pieces(batch)):
        for partition, bucket, part in split_groups(rows, factory.schema):
            new = partial(DataFileWriter, factory, partition, bucket, names)
            writers.write(group_key(partition, bucket), part, new)


def group_key(partition: tuple[Any, ...], bucket: int) -> tuple[str, int]:
    """Return a key that identifies a partition and bucket; values do not, since -0.0 == 0.0 and NaN != NaN."""
    return repr(partition), bucket


def split_groups(rows: pa.Table, schema: TableSchema) -> Iterator[tuple[tuple[Any, ...], int, pa.Table]]:
    """Yield (partition values, bucket, rows) for each partition and bucket; rows keep their order."""
    if rows.num_rows == 0:
        return
    options = opt.Options(schema.options)
    total = options.of(opt.BUCKET)
    keys = schema.partition_fields
    buckets = np.zeros(rows.num_rows, np.int32)
    if total > 0:
        fields = [schema.field(k) for k in schema.bucket_keys]
        columns = [rows.column(f.name) for f in fields]
        buckets = bucket_of([f.type for f in fields], columns, total, options.of(opt.BUCKET_FUNCTION))
    elif not keys:
        yield (), 0, rows
        return
    codes = group_codes(rows, keys, buckets)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.append(starts[1:], len(ordered))
    # Sorting once lets each group be a slice: one gather of the rows, however many groups there are.
    gathered = rows if len(starts) == 1 else rows.take(pa.array(order))
    first = gathered.select([f.name for f in keys]).take(pa.array(starts)) if keys else None
    values: list[tuple[Any, ...]] = [()] * len(starts)
    if first is not None:
        values = list(zip(*[physical_values(first.column(f.name)) for f in keys], strict=True))
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        yield values[i], int(buckets[order[start]]), gathered.slice(start, end - start)


def group_codes(rows: pa.Table, keys: Sequence[DataField], buckets: np.ndarray) -> np.ndarray:
    """Return a number for each row, equal exactly for rows of one partition and bucket."""
    codes = buckets.astype(np.int64)
    for field in keys:
        column = rows.column(field.name)
        if pa.types.is_floating(column.type):
            # Compared as bits: 0.0 and -0.0 are different partitions.
            bits = pa.int32() if column.type == pa.float32() else pa.int64()
            column = pa.chunked_array([c.view(bits) for c in column.chunks], bits)
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Codes are renumbered after each column, so that the product never overflows.
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    return codes


def rebatched(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Combine batches into tables of at least ``rows`` rows each; the last may be smaller, and is never empty."""
    return map(pa.Table.from_batches, at_least(rows, (b for b in batches if b.num_rows), len))
