"""Snapshots with the files of an earlier one and nothing else, which rollback and fast-forward create.

Paimon reads them as snapshots of their own, whose commits changed nothing.
"""

from __future__ import annotations

from dataclasses import replace

from bitlake.io import Store
from bitlake.metadata.options import Options
from bitlake.metadata.paths import TablePaths, parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, VERSION, Snapshot
from bitlake.table.live import snapshot_manifests
from bitlake.table.manifests import ManifestWriter

ROLLED_BACK_TO = "bitlake.rolled-back-to"
"""Their property: the snapshot whose files they have."""


def restore_snapshot(
    store: Store, paths: TablePaths, schema: TableSchema, source: Snapshot, number: int, uuid: str, time_millis: int
) -> Snapshot:
    """Write the manifest lists of snapshot ``number`` with the files of ``source``; the caller creates its file."""
    writer = ManifestWriter(store, paths, [f.type for f in schema.partition_fields], Options(schema.options))
    base = writer.write_list(snapshot_manifests(store, paths, source))
    delta = writer.write_list(())
    return replace(
        source.with_lists(base, delta),
        version=VERSION,
        id=number,
        uuid=uuid,
        commit_user=uuid,
        commit_identifier=BATCH_IDENTIFIER,
        writer_version="bitlake",
        time_millis=time_millis,
        delta_record_count=0,
        properties={**source.properties, ROLLED_BACK_TO: str(source.id)},
        operation=None,
    )


def rolled_back_to(snapshot: Snapshot) -> int | None:
    """The id of the snapshot whose files a fence or filler has; None for any other snapshot."""
    return parse_id(snapshot.properties.get(ROLLED_BACK_TO, ""), "")
