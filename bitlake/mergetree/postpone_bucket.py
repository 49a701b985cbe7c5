"""Postponed buckets: tables with ``bucket`` = -2 store rows as they come, until a compaction assigns buckets.

The rows wait in the folder ``bucket-postpone``, in files that are neither sorted nor merged: Avro without statistics if
the column types allow it, sequence number -1, and a name that identifies the writer, since the files of one writer must
be read in order: ``<data-file.prefix>-u-<commit user>-s-<writer>-w-<uuid>-<n>``.  Source: Paimon's postpone writer.

Unless ``postpone.batch-write-fixed-bucket`` is false, a batch write does not postpone its rows (:func:`fixed_buckets`):
it assigns buckets, as many as the partition has already, else one for each writer, and writes level 0 without a
compaction.  Source: Paimon's ``PostponeUtils`` and Spark writer (release 1.4).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import bucket_of
from bitlake.codec.hashing import Int32s
from bitlake.errors import UnsupportedFeature
from bitlake.formats.file_format import check_format
from bitlake.io import Store
from bitlake.mergetree.bucket import BucketReader, MergeTreeContext
from bitlake.mergetree.cross_partition import partitions_of_rows
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import SEQUENCE_NUMBER
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.state import TableState
from bitlake.write.writer import group_codes

UNKNOWN_SEQUENCE = -1


def postpone_writer(
    context: MergeTreeContext, store: Store, partition: bytes, user: str, writer: int
) -> KeyValueWriter:
    """Return a writer of rows with ``_VALUE_KIND`` in their order; ``writer`` is a number unique among ``user``'s."""
    schema = context.schema
    prefix = f"{schema.opts.of(opt.DATA_FILE_PREFIX)}-u-{user}-s-{writer}-w-"
    with contextlib.suppress(UnsupportedFeature):
        check_format("avro", schema.fields)
        options = {"file.format": "avro", "metadata.stats-mode": "none"}
        context = replace(context, schema=schema.with_options(options))
    return KeyValueWriter(context, store, partition, POSTPONE_BUCKET, 0, prefix=prefix, total_buckets=POSTPONE_BUCKET)


def without_sequence(rows: pa.Table) -> pa.Table:
    """Return rows as :func:`postpone_writer` expects them: with :data:`UNKNOWN_SEQUENCE` as their sequence number."""
    column = pa.array(np.full(rows.num_rows, UNKNOWN_SEQUENCE, np.int64))
    return rows.add_column(0, SEQUENCE_NUMBER, column)


def postponed_files(entries: Iterable[ManifestEntry]) -> dict[bytes, list[ManifestEntry]]:
    """Return the files of postponed rows by partition, in the order in which they were written."""
    out: dict[bytes, list[ManifestEntry]] = {}
    for e in entries:
        if e.bucket == POSTPONE_BUCKET:
            out.setdefault(e.partition, []).append(e)
    # The sort is stable: files of one millisecond stay in the order of their commits.
    return {p: sorted(files, key=lambda e: e.file.creation_time or 0) for p, files in out.items()}


def read_postponed(
    context: MergeTreeContext, store: Store, partition: bytes, files: Sequence[ManifestEntry]
) -> Iterator[pa.Table]:
    """Yield the rows of a partition's files, in their order, with ``_VALUE_KIND``."""
    reader = BucketReader(context, store, partition, {})
    for entry in files:
        for rows in reader.read(entry, reader.columns):
            yield rows.drop_columns([SEQUENCE_NUMBER])


@dataclass(frozen=True, slots=True)
class FixedBuckets:
    """A table of postponed buckets, as seen by a batch write that assigns buckets."""

    state: TableState
    """The table, with the number of buckets of a new partition."""
    counts: Mapping[bytes, int]
    """The number of buckets of partitions that differ from it."""


def fixed_buckets(state: TableState, writers: int) -> FixedBuckets | None:
    """Return how a batch write by ``writers`` tasks assigns buckets; None for postponed rows and other tables."""
    options = state.schema.opts
    if state.schema.num_buckets != POSTPONE_BUCKET or not options.of(opt.POSTPONE_FIXED):
        return None
    files = columns_of_files(state.entries())
    rows, codes = files.partitions
    pairs = zip(codes.tolist(), files.buckets[:, 1].tolist(), strict=True)
    totals = {rows[code]: total for code, total in pairs if total > 0}
    new = min(options.of(opt.POSTPONE_BUCKETS) or writers, options.of(opt.POSTPONE_FIXED_MOST))
    if not state.schema.partition_keys:
        new = next(iter(totals.values()), new)
    bucketed = replace(state, schema=state.schema.with_options({"bucket": str(new)}))
    return FixedBuckets(bucketed, {p: n for p, n in totals.items() if n != new})


def bucket_numbers(rows: pa.Table, schema: TableSchema, counts: Mapping[bytes, int]) -> Int32s:
    """Return the bucket of each row; a partition has the number of buckets in ``counts``, else the schema's."""
    codes = group_codes(rows, schema.partition_fields, np.zeros(rows.num_rows, np.int32))
    _, first, groups = np.unique(codes, return_index=True, return_inverse=True)
    partitions = partitions_of_rows(schema, rows, first)
    totals = np.array([counts.get(p, schema.num_buckets) for p in partitions], np.int64)[groups]
    fields, function = schema.bucket_fields, schema.opts.of(opt.BUCKET_FUNCTION)
    out = np.empty(rows.num_rows, np.int32)
    for total in np.unique(totals).tolist():
        at = np.flatnonzero(totals == total)
        columns = [rows.column(f.name).take(pa.array(at)) for f in fields]
        out[at] = bucket_of([f.type for f in fields], columns, total, function)
    return out


def schema_with_buckets(
    schema: TableSchema, partition: bytes, files: Sequence[ManifestEntry], live: Iterable[ManifestEntry]
) -> TableSchema:
    """Return the schema with the number of buckets for a partition's postponed ``files``.

    That is the number that the partition has in ``live``; for a new partition the options decide, by number, rows or
    bytes.
    """
    options = schema.opts
    existing = next((e.total_buckets for e in live if e.partition == partition and e.total_buckets > 0), None)
    rows, target = sum(e.file.row_count for e in files), options.of(opt.POSTPONE_ROWS)
    size = sum(e.file.file_size for e in files)
    needed = -(-size // options.of(opt.POSTPONE_SIZE)) if target is None else -(-rows // target)
    return schema.with_options({"bucket": str(existing or options.of(opt.POSTPONE_BUCKETS) or max(1, needed))})
