"""Building all indexes of one data file while it is written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.registry import INDEX_TYPES, IndexSpec, IndexWriter, indexed_type
from bitlake.types import DataField


class IndexBuilder:
    """``add`` the file's batches in order, then ``finish`` once.

    ``specs`` come from :func:`~bitlake.fileindex.registry.parse_index_options`; ``fields`` are those of the file's
    schema.  Memory: 4 bytes a row for each bitmap, 8 for each distinct value of a bloom filter, and distinct values.
    """

    def __init__(self, specs: Sequence[IndexSpec], fields: Sequence[DataField]) -> None:
        self._specs = tuple(specs)
        self._writers: list[IndexWriter | None] = []
        self._sources: list[tuple[str, str | None]] = []
        for spec in specs:
            known = indexed_type(spec.column, fields)
            if known is None:
                raise InvalidRequest(f"index '{spec.index_type}' is of column '{spec.column}', which is not there")
            field, key, values = known
            self._writers.append(INDEX_TYPES[spec.index_type].writer(values, spec.options))
            self._sources.append((field.name, key))
        wanted = [s for s, spec in zip(self._sources, specs, strict=True)]
        self._shared = {s for s in wanted if wanted.count(s) > 1}
        self.problems: list[str] = []
        """Indexes this file goes without, and why: values their format cannot hold."""

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append a batch's rows; it holds at least the indexed columns, by name."""
        columns: dict[tuple[str, str | None], pa.Array | pa.ChunkedArray] = {}
        for i, (source, writer) in enumerate(zip(self._sources, self._writers, strict=True)):
            if writer is None:
                continue
            if source not in columns:
                columns[source] = self._column(batch, source)
            try:
                writer.add(columns[source])
            except UnsupportedFeature as e:
                self._give_up(i, e)

    def _give_up(self, i: int, reason: UnsupportedFeature) -> None:
        # Data must not be refused because one index cannot hold it.
        self._writers[i] = None
        spec = self._specs[i]
        self.problems.append(f"index '{spec.index_type}' of column '{spec.column}' is not written: {reason}")

    def _column(self, batch: pa.RecordBatch | pa.Table, source: tuple[str, str | None]) -> pa.Array | pa.ChunkedArray:
        name, key = source
        if name not in batch.schema.names:
            raise InvalidRequest(f"column '{name}' is indexed, but not among the batch's: {batch.schema.names}")
        column = batch.column(name)
        if key is not None:
            column = pc.map_lookup(column, pa.scalar(key, column.type.key_type), "first")
        kind = column.type
        if source in self._shared and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            column = column.dictionary_encode()  # once, for all its indexes
        return column

    def finish(self, *, checksums: bool = False) -> bytes:
        """The container of all indexes; empty when there is none.  Without ``checksums``, byte for byte Paimon's."""
        indexes = self.payloads()
        declared = [(s.column, s.index_type) for s in self._specs if s.index_type in indexes.get(s.column, {})]
        return encode_container(indexes, declared, checksums=checksums) if indexes else b""

    def payloads(self) -> dict[str, dict[str, bytes]]:
        """The payloads by column and index type, for a container put together elsewhere; instead of :meth:`finish`."""
        indexes: dict[str, dict[str, bytes]] = {}
        for i, (spec, writer) in enumerate(zip(self._specs, self._writers, strict=True)):
            if writer is None:
                continue
            try:
                payload = writer.finish()
            except UnsupportedFeature as e:
                self._give_up(i, e)
                continue
            indexes.setdefault(spec.column, {})[spec.index_type] = payload
        return indexes
