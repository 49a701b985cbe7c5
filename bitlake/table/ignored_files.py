"""Data files that a query may do without: ``scan.ignore-corrupt-files`` and ``scan.ignore-lost-files``.

As in Paimon, a file that cannot be read ends where it breaks: rows before that were returned.  Only queries ask for
this: what is read to be written again (compaction, DELETE, UPDATE) must be whole, and a deletion vector is never
ignored.  A store that does not answer stays an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from bitlake.errors import CorruptError, NotFound
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.table.fetch import FileTask, ReadCounts

log = logging.getLogger("bitlake")


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """Which data files that cannot be read are left out of a query."""

    corrupt: bool
    lost: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> IgnoredFiles | None:
        """What a table's options say; None, as nearly always, if every file must be read."""
        if opt.SCAN_IGNORE_CORRUPT.name not in options and opt.SCAN_IGNORE_LOST.name not in options:
            return None
        parsed = opt.Options(options)
        made = IgnoredFiles(parsed.of(opt.SCAN_IGNORE_CORRUPT), parsed.of(opt.SCAN_IGNORE_LOST))
        return made if made.corrupt or made.lost else None

    def guard(
        self, store: Store, task: FileTask, counts: ReadCounts, read: Callable[[], Iterator[pa.Table]]
    ) -> Iterator[pa.Table]:
        """Yield what ``read`` does up to the first error that is ignored, which is logged and counted once a file."""
        try:
            yield from read()
        except (CorruptError, NotFound) as e:
            lost = isinstance(e, NotFound) and not store.exists(task.path)
            if not (self.lost if lost else self.corrupt):
                raise
            if not counts.files_ignored:
                counts.add(files_ignored=1)
                warn_ignored(task.path, e, lost)


def warn_ignored(path: str, error: object, lost: bool) -> None:
    """Log a file that a query does without."""
    option = (opt.SCAN_IGNORE_LOST if lost else opt.SCAN_IGNORE_CORRUPT).name
    log.warning("data file %s is ignored ('%s'): %s", path, option, error)
