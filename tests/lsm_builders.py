"""Buckets of primary-key tables for tests: a table's schema, files of chosen levels, and a plain model of a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.mergetree.bucket import BucketState, MergeTreeContext
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.schema.merge_spec import SYSTEM_FIELDS
from bitlake.snapshot.index_files import write_vectors
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import arrow_schema
from bitlake.types.datatypes import parse_type


def context_of(
    root: Path, columns: Sequence[tuple[str, str]], keys: Sequence[str], options: Mapping[str, str]
) -> tuple[MergeTreeContext, Store]:
    """A table of one bucket."""
    fields, highest = assign_ids([(n, parse_type(t), None) for n, t in columns])
    schema = TableSchema(0, fields, highest, (), tuple(keys), {"bucket": "1", **options}, None, 0)
    paths = TablePaths(str(root))
    return MergeTreeContext("t", paths, schema, {0: schema}), LocalStore()


def row_schema(schema: TableSchema) -> pa.Schema:
    """The schema of rows on their way into data files: system columns, then the table's."""
    return arrow_schema((*SYSTEM_FIELDS, *schema.fields))


def rows_of(context: MergeTreeContext, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with system columns as files take them."""
    return pa.Table.from_pylist([dict(r) for r in rows], schema=row_schema(context.schema))


def put_files(context: MergeTreeContext, store: Store, level: int, *tables: pa.Table) -> list[ManifestEntry]:
    """A file of each table (sorted by key) at a level."""
    made: list[ManifestEntry] = []
    for table in tables:
        writer = KeyValueWriter(context, store, EMPTY_ROW, 0, level)
        writer.write(table)
        made += writer.finish()
    return made


def state_of(
    context: MergeTreeContext,
    store: Store,
    files: Sequence[ManifestEntry],
    vectors: Mapping[str, Sequence[int]] | None = None,
) -> BucketState:
    """The state of the bucket; ``vectors``: deleted positions by file name."""
    entry = None
    if vectors:
        import numpy as np

        made = {n: DeletionVector.of(np.array(p, np.int64)) for n, p in vectors.items()}
        entry = write_vectors(TableFiles(store, context.paths), context.schema, EMPTY_ROW, 0, made)
    return BucketState(EMPTY_ROW, 0, 1, tuple(files), entry)
