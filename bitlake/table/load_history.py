"""Which files COPY INTO has loaded into a table.

``<table>/copy-into/history/load-<16 hex digits of the path's SHA-256>-<when>``: JSON with filePath, fileSize,
lastModified, loadedAt (ms since the epoch), snapshotId, rowsLoaded.  A file counts as loaded as long as its size and
its time are the same.  Source: Paimon's CopyLoadHistoryManager.
"""

from __future__ import annotations

import hashlib
import json
import logging

from bitlake import _clock
from bitlake.errors import NotFound
from bitlake.io import FileInfo, Store
from bitlake.metadata.java_json import dumps

log = logging.getLogger("bitlake")


class LoadHistory:
    """The history of one table; listed once."""

    def __init__(self, store: Store, table_path: str) -> None:
        self._store = store
        self._folder = f"{table_path}/copy-into/history"
        self._names: list[str] | None = None

    def has(self, path: str, file: FileInfo) -> bool:
        """Whether a file was loaded as it is now; a record that cannot be read says no, as in Paimon."""
        if self._names is None:
            self._names = [f.name for f in self._store.list(self._folder) if not f.is_dir]
        return any(self._says(name, file) for name in self._names if name.startswith(f"load-{_hash(path)}-"))

    def _says(self, name: str, file: FileInfo) -> bool:
        try:
            record = json.loads(self._store.read(f"{self._folder}/{name}"))
            return (int(record["fileSize"]), int(record["lastModified"])) == (file.size, file.mtime_ms)
        except (ValueError, KeyError, TypeError, NotFound) as e:
            log.warning("%s/%s is no record of a load (%s): the file is loaded again", self._folder, name, e)
            return False

    def add(self, path: str, file: FileInfo, snapshot_id: int, rows: int) -> None:
        """Remember that a file was loaded."""
        now = _clock.now_ms()
        record = {
            "filePath": path,
            "fileSize": file.size,
            "lastModified": file.mtime_ms,
            "loadedAt": now,
            "snapshotId": snapshot_id,
            "rowsLoaded": rows,
        }
        self._store.write(f"{self._folder}/load-{_hash(path)}-{now}", dumps(record).encode())


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:16]
