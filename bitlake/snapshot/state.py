"""The state of a table at one time: its schema, its snapshot and the live files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from bitlake.errors import InvalidRequest, NotFound, reading_table
from bitlake.io import Store
from bitlake.io.base import in_parallel
from bitlake.metadata import options as opt
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import versions
from bitlake.snapshot.table_files import TableFiles

if TYPE_CHECKING:
    from bitlake.metadata.manifest import ManifestEntry
    from bitlake.snapshot.file_columns import ColumnarFiles, LiveFiles
    from bitlake.snapshot.manifests import PartitionFilter


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it was when the state was loaded: later commits are not visible."""

    name: str
    paths: TablePaths
    store: Store = field(repr=False)
    schema: TableSchema
    snapshot: Snapshot | None

    @property
    def table_files(self) -> TableFiles:
        """The store and the paths of the table."""
        return TableFiles(self.store, self.paths)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot's id; None before the first commit."""
        return None if self.snapshot is None else self.snapshot.id

    @property
    def is_snapshot(self) -> bool:
        """Whether the files are exactly those of :attr:`snapshot`."""
        return self.snapshot is not None

    def with_options(self, options: Mapping[str, str]) -> TableState:
        """The state with a session's options; raises :class:`InvalidRequest` for options that existing files fix."""
        changed = {k: v for k, v in options.items() if self.schema.options.get(k) != v}
        if not changed:
            return self
        schema = self.schema.with_options(changed)
        try:
            opt.check_override(self.schema.options, schema.options)
            if schema.num_buckets != self.schema.num_buckets:
                raise InvalidRequest(
                    f"option '{opt.BUCKET.name}' is {self.schema.num_buckets} and cannot be set for a session; use "
                    "CALL sys.rescale"
                )
        except InvalidRequest as e:
            raise InvalidRequest(f"table '{self.name}': {e}") from e
        return replace(self, schema=schema)

    def entries(self, partitions: PartitionFilter | None = None) -> LiveFiles | ColumnarFiles:
        """The live data files; with ``partitions`` at least theirs."""
        # Imported lazily: manifests need Avro, which commands that read only schemas and snapshots do not.
        from bitlake.snapshot.file_columns import LiveFiles
        from bitlake.snapshot.manifests import live_files

        if self.snapshot is None:
            return LiveFiles()
        with self.reading_manifests():
            return live_files(self.table_files, self.snapshot, partitions)

    def bucket_entries(self, buckets: Iterable[int]) -> Sequence[ManifestEntry]:
        """The live data files of some buckets, in all partitions; those of other buckets do not become objects."""
        # Imported lazily, as in :meth:`entries`.
        from bitlake.snapshot.manifests import bucket_files

        if self.snapshot is None:
            return ()
        with self.reading_manifests():
            return bucket_files(self.table_files, self.snapshot, frozenset(buckets))

    def reading_manifests(self) -> AbstractContextManager[None]:
        """Name the table, and what a missing file means, in errors of reading the snapshot's manifests."""
        remedy = f": snapshot {self.snapshot_id} names it; it has expired (read the table again), or was damaged"
        return reading_table(self.name, remedy)

    def schemas(self, ids: Iterable[int]) -> Mapping[int, TableSchema]:
        """The schemas that files were written with, by id."""
        wanted = set(ids)
        with reading_table(self.name, ": data files need it; restore it from a backup"):
            schemas = versions.load_schemas(self.table_files, sorted(wanted - {self.schema.id}))
        return schemas | ({self.schema.id: self.schema} if self.schema.id in wanted else {})


def load_state(name: str, table: TableFiles) -> TableState | None:
    """Load the latest state of a table or branch; None if it has no schema."""
    with reading_table(name):
        fresh = False
        while True:
            schema, snapshot = in_parallel(
                table.store,
                table.paths.root,
                partial(versions.latest_schema, table, fresh),
                partial(versions.latest_snapshot, table),
                lambda schema: schema is not None,
            )
            if schema is None:
                return None
            # A table that is renamed or dropped after its schema was read has no snapshot there, but it is not empty.
            if snapshot is not None or versions.is_same_table(table, schema):
                return TableState(name, table.paths, table.store, schema, snapshot)
            fresh = True


def state_at(state: TableState, snapshot_id: int) -> TableState:
    """The table at a snapshot, with the schema of that time; raises :class:`NotFound`, naming the kept snapshots."""
    try:
        snapshot = versions.load_snapshot(state.table_files, snapshot_id)
    except NotFound as e:
        ids = versions.snapshot_ids(state.table_files)
        kept = versions.kept_words(ids, snapshot_id, versions.tag_names(state.table_files))
        raise NotFound(f"table '{state.name}' has no snapshot {snapshot_id}: {kept}") from e
    schema = state.schemas([snapshot.schema_id])[snapshot.schema_id]
    return replace(state, snapshot=snapshot, schema=schema)
