"""CACHE TABLE: a table's rows kept by Spark, for as long as the table is the one that was cached."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from bitlake.io import Store
from bitlake.spark.scan import SparkReader
from bitlake.table.scan import Scan
from bitlake.table.state import TableState


class CachedTables:
    """The tables that a session cached.  One that was changed since is cached again by the next query that reads it."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._reader = SparkReader(spark, store)
        self._entries: dict[str, tuple[TableState, DataFrame]] = {}

    def add(self, scan: Scan) -> DataFrame:
        """Cache all rows of a table; they are read when the frame that is returned first is."""
        self.remove(scan.state)
        frame = self._reader.frame(scan.select(scan.state.schema.field_names)).persist()
        self._entries[scan.state.name] = (scan.state, frame)
        return frame

    def remove(self, state: TableState) -> bool:
        """Free the rows of a table; returns whether it was cached."""
        entry = self._entries.pop(state.name, None)
        if entry is not None:
            entry[1].unpersist()
        return entry is not None

    def clear(self) -> None:
        """Free the rows of all tables."""
        for state, _ in list(self._entries.values()):
            self.remove(state)

    def frame(self, scan: Scan) -> DataFrame | None:
        """The columns of a scan from the cache, all rows of them; None for what is not cached."""
        entry = self._entries.get(scan.state.name) if self._entries and type(scan) is Scan else None
        if entry is None or not set(scan.columns) <= set(scan.state.schema.field_names):
            return None
        state, frame = entry
        if state != scan.state:
            if (scan.state.snapshot_id or 0, scan.state.schema.id) < (state.snapshot_id or 0, state.schema.id):
                return None  # an earlier moment
            frame = self.add(Scan(scan.state, scan.store, scan.state.schema.field_names))
        return frame.select([frame[f"`{c.replace('`', '``')}`"] for c in scan.columns])
