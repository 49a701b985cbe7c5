"""The table that DML, maintenance and commits work on, as a protocol.

:class:`bitlake.file_store_table.FileStoreTable` implements it.  Packages below that module name the protocol instead,
so that imports point downwards only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.scan.scan import Scan
from bitlake.snapshot.state import TableState
from bitlake.write.commit_plan import Overwrite


class WritableTable(Protocol):
    """A table or branch; every call works on its latest state, except where it takes one."""

    name: str
    store: Store

    def state(self) -> TableState:
        """Return the latest state; raises :class:`bitlake.errors.NotFound` if the table was dropped."""

    def stored_state(self) -> TableState:
        """Return the latest state under the table's stored options, without those of a session."""

    def commit_user(self) -> str:
        """Return the user that commits name."""

    def scan_of(self, state: TableState) -> Scan:
        """Return a scan of all rows of a state."""

    def partition_files(self, state: TableState, where: str | None) -> list[ManifestEntry]:
        """Return the live files of the partitions that satisfy a condition (None: all)."""

    def alter_options(self, set: Mapping[str, str]) -> TableSchema:
        """Set options by writing a new schema; returns the schema."""

    def commit_files(
        self,
        state: TableState,
        files: Sequence[ManifestEntry],
        operation: str,
        overwrite: Overwrite | None = None,
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        """Commit new data files of an append table in one snapshot."""

    def compact(self, full: bool = False) -> Snapshot | None:
        """Compact the table; ``full``: all files, not only the pending ones."""
