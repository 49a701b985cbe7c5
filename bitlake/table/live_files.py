"""The live files of a snapshot."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from bitlake.metadata.manifest import ManifestEntry

if TYPE_CHECKING:
    from bitlake.table.file_columns import FileColumns


class LiveFiles(tuple[ManifestEntry, ...]):
    """The live files of a snapshot, with their columns made once."""

    @cached_property
    def columns(self) -> FileColumns:
        """The files by column."""
        # Loaded when a plan wants them: who lists files waits for no numpy and no Arrow.
        from bitlake.table.file_columns import FileColumns

        return FileColumns(self)
