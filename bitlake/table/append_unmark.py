"""Writing files of append tables that have deletion vectors anew without their deleted rows, so that none is needed.

A compaction leaves files of which few rows are deleted; before vectors are switched off, none may be left.
"""

from __future__ import annotations

from pyroaring import BitMap

from bitlake.fileindex.selection import Selection
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import Runner
from bitlake.snapshot.index_files import Bucket, IndexChange
from bitlake.snapshot.index_manifest import index_entries
from bitlake.snapshot.state import TableState
from bitlake.table.append_delete import RowsGone, discard_index, read_all, vector_change, vector_files
from bitlake.table.append_rewrite import rewrite
from bitlake.table.commit import CommitPlan, commit


def unmark(state: TableState, runner: Runner, user: str) -> Snapshot | None:
    """Rewrite all files of an append table that have a vector, in one COMPACT snapshot; None if there are none.

    Raises :class:`bitlake.errors.CommitConflict` if another writer deleted rows of those files meanwhile; what was
    written is deleted then.
    """
    indexes: dict[Bucket, list[IndexFileEntry]] = {}
    for entry in index_entries(state.store, state.paths, state.snapshot):
        if entry.index_type == DELETION_VECTORS:
            indexes.setdefault((entry.partition, entry.bucket), []).append(entry)
    files: dict[Bucket, list[ManifestEntry]] = {}
    for e in state.entries():
        if (e.partition, e.bucket) in indexes:
            files.setdefault((e.partition, e.bucket), []).append(e)
    marked: list[ManifestEntry] = []
    deleted: dict[str, BitMap] = {}
    changes: list[IndexChange] = []
    adds: list[ManifestEntry] = []
    try:
        for slot, entries in files.items():
            rows = {e.file.file_name: e.file.row_count for e in entries}
            base = vector_files(state, indexes[slot], set(rows))
            held = read_all(state, base, rows)
            here = [e for e in entries if e.file.file_name in held]
            if not here:
                continue
            marked += here
            deleted |= {e.file.file_name: held.pop(e.file.file_name).rows for e in here}
            changes.append(vector_change(state, slot, base, held))
        if not marked:
            return None
        left = {e.file.file_name: Selection.all().minus(deleted[e.file.file_name], e.file.row_count) for e in marked}
        kept = [e for e in marked if len(deleted[e.file.file_name]) < e.file.row_count]
        for made in rewrite(state, [(e,) for e in kept], left, runner, FileSource.COMPACT):
            adds += made
    except BaseException:
        discard_index(state, [e for c in changes for e in c.new])
        raise
    gone = RowsGone({}, tuple(marked), tuple(adds), tuple(changes))
    return commit(
        state.store,
        state.paths,
        CommitPlan("COMPACT", gone.adds, gone.deletes, index=gone.index),
        state.schema,
        user,
        on_failure=lambda: gone.discard(state),
    )
