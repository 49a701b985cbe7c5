"""Column statistics of a snapshot: a JSON file, published by a snapshot of kind ANALYZE.

:func:`scan_statistics` computes the statistics (:class:`ColumnStatistics`) in one pass over the rows, a batch at a
time; Spark's engine computes the same by a job.  :func:`save_statistics` writes them to ``statistics/stat-<uuid>-0``
and commits a snapshot that names the file and changes nothing else.  The members of the file are listed in
:mod:`bitlake.system_tables.tables`.  Source: Paimon's statistics files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bitlake import _clock
from bitlake.codec.sketches import DistinctSketch, sketch_hashes
from bitlake.errors import NotFound, UnsupportedFeature
from bitlake.metadata.java_json import dumps
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files
from bitlake.types import AtomicType, DataType, Root
from bitlake.types.casts import to_text
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan

_LENGTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DATE: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
"""Types with a length of their own, and with a smallest and largest value; DECIMAL is beside them."""
_TEXTS = (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column: ``min`` and ``max`` as text, lengths in bytes; None means unknown."""

    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    avg_length: int | None = None
    max_length: int | None = None


def analyzed_type(data_type: DataType) -> AtomicType | None:
    """The type, if its columns can have statistics."""
    if isinstance(data_type, AtomicType) and (
        data_type.root in _LENGTHS or data_type.root in _TEXTS or data_type.root is Root.DECIMAL
    ):
        return data_type
    return None


def value_length(kind: AtomicType) -> int | None:
    """Bytes of each value of a type; None for text and bytes, whose values have lengths of their own and no bounds."""
    if kind.root in _TEXTS:
        return None
    return _LENGTHS.get(kind.root) or (8 if (kind.precision or 10) <= 18 else 16)


def analyzed_columns(name: str, schema: TableSchema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to analyze of table ``name``: those given, or with None all that can have statistics.

    Raises :class:`UnsupportedFeature` for a column whose type has no order and no length.
    """
    if columns is None:
        return tuple(f.name for f in schema.fields if analyzed_type(f.type) is not None)
    for column in columns:
        kind = schema.field(column).type
        if analyzed_type(kind) is None:
            raise UnsupportedFeature(f"table '{name}': column '{column}' is {kind}, which cannot be analyzed")
    return tuple(columns)


def scan_statistics(scan: TableScan, columns: Sequence[str]) -> tuple[int, dict[str, ColumnStatistics]]:
    """The number of rows of a scan, and the statistics of these columns, which can have some.

    The rows are read once, a batch at a time.  No column: rows are counted, from metadata where possible.
    """
    if not columns:
        return scan.count(), {}
    schema = scan.state.schema
    facts = {name: _ColumnFacts(schema.field(name).type) for name in columns}
    rows = 0
    for batch in scan.select(columns).to_batches():
        rows += batch.num_rows
        for name, column in zip(columns, batch.columns, strict=True):
            facts[name].add(column)
    return rows, {name: f.statistics() for name, f in facts.items()}


class _ColumnFacts:
    """The statistics of a column over the batches so far."""

    def __init__(self, data_type: DataType) -> None:
        kind = analyzed_type(data_type)
        assert kind is not None
        self._type = kind
        self._sketch = DistinctSketch()
        self._nulls = self._values = self._bytes = self._longest = 0
        self._bounds: pa.Array | None = None

    def add(self, column: pa.Array) -> None:
        """Add the values of a batch."""
        self._nulls += column.null_count
        values = column.drop_null()
        if len(values) == 0:
            return
        self._values += len(values)
        self._sketch.add(sketch_hashes(values))
        if value_length(self._type) is None:
            lengths = pc.binary_length(values)
            self._bytes += pc.sum(lengths).as_py()
            self._longest = max(self._longest, pc.max(lengths).as_py())
        else:
            bounds = _bounds(values)
            self._bounds = bounds if self._bounds is None else _bounds(pa.concat_arrays([self._bounds, bounds]))

    def statistics(self) -> ColumnStatistics:
        """The column's statistics."""
        length, distinct = value_length(self._type), self._sketch.estimate()
        if length is None:
            average = -(-self._bytes // self._values) if self._values else 0
            return ColumnStatistics(distinct, None, None, self._nulls, average, self._longest)
        low, high = (None, None) if self._bounds is None else bound_texts(self._bounds, self._type)
        return ColumnStatistics(distinct, low, high, self._nulls, length, length)


def _bounds(values: pa.Array) -> pa.Array:
    """The smallest and the largest value; NaN is larger than all numbers, as Spark orders them."""
    ends = pc.min_max(values)  # without NaN, unless there is nothing else
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        high = float("nan")
    return pa.array([low, high], values.type)


def bound_texts(bounds: pa.Array, kind: AtomicType) -> list[str | None]:
    """Bounds as Paimon's statistics have them: days for DATE, UTC for a moment, else as Java prints them."""
    if kind.root is Root.DATE:
        bounds = bounds.cast(pa.int32())
        kind = AtomicType(Root.INT)
    elif kind.root is Root.TIMESTAMP_LTZ:
        bounds = bounds.cast(pa.timestamp(bounds.type.unit))
    texts: list[str | None] = to_text(bounds, kind).to_pylist()
    return texts


def save_statistics(state: TableState, rows: int, columns: Mapping[str, ColumnStatistics], user: str) -> Snapshot:
    """Write statistics of a table state and return the ANALYZE snapshot that names them.

    ``rows`` is the number of rows after merging; ``user`` is the commit user.  Raises :class:`NotFound` for a table
    without a snapshot, and what :func:`bitlake.write.commit.commit` raises; the statistics file is then deleted unless
    the snapshot may exist.
    """
    snapshot = state.snapshot
    if snapshot is None:
        raise NotFound(f"table '{state.name}' has no snapshot to analyze yet")
    stored_bytes = sum(e.file.file_size for e in state.entries())
    stored_rows = sum(e.file.row_count for e in state.entries())
    content: dict[str, Any] = {
        "snapshotId": snapshot.id,
        "schemaId": snapshot.schema_id,
        "mergedRecordCount": rows,
        "mergedRecordSize": stored_bytes * rows // stored_rows if stored_rows else 0,
        "colStats": {name: _column_members(state, name, statistics) for name, statistics in columns.items()},
    }
    name = f"stat-{_clock.new_uuid()}-0"
    path = state.paths.statistics(name)
    state.store.write(path, dumps(content).encode())
    plan = CommitPlan("ANALYZE", statistics=name)
    discard = partial(discard_files, state.store, [path])
    published = commit(state.store, state.paths, plan, state.schema, user, on_failure=discard)
    assert published is not None
    return published


def _column_members(state: TableState, name: str, statistics: ColumnStatistics) -> dict[str, Any]:
    members = {
        "colId": state.schema.field(name).id,
        "distinctCount": statistics.distinct_count,
        "min": statistics.min,
        "max": statistics.max,
        "nullCount": statistics.null_count,
        "avgLen": statistics.avg_length,
        "maxLen": statistics.max_length,
    }
    return {k: v for k, v in members.items() if v is not None}
