"""Partitions marked as complete: a file ``_SUCCESS`` in a partition's folder, Paimon's ``success-file`` action.

``CALL sys.mark_partition_done`` marks one; with ``partition.end-input-to-done`` every batch write marks those that it
wrote to.  Source: Paimon's ``SuccessFileMarkDoneAction`` and the Spark writer's ``markDoneIfNeeded``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from bitlake import _clock
from bitlake.errors import BitlakeError, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.java_json import dumps
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.table.partitions import PartitionReader
from bitlake.table.state import TableState

log = logging.getLogger("bitlake")


def mark_done(state: TableState, partition: bytes) -> str:
    """Mark a partition (a BinaryRow with arity) and return the path of its file, which keeps its time of creation."""
    folder = PartitionReader(state.schema, state.paths).folder(partition)
    path = f"{TablePaths(state.paths.root).root}/{folder}/_SUCCESS"
    now = _clock.now_ms()
    try:
        created = json.loads(state.store.read(path))["creationTime"]
    except (NotFound, ValueError, KeyError, TypeError):
        created = now
    state.store.write(path, dumps({"creationTime": created, "modificationTime": now}).encode())
    return path


def mark_written(state: TableState, files: Iterable[ManifestEntry]) -> None:
    """Mark the partitions of a write's committed files, if the table asks for it; a failure is logged."""
    if not state.schema.opts.of(opt.PARTITION_END_INPUT_DONE) or not state.schema.partition_keys:
        return
    try:
        for partition in dict.fromkeys(e.partition for e in files):
            mark_done(state, partition)
    except BitlakeError as e:
        log.warning("%s: snapshot %s is committed, but a partition is not marked: %s", state.name, state.snapshot_id, e)
