"""Rows of tables with ``bucket`` = -2: kept as they came, until a compaction gives them buckets.

They wait in the folder ``bucket-postpone``, in files that are neither sorted nor merged: Avro without statistics where
the columns allow it, sequence number -1, and a name that tells the writer, since the files of one writer must be read
in their order: ``<data-file.prefix>-u-<commit user>-s-<writer>-w-<uuid>-<n>``.  Source: Paimon's postpone writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bitlake.errors import UnsupportedFeature
from bitlake.formats.writer import check_format
from bitlake.metadata import lsm_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.storage import Store
from bitlake.table.lsm.bucket_read import BucketReader
from bitlake.table.lsm.kv_file import KeyValueWriter
from bitlake.table.lsm.model import LsmContext
from bitlake.table.merge.spec import SEQUENCE_NUMBER

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
