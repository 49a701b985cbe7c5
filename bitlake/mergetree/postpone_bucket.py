"""Rows of tables with ``bucket`` = -2: kept as they came, until a compaction gives them buckets.

They wait in the folder ``bucket-postpone``, in files that are neither sorted nor merged: Avro without statistics where
the columns allow it, sequence number -1, and a name that tells the writer, since the files of one writer must be read
in their order: ``<data-file.prefix>-u-<commit user>-s-<writer>-w-<uuid>-<n>``.  Source: Paimon's postpone writer.

Unless ``postpone.batch-write-fixed-bucket`` is false, a write does not postpone its rows: it gives them buckets, as
many as their partition has already, else one for each writer, and writes level 0 without a compaction.  Source:
Paimon's ``PostponeUtils`` and Spark writer (release 1.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import bucket_of
from bitlake.codec.hashing import Int32s
from bitlake.errors import UnsupportedFeature
from bitlake.formats.writer import check_format
from bitlake.io import Store
from bitlake.mergetree.bucket_reader import BucketReader
from bitlake.mergetree.commit_message import LsmContext
from bitlake.mergetree.cross_partition import partitions_at
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import SEQUENCE_NUMBER
from bitlake.snapshot.state import TableState
from bitlake.write.writer import group_codes

UNKNOWN_SEQUENCE = -1


def postpone_writer(context: LsmContext, store: Store, partition: bytes, user: str, writer: int) -> KeyValueWriter:
    """A writer of rows with ``_VALUE_KIND``, in their order; ``writer`` is a number no other one of ``user`` has."""
    schema = context.schema
    prefix = f"{schema.opts.of(opt.DATA_FILE_PREFIX)}-u-{user}-s-{writer}-w-"
    try:
        check_format("avro", schema.fields)
        made = {"file.format": "avro", "metadata.stats-mode": "none"}
        context = replace(context, schema=schema.with_options(made))
    except UnsupportedFeature:
        pass
    return KeyValueWriter(context, store, partition, POSTPONE_BUCKET, 0, prefix=prefix, total_buckets=POSTPONE_BUCKET)


def unnumbered(rows: pa.Table) -> pa.Table:
    """Rows as :func:`postpone_writer`'s take them."""
    column = pa.array(np.full(rows.num_rows, UNKNOWN_SEQUENCE, np.int64))
    return rows.add_column(0, SEQUENCE_NUMBER, column)


def postponed(entries: Iterable[ManifestEntry]) -> dict[bytes, list[ManifestEntry]]:
    """The files of postponed rows by partition, in the order in which they were written."""
    out: dict[bytes, list[ManifestEntry]] = {}
    for e in entries:
        if e.bucket == POSTPONE_BUCKET:
            out.setdefault(e.partition, []).append(e)
    # Stable: files of one millisecond stay in the order of their commits.
    return {p: sorted(files, key=lambda e: e.file.creation_time or 0) for p, files in out.items()}


def read_postponed(
    context: LsmContext, store: Store, partition: bytes, files: Sequence[ManifestEntry]
) -> Iterator[pa.Table]:
    """The rows of a partition's files, in their order, with ``_VALUE_KIND``."""
    reader = BucketReader(context, store, partition, {})
    for entry in files:
        for rows in reader.read(entry, reader.columns):
            yield rows.drop_columns([SEQUENCE_NUMBER])


@dataclass(frozen=True, slots=True)
class FixedBuckets:
    """A table of postponed buckets as a batch write sees it that gives rows their buckets."""

    state: TableState
    """The table with the number of buckets that a new partition gets."""
    counts: Mapping[bytes, int]
    """The number of buckets of each partition that has another one."""


def fixed_buckets(state: TableState, writers: int) -> FixedBuckets | None:
    """How a batch write by ``writers`` tasks gives rows their buckets; None if the table's rows are not given any."""
    options = state.schema.opts
    if state.schema.num_buckets != POSTPONE_BUCKET or not options.of(lsm.POSTPONE_FIXED):
        return None
    known = {e.partition: e.total_buckets for e in state.entries() if e.total_buckets > 0}
    new = min(options.of(lsm.POSTPONE_BUCKETS) or writers, options.of(lsm.POSTPONE_FIXED_MOST))
    if not state.schema.partition_keys:
        new = next(iter(known.values()), new)
    real = replace(state, schema=state.schema.with_options({"bucket": str(new)}))
    return FixedBuckets(real, {p: n for p, n in known.items() if n != new})


def bucket_numbers(rows: pa.Table, schema: TableSchema, counts: Mapping[bytes, int]) -> Int32s:
    """The bucket of each row, where partitions differ in their number of buckets: ``counts``, else the schema's."""
    codes = group_codes(rows, schema.partition_fields, np.zeros(rows.num_rows, np.int32))
    _, first, groups = np.unique(codes, return_index=True, return_inverse=True)
    partitions = partitions_at(schema, rows, first)
    totals = np.array([counts.get(p, schema.num_buckets) for p in partitions], np.int64)[groups]
    fields, function = schema.bucket_fields, schema.opts.of(opt.BUCKET_FUNCTION)
    out = np.empty(rows.num_rows, np.int32)
    for total in np.unique(totals).tolist():
        chosen = np.flatnonzero(totals == total)
        columns = [rows.column(f.name).take(pa.array(chosen)) for f in fields]
        out[chosen] = bucket_of([f.type for f in fields], columns, total, function)
    return out


def with_buckets(
    schema: TableSchema, partition: bytes, files: Sequence[ManifestEntry], live: Iterable[ManifestEntry]
) -> TableSchema:
    """The schema of a table whose rows have buckets: as many as the partition has in ``live``, else as ``files`` need.

    Options decide what they need, by number, rows or bytes.
    """
    options = schema.opts
    known = next((e.total_buckets for e in live if e.partition == partition and e.total_buckets > 0), None)
    rows, target = sum(e.file.row_count for e in files), options.of(lsm.POSTPONE_ROWS)
    size = sum(e.file.file_size for e in files)
    needed = -(-size // options.of(lsm.POSTPONE_SIZE)) if target is None else -(-rows // target)
    return schema.with_options({"bucket": str(known or options.of(lsm.POSTPONE_BUCKETS) or max(1, needed))})
