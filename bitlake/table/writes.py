"""What a table is written with: rows added, upserted, deleted, updated, replaced, and buckets compacted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import Predicate
from bitlake.io import Store
from bitlake.mergetree import dml
from bitlake.mergetree.commit import Publisher, once_of
from bitlake.mergetree.writer import Rows, batches_of
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import tracked
from bitlake.runtime import Runner
from bitlake.scan.scan import Scan
from bitlake.schema.create import check_options
from bitlake.snapshot.expiry import expire_after_commit
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.write.append_compaction import compact_append
from bitlake.write.append_dml import RowsGone, delete_rows, discard_all, retrying, update_rows
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite
from bitlake.write.partition_spec import overwrite_scope, physical_partition
from bitlake.write.writer import write_rows


class TableWrites:
    """The writing half of :class:`bitlake.table.table.Table`."""

    name: str
    store: Store
    shows_progress: bool = True
    """Whether long jobs may show a bar, where somebody watches."""
    _runner: Callable[[], Runner]
    _user: str

    def state(self) -> TableState:
        """The table now."""
        raise NotImplementedError

    def scan_of(self, state: TableState, where: str | Predicate | None = None) -> Scan:
        """A scan of all columns of a state."""
        raise NotImplementedError

    # --- rows --------------------------------------------------------------------------------------------------------

    @tracked("appending to")
    def append(self, rows: Rows) -> Snapshot | None:
        """Add Arrow rows; all of them become visible at once, or none.  Returns the snapshot (None for no rows).

        Rows of a table with a primary key replace those of the same key: it is :meth:`upsert`.
        """
        state = self.state()
        if state.schema.primary_keys:
            return self.upsert(rows)
        self.check_writable(state)
        return self.commit_files(state, write_rows(state, batches_of(rows), self.store), "WRITE")

    @tracked("writing to")
    def upsert(self, rows: Rows, kinds: Any = None) -> Snapshot | None:
        """Write changes of rows to a table with a primary key, which become visible at once.

        ``kinds`` says of each row whether it is +I, -U, +U or -D (or 0 to 3): an array, or the name of a column of
        ``rows`` that is not the table's; by default all are +I.  Later rows of a key come after earlier ones.
        Returns the last snapshot; None for no rows.
        """
        if isinstance(rows, pa.Table | pa.RecordBatch):
            return retrying(self.state, lambda _: dml.upsert(self, rows, kinds))
        return dml.upsert(self, rows, kinds)  # batches that come one by one cannot be read again

    @tracked("overwriting")
    def overwrite(self, rows: Rows, partition: Mapping[str, Any] | None = None) -> Snapshot | None:
        """Replace the table's rows, or with ``partition`` those of the partitions that match it.

        An empty ``partition`` replaces just the partitions that ``rows`` has.  Rows outside ``partition`` are an error.
        """
        state = self.state()
        scope = overwrite_scope(state.schema, physical_partition(self.name, state.schema, partition))
        if state.schema.primary_keys:
            return dml.upsert(self, rows, None, operation="OVERWRITE", overwrite=scope)
        self.check_writable(state)
        return self.commit_files(state, write_rows(state, batches_of(rows), self.store), "OVERWRITE", scope)

    @tracked("deleting from")
    def delete(self, where: str | Predicate | None = None) -> int:
        """Delete the rows for which a Spark SQL condition is TRUE (all without one); returns how many.

        With ``deletion-vectors.enabled`` data files of append tables stay, else those with such rows are written anew.
        Tables with a primary key get a -D row for each, where their merge engine takes it; else they are as these.
        """

        def step(state: TableState) -> int:
            scan = self.scan_of(state, where)
            if dml.deletes_by_rows(state):
                return dml.delete(self, scan)
            self.check_writable(state, keyed=True)
            if dml.rewrites(state):
                return dml.delete_by_rewrite(
                    self, state, lambda now: self.scan_of(now, where), self._runner(), self.commit_rows
                )
            return delete_rows(scan, self._runner(), self.commit_rows)

        return retrying(self.state, step)

    @tracked("updating")
    def update(self, values: Mapping[str, Any], where: str | Predicate | None = None) -> int:
        """Set columns of the rows for which a condition is TRUE; returns how many.

        A new value is a constant, or a function of the old rows (an Arrow table of all columns) that gives a column.
        """

        def step(state: TableState) -> int:
            scan = self.scan_of(state, where)
            if state.schema.primary_keys:
                return dml.update(self, scan, values)
            self.check_writable(state)
            return update_rows(scan, values, self._runner(), self.commit_rows)

        return retrying(self.state, step)

    def truncate(self, partition: Mapping[str, Any] | None = None, *others: Mapping[str, Any]) -> Snapshot | None:
        """Delete all rows, or those of the partitions that match one of the specs, in one snapshot."""
        state = self.state()
        self.check_writable(state, keyed=True)
        if partition is not None and not all((partition, *others)):
            raise InvalidRequest(f"table '{self.name}': TRUNCATE with an empty partition names nothing")
        scopes = [overwrite_scope(state.schema, spec, filled=False) for spec in (partition, *others)]
        scope = replace(scopes[0], others=tuple(s.partition for s in scopes[1:] if s.partition))
        return self.commit_files(state, [], "TRUNCATE", scope)

    @tracked("compacting")
    def compact(self, full: bool = False, where: str | None = None) -> Snapshot | None:
        """Compact what is due, or with ``full`` everything: buckets of keys, or small files and deleted rows.

        ``where`` may narrow partitions.  Returns the last COMPACT snapshot; None if there was nothing to do.
        """

        def step(state: TableState) -> Snapshot | None:
            files = self.partition_files(state, where)
            if state.schema.primary_keys:
                made = dml.compact(self, state, files, full)
            else:
                self.check_writable(state)
                made = compact_append(state, files, self.state, self._runner(), self._commit_user(state), full)
            self.expire_due(state)
            return made

        return retrying(self.state, step)

    def partition_files(self, state: TableState, where: str | None) -> list[ManifestEntry]:
        """The live files of the partitions for which a condition can hold."""
        raise NotImplementedError

    # --- commits -----------------------------------------------------------------------------------------------------

    def written_by(self, user: str) -> Self:
        """The same table for a writer that comes again under the same name, such as a stream."""
        made = copy.copy(self)
        made._user = user
        return made

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Who commits what is written to buckets."""
        return Publisher(self.state, self._commit_user(state), self._runner(), self.expire_due, identifier)

    def commit_rows(
        self, state: TableState, gone: RowsGone, operation: str, files: Sequence[ManifestEntry] = ()
    ) -> Snapshot | None:
        """Publish rows taken out of an append table and new files in one snapshot; on failure all of it is deleted."""
        made = commit(
            self.store,
            state.paths,
            gone.plan(state.schema, files),
            state.schema,
            self._commit_user(state),
            operation=operation,
            on_failure=lambda: discard_all(state, gone, files),
        )
        self.expire_due(state)
        return made

    def commit_files(
        self,
        state: TableState,
        files: Sequence[ManifestEntry],
        operation: str,
        overwrite: Overwrite | None = None,
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        """Make new data files visible in one snapshot; they are deleted if surely none is made.

        Raises :class:`bitlake.write.commit.OutcomeUnknown`, and keeps the files, if it may have been made all the same.
        """
        if not files and (overwrite is None or overwrite.dynamic):
            self.expire_due(state, identifier)
            return None
        kind = "APPEND" if overwrite is None else "OVERWRITE"
        once = once_of(state, self._commit_user(state), identifier)
        plan = CommitPlan(kind=kind, adds=tuple(files), overwrite=overwrite, once=once)
        made = self._commit(state, plan, operation, files, identifier)
        if operation != "TRUNCATE":  # expiry drops partitions by it, and in Paimon it expires none either
            self.expire_due(state, identifier)
        return made

    def expire_due(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> None:
        """Expire partitions after a commit to ``state``, if the table asks for it; a failure is logged."""
        expire_after_commit(self.state, self.truncate, state, identifier)

    def _commit(
        self,
        state: TableState,
        plan: CommitPlan,
        operation: str | None,
        made: Sequence[ManifestEntry],
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        return commit(
            self.store,
            state.paths,
            plan,
            state.schema,
            self._commit_user(state),
            identifier=identifier,
            operation=operation,
            on_failure=lambda: self.discard(state, made),
        )

    def discard(self, state: TableState, files: Sequence[ManifestEntry]) -> None:
        """Delete new data files, and their indexes, that no commit will name, as well as can be."""
        discard_entries(state.table_files, state.schema, files)

    def check_writable(self, state: TableState, keyed: bool = False) -> None:
        """Raise for tables that this version can read but must not write; ``keyed`` allows those with a primary key."""
        schema = state.schema
        if schema.primary_keys and not keyed:
            raise InvalidRequest(f"table '{self.name}' has a primary key; only append tables can be written so")
        check_options(self.name, dict(schema.options), schema.fields, schema.partition_keys, schema.primary_keys)

    def _commit_user(self, state: TableState) -> str:
        prefix = state.schema.opts.of(opt.COMMIT_USER_PREFIX)
        return self._user if prefix is None else f"{prefix}_{self._user}"
