"""The files of a table: the store that holds them, and their paths."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bitlake.io import Store
from bitlake.metadata.paths import TablePaths


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The store and the paths of a table, or of one branch of it."""

    store: Store
    paths: TablePaths

    def on_branch(self, name: str | None) -> TableFiles:
        """The files of a branch of the same table; None is main."""
        return replace(self, paths=self.paths.on_branch(name))
