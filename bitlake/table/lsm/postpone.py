"""Rows of tables with ``bucket`` = -2: kept as they came, until a compaction gives them buckets.

They wait in the folder ``bucket-postpone``, in files that are neither sorted nor merged: Avro without statistics where
the columns allow it, sequence number -1, and a name that tells the writer, since the files of one writer must be read
in their order: ``<data-file.prefix>-u-<commit user>-s-<writer>-w-<uuid>-<n>``.  Source: Paimon's postpone writer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from bitlake.errors import UnsupportedFeature
from bitlake.formats.writer import check_format
from bitlake.metadata import options as opt
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.storage import Store
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
